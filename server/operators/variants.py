"""How transformers writes the same block differently from family to family: what changes kernels but not what the model needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewise.server.architecture.model import Architecture


@dataclass(frozen=True, slots=True)
class Variant:
    """One family's way.

    norm:       key of norm_sequences.NORMS that replaces a weighted RMSNorm (or, for "layer...", a LayerNorm)
    activation: key of sequences.ACTIVATIONS that replaces the named function
    fused_qkv:  how one q/k/v matrix is taken apart: "slice" (its backward fills and adds), "chunk" (heads interleaved:
                concatenates and transposes), "split" (concatenates), "index" (gathers keys and values)
    scores:     key of score_sequences.SCORES where its own code writes attention out
    broadcasts_kv: leaves it to sdpa to meet many query heads with one key-value head, which only its math path does
    positions:  kernels that make positions and biases in another way, after which no packed batch is looked for; 0: the usual way
    masks:      hands sdpa a mask where the causal flag would do
    joins_rope: concatenates the rotated and the untouched part even where the whole head rotates
    rope:       key of rope_sequences.ROPES where it rotates otherwise: such as "fp32" (angles in fp32 lift the products)
    repeats_angles:   bytes of an element of the rotary tables, where every layer writes them out once more; 0: none does
    sinusoids:  keeps the rotary tables; every layer looks its positions up in them
    scales_embedding, scales_residual: multiplies by a constant
    softcaps_logits, scales_logits: squashes or scales the lm_head's output
    lifts_logits:     an encoder whose loss is the decoders', over fp32
    scales_queries:   by a logarithm of the position
    router:      key of router_sequences.ROUTERS, or "every_expert": all experts work on all tokens
    router_fp32: lifts the router's factors to fp32
    renormalises:     divides the chosen experts' weights by their sum
    combines_fp32:    keeps the routing weights, and so the weighted rows, in fp32
    """

    norm: str = ""
    activation: str = ""
    fused_qkv: str = "slice"
    scores: str = ""
    broadcasts_kv: bool = False
    positions: int = 0
    masks: bool = False
    joins_rope: bool = False
    rope: str = ""
    repeats_angles: int = 0
    sinusoids: bool = False
    scales_embedding: bool = False
    scales_residual: bool = False
    softcaps_logits: bool = False
    scales_logits: bool = False
    lifts_logits: bool = False
    scales_queries: bool = False
    router: str = "softmax"
    router_fp32: bool = False
    renormalises: bool = True
    combines_fp32: bool = False

    def norm_of(self, kind: str, weighted: bool) -> str:
        """The key of norm_sequences.NORMS for a norm of this kind ("rms" or "layer") in this family."""
        if kind == "rms" and not weighted:
            return "rms_plain"
        return self.norm if self.norm.startswith(kind) else kind


_GEMMA = Variant(norm="rms_shifted", scales_embedding=True)
_GEMMA2 = Variant(norm="rms_shifted", scales_embedding=True, softcaps_logits=True)
_GRANITE = Variant(scales_residual=True, scales_embedding=True, scales_logits=True)
_COHERE = Variant(norm="layer_written", rope="lifted", scales_logits=True)
_SIGMOID = Variant(router="sigmoid", combines_fp32=True)
_GROUPS = Variant(router="groups", router_fp32=True, combines_fp32=True)
_PLAIN = Variant()
_SPLIT = Variant(fused_qkv="split")
_ROBERTA = Variant(positions=10)
VARIANTS: dict[str, Variant] = {
    "afmoe": _SIGMOID,
    "axk1": replace(_GROUPS, rope="interleaved"),
    "biogpt": Variant(positions=6),
    "bloom": Variant(scores="alibi", activation="bloom_gelu", positions=13),
    "camembert": _ROBERTA,
    "codegen": Variant(scores="fp32", sinusoids=True, positions=1),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "cohere2_moe": _COHERE,
    "data2vec-text": _ROBERTA,
    "deepseek_v2": Variant(rope="complex", router_fp32=True, combines_fp32=True, renormalises=False),
    "deepseek_v3": replace(_GROUPS, rope="interleaved"),
    "dots1": _GROUPS,
    "ernie4_5": Variant(rope="factors_lifted", repeats_angles=4),
    "ernie4_5_moe": Variant(rope="factors_lifted", repeats_angles=4),
    "esm": Variant(rope="lifted_twice", activation="esm_gelu"),
    "eurobert": Variant(lifts_logits=True),
    "exaone_moe": _GROUPS,
    "falcon": Variant(fused_qkv="index", broadcasts_kv=True, masks=True),
    "flex_olmo": Variant(combines_fp32=True, renormalises=False),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA,
    "gemma3_text": _GEMMA,
    "gemma4_text": Variant(scales_embedding=True),
    "gemma4_unified_text": Variant(scales_embedding=True),
    "glm": Variant(repeats_angles=2),
    "glm4": Variant(repeats_angles=2),
    "glm4_moe": _GROUPS,
    "glm4_moe_lite": replace(_GROUPS, rope="interleaved"),
    "gpt2": _SPLIT,
    "gpt_bigcode": _SPLIT,
    "gpt_neo": Variant(scores="fp32_where"),
    "gpt_neox": Variant(fused_qkv="chunk"),
    "gpt_oss": Variant(scores="sinks", rope="halves", activation="clamped_swiglu", router="chosen", renormalises=False),
    "gptj": Variant(scores="fp32", sinusoids=True),
    "granite": _GRANITE,
    "granite_swa": replace(_GRANITE, scores="sinks"),
    "granitemoe": replace(_GRANITE, renormalises=False),
    "granitemoe_swa": replace(_GRANITE, scores="sinks", renormalises=False),
    "helium": Variant(norm="rms_lifted", repeats_angles=2),
    "hyperclovax": _GRANITE,
    "hy_v3": _SIGMOID,
    "hunyuan_v1_moe": Variant(combines_fp32=True),
    "llama4_text": Variant(router="every_expert", rope="complex"),
    "minicpm3": _GRANITE,
    "minimax_m2": Variant(router="sigmoid", combines_fp32=True, joins_rope=True),
    "minimax_m3_vl_text": Variant(norm="rms_shifted", router="sigmoid", combines_fp32=True, joins_rope=True),
    "ministral3": Variant(scales_queries=True),
    "mistral4": Variant(rope="interleaved", scales_queries=True, router="softmax_groups"),
    "mimo_v2_flash": replace(_GROUPS, scores="sinks"),
    "mixtral": Variant(combines_fp32=True),
    "modernbert": Variant(rope="lifted_twice"),
    "mpt": Variant(scores="alibi_fp32", fused_qkv="split", positions=7),
    "nanochat": Variant(softcaps_logits=True),
    "nemotron": Variant(norm="layer_shifted"),
    "olmo": Variant(norm="layer_fp32", rope="fp32"),
    "olmo2": Variant(norm="rms_late", rope="fp32"),
    "olmo3": Variant(norm="rms_late", rope="fp32"),
    "olmoe": Variant(renormalises=False),
    "opt": Variant(positions=12),
    "phi3": Variant(joins_rope=True),
    "phimoe": Variant(router="sparse_mixer", renormalises=False),
    "qwen2_5_vl_text": Variant(positions=3),
    "qwen2_moe": Variant(renormalises=False),
    "qwen2_vl_text": Variant(positions=3),
    "qwen3_next": Variant(norm="rms_shifted"),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "solar_open": _GROUPS,
    "vaultgemma": _GEMMA2,
    "xglm": Variant(scores="clamped"),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "youtu": Variant(rope="interleaved"),
}


def variant(arch: Architecture) -> Variant:
    """The variant of transformers' model_type, or of the text model inside; plain Llama-like code where none is known."""
    return VARIANTS.get(arch.model_type) or VARIANTS.get(arch.family, _PLAIN)
