"""GPUs as text."""

from __future__ import annotations

from collections.abc import Iterable

from tilewise.client.render.text import gib, percent, si, table
from tilewise.server.messages.words import word
from tilewise.v1.gpu_pb2 import Calibration, CalibrationState, Gpu
from tilewise.v1.hardware_service_pb2 import ListGpusResponse
from tilewise.v1.prediction_pb2 import Peak, Trust

LISTED = ("bf16", "fp8", "nvfp4")


def gpu_list(answer: ListGpusResponse) -> str:
    """One line a GPU."""
    header = ("sku", "SMs", "memory", "bandwidth", *(f"{key} dense" for key in LISTED), "calibration")
    rows = [gpu_line(gpu) for gpu in answer.gpus]
    return table(header, rows, right=range(1, 4 + len(LISTED))) + "\n"


def gpu_line(gpu: Gpu) -> tuple[str, ...]:
    peaks = {peak.key: si(peak.flops_per_s, "FLOPS") for peak in gpu.peaks}
    return (
        gpu.sku,
        str(gpu.multiprocessor_count),
        gib(gpu.memory_bytes),
        si(gpu.memory_bandwidth_bytes_per_s, "B/s"),
        *(peaks.get(key, "-") for key in LISTED),
        gpu.calibration or "none: datasheet",
    )


def gpu_page(gpu: Gpu, calibrations: Iterable[Calibration]) -> str:
    """Everything about one GPU, each figure with its source and mark."""
    sections = [
        f"{gpu.title} ({gpu.sku})\n" + "".join(f"note: {note}\n" for note in gpu.notes),
        "Dense peaks\n" + table(("format", "rate", "clock", "mark", "source"), list(map(peak_line, gpu.peaks)), (1, 2)),
    ]
    if gpu.ceilings:
        rows = [(c.name, f"{c.value:.4g}", word(Trust.DESCRIPTOR, c.trust), c.mark, c.source) for c in gpu.ceilings]
        sections.append(
            "Best rates measured by others\n" + table(("ceiling", "value", "trust", "mark", "source"), rows, (1,))
        )
    facts = [(fact.name, fact.value, fact.mark, fact.source) for fact in gpu.facts]
    sections.append("Facts\n" + table(("fact", "value", "mark", "source"), facts, (1,)))
    sections.append("Calibrations\n" + calibration_lines(list(calibrations)))
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"


def peak_line(peak: Peak) -> tuple[str, ...]:

    return peak.key, si(peak.flops_per_s, "FLOPS"), si(peak.clock_hz, "Hz"), peak.mark, peak.source


def calibration_lines(calibrations: list[Calibration]) -> str:
    if not calibrations:
        return "none: predictions rest on the datasheet and on published ceilings"
    rows = [
        (each.id, word(CalibrationState.DESCRIPTOR, each.state), word(Trust.DESCRIPTOR, each.trust), errors(each))
        for each in calibrations
    ]
    return table(("id", "state", "trust", "held-out error"), rows)


def errors(calibration: Calibration) -> str:
    return ", ".join(
        f"{error.family} {percent(error.mean_absolute_error)}"
        for error in calibration.held_out_errors
        if error.group == "all"
    )
