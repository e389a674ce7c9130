"""What a prediction says: plain frozen dataclasses, SI units in the names. Filled by server/step/predict.py and server/step/steps.py."""

from __future__ import annotations

from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Peak
from tilewise.hwdb.table import OperatorTable
from tilewise.hwdb.times import State, Times, Trust, Wall
from tilewise.server.architecture.counting import ParameterCount
from tilewise.server.architecture.model import Architecture
from tilewise.server.step.memory import MemoryReport
from tilewise.server.workload import Workload

FLOPS_CONVENTIONS = {
    "causal": "2 FLOPs a multiply-add, causal half and windows counted once, embedding lookup 0, lm_head counted, no recompute",
    "full": "as causal, but attention counted over every query-key pair (torch's FlopCounterMode, Megatron)",
    "palm": "6 N + 12 L H Q T a token in training, a third of it in a forward (PaLM, appendix B), N: active parameters",
}


class Interval(Record):
    """A time in seconds with the bounds of its 90 % interval."""

    time_s: float
    low_s: float
    high_s: float


class Energy(Record):
    """Joules with the bounds of their 90 % interval."""

    low_j: float
    energy_j: float
    high_j: float


class Step(Record):
    """One training step, prefill or decoded token on one GPU.

    time:            max of the GPU's work (gaps included) and of the CPU's issue; None where `refusal` says why
    busy:            sum of kernel times; gap_s: idle time between them; issue_s: CPU time to launch them
    tokens:          tokens completed by the GPUs that share the model
    mfu, hfu:        model and executed FLOPs over time and `peak`; mbu: bytes over time and datasheet bandwidth; what
                     a kernel moved faster than that came from L2 and is left out
    flops:           FLOPs of one GPU by convention (FLOPS_CONVENTIONS); mfu is over "causal"
    launches:        kernels, memsets and copies the step launches
    wall, walls:     the largest wall, and seconds by wall (index: Wall), adding up to the step's time
    losses:          seconds by cause (index: losses.CAUSES), adding up to the step's time
    regime:          "compute", "bandwidth", "overhead" or "communication"
    weakest_link:    what holds `trust` down, and its share of the busy time; "" where nothing does
    energy, flops_per_j: of one GPU in one step, and model FLOPs a joule; None without a power model
    """

    time: Interval | None
    busy: Interval
    gap_s: float
    issue_s: float
    tokens: int
    tokens_per_s: float | None
    mfu: float | None
    hfu: float | None
    palm_mfu: float | None
    mbu: float | None
    peak: Peak
    flops: dict[str, float]
    executed_flops: float
    memory_bytes: float
    launches: float
    wall: Wall
    walls: tuple[float, ...]
    losses: tuple[float, ...]
    regime: str
    energy: Energy | None
    flops_per_j: float | None
    padding_s: float
    wave_s: float
    alignment_s: float
    state: State
    trust: Trust
    weakest_link: str
    distance: float
    refusal: str


class Layer(Record, kw_only=True):
    """Every operator of one kind of layer, in one step, or the time in which none runs (step.idle); share is of the step.

    walls, losses: seconds by wall and by cause (losses.CAUSES), each adding up to the layer's time
    """

    name: str
    time: Interval
    share: float
    wall: Wall
    walls: tuple[float, ...]
    losses: tuple[float, ...]
    mfu: float | None
    mbu: float
    flops: float
    memory_bytes: float
    launches: float
    trust: Trust
    distance: float


class Operator(Record, kw_only=True):
    """Rows of one label: one matrix product, or all kernels of one framework operation. Times are of one execution.

    count: executions in one step; kernels: launched by one execution; total_s: count executions
    """

    name: str
    layer: str
    part: str
    direction: str
    kind: str
    shape: str
    precision: str
    count: float
    kernels: float
    time: Interval
    total_s: float
    share: float
    wall: Wall
    mfu: float | None
    peak: Peak | None
    flops: float
    executed_flops: float
    memory_bytes: float
    compute_s: float
    memory_s: float
    special_s: float
    launch_s: float
    padding_s: float
    wave_s: float
    alignment_s: float
    kernel: str
    tiles: float
    waves: float
    trust: Trust
    distance: float
    refusal: str


class TableReport(Record, kw_only=True):
    """What an OperatorTable costs, whoever made it: a traced module has no Architecture and no memory plan."""

    workload: Workload
    gpu: str
    calibration: str
    step: Step
    layers: tuple[Layer, ...]
    operators: tuple[Operator, ...]
    table: OperatorTable
    times: Times


class Brief(Record, kw_only=True):
    """The answer about one shape, without what it is made of. memory_room_bytes: what it may take, the reserve left out."""

    architecture: Architecture
    workload: Workload
    gpu: str
    calibration: str
    parameters: ParameterCount
    rank_parameters: int
    step: Step
    memory: MemoryReport
    memory_room_bytes: float
    fits: bool
    headline: str
    notes: tuple[str, ...]


class Report(Brief, kw_only=True):
    """The answer to one question. `table` and `times` are what it was made of, row by row."""

    layers: tuple[Layer, ...]
    operators: tuple[Operator, ...]
    table: OperatorTable
    times: Times
