"""Record: a frozen value with named fields. It is what a frozen dataclass is, without that one's cost at every start.

A frozen dataclass writes and compiles seven methods a class: 1.3 ms each, a fifth of a first question's time over the 86
classes that it needs. A record shares its methods with all others. `dataclasses.replace`, `fields` and `asdict` take both.
"""

from __future__ import annotations

from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError, make_dataclass
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, dataclass_transform


class _Fields:
    """What the functions of `dataclasses` ask a class for, made when they first do."""

    def __get__(self, record: object, owner: type[Record]) -> dict[str, Field[Any]]:
        return _fields(owner)  # type: ignore[arg-type]


@dataclass_transform(frozen_default=True)
class Record:
    """Base of classes whose annotations are their fields, in order; a default is the class's attribute.

    Class keywords: kw_only (fields are given by name), eq (False: equal to itself alone). Other attributes that a class
    works out are functools.cached_property. `__match_args__` holds the fields' names.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _Fields()  # type: ignore[assignment]
    _positional: ClassVar[int] = 0
    _required: ClassVar[frozenset[str]] = frozenset()
    _names: ClassVar[frozenset[str]] = frozenset()
    _blank: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, *, kw_only: bool = False, eq: bool = True) -> None:
        own = [name for name, kind in get_annotations(cls).items() if not str(kind).startswith("ClassVar")]
        names = dict.fromkeys((*cls.__match_args__, *own))
        cls.__match_args__ = tuple(names)  # type: ignore[misc]
        cls._names = frozenset(names)
        cls._positional = 0 if kw_only else len(names)
        cls._required = frozenset(name for name in names if not hasattr(cls, name))
        cls._blank = {name: getattr(cls, name, None) for name in names}
        if not eq:
            cls.__eq__, cls.__hash__ = object.__eq__, object.__hash__  # type: ignore[method-assign]

    def __init__(self, *values: Any, **named: Any) -> None:
        held, names = self.__dict__, self.__match_args__
        if len(values) == len(names) == self._positional and not named:  # the two common cases first
            held.update(zip(names, values, strict=True))
        elif not values and len(named) == len(names) and self._names.issuperset(named):
            held.update(named)
        else:
            held.update(self._filled(values, named))
        self.__post_init__()

    def _filled(self, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Every field, with its default where it is left out. Raises TypeError."""
        places = self.__match_args__[: len(values)]
        found = {**self._blank, **dict(zip(places, values, strict=False)), **named}
        missing = self._required.difference(places, named)
        if missing or len(values) > self._positional or len(found) > len(self._blank):
            wrong = [*missing, *(found.keys() - self._blank.keys()), *map(repr, values[self._positional :])]
            raise TypeError(f"{type(self).__name__}: missing, unknown or too many: {', '.join(sorted(wrong))}")
        return found

    def __post_init__(self) -> None:
        """What a class checks of its fields."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self.__match_args__, _values(self), strict=True))
        return f"{type(self).__qualname__}({shown})"


def _values(record: Any) -> tuple[Any, ...]:
    held = record.__dict__
    return tuple(held[name] for name in record.__match_args__)


@cache
def _fields(owner: type[Any]) -> dict[str, Field[Any]]:
    """The fields of a record as those of a dataclass."""
    kinds: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        kinds |= get_annotations(base)
    found = {name: copy(_LIKE) for name in owner.__match_args__}
    for name, made in found.items():
        made.name, made.type = name, kinds[name]
        made.default = MISSING if name in owner._required else owner._blank[name]
    return found


_LIKE: Field[Any] = make_dataclass("_Like", ["field"]).__dataclass_fields__["field"]  # type: ignore[attr-defined]
