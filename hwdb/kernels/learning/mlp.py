"""A small multilayer perceptron in numpy: trained once at calibration, evaluated a million times a second.

Kernel models use it for what structure cannot explain: which kernel a library chooses, and a smooth residual.
No framework: hwdb must not import one, and the nets have a few thousand weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.lazy import cached_property
from tilewise.hwdb.record import Record

Matrix = NDArray[np.float32]
Layers = tuple[tuple[Matrix, Matrix], ...]

# Rows of one product. A BLAS takes another kernel, which rounds otherwise, for another number of rows; within 8 rows,
# no more than any kernel of OpenBLAS takes at once, every row is rounded alike.
BLOCK = 8
PIECE = 1024  # rows at a time: what lies between the layers stays in L2


class Mlp(Record):
    """ReLU layers; `weights[i]` has shape (inputs, outputs). Inputs are standardised with `mean` and `scale`."""

    mean: Matrix
    scale: Matrix
    weights: tuple[Matrix, ...]
    biases: tuple[Matrix, ...]

    @cached_property
    def layers(self) -> Layers:
        """Weight and bias of every layer; the standardisation is in the first."""
        weight = self.weights[0].astype(np.float64) * self.scale[:, None]
        first = weight.astype(np.float32), (self.biases[0] - self.mean @ weight).astype(np.float32)
        return first, *zip(self.weights[1:], self.biases[1:], strict=True)

    def __call__(self, features: Matrix) -> Matrix:
        """Outputs, shape (rows, outputs), of features, shape (rows, inputs)."""
        return evaluated(self.layers, features)

    def to_arrays(self, prefix: str) -> dict[str, Matrix]:
        """Everything as named arrays, for a file (hwdb/arrays.py); weights in half precision (an error of 0.05 % each)."""
        arrays = {f"{prefix}.mean": self.mean, f"{prefix}.scale": self.scale}
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays[f"{prefix}.w{i}"], arrays[f"{prefix}.b{i}"] = weight.astype(np.float16), bias
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Mlp:
        """The inverse of to_arrays; half-precision weights are widened."""
        layers = range(next(i for i in count() if f"{prefix}.w{i}" not in arrays))

        def get(name: str) -> Matrix:
            return np.asarray(arrays[f"{prefix}.{name}"], np.float32)

        return cls(
            get("mean"),
            get("scale"),
            tuple(get(f"w{i}") for i in layers),
            tuple(get(f"b{i}") for i in layers),
        )


def together(nets: Sequence[Mlp]) -> Layers:
    """The layers of nets that are alike, to be evaluated as one: with a first axis of nets, and one for the blocks of rows."""
    layers = zip(*(net.layers for net in nets), strict=True)
    return tuple(
        (np.array([w for w, _ in one])[:, None], np.array([b for _, b in one])[:, None, None]) for one in layers
    )


def evaluated(layers: Layers, features: Matrix) -> Matrix:
    """Outputs, shape (..., rows, outputs), of features, shape (rows, inputs): of a row the same bits whatever rows it is among."""
    rows, inputs = features.shape
    if rows > PIECE:
        pieces = [evaluated(layers, features[first : first + PIECE]) for first in range(0, rows, PIECE)]
        return np.concatenate(pieces, -2)
    blocks = np.zeros((-(-rows // BLOCK), BLOCK, inputs), np.float32)
    blocks.reshape(-1, inputs)[:rows] = features
    (weight, bias), *deeper = layers
    x = blocks @ weight
    x += bias
    for weight, bias in deeper:
        np.maximum(x, 0, out=x)
        x = x @ weight
        x += bias
    return x.reshape(*x.shape[:-3], -1, x.shape[-1])[..., :rows, :]


class Nets(Mapping[int, Mlp]):
    """Nets of arrays by number, each made when it is first asked for: a question needs few of them."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
        self._arrays, self._prefix = arrays, prefix
        self._made: dict[int, Mlp] = {}
        first = re.compile(rf"{prefix}(\d+)\.w0")
        self._numbers = sorted(int(found[1]) for found in map(first.fullmatch, arrays) if found)

    def __getitem__(self, number: int) -> Mlp:
        if number not in self._made:
            self._made[number] = Mlp.from_arrays(self._arrays, f"{self._prefix}{number}")
        return self._made[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


# Gradient of the mean loss with respect to the outputs, given (outputs, targets, sample weights).
Loss = Callable[[Matrix, NDArray[Any], Matrix], Matrix]


def cross_entropy(outputs: Matrix, targets: NDArray[Any], weights: Matrix) -> Matrix:
    """Targets are class indices, shape (rows,)."""
    shifted = outputs - outputs.max(1, keepdims=True)
    odds = np.exp(shifted)
    odds /= odds.sum(1, keepdims=True)
    odds[np.arange(len(targets)), targets] -= 1
    return np.asarray(odds * weights[:, None] / len(targets), np.float32)


def huber(width: float | Matrix) -> Loss:
    """Squared near zero, linear beyond `width` (one for all outputs, or one each); targets have the shape of the outputs."""

    def gradient(outputs: Matrix, targets: NDArray[Any], weights: Matrix) -> Matrix:
        return np.asarray(np.clip((outputs - targets) / width, -1, 1) * weights[:, None] / len(targets), np.float32)

    return gradient


class Training(Record, kw_only=True):
    """How a net is trained: AdamW with a one-cycle learning rate."""

    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 60
    batch: int = 256
    rate: float = 4e-3
    decay: float = 1e-3
    seed: int = 0


def train(
    features: NDArray[Any],
    targets: NDArray[Any],
    outputs: int,
    loss: Loss,
    plan: Training,
    weights: NDArray[Any] | None = None,
) -> Mlp:
    """Fit a net. features: (rows, inputs); targets as `loss` wants them; weights: (rows,), default one."""
    draw = np.random.default_rng(plan.seed)
    x = np.asarray(features, np.float32)
    varied = x.max(0, initial=-np.inf) > x.min(0, initial=np.inf)  # what never varied has taught nothing
    mean, scale = x.mean(0), np.where(varied, 1 / np.maximum(x.std(0), 1e-3), 0).astype(np.float32)
    x = np.asarray((x - mean) * scale, np.float32)
    w = np.ones(len(x), np.float32) if weights is None else np.asarray(weights, np.float32)
    sizes = (x.shape[1], *plan.hidden, outputs)
    layers = [np.asarray(draw.normal(0, np.sqrt(2 / a), (a, b)), np.float32) for a, b in pairwise(sizes)]
    layers[-1] *= 0.1
    biases = [np.zeros(b, np.float32) for b in sizes[1:]]
    if np.ndim(targets) == 2 and len(targets):
        biases[-1] += np.asarray(targets.mean(0), np.float32)  # a regression starts from the mean
    adam = _Adam([*layers, *biases])
    steps = plan.epochs * max(1, -(-len(x) // plan.batch))
    step = 0
    for _ in range(plan.epochs):
        order = draw.permutation(len(x))
        for start in range(0, len(x), plan.batch):
            rows = order[start : start + plan.batch]
            gradients = _backward(x[rows], targets[rows], w[rows], layers, biases, loss)
            adam.update(gradients, plan.rate * _one_cycle(step / steps), plan.decay, decayed=len(layers))
            step += 1
    return Mlp(mean, scale, tuple(layers), tuple(biases))


def _one_cycle(progress: float) -> float:
    """Linear warm-up over a fifth, then a cosine to zero."""
    if progress < 0.2:
        return 0.04 + 0.96 * progress / 0.2
    return float(0.5 * (1 + np.cos(np.pi * (progress - 0.2) / 0.8)))


def _backward(
    x: Matrix, targets: NDArray[Any], w: Matrix, layers: list[Matrix], biases: list[Matrix], loss: Loss
) -> list[Matrix]:
    """Gradients of the loss: those of all weights, then of all biases."""
    activations = [x]
    for weight, bias in zip(layers[:-1], biases[:-1], strict=True):
        activations.append(np.maximum(activations[-1] @ weight + bias, 0))
    slope = loss(activations[-1] @ layers[-1] + biases[-1], targets, w)
    of_weights: list[Matrix] = []
    of_biases: list[Matrix] = []
    for i in range(len(layers) - 1, -1, -1):
        of_weights.insert(0, activations[i].T @ slope)
        of_biases.insert(0, slope.sum(0))
        if i:
            slope = (slope @ layers[i].T) * (activations[i] > 0)
    return [*of_weights, *of_biases]


class _Adam:
    """Adam with decoupled weight decay, in place."""

    def __init__(self, parameters: list[Matrix]) -> None:
        self.parameters = parameters
        self.first = [np.zeros_like(p) for p in parameters]
        self.second = [np.zeros_like(p) for p in parameters]
        self.step = 0

    def update(self, gradients: list[Matrix], rate: float, decay: float, decayed: int) -> None:
        self.step += 1
        bias1, bias2 = 1 - 0.9**self.step, 1 - 0.999**self.step
        for i, (p, g, a, b) in enumerate(zip(self.parameters, gradients, self.first, self.second, strict=True)):
            a += 0.1 * (g - a)
            b += 0.001 * (g * g - b)
            if i < decayed:
                p -= rate * decay * p
            p -= rate * (a / bias1) / (np.sqrt(b / bias2) + 1e-8)
