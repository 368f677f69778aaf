"""Flows in time: ends worked by hand, an exact recomputation at every instant, and what is not recomputed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.engines import fair_sharing
from simcollectives.engines.fair_sharing import FairNetwork
from simcollectives.engines.filling import Flow, rates_of
from simcollectives.errors import ScheduleError

Given = tuple[float, Sequence[int], float, float]
"""Start in seconds, resources, bytes, cap."""


def play_capped(capacity: Sequence[float], flows: Sequence[Given]) -> dict[int, float]:
    """Play flows that each start by an event of their own; return the end of each, in order of ends."""
    env = simpy.Environment()
    ends: dict[int, float] = {}

    def done(finished: list[Flow]) -> None:
        ends.update((flow.token, env.now) for flow in finished)

    network = FairNetwork(env, capacity, done)

    def begin(event: simpy.Event) -> None:
        network.start([event.value])

    for i, (start, resources, size, cap) in enumerate(flows):
        timeout = env.timeout(start, Flow(tuple(resources), size, i, cap))
        assert timeout.callbacks is not None
        timeout.callbacks.append(begin)
    env.run()
    return ends


def play(capacity: list[float], flows: list[tuple[float, list[int], float]]) -> list[tuple[str, float]]:
    """As ``play_capped``, without caps, with letters for names."""
    ends = play_capped(capacity, [(*flow, math.inf) for flow in flows])
    return [("abcdef"[i], end) for i, end in ends.items()]


def test_two_flows_share_and_the_rest_speeds_up() -> None:
    """10 and 30 bytes over one link of 10 B/s: 5 B/s each, so a ends at 2 s; b has 20 bytes left at 10 B/s: 4 s."""
    assert play([10.0, 10.0, 10.0], [(0.0, [0, 1], 10.0), (0.0, [0, 2], 30.0)]) == [("a", 2.0), ("b", 4.0)]


def test_a_late_flow_slows_an_early_one() -> None:
    """a has 10 of 20 bytes left when b arrives at 1 s, and ends at 3 s; b then has 5 of 15 left: 3.5 s."""
    assert play([10.0, 10.0, 10.0], [(0.0, [0, 1], 20.0), (1.0, [0, 2], 15.0)]) == [("a", 3.0), ("b", 3.5)]


def test_a_flow_that_is_held_up_elsewhere_leaves_room() -> None:
    """b is held to 2 B/s by its receiver, so a gets 8 B/s: 16 bytes in 2 s; b sends 10 bytes in 5 s."""
    assert play([10.0, 10.0, 2.0], [(0.0, [0, 1], 16.0), (0.0, [0, 2], 10.0)]) == [("a", 2.0), ("b", 5.0)]


def test_equal_flows_end_at_the_very_same_float() -> None:
    flows = [(0.1 * k, [0, 1 + k], 7.0) for k in (0, 0, 0)] + [(0.0, [0, 4], 0.3)]
    ends = dict(play([0.7, 0.7, 0.7, 0.7, 0.7], flows))
    assert ends["a"] == ends["b"] == ends["c"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_work_is_conserved_on_one_link(count: int) -> None:
    """However flows come, a link of 1 B/s that is never idle passes all bytes in as many seconds."""
    flows = [(float(k), [0, 1 + k], 3.0 + k) for k in range(count)]
    total = sum(size for _, _, size in flows)
    assert play([1.0] * (count + 1), flows)[-1][1] == pytest.approx(total, rel=1e-12)


def exact_rates(flows: dict[int, Given], capacity: Sequence[float]) -> dict[int, Fraction]:
    """Raise all rates by the least step that fills a resource or reaches a cap, until none can grow."""
    rates = dict.fromkeys(flows, Fraction(0))
    growing = set(flows)
    while growing:
        steps = [Fraction(flows[i][3]) - rates[i] for i in growing if flows[i][3] < math.inf]
        for r, limit in enumerate(capacity):
            used = sum((rates[i] for i in flows if r in flows[i][1]), Fraction(0))
            on = sum(r in flows[i][1] for i in growing)
            if on:
                steps.append((Fraction(limit) - used) / on)
        step = min(steps)
        for i in growing:
            rates[i] += step
        full = [
            r
            for r, limit in enumerate(capacity)
            if sum((rates[i] for i in flows if r in flows[i][1]), Fraction(0)) == limit
        ]
        growing = {i for i in growing if rates[i] < flows[i][3] and not any(r in flows[i][1] for r in full)}
    return rates


def exact_ends(capacity: Sequence[float], flows: Sequence[Given]) -> dict[int, Fraction]:
    """Rational numbers; every rate is computed afresh at every instant at which anything starts or ends."""
    now = Fraction(0)
    waiting = {i: Fraction(flow[0]) for i, flow in enumerate(flows)}
    left: dict[int, Fraction] = {}
    ends: dict[int, Fraction] = {}
    while waiting or left:
        rates = exact_rates({i: flows[i] for i in left}, capacity)
        following = min([*waiting.values(), *(now + left[i] / rates[i] for i in left)])
        for i in left:
            left[i] -= rates[i] * (following - now)
        now = following
        for i in [i for i in left if left[i] == 0]:
            del left[i]
            ends[i] = now
        for i in [i for i in waiting if waiting[i] == now]:
            del waiting[i]
            left[i] = Fraction(flows[i][2])
    return ends


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[float], list[Given]]:
    """Any resources, routes, caps, sizes and starts; small whole numbers make many things happen at one instant."""
    whole = draw(st.booleans())
    number = st.integers(1, 6).map(float) if whole else st.floats(0.5, 8.0)
    resources = draw(st.integers(1, 7))
    capacity = draw(st.lists(number, min_size=resources, max_size=resources))
    flow = st.tuples(
        st.integers(0, 4).map(float) if whole else st.floats(0.0, 4.0),
        st.lists(st.integers(0, resources - 1), min_size=1, max_size=3, unique=True),
        number,
        st.one_of(st.just(math.inf), number),
    )
    return capacity, draw(st.lists(flow, min_size=1, max_size=12))


@settings(max_examples=80, deadline=None)
@given(traffic())
def test_ends_are_those_of_recomputing_everything_at_every_instant(case: tuple[list[float], list[Given]]) -> None:
    capacity, flows = case
    exact = exact_ends(capacity, flows)
    ends = play_capped(capacity, flows)
    assert ends.keys() == exact.keys()
    for i, end in ends.items():
        assert math.isclose(end, float(exact[i]), rel_tol=1e-12)


@given(traffic())
def test_the_same_flows_have_the_same_ends(case: tuple[list[float], list[Given]]) -> None:
    assert list(play_capped(*case).items()) == list(play_capped(*case).items())


class Watched:
    """A network that notes which flows get rates, call by call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capacity: list[float]) -> None:
        self.env = simpy.Environment()
        self.computed: list[tuple[float, str]] = []
        self.ended: list[tuple[float, str]] = []
        self.following: dict[str, Flow] = {}
        self.network = FairNetwork(self.env, capacity, self._done)
        monkeypatch.setattr(fair_sharing, "rates_of", self._rates_of)

    def _rates_of(self, flows: Sequence[Flow], *rest: object) -> list[float]:
        self.computed.append((self.env.now, "".join(sorted(flow.token for flow in flows))))
        return rates_of(flows, *rest)  # type: ignore[arg-type]

    def _done(self, flows: list[Flow]) -> None:
        self.ended.append((self.env.now, "".join(sorted(flow.token for flow in flows))))
        for flow in flows:
            if flow.token in self.following:
                self.network.start([self.following[flow.token]])

    def start(self, when: float, *flows: tuple[str, tuple[int, ...], float]) -> None:
        """Start flows (name, resources, bytes) by one event."""
        timeout = self.env.timeout(when, [Flow(route, size, name) for name, route, size in flows])
        assert timeout.callbacks is not None
        timeout.callbacks.append(lambda event: self.network.start(event.value))


def test_a_change_recomputes_its_own_component_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """a and b share link 0, c and d link 1; a late e joins the second pair and ends first."""
    net = Watched(monkeypatch, [1.0, 1.0])
    net.start(0.0, ("a", (0,), 10.0), ("b", (0,), 10.0), ("c", (1,), 10.0), ("d", (1,), 10.0))
    net.start(3.0, ("e", (1,), 1.0))
    net.env.run()
    assert net.computed == [(0.0, "ab"), (0.0, "cd"), (3.0, "cde"), (6.0, "cd")]
    assert net.ended == [(6.0, "e"), (20.0, "ab"), (21.0, "cd")]


def test_components_join_and_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """m crosses links 0 and 1 and joins a to b; when it has ended, a change of a does not concern b.

    m gets 1/2 on both links from 1 s on, so its byte takes 2 s. b has 8 bytes at 3 s, a 8; f takes 1 s from 4 s on at
    1/2, its half byte, so that a ends at 11.5 s and b at 11 s.
    """
    net = Watched(monkeypatch, [1.0, 1.0])
    net.start(0.0, ("a", (0,), 10.0))
    net.start(0.0, ("b", (1,), 10.0))
    net.start(1.0, ("m", (0, 1), 1.0))
    net.start(4.0, ("f", (0,), 0.5))
    net.env.run()
    assert net.computed == [(0.0, "a"), (0.0, "b"), (1.0, "abm"), (3.0, "a"), (3.0, "b"), (4.0, "af"), (5.0, "a")]
    assert net.ended == [(3.0, "m"), (5.0, "f"), (11.0, "b"), (11.5, "a")]


def test_changes_of_one_instant_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three events of one instant start flows just when a fourth flow, a, ends: rates are computed once."""
    net = Watched(monkeypatch, [1.0])
    net.start(0.0, ("a", (0,), 2.0), ("z", (0,), 5.0))
    for name in "bcd":
        net.start(4.0, (name, (0,), 1.0))
    net.env.run()
    # z has 3 bytes left at 4 s, and four flows take 4 s for their first byte each.
    assert net.computed == [(0.0, "az"), (4.0, "bcdz"), (8.0, "z")]
    assert net.ended == [(4.0, "a"), (8.0, "bcd"), (10.0, "z")]


def test_a_component_that_ends_as_a_whole_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Watched(monkeypatch, [1.0, 1.0, 1.0])
    net.start(0.0, ("a", (0, 1), 3.0), ("b", (1, 2), 3.0), ("c", (2, 0), 3.0))
    net.env.run()
    assert net.computed == [(0.0, "abc")]
    assert net.ended == [(6.0, "abc")]


def test_what_follows_an_end_at_once_is_part_of_the_same_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow started while the end of another is told joins before rates are computed."""
    net = Watched(monkeypatch, [1.0])
    net.following["a"] = Flow((0,), 1.0, "n")
    net.start(0.0, ("a", (0,), 1.0), ("z", (0,), 9.0))
    net.env.run()
    assert net.computed == [(0.0, "az"), (2.0, "nz"), (4.0, "z")]


@pytest.mark.parametrize(("capacity", "size"), [(0.0, 5.0), (1.0, math.inf), (1.0, math.nan), (1e-308, 1e10)])
def test_a_flow_that_would_never_end_is_an_error(capacity: float, size: float) -> None:
    with pytest.raises(ScheduleError, match=f"1 messages that share links would never end, the first with {size!r} "):
        play_capped([capacity], [(0.0, [0], size, math.inf)])
