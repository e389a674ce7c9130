"""tilewise mfu: a measured rate as an MFU with a named peak and convention."""

from __future__ import annotations

import re
from typing import Any

import click

from tilewise.client.cli.explain import entries
from tilewise.client.cli.options import asking, gpu_option, model_argument, option, write
from tilewise.client.cli.texts import read_model
from tilewise.client.cli.workload import workload_of, workload_options
from tilewise.client.client import TilewiseClient
from tilewise.hwdb import sku
from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.mfu import Utilisation, rate, utilisation
from tilewise.hwdb.precision import FORMATS, NAMES
from tilewise.v1.advisor_service_pb2 import DETAIL_LAYERS, PredictRequest
from tilewise.v1.prediction_pb2 import Peak

SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


class Count(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """8.03B, 15T, 1e9: a number above 0 with a scale."""

    name = "count"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMBGT]?)", str(value), re.IGNORECASE)
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r} is no count; write 8.03B, 15T or 1e9", param, ctx)
        return float(found[1]) * SCALES[found[2].upper()]


CONVENTIONS = {"causal": "model_flops", "full": "full_attention_flops", "palm": "palm_flops"}  # fields of Step


@click.command()
@model_argument(required=False)
@gpu_option("GPU; see `tilewise gpus list`.", "SKU")
@click.option("--tflops", type=float, help="Measured rate of one GPU, where FLOPs were counted already.")
@click.option("--tokens-per-s", type=float, help="Measured rate of the GPUs that share the model CONFIG.")
@click.option("--params", type=Count(), metavar="N", help="Parameters of a training run (active ones), as 8.03B.")
@click.option("--tokens", type=Count(), metavar="N", help="Tokens that the run trained on, as 15T.")
@click.option("--hours", type=float, help="Wall time of the run in hours.")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of the run.")
@option(
    "--convention", type=click.Choice(list(CONVENTIONS)), default="causal", show_default=True, help="How FLOPs count."
)
@workload_options(phase="train")
@asking
def mfu(
    config: str | None,
    gpu: str,
    tflops: float | None,
    tokens_per_s: float | None,
    params: float | None,
    tokens: float | None,
    hours: float | None,
    gpus: int | None,
    convention: str,
    server: str | None,
    form: str,
    output: str | None,
    **chosen: Any,
) -> None:
    """Turn a measured rate into an MFU.

    Either --tflops alone; or CONFIG with --tokens-per-s and the workload that was measured; or a whole run by --params, --tokens,
    --hours and --gpus, counted as 6 FLOPs a parameter and token.
    """
    run = (params, tokens, hours, gpus)
    whole = all(each is not None for each in run)
    given = (tflops is not None, tokens_per_s is not None, any(each is not None for each in run))
    if sum(given) != 1 or (given[2] and not whole) or (config is None) != (tokens_per_s is None):
        raise click.UsageError(
            "give --tflops; CONFIG with --tokens-per-s; or all of --params, --tokens, --hours, --gpus"
        )
    with TilewiseClient(server) as client:
        if config is None:
            peak, counted = peak_of(client, gpu, chosen["precision"] or "bf16"), "6ND" if whole else ""
            achieved = 1e12 * (tflops or 0)
            if params and tokens and hours and gpus:
                achieved = rate(tokens / (3600 * hours), 6 * params, gpus)
        else:
            asked = PredictRequest(
                model=read_model(config), workload=workload_of(chosen), gpu=gpu, detail=DETAIL_LAYERS
            )
            step = client.predict(asked).step
            peak, counted = step.peak, convention
            achieved = rate(tokens_per_s or 0, getattr(step, CONVENTIONS[convention]) / step.token_count)
    write(rendered(utilisation(achieved, sku_peak(gpu, peak)), peak, counted, form), output)


def sku_peak(gpu: str, peak: Peak) -> sku.Peak:
    return sku.Peak(
        gpu, peak.key, peak.flops_per_s, peak.clock_hz, peak.highest_clock_hz, peak.source, peak.mark, peak.kind
    )


def peak_of(client: TilewiseClient, gpu: str, precision: str) -> Peak:
    """The dense peak of a number format. Raises NotAvailable, naming the formats that the GPU has."""
    answer = client.get_gpu(gpu).gpu
    peaks = {peak.key: peak for peak in answer.peaks}
    key = FORMATS[NAMES[precision]].peak
    if key not in peaks:
        message = f"{answer.sku} has no {precision}; it has {', '.join(peaks)}"
        raise NotAvailable(message, reason="PRECISION_NOT_AVAILABLE", field="precision")
    return peaks[key]


def rendered(found: Utilisation, peak: Peak, convention: str, form: str) -> str:
    if form == "json":
        from tilewise.client.render.data import dumps, peak_data

        rate = {"mfu": found.mfu, "tflops": found.flops_per_s / 1e12, "convention": convention or None}
        return dumps({**rate, **peak_data(peak, known=True)})
    lines = [str(found), f"peak: {peak.source}"]
    if convention:
        lines.append(f"convention {convention}: {entries()[convention].strip()}")
    return "\n".join(lines) + "\n"
