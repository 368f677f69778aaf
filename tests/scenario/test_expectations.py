# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Every form of expectation, passing and failing, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.scenario import Check, Scenario, run_scenario
from simcollectives.scenario.crossings import find_crossings, leader
from simcollectives.scenario.expectations import bound_text, satisfies
from simcollectives.scenario.keys import METRICS, POINT_KEYS
from simcollectives.scenario.types import Bound

Loader = Callable[[str], Scenario]

HEAD = """\
title: t
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [naive, ring, tree, butterfly, {rabenseifner: {order: far}}]}
sweep: {message: {from: 1 KiB, to: 1 GiB, factor: 2}}
verify: never
expect:
  - """


@pytest.fixture
def check(load: Loader) -> Callable[[str], Check]:
    def run(expectation: str) -> Check:
        (found,) = run_scenario(load(HEAD + expectation + "\n")).checks
        return found

    return run


Checker = Callable[[str], Check]


def test_a_crossover_is_found_to_one_element(check: Checker) -> None:
    # 14 (alpha + M/8B) = 3 (alpha + M/B): M = 11 alpha B / (3 - 14/8) = 19.8 MB
    found = check("{crossover: [ring, butterfly], along: message, equals: 19.8 MB, rel: 0.5%}")
    assert found.passed
    assert found.value == pytest.approx(11 * 5e-6 * 450e9 / 1.25, rel=1e-5)
    assert isinstance(found.value, int)
    assert found.value % 4 == 0
    assert found.line == 7
    assert found.message == (
        "line 7: crossover of ring and butterfly along message is 19.8 MB; expected: equals 19.8 MB within 0.5%"
    )


def test_a_crossover_elsewhere_fails_with_value_bound_tolerance_line_and_reason(check: Checker) -> None:
    found = check(
        "{crossover: [ring, butterfly], along: message, equals: 25 MB, rel: 1%, because: the lecture says so}"
    )
    assert not found.passed
    assert found.message == (
        "line 7: crossover of ring and butterfly along message is 19.8 MB; "
        "expected: equals 25 MB within 1% (the lecture says so)"
    )


def test_no_crossover_fails_and_says_who_is_ahead(check: Checker) -> None:
    found = check("{crossover: [tree, butterfly], along: message, between: [1 KiB, 1 GiB]}")
    assert (found.passed, found.value) == (False, None)
    assert "is nowhere between 1 KiB and 1 GiB: butterfly is never slower; expected: between" in found.message


def test_crossovers_along_other_keys(check: Checker) -> None:
    # at 1 MiB: alpha = M (3 - 14/8) / (11 B)
    alpha = check(
        "{crossover: [ring, butterfly], along: link.alpha, message: 1 MiB, from: 1 ns, to: 1 ms, at_least: 1 ns}"
    )
    assert alpha.value == pytest.approx(2**20 * 1.25 / 11 / 450e9, rel=1e-9)
    from_zero = check(
        "{crossover: [ring, butterfly], along: link.alpha, message: 1 MiB, from: 0 s, to: 1 ms, at_least: 1 ns}"
    )
    assert from_zero.value == pytest.approx(alpha.value, rel=1e-9)
    bandwidth = check(
        "{crossover: [ring, butterfly], along: link.bandwidth, message: 1 MiB, from: 1 GB/s, to: 1 TB/s, at_most: 1 TB/s}"
    )
    assert bandwidth.value == pytest.approx(2**20 * 1.25 / 11 / 5e-6, rel=1e-9)


def test_a_crossover_along_devices_lies_between_two_of_them(check: Checker) -> None:
    found = check("{crossover: [ring, naive], along: devices, message: 10 MB, from: 2, to: 64, between: [3, 4]}")
    assert found.passed
    # M/B = 22.2 us; ring 2 (N - 1) (5 us + M/NB) is 49.6 us at 3 and 63.3 at 4, naive 5 us + (N - 1) M/B 49.4 and 71.7
    assert found.value == pytest.approx(3 + 0.2 / (0.2 + 8.4), abs=0.05)


@pytest.mark.parametrize(
    ("expectation", "passed"),
    [
        ("{seconds: {algorithm: ring, message: 4 KiB}, equals: 70.02 us, rel: 0.1%}", True),
        ("{seconds: {algorithm: ring, message: 4 KiB}, equals: 70 us, abs: 20 ns}", True),
        ("{seconds: {algorithm: ring, message: 4 KiB}, equals: 70 us, abs: 10 ns}", False),
        ("{seconds: {algorithm: ring, message: 4 KiB, devices: 4}, at_most: 31 us}", True),
        ("{seconds: {algorithm: ring, message: 4 KiB}, at_most: 70 us}", False),
        ("{latency_seconds: {algorithm: ring, message: 4 KiB}, equals: 70 us, rel: 0%}", True),
        ("{busbw: {algorithm: ring, message: 1 GiB}, between: [430 GB/s, 450 GB/s]}", True),
        ("{bytes_sent_max: {algorithm: ring, message: 1 GB}, equals: 1.75 GB, rel: 0%}", True),
        ("{bytes_sent_total: {algorithm: naive, message: 1 GB}, equals: 56 GB, rel: 0%}", True),
        ("{rounds: {algorithm: butterfly, message: 4 KiB}, equals: 3, abs: 0}", True),
        ("{rounds: {algorithm: butterfly, message: 4 KiB, devices: 1024}, equals: 10, abs: 0}", True),
        ("{ratio: [{algorithm: tree}, {algorithm: ring}], message: 1 GB, at_least: 3}", True),
        ("{ratio: [{algorithm: tree}, {algorithm: ring}], message: 1 GB, at_least: 4}", False),
        ("{ratio: [{algorithm: ring, devices: 8}, {algorithm: ring, devices: 4}], of: rounds, message: 1 GB, equals: 2.3333333, rel: 0.001%}", True),
        ("{ratio: [{algorithm: ring}, {algorithm: ring, devices: 1}], message: 1 KiB, at_most: 1000000}", False),
        ("{order: [naive, butterfly, rabenseifner, tree, ring], message: 4 KiB}", True),
        ("{order: [ring, butterfly], message: 4 KiB}", False),
        ("{order: [rabenseifner, ring], of: bytes_sent_max, message: 1 MiB}", False),  # equal is not increasing
    ],
)  # fmt: skip
def test_bounds(check: Checker, expectation: str, passed: bool) -> None:
    found = check(expectation)
    assert found.passed is passed
    assert found.text == expectation
    assert found.message.startswith("line 7: ")
    assert found.to_json()["expect"] == expectation


def test_a_metric_without_a_value_fails(check: Checker) -> None:
    found = check("{busbw: {algorithm: ring, message: 1 MiB, devices: 1}, at_least: 1 GB/s}")
    assert (found.passed, found.value) == (False, None)
    assert "is not defined, since the time is zero" in found.message


def test_the_message_of_an_order_lists_what_was_found(check: Checker) -> None:
    found = check("{order: [ring, naive], of: rounds, message: 4 KiB}")
    assert found.value == (14, 1)
    assert found.to_json()["value"] == [14, 1]
    assert (
        found.message
        == "line 7: rounds at message: 4 KiB is ring 14, naive 1; expected: strictly increasing: ring, naive"
    )


@given(st.floats(1e-12, 1e12), st.floats(0, 0.5), st.floats(-0.9, 2))
def test_equals_with_a_relative_tolerance(expected: float, relative: float, change: float) -> None:
    value = expected * (1 + change)
    if abs(abs(change) - relative) > 1e-9:
        assert satisfies(Bound("equals", (expected,), relative=relative), value) is (abs(change) < relative)


def test_bounds_in_words() -> None:
    seconds = METRICS["seconds"]
    assert bound_text(Bound("between", (1e-6, 2e-3)), seconds) == "between 1 us and 2 ms"
    assert bound_text(Bound("equals", (7.002e-5,), absolute=1e-8), seconds) == "equals 70.02 us within 10 ns"
    assert bound_text(Bound("at_least", (8,)), POINT_KEYS["devices"]) == "at least 8"


def test_several_crossings_are_all_found() -> None:
    found = find_crossings(
        lambda x: (x - 3) * (x - 20) + 1000, lambda _x: 1000.0, list(range(1, 40)), None, whole=False
    )
    assert found == pytest.approx([3, 20])


def test_curves_that_only_touch_do_not_cross() -> None:
    grid = [1, 2, 3, 4]
    assert find_crossings(lambda x: 1 + abs(x - 3), lambda _x: 1.0, grid, None, whole=False) == []
    assert leader(lambda x: 1 + abs(x - 3), lambda _x: 1.0, grid) == 1
    assert leader(lambda _x: 1.0, lambda _x: 1.0 + 1e-13, grid) == 0


def test_a_crossing_at_a_point_of_the_grid_is_found_once() -> None:
    assert find_crossings(lambda x: x, lambda _x: 3.0, [1, 2, 3, 4], None, whole=True) == [3]
    assert find_crossings(lambda x: x, lambda _x: 4.0, [4, 8, 16], 4, whole=False) == []


@given(st.integers(2, 10**6))
def test_a_crossing_of_whole_elements_is_a_multiple_of_them(at: int) -> None:
    found = find_crossings(float, lambda _x: float(4 * at) + 1, [4, 10**8], 4, whole=False)
    assert len(found) == 1
    assert found[0] in (4 * at, 4 * at + 4)
