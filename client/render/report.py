"""A prediction as text: what it is about, the step, the step by kind of layer, the memory, and the sentence that matters."""

from __future__ import annotations

from tilewise.client.render.data import word
from tilewise.client.render.text import gib, interval, parameters, percent, seconds, si, significant, table
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.prediction_pb2 import Peak, Trust, Wall
from tilewise.v1.report_pb2 import Layer, Memory, Operator
from tilewise.v1.workload_pb2 import Mode, Phase, Precision, State, Workload

CONVENTION = "model FLOPs: causal half once, embedding 0, lm_head counted, no recompute"


def report(answer: PredictResponse) -> str:
    """The whole report; ends with a line break."""
    sections = [title(answer), step_lines(answer), layer_table(answer)]
    if answer.operators:
        sections.append(operator_table(answer))
    sections += [memory_lines(answer.memory), answer.summary]
    return "\n\n".join(section for section in sections if section) + "\n"


def title(answer: PredictResponse) -> str:
    """Model, GPU and workload, and the notes on how the configuration was read."""
    model, gpu, trust = answer.architecture, answer.gpu, word(Trust.DESCRIPTOR, answer.step.prediction.trust)
    size = parameters(model.parameter_count)
    if model.active_parameter_count != model.parameter_count:
        size += f", {parameters(model.active_parameter_count)} active"
    source = f"calibration {gpu.calibration}" if gpu.calibration else "no calibration"
    lines = [
        f"{model.name} ({model.family}, {size} parameters) on {gpu.title} ({gpu.sku}, {source}, trust: {trust})",
        work_line(answer.workload),
        *(f"note: {note}" for note in model.notes),
    ]
    return "\n".join(lines)


def work_line(work: Workload) -> str:
    length = f"context {work.context}" if work.phase == Phase.PHASE_DECODE else f"sequence {work.sequence}"
    parts = [
        f"{word(Phase.DESCRIPTOR, work.phase)}: batch {work.batch}",
        length,
        word(Precision.DESCRIPTOR, work.precision),
    ]
    parts.append(word(Mode.DESCRIPTOR, work.mode))
    if work.tensor_parallel > 1:
        parts.append(f"tensor parallel {work.tensor_parallel}")
    return ", ".join([*parts, f"{word(State.DESCRIPTOR, work.state)} clock"])


def step_lines(answer: PredictResponse) -> str:
    """Time, rate, utilisation with its peak named, and walls."""
    step, time = answer.step, answer.step.prediction
    if step.refusal:
        return f"step      refused: {step.refusal}"
    rate = f"{significant(step.tokens_per_s)} tokens/s, bound by {wall(time.wall)}"
    bandwidth = si(answer.gpu.memory_bandwidth_bytes_per_s, "B/s")
    lines = [
        f"step      {interval(time.time_low_s, time.time_s, time.time_high_s)}, {rate}",
        f"MFU       {percent(step.mfu)} of {peak(step.peak)}; {CONVENTION}",
        f"MBU       {percent(step.mbu)} of {bandwidth}",
        "walls     " + ", ".join(f"{wall(each.wall)} {percent(each.share)}" for each in step.walls),
    ]
    if answer.workload.phase == Phase.PHASE_TRAIN:
        counted = (
            f"{percent(step.hfu)} with recompute and padding (HFU), {percent(step.palm_mfu)} as the PaLM paper counts"
        )
        lines.insert(2, f"          {counted}")
    return "\n".join(lines)


def peak(peak: Peak) -> str:
    return f"{si(peak.flops_per_s, 'FLOPS')} {peak.kind} {peak.key} at {si(peak.clock_hz, 'Hz')}"


def wall(number: int) -> str:
    return word(Wall.DESCRIPTOR, number).replace("_", " ")


def layer_table(answer: PredictResponse) -> str:
    if not answer.layers:
        return ""
    rows = [layer_row(layer) for layer in answer.layers]
    return table(("layer", "time", "share", "wall", "MFU"), rows, right=(1, 2, 4))


def layer_row(layer: Layer) -> tuple[str, ...]:
    if not layer.HasField("prediction"):
        return layer.name, "refused", "-", "-", "-"
    mfu = percent(layer.mfu) if layer.HasField("mfu") else "-"
    return layer.name, seconds(layer.prediction.time_s), percent(layer.share), wall(layer.prediction.wall), mfu


def operator_table(answer: PredictResponse) -> str:
    header = ("operator", "where", "direction", "shape", "count", "each", "share", "wall", "MFU", "kernel")
    return table(header, [operator_row(each) for each in answer.operators], right=(4, 5, 6, 8))


def operator_row(row: Operator) -> tuple[str, ...]:
    known = row.HasField("prediction")
    return (
        row.name,
        row.layer,
        row.direction,
        row.shape,
        significant(row.count),
        seconds(row.prediction.time_s) if known else "refused",
        percent(row.share),
        wall(row.prediction.wall) if known else row.refusal,
        percent(row.mfu) if row.HasField("mfu") else "-",
        row.kernel,
    )


def memory_lines(memory: Memory) -> str:
    """Total against capacity, and what is alive at the peak, the largest first."""
    room = f"{gib(memory.free_bytes)} free" if memory.fits else f"{gib(-memory.free_bytes)} TOO MUCH"
    alive = sorted((part for part in memory.parts if part.peak_bytes), key=lambda part: -part.peak_bytes)
    lines = [
        f"memory    {gib(memory.total_bytes)} of {gib(memory.capacity_bytes)}, {room}; peak: {memory.peak_moment}",
        "          "
        + ", ".join(
            f"{part.name.replace('_', ' ')} {gib(part.peak_bytes)}" for part in alive if part.peak_bytes >= 2**20
        ),
    ]
    if memory.kv_cache_bytes_per_token:
        lines.append(f"          KV cache {memory.kv_cache_bytes_per_token} bytes a token")
    return "\n".join(lines)
