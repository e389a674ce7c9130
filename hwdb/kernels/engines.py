"""Which of a calibration's published kernels a serving engine runs, by operator and format (engines.toml)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.kernels.collective import all_reduce
from tilewise.hwdb.kernels.software import USUAL_MIN, Origin
from tilewise.hwdb.kernels.software import engines as facts
from tilewise.hwdb.precision import Precision
from tilewise.hwdb.record import Record
from tilewise.hwdb.sku import Sku
from tilewise.hwdb.table import Kind, Phase

CACHES = {Phase.FORWARD: {False: "bf16/bf16", True: "fp8/fp8"}, Phase.DECODE: {False: "bf16/bf16", True: "bf16/fp8"}}
LATENT_CACHES = {phase: CACHES[Phase.DECODE] for phase in CACHES}  # no engine's latent prefill multiplies in fp8
EXPERTS_ONLY = (Precision.MXFP4,)  # formats of experts alone (gpt-oss): an engine's other products stay in 16 bit


class Kernel(NamedTuple):
    """code: of a table's column `library`; origin: as the calibration lists it."""

    code: int
    origin: Origin


NONE = Kernel(0, Origin(engine="", formats=("bf16",)))
Key = TypeVar("Key")


class Kernels(Record):
    """An engine's kernels on one GPU; what is missing was not published for it there.

    products, experts, few: by the precision asked for (few: experts at few tokens)
    attention, latent: by phase and whether the cache is fp8 (latent: MLA)
    reduces: the `library` code of its all-reduce by the number of GPUs
    calibration: the published one that knows them, where another answers for all else
    """

    engine: str = "none"
    products: Mapping[Precision, Kernel] = {}
    experts: Mapping[Precision, Kernel] = {}
    few: Mapping[Precision, Kernel] = {}
    attention: Mapping[tuple[Phase, bool], Kernel] = {}
    latent: Mapping[tuple[Phase, bool], Kernel] = {}
    reduces: Mapping[int, int] = {}
    calibration: str = ""

    def product(self, precision: Precision) -> int:
        """The `library` code of a GEMM, 0 where nobody's is known."""
        return self.products.get(precision, NONE).code

    def casts(self, precision: Precision) -> bool:
        """Whether the time of a product holds the cast of its activations, too."""
        return precision in self.products and self.products[precision].origin.quantises

    def fused(self, precision: Precision, tokens: int) -> Kernel:
        """The fused layer of experts over so many tokens; NONE where none is known."""
        few = precision in self.few and tokens <= facts()[self.engine]["few"]["tokens"]
        return self.few[precision] if few else self.experts.get(precision, NONE)

    def of(self, kind: str) -> Mapping[tuple[Phase, bool], Kernel]:
        """The kernels of "attention" or "latent attention"; nothing for other mixers."""
        return {"attention": self.attention, "latent attention": self.latent}.get(kind, {})

    @property
    def title(self) -> str:
        return str(facts()[self.engine]["title"])

    def rotates(self, phase: Phase, fp8: bool) -> bool:
        """Whether the time of an attention holds the rotation and the write to the cache."""
        return (phase, fp8) in self.attention and bool(facts()[self.engine]["rotates"])

    def selects(self, experts: Kernel) -> bool:
        """Whether the time of a fused layer holds the choice of its experts."""
        return any(word in experts.origin.kernel for word in facts()[self.engine]["selects"])


def check_runs(engine: str, sku: Sku) -> None:
    """Raises NotAvailable (ENGINE_NOT_AVAILABLE) where an engine does not run on the GPUs of a vendor."""
    if engine == "none" or sku.vendor in facts()[engine]["vendors"]:
        return
    those = ", ".join(name for name, about in facts().items() if sku.vendor in about["vendors"])
    message = f"{facts()[engine]['title']} does not run on {sku.name}; stacks that do: {those}"
    raise NotAvailable(message, reason="ENGINE_NOT_AVAILABLE", field="workload.stack", gpu=sku.name)


def kernels(engine: str, models: Mapping[Kind, Mapping[str, Any]], sku: str) -> Kernels:
    """The kernels of an engine among those that a SKU's fitted models list; models: by Kind, as Gpu has them."""
    if engine == "none":
        return Kernels()
    lists = {kind: [Origin.of(one) for one in model.get("software", ())] for kind, model in models.items()}
    listed = {kind: lists.get(kind, []) for kind in (Kind.GEMM, Kind.GROUPED_GEMM, Kind.ATTENTION)}
    about = facts()[engine]
    narrow = {precision: precision.name.lower() for precision in Precision}
    few = str(about.get("few", {}).get("kernel", ""))
    fused = {p: about["experts"].get(name, [name]) for p, name in narrow.items()}
    attention, latent = (
        {
            (phase, fp8): best(engine, listed[Kind.ATTENTION], [stored], phase=phase.name.lower(), latent=over_latent)
            for phase, caches in formats.items()
            for fp8, stored in caches.items()
        }
        for over_latent, formats in ((False, CACHES), (True, LATENT_CACHES))
    )
    return Kernels(
        engine,
        products=_known({p: best(engine, listed[Kind.GEMM], [name]) for p, name in narrow.items()}),
        experts=_known({p: best(engine, listed[Kind.GROUPED_GEMM], f, without=few) for p, f in fused.items()}),
        few=_known({p: best(engine, listed[Kind.GROUPED_GEMM], f, only=few) for p, f in fused.items() if few}),
        attention=_known(attention),
        latent=_known(latent),
        reduces=all_reduce.codes(sku, engine),
    )


def _known(found: Mapping[Key, Kernel]) -> dict[Key, Kernel]:
    return {key: one for key, one in found.items() if one.code}


def best(
    engine: str,
    listed: Sequence[Origin],
    formats: Sequence[str],
    *,
    phase: str = "",
    latent: bool = False,
    only: str = "",
    without: str = "",
) -> Kernel:
    """An engine's kernel in the first of the formats that has one: of the newest release the preferred one.

    only, without: a word that its kernel's name must or must not hold
    """
    about = facts()[engine]
    never = [*about["never"], *([without] if without else [])]
    mine = [
        Kernel(at, one) for at, one in enumerate(listed, 1)
        if (one.engine, one.phase, one.latent) == (engine, phase, latent) and one.points >= USUAL_MIN
        and only in one.kernel and not any(word in one.kernel for word in never)
    ]  # fmt: skip
    for wanted in formats:
        if found := [one for one in mine if one.origin.format == wanted]:
            return max(found, key=lambda one: (release(one.origin), -preference(one.origin, about["kernels"])))
    return NONE


def release(origin: Origin) -> tuple[int, ...]:
    """Numbers of the release: "0.24.0" -> (0, 24, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", origin.release))


def preference(origin: Origin, words: Sequence[str]) -> int:
    return next((at for at, word in enumerate(words) if word in origin.kernel), len(words))
