"""Names of GPUs: from what people and drivers say to exactly one SKU, or an error that helps. Nothing is guessed."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from tilewise.hwdb.errors import InvalidInput, NotFound, TilewiseError
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku

MEMORY_SHARE = (0.94, 1.08)  # of the capacity as sold: carve-outs below; above, GB that are GiB (1.074)


class Resolution(Record):
    """The SKU that a name stands for, and what the reader should know where an alias was used ("" else)."""

    sku: str
    note: str = ""


def normalise(name: str) -> str:
    """'NVIDIA H100 80GB HBM3' -> 'h100-80gb-hbm3'; 'H100_SXM5' -> 'h100-sxm5'."""
    dashed = re.sub(r"[\s_/()]+", "-", name.strip().lower()).strip("-")
    return re.sub(r"^(nvidia-|amd-)?(instinct-|tesla-)?", "", dashed)


def resolve(name: str, skus: Iterable[Sku], field: str = "gpu") -> Resolution:
    """The one SKU that `name` means.

    Raises InvalidInput (AMBIGUOUS_GPU) for a family name, listing its variants, and NotFound (UNKNOWN_GPU or
    NOT_A_PRODUCTION_GPU), listing the known ones.
    """
    known = {sku.name: sku for sku in skus}
    wanted = normalise(name)
    if wanted in known:
        return Resolution(wanted)
    for sku in known.values():
        if wanted in sku.names.aliases:
            return Resolution(sku.name, sku.names.note)
    family = [sku for sku in known.values() if wanted in sku.names.families]
    if family:
        raise ambiguous(name, family, field)
    raise unknown(name, known, field)


def identify(device: str, sm_count: int, memory_bytes: float, skus: Iterable[Sku]) -> str:
    """The SKU of a device as its driver reports it; the name decides, SMs and memory must agree.

    Raises as `resolve` does, and InvalidInput (DEVICE_MISMATCH) where the figures contradict the name: a MIG slice, or
    a variant that is not known here.
    """
    known = {sku.name: sku for sku in skus}
    sku = known[resolve(device, known.values(), field="device").sku]
    problems = []
    if sm_count != sku.sm_count:
        problems.append(f"{sm_count} SMs instead of {sku.sm_count}")
    low, high = MEMORY_SHARE
    if not low * sku.hbm_bytes <= memory_bytes <= high * sku.hbm_bytes:
        problems.append(f"{memory_bytes / 1e9:.1f} GB instead of {sku.hbm_bytes / 1e9:.0f} GB")
    if problems:
        message = (
            f"device {device!r} should be {sku.name} but reports {' and '.join(problems)}: a slice or a variant that "
            f"is not known here; name its SKU with --sku after adding a SKU file"
        )
        raise InvalidInput(message, reason="DEVICE_MISMATCH", field="device", gpu=sku.name)
    return sku.name


def ambiguous(name: str, variants: Iterable[Sku], field: str) -> InvalidInput:
    listed = ", ".join(_one_line(sku) for sku in variants)
    message = f"{name!r} does not say which board: {listed}; other variants of that family are not known here"
    return InvalidInput(message, reason="AMBIGUOUS_GPU", field=field, gpu=name)


def unknown(name: str, known: Iterable[str], field: str) -> TilewiseError:
    listed = ", ".join(sorted(known))
    if not_production(name):
        message = f"{name!r} is a consumer, workstation or graphics card; only production GPUs are covered: {listed}"
        return NotFound(message, reason="NOT_A_PRODUCTION_GPU", field=field, gpu=name)
    near = difflib.get_close_matches(normalise(name), known, n=1, cutoff=0.5)
    nearest = f"nearest is {near[0]}; " if near else ""
    message = (
        f"no peak known for GPU {name!r}; {nearest}known are {listed}; "
        f"to add one: write its SKU file, then `tilewise calibrate run --sku NAME`"
    )
    return NotFound(message, reason="UNKNOWN_GPU", field=field, gpu=name)


def not_production(name: str) -> bool:
    """Whether the name is that of a consumer, workstation or graphics card."""
    rules = _not_production_rules()
    plain = normalise(name)
    words = f"-{plain}-"
    return any(f"-{word}-" in words for word in rules["words"]) or any(re.search(p, plain) for p in rules["patterns"])


@cache
def _not_production_rules() -> dict[str, list[str]]:
    return tomllib.loads((files("tilewise.hwdb") / "names.toml").read_text(encoding="utf-8"))


def _one_line(sku: Sku) -> str:
    bf16 = float(sku.peaks["bf16"].value)
    return f"{sku.name} ({sku.sm_count} SMs, {bf16 / 1e12:.0f} TFLOPS dense bf16, {sku.tdp_w:.0f} W)"
