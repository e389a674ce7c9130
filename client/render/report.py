"""A prediction as text: what it is about, the step, the step by kind of layer, the memory, and the sentence that matters."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from tilewise.client.render.text import gib, interval, parameters, percent, seconds, si, significant, table
from tilewise.server import stacks
from tilewise.server.messages.question import program_of
from tilewise.server.messages.words import plain, word
from tilewise.v1.advisor_service_pb2 import PredictResponse
from tilewise.v1.prediction_pb2 import Peak, Trust, Wall
from tilewise.v1.report_pb2 import Diagnosis, Layer, Loss, Memory, Operator, Remedy, Step
from tilewise.v1.workload_pb2 import KvCache, Phase, Workload

CONVENTION = "model FLOPs: causal half once, embedding 0, lm_head counted, no recompute"


def report(answer: PredictResponse, *, operators: bool = True) -> str:
    """The whole report; ends with a line break. `operators`: with their table, where the answer has them."""
    sections = [too_large(answer), title(answer), step_lines(answer), layer_table(answer)]
    if answer.operators and operators:
        sections.append(operator_table(answer))
    if answer.HasField("memory"):
        sections.append(memory_lines(answer.memory, answer.workload))
    if answer.HasField("diagnosis"):
        sections += [loss_table(answer), sign_lines(answer.diagnosis), remedy_table(answer.diagnosis)]
    sections.append(answer.summary)
    return "\n\n".join(section for section in sections if section) + "\n"


def too_large(answer: PredictResponse) -> str:
    """The first line of what cannot run; "" where it fits."""
    memory = answer.memory
    if not answer.HasField("memory") or memory.fits:
        return ""
    return f"DOES NOT FIT: {gib(memory.total_bytes)} at the peak, {answer.gpu.sku} leaves {gib(memory.capacity_bytes - memory.reserve_bytes)}"


def title(answer: PredictResponse) -> str:
    """Model, GPU and workload, and the notes on how the configuration was read."""
    if not answer.architecture.family:
        return f"{answer.architecture.name} on {answer.gpu.title} ({answer.gpu.sku})\n{work_line(answer.workload)}"
    model, gpu = answer.architecture, answer.gpu
    size = parameters(model.parameter_count)
    if model.active_parameter_count != model.parameter_count:
        size += f", {parameters(model.active_parameter_count)} active"
    source = f"calibration {gpu.calibration}" if gpu.calibration else "no calibration"
    lines = [
        f"{model.name} ({model.family}, {size} parameters) on {gpu.title} ({gpu.sku}, {source}, trust: {trust_of(answer.step)})",
        work_line(answer.workload),
        *(f"note: {note}" for note in model.notes),
    ]
    return "\n".join(lines)


def trust_of(step: Step) -> str:
    """ "measured", or what holds it down: "datasheet: kv_append, 12 % of the time"."""
    trust = word(Trust.DESCRIPTOR, step.prediction.trust)
    return f"{trust}: {step.weakest_link}" if step.weakest_link else trust


def work_line(work: Workload) -> str:
    """A workload with its defaults filled in, as an answer has it."""
    said = plain(work)
    length = f"context {work.context}" if said["phase"] == "decode" else f"sequence {work.sequence}"
    parts = [
        f"{said['phase']}: batch {work.batch}",
        length,
        said["precision"],
        named(said["stack"]),
        said["mode"],
        *served(said),
    ]
    if work.tensor_parallel > 1:
        parts.append(f"tensor parallel {work.tensor_parallel}")
    return ", ".join([*parts, f"{said['state']} clock"])


def named(stack: str) -> str:
    """A stack in a line about a workload, with what its program rests on where that is little."""
    program = stacks.stack(stack).program
    return f"stack {stack}" + (f" ({program})" if program == "sampled" else "")


def served(said: Mapping[str, Any]) -> list[str]:
    """What an engine can be asked besides, where it is not the default."""
    ranks, cache = said.get("expert_parallel", 1), said.get("kv_cache", "auto")
    parts = [f"expert parallel {ranks}"] if ranks > 1 else []
    return parts + ([f"{cache} cache"] if cache != "auto" else [])


def asked_line(work: Workload, without: Container[str] = ()) -> str:
    """A workload as it was asked for, with the defaults that the answer's own would name; fields of `without` left out."""
    said = {"batch": 1, **plain(work)}
    parts = [
        f"{name} {said[name]}" for name in ("batch", "sequence", "context") if name in said and name not in without
    ]
    stack = program_of(work)
    parts += [said.get("precision", "bf16"), named(stack.name), said.get("mode", stack.modes[0]), *served(said)]
    if work.tensor_parallel > 1 and "tensor_parallel" not in without:
        parts.append(f"tensor parallel {work.tensor_parallel}")
    return f"{said['phase']}: {', '.join(parts)}"


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
    if step.HasField("energy_j"):
        bounds = f"{si(step.energy_low_j, 'J')} to {si(step.energy_high_j, 'J')}"
        lines.append(f"energy    {si(step.energy_j, 'J')} a step and GPU ({bounds}), {si(step.flops_per_j, 'FLOP/J')}")
    if answer.workload.phase == Phase.PHASE_TRAIN:
        counted = f"{percent(step.hfu)} with recompute and padding (HFU)"
        if step.HasField("palm_mfu"):
            counted += f", {percent(step.palm_mfu)} as the PaLM paper counts"
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
    if not answer.step.refusal:
        rows.append(step_row(answer.step))
    return table(("layer", "time", "share", "wall", "MFU"), rows, right=(1, 2, 4))


def layer_row(layer: Layer) -> tuple[str, ...]:
    if not layer.HasField("prediction"):
        return layer.name, "refused", "-", "-", "-"
    mfu = percent(layer.mfu) if layer.HasField("mfu") else "-"
    return layer.name, seconds(layer.prediction.time_s), percent(layer.share), wall(layer.prediction.wall), mfu


def step_row(step: Step) -> tuple[str, ...]:
    """What the layers add up to."""
    mfu = percent(step.mfu) if step.HasField("mfu") else "-"
    return "step", seconds(step.prediction.time_s), percent(1.0), wall(step.prediction.wall), mfu


def loss_table(answer: PredictResponse) -> str:
    """Milliseconds of each kind of layer by cause; the causes that cost the step most come first."""
    if not answer.step.losses:
        return ""
    causes = [loss.cause for loss in sorted(answer.step.losses, key=lambda loss: -loss.time_s) if loss.share >= 5e-4]
    rows = [loss_row(layer.name, layer.losses, causes) for layer in answer.layers if layer.losses]
    rows.append(loss_row("step", answer.step.losses, causes))
    header = ("ms lost to", *(cause.replace("_", " ") for cause in causes))
    return table(header, rows, right=range(1, len(header)))


def loss_row(name: str, losses: Iterable[Loss], causes: Sequence[str]) -> tuple[str, ...]:
    times = {loss.cause: loss.time_s for loss in losses}
    return name, *(significant(1e3 * times[cause]) if times.get(cause, 0.0) >= 5e-7 else "-" for cause in causes)


def sign_lines(diagnosis: Diagnosis) -> str:
    return "\n".join([f"{diagnosis.regime}-bound, which shows:", *(f"- {sign}" for sign in diagnosis.signs)])


def remedy_table(diagnosis: Diagnosis) -> str:
    """What helps, each change alone and predicted anew; what does not help says so."""
    if not diagnosis.remedies:
        return ""
    header = ("each change alone", "tokens/s a GPU", "90 % interval", "step", "memory")
    return table(header, [remedy_row(each) for each in diagnosis.remedies], right=(1, 2, 3, 4))


def remedy_row(remedy: Remedy) -> tuple[str, ...]:
    bounds = f"{100 * remedy.gain_low:+.0f} to {100 * remedy.gain_high:+.0f} %"
    gain = f"{100 * remedy.gain:+.1f} %"
    return remedy.change, gain, bounds, seconds(remedy.prediction.time_s), gib(remedy.memory_bytes)


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


def memory_lines(memory: Memory, workload: Workload) -> str:
    """Total against capacity, and what is alive at the peak, the largest first."""
    room = f"{gib(memory.free_bytes)} free" if memory.fits else f"{gib(-memory.free_bytes)} TOO MUCH"
    if memory.reserve_bytes:
        room += f" beside a reserve of {gib(memory.reserve_bytes)}"
    alive = sorted((part for part in memory.parts if part.peak_bytes), key=lambda part: -part.peak_bytes)
    lines = [
        f"memory    {gib(memory.total_bytes)} of {gib(memory.capacity_bytes)}, {room}; peak: {memory.peak_moment}",
        "          "
        + ", ".join(
            f"{part.name.replace('_', ' ')} {gib(part.peak_bytes)}" for part in alive if part.peak_bytes >= 2**20
        ),
    ]
    if memory.kv_cache_bytes_per_token:
        lines.append(f"          KV cache {cache_words(memory, workload)}")
    return "\n".join(lines)


def cache_words(memory: Memory, workload: Workload) -> str:
    """Cached bytes of a token within the windows and beyond them, for which GPU, in which format."""
    first, later = memory.kv_cache_bytes_per_token, memory.kv_cache_bytes_per_later_token
    size = f"{first} bytes a token" + (f" until the windows are full, then {later}" if later != first else "")
    rank = f", on each of {workload.tensor_parallel} GPUs" if workload.tensor_parallel > 1 else ""
    return f"{size}{rank}{', fp8' if workload.kv_cache == KvCache.KV_CACHE_FP8 else ''}"
