"""GPUs and calibrations as messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.sku import Figure
from tilewise.hwdb.sku import Peak as SkuPeak
from tilewise.server.messages.enums import TRUSTS
from tilewise.v1 import gpu_pb2
from tilewise.v1.prediction_pb2 import Peak

if TYPE_CHECKING:
    from tilewise.hwdb.calibration import Calibration


def gpu_message(gpu: Gpu) -> gpu_pb2.Gpu:
    """What identifies a GPU and its size, without peaks and facts."""
    sku = gpu.sku
    return gpu_pb2.Gpu(
        name=f"gpus/{sku.name}",
        sku=sku.name,
        title=sku.title,
        vendor=sku.vendor,
        generation=sku.generation,
        multiprocessor_count=sku.sm_count,
        memory_bytes=sku.memory_bytes,
        memory_bandwidth_bytes_per_s=sku.hbm_bytes_per_s,
        power_w=sku.tdp_w,
        calibration=gpu.answers_by,
    )


def gpu_with_peaks(gpu: Gpu) -> gpu_pb2.Gpu:
    message = gpu_message(gpu)
    message.peaks.extend(map(peak_message, gpu.sku.all_peaks()))
    return message


def gpu_with_facts(gpu: Gpu) -> gpu_pb2.Gpu:
    message, sku = gpu_with_peaks(gpu), gpu.sku
    for name, ceiling in sku.ceilings.items():
        message.ceilings.add(
            name=name, value=ceiling.value, source=ceiling.source, mark=ceiling.mark, trust=TRUSTS[ceiling.trust]
        )
    rates = {f"{key}_flops_per_clock_per_sm": figure for key, figure in sku.flops_per_clock.items()}
    message.facts.extend(fact(name, figure) for name, figure in {**sku.figures, **rates}.items())
    message.aliases.extend(sku.names.aliases)
    message.notes.extend(note for note in (*sku.notes, sku.names.note) if note)
    return message


@lru_cache(maxsize=64)
def peak_message(peak: SkuPeak) -> Peak:
    """One for all operators of a peak: a message that holds it has a copy of its own."""
    return Peak(
        key=peak.key,
        flops_per_s=peak.flops_per_s,
        kind=peak.kind,
        source=peak.source,
        mark=peak.mark,
        clock_hz=peak.clock_hz,
        highest_clock_hz=peak.clock_max_hz,
    )


def fact(name: str, figure: Figure) -> gpu_pb2.Fact:
    value = figure.value if isinstance(figure.value, str) else f"{figure.value:.12g}"
    return gpu_pb2.Fact(name=name, value=value, source=figure.source, mark=figure.mark)


def calibration_message(calibration: Calibration, active: str | None) -> gpu_pb2.Calibration:
    """A calibration without its card; `active` is the id of the one that answers for its SKU."""
    answers = calibration.id == active
    return gpu_pb2.Calibration(
        name=f"gpus/{calibration.sku}/calibrations/{calibration.id}",
        sku=calibration.sku,
        id=calibration.id,
        state=gpu_pb2.CALIBRATION_STATE_ACTIVE if answers else gpu_pb2.CALIBRATION_STATE_RETIRED,
        trust=TRUSTS[calibration.trust],
        production=calibration.production,
        content_sha256=calibration.card["content_sha256"],
        held_out_errors=map(held_out_error, calibration.held_out_errors),
    )


def calibration_with_card(calibration: Calibration, active: str | None) -> gpu_pb2.Calibration:
    message = calibration_message(calibration, active)
    message.card.update(calibration.card)
    return message


def held_out_error(error: Mapping[str, Any]) -> gpu_pb2.HeldOutError:
    """One row of a card's `held_out`; see tilewise.calibration.fit."""
    return gpu_pb2.HeldOutError(
        family=error["family"],
        group=error["group"],
        point_count=error["points"],
        refused_count=error["refused"],
        mean_absolute_error=error["mean_error"],
        p90_absolute_error=error["p90_error"],
        bias=error["bias"],
        interval_coverage=error["interval_coverage"],
    )
