"""One key of a config changed at a time, beside the transformers library's own class on the meta device: parameters, FLOPs, cache.

    python scripts/research/check_keys.py [FAMILY ...] [--configs DIR] [--flops] [--sample N] [--output trials.csv] [--known FILE]

Each trial is exact, refused with the key's name, or wrong. What the class itself refuses to build is no trial. With --flops each
changed sparse default runs too: the FLOPs of a forward by torch's FlopCounterMode, of every eighth of a backward besides, and the
bytes of keys and values in the cache that the model fills. Left out on both sides: scans and their convolutions, indexers' scores (the
library writes them out in Python), the rotary angles. Some classes do not run on the meta device: their FLOPs are "unknown".
With --known the library's answers are kept in a file, so that a change of ours is judged anew in minutes.
"""

from __future__ import annotations

import argparse
import copy
import csv
import hashlib
import json
import random
import re
import sys
import tomllib
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, get_args

import library_class
import numpy as np
import transformers
from library_class import SEQUENCE, Truth, model_class
from msgspec.structs import replace

from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.table import Kind, OperatorTable
from tilewise.server.architecture import count, read
from tilewise.server.architecture.families import Family, family, names
from tilewise.server.operators import build
from tilewise.server.operators.conventions import by_shape
from tilewise.server.operators.plan import Plan
from tilewise.server.step.memory import kv_cache_bytes
from tilewise.server.workload import Workload

DEPTH = 6  # layers of a trial: enough for every pattern of layers but a period of its own
_DEPTHS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|(en|de)coder_layers|num_decoder_layers|depth)$")
_NOT_TRIED = re.compile(
    r"_token_id$|_token_index$|^_|^use_cache$|^num_labels$|^(return_dict|output_|is_|chunk_size_feed|torchscript)"
)
_LEFT_OUT = ("scan", "conv1d", "rope_angles", "indexer_scores", "index_scores", "index_sum")
_PASSES = {
    "forward_flops": Workload(phase="prefill", sequence=SEQUENCE, logits="all", stack="transformers"),
    "step_flops": Workload(phase="train", sequence=SEQUENCE, optimizer="none", stack="transformers"),
}
# mllama: cross-attention wants an image; zamba: its scan's projections are batched products like the scan itself
_NOT_RUN = ("mllama", "zamba")
_DECODE = Workload(phase="decode", context=SEQUENCE, stack="transformers")
# What a class needs beside its defaults to be a model
_NEEDED = tomllib.loads(Path(__file__).with_name("compare_families.toml").read_text(encoding="utf-8"))["keys"]
_OVERLOOKED = {"bloom-7b1-llmanalysis", "t5-v1_1-xxl-encoder"}  # files whose keys the library itself overlooks
# T5: the class ties what published files have apart
_OTHERWISE = {("t5", "tie_word_embeddings"), ("mt5", "tie_word_embeddings"), ("umt5", "tie_word_embeddings")}
_LISTS = ("layer_types", "mlp_layer_types", "layers_block_type", "no_rope_layers")


@dataclass(frozen=True)
class Trial:
    """One file: a base (the class default, written sparsely or in full, or a published file) with one key changed."""

    family: str
    base: str
    key: str
    value: str
    parameters: str  # "exact", "refused", "wrong", "unknown": the class does not run there, "not asked": nor was it
    forward_flops: str
    step_flops: str
    cached_bytes: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return "wrong" in (self.parameters, self.forward_flops, self.step_flops, self.cached_bytes)


class Known:
    """The library's answers, those of earlier runs from a file of lines [digest of the question, answer]."""

    def __init__(self, file: Path | None = None) -> None:
        self._lines = file.open("a+", encoding="utf-8", buffering=1) if file else None
        if self._lines:
            self._lines.seek(0)
        self._answers = dict(json.loads(line) for line in self._lines or ())

    def truth(self, config: dict[str, Any], runs: bool, backward: bool) -> Truth | None:
        question = json.dumps([transformers.__version__, config, runs, backward and runs], sort_keys=True)
        digest = hashlib.sha256(question.encode()).hexdigest()[:32]
        if digest in self._answers:
            answer = self._answers[digest]
            return None if answer is None else Truth(**answer)
        found = library_class.truth(config, runs, backward)
        if self._lines:
            self._lines.write(json.dumps([digest, None if found is None else asdict(found)]) + "\n")
        return found


KNOWN = Known()


def shallow(config: dict[str, Any]) -> dict[str, Any]:
    """The config with at most DEPTH layers in every part, lists of layers cut alike."""
    if "hybrid_override_pattern" in config:
        return config  # its depth is the pattern's length
    cut: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            cut[key] = shallow(value)
        elif type(value) is int and _DEPTHS.match(key):
            cut[key] = min(value, DEPTH)
        else:
            cut[key] = value[:DEPTH] if key in _LISTS and isinstance(value, list) else value
    return cut


def defaults(model_type: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The class default as a sparse file (depths alone) and as the library saves it."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    whole = json.loads(json.dumps(kind().to_dict(), default=str))
    needed = _NEEDED.get(model_type, {})
    sparse = {"model_type": model_type, **_depths(whole), **needed}
    if library_class.built(sparse) is None:
        sparse = {"model_type": model_type, **needed}  # the class wants its depth and another key changed together
    saved = json.loads(json.dumps(kind.from_dict(copy.deepcopy(sparse)).to_dict(), default=str))
    return sparse, {**saved, "model_type": model_type}


def _depths(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("_config") and (inner := _depths(value)):
            found[key] = {**({"model_type": value["model_type"]} if "model_type" in value else {}), **inner}
        elif type(value) is int and _DEPTHS.match(key):
            found[key] = min(value, DEPTH)
    return found


def choices(model_type: str, key: str) -> list[Any]:
    """What a Literal of the config class allows."""
    from transformers import CONFIG_MAPPING

    hint = CONFIG_MAPPING[model_type].__annotations__.get(key) if model_type in CONFIG_MAPPING else None
    arguments = [argument for part in (hint, *get_args(hint)) for argument in get_args(part)]
    return [argument for argument in arguments if isinstance(argument, str)]


def changed(value: Any, hint: str, few: bool) -> list[Any]:
    """Other values of a key."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value] if few else [other for other in (2 * value, 1, 0) if other != value]
    if value is None and "bool" in hint:
        return [True]
    if value is None and "int" in hint:
        return [2, 64]
    return []


def edits(
    config: dict[str, Any], like: dict[str, Any], few: bool, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path of a key, another value) for every integer, boolean and choice key of `like` and its parts."""
    from transformers import CONFIG_MAPPING

    model_type = like.get("model_type", "")
    hints = getattr(CONFIG_MAPPING[model_type], "__annotations__", {}) if model_type in CONFIG_MAPPING else {}
    for key, value in like.items():
        if _NOT_TRIED.search(key) or (model_type, key) in _OTHERWISE:
            continue
        if isinstance(value, dict):
            if key.endswith("_config") and key != "quantization_config":
                yield from edits(config, value, few, (*path, key))
            continue
        others = changed(value, str(hints.get(key, "")), few)
        others += [choice for choice in choices(model_type, key) if choice != value]
        yield from (((*path, key), other) for other in others)


def edited(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    result = copy.deepcopy(config)
    part = result
    for name in path[:-1]:
        part = part.setdefault(name, {})
    part[path[-1]] = value
    return result


def judged(config: dict[str, Any], base: str, path: tuple[str, ...], value: Any, runs: bool = False) -> Trial | None:
    """The trial of one changed key; None where the class does not build it."""
    runs = runs and base == "sparse" and config["model_type"] not in _NOT_RUN
    backward = not path or zlib.crc32(f"{path}{value}".encode()) % 8 == 0  # the same ones each time
    true = KNOWN.truth(config, runs, backward)
    if true is None:
        return None
    name = config["model_type"], base, ".".join(path), str(value)
    try:
        ours = counted(config, runs and not true.why)
    except TilewiseError as error:
        outcome = "refused" if _named(error, path, config["model_type"]) else "wrong"
        return Trial(*name, outcome, outcome, outcome, outcome, error.message)
    pairs = [(getattr(ours, quantity), getattr(true, quantity)) for quantity in QUANTITIES]
    silent = "unknown" if true.why else "not asked"
    outcomes = [silent if right is None else "exact" if left == right else "wrong" for left, right in pairs]
    differing = [
        f"{left} for {right}" for (left, right), outcome in zip(pairs, outcomes, strict=True) if outcome == "wrong"
    ]
    return Trial(*name, *outcomes, ", ".join(differing) or true.why)


QUANTITIES = ("parameters", "forward_flops", "step_flops", "cached_bytes")


def counted(config: dict[str, Any], runs: bool) -> Truth:
    """Our side of the same; the towers of a model that has a text part do not run."""
    arch = read(json.dumps(config))
    total = int(count(arch).total)
    if not runs:
        return Truth(total)
    if family(config["model_type"]).parts:
        arch = replace(arch, stacks=arch.stacks[-1:])
    forward, step = (products(build(arch, workload)) for workload in _PASSES.values())
    return Truth(total, forward, step, int(kv_cache_bytes(arch, Plan.of(_DECODE))))


def products(table: OperatorTable) -> int:
    """FLOPs of a table as FlopCounterMode counts them: every query-key pair of attention."""
    names = np.array([label.name for label in table.labels])[table.label]
    pairs = 2.0 * table.batch * table.heads * table.seq_q * table.seq_kv * (table.head_dim + table.head_dim_v)
    full = np.where(table.kind == Kind.ATTENTION, pairs * np.where(table.phase == 1, 2, 1), table.executed_flops)
    return int(by_shape(table, np.where((table.flops > 0) & ~np.isin(names, _LEFT_OUT), full, 0.0))[0])


def _named(error: TilewiseError, path: tuple[str, ...], family: str) -> bool:
    """Whether a refusal names the changed key, by its own or by our name, or what the base lacks."""
    spelled = (path[-1], ".".join(path)) if path else ()
    known = [key for table in _tables(family) for name in spelled for key in table.keys.get(name, ())]
    return "is needed and not given" in error.message or any(key in error.message for key in (*path[-1:], *known))


def _tables(name: str) -> list[Family]:
    table = family(name)
    return [table, *(family(part["family"]) for part in table.parts.values())]


def trials(model_type: str) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...], Any]]:
    """Every changed file of a family's class default."""
    built = model_class(model_type)
    sparse, saved = ({**config, "architectures": [built.__name__]} for config in defaults(model_type))  # type: ignore[union-attr]
    for base, config in (("sparse", sparse), ("saved", saved)):
        yield config, base, (), ""
        for path, value in edits(config, saved, few=base == "saved"):
            yield edited(config, path, value), base, path, value


def published(folder: Path) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...], Any]]:
    """Every changed file of the published ones in a folder whose model_type the library has."""
    for file in sorted(folder.rglob("*.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        if (
            file.stem in _OVERLOOKED
            or not isinstance(config, dict)
            or model_class(config.get("model_type", "")) is None
        ):
            continue
        config = shallow({key: value for key, value in config.items() if key != "quantization_config"})
        config["architectures"] = [model_class(config["model_type"]).__name__]  # type: ignore[union-attr]
        yield config, file.stem, (), ""
        for path, value in edits(config, config, few=True):
            yield edited(config, path, value), file.stem, path, value


def known() -> list[str]:
    """The families that we read and whose class the library has."""
    return [name for name in names() if model_class(name) is not None and not family(name).part_of]


def drawn(number: int) -> Callable[[str], list[Any]]:
    """Of a family its sparse default and so many changed keys of it, the same ones each time."""

    def draw(model_type: str) -> list[Any]:
        first, *rest = (trial for trial in trials(model_type) if trial[1] == "sparse")
        return [first, *random.Random(model_type).sample(rest, min(number, len(rest)))]

    return draw


def sampled(number: int, seed: int = 0) -> list[Trial]:
    """So many trials, drawn evenly over the families, the same ones each time."""
    draw = random.Random(seed)
    families = known()
    found: list[Trial] = []
    for index in range(number):
        every = list(trials(families[index * len(families) // number]))
        found += filter(None, [judged(*draw.choice(every))])
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--flops", action="store_true")
    parser.add_argument("--sample", type=int, help="of each family, the default and so many trials of a sparse file")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--known", type=Path, help="file that keeps the library's answers from run to run")
    arguments = parser.parse_args()
    global KNOWN
    KNOWN = Known(arguments.known)
    transformers.logging.set_verbosity_error()
    sources = [published(arguments.configs)] if arguments.configs else []
    draw = drawn(arguments.sample) if arguments.sample else trials
    sources += [draw(name) for name in arguments.families or (() if arguments.configs else known())]
    results = []
    for source in sources:
        for trial in filter(None, (judged(*each, runs=arguments.flops) for each in source)):
            results.append(trial)
            if trial.wrong:
                print(*astuple(trial), sep="  ", flush=True)
    for quantity in QUANTITIES:
        print(quantity, dict(Counter(getattr(trial, quantity) for trial in results)), file=sys.stderr)
    if arguments.output:
        with arguments.output.open("w", newline="", encoding="utf-8") as lines:
            csv.writer(lines).writerows(astuple(trial) for trial in results)


if __name__ == "__main__":
    main()
