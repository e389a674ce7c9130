"""The front door: questions as keywords, answers as plain objects. `import tilewise` offers what stands at the end of this file.

A `config` is the path of a config.json or of a shape in Tilewise's TOML, a dict, or a transformers config. What is done with the
model are keywords by the contract's names: phase, batch, sequence, context, precision, mode, tensor_parallel ... (tilewise.client.
answers.Keywords lists them with their units). Sizes are whole numbers, times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, Unpack, overload

from google.rpc.status_pb2 import Status

from tilewise.client.answers import AdviceKind, Gpu, Keywords, Objective, Precision
from tilewise.client.client import TilewiseClient, answered
from tilewise.client.question import Config, axes_of, message_of, model_of, names_of, workload_of
from tilewise.client.render.data import to_data
from tilewise.client.results import Advice, Check, Ranking, Report, Sweep, Traced, plain
from tilewise.client.rows import Rows
from tilewise.hwdb.errors import InvalidInput, NotAvailable, OutOfRange, TilewiseError
from tilewise.hwdb.lazy import cached_property
from tilewise.v1 import advice_pb2 as advice
from tilewise.v1 import advisor_service_pb2 as advisor

Several = list[str] | tuple[str, ...]
Overrides = Mapping[str, int] | None


class Client:
    """Asks a server, or this very process.

    server: "host:port" of a `tilewise serve`; None: answers in this process
    token:  bearer token for a server; unset: TILEWISE_TOKEN
    secure: whether to speak TLS to the server; unset: unless it is on this machine's loopback

    Every method raises TilewiseError: InvalidInput for a question that makes no sense, NotFound for an unknown GPU,
    NotAvailable for what this GPU does not have, OutOfRange for what nothing bounds; the message is one line.

    >>> with Client() as client:
    ...     client.predict("examples/llama-3-8b.json", gpu="h100-sxm5-80gb", phase="train", sequence=4096).step.trust
    'measured'
    """

    def __init__(self, server: str | None = None, *, token: str | None = None, secure: bool | None = None) -> None:
        self._server, self._token, self._secure = server, token, secure

    @cached_property
    def _client(self) -> TilewiseClient:
        """Opened by the first question."""
        return TilewiseClient(self._server, token=self._token, secure=self._secure)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()

    @overload
    def predict(
        self, config: Config, *, gpu: str, overrides: Overrides = None, allow_defaults: bool = False, calibration: str = "",
        diagnose: bool = False, **workload: Unpack[Keywords],
    ) -> Report: ...  # fmt: skip
    @overload
    def predict(
        self, config: Config, *, gpu: Several, overrides: Overrides = None, allow_defaults: bool = False, calibration: str = "",
        diagnose: bool = False, **workload: Unpack[Keywords],
    ) -> Rows[Report]: ...  # fmt: skip
    def predict(
        self, config: Config, *, gpu: str | Several, overrides: Overrides = None, allow_defaults: bool = False,
        calibration: str = "", diagnose: bool = False, **workload: Unpack[Keywords],
    ) -> Report | Rows[Report]:  # fmt: skip
        """Time in seconds, walls, MFU and memory in bytes of one step, with its layers and operators.

        gpu:         a SKU for one Report, a list of SKUs for one each
        overrides:   sizes that replace the config's, such as {"hidden_size": 4096}
        allow_defaults: answer also where the config leaves sizes to the defaults of its class
        calibration: id of a calibration; unset: the active one
        diagnose:    fill `diagnosis` too: how the regime shows, and what helps by how much

        Raises OutOfRange where nothing bounds an operator's time.

        >>> report = predict("examples/llama-3-8b.json", gpu="h100-sxm5-80gb", phase="decode", mode="graph", context=4096)
        >>> report.step.time_low_s < report.step.time_s < report.step.time_high_s
        True
        >>> report.step.wall, report.architecture.parameter_count, report.memory.fits
        ('memory', 8030261248, True)
        >>> [layer.name for layer in report.layers][:3]
        ['embedding', 'norm', 'attention']
        """
        request = _asked(config, "", overrides, calibration, workload, allow_defaults)
        request.detail, request.diagnose = advisor.DETAIL_OPERATORS, diagnose
        requests = [_on(request, name) for name in names_of(gpu)]
        found = [self._client.predict(each) for each in requests]
        answered(found)
        reports = Rows(Report.of(each) for each in found)
        return reports[0] if isinstance(gpu, str) else reports

    def batch(self, questions: Iterable[Mapping[str, Any]], **common: Any) -> Rows[Report | TilewiseError]:
        """Many steps, far cheaper than one call each where they differ in sizes alone; at most 10,000.

        questions: the keywords of `predict` for each; common: keywords for those that do not say otherwise

        Answers in the order of the questions. Layers and operators are left empty. A question without an answer stands as its
        error, so that one shape of a thousand spoils nothing; a keyword that does not exist is raised.

        >>> sizes = [{"sequence": 512}, {"sequence": 1024}, {"sequence": 1024, "tensor_parallel": 5}]
        >>> short, long, fifths = batch(sizes, config="examples/gpt2.json", gpu="h100-sxm5-80gb", phase="prefill")
        >>> short.step.time_s <= long.step.time_s
        True
        >>> print(fifths)
        num_attention_heads 12 cannot be split over tensor_parallel 5...
        """
        requests = [_question({**common, **each}) for each in questions]
        results = self._client.batch_predict(requests).results
        return Rows(_outcome(each) for each in results)

    def sweep(
        self, config: Config, *, gpu: str | Several, vary: Mapping[str, Iterable[int]], overrides: Overrides = None,
        allow_defaults: bool = False, **workload: Unpack[Keywords],
    ) -> Sweep:  # fmt: skip
        """Steps along one size or two, and the cliffs: where a small change of size costs much.

        vary: a size or batch, sequence, context, tensor_parallel, with its values; one or two of them

        A point without an answer has its `error` in place of a time; raised where no point has one.

        >>> found = sweep("examples/gpt2.json", gpu="h100-sxm5-80gb", vary={"vocab_size": range(50257, 50273, 5)},
        ...               phase="prefill", sequence=2048)
        >>> [point.values for point in found.points]
        [(50257,), (50262,), (50267,), (50272,)]
        """
        request = advice.SweepRequest(
            model=model_of(config, overrides, allow_defaults=allow_defaults),
            workload=workload_of(workload),
            gpus=names_of(gpu),
            axes=axes_of(vary),
        )
        answer = self._client.sweep(request)
        if all(point.HasField("error") for point in answer.points):
            raise _meant(answer.points[0].error)
        return Sweep.of(answer, _request=request)

    def recommend(
        self, config: Config, *, gpu: str | Several, also: Sequence[Mapping[str, Any]] = (), weight: float = 1.0,
        objective: Objective = "time", vary: Sequence[str] = (), keep: Sequence[str] = (), split: Sequence[int] = (),
        precisions: Sequence[Precision] = (), kinds: Sequence[AdviceKind] = (), max_parameter_change: float = 0.01,
        max_memory_bytes: int | None = None, max_candidate_count: int = 100_000, max_results: int = 10,
        overrides: Overrides = None, allow_defaults: bool = False, **workload: Unpack[Keywords],
    ) -> Advice:  # fmt: skip
        """Nearby shapes, ways to run and number formats that are faster, and why; of several GPUs the one that gains least decides.

        also:                 other workloads of the mix: keywords, and "weight"
        weight:               share of the first workload's tokens in the mix
        vary, keep:           sizes that may change (unset: all), and sizes that must not
        split:                tensor-parallel sizes that every shape must allow
        precisions, kinds:    number formats and kinds of advice to look at; unset: all
        max_parameter_change: how far the parameter count may move; 0.01 is 1 %
        max_memory_bytes:     most resident bytes of one GPU; unset: what it has

        >>> advised = recommend("examples/gpt2.json", gpu="h100-sxm5-80gb", kinds=["free_win"], phase="train", batch=8,
        ...                     sequence=1024)
        >>> best = advised.recommendations[0]
        >>> best.verdict, best.changes[0].field, best.effects[0].time_ratio < 1
        ('faster', 'vocab_size', True)
        """
        mix = [advice.WeightedWorkload(workload=workload_of(workload), weight=weight), *map(_weighted, also)]
        near = {
            "max_parameter_change": max_parameter_change, "vary": vary, "keep": keep, "tensor_parallel": split,
            "precisions": precisions, "max_memory_bytes": max_memory_bytes, "max_candidate_count": max_candidate_count,
        }  # fmt: skip
        asked = {"objective": objective, "kinds": kinds, "max_results": max_results, "gpus": names_of(gpu)}
        request = message_of(advice.RecommendRequest, asked)
        request.model.CopyFrom(model_of(config, overrides, allow_defaults=allow_defaults))
        request.workloads.extend(mix)
        request.neighbourhood.CopyFrom(message_of(advice.Neighbourhood, near))
        return Advice.of(self._client.recommend(request))

    def rank(
        self, config: Config, *, gpu: str | Several = (), precisions: Sequence[Precision] = (), batches: Sequence[int] = (),
        overrides: Overrides = None, allow_defaults: bool = False, **workload: Unpack[Keywords],
    ) -> Ranking:  # fmt: skip
        """GPUs by tokens a second, each in the number format that suits it best.

        gpu:        unset: every GPU that a calibration answers for
        precisions: formats to choose from; unset: of the usual ones what a GPU has
        batches:    rank at each of these; unset: at `batch`

        Raises OutOfRange where no GPU is answered for.

        >>> gpus = ["h100-sxm5-80gb", "b200-sxm-180gb"]
        >>> ranking = rank("examples/llama-3-8b.json", gpu=gpus, phase="decode", mode="graph", batch=64, context=4096)
        >>> [(entry.place, entry.gpu) for entry in ranking.places]
        [(1, 'b200-sxm-180gb'), (2, 'h100-sxm5-80gb')]
        """
        from tilewise.client.ranking import orders, ranked, refused

        model, asked = model_of(config, overrides, allow_defaults=allow_defaults), workload_of(workload)
        found = ranked(self._client, model, asked, names_of(gpu) if gpu else (), precisions, batches)
        if not any(entry.tokens_per_s for entry in found):
            raise refused(found)
        return Ranking(orders={batch: Rows(order) for batch, order in orders(found).items()}, entries=Rows(found))

    def check(
        self, *configs: str, policy: str | None = None, base: str | None = None, base_file: str | None = None,
        date: str = "", calibration: str = "",
    ) -> Check:  # fmt: skip
        """The verdict of a policy (tilewise.toml) over configurations.

        configs:   files to judge; none: all that the policy's patterns match
        policy:    its path; unset: tilewise.toml here or in the nearest folder above
        base:      git commit to compare with; base_file: a config, a saved prediction or a folder instead
        date:      YYYY-MM-DD on which allowances are judged; unset: today (UTC)

        Raises InvalidInput for what cannot be read, NotFound where nothing is to be checked.

        >>> check(policy="examples/gate/tilewise.toml").verdict  # without a base no regression is judged
        'not_judged'
        """
        from tilewise.client.gate.inputs import Place, request

        if base is not None and base_file is not None:
            raise InvalidInput("base and base_file exclude each other", reason="BAD_BASE", field="base_file")
        return Check.of(self._client.check(request(Place.of(policy), configs, base, base_file, date, calibration)))

    def gpus(self, *names: str) -> Rows[Gpu]:
        """The GPUs named, with every figure and its source; without a name all that are known.

        Raises NotFound, with the nearest name.

        >>> [(gpu.sku, gpu.memory_bytes) for gpu in gpus("mi300x")]
        [('mi300x', 192000000000.0)]
        """
        found = [self._client.get_gpu(name).gpu for name in names] or self._client.list_gpus().gpus
        return Rows(plain(each.DESCRIPTOR, to_data(each)) for each in found)

    def trace(
        self, module: Any, *inputs: Any, gpu: str, calibration: str = "", named: Mapping[str, Any] | None = None,
        **workload: Unpack[Keywords],
    ) -> Traced:  # fmt: skip
        """One step of a torch.nn.Module, traced on torch's meta device: needs torch, but no data, memory or GPU.

        inputs, named: arguments of the module's forward, of which sizes and dtypes count
        workload:      phase "train" runs forward and backward, and the optimizer; the others forward. batch and sequence say
                       how many tokens a step has

        Raises NotAvailable without torch and from a client of a server, InvalidInput for a module that cannot be traced.

        >>> import torch
        >>> given = torch.zeros(4, 1024, 2048, device="meta", dtype=torch.bfloat16)
        >>> layer = torch.nn.Linear(2048, 8192, device="meta", dtype=torch.bfloat16)
        >>> traced = trace(layer, given, gpu="h100-sxm5-80gb", phase="prefill", batch=4, sequence=1024)
        >>> traced.step.model_flops == 2 * 4 * 1024 * 2048 * 8192
        True
        """
        if self._server is not None:
            message = "a module is traced in this process: ask tilewise.trace, not a server"
            raise NotAvailable(message, reason="EMBEDDED_ONLY", field="module")
        from tilewise.client.traced import traced

        answer = traced(module, inputs, named or {}, gpu, calibration, workload_of(workload))
        answered([answer])
        return Traced.of(answer)


def _asked(
    config: Config, gpu: str, overrides: Overrides, calibration: str, workload: Mapping[str, Any], allow_defaults: bool
) -> advisor.PredictRequest:
    model = model_of(config, overrides, allow_defaults=allow_defaults)
    return advisor.PredictRequest(model=model, workload=workload_of(workload), gpu=gpu, calibration=calibration)


def _on(request: advisor.PredictRequest, gpu: str) -> advisor.PredictRequest:
    asked = advisor.PredictRequest(gpu=gpu)
    asked.MergeFrom(request)
    return asked


def _question(given: dict[str, Any]) -> advisor.PredictRequest:
    """One question of a batch."""
    for name in ("config", "gpu"):
        if given.get(name) is None:
            raise InvalidInput(f"a question of the batch has no {name}", reason="FIELD_REQUIRED", field=name)
    (gpu,) = names_of(given.pop("gpu"))
    config, overrides, calibration = given.pop("config"), given.pop("overrides", None), given.pop("calibration", "")
    return _asked(config, gpu, overrides, calibration, given, given.pop("allow_defaults", False))


def _outcome(result: advisor.PredictResult) -> Report | TilewiseError:
    if not result.HasField("response"):
        return _meant(result.error)
    step = result.response.step
    return OutOfRange(step.refusal, reason="OUT_OF_RANGE") if step.refusal else Report.of(result.response)


def _meant(status: Status) -> TilewiseError:
    """The error that the service raised."""
    from tilewise.server.messages.status import from_status

    error = from_status(status)
    assert error is not None, "what the service answers with has a meaning"
    return error


def _weighted(given: Mapping[str, Any]) -> advice.WeightedWorkload:
    fields = dict(given)
    weight = fields.pop("weight", 1.0)
    return advice.WeightedWorkload(workload=workload_of(fields), weight=weight)


_here = Client()
predict = _here.predict
batch = _here.batch
sweep = _here.sweep
recommend = _here.recommend
rank = _here.rank
check = _here.check
gpus = _here.gpus
trace = _here.trace
