"""Others' tables become a calibration: rows with a flag are left out and counted, none is kept, every source is named."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from tilewise.calibration.published import aiconfigurator, imports, points, rows
from tilewise.hwdb.admission import check, publishable
from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.errors import InvalidInput, NotAvailable
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.table import Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Trust

HEAD = "source,gpu,software,dtype,m,n,k,batch,time_us,notes\n"
AITER = "ROCm/aiter e404860"
TUNED = "aiter tuned, best kernel; ck"


def line(gpu: str, m: int, n: int, k: int, notes: str = "BEST_OF_TUNED", source: str = AITER) -> str:
    """A product at 40 % of MI300X's fp8 peak, and 5 us."""
    return f'{source},{gpu},"{TUNED}",fp8_block,{m},{n},{k},1,{5 + 2e6 * m * n * k / (0.4 * 2615e12):.5g},{notes}\n'


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = [2**power for power in range(7, 13)]
    text = HEAD + "".join(line("MI300X", m, n, k) for m in sizes for n in sizes for k in sizes)
    text += line("MI300X", 64, 256, 256, "W_UNINIT_OR_CONST") + line("MI300X", 64, 512, 256, "IMPLAUSIBLE; x")
    text += line("MI300X", 64, 1024, 256, source="a blog") + line("MI325X", 64, 256, 512)
    path = tmp_path_factory.mktemp("tables") / "gemm.csv"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def imported(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    return imports.build("csv", [table], "mi300x", tmp_path_factory.mktemp("out"), "2026-11-28")


def products(m: list[int], precision: Precision, n: int = 1024, k: int = 2048) -> OperatorTable:
    count = len(m)
    flops = 2.0 * np.array(m) * n * k
    return table_from_columns(
        [Label(name="x", layer="", part="")], count, count,
        {"kind": np.full(count, int(Kind.GEMM)), "m": np.array(m, float), "n": np.full(count, n), "k": np.full(count, k),
         "precision": np.full(count, int(precision)), "output_bytes": np.full(count, 2.0), "flops": flops,
         "executed_flops": flops, "shape": np.arange(count)},
    )  # fmt: skip


def test_flagged_rows_and_unknown_licences_are_dropped_and_counted(imported: Calibration) -> None:
    dropped = imported.card["dropped"]
    assert sum(dropped.values()) == 3
    assert any("uninitialised" in why for why in dropped) and any("licence unknown" in why for why in dropped)
    (source,) = imported.card["sources"]
    assert (source["licence"], source["rows"]) == ("MIT", 216)
    assert source["not_for"] and source["url"].startswith("https://")


def test_no_row_of_others_is_kept(imported: Calibration) -> None:
    assert all(name == "card.json" or name.startswith("models/") for name in imported.files())
    assert imported.families() == ()


def test_a_published_calibration_may_be_published_by_a_server(imported: Calibration) -> None:
    assert publishable(check(imported, Database.packaged().sku("mi300x")))


def test_the_same_rows_make_the_same_calibration(imported: Calibration, table: Path, tmp_path: Path) -> None:
    imports._builder.cache_clear()
    assert imports.build("csv", [table], "mi300x", tmp_path, "2026-11-28").id == imported.id


def test_it_answers_with_trust_published_and_names_the_software(imported: Calibration) -> None:
    gpu = Gpu(Database.packaged().sku("mi300x"), imported)
    times = gpu.predict(products([512, 1024, 2048], Precision.FP8_BLOCK))
    expected = 5e-6 + 2.0 * np.array([512, 1024, 2048]) * 1024 * 2048 / (0.4 * 2615e12)
    assert times.time_s == pytest.approx(expected, rel=0.15)
    assert (times.trust == Trust.PUBLISHED).all()
    assert {times.kernel_names[code] for code in times.kernel} == {"aiter tuned best kernel, fp8_block"}


def test_a_format_that_was_not_published_is_carried_over_from_the_vendors_other_gpu(imported: Calibration) -> None:
    gpu, other = Gpu(Database.packaged().sku("mi300x"), imported), Database.packaged().gpu("mi355x")
    table = products([8192], Precision.BF16, 8192, 8192)
    times, there = (one.predict(table, State.BURST) for one in (gpu, other))
    assert times.trust[0] == Trust.DATASHEET and times.high_s[0] > 1.5 * times.low_s[0]
    assert times.high_s[0] / times.time_s[0] > there.high_s[0] / there.time_s[0]
    assert 600e12 < table.flops[0] / times.time_s[0] < 780e12  # 668 to 765 TFLOPS were published


def test_a_sustained_product_takes_longer_and_is_less_sure_than_a_burst() -> None:
    gpu = Database.packaged().gpu("gb200-186gb")
    large = products([8192], Precision.FP8, 8192, 8192)
    burst, steady = (gpu.predict(large, state) for state in (State.BURST, State.SUSTAINED))
    assert 1.15 < steady.time_s[0] / burst.time_s[0] < 1.4  # 0.78 of the burst's rate was published
    assert steady.high_s[0] / steady.low_s[0] > burst.high_s[0] / burst.low_s[0]


def test_rows_that_name_an_architecture_serve_each_of_its_boards_with_wider_intervals(tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv"
    unknown = '"MI300X-or-MI325X (gfx942, 304 CU)"'
    path.write_text(HEAD + "".join(line(unknown, m, 512, 512) for m in (64, 128)) + line("MI300X", 64, 512, 1024))
    for sku, count in (("mi300x", 3), ("mi325x", 2), ("mi355x", 0)):
        found = rows.read(path, sku)
        assert found is not None and len(found) == count
        assert (found.differ > 0.1).sum() == min(count, 2)


@pytest.mark.parametrize(
    ("source", "tables", "sku", "date", "error", "says"),
    [
        ("csv", [], "mi300x", "", InvalidInput, "needs tables"),
        ("csv", ["gemm.csv"], "mi300x", "today", InvalidInput, "is no date; write 2026-11-28"),
        ("csv", ["gemm.csv"], "b100", "2026-11-28", NotAvailable, "no published row is about b100-sxm-192gb"),
        ("aiconfigurator", [], "mi300x", "2026-11-28", NotAvailable, "holds no tables of mi300x; it holds a100"),
    ],
)
def test_what_cannot_be_imported_is_said_in_one_line(
    table: Path, tmp_path: Path, source: str, tables: list[str], sku: str, date: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as raised:
        imports.build(source, [table.parent / name for name in tables], sku, tmp_path, date)
    assert says in str(raised.value) and "\n" not in str(raised.value)


def test_the_package_and_the_plain_tables_hold_the_same_rows(shared: Path) -> None:
    pytest.importorskip("pyarrow")
    try:
        loaded = aiconfigurator.load("a100-sxm-80gb")
    except NotAvailable:
        pytest.skip("aiconfigurator-core is not installed")
    plain = rows.read(shared / "measurements" / "gemm.csv", "a100-sxm-80gb")
    assert plain is not None
    ours = np.char.startswith(plain.text("source"), "aiconfigurator")
    mine = [one for one in loaded if one.family == "gemm"]
    packed = {
        (shape, time)
        for one in mine
        for shape, time in zip(one.shapes.tolist(), one.number("time_us").tolist(), strict=True)
    }
    listed = set(zip(plain.shapes[ours].tolist(), plain.number("time_us")[ours].tolist(), strict=True))
    assert listed <= packed


def test_no_shape_outside_the_sample_is_taken_from_the_package() -> None:
    sample = aiconfigurator.sample()
    assert set(sample) == set(rows.FAMILIES)
    assert not np.isin(aiconfigurator.mark("b200-sxm-180gb", "1793/2560/1024"), sample["gemm"])


def test_cards_of_packaged_published_calibrations_name_licences_and_hold_no_rows() -> None:
    database = Database.packaged()
    published = [(sku, id) for sku in database.skus() for id in database.calibrations(sku)
                 if database.trust(sku, id) == Trust.PUBLISHED]  # fmt: skip
    assert len({sku for sku, _ in published}) >= 9
    for sku, id in published:
        calibration = database.calibration(sku, id)
        assert publishable(check(calibration, database.sku(sku))), sku
        size = sum(len(zlib.compress((calibration.folder / name).read_bytes())) for name in calibration.files())
        assert size < 400_000 and not list(calibration.folder.rglob("*.csv"))
        for source in json.loads((calibration.folder / "card.json").read_text())["sources"]:
            assert source["licence"] and source["not_for"] and source["rows"] > 0


MLA = "source,gpu,impl,dtype,kv_dtype,phase,batch,num_heads,tp_size,seq_q,seq_kv,time_us\n"


def test_a_latent_table_is_its_own_family_and_ranks_of_one_shape_share_its_fold(tmp_path: Path) -> None:
    path, start = (
        tmp_path / "mla.csv",
        "aiconfigurator-core 0.12.0,H200-SXM,trtllm 1.3.0rc20; default,bfloat16,fp8,decode,4,16",
    )
    path.write_text(MLA + f"{start},4,1,1024,11.0\n{start},8,1,1024,11.1\n{start},8,1,2048,\n")
    found = rows.read(path, "h200-sxm-141gb")
    assert found is not None and (found.family, len(found)) == ("mla", 2)
    assert found.shapes[0] == found.shapes[1]
    marks = rows.shape_texts("mla", found.columns)
    assert marks[0] != marks[1]
    made = points.points("attention", {"h200-sxm-141gb": [found]})
    assert made is not None and [one.name for one in made.origins] == ["mla decode trtllm 1.3.0rc20; default, bf16/fp8"]
    assert (made.table.kv_heads == 1).all() and (made.table.head_dim == 576).all() and (made.table.heads == 16).all()
