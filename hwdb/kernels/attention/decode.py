"""Which of its two decode kernels TensorRT-LLM takes.

XQA packs the query heads of a key-value head into one tile and reads the cache once; the older masked kernel gives every
query head a block of its own, which reads the cache again, mostly from L2. The choice is public (TensorRT-LLM,
cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention: decoderXQAImplJIT.cpp mayHavePerfGain, kernelUtils.cpp
supportConfigHMMA and supportConfigQGMMA; Blackwell: the trtllm-gen kernels in place of XQA), so it is written down, not
learned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewise.hwdb.kernels.learning.chip import Chip
from tilewise.hwdb.kernels.software import Software
from tilewise.hwdb.table import Ints, OperatorTable, Phase

TORCH_FLOW = "torch_flow"  # how the tables name TensorRT-LLM's own backend
PAGED = "vllm_flash_attn"  # FlashAttention 2, as vLLM calls it
GROUP_MAX = 32  # query heads of a key-value head that XQA packs at most
WIDTH_MAX = 256
SPLIT = 128  # cached keys that a block takes at least
BLOCKS_FACTOR = 4.0  # XQA needs one block for so many SMs


def unsplit(table: OperatorTable, chip: Chip, software: Software, which: Ints) -> Any:
    """Decodes that leave each sequence and tile of heads to one block, however many SMs are idle.

    FlashAttention 2 over a paged cache splits keys only where it packs grouped query heads (flash_api.cpp, mha_varlen_fwd:
    seqlenq_ngroups_swapped). TensorRT-LLM has FlashMLA and XQA kernels for latent caches from Hopper on; on Ampere its
    prefill kernel decodes.
    """
    plain = (software.column("kernel") == PAGED)[which] & (table.heads == table.kv_heads)
    older = software.column("latent") & (software.column("engine") == "trtllm")
    latent = older[which] & chip.of_generation("ampere")
    return (table.phase == Phase.DECODE.value) & (plain | latent)


def masked(table: OperatorTable, chip: Chip, software: Software, which: Ints) -> Any:
    """Decodes that TensorRT-LLM's own backend gives to the masked kernel."""
    ours = (software.column("kernel") == TORCH_FLOW)[which] & (table.phase == Phase.DECODE.value)
    wide = software.column("cached_bytes")[which] > 1  # over fp8 caches Hopper has XQA for any load
    kv, heads = np.maximum(table.kv_heads, 1), np.maximum(table.heads, 1)
    blocks = table.batch * kv * np.maximum(1, table.seq_kv // SPLIT)
    packs = (heads <= GROUP_MAX * kv) & (table.head_dim <= WIDTH_MAX)
    before = ~packs | (heads == kv) | (wide & (blocks * BLOCKS_FACTOR < chip.sms))
    blackwell = chip.of_generation("blackwell", "blackwell-ultra")
    return ours & np.where(blackwell, ~packs, before)
