"""OperatorTable + Gpu -> what a step costs: step, layers, operators, memory.

Intervals: the operators of a step share the calibration's bias and each has noise of its own. With h_i the half-width
of row i (repeats counted in full: they err together), the step's is sqrt(SHARED (sum h_i)^2 + (1 - SHARED) sum h_i^2).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.kernels.engines import Kernels
from tilewise.hwdb.kinds import multiplies
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import Floats, OperatorTable
from tilewise.hwdb.times import Times
from tilewise.server import stacks
from tilewise.server.architecture.counting import ParameterCount, count
from tilewise.server.architecture.model import Architecture
from tilewise.server.architecture.sizes import UnlikeShapes, column
from tilewise.server.deadline import check_alive
from tilewise.server.operators import engine, sharding, walk
from tilewise.server.operators.conventions import palm_flops
from tilewise.server.operators.experts import padding_notes
from tilewise.server.operators.lengths import length_notes
from tilewise.server.operators.parameters import rank_parameters
from tilewise.server.operators.programs import AGREES, Program, program_of
from tilewise.server.operators.strides import stride_notes
from tilewise.server.step import distance
from tilewise.server.step.host import host_notes
from tilewise.server.step.memory import MemoryReport, memory, room_bytes
from tilewise.server.step.padding import padded, padding_bytes
from tilewise.server.step.report import Brief, Report, TableReport
from tilewise.server.step.steps import Steps
from tilewise.server.step.summary import headline, layers, operators
from tilewise.server.step.time import idle_s, launches, step_sums
from tilewise.server.workload import Workload


class Shapes(Record, kw_only=True):
    """What was worked out about the shapes of one Architecture in one pass; a size is an array where they differ in it."""

    architecture: Architecture
    kernels: Kernels
    steps: Steps
    parameters: ParameterCount
    memory: MemoryReport

    def briefs(self, count: int = 1) -> Iterator[Brief]:
        """The answer about each of `count` candidates."""
        arch, work, gpu = self.architecture, self.steps.workload, self.steps.gpu
        room, ranks = room_bytes(gpu.sku.memory_bytes, work), column(rank_parameters(arch, work.tensor_parallel), count)
        name, calibration = gpu.sku.name, calibration_of(gpu)
        rows = (self.parameters.rows(count), ranks, self.steps.rows(count), self.memory.rows(count), self._notes(count))
        largest = self.steps.largest_parts(count)
        for parameters, of_rank, step, resident, notes, part in zip(*rows, largest, strict=True):
            yield Brief(
                architecture=arch, workload=work, gpu=name, calibration=calibration, parameters=parameters,
                rank_parameters=of_rank, step=step, memory=resident, memory_room_bytes=room, fits=resident.total_bytes <= room,
                headline=headline(arch, work, gpu, step, part, room - resident.total_bytes), notes=notes,
            )  # fmt: skip

    def _notes(self, count: int) -> Iterator[tuple[str, ...]]:
        arch, work, sku = self.architecture, self.steps.workload, self.steps.gpu.sku
        far = distance.notes(self.steps.table, self.steps.times)
        found = (
            sharding.notes(arch, work.tensor_parallel, count), padding_notes(arch, work.tokens, count),
            stride_notes(arch, work, sku, count), [engine.notes(arch, work, self.kernels)] * count,
            host_notes(self.steps, count), length_notes(arch, work, count), far * (count // len(far)),
        )  # fmt: skip
        why = (self.steps.program.why,) if self.steps.program.why else ()
        dropped = (
            (arch.dropout.note,) if arch.dropout.note and work.phase == "train" and work.stack == "transformers" else ()
        )
        said = (*arch.notes, *dropped, *stacks.note(work.program), *why)
        return ((*said, *chain(*each)) for each in zip(*found, strict=True))


def predict(gpu: Gpu, arch: Architecture, workload: Workload, *, detailed: bool = True) -> Report:
    """Predict one step of `arch` under `workload` on one GPU of `gpu`'s kind; `detailed`: with every operator.

    Raises as `predict_many`.
    """
    found = predict_many(gpu, arch, workload)
    (brief,), steps = found.briefs(), found.steps
    return Report(
        **{name: getattr(brief, name) for name in Brief.__struct_fields__},
        layers=layers(steps),
        operators=operators(steps) if detailed else (),
        table=steps.table,
        times=steps.times,
    )


def predict_many(gpu: Gpu, arch: Architecture, workload: Workload) -> Shapes:
    """Predict one step of `arch`, whose sizes may be arrays with one entry a candidate, without a loop over them.

    A row that no model answers leaves its step without a time, with the reason. Raises InvalidInput (workload and
    architecture do not fit together), UnlikeShapes (candidates are to be asked apart), NotAvailable (precision, engine),
    and TilewiseError UTILIZATION_ABOVE_100 where a FLOP count or a peak must be wrong.
    """
    check_alive()
    kernels = gpu.kernels(workload.stack if workload.program.engine else "none")
    emitted = walk(arch, workload, kernels)
    table = emitted.table()
    check_alike(table)
    if workload.mode != "eager" and not workload.program.engine:
        table = padded(gpu, table, without=("lm_head",) if workload.program.compiles == "blocks" else ())
    times = gpu.predict(table, workload.clock, partial(idle_s, gpu, workload, table))
    peak, parameters = peak_of(gpu, workload, table), count(arch)
    palm, program = palm_flops(arch, workload, parameters.active), program_of(arch, workload)
    steps = steps_of(gpu, workload, peak, table, times, palm, program)
    resident = memory(arch, workload, emitted, padding_bytes(table))
    return Shapes(architecture=arch, kernels=kernels, steps=steps, parameters=parameters, memory=resident)


def predict_table(gpu: Gpu, table: OperatorTable, workload: Workload) -> TableReport:
    """Predict one step whose operators are known already, such as those of tilewise.server.trace.

    Of the workload its tokens (batch x sequence), mode, precision (the peak) and state count. Raises as `predict` does.
    """
    times = gpu.predict(table, workload.clock, partial(idle_s, gpu, workload, table))
    return table_report(steps_of(gpu, workload, peak_of(gpu, workload, table), table, times, None))


def table_report(steps: Steps) -> TableReport:
    """All of one step that its operators tell."""
    (step,) = steps.rows()
    return TableReport(
        workload=steps.workload,
        gpu=steps.gpu.sku.name,
        calibration=calibration_of(steps.gpu),
        step=step,
        layers=layers(steps),
        operators=operators(steps),
        table=steps.table,
        times=steps.times,
    )


def steps_of(
    gpu: Gpu,
    workload: Workload,
    peak: Peak,
    table: OperatorTable,
    times: Times,
    palm: Floats | None,
    program: Program = AGREES,
) -> Steps:
    launched = launches(table, gpu, times, workload.mode == "eager")
    sums = step_sums(gpu, workload, table, times, launched, program)
    steps = Steps(
        gpu=gpu, workload=workload, peak=peak, table=table, times=times, launched=launched, sums=sums, palm_flops=palm,
        program=program,
    )  # fmt: skip
    _check_utilisation(np.maximum(steps.mfu, steps.hfu), peak)
    return steps


def peak_of(gpu: Gpu, workload: Workload, table: OperatorTable) -> Peak:
    """The peak that a step's MFU is over: the highest of the formats in which its products run, of equal ones that asked for.

    Experts of 4 bit may multiply in 16, and beside int8 some GPUs are faster in 16 bit, as the head runs.
    """
    used = set(table.precision[multiplies(table)].tolist()) or {int(workload.format)}
    peaks = {code: gpu.peak(Precision(code)) for code in used}
    return max(peaks.values(), key=lambda peak: (peak.flops_per_s, peak.key == FORMATS[workload.format].peak))


def check_alike(table: OperatorTable) -> None:
    """Raises UnlikeShapes where some shapes alone have a layer, or have work for an operator."""
    if table.shapes == 1:
        return
    work = np.where(multiplies(table), table.executed_flops, table.bytes_read + table.bytes_written)
    works = (table.count * work > 0).reshape(-1, table.shapes)
    uneven = works.any(axis=1) & ~works.all(axis=1)
    if uneven.any():
        raise UnlikeShapes(works[uneven.argmax()])


def calibration_of(gpu: Gpu) -> str:
    return gpu.answers_by


def _check_utilisation(used: Floats, peak: Peak) -> None:
    worst = float(np.fmax.reduce(used, initial=0.0))  # NaN where a step has no time
    if worst > 1:
        message = f"MFU or HFU of {worst:.1%} over {peak}: the peak or the FLOP count is wrong; nothing runs above its dense peak"
        raise TilewiseError(message, reason="UTILIZATION_ABOVE_100", mfu=worst)
