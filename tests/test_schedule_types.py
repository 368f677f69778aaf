"""Rounds and phases: wrapped rows, broadcasting, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import AlgorithmError, ScheduleError
from simcollectives.schedule import (
    COLLECTIVES,
    Phase,
    Round,
    Schedule,
    common,
    constant,
    find_collective,
    make_round,
    repeated,
    single,
    spread,
)


def rows(round_: Round) -> list[tuple[int, int, tuple[int, ...], bool]]:
    """(src, dst, chunks, reduce) of every row."""
    return [
        (int(s), int(d), tuple(range(f, f + c * k, k)), bool(a))
        for s, d, f, c, k, a in zip(
            round_.src, round_.dst, round_.first, round_.count, round_.stride, round_.reduce, strict=True
        )
    ]


def test_scalars_spread_over_arrays() -> None:
    round_ = make_round(0, [1, 2, 3], count=2, reduce=True)
    assert rows(round_) == [(0, 1, (0, 1), True), (0, 2, (0, 1), True), (0, 3, (0, 1), True)]
    assert round_.src.dtype == np.int64
    assert round_.reduce.dtype == np.bool_


def test_scalars_alone_make_one_row() -> None:
    assert rows(make_round(3, 1, first=2)) == [(3, 1, (2,), False)]


def test_a_row_without_chunks_stays_a_message() -> None:
    assert rows(make_round(0, 1, count=0)) == [(0, 1, (), False)]


def test_numbers_that_stand_for_all_rows_are_held_once() -> None:
    round_ = make_round(0, np.arange(1, 1001), first=np.arange(1000), count=7, reduce=True)
    assert [common(column) for column in (round_.src, round_.count, round_.stride)] == [0, 7, 1]
    assert common(round_.reduce) is True
    assert common(round_.first) is round_.first
    assert round_.count.tolist() == [7] * 1000
    assert round_.count.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        round_.count[3] = 8


def test_columns_have_a_number_a_row() -> None:
    assert constant(5, 3).tolist() == [5, 5, 5]
    assert constant(True, 2).tolist() == [True, True]
    assert constant(1, 2).dtype == np.int64
    assert common(constant(5, 0)).tolist() == []
    assert spread(np.array([1, 2]), 2).tolist() == [1, 2]
    with pytest.raises(ValueError, match="2 values do not make a column of 3 rows"):
        spread(np.array([1, 2]), 3)


def test_wrap_splits_a_row_at_the_end() -> None:
    round_ = make_round([0, 1], [1, 2], first=[3, 0], count=[4, 2], wrap=5)
    assert rows(round_) == [(0, 1, (3, 4), False), (1, 2, (0, 1), False), (0, 1, (0, 1), False)]


def test_wrap_takes_negative_chunks() -> None:
    assert rows(make_round(0, 1, first=-2, count=3, wrap=8)) == [(0, 1, (6, 7), False), (0, 1, (0,), False)]


@given(
    wrap=st.integers(1, 30),
    first=st.integers(-60, 60),
    count=st.integers(0, 30),
    stride=st.integers(1, 9),
    adds=st.booleans(),
)
def test_wrap_is_modulo(wrap: int, first: int, count: int, stride: int, adds: bool) -> None:
    expected = [(first % wrap + k * stride) % wrap for k in range(count)]
    if count and first % wrap + (count - 1) * stride >= 2 * wrap:
        return  # passes the end twice: not supported, by the docstring
    round_ = make_round(2, 5, first=first, count=count, stride=stride, reduce=adds, wrap=wrap)
    assert [chunk for _, _, chunks, _ in rows(round_) for chunk in chunks] == expected
    assert {(s, d, a) for s, d, _, a in rows(round_)} == {(2, 5, adds)}


def test_a_rank_never_sends_to_itself() -> None:
    with pytest.raises(ScheduleError, match="rank 3 to itself"):
        make_round([0, 3], [1, 3])


def test_phases_and_schedules_count_rounds() -> None:
    one = make_round(0, 1)
    assert repeated(0, lambda _step: one) == ()
    phases = (*repeated(3, lambda _step: one), single(one))
    schedule = Schedule("broadcast", 2, 1, (phases, (single(one),)))
    assert schedule.rounds == 4
    assert len(list(schedule.rounds_of(0))) == 4
    assert len(list(schedule.rounds_of(1))) == 1
    assert schedule.devices == 2
    assert Schedule("all_reduce", 2, 1, (), servers=3).devices == 5
    assert Schedule("all_reduce", 1, 1, ()).rounds == 0


def test_rounds_are_made_on_demand() -> None:
    made = []

    def round_at(step: int) -> Round:
        made.append(step)
        return make_round(0, 1)

    stream = Schedule("broadcast", 2, 1, ((Phase(10**9, round_at),),)).rounds_of(0)
    next(stream)
    next(stream)
    assert made == [0, 1]


def test_messages_of_channels_add_up() -> None:
    short, long = repeated(2, lambda _s: make_round([0, 1], [1, 0])), repeated(3, lambda _s: make_round(0, 1))
    schedule = Schedule("x", 2, 4, ((*short, *long), long))
    assert schedule.rounds == 5
    assert schedule.messages_at_once == 4
    assert Schedule("x", 2, 4, (long, ())).messages_at_once == 2


def test_conditions_of_each_collective() -> None:
    schedule = Schedule("x", 2, 4, (), root=1)
    everyone, parts = [[True] * 4] * 2, [[True, True, False, False], [False, False, True, True]]
    root = [[False] * 4, [True] * 4]
    addressed = [[True, False, True, False], [False, True, False, True]]
    expected = {
        "all_reduce": (everyone, everyone),
        "reduce_scatter": (everyone, parts),
        "all_gather": (parts, everyone),
        "all_to_all": (parts, addressed),
        "broadcast": (root, everyone),
        "reduce": (everyone, root),
    }
    assert set(COLLECTIVES) == set(expected)
    for name, (before, after) in expected.items():
        assert COLLECTIVES[name].before(schedule).tolist() == before, name
        assert COLLECTIVES[name].after(schedule).tolist() == after, name
    assert COLLECTIVES["all_reduce"].contributors(schedule, 3) == [0, 1]
    assert COLLECTIVES["all_gather"].contributors(schedule, 3) == [1]
    assert COLLECTIVES["broadcast"].contributors(schedule, 0) == [1]


def test_unknown_collective() -> None:
    with pytest.raises(AlgorithmError, match='"allreduce" is not a collective; did you mean "all_reduce"'):
        find_collective("allreduce")
