"""OperatorTable + Gpu -> what a step costs: step, layers, operators, memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import Floats, Ints, Kind, OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall
from tilewise.server.architecture.counting import count
from tilewise.server.architecture.model import Architecture
from tilewise.server.memory import memory
from tilewise.server.operators import engine, walk
from tilewise.server.operators.conventions import by_shape, causal_flops, full_flops, palm_flops
from tilewise.server.operators.experts import padding_notes
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.parameters import rank_parameters
from tilewise.server.operators.sharding import notes
from tilewise.server.operators.strides import stride_notes
from tilewise.server.report import Energy, Interval, Layer, Report, Step, StepTable, TableReport
from tilewise.server.steptime import Sums, launches, step_sums
from tilewise.server.summary import headline, layers, operators, regime
from tilewise.server.workload import Workload


def predict(gpu: Gpu, arch: Architecture, workload: Workload, *, detailed: bool = True) -> Report:
    """Predict one step of `arch` under `workload` on one GPU of `gpu`'s kind; `detailed`: with every operator.

    A row that no model answers makes the step's time None, with the reason. Raises InvalidInput (workload and
    architecture do not fit together), NotAvailable (precision, engine), and TilewiseError UTILIZATION_ABOVE_100 where a
    FLOP count or a peak must be wrong.
    """
    kernels = gpu.kernels(workload.engine)
    emitted = walk(arch, workload, kernels)
    table, times, beyond = answered(gpu, emitted.table(), workload.clock)
    peak = gpu.peak(kernels.multiplies(workload.format))
    launched = launches(table, gpu)
    sums = step_sums(gpu, workload.mode, table, times, launched)
    parameters = count(arch)
    resident = memory(arch, workload, emitted)
    parts = layers(gpu, table, times, launched, peak, _idle(sums))
    palm = float(palm_flops(arch, workload, parameters.active)[0])
    step = _step(gpu, workload, table, times, sums, peak, parts, palm)
    capacity = gpu.sku.memory_bytes
    return Report(
        architecture=arch,
        workload=workload,
        gpu=gpu.sku.name,
        calibration="" if gpu.calibration is None else gpu.calibration.id,
        parameters=parameters,
        rank_parameters=int(rank_parameters(arch, workload.tensor_parallel)),
        step=step,
        layers=parts,
        operators=operators(gpu, table, times, launched) if detailed else (),
        memory=resident,
        memory_capacity_bytes=capacity,
        fits=bool(resident.total_bytes <= capacity),
        headline=headline(arch, workload, gpu, step, parts, resident),
        notes=(
            *arch.notes,
            *notes(arch, workload.tensor_parallel),
            *padding_notes(arch, workload.tokens),
            *stride_notes(arch, workload, gpu.sku),
            *engine.notes(arch, workload, kernels, beyond),
        ),
        table=table,
        times=times,
    )


def answered(gpu: Gpu, table: OperatorTable, state: State) -> tuple[OperatorTable, Times, tuple[str, ...]]:
    """The times of a table, and the operators whose named kernel was published for no shape as large or small.

    Those lose the name and are answered as without an engine; an engine's layer of experts has no such twin and stays refused.
    """
    times = gpu.predict(table, state)
    lost = times.refused & (table.library > 0) & np.isin(table.kind, TWINS)
    if not lost.any():
        return table, times, ()
    names = tuple(sorted({table.labels[code].name for code in table.label[lost].tolist()}))
    table = replace(table, library=np.where(lost, 0, table.library))
    return table, gpu.predict(table, state), names


def predict_table(gpu: Gpu, table: OperatorTable, workload: Workload) -> TableReport:
    """Predict one step whose operators are known already, such as those of tilewise.server.trace.

    Of the workload its tokens (batch x sequence), mode, precision (the peak) and state count. Raises as `predict` does.
    """
    times = gpu.predict(table, workload.clock)
    peak, launched = gpu.peak(workload.format), launches(table, gpu)
    sums = step_sums(gpu, workload.mode, table, times, launched)
    parts = layers(gpu, table, times, launched, peak, _idle(sums))
    return TableReport(
        gpu=gpu.sku.name,
        calibration="" if gpu.calibration is None else gpu.calibration.id,
        step=_step(gpu, workload, table, times, sums, peak, parts, None),
        layers=parts,
        operators=operators(gpu, table, times, launched),
        table=table,
        times=times,
    )


def predict_many(gpu: Gpu, arch: Architecture, workload: Workload) -> StepTable:
    """`predict` for an Architecture whose sizes are arrays: one row a candidate, no loop over them."""
    kernels = gpu.kernels(workload.engine)
    emitted = walk(arch, workload, kernels)
    table, times, _ = answered(gpu, emitted.table(), workload.clock)
    peak = gpu.peak(kernels.multiplies(workload.format))
    sums = step_sums(gpu, workload.mode, table, times, launches(table, gpu))
    flops, executed = causal_flops(table), by_shape(table, table.executed_flops)
    moved = by_shape(table, table.bytes_read + table.bytes_written)
    walls = _walls(table, times, sums)
    resident = _rows(memory(arch, workload, emitted).total_bytes, table.shapes)
    rate = peak.flops_per_s * sums.time_s
    _check_utilisation(flops / rate, peak)
    return StepTable(
        time_s=sums.time_s, low_s=sums.low_s, high_s=sums.high_s, busy_s=sums.busy_s, issue_s=sums.issue_s,
        tokens_per_s=workload.tokens / sums.time_s, mfu=flops / rate, hfu=executed / rate,
        mbu=moved / (sums.time_s * gpu.sku.hbm_bytes_per_s), flops=flops, executed_flops=executed, memory_bytes=moved,
        launches=sums.launches, walls_s=walls, wall=walls.argmax(axis=0),
        trust=_trust(table, times),
        distance=np.fmax.reduce(times.distance.reshape(-1, table.shapes)),
        refusal=times.refusal.reshape(-1, table.shapes).max(axis=0), peak_memory_bytes=resident,
        fits=resident <= gpu.sku.memory_bytes,
        parameters=_rows(count(arch).total, table.shapes), peak=peak, refusals=times.refusals,
    )  # fmt: skip


def _rows(value: Number, shapes: int) -> Floats:
    """One value a shape; more than the table has where shapes differ in what no operator sees, such as BERT's vocabulary."""
    return np.array(np.broadcast_to(value, np.broadcast_shapes(np.shape(value), (shapes,))), float)


TWINS = (Kind.GEMM, Kind.ATTENTION)
NEGLIGIBLE = 0.02  # of the busy time: a stand-in for a cache's copy of 3 us does not make a measured step a guess


def _trust(table: OperatorTable, times: Times) -> Ints:
    """The lowest trust of the operators that matter: what stands on less must make up NEGLIGIBLE of the time to count."""
    busy = by_shape(table, times.time_s)
    found = np.full(table.shapes, int(max(Trust)))
    for level in sorted(Trust, reverse=True):
        below = by_shape(table, np.where(times.trust <= level, times.time_s, 0.0))
        found = np.where(below >= NEGLIGIBLE * busy, int(level), found)
    return found


def _walls(table: OperatorTable, times: Times, sums: Sums) -> Floats:
    """Seconds by wall, (Wall, shapes): rows under their own wall; gaps and waiting for the CPU under launch."""
    walls = np.stack([by_shape(table, np.where(times.wall == wall, times.time_s, 0.0)) for wall in Wall])
    walls[Wall.LAUNCH] += sums.time_s - sums.busy_s
    return walls


def _idle(sums: Sums) -> float:
    """Seconds in which the GPU runs no kernel: gaps, and waiting for the CPU."""
    idle = float(sums.time_s[0] - sums.busy_s[0])
    return 0.0 if np.isnan(idle) else idle


def _step(
    gpu: Gpu,
    workload: Workload,
    table: OperatorTable,
    times: Times,
    sums: Sums,
    peak: Peak,
    parts: tuple[Layer, ...],
    palm: float | None,
) -> Step:
    refusal = _refusal(table, times)
    time = float(sums.time_s[0])
    flops = {
        "causal": float(causal_flops(table)[0]),
        "full": float(full_flops(table)[0]),
    }
    if palm is not None:
        flops["palm"] = palm
    executed = float(by_shape(table, table.executed_flops)[0])
    moved = float(by_shape(table, table.bytes_read + table.bytes_written)[0])
    rate = peak.flops_per_s * time
    known = not refusal
    if known:
        _check_utilisation(np.array([flops["causal"] / rate]), peak)
    walls = tuple(float(wall[0]) for wall in _walls(table, times, sums))
    distances = times.distance[~np.isnan(times.distance)]
    joules = gpu.energy(table, times, _idle(sums)) if known else None
    energy = None if joules is None else Energy(*joules.tolist())
    return Step(
        time=Interval(time, float(sums.low_s[0]), float(sums.high_s[0])) if known else None,
        busy=Interval(float(sums.busy_s[0]), float(sums.busy_low_s[0]), float(sums.busy_high_s[0])),
        gap_s=float(sums.gap_s[0]),
        issue_s=float(sums.issue_s[0]),
        tokens=workload.tokens,
        tokens_per_s=workload.tokens / time if known else None,
        mfu=flops["causal"] / rate if known else None,
        hfu=executed / rate if known else None,
        palm_mfu=palm / rate if known and palm is not None else None,
        mbu=moved / (time * gpu.sku.hbm_bytes_per_s) if known else None,
        peak=peak,
        flops=flops,
        executed_flops=executed,
        memory_bytes=moved,
        launches=float(sums.launches[0]),
        wall=Wall(int(np.argmax(walls))),
        walls=walls,
        losses=tuple(np.sum([part.losses for part in parts], axis=0).tolist()),
        regime=regime(walls),
        energy=energy,
        flops_per_j=flops["causal"] / energy.energy_j if energy else None,
        padding_s=float(by_shape(table, times.padding_s)[0]),
        wave_s=float(by_shape(table, times.wave_s)[0]),
        alignment_s=float(by_shape(table, times.alignment_s)[0]),
        state=workload.clock,
        trust=Trust(int(_trust(table, times)[0])),
        distance=float(distances.max()) if len(distances) else float("nan"),
        refusal=refusal,
    )


def _refusal(table: OperatorTable, times: Times) -> str:
    """The first reason why a row has no time, with the operator's name; "" where every row has one."""
    refused = np.flatnonzero(times.refusal >= 0)
    if not len(refused):
        return ""
    row = int(refused[0])
    label = table.labels[int(table.label[row])]
    return f"{label.name} of {label.layer}: {times.refusals[int(times.refusal[row])]}"


def _check_utilisation(mfu: Floats, peak: Peak) -> None:
    worst = float(np.nanmax(mfu)) if np.any(~np.isnan(mfu)) else 0.0
    if worst > 1:
        message = (
            f"MFU of {worst:.1%} over {peak}: the peak or the FLOP count is wrong; nothing runs above its dense peak"
        )
        raise TilewiseError(message, reason="UTILIZATION_ABOVE_100", mfu=worst)
