"""How transformers writes the same block differently from family to family: what changes kernels but not FLOPs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variant:
    """norm:     key of sequences.NORMS that replaces a weighted RMSNorm
    fused_qkv:   how one q/k/v matrix is taken apart: "chunk" (heads interleaved; its backward concatenates and
                 transposes) or "slice" (its backward fills and adds)
    joins_rope:  concatenates the rotated and the untouched part even where the whole head rotates
    scales_embedding: multiplies the embedding by a constant
    renormalises:  divides the chosen experts' weights by their sum
    combines_fp32: keeps the routing weights, and so the weighted rows, in fp32
    """

    norm: str = ""
    fused_qkv: str = "slice"
    joins_rope: bool = False
    scales_embedding: bool = False
    renormalises: bool = True
    combines_fp32: bool = False


_GEMMA = Variant(norm="rms_shifted", scales_embedding=True)
_PLAIN = Variant()
VARIANTS: dict[str, Variant] = {
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "gemma3_text": _GEMMA,
    "qwen3_next": Variant(norm="rms_shifted"),
    "gpt_neox": Variant(fused_qkv="chunk"),
    "phi3": Variant(joins_rope=True),
    "mixtral": Variant(combines_fp32=True),
    "olmoe": Variant(renormalises=False),
    "qwen2_moe": Variant(renormalises=False),
}


def variant(model_type: str) -> Variant:
    """The variant of transformers' model_type; plain Llama-like code where none is known."""
    return VARIANTS.get(model_type, _PLAIN)
