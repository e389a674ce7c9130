"""A report's tables and its one sentence, from the rows of a table and their times."""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import Floats, Kind, OperatorTable
from tilewise.hwdb.times import Times, Trust, Wall
from tilewise.server.architecture.model import Architecture
from tilewise.server.memory import MemoryReport
from tilewise.server.report import Interval, Layer, Operator, Step
from tilewise.server.workload import Workload

REGIMES = {
    Wall.COMPUTE: "compute",
    Wall.SPECIAL_FUNCTION: "compute",
    Wall.MEMORY: "bandwidth",
    Wall.LAUNCH: "overhead",
    Wall.COMMUNICATION: "communication",
}
SHARED = 0.5  # as in server/predict.py


def regime(walls: tuple[float, ...]) -> str:
    """What the step is bound by: the largest of compute, bandwidth, overhead and communication."""
    sums: dict[str, float] = {}
    for wall, seconds in zip(Wall, walls, strict=True):
        sums[REGIMES[wall]] = sums.get(REGIMES[wall], 0.0) + (0.0 if np.isnan(seconds) else seconds)
    return max(sums, key=lambda name: sums[name])


class Groups:
    """Sums of columns over groups of rows (labels or parts), repeats counted."""

    def __init__(self, table: OperatorTable, times: Times, launched: Floats, group: np.ndarray, size: int) -> None:
        self.group, self.size, self.count = group, size, table.count
        self.time = self.sum(times.time_s)
        self.low = self.time - self.spread(times.time_s - times.low_s)
        self.high = self.time + self.spread(times.high_s - times.time_s)
        self.flops, self.executed = self.sum(table.flops), self.sum(table.executed_flops)
        self.moved = self.sum(table.bytes_read + table.bytes_written)
        self.launches = self.sum(launched)
        code = group * len(Wall) + times.wall
        walls = np.bincount(code, table.count * np.nan_to_num(times.time_s), size * len(Wall)).reshape(size, len(Wall))
        self.wall = walls.argmax(axis=1)
        self.trust = np.full(size, int(max(Trust)))
        np.minimum.at(self.trust, group, times.trust)
        self.distance = np.full(size, np.nan)
        np.fmax.at(self.distance, group, times.distance)

    def sum(self, values: Floats) -> Floats:
        return np.bincount(self.group, self.count * values, self.size)

    def spread(self, half: Floats) -> Floats:
        squares = np.bincount(self.group, (self.count * half) ** 2, self.size)
        return np.sqrt(SHARED * self.sum(half) ** 2 + (1 - SHARED) * squares)


def layers(gpu: Gpu, table: OperatorTable, times: Times, launched: Floats, peak: Peak) -> tuple[Layer, ...]:
    """One row a kind of layer, in the order the step meets them."""
    names = list(dict.fromkeys(label.part for label in table.labels))
    codes = np.array([names.index(label.part) for label in table.labels])
    sums = Groups(table, times, launched, codes[table.label], len(names))
    busy = np.nansum(sums.time)
    bandwidth = gpu.sku.hbm_bytes_per_s
    rows = zip(
        names, sums.time.tolist(), sums.low.tolist(), sums.high.tolist(), sums.wall.tolist(), sums.flops.tolist(),
        sums.moved.tolist(), sums.launches.tolist(), sums.trust.tolist(), sums.distance.tolist(), strict=True,
    )  # fmt: skip
    return tuple(
        Layer(
            name=name, time=Interval(time, low, high), share=time / busy, wall=Wall(wall),
            mfu=flops / (time * peak.flops_per_s) if flops and time else None,
            mbu=moved / (time * bandwidth) if time else 0.0, flops=flops, memory_bytes=moved, launches=launches,
            trust=Trust(trust), distance=distance,
        )
        for name, time, low, high, wall, flops, moved, launches, trust, distance in rows
    )  # fmt: skip


def operators(gpu: Gpu, table: OperatorTable, times: Times, launched: Floats) -> tuple[Operator, ...]:
    """One row a label; its times are of one execution, which may be several kernels."""
    size = len(table.labels)
    sums = Groups(table, times, launched, table.label, size)
    _, first = np.unique(table.label, return_index=True)
    count = table.count[first]
    extra = {
        name: (sums.sum(getattr(times, name)) / count).tolist()
        for name in ("compute_s", "memory_s", "special_s", "launch_s", "padding_s", "wave_s", "alignment_s")
    }
    busy = float(np.nansum(sums.time))
    columns = {
        name: (getattr(sums, name) / count).tolist()
        for name in ("time", "low", "high", "flops", "executed", "moved", "launches")
    }
    peaks: dict[int, Peak] = {}
    found = []
    for code, row in enumerate(first.tolist()):
        label, kind, flops, time = table.labels[code], int(table.kind[row]), columns["flops"][code], columns["time"][code]
        multiplies = kind <= Kind.ATTENTION
        precision = int(table.precision[row])
        if multiplies and precision not in peaks and times.refusal[row] < 0:
            peaks[precision] = gpu.peak(Precision(precision))
        peak = peaks.get(precision) if multiplies else None
        refusal = int(times.refusal[row])
        kernel = int(times.kernel[row])
        found.append(
            Operator(
                name=label.name, layer=label.layer, part=label.part, direction=label.direction,
                kind=_KINDS[kind], shape=_shape(table, row, kind), precision=Precision(precision).name.lower(),
                count=float(count[code]), kernels=columns["launches"][code],
                time=Interval(time, columns["low"][code], columns["high"][code]), total_s=float(sums.time[code]),
                share=float(sums.time[code]) / busy, wall=Wall(int(sums.wall[code])),
                mfu=flops / (time * peak.flops_per_s) if peak and flops and time else None, peak=peak,
                flops=flops, executed_flops=columns["executed"][code], memory_bytes=columns["moved"][code],
                **{name: values[code] for name, values in extra.items()},
                kernel=times.kernel_names[kernel] if kernel >= 0 else "", tiles=float(times.tiles[row]),
                waves=float(times.waves[row]), trust=Trust(int(sums.trust[code])), distance=float(sums.distance[code]),
                refusal=times.refusals[refusal] if refusal >= 0 else "",
            )
        )  # fmt: skip
    return tuple(found)


_KINDS = {int(kind): kind.name.lower() for kind in Kind}


def _shape(table: OperatorTable, row: int, kind: int) -> str:
    """The problem in the words of its kind."""
    def whole(column: str) -> str:
        value = float(getattr(table, column)[row])
        return f"{value:.0f}" if value == int(value) else f"{value:.1f}"

    if kind == Kind.GEMM:
        groups = f" x {whole('groups')} groups" if table.groups[row] > 1 else ""
        return f"{whole('m')} x {whole('n')} x {whole('k')}{groups}"
    if kind == Kind.GROUPED_GEMM:
        return f"{whole('m')} rows over {whole('groups')} experts x {whole('n')} x {whole('k')}"
    if kind == Kind.ATTENTION:
        sizes = f"{whole('seq_q')} x {whole('seq_kv')}, {whole('heads')}/{whole('kv_heads')} heads of {whole('head_dim')}"
        return f"{whole('batch')} x {sizes}"
    if kind == Kind.COLLECTIVE:
        return f"{whole('message_bytes')} bytes over {whole('ranks')} ranks"
    return f"{whole('rows')} x {whole('cols')}"


def headline(
    arch: Architecture, workload: Workload, gpu: Gpu, step: Step, parts: tuple[Layer, ...], resident: MemoryReport
) -> str:
    """The one sentence that matters."""
    name = arch.name or arch.family
    free = float(np.min(gpu.sku.hbm_bytes - resident.total_bytes))
    fits = "" if free >= 0 else f" It does not fit: {-free / 1e9:.1f} GB more than the GPU has."
    if step.time is None:
        return f"{name} on {gpu.sku.name}: no time for the step: {step.refusal}.{fits}"
    largest = max(parts, key=lambda part: part.share)
    share = step.walls[step.wall] / step.time.time_s
    bound = {"overhead": "launch-bound", "bandwidth": "memory-bound"}.get(step.regime, f"{step.regime}-bound")
    verb = {"train": "trains at", "prefill": "prefills", "decode": "decodes"}[workload.phase]
    return (
        f"{name} {verb} {step.tokens_per_s:,.0f} tokens/s on {gpu.sku.name} ({step.time.time_s * 1e3:.4g} ms a step, "
        f"MFU {step.mfu:.1%}): {bound}, {share:.0%} of the time on that wall, most in {largest.name} ({largest.share:.0%}).{fits}"
    )
