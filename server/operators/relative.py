"""T5's learned bias of every distance between a query and a key, which sdpa takes as a mask of its own type.

transformers' T5Attention.compute_bias and integrations/sdpa_attention.py (create_position_bias_mask).
"""

from __future__ import annotations

from tilewise.server.architecture.model import Attention, Stack
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import OPERATIONS


def relative_bias(e: Emitter, plan: Plan, stack: Stack, causal: bool, every: bool) -> None:
    """The biases of one stack: of the first layer, or of every layer by itself; of cross-attention, zeros.

    causal: the decoder's; where the first layer makes them, each layer masks them anew
    """
    layers = sum(block.count for block in stack.blocks)
    first = next(mixer for block in stack.blocks for mixer in block.mixers if isinstance(mixer, Attention))
    heads, rows, cols = first.heads // plan.tp, plan.sequence, plan.context
    times: Number = layers if every else 1
    size = rows * cols * heads * plan.width
    if plan.fused:  # looked up, masked and written by one kernel
        e.memory("relative_bias", "pointwise", heads * rows, cols, 0, size, repeat=times * (1 + causal))
        return
    buckets = OPERATIONS["relative_positions_causal" if causal else "relative_positions"]
    e.launches("relative_buckets", buckets.forward, rows, cols, plan.width, repeat=times)
    e.memory("relative_bias", "embedding", rows * cols, heads, 8 * rows * cols + size, size, repeat=times)
    if not causal:
        return
    e.memory("cross_bias", "fill", heads * rows, cols, 0, size, repeat=times)
    if not (every or plan.decode):
        _mask(e, plan, heads * rows, cols, layers)


def _mask(e: Emitter, plan: Plan, rows: Number, cols: Number, layers: Number) -> None:
    """Two ranges, their comparison, the least number, and the bias where a key may be seen."""
    area = plan.sequence * cols
    e.memory("bias_mask", "fill", cols, 1, 0, 8 * cols, repeat=2 * layers)
    e.memory("bias_mask", "pointwise_strided", plan.sequence, cols, 0, area, repeat=layers)
    e.memory("bias_mask", "fill", 1, 1, 0, plan.width, repeat=layers)
    size = rows * cols * plan.width
    e.memory("bias_mask", "pointwise_strided", rows, cols, area + size, size, repeat=layers)
