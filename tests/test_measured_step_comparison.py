"""A measured step beside a simulated one: which step, and which collectives are alike, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.measured.logs import MeasuredCollective, MeasuredStep
from simcollectives.measured.step_comparison import by_kind, chosen_step, match_collectives, step_values
from simcollectives.training.step import IssuedCollective


def measured(kind: str, seconds: float, size: int | None = 4000, **more: Any) -> MeasuredCollective:
    given: dict[str, Any] = {"group_size": 8, "phase": "", **more}
    return MeasuredCollective(
        kind, "", "world", elements=None, dtype="", bytes=size, micro_batch=None, start=1.0, end=1.0 + seconds,
        exposed=0.0, **given,
    )  # fmt: skip


def issued(kind: str, seconds: float, size: int = 4000, **more: Any) -> IssuedCollective:
    given: dict[str, Any] = {"group_size": 8, "phase": "backward", **more}
    return IssuedCollective(
        kind, "bucket", "world", elements=size, dtype="int8", bytes=size, micro_batch=0, start=2.0, end=2.0 + seconds,
        algorithm="ring", engine="event", **given,
    )  # fmt: skip


def step(name: str, seconds: float, communication: float = 0.0) -> MeasuredStep:
    return MeasuredStep(name, 0, seconds, seconds, communication, 0.0, None, 0.0, ())


def test_collectives_of_one_size_are_alike_and_those_that_differ_most_come_first() -> None:
    mine = [measured("all_reduce", 0.25), measured("all_reduce", 0.5), measured("all_reduce", 1.0, 8000)]
    theirs = [issued("all_reduce", 0.5), issued("all_reduce", 1.5, 8000), issued("all_reduce", 1.5, 8000)]
    first, second = match_collectives(mine, theirs)
    assert (first.bytes, first.measured, first.predicted) == (8000, 1, 2)
    assert first.difference == pytest.approx(3.0 - 1.0)
    assert (second.bytes, second.measured, second.predicted) == (4000, 2, 1)
    assert second.difference == pytest.approx(0.5 - 0.75)
    (whole,) = by_kind([first, second])
    assert (whole.measured, whole.predicted) == (3, 3)
    assert (whole.measured_seconds, whole.predicted_seconds) == (pytest.approx(1.75), pytest.approx(3.5))


def test_what_a_trace_does_not_say_tells_nothing_apart() -> None:
    theirs = [issued("all_gather", 0.5), issued("all_gather", 0.5, 8000, phase="forward")]
    (one,) = match_collectives([measured("all_gather", 1.0, None, group_size=None)], theirs)
    assert (one.bytes, one.group_size, one.phase, one.measured, one.predicted) == (None, None, None, 1, 2)
    told = match_collectives([measured("all_gather", 1.0, phase="forward")], theirs)
    assert {(one.bytes, one.phase, one.measured, one.predicted) for one in told} == {
        (4000, "forward", 1, 0),
        (4000, "backward", 0, 1),
        (8000, "forward", 0, 1),
    }


def test_groups_of_other_sizes_are_not_alike() -> None:
    found = match_collectives([measured("all_reduce", 1.0, group_size=4)], [issued("all_reduce", 1.0)])
    assert [(one.group_size, one.measured, one.predicted) for one in found] == [(4, 1, 0), (8, 0, 1)]


def test_the_median_step_or_the_one_that_is_named() -> None:
    steps = [step("a", 3.0), step("b", 1.0), step("c", 2.0), step("d", 9.0)]
    assert chosen_step(steps) is steps[2]  # the shorter of the two in the middle
    assert chosen_step(steps[:3]) is steps[2]
    assert chosen_step(steps, "d") is steps[3]
    assert chosen_step(steps, "e") is None
    assert chosen_step([]) is None


def test_what_a_step_does_not_have_is_left_out() -> None:
    assert set(step_values(step("a", 1.0))) == {
        f"{name}_seconds" for name in ("step", "compute", "communication", "exposed", "idle")
    }
    assert step_values(step("a", 1.0, communication=0.5))["overlap"] == 1.0
