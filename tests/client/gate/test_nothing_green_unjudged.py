"""What a gate did not judge is never plain green: new files, steps that do not fit, and slips of a policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

CONFIG = "configs/gpt-neox-2.7b.json"
POLICY = "tilewise.toml"
Run = Callable[..., tuple[int, str, str]]
Edit = Callable[..., None]
Git = Callable[..., str]


def last(out: str) -> str:
    return out.splitlines()[-1].partition(" (")[0]


def test_without_a_base_a_regression_is_not_judged_and_strict_is_exit_code_3(repository: Path, run: Run) -> None:
    code, out, _ = run("check")
    assert code == 0 and "[max_regression 2 %]  not judged: no base" in out
    assert last(out) == "0 failed, 2 not judged, 0 uncertain, 1 passed, 0 unchanged"
    assert run("check", "--strict")[0] == 3


def test_a_new_configuration_is_not_judged_against_a_base_that_lacks_it(repository: Path, run: Run, edit: Edit) -> None:
    text = (repository / CONFIG).read_text().replace("10240", "14337")
    (repository / "configs" / "new.json").write_text(text)
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and "not judged: no base" in out and "2 not judged" in last(out) and "1 unchanged" in last(out)
    assert run("check", "--base", "HEAD", "--strict")[0] == 3


def test_a_new_configuration_is_judged_by_what_a_neighbour_would_save(repository: Path, run: Run, edit: Edit) -> None:
    edit('max_regression = "2 %"  ', 'max_left_on_table = "5 %"  ', POLICY)
    assert run("check", "--strict")[0] == 0
    edit("10240", "10241")
    code, out, _ = run("check")
    assert code == 1 and "[max_left_on_table 5 %]  FAIL" in out
    assert "TW106 left-on-table" in out and "fix: intermediate_size 10241 -> 10240" in out


def test_a_gain_inside_of_its_interval_leaves_the_table_uncertain(repository: Path, run: Run, edit: Edit) -> None:
    edit("50304", "50257")
    edit('max_regression = "2 %"  ', 'max_left_on_table = "2.4 %"  ', POLICY)
    _, out, _ = run("check", "--format", "json")
    serve = next(each for each in json.loads(out)["comparisons"] if each["workload"] == "serve")
    assert serve["metric"] == "left_on_table" and serve["verdict"] in ("uncertain", "pass")
    assert 0.01 < serve["head"] < 0.05


def test_a_step_that_does_not_fit_is_an_error_of_its_own(repository: Path, run: Run, edit: Edit) -> None:
    edit('"num_hidden_layers": 32', '"num_hidden_layers": 320')
    edit('max_regression = "2 %"  ', 'limit = "100 s"  ', POLICY)
    code, out, _ = run("check")
    assert code == 1 and "TW022 does-not-fit: train on h100-sxm5-80gb does not fit: " in out
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 1 and "TW020 no-longer-fits: train on h100-sxm5-80gb no longer fits: " in out


@pytest.mark.parametrize("after", ["50257", "50432", "50688"])
def test_every_kind_of_base_gives_one_verdict(
    after: str, repository: Path, run: Run, edit: Edit, tmp_path: Path
) -> None:
    (repository / POLICY).write_text(one_workload(repository / POLICY))
    saved, folder = tmp_path / "saved.json", tmp_path / "folder"
    (folder / "configs").mkdir(parents=True)
    (folder / CONFIG).write_text((repository / CONFIG).read_text())
    step = ("--phase", "train", "--batch", "4", "--seq", "2048", "--recompute", "full")
    run("predict", CONFIG, "--gpu", "h100-sxm5-80gb", *step, "--format", "json", "-o", saved)
    edit("50304", after)
    bases = (("--base-file", folder / CONFIG), ("--base", "HEAD"), ("--base-file", saved), ("--base-file", folder))
    answers = [run("check", *base, "--format", "json") for base in bases]
    told = {(code, *figures(out)) for code, out, _ in answers}
    assert len(told) == 1, told


def one_workload(policy: Path) -> str:
    """The policy without its second workload, which the saved prediction does not know."""
    first, _, rest = policy.read_text().partition('[[check.workload]]\nname = "serve"')
    return first + rest[rest.index("[[check.budget]]") :]


def figures(out: str) -> tuple[object, ...]:
    answer = json.loads(out)
    keys = ("metric", "verdict", "head", "base", "ratio", "ratio_low", "ratio_high")
    return answer["verdict"], *(
        tuple(round(each[key], 12) if isinstance(each[key], float) else each[key] for key in keys)
        for each in answer["comparisons"]
    )


BUDGET = '\n[[check.budget]]\nconfig = "{}"\nmetric = "memory_bytes"\nlimit = "{}"\n'


def add(repository: Path, text: str) -> None:
    with (repository / POLICY).open("a") as file:
        file.write(text)


def test_a_budget_that_matches_nothing_is_told_and_strict_is_exit_code_3(repository: Path, run: Run, git: Git) -> None:
    add(repository, BUDGET.format("cofnigs/*.json", "72 GiB"))
    git("commit", "-qam", "a slip")
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and f"{POLICY}:40:1: warning TW203" in out and "1 not judged" in last(out)
    assert run("check", "--base", "HEAD", "--strict")[0] == 3


def test_a_file_that_was_named_and_that_no_budget_covers_is_told(repository: Path, run: Run) -> None:
    (repository / "other.json").write_text((repository / CONFIG).read_text())
    code, out, _ = run("check", "--base", "HEAD", CONFIG, "other.json")
    assert code == 0 and "other.json: warning TW204 no-budget" in out and "1 not judged" in last(out)
    assert run("check", "--base", "HEAD", "--strict", CONFIG, "other.json")[0] == 3
    assert run("check", "--base", "HEAD", "other.json")[0] == 5


def test_a_new_limit_judges_what_did_not_change(repository: Path, run: Run) -> None:
    add(repository, BUDGET.format("configs/*.json", "1 GiB"))
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 1 and "[limit 1 GiB]  FAIL" in out and "0 unchanged" in last(out)


def test_a_new_gpu_of_the_policy_judges_what_did_not_change(repository: Path, run: Run, edit: Edit) -> None:
    edit('gpus = ["h100-sxm5-80gb"]', 'gpus = ["h100-sxm5-80gb", "h200-sxm-141gb"]', POLICY)
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and "h200-sxm-141gb train time_s" in out and last(out).endswith("0 unchanged")


def test_a_policy_that_is_new_judges_what_did_not_change(repository: Path, run: Run, git: Git) -> None:
    text = (repository / POLICY).read_text()
    git("rm", "-q", POLICY)
    git("commit", "-qm", "no gate yet")
    (repository / POLICY).write_text(text.replace("72 GiB", "1 GiB").replace('severity = "warning"', ""))
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 1 and "[limit 1 GiB]  FAIL" in out


def test_one_gpu_under_two_names_is_refused(repository: Path, run: Run, edit: Edit) -> None:
    edit('["h100-sxm5-80gb"]', '["h100-sxm5-80gb", "NVIDIA H100 80GB HBM3", "h200-sxm-141gb"]', POLICY)
    code, _, err = run("check")
    assert code == 2 and "h100-sxm5-80gb and NVIDIA H100 80GB HBM3 are one GPU" in err


def test_two_workloads_of_one_name_are_refused(repository: Path, run: Run, edit: Edit) -> None:
    edit('name = "serve"', 'name = "train"', POLICY)
    code, _, err = run("check")
    assert code == 2 and "tilewise.toml:13: a second workload is called train" in err


def test_an_allowance_of_a_regression_covers_nothing_that_was_not_evaluated(repository: Path, run: Run) -> None:
    allow = '\n[[check.allow]]\ncode = "{}"\nreason = "known"\n'
    add(repository, allow.format("TW101") + allow.format("TW102"))
    (repository / CONFIG).write_text('{"model_type": "gpt_neox", "hiden_size": 2560}')
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 2 and "TW104" in out


def test_growth_from_nothing_breaks_every_regression(check_waste: Callable[[float, float], str]) -> None:
    assert check_waste(0.0, 0.2) == "FAIL" and check_waste(0.2, 0.0) == "PASS"


@pytest.fixture
def check_waste() -> Callable[[float, float], str]:
    """The verdict of max_regression on tile waste before and after."""
    from tilewise.hwdb.database import Database
    from tilewise.hwdb.times import Trust
    from tilewise.server.gate.compare import compare
    from tilewise.server.gate.outcome import Outcome
    from tilewise.server.gate.policy import read

    text = '[check]\ngpus = ["h100-sxm5-80gb"]\n[[check.workload]]\nname = "t"\nphase = "train"\nsequence = 8\n'
    limit = '[[check.budget]]\nconfig = "*"\nmetric = "tile_waste"\nmax_regression = "5 %"\n'
    (budget,) = read(text + limit).budgets

    def verdict(before: float, after: float) -> str:
        sides = [
            Outcome(values={"tile_waste": each}, timed=None, trust=Trust.MEASURED, layers={})
            for each in (before, after)
        ]
        return compare("a.json", "t", budget, Database.packaged().gpu("h100-sxm5-80gb"), *sides).verdict.name

    return verdict


def test_a_gpu_without_calibration_is_not_evaluated_unless_the_policy_says_so(
    repository: Path, run: Run, edit: Edit
) -> None:
    edit("hwdb = ", "# hwdb = ", POLICY)
    edit('["h100-sxm5-80gb"]', '["h100-pcie-80gb"]', POLICY)
    edit('min_trust = "measured"\n', "", POLICY)
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 3 and "trust datasheet is below the budget's min_trust published" in out


def test_a_base_that_cannot_be_read_is_not_judged(repository: Path, run: Run, git: Git) -> None:
    good = (repository / CONFIG).read_text()
    (repository / CONFIG).write_text("{")
    git("commit", "-qam", "broken")
    (repository / CONFIG).write_text(good)
    code, out, _ = run("check", "--base", "HEAD")
    assert code == 0 and "not judged: the base cannot be read" in out and "TW105" in out
    assert run("check", "--base", "HEAD", "--strict")[0] == 3


def test_a_folder_without_any_of_the_configurations_is_no_base(repository: Path, run: Run, tmp_path: Path) -> None:
    code, _, err = run("check", "--base-file", tmp_path)
    assert code == 2 and "has none of the configurations that are checked" in err


def test_an_allowance_past_its_day_lets_nothing_through(repository: Path, run: Run, edit: Edit) -> None:
    edit("50304", "50257")
    allow = '\n[[check.allow]]\ncode = "TW101"\nreason = "known"\nuntil = "2026-12-01"\n'
    add(repository, allow)
    assert run("check", "--base", "HEAD", "--date", "2026-12-01")[0] == 0
    code, out, _ = run("check", "--base", "HEAD", "--date", "2026-12-02")
    assert code == 1 and "TW202 allowance-expired" in out


def test_a_configuration_under_another_name_and_another_text_is_not_judged(
    repository: Path, run: Run, git: Git
) -> None:
    (repository / CONFIG).rename(repository / "configs" / "other.json")
    (repository / "configs" / "other.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 16,
                "num_attention_heads": 32,
                "vocab_size": 32064,
            }
        )
    )
    git("add", "-A")
    assert run("check", "--base", "HEAD", "--strict")[0] == 3


def test_an_empty_base_is_refused(repository: Path, run: Run) -> None:
    code, _, err = run("check", "--base", "")
    assert code == 2 and "git knows no commit ''" in err
