"""What others measured when they changed one thing points the way that Tilewise says it does."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts" / "docs"))
published = import_module("published_effects")


@pytest.fixture(scope="module")
def effects() -> dict[str, Any]:
    return {effect.id: effect for effect in published.effects()}


@pytest.mark.parametrize("id", [fact["id"] for fact in published.FACTS["effect"]])
def test_a_published_effect_points_the_same_way_or_is_told_as_one_that_does_not(
    id: str, effects: dict[str, Any]
) -> None:
    effect = effects[id]
    if effect.reason:
        return  # the next test judges refusals
    assert effect.agrees != effect.differs


def test_only_what_was_never_measured_is_refused(effects: dict[str, Any]) -> None:
    refused = {id: effect.reason for id, effect in effects.items() if effect.reason}
    assert all("NOT_MEASURED" in reason for reason in refused.values()) and len(refused) <= 2


def test_a_published_time_lies_within_its_bounds_and_is_no_failure_of_mfu() -> None:
    for time in published.times():
        assert time.us[0] <= time.ours_us <= time.us[1] and time.wall == "memory"
