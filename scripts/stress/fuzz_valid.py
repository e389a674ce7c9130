"""Valid requests of every method, small ones, to be changed in places: from the examples and the packaged calibrations."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzz_random import GPUS, ROOT, serialized
from google.protobuf.message import Message

from tilewise.client.publish import _messages, publish
from tilewise.hwdb.calibration import Calibration, canonical, identify
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor
from tilewise.v1 import calibration_service_pb2 as calibrations
from tilewise.v1 import hardware_service_pb2 as hardware
from tilewise.v1.check_pb2 import CheckItem, CheckRequest
from tilewise.v1.model_pb2 import Model
from tilewise.v1.workload_pb2 import Workload

KEPT = 100_000  # bytes of the largest file that a small calibration has
VARIANTS = 8  # of each calibration, all but the first with a word changed somewhere in its files
BATCH_MAX = 4
AXES = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 8, "num_hidden_layers": 1, "num_key_value_heads": 1,
        "batch": 1, "sequence": 128, "context": 128, "tensor_parallel": 1}  # fmt: skip
POLICY = (ROOT / "examples" / "gate" / "tilewise.toml").read_text()


class Valid:
    """request(method): messages of one good call; given: calibrations that the server has."""

    def __init__(self, some: random.Random, configs: Sequence[str], given: Sequence[Calibration]) -> None:
        self._random, self._configs, self._calibrations = some, configs, given
        self._names = [name_of(each) for each in given]
        self._uploads = [serialized([*_messages(each, name_of(each), {})]) for each in given]

    def request(self, method: str) -> list[Message]:
        if method == "UploadCalibration":
            return self._upload()
        make: Callable[[], Message] = getattr(self, f"_{method}")
        return [make()]

    def _model(self) -> Model:
        overrides = {"vocab_size": self._random.choice((50_000, 64_000))} if self._random.random() < 0.3 else {}
        return Model(config_json=self._random.choice(self._configs), overrides=overrides)

    def _workload(self) -> Workload:
        some = self._random
        phase = some.choice((1, 2, 3))
        sizes = {"context": 1024} if phase == 3 else {"sequence": some.choice((512, 2048))}
        return Workload(phase=phase, batch=some.choice((1, 4)), mode=some.choice((0, 1, 2, 3)), **sizes)

    def _Predict(self) -> advisor.PredictRequest:
        some, gpu, id = self._random, self._random.choice(GPUS), ""
        if self._calibrations and some.random() < 0.4:
            chosen = some.choice(self._calibrations)
            gpu, id = chosen.sku, chosen.id
        return advisor.PredictRequest(
            model=self._model(), workload=self._workload(), gpu=gpu, calibration=id,
            detail=some.choice((0, 0, 1, 2, 3)), diagnose=some.random() < 0.1,
        )  # fmt: skip

    def _BatchPredict(self) -> advisor.BatchPredictRequest:
        first = self._Predict()
        first.diagnose = False
        requests = [first]
        for number in range(self._random.randrange(BATCH_MAX)):
            requests.append(advisor.PredictRequest.FromString(first.SerializeToString()))
            requests[-1].model.overrides["vocab_size"] = 32_000 + 64 * number
        return advisor.BatchPredictRequest(requests=requests)

    def _Sweep(self) -> advice.SweepRequest:
        some = self._random
        axes = [self._axis(field) for field in some.sample(list(AXES), some.choice((1, 1, 2)))]
        gpus = some.sample(GPUS, some.choice((1, 1, 2)))
        return advice.SweepRequest(model=self._model(), workload=self._workload(), gpus=gpus, axes=axes)

    def _axis(self, field: str) -> advice.Axis:
        some, step = self._random, AXES[field]
        first = step * some.choice((1, 8, 64)) if step > 1 else 1
        if some.random() < 0.5:
            return advice.Axis(field=field, range=advice.Range(first=first, last=first + 2 * step, step=step))
        return advice.Axis(field=field, values=[first, first + step, first + 2 * step])

    def _Recommend(self) -> advice.RecommendRequest:
        some = self._random
        workloads = [
            advice.WeightedWorkload(workload=self._workload(), weight=1.0) for _ in range(some.choice((1, 1, 2)))
        ]
        near = advice.Neighbourhood(max_candidate_count=some.choice((5, 20)), max_parameter_change=0.01)
        kinds = some.choices(((1,), (2,), (3,), (4,), ()), (30, 30, 30, 3, 1))[0]
        return advice.RecommendRequest(
            model=self._model(), workloads=workloads, gpus=[some.choice(GPUS)], neighbourhood=near, kinds=kinds,
            objective=some.choice((0, 1, 2)), max_results=3,
        )  # fmt: skip

    def _Check(self) -> CheckRequest:
        some = self._random
        head = some.choice(self._configs)
        item = CheckItem(path="configs/model.json", head=head)
        if some.random() < 0.7:
            item.base = json.dumps({**json.loads(head), "vocab_size": 50_000})
        return CheckRequest(policy_toml=POLICY, items=[item], date="2026-11-28", policy_path="tilewise.toml")

    def _ListGpus(self) -> hardware.ListGpusRequest:
        return hardware.ListGpusRequest(page_size=self._random.choice((0, 1, 3)), page_token="2")

    def _GetGpu(self) -> hardware.GetGpuRequest:
        return hardware.GetGpuRequest(name=f"gpus/{self._random.choice(GPUS)}")

    def _ListCalibrations(self) -> hardware.ListCalibrationsRequest:
        return hardware.ListCalibrationsRequest(parent=f"gpus/{self._random.choice(GPUS)}", page_size=2, page_token="1")

    def _GetCalibration(self) -> hardware.GetCalibrationRequest:
        return hardware.GetCalibrationRequest(name=self._name())

    def _ValidateCalibration(self) -> calibrations.ValidateCalibrationRequest:
        return calibrations.ValidateCalibrationRequest(name=self._name())

    def _PublishCalibration(self) -> calibrations.PublishCalibrationRequest:
        return calibrations.PublishCalibrationRequest(name=self._name(), reason="fuzz")

    def _RollbackCalibration(self) -> calibrations.RollbackCalibrationRequest:
        return calibrations.RollbackCalibrationRequest(parent=f"gpus/{self._random.choice(GPUS[:2])}", reason="fuzz")

    def _DeleteCalibration(self) -> calibrations.DeleteCalibrationRequest:
        return calibrations.DeleteCalibrationRequest(name=self._name(), reason="fuzz")

    def _ListPublications(self) -> calibrations.ListPublicationsRequest:
        return calibrations.ListPublicationsRequest(parent=f"gpus/{self._random.choice(GPUS)}", page_size=2)

    def _upload(self) -> list[Message]:
        upload = self._random.choice(self._uploads)
        some = upload[:1] if self._random.random() < 0.2 else upload
        return [calibrations.UploadCalibrationRequest.FromString(content) for content in some]

    def _name(self) -> str:
        return self._random.choice(self._names)


def name_of(calibration: Calibration) -> str:
    return f"gpus/{calibration.sku}/calibrations/{calibration.id}"


def small_calibrations(folder: Path, some: random.Random) -> list[Calibration]:
    """Of an H100 and of an MI300X: whole but for their large files, and the same with a word changed, under ids of their own."""
    return [variant(folder, sku, number, some) for sku in GPUS[:2] for number in range(VARIANTS)]


def variant(folder: Path, sku: str, number: int, some: random.Random) -> Calibration:
    packaged, target = Database.packaged(), folder / f"{sku}-{number}"
    shutil.copytree(ROOT / "hwdb" / "calibrations" / sku / str(packaged.active(sku)), target)
    card: dict[str, Any] = json.loads((target / "card.json").read_text())
    for path in [path for path in target.rglob("*") if path.is_file() and path.stat().st_size > KEPT]:
        path.unlink()
        card["families"].pop(path.stem, None)
    (target / "card.json").write_bytes(canonical({**card, "note": f"{number}"}))
    if number:
        changed(target, some)
    return identify(target)


def changed(folder: Path, some: random.Random) -> None:
    """One value of one file, in a way that its kind of file can still be read."""
    path = some.choice([path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".csv")])
    if path.suffix == ".csv":
        rows = path.read_text().splitlines()
        at = some.randrange(len(rows))
        cells = rows[at].split(",")
        cells[some.randrange(len(cells))] = some.choice(("", "nan", "-1", "0", "1e400", "x", str(2**63)))
        rows[at] = ",".join(cells)
        path.write_text("\n".join(rows) + "\n")
        return
    content = json.loads(path.read_text())
    content[some.choice([key for key in content if key != "schema"])] = some.choice(
        (None, 0, -1, "x", [], {}, 1e308, True)
    )
    path.write_bytes(canonical(content))


def hand_over(address: str, given: Sequence[Calibration]) -> None:
    """Upload them. What the server refuses stays a request that is refused."""
    for calibration in given:
        try:
            list(publish(calibration, address, promote=False))
        except TilewiseError:
            continue
