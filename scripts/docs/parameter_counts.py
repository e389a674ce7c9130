"""The tables of docs/parameter-counts.md: our counts against those of the transformers library's own classes.

The folder of configs holds SOURCES.csv, whose params_total_meta was counted by building the named class on torch's meta device.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewise.hwdb.errors import TilewiseError
from tilewise.server.architecture import ParameterCount, count, read

# Files with a true count that we do not meet, and why.
EXCEPTIONS = {
    "t5/t5-v1_1-xxl-encoder.json": "the file names no class and says is_encoder_decoder, so both halves are read; the true "
    "count is that of T5EncoderModel (with `architectures` set to it we count 4,762,310,656, which is exact)",
    "flux/FLUX.1-schnell-transformer-nf4.json": "a diffusion transformer (diffusers): refused, it is no language model",
}

# Files whose parts the referee splits by parameter names in another way; the totals are equal.
SPLIT_OTHERWISE = {
    "apertus/apertus-8b-class-default.json": "two learned numbers of xIELU a layer: mlp there, other here",
    "bert/distilbert-squad.json": "the answer head is other there, lm_head here",
    "clip/clip-vision-g.json": "patch embedding is vision there, other here; the class token embedding there",
    "clip/clip-vision-vitl-336.json": "patch embedding is vision there, other here; the class token embedding there",
    "dbrx/dbrx-16x13b.json": "its attention lies in a module called norm_attn_norm: all norm there",
    "deepseek/DeepSeek-V4-Flash.json": "hyper-connections go by their names to attention, mlp and lm_head there, other here",
    "esm/esm2_t33_650M_UR50D.json": "the transform before the head is lm_head there, other here",
    "modernbert/modernbert-base-from-class-default.json": "the bias of the head is other there, lm_head here",
    "t5/t5-small.json": "the relative position tables are attention there, other here",
    "vit/vit-base-patch16-224-from-class-default.json": "patch embedding is vision there, other here; class token likewise",
}

PARTS = {
    "embedding": "p_embedding",
    "lm_head": "p_lm_head",
    "attention": "p_attention",
    "mlp": "p_mlp",
    "experts": "p_experts",
    "shared_experts": "p_shared_experts",
    "router": "p_router",
    "norm": "p_norm",
    "recurrent": "p_ssm_linear_attn",
    "vision": "p_vision_audio",
    "other": "p_other",
}


@dataclass(frozen=True)
class Row:
    """One config file: our count or our refusal, and the true counts where there are any."""

    file: str
    counted: ParameterCount | None
    refusal: str
    true_total: int | None
    true_active: int | None
    true_parts: dict[str, int]
    source: str

    @property
    def exact(self) -> bool:
        if self.counted is None or self.counted.total != self.true_total:
            return False
        return self.true_active is None or self.counted.active == self.true_active


def rows(folder: Path) -> Iterator[Row]:
    with (folder / "SOURCES.csv").open(newline="", encoding="utf-8") as lines:
        for source in csv.DictReader(lines):
            text = (folder / source["file"]).read_text(encoding="utf-8")
            try:
                counted, refusal = count(read(text)), ""
            except TilewiseError as error:
                counted, refusal = None, error.message
            yield Row(
                file=source["file"],
                counted=counted,
                refusal=refusal,
                true_total=_number(source["params_total_meta"]),
                true_active=_number(source["params_active_meta"]),
                true_parts={part: _number(source[column]) or 0 for part, column in PARTS.items()},
                source=source["meta_class"],
            )


def _number(text: str) -> int | None:
    return int(text) if text else None


def tables(shared: Path) -> str:
    every = list(rows(shared / "configs"))
    known = [row for row in every if row.true_total is not None]
    exact = [row for row in known if row.exact]
    lines = [
        f"{len(exact)} of {len(known)} files with a true count are exact.",
        "",
        "| file | class | parameters | active | exact |",
        "|---|---|--:|--:|---|",
        *(_line(row) for row in known),
        "",
        "## Exceptions",
        "",
        *(f"- `{file}`: {cause}." for file, cause in EXCEPTIONS.items()),
        "",
        "## Parts that the referee splits otherwise",
        "",
        "The totals are equal; the referee goes by parameter names.",
        "",
        *(f"- `{file}`: {cause}." for file, cause in SPLIT_OTHERWISE.items()),
        "",
        "## Files without a true count",
        "",
        *(_unknown_line(row) for row in every if row.true_total is None),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    if row.counted is None:
        return f"| {row.file} | {row.source} | refused | | no |"
    active = f"{row.counted.active:,}" if row.true_active is not None else ""
    return f"| {row.file} | {row.source} | {row.counted.total:,} | {active} | {'yes' if row.exact else 'no'} |"


def _unknown_line(row: Row) -> str:
    if row.counted is None:
        return f"- `{row.file}`: refused: {row.refusal}"
    return f"- `{row.file}`: {row.counted.total:,}"
