"""Estimates: memory by formula beside what is held, what is cheaper, what is refused, and what skipping changes."""

from __future__ import annotations

import gc
import signal
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import simcollectives as sc
from simcollectives.cluster import Uplink
from simcollectives.engines import Conditions, Jitter, Job, make_job, simulate_job, verify_job
from simcollectives.engines.estimate import Estimate, cheaper, measured, rough
from simcollectives.engines.variants import DEFAULT, LogGP, OnePort, TimeModel
from simcollectives.errors import InputError, NoClosedFormError

INTRA, INTER = sc.Link(5e-6, 450e9, 1e-7), sc.Link(1e-5, 50e9)
JITTER = Conditions(alpha=Jitter("lognormal", 0.2))


def flat(ranks: int) -> sc.Cluster:
    return sc.Cluster.flat(ranks, INTRA)


def one_card(nodes: int) -> sc.Cluster:
    return sc.Cluster.two_level(nodes, 8, INTRA, INTER).with_uplinks(Uplink("nic", "inter", 50e9, devices=8))


def all_reduce(algorithm: str, cluster: sc.Cluster, more: int = 0, **rest: Any) -> Job:
    return make_job("all_reduce", algorithm, cluster, 4096 * cluster.world_size + 4 * more, **rest)


def peak_bytes(run: Callable[[], object]) -> int:
    run()  # what is made once is not counted
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


MEMORY: dict[str, tuple[Job, str, TimeModel, bool, bool]] = {
    "event ring": (all_reduce("ring", flat(64)), "event", DEFAULT, False, True),
    "event direct": (all_reduce("direct", flat(32)), "event", DEFAULT, False, True),
    "event jitter": (all_reduce("ring", one_card(6), conditions=JITTER), "event", DEFAULT, False, True),
    "event timeline": (all_reduce("ring", flat(32)), "event", DEFAULT, True, True),
    "vectorized ring": (all_reduce("ring", flat(1024)), "vectorized", DEFAULT, False, False),
    "vectorized uneven ring": (all_reduce("ring", flat(1024), 1), "vectorized", DEFAULT, False, False),
    "vectorized rabenseifner": (all_reduce("rabenseifner", flat(4096), 1), "vectorized", DEFAULT, False, True),
    "vectorized pairwise": (
        make_job("all_to_all", "pairwise", flat(512), 4 * 512 + 4),
        "vectorized",
        DEFAULT,
        False,
        True,
    ),
    "lockstep direct": (all_reduce("direct", flat(96)), "lockstep", DEFAULT, False, True),
    "closed form direct": (all_reduce("direct", flat(128), 1), "closed_form", DEFAULT, False, True),
    "one port ring": (all_reduce("ring", flat(32)), "auto", OnePort(), False, True),
    "one port timeline": (all_reduce("ring", flat(32)), "auto", OnePort(), True, True),
    "loggp ring": (all_reduce("ring", flat(32)), "auto", LogGP(), False, True),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_of_the_right_order(name: str) -> None:
    job, engine, time, timeline, skipping = MEMORY[name]
    peak = peak_bytes(lambda: simulate_job(job, engine, timeline, time, skipping=skipping))
    found = rough(job, engine, timeline, time, skipping)
    assert peak > 50_000, "too small to tell"
    assert peak / 4 < found.memory_bytes < peak * 4


def test_memory_of_a_uniform_run_does_not_grow_with_its_rounds() -> None:
    job = all_reduce("ring", flat(4096))
    assert rough(job).memory_bytes < rough(job, skipping=False).memory_bytes / 20


def test_a_line() -> None:
    found = Estimate("event", 12_000_000, 12_000_000, 117.0, 304_000_000)
    assert str(found) == "12,000,000 messages, about 2 min, 300 MB"


def test_estimate_takes_what_simulate_takes() -> None:
    found = sc.estimate("all_reduce", "ring", flat(8), 4096, engine="event")
    assert (found.engine, found.messages) == ("event", 8 * 14)
    assert found == rough(all_reduce("ring", flat(8)), "event")
    timeline = sc.estimate("all_reduce", "ring", flat(8), 4096, timeline=True)
    assert timeline.engine == "event"
    assert timeline.memory_bytes > found.memory_bytes
    assert sc.estimate("all_reduce", "ring", flat(8), "1 MiB", time="one_port", options={}).messages == 112


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"engine": "fast"}, '"fast" is not an engine'),
        ({"engine": "lockstep", "timeline": True}, "lockstep has no timeline"),
        ({"engine": "closed_form", "skipping": False}, "closed_form plays no rounds at all; leave skipping out"),
        ({"time": "two_port"}, "two_port"),
    ],
)
def test_what_simulate_refuses_is_refused(more: dict[str, Any], text: str) -> None:
    for ask in (sc.estimate, sc.simulate):
        with pytest.raises(InputError, match=text):
            ask("all_reduce", "ring", flat(8), 4096, **more)
    with pytest.raises(NoClosedFormError):
        sc.estimate("all_reduce", "tree", one_card(2), 4096, engine="closed_form")


def test_more_work_takes_longer_and_seeds_do_not_matter() -> None:
    few, more = (rough(all_reduce("ring", flat(n)), "event") for n in (16, 64))
    assert more.messages == 64 * 126
    assert more.seconds > few.seconds
    assert more.memory_bytes > few.memory_bytes
    skipped, played = (rough(all_reduce("ring", flat(4096)), skipping=skipping) for skipping in (True, False))
    assert (skipped.played, played.played) == (0, 4096 * 8190)
    assert skipped.seconds < played.seconds


def test_what_is_long_is_timed_in_part() -> None:
    job = all_reduce("ring", flat(64))
    found = rough(job, "event")
    assert measured(job, found) is found
    timed = measured(job, found, least_seconds=0.0)
    assert timed == replace(found, seconds=timed.seconds)
    assert timed.seconds > 0
    assert timed.seconds != found.seconds
    huge = make_job("all_reduce", "direct", flat(1200), 4 * 1200)
    assert measured(huge, rough(huge, "event"), least_seconds=0.0) == rough(huge, "event"), "one round is too many"


@pytest.mark.parametrize("engine", ["event", "vectorized", "lockstep", "one_port", "loggp"])
def test_part_of_a_run_is_timed_on_every_engine(engine: str) -> None:
    job = all_reduce("rabenseifner", flat(8))
    time = {"one_port": OnePort(), "loggp": LogGP()}.get(engine, DEFAULT)
    asked = "event" if time is not DEFAULT else engine
    found = rough(job, asked, time=time, skipping=False)
    timed = measured(job, found, time=time, skipping=False, least_seconds=0.0)
    assert timed.seconds > 0


UNEVEN = all_reduce("direct", flat(8), 1)


@pytest.mark.parametrize(
    ("job", "engine", "expected"),
    [
        (all_reduce("ring", flat(8)), "event", "vectorized"),
        (all_reduce("ring", flat(8), conditions=JITTER), "event", "vectorized"),
        (UNEVEN, "auto", "closed_form"),
        (all_reduce("ring", flat(8)), "lockstep", "vectorized"),
        (all_reduce("ring", sc.Cluster.two_level(2, 4, INTRA, INTER)), "lockstep", None),
        (all_reduce("direct", flat(8), conditions=JITTER), "event", None),
        (all_reduce("ring", one_card(2)), "auto", None),
        (all_reduce("ring", flat(8)), "auto", "closed_form"),
    ],
)
def test_the_cheaper_engine_takes_the_job(job: Job, engine: str, expected: str | None) -> None:
    """Uneven chunks that meet on a port are not vectorized; nothing but event shares a card."""
    slow = replace(rough(job, engine), seconds=1e9)
    other = cheaper(job, slow)
    names = {other.engine for other in (other,) if other is not None}
    assert names <= {"vectorized", "closed_form"}
    assert (other is None) == (expected is None)
    if expected == "closed_form":
        assert names == {"closed_form"}


def test_what_saves_little_or_loses_the_timeline_is_not_cheaper() -> None:
    job = all_reduce("ring", flat(8))
    found = rough(job, "event")
    assert cheaper(job, replace(found, seconds=1e9), timeline=True) is None
    assert cheaper(job, replace(found, seconds=0.0)) is None
    unskipped = replace(rough(job, skipping=False), seconds=1e9)
    other = cheaper(job, unskipped, skipping=False)
    assert other is not None
    assert other.engine == "vectorized"


def test_skipping_off_plays_every_round_to_the_same_time() -> None:
    job = all_reduce("ring", flat(24))
    counts: dict[bool, list[int]] = {True: [], False: []}
    runs = {
        skipping: simulate_job(job, "vectorized", skipping=skipping, watch=counts[skipping].append)
        for skipping in (True, False)
    }
    assert runs[False].seconds == simulate_job(job, "event").seconds
    assert runs[True].seconds == pytest.approx(runs[False].seconds, rel=1e-12)
    assert (sum(counts[True]), sum(counts[False])) == (0, 24 * 46)
    assert sc.simulate("all_reduce", "ring", flat(24), 4096 * 24, skipping=False).seconds == runs[False].seconds


class Stop(Exception):
    """What a watch raises."""


@pytest.mark.parametrize("engine", ["event", "vectorized", "lockstep", "one_port", "loggp"])
def test_what_a_watch_raises_ends_a_run(engine: str) -> None:
    def stop(_count: int) -> None:
        raise Stop

    job = all_reduce("ring", flat(16))
    time = {"one_port": OnePort(), "loggp": LogGP()}.get(engine, DEFAULT)
    asked = "event" if time is not DEFAULT else engine
    with pytest.raises(Stop):
        simulate_job(job, asked, time=time, skipping=False, watch=stop)


def test_ctrl_c_ends_a_run_from_within_a_process_of_simpy() -> None:
    job = all_reduce("ring", flat(16))
    rounds = job.schedule.channels[0][0]
    asked = 0

    def round_at(step: int) -> Any:
        nonlocal asked
        asked += 1
        if step == 3:
            signal.raise_signal(signal.SIGINT)
        return rounds.round_at(step)

    phases = (replace(rounds, round_at=round_at),)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate_job(replace(job, schedule=replace(job.schedule, channels=(phases,))), "event")
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == 4


def test_verification_holds_what_its_rule_says() -> None:
    job = make_job("all_reduce", "ring", flat(8), 1 << 20)
    held = 3 * 8 * (1 << 20)
    assert held / 4 < peak_bytes(lambda: verify_job(job)) < held * 4
