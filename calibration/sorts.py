"""What sorts of points a plan holds, so that two plans can be compared before either costs a minute of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewise.calibration.protocol import Case, Target

TILE = 64  # rows or features below which a tile is never full, and of which whole multiples waste little
TORCH_GRAIN = 8  # elements of 16 bit that a 16-byte load takes
L2_HOT = 0.54  # of L2 that a footprint may fill and stay (hwdb/kernels/memory/physics.py)
L2_LEAST = 2e6  # bytes below which a kernel is all launch

Sort = Callable[[Mapping[str, int | str], Case, Target], bool]


def _number(key: Mapping[str, int | str], name: str) -> int:
    return int(key.get(name, 0))


def _sides(key: Mapping[str, int | str]) -> tuple[int, int, int]:
    """(tokens, out, in) of a layer's product."""
    m, n, k = (_number(key, name) for name in "mnk")
    return {"fwd": (m, n, k), "dgrad": (m, k, n), "wgrad": (k, m, n)}[str(key["kind"])]


def _in_l2(key: Mapping[str, int | str], case: Case, target: Target) -> bool:
    sets = case.sets if key["residency"] == "cold" else 1
    return L2_LEAST < case.bytes * sets < L2_HOT * target.l2_bytes and key["residency"] != "reused"


GEMM: Mapping[str, Sort] = {
    "tokens not a multiple of 64": lambda key, case, target: _sides(key)[0] > TILE and _sides(key)[0] % TILE > 0,
    "a side below 64 features": lambda key, case, target: min(_sides(key)[1:]) < TILE,
    "of these gradients": lambda key, case, target: min(_sides(key)[1:]) < TILE and key["kind"] != "fwd",
    "a side not a multiple of 8": lambda key, case, target: any(side % TORCH_GRAIN for side in _sides(key)[1:]),
}
ATTENTION: Mapping[str, Sort] = {
    "a window": lambda key, case, target: _number(key, "window") > 0,
    "length not a multiple of 64": lambda key, case, target: _number(key, "seq_kv") % TILE > 0,
    "heads that a kernel pads": lambda key, case, target: _number(key, "head_dim") not in (64, 128, 192, 256),
}
TRAFFIC: Mapping[str, Sort] = {
    "2 MB and more, in L2": _in_l2,
    "rows not a power of two": lambda key, case, target: _number(key, "rows") & (_number(key, "rows") - 1) > 0,
}
SORTS: Mapping[str, Mapping[str, Sort]] = {
    "gemm": GEMM, "attention": ATTENTION, **dict.fromkeys(("memory", "pointwise", "norms"), TRAFFIC)
}  # fmt: skip


def counted(family: str, cases: Sequence[Case], target: Target) -> dict[str, int]:
    """How many of these points are of each sort that the family knows; a point may be of several."""
    sorts = SORTS.get(family, {})
    return {name: sum(is_one(case.key, case, target) for case in cases) for name, is_one in sorts.items()}
