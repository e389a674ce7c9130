"""`tilewise check` as a CI job meets it: exit codes, bases, and what is wrong in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "configs/gpt-neox-2.7b.json"
RED = ("50304", "50257")  # what GPT-2's tokenizer counts
Run = Callable[..., tuple[int, str, str]]
Edit = Callable[..., None]
Git = Callable[..., str]


def test_a_broken_budget_is_exit_code_1_and_a_kept_one_0(repository: Path, run: Run, edit: Edit) -> None:
    edit("50304", "50432")
    assert run("check", "--base", "HEAD")[0] == 0
    edit("50432", "50257")
    code, out, err = run("check", "--base", "HEAD")
    assert (code, err) == (1, "")
    for said in ("FAIL", "lm_head", "TW101", f"{CONFIG}:8:3", "fix: vocab_size 50257 -> 50304", "Ask the performance"):
        assert said in out
    assert out.splitlines()[-1].startswith("1 failed, ") and "0 unchanged (database " in out
    assert run("check", "--base", "HEAD", "--exit-zero")[0] == 0


def test_what_did_not_change_its_shape_is_not_judged(repository: Path, run: Run, edit: Edit) -> None:
    edit('"torch_dtype"', '"bos_token_id": 3, "torch_dtype"')
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and out.startswith("0 failed, 0 uncertain, 0 passed, 1 unchanged")


def test_what_is_uncertain_is_green_unless_strict(repository: Path, run: Run, edit: Edit) -> None:
    edit('"2 %"  ', '"0 %"  ', "tilewise.toml")
    edit("10240", "10304")
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and "uncertain" in out and "TW103" in out
    assert run("check", "--base", "HEAD", "--strict")[0] == 1


@pytest.mark.parametrize("key", ["core.fsmonitor", "diff.external"])
def test_what_the_checkout_has_configured_for_git_is_not_run(
    repository: Path, run: Run, edit: Edit, git: Git, tmp_path: Path, key: str
) -> None:
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    hook.chmod(0o755)
    edit("50304", "50432")
    git("config", key, str(hook))
    assert run("check", "--base", "HEAD")[0] == 0
    assert not (tmp_path / "pwned").exists()


def test_no_configuration_is_exit_code_5(repository: Path, run: Run) -> None:
    (repository / CONFIG).unlink()
    code, out, err = run("check", "--base", "HEAD")
    assert (code, out) == (5, "") and "no configuration matches the patterns of tilewise.toml: configs/*.json" in err


def test_what_cannot_be_evaluated_is_exit_code_3(repository: Path, run: Run, edit: Edit) -> None:
    edit(*RED)
    assert run("check", "--base", "HEAD", "--server", "127.0.0.1:1")[0] == 3
    edit('["h100-sxm5-80gb"]', '["mi300x"]', "tilewise.toml")
    edit("hwdb = ", "# hwdb = ", "tilewise.toml")
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 3 and "is below the budget's min_trust measured" in out


def test_an_interrupt_is_exit_code_130(repository: Path) -> None:
    os.mkfifo(repository / "configs" / "slow.json")
    code = "import sys; sys.stderr.write('ready\\n'); from tilewise.client.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "check", "configs/slow.json"], stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)  # it waits for the config now
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


HOSTILE = {
    "50 MB of text": (b'{"model_type": "llama", "x": "' + b"y" * 50_000_000 + b'"}', "larger than 4 MiB"),
    "binary": (bytes(range(256)) * 8, "no UTF-8 text"),
}


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_no_configuration_is_one_line_and_exit_code_2(
    content: bytes, said: str, repository: Path, run: Run
) -> None:
    (repository / CONFIG).write_bytes(content)
    refused(run("check", "--base", "HEAD"), said)


TEXTS = {
    "deep nesting": ("[" * 100_000, "nested too deeply"),
    "deeply nested key": ('{"a":' * 50_000, "nested too deeply"),
    "cut off": ('{"model_type": "gpt_neox", "hidden', "no valid JSON"),
    "empty": ("", "empty"),
    "unknown key": ('{"model_type": "gpt_neox", "hiden_size": 2560}', "nearest known key is hidden_size"),
    "heads that do not divide": ('{"model_type": "gpt_neox", "num_attention_heads": 7}', "7"),
}


@pytest.mark.parametrize(("text", "said"), TEXTS.values(), ids=TEXTS)
def test_a_configuration_that_makes_no_sense_is_told_at_its_place_and_exit_code_2(
    text: str, said: str, repository: Path, run: Run
) -> None:
    (repository / CONFIG).write_text(text)
    code, out, err = run("check", "--base", "HEAD")
    assert (code, err) == (2, "")
    (line,) = [line for line in out.splitlines() if "TW104" in line]
    assert said in line and len(line) < 400


def refused(outcome: tuple[int, str, str], said: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, "")
    error, *hints = err.splitlines()
    assert error.startswith("error: ") and said in error and len(error) < 500
    assert all(hint.startswith("hint: ") for hint in hints) and len(hints) <= 1


BAD = {
    "unknown key": ("max_regression", "max_regresion", (), "tilewise.toml:23: max_regresion is no key"),
    "unknown GPU": ('gpus = ["h100', 'gpus = ["h1000', (), "h1000"),
    "consumer GPU": ('gpus = ["h100-sxm5-80gb', 'gpus = ["rtx 4090', (), "production"),
    "commit that does not exist": ("", "", ("--base", "no-such"), "git knows no commit 'no-such'"),
    "commit that is an option": ("", "", ("--base", "--output=x"), "git knows no commit"),
    "two bases": ("", "", ("--base", "HEAD", "--base-file", "x"), "exclude each other"),
    "base that does not exist": ("", "", ("--base-file", "none.json"), "none.json"),
    "form that does not exist": ("", "", ("--report", "pdf=x"), "text, json, junit, sarif, github, gitlab, markdown"),
    "no file of a form": ("", "", ("--report", "sarif"), "FORM=FILE"),
    "policy that does not exist": ("", "", ("--policy", "none.toml"), "none.toml"),
    "no day": ("", "", ("--date", "today"), "date 'today'"),
    "config that does not exist": ("", "", ("configs/none.json",), "none.json"),
}


@pytest.mark.parametrize(("old", "new", "arguments", "said"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_line_and_exit_code_2(
    old: str, new: str, arguments: tuple[str, ...], said: str, repository: Path, run: Run, edit: Edit
) -> None:
    edit(old, new, "tilewise.toml")
    refused(run("check", *arguments), said)


def test_a_link_is_followed_inside_of_the_repository_and_never_out_of_it(
    repository: Path, run: Run, edit: Edit, git: Git, tmp_path: Path
) -> None:
    (repository / "shapes").mkdir()
    (repository / CONFIG).rename(repository / "shapes" / "a.json")
    (repository / CONFIG).symlink_to("../shapes/a.json")
    git("add", "-A")
    git("commit", "-qm", "link")
    edit(*RED, "shapes/a.json")
    assert run("check", "--base", "HEAD")[0] == 1
    (tmp_path / "secret.json").write_text("{}")
    (repository / CONFIG).unlink()
    (repository / CONFIG).symlink_to(tmp_path / "secret.json")
    refused(run("check", "--base", "HEAD"), "is a link that leaves")


def test_outside_of_a_repository_a_file_or_a_folder_is_the_base(
    repository: Path, run: Run, edit: Edit, tmp_path: Path
) -> None:
    before = tmp_path / "before" / "configs"
    before.mkdir(parents=True)
    (before / "gpt-neox-2.7b.json").write_text((repository / CONFIG).read_text())
    edit(*RED)
    (repository / ".git").rename(tmp_path / "git")
    refused(run("check", "--base", "HEAD"), "is no git repository")
    assert run("check", "--base-file", before.parent)[0] == 1
    assert run("check", "--base-file", before / "gpt-neox-2.7b.json", "--format", "json")[0] == 1


def test_a_policy_in_a_folder_shows_paths_from_the_top_of_the_repository(
    repository: Path, run: Run, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "models").mkdir()
    git("mv", "configs", "tilewise.toml", "models")
    monkeypatch.chdir(repository / "models" / "configs")
    code, out, _ = run("check", "--format", "json")
    assert code == 0 and json.loads(out)["comparisons"][0]["path"] == f"models/{CONFIG}"


def test_a_renamed_configuration_is_compared_with_what_it_was_called(
    repository: Path, run: Run, edit: Edit, git: Git
) -> None:
    git("mv", CONFIG, "configs/new.json")
    edit(*RED, "configs/new.json")
    git("add", "-A")
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 1 and "configs/new.json" in out and "->" in out


def test_where_the_branch_left_main_is_a_base_too(repository: Path, run: Run, edit: Edit, git: Git) -> None:
    git("checkout", "-qb", "topic")
    edit(*RED)
    git("commit", "-qam", "topic")
    git("checkout", "-q", "main")
    edit("2560", "2048")
    git("commit", "-qam", "main moves on")
    git("checkout", "-q", "topic")
    _, out, _ = run("check", "--base", "main...", "--format", "json")
    train = json.loads(out)["comparisons"][0]
    assert train["base"] < train["head"] < 1.2 * train["base"]


def test_a_saved_prediction_is_a_base(repository: Path, run: Run, edit: Edit, tmp_path: Path) -> None:
    saved = tmp_path / "old.json"
    step = ("--phase", "train", "--batch", "4", "--seq", "2048", "--recompute", "full")
    run("predict", CONFIG, "--gpu", "h100-sxm5-80gb", *step, "--format", "json", "-o", saved)
    code, out, _ = run("check", "--base-file", saved, "--format", "json")
    train, serve = (found for found in json.loads(out)["comparisons"] if found["metric"] == "time_s")
    assert code == 0 and train["ratio"] == 1 and serve["base"] is None
    edit("50304", "49999")
    edit('"num_hidden_layers": 32', '"num_hidden_layers": 48')
    assert run("check", "--base-file", saved)[0] == 1


def test_a_saved_prediction_of_another_schema_says_how_to_renew_it(repository: Path, run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "old.json"
    for data in ({"schema_version": 0}, {"schema_version": 1, "step": {}}):
        saved.write_text(json.dumps(data))
        code, _, err = run("check", "--base-file", saved)
        assert code == 2 and "old.json" in err and "hint: renew it: tilewise predict CONFIG" in err


def test_several_forms_come_out_of_one_run(repository: Path, run: Run, edit: Edit, tmp_path: Path) -> None:
    edit(*RED)
    forms = ("json", "junit", "sarif", "github", "gitlab", "markdown")
    reports = [part for form in forms for part in ("--report", f"{form}={tmp_path / form}")]
    code, out, _ = run("check", "--base", "HEAD", *reports, "-o", tmp_path / "text")
    assert (code, out) == (1, "")
    said = dict.fromkeys((*forms, "text"), "TW101") | {"junit": "<failure"}
    assert all(said[form] in (tmp_path / form).read_text() for form in said)


def test_the_same_question_gives_the_same_bytes(repository: Path, run: Run, edit: Edit) -> None:
    edit(*RED)
    for form in ("json", "sarif", "markdown", "junit"):
        answers = {run("check", "--base", "HEAD", "--date", "2026-11-28", "--format", form) for _ in range(2)}
        assert len(answers) == 1


def test_a_server_gives_the_same_bytes(repository: Path, run: Run, edit: Edit) -> None:
    from tilewise.server.service.app import start

    edit(*RED)
    server, port = start("127.0.0.1:0")
    try:
        asked = ("check", "--base", "HEAD", "--format", "json")
        assert run(*asked) == run(*asked, "--server", f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_the_summary_of_a_github_job_is_written(
    repository: Path, run: Run, edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    edit(*RED)
    run("check", "--base", "HEAD")
    assert summary.read_text().startswith("before\n<!-- tilewise-check:tilewise.toml -->\n")


def test_limits_follow_what_is_reached_and_never_rise(repository: Path, run: Run, edit: Edit) -> None:
    policy = repository / "tilewise.toml"
    _, _, err = run("check", "--update-budget")
    assert "limit of memory_bytes 72 GiB -> 21.6 GiB" in err
    lowered = policy.read_text()
    assert 'limit = "21.6 GiB"                       # absolute' in lowered
    edit('"num_hidden_layers": 32', '"num_hidden_layers": 40')
    assert "TW102" in run("check", "--update-budget")[1]
    assert policy.read_text() == lowered


def test_a_new_calibration_shows_which_verdicts_flip(repository: Path, run: Run) -> None:
    code, out, _ = run("diff", "--hwdb", "datasheet..active")
    assert code == 1 and "error -> not judged" in out and out.endswith("2 of 3 verdicts flip\n")
    code, out, _ = run("diff", "--hwdb", "active..active", "--format", "json")
    assert code == 0 and json.loads(out)["flip_count"] == 0
    refused(run("diff", "--hwdb", "active..none"), "no GPU of the policy has a calibration 'none'")
    refused(run("diff", "--hwdb", "active"), "OLD..NEW")


def test_the_case_of_the_documentation_is_what_a_run_gives(repository: Path, run: Run, edit: Edit) -> None:
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    command, _, said = page.partition("$ tilewise check --base main\n")
    assert command.endswith(f"$ sed -i s/50304/50257/ {CONFIG}\n")
    edit(*RED)
    code, out, _ = run("check", "--base", "main")
    assert code == 1
    assert dated(out) == dated(said.partition("```")[0])


def dated(text: str) -> str:
    """A text without the hash of the database: it changes with every fact, the figures seldom."""
    return re.sub(r"database [0-9a-f]{12}", "database", text)


def test_every_rule_and_option_is_documented(run: Run) -> None:
    from tilewise.client.cli.check import check
    from tilewise.server.gate import policy
    from tilewise.server.gate.metrics import METRICS
    from tilewise.server.gate.rules import rules

    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    for rule in rules().values():
        assert f"| {rule.code} | {rule.name} | {rule.severity} |" in page
    for word in (*METRICS, *policy.BUDGET, *policy.ALLOW, *policy.CHECK):
        assert f"`{word}`" in page or f".{word}" in page
    for option in (
        "--base",
        "--base-file",
        "--report",
        "--strict",
        "--exit-zero",
        "--update-budget",
        "--server",
        "--date",
    ):
        assert option in page and any(option in parameter.opts for parameter in check.params)


def test_every_rule_is_explained(run: Run) -> None:
    from tilewise.server.gate.rules import rules

    for code in rules():
        assert run("explain", code)[1].startswith(rules()[code].name)
