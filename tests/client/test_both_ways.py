"""Every command gives the same bytes whether it asks a server or answers itself."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewise.client.cli import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "llama-3-8b.json")
RUN = [sys.executable, "-c", "from tilewise.client.cli import main; main()"]
PREDICT = ("predict", EXAMPLE, "--gpu", "h100-sxm5-80gb")
TRAIN, DECODE = ("--phase", "train", "--seq", "4096"), ("--phase", "decode", "--context", "4096")
MIXTURE = str(ROOT / "examples" / "qwen3-30b-a3b.json")
B200 = ("--gpu", "b200-sxm-180gb", *DECODE, "--batch", "32")
COMMANDS = [
    ("gpus", "list"),
    ("gpus", "list", "--format", "json"),
    ("gpus", "show", "mi300x"),
    ("gpus", "show", "b200-sxm-180gb", "--format", "json"),
    (*PREDICT, "--phase", "train", "--batch", "2", "--seq", "4096"),
    (*PREDICT, "--phase", "prefill", "--seq", "8192", "--operators"),
    (*PREDICT, "--phase", "decode", "--batch", "16", "--context", "4096", "--format", "json"),
    ("recommend", *PREDICT[1:], *TRAIN, "--set", "vocab_size=128257", "--kind", "free_win", "--kind", "execution"),
    ("recommend", *PREDICT[1:], *DECODE, "--batch", "16", "--max-candidates", "50", "--format", "json"),
    ("sweep", *PREDICT[1:], "--phase", "prefill", "--seq", "4096", "--vary", "intermediate_size=14330:14340"),
    ("sweep", *PREDICT[1:], *DECODE, "--vary", "batch=1,2,4", "--vary", "tensor_parallel=1,2,3", "--format", "json"),
    ("predict", MIXTURE, *B200, "--stack", "trtllm", "--kv-cache", "fp8", "--expert-skew", "1.01", "--format", "json"),
    ("sweep", MIXTURE, *B200, "--stack", "vllm", "--vary", "moe_intermediate_size=512,768,1024"),
    ("recommend", EXAMPLE, *B200, "--stack", "sglang", "--max-candidates", "20"),
    ("mfu", "--gpu", "h100-sxm5-80gb", "--precision", "bf16", "--tflops", "480"),
    ("mfu", EXAMPLE, "--gpu", "h100-sxm5-80gb", "--phase", "train", "--seq", "4096", "--tokens-per-s", "9600"),
    # and what is refused is refused in the same words
    ("recommend", *PREDICT[1:], *TRAIN, "--vary", "window"),
    ("sweep", *PREDICT[1:], *TRAIN, "--vary", "hidden_size=8:4"),
    ("sweep", *PREDICT[1:], *TRAIN, "--vary", "hidden_size=1:3000000"),
    ("gpus", "show", "h999"),
    (*PREDICT, "--phase", "train", "--seq", "4096", "--stack", "vllm"),
    (*PREDICT, "--phase", "train", "--seq", "4096", "--tp", "7"),
    (*PREDICT, "--phase", "prefill", "--seq", "4096", "--precision", "nvfp4"),
    (*PREDICT, "--phase", "prefill", "--seq", "4096", "--set", "num_attention_heads=30"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a `tilewise serve` in its own process; it must end well when told to."""
    command = [*RUN, "serve", "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).startswith("serving on "):
            assert line, "the server ended"
        yield line.removeprefix("serving on ").strip()
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command).replace(f"{EXAMPLE} ", ""))
def test_the_same_bytes_come_from_a_server_and_from_this_process(
    command: tuple[str, ...], server: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert outcome(capfdbinary, *command) == outcome(capfdbinary, *command, "--server", server)


def outcome(capfdbinary: pytest.CaptureFixture[bytes], *command: str) -> tuple[int, bytes, bytes]:
    with pytest.raises(SystemExit) as end:
        main(list(command))
    out, err = capfdbinary.readouterr()
    assert out or err
    return int(end.value.code or 0), out, err
