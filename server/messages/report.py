"""A Report as a PredictResponse."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.sku import Peak as SkuPeak
from tilewise.hwdb.times import Trust, Wall
from tilewise.server.messages.enums import TRUSTS, WALLS
from tilewise.server.messages.gpu import gpu_message, peak_message
from tilewise.server.messages.question import workload_message
from tilewise.server.messages.rows import to_columns
from tilewise.server.messages.words import number
from tilewise.server.step import report
from tilewise.server.step.losses import CAUSES
from tilewise.server.workload import Workload
from tilewise.v1 import advisor_service_pb2, model_pb2, workload_pb2
from tilewise.v1.prediction_pb2 import Peak

Fields = dict[str, Any]  # of a message; where they are given inside of another, protobuf makes no copy


def report_message(found: report.Report, gpu: Gpu, version: str) -> advisor_service_pb2.PredictResponse:
    """The whole report; operators too where there are any."""
    calibration = found.calibration
    whole: Fields = {
        "layers": [layer(each, found.step, calibration) for each in found.layers],
        "operators": [operator(each, calibration) for each in found.operators],
        "rows": to_columns(found.table, found.times) if found.operators and found.step.time else (),
    }
    return advisor_service_pb2.PredictResponse(**brief(found, gpu), **common(gpu, found.workload, version), **whole)


def briefs(found: Iterable[report.Brief], gpu: Gpu, workload: Workload, version: str) -> list[Fields]:
    """Fields of answers at DETAIL_STEP about shapes of one GPU and workload."""
    same = common(gpu, workload, version)
    return [{**brief(each, gpu), **same} for each in found]


def common(gpu: Gpu, workload: Workload, version: str) -> Fields:
    """What all answers about one GPU and workload say."""
    return {"workload": workload_message(workload), "gpu": gpu_message(gpu), "database_version": version}


def brief(found: report.Brief, gpu: Gpu) -> Fields:
    """The answer about one shape at DETAIL_STEP, without what is common to several."""
    return {
        "architecture": summary(found),
        "step": step(found.step, found.calibration),
        "summary": found.headline,
        "memory": memory(found, gpu),
    }


def table_message(
    found: report.TableReport, gpu: Gpu, workload: Workload, name: str
) -> advisor_service_pb2.PredictResponse:
    """A report of a bare table, such as that of a traced module called `name`: no parameters, no memory, no sentence."""
    return advisor_service_pb2.PredictResponse(
        architecture=model_pb2.ModelSummary(name=name),
        workload=workload_message(workload),
        gpu=gpu_message(gpu),
        step=step(found.step, found.calibration),
        layers=[layer(each, found.step, found.calibration) for each in found.layers],
        operators=[operator(each, found.calibration) for each in found.operators],
    )


def summary(found: report.Brief) -> Fields:
    arch, parameters = found.architecture, found.parameters
    return {
        "name": arch.name or arch.model_type,
        "family": arch.family,
        "model_type": arch.model_type,
        "parameter_count": int(parameters.total),
        "active_parameter_count": int(parameters.active),
        "parameter_count_by_part": parameters.parts,
        "rank_parameter_count": found.rank_parameters,
        "notes": found.notes,
    }


def step(found: report.Step, calibration: str) -> Fields:
    return {
        "prediction": prediction(found.time, found.trust, found.wall, found.distance, calibration),
        "token_count": found.tokens,
        "tokens_per_s": found.tokens_per_s,
        "mfu": found.mfu,
        "hfu": found.hfu,
        "palm_mfu": found.palm_mfu,
        "mbu": found.mbu,
        "peak": peak_message(found.peak),
        "model_flops": found.flops["causal"],
        "full_attention_flops": found.flops["full"],
        "palm_flops": found.flops.get("palm", 0.0),
        "executed_flops": found.executed_flops,
        "traffic_bytes": found.memory_bytes,
        "busy_s": found.busy.time_s if found.time else 0.0,
        "issue_s": found.issue_s,
        "kernel_count": found.launches,
        "walls": walls(found.walls) if found.time else (),
        "regime": found.regime,
        "padding_s": found.padding_s,
        "wave_s": found.wave_s,
        "alignment_s": found.alignment_s,
        "refusal": found.refusal,
        "weakest_link": found.weakest_link,
        "losses": losses(found.losses, sum(found.losses)) if found.time else (),
        "energy_j": found.energy.energy_j if found.energy else None,
        "energy_low_j": found.energy.low_j if found.energy else None,
        "energy_high_j": found.energy.high_j if found.energy else None,
        "flops_per_j": found.flops_per_j,
    }


def losses(seconds: tuple[float, ...], whole: float) -> list[Fields]:
    """Time by cause, in the order of CAUSES; `whole`: the time of the step."""
    return [
        {"cause": cause, "time_s": time, "share": time / whole}
        for cause, time in zip(CAUSES, seconds, strict=True)
        if time > 0
    ]


def walls(seconds: tuple[float, ...], whole: float = 0.0) -> list[Fields]:
    """Time by wall, the largest first; `whole`: the time of the step, where `seconds` are not all of it."""
    whole = whole or sum(seconds)
    shares = [(-time, wall) for wall, time in enumerate(seconds) if time > 0]
    return [{"wall": WALLS[wall], "time_s": -less, "share": -less / whole} for less, wall in sorted(shares)]


def prediction(
    time: report.Interval | None, trust: Trust, wall: Wall, distance: float, calibration: str
) -> Fields | None:
    """A time with its provenance; None where it was refused. A figure of the datasheet rests on no calibration."""
    if time is None or math.isnan(time.time_s):
        return None
    return {
        "time_s": time.time_s,
        "time_low_s": time.low_s,
        "time_high_s": time.high_s,
        "trust": TRUSTS[trust],
        "calibration": calibration,
        "distance": None if math.isnan(distance) else distance,
        "wall": WALLS[wall],
    }


def layer(found: report.Layer, whole: report.Step, calibration: str) -> Fields:
    time = prediction(found.time, found.trust, found.wall, found.distance, calibration)
    return {
        "name": found.name,
        "prediction": time,
        "share": found.share if time else 0.0,
        "mfu": found.mfu if time else None,
        "peak": optional_peak(whole.peak if time and found.mfu is not None else None),
        "mbu": found.mbu if time else None,
        "model_flops": found.flops,
        "traffic_bytes": found.memory_bytes,
        "kernel_count": found.launches,
        "walls": walls(found.walls, sum(whole.walls)) if whole.time else (),
        "losses": losses(found.losses, sum(whole.losses)) if whole.time else (),
    }


def operator(found: report.Operator, calibration: str) -> Fields:
    time = None if found.refusal else prediction(found.time, found.trust, found.wall, found.distance, calibration)
    return {
        "name": found.name,
        "layer": found.layer,
        "part": found.part,
        "direction": found.direction,
        "kind": found.kind,
        "shape": found.shape,
        "precision": number(workload_pb2.Precision.DESCRIPTOR, found.precision),
        "count": found.count,
        "kernel_count": found.kernels,
        "prediction": time,
        "total_s": found.total_s if time else 0.0,
        "share": found.share if time else 0.0,
        "mfu": found.mfu if time else None,
        "peak": optional_peak(found.peak if time and found.mfu is not None else None),
        "model_flops": found.flops,
        "executed_flops": found.executed_flops,
        "traffic_bytes": found.memory_bytes,
        **({name: getattr(found, source) for name, source in WALL_TIMES.items()} if time else {}),
        "kernel": found.kernel,
        "tile_count": found.tiles,
        "wave_count": found.waves,
        "refusal": found.refusal,
    }


WALL_TIMES = {
    "compute_s": "compute_s",
    "memory_s": "memory_s",
    "special_function_s": "special_s",
    "launch_s": "launch_s",
    "padding_s": "padding_s",
    "wave_s": "wave_s",
    "alignment_s": "alignment_s",
}


def optional_peak(peak: SkuPeak | None) -> Peak | None:
    return peak_message(peak) if peak is not None else None


def memory(of: report.Brief, gpu: Gpu) -> Fields:
    found, capacity = of.memory, gpu.sku.memory_bytes
    parts = [
        {"name": part.name, "size_bytes": int(part.size_bytes), "peak_bytes": int(part.peak_bytes)}
        for part in found.parts
    ]
    return {
        "total_bytes": int(found.total_bytes),
        "capacity_bytes": int(capacity),
        "fits": of.fits,
        "free_bytes": int(of.memory_room_bytes - found.total_bytes),
        "reserve_bytes": int(capacity - of.memory_room_bytes),
        "peak_moment": str(found.peak_moment),
        "parts": parts,
        "kv_cache_bytes_per_token": int(found.kv_cache_bytes_per_token),
        "kv_cache_bytes_per_later_token": int(found.kv_cache_bytes_per_later_token),
    }
