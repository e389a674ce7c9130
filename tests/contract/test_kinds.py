"""A kind of operator is a record: one more of them moves nothing that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.kernels.rates import assumptions
from tilewise.hwdb.kinds import KINDS, by_code
from tilewise.hwdb.table import COLUMNS, Kind

ROOT = Path(__file__).resolve().parents[2]
RECORD = """\
    Kind.DUMMY: Record(
        name="dummy", multiplies=False, tiled=False, sizes=("rows",), spreads=("unknown",),
        shown=("rows",), words=_matrix,
    ),
"""
QUESTIONS = """
import sys
from pathlib import Path
from tilewise.client.client import TilewiseClient
from tilewise.v1 import advisor_service_pb2, model_pb2, workload_pb2
from tilewise.hwdb.table import Kind

print(*Kind.__members__, file=sys.stderr)
with TilewiseClient() as client:
    for gpu, config, workload in (
        ("b100-sxm-192gb", "llama-3-8b", workload_pb2.Workload(phase=1, batch=1, sequence=4096)),
        ("h100-sxm5-80gb", "llama-3-8b", workload_pb2.Workload(phase=1, batch=1, sequence=4096)),
        ("b200-sxm-180gb", "llama-3-8b", workload_pb2.Workload(phase=3, batch=16, context=4096, tensor_parallel=8, stack=5)),
    ):
        text = (Path(sys.argv[1]) / f"{config}.json").read_text()
        request = advisor_service_pb2.PredictRequest(
            model=model_pb2.Model(config_json=text), gpu=gpu, workload=workload, detail=3
        )
        print(client.predict(request).SerializeToString(deterministic=True).hex())
"""


def answers(package: Path | None) -> list[str]:
    path = {} if package is None else {"PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-W", "error", "-c", QUESTIONS, str(ROOT / "examples")]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert ("DUMMY" in done.stderr) == (package is not None)
    return done.stdout.split()


def linked(source: Path, target: Path) -> None:
    """`target` as a folder of links to what `source` holds."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry)


@pytest.fixture
def with_dummy(tmp_path: Path) -> Path:
    """The package with one more kind, which comes first."""
    package = tmp_path / "tilewise"
    linked(Path(str(files("tilewise"))), package)
    for room in ("hwdb", "server", "client"):
        (package / room).unlink(missing_ok=True)
        linked(Path(str(files(f"tilewise.{room}"))), package / room)
    edits = {
        "table.py": ("    GEMM = 0\n", "    DUMMY = 5\n    GEMM = 0\n"),
        "kinds.py": (
            "KINDS: dict[Kind, Record] = {\n",
            "KINDS: dict[Kind, Record] = {\n" + RECORD,
        ),
    }
    for name, (old, new) in edits.items():
        text = Path(str(files("tilewise.hwdb"))).joinpath(name).read_text(encoding="utf-8")
        assert old in text
        (package / "hwdb" / name).unlink()
        (package / "hwdb" / name).write_text(text.replace(old, new), encoding="utf-8")
    return package


def test_one_kind_more_moves_no_prediction_on_a_measured_a_published_or_an_uncalibrated_gpu(with_dummy: Path) -> None:
    assert answers(with_dummy) == answers(None)


def test_every_kind_has_a_record_whose_columns_and_spreads_exist() -> None:
    assert set(KINDS) == set(Kind)
    for record in KINDS.values():
        assert set(record.sizes) <= COLUMNS.keys()
        assert set(record.spreads) <= assumptions()["spread"].keys()


def test_a_value_of_the_records_is_indexed_by_the_code_of_the_kind() -> None:
    names = by_code(lambda record: record.name)
    assert all(names[int(kind)] == record.name for kind, record in KINDS.items())
    assert isinstance(names, np.ndarray)
