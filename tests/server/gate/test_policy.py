"""A policy that is wrong says where, what is allowed, and what was probably meant."""

from datetime import date

import pytest

from tilewise.hwdb.errors import InvalidInput, TooLarge
from tilewise.server.gate.patterns import matches
from tilewise.server.gate.policy import read
from tilewise.server.gate.units import quantity

GOOD = """
[check]
gpus = ["h100-sxm5-80gb", "mi300x"]
hwdb = ">=2026.11"
rules = { TW003 = "error" }
allow = [{ code = "TW010", config = "configs/*.json", reason = "fixed tokenizer", until = "2027-03-01" }]
[[check.workload]]
name = "train"
phase = "train"
sequence = 4096
[[check.budget]]
config = "configs/**/*.json"
metric = "time_s"
gpus = ["mi300x"]
max_regression = "2 %"
limit = "310 ms"
"""


def test_a_whole_policy_is_read() -> None:
    policy = read(GOOD)
    assert policy.gpus == ("h100-sxm5-80gb", "mi300x") and policy.since == "2026-11"
    assert [(b.max_regression, b.limit, b.gpus, b.line) for b in policy.budgets] == [
        (0.02, None, ("mi300x",), 11), (None, 0.31, ("mi300x",), 11),
    ]  # fmt: skip
    assert [(each.until, each.line) for each in policy.allowances] == [(date(2027, 3, 1), 6)]
    assert policy.severities == {"TW003": "error"}
    assert policy.workloads["train"].sequence == 4096


BAD = {
    "no TOML": ("gpus = [", "gpus = ", "no valid TOML"),
    "another table": ("[check]", "[chekc]", r"tilewise.toml:2: chekc is no key of a policy: .* did you mean check\?"),
    "unknown key": ("max_regression", "max_regresion", r"toml:15: max_regresion is no key .* did you mean max_regression\?"),
    "unknown metric": ('"time_s"', '"time"', r"toml:11: metric 'time' is not known: .*mfu.* did you mean 'time_s'\?"),
    "unknown workload field": ("sequence =", "seq =", r"seq is no key of \[\[check.workload\]\]: .*sequence"),
    "unknown phase": ('"train"\nseq', '"trane"\nseq', r"toml:7: workload train: phase 'trane' .* did you mean 'train'\?"),
    "unknown GPU of a budget": ('["mi300x"]\nmax', '["mi300"]\nmax', r"gpus 'mi300' is not known: .* did you mean 'mi300x'\?"),
    "no quantity": ('"310 ms"', '"310"', r'limit \'310\' is no quantity here: write "310 ms" \(units: us, ms, s\)'),
    "negative": ('"2 %"', '"-2 %"', "is no quantity"),
    "unknown rule": ("TW003", "TW03", r"rule 'TW03' is not known: .*did you mean 'TW"),
    "allowance without a reason": ("fixed tokenizer", " ", r"toml:6: the allowance of TW010 needs a reason"),
    "allowance without a day": ("2027-03-01", "next year", r"until 'next year' is no day: write 2027-03-01"),
    "version of the database": (">=2026.11", "latest", "hwdb 'latest' must say how new"),
    "no GPU": ('["h100-sxm5-80gb", "mi300x"]', "[]", "check.gpus must be a list of names"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said_in_one_line(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidInput, match=said) as caught:
        read(GOOD.replace(old, new))
    assert caught.value.reason == "BAD_POLICY" and "\n" not in caught.value.message


def test_a_policy_without_budgets_or_workloads_says_what_it_needs() -> None:
    with pytest.raises(InvalidInput, match=r"no \[\[check.workload\]\]"):
        read('[check]\ngpus = ["mi300x"]')
    with pytest.raises(InvalidInput, match=r"no \[\[check.budget\]\]"):
        read('[check]\ngpus = ["mi300x"]\n[[check.workload]]\nname = "a"\nphase = "train"\nsequence = 8')
    with pytest.raises(InvalidInput, match="max_regression, limit or max_left_on_table"):
        read(GOOD.replace('max_regression = "2 %"\nlimit = "310 ms"', ""))


def test_a_policy_that_is_huge_or_nested_without_end_is_refused() -> None:
    with pytest.raises(TooLarge, match="1 MiB"):
        read("#" * (2 << 20))
    with pytest.raises(InvalidInput, match="no valid TOML"):
        read("a = " + "[" * 100_000)


def test_quantities_have_units() -> None:
    assert quantity("2 %", "share") == 0.02 and quantity(0.02, "share") == 0.02
    assert quantity("310ms", "s") == pytest.approx(0.31) and quantity("72 GiB", "bytes") == 72 * 2**30
    assert quantity("8.1 B", "count") == 8.1e9
    for text in ("", "two", "2 furlongs", True, None, [2]):
        with pytest.raises(ValueError, match="no quantity"):
            quantity(text, "s")


def test_patterns_are_relative_to_the_policy() -> None:
    assert matches("configs/a.json", "configs/*.json")
    assert not matches("configs/deep/a.json", "configs/*.json")
    assert matches("configs/deep/a.json", "configs/**/*.json") and matches("configs/a.json", "configs/**/*.json")
    assert matches("models/configs/a.json", "configs/?.json", "models/tilewise.toml")
    assert matches("a+b (1).json", "a+b (1).json")
