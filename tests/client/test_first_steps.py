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
