"""Linear layers and plain framework operations: the rows of their forward and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence as Series

from msgspec.structs import replace

from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Layout
from tilewise.server.architecture.model import Linear, Norm, Split
from tilewise.server.operators import casts
from tilewise.server.operators.emitter import Emitter
from tilewise.server.operators.numbers import Number, choose
from tilewise.server.operators.plan import Plan
from tilewise.server.operators.sequences import FUSED, NORMS, OPERATIONS, Sequence
from tilewise.server.operators.variants import Variant


def operation(
    e: Emitter,
    plan: Plan,
    name: str,
    sequence: Sequence,
    rows: Number,
    cols: Number,
    *,
    repeat: Number = 1,
    saves: Number = 1,
    backward: bool = True,
) -> None:
    """A framework operation over rows x cols; in training also its backward and what it keeps (`saves` times)."""
    ahead = sequence.forward + (sequence.training if plan.train else ())
    e.launches(name, ahead, rows, cols, plan.width, direction=e.forward, repeat=repeat)
    if not (plan.train and e.keep and backward):
        return
    if plan.selective and sequence.saved.element_a + sequence.saved.element:
        e.save(rows * cols * plan.width * saves)  # its input; the rest is computed again
        e.launches(name, sequence.forward, rows, cols, plan.width, direction="recompute", repeat=repeat)
    else:
        e.save(sequence.saved.bytes(rows, cols, rows * cols, plan.width) * saves)
    e.launches(name, sequence.backward, rows, cols, plan.width, direction="backward", repeat=repeat)


def accumulate(e: Emitter, plan: Plan, rows: Number, cols: Number, repeat: Number = 1, name: str = "grad_add") -> None:
    """Gradients of a tensor with several readers are added; inductor folds that into its neighbours."""
    if plan.train and e.keep and not plan.fused:
        e.launches(name, OPERATIONS["accumulate"].forward, rows, cols, plan.width, direction="backward", repeat=repeat)


def _compiled(fused: Sequence, rows: Number, cols: Number, joined: bool) -> Sequence:
    """One of inductor's norms with the kernels that it takes over rows x cols; joined: a kernel that follows rotates as well.

    A gradient along the rows and those of the parameters over the columns share one kernel where MixOrderReduction.can_fuse says so
    (torch/_inductor/scheduler.py); torch then sums each parameter's parts and casts the sum. Else a second kernel makes parts of all of
    them, and another for each parameter adds those up.
    """
    (forward,), (back,) = fused.forward, fused.backward
    parameters = back.written.column_a
    mixed = (rows * cols >= 5 * 2**20) & (rows >= 2 * cols) & (rows >= 4096) & (cols <= 16384)
    kernels = choose(mixed, 1 + 2 * parameters, 2 + parameters)
    first = replace(forward, kernels=0) if joined else forward
    return replace(fused, forward=(first,), backward=(replace(back, kernels=kernels),))


def norm(
    e: Emitter, plan: Plan, norm: Norm, tokens: Number, style: Variant, *, heads: Number | None = None,
    repeat: int = 1, saves: int = 1, joined: bool = False,
) -> None:  # fmt: skip
    """A normalisation of `tokens` rows (heads: this rank's; repeat: identical ones; saves: how many keep an input).

    joined: inductor makes it part of the kernel that rotates
    """
    rows = tokens * (norm.heads if heads is None else heads)
    kind = style.norm_of(norm.kind, norm.weight)
    fused = FUSED[kind.partition("_")[0]]
    sequence = _compiled(fused, rows, norm.width, joined) if plan.fused else NORMS[kind]
    with e.scope(part="norm"):
        operation(e, plan, norm.name, sequence, rows, norm.width, repeat=repeat, saves=saves)


def shard(linear: Linear, tp: int) -> tuple[Number, Number]:
    """(inputs, outputs) of one rank's part of the matrix."""
    inputs = linear.inputs // tp if linear.split == Split.ROW else linear.inputs
    outputs = linear.outputs // tp if linear.split == Split.COLUMN else linear.outputs
    return inputs, outputs


def joined(name: str, linears: Series[Linear]) -> Linear:
    """Matrices over one input as one."""
    outputs = linears[0].outputs
    for linear in linears[1:]:
        outputs = outputs + linear.outputs
    return replace(linears[0], name=name, outputs=outputs)


def project(
    e: Emitter,
    plan: Plan,
    linears: Series[Linear],
    tokens: Number,
    *,
    outputs: Series[Number | None] = (),
    plain: bool = False,
    save_input: bool = True,
    input_gradient: bool = True,
) -> None:
    """Matrices that read one and the same input of `tokens` rows.

    outputs:    local output widths where they are not the shard's own (replicated kv heads)
    plain:      never quantized (router, lm_head)
    save_input: the input is kept for the weight gradient (False where something else already keeps it)
    """
    precision = plan.plain if plain else plan.linear
    widths = (plan.width, plan.width, plan.width) if plain else (plan.inner, plan.weight, plan.width)
    shards = [shard(linear, plan.tp) for linear in linears]
    given = outputs or [None] * len(shards)
    sizes = [(k, n if width is None else width) for (k, n), width in zip(shards, given, strict=True)]
    inputs = sizes[0][0]
    library = plan.kernels.product(precision)
    narrow = casts.narrow(plan, plain)
    if narrow and not plan.kernels.casts(precision):
        casts.cast(e, plan, "quantize", tokens, inputs, e.forward, readers=len(linears))
    for linear, (k, n) in zip(linears, sizes, strict=True):
        if narrow and plan.train:
            casts.cast(e, plan, "quantize_weight", n, k, e.forward)
        e.gemm(linear.name, tokens, n, k, precision=precision, widths=widths, direction=e.forward, library=library)
        if linear.split == Split.ROW:
            all_reduce(e, plan, tokens, n, e.forward)
    if not (plan.train and e.keep):
        return
    if save_input:
        e.save(tokens * inputs * plan.width)
    if narrow:
        casts.cast(e, plan, "quantize", tokens, inputs, "backward", readers=len(linears), again=True)
    for linear, (k, n) in zip(linears, sizes, strict=True):
        if narrow:
            _cast_gradient(e, plan, tokens, n, k, input_gradient)
        _gradients(e, plan, linear, tokens, n, k, precision, widths, input_gradient)
    if input_gradient and len(linears) > 1:
        accumulate(e, plan, tokens, inputs, len(linears) - 1)
    if linears[0].split == Split.COLUMN and input_gradient:
        all_reduce(e, plan, tokens, inputs, "backward")


def _gradients(
    e: Emitter,
    plan: Plan,
    linear: Linear,
    tokens: Number,
    n: Number,
    k: Number,
    precision: Precision,
    widths: tuple[float, float, float],
    input_gradient: bool,
) -> None:
    """wgrad[n,k] = g[tokens,n]^T x[tokens,k]; dgrad[tokens,k] = g[tokens,n] w[n,k]; bias: column sums of g."""
    output = plan.kept("gradients") if plan.stack.accumulates else plan.width
    e.gradient(n * k * output, tokens * (n + (k if input_gradient else 0)) * plan.width)
    back = {"precision": precision, "direction": "backward"}
    summed = (*widths[:2], float(output))
    e.gemm(linear.name, n, k, tokens, layout=Layout.WEIGHT_GRADIENT, widths=summed, **back)  # type: ignore[arg-type]
    if input_gradient:
        e.gemm(linear.name, tokens, k, n, layout=Layout.INPUT_GRADIENT, widths=widths, **back)  # type: ignore[arg-type]
    if linear.bias:
        size = tokens * n * plan.width
        e.memory(
            f"{linear.name}.bias", "reduce_columns", tokens, n, size, n * plan.width, direction="backward", kernels=2
        )


def _cast_gradient(e: Emitter, plan: Plan, tokens: Number, n: Number, k: Number, input_gradient: bool) -> None:
    """The operands of both backward products; the input has been cast already."""
    casts.cast(e, plan, "quantize_gradient", tokens, n, "backward", readers=1 + input_gradient)
    casts.transposed(e, plan, "quantize_gradient", tokens, n)
    casts.transposed(e, plan, "quantize", tokens, k)
    if input_gradient:
        casts.cast(e, plan, "quantize_weight", n, k, "backward", again=True)
        casts.transposed(e, plan, "quantize_weight", n, k)


def all_reduce(e: Emitter, plan: Plan, rows: Number, cols: Number, direction: str) -> None:
    """Sum of the ranks' rows x cols activations."""
    with e.scope(part="communication"):
        size, library = rows * cols * plan.width, plan.kernels.reduces.get(plan.tp, 0)
        e.collective("all_reduce", "all_reduce", size, plan.tp, direction=direction, library=library)
