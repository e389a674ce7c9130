"""tilewise.toml: which GPUs and workloads are judged, by which budgets, and which findings are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from difflib import get_close_matches
from enum import IntEnum
from itertools import chain, repeat
from typing import Any

from msgspec.structs import replace

from tilewise.hwdb.errors import InvalidInput, TilewiseError, TooLarge, unknown
from tilewise.hwdb.record import Record
from tilewise.hwdb.texts import has_control, printable, read_toml, texts_of
from tilewise.hwdb.times import Trust
from tilewise.server import stacks
from tilewise.server.gate.metrics import LEFT_ON_TABLE, METRICS
from tilewise.server.gate.rules import rules
from tilewise.server.gate.units import quantity
from tilewise.server.workload import Workload

LARGEST_BYTES = 1 << 20
TABLES_MAX = 1000  # of a kind: each is looked at for each configuration


class Severity(IntEnum):
    """How much something matters; OFF: it is not told."""

    OFF = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


SEVERITIES = tuple(severity.name.lower() for severity in Severity)


class Budget(Record, kw_only=True):
    """One limit of one metric: max_regression, a share against the base, or limit, in SI units; the other is None.

    max_left_on_table is the limit of a metric of its own.

    text: the limit in the policy's words, as "max_regression 2 %"
    """

    config: str
    metric: str
    gpus: tuple[str, ...]
    workloads: tuple[str, ...]
    max_regression: float | None
    limit: float | None
    min_trust: Trust
    severity: Severity
    message: str
    text: str
    line: int


class Allowance(Record, kw_only=True):
    """A finding that is let through. until: the last day on which it is; None: for ever."""

    code: str
    config: str
    reason: str
    until: date | None
    line: int


class Policy(Record, kw_only=True):
    """severities: of rules that the policy rates otherwise, "off" among them; since: date that calibrations must reach."""

    path: str
    gpus: tuple[str, ...]
    workloads: Mapping[str, Workload]
    budgets: tuple[Budget, ...]
    allowances: tuple[Allowance, ...]
    severities: Mapping[str, str]
    since: str

    @property
    def limits(self) -> tuple[Budget, ...]:
        """The budgets, wherever in the file they stand."""
        return tuple(replace(budget, line=0) for budget in self.budgets)


def read(text: str, path: str = "tilewise.toml") -> Policy:
    """The policy in a text. Raises InvalidInput (BAD_POLICY) and TooLarge; the message names line, key and what is allowed."""
    return _Reader(text, path).policy()


CHECK = ("gpus", "hwdb", "workload", "budget", "allow", "rules")
WORKLOAD = ("name", *Workload.__struct_fields__)
LIMITS = ("max_regression", "limit", "max_left_on_table")
BUDGET = ("config", "metric", "gpus", "workloads", *LIMITS, "min_trust", "severity", "message")
ALLOW = ("code", "config", "reason", "until")


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path

    def policy(self) -> Policy:
        check = self._table()
        self._known(check, CHECK, "check")
        gpus = self._names(check.get("gpus"), "check.gpus", 'gpus = ["h100-sxm5-80gb"]')
        workloads = self._workloads(check)
        if not workloads:
            raise self._bad("no [[check.workload]]: name, phase and sizes of what runs are needed", "check.workload")
        budgets = [
            budget
            for table, line in zip(self._tables(check, "budget"), self._lines("budget"), strict=False)
            for budget in self._budgets(table, line, gpus, tuple(workloads))
        ]
        if not budgets:
            raise self._bad('no [[check.budget]]: at least config = "*.json" and a metric are needed', "check.budget")
        allowances = map(self._allowance, self._tables(check, "allow"), self._lines("allow"))
        return Policy(
            path=self.path, gpus=gpus, workloads=workloads, budgets=tuple(budgets), allowances=tuple(allowances),
            severities=self._rules(check.get("rules", {})), since=self._since(check.get("hwdb", "")),
        )  # fmt: skip

    def _table(self) -> dict[str, Any]:
        if len(self.text) > LARGEST_BYTES:
            message = f"{self.path} is {len(self.text) / 2**20:.1f} MiB; at most 1 MiB of policy is read"
            raise TooLarge(message, reason="BAD_POLICY", field="policy_toml")
        try:
            whole = read_toml(self.text)
        except ValueError as error:
            raise self._bad(f"no valid TOML: {error}") from error
        bad = next(filter(has_control, texts_of(whole)), "")
        if bad:
            raise self._bad(f"{printable(bad)[:60]!r} holds a character that is not printed; each text is one line")
        self._known(whole, ("check",), "")
        check = whole.get("check")
        if not isinstance(check, dict):
            raise self._bad("a [check] table is needed")
        return check

    def _tables(self, check: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        found = check.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._bad(f"check.{name} must be a list of tables: write [[check.{name}]]", name)
        if len(found) > TABLES_MAX:
            raise self._bad(f"{len(found)} tables [[check.{name}]]; at most {TABLES_MAX}", name)
        return found

    def _lines(self, name: str) -> Iterable[int]:
        """Lines on which the tables of a list begin; the line of an inline list stands for all of its tables."""
        header = re.compile(rf"\s*\[\[\s*check\s*\.\s*{name}\s*\]\]")
        found = [at for at, line in enumerate(self.text.splitlines(), 1) if header.match(line)]
        return chain(found, repeat(self._line(name)))

    def _line(self, key: str) -> int:
        """The first line that sets or opens `key`; 1 where none does."""
        pattern = re.compile(rf"\s*(\[+[\w.\s]*)?[\"']?{re.escape(key)}[\"']?\s*(=|\]|\.)")
        lines = enumerate(self.text.splitlines(), 1)
        return next((at for at, line in lines if pattern.match(line)), 1)

    def _known(self, table: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
        for key in table:
            if key not in (names := list(allowed)):
                near = get_close_matches(key, names, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                place = f"[{where}]" if where else "a policy"
                raise self._bad(f"{key[:60]} is no key of {place}: allowed are {', '.join(names)}{hint}", key)

    def _names(self, value: object, key: str, example: str) -> tuple[str, ...]:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
            raise self._bad(f"{key} must be a list of names, as {example}", key.rpartition(".")[2])
        return tuple(dict.fromkeys(listed))

    def _workloads(self, check: Mapping[str, Any]) -> dict[str, Workload]:
        found: dict[str, Workload] = {}
        for table, line in zip(self._tables(check, "workload"), self._lines("workload"), strict=False):
            name, workload = self._workload(table, line)
            if name in found:
                raise self._bad(f"a second workload is called {name}: the first would never be judged", line=line)
            found[name] = workload
        return found

    def _workload(self, table: dict[str, Any], line: int) -> tuple[str, Workload]:
        for key in stacks.RETIRED:
            if key in table:
                raise self._bad(stacks.renamed(key, table[key]), key)
        self._known(table, WORKLOAD, "[check.workload]")
        name = table.get("name")
        if not isinstance(name, str) or not name:
            raise self._bad("a [[check.workload]] needs a name", line=line)
        try:
            return name, Workload(**{key: value for key, value in table.items() if key != "name"})
        except TilewiseError as error:
            raise self._bad(f"workload {name}: {error.message}", line=line) from error

    def _budgets(
        self, table: dict[str, Any], line: int, gpus: tuple[str, ...], workloads: tuple[str, ...]
    ) -> Iterator[Budget]:
        """One for each limit that a table states."""
        self._known(table, BUDGET, "[check.budget]")
        metrics = [name for name in METRICS if name != LEFT_ON_TABLE]
        config, metric = self._word(table, "config", line), self._word(table, "metric", line, metrics, "time_s")
        trusts = [trust.name.lower() for trust in Trust]
        facts: dict[str, Any] = {
            "gpus": self._some(table, "gpus", gpus, line),
            "workloads": self._some(table, "workloads", workloads, line),
            "min_trust": Trust(trusts.index(self._word(table, "min_trust", line, trusts, "published"))),
            "severity": Severity[self._word(table, "severity", line, SEVERITIES[1:], "error").upper()],
            "message": self._word(table, "message", line, default=""),
        }
        if not table.keys() & set(LIMITS):
            raise self._bad(f"a budget needs {', '.join(LIMITS[:-1])} or {LIMITS[-1]}", line=line)
        for key in (key for key in LIMITS if key in table):
            limited = LEFT_ON_TABLE if key == "max_left_on_table" else metric
            value = self._quantity(table[key], key, "share" if key == "max_regression" else METRICS[limited].unit, line)
            facts["max_regression"], facts["limit"] = (value, None) if key == "max_regression" else (None, value)
            yield Budget(config=config, metric=limited, line=line, text=f"{key} {table[key]}", **facts)

    def _some(self, table: dict[str, Any], key: str, all_of: tuple[str, ...], line: int) -> tuple[str, ...]:
        """The names a budget takes of those that the policy has; all of them where it names none."""
        if key not in table:
            return all_of
        names = self._names(table[key], f"check.budget.{key}", f'{key} = ["{all_of[0]}"]')
        for name in names:
            self._chosen(name, all_of, key, line)
        return names

    def _word(
        self, table: dict[str, Any], key: str, line: int, allowed: Iterable[str] = (), default: str | None = None
    ) -> str:
        value = table.get(key, default)
        if not isinstance(value, str) or (not value and default is None):
            raise self._bad(f"{key} must be text, not {str(value)[:60]!r}", line=line)
        return self._chosen(value, tuple(allowed), key, line) if allowed else value

    def _chosen(self, value: str, allowed: tuple[str, ...], key: str, line: int) -> str:
        if value not in allowed:
            raise self._bad(unknown(key, value[:60], allowed), line=line)
        return value

    def _quantity(self, value: object, key: str, unit: str, line: int) -> float:
        try:
            return quantity(value, unit)
        except ValueError as error:
            raise self._bad(f"{key} {error}", line=line) from error

    def _allowance(self, table: dict[str, Any], line: int) -> Allowance:
        self._known(table, ALLOW, "[check.allow]")
        code = self._word(table, "code", line, tuple(rules()))
        if not str(table.get("reason", "")).strip():
            raise self._bad(f"the allowance of {code} needs a reason", line=line)
        until = table.get("until")
        try:
            day = date.fromisoformat(str(until)) if until is not None else None
        except ValueError as error:
            raise self._bad(f"until {str(until)[:60]!r} is no day: write 2027-03-01", line=line) from error
        config = self._word(table, "config", line, default="**")
        return Allowance(code=code, config=config, reason=str(table["reason"]).strip(), until=day, line=line)

    def _rules(self, table: object) -> dict[str, str]:
        if not isinstance(table, dict):
            raise self._bad('check.rules must be a table, as rules = { TW010 = "off" }', "rules")
        for code, severity in table.items():
            self._chosen(code, tuple(rules()), "rule", self._line("rules"))
            self._chosen(str(severity), SEVERITIES, f"severity of {code}", self._line("rules"))
        return {code: str(severity) for code, severity in table.items()}

    def _since(self, wanted: object) -> str:
        found = re.fullmatch(r"(?:>=\s*(\d{4})[.-](\d{2})(?:[.-](\d{2}))?)?", str(wanted).strip())
        if found is None:
            raise self._bad(f"hwdb {str(wanted)[:60]!r} must say how new calibrations must be, as >=2026.11", "hwdb")
        return "-".join(part for part in found.groups() if part)

    def _bad(self, message: str, key: str = "", *, line: int = 0) -> InvalidInput:
        at = line or (self._line(key.rpartition(".")[2]) if key else 0)
        place = f"{self.path}:{at}" if at else self.path
        return InvalidInput(f"{place}: {message}", reason="BAD_POLICY", field="policy_toml", line=at)
