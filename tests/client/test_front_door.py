"""The front door: `import tilewise` answers as the command line does, here and from a server, and says what is wrong in one line."""

import dataclasses
import doctest
import json
import pickle
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewise
from tilewise.client import answers
from tilewise.client.cli import main
from tilewise.client.client import TilewiseClient
from tilewise.client.question import number, workload_of
from tilewise.server.messages.words import living
from tilewise.server.service.app import start
from tilewise.v1.workload_pb2 import Workload

ROOT = Path(__file__).resolve().parents[2]
LLAMA, NEOX = (str(ROOT / "examples" / f"{name}.json") for name in ("llama-3-8b", "gpt-neox-2.7b"))
POLICY = str(ROOT / "examples" / "gate" / "tilewise.toml")
H100 = "h100-sxm5-80gb"
METHODS = ("predict", "batch", "sweep", "recommend", "rank", "check", "trace", "gpus")


@pytest.fixture(scope="module")
def remote() -> Iterator[tilewise.Client]:
    server, port = start("127.0.0.1:0")
    with tilewise.Client(f"127.0.0.1:{port}") as client:
        yield client
    server.stop(None).wait()


@pytest.fixture(scope="module")
def report() -> tilewise.Report:
    return tilewise.predict(LLAMA, gpu=H100, phase="train", sequence=2048, diagnose=True)


def printed(capfd: pytest.CaptureFixture[str], *command: str) -> Any:
    with pytest.raises(SystemExit):
        main([*command, "--format", "json"])
    answer = json.loads(capfd.readouterr().out)
    answer.pop("reports", None)  # the same again, in the form of several GPUs
    return answer


@pytest.mark.parametrize(
    ("method", "positional", "named"),
    [
        ("predict", [LLAMA], {"gpu": H100, "phase": "prefill", "sequence": 2048, "diagnose": True}),
        ("predict", [NEOX], {"gpu": [H100, "mi300x"], "phase": "decode", "context": 512}),
        ("batch", [[{"batch": 1}, {"batch": 2, "tensor_parallel": 3}]], {"config": NEOX, "gpu": H100, "phase": "decode", "context": 64}),
        ("sweep", [LLAMA], {"gpu": H100, "vary": {"batch": [1, 2], "tensor_parallel": [1, 3]}, "phase": "decode", "context": 64}),
        ("recommend", [NEOX], {"gpu": H100, "kinds": ["free_win"], "phase": "train", "sequence": 2048, "max_results": 2}),
        ("rank", [LLAMA], {"gpu": [H100, "mi300x"], "batches": [1, 4], "phase": "prefill", "sequence": 512}),
        ("check", [], {"policy": POLICY}),
        ("gpus", ["mi300x"], {}),
        ("gpus", [], {}),
    ],
)  # fmt: skip
def test_a_server_answers_with_equal_objects(
    method: str, positional: list[Any], named: dict[str, Any], remote: tilewise.Client
) -> None:
    here, there = (getattr(asked, method)(*positional, **named) for asked in (tilewise, remote))
    assert list(map(comparable, here)) == list(map(comparable, there)) if isinstance(here, tuple) else here == there


def comparable(answer: Any) -> Any:
    """Errors are equal if they say the same."""
    return (type(answer), vars(answer)) if isinstance(answer, Exception) else answer


def test_answers_as_dicts_are_what_the_command_line_writes(
    capfd: pytest.CaptureFixture[str], report: tilewise.Report
) -> None:
    train = ("--gpu", H100, "--phase", "train", "--seq", "2048")
    assert report.to_dict() == printed(capfd, "predict", LLAMA, *train, "--advice")
    swept = tilewise.sweep(LLAMA, gpu=H100, vary={"batch": [1, 2]}, phase="train", sequence=2048)
    assert swept.to_dict() == printed(capfd, "sweep", LLAMA, *train, "--vary", "batch=1,2")
    advised = tilewise.recommend(LLAMA, gpu=H100, kinds=["execution"], phase="train", sequence=2048)
    assert advised.to_dict() == printed(capfd, "recommend", LLAMA, *train, "--kind", "execution")
    ranked = tilewise.rank(LLAMA, gpu=H100, precisions=["bf16", "fp8"], phase="train", sequence=2048)
    assert ranked.to_dict() == printed(capfd, "rank", LLAMA, *train, "--precisions", "bf16,fp8")
    assert tilewise.check(policy=POLICY).to_dict() == printed(capfd, "check", "--policy", POLICY)


def test_attributes_are_the_keys_of_the_dict(report: tilewise.Report) -> None:
    """The classes are written from the contract: no field is missing, none is made up."""
    data = report.to_dict()
    del data["schema_version"]
    assert same_names(report, data) > 1000


def same_names(thing: Any, data: Any) -> int:
    """How many figures and words are the same in both."""
    if isinstance(data, list):
        return sum(same_names(each, other) for each, other in zip(thing, data, strict=True))
    if not dataclasses.is_dataclass(thing):
        assert thing == data
        return 1
    names = [field.name.removesuffix("_") for field in dataclasses.fields(thing)]
    assert names == list(data)
    return sum(
        same_names(getattr(thing, field.name), data[name])
        for field, name in zip(dataclasses.fields(thing), names, strict=True)
    )


def test_a_path_a_dict_and_a_config_object_are_one_question() -> None:
    class PretrainedConfig:
        def to_dict(self) -> dict[str, Any]:
            return {
                **json.loads(Path(LLAMA).read_text()),
                "torch_dtype": complex(1, 0),
            }  # transformers holds more than JSON

    work: dict[str, Any] = {"gpu": H100, "phase": "decode", "context": 4096}
    configs = (LLAMA, Path(LLAMA), json.loads(Path(LLAMA).read_text()), PretrainedConfig())
    assert len({tilewise.predict(config, **work).step.time_s for config in configs}) == 1


def test_overrides_and_keywords_change_the_answer_as_on_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    asked = tilewise.predict(
        LLAMA, gpu="b200-sxm-180gb", overrides={"num_hidden_layers": 4}, phase="decode", batch=32, context=4096,
        tensor_parallel=2, stack="trtllm", precision="fp8", kv_cache="fp8",
    )  # fmt: skip
    told = printed(
        capfd, "predict", LLAMA, "--gpu", "b200-sxm-180gb", "--set", "num_hidden_layers=4", "--phase", "decode", "--batch", "32",
        "--context", "4096", "--tp", "2", "--stack", "trtllm", "--precision", "fp8", "--kv-cache", "fp8",
    )  # fmt: skip
    assert asked.to_dict() == told and asked.workload.mode == "graph"


def test_answers_are_frozen_and_survive_pickling(report: tilewise.Report) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.step.time_s = 1.0  # type: ignore[misc]
    copy = pickle.loads(pickle.dumps(report))
    assert copy == report and copy.to_dict() == report.to_dict()


def test_a_report_in_a_notebook_is_a_small_table(report: tilewise.Report) -> None:
    html = report._repr_html_()
    assert all(layer.name in html for layer in report.layers) and html.count("<tr>") == len(report.layers) + 1
    assert "on h100-sxm5-80gb" in repr(report) and len(repr(report)) < 400


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_figures_become_a_data_frame(library: str, report: tilewise.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = pytest.importorskip(library)
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pandas", None)
    frame = report.to_dataframe()
    assert isinstance(frame, frames.DataFrame) and len(frame) == len(report.operators)
    assert frame["total_s"].sum() == pytest.approx(report.step.busy_s)
    assert len(report.operators[:3].to_dataframe()) == 3 and "q_proj" in report.operators._repr_html_()
    swept = tilewise.sweep(LLAMA, gpu=H100, vary={"batch": [1, 2]}, phase="decode", context=64).to_dataframe()
    assert list(swept["batch"]) == [1, 2]
    many = tilewise.batch([{"batch": 1}, {"tensor_parallel": 7}], config=LLAMA, gpu=H100, phase="decode", context=64)
    assert "cannot be split" in list(many.to_dataframe()["error"])[1]


def test_without_pandas_and_polars_a_data_frame_says_what_to_install(
    report: tilewise.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(tilewise.NotAvailable, match="needs pandas or polars: pip install pandas"):
        report.to_dataframe()


def test_pictures_are_figures_and_leave_the_process_s_backend_alone(report: tilewise.Report, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    before = matplotlib.rcParams._get_backend_or_none()
    figure = report.plot(str(tmp_path / "report.svg"))
    assert figure._repr_png_().startswith(b"\x89PNG") and (tmp_path / "report.svg").stat().st_size > 10_000
    swept = tilewise.sweep(LLAMA, gpu=H100, vary={"batch": [1, 2, 4]}, phase="decode", context=64)
    assert len(swept.plot(show="mfu").axes) == 1
    assert matplotlib.rcParams._get_backend_or_none() == before


def test_a_traced_module_answers_as_a_model_does() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2048, 8192, bias=False, device="meta", dtype=torch.bfloat16)
    given = torch.zeros(4, 1024, 2048, device="meta", dtype=torch.bfloat16)
    traced = tilewise.trace(layer, given, gpu=H100, phase="train", batch=4, sequence=1024)
    assert traced.step.model_flops == pytest.approx(2 * 2 * 4 * 1024 * 2048 * 8192, rel=0.01)
    assert traced.memory is None and "optimizer" in {operator.direction for operator in traced.operators}
    assert "Linear on NVIDIA H100" in traced._repr_html_()


def test_a_server_does_not_trace(remote: tilewise.Client) -> None:
    with pytest.raises(tilewise.NotAvailable, match="traced in this process"):
        remote.trace(None, gpu=H100, phase="train", sequence=1)


SOUND: dict[str, Any] = {"config": LLAMA, "gpu": H100, "phase": "train", "sequence": 2048}


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"sequnce": 2048}, "InvalidInput", "'sequnce' is no keyword here: .*; did you mean 'sequence'?"),
        ({"config": "missing.json"}, "InvalidInput", "missing.json: no such file or directory"),
        ({"config": str(ROOT)}, "InvalidInput", "is a folder; a config.json is needed"),
        ({"config": {"hidden_size": 64}}, "InvalidInput", "model_type"),
        ({"config": 3}, "InvalidInput", "config must be a path, a dict or a transformers config, not int"),
        ({"gpu": "h100-sxm6"}, "NotFound", "nearest is h100-sxm5-80gb"),
        ({"gpu": None}, "InvalidInput", "gpu must be a SKU or a list of SKUs, got None"),
        ({"phase": None}, "InvalidInput", "phase is required: train, prefill or decode"),
        ({"phase": "trian"}, "InvalidInput", "phase 'trian' is not known: .*; did you mean 'train'?"),
        ({"batch": "8"}, "InvalidInput", "batch must be a whole number, got '8'"),
        ({"batch": True}, "InvalidInput", "batch must be a whole number, got True"),
        ({"batch": -1}, "InvalidInput", "batch -1 is out of range"),
        ({"sequence": 1 << 70}, "InvalidInput", "sequence .* is out of range"),
        ({"precision": ["fp8"]}, "InvalidInput", "precision .* is not known"),
        ({"precision": "nvfp4"}, "NotAvailable", "nvfp4"),
        ({"overrides": {"hidden_sise": 64}}, "InvalidInput", "hidden_size"),
        ({"overrides": {"hidden_size": 64.5}}, "InvalidInput", "must be a whole number, got 64.5"),
        ({"overrides": "hidden_size=64"}, "InvalidInput", "overrides must be a dict by size, got 'hidden_size=64'"),
        ({"calibration": "yesterday"}, "NotFound", "yesterday"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_one_clear_line(changed: dict[str, Any], kind: str, said: str) -> None:
    with pytest.raises(tilewise.TilewiseError, match=said) as caught:
        tilewise.predict(**{**SOUND, **changed})
    assert isinstance(caught.value, getattr(tilewise, kind)) and "\n" not in str(caught.value)


KEYWORDS = list(living(Workload.DESCRIPTOR))
WORDS = st.text("trainfp8 \n", max_size=8)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(KEYWORDS) | WORDS, VALUES, max_size=5))
def test_any_keywords_are_a_workload_or_one_line(given: dict[str, Any]) -> None:
    try:
        assert isinstance(workload_of({"phase": "train", **given}), Workload)
    except tilewise.InvalidInput as error:
        assert error.field.startswith("workload.") and len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("method", "named", "said"),
    [
        ("sweep", {"vary": {"hidden_size": ["8"]}}, "vary\\['hidden_size'\\] must be a whole number, got '8'"),
        ("sweep", {"vary": {"hiden_size": [8]}}, "hidden_size"),
        ("sweep", {"vary": "hidden_size=8"}, "vary must be a dict by size, got 'hidden_size=8'"),
        ("recommend", {"objective": "speed"}, "objective 'speed' is not known: allowed are time, energy"),
        ("recommend", {"keep": "hidden_size"}, "keep must be a list, got 'hidden_size'"),
        ("recommend", {"also": [{"phase": "decode", "contxt": 1}]}, "did you mean 'context'?"),
        ("rank", {"precisions": ["fp9"]}, "precision 'fp9' is not known"),
        ("rank", {"batches": ["1"]}, "batch must be a whole number, got '1'"),
    ],
)
def test_other_questions_say_what_is_wrong_too(method: str, named: dict[str, Any], said: str) -> None:
    with pytest.raises(tilewise.InvalidInput, match=said):
        getattr(tilewise, method)(**{**SOUND, **named})


def test_a_batch_raises_for_a_question_that_is_none_and_keeps_the_error_of_one_that_has_no_answer() -> None:
    with pytest.raises(tilewise.InvalidInput, match="a question of the batch has no gpu"):
        tilewise.batch([{}], config=LLAMA, phase="decode", context=64)
    good, bad = tilewise.batch([{}, {"gpu": "h999"}], config=LLAMA, gpu=H100, phase="decode", context=64)
    assert isinstance(good, tilewise.Report) and isinstance(bad, tilewise.NotFound)


@pytest.mark.parametrize("thing", [tilewise.Client, TilewiseClient])
def test_the_examples_of_docstrings_hold(thing: type, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(ROOT)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for examples in doctest.DocTestFinder().find(thing, globs=dict(vars(import_module(thing.__module__)))):
        runner.run(examples)
    assert runner.tries and not runner.failures


def test_the_notebook_runs_and_keeps_no_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(ROOT / "examples")
    cells = [cell for cell in json.loads(Path("quickstart.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join("".join(cell["source"]) for cell in cells))
    known = runpy.run_path(str(tmp_path / "cells.py"))
    assert len(cells) >= 5 and not any(cell["outputs"] for cell in cells)
    assert known["report"].step.time_s > 0


def test_importing_tilewise_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import tilewise; print(sorted(set(sys.modules) - before))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        == "['tilewise']\n"
    )


def test_everything_offered_exists_has_types_and_a_docstring() -> None:
    for name in tilewise.__all__:
        assert getattr(tilewise, name).__doc__ and name in dir(tilewise)
    for name in METHODS:
        hints = get_type_hints(getattr(tilewise, name))
        assert hints.pop("return") is not Any and set(hints) >= set(arguments(getattr(tilewise, name)))
    with pytest.raises(AttributeError, match="no attribute 'predcit'"):
        tilewise.predcit  # noqa: B018


def arguments(function: Any) -> tuple[str, ...]:
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    return names


def test_every_word_of_the_contract_is_a_word_of_the_types() -> None:
    assert list(get_type_hints(answers.Keywords)) == KEYWORDS
    for name, hint in get_type_hints(answers.Workload).items():
        enum = Workload.DESCRIPTOR.fields_by_name[name].enum_type
        if enum is not None:
            assert [number(name, enum, word) for word in get_args(hint)] == [value.number for value in enum.values[1:]]


def test_sizes_that_a_class_fills_in_are_refused_until_they_are_allowed() -> None:
    little = {"model_type": "llama", "vocab_size": 32000}
    with pytest.raises(tilewise.InvalidInput, match="does not state hidden_size"):
        tilewise.predict(little, gpu="h100-sxm5-80gb", phase="prefill", sequence=128)
    report = tilewise.predict(little, gpu="h100-sxm5-80gb", phase="prefill", sequence=128, allow_defaults=True)
    (same,) = tilewise.batch(
        [{"sequence": 128}], config=little, gpu="h100-sxm5-80gb", phase="prefill", allow_defaults=True
    )
    assert report.step.time_s == same.step.time_s > 0
