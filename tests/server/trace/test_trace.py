"""Any torch module as an OperatorTable: every operator placed, nothing dropped."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import OPS, Kind, Layout, OperatorTable, Phase
from tilewise.server.step.predict import predict_table
from tilewise.server.trace import trace
from tilewise.server.workload import Workload

nn = torch.nn


def rows(table: OperatorTable, name: str) -> OperatorTable:
    return table.select(np.array([label.name == name for label in table.labels])[table.label])


def encoder(layers: int = 3) -> OperatorTable:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return trace(nn.TransformerEncoder(layer, layers), torch.zeros(2, 64, 256))


def test_a_linear_layer_is_three_products_in_the_layouts_that_torch_calls_cublas_with() -> None:
    table = trace(nn.Sequential(nn.Linear(48, 96), nn.Linear(96, 32)), torch.zeros(5, 48, dtype=torch.float32))
    products = table.select(table.kind == Kind.GEMM)
    found = {tuple(row) for row in zip(products.m, products.n, products.k, products.layout, strict=True)}
    assert (5, 96, 48, Layout.FORWARD) in found and (5, 32, 96, Layout.FORWARD) in found
    assert (5, 96, 32, Layout.INPUT_GRADIENT) in found  # of the second alone: the first one's input needs none
    assert (32, 96, 5, Layout.WEIGHT_GRADIENT) in found and (96, 48, 5, Layout.WEIGHT_GRADIENT) in found
    assert len(found) == 5


def test_equal_layers_are_one_row_with_a_count_and_a_range() -> None:
    three, six = encoder(3), encoder(6)
    assert len(three) == len(six)
    linear = rows(six, "linear1")
    assert set(linear.count) == {6}
    assert six.labels[int(linear.label[0])].layer == "layers.0-5" and six.labels[int(linear.label[0])].part == "linear1"


def test_attention_is_one_operator_each_way_even_inside_torchs_own_modules() -> None:
    table = encoder()
    attention = table.select(table.kind == Kind.ATTENTION)
    assert attention.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD]
    assert (attention.heads[0], attention.head_dim[0], attention.seq_q[0]) == (4, 64, 64)
    assert attention.flops[0] == 2 * (2 * 4) * (64 + 64) * 64 * 64
    assert attention.flops[1] == 2 * attention.flops[0]
    assert not any(OPS[op] == "softmax" for op in table.op)


def test_a_backward_operator_belongs_to_the_module_whose_forward_it_undoes() -> None:
    table = encoder()
    for name in ("linear1", "linear2"):
        ways = {table.labels[code].direction for code in rows(table, name).label}
        assert ways == {"forward", "backward"}


class Unusual(nn.Module):
    """A Fourier transform, which Tilewise has no model of, between things it has."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 64)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return torch.fft.rfft(self.project(x)).abs()


def test_an_unknown_operator_is_listed_with_its_bytes_and_a_wide_interval() -> None:
    table = trace(Unusual(), torch.zeros(128, 64), train=False)
    unknown = np.flatnonzero(table.unknown)
    assert [table.labels[table.label[row]].name for row in unknown] == ["_fft_r2c"]
    assert table.bytes_read[unknown[0]] == 128 * 64 * 4 and table.bytes_written[unknown[0]] == 128 * 33 * 8
    times = Database.packaged().gpu("h100-sxm5-80gb").predict(table)
    width = times.high_s / times.low_s
    known = (table.kind == Kind.MEMORY) & ~table.unknown
    assert width[unknown[0]] > 5 * width[known].max()


class Block(nn.Module):
    """Two matrices, computed again in the backward where asked to."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.layers, x, use_reentrant=False) if self.checkpointed else self.layers(x)


def test_recomputed_layers_run_more_and_count_no_more() -> None:
    given = torch.zeros(16, 64, requires_grad=True)
    plain, again = trace(Block(False), given), trace(Block(True), given)
    flops = [(table.count * table.flops).sum() for table in (plain, again)]
    executed = [(table.count * table.executed_flops).sum() for table in (plain, again)]
    assert flops[0] == flops[1]
    assert executed[1] == executed[0] * 7 / 6  # the first matrix once more; torch stops before the last
    assert "recompute" in {label.direction for label in again.labels}


def test_a_convolution_counts_the_products_it_contains() -> None:
    table = trace(nn.Conv2d(8, 16, 3, bias=False), torch.zeros(2, 8, 10, 10, requires_grad=True))
    work = 2.0 * 2 * 8 * 8 * 16 * 8 * 9
    assert [flops for flops in table.flops if flops] == [work, work, work]


def test_number_formats_and_sizes_come_from_the_tensors() -> None:
    module = nn.Linear(128, 256, dtype=torch.bfloat16, bias=False)
    table = trace(module, torch.zeros(64, 128, dtype=torch.bfloat16), train=False)
    assert table.precision.tolist() == [Precision.BF16]
    assert table.bytes_read[0] == 2 * (64 * 128 + 256 * 128) and table.bytes_written[0] == 2 * 64 * 256


def test_the_module_itself_is_neither_moved_nor_given_gradients() -> None:
    module = nn.Linear(8, 8)
    trace(module, torch.zeros(2, 8))
    assert module.weight.device.type == "cpu" and module.weight.grad is None and not module._forward_hooks


def test_the_optimizer_reads_four_and_writes_three_copies_of_the_parameters() -> None:
    table = trace(nn.Linear(128, 256), torch.zeros(4, 128), optimizer="adamw")
    step = table.select(table.op == OPS.index("adamw"))
    parameters = 128 * 256 + 256
    assert (step.bytes_read[0], step.bytes_written[0]) == (16 * parameters, 12 * parameters)


class Deciding(nn.Module):
    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return x if x.sum() > 0 else -x


def test_a_module_that_looks_at_values_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidInput, match="Deciding cannot be traced on the meta device") as refused:
        trace(Deciding(), torch.ones(3, requires_grad=True))
    assert refused.value.reason == "CANNOT_TRACE" and "\n" not in refused.value.message


def test_a_frozen_module_is_traced_forward_only() -> None:
    module = nn.Linear(8, 8).requires_grad_(False)
    with pytest.raises(InvalidInput, match="train=False"):
        trace(module, torch.zeros(2, 8))
    assert len(trace(module, torch.zeros(2, 8), train=False)) == 1


def test_the_example_of_the_documentation_runs() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "trace.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert "TFLOP" in done.stdout and "attention" in done.stdout


def test_a_traced_module_has_pictures_and_text_like_a_config() -> None:
    pytest.importorskip("matplotlib")
    from tilewise.client.render.html import page
    from tilewise.client.render.report import report as text
    from tilewise.server.messages.report import table_message

    gpu = Database.packaged().gpu("h100-sxm5-80gb")
    work = Workload(phase="train", batch=2, sequence=64, precision="fp32")
    answer = table_message(predict_table(gpu, encoder(), work), gpu, work, "encoder")
    assert text(answer).startswith("encoder on NVIDIA H100 SXM5 80 GB") and "linear1" in page([answer])


def test_a_traced_table_is_predicted_like_any_other() -> None:
    gpu = Database.packaged().gpu("h100-sxm5-80gb")
    report = predict_table(gpu, encoder(), Workload(phase="train", batch=2, sequence=64, precision="fp32"))
    assert report.step.time is not None and report.step.tokens == 128 and report.step.palm_mfu is None
    assert {layer.name for layer in report.layers} >= {"self_attn", "linear1", "linear2", "norm1"}
    assert sum(layer.time.time_s for layer in report.layers) == pytest.approx(report.step.time.time_s)
