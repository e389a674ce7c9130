"""Memory-bound operators as data: what one kernel reads and writes, its sizes, and the call that launches it.

The families memory, pointwise, norms, loss, optimizer and compiled share these columns, so that their files concatenate:

    op:        a name of hwdb.table.OPS; variant tells kernels of one op apart; precision is that of the first input
    rows, cols: as the kernel sees them (a norm over cols, a vocabulary of cols)
    inner:     innermost contiguous run where it matters (head_dim), else 0
    count:     repeats, experts, table rows, tensors, as the variant says, else 0
    residency: "reused": inputs rotate over 160 MB, outputs come back to the block just freed, as in an eager model;
               "cold": outputs rotate too; "warm": one set of both
    sets:      input sets that rotate (the footprint is sets * bytes_read + bytes_written; cold: of both)
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from tilewise.calibration.order import interleave
from tilewise.calibration.protocol import SETS_MAX, Call, Case, Level, Target, Unmeasurable
from tilewise.hwdb.record import Record
from tilewise.hwdb.times import State

if TYPE_CHECKING:
    from tilewise.calibration.benchmarks.device import Pool

COLUMNS = (
    "op",
    "variant",
    "precision",
    "rows",
    "cols",
    "inner",
    "count",
    "bytes_read",
    "bytes_written",
    "residency",
    "sets",
)
DTYPES: dict[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8": torch.float8_e4m3fn,
    "int64": torch.int64,
}
TINY_BYTES = 2**18
DENSITY = 4  # points offered for each of a kernel's `points`: the budget decides how far a run gets
# Half of the points as eager models run them; the rest tell what L2 is worth on either side.
RESIDENCY = ("reused", "warm", "cold", "reused", "warm", "reused", "cold")
OPERAND_BYTES = (2.5e5, 4e7)  # of a tensor of 16 bit that L2 holds in part or whole, beside others

HIDDEN = (
    512,
    576,
    768,
    896,
    1024,
    1536,
    2048,
    2560,
    2880,
    3072,
    3584,
    4096,
    4608,
    5120,
    6144,
    7168,
    8192,
    12288,
    16384,
)
WIDE = (1536, 2560, 4864, 8192, 10240, 11008, 14336, 18944, 28672)
ROWS = (1, 16, 64, 256, 512, 1024, 2048, 2048, 4096, 4096, 4096, 8192, 8192, 16384, 16384, 32768, 65536)


class Sizes(Record):
    """Sizes of one point; see the columns."""

    rows: int
    cols: int
    inner: int = 0
    count: int = 0


Draw = Callable[[random.Random], Sizes]


class Kernel(Record, kw_only=True):
    """One operator and how it is called.

    read, written: bytes of one call; build: a call with operands cut from the pool
    draw: random sizes; points: how many of them; limit_bytes: what one point may touch
    resident: bytes that must be there though a call does not touch them all (an embedding table)
    """

    op: str
    variant: str
    precision: str
    read: Callable[[Sizes], float]
    written: Callable[[Sizes], float]
    build: Callable[[Pool, Sizes], Call]
    draw: Draw
    points: int = 16
    limit_bytes: float = 1e9
    resident: Callable[[Sizes], float] = lambda sizes: 0.0

    @property
    def name(self) -> tuple[str, str, str]:
        return self.op, self.variant, self.precision

    def bytes(self, sizes: Sizes) -> float:
        """Compulsory traffic of one call."""
        return self.read(sizes) + self.written(sizes)


def tokens(rng: random.Random, widths: Sequence[int] = HIDDEN) -> Sizes:
    """Rows of activations: three quarters of the widths are those of models, the rest odd ones; a third passes through L2."""
    cols = rng.choice(widths) if rng.random() < 0.75 else log_uniform(rng, 200, 20000)
    if (pick := rng.random()) < 0.35:
        return Sizes(max(1, log_uniform(rng, *OPERAND_BYTES) // (2 * cols)), cols)
    return Sizes(rng.choice(ROWS) if pick < 0.75 else log_uniform(rng, 32, 65536), cols)


def log_uniform(rng: random.Random, low: float, high: float) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def wide(rng: random.Random) -> Sizes:
    """Rows of an MLP's inner activations."""
    return tokens(rng, WIDE)


def heads(rng: random.Random) -> Sizes:
    """Activations cut into heads: cols = heads x inner; count is how often GQA repeats a kv head."""
    inner, number = (
        rng.choice((64, 64, 80, 96, 128, 128, 128, 128, 192, 256)),
        rng.choice((1, 2, 4, 8, 8, 16, 32, 32, 64)),
    )
    return Sizes(rng.choice((*ROWS[2:-1], 1000, 3000)), number * inner, inner, rng.choice((2, 4, 7, 8, 16)))


def extent(where: str, sizes: Sizes) -> tuple[int, ...]:
    """Shape of an operand: the full tensor, one number a row, or one a column."""
    return {"full": (sizes.rows, sizes.cols), "row": (sizes.rows, 1), "col": (sizes.cols,)}[where]


def operands(text: str) -> list[tuple[str, torch.dtype]]:
    """Parse `full:bf16 col:bf16` into [(where, dtype)]."""
    return [(where, DTYPES[dtype]) for where, dtype in (word.split(":") for word in text.split())]


def traffic(text: str, sizes: Sizes) -> float:
    """Bytes of operands written as `full:bf16 col:bf16`."""
    return float(sum(math.prod(extent(where, sizes)) * dtype.itemsize for where, dtype in operands(text)))


def distinct(picks: float, among: float) -> float:
    """Different rows expected when `picks` rows are drawn at random among `among`: what memory must deliver."""
    return among * -math.expm1(-picks / among)


def indices(pool: Pool, count: int, below: int) -> torch.Tensor:
    """Random row numbers, always the same."""
    generator = torch.Generator(pool.device).manual_seed(below)
    return torch.randint(0, below, (count,), generator=generator, device=pool.device)


def elementwise(
    op: str,
    variant: str,
    reads: str,
    writes: str,
    function: Callable[..., object],
    draw: Draw = tokens,
    points: int = 16,
) -> Kernel:
    """A kernel whose operands are full tensors, rows or columns: `reads` are the function's arguments, in order."""

    def build(pool: Pool, sizes: Sizes) -> Call:
        return partial(function, *(pool.random(extent(where, sizes), dtype) for where, dtype in operands(reads)))

    return Kernel(
        op=op,
        variant=variant,
        precision=reads.split()[0].split(":")[1],
        read=partial(traffic, reads),
        written=partial(traffic, writes),
        build=build,
        draw=draw,
        points=points,
    )


def plan(family: str, kernels: Sequence[Kernel], target: Target, level: Level) -> list[Case]:
    """Cases of all kernels, any prefix a balanced sample."""
    groups = []
    for kernel in kernels:
        points = 2 if level is Level.TINY else DENSITY * kernel.points
        found = draws(kernel, points, TINY_BYTES if level is Level.TINY else kernel.limit_bytes)
        cases = [point(family, kernel, sizes, RESIDENCY[i % len(RESIDENCY)], target) for i, sizes in enumerate(found)]
        groups.append((float(points), cases))
    return interleave(groups)


def sustained(family: str, kernel: Kernel, sizes: Sizes, target: Target, level: Level) -> list[Case]:
    """A point of long steady work, for the models of power and clock."""
    steady = replace(point(family, kernel, sizes, "reused", target), state=State.SUSTAINED)
    return [] if level is Level.TINY else [steady]


def draws(kernel: Kernel, points: int, limit_bytes: float) -> list[Sizes]:
    """Different sizes for a kernel, always the same ones."""
    rng = random.Random(" ".join(kernel.name))
    found: dict[Sizes, None] = {}
    for _ in range(20 * points):
        found.setdefault(shrink(kernel, kernel.draw(rng), limit_bytes))
        if len(found) == points:
            break
    return list(found)


def shrink(kernel: Kernel, sizes: Sizes, limit_bytes: float) -> Sizes:
    """Halve the rows, else the count, else the columns, until a point is within the limit."""
    while max(kernel.bytes(sizes), kernel.resident(sizes)) > limit_bytes:
        step = max(sizes.inner, 1)
        if sizes.rows > 8:
            sizes = replace(sizes, rows=sizes.rows // 2)
        elif sizes.count > 64:
            sizes = replace(sizes, count=sizes.count // 2)
        elif sizes.cols >= 2 * step:
            sizes = replace(sizes, cols=sizes.cols // 2 // step * step)
        else:
            break
    return sizes


def point(family: str, kernel: Kernel, sizes: Sizes, residency: str, target: Target) -> Case:
    """One case; where a single set exceeds the rotation there is nothing to choose."""
    read, written = kernel.read(sizes), kernel.written(sizes)
    case = Case(
        family=family,
        key={},
        estimate_s=2e-6 + 1.2 * (read + written) / target.bandwidth_bytes_per_s,
        bytes=read + written,
        sets_max=1 if residency == "warm" else SETS_MAX,
    )
    if case.sets == 1 and residency == "cold":
        residency = "reused"
    values = (*kernel.name, sizes.rows, sizes.cols, sizes.inner, sizes.count, round(read), round(written), residency)
    return replace(case, key=dict(zip(COLUMNS, (*values, case.sets), strict=True)))


def sizes_of(key: Mapping[str, int | str]) -> Sizes:
    return Sizes(int(key["rows"]), int(key["cols"]), int(key["inner"]), int(key["count"]))


def calls(kernels: Sequence[Kernel], case: Case, pool: Pool) -> list[Call]:
    """The rotating calls of a case."""
    wanted = tuple(case.key[column] for column in COLUMNS[:3])
    kernel = next(kernel for kernel in kernels if kernel.name == wanted)
    try:
        built = [kernel.build(pool, sizes_of(case.key)) for _ in range(case.sets)]
    except AttributeError as error:  # torch.ops says so of an operator this build lacks
        raise Unmeasurable(str(error).splitlines()[0]) from error
    return retained(built) if case.key["residency"] == "cold" else built


def retained(built: Sequence[Call]) -> list[Call]:
    """Calls whose outputs stay alive for one turn of the rotation, so that the allocator gives each its own block."""
    ring: deque[object] = deque(maxlen=len(built))
    return [partial(_keep, ring, call) for call in built]


def _keep(ring: deque[object], call: Call) -> None:
    ring.append(call())
