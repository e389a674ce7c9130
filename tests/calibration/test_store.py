"""A server's folder of calibrations: uploads are all or nothing, publishing can be undone."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.errors import Conflict, InvalidInput, NotAvailable, NotFound, TooLarge
from tilewise.hwdb.store import STAGING, Announced, Store, Upload

Make = Callable[..., Calibration]
SKU = "h100-sxm5-80gb"


def announced(calibration: Calibration) -> dict[str, Announced]:
    contents = {name: (calibration.folder / name).read_bytes() for name in calibration.files()}
    return {name: Announced(len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()}


def begin(store: Store, calibration: Calibration) -> Upload:
    return store.begin(SKU, calibration.id, calibration.content_sha256(), announced(calibration))


def send(upload: Upload, calibration: Calibration, piece: int = 1000) -> None:
    for name in calibration.files():
        data = (calibration.folder / name).read_bytes()
        for offset in range(0, len(data), piece):
            upload.write(name, offset, data[offset : offset + piece])


def uploaded(store: Store, calibration: Calibration) -> Calibration:
    upload = begin(store, calibration)
    send(upload, calibration)
    return upload.finish()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_an_upload_arrives_whole(make: Make, store: Store) -> None:
    calibration = make("a")
    assert uploaded(store, calibration).content_sha256() == calibration.content_sha256()
    assert store.ids(SKU) == (calibration.id,)
    assert not list((store.root / STAGING).glob("*"))


def test_an_upload_cut_short_leaves_nothing_to_be_seen_and_can_go_on(make: Make, store: Store) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    upload.write("card.json", 0, (calibration.folder / "card.json").read_bytes()[:100])
    assert store.ids(SKU) == ()
    again = begin(Store(store.root), calibration)
    assert again.received()["card.json"] == 100
    send(again, calibration)
    assert again.finish().id == calibration.id


def test_an_upload_nobody_goes_on_with_is_forgotten(make: Make, store: Store) -> None:
    upload = begin(store, make("a"))
    os.utime(upload.folder, (0, 0))
    Store(store.root)
    assert not upload.folder.exists()


@pytest.mark.parametrize("name", ["card.json", "measurements/gemm.csv"])
def test_a_broken_upload_leaves_nothing_behind(make: Make, store: Store, name: str) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    send(upload, calibration)
    data = bytearray((upload.folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (upload.folder / name).write_bytes(bytes(data))
    with pytest.raises(InvalidInput, match="hash differs"):
        upload.finish()
    assert [path.name for path in store.root.rglob("*")] == [STAGING]


def test_an_upload_under_another_id_is_refused(make: Make, store: Store) -> None:
    calibration = make("a")
    upload = store.begin(SKU, "2026-11-28-00000000", calibration.content_sha256(), announced(calibration))
    send(upload, calibration)
    with pytest.raises(InvalidInput, match="the files are calibration"):
        upload.finish()
    assert store.ids(SKU) == ()


def test_uploading_again_changes_nothing(make: Make, store: Store) -> None:
    calibration = make("a")
    uploaded(store, calibration)
    assert uploaded(store, calibration).id == calibration.id
    assert store.ids(SKU) == (calibration.id,)


@pytest.mark.parametrize("path", ["../card.json", "/etc/passwd", "models/../../x.json", "card.json/x", "models/a.py"])
def test_a_path_outside_the_calibration_is_refused(make: Make, store: Store, path: str) -> None:
    calibration = make("a")
    with pytest.raises(InvalidInput, match="no file of a calibration"):
        store.begin(SKU, calibration.id, calibration.content_sha256(), {path: Announced(1, "0" * 64)})


def test_too_large_a_file_is_refused_before_it_comes(store: Store) -> None:
    with pytest.raises(TooLarge):
        store.begin(SKU, "a", "0" * 64, {"card.json": Announced(2**40, "0" * 64)})


def test_gaps_surplus_and_unannounced_files_are_refused(make: Make, store: Store) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    with pytest.raises(InvalidInput, match="leaves a gap"):
        upload.write("card.json", 5, b"x")
    with pytest.raises(InvalidInput, match="more came"):
        upload.write("card.json", 0, b"x" * 10**6)
    with pytest.raises(InvalidInput, match="was not announced"):
        upload.write("models/gemm.json", 0, b"x")


def test_a_piece_sent_twice_counts_once(make: Make, store: Store) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    data = (calibration.folder / "card.json").read_bytes()
    upload.write("card.json", 0, data[:60])
    upload.write("card.json", 40, data[40:90])
    assert (upload.folder / "card.json").read_bytes() == data[:90]


def test_publishing_makes_it_answer_and_rolling_back_undoes_it(make: Make, store: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    assert store.publish(SKU, first.id, "ann") is None
    assert store.publish(SKU, second.id, "bob", "newer driver") == first.id
    assert store.active(SKU) == second.id
    assert store.rollback(SKU, who="ann") == (first.id, second.id)
    assert store.active(SKU) == first.id
    assert [entry["who"] for entry in store.history(SKU)] == ["ann", "bob", "ann"]


def test_a_publisher_who_is_out_of_date_is_told(make: Make, store: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    store.publish(SKU, first.id)
    with pytest.raises(Conflict, match="is active, not"):
        store.publish(SKU, second.id, expected_active="another")


def test_what_was_not_production_never_answers(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a", production=False))
    with pytest.raises(NotAvailable, match="never answers"):
        store.publish(SKU, calibration.id)
    assert store.active(SKU) is None


def test_there_is_nothing_to_roll_back_to_at_first(make: Make, store: Store) -> None:
    with pytest.raises(NotAvailable, match="no earlier calibration"):
        store.rollback(SKU)
    with pytest.raises(NotFound, match="it has none"):
        store.publish(SKU, "x")


def test_a_history_line_torn_by_a_kill_is_passed_over(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a"))
    store.publish(SKU, calibration.id)
    with (store.root / SKU / "history.jsonl").open("a") as stream:
        stream.write('{"at": 1, "id"')
    assert len(store.history(SKU)) == 1
