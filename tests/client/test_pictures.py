"""Pictures and the page: what is on them, and that they need nothing else."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tilewise.client.cli import main
from tilewise.client.client import TilewiseClient
from tilewise.client.render.html import document, page
from tilewise.client.render.plot import save, svg
from tilewise.hwdb.errors import InvalidInput
from tilewise.v1.advisor_service_pb2 import DETAIL_OPERATORS, PredictRequest, PredictResponse
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import PHASE_TRAIN, Workload

pytest.importorskip("matplotlib")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "llama-3-8b.json"


@pytest.fixture(scope="module")
def answer() -> PredictResponse:
    request = PredictRequest(
        model=Model(config_json=EXAMPLE.read_text(), name="<llama>", overrides={"num_hidden_layers": 4}),
        workload=Workload(phase=PHASE_TRAIN, batch=1, sequence=2048),
        gpu="h100-sxm5-80gb",
        detail=DETAIL_OPERATORS,
        diagnose=True,
    )
    with TilewiseClient() as client:
        return client.predict(request)


def test_every_operator_is_on_the_roofline(answer: PredictResponse) -> None:
    ids = {element.get("id") for element in ElementTree.fromstring(svg(answer, "roofline")).iter()}
    assert ids >= {f"operator-{at}" for at in range(len(answer.operators))}


def test_every_cause_of_every_layer_is_a_piece_of_its_bar(answer: PredictResponse) -> None:
    ids = {element.get("id") for element in ElementTree.fromstring(svg(answer, "layers")).iter()}
    shown = {loss.cause for loss in answer.step.losses if loss.share >= 5e-4}
    wanted = {
        f"layer-{at}-{loss.cause}"
        for at, layer in enumerate(answer.layers)
        for loss in layer.losses
        if loss.cause in shown
    }
    assert ids >= wanted and len(wanted) > 10


@pytest.mark.parametrize(("ending", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_picture_has_the_format_of_its_ending(
    answer: PredictResponse, tmp_path: Path, ending: str, begins: bytes
) -> None:
    path = tmp_path / f"picture{ending}"
    save(answer, str(path))
    assert path.read_bytes().startswith(begins)


def test_another_ending_is_refused_with_those_allowed(answer: PredictResponse, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.png, \.svg, \.pdf"):
        save(answer, str(tmp_path / "picture.bmp"))


def test_the_page_fetches_nothing_and_every_mark_has_its_hint(answer: PredictResponse) -> None:
    text = page([answer, answer])
    assert not re.search(r'(src|href)="(https?:)?//|@import|<link', text)
    found = re.search(r'<script type="application/json" id="hints">(\{.*?\})</script>', text)
    assert found is not None
    hints = json.loads(found[1])
    marks = re.findall(r'data-hint="([^"]+)"', text)
    assert len(marks) > 2 * len(answer.operators) and set(marks) <= set(hints)
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_page_runs_its_own_script_and_no_hint_ends_it() -> None:
    hint = "<!--<script></script>"
    text = document("title", ["<p>text</p>"], {"a": hint})
    data, script = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert "<" not in data and json.loads(data) == {"a": hint}
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{allowed}'" in text


def test_names_from_a_request_are_escaped_in_the_page(answer: PredictResponse) -> None:
    assert "<llama>" in answer.architecture.name
    assert "<llama>" not in page([answer])


def test_one_command_writes_picture_page_and_advice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plot, html = tmp_path / "p.svg", tmp_path / "r.html"
    arguments = ["--gpu", "h100-sxm5-80gb", "--phase", "prefill", "--seq", "512", "--plot", plot, "--html", html]
    with pytest.raises(SystemExit) as end:
        main(["predict", str(EXAMPLE), *map(str, arguments), "--advice"])
    out = capfd.readouterr().out
    assert end.value.code == 0 and plot.stat().st_size > 10_000 and "</html>" in html.read_text()
    assert "each change alone" in out and "ms lost to" in out


def test_one_picture_shows_one_gpu(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--gpu", "h100-sxm5-80gb,mi300x", "--phase", "prefill", "--seq", "512", "--plot", tmp_path / "p.png"]
    with pytest.raises(SystemExit) as end:
        main(["predict", str(EXAMPLE), *map(str, arguments)])
    assert end.value.code == 2 and "--html takes several" in capfd.readouterr().err
