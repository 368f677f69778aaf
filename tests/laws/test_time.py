"""Laws of time, over every algorithm with every option.

Uniform cluster: event = lockstep = closed form, with latency, overhead and reduction all positive, even and uneven.
Two kinds of links: hierarchical is exact for every pair of parts, an even ring runs at the pace of its slowest edge.
Where every port is private: event <= lockstep, and a faster link never lengthens a run.
Everywhere: time >= bounds, the parts sum to the time, and the same question has the same answer, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import DTYPES, Job, Run, simulate_job
from simcollectives.engines.closed_form import closed_form_parts
from tests.laws.cases import (
    FLAT_VARIANTS,
    INTER,
    INTRA,
    PLACED_VARIANTS,
    VARIANTS,
    Variant,
    describe,
    each_of,
    fits,
    flat,
    in_sizes,
    is_private,
    job_of,
    messages,
    rank_orders,
    tolerance,
    two_level,
    two_level_clusters,
    with_links,
)
from tests.laws.formulas import RINGS

EXAMPLES = 40
SHAPES = ((1, 4), (3, 1), (2, 2), (2, 3), (4, 2), (3, 4))
STAGED_VARIANTS = [v for v in PLACED_VARIANTS if v.name not in RINGS]
"""Rings on links of two kinds are not in step: lockstep is an upper bound. Their law is in test_several_rings.py."""


def has_no_form(variant: Variant, job: Job) -> bool:
    """The declared exceptions: chunks that differ, with more servers than workers, or rings that share ports."""
    servers, n = dict(variant.options).get("servers"), job.schedule.world_size
    meet = (isinstance(servers, int) and servers > n) or len(job.schedule.channels) > 1
    return meet and n > 1 and job.layout.elements % job.schedule.chunks != 0


def check_parts(run: Run) -> None:
    """The three parts sum to the time, none is negative, and rates are finite or None."""
    parts = (run.latency_seconds, run.bandwidth_seconds, run.reduction_seconds)
    assert min(parts) >= 0, run.label
    assert math.isclose(sum(parts), run.seconds, rel_tol=tolerance(run.rounds)), (run.label, parts, run.seconds)
    if run.seconds == 0:
        assert run.algbw is None
        assert run.busbw is None
        assert run.bottleneck == "none"
    else:
        assert run.algbw == run.message_bytes / run.seconds


def check_bounds(job: Job, run: Run) -> None:
    """No device and no node moves bytes faster than its ports, and nothing ends before one latency."""
    n, nodes, collective = job.cluster.world_size, job.cluster.nodes, job.schedule.collective
    links = [level.link for level in job.cluster.levels]
    latency = min(link.alpha for link in links) if n > 1 else 0.0
    through_device = sent_by_one_of(collective, n, 1, run.message_bytes) / sum(link.bandwidth for link in links)
    through_nics = 0.0
    if nodes > 1:
        bandwidth = job.cluster.gpus_per_node * links[-1].bandwidth
        through_nics = sent_by_one_of(collective, nodes, job.cluster.gpus_per_node, run.message_bytes) / bandwidth
    if job.schedule.servers:
        # With helpers, a worker need only send its vector once and receive the sum once.
        through_device = (run.message_bytes if n > 1 else 0) / links[0].bandwidth
    bound = max(latency, through_device, through_nics)
    assert math.isclose(run.lower_bound_seconds, bound, rel_tol=1e-12), describe(job)
    assert run.seconds >= bound * (1 - 1e-12), (describe(job), run.seconds, bound)


def sent_by_one_of(collective: str, groups: int, members: int, message: int) -> float:
    """Bytes that some group of ``members`` ranks must send or receive: see the table of lower bounds."""
    share = (groups - 1) / groups * message
    if collective in ("broadcast", "reduce"):
        return float(message if groups > 1 else 0)
    return share * {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": members}[collective]


def check_uniform(variant: Variant, cluster: Cluster, elements: int, dtype: str = "float32") -> None:
    job = job_of(variant, cluster, elements, dtype)
    event, lockstep = simulate_job(job, "event"), simulate_job(job, "lockstep")
    for run in (event, lockstep):
        check_parts(run)
        check_bounds(job, run)
    if has_no_form(variant, job):
        assert event.closed_form_seconds is None, describe(job)
        return
    closed = simulate_job(job, "closed_form")
    check_parts(closed)
    near = tolerance(job.schedule.rounds)
    assert math.isclose(event.seconds, lockstep.seconds, rel_tol=near), (describe(job), event, lockstep)
    assert math.isclose(closed.seconds, lockstep.seconds, rel_tol=near), (describe(job), closed, lockstep)
    assert event.closed_form_seconds == closed.seconds
    # Not only the sum: each part is the formula's.
    for part in ("latency_seconds", "bandwidth_seconds", "reduction_seconds"):
        assert math.isclose(getattr(closed, part), getattr(lockstep, part), rel_tol=near), (describe(job), part)


@in_sizes
@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_uniform_cluster(variant: Variant, world_sizes: Sequence[int]) -> None:
    for n in world_sizes:
        if fits(variant, flat(n)):
            chosen = messages(n) if n <= 6 else messages(n)[::2]
            for elements in chosen:
                check_uniform(variant, flat(n), elements)


LINKS = st.builds(
    Link,
    alpha=st.floats(0, 1e-3),
    bandwidth=st.floats(1e6, 1e12),
    overhead=st.just(0.0) | st.floats(0, 1e-4),
)
GAMMAS = st.builds(Device, reduction_seconds_per_byte=st.just(0.0) | st.floats(0, 1e-9))


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from(FLAT_VARIANTS), st.integers(1, 20), st.integers(0, 10**7), st.sampled_from(list(DTYPES)),
    LINKS, GAMMAS,
)  # fmt: skip
def test_uniform_cluster_of_any_kind(
    variant: Variant, world_size: int, elements: int, dtype: str, link: Link, device: Device
) -> None:
    cluster = flat(world_size, link, device)
    if fits(variant, cluster):
        check_uniform(variant, cluster, elements, dtype)


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_one_rank_needs_no_time(variant: Variant) -> None:
    if not fits(variant, flat(1)):
        return
    for cluster in (flat(1), two_level(1, 1, "node_major")):
        if not fits(variant, cluster):
            continue
        for engine in ("event", "lockstep", "closed_form"):
            run = simulate_job(job_of(variant, cluster, 1000), engine)
            assert (run.seconds, run.rounds, run.algbw, run.busbw) == (0.0, 0, None, None)
            assert run.bytes_sent.tolist() == [0]
            assert run.lower_bound_seconds == 0.0


# --- two kinds of links


@each_of(STAGED_VARIANTS)
def test_placed_algorithm_is_exact_on_two_levels(variant: Variant) -> None:
    for shape in SHAPES:
        for order in rank_orders(*shape):
            cluster = two_level(*shape, order)
            if not fits(variant, cluster):
                continue
            check_uniform(variant, cluster, 5 * cluster.world_size + 3)
            if order == "node_major":
                check_uniform(variant, cluster, cluster.world_size - 1)


def slowest_edge(cluster: Cluster, message_bytes: int) -> float:
    """Largest alpha + overhead + bytes / bandwidth over the edges rank i -> i + 1."""
    node = [int(device) // cluster.gpus_per_node for device in cluster.device_of_rank]
    edges = [(node[i], node[(i + 1) % len(node)]) for i in range(len(node))]
    links = {a == b: cluster.levels[0 if a == b else -1].link for a, b in edges}
    return max(link.alpha + link.overhead + message_bytes / link.bandwidth for link in links.values())


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_even_ring_runs_at_the_pace_of_its_slowest_edge(collective: str) -> None:
    variant = next(v for v in VARIANTS if (v.collective, v.name) == (collective, "ring"))
    for cluster in two_level_clusters():
        for links in ({}, {"intra": INTER, "inter": INTRA}, {"intra": replace(INTRA, alpha=2e-5)}):
            known = {name: link for name, link in links.items() if name in [x.name for x in cluster.levels]}
            placed = with_links(cluster, known)
            n = placed.world_size
            job = job_of(variant, placed, 6 * n)
            event = simulate_job(job, "event").seconds
            rounds = (2 if collective == "all_reduce" else 1) * (n - 1)
            reduced = 0 if collective == "all_gather" else (n - 1) * 24
            by_hand = rounds * slowest_edge(placed, 24) + reduced * placed.device.reduction_seconds_per_byte
            assert math.isclose(event, by_hand, rel_tol=tolerance(rounds)), describe(job)
            closed = closed_form_parts(job)
            assert closed is not None
            assert math.isclose(closed.seconds, event, rel_tol=tolerance(rounds)), describe(job)


def check_two_level(variant: Variant, cluster: Cluster, elements: int) -> None:
    job = job_of(variant, cluster, elements)
    event, lockstep = simulate_job(job, "event"), simulate_job(job, "lockstep")
    for run in (event, lockstep):
        check_parts(run)
        check_bounds(job, run)
    if event.closed_form_seconds is not None:
        assert math.isclose(event.closed_form_seconds, event.seconds, rel_tol=tolerance(job.schedule.rounds))
    if is_private(job):
        assert event.seconds <= lockstep.seconds * (1 + tolerance(job.schedule.rounds)), describe(job)


@each_of([v for v in VARIANTS if v not in STAGED_VARIANTS])
def test_two_level_cluster(variant: Variant) -> None:
    for shape in SHAPES:
        for order in rank_orders(*shape):
            cluster = two_level(*shape, order)
            if fits(variant, cluster):
                check_two_level(variant, cluster, 5 * cluster.world_size + 3)


SHAPE = st.sampled_from(SHAPES)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), variant=st.sampled_from(VARIANTS), shape=SHAPE, intra=LINKS, inter=LINKS, device=GAMMAS)
def test_two_level_cluster_of_any_kind(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device
) -> None:
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order, intra, inter, device)
    if fits(variant, cluster):
        check_two_level(variant, cluster, data.draw(st.integers(0, 10**6), label="elements"))


@settings(max_examples=EXAMPLES)
@given(
    data=st.data(), variant=st.sampled_from(VARIANTS), shape=SHAPE, intra=LINKS, inter=LINKS, device=GAMMAS,
    level=st.sampled_from(["intra", "inter"]), factor=st.floats(1, 100), of=st.sampled_from(["bandwidth", "latency"]),
)  # fmt: skip
def test_a_faster_link_never_lengthens_a_private_run(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device,
    level: str, factor: float, of: str,
) -> None:  # fmt: skip
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    slow = two_level(*shape, order, intra, inter, device)
    if level not in [x.name for x in slow.levels] or not fits(variant, slow):
        return
    job = job_of(variant, slow, data.draw(st.integers(0, 10**6), label="elements"))
    if not is_private(job):
        return
    link = slow.level(level).link
    if of == "bandwidth":
        faster = replace(link, bandwidth=link.bandwidth * factor)
    else:
        faster = replace(link, alpha=link.alpha / factor, overhead=link.overhead / factor)
    fast = slow.with_link(level, faster)
    before = simulate_job(job, "event").seconds
    after = simulate_job(replace(job, cluster=fast, full_cluster=fast), "event").seconds
    assert after <= before * (1 + tolerance(job.schedule.rounds)), describe(job)


def test_no_part_is_negative_where_nothing_is_sent() -> None:
    """Found by Hypothesis: alpha after alpha, the clock is a few ulp off the sum, and no bytes to put them on."""
    link = Link(0.0008823972617555458, 1e6)
    variant = next(v for v in PLACED_VARIANTS if v.options == (("intra", "direct"), ("inter", "ring")))
    check_parts(simulate_job(job_of(variant, two_level(2, 3, "node_major", link, link, Device()), 0), "event"))


@each_of(VARIANTS)
def test_the_same_question_has_the_same_answer(variant: Variant) -> None:
    for cluster in (flat(7), flat(8), two_level(2, 4, "round_robin")):
        if fits(variant, cluster):
            first, second = (simulate_job(job_of(variant, cluster, 100), "event", timeline=True) for _ in range(2))
            bits = [(r.seconds.hex(), r.latency_seconds.hex(), r.bandwidth_seconds.hex()) for r in (first, second)]
            assert bits[0] == bits[1]
            assert first.timeline == second.timeline
            assert simulate_job(job_of(variant, cluster, 100), "event").seconds == first.seconds
