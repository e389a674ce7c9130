"""Sets the reader's operators of every family beside those that transformers' own code launches, traced without a GPU.

For each model_type that Tilewise reads and transformers has a class of: a model of few layers with the widths of its class's
defaults is traced on the meta device in prefill, train and decode (one token, DynamicCache), and its table is compared with
the one that `tilewise predict` works with. Writes server/operators/programs.csv, which says how far an answer's program can be
relied on (server/operators/programs.py). Needs torch and transformers (CPU builds do); takes three minutes.

    python scripts/research/compare_families.py [FAMILY ...] [--operators] [--configs DIR] [--out FILE]

With families named, their lines are printed; --operators adds every kind of operator whose launches or bytes differ. --configs prints
the lines of the published configs under a folder instead, of those families or of all.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from msgspec.structs import replace
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.models.auto import modeling_auto

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import TilewiseError
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Floats, Kind, OperatorTable
from tilewise.server.architecture import families as tables
from tilewise.server.architecture import read
from tilewise.server.architecture.model import Architecture, Recurrent
from tilewise.server.operators import build
from tilewise.server.operators.conventions import by_shape
from tilewise.server.trace.matrix import is_attention
from tilewise.server.trace.module import placed, record
from tilewise.server.trace.recorder import Call
from tilewise.server.workload import CHOICES, Workload

RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
OUT = Path(__file__).resolve().parents[2] / "server" / "operators" / "programs.csv"
WORKLOADS = {
    "prefill": Workload(phase="prefill", batch=1, sequence=4096, cache="none", stack="transformers"),
    "train": Workload(phase="train", batch=1, sequence=4096, optimizer="none"),
    "decode": Workload(phase="decode", batch=8, context=2048, stack="transformers"),
}
LAYERS = 4
LEAST_S = 2e-6  # what the smallest kernels take
QUANTITIES = ("kernels", "flops", "bytes", "time_us")
HEADER = [
    "family",
    "phase",
    *(f"{name}_{side}" for name in QUANTITIES for side in ("ours", "traced")),
    "attention",
    "plain",
    "reason",
]


class NotComparable(Exception):
    """Why a program of a family cannot be set beside transformers' own."""


@dataclass(frozen=True)
class Case:
    """A small model of a family on the meta device, and its config as the reader takes it; encoder: it does not decode.

    image: sides of what a tower looks at, by channel; () for text
    """

    family: str
    model: torch.nn.Module
    config: str
    encoder: bool
    image: tuple[int, ...] = ()


def case(family: str) -> Case:
    """Raises NotComparable."""
    for why, rule in RULES["not_compared"].items():
        if family in rule["families"]:
            raise NotComparable(rule.get("reason", why))
    if tables.family(family).parts:
        raise NotComparable("a text model with a tower beside it; the text model is compared under its own name")
    keys = RULES["keys"].get(family, {})
    if family not in CONFIG_MAPPING:
        raise NotComparable("transformers has no class of it")
    return built(family, AutoConfig.for_model(family, **keys), keys)


def built(family: str, config: Any, keys: dict[str, Any]) -> Case:
    """A case of a config of a family's own class. Raises NotComparable."""
    kind = class_of(family)
    try:
        shorten(config, keys)
        with torch.device("meta"):
            model = kind._from_config(config, dtype=torch.bfloat16)
    except Exception as error:
        raise NotComparable(f"cannot be built: {str(error).splitlines()[0][:120]}") from error
    unsaid = (*UNSAID, *RULES["unsaid"].get(family, ()))
    said = {key: value for key, value in config.to_dict().items() if key not in unsaid}
    stated = {key: value for key, value in said.items() if value is not None or key == "sliding_window"}
    stated |= {"model_type": family, "architectures": [kind.__name__]}
    encoder = kind.__name__.endswith("ForMaskedLM") or tables.family(family).values["stream"] != "text"
    return Case(family, model.eval(), json.dumps(stated, default=str), encoder, image_of(family, config))


def image_of(family: str, config: Any) -> tuple[int, ...]:
    """Channels and sides of what a tower takes in."""
    if tables.family(family).values["stream"] == "text":
        return ()
    side = getattr(config, "image_size", None)
    if not isinstance(side, int) or not hasattr(config, "num_channels"):
        raise NotComparable("a tower whose input is no image of one size; not traced yet")
    return (config.num_channels, side, side)


UNSAID = ("architectures", "id2label", "label2id", "transformers_version", "_name_or_path")
DROPOUTS = (
    "attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout", "dropout", "resid_dropout", "embedding_dropout",
    "residual_dropout", "embd_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob", "activation_dropout", "layerdrop", "dropout_rate",
)  # fmt: skip


def shorten(config: Any, keys: dict[str, Any]) -> None:
    """Few layers, but one of each kind, and nothing dropped at random."""
    for name in DROPOUTS:
        if isinstance(getattr(config, name, None), float):
            setattr(config, name, 0.0)
    kinds = getattr(config, "layer_types", None) or []
    layers = max([LAYERS, *(kinds.index(kind) + 1 for kind in set(kinds))])
    if "num_hidden_layers" not in keys:
        config.num_hidden_layers = layers
    for name in ("layer_types", "mlp_layer_types", "attention_layers", "no_rope_layers"):
        if isinstance(getattr(config, name, None), list):
            with suppress(AttributeError):  # follows from others
                setattr(config, name, getattr(config, name)[: config.num_hidden_layers])


def class_of(family: str) -> Any:
    """What the first of transformers' AutoModels for sequences to sequences, masked and causal language takes, or AutoModel itself."""
    heads = "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_MASKED_LM", "MODEL_FOR_CAUSAL_LM", "MODEL"
    found = [getattr(modeling_auto, f"{head}_MAPPING_NAMES").get(family) for head in heads]
    found.append(CONFIG_MAPPING[family].__name__.replace("Config", "Model"))  # a part's own
    kind = getattr(transformers, next(filter(None, found)), None)
    if kind is None:
        raise NotComparable("transformers has no model of this name alone")
    return kind


def answer_for_the_gpu() -> None:
    """What transformers asks the GPU before it goes on has no value on the meta device."""
    transformers.masking_utils.find_packed_sequence_indices = no_packing
    transformers.masking_utils.fast_all = no_padding


def no_packing(position_ids: torch.Tensor) -> None:
    """transformers.masking_utils.find_packed_sequence_indices, whose answer has no value on the meta device."""
    steps = torch.diff(position_ids, prepend=position_ids[:, :1] - 1, dim=-1)
    bool_of_gpu((((steps != 1).cumsum(-1))[:, -1] == 0).all())


def no_padding(mask: torch.Tensor) -> bool:
    """transformers.masking_utils.fast_all over a mask of ones."""
    bool_of_gpu(mask.all())
    return True


def bool_of_gpu(answer: torch.Tensor) -> None:
    """Reading an answer copies it to the host: a launch."""
    answer.clone()


def traced(subject: Case, phase: str) -> list[Call]:
    """What the model calls in one step of WORKLOADS; only models that decode are asked for the last logits alone."""
    work, model = WORKLOADS[phase], subject.model
    if subject.image:
        pixels = torch.zeros(work.batch, *subject.image, dtype=torch.bfloat16, device="meta")
        return record(model, train=phase == "train", pixel_values=pixels)
    if model.config.is_encoder_decoder:
        return pair(model, work, phase)
    if phase == "train":
        ids = tokens(work.batch, work.sequence)
        labels = {"labels": ids} if "labels" in signature(model.forward).parameters else {}
        return record(model, input_ids=ids, use_cache=False, **labels)
    if phase == "prefill":
        last = {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}
        return record(model, train=False, input_ids=tokens(work.batch, work.sequence), use_cache=False, **last)
    with torch.no_grad():
        past = model(input_ids=tokens(work.batch, work.context - 1), use_cache=True).past_key_values
    return record(model, train=False, input_ids=tokens(work.batch, 1), past_key_values=past, use_cache=True)


def pair(model: torch.nn.Module, work: Workload, phase: str) -> list[Call]:
    """An encoder with a decoder: both read as many tokens; in decode the encoder has read all its own before."""
    if phase == "train":
        ids = tokens(work.batch, work.sequence)
        return record(model, input_ids=ids, labels=ids, use_cache=False)
    if phase == "prefill":
        ids = tokens(work.batch, work.sequence)
        return record(model, train=False, input_ids=ids, decoder_input_ids=ids, use_cache=False)
    with torch.no_grad():
        whole, before = tokens(work.batch, work.context), tokens(work.batch, work.context - 1)
        first = model(input_ids=whole, decoder_input_ids=before, use_cache=True)
    given = {"encoder_outputs": (first.encoder_last_hidden_state,), "past_key_values": first.past_key_values}
    return record(model, train=False, decoder_input_ids=tokens(work.batch, 1), use_cache=True, **given)


def tokens(batch: int, sequence: int) -> torch.Tensor:
    return torch.zeros(batch, sequence, dtype=torch.long, device="meta")


def attention_of(calls: list[Call]) -> str:
    """What attention is asked for: sdpa with the causal flag, with a mask, or plain products and a softmax."""
    kinds = {}
    for call in calls:
        if call.direction == "forward" and is_attention(call.name):
            kinds["mask" if call.arguments["masked"] else "causal" if call.arguments["is_causal"] else "plain"] = None
        elif call.direction == "forward" and call.name == "_softmax" and len(call.ins[0].shape) == 4:
            kinds["products"] = None
    return " + ".join(kinds)


def sums(table: OperatorTable) -> tuple[float, ...]:
    """QUANTITIES of a table: executed FLOPs, bytes of operators that compute none, and the time by one yardstick for both sides."""
    moved = np.where(table.kernels > 0, table.bytes_read + table.bytes_written, 0.0)
    columns = (
        table.kernels, table.executed_flops,
        np.where((table.kind == Kind.MEMORY) & (table.executed_flops == 0), moved, 0.0), 1e6 * roofline_s(table, moved),
    )  # fmt: skip
    return tuple(float(by_shape(table, column)[0]) for column in columns)


def roofline_s(table: OperatorTable, moved: Floats) -> Floats:
    """Each kernel at the datasheet's rates of an H100, and the least that a kernel takes: it compares programs, not kernels."""
    sku = Database.packaged().sku("h100-sxm5-80gb")
    peak = np.array([sku.peak(Precision(int(code))).flops_per_s for code in table.precision])
    found: Floats = np.maximum(table.executed_flops / peak, moved / sku.hbm_bytes_per_s) + LEAST_S * table.kernels
    return found


def both(subject: Case, phase: str) -> tuple[OperatorTable, OperatorTable, OperatorTable, str]:
    """The reader's table, the one it would make without a variant of the family's own, the traced one, and its attention. Raises NotComparable."""
    if subject.encoder and phase == "decode":
        raise NotComparable("an encoder does not decode" if not subject.image else "a tower does not decode")
    last = "logits_to_keep" in signature(subject.model.forward).parameters
    work = WORKLOADS[phase] if last or phase != "prefill" else replace(WORKLOADS[phase], logits="all")
    try:
        arch = read(subject.config)
        if scans(arch):
            raise NotComparable("its scan is a kernel of another package; without it transformers loops in Python")
        ours, plain = build(arch, work), build(replace(arch, family="", model_type=""), work)
    except TilewiseError as error:
        raise NotComparable(f"the reader refuses its default config: {error}") from error
    try:
        calls = traced(subject, phase)
    except Exception as error:
        raise NotComparable(f"cannot be traced: {str(error).splitlines()[0][:120]}") from error
    return ours, plain, placed(calls, subject.family).table(), attention_of(calls)


def published(path: Path, wanted: list[str]) -> Iterator[dict[str, str]]:
    """The lines of a published config, or of its text model; none of a family that the table does not compare."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    raw = raw.get("text_config", raw)
    family = raw.get("model_type", "")
    if family not in CONFIG_MAPPING or family not in (wanted or tables.names()) or tables.family(family).parts:
        return
    keys = {key: value for key, value in raw.items() if key not in ("model_type", *NO_SIZES)}
    try:
        subject: Case | NotComparable = built(family, AutoConfig.for_model(family, **keys), {})
    except NotComparable as reason:
        subject = reason
    yield from lines(family, subject=subject)


NO_SIZES = ("quantization_config", "torch_dtype", "dtype", "auto_map", "architectures", "_attn_implementation", *UNSAID)


def lines(family: str, show: bool = False, subject: Case | NotComparable | None = None) -> Iterator[dict[str, str]]:
    """A line of the table for every phase; plain: our time over the traced one if nothing was known of how the family writes its blocks."""
    try:
        subject = subject or case(family)
    except NotComparable as reason:
        subject = reason
    for phase in CHOICES["phase"]:
        line = {"family": family, "phase": phase}
        try:
            if isinstance(subject, NotComparable):
                raise subject
            ours, plain, theirs, attention = both(subject, phase)
        except NotComparable as reason:
            yield line | {"reason": str(reason)}
            continue
        if show:
            print_differences(ours, theirs)
        found = dict(zip(QUANTITIES, zip(sums(ours), sums(theirs), strict=True), strict=True))
        for name, pair in found.items():
            line |= {f"{name}_{side}": f"{value:.6g}" for side, value in zip(("ours", "traced"), pair, strict=True)}
        unknown = sums(plain)[QUANTITIES.index("time_us")] / found["time_us"][1]
        yield line | {"attention": attention, "plain": f"{unknown:.3f}"}


def scans(arch: Architecture) -> bool:
    """Whether it has a recurrent mixer with a scan."""
    mixers = [mixer for stack in arch.stacks for block in stack.blocks for mixer in block.mixers]
    return any(isinstance(mixer, Recurrent) and mixer.kind != "short_conv" for mixer in mixers)


def print_differences(ours: OperatorTable, theirs: OperatorTable) -> None:
    """Launches of each direction and size that one side has more of."""
    left, right = kinds(ours), kinds(theirs)
    for key in sorted(left.keys() | right.keys()):
        if left[key] != right[key]:
            print(f"  {' '.join(map(str, key)):60} ours {left[key]:6g} traced {right[key]:6g}")


def kinds(table: OperatorTable) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in range(len(table)):
        kind = Kind(int(table.kind[row]))
        direction = table.labels[int(table.label[row])].direction
        if kind == Kind.MEMORY:
            what = f"{table.bytes_read[row]:8.2g} -> {table.bytes_written[row]:8.2g}"
        else:
            what = f"{kind.name.lower()} {table.executed_flops[row]:.5g}"
        found[direction, what] += float(table.count[row] * table.kernels[row])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--configs", type=Path, help="a folder of published configs: their sizes, not the class's")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity_error()
    answer_for_the_gpu()
    if options.configs:
        writer = csv.DictWriter(sys.stdout, ["config", *HEADER], lineterminator="\n")
        for path in sorted(options.configs.rglob("*.json")):
            writer.writerows({"config": path.name} | line for line in published(path, options.families))
        return
    if options.families:
        writer = csv.DictWriter(sys.stdout, HEADER, lineterminator="\n")
        for family in options.families:
            writer.writerows(lines(family, options.operators))
        return
    with options.out.open("w", newline="", encoding="utf-8") as file:
        versions = (
            f"transformers {transformers.__version__}, torch {torch.__version__}, {datetime.date.today().isoformat()}"
        )
        file.write(f"# made by scripts/research/compare_families.py: {versions}\n")
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        for family in tables.names():
            writer.writerows(lines(family))


if __name__ == "__main__":
    main()
