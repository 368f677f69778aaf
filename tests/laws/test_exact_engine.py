"""Law: the event engine plays what a time means. It agrees with an independent, exact one on every kind of cluster."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Change, Cluster, Device, Link, Uplink
from simcollectives.engines import Job, simulate_job
from tests.laws.cases import VARIANTS, Variant, describe, each_of, fits, flat, job_of, rank_orders, tolerance, two_level
from tests.laws.exact import arbitrary_job, play

# Small whole numbers make many ties: messages that start, meet and end at the same instant.
LINKS = st.builds(
    Link,
    alpha=st.sampled_from([0.0, 1.0, 2.0, 7.0]),
    bandwidth=st.sampled_from([1.0, 2.0, 3.0, 8.0]),
    overhead=st.sampled_from([0.0, 0.5, 2.0]),
)
DEVICES = st.builds(Device, reduction_seconds_per_byte=st.sampled_from([0.0, 0.25, 1.0]))
SHAPES = ((1, 2), (1, 5), (2, 2), (2, 3), (3, 2), (4, 2))


def check(job: Job) -> None:
    run = simulate_job(job, "event")
    exact = float(play(job))
    assert math.isclose(run.seconds, exact, rel_tol=tolerance(job.schedule.rounds)), (describe(job), exact)
    parts = (run.latency_seconds, run.bandwidth_seconds, run.reduction_seconds)
    assert min(parts) >= 0
    assert math.isclose(sum(parts), run.seconds, rel_tol=tolerance(job.schedule.rounds))


@each_of(VARIANTS)
def test_table(variant: Variant) -> None:
    intra, inter, device = Link(1.0, 8.0, 0.5), Link(2.0, 3.0, 0.25), Device(reduction_seconds_per_byte=0.25)
    for shape in ((2, 2), (3, 2)):
        for order in rank_orders(*shape):
            cluster = two_level(*shape, order, intra, inter, device)
            if fits(variant, cluster):
                check(job_of(variant, cluster, 5 * cluster.world_size + 3, "int8"))
    for n in (3, 8):
        if fits(variant, flat(n, inter, device)):
            check(job_of(variant, flat(n, inter, device), 5 * n + 3, "int8"))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes, members = draw(st.sampled_from(SHAPES))
    order = tuple(draw(st.permutations(range(nodes * members))))
    return Cluster.two_level(nodes, members, draw(LINKS), draw(LINKS), rank_order=order, device=draw(DEVICES))


@st.composite
def sharing_clusters(draw: st.DrawFn) -> Cluster:
    """Nodes whose devices share network cards, perhaps behind a switch that several nodes share; some ports slower."""
    nodes, members = draw(st.sampled_from([shape for shape in SHAPES if shape[0] > 1]))
    order = tuple(draw(st.permutations(range(nodes * members))))
    cluster = Cluster.two_level(nodes, members, draw(LINKS), draw(LINKS), rank_order=order, device=draw(DEVICES))
    bandwidth = st.sampled_from([0.5, 1.0, 3.0, 5.0])
    uplinks = [Uplink("nic", "inter", draw(bandwidth), devices=draw(st.integers(1, members)))]
    if draw(st.booleans()):
        uplinks.append(Uplink("leaf", "inter", draw(bandwidth), devices=2 * members))
    slow = draw(st.sets(st.integers(0, cluster.world_size - 1)))
    changes = [Change(rank=rank, bandwidth=draw(st.sampled_from([0.125, 0.25, 0.5]))) for rank in sorted(slow)]
    return cluster.with_uplinks(*uplinks).with_changes(*changes)


@st.composite
def traffic(draw: st.DrawFn, kind: st.SearchStrategy[Cluster], channels: int = 2) -> Job:
    cluster = draw(kind)
    n = cluster.world_size
    pair = st.tuples(st.integers(0, n - 1), st.integers(1, n - 1)).map(lambda p: (p[0], (p[0] + p[1]) % n))
    row = st.tuples(pair, st.integers(0, 12), st.booleans()).map(lambda r: (*r[0], *r[1:]))
    rounds = st.lists(st.lists(row, max_size=10), max_size=4)
    return arbitrary_job(cluster, draw(st.lists(rounds, min_size=1, max_size=channels)))


@settings(max_examples=60)
@given(traffic(clusters()))
def test_arbitrary_traffic(job: Job) -> None:
    check(job)


@settings(max_examples=60)
@given(traffic(sharing_clusters()))
def test_arbitrary_traffic_over_shared_cards(job: Job) -> None:
    check(job)


@pytest.mark.slow
@settings(max_examples=2000)
@given(st.one_of(traffic(clusters(), channels=3), traffic(sharing_clusters(), channels=3)))
def test_a_lot_of_arbitrary_traffic(job: Job) -> None:
    check(job)
