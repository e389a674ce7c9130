"""A workload's fields and words stand in the contract; the server's Workload, the options and a policy have the same."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from tilewise.client.cli import cli, main
from tilewise.client.cli.recommend import weighted
from tilewise.client.cli.workload import FIELDS, HELP
from tilewise.client.question import workload_of as asked_of
from tilewise.hwdb.errors import InvalidInput
from tilewise.server.gate import policy
from tilewise.server.messages.question import workload_message, workload_of
from tilewise.server.messages.words import filled, number, plain, type_of, words
from tilewise.server.workload import CHOICES, Workload
from tilewise.v1 import workload_pb2

COMMANDS = ("predict", "recommend", "rank", "sweep", "mfu")


def test_the_server_and_the_help_and_a_policy_have_the_fields_of_the_contract() -> None:
    assert set(Workload.__struct_fields__) == set(HELP) == set(policy.WORKLOAD) - {"name"} == set(FIELDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_asks_about_a_workload_has_an_option_for_each_field(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert set(FIELDS) <= {parameter.name for parameter in command.params}


def test_the_server_takes_exactly_the_words_of_the_contract() -> None:
    enums = {name: set(words(field.enum_type)) for name, field in FIELDS.items() if field.enum_type is not None}
    assert {name: set(allowed) for name, allowed in CHOICES.items()} == enums


def test_a_field_holds_the_same_type_on_both_sides() -> None:
    workload = Workload(sequence=1)
    assert {name: type(value) for name, value in asdict(workload).items()} == {
        name: type_of(field) for name, field in FIELDS.items()
    }


@given(
    st.sampled_from(words(workload_pb2.Precision.DESCRIPTOR)),
    st.integers(1, 1 << 15),
    st.integers(1, 1 << 15),
    st.floats(0, 2),
    st.sampled_from(["auto", "fp8"]),
)
def test_a_workload_comes_back_from_a_message_as_it_went(
    precision: str, batch: int, context: int, skew: float, cache: str
) -> None:
    asked = Workload(
        phase="decode",
        batch=batch,
        context=context,
        precision=precision,
        stack="vllm",
        expert_skew=skew,
        kv_cache=cache,
    )
    assert workload_of(workload_message(asked)) == asked


@pytest.mark.parametrize("values", [{"phase": "decode", "batch": 3, "expert_skew": 1.2, "mode": None}, {}])
def test_a_message_holds_what_it_was_filled_with(values: dict[str, object]) -> None:
    given = {name: value for name, value in values.items() if value is not None}
    assert plain(filled(workload_pb2.Workload, values)) == given


def test_an_unknown_word_field_or_number_is_refused_in_one_line_with_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"phase 'trian' is not known: allowed are train, .*; did you mean 'train'"):
        number(workload_pb2.Phase.DESCRIPTOR, "trian", "phase")
    with pytest.raises(InvalidInput, match=r"field 'expert_skw' is not known: .*; did you mean 'expert_skew'"):
        filled(workload_pb2.Workload, {"expert_skw": 1.0})
    with pytest.raises(InvalidInput, match=r"workload\.phase 99 is no value of Phase"):
        workload_of(workload_pb2.Workload(phase=99))  # type: ignore[arg-type]


def test_a_workload_of_the_mix_has_the_types_of_its_fields() -> None:
    given = weighted("phase=decode,batch=32,context=4096,stack=vllm,expert_skew=1.2,weight=3")
    assert plain(given.workload) == {
        "phase": "decode",
        "batch": 32,
        "context": 4096,
        "stack": "vllm",
        "expert_skew": 1.2,
    }
    assert given.weight == 3


def test_the_old_word_is_refused_everywhere_in_one_line_with_the_new_one(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match="engine is called stack now: stack 'vllm'"):
        workload_of(workload_pb2.Workload(phase=3, context=64, engine=workload_pb2.ENGINE_VLLM))
    with pytest.raises(InvalidInput, match="engine is called stack now: stack 'vllm'"):
        asked_of({"phase": "decode", "context": 64, "engine": "vllm"})
    with pytest.raises(InvalidInput, match="engine is called stack now: stack 'vllm'"):
        policy.read('[check]\ngpus = ["h100-sxm5-80gb"]\n[[check.workload]]\nname = "a"\nengine = "vllm"\n')
    arguments = ["predict", "none.json", "--gpu", "b200", "--phase", "decode", "--context", "64", "--engine", "vllm"]
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--engine is called --stack now: --stack vllm" in capfd.readouterr().err


def test_evenly_chosen_experts_and_no_reserve_can_be_said_on_the_wire() -> None:
    unset = workload_of(workload_pb2.Workload(phase=3, context=64))
    said = workload_of(workload_pb2.Workload(phase=3, context=64, expert_skew=0, reserve=0))
    assert (unset.expert_skew, unset.reserve) == (1.01, 0.06) and (said.expert_skew, said.reserve) == (0, 0)
