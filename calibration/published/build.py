"""Published rows -> a calibration: fitted models, a card that names every source, and the error on shapes kept apart."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.calibration.fit import write_model
from tilewise.calibration.published import points as point
from tilewise.calibration.published.rows import Rows, facts
from tilewise.calibration.seal import settle
from tilewise.hwdb.calibration import SCHEMA, Calibration, canonical, held_out
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.kernels.attention import published as attention
from tilewise.hwdb.kernels.collective import published as collective
from tilewise.hwdb.kernels.gemm import published as gemm
from tilewise.hwdb.kernels.grouped_gemm import published as grouped_gemm
from tilewise.hwdb.kernels.learning.residual import Points
from tilewise.hwdb.kernels.machines import host_factor
from tilewise.hwdb.kernels.memory import published as memory
from tilewise.hwdb.kernels.software import Origin
from tilewise.hwdb.launch import MODES
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.times import State

Load = Callable[[str], list[Rows]]
LEARNED = {"gemm": (gemm, "gemm"), "attention": (attention, "attention"), "moe": (grouped_gemm, "grouped_gemm")}
SIBLING = "h100-sxm5-80gb"  # measured by our own suite: what nobody published is carried over from it
SIBLINGS = ("ampere", "hopper", "blackwell", "blackwell-ultra")  # generations between which that error was measured
LAUNCHED = {"trust": "datasheet", "source": f"carried over from {SIBLING}"}
POINTS_MIN = 60  # of a family, below which nothing is fitted


class Builder:
    """Builds calibrations of one date. GPUs that are fitted together share the fit."""

    def __init__(self, load: Load, date: str) -> None:
        self._load, self.date = load, date
        self._rows: dict[str, list[Rows]] = {}
        self._fits: dict[tuple[str, ...], Any] = {}

    def build(self, name: str, into: Path) -> Calibration:
        """The calibration of a SKU, in `into`. Raises NotAvailable where no row is about it."""
        sku, rows = Database.packaged().sku(name), self.rows(name)
        if not any(len(one) for one in rows):
            raise NotAvailable(f"no published row is about {name}", reason="NOT_PUBLISHED", field="sku")
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into) as folder:
            draft = Path(folder)
            (draft / "models").mkdir()
            models, errors = self._models(sku)
            for family, model in models.items():
                write_model(draft, family, model)
            (draft / "card.json").write_bytes(canonical(card(sku, self.date, rows, models, errors)))
            return settle(draft, into)

    def rows(self, name: str) -> list[Rows]:
        if name not in self._rows:
            self._rows[name] = [point.only(one, point.modelled(one.family, one)) for one in self._load(name)]
        return self._rows[name]

    def _models(self, sku: Sku) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
        sibling = SIBLING if sku.generation in SIBLINGS and sku.name != SIBLING else ""
        models: dict[str, dict[str, Any]] = {}
        errors: list[dict[str, Any]] = []
        for family, (module, model_name) in LEARNED.items():
            fitted, apart = self._learned(family, sku)
            if fitted:
                models[model_name] = {**fitted, "sibling": sibling, "unsure": self._unsure(family, sku.name)}
                if family == "gemm" and sku.name in facts()["kin"]:
                    models[model_name]["kin"] = facts()["kin"][sku.name]
                errors += judged(module, model_name, models[model_name], apart, sku)
            elif sibling and family != "gemm":
                models[model_name] = {
                    "law": f"published.{model_name}",
                    "sibling": sibling,
                    "software": [],
                    "together": [],
                }
        models |= self._plain(sku, sibling)
        if sku.name != SIBLING:
            models["launch"] = _launch()
        return models, errors

    def _unsure(self, family: str, name: str) -> float:
        """Log by which most rows' true SKU may differ from this one: of an architecture whose boards a source does not tell."""
        differ = np.concatenate([one.differ for one in self.rows(name) if one.family == family])
        return float(np.median(differ)) if len(differ) else 0.0

    def _learned(self, family: str, sku: Sku) -> tuple[dict[str, Any], Points | None]:
        """The model of a family, fitted together with siblings, and this SKU's points that were kept apart."""
        together = next((names for names in facts()["together"].values() if sku.name in names), [sku.name])
        key = family, *together
        if key not in self._fits:
            found = point.points(family, {name: self.rows(name) for name in together})
            if found is None or len(found.measured_s) < POINTS_MIN:
                self._fits[key] = {}, None
            else:
                apart = held_out(found.shapes.tolist())
                self._fits[key] = LEARNED[family][0].fit(found[~apart]), found[apart]
        fitted, apart = self._fits[key]
        if apart is None:
            return {}, None
        return fitted, apart[apart.gpu == list(together).index(sku.name)]

    def _plain(self, sku: Sku, sibling: str) -> dict[str, dict[str, Any]]:
        """Memory-bound kernels and collectives: few constants, no net."""
        models: dict[str, dict[str, Any]] = {}
        casts = [one for one in self.rows(sku.name) if one.family == "quantize" and len(one)]
        law: dict[str, Any] = {}
        if casts:
            moved, time_us = (np.concatenate([one.number(c) for one in casts]) for c in ("bytes_moved", "time_us"))
            law = memory.fit(moved, time_us * 1e-6, sku)
        if law or sibling:
            models["memory"] = {"law": "published.memory", "sibling": sibling, **law}
        found = [point.collectives(one) for one in self.rows(sku.name) if one.family == "collective" and len(one)]
        columns = [np.concatenate(some) for some in zip(*found, strict=True)]
        if columns and len(columns[0]):
            models["collective"] = {"law": "published.collective", **collective.fit(*columns)}
        return models


def _launch() -> dict[str, Any]:
    """The sibling's cost of launching, which is its host's more than its own: the same framework on another host."""
    measured = Database.packaged().gpu(SIBLING)
    model = measured.calibration.model("launch") if measured.calibration else {}
    return {
        mode: {name: _wider(model[mode][name]) for name in ("issue_s", "gap_s")} | LAUNCHED for mode in MODES if model
    }


def _wider(seconds: Sequence[float]) -> list[float]:
    (low, value, high), factor = seconds, host_factor()
    return [float(f"{low / factor:.3g}"), value, float(f"{high * factor:.3g}")]


def judged(module: Any, family: str, model: Mapping[str, Any], apart: Points | None, sku: Sku) -> list[dict[str, Any]]:
    """Error and interval coverage on this SKU's shapes that were kept apart: all, by format, by software."""
    if apart is None or not len(apart.measured_s):
        return []
    table = replace(apart.table, library=apart.software + 1)
    times = module.predict(table, model, sku, State.BURST)
    names = np.array([one.name for one in apart.origins])[apart.software]
    formats = np.array([one.format for one in apart.origins])[apart.software]
    phases = np.array([_phase(one) for one in apart.origins])[apart.software]
    kinds = np.array(["mla " * one.latent for one in apart.origins])[apart.software]
    return [
        {"family": family, "group": group, **entry}
        for words in (np.char.add(kinds, "all"), np.char.add(phases, formats), names)
        for group in sorted(set(words.tolist()))
        if (entry := _error(times, apart.measured_s, words == group))
    ]


def _phase(origin: Origin) -> str:
    """What stands before the engine in an origin's name: "decode " or "mla decode " of an attention."""
    return origin.name[: origin.name.index(origin.engine)]


def _error(times: Any, measured_s: NDArray[Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
    answered = rows & np.isfinite(times.time_s)
    if not answered.any():
        return {}
    ratio = times.time_s[answered] / measured_s[answered]
    inside = (times.low_s <= measured_s) & (measured_s <= times.high_s)
    return {
        "points": int(answered.sum()),
        "refused": int((rows & ~answered).sum()),
        "mean_error": round(float(np.abs(ratio - 1).mean()), 5),
        "p90_error": round(float(np.quantile(np.abs(ratio - 1), 0.9)), 5),
        "bias": round(float(np.median(ratio) - 1), 5),
        "interval_coverage": round(float(inside[answered].mean()), 4),
    }


def card(
    sku: Sku, date: str, rows: Sequence[Rows], models: Mapping[str, Any], errors: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What a reader must know before trusting the numbers."""
    sources: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for one in rows:
        sources.update(one.sources)
        dropped.update({f"{one.family}: {why}": count for why, count in one.dropped.items()})
    return {
        "schema": SCHEMA,
        "date": date,
        "sku": sku.name,
        "trust": "published",
        "production": True,
        "sources": [_source(key, count) for key, count in sorted(sources.items())],
        "dropped": dict(sorted(dropped.items())),
        "families": {},
        "models": {family: _note(model) for family, model in models.items()},
        "held_out": list(errors),
    }


def _source(key: str, count: int) -> dict[str, Any]:
    entry = facts()["source"][key]
    return {name: entry[name] for name in ("title", "version", "url", "licence", "states", "not_for")} | {"rows": count}


def _note(model: Mapping[str, Any]) -> str:
    names = [Origin.of(one).name for one in model.get("software", ())]
    sibling = f"; what was not published is carried over from {model['sibling']}" if model.get("sibling") else ""
    together = [name for name in model.get("together", ())]
    shared = f"; fitted together with {', '.join(together)}" if len(together) > 1 else ""
    return f"{'; '.join(names) if names else 'no software of its own'}{shared}{sibling}"
