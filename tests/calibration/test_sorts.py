"""What a plan says of its points before a GPU is paid for."""

from __future__ import annotations

from tilewise.calibration import sorts
from tilewise.calibration.protocol import Level
from tilewise.calibration.suite import describe, plan
from tilewise.calibration.target import target
from tilewise.hwdb.database import Database

H100 = target(Database.packaged().sku("h100-sxm5-80gb"))
PLAN = plan(H100, Level.FULL, only=("gemm", "attention", "memory", "pointwise", "norms"))


def test_every_sort_occurs_within_ten_minutes_of_the_plan() -> None:
    for queue in PLAN.queues:
        found = sorts.counted(queue.name, queue.todo[:700], H100)
        rare = [name for name, count in found.items() if count < 10]
        assert rare in ([], ["rows not a power of two"]), queue.name  # plain streams have one row each
        assert queue.name != "attention" or found["a window"] > 60


def test_the_listing_says_how_many_of_each_sort_a_minute_buys() -> None:
    text = describe(PLAN, 600.0, H100)
    (line,) = (line for line in text if "a side below 64 features" in line)
    assert int(line.split()[-3]) > 50 and line.endswith("a minute")


def test_a_family_without_sorts_is_listed_without_them() -> None:
    assert sorts.counted("launch", [], H100) == {}
