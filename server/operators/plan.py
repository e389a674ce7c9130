"""Plan: what follows from a workload and from whose kernels run it, worked out once per build."""

from __future__ import annotations

from tilewise.hwdb.kernels.engines import Kernels
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.hwdb.record import Record
from tilewise.server import stacks
from tilewise.server.architecture.dropout import NO_DROPOUT, Dropout
from tilewise.server.architecture.model import Architecture
from tilewise.server.operators.numbers import Number
from tilewise.server.stacks import Stack
from tilewise.server.workload import Workload


class Plan(Record):
    """How a workload runs.

    stack:  the program that runs it; fused: whether its pointwise chains are fused kernels
    width:  bytes of an activation element (4 in fp32 and tf32 models, else 2)
    linear: precision of the linear layers' GEMMs; plain: of everything that is never quantized
    inner, weight: bytes of an element of a linear's inputs and of its weight as the GEMM reads them
    stored: bytes of a cached key's or value's element
    kernels: those of the engine that serves; none where none does
    complex_rotation: queries and keys are rotated as complex numbers
    dropout: what is dropped at random; other stacks than transformers drop nothing
    """

    workload: Workload
    stack: Stack
    train: bool
    fused: bool
    batch: Number
    sequence: Number
    context: Number
    tokens: Number
    width: int
    linear: Precision
    plain: Precision
    inner: float
    weight: float
    tp: int
    stored: int
    kernels: Kernels
    complex_rotation: bool = False
    dropout: Dropout = NO_DROPOUT

    @property
    def decode(self) -> bool:
        return self.workload.phase == "decode"

    @property
    def served(self) -> bool:
        return self.stack.engine

    @property
    def whole(self) -> bool:
        """Whether what lies around the blocks (embedding, head, final norm) is compiled with them."""
        return self.fused and self.stack.compiles == "model"

    def kept(self, what: str) -> int:
        """Bytes of an element of the stack's "weights", "master" copy, "moments" or "gradients" in training."""
        return stacks.width(getattr(self.stack, what), self.width)

    @property
    def gathers(self) -> bool:
        """Whether weights are cast before each pass."""
        return self.train and self.stack.gathers

    @property
    def selective(self) -> bool:
        """Whether norms, rotation and activations are computed twice."""
        return self.workload.recompute == "selective" and self.stack.selective == "pointwise"

    @property
    def core_twice(self) -> bool:
        """Whether what lies between attention's projections is computed twice."""
        return self.workload.recompute == "selective" and self.stack.selective == "attention core"

    @classmethod
    def of(cls, workload: Workload, kernels: Kernels | None = None, arch: Architecture | None = None) -> Plan:
        precision, decode = workload.format, workload.phase == "decode"
        wide = precision in (Precision.FP32, Precision.TF32, Precision.FP64)
        size = FORMATS[precision].bytes
        return cls(
            workload=workload,
            stack=workload.program,
            train=workload.phase == "train",
            fused=workload.program.fused or workload.mode != "eager",
            batch=workload.batch,
            sequence=1 if decode else workload.sequence,
            context=workload.context if decode else workload.sequence,
            tokens=workload.tokens,
            width=4 if wide else 2,
            linear=precision,
            plain=Precision.BF16 if workload.quantized else precision,
            inner=size,
            weight=size,
            tp=workload.tensor_parallel,
            stored=1 if workload.kv_cache == "fp8" else 4 if wide else 2,
            kernels=kernels or Kernels(),
            complex_rotation=arch is not None and arch.model_type in workload.program.complex_rotation,
            dropout=arch.dropout if arch is not None and workload.stack == "transformers" else NO_DROPOUT,
        )
