"""What one size might be instead: the values a person would consider.

A vocabulary is only ever padded, for the tokenizer stays; a width moves to whole lines of memory nearby; heads are cut
anew out of the same width, so that head_dim is one that attention kernels have.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, gcd, lcm

from tilewise.server.advise.subject import WIDTHS, Subject

LINE = 64  # elements of 16 bits in a line of 128 bytes
GRAINS = (LINE, 2 * LINE, 4 * LINE)  # a line, a tile, the widest tile; TMA alone would be content with 8 elements
REACH = 0.05  # of a width or of hidden_size: as far as one edit goes
SPLITTABLE = 4  # heads that 2 or 4 GPUs can share today must still be shared by them
EVERYWHERE = (
    128  # the largest head_dim that kernels of every production GPU are fast at: larger ones only where they are now
)
HEAD_DIMS = (
    32,
    64,
    96,
    128,
    192,
    256,
)  # what attention kernels are built for (FlashAttention 2 and 3); others are padded


def proposals(subject: Subject, field: str, split: int) -> Iterator[dict[str, int]]:
    """Sizes to set for each value that `field` might have instead, `field` first; split: GPUs that share a layer."""
    size = subject.sizes[field]
    if field == "vocab_size":
        yield from ({field: padded} for padded in paddings(size, split))
    elif field in WIDTHS:
        yield from ({field: near} for near in nearby(size, LINE * split, REACH))
    elif field == "hidden_size":
        yield from ({field: near} for near in nearby(size, hidden_grain(subject), REACH))
    elif field == "num_attention_heads":
        yield from recut(subject, subject.sizes["hidden_size"], split)
    elif field == "head_dim" and not subject.head_dim_follows:
        yield from ({field: dim} for dim in head_dims(size))


def paddings(size: int, split: int) -> list[int]:
    """The next whole numbers of each grain for every GPU."""
    padded = (-(-size // (grain * split)) * grain * split for grain in GRAINS)
    return sorted({value for value in padded if value != size})


def nearby(size: int, grain: int, reach: float) -> list[int]:
    """Multiples of `grain` within `reach` of a size, itself left out."""
    first, last = ceil(size * (1 - reach) / grain), floor(size * (1 + reach) / grain)
    return [grain * times for times in range(max(first, 1), last + 1) if grain * times != size]


def hidden_grain(subject: Subject) -> int:
    """What hidden_size moves by: whole lines, and whole heads where head_dim follows from it."""
    heads = subject.sizes.get("num_attention_heads", 1)
    return heads * 8 if subject.head_dim_follows else LINE


def recut(subject: Subject, hidden: int, split: int) -> Iterator[dict[str, int]]:
    """The same width of heads, cut into heads of another size: parameters stay what they are.

    Where head_dim is a size of its own it goes along; key and value heads keep their share of the heads.
    """
    heads, dim = subject.sizes.get("num_attention_heads", 0), subject.sizes.get("head_dim", 0)
    kv_heads = subject.sizes.get("num_key_value_heads", heads)
    if not (heads and dim and kv_heads) or subject.sizes.get("kv_lora_rank"):
        return
    width = hidden if subject.head_dim_follows else heads * dim
    for other in head_dims(dim):
        cut = width // other
        kv_cut = kv_heads * cut // heads if kv_heads != heads else cut
        whole = width % other == 0 and cut % heads_grain(heads, split) == 0 and kv_cut and cut % kv_cut == 0
        if whole and kv_cut * heads == kv_heads * cut:
            kv = {} if subject.kv_heads_follow else {"num_key_value_heads": kv_cut}
            yield {"num_attention_heads": cut, **({} if subject.head_dim_follows else {"head_dim": other}), **kv}


def head_dims(dim: int) -> list[int]:
    """What a head's size might be instead: one that kernels have, within an octave of it."""
    return [
        other for other in HEAD_DIMS if dim / 2 <= other <= 2 * dim and other != dim and other <= max(dim, EVERYWHERE)
    ]


def heads_grain(heads: int, split: int) -> int:
    """What the number of heads must be a multiple of: the GPUs that share a layer now, and those that could."""
    return lcm(split, gcd(heads, SPLITTABLE))
