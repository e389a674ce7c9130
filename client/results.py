"""What the front door answers: the contract's answers as plain frozen objects that show, plot and write themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, Self

from google.protobuf.message import Message

from tilewise.client import answers
from tilewise.client.ranking import Entry
from tilewise.client.render.data import to_data, versioned
from tilewise.client.rows import SHOWN, Row, Rows, dataframe, row

LAYER_COLUMNS = ("name", "time_s", "time_low_s", "time_high_s", "share", "mfu", "mbu", "wall", "trust")


class Answer:
    """What every answer can do. Two are equal if their fields are."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what the command line writes with `--format json`, parsed."""
        raise NotImplementedError

    def to_dataframe(self) -> Any:
        """A pandas.DataFrame, or a polars.DataFrame where only that is installed; units are in the columns' names.

        A row an operator of a report, a point of a sweep, a piece of advice, a GPU's format in a ranking, a comparison of a
        check. Raises NotAvailable where neither is installed.
        """
        return dataframe(self._rows())

    def _rows(self) -> list[Row]:
        raise NotImplementedError

    def _shown(self) -> list[Row]:
        """The rows of a small table."""
        return self._rows()[:SHOWN]

    def _headline(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._headline()}>"

    def _repr_html_(self) -> str:
        from tilewise.client.render.html import plain_table

        return f"<p>{escape(self._headline())}</p>{plain_table(self._shown())}"


class FromMessage(Answer):
    """An answer of the contract, with its message beside it for those who draw and write."""

    _message: Any

    @classmethod
    def of(cls, message: Message, **more: Any) -> Self:
        made: Self = plain(message.DESCRIPTOR, to_data(message), cls)
        for name, value in {"_message": message, **more}.items():
            object.__setattr__(made, name, value)
        return made

    def to_dict(self) -> dict[str, Any]:
        return versioned(to_data(self._message))


class Traced(FromMessage, answers.PredictResponse):
    """A step of a traced module: as a Report, without memory and parameters."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about how the configuration was read, one sentence each."""
        return self.architecture.notes

    def plot(self, path: str | None = None) -> Any:
        """Every operator on the roofline, and where the time of each kind of layer goes, as a matplotlib Figure.

        path: write it there too: .png, .svg or .pdf. Raises NotAvailable without matplotlib, InvalidInput for another ending.
        """
        from tilewise.client.render import plot

        if path is not None:
            plot.save(self._message, path)
        return plot.picture(self._message)

    def _rows(self) -> list[Row]:
        return [row(each) for each in self.operators]

    def _shown(self) -> list[Row]:
        return [{name: getattr(layer, name) for name in LAYER_COLUMNS} for layer in self.layers]

    def _headline(self) -> str:
        from tilewise.client.render.plot import title

        return self.summary or title(self._message)

    def _row(self) -> Row:
        named: Row = {"name": self.architecture.name, "gpu": self.gpu.sku, **row(self.workload)}
        held: Row = {"memory_bytes": self.memory.total_bytes, "fits": self.memory.fits} if self.memory else {}
        return {**named, **row(self.step), **held, "parameter_count": self.architecture.parameter_count}


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Traced):
    """One step of a model on one GPU: its time, its layers, its operators and its memory.

    Times in seconds with their 90 % interval; `wall`: what bounds them; `trust`: what they rest on; FLOPs and bytes of one GPU.
    """

    memory: answers.Memory
    """What must be resident."""


class Sweep(FromMessage, answers.SweepResponse):
    """Points along one size or two, and the cliffs among them."""

    _request: Any

    def plot(self, path: str | None = None, *, show: str = "time") -> Any:
        """A line for one field, a map for two, as a matplotlib Figure.

        show: "time" or "mfu"; path: write it there too: .png, .svg or .pdf. Raises NotAvailable without matplotlib.
        """
        from tilewise.client.render import sweep_plot

        if path is not None:
            sweep_plot.save(self._request, self._message, show, path)
        return sweep_plot.picture(self._request, self._message, show)

    def _rows(self) -> list[Row]:
        names = [axis.field for axis in self._request.axes]
        return [{**dict(zip(names, point.values, strict=True)), **row(point)} for point in self.points]

    def _headline(self) -> str:
        from tilewise.client.render.sweep import sweep_title

        return f"{sweep_title(self._request)}; {len(self.points)} points, {len(self.cliffs)} cliffs"


class Advice(FromMessage, answers.RecommendResponse):
    """Nearby shapes, ways to run and number formats that are faster, the best first."""

    def _rows(self) -> list[Row]:
        return [_advised(each) for each in self.recommendations]

    def _headline(self) -> str:
        return self.summary


def _advised(each: answers.Recommendation) -> Row:
    """The effect shown is the first: the first GPU and workload."""
    change = ", ".join(f"{one.field} {one.from_} -> {one.to}" for one in each.changes)
    ratios = {name: getattr(each.effects[0], name) for name in ("time_ratio", "time_ratio_low", "time_ratio_high")}
    return {"change": change, **ratios, **row(each)}


class Check(FromMessage, answers.CheckResponse):
    """The verdict of a policy over configurations: `verdict` is "pass", "uncertain", "fail" or "error"."""

    def _rows(self) -> list[Row]:
        return [row(each) for each in self.comparisons]

    def _headline(self) -> str:
        return f"verdict: {self.verdict}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Ranking(Answer):
    """GPUs by tokens a second. Those whose 90 % intervals overlap share a place: their order is not known."""

    orders: Mapping[int, Rows[Entry]]
    """The best format of each GPU, fastest first, by batch."""
    entries: Rows[Entry]
    """Every GPU in every format and batch."""

    @property
    def places(self) -> Rows[Entry]:
        """The order at the first batch."""
        return next(iter(self.orders.values()))

    def to_dict(self) -> dict[str, Any]:
        from tilewise.client.render.ranking import data

        return versioned(data(self.orders, self.entries))

    def _rows(self) -> list[Row]:
        return [row(each) for each in self.entries]

    def _headline(self) -> str:
        return "; ".join(f"{each.place}. {each.gpu} in {each.precision}" for each in self.places)

    def _shown(self) -> list[Row]:
        return [row(each) for order in self.orders.values() for each in order]


def plain(descriptor: Any, data: Mapping[str, Any], kind: Any = None) -> Any:
    """A message's data (client.render.data) as the object of its class, or of `kind`."""
    values = dict(data)
    values.pop("progress", None)
    for name, inner in holding(descriptor).items():
        if name in values:
            values[name] = nested(inner, values[name])
    if "from" in values:  # a word of Python's
        values["from_"] = values.pop("from")
    return (kind or getattr(answers, descriptor.name))(**values)


@cache
def holding(descriptor: Any) -> dict[str, Any]:
    """The fields of a message that hold lists or messages: what they hold, None for plain values."""
    return {
        field.name: field.message_type
        for field in descriptor.fields
        if field.is_repeated or field.message_type is not None
    }


def nested(descriptor: Any, value: Any) -> Any:
    if isinstance(value, list):
        return Rows([plain(descriptor, each) for each in value]) if descriptor else tuple(value)
    if not isinstance(value, dict) or descriptor.GetOptions().map_entry:
        return value
    return plain(descriptor, value)
