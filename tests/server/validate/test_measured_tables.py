"""Measured tables are read as they stand: recognised by their columns, asked of the operators that a model would have."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput
from tilewise.hwdb.table import OPS, VARIANTS, Kind, Layout, OperatorTable, Phase
from tilewise.server.architecture import Architecture
from tilewise.server.operators import build
from tilewise.server.validate import attention, gemm, grouped, memory
from tilewise.server.validate.asked import Asked
from tilewise.server.validate.sheet import facts, formats, read
from tilewise.server.validate.validate import Validation, validate
from tilewise.server.workload import Workload

GPU = Database.packaged().gpu("h100-sxm5-80gb")
GEMMS = "kind,m,n,k,dtype,time_us,time_us_sustained\n"
ATTENTION = "phase,backend,b,hq,hkv,d,sq,skv,causal,time_us_machine_a,time_us_machine_b\n"
PUBLISHED = "gpu,dtype,m,n,k,batch,time_us,notes\n"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "vocab_size": 999,
}
Llama = Callable[..., Architecture]


def validated(text: str, configs: dict[str, str] | None = None) -> Validation:
    return validate(text, "truth.csv", GPU, (configs or {}).get)


def asked(text: str, ask: Callable[..., Asked]) -> Asked:
    sheet = read(text, "truth.csv")
    return ask(sheet, [""] * len(sheet))


def alike(one: OperatorTable, row: int, other: OperatorTable, at: int, but: tuple[str, ...] = ()) -> None:
    """Two rows ask a kernel model the same."""
    left_out = {"label", "shape", "count", *but}
    for name in ("kind", "op", "precision", "flops", "bytes_read", "bytes_written", "groups", "m", "n", "k", "layout",
                 "batch", "heads", "kv_heads", "head_dim", "head_dim_v", "seq_q", "seq_kv", "causal", "phase", "special",
                 "kernels", "rows", "cols", "executed_flops", "output_bytes"):  # fmt: skip
        if name not in left_out:
            assert getattr(one, name)[row] == getattr(other, name)[at], name


@pytest.mark.parametrize("name", formats())
def test_a_table_is_recognised_by_its_columns(name: str) -> None:
    columns = formats()[name]["needs"]
    sheet = read(",".join([*columns, "anything"]) + "\n" + ",".join(["1"] * (len(columns) + 1)), "some.csv")
    assert sheet.format == name


def test_a_table_of_nothing_known_names_the_nearest_and_what_it_lacks() -> None:
    with pytest.raises(
        InvalidInput, match=r"nearest is gemm \(GEMMs\), which also needs k, dtype; known are .*attention"
    ) as raised:
        read("m,n,kk,time_us\n1,2,3,4\n", "odd.csv")
    assert raised.value.reason == "UNKNOWN_TABLE"
    with pytest.raises(InvalidInput, match=r"no table known here; known are"):
        read("p,q\n1,2\n", "odd.csv")


@pytest.mark.parametrize(
    ("text", "words"), [("", "no rows"), ("m,n\n", "no rows"), ("m,n,k,dtype\n1,2\n", "line 2 has 2 cells")]
)
def test_what_is_no_table_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as raised:
        read(text, "odd.csv")
    assert raised.value.reason == "BAD_TABLE"


def test_a_gemm_row_asks_what_a_layer_of_a_model_asks(llama: Llama) -> None:
    table = build(llama(), Workload(phase="train", batch=1, sequence=2048))
    row = asked(
        GEMMS + "fwd,2048,4096,14336,bf16,1,\ndgrad,2048,14336,4096,bf16,1,\nwgrad,4096,14336,2048,bf16,1,\n", gemm.ask
    ).table
    down = [i for i in np.flatnonzero(table.kind == Kind.GEMM) if table.labels[table.label[i]].name == "down_proj"]
    by_layout = {int(table.layout[i]): int(i) for i in down}
    for index, layout in enumerate(Layout):
        alike(row, index, table, by_layout[layout])


@pytest.mark.parametrize(("phase", "word"), [("prefill", "fwd"), ("train", "bwd"), ("decode", "decode")])
def test_an_attention_row_asks_what_a_layer_of_a_model_asks(llama: Llama, phase: str, word: str) -> None:
    length = {"context": 3000} if phase == "decode" else {"sequence": 3000}
    table = build(llama(), Workload(phase=phase, batch=4, attention_backend="cudnn", **length))  # type: ignore[arg-type]
    queries = 1 if phase == "decode" else 3000
    row = asked(
        f"{ATTENTION}{word},cudnn,4,32,8,128,{queries},3000,{int(phase != 'decode')},1,1\n", attention.ask
    ).table
    wanted = {"fwd": Phase.FORWARD, "bwd": Phase.BACKWARD, "decode": Phase.DECODE}[word]
    (at,) = np.flatnonzero((table.kind == Kind.ATTENTION) & (table.phase == wanted))
    alike(row, 0, table, int(at))


def test_many_attention_rows_are_one_table_in_which_each_knows_its_row() -> None:
    lines = [f"fwd,flash,{b},32,{h},128,{s},{s},1,1,1\n" for b in (1, 4) for h in (8, 32) for s in (512, 1000, 4096)]
    found = asked(ATTENTION + "".join(lines), attention.ask)
    assert sorted(found.owner.tolist()) == list(range(len(lines)))
    for operator, row in enumerate(found.owner.tolist()):
        assert found.table.seq_q[operator] == int(lines[row].split(",")[6])


def test_every_row_is_a_shape_of_its_own_and_settles_at_its_own_clock() -> None:
    found = asked("kind,case,time_us\nsilu_mul,32x768,10\ncopy,4,10\nsilu_mul,64x768,10\n", memory.ask)
    assert found.table.shape.tolist() == found.owner.tolist()
    assert sorted(found.owner.tolist()) == [0, 0, 1, 2, 2]


def test_a_grouped_row_has_all_experts_hit() -> None:
    found = asked("experts,tokens_per_expert,n,k,time_us\n64,8,2048,1024,100\n", grouped.ask_experts)
    (row,) = range(len(found.table))
    assert (found.table.m[row], found.table.groups[row], found.table.flops[row]) == (512, 64, 2 * 512 * 2048 * 1024)
    assert found.table.bytes_read[row] == 2 * (64 * 2048 * 1024 + 512 * 1024)


@pytest.mark.parametrize("kind", facts()["memory_kinds"])
def test_every_memory_bound_kind_is_kernels_that_move_the_bytes_it_says(kind: str) -> None:
    case = {"mib": "4", "matrix": "32x4096", "lookup": "32x1000x4096", "tiny": "x", "large": "x"}
    found = asked(f"kind,case,time_us\n{kind},{case[facts()['memory_kinds'][kind]['case']]},10\n", memory.ask)
    assert len(found.table) == len(facts()["memory_kinds"][kind]["launches"])
    assert (found.table.kind == Kind.MEMORY).all()
    assert (found.table.bytes_read + found.table.bytes_written > 0).all()


def test_what_every_call_reads_again_counts_as_recent() -> None:
    """One second addend for all inputs, one second factor, and a sum that takes an operand's place."""
    found = asked("kind,case,time_us\nadd,4,10\nresidual_add,32x768,10\nsilu_mul,32x768,10\n", memory.ask)
    names = [OPS[op] for op in found.table.op]
    operand = 2 * 32 * 768
    wanted = {"add": {0.0, operand}, "activation": {0.0}, "mul": {2.0 * operand}}
    for name, recent in zip(names, found.table.recent_bytes.tolist(), strict=True):
        assert recent in wanted[name]
    (in_place,) = found.table.variant[found.owner == 0]
    assert VARIANTS[in_place] == "in_place"


def test_a_mib_is_one_operand_of_so_many_bytes() -> None:
    found = asked("kind,case,time_us\ncopy,4,10\nadd,4,10\nfill,4,10\nsum,4,10\n", memory.ask)
    moved = np.bincount(found.owner, found.table.bytes_read + found.table.bytes_written)
    assert (moved / 2**22).tolist() == [2, 3, 1, 1]


def test_points_of_a_calibration_are_asked_by_their_kernels_names() -> None:
    header = "op,variant,precision,rows,cols,inner,count,bytes_read,bytes_written,residency,sets,state,time_us\n"
    found = validate(
        header + "activation,gelu,bf16,512,4096,0,0,4194304,4194304,reused,4,burst,9\nmagic,x,bf16,1,1,0,0,1,1,warm,1,burst,9\n",
        "pointwise.csv", GPU, {}.get,
    ).outcome  # fmt: skip
    assert found.quantities[0].judged.tolist() == [True, False]
    assert found.reasons.tolist() == ["", "no kernel magic/x here"]


def test_two_machines_count_as_their_mean_and_one_alone_for_itself() -> None:
    found = validated(ATTENTION + "fwd,flash,1,32,8,128,512,512,1,10,14\nfwd,flash,1,32,8,128,512,512,1,,14\n")
    assert found.outcome.quantities[0].measured.tolist() == pytest.approx([12e-6, 14e-6])


def test_a_long_attention_kernel_is_asked_at_the_clock_that_its_windows_had() -> None:
    header = "phase,backend,batch,heads,kv_heads,head_dim,seq_q,seq_kv,causal,state,time_us\n"
    shapes = ("forward,flash,8,32,32,128,16384,16384,0", "forward,cudnn,4,32,32,128,4096,4096,0")
    text = header + "".join(f"{shape},{state},9\n" for shape in shapes for state in ("burst", "sustained"))
    time, sustained = validated(text).outcome.quantities
    assert time.predicted[0] == pytest.approx(sustained.predicted[1])
    assert time.predicted[2] < sustained.predicted[3]


def test_rows_of_another_gpu_and_rows_with_a_flag_are_skipped_with_the_reason() -> None:
    found = validated(
        PUBLISHED + "H100-SXM5-80GB,bfloat16,512,512,512,1,9,\nA100-SXM4-80GB,bfloat16,512,512,512,1,9,\n"
        "MI300X-or-MI325X (gfx942),bfloat16,512,512,512,1,9,\nH100-SXM5-80GB,bfloat16,512,512,512,1,9,W_UNINIT_OR_CONST\n"
        "H100-SXM5-80GB,int4_wo,512,512,512,1,9,\n"
    ).outcome
    assert found.reasons[0] == "" and found.quantities[0].judged.tolist() == [True, False, False, False, False]
    assert found.reasons[1] == "measured on another GPU: A100-SXM4-80GB"
    assert "optimistic clock" in found.reasons[3] and "int4_wo" in found.reasons[4]
    assert not found.refused.any()


def test_a_note_that_a_time_is_sustained_is_believed() -> None:
    found = validated(PUBLISHED + "H100-SXM5-80GB,bfloat16,4096,4096,4096,1,250,SUSTAINED; long warm-up\n").outcome
    burst, sustained = found.quantities
    assert not burst.judged.any() and sustained.judged.all()
    assert sustained.predicted[0] > burst.predicted[0]


def test_where_only_a_rate_is_told_the_time_follows_from_it() -> None:
    header = "gpu,dtype,m,n,k,batch,time_us,tflops\n"
    found = validated(header + "H100-SXM5-80GB,bfloat16,4096,4096,4096,1,,500\n").outcome.quantities[0]
    assert found.measured[0] == pytest.approx(2 * 4096**3 / 500e12)
    found = validated("op,n_gpus,bytes,time_us,busbw_gbps\nall_reduce,8,8000000,,350\n").outcome.quantities[0]
    assert found.measured[0] == pytest.approx(2 * 7 / 8 * 8e6 / 350e9)


def test_a_time_that_includes_quantisation_is_asked_with_it() -> None:
    plain, with_it = (
        validated(
            PUBLISHED
            + "H100-SXM5-80GB,fp8,4096,4096,4096,1,250,\nH100-SXM5-80GB,fp8,4096,4096,4096,1,250,INCL_ACT_QUANT\n"
        )
        .outcome.quantities[0]
        .predicted.tolist()
    )
    assert with_it > plain * 1.01


def test_shapes_without_a_time_are_predicted_and_not_judged() -> None:
    found = validated("m,n,k,dtype\n512,512,512,bf16\n").outcome
    assert np.isfinite(found.quantities[0].predicted).all() and not found.quantities[0].judged.any()


def test_a_model_is_asked_with_the_layers_of_its_row_and_no_optimizer() -> None:
    text = "model,mode,phase,b,s,layers,wall_ms,busy_ms,kernels\n" + "".join(
        f"tiny,eager,{phase},1,512,{layers},5,5,100\n" for phase in ("prefill", "train") for layers in (2, 4)
    )
    wall, busy, kernels = validated(text, {"tiny": json.dumps(LLAMA)}).outcome.quantities
    assert (wall.predicted >= busy.predicted).all()
    each = np.diff(kernels.predicted)[[0, 2]]  # two layers more
    assert (each > 40).all() and each[1] > 2 * each[0]


def test_a_decode_row_holds_its_cached_tokens_under_s_or_under_context() -> None:
    head = "model,mode,phase,b,s,layers,context,wall_ms,busy_ms,kernels\n"
    rows = "gpt2,graph,decode,16,,2,1024,1,1,50\ngpt2,graph,decode,16,1024,2,,1,1,50\n"
    gpt2 = '{"model_type": "gpt2", "n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 1024, "vocab_size": 50304}'
    busy = validated(head + rows, {"gpt2": gpt2}).outcome.quantities[1].predicted
    assert busy[0] == busy[1] > 0


def test_lists_with_an_entry_a_layer_follow_the_layers_of_the_row() -> None:
    kinds = ["full_attention", "sliding_attention"]
    config = {
        **LLAMA,
        "model_type": "qwen3",
        "head_dim": 64,
        "num_key_value_heads": 8,
        "sliding_window": 128,
        "num_hidden_layers": 2,
        "layer_types": kinds,
    }
    text = "model,mode,phase,b,s,layers,wall_ms,busy_ms\n" + "".join(
        f"q,eager,prefill,1,512,{n},1,1\n" for n in (1, 2, 4)
    )
    found = validated(text, {"q": json.dumps(config)}).outcome
    busy = found.quantities[1].predicted
    assert found.reasons.tolist() == [""] * 3
    assert busy[2] - busy[1] > 1.5 * (busy[1] - busy[0])


def test_a_gpt_neox_prefill_is_its_trunk_alone() -> None:
    neox = {**LLAMA, "model_type": "gpt_neox", "vocab_size": 300_000}
    text = (
        "model,mode,phase,b,s,layers,wall_ms,busy_ms\nneox,eager,prefill,1,64,1,1,1\nllama,eager,prefill,1,64,1,1,1\n"
    )
    found = validated(text, {"neox": json.dumps(neox), "llama": json.dumps({**neox, "model_type": "llama"})})
    busy = found.outcome.quantities[1].predicted
    assert busy[1] - busy[0] > 300_000 * 512 * 2 / GPU.sku.hbm_bytes_per_s * 0.5


def test_gradient_checkpointing_lowers_the_predicted_peak() -> None:
    text = "model,layers,b,s,recompute,peak_step_MiB\nm,8,4,2048,0,1000\nm,8,4,2048,1,1000\n"
    peak = validated(text, {"m": json.dumps(LLAMA)}).outcome.quantities[0]
    assert peak.unit == "bytes" and peak.measured[0] == 1000 * 2**20
    assert peak.predicted[1] < peak.predicted[0]


def test_models_without_a_config_are_named() -> None:
    text = "model,mode,phase,b,s,layers,wall_ms,busy_ms\nthis,eager,train,1,64,2,1,1\nthat,eager,train,1,64,2,1,1\n"
    with pytest.raises(InvalidInput, match=r"--configs must hold that\.json"):
        validated(text)
    found = validated(text, {"this": json.dumps(LLAMA)}).outcome
    assert found.reasons.tolist() == ["", "no that.json among the configs"]


def test_every_row_of_every_shared_table_is_judged_or_has_a_reason(shared: Path) -> None:
    configs = {path.stem: path.read_text() for path in (shared / "truth" / "h100" / "configs").glob("*.json")}
    tables = sorted([*(shared / "truth" / "h100").glob("*.csv"), *(shared / "measurements").glob("*.csv")])
    assert len(tables) >= 18
    for path in tables:
        outcome = validate(path.read_text(), path.name, GPU, configs.get).outcome
        judged = np.any([quantity.judged for quantity in outcome.quantities], axis=0)
        assert (judged | (outcome.reasons != "")).all(), path.name
        if path.parent.name == "h100" and "kernels" not in path.name:
            assert (judged | outcome.refused).all(), path.name


def test_another_release_than_the_calibrations_widens_an_interval_and_is_judged_apart() -> None:
    rows = [
        f"{software},bf16,4096,4096,4096,230"
        for software in ("torch 2.6.0+cu124", "torch 2.11.0+cu130", "", "a library")
    ]
    found = validated("software,dtype,m,n,k,time_us\n" + "\n".join(rows) + "\n").outcome
    older, same, unsaid, unknown = (found.quantities[0].high / found.quantities[0].predicted).tolist()
    assert older == pytest.approx(unknown) and same == pytest.approx(unsaid)
    assert older > 1.15 and same < 1.1
    assert found.groups["release"].tolist() == [
        "another release",
        "the calibration's",
        "the calibration's",
        "another release",
    ]
