"""Settings come from flags, environment, file and defaults, in that order, and can be looked at."""

import json
from pathlib import Path

import pytest

from tilewise.client.cli import main
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.service.settings import Settings, settings_fields


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["config", "show", *arguments])
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out + printed.err


def test_each_setting_is_shown_with_its_source(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.toml"
    path.write_text('threads = 3\nqueue = 9\nstall_s = 5\nmetrics_address = "127.0.0.1:9464"\n')
    monkeypatch.setenv("TILEWISE_QUEUE", "10")
    monkeypatch.setenv("TILEWISE_STALL_S", "6")
    code, text = shown(capsys, "--config", str(path), "--stall-s", "7", "--format", "json")
    assert code == 0
    found = {name: (row["value"], row["source"]) for name, row in json.loads(text).items()}
    assert set(found) == {field.name for field in settings_fields()}
    assert found["threads"] == (3, "file")
    assert found["queue"] == (10, "environment")
    assert found["stall_s"] == (7.0, "flag")
    assert found["workers"] == (1, "default")


def test_a_password_is_not_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for url, without in (
        ("postgresql://tilewise:secret@db.example.org/x", "postgresql://tilewise:***@db.example.org/x"),
        (
            "postgresql://db/x?user=a&password=secret&sslmode=require",
            "postgresql://db/x?user=a&password=***&sslmode=require",
        ),
        ("postgresql://tilewise:sec@ret@db/x", "postgresql://tilewise:***@db/x"),
        ("postgresql://db/x?sslpassword=secret", "postgresql://db/x?sslpassword=***"),
    ):
        monkeypatch.setenv("TILEWISE_STORE", url)
        code, text = shown(capsys)
        assert code == 0 and "sec" not in text.replace("_s", "").replace("insecure", "") and without in text
        monkeypatch.delenv("TILEWISE_STORE")
        code, text = shown(capsys, "--store", url)  # everybody sees the arguments of a process
        assert code == 2 and "TILEWISE_STORE" in text and "secret" not in text


def test_a_databases_password_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    settings = Settings(store="postgresql://tilewise@127.0.0.1:1/x", store_password_file=str(tmp_path / "password"))
    assert settings.store_password() == "secret"
    with pytest.raises(InvalidInput, match="store_password_file"):
        Settings(store_password_file=str(tmp_path / "none")).store_password()


@pytest.mark.parametrize(
    "content, says",
    [
        ("thread = 3", "unknown setting 'thread'; nearest: threads"),
        ("threads = 'many'", "threads must be of type int, not str"),
        ("threads", "is no TOML"),
        ("threads = 0", "threads: 0 must be above 0"),
        ('address = "0.0.0.0:7337"', "would be served without TLS"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "server.toml"
    path.write_text(content)
    code, text = shown(capsys, "--config", str(path))
    assert code == 2 and says in text


@pytest.mark.parametrize("address", ["7337", "127.0.0.1:", "127.0.0.1:99999", ":7337"])
def test_an_address_has_a_host_and_a_port(address: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        Settings(address=address)


def test_a_token_goes_to_stdout_and_its_entry_to_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tilewise.server.service.identity.callers import Callers

    with pytest.raises(SystemExit):
        main(["token", "ci", "--role", "calibrator", "--tenant", "red", "--expires", "2999-01-01"])
    token, entry = capsys.readouterr()
    assert token.strip() not in entry
    (tmp_path / "callers.toml").write_text(entry)
    caller = Callers(tmp_path / "callers.toml").by_token(token.strip())
    assert (caller.name, caller.tenant, caller.role.name) == ("ci", "red", "CALIBRATOR")
