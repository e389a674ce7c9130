"""Power and clock: what a sustained mix of operators does to the clock, and the clock to each of them.

Every operator has a demand: the power it would draw at the boost clock, fitted as P0 + energy per FLOP x rate + energy
per byte x bandwidth. Where the demand of a mix (the mean over its time) exceeds the power limit, the governor lowers the
clock until static + (demand - static) x (clock / boost)^EXPONENT = limit. An operator then takes
1 + sensitivity x (boost / clock - 1) times as long; sensitivity is 0 where only memory works and near 0.6 for GEMM,
which needs fewer cycles when the memory system, whose clock stays, has more time per cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Floats, Ints, Kind, OperatorTable
from tilewise.hwdb.times import Times

if TYPE_CHECKING:
    from tilewise.hwdb.calibration import Calibration

PICO = 1e-12
CAPPED = 0.97  # of the power limit: above it the governor is at work
SCALE_EXCESS = 1.3  # fp8 GEMMs were seen 1.4 times slower sustained than in bursts where bf16 was 1.11
START_JOULE = 1.2e-12  # of bf16, a FLOP
PRIOR = 0.05  # weight of the log by which a format's energy differs from what its peak says, in shares of the limit
EXPONENT = 2.4  # dynamic power ~ clock x voltage^2, and voltage falls with the clock over this range


class Power(Record):
    """Demand of each row in W at the boost clock, and of each row's mix; the clock it settles at, and its W there: shape (rows,)."""

    demand_w: Floats
    mean_w: Floats
    clock_hz: Floats
    power_w: Floats


def demand(table: OperatorTable, times: Times, model: Mapping[str, Any]) -> Floats:
    """W at the boost clock while each row runs back to back."""
    rate = np.maximum(table.flops, table.executed_flops) / times.time_s
    traffic = (table.bytes_read + table.bytes_written) / times.time_s
    known = np.asarray(model["joule_per_flop"])
    per_flop = known[np.where(table.precision < len(known), table.precision, int(Precision.FP8))]
    per_flop = np.where(table.kind == Kind.ATTENTION.value, per_flop * model["attention"], per_flop)
    return np.asarray(model["static_w"] + per_flop * rate + model["joule_per_byte"] * traffic, float)


def settle(
    table: OperatorTable, burst: Times, model: Mapping[str, Any], sku: Sku, idle_s: Floats | float = 0.0
) -> Power:
    """The clock at which each shape's mix of operators settles under the power limit.

    burst: times at the boost clock; idle_s: seconds of each shape in which no kernel runs
    """
    wanted, static = demand(table, burst, model), float(model["static_w"])
    refused = burst.refused
    spent = np.where(refused, 0.0, burst.time_s * table.count)
    total = np.bincount(table.shape, spent, table.shapes) + idle_s
    energy = np.bincount(table.shape, np.where(refused, 0.0, wanted * spent), table.shapes) + static * idle_s
    known = total > 0  # a step without a time has no idle time either
    mean = np.where(known, energy, 0.0) / np.where(known, total, 1.0)
    clock = _clock(mean, static, sku)
    return Power(wanted, mean[table.shape], clock[table.shape], np.minimum(mean, sku.tdp_w)[table.shape])


def energy(
    table: OperatorTable, burst: Times, times: Times, model: Mapping[str, Any], sku: Sku, idle_s: Floats
) -> Floats:
    """Joules of one step, (low, value, high) by shape: the mean power of the mix and of the gaps in it.

    burst: times at the boost clock; times: the same, or those in the state that is asked for. A burst is over before the
    governor lowers the clock, so its mix draws what it demands. The bounds take every kernel at the bound of its time,
    widened by what the power fit misses.
    """
    mix = settle(table, burst, model, sku, idle_s)
    watts = (mix.mean_w if times is burst else mix.power_w)[: table.shapes]  # the first rows are one of each shape
    seconds = (times.low_s, times.time_s, times.high_s)
    busy = np.array([np.bincount(table.shape, table.count * each, table.shapes) for each in seconds])
    missed = np.exp(float(model.get("watts_error", model["clock_error"])) * np.array([-1.0, 0.0, 1.0]))
    joules: Floats = watts * (busy + idle_s) * missed[:, None]
    return joules


def sensitivity(table: OperatorTable, times: Times, model: Mapping[str, Any]) -> Floats:
    """Share of a row's time that grows with the length of a cycle."""
    compute = times.compute_s / np.maximum(times.compute_s + times.memory_s, 1e-12)
    known = np.asarray(
        model["sensitivity"]
    )  # by the kinds' codes; a kind that is younger than the model does not slow down
    known = np.vstack([known, np.zeros((max(max(Kind) + 1 - len(known), 0), 2))])
    base, slope = known[table.kind].T
    return np.asarray(np.clip(base + slope * compute, 0.0, 1.0), float)


def sustain(
    table: OperatorTable,
    times: Times,
    model: Mapping[str, Any],
    sku: Sku,
    idle_s: Floats | float = 0.0,
) -> Times:
    """Burst times stretched to what they are in long training or steady serving."""
    clock = settle(table, times, model, sku, idle_s).clock_hz
    scale = sensitivity(table, times, model)
    stretch = 1 + scale * (sku.clock_boost_hz / clock - 1)
    error = np.where(clock < sku.clock_boost_hz, scale * model["clock_error"], 0.0)
    lost = {name: getattr(times, name) * stretch for name in ("compute_s", "padding_s", "wave_s", "alignment_s")}
    return replace(
        times,
        time_s=times.time_s * stretch,
        low_s=times.low_s * stretch * (1 - error),
        high_s=times.high_s * stretch * (1 + error),
        **lost,
        burst=times,
    )


MEASURED = ("gemm",)


class Points(Record):
    """Sustained points: FLOP/s and byte/s at the burst time, clock in Hz, W, sustained over burst time, share of the matrix units."""

    kind: Ints
    precision: Ints
    rate: Floats
    traffic: Floats
    clock: Floats
    power: Floats
    ratio: Floats
    compute: Floats

    def __getitem__(self, rows: Any) -> Points:
        return Points(*(getattr(self, name)[rows] for name in self.__struct_fields__))


def from_calibration(calibration: Calibration, sku: Sku) -> dict[str, Any]:
    """Fit to the sustained points of every family that a kernel model can put into a table."""
    points = points_of(calibration, sku)
    watts, clock = cross_fitted(points, sku)
    model = fit(points, sku)
    return model | {
        "clock_error": float(np.quantile(np.abs(clock), 0.9)),
        "watts_error": float(np.quantile(np.abs(watts), 0.9)),
    }


def cross_fitted(points: Points, sku: Sku) -> tuple[Floats, Floats]:
    """log(predicted / measured) of watts and of the clock of every point, by a fit that has not seen it."""
    found = []
    for one in range(len(points.kind)):
        apart = np.arange(len(points.kind)) == one
        seen, (wanted, clock) = points[apart], _settled(points[apart], fit(points[~apart], sku), sku)
        found.append([np.log(wanted / seen.power)[0], np.log(clock / np.minimum(seen.clock, sku.clock_boost_hz))[0]])
    watts, clock = np.array(found).T
    return watts, clock


def _settled(points: Points, model: Mapping[str, Any], sku: Sku) -> tuple[Floats, Floats]:
    """W and clock of points that run alone."""
    per_flop = np.asarray(model["joule_per_flop"])[points.precision]
    per_flop = np.where(points.kind == Kind.ATTENTION.value, per_flop * model["attention"], per_flop)
    wanted = model["static_w"] + per_flop * points.rate + model["joule_per_byte"] * points.traffic
    return np.minimum(wanted, sku.tdp_w), _clock(wanted, float(model["static_w"]), sku)


def _clock(wanted: Floats, static: float, sku: Sku) -> Floats:
    """Where a demand at the boost clock settles under the power limit."""
    share = np.minimum(1.0, (sku.tdp_w - static) / np.maximum(wanted - static, 1.0))
    found: Floats = sku.clock_boost_hz * share ** (1 / EXPONENT)
    return found


def fit(points: Points, sku: Sku) -> dict[str, Any]:
    """The model of power; formats that few points are of are drawn to bf16's energy by the ratio of peaks."""
    from scipy.optimize import least_squares

    used = sorted(set(points.precision.tolist()))
    usual = np.array(_every_precision({int(Precision.BF16): START_JOULE}, sku))[used]
    held = points.power > CAPPED * sku.tdp_w

    def model(x: Floats) -> dict[str, Any]:
        known = dict(zip(used, usual * np.exp(x[3:]), strict=True))
        energies = {"joule_per_byte": 100 * PICO * np.exp(x[1]), "attention": np.exp(x[2])}
        return {"static_w": 100 * np.exp(x[0]), **energies, "joule_per_flop": _every_precision(known, sku)}

    def wrong(x: Floats) -> Floats:
        watts, clock = _settled(points, model(x), sku)
        of_clock = np.log(clock / np.minimum(points.clock, sku.clock_boost_hz))
        off = np.where(held, of_clock, (watts - points.power) / sku.tdp_w)
        unlike = x[3:] - x[3:][used.index(int(Precision.BF16))] if int(Precision.BF16) in used else x[3:]
        return np.concatenate([off, PRIOR * unlike])

    start = np.concatenate([np.log([1.5, 1.0, 1.2]), np.zeros(len(used))])
    low = np.concatenate([np.log([0.5, 0.2, 0.5]), np.full(len(used), -3.0)])
    high = np.concatenate([np.log([3.0, 3.0, 4.0]), np.full(len(used), 3.0)])
    found = least_squares(wrong, start, bounds=(low, high), loss="soft_l1", f_scale=0.05).x
    return model(found) | {
        "measured_precisions": [Precision(code).name.lower() for code in used],
        "sensitivity": _sensitivity(points.kind, points.clock, points.ratio, points.compute, sku),
        "points": len(points.kind),
    }


def points_of(calibration: Calibration, sku: Sku) -> Points:
    """The sustained points of a calibration."""
    import importlib

    rows: list[tuple[int, int, float, float, float, float, float, float]] = []
    for family, kind in (("gemm", Kind.GEMM), ("attention", Kind.ATTENTION), ("memory", Kind.MEMORY)):
        module = importlib.import_module(f"tilewise.hwdb.kernels.{family}.fitted")
        if not hasattr(module, "table") or not calibration.model(family):
            continue
        rows += _sustained(calibration, module, family, kind, sku)
    kinds, precisions, *rest = np.array(rows).T
    return Points(kinds.astype(np.int64), precisions.astype(np.int64), *rest)


def _every_precision(known: Mapping[int, float], sku: Sku) -> list[float]:
    """Energy per FLOP of precisions without a sustained point: bf16's, by the ratio of dense peaks.

    A multiplier's energy falls a little less than its rate grows (operand delivery stays); SCALE_EXCESS says how much.
    """
    bf16 = known.get(Precision.BF16, START_JOULE)
    peak = {key: figure.value for key, figure in sku.peaks.items()}
    guess = []
    for precision in Precision:
        ratio = float(peak["bf16"]) / float(peak.get(FORMATS[precision].peak, peak["bf16"]))
        excess = SCALE_EXCESS if ratio < 1 else 1.0
        guess.append(float(known.get(int(precision), bf16 * ratio * excess)))
    return guess


def _sustained(
    calibration: Calibration, module: Any, family: str, kind: Kind, sku: Sku
) -> list[tuple[int, int, float, float, float, float, float, float]]:
    """Per sustained point: kind, precision, FLOP/s and byte/s at the burst time, clock, power, time ratio, compute share."""
    from tilewise.hwdb.times import State

    columns = calibration.measurements(family)
    mask = columns["state"] == "sustained"
    if not mask.any():
        return []
    some = {name: values[mask] for name, values in columns.items()}
    table = module.table({family: some})
    times = module.predict(table, calibration.model(family), sku, State.BURST)
    burst = _burst_us(columns, some, calibration.key_columns(family)) * 1e-6
    burst = np.where(np.isfinite(burst), burst, times.time_s)
    compute = times.compute_s / np.maximum(times.compute_s + times.memory_s, 1e-12)
    flops = np.maximum(table.flops, table.executed_flops)
    found = []
    for i in np.flatnonzero(np.isfinite(burst)):
        found.append((
            int(kind), int(table.precision[i]), flops[i] / burst[i],
            (table.bytes_read[i] + table.bytes_written[i]) / burst[i], some["clock_mhz"][i] * 1e6, some["power_w"][i],
            some["time_us"][i] * 1e-6 / burst[i], compute[i],
        ))  # fmt: skip
    return found


def _burst_us(columns: Mapping[str, Any], some: Mapping[str, Any], keys: tuple[str, ...]) -> Floats:
    """Burst time of the same points, from the first window of the trail where they were not timed apart."""
    first = [str(trail).split("@")[0] if "@" in str(trail) else "nan" for trail in some["trail"]]
    clock = [str(trail).split("@")[1].split(" ")[0] if "@" in str(trail) else "0" for trail in some["trail"]]
    fresh = np.array([float(time) if float(mhz) > 1900 else np.nan for time, mhz in zip(first, clock, strict=True)])
    burst = {
        tuple(str(columns[key][i]) for key in keys): columns["time_us"][i]
        for i in np.flatnonzero(columns["state"] == "burst")
    }
    found = [burst.get(tuple(str(some[key][i]) for key in keys), np.nan) for i in range(len(fresh))]
    return np.where(np.isfinite(found), found, fresh)


def _sensitivity(kind: Ints, clock: Floats, ratio: Floats, compute: Floats, sku: Sku) -> list[list[float]]:
    """(intercept, slope with the compute share) by the kinds' codes, from points whose clock really fell."""
    fitted = [[0.0, 0.0] for _ in range(max(Kind) + 1)]
    slow = clock < 0.95 * sku.clock_boost_hz
    stretch = (ratio - 1) / np.maximum(sku.clock_boost_hz / clock - 1, 1e-3)
    for code in Kind:
        rows = slow & (kind == code)
        if rows.sum() >= 6:
            slope, base = np.polyfit(compute[rows], stretch[rows], 1, w=sku.clock_boost_hz / clock[rows] - 1)
            fitted[code] = [float(base), float(slope)]
        elif rows.any():
            fitted[code] = [float(np.median(stretch[rows])), 0.0]
    fitted[Kind.GROUPED_GEMM] = fitted[Kind.GEMM]  # the same pipes
    return fitted
