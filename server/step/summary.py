"""A report's tables and its one sentence, from the rows of a table and their times."""

from __future__ import annotations

import re

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels import limits
from tilewise.hwdb.kinds import KINDS, multiplies
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.architecture.model import Architecture
from tilewise.server.step.idle import idle_layers
from tilewise.server.step.intervals import bounds
from tilewise.server.step.losses import summed
from tilewise.server.step.report import Interval, Layer, Operator, Step
from tilewise.server.step.steps import Steps, lowest_trust, parts_of
from tilewise.server.workload import Workload


class Groups:
    """Sums of columns over groups of rows (labels or parts), repeats counted."""

    def __init__(self, steps: Steps, group: Ints, size: int) -> None:
        table, times = steps.table, steps.times
        self.group, self.size, self.count = group, size, table.count
        self.time = self.sum(times.time_s)
        below, above = bounds(group, size, table.count, times)
        self.low, self.high = self.time - below, self.time + above
        self.flops, self.executed = self.sum(table.flops), self.sum(table.executed_flops)
        self.multiplies = np.bincount(group, multiplies(table), size) > 0
        self.moved = self.sum(table.bytes_read + table.bytes_written)
        self.launches = self.sum(steps.launched)
        code = group * len(Wall) + times.wall
        walls = np.bincount(code, table.count * times.known_s, size * len(Wall)).reshape(size, len(Wall))
        self.walls: Floats = walls.astype(float, copy=False)
        self.wall = walls.argmax(axis=1)
        self.trust = lowest_trust(times, self.sum, self.time)
        self.distance = np.full(size, np.nan)
        np.fmax.at(self.distance, group, times.distance)

    def sum(self, values: Floats) -> Floats:
        sums: Floats = np.bincount(self.group, self.count * values, self.size).astype(float, copy=False)
        return sums


def layers(steps: Steps) -> tuple[Layer, ...]:
    """One row a kind of layer of one shape, in the order the step meets them, then the time in which no kernel runs."""
    names, group = parts_of(steps.table)
    sums = Groups(steps, group, len(names))
    whole = (
        float(steps.time_s[0]) if steps.time_s[0] > 0 else float(np.nansum(sums.time))
    )  # where a row was refused: of the others
    peak, bandwidth = steps.peak, steps.gpu.sku.hbm_bytes_per_s
    from_memory = sums.sum(limits.from_memory(steps.table, steps.times, steps.gpu.sku))
    lost = summed(steps.lost, np.zeros(len(names)), group, len(names))
    launching = steps.gpu.launch(steps.workload.mode).trust
    rows = zip(
        names, sums.time.tolist(), sums.low.tolist(), sums.high.tolist(), sums.wall.tolist(), sums.walls.tolist(),
        lost.T.tolist(), sums.flops.tolist(), sums.moved.tolist(), from_memory.tolist(), sums.launches.tolist(),
        sums.trust.tolist(), sums.distance.tolist(), strict=True,
    )  # fmt: skip
    kinds = (
        Layer(
            name=name, time=Interval(time, low, high), share=time / whole, wall=_WALLS[wall], walls=tuple(walls),
            losses=tuple(causes), mfu=flops / (time * peak.flops_per_s) if flops and time else None,
            mbu=streamed / (time * bandwidth) if time else 0.0, flops=flops, memory_bytes=moved, launches=launches,
            trust=_TRUSTS[trust], distance=distance,
        )
        for name, time, low, high, wall, walls, causes, flops, moved, streamed, launches, trust, distance in rows
    )  # fmt: skip
    return (*kinds, *idle_layers(steps.sums, launching))


def operators(steps: Steps) -> tuple[Operator, ...]:
    """One row a label of one shape; its times are of one execution, which may be several kernels."""
    table, times, known = steps.table, steps.times, steps.peaks
    sums = Groups(steps, table.label, len(table.labels))
    first = np.zeros(len(table.labels), np.int64)
    first[table.label[::-1]] = np.arange(len(table))[::-1]  # the last one written is the first row of the label
    one = {name: getattr(table, name)[first].tolist() for name in _SHOWN}
    kernel, tiles, waves, refusal = (getattr(times, n)[first].tolist() for n in ("kernel", "tiles", "waves", "refusal"))
    count = np.where(table.count[first] > 0, table.count[first], 1.0)  # an operator of no layer takes no time
    executions = {name: (getattr(sums, name) / count).tolist() for name in _EXECUTION}
    lost = {name: (sums.sum(getattr(times, name)) / count).tolist() for name in _SECONDS}
    total, wall, trust, distance = (getattr(sums, n).tolist() for n in ("time", "wall", "trust", "distance"))
    busy = float(np.nansum(sums.time))
    found = []
    for code, label in enumerate(table.labels):
        kind, time, flops = KINDS[one["kind"][code]], executions["time"][code], executions["flops"][code]
        peak = known.get(one["precision"][code]) if kind.multiplies else None
        found.append(
            Operator(
                name=label.name, layer=label.layer, part=label.part, direction=label.direction, kind=kind.name,
                shape=kind.words({name: one[name][code] for name in kind.shown}),
                precision=_PRECISIONS[one["precision"][code]], count=one["count"][code],
                kernels=executions["launches"][code],
                time=Interval(time, executions["low"][code], executions["high"][code]), total_s=total[code],
                share=total[code] / busy, wall=_WALLS[wall[code]],
                mfu=flops / (time * peak.flops_per_s) if peak and flops and time else None, peak=peak, flops=flops,
                executed_flops=executions["executed"][code], memory_bytes=executions["moved"][code],
                **{name: values[code] for name, values in lost.items()},
                kernel=own(times.kernel_names[kernel[code]], steps.gpu.sku) if kernel[code] >= 0 else "", tiles=tiles[code],
                waves=waves[code], trust=_TRUSTS[trust[code]], distance=distance[code],
                refusal=times.refusals[refusal[code]] if refusal[code] >= 0 else "",
            )
        )  # fmt: skip
    return tuple(found)


def own(kernel: str, sku: Sku) -> str:
    """A kernel's name; "" for one of a generation that this GPU cannot run: its time was carried over, the kernel is another.

    Binaries of sm_80 and before run on what came later; sm_90 and later are built for their generation (CUDA programming guide,
    architecture-specific features).
    """
    named = re.search(r"sm(\d+)\d", kernel)
    if named is None:
        return kernel
    capability = sku.figures.get("compute_capability")
    own_generation = int(str(capability.value).partition(".")[0]) if capability else 0
    runs = int(named[1]) == own_generation or int(named[1]) < min(own_generation, 9)
    return kernel if runs else ""


def _without_reserve(workload: Workload) -> str:
    return f"the GPU has beside a reserve of {workload.reserve:.0%}" if workload.reserve else "the GPU has"


_WALLS, _TRUSTS = tuple(Wall), tuple(Trust)
_PRECISIONS = tuple(precision.name.lower() for precision in Precision)
_EXECUTION = ("time", "low", "high", "flops", "executed", "moved", "launches")
_SECONDS = ("compute_s", "memory_s", "special_s", "launch_s", "padding_s", "wave_s", "alignment_s")
_SHOWN = {"kind", "precision", "count"}.union(*(record.shown for record in KINDS.values()))


def headline(
    arch: Architecture, workload: Workload, gpu: Gpu, step: Step, largest: tuple[str, float], free: float
) -> str:
    """The one sentence that matters; largest: a kind of layer and its share of the step; free: bytes left, negative where it does not fit."""
    name = arch.name or arch.family
    fits = "" if free >= 0 else f" It does not fit: {-free / 1e9:.1f} GB more than {_without_reserve(workload)}."
    if step.time is None:
        return f"{name} on {gpu.sku.name}: no time for the step: {step.refusal}.{fits}"
    share = step.walls[step.wall] / step.time.time_s
    bound = {"overhead": "launch-bound", "bandwidth": "memory-bound"}.get(step.regime, f"{step.regime}-bound")
    verb = {"train": "trains at", "prefill": "prefills", "decode": "decodes"}[workload.phase]
    return (
        f"{name} {verb} {step.tokens_per_s:,.0f} tokens/s on {gpu.sku.name} ({step.time.time_s * 1e3:.4g} ms a step, "
        f"MFU {step.mfu:.1%}): {bound}, {share:.0%} of the time on that wall, most in {largest[0]} ({largest[1]:.0%}).{fits}"
    )
