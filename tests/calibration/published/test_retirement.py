"""A published calibration answers until a measured one arrives; then it is retired without anybody's doing."""

import hashlib
import shutil
from pathlib import Path

from tilewise.hwdb.calibration import Calibration, canonical, identify
from tilewise.hwdb.database import Database
from tilewise.hwdb.served import ServedDatabase
from tilewise.hwdb.store.announced import Announced
from tilewise.hwdb.store.store import SHARED, Store
from tilewise.hwdb.store.uploads import Upload
from tilewise.hwdb.times import Trust

SKU = "mi300x"
HWDB = Path(str(Database.packaged().folder))


def copied(into: Path) -> Path:
    """The packaged facts and the published calibration of one SKU."""
    for pattern in ("*.toml", "skus/*.toml"):
        for path in HWDB.glob(pattern):
            (into / path.relative_to(HWDB)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, into / path.relative_to(HWDB))
    shutil.copytree(HWDB / "calibrations" / SKU, into / "calibrations" / SKU)
    return into


def measured(folder: Path) -> str:
    """A measured calibration beside the published one, older by its date; its id."""
    (folder / "draft").mkdir()
    card = {
        "schema": 1,
        "sku": SKU,
        "date": "2020-01-01",
        "production": True,
        "families": {},
        "held_out": [],
        "models": {},
    }
    (folder / "draft" / "card.json").write_bytes(canonical(card))
    id = identify(folder / "draft").id
    (folder / "draft").rename(folder / "calibrations" / SKU / id)
    return id


def test_a_measured_calibration_retires_the_published_one(tmp_path: Path) -> None:
    folder = copied(tmp_path / "hwdb")
    before = Database(folder)
    published, version = before.active(SKU), before.version
    assert published is not None and before.trust(SKU, published) == Trust.PUBLISHED
    id = measured(folder)
    after = Database(folder)
    assert after.active(SKU) == id
    assert published in after.calibrations(SKU)  # still there for whoever names it
    assert after.version != version


def test_a_server_that_holds_a_published_one_lets_the_packaged_measured_one_answer(tmp_path: Path) -> None:
    folder = copied(tmp_path / "hwdb")
    store = Store(tmp_path / "store")
    published = Database(folder).active(SKU)
    assert published is not None
    uploaded(store, Database(folder).calibration(SKU, published))
    store.publish(SHARED, SKU, published)
    assert ServedDatabase(folder, store).active(SKU) == published
    id = measured(folder)
    assert ServedDatabase(folder, store).active(SKU) == id
    store.close()


def uploaded(store: Store, calibration: Calibration) -> None:
    contents = {name: (calibration.folder / name).read_bytes() for name in calibration.files()}
    files = {name: Announced(len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()}
    upload = Upload(store, SHARED, SKU, calibration.id, calibration.content_sha256(), files)
    for name, data in contents.items():
        upload.write(name, 0, data)
    upload.finish()
