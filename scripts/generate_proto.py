"""Generate the Python code of proto/tilewise/v1/*.proto beside the sources, or into another folder, and client/answers.py.

    python scripts/generate_proto.py [FOLDER]

Needs grpcio-tools==1.80.0: its code works with protobuf 6.31.1 and everything newer. The result is committed, so that an
install from a clone needs no compiler; tests/contract compares it with a fresh run.
"""

import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from generate_answers import source
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO, ANSWERS = ROOT / "proto", ROOT / "client" / "answers.py"


def sources() -> list[str]:
    return sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("tilewise/v1/*.proto"))


def includes() -> list[str]:
    """Where imports are looked up: ours, google/rpc of googleapis-common-protos, google/protobuf of grpcio-tools."""
    google = files("google.rpc").joinpath("../..")
    return [f"-I{PROTO}", f"-I{google}", f"-I{files('grpc_tools').joinpath('_proto')}"]


def generate(folder: Path) -> None:
    """Write *_pb2.py, *_pb2.pyi, and *_pb2_grpc.py for the services, under `folder`/tilewise/v1."""
    run(f"--python_out={folder}", f"--pyi_out={folder}", *sources())
    run(f"--grpc_python_out={folder}", *(source for source in sources() if source.endswith("_service.proto")))


def descriptors() -> list[FileDescriptorProto]:
    """What the sources declare, comments included."""
    with TemporaryDirectory() as folder:
        output = Path(folder) / "set.bin"
        run("--include_source_info", f"--descriptor_set_out={output}", *sources())
        return list(FileDescriptorSet.FromString(output.read_bytes()).file)


def run(*arguments: str) -> None:
    if protoc.main(["protoc", *includes(), *arguments]) != 0:
        raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO)
    if len(sys.argv) == 1:
        ANSWERS.write_text(source(descriptors()), encoding="utf-8")
