"""What hwdb/kernels/transfer.toml says of carry-overs that measure_transfer.py measured."""

from collections.abc import Iterator

import numpy as np

from tilewise.hwdb.database import Database

COVERAGE = 0.9
OWN = {
    f"{kernel}{back}"
    for kernel in ("cudnn_forward", "cudnn_backward", "norm", "norm_backward")
    for back in ("", "_compiled")
}
EDGES_S = (
    3e-5,
    3e-4,
)  # between short, middling and long kernels: the launch is much of the short, and no roofline shortens it
KNOTS_S = 1.5e-5, 1e-4, 1e-3  # what stands for each
FEW = 30  # pairs below which all are one
HEAD = f"""# How far an operator lies off that is carried over from a sibling by the ratio of both rooflines: medians of log(carried over /
# measured), and half-widths of log(time) around them that hold 90 % of what was measured on both sides; where there are three,
# of kernels that take as long as `knots_s`, with lines between. Written by scripts/research/measure_transfer.py; see
# docs/published.md.
knots_s = {list(KNOTS_S)}

# the shortest of torch's very kernels that others timed on a generation
"""

Entries = dict[str, dict[str, list[float]]]  # word -> generation -> at each of KNOTS_S


def text(found: list[tuple[str, str, np.ndarray]]) -> str:
    """The file of (operator, GPU, logs of carried over / published with the published seconds)."""
    return HEAD + "\n".join(lines(found)) + "\n"


def lines(found: list[tuple[str, str, np.ndarray]]) -> Iterator[str]:
    """By operator, then by generation of the GPU that a time is carried to."""
    pooled: dict[str, dict[str, list[np.ndarray]]] = {}
    for word, target, off in found:
        pooled.setdefault(word, {}).setdefault(Database.packaged().sku(target).generation, []).append(off)
    together = {word: {name: np.concatenate(some, axis=1) for name, some in by.items()} for word, by in pooled.items()}
    bias, error = entries(together)
    assumed(bias, error)
    for word in sorted(set(together) & OWN):
        yield f"[timed.{word}]\nblackwell = {together[word]['blackwell'][1].min():.2g}"
    for section, known in (("error", error), ("bias", bias)):
        for word in sorted(known):
            rows = [f"{name} = {said(some)}" for name, some in sorted(known[word].items()) if any(some)]
            yield from [f"[{section}.{word}]", *rows] if rows else []


def entries(together: dict[str, dict[str, np.ndarray]]) -> tuple[Entries, Entries]:
    """Medians of each band, and what holds 90 % around them."""
    bias: Entries = {}
    error: Entries = {}
    for word, by in together.items():
        for name, (off, seconds) in by.items():
            other = (
                word.startswith(("engine_", "layout")) or name == "cdna3"
            )  # another kernel, direction or format: all is error
            middles = [0.0 if other else float(np.median(one)) for one in bands(off, seconds)]
            bias.setdefault(word, {})[name] = middles
            error.setdefault(word, {})[name] = [
                spread(one - m) for one, m in zip(bands(off, seconds), middles, strict=True)
            ]
    for compiled in ("", "_compiled"):  # few points each: their errors are one
        words = [f"norm{compiled}", f"norm_backward{compiled}"]
        rest = np.concatenate([together[word]["blackwell"][0] - bias[word]["blackwell"][-1] for word in words])
        error |= {word: {"blackwell": [spread(rest)] * len(KNOTS_S)} for word in words}
    return bias, error


def bands(off: np.ndarray, seconds: np.ndarray) -> list[np.ndarray]:
    """The errors of short kernels, of middling and of long ones; of all where one of these has few."""
    band = np.searchsorted(EDGES_S, seconds)
    found = [off[band == one] for one in range(len(KNOTS_S))]
    return [one if len(one) >= FEW else off for one in found]


def spread(off: np.ndarray) -> float:
    """Conformal: holds 90 % of the next ones."""
    rank = int(np.ceil((len(off) + 1) * COVERAGE))
    return float(np.sort(np.abs(off))[min(rank, len(off)) - 1])


def assumed(bias: Entries, error: Entries) -> None:
    """What follows for kernels of which no pair has both sides."""
    for known, more in ((bias, 1.0), (error, 1.5)):  # a backward: the forward's, and half as much again
        for backward, forward in (("attention_backward", "attention_forward"), ("flash_backward", "flash_forward")):
            known[backward] = {name: [more * one for one in some] for name, some in known[forward].items()}
    # memory-bound kernels: one of them, the cast, was timed on both sides; how much kernels differ our two GPUs show
    for name in set(error["cast"]) - {"hopper"}:
        bias["memory"][name] = bias["cast"][name]
        error["memory"][name] = np.hypot(error["cast"][name], error["memory"]["hopper"]).tolist()
    error["cast"] = {
        name: [max(some) / 2] * len(some) for name, some in error["cast"].items()
    }  # of what is left without it
    del bias["cast"]
    for word in sorted(OWN & set(error)):
        like = "memory" if word.startswith("norm") else f"attention_{word.rpartition('_')[2]}"
        if word.startswith("cudnn"):  # none of the timed ones is short: engines' were missed by so much
            error[word]["blackwell"][0] = float(np.hypot(error[like]["blackwell"][0], bias[like]["blackwell"][0]))
        # engines' kernels are carried over to the younger generation better or worse by so much
        step = np.subtract(bias[like]["blackwell-ultra"], bias[like]["blackwell"])
        step = step / 2 if word == "cudnn_backward" else step  # of five products two have exponentials
        bias[word]["blackwell-ultra"] = np.add(bias[word]["blackwell"], step).tolist()
        error[word]["blackwell-ultra"] = np.hypot(error[word]["blackwell"], step).tolist()


def said(some: list[float]) -> str:
    words = [f"{one:.3f}" for one in some]
    return words[0] if len(set(words)) == 1 else f"[{', '.join(words)}]"
