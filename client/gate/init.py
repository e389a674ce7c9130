"""`tilewise check --init`: a first policy for the configurations that lie in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewise.client.client import TilewiseClient
from tilewise.client.gate.inputs import POLICY, NothingToCheck
from tilewise.client.question import read_model, read_text
from tilewise.hwdb.errors import InvalidInput, TilewiseError
from tilewise.server.architecture import read
from tilewise.server.architecture.stated import check_stated
from tilewise.server.messages.words import plain
from tilewise.v1.advisor_service_pb2 import DETAIL_LAYERS, PredictRequest
from tilewise.v1.workload_pb2 import PHASE_DECODE, PHASE_PREFILL, PHASE_TRAIN, RECOMPUTE_FULL, Workload

GPU = "h100-sxm5-80gb"
LENGTH = 2048  # tokens: below the longest that any language model of the examples takes
SPLITS = (1, 2, 4, 8)  # GPUs of one host
WORKLOADS = {
    "train": Workload(phase=PHASE_TRAIN, batch=1, sequence=LENGTH, recompute=RECOMPUTE_FULL),
    "prefill": Workload(phase=PHASE_PREFILL, batch=1, sequence=LENGTH),
    "decode": Workload(phase=PHASE_DECODE, batch=8, context=LENGTH),
}
HEAD = """# The policy of `tilewise check`; patterns are relative to this file. docs/gate.md explains every key, `tilewise check --schema` prints
# the JSON schema for editors.
[check]
gpus = ["{gpu}"]         # what you run on: `tilewise gpus list`
"""
BUDGET = """
[[check.budget]]
config = "{pattern}"
metric = "time_s"
max_regression = "2 %"        # against the base; a new configuration is not judged by it
max_left_on_table = "5 %"     # what `tilewise recommend`'s best free win would save; judges new configurations too
"""


def init(folder: Path) -> tuple[Path, str]:
    """Write a policy into a folder: its path, and what it judges in one sentence.

    Raises InvalidInput where there is one already, NothingToCheck where no configuration is found.
    """
    path = folder / POLICY
    if path.exists():
        raise InvalidInput(
            f"{path} is there already: --init writes a first policy", reason="BAD_POLICY", field="policy"
        )
    every = list(_files(folder))
    found = [file for file in every if _is_config(file)]
    if not found:
        message = f"no config.json of a known family in {folder} or below it"
        raise NothingToCheck(message, reason="NOTHING_TO_CHECK", field="config")
    names, known = ([file.relative_to(folder) for file in files] for files in (found, every))
    shown = patterns(names, known)
    workloads, split = _possible(found)
    path.write_text(_policy(shown, workloads, split), encoding="utf-8")
    what = f"{len(found)} configuration{'s' if len(found) > 1 else ''} ({', '.join(shown)})"
    return path, f"{what} on {GPU}: {', '.join(workloads)}"


def _files(folder: Path) -> Iterator[Path]:
    """JSON files and TOML shapes, without hidden folders."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.suffix in (".json", ".toml") and path.is_file() and not any(part.startswith(".") for part in inside):
            yield path


def _is_config(path: Path) -> bool:
    try:
        text = read_text(str(path))
        read(text)
        check_stated(text)
    except TilewiseError:
        return False
    return True


def patterns(found: Sequence[Path], every: Sequence[Path]) -> list[str]:
    """Patterns that match what was found and nothing else: a name that all share, a folder's files, or single files."""
    others = set(every) - set(found)
    names = {path.name for path in found}
    if len(names) == 1 and len(found) > 1 and not any(path.name in names for path in others):
        return [f"**/{names.pop()}"]
    shown = []
    for path in found:
        kind = (path.parent, path.suffix)
        whole = not any((other.parent, other.suffix) == kind for other in others)
        shown.append((path.with_name("*" + path.suffix) if whole else path).as_posix())
    return list(dict.fromkeys(shown))


def _possible(found: Sequence[Path]) -> tuple[list[str], int]:
    """The workloads that every configuration runs on the fewest GPUs that hold them; decode and prefill decide how many."""
    fitting = {split: [name for name in WORKLOADS if _runs(found, name, split)] for split in SPLITS}
    split = next((split for split, names in fitting.items() if len(names) >= 2), 1)
    return fitting[split] or list(WORKLOADS)[1:], split


def _runs(found: Sequence[Path], name: str, split: int) -> bool:
    workload = Workload(tensor_parallel=split)
    workload.MergeFrom(WORKLOADS[name])
    with TilewiseClient(None) as client:
        for path in found:
            asked = PredictRequest(
                model=read_model(str(path), {}, False), workload=workload, gpu=GPU, detail=DETAIL_LAYERS
            )
            try:
                if not client.predict(asked).memory.fits:
                    return False
            except TilewiseError:
                return False
    return True


def _policy(shown: Sequence[str], workloads: Sequence[str], split: int) -> str:
    parts = [HEAD.format(gpu=GPU), *(_workload(name, split) for name in workloads)]
    return "".join([*parts, *(BUDGET.format(pattern=pattern) for pattern in shown)])


def _workload(name: str, split: int) -> str:
    fields = {"name": name, **plain(WORKLOADS[name]), **({"tensor_parallel": split} if split > 1 else {})}
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in fields.items()]
    return "\n[[check.workload]]\n" + "\n".join(lines) + "\n"
