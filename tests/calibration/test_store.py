"""A server's calibrations, in SQLite and in PostgreSQL: uploads are all or nothing, publishing can be undone."""

import gc
import hashlib
import io
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData, inspect, select
from sqlalchemy.engine import make_url

from tilewise.hwdb.calibration import Calibration, identify
from tilewise.hwdb.errors import Conflict, InvalidInput, NotAvailable, NotFound, TooLarge, Unavailable
from tilewise.hwdb.judged import UNPACKED_MAX
from tilewise.hwdb.scratch import Scratch
from tilewise.hwdb.served import ServedDatabase
from tilewise.hwdb.store import engine, tables
from tilewise.hwdb.store.announced import Announced
from tilewise.hwdb.store.shelf import Shelf
from tilewise.hwdb.store.store import CANDIDATE_S, DELETED_S, SHARED, STALE_S, Store
from tilewise.hwdb.store.uploads import COUNTED_MIN, EMPTY_S, STAGED_MAX, STAGED_OF_CALLER, Upload

Make = Callable[..., Calibration]
SKU = "h100-sxm5-80gb"
ALL = (SHARED,)


def announced(calibration: Calibration) -> dict[str, Announced]:
    contents = {name: (calibration.folder / name).read_bytes() for name in calibration.files()}
    return {name: Announced(len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()}


def begin(store: Store, calibration: Calibration, tenant: str = SHARED, who: str = "") -> Upload:
    return Upload(store, tenant, SKU, calibration.id, calibration.content_sha256(), announced(calibration), who)


def send(upload: Upload, calibration: Calibration, piece: int = 1000) -> None:
    for name in calibration.files():
        data = (calibration.folder / name).read_bytes()
        for offset in range(0, len(data), piece):
            upload.write(name, offset, data[offset : offset + piece])


def uploaded(store: Store, calibration: Calibration, tenant: str = SHARED) -> Calibration:
    upload = begin(store, calibration, tenant, "ann")
    send(upload, calibration, 8000)
    return upload.finish()


def staged(store: Store) -> int:
    """Rows of uploads on their way."""
    with engine.reading(store.engine) as connection:
        each = (tables.upload_file, tables.upload_piece)
        return sum(len(connection.execute(table.select()).all()) for table in each)


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    store = Store(where)
    yield store
    store.close()


@pytest.fixture
def replica(where: str, store: Store) -> Iterator[Store]:
    """A second process's view of the same store."""
    second = Store(where)
    yield second
    second.close()


def test_an_upload_arrives_whole(make: Make, store: Store) -> None:
    calibration = make("a")
    assert uploaded(store, calibration).content_sha256() == calibration.content_sha256()
    assert store.ids(ALL, SKU) == (calibration.id,)
    assert staged(store) == 0


def test_an_upload_cut_short_leaves_nothing_to_be_seen_and_goes_on_at_any_replica(
    make: Make, store: Store, replica: Store
) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    upload.write("card.json", 0, (calibration.folder / "card.json").read_bytes()[:100])
    assert store.ids(ALL, SKU) == ()
    again = begin(replica, calibration)
    assert again.received()["card.json"] == 100
    send(again, calibration)
    assert again.finish().id == calibration.id


def test_an_upload_nobody_goes_on_with_is_forgotten(make: Make, store: Store) -> None:
    begin(store, make("a"))
    store.sweep()
    assert staged(store)
    store.sweep(time.time() + STALE_S + 10)
    assert not staged(store)


@pytest.mark.parametrize("name", ["card.json", "measurements/gemm.csv"])
def test_a_broken_upload_leaves_nothing_behind(make: Make, store: Store, name: str) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    path = calibration.folder / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    send(upload, calibration)
    with pytest.raises(InvalidInput, match="hash differs"):
        upload.finish()
    assert (staged(store), store.ids(ALL, SKU), store.history(SHARED, SKU)) == (0, (), [])


def test_an_upload_under_another_id_is_refused(make: Make, store: Store) -> None:
    calibration = make("a")
    upload = Upload(store, SHARED, SKU, "2026-11-28-00000000", calibration.content_sha256(), announced(calibration))
    send(upload, calibration)
    with pytest.raises(InvalidInput, match="the files are calibration"):
        upload.finish()
    assert store.ids(ALL, SKU) == ()


def test_uploading_again_changes_nothing(make: Make, store: Store) -> None:
    calibration = make("a")
    uploaded(store, calibration)
    assert uploaded(store, calibration).id == calibration.id
    assert store.ids(ALL, SKU) == (calibration.id,)


@pytest.mark.parametrize("path", ["../card.json", "/etc/passwd", "models/../../x.json", "card.json/x", "models/a.py"])
def test_a_path_outside_the_calibration_is_refused(make: Make, store: Store, path: str) -> None:
    calibration = make("a")
    with pytest.raises(InvalidInput, match="no file of a calibration"):
        Upload(store, SHARED, SKU, calibration.id, calibration.content_sha256(), {path: Announced(1, "0" * 64)})


def test_too_large_a_file_is_refused_before_it_comes(store: Store) -> None:
    with pytest.raises(TooLarge):
        Upload(store, SHARED, SKU, "a", "0" * 64, {"card.json": Announced(2**40, "0" * 64)})


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
    assert upload.received()["card.json"] == 90
    send(upload, calibration)
    assert upload.finish().content_sha256() == calibration.content_sha256()


def test_publishing_makes_it_answer_and_rolling_back_undoes_it(make: Make, store: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    assert store.publish(SHARED, SKU, first.id, "ann") is None
    assert store.publish(SHARED, SKU, second.id, "bob", "newer driver") == first.id
    assert store.active(ALL, SKU) == second.id
    assert store.rollback(SHARED, SKU, who="ann") == (first.id, second.id)
    assert store.active(ALL, SKU) == first.id
    decided = [entry for entry in store.history(SHARED, SKU) if entry.action != "upload"]
    assert [(entry.who, entry.action) for entry in decided] == [
        ("ann", "publish"),
        ("bob", "publish"),
        ("ann", "rollback"),
    ]
    assert (decided[1].before, decided[1].reason) == (first.id, "newer driver")


def test_a_publisher_who_is_out_of_date_is_told(make: Make, store: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    store.publish(SHARED, SKU, first.id)
    with pytest.raises(Conflict, match="is active, not"):
        store.publish(SHARED, SKU, second.id, expected_active="another")


def test_what_was_not_production_never_answers(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a", production=False))
    with pytest.raises(NotAvailable, match="never answers"):
        store.publish(SHARED, SKU, calibration.id)
    assert store.active(ALL, SKU) is None


def test_there_is_nothing_to_roll_back_to_at_first(make: Make, store: Store) -> None:
    with pytest.raises(NotAvailable, match="no earlier calibration"):
        store.rollback(SHARED, SKU)
    with pytest.raises(NotFound, match="it has none"):
        store.publish(SHARED, SKU, "x")


def test_a_replica_sees_a_promotion_at_its_next_look(make: Make, store: Store, replica: Store) -> None:
    calibration = uploaded(store, make("a"))
    store.publish(SHARED, SKU, calibration.id)
    assert replica.active(ALL, SKU) is None
    assert replica.refresh() and not replica.refresh()
    assert replica.active(ALL, SKU) == calibration.id
    assert replica.open(ALL, SKU, calibration.id).content_sha256() == calibration.content_sha256()


def test_what_one_tenant_has_no_other_sees(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a"), tenant="red")
    store.publish("red", SKU, calibration.id, "rita")
    packaged = ServedDatabase.packaged()
    red, blue = (ServedDatabase(packaged.folder, store, tenant) for tenant in ("red", "blue"))
    assert (red.active(SKU), blue.active(SKU)) == (calibration.id, packaged.active(SKU))
    assert set(red.calibrations(SKU)) - set(blue.calibrations(SKU)) == {calibration.id}
    assert (red.version == blue.version, blue.version) == (False, ServedDatabase(packaged.folder, store).version)
    with pytest.raises(NotFound) as hidden:
        blue.calibration(SKU, calibration.id)
    with pytest.raises(NotFound) as absent:
        blue.calibration(SKU, "2026-01-01-00000000")
    assert hidden.value.message == absent.value.message.replace("2026-01-01-00000000", calibration.id)
    assert store.history("blue", SKU) == []
    with pytest.raises(NotFound):
        store.publish("blue", SKU, calibration.id)
    # and an upload of the same content does not tell that somebody has it
    assert set(begin(store, make("a2"), tenant="blue").received().values()) == {0}


def test_everybody_sees_what_is_shared_and_ones_own_comes_first(make: Make, store: Store) -> None:
    shared, own = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02), tenant="red")
    store.publish(SHARED, SKU, shared.id)
    red = ServedDatabase(ServedDatabase.packaged().folder, store, "red")
    assert red.active(SKU) == shared.id
    store.publish("red", SKU, own.id)
    assert red.active(SKU) == own.id and red.calibration(SKU, shared.id).id == shared.id


def test_a_calibration_never_changes(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a"))
    with pytest.raises(Conflict, match="never change"):
        Upload(store, SHARED, SKU, calibration.id, "0" * 64, announced(calibration))


def test_two_uploads_of_the_same_content_at_once_are_one(make: Make, store: Store, replica: Store) -> None:
    calibration = make("a")
    threads = [threading.Thread(target=uploaded, args=(each, calibration)) for each in (store, replica) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.refresh()
    assert store.ids(ALL, SKU) == (calibration.id,)
    assert [entry.action for entry in store.history(SHARED, SKU)] == ["upload"]


def test_two_publishers_who_believe_the_same_cannot_both_be_right(make: Make, store: Store, replica: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    replica.refresh()
    store.publish(SHARED, SKU, first.id, expected_active="")
    with pytest.raises(Conflict):
        replica.publish(SHARED, SKU, second.id, expected_active="")


def test_a_tenant_and_a_caller_have_so_many_uploads_on_their_way_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"card.json": Announced(1, "0" * 64)}
    for number in range(STAGED_MAX):
        who = f"caller {number // STAGED_OF_CALLER}"
        Upload(store, SHARED, SKU, "a", f"{number:064x}", files, who)
        if number == STAGED_OF_CALLER - 1:
            with pytest.raises(TooLarge, match="4 uploads of caller 0"):
                Upload(store, SHARED, SKU, "a", "f" * 64, files, who)
    with pytest.raises(TooLarge, match="on their way"):
        Upload(store, SHARED, SKU, "a", "f" * 64, files, "another")
    Upload(store, "red", SKU, "a", "f" * 64, files, "another")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + EMPTY_S + 2)
    Upload(store, SHARED, SKU, "a", "f" * 64, files, "another")  # nothing has come of the others


def test_a_tenant_keeps_so_many_bytes_and_no_more(make: Make, where: str) -> None:
    store = Store(where, quota_bytes=2 * COUNTED_MIN)
    first = uploaded(store, make("a"))
    uploaded(store, make("b", scale=1.02))
    third = make("c", scale=1.03)
    with pytest.raises(TooLarge, match="have 2 MiB, this one 0; at most 2") as caught:
        begin(store, third)
    assert caught.value.reason == "QUOTA_EXCEEDED"
    begin(store, third, "red")
    store.delete(SHARED, SKU, first.id)
    store.sweep(time.time() + DELETED_S + 2)
    assert begin(store, third)
    store.close()


def test_what_was_deleted_is_seen_nowhere_and_comes_back_when_it_is_sent_again(
    make: Make, store: Store, replica: Store
) -> None:
    calibration = make("a")
    first, second = uploaded(store, calibration), uploaded(store, make("b", scale=1.02))
    store.publish(SHARED, SKU, first.id)
    store.publish(SHARED, SKU, second.id)
    with pytest.raises(NotAvailable, match="answers; publish another"):
        store.delete(SHARED, SKU, second.id)
    store.delete(SHARED, SKU, first.id, "ann", "wrong driver")
    replica.refresh()
    for each in (store, replica):
        assert each.ids(ALL, SKU) == (second.id,)
        with pytest.raises(NotFound):
            each.open(ALL, SKU, first.id)
        with pytest.raises(NotFound):
            each.publish(SHARED, SKU, first.id)
        with pytest.raises(NotFound):
            each.delete(SHARED, SKU, first.id)
        with pytest.raises(NotAvailable, match="no earlier"):
            each.rollback(SHARED, SKU)
    last = store.history(SHARED, SKU)[-1]
    assert (last.action, last.id, last.who, last.reason) == ("delete", first.id, "ann", "wrong driver")
    assert uploaded(store, calibration).id == first.id
    assert store.rollback(SHARED, SKU) == (first.id, second.id)


def test_a_shared_calibration_that_answers_a_tenant_is_not_deleted(make: Make, store: Store) -> None:
    calibration = make("a")
    shared = uploaded(store, calibration)
    store.publish("red", SKU, shared.id)
    with pytest.raises(NotAvailable) as caught:
        store.delete(SHARED, SKU, shared.id)
    assert caught.value.reason == "CALIBRATION_ACTIVE" and "red" not in caught.value.message
    with pytest.raises(NotFound):
        store.delete("red", SKU, shared.id)  # it is not the tenant's own
    uploaded(store, calibration, "red")
    store.delete(SHARED, SKU, shared.id)


def test_a_candidate_that_nobody_publishes_expires_and_a_deleted_one_is_purged(make: Make, store: Store) -> None:
    candidate, active = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    store.publish(SHARED, SKU, active.id)
    store.sweep(time.time() + CANDIDATE_S - 3600)
    store.refresh()
    assert len(store.ids(ALL, SKU)) == 2
    store.sweep(time.time() + CANDIDATE_S + 3600)
    store.refresh()
    assert store.ids(ALL, SKU) == (active.id,)
    assert [(entry.action, entry.id) for entry in store.history(SHARED, SKU)][-1] == ("expire", candidate.id)
    store.sweep(time.time() + DELETED_S + 3600)
    with engine.reading(store.engine) as connection:
        assert set(connection.execute(select(tables.calibration_file.c.id)).scalars()) == {active.id}


def test_a_tenant_called_shared_is_another_than_the_one_that_everybody_sees(make: Make, store: Store) -> None:
    calibration = make("a")
    assert uploaded(store, calibration).folder != uploaded(store, calibration, "shared").folder


def test_what_is_kept_at_hand_is_bounded_and_goes_with_its_last_user(make: Make) -> None:
    shelf, calibration = Shelf(bytes_max=1), make("a")
    contents = {name: calibration.folder.joinpath(name).read_bytes() for name in calibration.files()}
    first = shelf.get(("", SKU, "1"), lambda: contents)
    shelf.get(("", SKU, "2"), lambda: contents)
    assert first.content_sha256() == calibration.content_sha256()  # it is in use, so its files are there
    folder = first.folder
    del first
    gc.collect()
    assert not folder.exists()
    shelf.close()


def test_the_file_of_a_store_is_its_owners_alone(tmp_path: Path) -> None:
    Store(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}


def test_folders_of_a_process_that_was_killed_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    script = "import sys, time\nfrom tilewise.hwdb.scratch import Scratch\nx = Scratch()\nprint(x.path, flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    with Scratch() as mine:
        assert left.is_dir() and mine.path.is_dir()  # both are in use
        process.kill()
        process.wait()
        with Scratch():
            assert not left.exists() and mine.path.is_dir()
    assert list(tmp_path.iterdir()) == []
    process.stdout.close()


def test_an_archive_that_would_fill_the_memory_is_refused(make: Make, store: Store) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(UNPACKED_MAX + 1))
    calibration = make("a")
    (calibration.folder / "measurements").mkdir(exist_ok=True)
    (calibration.folder / "measurements" / "choices.npz").write_bytes(packed.getvalue())
    with pytest.raises(InvalidInput, match=r"choices\.npz holds 1 arrays of 67108865 bytes; at most"):
        uploaded(store, identify(calibration.folder))


def test_the_migrations_make_the_tables_that_the_code_knows(store: Store) -> None:
    found = MetaData()
    found.reflect(store.engine)
    made = {name: {column.name for column in table.columns} for name, table in found.tables.items()}
    assert made.pop("migration") == {"number", "at"}
    assert made == {name: {column.name for column in table.columns} for name, table in tables.metadata.tables.items()}


def test_a_page_of_the_log_is_found_without_reading_all_of_it(make: Make, store: Store) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    for number in range(3):
        store.publish(SHARED, SKU, (first, second)[number % 2].id)
    whole = store.history(SHARED, SKU)[::-1]
    assert store.newest(SHARED, SKU, 0, 2) + store.newest(SHARED, SKU, 2, 9) == whole
    assert store.newest("blue", SKU, 0, 9) == store.newest(SHARED, SKU, 5, 9) == []
    assert any(index["name"] == "audit_of" for index in inspect(store.engine).get_indexes("audit"))


def test_a_list_reads_cards_alone(make: Make, store: Store) -> None:
    calibration = uploaded(store, make("a"))
    store.shelf.drop((SHARED, SKU, calibration.id))
    assert store.card(ALL, SKU, calibration.id).card == calibration.card and not store.shelf.size_bytes()
    with pytest.raises(NotFound, match="it has"):
        store.card(ALL, SKU, "none")


def test_pieces_of_a_few_bytes_do_not_fill_the_database(make: Make, store: Store) -> None:
    calibration = make("a")
    upload, data = begin(store, calibration), (calibration.folder / "card.json").read_bytes()
    with pytest.raises(InvalidInput, match="64 pieces of 64 bytes together; send 65536 in one"):
        for offset in range(len(data)):
            upload.write("card.json", offset, data[offset : offset + 1])
    upload.write("card.json", 0, data[:64])  # what has come already is no piece


def test_a_store_that_a_newer_version_has_changed_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / engine.SQLITE_FILE) as connection:
        connection.execute("INSERT INTO migration VALUES (999, 0)")
    connection.close()
    with pytest.raises(InvalidInput, match="migration 999"):
        Store(tmp_path)


def test_a_database_that_is_not_there_is_unavailable_and_no_password_is_told() -> None:
    with pytest.raises(Unavailable) as caught:
        Store("postgresql://tilewise:secret@127.0.0.1:1/x")
    assert "secret" not in caught.value.message


def test_a_clock_that_jumps_changes_neither_the_order_nor_what_answers(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = uploaded(store, make("a")), uploaded(store, make("b", scale=1.02))
    store.publish(SHARED, SKU, first.id)
    monkeypatch.setattr("time.time", lambda: 0.0)
    store.publish(SHARED, SKU, second.id)
    assert store.active(ALL, SKU) == second.id
    assert [entry.id for entry in store.history(SHARED, SKU)][-2:] == [first.id, second.id]
    assert store.rollback(SHARED, SKU) == (first.id, second.id)


def test_an_upload_that_a_clock_made_look_old_is_begun_anew(
    make: Make, store: Store, replica: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration = make("a")
    upload = begin(store, calibration)
    upload.write("card.json", 0, b"{")
    monkeypatch.setattr("time.time", lambda: 4e9)
    replica.sweep()
    with pytest.raises(Conflict) as caught:
        upload.write("card.json", 1, b"x")
    assert caught.value.reason == "UPLOAD_RESTARTED"
    assert uploaded(replica, calibration).id == calibration.id


def test_a_database_without_an_encoding_of_its_own_answers_words_all_the_same(make: Make, postgresql: str) -> None:
    """initdb in the C locale, as in bare containers, makes SQL_ASCII databases."""
    import psycopg

    plain = f"plain_{hashlib.sha256(postgresql.encode()).hexdigest()[:8]}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {plain} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    try:
        store = Store(make_url(postgresql).set(database=plain).render_as_string(hide_password=False))
        calibration = uploaded(store, make("a"))
        assert store.ids(ALL, SKU) == (calibration.id,)
        store.close()
    finally:
        with psycopg.connect(postgresql, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {plain} WITH (FORCE)")
