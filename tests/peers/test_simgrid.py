"""The event engine against SimGrid: contention by another program, on platforms from our routes and written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcollectives.cluster import Change, Cluster, FullMesh, Level, Link, Uplink
from simcollectives.engines import Job, make_job, simulate_job
from simcollectives.engines.vectorized import refusal
from tests.laws.exact import arbitrary_job
from tests.peers.simgrid import (
    SMPIRUN,
    Inexpressible,
    Platform,
    bandwidth_text,
    latency_text,
    simgrid_seconds,
    traces_of,
    zone,
)
from tests.peers.simgrid_cases import (
    ALL_REDUCE,
    ALL_TO_ALL,
    CASES,
    FAR,
    HIERARCHICAL,
    Case,
    Question,
    ask,
    name_of,
    traffic,
)

pytestmark = [
    pytest.mark.simgrid,
    pytest.mark.skipif(SMPIRUN is None, reason="needs smpirun: install libsimgrid-dev"),
]
TOLERANCE = 1e-5


def check(job: Job, platform: Platform | None = None) -> None:
    """Both times agree, and neither is below what no schedule can beat."""
    run = simulate_job(job, "event")
    seconds = simgrid_seconds(job, platform)
    assert seconds == pytest.approx(run.seconds, rel=TOLERANCE)
    assert run.seconds >= run.lower_bound_seconds * (1 - 1e-12)
    assert seconds >= run.lower_bound_seconds * (1 - TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    check(case.make())


def test_cases_are_many_and_most_share() -> None:
    """Cases whose messages never wait for each other on a port say nothing of contention."""
    assert len({case.name for case in CASES}) == len(CASES) >= 90
    assert sum(refusal(case.make()) is not None for case in CASES) >= 90


# Platforms that do not come from our routes: SimGrid's own models of a switch and of a fat tree.
BANDWIDTH, LATENCY = 1.3e9, 5e-6
LOOPBACK = Link(alpha=2e-6, bandwidth=9e9)
ONE_PORT = [*ALL_REDUCE[:5], *FAR, ALL_TO_ALL[0]]
ON_NODES = [*ONE_PORT, *HIERARCHICAL[:2]]
MANY_PORTS = [*ALL_REDUCE[5:], ALL_TO_ALL[1], HIERARCHICAL[4]]


def switch(hosts: int, ranks_per_host: int = 1, latency: float = LATENCY, more: str = "") -> Platform:
    """One switch; every host has a link up and a link down of ``latency`` each. Ranks fill host after host."""
    numbers = f'speed="1Gf" bw="{bandwidth_text(BANDWIDTH)}" lat="{latency_text(latency)}"'
    names = f'id="switch" prefix="n" suffix="" radical="0-{hosts - 1}"'
    xml = zone(f'<cluster {names} {numbers} sharing_policy="SPLITDUPLEX" {more}/>')
    return Platform(xml, tuple(f"n{rank // ranks_per_host}" for rank in range(hosts * ranks_per_host)))


@pytest.mark.parametrize("question", [*ONE_PORT, *MANY_PORTS[:3]], ids=name_of)
def test_switch(question: Question) -> None:
    """A message crosses its sender's link up and its receiver's link down: two latencies, a port each way."""
    check(ask(question, Cluster.flat(12, Link(2 * LATENCY, BANDWIDTH))), switch(12))


@pytest.mark.parametrize("question", [*ON_NODES, *MANY_PORTS], ids=name_of)
def test_several_ranks_a_host(question: Question) -> None:
    """Four ranks share their host's two links; inside a host every message has a loopback for itself: a full mesh."""
    loopback = f'loopback_bw="{bandwidth_text(LOOPBACK.bandwidth)}" loopback_lat="{latency_text(LOOPBACK.alpha)}"'
    levels = [Level("intra", LOOPBACK, 4, FullMesh(4)), Level("inter", Link(2 * LATENCY, BANDWIDTH), 4)]
    cluster = Cluster.layered(levels).with_uplinks(Uplink("link", "inter", BANDWIDTH, devices=4))
    check(ask(question, cluster), switch(4, 4, more=loopback))


def fat_tree(latency: float) -> tuple[Cluster, Platform]:
    """Four leaves of four hosts, one link of a host's bandwidth from each leaf to the one spine: 4:1.

    A message inside a leaf crosses two links, between leaves four.
    """
    levels = [
        Level("leaf", Link(2 * latency, BANDWIDTH), 4),
        Level("spine", Link(4 * latency, BANDWIDTH), 4, ports_of="leaf"),
    ]
    platform = switch(16, latency=latency, more='topology="FAT_TREE" topo_parameters="2;4,4;1,1;1,1"')
    return Cluster.layered(levels), platform


@pytest.mark.parametrize("question", ON_NODES, ids=name_of)
def test_fat_tree(question: Question) -> None:
    """With one message a port, only messages between leaves can meet, and these have one latency."""
    cluster, platform = fat_tree(LATENCY)
    check(ask(question, cluster), platform)


@pytest.mark.parametrize("question", [*ON_NODES, *MANY_PORTS], ids=name_of)
def test_fat_tree_without_latency(question: Question) -> None:
    """Without latency SimGrid gives all flows one weight, so that messages inside and between leaves may meet."""
    cluster, platform = fat_tree(0.0)
    check(ask(question, cluster), platform)


@pytest.mark.parametrize("seed", range(4))
def test_fat_tree_with_any_traffic(seed: int) -> None:
    cluster, platform = fat_tree(0.0)
    check(traffic(cluster, 100 + seed), platform)


# Where SimGrid means something else, or cannot say it.
def test_simgrid_shares_by_latency() -> None:
    """Ranks 0 and 1 send n bytes to rank 2, over routes of latency L and 2 L; rank 0 then sends m bytes to rank 3.

    By max-min, rank 0's flow is alone for L, then has half of B: it ends at 2 L + 2 (n - B L) / B = 2 n / B.
    SimGrid weighs flows by 1 / latency: two thirds of B, an end at 2 L + 3/2 (n - B L) / B = 3/2 n / B + L / 2.
    Both then add L + m / B, which is later than rank 2's end, 2 n / B + L.
    """
    n, m, latency, bandwidth = 1_000_000, 3_000_000, 1e-4, 1e9
    cluster = Cluster.flat(4, Link(latency, bandwidth)).with_changes(Change(link=(1, 2), alpha=2.0))
    job = arbitrary_job(cluster, [[[(0, 2, n, False), (1, 2, n, False)], [(0, 3, m, False)]]])
    last = latency + m / bandwidth
    assert simulate_job(job, "event").seconds == pytest.approx(2 * n / bandwidth + last, rel=1e-12)
    assert simgrid_seconds(job) == pytest.approx(1.5 * n / bandwidth + latency / 2 + last, rel=TOLERANCE)


def test_same_latency_shares_alike() -> None:
    """The same traffic with one latency: 2 n / B + L, then L + m / B, by both."""
    n, m, latency, bandwidth = 1_000_000, 3_000_000, 1e-4, 1e9
    job = arbitrary_job(
        Cluster.flat(4, Link(latency, bandwidth)), [[[(0, 2, n, False), (1, 2, n, False)], [(0, 3, m, False)]]]
    )
    seconds = 2 * n / bandwidth + m / bandwidth + 2 * latency
    assert simulate_job(job, "event").seconds == pytest.approx(seconds, rel=1e-12)
    assert simgrid_seconds(job) == pytest.approx(seconds, rel=TOLERANCE)


def test_short_messages_cannot_be_expressed() -> None:
    """SMPI's 16 bytes are the least it sends; an empty message, which costs alpha and overhead here, has none."""
    job = make_job("all_reduce", "ring", Cluster.flat(4, Link(LATENCY, BANDWIDTH)), 0)
    with pytest.raises(Inexpressible, match="message of 0 bytes"):
        traces_of(job)


def test_overhead_must_be_whole_bytes() -> None:
    """SimGrid has no overhead. One that is worth 1.5 bytes at 1 GB/s is not the work of any longer message."""
    cluster = Cluster.flat(4, Link(LATENCY, 1e9, overhead=1.5e-9))
    job = make_job("all_reduce", "ring", cluster, 4096)
    with pytest.raises(Inexpressible, match=r"1025\.5 bytes of work"):
        traces_of(job)
    whole = replace(cluster.levels[0].link, overhead=2e-9)
    assert "isend 1 0 1010" in traces_of(make_job("all_reduce", "ring", cluster.with_link("link", whole), 4096))[0]
