"""Imports go one way: client -> server -> hwdb, calibration -> hwdb; heavy libraries stay where they belong."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("hwdb", "server", "client", "calibration")
ALLOWED = {
    "hwdb": {"hwdb"},
    "server": {"server", "hwdb", "v1"},
    "client": {"client", "server", "hwdb", "v1", "calibration"},
    "calibration": {"calibration", "hwdb"},
}
KNOW_V1 = (
    "server/messages/",
    "server/service/rpc/",
    *(f"server/service/{each}.py" for each in ("servicers", "batch", "uploads")),
)
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that a piece of code imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_when_loaded(tree: ast.AST) -> Iterator[str]:
    """What is imported when the module is, so neither in functions nor for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node):
            continue
        yield from imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else imports_when_loaded(node)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def tops(modules: Iterator[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    used = {module.split(".")[1] for module in imports(parsed(path)) if module.startswith("tilewise.")}
    assert used & {*ROOMS, "v1"} <= ALLOWED[room]


def test_no_imports_run_in_a_circle() -> None:
    modules = {name(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in FILES}
    graph = {module: {above(each, modules) for each in imports(parsed(path))} for module, path in modules.items()}
    TopologicalSorter(graph).prepare()


def above(imported: str, modules: Mapping[str, Path]) -> str:
    """The module that an import runs: what is imported, or what it is imported from."""
    inside = imported.removeprefix("tilewise.")
    return inside if inside in modules else inside.rpartition(".")[0]


@pytest.mark.parametrize("path", [path for path in FILES if name(path).startswith("server/")], ids=name)
def test_of_the_server_messages_and_the_methods_that_take_and_give_them_alone_know_the_contract(path: Path) -> None:
    if not name(path).startswith(KNOW_V1):
        contract = ("tilewise.v1", "tilewise.server.messages", "google")
        assert not [module for module in imports(parsed(path)) if module.startswith(contract)]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_torch_is_imported_by_benchmarks_and_the_tracer_alone(path: Path) -> None:
    if not name(path).startswith(("calibration/benchmarks/", "server/trace")):
        assert "torch" not in tops(imports(parsed(path)))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_scipy_and_matplotlib_are_imported_inside_functions_alone(path: Path) -> None:
    assert not tops(imports_when_loaded(parsed(path))) & {"scipy", "matplotlib"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_database_is_imported_where_a_store_is_opened_alone(path: Path) -> None:
    heavy = {"sqlalchemy", "psycopg", "prometheus_client", "opentelemetry"}
    if not name(path).startswith("hwdb/store/"):
        assert not tops(imports_when_loaded(parsed(path))) & heavy


@pytest.mark.parametrize("path", [path for path in FILES if name(path).startswith("hwdb/")], ids=name)
def test_hwdb_knows_neither_protobuf_nor_grpc_nor_http(path: Path) -> None:
    assert not tops(imports(parsed(path))) & {"google", "grpc", "grpc_status", "http", "urllib", "requests", "click"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_grpc_is_imported_by_the_server_process_and_the_remote_client_alone(path: Path) -> None:
    if not name(path).startswith(
        ("server/service/app.py", "server/service/rpc/", "server/service/identity/tls.py", "client/remote.py")
    ):
        assert not tops(imports(parsed(path))) & {"grpc", "grpc_status"}
