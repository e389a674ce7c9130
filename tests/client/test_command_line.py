"""The command line as a person meets it: exit codes, one-line errors, and what it does not import."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tilewise.client.cli import COMMANDS, cli, main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "llama-3-8b.json"
PREFILL = ("--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "2048")


def tilewise(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command run in this process."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return int(end.value.code or 0), out, err


def in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


LIST_MODULES = """
import contextlib, io, sys
from tilewise.client.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main({arguments!r})
print(*(name for name in {names!r} if name in sys.modules))
"""


def loaded(names: list[str], *arguments: object) -> list[str]:
    """Which of the named modules a command imports."""
    code = LIST_MODULES.format(arguments=[str(argument) for argument in arguments], names=names)
    return in_a_new_process(code).split()


def test_help_imports_no_heavy_library() -> None:
    heavy = ["numpy", "scipy", "grpc", "torch", "google.protobuf", "matplotlib"]
    assert loaded(heavy, "--help") == []
    assert loaded(["click"], "--help") == ["click"]


def test_an_embedded_prediction_imports_neither_grpc_nor_torch_nor_scipy() -> None:
    heavy = ["scipy", "grpc", "grpc_status", "torch", "matplotlib"]
    assert loaded(heavy, "predict", EXAMPLE, *PREFILL) == []
    assert loaded(["numpy"], "predict", EXAMPLE, *PREFILL) == ["numpy"]


def test_an_embedded_prediction_imports_nothing_that_takes_time_for_nothing() -> None:
    idle = [
        "numpy.ma",
        "numpy.char",
        "subprocess",
        "tempfile",
        "zipfile",
        "importlib.resources",
        "google.rpc.error_details_pb2",
    ]
    assert loaded(idle, "predict", EXAMPLE, *PREFILL) == []


def test_a_missing_option_is_told_without_the_service() -> None:
    assert loaded(["numpy", "tilewise.server.step.predict"], "predict", EXAMPLE, "--gpu", "h100-sxm5-80gb") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_has_help(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tilewise(capfd, name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: tilewise {name}")
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None and command.help and command.help.strip()


def test_a_prediction_as_json_names_its_peak_beside_every_mfu(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = tilewise(capfd, "predict", EXAMPLE, *PREFILL, "--format", "json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["schema_version"] == 1
    assert answer["architecture"]["parameter_count"] == 8_030_261_248
    assert answer["architecture"]["active_parameter_count"] == 8_030_261_248
    for part in [answer["step"], *answer["layers"], *answer["operators"]]:
        assert 0 < part["time_low_s"] <= part["time_s"] <= part["time_high_s"]
        assert part["trust"] in ("datasheet", "published", "measured")
        assert part["wall"] in ("compute", "memory", "special_function", "launch", "communication")
        assert part["calibration"] is not None
        if part["mfu"] is not None:
            assert 0 <= part["mfu"] <= 1
            assert part["peak_tflops"] > 0 and part["peak_kind"] == "dense" and part["peak_source"]
    assert answer["step"]["peak_tflops"] == 989.4


def test_a_prediction_as_text_has_layers_memory_and_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = tilewise(capfd, "predict", EXAMPLE, *PREFILL)
    assert code == 0
    for word in (
        "8.03 B parameters",
        "h100-sxm5-80gb",
        "trust:",
        "tokens/s",
        "MFU",
        "989 TFLOPS dense bf16",
        "attention",
        "mlp",
    ):
        assert word in out
    assert out.splitlines()[-1].endswith(".")


def test_several_gpus_give_one_report_each(capfd: pytest.CaptureFixture[str]) -> None:
    gpus = ("--gpu", "h100-sxm5-80gb,mi300x", "--phase", "prefill", "--seq", "512")
    _, out, _ = tilewise(capfd, "predict", EXAMPLE, *gpus, "--format", "json")
    assert [report["gpu"]["sku"] for report in json.loads(out)["reports"]] == ["h100-sxm5-80gb", "mi300x"]


def test_a_config_comes_from_stdin_and_an_answer_goes_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    command = [sys.executable, "-c", "from tilewise.client.cli import main; main()", "predict", "-", *PREFILL]
    with EXAMPLE.open("rb") as config:
        subprocess.run([*command, "--format", "json", "-o", target], stdin=config, check=True, timeout=60)
    assert json.loads(target.read_text())["architecture"]["name"] == "stdin"


def test_an_option_may_come_from_the_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_GPU", "mi300x")
    monkeypatch.setenv("TILEWISE_FORMAT", "json")
    _, out, _ = tilewise(capfd, "predict", EXAMPLE, "--phase", "decode", "--context", "1024")
    assert json.loads(out)["gpu"]["sku"] == "mi300x"


def test_a_size_can_be_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    replaced = ("--set", "num_hidden_layers=16", "--set", "vocab_size=128000")
    _, out, _ = tilewise(capfd, "predict", EXAMPLE, *PREFILL, *replaced, "--format", "json")
    layer = 218_112_000  # one layer of Llama-3-8B
    assert json.loads(out)["architecture"]["parameter_count"] == 8_030_261_248 - 16 * layer - 2 * 256 * 4096


def llama(**changed: object) -> str:
    return json.dumps({**json.loads(EXAMPLE.read_text()), **changed})


BAD_CONFIGS = {
    "empty file": ("", "empty"),
    "truncated JSON": (llama()[:100], "no valid JSON"),
    "10 MB JSON": (json.dumps({"model_type": "llama", "x": "y" * 10_000_000}), "4 MiB"),
    "a list": ("[1, 2]", "an object is needed"),
    "deep nesting": ("[" * 100_000, "nested too deeply"),
    "heads not dividing hidden": (llama(num_attention_heads=30), "30"),
    "negative size": (llama(hidden_size=-4096), "-4096"),
    "absurd size": (llama(hidden_size=10**30), "hidden_size"),
    "fraction": (llama(num_hidden_layers=1.5), "1.5"),
    "no model type": (llama(model_type=None), "model_type"),
    "unknown family": (llama(model_type="lama"), "llama"),
}


@pytest.mark.parametrize(("text", "said"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_a_bad_config_gets_one_clear_line_and_exit_code_2(
    text: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    refused(tilewise(capfd, "predict", path, *PREFILL), said)


BAD_ARGUMENTS = {
    "unknown GPU": (("--gpu", "h999"), "h100-sxm5-80gb"),
    "ambiguous GPU": (("--gpu", "h100"), "h100-pcie-80gb"),
    "consumer GPU": (("--gpu", "rtx 4090"), "production"),
    "precision that the GPU lacks": (("--precision", "nvfp4"), "bf16"),
    "precision that nobody has": (("--precision", "fp7"), "fp8"),
    "negative batch": (("--batch", "-1"), "batch"),
    "absurd batch": (("--batch", str(10**30)), "out of range"),
    "tensor parallel that does not divide": (("--tp", "7"), "1, 2, 4, 8"),
    "size that is none": (("--set", "hidden_size=big"), "hidden_size=big"),
    "size that does not exist": (("--set", "hiden_size=4096"), "hidden_size"),
    "option that does not exist": (("--sequence-length", "1"), "--sequence-length"),
    "folder that does not exist": (("-o", "/no/such/folder/answer"), "/no/such/folder/answer"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_a_bad_argument_gets_one_clear_line_and_exit_code_2(
    arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(tilewise(capfd, "predict", EXAMPLE, *PREFILL, *arguments), said)


def test_a_missing_file_or_a_folder_gets_one_clear_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused(tilewise(capfd, "predict", tmp_path / "none.json", *PREFILL), "none.json")
    refused(tilewise(capfd, "predict", tmp_path, *PREFILL), "is a folder")
    refused(tilewise(capfd, "predcit"), "predcit")


def refused(outcome: tuple[int, str, str], said: str) -> None:
    code, out, err = outcome
    assert (code, out) == (2, "")
    error, *hints = err.splitlines()
    assert error.startswith("error: ") and said in error
    assert all(hint.startswith("hint: ") for hint in hints) and len(hints) <= 1


def test_a_server_that_is_not_there_is_exit_code_3(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = tilewise(capfd, "gpus", "list", "--server", "127.0.0.1:1")
    assert code == 3
    assert err.startswith("error: no server answers at 127.0.0.1:1: ")


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-c", "from tilewise.client.cli import main; main()", "--debug", "gpus", "show", "h999"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr


def test_an_interrupt_is_exit_code_130() -> None:
    code = "import sys; sys.stderr.write('ready\\n'); from tilewise.client.cli import main; main()"
    command = [sys.executable, "-c", code, "predict", "-", *PREFILL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"LC_ALL": "C"}
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # it waits for the config now
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_what_does_not_fit_says_so_first_and_fails_where_it_must_fit(capfd: pytest.CaptureFixture[str]) -> None:
    step = ("predict", EXAMPLE, "--gpu", "h100-sxm5-80gb", "--phase", "train", "--seq", "4096", "--batch", "8")
    code, out, _ = tilewise(capfd, *step)
    assert code == 0 and out.startswith("DOES NOT FIT: 289.04 GiB at the peak, h100-sxm5-80gb leaves 74.87 GiB\n")
    assert tilewise(capfd, *step, "--must-fit")[0] == 1
    assert tilewise(capfd, *step, "--must-fit", "--recompute", "full", "--batch", "1")[0] == 0


def test_no_shape_is_guessed_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama"}')
    code, out, err = tilewise(capfd, "predict", config, *PREFILL)
    assert (code, out) == (2, "") and "does not state hidden_size 4096, num_hidden_layers 32" in err
    code, out, _ = tilewise(capfd, "predict", config, *PREFILL, "--allow-defaults")
    assert code == 0 and "note: not stated, so the class's default: hidden_size 4096, " in out


def test_a_process_that_ends_at_once_has_told_all_and_says_so_where_it_could_not() -> None:
    command = [
        sys.executable,
        "-m",
        "tilewise",
        "predict",
        str(EXAMPLE),
        "--gpu",
        "h100-sxm5-80gb",
        "--phase",
        "prefill",
        "--seq",
        "2048",
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0 and told.stdout.endswith(".\n") and not told.stderr
    with open("/dev/full", "w") as full:
        lost = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert lost.returncode != 0 and "no space left" in lost.stderr.lower()
