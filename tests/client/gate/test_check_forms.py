"""Every form of a check is read by something that people really use, and shows hostile texts as texts."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import jsonschema
import pytest
from junitparser import Error, Failure, JUnitXml, Skipped

from tilewise.client.render.gate import FORMS, rendered
from tilewise.client.render.gate.common import About
from tilewise.server.service.servicers import services
from tilewise.v1.check_pb2 import CheckItem, CheckRequest, CheckResponse, Finding

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
POLICY = """
[check]
gpus = ["h100-sxm5-80gb"]
rules = { TW020 = "warning" }
[[check.workload]]
name = "train"
phase = "train"
batch = 4
sequence = 2048
[[check.budget]]
config = "**"
metric = "time_s"
max_regression = "0 %"
[[check.budget]]
config = "**"
metric = "memory_bytes"
max_regression = "1 %"
severity = "warning"
[[check.allow]]
code = "TW004"
config = "**"
reason = "heads of 80 <b>are</b> meant"
"""
BASE = {
    "model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240, "num_attention_heads": 32,
    "num_hidden_layers": 8, "vocab_size": 50304,
}  # fmt: skip
HOSTILE = "a|b`c,%0A<img src=x>&:\n@everyone [x](y)\x07.json"
EDITS: dict[str, dict[str, object]] = {
    "fails.json": {"vocab_size": 50257},
    "passes.json": {"vocab_size": 50176},
    "uncertain.json": {"intermediate_size": 10304},
    "error.json": {"num_attention_heads": 31},
    "unchanged.json": {"bos_token_id": 1},
    HOSTILE: {"vocab_size": 50001},
}


@pytest.fixture(scope="module")
def answer() -> CheckResponse:
    items = [
        CheckItem(path=path, head=json.dumps({**BASE, **edit}, indent=2), base=json.dumps(BASE))
        for path, edit in EDITS.items()
    ]
    request = CheckRequest(policy_toml=POLICY, items=items, date="2026-11-28")
    found = services()["AdvisorService"].Check(request)  # type: ignore[attr-defined]
    assert isinstance(found, CheckResponse)
    return found


def form(answer: CheckResponse, name: str, *, strict: bool = False) -> str:
    return rendered(answer, name, About("tilewise.toml", "tilewise check --base `x`", strict))


@pytest.mark.parametrize("name", FORMS)
def test_every_form_ends_with_a_line_break_and_is_the_same_every_time(answer: CheckResponse, name: str) -> None:
    assert form(answer, name) == form(answer, name)
    assert form(answer, name).endswith("\n") and not form(answer, name).endswith("\n\n")
    assert form(CheckResponse(), name).endswith("\n")


def test_sarif_is_valid_and_points_at_the_line_and_column_of_the_key(answer: CheckResponse) -> None:
    log = json.loads(form(answer, "sarif"))
    schema = json.loads((FIXTURES / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.validate(log, schema)
    (run,) = log["runs"]
    result = next(each for each in run["results"] if each["ruleId"] == "TW101" and "fails" in str(each["locations"]))
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "fails.json"
    line = json.dumps({**BASE, "vocab_size": 50257}, indent=2).splitlines()[place["region"]["startLine"] - 1]
    assert line[place["region"]["startColumn"] - 1 : place["region"]["endColumn"] - 1] == '"vocab_size"'
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "TW101" and result["level"] == "error"
    allowed = [each for each in run["results"] if "suppressions" in each]
    assert allowed and {each["ruleId"] for each in allowed} == {"TW004"}
    prints = [each["partialFingerprints"]["tilewise/v1"] for each in run["results"]]
    assert len(set(prints)) >= len(prints) - 2


def test_junit_is_read_by_a_parser_of_junit(answer: CheckResponse, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(form(answer, "junit"), encoding="utf-8")
    report = JUnitXml.fromfile(str(path))
    kinds = {
        (suite.name, case.name.split()[2] if "train" in case.name else ""): [type(each) for each in case.result]
        for suite in report
        for case in suite
    }
    assert kinds["fails.json", "time_s"] == [Failure] and kinds["passes.json", "time_s"] == []
    assert kinds["uncertain.json", "time_s"] == [Skipped] and kinds["error.json", "time_s"] == [Error]
    assert (report.failures, report.errors) == (2, 2)
    assert report.tests == sum(suite.tests for suite in report) == sum(1 for suite in report for _ in suite)
    strict = xml.fromstring(form(answer, "junit", strict=True))
    assert int(strict.get("failures", 0)) == 3


def test_github_gets_one_line_a_finding_with_everything_escaped(answer: CheckResponse) -> None:
    lines = form(answer, "github").splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert len(lines) == len(commands) + 1
    command = re.compile(r"::(error|warning|notice) file=[^,:\n]+(,line=\d+,col=\d+)?,title=TW\d+ [a-z0-9-]+::[^\n]+")
    assert all(command.fullmatch(line) for line in commands)
    assert "file=a|b`c%2C%250A<img src=x>&%3A%0A@everyone" in form(answer, "github")


def test_github_shows_ten_of_a_kind_and_says_how_many_more() -> None:
    many = CheckResponse(
        findings=[Finding(code="TW101", severity=3, path=f"{at}.json", message="x") for at in range(25)]
    )
    errors = [line for line in form(many, "github").splitlines() if line.startswith("::error")]
    assert len(errors) == 10 and errors[-1].endswith("::and 16 more: see the job summary")


def test_gitlab_gets_what_its_code_quality_report_needs(answer: CheckResponse) -> None:
    issues = json.loads(form(answer, "gitlab"))
    assert {issue["severity"] for issue in issues} <= {"info", "minor", "major", "critical", "blocker"}
    for issue in issues:
        assert issue["description"] and issue["check_name"].startswith("TW")
        assert re.fullmatch(r"[0-9a-f]{32}", issue["fingerprint"])
        assert issue["location"]["path"] and issue["location"]["lines"]["begin"] >= 1


def test_markdown_shows_hostile_texts_as_texts(answer: CheckResponse) -> None:
    text = form(answer, "markdown")
    assert text.startswith("<!-- tilewise-check:tilewise.toml -->\n")
    assert "<img" not in re.sub(r"`[^`]*`", "", text) and "@everyone" not in re.sub(r"`[^`]*`", "", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows if "`" in row or "config" in row} <= {7, 9}
    assert "reproduce: `tilewise check --base 'x'`" in text


def test_markdown_stays_below_the_limit_of_a_comment(answer: CheckResponse) -> None:
    many = CheckResponse(verdict=answer.verdict)
    for _ in range(400):
        many.comparisons.extend(answer.comparisons)
        many.findings.extend(answer.findings)
        many.unchanged_paths.extend(["very/" * 60 + "long.json"])
    assert len(form(many, "markdown")) < 65_536
    assert "more" in form(many, "markdown")


def test_text_tells_passes_as_well_as_failures(answer: CheckResponse) -> None:
    text = form(answer, "text")
    for said in ("FAIL", "pass", "uncertain", "not evaluated", "allowed:", "warn"):
        assert said in text
    assert text.splitlines()[-1].startswith("2 failed, ")
