"""Kernels of each way to rotate queries and keys by their positions, as sequences.py writes them."""

from __future__ import annotations

from tilewise.server.operators.sequences import FROM_FP32, TO_FP32, Sequence, launch

_ROTATE = (
    launch("rope.mul", "a", "a"),  # x * cos
    launch("rope.neg", "a", "a", share=0.5),
    launch("rope.cat", "a", "a"),
    launch("rope.mul", "a", "a"),  # * sin
    launch("rope.add", "aa", "a"),
)
_SLICE_BACKWARD = (launch("fill", "", "a"), launch("transpose.slice_backward", "a", "a", share=0.5))
_ROTATE_BACKWARD = (
    launch("rope.mul", "a", "a"),
    launch("rope.neg", "a", "a", share=0.5),
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    launch("add", "aa", "a"),
    launch("rope.mul", "a", "a"),
    launch("rope.add", "aa", "a"),
)
_ROTATE_FP32 = (  # OLMo: angles in fp32 lift the products
    launch("rope.mul", "a", "f"),
    launch("rope.neg", "a", "a", share=0.5),
    launch("rope.cat", "a", "a"),
    launch("rope.mul", "a", "f"),
    launch("rope.add", "ff", "f"),
    FROM_FP32,
)
_ROTATE_FP32_BACKWARD = (
    TO_FP32,
    launch("rope.mul", "f", "f", times=2),
    launch("cast", "f", "a", times=2),
    launch("rope.neg", "a", "a", share=0.5),
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    launch("add", "aa", "a"),
    launch("rope.add", "aa", "a"),
)
_ROPE_FUSED = Sequence((launch("rope.compiled", "a", "a"),), (launch("rope.compiled", "a", "a"),))
_ROTATE_LIFTED = (  # Cohere: the heads in fp32
    TO_FP32,
    launch("rope.mul", "f", "f"),
    launch("rope.neg", "f", "f", share=0.5),
    launch("rope.cat", "f", "f"),
    launch("rope.mul", "f", "f"),
    launch("rope.add", "ff", "f"),
    FROM_FP32,
)
_SLICE_BACKWARD_FP32 = (launch("fill", "", "f"), launch("transpose.slice_backward", "f", "f", share=0.5))
_ROTATE_LIFTED_BACKWARD = (
    TO_FP32,
    launch("rope.mul", "f", "f", times=2),
    launch("rope.neg", "f", "f", share=0.5),
    *_SLICE_BACKWARD_FP32,
    *_SLICE_BACKWARD_FP32,
    launch("rope.add", "ff", "f", times=2),
    FROM_FP32,
)
_ROTATE_LIFTED_TWICE = (TO_FP32, *_ROTATE_LIFTED)  # ESM, ModernBERT: each factor apart
_ROTATE_LIFTED_TWICE_BACKWARD = (
    TO_FP32,
    launch("rope.mul", "f", "f", times=2),
    launch("rope.neg", "f", "f", share=0.5),
    *_SLICE_BACKWARD_FP32,
    *_SLICE_BACKWARD_FP32,
    launch("rope.add", "ff", "f"),
    FROM_FP32,
    FROM_FP32,
    launch("rope.add", "aa", "a"),
)
_ROTATE_FACTORS_LIFTED = (  # ERNIE 4.5: both factors in fp32, the rotated half made in 16 bit
    TO_FP32,
    launch("rope.mul", "f", "f"),
    launch("rope.neg", "a", "a", share=0.5),
    launch("rope.cat", "a", "a"),
    TO_FP32,
    launch("rope.mul", "f", "f"),
    launch("rope.add", "ff", "f"),
    FROM_FP32,
)
_ROTATE_COMPLEX = (TO_FP32, launch("rope.mul", "f", "f"), FROM_FP32)  # Llama 4: as complex numbers
_ROTATE_COMPLEX_BACKWARD = (TO_FP32, launch("copy", "r", "r", whole=False), launch("rope.mul", "f", "f"), FROM_FP32)
_ROTATE_HALVES = (  # gpt-oss: both halves turned by themselves
    launch("rope.mul", "a", "a", times=4, share=0.5),
    launch("rope.add", "aa", "a", times=2, share=0.5),
    launch("rope.cat", "a", "a"),
)
_ROTATE_HALVES_BACKWARD = (
    launch("rope.mul", "a", "a", times=4, share=0.5),
    launch("rope.neg", "a", "a", share=0.5),
    launch("rope.add", "aa", "a", times=2, share=0.5),
    launch("rope.cat", "a", "a"),
)
_ROTATE_INTERLEAVED_BACKWARD = (  # DeepSeek V3: every other element instead of half a head
    *_ROTATE_HALVES_BACKWARD[:-1],
    *_SLICE_BACKWARD,
    *_SLICE_BACKWARD,
    launch("add", "aa", "a"),
)
ROPES = {
    "": (Sequence(_ROTATE, _ROTATE_BACKWARD), _ROPE_FUSED),
    "fp32": (Sequence(_ROTATE_FP32, _ROTATE_FP32_BACKWARD), _ROPE_FUSED),
    "lifted": (Sequence(_ROTATE_LIFTED, _ROTATE_LIFTED_BACKWARD), _ROPE_FUSED),
    "lifted_twice": (Sequence(_ROTATE_LIFTED_TWICE, _ROTATE_LIFTED_TWICE_BACKWARD), _ROPE_FUSED),
    "factors_lifted": (Sequence(_ROTATE_FACTORS_LIFTED, _ROTATE_FP32_BACKWARD), _ROPE_FUSED),
    "complex": (Sequence(_ROTATE_COMPLEX, _ROTATE_COMPLEX_BACKWARD), _ROPE_FUSED),
    "halves": (Sequence(_ROTATE_HALVES, _ROTATE_HALVES_BACKWARD), _ROPE_FUSED),
    "interleaved": (Sequence(_ROTATE_HALVES, _ROTATE_INTERLEAVED_BACKWARD), _ROPE_FUSED),
}
# Partial rotation: the rotated and the untouched part are concatenated; columns are the whole head.
ROPE_JOIN = Sequence((launch("rope.cat", "a", "a"),), (*_SLICE_BACKWARD, *_SLICE_BACKWARD, launch("add", "aa", "a")))

# Phi 3 concatenates even where nothing is left untouched: an empty part comes back as zeros.
ROPE_JOIN_NOTHING = Sequence((launch("rope.cat", "a", "a"),), (launch("fill", "", "a"), launch("add", "aa", "a")))
# Pairs of values as complex numbers: inductor has no code for those and leaves the product to torch's own kernel in fp32.
_ROTATE_COMPLEX = (TO_FP32, launch("rope.mul", "f", "f"), FROM_FP32)
ROPE_COMPLEX = Sequence(_ROTATE_COMPLEX, _ROTATE_COMPLEX)
