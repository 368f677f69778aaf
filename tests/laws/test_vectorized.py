"""Law: where the vectorized engine takes a job it equals the event engine bit for bit, bytes and parts too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Change, Cluster, Device, Link
from simcollectives.engines import Conditions, Job, make_job
from simcollectives.engines import vectorized as module
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.event import event
from simcollectives.engines.vectorized import refusal, vectorized
from tests.laws.cases import (
    REPEATED,
    VARIANTS,
    Variant,
    describe,
    each_of,
    fits,
    flat,
    is_private,
    job_of,
    rank_orders,
    tolerance,
    two_level,
)

SHAPES = ((2, 3), (4, 2))


def check(job: Job) -> bool:
    """Compare the engines; return whether the vectorized one takes the job."""
    if refusal(job) is not None:
        assert not is_private(job) or max(p.ports for p in job.schedule.channels[0]) > 1, describe(job)
        return False
    parts, seconds, sent, _ = event(job)
    near = tolerance(job.schedule.rounds)
    for skip in (False, True):
        other, other_seconds, other_sent = vectorized(job, skip=skip)
        if skip:
            # Rounds left out at once are one product instead of many sums.
            assert math.isclose(other_seconds, seconds, rel_tol=near), describe(job)
        else:
            assert other_seconds.hex() == seconds.hex(), describe(job)
        assert other_sent.tolist() == sent.tolist(), describe(job)
        assert math.isclose(other.seconds, other_seconds, rel_tol=near), describe(job)
        assert min(*other.latency, *other.bandwidth, other.reduction) >= 0
    assert count_bytes_sent(job).tolist() == sent.tolist(), describe(job)
    assert parts.level_names == other.level_names
    return True


@each_of(VARIANTS)
def test_vectorized_equals_event(variant: Variant) -> None:
    clusters = [flat(n) for n in (1, 3, 8, 13)]
    clusters += [two_level(*shape, order) for shape in SHAPES for order in rank_orders(*shape)]
    for cluster in clusters:
        if fits(variant, cluster):
            for elements in (5 * cluster.world_size + 3, 8 * cluster.world_size):
                check(job_of(variant, cluster, elements))


LINKS = st.builds(Link, alpha=st.floats(0, 1e-3), bandwidth=st.floats(1e6, 1e12), overhead=st.floats(0, 1e-4))
DEVICES = st.builds(Device, reduction_seconds_per_byte=st.just(0.0) | st.floats(0, 1e-9))


@settings(max_examples=40)
@given(st.data(), st.sampled_from(VARIANTS), st.sampled_from(SHAPES), LINKS, LINKS, DEVICES)
def test_any_cluster(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device
) -> None:
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order, intra, inter, device)
    if fits(variant, cluster):
        check(job_of(variant, cluster, data.draw(st.integers(0, 10**6), label="elements")))


def unequal(cluster: Cluster, random: np.random.Generator) -> Cluster:
    """Give every rank its own latencies, bandwidths and reductions, and one pair of ranks a worse link."""
    n = cluster.world_size
    changes = [
        Change(rank=i, alpha=a, bandwidth=b, gamma=g) for i, (a, b, g) in enumerate(random.uniform(0.3, 2, (n, 3)))
    ]
    if n > 1:
        pair = random.permutation(n)[:2].tolist()
        changes.append(Change(link=(pair[0], pair[1]), alpha=1.5, bandwidth=0.25))
    return cluster.with_changes(*changes)


def unequal_clusters(world_size: int, random: np.random.Generator) -> list[Cluster]:
    """A flat cluster of ``world_size`` ranks, and for each divisor one of two levels, in any rank order."""
    nodes = [d for d in range(1, world_size + 1) if world_size % d == 0]
    orders = [tuple(random.permutation(world_size).tolist()) for _ in nodes]
    shaped = [two_level(d, world_size // d, order) for d, order in zip(nodes, orders, strict=True)]
    return [unequal(cluster, random) for cluster in (flat(world_size), *shaped)]


def check_unequal(variant: Variant, world_sizes: range | tuple[int, ...]) -> None:
    random = np.random.default_rng(len(str(variant)))
    taken = one_port = 0
    for world_size in world_sizes:
        clusters = [c for c in unequal_clusters(world_size, random) if fits(variant, c)]
        for cluster in clusters[:1] + clusters[1:][:: max(len(clusters) // 2, 1)]:
            elements = int(random.integers(0, 20 * world_size))
            skew = Conditions(skew=tuple(random.uniform(0, 1e-4, world_size)) if random.integers(2) else ())
            job = make_job(
                variant.collective, variant.name, cluster, 4 * elements, dict(variant.options), conditions=skew
            )
            one_port += (
                all(p.ports == 1 for channel in job.schedule.channels for p in channel)
                and len(job.schedule.channels) == 1
            )
            taken += check(job)
    assert taken >= one_port


@each_of(VARIANTS)
def test_unequal_private_clusters(variant: Variant) -> None:
    check_unequal(variant, (1, 2, 3, 6, 8, 13))


@pytest.mark.slow
@each_of([variant for variant in VARIANTS if variant not in REPEATED])
def test_unequal_private_clusters_of_1_to_40_ranks(variant: Variant) -> None:
    check_unequal(variant, range(1, 41))


@each_of(VARIANTS)
def test_the_way_back_is_the_same_where_rounds_are_not_kept(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds that do not fit in memory are played again, in segments of a few."""
    random = np.random.default_rng(1)
    for cluster in unequal_clusters(8, random)[::2]:
        if not fits(variant, cluster):
            continue
        job = job_of(variant, cluster, 203)
        if refusal(job) is None:
            kept = vectorized(job)[0]
            with monkeypatch.context() as patch:
                patch.setattr(module, "LEAST_SPACING", 1)
                patch.setattr(module, "KEPT_BYTES", 0)
                assert vectorized(job)[0] == kept, describe(job)
