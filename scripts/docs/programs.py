"""The tables of docs/programs.md: our operators of every family beside those that transformers' own code launches."""

from collections import defaultdict
from collections.abc import Iterable

from tilewise.client.render.text import percent
from tilewise.server.operators.programs import lines, plain_factors, program_at, ratio
from tilewise.server.workload import CHOICES

NEAR = {"kernels": 0.03, "flops": 0.001, "bytes": 0.05, "time_us": 0.03}
Line = dict[str, str]


def summary() -> str:
    """How many programs are near, by phase."""
    rows = [
        "| phase | compared | launches within 3 % | FLOPs within 0.1 % | bytes within 5 % | time within 3 % |",
        "|---|" + "--:|" * 5,
    ]
    for phase in CHOICES["phase"]:
        compared = [line for line in lines().values() if line["phase"] == phase and not line["reason"]]
        counts = (sum(abs(ratio(line, name) - 1) <= near for line in compared) for name, near in NEAR.items())
        rows.append(f"| {phase} | {len(compared)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(rows)


def plain() -> str:
    """What a program that nobody compared may be off by."""
    rows = ["| phase | programs | true over predicted time: 5 % | 95 % |", "|---|--:|--:|--:|"]
    for phase in CHOICES["phase"]:
        seen = [line for line in lines().values() if line["phase"] == phase and line["plain"]]
        least, most = plain_factors(phase)
        rows.append(f"| {phase} | {len(seen)} | {least:.2f} | {most:.2f} |")
    return "\n".join(rows)


def table() -> str:
    """Every family that was compared."""
    rows = [
        "| family | attention | launches: train | prefill | decode | FLOPs | bytes | time | |",
        "|---|---|" + "--:|" * 6 + "---|",
    ]
    return "\n".join([*rows, *(_row(family, found) for family, found in _families().items() if _compared(found))])


def not_compared() -> str:
    """Why the others were not."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in lines().values():
        if line["reason"]:
            reasons[line["reason"]][line["family"]].append(line["phase"])
    rows = ["| reason | families |", "|---|---|"]
    for reason, families in reasons.items():
        rows.append(f"| {reason} | {', '.join(_named(*each) for each in families.items())} |")
    return "\n".join(rows)


def _named(family: str, phases: list[str]) -> str:
    return family if len(phases) == len(CHOICES["phase"]) else f"{family} ({', '.join(phases)})"


def _families() -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines().values():
        found[line["family"]].append(line)
    return found


def _compared(found: Iterable[Line]) -> list[Line]:
    return [line for line in found if not line["reason"]]


def _row(family: str, found: list[Line]) -> str:
    launches = [f"{line['kernels_ours']} / {line['kernels_traced']}" if not line["reason"] else "-" for line in found]
    compared = _compared(found)
    kinds = ", ".join(dict.fromkeys(line["attention"] for line in compared))
    worst = (
        percent(max((1 / ratio(line, name) - 1 for line in compared), key=abs))
        for name in ("flops", "bytes", "time_us")
    )
    differs = ", ".join(line["phase"] for line in compared if program_at(line).why)
    return f"| {family} | {kinds} | {' | '.join(launches)} | {' | '.join(worst)} | {'differs: ' + differs if differs else ''} |"
