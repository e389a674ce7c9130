"""The transformers library's own class of a config on torch's meta device: parameters, FLOPs of its products, what its cache holds."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING
from transformers.initialization import no_init_weights
from transformers.models.auto import modeling_auto as auto

SEQUENCE = 64
_TABLES = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MASKED_LM", "CAUSAL_LM", None)


@dataclass(frozen=True)
class Truth:
    """A class as it runs over one sequence of SEQUENCE tokens in bfloat16.

    forward_flops, step_flops: multiply-adds twice, of a forward alone and of one with its backward, every query-key pair counted;
                   None where the class does not run on the meta device (`why`)
    cached_bytes:  keys and values; None where it keeps none
    """

    parameters: int
    forward_flops: int | None = None
    step_flops: int | None = None
    cached_bytes: int | None = None
    why: str = ""


def model_class(model_type: str) -> Any | None:
    """The class that the library's auto classes build for a model_type; None where it has none."""
    for table in _TABLES:
        found = getattr(auto, f"MODEL_FOR_{table}_MAPPING_NAMES" if table else "MODEL_MAPPING_NAMES").get(model_type)
        if found is not None:
            return getattr(transformers, found if isinstance(found, str) else found[0])
    return None


def built(config: dict[str, Any]) -> Any | None:
    """The model of a config on the meta device; None where the class does not accept the config."""
    kind = model_class(config["model_type"])
    try:
        own = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
        with torch.device("meta"), no_init_weights():
            model = kind._from_config(own, dtype=torch.bfloat16) if hasattr(kind, "_from_config") else kind(own)  # type: ignore[misc]
            model.tie_weights()
    except Exception:  # noqa: BLE001  # whatever the class refuses is no trial
        return None
    return model


def parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def truth(config: dict[str, Any], runs: bool = True, backward: bool = True) -> Truth | None:
    """What the class of a config is and does; None where it does not accept the config. runs: also its FLOPs and cache."""
    model = built(config)
    if model is None:
        return None
    if not runs:
        return Truth(parameters(model))
    why = ""
    for cached in (True, False):  # a cache of linear attention alone is asked for a length that it has not
        try:
            return _run(model, backward, cached)
        except Exception as error:  # noqa: BLE001  # a class may ask tensors for values, which the meta device has not
            why = why or " ".join(f"{type(error).__name__}: {error}".split())[:120]
    return Truth(parameters(model), why=why)


def _run(model: Any, backward: bool, cached: bool) -> Truth:
    """torch's FlopCounterMode is blind to grouped products, so experts run as batched ones."""
    _answer_for_the_device()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("batched_mm")
    model.eval()
    angles = {_BMM: _product} | ({_MM: _product} if model.main_input_name == "pixel_values" else {})
    with FlopCounterMode(display=False, custom_mapping=angles) as counter:
        out = model(**_inputs(model) | ({} if cached else {"use_cache": False}))
    forward, step = _counted(counter, model), None
    if backward and not any(map(_scans, model.modules())):
        with FlopCounterMode(display=False) as counter:
            sum(result.sum() for result in _results(out)).backward()
        step = forward + counter.get_total_flops()
    return Truth(parameters(model), forward, step, _cached_bytes(getattr(out, "past_key_values", None)))


_MM, _BMM = torch.ops.aten.mm, torch.ops.aten.bmm


def _product(a: Any, b: Any, *rest: Any, out_shape: Any = None, **more: Any) -> int:
    """FLOPs of products but the rotary embedding's angles, which have no gradient."""
    return 0 if a[-1] == 1 and not torch.is_grad_enabled() else int(2 * math.prod(a) * b[-1])


def _counted(counter: FlopCounterMode, model: Any) -> int:
    """FLOPs without scans, their convolutions and indexers' scores, which the library writes out in Python and other packages' kernels do otherwise."""
    found = counter.get_flop_counts()
    scans = [f"{model.__class__.__name__}.{name}" for name, module in model.named_modules() if _scans(module)]
    inside = (sum(flops for op, flops in found.get(name, {}).items() if op in _SCANNED) for name in scans)
    return counter.get_total_flops() - sum(inside)


_SCANNED = (_BMM, torch.ops.aten.convolution, torch.ops.aten.convolution_backward)


def _scans(module: Any) -> bool:
    return (
        hasattr(module, "A_log")
        or any(hasattr(module, f"{name}conv1d") for name in ("", "q_"))
        or hasattr(module, "conv_1d")
        or type(module).__name__.endswith(("LightningAttention", "ShortConv", "Indexer"))
    )


def _answer_for_the_device() -> None:
    """What the masks ask of tensors' values: one whole sequence, no padding."""
    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None
    transformers.masking_utils.fast_all = lambda mask: True


def _inputs(model: Any) -> dict[str, Any]:
    """Text for all that read text, or an image."""
    config, ids = model.config, torch.zeros(1, SEQUENCE, dtype=torch.long, device="meta")
    if model.main_input_name == "pixel_values":
        size, channels = config.image_size, getattr(config, "num_channels", 3)
        return {"pixel_values": torch.zeros(1, channels, size, size, dtype=torch.bfloat16, device="meta")}
    if not config.is_encoder_decoder:
        return {"input_ids": ids} | (
            {} if model.__class__.__name__.endswith(("MaskedLM", "EncoderModel")) else {"use_cache": True}
        )
    decoder = {"decoder_input_ids": ids, "use_cache": True}
    if model.main_input_name != "input_features":
        return {"input_ids": ids, **decoder}
    sound = torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions, dtype=torch.bfloat16, device="meta")
    return {"input_features": sound, **decoder}


def _results(out: Any) -> list[Any]:
    """What the loss of a step may be made of."""
    if getattr(out, "logits", None) is not None:
        return [out.logits]
    return [
        result for name in ("last_hidden_state", "pooler_output") if (result := getattr(out, name, None)) is not None
    ]


def _cached_bytes(cache: Any) -> int | None:
    """Keys and values of a step, those of the encoder among them; a window's last token is dropped after the step, so it is added.

    One tensor that serves as both is counted once (DeepSeek V4), with the whole keys that stand for several tokens.
    """
    parts = [getattr(cache, f"{name}_attention_cache", None) for name in ("self", "cross")]
    layers = [layer for part in (parts if any(parts) else [cache]) for layer in getattr(part, "layers", ())]
    held = [
        _held(layer, kept)
        for layer in layers
        for kept in {id(kept): kept for name in _KEPT for kept in [getattr(layer, name, None)]}.values()
        if kept is not None
    ]
    packed = [kept for layer in layers for kept in getattr(layer, "compressed_kv", {}).values() if kept is not None]
    return sum(held) + sum(kept.numel() * kept.element_size() for kept in packed) if held else None


_KEPT = ("keys", "values", "indexer_keys")


def _held(layer: Any, kept: Any) -> int:
    tokens = kept.shape[-2]  # also of an indexer's keys, which are of no head
    used = min(SEQUENCE, layer.sliding_window) if getattr(layer, "is_sliding", False) else tokens
    return int(kept.numel() // max(tokens, 1) * used * kept.element_size())
