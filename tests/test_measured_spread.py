"""Errors in all and by group, by hand."""

from __future__ import annotations

import pytest

from simcollectives.errors import InputError
from simcollectives.measured.spread import RANGES, Spread, range_of, relative_errors, spread, spreads_by


def test_a_spread_by_hand() -> None:
    # Sizes 0, 0.1, 0.2, 0.3, 0.4: the 90th percentile lies 0.6 of the way from the fourth to the fifth.
    found = spread([0.1, -0.4, 0.2, 0.0, -0.3])
    assert (found.points, found.median, found.bias, found.worst, found.worst_at) == (5, 0.2, 0.0, -0.4, 1)
    assert found.p90 == pytest.approx(0.36)
    assert found.largest == 0.4
    assert spread([0.25]) == Spread(1, 0.25, 0.25, 0.25, 0.25, 0)


def test_of_equal_errors_the_first_is_named() -> None:
    assert spread([0.1, -0.5, 0.5]).worst_at == 1


def test_groups_keep_their_order_and_name_places_among_all_points() -> None:
    found = spreads_by([0.1, 0.5, -0.2, 0.3], ["late", "early", "late", "early"])
    assert list(found) == ["late", "early"]
    assert (found["late"].worst, found["late"].worst_at) == (-0.2, 2)
    assert (found["early"].worst_at, found["early"].median, found["early"].points) == (1, 0.4, 2)
    assert spreads_by([], []) == {}


def test_signs_say_which_way() -> None:
    assert relative_errors([2.0, 1.0], [1.0, 2.0]) == (1.0, -0.5)  # twice as slow, twice as fast as measured


def test_ranges_meet() -> None:
    assert [range_of(size) for size in (1, 2**16 - 1, 2**16, 2**22 - 1, 2**22)] == [
        "small",
        "small",
        "middle",
        "middle",
        "large",
    ]
    assert list(RANGES) == ["small", "middle", "large"]


def test_nothing_has_no_spread() -> None:
    with pytest.raises(InputError, match="at least one measured point"):
        spread([])
