"""Law: where the vectorized engine takes a job it equals the event engine bit for bit, bytes and parts too."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Device, Link
from simcollectives.engines import Job
from simcollectives.engines.event import event
from simcollectives.engines.vectorized import refusal, vectorized
from tests.laws.cases import (
    VARIANTS,
    Variant,
    describe,
    fits,
    flat,
    is_private,
    job_of,
    rank_orders,
    tolerance,
    two_level,
)

SHAPES = ((2, 3), (4, 2))


def check(job: Job) -> None:
    if refusal(job) is not None:
        assert not is_private(job) or max(p.ports for p in job.schedule.channels[0]) > 1, describe(job)
        return
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
    assert parts.level_names == other.level_names


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_vectorized_equals_event(variant: Variant) -> None:
    clusters = [flat(n) for n in (1, 3, 8, 13)]
    clusters += [two_level(*shape, order) for shape in SHAPES for order in rank_orders(*shape)]
    for cluster in clusters:
        if fits(variant, cluster):
            for elements in (5 * cluster.world_size + 3, 8 * cluster.world_size):
                check(job_of(variant, cluster, elements))


LINKS = st.builds(Link, alpha=st.floats(0, 1e-3), bandwidth=st.floats(1e6, 1e12), overhead=st.floats(0, 1e-4))
DEVICES = st.builds(Device, reduction_seconds_per_byte=st.just(0.0) | st.floats(0, 1e-9))


@settings(max_examples=100)
@given(st.data(), st.sampled_from(VARIANTS), st.sampled_from(SHAPES), LINKS, LINKS, DEVICES)
def test_any_cluster(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device
) -> None:
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order, intra, inter, device)
    if fits(variant, cluster):
        check(job_of(variant, cluster, data.draw(st.integers(0, 10**6), label="elements")))
