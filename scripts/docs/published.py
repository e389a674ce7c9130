"""The tables of docs/published.md that the packaged calibrations make; scripts/research makes the others."""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tilewise.hwdb.calibration import Calibration
from tilewise.hwdb.database import Database
from tilewise.hwdb.gpu import Gpu
from tilewise.hwdb.precision import FORMATS, NAMES, Precision
from tilewise.hwdb.table import OP_CODES, Kind, Label, OperatorTable, table_from_columns
from tilewise.hwdb.times import State, Times, Trust
from tilewise.server.validate.outcome import Outcome, errors
from tilewise.server.validate.validate import validate

CEILINGS = Path(__file__).with_name("published_ceilings.toml")
H100 = "h100-sxm5-80gb"
GOALS = {"gemm": (6, 9), "attention": (8, 12), "grouped_gemm": (12, 18)}
NAMED = {"gemm": "GEMM", "attention": "attention", "grouped_gemm": "fused MoE layer"}
H200 = "h200-sxm-141gb"
OURS = Path(__file__).resolve().parents[2] / "tests" / "accuracy" / "measured" / H200
OUR_TABLES = ("gemm.csv", "attention.csv", "memory.csv", "steps.csv")
TABLES = ("gemm.csv", "attention.csv", "memory_and_pointwise.csv", "grouped_gemm.csv", "hf_transformers_eager.csv")
LARGE = [(m, n, k) for m in (4096, 8192, 16384) for n in (4096, 8192, 16384) for k in (4096, 8192, 16384)]


def held_out() -> str:
    """Error on shapes kept apart, by GPU, operator and format."""
    return "\n".join(_held_out())


def ceilings() -> str:
    """Best predicted rates over large shapes beside independent published ones."""
    return "\n".join(_ceilings())


def blind(shared: Path) -> str:
    """Tables of the H100 that nothing was fitted to."""
    return "\n".join(_blind(H100, shared / "truth" / "h100", TABLES))


def blind_h200() -> str:
    """The same of the H200, our own."""
    return "\n".join(_blind(H200, OURS, OUR_TABLES))


def _held_out() -> Iterator[str]:
    yield "| GPU | operator | format | points | mean error, % | p90, % | in 90 % interval, % |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for calibration in published():
        for entry in calibration.card["held_out"]:
            if entry["group"] != "all" and ", " in entry["group"]:
                continue  # by software: `tilewise calibrate show ID`
            goal, limit = GOALS[entry["family"]]
            mean = 100 * entry["mean_error"]
            mark = "" if mean <= goal else " (over the goal)" if mean <= limit else " (not done)"
            yield (
                f"| {calibration.sku} | {NAMED[entry['family']]} | {entry['group']} | {entry['points']} | {mean:.1f}{mark} | "
                f"{100 * entry['p90_error']:.1f} | {100 * entry['interval_coverage']:.0f} |"
            )


def published() -> list[Calibration]:
    database = Database.packaged()
    found = [(sku, id) for sku in database.skus() for id in database.calibrations(sku)]
    return [database.calibration(*one) for one in found if database.trust(*one) == Trust.PUBLISHED]


def _ceilings() -> Iterator[str]:
    yield "| GPU | what | published | predicted, burst (90 %) | predicted, sustained (90 %) | which | rests on it |"
    yield "|---|---|--:|--:|--:|---|---|"
    for name, entries in tomllib.loads(CEILINGS.read_text(encoding="utf-8")).items():
        gpu = Database.packaged().gpu(name)
        for entry in entries:
            cells = [_best(gpu, entry["what"], state) for state in (State.BURST, State.SUSTAINED)]
            unit = "TB/s" if entry["what"] == "HBM" else "TFLOPS"
            used = entry["used"] or "**kept to check**"
            yield f"| {name} | {entry['what']} | {entry['value']:g} {unit} | {cells[0]} | {cells[1]} | {entry['source']} | {used} |"


def _best(gpu: Gpu, what: str, state: State) -> str:
    if what == "HBM":
        size = 2.0**30
        times = gpu.predict(_copy(size), state)
        return _rates(times, np.array([2 * size]), 1e12, 2)
    table = _products(NAMES[what])
    return _rates(gpu.predict(table, state), table.flops, 1e12, 0)


def _rates(times: Times, work: np.ndarray, unit: float, digits: int) -> str:
    best = int(np.nanargmax(work / times.time_s))
    value, low, high = (work[best] / seconds[best] / unit for seconds in (times.time_s, times.high_s, times.low_s))
    return f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def _products(precision: Precision) -> OperatorTable:
    m, n, k = np.array(LARGE).T
    element, flops = FORMATS[precision].bytes, 2.0 * m * n * k
    return table_from_columns(
        [Label(name="x", layer="", part="")], 1, len(m),
        {"kind": np.full(len(m), int(Kind.GEMM)), "m": m.astype(float), "n": n, "k": k, "flops": flops, "executed_flops": flops,
         "precision": np.full(len(m), int(precision)), "output_bytes": np.full(len(m), 2.0),
         "bytes_read": (m * k + n * k) * element, "bytes_written": 2.0 * m * n, "shape": np.zeros(len(m))},
    )  # fmt: skip


def _copy(size: float) -> OperatorTable:
    return table_from_columns(
        [Label(name="x", layer="", part="")], 1, 1,
        {"kind": np.array([int(Kind.MEMORY)]), "op": np.array([OP_CODES["copy"]]), "rows": np.array([1.0]), "cols": np.array([size / 2]),
         "precision": np.array([int(Precision.BF16)]), "bytes_read": np.array([size]), "bytes_written": np.array([size])},
    )  # fmt: skip


def _blind(name: str, truth: Path, tables: Iterable[str]) -> Iterator[str]:
    """Tables that nothing was fitted to, answered by our measured calibration, by the published one, and by the roofline."""
    yield "| table | group | points | measured: mean, covered, width | published: mean, covered, width | roofline: mean, covered, width |"
    yield "|---|---|--:|--:|--:|--:|"
    sku = Database.packaged().sku(name)
    (theirs,) = (one for one in published() if one.sku == name)
    gpus = (Database.packaged().gpu(name), Gpu(sku, theirs), Gpu(sku))
    configs = {path.stem: path.read_text() for path in (truth / "configs").glob("*.json")}
    for table in tables:
        answers = [validate((truth / table).read_text(), table, gpu, configs.get).outcome for gpu in gpus]
        for group, rows in _groups(answers[0]):
            cells = [_cell(outcome, group, rows) for outcome in answers]
            yield f"| {table} | {group} | {int(rows.sum())} | {' | '.join(cells)} |"


def _groups(outcome: Outcome) -> Iterator[tuple[str, np.ndarray]]:
    """GEMM by format, attention by operator, whole models by quantity, the rest as one."""
    for way in ("precision", "operator"):
        words = outcome.groups.get(way, np.array([]))
        if len(set(words.tolist())) > 1 and len(set(words.tolist())) < 8:
            for word in sorted(set(words[outcome.quantities[0].judged].tolist())):
                yield word, (words == word) & outcome.quantities[0].judged
            return
    for quantity in outcome.quantities[:2]:
        yield quantity.name, quantity.judged


def _cell(outcome: Outcome, group: str, rows: np.ndarray) -> str:
    quantity = next((one for one in outcome.quantities if one.name == group), outcome.quantities[0])
    found = errors(quantity, rows)
    if found is None:
        return "-"
    return f"{100 * found.mean:.1f} %, {100 * (found.covered or 0):.0f} %, {100 * (found.width or 0):.0f} %"
