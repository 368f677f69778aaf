from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.scenario.points import (
    MAX_POINTS,
    RangeError,
    expand_factor,
    expand_points,
    expand_step,
    sweep_points,
)
from simcollectives.scenario.types import Sweep

numbers = st.floats(min_value=1e-9, max_value=1e15)


def test_both_ends_of_a_range_are_points() -> None:
    assert expand_factor(1024, 2**30, 2) == [2**i for i in range(10, 31)]
    assert expand_factor(1, 100, 3) == [1, 3, 9, 27, 81, 100]
    assert expand_step(0, 10, 4) == [0, 4, 8, 10]
    assert expand_step(1, 8, 1) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert expand_points(1, 100, 3) == [1, pytest.approx(10), 100]


def test_rounding_makes_no_second_end() -> None:
    assert len(expand_factor(0.1, 0.8, 2)) == 4
    assert len(expand_step(0, 0.3, 0.1)) == 4


@given(numbers, numbers, st.floats(min_value=1.01, max_value=1e6))
def test_factors(a: float, b: float, factor: float) -> None:
    low, high = sorted((a, b))
    values = expand_factor(low, high, factor)
    assert (values[0], values[-1]) == (low, high)
    assert all(one < other for one, other in itertools.pairwise(values))
    assert len(values) <= math.log(high / low) / math.log(factor) + 2.001


@given(numbers, numbers, st.integers(2, 500))
def test_logarithmic_points(a: float, b: float, points: int) -> None:
    low, high = sorted((a, b))
    values = expand_points(low, high, points)
    assert (values[0], values[-1]) == (low, high)
    assert len(values) == (1 if low == high else points)
    assert all(low <= value <= high or math.isclose(value, low) or math.isclose(value, high) for value in values)


@pytest.mark.parametrize(
    ("expand", "arguments", "message"),
    [
        (expand_factor, (1, 100, 1), "the factor 1 does not lead upwards; write one above 1, such as 2"),
        (expand_factor, (1, 100, 0.5), "the factor 0.5 does not lead upwards"),
        (expand_factor, (0, 100, 2), "no factor leads away from 0"),
        (expand_factor, (100, 1, 2), "the range ends below its beginning; swap from: and to:"),
        (expand_factor, (1e-300, 1e300, 1.0000000001), "a sweep has at most 10000"),
        (expand_factor, (1, 1e15, 1 + 1e-9), "points; a sweep has at most 10000: take wider steps"),
        (expand_step, (0, 1e15, 1e-9), "a sweep has at most 10000"),
        (expand_step, (0, 1e15, 5e-324), "endless points"),
        (expand_step, (0, 10, 0), "the step 0 leads nowhere"),
        (expand_points, (0, 10, 5), "0 has no place on a logarithmic axis"),
        (expand_points, (1, 10, 1), "1 points do not have two ends; write 2 or more"),
        (expand_points, (1, 10, 10**9), "1000000000 points; a sweep has at most 10000"),
    ],
)
def test_ranges_that_are_refused(expand, arguments, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RangeError) as caught:
        expand(*arguments)
    assert message in str(caught.value)


def test_points_are_combined_with_the_last_key_fastest() -> None:
    points = sweep_points([Sweep({"devices": (2, 4), "message": (1, 2)})])
    assert points == (
        {"devices": 2, "message": 1},
        {"devices": 2, "message": 2},
        {"devices": 4, "message": 1},
        {"devices": 4, "message": 2},
    )


def test_points_that_several_sweeps_share_are_there_once() -> None:
    sweeps = [Sweep({"message": (1, 2)}), Sweep({"message": (2, 3)}), Sweep({"devices": (2,)})]
    assert sweep_points(sweeps) == ({"message": 1}, {"message": 2}, {"message": 3}, {"devices": 2})
    assert sweep_points([]) == ({},)
    assert MAX_POINTS == 10_000
