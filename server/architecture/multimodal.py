"""The keys of a config -> its model: one without parts, or a text model, towers for images or sound, and what joins them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from tilewise.server.architecture.assemble import architecture, stacks
from tilewise.server.architecture.canonical import canonical
from tilewise.server.architecture.families import Family, family, names
from tilewise.server.architecture.linear import listed
from tilewise.server.architecture.model import Architecture, Norm, Size, Stack
from tilewise.server.architecture.raw import model_type, table_of
from tilewise.server.architecture.sizes import Keys, invalid, product


def assembled(raw: dict[str, Any], overrides: Mapping[str, Size], name: str) -> Architecture:
    """The model of a config's keys, with or without parts. Raises as `read_with`."""
    table = table_of(raw)
    if table.parts:
        return multimodal(raw, table, overrides, name)
    keys = canonical(raw, table, overrides)
    keys.update(_class_values(keys["architectures"], table))
    return architecture(keys, table.name, model_type(raw), name)


def _class_values(classes: Any, table: Family) -> dict[str, Any]:
    """What the named model class fixes, by the longest matching end of its name (BertModel, GPT2LMHeadModel)."""
    if not (isinstance(classes, list) and classes and isinstance(classes[0], str)):
        return {}
    endings = sorted((end for end in table.heads if classes[0].endswith(end)), key=len)
    return table.heads[endings[-1]] if endings else {}


def multimodal(raw: Mapping[str, Any], table: Family, overrides: Mapping[str, Size], name: str) -> Architecture:
    """The text model with the towers before its stacks; overrides vary the text part."""
    own = _own(raw, table)
    missing = [key for key in sorted(table.left_out) if own.pop(key, None)]
    text_raw, text_family = text_part(raw, table)
    if table.parts["text"]["key"] not in raw:
        own = {key: value for key, value in own.items() if key in table.keys}
    wrapper = canonical(own, table, {})
    text_keys = canonical(text_raw, text_family, overrides)
    text_keys["tie_word_embeddings"] = _tied(text_raw, wrapper)
    text = architecture(text_keys, text_family.name, str(raw.get("model_type", table.name)), name)
    towers = tuple(
        _tower(raw.get(part["key"]), part, wrapper, text_keys)
        for label, part in table.parts.items()
        if label != "text" and (raw.get(part["key"]) is not None or part.get("required", True))
    )
    return replace(
        text,
        stacks=(*towers, *text.stacks),
        extra_parameters=text.extra_parameters
        + product({**wrapper, "text_hidden_size": text.hidden}, wrapper["model_extra"]),
        notes=(
            f"{text_family.name} is the text part of {table.name}; its towers are reported apart",
            *(f"{key} is left out: that tower is neither counted nor timed" for key in missing),
        ),
    )


def _own(raw: Mapping[str, Any], table: Family) -> dict[str, Any]:
    """The keys of the config that belong to none of its parts."""
    return {key: value for key, value in raw.items() if key not in {part["key"] for part in table.parts.values()}}


def text_part(raw: Mapping[str, Any], table: Family) -> tuple[dict[str, Any], Family]:
    """The text config, nested or (older files) beside the other keys, and its family."""
    part = table.parts["text"]
    nested = raw.get(part["key"])
    if nested is None:
        own = _own(raw, table)
        nested = {key: value for key, value in own.items() if key not in table.keys or key == "tie_word_embeddings"}
    return _dict(nested, part["key"]), _part_family(nested, part)


def _dict(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid(key, f"{key} must be an object, not {str(value)[:40]!r}")
    return value


def _part_family(config: Any, part: Mapping[str, Any]) -> Family:
    """The family a part names itself, or what the model's class takes where it names none."""
    stated = config.get("model_type") if isinstance(config, dict) else None
    if not part.get("always") and isinstance(stated, str) and stated in names() and not family(stated).parts:
        return family(stated)
    default: str = part["family"]
    return family(default)


def _tied(text: Mapping[str, Any], wrapper: Keys) -> bool:
    """What the config's class goes by: its own key (the text's where it has none), the text's alone, or either."""
    own, inner = wrapper.get("tie_word_embeddings"), text.get("tie_word_embeddings")
    if wrapper["ties"] == "either":
        return bool(own or inner)
    return bool(inner if own is None or wrapper["ties"] == "text" else own)


def _tower(config: Any, part: Mapping[str, Any], wrapper: Keys, text: Keys) -> Stack:
    config = {} if config is None else _dict(config, part["key"])
    keys = canonical(config, _part_family(config, part), {})
    tower = stacks(keys)[0]
    counts = {f"{key}.count": len(value) for key, value in (*keys.items(), *wrapper.items()) if isinstance(value, list)}
    sizes = {**keys, **counts, **wrapper, "text_hidden_size": text["hidden_size"], "tokens": tower.tokens}
    merged = product(sizes, wrapper["projector_merge"])
    patches = tower.tokens - keys["class_tokens"] if tower.tokens else 0  # 0: the model takes images of any size
    tokens = wrapper["projector_tokens"] or patches // merged
    return replace(
        tower,
        projector=listed(sizes, wrapper["projector"]),
        projector_tokens=product(sizes, tokens),
        norms=(*tower.norms, *_projector_norms(sizes)),
    )


def _projector_norms(sizes: Keys) -> tuple[Norm, ...]:
    return tuple(
        Norm(name=entry["name"], width=product(sizes, entry["width"]), kind=entry["kind"], bias=entry["bias"])
        for entry in sizes["projector_norms"]
        for _ in range(int(product(sizes, entry.get("copies", 1))))
    )
