"""A calibration, and the difference of two, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewise.client.render.text import table
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.compare import FamilyChange, Verdict
from tilewise.v1.calibration_service_pb2 import ListPublicationsResponse

WORST = 10


def page(calibration: Calibration) -> str:
    """The card for a reader."""
    card = calibration.card
    if card.get("trust") == "published":
        return published_page(calibration)
    gpu = card["gpu"]
    mark = "" if calibration.production else "   NOT PRODUCTION: it never answers"
    lines = [
        f"{calibration.sku}  {calibration.id}{mark}",
        f"  taken    {card['started']} with {card['script']}, {card['used_s']:.0f} s of {card['budget_s']:.0f} s",
        f"  gpu      {gpu['name']}, driver {gpu['driver'] or '-'}, {_watts(gpu['power_limit_w'])}, ECC {_on(gpu['ecc'])}",
        f"  clocks   {_mhz(gpu['max_clock_hz'])} at most; windows below {_mhz(card['wanted_clock_hz'])} thrown away",
        f"  stack    {', '.join(f'{name} {version}' for name, version in sorted(card['stack'].items()))}",
        "",
        *_table(
            ("family", "burst", "sustained", "failed", "windows", "thrown away", "spread median", "p90"),
            [_family(name, family) for name, family in card["families"].items()],
        ),
    ]
    if card["held_out"]:
        rows = [_error(entry) for entry in card["held_out"]]
        head = ("held-out error", "of", "points", "refused", "mean", "p90", "bias", "in 90 % interval")
        lines += ["", *_table(head, rows)]
    skipped = [f"{name}: {note}" for name, note in card["models"].items() if note != "fitted"]
    if skipped:
        lines += ["", "no model   " + "; ".join(skipped)]
    if card["failures"]:
        lines += ["", "failed", *(f"  {count:5d}  {reason}" for reason, count in card["failures"].items())]
    return "\n".join(lines) + "\n"


def audit_log(found: ListPublicationsResponse) -> str:
    """Who did what with a GPU's calibrations, one line each."""
    head = ("when (UTC)", "who", "what", "calibration", "in place of", "why")
    rows = []
    for entry in found.publications:
        moment, why = f"{entry.time.ToDatetime():%Y-%m-%d %H:%M:%S}", " ".join(entry.reason.split())
        rows.append((moment, entry.who or "-", entry.action, entry.id, entry.previous, why))
    return table(head, rows) + "\n"


def published_page(calibration: Calibration) -> str:
    """The card of a calibration that others' measurements made: whose, under which licence, what it is not for."""
    card = calibration.card
    lines = [f"{calibration.sku}  {calibration.id}  trust: published; no row of the sources is kept", ""]
    for source in card["sources"]:
        lines += [
            f"{source['title']}, {source['licence']}: {source['rows']} rows ({source['url']})",
            f"  states   {source['states']}",
            *(f"  not for  {use}" for use in source["not_for"]),
        ]
    lines += ["", *(f"model    {name}: {note}" for name, note in card["models"].items())]
    lines += ["", *(f"dropped  {count:6d}  {why}" for why, count in card["dropped"].items())]
    head = ("held-out error", "of", "points", "refused", "mean", "p90", "bias", "in 90 % interval")
    lines += ["", *_table(head, [_error(entry) for entry in card["held_out"]])]
    return "\n".join(lines) + "\n"


def differences(changes: Sequence[FamilyChange], old: str, new: str) -> str:
    """What changed between two calibrations: one line a family, then the points that changed most."""
    rows = []
    for change in changes:
        counts = [str(change.counts.get(verdict.value, 0)) for verdict in Verdict]
        interval = f"{change.ratio:.4f} ({change.low:.4f} to {change.high:.4f})"
        rows.append(
            (change.family, change.verdict.value, interval, str(change.points), *counts, str(change.kernels_changed))
        )
    head = ("family", "verdict", "time, new / old", "points", *(verdict.value for verdict in Verdict), "other kernel")
    lines = [f"{old} -> {new}", *_table(head, rows)]
    moved = [
        (abs(point.ratio - 1), change.family, point)
        for change in changes
        for point in change.changes
        if point.verdict in (Verdict.FASTER, Verdict.SLOWER)
    ]
    moved.sort(key=lambda entry: -entry[0])
    if moved:
        lines += ["", "largest differences"]
    for _, family, point in moved[:WORST]:
        kernel = "" if point.same_kernel else "  other kernel"
        times = f"{point.old_s * 1e6:.2f} -> {point.new_s * 1e6:.2f} us"
        lines.append(f"  {point.ratio:6.3f}  {family} {point.shape}  {times}{kernel}")
    return "\n".join(lines) + "\n"


def _family(name: str, family: Mapping[str, Any]) -> tuple[str, ...]:
    spread = family["spread"]
    noise = (f"{spread['median']:.2%}", f"{spread['p90']:.2%}") if spread else ("-", "-")
    counts = ("burst_points", "sustained_points", "failed_points", "windows", "discarded_windows")
    return (name, *(str(family[key]) for key in counts), *noise)


def _error(entry: Mapping[str, Any]) -> tuple[str, ...]:
    shares = (f"{entry['mean_error']:.2%}", f"{entry['p90_error']:.2%}", f"{entry['bias']:+.2%}")
    counts = (str(entry["points"]), str(entry["refused"]))
    return (entry["family"], entry["group"], *counts, *shares, f"{entry['interval_coverage']:.1%}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Words to the left, numbers to the right."""
    body = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in body) for i in range(len(head))]
    return ["  " + "  ".join(_cell(row[i], widths[i], i) for i in range(len(head))).rstrip() for row in body]


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column < 2 else text.rjust(width)


def _watts(value: float | None) -> str:
    return "power limit unknown" if value is None else f"power limit {value:.0f} W"


def _mhz(value: float | None) -> str:
    return "unknown" if not value else f"{value / 1e6:.0f} MHz"


def _on(value: bool | None) -> str:
    return "unknown" if value is None else "on" if value else "off"
