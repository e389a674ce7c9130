"""Architecture: a shape with its structure, free of any family's key names.

One description serves both counts: every matrix is a `Linear`, so parameters and FLOPs are read off the same object.
A size is an int, or an int64 array of shape (candidates,): a thousand candidate shapes of one structure are one
Architecture whose varied sizes are arrays. Nothing here branches on the value of a size.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tilewise.hwdb.record import Record
from tilewise.server.architecture.dropout import NO_DROPOUT, Dropout

Size = int | NDArray[np.int64]


class Split(StrEnum):
    """How tensor parallelism shards a matrix."""

    COLUMN = "column"  # outputs are divided
    ROW = "row"  # inputs are divided; the result needs an all-reduce
    NONE = "none"  # every rank holds the whole


class Linear(Record, kw_only=True):
    """y = x W^T (+ b) with W of shape (outputs, inputs).

    weightless: work without parameters of its own: weights that are used again, or activations that mix each other
    """

    name: str
    inputs: Size
    outputs: Size
    bias: bool = False
    split: Split = Split.NONE
    weightless: bool = False

    @property
    def parameters(self) -> Size:
        return 0 if self.weightless else self.inputs * self.outputs + (self.outputs if self.bias else 0)


class Norm(Record, kw_only=True):
    """A normalisation over `width`; weight and bias say which parameters it has (OLMo's has none).

    heads: slices of `width` per token that share the one weight (q_norm of Qwen3: the number of query heads)
    """

    name: str
    width: Size
    heads: Size = 1
    kind: str = "rms"  # "rms" or "layer"
    weight: bool = True
    bias: bool = False

    @property
    def parameters(self) -> Size:
        return self.width * (int(self.weight) + int(self.bias))


class Attention(Record, kw_only=True):
    """Softmax attention with grouped heads (MHA, MQA, GQA), projections included.

    window:       keys a query sees at most (sliding window); 0: no window
    chunk:        block-local attention over chunks of that many tokens (Llama 4); 0: none
    compression:  beyond the window, one key stands for so many tokens (DeepSeek V4); 0: none
    projections:  the matrices in the order the model runs them (q, k, v, o; or one fused qkv)
    norms:        q/k norms inside the attention, each over its own width, `Norm.heads` times a token
    rope_dim:     dimensions of each head that are rotated; 0: no rotary embedding
    cross:        keys and values come from the encoder
    sinks:        learned sink logits (one parameter a head)
    shares_kv:    keys and values are those of an earlier layer (Gemma 3n): none projected, none cached here
    passes:       kernels over the same queries and keys, each with values of its own (DiffLlama)
    values_are_keys: one vector of a token is its key and its value, and is cached once (DeepSeek V4)
    extra_parameters: what no matrix or norm holds (relative position tables, ...)
    indexer:      sparse-attention indexer (DeepSeek V3.2), None where absent
    """

    heads: Size
    kv_heads: Size
    head_dim: Size
    head_dim_v: Size
    projections: tuple[Linear, ...]
    norms: tuple[Norm, ...] = ()
    causal: bool = True
    window: Size = 0
    chunk: Size = 0
    compression: Size = 0
    rope_dim: Size = 0
    cross: bool = False
    sinks: bool = False
    shares_kv: bool = False
    values_are_keys: bool = False
    passes: int = 1
    extra_parameters: Size = 0
    indexer: Indexer | None = None
    latent: Latent | None = None


class Latent(Record, kw_only=True):
    """Multi-head latent attention: what the cache holds and what decode may absorb.

    kv_rank, rope_dim: cached width per token is kv_rank + rope_dim
    nope_dim:          head_dim = nope_dim + rope_dim
    caches_whole:      the transformers library's class keeps the keys and values of every head, not what they are made of
    """

    kv_rank: Size
    rope_dim: Size
    nope_dim: Size
    q_rank: Size = 0
    caches_whole: bool = False


class Indexer(Record, kw_only=True):
    """Lightning indexer: scores every cached token with few small heads and keeps `top_k` of them.

    shared: the choice is that of an earlier layer: no work and no parameters here
    """

    heads: Size
    head_dim: Size
    top_k: Size
    projections: tuple[Linear, ...]
    norms: tuple[Norm, ...] = ()
    shared: bool = False
    extra_parameters: Size = 0


class Recurrent(Record, kw_only=True):
    """A mixer with a state instead of a cache: Mamba 1, Mamba 2, gated delta net, short convolution.

    kind:        "mamba1", "mamba2", "gated_delta", "lightning" (MiniMax), "short_conv" (LFM2: no scan)
    inner:       channels of the scan; state: state size per channel (mamba) or key dim (gated_delta)
    heads, head_dim, groups: as in Mamba 2 and gated delta (0 for Mamba 1)
    conv_kernel, conv_channels: depthwise convolution before the scan; conv_bias
    state_elements: elements of recurrent plus convolution state per sequence and layer
    extra_parameters: A_log, D, dt_bias and their like
    """

    kind: str
    inner: Size
    state: Size
    heads: Size = 0
    head_dim: Size = 0
    groups: Size = 0
    conv_kernel: Size = 0
    conv_channels: Size = 0
    conv_bias: bool = False
    projections: tuple[Linear, ...] = ()
    norms: tuple[Norm, ...] = ()
    state_elements: Size = 0
    extra_parameters: Size = 0


class Mlp(Record, kw_only=True):
    """Feed-forward: `gated` is act(gate) * up; projections hold one fused gate_up or separate matrices, then down."""

    width: Size
    projections: tuple[Linear, ...]
    gated: bool = True
    activation: str = "silu"
    norms: tuple[Norm, ...] = ()


class Experts(Record, kw_only=True):
    """Mixture of experts: a router, `count` routed experts of which a token visits `top_k`, and shared ones.

    expert:  the matrices of one routed expert (gated: gate and up, fused or not, then down)
    shared:  the always-active experts as one wider Mlp, None where absent; shared_gate: its sigmoid gate
    latent:  matrices into and out of the narrower width that the routed experts work in (Nemotron 3), none where absent
    router:  the scoring matrix; extra_parameters: score-correction biases (one an expert)
    unused_parameters: weights that the class holds and no token reads (LongCat's zero experts)
    """

    count: Size
    top_k: Size
    width: Size
    router: Linear
    expert: tuple[Linear, ...]
    gated: bool = True
    activation: str = "silu"
    latent: tuple[Linear, ...] = ()
    shared: Mlp | None = None
    shared_gate: Linear | None = None
    extra_parameters: Size = 0
    unused_parameters: Size = 0

    @property
    def inputs(self) -> Size:
        """Width that a routed expert reads and writes."""
        return self.expert[0].inputs


Mixer = Attention | Recurrent
FeedForward = Mlp | Experts


class Block(Record, kw_only=True):
    """One layer: norms, mixers in order (self-attention, then cross-attention in decoders of T5), feed-forward.

    layers:       indices of the layers that look exactly so (of the deepest candidate)
    count:        how many of them there are: len(layers), or an array where candidates vary the depth
    parallel:     attention and feed-forward read the same input (GPT-J, GPT-NeoX, Falcon, phi-2, Cohere)
    shared_weights: this block's parameters are those of an earlier one (Zamba): work counts, parameters do not
    """

    layers: tuple[int, ...]
    count: Size
    mixers: tuple[Mixer, ...]
    feed_forward: FeedForward | None
    norms: tuple[Norm, ...] = ()
    parallel: bool = False
    shared_weights: bool = False
    extra_linears: tuple[Linear, ...] = ()
    extra_parameters: Size = 0


class Stack(Record, kw_only=True):
    """A tower of blocks over one token stream.

    name:   "decoder", "encoder", "vision", "audio"
    role:   whether the stream's length is the workload's sequence ("text") or fixed by the input ("vision", "audio")
    tokens: fixed length of a non-text stream (patches of one image), 0 for text
    longest: tokens for which its class has positions in a table; 0: any number
    embeddings, linears, norms: before and after the blocks (patch embedding, final norm), over every token
    class_tokens: those of `tokens` that no patch becomes
    pooled: matrices after the blocks over one row a sequence (SigLIP's head)
    projector: the matrices that hand the stream to the decoder, over `projector_tokens` (fewer where patches merge)
    """

    name: str
    hidden: Size
    blocks: tuple[Block, ...]
    role: str = "text"
    tokens: Size = 0
    longest: Size = 0
    embeddings: tuple[Embedding, ...] = ()
    linears: tuple[Linear, ...] = ()
    norms: tuple[Norm, ...] = ()
    class_tokens: Size = 0
    pooled: tuple[Linear, ...] = ()
    projector: tuple[Linear, ...] = ()
    projector_tokens: Size = 0
    extra_parameters: Size = 0


class Embedding(Record, kw_only=True):
    """A lookup table: tokens, positions, token types. `kind`: "token", "position", "type", or "constant" where it does not learn."""

    name: str
    rows: Size
    width: Size
    kind: str = "token"

    @property
    def parameters(self) -> Size:
        return self.rows * self.width


class Architecture(Record, kw_only=True):
    """A whole model.

    family:  our name of the family ("llama"); model_type as the config states it
    stacks:  towers in the order they run; a decoder-only model has one, named "decoder"
    head:    the matrix onto the vocabulary (or the task head), None where the model has none
    tied:    the head shares the token embedding's parameters
    longest: tokens that the config says it was made for; 0: it says nothing
    dropout: what is dropped at random in training
    notes:   what a reader of the report should know (stand-in class, MTP modules left out, quantised checkpoint ...)
    """

    family: str
    model_type: str
    stacks: tuple[Stack, ...]
    vocab: Size
    hidden: Size
    head: Linear | None
    tied: bool = False
    head_norms: tuple[Norm, ...] = ()
    head_linears: tuple[Linear, ...] = ()
    extra_parameters: Size = 0
    dtype: str = "bfloat16"
    name: str = ""
    longest: Size = 0
    dropout: Dropout = NO_DROPOUT
    notes: tuple[str, ...] = ()
