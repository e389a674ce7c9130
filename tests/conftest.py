"""Fixtures that every test may use."""

import os
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# A suite started in the background finds SIGINT ignored, and programs inherit that: those that a test interrupts would run for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A busy machine is no fault of the code: no example has a deadline.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


# Servers of tests leave their tokens there, not where the user's own are.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tests-state-")

SHARED = Path(os.environ.get("TILEWISE_SHARED", ROOT.parent / "shared"))
LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that need the shared folder where there is none."""
    needing = [item for item in items if "shared" in getattr(item, "fixturenames", ())]
    if needing and not SHARED.is_dir():
        items[:] = [item for item in items if item not in set(needing)]
        config.hook.pytest_deselected(items=needing)
        config.stash[LEFT_OUT] = len(needing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if left_out := config.stash.get(LEFT_OUT, 0):
        said = f"{left_out} tests against measured tables were left out: no folder {SHARED} (TILEWISE_SHARED names another)"
        terminalreporter.write_line(said)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of measurements and referee tables, which is not part of the project; without it no test that needs it is run."""
    return SHARED


@pytest.fixture(scope="session")
def configs() -> Path:
    """The folder of published configs, with SOURCES.csv: where each comes from and how many parameters it has."""
    return ROOT / "tests" / "fixtures" / "published"


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own, made in the server that TILEWISE_TEST_POSTGRESQL names."""
    server = os.environ.get("TILEWISE_TEST_POSTGRESQL", "")
    if not server:
        pytest.skip("no PostgreSQL: TILEWISE_TEST_POSTGRESQL names none (scripts/with_postgresql.sh starts one)")
    import psycopg

    name = f"tilewise_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        head, question, options = server.partition("?")
        yield f"{head.rpartition('/')[0]}/{name}{question}{options}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store")
    url: str = request.getfixturevalue("postgresql")
    return url
