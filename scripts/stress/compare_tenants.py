"""Does a tenant learn what another has, by the words or by the time of a refusal?

python scripts/stress/compare_tenants.py [--times 1500]

Every method that takes a calibration's id is asked, in turns, for one that another tenant has and for one that nobody has. Said are the
medians, the p of Mann and Whitney that the times come from one place (small: they differ), and whether the words are the same.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_service import question
from break_service import SKU, variant
from scipy.stats import mannwhitneyu

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.served import ServedDatabase
from tilewise.hwdb.store.engine import writing
from tilewise.hwdb.store.store import Store
from tilewise.server.messages.status import to_status
from tilewise.server.service.servicers import services
from tilewise.v1 import calibration_service_pb2 as pb
from tilewise.v1.advisor_service_pb2 import PredictRequest
from tilewise.v1.hardware_service_pb2 import GetCalibrationRequest

HELD = 6  # calibrations that the other tenant has
SLOW = ("DeleteCalibration", "UploadCalibration")  # write, so they are asked less often
Ask = Callable[[str], object]


def filled(store: Store, folder: Path) -> list[str]:
    """Ids that the tenant "red" has."""
    ids = []
    for number in range(HELD):
        made = variant(folder, f"{number}")
        contents = {name: (made.folder / name).read_bytes() for name in made.files()}
        store.take_in("red", SKU, made.id, made.sha256, contents, "red", lambda _: None)
        ids.append(made.id)
    return ids


def asked(store: Store, some: random.Random) -> dict[str, Ask]:
    """What the tenant "blue" may ask by id."""
    blue = services(ServedDatabase(Database.packaged().folder, store, "blue"), "blue")
    hardware, advisor, kept = (blue[f"{name}Service"] for name in ("Hardware", "Advisor", "Calibration"))
    predict = PredictRequest.FromString(question())

    def upload(id: str) -> None:
        header = pb.UploadHeader(name=name_of(id), content_sha256=id[-8:] + f"{some.randrange(1 << 224):056x}")
        header.files.add(path="card.json", size_bytes=1000, sha256="0" * 64)
        try:
            kept.UploadCalibration(iter([pb.UploadCalibrationRequest(header=header)]))  # type: ignore[attr-defined]
        finally:
            with writing(store.engine) as connection:
                store.forget_uploads(connection, -10)

    def predicted(id: str) -> None:
        predict.calibration = id
        advisor.Predict(predict)  # type: ignore[attr-defined]

    made: dict[str, Ask] = {
        name: lambda id, name=name: getattr(kept, name)(getattr(pb, f"{name}Request")(name=name_of(id)))  # type: ignore[misc]
        for name in ("ValidateCalibration", "PublishCalibration", "DeleteCalibration")
    }
    rollback = pb.RollbackCalibrationRequest
    return made | {
        "GetCalibration": lambda id: hardware.GetCalibration(GetCalibrationRequest(name=name_of(id))),  # type: ignore[attr-defined]
        "RollbackCalibration": lambda id: kept.RollbackCalibration(rollback(parent=f"gpus/{SKU}", id=id)),  # type: ignore[attr-defined]
        "Predict": predicted,
        "UploadCalibration": upload,
    }


def name_of(id: str) -> str:
    return f"gpus/{SKU}/calibrations/{id}"


def outcome(ask: Ask, id: str) -> tuple[int, str]:
    """Nanoseconds and words, in which the id is not told."""
    begin, words = time.perf_counter_ns(), "OK"
    try:
        ask(id)
    except TilewiseError as error:
        status = to_status(error)
        words = f"{status.code} {status.message}".replace(id, "ID").replace(id[-8:], "HASH")
    return time.perf_counter_ns() - begin, words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=1500)
    times, some = parser.parse_args().times, random.Random(3)
    print("| method | nobody has it | another has it | p | words |\n|---|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name) / "store")
        held = filled(store, Path(name))
        for method, ask in asked(store, some).items():
            seen: dict[bool, list[tuple[int, str]]] = {False: [], True: []}
            for _ in range(times // 8 if method in SLOW else times):
                for real in some.sample((False, True), 2):
                    id = some.choice(held)
                    seen[real].append(outcome(ask, id if real else f"{id[:-8]}{some.randrange(1 << 32):08x}"))
            nobody, another = (np.array([took for took, _ in seen[real]]) / 1e3 for real in (False, True))
            same = {words for _, words in seen[False]} == {words for _, words in seen[True]}
            p = mannwhitneyu(nobody, another).pvalue
            medians = f"{np.median(nobody):.0f} us | {np.median(another):.0f} us"
            print(f"| {method} | {medians} | {p:.2f} | {'the same' if same else 'DIFFER'} |", flush=True)
        store.close()


if __name__ == "__main__":
    main()
