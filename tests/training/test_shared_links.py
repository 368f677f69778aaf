"""Collectives that share links: rates are max-min fair, and progress adds up."""

from __future__ import annotations

import itertools

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.training.shared_links import SharedLinks, Use, fair_progress

SHARES = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1.0))
USES = st.lists(st.dictionaries(st.sampled_from(["intra", "inter", "spine"]), SHARES, max_size=3), max_size=6)


def used(uses: list[Use], rates: list[float], level: str) -> float:
    return sum(use.get(level, 0.0) * rate for use, rate in zip(uses, rates, strict=True))


@given(USES)
def test_rates_are_max_min_fair(uses: list[Use]) -> None:
    """No port is overfull, and whoever is slowed crosses a full one on which nobody is faster (Bertsekas, Gallager)."""
    rates = fair_progress(uses)
    assert all(0 < rate <= 1 for rate in rates)
    levels = {level for use in uses for level in use}
    assert all(used(uses, rates, level) <= 1 + 1e-9 for level in levels)
    for use, rate in zip(uses, rates, strict=True):
        if rate < 1:
            assert any(
                share > 0
                and used(uses, rates, level) >= 1 - 1e-9
                and all(other <= rate + 1e-9 for u, other in zip(uses, rates, strict=True) if u.get(level, 0) > 0)
                for level, share in use.items()
            )


@given(USES, st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_the_order(uses: list[Use], random: object) -> None:
    places = list(range(len(uses)))
    random.shuffle(places)  # type: ignore[attr-defined]
    rates, shuffled = fair_progress(uses), fair_progress([uses[place] for place in places])
    assert shuffled == pytest.approx([rates[place] for place in places], rel=1e-9)


@pytest.mark.parametrize(
    ("uses", "rates"),
    [
        ([], []),
        ([{"inter": 1.0}], [1.0]),
        ([{"inter": 0.5}, {"inter": 0.5}], [1.0, 1.0]),
        ([{"inter": 0.75}, {"inter": 0.75}], [2 / 3, 2 / 3]),
        # 1 s of bytes in 4 s: with another on the port these last 2 s, so that 4 s become 5.
        ([{"inter": 1.0}, {"inter": 0.25}], [0.8, 0.8]),
        ([{"inter": 1.0}, {"inter": 1.0}, {"inter": 1.0}], [1 / 3, 1 / 3, 1 / 3]),
        ([{"inter": 1.0}, {"inter": 1.0, "intra": 0.5}, {"intra": 0.5}], [0.5, 0.5, 1.0]),
        ([{"inter": 1.0}, {"inter": 1.0, "intra": 1.0}, {"intra": 1.0}], [0.5, 0.5, 0.5]),
        ([{"a": 1.0}, {"a": 1.0}, {"a": 1.0, "b": 0.6}, {"b": 0.8}], [1 / 3, 1 / 3, 1 / 3, 1.0]),
        ([{}, {"inter": 0.0}], [1.0, 1.0]),
    ],
)
def test_rates_worked_by_hand(uses: list[Use], rates: list[float]) -> None:
    assert fair_progress(uses) == pytest.approx(rates)


def ends(*work: tuple[float, float, Use]) -> list[float]:
    """When collectives end that start at a time, last so many seconds alone, and use ports so much."""
    env = simpy.Environment()
    links = SharedLinks(env)
    found = [0.0] * len(work)

    def one(number: int, start: float, seconds: float, use: Use) -> simpy.events.ProcessGenerator:
        yield env.timeout(start)
        done = env.event()
        links.start(seconds, use, done.succeed)
        yield done
        found[number] = env.now

    for number, (start, seconds, use) in enumerate(work):
        env.process(one(number, start, seconds, use))
    env.run()
    return found


FULL = {"link": 1.0}


def test_alone_it_lasts_its_seconds() -> None:
    assert ends((0.1, 0.7, FULL), (1.0, 0.3, FULL)) == [0.1 + 0.7, 1.0 + 0.3]


def test_two_share() -> None:
    """The second starts when the first has 3 of 4 s left; both at half speed end it at 7, then 2 s are left."""
    assert ends((0, 4, FULL), (1, 5, FULL)) == pytest.approx([7, 9])


def test_they_start_as_another_ends() -> None:
    assert ends((0, 2, FULL), (2, 1, FULL), (2, 1, FULL)) == pytest.approx([2, 4, 4])


def test_what_takes_no_time_ends_at_once() -> None:
    assert ends((1, 0, {}), (1, 0, FULL), (1, 2, FULL)) == [1, 1, 3]


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.floats(0, 5), st.dictionaries(st.sampled_from("ab"), SHARES, max_size=2)),
        min_size=1,
        max_size=6,
    )
)
def test_progress_adds_up(work: list[tuple[float, float, Use]]) -> None:
    """Between changes rates are constant; rate x time of every collective sums to the seconds that it lasts alone."""
    found = ends(*work)
    moments = sorted({start for start, _, _ in work} | set(found))
    progress = [0.0] * len(work)
    for before, after in itertools.pairwise(moments):
        running = [n for n, (start, _, _) in enumerate(work) if start <= before and found[n] >= after]
        for number, rate in zip(running, fair_progress([work[n][2] for n in running]), strict=True):
            progress[number] += rate * (after - before)
    assert progress == pytest.approx([seconds for _, seconds, _ in work], abs=1e-9)
