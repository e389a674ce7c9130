"""Dropout: what transformers' classes drop in training, by the config's rates or their own."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tilewise.hwdb.database import Database
from tilewise.server.architecture import read
from tilewise.server.architecture.dropout import Dropout
from tilewise.server.architecture.model import Architecture
from tilewise.server.step.predict import predict
from tilewise.server.step.report import Report
from tilewise.server.workload import Workload

H100 = Database.packaged().gpu("h100-sxm5-80gb")
GPT2 = {"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 4, "n_positions": 2048, "vocab_size": 50257}
WITHOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def model(**more: Any) -> Architecture:
    return read(json.dumps({**GPT2, **more}))


def report(arch: Architecture, **options: Any) -> Report:
    return predict(
        H100, arch, Workload(**{"phase": "train", "batch": 2, "sequence": 2048, "optimizer": "none", **options})
    )


def test_a_class_drops_where_its_config_says_nothing_and_not_where_that_says_zero() -> None:
    assert model().dropout == Dropout(embedding=True, attention=True, hidden=True)
    assert model(**WITHOUT).dropout == Dropout()
    assert model(**{**WITHOUT, "attn_pdrop": 0.1}).dropout == Dropout(attention=True)
    assert read(json.dumps({"model_type": "llama", "hidden_size": 512})).dropout == Dropout()


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_training_with_dropout_takes_longer_keeps_masks_and_says_so(mode: str) -> None:
    dropping, plain = (report(arch, mode=mode) for arch in (model(), model(**WITHOUT)))
    assert dropping.step.busy is not None and plain.step.busy is not None
    assert 1.01 < dropping.step.busy.time_s / plain.step.busy.time_s < 1.2
    assert dropping.step.launches >= plain.step.launches
    assert dropping.memory.total_bytes > plain.memory.total_bytes
    assert any(note.startswith("trains with dropout (embedding, attention, hidden)") for note in dropping.notes)
    assert not any("dropout" in note for note in plain.notes)


def test_nothing_is_dropped_outside_training() -> None:
    arch = model()
    for options in ({"phase": "prefill"}, {"phase": "decode", "context": 512, "sequence": 0}):
        asked = {"stack": "transformers", **options}
        assert report(arch, **asked).step.busy == report(replace(arch, dropout=Dropout()), **asked).step.busy
