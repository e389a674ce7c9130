"""Kernel names: of every timed point, and of many more shapes than can be timed (kernel choice depends on the shape)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tilewise.calibration.benchmarks import Benchmark
from tilewise.calibration.gemm_plan import Gemm
from tilewise.calibration.points import PointFile
from tilewise.calibration.protocol import Call, Case, Unmeasurable
from tilewise.hwdb.kernels.names import short
from tilewise.hwdb.times import State

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Device

COLUMNS = ("family", "key", "kernel")
CHUNK = 800  # calls in one profiler session: far below the size of its event buffers
UNNAMED_KEYS = ("sets",)  # parts of a key that cannot change the kernel


def name_key(case: Case) -> str:
    """The part of a case's key on which its kernel depends."""
    return "/".join(str(value) for column, value in case.key.items() if column not in UNNAMED_KEYS)


class Names:
    """The file of names, and what is still without one."""

    def __init__(self, file: PointFile, benchmarks: dict[str, Benchmark], shapes: list[Gemm]) -> None:
        self.file = file
        self.benchmarks = benchmarks
        self.known = {(row["family"], row["key"]) for row in file.rows()}
        self.timed: list[Case] = []
        self.shapes = [shape for shape in shapes if ("gemm", _shape_key(shape)) not in self.known]

    def want(self, case: Case) -> None:
        """Note a timed point that needs a name."""
        named = case.state is State.BURST and self.benchmarks[case.family].prepare is not None
        if named and (case.family, name_key(case)) not in self.known:
            self.timed.append(case)

    @property
    def waiting(self) -> int:
        return len(self.timed)

    @property
    def empty(self) -> bool:
        return not self.timed and not self.shapes

    def step(self, device: Device) -> int:
        """Name one chunk: timed points first, then shapes of the census. Returns how many were named."""
        timed, self.timed = self.timed[:CHUNK], self.timed[CHUNK:]
        shapes = self.shapes[: CHUNK - len(timed)]
        self.shapes = self.shapes[len(shapes) :]
        keys = [(case.family, name_key(case)) for case in timed] + [("gemm", _shape_key(shape)) for shape in shapes]
        calls = self._calls(device, timed, shapes)
        try:
            names = device.kernels(calls)
        except Unmeasurable:
            return 0  # the profiler lost events: these stay without a name
        rows = {key: name for key, name in zip(keys, names, strict=True) if name and key not in self.known}
        self.file.append([{"family": key[0], "key": key[1], "kernel": short(name)} for key, name in rows.items()])
        self.known.update(rows)
        return len(rows)

    def _calls(self, device: Device, timed: list[Case], shapes: list[Gemm]) -> Iterator[Call]:
        from tilewise.calibration.benchmarks import gemm

        makers = [partial(self._prepare, case, device) for case in timed]
        makers += [partial(gemm.call, shape, device.pool) for shape in shapes]
        for make in makers:
            device.pool.rewind()
            yield _made(make)

    def _prepare(self, case: Case, device: Device) -> Call:
        prepare = self.benchmarks[case.family].prepare
        assert prepare is not None
        return prepare(replace(case, sets_max=1), device.pool)[0]


def _made(make: Callable[[], Call]) -> Call:
    """The call, or one that does nothing where there is none: a name is missing then, and no more."""
    try:
        return make()
    except (Unmeasurable, RuntimeError):
        return lambda: None


def _shape_key(shape: Gemm) -> str:
    return "/".join(map(str, shape))
