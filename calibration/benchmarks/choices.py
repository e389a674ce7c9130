"""Which kernel cuBLASLt would choose, asked of its heuristic without running anything.

torch.mm, torch.bmm and torch._scaled_mm end in cublasLt's heuristic, a pure function of the problem (checked against
profiled kernel names on an H100: 2,924 of 2,950 agree, the rest differ in nothing but the reduction's precision). A
query costs 0.15 ms of one core and no GPU time, so a hundred thousand shapes are cheap. NVIDIA only.

Values of the C enums are those of cublasLt.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewise.calibration.gemm_plan import Gemm

WORKSPACE_BYTES = 32 << 20  # what torch gives cuBLAS on Hopper and later
R_32F, R_16F, R_16BF, R_8F_E4M3 = 0, 2, 14, 28
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
TRANSA, TRANSB, A_SCALE_POINTER, B_SCALE_POINTER, FAST_ACCUM, A_SCALE_MODE, B_SCALE_MODE = 3, 4, 17, 18, 25, 31, 32
OUTER_VEC_32F = 3  # one fp32 scale a row
PREFERENCE_WORKSPACE = 1
FORMATS = {  # input type, output type, compute type
    "bf16": (R_16BF, R_16BF, COMPUTE_32F),
    "fp16": (R_16F, R_16F, COMPUTE_32F),
    "tf32": (R_32F, R_32F, COMPUTE_32F_FAST_TF32),
    "fp32": (R_32F, R_32F, COMPUTE_32F),
    "fp8": (R_8F_E4M3, R_16BF, COMPUTE_32F),
    "fp8row": (R_8F_E4M3, R_16BF, COMPUTE_32F),
}
# cuBLAS is column-major: it computes y^T[n,m] = op(w) op(x), so w is its A and x its B.
TRANSPOSED = {"fwd": (1, 0), "dgrad": (0, 0), "wgrad": (0, 1)}


class Choice(NamedTuple):
    """cuBLASLt's algorithm configuration, its own codes: tile, stages and cluster as in cublasLt.h's enums."""

    algorithm: int
    tile: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    inner: int
    cluster: int


COLUMNS = ("kind", "dtype", "m", "n", "k", "algorithm", "tile_n", "tile_m", "split_k", "custom", "cluster")
FIELDS = (  # attribute code, C type, in the order of Choice
    (0, ctypes.c_int32), (1, ctypes.c_uint32), (2, ctypes.c_int32), (3, ctypes.c_uint32), (4, ctypes.c_uint32),
    (5, ctypes.c_uint32), (6, ctypes.c_uint32), (7, ctypes.c_uint16), (8, ctypes.c_uint16),
)  # fmt: skip
NONE = Choice(0, 0, 0, 0, 0, 0, 0, 0, 0)  # the library refuses the problem


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Heuristic:
    """A handle on the library. Raises OSError where there is no cublasLt and RuntimeError where it refuses to start."""

    def __init__(self, library: str) -> None:
        self._lib = ctypes.CDLL(library)
        self._handle = ctypes.c_void_p()
        self._check(self._lib.cublasLtCreate(ctypes.byref(self._handle)))
        self._preference = ctypes.c_void_p()
        self._check(self._lib.cublasLtMatmulPreferenceCreate(ctypes.byref(self._preference)))
        size = ctypes.c_size_t(WORKSPACE_BYTES)
        self._lib.cublasLtMatmulPreferenceSetAttribute(
            self._preference, PREFERENCE_WORKSPACE, ctypes.byref(size), ctypes.sizeof(size)
        )
        self._descriptors = {(f, kind): self._descriptor(f, kind) for f in FORMATS for kind in TRANSPOSED}

    @property
    def version(self) -> int:
        self._lib.cublasLtGetVersion.restype = ctypes.c_size_t
        return int(self._lib.cublasLtGetVersion())

    def choose(self, gemm: Gemm) -> Choice:
        """The first configuration that the heuristic returns for a GEMM; NONE where it returns none."""
        kind, dtype, m, n, k = gemm
        into, out, _ = FORMATS[dtype]
        trans_a, trans_b = TRANSPOSED[kind]
        layouts = [
            self._layout(into, *((k, n) if trans_a else (n, k))),
            self._layout(into, *((m, k) if trans_b else (k, m))),
            self._layout(out, n, m),
        ]
        result, found = _Result(), ctypes.c_int()
        status = self._lib.cublasLtMatmulAlgoGetHeuristic(
            self._handle, self._descriptors[dtype, kind], *layouts, layouts[2], self._preference, 1,
            ctypes.byref(result), ctypes.byref(found),
        )  # fmt: skip
        for layout in layouts:
            self._lib.cublasLtMatrixLayoutDestroy(layout)
        return NONE if status or not found.value else Choice(*(self._attribute(result, *field) for field in FIELDS))

    def _attribute(self, result: _Result, code: int, ctype: type[ctypes._SimpleCData[int]]) -> int:
        value, written = ctype(), ctypes.c_size_t()
        self._lib.cublasLtMatmulAlgoConfigGetAttribute(
            ctypes.byref(result.algorithm), code, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
        )
        return value.value

    def _layout(self, dtype: int, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        self._check(
            self._lib.cublasLtMatrixLayoutCreate(
                ctypes.byref(layout), dtype, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
            )
        )
        return layout

    def _descriptor(self, dtype: str, kind: str) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._check(self._lib.cublasLtMatmulDescCreate(ctypes.byref(descriptor), FORMATS[dtype][2], R_32F))
        attributes: list[tuple[int, ctypes._SimpleCData[int]]] = [
            (TRANSA, ctypes.c_int32(TRANSPOSED[kind][0])),
            (TRANSB, ctypes.c_int32(TRANSPOSED[kind][1])),
        ]
        if dtype.startswith("fp8"):  # the heuristic never follows the scale pointers: any aligned address will do
            attributes += [(A_SCALE_POINTER, ctypes.c_uint64(256)), (B_SCALE_POINTER, ctypes.c_uint64(256))]
            attributes.append((FAST_ACCUM, ctypes.c_int8(1)))
        if dtype == "fp8row":
            attributes += [(mode, ctypes.c_int32(OUTER_VEC_32F)) for mode in (A_SCALE_MODE, B_SCALE_MODE)]
        for code, value in attributes:
            self._check(
                self._lib.cublasLtMatmulDescSetAttribute(descriptor, code, ctypes.byref(value), ctypes.sizeof(value))
            )
        return descriptor

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise RuntimeError(f"cublasLt answers status {status}")


def loaded_library() -> str:
    """Path of the cublasLt that torch has loaded into this process. Raises OSError where there is none."""
    import torch

    torch.cuda.current_blas_handle()
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "libcublasLt.so" in line:
                return line.split()[-1]
    raise OSError("torch has loaded no cublasLt")


def _ask(library: str, gemms: Sequence[Gemm], until: float) -> list[Choice]:
    heuristic = Heuristic(library)
    answers: list[Choice] = []
    for gemm in gemms:
        if time.time() > until:
            break
        answers.append(heuristic.choose(gemm))
    return answers


def harvest(gemms: Sequence[Gemm], seconds: float, processes: int = 0) -> dict[str, NDArray[np.int32]]:
    """Ask for as many of `gemms` as `seconds` allow, in parallel processes.

    Returns columns kind, dtype (indices into TRANSPOSED and FORMATS), m, n, k, algorithm, tile_n, tile_m, split_k,
    custom, cluster. Raises OSError or RuntimeError where there is no cublasLt to ask.
    """
    library, workers = loaded_library(), processes or max(1, (os.cpu_count() or 2) - 1)
    shares = [gemms[start::workers] for start in range(workers)]
    until = time.time() + seconds
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        answers = list(pool.map(_ask, [library] * workers, shares, [until] * workers))
    kinds, formats, sizes = list(TRANSPOSED), list(FORMATS), tiles()
    rows = [
        (
            kinds.index(gemm.kind), formats.index(gemm.dtype), gemm.m, gemm.n, gemm.k,
            choice.algorithm, *sizes.get(choice.tile, (0, 0)), choice.split_k, choice.custom, choice.cluster,
        )
        for share, answered in zip(shares, answers, strict=True)
        for gemm, choice in zip(share, answered, strict=False)
    ]  # fmt: skip
    columns = np.array(rows, np.int32).reshape(-1, len(COLUMNS)).T
    return dict(zip(COLUMNS, columns, strict=True))


@cache
def tiles() -> dict[int, tuple[int, int]]:
    """cublasLt's tile codes -> (along n, along m) of y[m,n]; the enum cublasLtMatmulTile_t of CUDA 13.0."""
    text = files("tilewise.calibration.benchmarks").joinpath("cublaslt_tiles.csv").read_text()
    lines = [tuple(map(int, line.split(","))) for line in text.splitlines()[1:]]
    return {code: (tile_n, tile_m) for code, tile_n, tile_m in lines}


def save(path: Path, found: dict[str, NDArray[np.int32]]) -> None:
    """Write the answers as a compressed archive of small integers."""
    narrow = {name: column.astype(np.min_scalar_type(int(column.max(initial=0)))) for name, column in found.items()}
    np.savez_compressed(path, **narrow)  # type: ignore[arg-type]
