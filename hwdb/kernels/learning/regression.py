"""What the fitted kernel models share: a residual on physics, an interval from cross-fitted errors, a distance.

A family says what physics gives (`base_s`), what else may matter (`features`), where a row lies (`place`: up to three
log2 sizes) and which group it belongs to (`group`: operator, precision, alignment class). The fitted time is
base_s x exp(residual); the residual is the mean of a few small nets. The interval is conformal: the 90 % quantile of the
cross-fitted errors of the row's region (family and time band), each over the error that is usual for rows like it, where
a net has learned that. The distance is in octaves to the nearest measured cell of the row's group; what it adds to the
interval is another matter (extrapolation.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tilewise.hwdb.kernels.learning import mlp
from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Columns, Record
from tilewise.hwdb.table import Floats, Ints, present

COVERAGE = 0.9
BAND_EDGES_S = np.array([8e-6, 2e-5, 6e-5, 3e-4])  # short kernels are harder: each band has its own interval
REGION_MIN = 15  # points below which a region takes in its neighbours, then the family, for its interval
FOLDS = 4
USUAL_MAX = 0.25  # log error that may count as usual, wherever a net would extrapolate to more
NOISE = 0.01  # of the time: what two machines of one SKU differ by, so no row is surer than that
# Calibrations replay graphs on a stream of their own. Replayed on the default stream, as torch does where the user set no
# stream, a graph node takes this much longer: both protocols on one H100, 2026-11-28, median of 39 kernels under 25 us.
NODE_GAP_S = 2.5e-7
FAR = 255  # octaves of a cell that the steps of grid_of did not reach
ROWS = 4096  # far rows at a time whose distance is counted cell by cell


def replayed_s(measurements: Mapping[str, Mapping[str, NDArray[Any]]]) -> Floats:
    """Times of measured points in seconds, families after each other, as a graph on the default stream has them.

    The names of a point's kernels tell its nodes; columns without names are taken as they stand.
    """
    found = []
    for columns in measurements.values():
        nodes = np.array([_nodes(str(name)) for name in columns["kernel"]]) if "kernel" in columns else 0
        found.append(columns["time_us"] * 1e-6 + NODE_GAP_S * nodes)
    return np.concatenate(found)


def _nodes(kernel: str) -> int:
    """Graph nodes of one call: nvjet's split-K clears its counters before and after, which the name does not show."""
    return 4 if "nvjet" in kernel and "splitK" in kernel else kernel.count("|") + 1


class Rows(Columns):
    """Rows of one family as a model sees them; arrays of shape (rows,), features (rows, inputs), place (rows, dims).

    family: which pool of errors a row's interval comes from (coarser than group)
    """

    base_s: Floats
    features: NDArray[np.float32]
    place: Floats
    group: Ints
    family: Ints


class Answer(Record):
    """time_s with low_s and high_s (90 %), and the distance in octaves; NaN distance for a group never measured."""

    time_s: Floats
    low_s: Floats
    high_s: Floats
    distance: Floats


class Regression(Record):
    """A fitted family. margins: half-width of log(time) over what is usual, shape (families, bands). grid: octaves, per
    group and cell. usual: net for the log of the usual error, or None where all errors are alike; a distilled net has it
    as its second output.
    """

    nets: tuple[mlp.Mlp, ...]
    margins: Floats
    grid: NDArray[np.uint8]
    origin: Floats
    limit: float
    usual: mlp.Mlp | None = None

    @cached_property
    def _layers(self) -> mlp.Layers:
        return mlp.together(self.nets)

    @cached_property
    def _last(self) -> Ints:
        return np.array(self.grid.shape[1:]) - 1

    def residual(self, features: NDArray[np.float32]) -> Floats:
        return self.outputs(features)[0]

    def outputs(self, features: NDArray[np.float32]) -> tuple[Floats, Floats | float]:
        """The residual, and the usual error of rows like these (1: alike)."""
        known = features[:, : len(self.nets[0].mean)]  # an older calibration lacks what was added since
        found = _mean(self._layers, known)
        residual = np.minimum(np.maximum(found[:, 0], -self.limit), self.limit)
        if found.shape[1] > 1:
            return residual, np.minimum(np.exp(found[:, 1]), USUAL_MAX)
        return residual, 1.0 if self.usual is None else _usual(self.usual, known)

    def predict(self, rows: Rows, share: Floats | float = 1.0) -> Answer:
        """share: how much of the residual a row takes."""
        residual, usual = self.outputs(rows.features)
        time_s = rows.base_s * np.exp(share * residual)
        region = np.minimum(rows.family, len(self.margins) - 1), BAND_EDGES_S.searchsorted(time_s)
        factor = np.exp(np.minimum(self.margins[region] * usual, self.limit))  # no more than a residual may explain
        return Answer(time_s, time_s / factor, time_s * factor, self.distance(rows))

    def distance(self, rows: Rows) -> Floats:
        """Octaves beyond the cells that neighbour a measured one, which are as good; NaN for a group never measured."""
        at = rows.place - self.origin
        cell = np.rint(at).astype(np.int64)
        inside = np.minimum(np.maximum(cell, 0), self._last)
        known = (rows.group >= 0) & (rows.group < len(self.grid))
        octaves = self.grid[np.where(known, rows.group, 0), *inside.T]
        found = np.where(known, octaves, np.nan)
        far = known & ((octaves == FAR) | (cell != inside).any(1))
        for group in present(rows.group[far]):
            mine = np.flatnonzero(far & (rows.group == group))
            found[mine] = _cells_between(at[mine], np.argwhere(self.grid[group] == 0))
        beyond: Floats = np.maximum(found - 1.0, 0)
        return beyond

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {
            "margins": self.margins, "grid": self.grid, "origin": self.origin, "limit": np.array(self.limit)
        }  # fmt: skip
        for i, net in enumerate(self.nets):
            arrays |= net.to_arrays(f"net{i}")
        return arrays | (self.usual.to_arrays("usual") if self.usual else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Regression:
        nets = tuple(mlp.Nets(arrays, "net").values())
        usual = mlp.Mlp.from_arrays(arrays, "usual") if "usual.w0" in arrays else None
        return cls(nets, arrays["margins"], arrays["grid"], arrays["origin"], float(arrays["limit"]), usual)


def fit(
    rows: Rows,
    measured_s: Floats,
    plan: mlp.Training,
    nets: int = 4,
    limit: float = 1.5,
    local: mlp.Training | None = None,
    machines: Floats | float = 0.0,
    folds: Ints | None = None,
    beside: Beside | None = None,
) -> Regression:
    """Fit nets on all rows; margins come from cross-fitting, each row judged by nets that never saw it.

    `limit` bounds |log residual|. `local`: how a net learns where errors are usually large or small; None: it is not asked.
    `machines`: what one machine of the SKU differs by from what is fitted, as a share of the time: the interval is for each.
    `folds`: which of FOLDS each row is judged in, for rows that share a shape; unset: by lot.
    `beside`: rows that the nets learn from and nothing is judged by.
    Held-out shapes are not the caller's to hand in: they judge the result.
    """
    target = np.log(measured_s / rows.base_s)
    fold = np.random.default_rng(FOLDS).permutation(len(target)) % FOLDS if folds is None else folds
    inputs, targets, place = rows.features, target, fold
    if beside:
        inputs = np.concatenate([inputs, beside.features])
        targets, place = np.concatenate([targets, beside.target]), np.concatenate([place, beside.folds])
    guess = np.zeros(len(target))
    for one in range(FOLDS):
        apart, seen = fold == one, place != one
        some = _nets(inputs[seen], targets[seen], plan, max(1, nets // 2))
        guess[apart] = np.clip(_mean(mlp.together(some), rows.features[apart])[:, 0], -limit, limit)
    error = np.abs(target - guess)
    usual = np.ones(len(error))
    if local is not None:
        for one in range(FOLDS):
            apart = fold == one
            usual[apart] = _usual(_learn_usual(rows.features[~apart], error[~apart], local), rows.features[apart])
    predicted_s = rows.base_s * np.exp(guess)
    shape = (int(rows.family.max()) + 1, len(BAND_EDGES_S) + 1)
    of_each = np.concatenate([np.abs(target - guess + machines), np.abs(target - guess - machines)]) / np.tile(usual, 2)
    band = np.searchsorted(BAND_EDGES_S, predicted_s)
    margins = _margins(of_each, np.tile(rows.family, 2), np.tile(band, 2), shape)
    grid, origin = grid_of(rows)
    learned = None if local is None else _learn_usual(rows.features, error, local)
    return Regression(_nets(inputs, targets, plan, nets), margins, grid, origin, limit, learned)


def taught(rows: Rows, measured_s: Floats, plan: mlp.Training, nets: int, limit: float) -> Regression:
    """Nets on all rows without margins of their own: for a caller that cross-fits more than the nets (`judged`)."""
    grid, origin = grid_of(rows)
    margins = np.zeros((int(rows.family.max()) + 1, len(BAND_EDGES_S) + 1))
    return Regression(_nets(rows.features, np.log(measured_s / rows.base_s), plan, nets), margins, grid, origin, limit)


def judged_unseen(
    fitted: Regression, rows: Rows, unseen: Rows, measured_s: Floats, plan: mlp.Training, folds: Ints, machines: Floats | float
) -> Regression:  # fmt: skip
    """`fitted` with margins from whole folds left out.

    unseen: the same rows as physics has them that was fitted without their fold; nets of the other folds' `rows` correct it
    """
    target, error = np.log(measured_s / rows.base_s), np.log(measured_s / unseen.base_s)
    for one in np.unique(folds):
        apart = folds == one
        some = _nets(rows.features[~apart], target[~apart], plan, 1)
        error[apart] -= np.clip(_mean(mlp.together(some), unseen.features[apart])[:, 0], -fitted.limit, fitted.limit)
    twice = np.tile(np.arange(len(error)), 2)
    predicted_s = measured_s * np.exp(-error)
    return judged(fitted, unseen[twice], predicted_s[twice], np.concatenate([error + machines, error - machines]))


class Beside(Record):
    """Rows of another GPU with the same SMs: features, log(measured / base), and the fold of each row's shape."""

    features: NDArray[np.float32]
    target: Floats
    folds: Ints


def _learn_usual(features: NDArray[np.float32], error: Floats, plan: mlp.Training) -> mlp.Mlp:
    """A net for the log of the error that is usual for a row; NOISE keeps lucky hits from counting as certainty."""
    return mlp.train(features, np.log(error + NOISE)[:, None], 1, mlp.huber(1.0), plan)


def _usual(net: mlp.Mlp, features: NDArray[np.float32]) -> Floats:
    return np.minimum(np.exp(np.asarray(net(features)[:, 0], np.float64)), USUAL_MAX)


def distilled(fitted: Regression, features: NDArray[np.float32], plan: mlp.Training) -> Regression:
    """`fitted` with one net in place of its several, taught what they say of `features`; several times as quick."""
    residual, usual = fitted.outputs(features)
    taught = np.stack([residual, np.log(usual) * np.ones(len(residual))], 1)
    net = mlp.train(features, taught, 2, mlp.huber(np.array([0.05, 1.0], np.float32)), plan)
    return replace(fitted, nets=(net,), usual=None)


def judged(fitted: Regression, rows: Rows, predicted_s: Floats, log_error: Floats) -> Regression:
    """`fitted` with margins from errors that the caller found by cross-fitting more than the nets."""
    band = np.searchsorted(BAND_EDGES_S, predicted_s)
    return replace(fitted, margins=_margins(np.abs(log_error), rows.family, band, fitted.margins.shape))


def _nets(features: NDArray[np.float32], target: Floats, plan: mlp.Training, count: int) -> tuple[mlp.Mlp, ...]:
    return tuple(
        mlp.train(features, target[:, None], 1, mlp.huber(0.05), replace(plan, seed=seed)) for seed in range(count)
    )


def _mean(layers: mlp.Layers, features: NDArray[np.float32]) -> Floats:
    """Mean output of the nets that are evaluated together, shape (rows, outputs)."""
    total = np.add.reduce(mlp.evaluated(layers, features), axis=0)
    return np.asarray(total / np.float32(len(layers[0][0])), np.float64)


def _margins(error: Floats, family: Ints, band: Ints, shape: tuple[int, ...]) -> Floats:
    """Conformal quantile of every (family, band); small regions take in their neighbours, then everybody's."""
    margins = np.empty(shape)
    everybody = _quantile(error)
    for f in range(shape[0]):
        mine = error[family == f]
        whole = _quantile(mine) if len(mine) >= REGION_MIN else everybody
        for b in range(shape[1]):
            near = [mine[np.abs(band[family == f] - b) <= reach] for reach in range(shape[1])]
            margins[f, b] = next((_quantile(some) for some in near if len(some) >= REGION_MIN), whole)
    return margins


def _quantile(error: Floats) -> float:
    """Split-conformal: the ceil((n + 1) x coverage)-th smallest of n errors; wide open when there are none."""
    if not len(error):
        return 1.0
    rank = int(np.ceil((len(error) + 1) * COVERAGE))
    return float(np.sort(error)[min(rank, len(error)) - 1])


def grid_of(rows: Rows) -> tuple[NDArray[np.uint8], Floats]:
    """Chebyshev distance in octaves of every cell to the nearest measured one, by group, up to four; and the first cell."""
    origin = np.floor(rows.place.min(0)) - 2
    shape = (np.ceil(rows.place.max(0)) - origin + 3).astype(int)
    grid = np.full((int(rows.group.max()) + 1, *shape), np.inf, np.float32)
    cell = np.round(rows.place - origin).astype(int)
    grid[rows.group, *cell.T] = 0
    for _ in range(4):  # few rows lie farther: theirs is counted when they are asked for
        for axis in range(1, grid.ndim):
            near = np.minimum(_shifted(grid, axis, 1), _shifted(grid, axis, -1))
            np.minimum(grid, near + 1, out=grid)
    return np.where(np.isfinite(grid), grid, FAR).astype(np.uint8), origin


def _cells_between(place: Floats, measured: Ints) -> Floats:
    """Chebyshev distance of each place to the nearest measured cell, shape (cells, dims); NaN where there is none."""
    if not len(measured):
        return np.full(len(place), np.nan)
    pieces = np.split(place, range(ROWS, len(place), ROWS))
    return np.concatenate([_largest_gap(piece, measured).min(1) for piece in pieces])


def _largest_gap(place: Floats, measured: Ints) -> Floats:
    gaps = [np.abs(place[:, None, dim] - measured[None, :, dim]) for dim in range(measured.shape[1])]
    found: Floats = np.maximum.reduce(gaps)
    return found


def _shifted(grid: NDArray[np.float32], axis: int, by: int) -> NDArray[np.float32]:
    moved = np.roll(grid, by, axis)
    edge: list[Any] = [slice(None)] * grid.ndim
    edge[axis] = 0 if by > 0 else -1
    moved[tuple(edge)] = np.inf
    return moved
