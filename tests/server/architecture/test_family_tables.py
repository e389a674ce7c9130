"""The tables are sound: every key lands where a builder looks, every family can be read from its model_type alone."""

import json
import tomllib
from importlib.resources import files

import pytest

from tilewise.hwdb.errors import InvalidInput
from tilewise.server.architecture import count, read
from tilewise.server.architecture.families import family, key_rules, names

FOLDER = files("tilewise.server.architecture").joinpath("families")


@pytest.mark.parametrize("name", names())
def test_every_key_lands_on_a_value_the_family_has(name: str) -> None:
    table = family(name)
    unknown = {target for targets in table.keys.values() for target in targets} - set(table.values)
    assert not unknown


@pytest.mark.parametrize("name", names())
def test_every_table_states_where_its_facts_are_read(name: str) -> None:
    assert tomllib.loads(FOLDER.joinpath(f"{name}.toml").read_text())["source"]


@pytest.mark.parametrize("name", names())
def test_a_config_of_the_model_type_alone_is_read_or_says_what_is_needed(name: str) -> None:
    try:
        counted = count(read(json.dumps({"model_type": name})))
    except InvalidInput as error:
        assert "needed" in error.message
    else:
        assert 0 < int(counted.active) <= int(counted.total)


def test_limits_keep_any_count_within_64_bits() -> None:
    limits = key_rules().limits
    layer = 3 * limits["num_experts"] * limits["hidden_size"] * limits["moe_intermediate_size"]
    assert layer * limits["num_hidden_layers"] < 2**63
