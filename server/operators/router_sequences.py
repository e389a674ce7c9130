"""From a router's logits to the scores of its experts, as sequences.py writes them."""

from __future__ import annotations

from tilewise.hwdb.record import Record
from tilewise.server.operators.sequences import FROM_FP32, TO_FP32, Sequence, launch


class Router(Record):
    """From logits to scores of experts, tokens x experts; small: further kernels over the chosen experts alone.

    in_place: the chosen weights are divided by their sum in place, of which autograd sees nothing
    """

    scores: Sequence
    small: int = 0
    small_backward: int = 0
    in_place: bool = False


_SIGMOID = (
    launch("pointwise", "f", "f", special=1),
    launch("pointwise", "f", "f"),
)  # and a bias that corrects the choice
_BEST_GROUPS = (  # two best experts of each group, the best groups, a mask over the experts of the others
    launch("topk", "f", "r", kernels=2),
    launch("reduce", "r", "r"),
    launch("topk", "r", "r", kernels=2),
    launch("fill", "", "r"),
    launch("scatter_add", "r", "r"),
    launch("cast", "f", "b"),
    launch("pointwise", "b", "b"),
    launch("copy", "f", "f"),
    launch("mul.row", "fb", "f"),
)
_SPARSE_MIXER = (  # PhiMoE: for each of two experts
    launch("reduce", "a", "i"),
    launch("pointwise", "a", "a", times=2),
    launch("pointwise_strided", "a", "a"),
    launch("pointwise", "aa", "a"),
    launch("pointwise", "a", "b"),
    launch("copy", "a", "a"),
    launch("mul.row", "ab", "a"),
    launch("softmax", "a", "a", special=1),
    launch("gather", "i", "r"),
)
_SPARSE_MIXER_BACKWARD = (
    launch("fill", "", "a"),
    launch("scatter_add", "i", "r"),
    launch("softmax_backward", "aa", "a"),
    launch("copy", "a", "a"),
    launch("mul.row", "ab", "a"),
)
ROUTERS = {
    "every_expert": Router(Sequence(()), 1, 1),  # Llama 4, as engines serve it
    "chosen": Router(Sequence(()), 1, 1),  # gpt-oss: the best logits, and a softmax over them alone
    "sparse_mixer": Router(
        Sequence(
            (*_SPARSE_MIXER, *_SPARSE_MIXER, launch("copy", "a", "a")),
            (*_SPARSE_MIXER_BACKWARD, *_SPARSE_MIXER_BACKWARD, launch("copy", "a", "a"), launch("add", "aa", "a")),
        )
    ),
    "softmax": Router(
        Sequence((TO_FP32, launch("softmax", "f", "f", special=1)), (launch("softmax_backward", "ff", "f"), FROM_FP32))
    ),
    "sigmoid": Router(Sequence((TO_FP32, *_SIGMOID), (launch("pointwise", "ff", "f"), FROM_FP32)), 2, 1, True),
    "groups": Router(Sequence((*_SIGMOID, *_BEST_GROUPS), (launch("pointwise", "ff", "f"),)), 3, 2, True),
    "softmax_groups": Router(
        Sequence((launch("softmax", "a", "a", special=1), *_BEST_GROUPS), (launch("softmax_backward", "aa", "a"),)),
        3,
        2,
    ),
}
