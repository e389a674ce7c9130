"""The command line as somebody new meets it: help, slips of the keyboard, sizes left out, completion."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPT2 = ("predict", str(ROOT / "examples" / "gpt2.json"), "--gpu", "h100-sxm5-80gb")


def tilewise(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the command in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "tilewise", *arguments], capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("group", [(), ("gpus",), ("calibrate",)])
def test_a_group_alone_prints_its_help(group: tuple[str, ...]) -> None:
    code, out, err = tilewise(*group)
    assert (code, err) == (0, "") and out.startswith("Usage: ") and "\nCommands:\n" in out


SLIPS = {
    "command": (("predcit",), "No such command 'predcit'. Did you mean 'predict'?"),
    "command of a group": (("gpus", "shwo"), "Did you mean 'show'?"),
    "batch": ((*GPT2, "--phase", "train", "--seq", "128", "--batch", "0"), "batch 0 is out of range: 1 to "),
    "tp": ((*GPT2, "--phase", "train", "--seq", "128", "--tp", "0"), "tensor_parallel 0 is out of range: 1 to "),
    "context in train": ((*GPT2, "--phase", "train", "--seq", "128", "--context", "9"), "context means nothing in train"),
    "sequence in decode": ((*GPT2, "--phase", "decode", "--seq", "9", "--context", "9"), "sequence means nothing in decode"),
    "no sequence": ((*GPT2, "--phase", "train"), "--seq is needed for train"),
    "no context": ((*GPT2, "--phase", "decode"), "--context is needed for decode"),
    "no phase": (GPT2, "Missing option '--phase'"),
    "batch of a mix": (
        ("recommend", *GPT2[1:], "--phase", "train", "--seq", "128", "--also", "phase=train,sequence=8,batch=0"),
        "batch 0 is out of range",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_one_line_that_says_what_is_meant(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = tilewise(*arguments)
    assert (code, out) == (2, "") and said in err.splitlines()[0] and err.startswith("error: ")


def test_a_missing_phase_is_told_before_anything_heavy_is_imported() -> None:
    used = []
    for _ in range(3):
        before, begin = os.times().children_user, time.monotonic()
        assert tilewise(*GPT2)[0] == 2
        used.append(min(os.times().children_user - before, time.monotonic() - begin))
    assert min(used) < 0.2  # seconds; 0.06 of them alone on a machine


def test_measuring_without_torch_says_which_extra_brings_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from tilewise.client.cli import main; main()"
    command = [sys.executable, "-c", code, "calibrate", "run", "--sku", "h100-sxm5-80gb", "--device", "cpu", "-o"]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "error: torch is not installed: pip install 'tilewise[calibrate]'" in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_and_installed_where_the_shell_looks(shell: str, tmp_path: Path) -> None:
    printed = tilewise("completion", shell)[1]
    assert f"_TILEWISE_COMPLETE={shell}_complete" in printed
    clean = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "ZDOTDIR": ""}
    code, out, _ = tilewise("completion", shell, "--install", **clean)
    path = Path(out.partition(": ")[0])
    assert code == 0 and path.is_relative_to(tmp_path) and path.read_text() == printed


def test_commands_and_options_complete() -> None:
    asked = {"_TILEWISE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "tilewise pre"}
    assert tilewise(**asked)[1].splitlines() == ["plain,predict"]
    asked |= {"COMP_CWORD": "2", "COMP_WORDS": "tilewise predict --must"}
    assert "plain,--must-fit" in tilewise(**asked)[1].splitlines()


def test_explain_lists_every_entry_with_a_line_by_group() -> None:
    from tilewise.client.cli.explain import GROUPS, entries

    out = tilewise("explain")[1]
    sections = [section.splitlines() for section in out.strip().split("\n\n")]
    assert [lines[0] for lines in sections] == list(GROUPS.values())
    told = [line for lines in sections for line in lines[1:]]
    assert len(told) >= len(entries()) and all(len(line) <= 122 and "  " in line.strip() for line in told)
    for word in ("idle", "issue", "not judged", "uncertain", "measured", "bound by"):
        assert tilewise("explain", word)[0] == 0


def test_an_mfu_of_a_whole_run_is_six_flops_a_parameter_and_token() -> None:
    run = ("mfu", "--gpu", "h100-sxm5-80gb", "--params", "8.03B", "--tokens", "15T", "--hours", "91", "--gpus", "16384")
    code, out, _ = tilewise(*run)
    by_hand = 6 * 8.03e9 * 15e12 / (91 * 3600 * 16384) / 989.4e12
    assert code == 0 and out.startswith(f"{by_hand:.1%} MFU: ") and "convention 6ND: " in out
    code, _, err = tilewise(*run[:-2])
    assert code == 2 and "all of --params, --tokens, --hours, --gpus" in err
    assert "is no count; write 8.03B, 15T or 1e9" in tilewise(*run[:4], "8x", *run[5:])[2]


def test_the_shape_of_the_page_is_the_example_that_it_names(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "shape.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    assert text == (ROOT / "examples" / "shape.toml").read_text(encoding="utf-8")
    mixture = page.rpartition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "mixture.toml"
    path.write_text(text + mixture)
    step = ("--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "64")
    assert " active parameters) on " in tilewise("predict", str(path), *step)[1]
