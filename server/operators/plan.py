"""Plan: what follows from a workload and from whose kernels run it, worked out once per build."""

from __future__ import annotations

from dataclasses import dataclass

from tilewise.hwdb.kernels.engines import Kernels
from tilewise.hwdb.precision import FORMATS, Precision
from tilewise.server.workload import Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """How a workload runs.

    width:  bytes of an activation element (4 in fp32 and tf32 models, else 2)
    linear: precision of the linear layers' GEMMs; plain: of everything that is never quantized
    inner, weight: bytes of an element of a linear's inputs and of its weight as the GEMM reads them
    stored: bytes of a cached key's or value's element
    kernels: those of the engine that serves; none where none does
    """

    workload: Workload
    train: bool
    fused: bool
    batch: int
    sequence: int
    context: int
    tokens: int
    width: int
    linear: Precision
    plain: Precision
    inner: float
    weight: float
    tp: int
    stored: int
    kernels: Kernels

    @property
    def decode(self) -> bool:
        return self.workload.phase == "decode"

    @property
    def served(self) -> bool:
        return self.workload.engine != "none"

    @property
    def selective(self) -> bool:
        return self.workload.recompute == "selective"

    @classmethod
    def of(cls, workload: Workload, kernels: Kernels | None = None) -> Plan:
        precision, decode = workload.format, workload.phase == "decode"
        wide = precision in (Precision.FP32, Precision.TF32, Precision.FP64)
        size = FORMATS[precision].bytes
        return cls(
            workload=workload,
            train=workload.phase == "train",
            fused=workload.mode != "eager",
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
        )
