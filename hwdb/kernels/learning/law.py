"""The law that every published kernel starts from: a floor, then the slower of two walls, joined smoothly.

time = floor + ((compute / share)^4 + (memory / share)^4)^(1/4). Three constants for each software and format: few points
are enough, and a kernel without matrix units (a Triton fallback) gets a low share instead of a wild residual.
"""

from __future__ import annotations

import numpy as np

from tilewise.hwdb.table import Floats, Ints

START = np.log([4e-6, 0.6, 0.8])  # floor in seconds, shares of the dense peak and of the datasheet's bandwidth
PRIOR = np.array([0.1, 0.05, 0.2])  # weights of a log distance from START, in log errors
JOIN = 4.0


def seconds(constants: Floats, compute_s: Floats, memory_s: Floats) -> Floats:
    """constants: shape (rows, 3), or (3,); the walls at their datasheet rates."""
    floor, compute, memory = np.moveaxis(np.asarray(constants), -1, 0)
    a, b = compute_s / compute, memory_s / memory
    larger = np.maximum(a, b)
    joined: Floats = floor + larger * (1 + (np.minimum(a, b) / larger) ** JOIN) ** (1 / JOIN)
    return joined


def fit(which: Ints, compute_s: Floats, memory_s: Floats, measured_s: Floats, count: int) -> Floats:
    """Constants of every software, shape (count, 3); START where one has no points."""
    found = np.tile(np.exp(START), (count, 1))
    for one in np.unique(which):
        rows = which == one
        found[one] = _one(compute_s[rows], memory_s[rows], measured_s[rows])
    return found


def _one(compute_s: Floats, memory_s: Floats, measured_s: Floats) -> Floats:
    from scipy.optimize import least_squares

    def wrong(logs: Floats) -> Floats:
        off = np.log(seconds(np.exp(logs), compute_s, memory_s) / measured_s)
        return np.concatenate([off, PRIOR * (logs - START)])

    constants: Floats = np.exp(least_squares(wrong, START, loss="soft_l1", f_scale=0.1).x)
    return constants
