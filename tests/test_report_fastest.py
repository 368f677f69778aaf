"""Who is fastest where, and the values at which that changes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.report.curves import axis_keys, filled, picture
from simcollectives.report.fastest import Crossing, crossings, fastest


def row(label: str, seconds: float, message: int = 1024, ranks: int = 8, **point: Any) -> dict[str, Any]:
    return {
        "collective": "all_reduce",
        "algorithm": label,
        "options": {},
        "label": label,
        "message_bytes": message,
        "world_size": ranks,
        "seconds": seconds,
        "lower_bound_seconds": seconds / 2,
        "busbw": message / seconds if seconds else None,
        "point": point,
    }


def test_the_fastest_has_a_runner_up_and_a_margin() -> None:
    (one,) = fastest([row("ring", 2.0), row("tree", 3.0), row("naive", 9.0)])
    assert (one.labels, one.seconds, one.runner_up, one.margin) == (("ring",), 2.0, "tree", 0.5)


def test_ties_share_the_first_place() -> None:
    (one,) = fastest([row("ring", 2.0), row("tree", 2.0 * (1 + 1e-13)), row("naive", 3.0)])
    assert (one.labels, one.runner_up) == (("ring", "tree"), "naive")
    (one,) = fastest([row("ring", 2.0), row("tree", 2.0)])
    assert (one.labels, one.runner_up, one.margin) == (("ring", "tree"), None, None)


def test_a_time_of_zero_has_no_margin() -> None:
    (one,) = fastest([row("ring", 0.0), row("tree", 1.0)])
    assert (one.labels, one.runner_up, one.margin) == (("ring",), "tree", None)


def test_options_of_one_algorithm_are_no_point_of_their_own() -> None:
    rows = [row("ps", 4.0, **{"parameter_server.servers": 1}), row("ps 2", 2.0, **{"parameter_server.servers": 2})]
    (one,) = fastest([*rows, row("ring", 3.0)])
    assert (one.labels, one.runner_up) == (("ps 2",), "ring")


def test_two_shapes_of_one_size_are_two_points() -> None:
    rows = [row("ring", 1.0, nodes=2, gpus_per_node=4), row("ring", 2.0, nodes=4, gpus_per_node=2)]
    assert [dict(one.rest) for one in fastest(rows)] == [{"gpus_per_node": 4}, {"gpus_per_node": 2}]


def test_a_crossing_between_two_points_is_where_straight_lines_cross() -> None:
    (found,) = crossings([0, 10], {"a": [1, 6], "b": [2, 3]})
    assert found == Crossing(2.5, 2.25, "a", "b")


def test_several_crossings_between_two_points_are_all_found() -> None:
    found = crossings([0, 10], {"a": [0, 20], "b": [4, 12], "c": [9, 9]})
    assert [(c.before, c.after) for c in found] == [("a", "b"), ("b", "c")]
    assert [c.at for c in found] == pytest.approx([10 / 3, 6.25])


def test_curves_that_touch_or_coincide_do_not_cross() -> None:
    assert crossings([0, 1, 2], {"a": [1, 2, 3], "b": [2, 2, 4]}) == ()
    assert crossings([0, 1, 2], {"a": [1, 2, 3], "b": [1, 2, 3]}) == ()
    assert crossings([0], {"a": [1], "b": [2]}) == ()
    assert crossings([], {}) == ()


lines = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=6)


@given(lines)
def test_between_crossings_the_named_line_is_the_lowest(ends: list[tuple[float, float]]) -> None:
    values = [0.0, 1.0]
    found = crossings(values, {str(n): pair for n, pair in enumerate(ends)})

    def time(label: str, at: float) -> float:
        start, end = ends[int(label)]
        return start + at * (end - start)

    def lowest(at: float) -> float:
        return min(time(str(n), at) for n in range(len(ends)))

    places = [0.0, *(crossing.at for crossing in found), 1.0]
    assert places == sorted(places)
    for crossing, low, high in zip(found, places, places[2:], strict=False):
        for label, edge in ((crossing.before, low), (crossing.after, high)):
            middle = (crossing.at + edge) / 2
            assert time(label, middle) <= lowest(middle) + 1e-6


def test_axis_keys() -> None:
    rows = [row("ring", 1.0, message=m, ranks=n) for m in (1, 2) for n in (2, 4)]
    for one in rows:
        one["point"] = {"devices": one["world_size"], "message": one["message_bytes"], "link.alpha": 1e-6}
    assert axis_keys(rows) == ("message", "world_size")
    assert axis_keys([row("ring", 1.0)]) == ()


def test_zeros_are_left_out_of_logarithmic_curves() -> None:
    rows = [row("ring", seconds, message=m) for m, seconds in ((0, 5.0), (4, 0.0), (8, 1.0))]
    for one in rows:
        one["point"] = {"message": one["message_bytes"]}
    drawn = picture(rows, "message")
    assert [curve.x for curve in drawn.curves] == [(8,)]
    assert drawn.notes == ("not drawn (the axes have no zero): message 0 B, message 4 B",)


def test_a_filled_curve_is_a_straight_line_in_time() -> None:
    x, y = filled("message", [1.0, 1000.0], [1.0, 10.0], is_time=True)
    assert (x[0], x[-1], y[0], y[-1]) == (1.0, 1000.0, 1.0, 10.0)
    assert all(math.isclose(b, 1 + 9 * (a - 1) / 999) for a, b in zip(x, y, strict=True))
    x, y = filled("message", [1.0, 1000.0], [1.0, 100.0], is_time=False)
    assert all(math.isclose(a / b, 1 + 9 * (a - 1) / 999) for a, b in zip(x, y, strict=True))
    assert filled("devices", [1.0, 2.0], [1.0, 2.0], is_time=True) == ([1.0, 2.0], [1.0, 2.0])


def test_a_filled_bound_has_its_kink() -> None:
    # alpha 5 us; an all-reduce of 8 moves 7/4 of the message through 450 GB/s: 5 us up to 1.286 MB
    def bound(message: float) -> float:
        return max(5e-6, 1.75 * message / 450e9)

    sizes = [float(4**k * 1024) for k in range(11)]
    x, y = filled("message", sizes, [bound(size) for size in sizes], is_time=True, is_bound=True)
    assert all(math.isclose(time, bound(size)) for size, time in zip(x, y, strict=True))
    kink = max(size for size, time in zip(x, y, strict=True) if math.isclose(time, 5e-6))
    assert math.isclose(kink, 5e-6 * 450e9 / 1.75)
    rates = [size / bound(size) for size in sizes]
    x, y = filled("message", sizes, rates, is_time=False, is_bound=True)
    assert all(math.isclose(rate, size / bound(size)) for size, rate in zip(x, y, strict=True))


def test_a_filled_bound_over_the_link_has_its_kink() -> None:
    values = [1e9, 1e11, 4e11]
    x, y = filled("link.bandwidth", values, [max(5e-6, 1e6 / v) for v in values], is_time=True, is_bound=True)
    assert all(math.isclose(time, max(5e-6, 1e6 / value)) for value, time in zip(x, y, strict=True))
    assert any(math.isclose(value, 2e11) for value in x)
    values = [0.0, 1e-6, 1e-4]
    x, y = filled("link.alpha", values, [max(v, 5e-6) for v in values], is_time=True, is_bound=True)
    assert all(math.isclose(time, max(value, 5e-6)) for value, time in zip(x, y, strict=True))
