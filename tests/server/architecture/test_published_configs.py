"""Every real config.json against the transformers library's own counts, and the reported problems of G08-G16, G66, G67."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import Architecture, count, read
from tilewise.server.architecture.model import Attention, Experts, Mlp

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parameter_counts", ROOT / "scripts" / "docs" / "parameter_counts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["parameter_counts"] = module
    spec.loader.exec_module(module)
    return module


def opened(configs: Path, name: str) -> Architecture:
    return read((configs / name).read_text(), name=name)


def attention(architecture: Architecture) -> Attention:
    mixer = architecture.stacks[-1].blocks[0].mixers[0]
    assert isinstance(mixer, Attention)
    return mixer


def test_every_file_with_a_true_count_is_exact_but_for_the_listed_exceptions(configs: Path, script: ModuleType) -> None:
    known = [row for row in script.rows(configs) if row.true_total is not None]
    assert len(known) >= 100
    assert {row.file for row in known if not row.exact} == set(script.EXCEPTIONS)


def test_a_t5_file_that_names_its_encoder_class_is_the_encoder_alone(configs: Path) -> None:
    config = json.loads((configs / "t5" / "t5-v1_1-xxl-encoder.json").read_text())
    assert count(read(json.dumps({**config, "architectures": ["T5EncoderModel"]}))).total == 4_762_310_656


def test_parts_are_equal_but_where_the_referee_splits_by_name(configs: Path, script: ModuleType) -> None:
    different = set()
    for row in script.rows(configs):
        if row.exact and {part: row.counted.parts.get(part, 0) for part in script.PARTS} != row.true_parts:
            different.add(row.file)
    assert different == set(script.SPLIT_OTHERWISE)


def test_every_json_file_is_read_or_refused_in_one_line(configs: Path, script: ModuleType) -> None:
    refused = {row.file for row in script.rows(configs) if row.refusal and row.file.endswith(".json")}
    assert refused == {
        "flux/FLUX.1-schnell-transformer-nf4.json",  # diffusers
        "minicpm/MiniCPM3-4B.json",  # names neither model_type nor class
        "whisper/whisper-tiny-ctranslate2-trap.json",  # no shapes in it
    }
    assert not any("\n" in row.refusal for row in script.rows(configs))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bloom/bloom-7b1-llmanalysis.json", 7_069_016_064),  # keys that the transformers library overlooks
        ("phi/phi-2.json", 2_779_683_840),
        ("qwen1/Qwen-7B-Chat.json", 7_721_324_544),
        ("chatglm/chatglm2-6b.json", 6_243_584_000),
        ("deepseek/DeepSeek-V3-inference-671B.json", 671_026_404_352),
    ],
)
def test_files_the_library_cannot_build_meet_the_published_count(configs: Path, name: str, published: int) -> None:
    assert count(opened(configs, name)).total == published


def test_g08_and_g67_text_and_vision_are_reported_apart(configs: Path) -> None:
    for name in ("llava/llava-1.5.json", "qwen2-vl/Qwen2-VL-2B.json", "gemma/gemma-3-4b-it-LLM-TPU.json",
                 "llama4/Llama-4-Scout-17B-16E-Instruct.json"):  # fmt: skip
        vision, decoder = opened(configs, name).stacks
        assert (vision.name, decoder.name) == ("vision", "decoder")
        assert count(opened(configs, name)).parts["vision"] > 0


def test_g12_and_g22_head_dim_is_the_configs_own(configs: Path) -> None:
    for name, head_dim in [
        ("mistral/Mistral-Nemo-Base-2407.json", 128),
        ("qwen3/Qwen3-0.6B.json", 128),
        ("gemma/gemma-2b.json", 256),
    ]:
        architecture = opened(configs, name)
        own = attention(architecture)
        assert own.head_dim == head_dim
        assert own.heads * head_dim != architecture.hidden or name == "gemma/gemma-2b.json"


def test_g13_local_layers_have_their_window_or_chunk(configs: Path) -> None:
    gemma = opened(configs, "gemma/gemma-3-1b-it.json").stacks[0].blocks
    assert [(len(block.layers), attention_of.window) for block in gemma
            if isinstance(attention_of := block.mixers[0], Attention)] == [(22, 512), (4, 0)]  # fmt: skip
    llama4 = opened(configs, "llama4/Llama-4-Scout-17B-16E-Instruct.json").stacks[1].blocks
    assert [(len(block.layers), attention_of.chunk, attention_of.rope_dim) for block in llama4
            if isinstance(attention_of := block.mixers[0], Attention)] == [(36, 8192, 128), (12, 0, 0)]  # fmt: skip


def test_g14_mixtral_has_46_70_billion_and_activates_12_88(configs: Path) -> None:
    counted = count(opened(configs, "mixtral/Mixtral-8x7B-v0.1.json"))
    assert counted.total == 46_702_792_704
    assert round(counted.active / 1e9, 2) == 12.88  # type: ignore[operator]


def test_g15_latent_attention_has_two_widths(configs: Path) -> None:
    own = attention(opened(configs, "deepseek/DeepSeek-V3.json"))
    assert (own.head_dim, own.head_dim_v) == (192, 128)
    assert own.latent is not None and own.latent.kv_rank + own.latent.rope_dim == 576


def test_g16_a_tied_table_is_counted_once_and_the_head_is_there_either_way(configs: Path) -> None:
    tied, untied = opened(configs, "qwen3/Qwen3-0.6B.json"), opened(configs, "qwen3/Qwen3-8B.json")
    assert tied.tied and not untied.tied
    assert tied.head is not None and untied.head is not None
    assert "lm_head" not in count(tied).parts
    assert count(untied).parts["lm_head"] == untied.head.parameters


def test_g20_the_indexer_of_sparse_attention_is_read(configs: Path) -> None:
    indexer = attention(opened(configs, "glm/GLM-5.json")).indexer
    assert indexer is not None and (indexer.heads, indexer.head_dim, indexer.top_k) == (32, 128, 2048)


@pytest.mark.parametrize(
    "name",
    ["gpt2/gpt2.json", "gpt-bigcode/WizardCoder-15B-V1.0.json", "opt/opt-125m-from-class-default.json",
     "bloom/bloom-7b1-llmanalysis.json", "dbrx/dbrx-16x13b.json", "t5/t5-small.json"],
)  # fmt: skip
def test_g66_key_names_of_every_family_are_known(configs: Path, name: str) -> None:
    assert count(opened(configs, name)).total > 0


def test_g69_gated_and_plain_feed_forwards_have_three_and_two_matrices(configs: Path) -> None:
    for name, gated in [("llama/Meta-Llama-3.1-8B.json", True), ("gpt2/gpt2.json", False)]:
        mlp = opened(configs, name).stacks[0].blocks[0].feed_forward
        assert isinstance(mlp, Mlp) and mlp.gated == gated and len(mlp.projections) == 2 + gated


def test_first_layers_of_deepseek_are_dense(configs: Path) -> None:
    dense, sparse = opened(configs, "deepseek/DeepSeek-V3.json").stacks[0].blocks
    assert (len(dense.layers), len(sparse.layers)) == (3, 58)
    assert isinstance(sparse.feed_forward, Experts) and sparse.feed_forward.shared is not None


def test_a_misspelt_size_in_any_real_config_is_an_error(configs: Path) -> None:
    text = (configs / "llama" / "Meta-Llama-3.1-8B.json").read_text()
    with pytest.raises(InvalidInput, match="nearest known key is num_key_value_heads"):
        read(json.dumps({**json.loads(text), "num_key_value_headz": 8}))
