"""How transformers writes the same block differently from family to family: what changes kernels but not what the model needs."""

from __future__ import annotations

from msgspec.structs import replace

from tilewise.hwdb.record import Record
from tilewise.server.architecture.model import Architecture


class Variant(Record):
    """One family's way; keys are those of sequences.toml.

    norm:       key of [norms] that replaces a weighted RMSNorm (or, for "layer...", a LayerNorm)
    activation: key of [activations] that replaces the named function
    fused_qkv:  how one q/k/v matrix is taken apart: "slice" (its backward fills and adds), "chunk" (heads interleaved:
                concatenates and transposes), "split" (concatenates), "parts" (copied out of parts that hold all three),
                "index" (gathers keys and values)
    scores:     key of [scores] where its own code writes attention out
    windows_in_scores: its scores mask windows themselves: masks and caches are those of attention to all keys
    broadcasts_kv: leaves it to sdpa to meet many query heads with one key-value head, which only its math path does
    positions:  kernels that make positions and biases in another way, after which no packed batch is looked for; 0: the usual way
    decoder_positions: what a decoder behind an encoder launches for them instead, with a mask of ones that it makes and looks through
    counts_positions: they are counted over the tokens that are no padding, along one sequence by a scan of two kernels
    constant_positions: looks positions up in a table that it works out, and adds them
    shifts:     key of [operations] by which a decoder's input is made of the labels
    packing:    looks whether a batch is packed
    both_masks: prepares for full and for windowed attention, whatever its layers are
    masks:      hands sdpa a mask where the causal flag would do
    relative:   hands sdpa a learned bias of distances, which its "first" layer makes for all, each with a causal mask of its own, or
                "every" layer makes
    joins_rope: concatenates the rotated and the untouched part even where the whole head rotates
    rope:       key of [ropes]
    tables_by_kind: makes rotary tables for every kind of layer
    repeats_angles:   bytes of an element of the rotary tables, where every layer writes them out once more; 0: none does
    sinusoids:  keeps the rotary tables in fp32; launches by which every layer looks its positions up in them and writes each angle twice
    keeps_fp32: hands rotated queries and keys on in fp32
    scales_branches: multiplies each branch by a learned vector
    scales_embedding, scales_residual, scales_routed: multiplies by a constant
    softcaps_logits, scales_logits: squashes or scales the lm_head's output
    scales_head_input: scales what the lm_head reads
    head_bias:  adds the lm_head's bias by itself
    lifts_loss: an encoder that lifts its logits to fp32
    loss_apart: torch.compile breaks its graph before the loss (torch._dynamo.explain)
    scales_q:    multiplies the queries by themselves, before the product that scores them
    scales_queries: key of [operations] that scales queries by a logarithm of the position
    spreads_kv: writes keys and values out for every query head before it rotates and caches them
    pools: key of [operations] by which a tower alone answers with one row
    token_dropout: zeroes masked tokens' embeddings and scales the others by how many there are
    indexer_rope: key of [ropes] of a sparse attention's indexer that its own code writes out
    norms_rotated: normalises queries and keys in layers that rotate alone, and scales queries in the others
    router:      key of [routers], or "every_expert": all experts work on all tokens
    lifts_router: lifts the router's input to fp32, or "both" its factors
    weights:     key of [weights]: what becomes of the chosen experts' scores
    combines_fp32:    keeps the routing weights, and so the weighted rows, in fp32
    shared_fp32: adds the shared experts in fp32
    """

    norm: str = ""
    activation: str = ""
    fused_qkv: str = "slice"
    scores: str = ""
    windows_in_scores: bool = False
    broadcasts_kv: bool = False
    positions: int = 0
    decoder_positions: int = 0
    counts_positions: bool = False
    constant_positions: bool = False
    shifts: str = "shifted_labels"
    packing: bool = True
    both_masks: bool = False
    masks: bool = False
    relative: str = ""
    joins_rope: bool = False
    rope: str = "halves_exchanged"
    tables_by_kind: bool = False
    repeats_angles: int = 0
    sinusoids: int = 0
    keeps_fp32: bool = False
    scales_branches: bool = False
    scales_embedding: bool = False
    scales_residual: bool = False
    scales_routed: bool = False
    softcaps_logits: bool = False
    scales_logits: bool = False
    scales_head_input: bool = False
    head_bias: bool = False
    lifts_loss: bool = False
    loss_apart: bool = False
    scales_q: bool = False
    scales_queries: str = ""
    spreads_kv: bool = False
    pools: str = ""
    token_dropout: bool = False
    indexer_rope: str = ""
    norms_rotated: bool = False
    router: str = "softmax"
    lifts_router: str = ""
    weights: str = "divided_narrow"
    combines_fp32: bool = False
    shared_fp32: bool = False

    def norm_of(self, kind: str, weighted: bool) -> str:
        """The key of [norms] for a norm of this kind ("rms" or "layer") in this family."""
        if kind == "rms" and not weighted:
            return "rms_plain"
        return self.norm if self.norm.startswith(kind) else kind

    @property
    def divides(self) -> bool:
        """Whether the chosen experts' weights are divided by their sum."""
        return "divided" in self.weights or "quotient" in self.weights


_GEMMA = Variant(norm="rms_shifted", scales_embedding=True)
_GEMMA2 = Variant(both_masks=True, norm="rms_shifted", scales_embedding=True, softcaps_logits=True)
_GEMMA3 = replace(_GEMMA, both_masks=True, tables_by_kind=True)
_GEMMA4 = Variant(both_masks=True, norm="rms_lifted", scales_embedding=True, tables_by_kind=True)
_GRANITE = Variant(scales_residual=True, scales_embedding=True, scales_logits=True)
_GRANITE_MOE = replace(_GRANITE, router="lifted", weights="softmax_fp32")
_COHERE = Variant(norm="layer_written", rope="lifted", scales_logits=True)
_OLMO2 = Variant(norm="rms_late", rope="fp32")
_GROUPS = Variant(router="groups", lifts_router="both", weights="gathered_divided_scaled", combines_fp32=True)
_DEEPSEEK = replace(_GROUPS, router="several_groups", rope="interleaved")
_PLAIN = Variant()
_BART = Variant(scales_embedding=True, head_bias=True, packing=False, positions=2, decoder_positions=7)
_MARIAN = replace(_BART, positions=1, decoder_positions=6)
_SPLIT = Variant(fused_qkv="split")
_ROBERTA = Variant(positions=10, counts_positions=True)
_T5 = Variant(norm="rms_narrow", relative="first")
_UNDIVIDED = Variant(weights="narrow")
_BOTH = Variant(both_masks=True)
VARIANTS: dict[str, Variant] = {
    "afmoe": Variant(
        packing=False, both_masks=True, router="sigmoid", weights="gathered_quotient_scaled", combines_fp32=True
    ),
    "bart": _BART,
    "axk1": replace(_GROUPS, rope="interleaved"),
    "biogpt": Variant(positions=6),
    "blenderbot": _MARIAN,
    "blenderbot-small": _MARIAN,
    "bloom": Variant(scores="alibi", activation="bloom_gelu", positions=13),
    "camembert": _ROBERTA,
    "clip_text_model": Variant(packing=False, pools="pooled_end"),
    "codegen": Variant(scores="fp32", rope="pairs_fp32", keeps_fp32=True, fused_qkv="parts", sinusoids=5),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, both_masks=True),
    "ctrl": Variant(scales_embedding=True),
    "cwm": _BOTH,
    "deepseek_v2": Variant(
        rope="complex", router="softmax_fp32", lifts_router="both", weights="scaled", combines_fp32=True
    ),
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": replace(_DEEPSEEK, masks=True, indexer_rope="halves_exchanged"),
    "dinov2": Variant(scales_branches=True),
    "cohere2_moe": replace(_COHERE, both_masks=True, router="chosen", weights="softmax_lifted"),
    "data2vec-text": _ROBERTA,
    "dots1": _GROUPS,
    "ernie4_5": Variant(rope="factors_lifted", repeats_angles=4),
    "ernie4_5_moe": Variant(
        rope="factors_lifted",
        repeats_angles=4,
        router="softmax_biased",
        lifts_router="input",
        weights="gathered_clamped_narrow",
    ),
    "esmc": Variant(scales_residual=True),
    "esm": Variant(rope="lifted_twice", activation="esm_gelu", head_bias=True, positions=9, token_dropout=True),
    "eurobert": Variant(lifts_loss=True),
    "exaone_moe": _GROUPS,
    "falcon": Variant(fused_qkv="index", broadcasts_kv=True, masks=True, packing=False, spreads_kv=True),
    "flex_olmo": replace(_OLMO2, weights="narrow"),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "glm": Variant(repeats_angles=2),
    "glm4": Variant(repeats_angles=2),
    "glm4_moe": _GROUPS,
    "glm4_moe_lite": replace(_GROUPS, rope="interleaved"),
    "glm4v_moe_text": _GROUPS,
    "glm_moe_dsa": replace(_GROUPS, rope="interleaved", masks=True, indexer_rope="interleaved"),
    "gpt2": replace(_SPLIT, loss_apart=True),
    "gpt-sw3": replace(_SPLIT, loss_apart=True),
    "gpt_neox_japanese": Variant(scores="onto_zeros", fused_qkv="chunk", joins_rope=True),
    "gpt_bigcode": _SPLIT,
    "gpt_neo": Variant(scores="fp32_where", windows_in_scores=True),
    "gpt_neox": Variant(fused_qkv="chunk"),
    "gpt_oss": Variant(
        packing=False,
        both_masks=True,
        scores="sinks",
        rope="halves",
        activation="clamped_swiglu",
        router="chosen",
        weights="softmax",
    ),
    "gptj": Variant(scores="fp32", sinusoids=8),
    "granite": _GRANITE,
    "granite_swa": replace(_GRANITE, both_masks=True, scores="weighed_sinks"),
    "granitemoe": _GRANITE_MOE,
    "granitemoe_swa": replace(_GRANITE_MOE, both_masks=True, scores="weighed_sinks"),
    "granitemoeshared": _GRANITE_MOE,
    "helium": Variant(norm="rms_lifted", repeats_angles=2),
    "hunyuan_v1_moe": Variant(router="softmax_fp32", lifts_router="input", weights="divided", combines_fp32=True),
    "hy_v3": Variant(
        router="sigmoid_fp32",
        lifts_router="both",
        weights="gathered_quotient_scaled",
        combines_fp32=True,
        shared_fp32=True,
    ),
    "laguna": Variant(
        router="sigmoid_biased", weights="gathered_divided_narrow", scales_routed=True, tables_by_kind=True
    ),
    "lfm2_moe": Variant(router="sigmoid_narrow", weights="gathered_quotient_scaled"),
    "llama4_text": Variant(
        router="every_expert", rope="complex", norms_rotated=True, scales_queries="scaled_queries_fp32"
    ),
    "m2m_100": Variant(
        scales_embedding=True,
        packing=False,
        positions=9,
        decoder_positions=13,
        counts_positions=True,
        constant_positions=True,
    ),
    "marian": _MARIAN,
    "mbart": replace(_BART, shifts="shifted_labels_end"),
    "mellum": Variant(tables_by_kind=True),
    "minicpm3": Variant(scales_residual=True, scales_embedding=True, scales_head_input=True),
    "minimax_m2": Variant(router="sigmoid", weights="gathered_divided", combines_fp32=True, joins_rope=True),
    "ministral": _BOTH,
    "ministral3": Variant(scales_queries="scaled_queries"),
    "mistral4": Variant(
        rope="interleaved", scales_queries="scaled_queries", router="softmax_groups", weights="gathered_divided_scaled"
    ),
    "megatron-bert": Variant(scores="written"),
    "mimo_v2_flash": replace(_GROUPS, scores="sinks", tables_by_kind=True),
    "mixtral": Variant(weights="divided", combines_fp32=True),
    "modernbert": Variant(rope="lifted_twice", fused_qkv="split", tables_by_kind=True, lifts_loss=True, positions=1),
    "hyperclovax": _GRANITE,
    "minimax_m3_vl_text": Variant(
        norm="rms_shifted",
        activation="clamped_halves",
        router="sigmoid",
        weights="gathered_divided",
        combines_fp32=True,
        joins_rope=True,
        scales_routed=True,
    ),
    "modernbert-decoder": Variant(rope="lifted_twice", tables_by_kind=True),
    "rembert": Variant(scores="written"),
    "layoutlm": Variant(scores="written"),
    "openai-gpt": Variant(scores="written"),
    "roformer": Variant(scores="written"),
    "mpt": Variant(scores="alibi_fp32", fused_qkv="split", positions=7),
    "mt5": _T5,
    "nanochat": Variant(softcaps_logits=True),
    "nemotron": Variant(norm="layer_shifted"),
    "olmo": Variant(norm="layer_fp32", rope="fp32"),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, both_masks=True, tables_by_kind=True),
    "olmoe": _UNDIVIDED,
    "opt": Variant(positions=8, scales_q=True),
    "pegasus": _MARIAN,
    "plbart": _BART,
    "phi3": Variant(joins_rope=True),
    "phimoe": Variant(router="sparse_mixer", weights="plain"),
    "qwen2_5_vl_text": Variant(positions=3),
    "qwen2_moe": replace(_UNDIVIDED, both_masks=True),
    "qwen2_vl_text": Variant(positions=3),
    "qwen3_next": Variant(norm="rms_shifted"),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": _ROBERTA,
    "siglip_text_model": Variant(pools="pooled_last"),
    "siglip_vision_model": Variant(pools="pooled_attention"),
    "solar_open": _GROUPS,
    "t5": replace(_T5, scales_head_input=True),
    "umt5": replace(_T5, relative="every", scales_head_input=True),
    "vaultgemma": _GEMMA2,
    "xglm": Variant(scores="clamped", scales_q=True, scales_embedding=True, packing=False, constant_positions=True),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": _ROBERTA,
    "youtu": Variant(rope="interleaved"),
}


def variant(arch: Architecture) -> Variant:
    """The variant of transformers' model_type, or of the text model inside; plain Llama-like code where none is known."""
    return VARIANTS.get(arch.model_type) or VARIANTS.get(arch.family, _PLAIN)
