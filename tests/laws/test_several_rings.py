"""Law: rings at once run at the pace of the busiest port of the slowest links, whatever the links and the rank order.

With equal chunks of n bytes: passes (N - 1) (largest of alpha + k (o + n/B)), and gamma for every chunk reduced, where
k is the most messages on one port of a kind of links. Ports are counted here from the rings of ``formulas``, which are
not the package's. Unequal chunks may take less, and no form is stated.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Device, Level, Link
from simcollectives.engines import Job, simulate_job
from tests.laws.cases import (
    VARIANTS,
    Variant,
    describe,
    fits,
    flat,
    job_of,
    rank_orders,
    tolerance,
    two_level,
)
from tests.laws.formulas import opposite, rotated

SEVERAL = [v for v in VARIANTS if v.name in ("rotated_rings", "bidirectional_ring")]
SHAPES = ((1, 5), (3, 1), (2, 2), (4, 2), (2, 3), (3, 4))


def rings_of(variant: Variant, cluster: Cluster) -> list[list[int]]:
    if variant.name == "bidirectional_ring":
        return opposite(cluster.world_size)
    node = [int(device) // cluster.gpus_per_node for device in cluster.device_of_rank]
    groups = [[rank for rank in range(cluster.world_size) if node[rank] == n] for n in range(cluster.nodes)]
    return rotated(groups, dict(variant.options))


def level_between(cluster: Cluster, a: int, b: int) -> int:
    """The innermost level that joins two ranks."""
    here, there = int(cluster.device_of_rank[a]), int(cluster.device_of_rank[b])
    for number, level in enumerate(cluster.levels):
        here, there = here // level.size, there // level.size
        if here == there:
            return number
    raise AssertionError("no level joins them")


def seconds_by_hand(variant: Variant, job: Job) -> float:
    cluster, n = job.cluster, job.cluster.world_size
    ports: Counter[tuple[int, str, int]] = Counter()
    for ring in rings_of(variant, cluster):
        for src, dst in zip(ring, ring[1:] + ring[:1], strict=True):
            if src != dst:
                level = level_between(cluster, src, dst)
                ports[level, "out", src] += 1
                ports[level, "in", dst] += 1
    size = job.message_bytes / job.schedule.chunks
    links = [level.link for level in cluster.levels]
    rounds = [
        links[level].alpha + messages * (links[level].overhead + size / links[level].bandwidth)
        for (level, _, _), messages in ports.items()
    ]
    passes = 2 if variant.collective == "all_reduce" else 1
    reduced = 0 if variant.collective == "all_gather" else (n - 1) * size
    return passes * (n - 1) * max(rounds, default=0.0) + reduced * cluster.device.reduction_seconds_per_byte


def check(variant: Variant, cluster: Cluster, elements_a_chunk: int) -> None:
    chunks = job_of(variant, cluster, 0).schedule.chunks
    job = job_of(variant, cluster, elements_a_chunk * chunks)
    event, lockstep = simulate_job(job, "event"), simulate_job(job, "lockstep")
    near, by_hand = tolerance(job.schedule.rounds), seconds_by_hand(variant, job)
    assert math.isclose(event.seconds, by_hand, rel_tol=near), (describe(job), event.seconds, by_hand)
    assert event.closed_form_seconds is not None
    assert math.isclose(event.closed_form_seconds, by_hand, rel_tol=near), describe(job)
    assert event.seconds <= lockstep.seconds * (1 + near), describe(job)


@pytest.mark.parametrize("variant", SEVERAL, ids=str)
def test_two_levels(variant: Variant) -> None:
    for shape in SHAPES:
        for order in rank_orders(*shape):
            for elements in (0, 2000):
                check(variant, two_level(*shape, order), elements)


LINKS = st.builds(Link, alpha=st.floats(0, 1e-3), bandwidth=st.floats(1e6, 1e12), overhead=st.floats(0, 1e-4))
DEVICES = st.builds(Device, reduction_seconds_per_byte=st.just(0.0) | st.floats(0, 1e-9))


@settings(max_examples=25)
@given(
    data=st.data(), variant=st.sampled_from(SEVERAL), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    device=DEVICES, elements=st.integers(0, 10**5),
)  # fmt: skip
def test_any_levels(data: st.DataObject, variant: Variant, sizes: list[int], device: Device, elements: int) -> None:
    order = data.draw(st.permutations(range(math.prod(sizes))), label="rank order")
    levels = [Level(f"level{i}", data.draw(LINKS), size) for i, size in enumerate(sizes)]
    cluster = Cluster.layered(levels, rank_order=order, device=device)
    if fits(variant, cluster):
        check(variant, cluster, elements)


@pytest.mark.parametrize("variant", SEVERAL, ids=str)
def test_unequal_chunks_have_no_form_and_take_no_longer_than_the_longest_would(variant: Variant) -> None:
    for cluster in (flat(5), flat(8), two_level(2, 3, "node_major"), two_level(3, 4, "round_robin")):
        job = job_of(variant, cluster, 5 * cluster.world_size + 3)
        run = simulate_job(job, "event")
        several = len(job.schedule.channels) > 1
        longest = job_of(variant, cluster, -(-job.layout.elements // job.schedule.chunks) * job.schedule.chunks)
        assert (run.closed_form_seconds is None) == (several or cluster.nodes > 1), describe(job)
        assert run.seconds <= simulate_job(longest, "event").seconds * (1 + tolerance(run.rounds)), describe(job)


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (3, 4), (2, 5)])
def test_every_ring_leaves_the_nodes_by_other_ports(shape: tuple[int, int]) -> None:
    """As many rings as devices: each device sends to another node in one ring, and in another it receives from one."""
    nodes, members = shape
    for order in rank_orders(*shape):
        cluster = two_level(*shape, order)
        variant = next(v for v in SEVERAL if dict(v.options).get("channels") == "auto")
        schedule = job_of(variant, cluster, 0).schedule
        assert len(schedule.channels) == members
        node = cluster.device_of_rank // members
        leaving, entering = [], []
        for channel in range(members):
            (first, *_) = schedule.rounds_of(channel)
            assert sorted(first.src.tolist()) == sorted(first.dst.tolist()) == list(range(nodes * members))
            out = node[first.src] != node[first.dst]
            leaving += first.src[out].tolist()
            entering += first.dst[out].tolist()
        assert sorted(leaving) == sorted(entering) == list(range(nodes * members))
