"""The contract is documented, stays compatible, and its committed code is what its sources generate."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).parent / "tilewise_v1.txt"
sys.path.append(str(ROOT / "scripts"))
PROTO_VERSION = "1.80.0"


@pytest.fixture(scope="module")
def contract() -> list[FileDescriptorProto]:
    """The descriptors of tilewise.v1, comments included."""
    found: list[FileDescriptorProto] = import_module("generate_proto").descriptors()
    return found


def test_committed_code_is_what_the_sources_generate(tmp_path: Path) -> None:
    assert version("grpcio-tools") == PROTO_VERSION
    import_module("generate_proto").generate(tmp_path)
    fresh = {path.name: path.read_text() for path in (tmp_path / "tilewise/v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "proto/tilewise/v1").glob("*_pb2*")}
    assert fresh == committed


def test_committed_answers_are_what_the_sources_generate(contract: list[FileDescriptorProto]) -> None:
    generate = import_module("generate_proto")
    assert generate.source(contract) == generate.ANSWERS.read_text(encoding="utf-8"), "run scripts/generate_proto.py"


def test_everything_in_the_contract_has_a_comment(contract: list[FileDescriptorProto]) -> None:
    bare = [name for file in contract for name, comment in commented(file) if len(comment.split()) < 2]
    assert bare == []


def test_a_request_says_of_each_field_what_leaving_it_out_means(contract: list[FileDescriptorProto]) -> None:
    asked = {name for file in contract for name in request_messages(file)}
    comments = {name: comment for file in contract for name, comment in commented(file)}
    silent = [
        name
        for name, comment in comments.items()
        if name.rpartition(".")[0] in asked
        and not any(
            word in comment for word in ("Required", "Unset", "Empty", "one of the two", "exactly one", "1..10,000")
        )
        and not in_a_choice(contract, name)
    ]
    assert silent == []


def test_numbers_in_the_contract_are_never_unsigned(contract: list[FileDescriptorProto]) -> None:
    lines = [line for line in described(contract) if " uint" in line or " fixed" in line]
    assert lines == []


def test_the_contract_only_grows(contract: list[FileDescriptorProto]) -> None:
    """Whoever adds to the contract adds the new lines to the snapshot; a line that is gone breaks a client."""
    committed = SNAPSHOT.read_text().splitlines()
    now = described(contract)
    assert sorted(set(committed) - set(now)) == []
    assert sorted(set(now) - set(committed)) == []


def request_messages(file: FileDescriptorProto) -> Iterator[str]:
    """Names of messages that a client fills in: requests and what they hold of their own file."""
    for message in file.message_type:
        if message.name.endswith("Request") or message.name in (
            "Workload", "Model", "Axis", "Range", "WeightedWorkload", "Neighbourhood", "CheckItem",
            "UploadHeader", "UploadFile", "FileChunk",
        ):  # fmt: skip
            yield message.name


def in_a_choice(contract: list[FileDescriptorProto], name: str) -> bool:
    message_name, _, field_name = name.rpartition(".")
    fields = (f for file in contract for m in file.message_type if m.name == message_name for f in m.field)
    return any(f.name == field_name and f.HasField("oneof_index") and not f.proto3_optional for f in fields)


def commented(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Every message, field, choice, enum, value, service and method of a file with its comment."""
    comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    for i, message in enumerate(file.message_type):
        yield message.name, comments[4, i]
        for j, field in enumerate(message.field):
            yield f"{message.name}.{field.name}", comments[4, i, 2, j]
    for i, enum in enumerate(file.enum_type):
        yield enum.name, comments[5, i]
        for j, value in enumerate(enum.value):
            yield value.name, comments[5, i, 2, j]
    for i, service in enumerate(file.service):
        yield service.name, comments[6, i]
        for j, method in enumerate(service.method):
            yield f"{service.name}.{method.name}", comments[6, i, 2, j]


def described(contract: list[FileDescriptorProto]) -> list[str]:
    """The contract as sorted lines, one a field, value or method: what a client may depend on."""
    lines = []
    for file in contract:
        for message in file.message_type:
            lines += message_lines(message)
        lines += [f"{enum.name}.{value.name} = {value.number}" for enum in file.enum_type for value in enum.value]
        for service in file.service:
            lines += [
                f"{service.name}.{m.name}({'stream ' * m.client_streaming}{m.input_type}) "
                f"returns ({'stream ' * m.server_streaming}{m.output_type})"
                for m in service.method
            ]
    return sorted(lines)


def message_lines(message: DescriptorProto) -> Iterator[str]:
    for field in message.field:
        kind = field.type_name or field.Type.Name(field.type).removeprefix("TYPE_").lower()
        label = field.Label.Name(field.label).removeprefix("LABEL_").lower()
        presence = "optional " if field.proto3_optional else ""
        yield f"{message.name}.{field.name} = {field.number}: {presence}{label} {kind}"
    for nested in message.nested_type:
        yield from (f"{message.name}.{line}" for line in message_lines(nested))


if __name__ == "__main__":  # python tests/contract/test_proto.py: write the snapshot anew
    lines = described(import_module("generate_proto").descriptors())
    SNAPSHOT.write_text("\n".join(lines) + "\n")
