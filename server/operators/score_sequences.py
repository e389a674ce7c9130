"""What happens to the scores, queries x keys, of attention that a family writes out itself, as sequences.py writes them."""

from __future__ import annotations

from tilewise.server.operators.sequences import FROM_FP32, TO_FP32, Operands, Sequence, launch

_MASK = launch("pointwise_strided", "a", "a")
_MASK_FP32 = launch("pointwise_strided", "f", "f")
_SOFTMAX_FP32 = launch("softmax", "f", "f", special=1)
_SOFTMAX_FP32_BACKWARD = launch("softmax_backward", "ff", "f")
# Attention written out in a family's own code: what happens to the scores, queries x keys, between the two products
SCORES: dict[str, Sequence] = {
    "sinks": Sequence(  # gpt-oss: a column of sinks beside the keys, the largest score taken off, softmax in 16 bit
        (
            launch("pointwise", "a", "a"),
            _MASK,
            launch("cat", "a", "a"),
            launch("reduce", "a", "i"),
            launch("pointwise_strided", "a", "a"),
            launch("softmax", "a", "a", special=1),
        ),
        (
            launch("fill", "", "a"),
            launch("transpose.slice_backward", "a", "a"),
            launch("softmax_backward", "aa", "a"),
            launch("pointwise", "a", "a"),
            launch("reduce", "a", "r"),
            launch("fill", "", "a"),
            launch("scatter_add", "i", "r"),
            launch("add", "aa", "a"),
            launch("pointwise", "a", "a"),
            launch("reduce", "r", "", whole=False),
        ),
        Operands.of("aai"),
    ),
    "alibi": Sequence(  # BLOOM: the product adds the positions itself
        (_MASK, TO_FP32, _SOFTMAX_FP32, FROM_FP32), (TO_FP32, _SOFTMAX_FP32_BACKWARD, FROM_FP32), Operands.of("fa")
    ),
    "alibi_fp32": Sequence(  # MPT: positions in fp32 lift the scores
        (
            launch("pointwise", "a", "a"),
            launch("pointwise_strided", "a", "f"),
            launch("copy", "f", "f"),
            _MASK_FP32,
            _SOFTMAX_FP32,
            FROM_FP32,
        ),
        (
            TO_FP32,
            _SOFTMAX_FP32_BACKWARD,
            launch("copy", "f", "f"),
            _MASK_FP32,
            FROM_FP32,
            launch("pointwise", "a", "a"),
        ),
        Operands.of("fa"),
    ),
    "fp32": Sequence(  # GPT-J, CodeGen: scores of fp32 queries and keys
        (launch("pointwise", "f", "f"), _MASK_FP32, _SOFTMAX_FP32, FROM_FP32),
        (TO_FP32, _SOFTMAX_FP32_BACKWARD, launch("pointwise", "f", "f")),
        Operands.of("fa"),
    ),
    "fp32_where": Sequence(  # GPT-Neo: not scaled, masked twice
        (_MASK_FP32, _MASK_FP32, _SOFTMAX_FP32, FROM_FP32),
        (TO_FP32, _SOFTMAX_FP32_BACKWARD, _MASK_FP32),
        Operands.of("fa"),
    ),
    "clamped": Sequence(  # XGLM: kept above the least number
        (_MASK, launch("fill", "", "r"), launch("pointwise", "a", "a"), launch("softmax", "a", "a", special=1)),
        (
            launch("softmax_backward", "aa", "a"),
            launch("pointwise", "a", "b", times=2),
            launch("pointwise", "a", "a"),
            launch("pointwise", "ab", "a"),
            launch("pointwise", "aab", "a"),
        ),
        Operands.of("aa"),
    ),
}
