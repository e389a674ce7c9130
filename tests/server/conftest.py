"""Architectures that every server test may use, written out here so that these tests always run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.server.architecture import Architecture, read

LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


@pytest.fixture
def llama() -> Callable[..., Architecture]:
    """Llama 3 8B, with any key replaced."""

    def make(**keys: object) -> Architecture:
        return read(json.dumps({**LLAMA_3_8B, **keys}))

    return make


@pytest.fixture
def config(configs: Path) -> Callable[[str], Architecture]:
    """A published config by its path, such as "qwen3/Qwen3-8B"."""
    return lambda name: read((configs / f"{name}.json").read_text(encoding="utf-8"))
