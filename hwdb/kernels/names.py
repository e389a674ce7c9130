"""Kernel names of vendor libraries, taken apart: tile, stages, cluster, split-K, operand alignment, family.

The names are what the profiler prints. cuBLAS and cuBLASLt see a row-major product as its transpose, so the first tile
size of an nvjet kernel lies along n of y[m,n] = x[m,k] w[n,k]^T and the second along m.
Sources: names seen in profiler traces of torch 2.8-2.11 with cuBLAS 12.9-13.0; CUTLASS procedural names (cutlass,
python/cutlass_library/gemm_operation.py); hipBLASLt/Tensile kernel naming (MT = macro tile, GSU = global split-U).
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilewise.hwdb.record import Record

NAME_MAX = 2500  # characters of a name that is remembered; an uploaded one has as many as its file


class Kernel(Record, kw_only=True):
    """One kernel launch sequence of a GEMM.

    family:  nvjet, cutlass, xmma, gemv, tensile, "" (not recognised)
    arch:    architecture the kernel was written for (90, 80, 75), 0 where the name does not say
    tile_m, tile_n, tile_k: tile of y along m and n as torch sees them, and elements of k a stage; 0 unknown
    cluster_m, cluster_n:   thread-block cluster along the same sizes
    stages:  pipeline stages; 0 unknown
    split_k: the sum over k is split over blocks
    cooperative: consumer warpgroups share one tile (nvjet coopA, coopB)
    two_cta: tile of a pair of SMs (Blackwell)
    raster:  order of tiles, "h" or "v"
    align:   elements of operand alignment that the kernel needs; 0 unknown
    layout:  operand letters as the library names them
    launches: kernels that one call launches
    """

    name: str
    family: str = ""
    arch: int = 0
    tile_m: int = 0
    tile_n: int = 0
    tile_k: int = 0
    cluster_m: int = 1
    cluster_n: int = 1
    stages: int = 0
    split_k: bool = False
    cooperative: str = ""
    two_cta: bool = False
    raster: str = ""
    align: int = 0
    layout: str = ""
    launches: int = 1


NVJET = re.compile(
    r"nvjet_sm(?P<arch>\d+)_(?P<types>[a-z]+)_(?P<a>\d+)x(?P<b>\d+)_(?P<k>\d+)x(?P<stages>\d+)_(?P<ca>\d+)x(?P<cb>\d+)"
    r"(?P<rest>\w*)_(?P<layout>[TN]{3})"
)
CUTLASS = re.compile(
    r"cutlass_(?P<arch>\d+)_(?P<kind>\w*?gemm)_?\w*?_(?P<a>\d+)x(?P<b>\d+)(?:_(?P<k>\d+)x(?P<stages>\d+))?"
    r"_(?P<layout>[tn]{2})_align(?P<align>\d+)"
)
XMMA = re.compile(
    r"sm(?P<arch>\d+)_xmma_gemm_\w+?_(?P<layout>[tn]{2})_n_tilesize(?P<a>\d+)x(?P<b>\d+)x(?P<k>\d+)_stage(?P<stages>\d+)"
)
XMMA_ALIGN = re.compile(r"aligna(\d+)_alignc(\d+)")
CLASSIC = re.compile(
    r"(?:ampere|turing|volta|maxwell|hopper)_\w*?gemm\w*?_(?P<a>\d+)x(?P<b>\d+)(?:_\w*?(?P<k>\d+)x(?P<stages>\d+))?"
    r"_\w*?(?P<layout>[tn]{2})"
)
CUTLASS3 = re.compile(r"Shape<(?:cute::)?C<(?P<a>\d+)>, (?:cute::)?C<(?P<b>\d+)>, (?:cute::)?C<(?P<k>\d+)>")
TENSILE = re.compile(r"Cijk_(?P<layout>A[a-z]+_B[a-z]+)_.*?_MT(?P<a>\d+)x(?P<b>\d+)x(?P<k>\d+)")
SPLIT = re.compile(r"split_?k", re.IGNORECASE)


def short(name: str) -> str:
    """A kernel name without return type, argument list and repeated template text, at most 120 characters."""
    return "|".join(_short_one(part) for part in name.split("|"))


def _short_one(name: str) -> str:
    inner = re.match(r"void cutlass::Kernel2?<(cutlass_\w+)", name)
    if inner:
        return inner[1]
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    depth = 0
    for position, letter in enumerate(bare):  # cut at the argument list: the first "(" outside template brackets
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            bare = bare[:position]
            break
    return bare.replace("at::native::", "")[:120].replace(" ", "")


def parse(name: str) -> Kernel:
    """Take a name (several kernels joined by "|") apart. What is not recognised comes back with family ""."""
    return (_parse if len(name) <= NAME_MAX else _parse.__wrapped__)(name)


@lru_cache(maxsize=65536)
def _parse(name: str) -> Kernel:
    parts = name.split("|")
    main = next((part for part in parts if _recognised(part)), parts[0])
    split = len(parts) > 1 or bool(SPLIT.search(name))
    fields = _fields(main)
    return Kernel(name=name, launches=len(parts), split_k=split, **fields)  # type: ignore[arg-type]


def _recognised(part: str) -> bool:
    return bool(_fields(part))


def _fields(name: str) -> dict[str, object]:
    if found := NVJET.search(name):
        return _nvjet(found)
    if found := CUTLASS.search(name):
        return _column_major("cutlass", found) | {"align": int(found["align"])}
    if found := XMMA.search(name):
        align = XMMA_ALIGN.search(name)
        return _column_major("xmma", found) | {"align": int(align[1]) if align else 0}
    if "gemv" in name or "gemmSN" in name or "dot_kernel" in name:
        return {"family": "gemv"}
    if found := TENSILE.search(name):
        return _column_major("tensile", found) | {"arch": 0}
    if found := CLASSIC.search(name):
        return _column_major("classic", found)
    if "cutlass" in name and (found := CUTLASS3.search(name)):  # written row-major by torch: m first
        return {"family": "cutlass3", "tile_m": int(found["a"]), "tile_n": int(found["b"]), "tile_k": int(found["k"])}
    return {}


def _nvjet(found: re.Match[str]) -> dict[str, object]:
    rest = found["rest"].split("_")
    return {
        "family": "nvjet",
        "arch": int(found["arch"]),
        "tile_m": int(found["b"]),
        "tile_n": int(found["a"]),
        "tile_k": int(found["k"]),
        "stages": int(found["stages"]),
        "cluster_m": int(found["cb"]),
        "cluster_n": int(found["ca"]),
        "two_cta": "2cta" in rest,
        "raster": next((part for part in rest if part in ("h", "v")), ""),
        "cooperative": next((part[-1] for part in rest if part in ("coopA", "coopB")), ""),
        "layout": found["layout"],
    }


def _column_major(family: str, found: re.Match[str]) -> dict[str, object]:
    groups = found.groupdict()
    return {
        "family": family,
        "arch": int(groups.get("arch") or 0),
        "tile_m": int(groups["b"]),
        "tile_n": int(groups["a"]),
        "tile_k": int(groups["k"] or 0),
        "stages": int(groups.get("stages") or 0),
        "layout": groups["layout"],
    }
