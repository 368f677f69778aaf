"""Laws of the time variants one_port and loggp, over every algorithm with every option.

Closed form = execution wherever one is stated; the textbooks' forms, written again here, are among them. The parts sum
to the time, the bounds hold, ports and CPUs do one thing at a time. One port: never later than lockstep where every
rank sends and receives at most one message a round, and a faster link never lengthens a run, whatever the schedule.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import Job, LogGP, OnePort, Run, TimeModel, simulate_job
from simcollectives.engines.variants import variant_closed_form
from tests.laws.cases import (
    DEVICE,
    FEW_SIZES,
    FLAT_VARIANTS,
    LINK,
    VARIANTS,
    WORLD_SIZES,
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
from tests.laws.test_time import check_parts, slowest_edge
from tests.laws.variant_schedules import (
    binary_broadcast,
    chain,
    flat_tree,
    heap_tree,
    in_order_tree,
    incast,
    job_of_rounds,
    segmented_ring,
)

ONE_PORT = OnePort()
LOGGP: tuple[LogGP, ...] = (
    LogGP(),
    LogGP(overhead=1.1e-6, gap=9e-7),
    LogGP(gap=9e-7, order="event"),
    LogGP(gap=9e-7, protocol="rendezvous"),
    LogGP(overhead=5e-7, gap=3e-5),
)
MODELS: tuple[OnePort | LogGP, ...] = (ONE_PORT, *LOGGP)
SHAPES = ((1, 4), (3, 1), (2, 2), (2, 3), (4, 2), (3, 4))
EVEN = 8 * 60  # elements for each pair of ranks: a whole number for each chunk of every algorithm here
Options = Mapping[str, Any]


def even_job(variant: Variant, cluster: Cluster) -> Job:
    return job_of(variant, cluster, EVEN * cluster.world_size)


def check_form(job: Job, model: OnePort | LogGP) -> bool:
    """Whether there is a closed form; it must be the time."""
    form, run = variant_closed_form(job, model), simulate_job(job, time=model)
    check_parts(run)
    assert (run.engine, run.time) == ("event", model.name)
    assert run.seconds >= run.lower_bound_seconds * (1 - 1e-12), describe(job)
    if form is None:
        assert run.closed_form_seconds is None
        return False
    assert run.closed_form_seconds == form.seconds
    assert math.isclose(run.seconds, form.seconds, rel_tol=tolerance(run.rounds)), (describe(job), model)
    parts = (run.latency_seconds, run.bandwidth_seconds, run.reduction_seconds)
    closed = (sum(form.latency), sum(form.bandwidth), form.reduction)
    if job.cluster.uniform_link is not None and isinstance(model, OnePort):
        assert parts == pytest.approx(closed, rel=1e-9), describe(job)
    return True


# --- one port, uniform cluster


def ceil_log2(n: int) -> int:
    return (n - 1).bit_length()


def _rooted(n: int, _options: Options) -> tuple[float, float, float]:
    return n - 1, n - 1, n - 1


def _log(passes: int, share: bool) -> Callable[[int, Options], tuple[float, float, float]]:
    def form(n: int, _options: Options) -> tuple[float, float, float]:
        rounds = passes * ceil_log2(n)
        return rounds, passes * (n - 1) / n if share else rounds, (n - 1) / n if share else ceil_log2(n)

    return form


def _ring(passes: int) -> Callable[[int, Options], tuple[float, float, float]]:
    return lambda n, _options: (passes * (n - 1), passes * (n - 1) / n, (n - 1) / n)


def _butterfly(n: int, _options: Options) -> tuple[float, float, float]:
    length, fold = n.bit_length() - 1, int(n & (n - 1) > 0)
    return length + 2 * fold, length + 2 * fold, length + fold


def _rabenseifner(n: int, _options: Options) -> tuple[float, float, float]:
    length, fold = n.bit_length() - 1, int(n & (n - 1) > 0)
    half = ((1 << length) - 1) / (1 << length)
    return 2 * length + 2 * fold, 2 * half + 2 * fold, half + fold


def _servers(n: int, options: Options) -> tuple[float, float, float]:
    if n == 1 or options["servers"] == "co_located":
        return _ring(2)(n, options)
    k = options["servers"]
    return 2 * max(n, k), 2 * max(n, k) / k, n / k


ONE_PORT_FORMS: Mapping[tuple[str, str], Callable[[int, Options], tuple[float, float, float]]] = {
    ("all_reduce", "naive"): _rooted,
    ("all_reduce", "direct"): _ring(2),
    ("all_reduce", "ring"): _ring(2),
    ("all_reduce", "tree"): _log(2, share=False),
    ("all_reduce", "butterfly"): _butterfly,
    ("all_reduce", "rabenseifner"): _rabenseifner,
    ("all_reduce", "circulant"): _log(2, share=True),
    ("all_reduce", "parameter_server"): _servers,
    ("reduce_scatter", "ring"): _ring(1),
    ("reduce_scatter", "direct"): _ring(1),
    ("reduce_scatter", "circulant"): _log(1, share=True),
    ("all_gather", "ring"): _ring(1),
    ("all_gather", "direct"): _ring(1),
    ("all_gather", "circulant"): _log(1, share=True),
    ("all_to_all", "direct"): _ring(1),
    ("all_to_all", "pairwise"): _ring(1),
    ("broadcast", "direct"): _rooted,
    ("broadcast", "tree"): _log(1, share=False),
    ("reduce", "direct"): _rooted,
    ("reduce", "tree"): _log(1, share=False),
}
"""Messages on the critical path, and bytes sent and reduced there in M: alpha + o, 1 / B and gamma times these."""


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_one_port_has_a_closed_form_on_every_uniform_cluster(variant: Variant) -> None:
    textbook = ONE_PORT_FORMS.get((variant.collective, variant.name))
    for n in WORLD_SIZES:
        if not fits(variant, flat(n)):
            continue
        job = even_job(variant, flat(n))
        has_form = check_form(job, ONE_PORT)
        if not has_form:
            # Servers that outnumber the workers, and channels, add while ports are busy: with gamma no form is exact.
            assert len(job.schedule.channels) > 1 or dict(variant.options)["servers"] > n
            job = even_job(variant, flat(n, LINK, Device()))
            assert check_form(job, ONE_PORT)
        if textbook is None:
            continue
        messages, lengths, reduced = textbook(n, dict(variant.options))
        adds = "reduce" in variant.collective
        size = job.message_bytes
        by_hand = messages * (LINK.alpha + LINK.overhead) + lengths * size / LINK.bandwidth
        by_hand += reduced * size * DEVICE.reduction_seconds_per_byte if adds and has_form else 0
        assert math.isclose(simulate_job(job, time=ONE_PORT).seconds, by_hand, rel_tol=1e-12), describe(job)


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_uneven_chunks_have_no_stated_form_and_take_no_longer_than_the_longest_chunks_would(variant: Variant) -> None:
    for n in (3, 7, 8):
        if not fits(variant, flat(n)):
            continue
        job = job_of(variant, flat(n), 5 * n + 3)
        run = simulate_job(job, time=ONE_PORT)
        assert job.layout.even or run.closed_form_seconds is None
        longest = replace(job.layout, elements=-(-(5 * n + 3) // job.layout.chunks) * job.layout.chunks)
        if job.layout.period == 0:
            assert run.seconds <= simulate_job(replace(job, layout=longest), time=ONE_PORT).seconds * (1 + 1e-12)


def one_port_units(rounds: list[Any], n: int, chunks: int = 1) -> float:
    """Seconds in units of one message's alpha + n / B."""
    link = Link(alpha=3e-6, bandwidth=1e9)
    job = job_of_rounds(flat(n, link, Device()), rounds, chunks, 1000)
    return simulate_job(job, time=ONE_PORT).seconds / 4e-6


@pytest.mark.parametrize(("n", "units"), [(3, 4), (7, 8), (15, 12), (31, 16), (8, 9), (16, 13), (32, 17)])
def test_heap_tree(n: int, units: int) -> None:
    """4h on full trees, 4 (h - 1) + 1 where the last level has one rank."""
    assert one_port_units(heap_tree(n), n) == pytest.approx(units, rel=1e-12)


def test_the_published_one_port_times() -> None:
    assert one_port_units(in_order_tree(8), 8) == pytest.approx(10, rel=1e-12)
    for n in (2, 3, 8, 13):
        assert one_port_units(flat_tree(n), n) == pytest.approx(2 * (n - 1), rel=1e-12)
        for k in (1, 3, 8):
            assert one_port_units(chain(n, k), n, k) == pytest.approx(n - 2 + k, rel=1e-12)
            if n < 13:
                assert one_port_units(segmented_ring(n, k), n, n * k) == pytest.approx(2 * (n - 1) * k, rel=1e-12)
    for n, h in ((3, 1), (7, 2), (15, 3), (31, 4)):
        for k in (1, 4, 7):
            assert one_port_units(binary_broadcast(n, k), n, k) == pytest.approx(2 * (h + k - 1), rel=1e-12)
            assert one_port_units(binary_broadcast(n - 1, k), n - 1, k) <= 2 * (h + k - 1) * (1 + 1e-12)


@pytest.mark.parametrize("n", [4, 8, 32])
def test_incast_nearly_doubles_naive(n: int) -> None:
    """143 against 77 at N = 8 and 671 against 341 at N = 32, in units of (alpha + m) / 11: 2 N - 3 against N - 1."""
    assert one_port_units(incast(n), n) == pytest.approx(2 * n - 3, rel=1e-12)
    shifted = [[(i, (i + k) % n, 0, True) for i in range(n) for k in range(1, n)]]
    assert one_port_units(shifted, n) == pytest.approx(n - 1, rel=1e-12)


# --- one port, two levels

LINKS = st.builds(Link, alpha=st.floats(0, 1e-3), bandwidth=st.floats(1e6, 1e12), overhead=st.floats(0, 1e-4))
DEVICES = st.builds(Device, reduction_seconds_per_byte=st.just(0.0) | st.floats(0, 1e-9))


@each_of(VARIANTS)
@pytest.mark.parametrize("model", [ONE_PORT, LogGP(gap=9e-7)], ids=["one_port", "loggp"])
def test_two_levels(variant: Variant, model: OnePort | LogGP) -> None:
    for shape in SHAPES:
        for order in rank_orders(*shape):
            cluster = two_level(*shape, order)
            if not fits(variant, cluster):
                continue
            has_form = check_form(even_job(variant, cluster), model)
            if variant.name in ("ring", "hierarchical") and isinstance(model, OnePort):
                assert has_form


@settings(max_examples=25)
@given(
    data=st.data(), variant=st.sampled_from(VARIANTS), shape=st.sampled_from(SHAPES), intra=LINKS, inter=LINKS,
    device=DEVICES, level=st.sampled_from(["intra", "inter"]), factor=st.floats(1, 100),
)  # fmt: skip
def test_any_two_levels_under_one_port(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device,
    level: str, factor: float,
) -> None:  # fmt: skip
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order, intra, inter, device)
    if not fits(variant, cluster):
        return
    job = job_of(variant, cluster, data.draw(st.integers(0, 10**6), label="elements"))
    check_form(job, ONE_PORT)
    seconds, near = simulate_job(job, time=ONE_PORT).seconds, 1 + tolerance(job.schedule.rounds)
    if is_private(job):
        assert seconds <= simulate_job(job, "lockstep").seconds * near, describe(job)
    if level in [x.name for x in cluster.levels]:
        link = cluster.level(level).link
        fast = cluster.with_link(level, Link(link.alpha / factor, link.bandwidth * factor, link.overhead / factor))
        faster = simulate_job(replace(job, cluster=fast, full_cluster=fast), time=ONE_PORT).seconds
        assert faster <= seconds * near, describe(job)


@settings(max_examples=25)
@given(
    data=st.data(), shape=st.sampled_from(SHAPES), intra=LINKS, inter=LINKS,
    collective=st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]),
)  # fmt: skip
def test_heterogeneous_ring_runs_at_the_pace_of_its_slowest_edge(
    data: st.DataObject, shape: tuple[int, int], intra: Link, inter: Link, collective: str
) -> None:
    order = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order, intra, inter, Device())
    variant = next(v for v in VARIANTS if (v.collective, v.name) == (collective, "ring"))
    chunk = data.draw(st.integers(0, 10**6), label="elements of a chunk")
    job = job_of(variant, cluster, chunk * cluster.world_size)
    rounds = (2 if collective == "all_reduce" else 1) * (cluster.world_size - 1)
    by_hand = rounds * slowest_edge(cluster, 4 * chunk)
    assert math.isclose(simulate_job(job, time=ONE_PORT).seconds, by_hand, rel_tol=tolerance(rounds))


# --- loggp


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
@pytest.mark.parametrize("model", LOGGP, ids=str)
def test_loggp_closed_form_is_the_time(variant: Variant, model: LogGP) -> None:
    forms = [check_form(even_job(variant, flat(n)), model) for n in FEW_SIZES if fits(variant, flat(n))]
    if variant.name in ("ring", "pairwise", "circulant") and model.order == "program" and model.gap < 1e-5:
        assert all(forms)


def point_to_point(model: LogGP, link: Link, message_bytes: float) -> float:
    overhead = link.overhead if model.overhead is None else model.overhead
    return 2 * overhead + link.alpha + message_bytes / link.bandwidth


def seconds_of(collective: str, name: str, n: int, model: TimeModel, device: Device | None = None) -> tuple[float, int]:
    variant = next(v for v in VARIANTS if (v.collective, v.name) == (collective, name))
    job = even_job(variant, flat(n, LINK, device or Device()))
    return simulate_job(job, time=model).seconds, job.message_bytes


@pytest.mark.parametrize("model", LOGGP, ids=str)
def test_loggp_broadcasts_and_rings_by_the_books(model: LogGP) -> None:
    overhead = LINK.overhead if model.overhead is None else model.overhead
    pause = overhead + (LINK.alpha if model.protocol == "rendezvous" else 0)
    for n in WORLD_SIZES[1:]:
        seconds, size = seconds_of("broadcast", "direct", n, model)
        data = size / LINK.bandwidth
        one = point_to_point(model, LINK, size)
        assert math.isclose(seconds, (n - 2) * max(overhead, model.gap + data) + one, rel_tol=1e-12)
        seconds, _ = seconds_of("broadcast", "tree", n, model)
        assert math.isclose(seconds, binomial(n, one, max(pause, model.gap + data)), rel_tol=1e-12)
        if n & (n - 1) == 0 and model.gap < 1e-5:
            assert math.isclose(seconds, ceil_log2(n) * one, rel_tol=1e-12)
        if model.gap < 1e-5:
            seconds, size = seconds_of("all_reduce", "ring", n, model)
            by_hand = 2 * (n - 1) * point_to_point(model, LINK, size / n)
            assert math.isclose(seconds, by_hand, rel_tol=1e-12)


def binomial(n: int, one: float, pause: float) -> float:
    """When the last rank has the message: each rank sends to its children, farthest first, ``pause`` apart."""
    has, todo = {0: 0.0}, [(0, ceil_log2(n))]
    while todo:
        rank, limit = todo.pop()
        children = [(rank + (1 << k), k) for k in reversed(range(limit)) if rank + (1 << k) < n]
        for position, (child, k) in enumerate(children):
            has[child] = has[rank] + position * pause + one
            todo.append((child, k))
    assert len(has) == n
    return max(has.values())


def test_orders_agree_where_nothing_can_start_early() -> None:
    for name, collective in (("ring", "all_reduce"), ("direct", "broadcast"), ("tree", "broadcast")):
        for n in (2, 5, 8, 13):
            program = seconds_of(collective, name, n, LogGP(gap=9e-7), DEVICE)
            assert seconds_of(collective, name, n, LogGP(gap=9e-7, order="event"), DEVICE) == program


@pytest.mark.parametrize("z", [100, 1000, 100_000])
@pytest.mark.parametrize(("n", "k"), [(4, 2), (4, 4), (8, 4), (8, 8), (16, 2)])
def test_segmented_ring_overlaps_in_event_order_only(n: int, k: int, z: int) -> None:
    """Within 13 % of 2 (N - 1) max(k max(2 o + z G, g + z G), 2 o + L + z G); in program order k times a message."""
    latency, overhead, gap, per_byte = 2.5e-6, 1.5e-6, 1e-6, 6e-12
    job = job_of_rounds(flat(n, Link(latency, 1 / per_byte, overhead), Device()), segmented_ring(n, k), n * k, z)
    one = 2 * overhead + latency + z * per_byte
    bound = 2 * (n - 1) * max(k * max(2 * overhead + z * per_byte, gap + z * per_byte), one)
    event = simulate_job(job, time=LogGP(gap=gap, order="event")).seconds
    assert bound * (1 - 1e-12) <= event <= 1.13 * bound
    program = simulate_job(job, time=LogGP(gap=gap)).seconds
    assert math.isclose(program, 2 * (n - 1) * k * one, rel_tol=1e-12)


def test_segmented_ring_moves_in_convoy_where_the_port_is_slower_than_the_latency() -> None:
    """Where g + z G > o + L the first head comes before the port is free again: every segment takes 2 o + L + z G.

    By hand, in us, o 1.5, L 2.5, g 1, z G 6: send 0-1.5, port busy to 7, head at 4, receive 4-11.5, next send at 11.5.
    """
    link = Link(2.5e-6, 1 / 6e-12, 1.5e-6)
    job = job_of_rounds(flat(8, link, Device()), segmented_ring(8, 4), 32, 1_000_000)
    for order in ("program", "event"):
        seconds = simulate_job(job, time=LogGP(gap=1e-6, order=order)).seconds  # type: ignore[arg-type]
        assert math.isclose(seconds, 14 * 4 * 11.5e-6, rel_tol=1e-12)


def test_circulant_gains_from_event_order_where_late_rounds_carry_early_data() -> None:
    """Down to 0.64 of q (2 o + L) at N = 3 where latency counts; not for powers of two."""
    job = even_job(next(v for v in VARIANTS if v.name == "circulant"), flat(3, Link(2.5e-6, 1e15, 1.5e-6), Device()))
    program = simulate_job(job, time=LogGP(gap=1e-6)).seconds
    event = simulate_job(job, time=LogGP(gap=1e-6, order="event")).seconds
    assert event / program == pytest.approx(0.6364, abs=1e-3)
    for n in (4, 8, 16):
        job = even_job(next(v for v in VARIANTS if v.name == "circulant"), flat(n))
        orders = [simulate_job(job, time=LogGP(order=order)).seconds for order in ("program", "event")]  # type: ignore[arg-type]
        assert orders[0] == pytest.approx(orders[1], rel=1e-12)


# --- both


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_ports_and_cpus_do_one_thing_at_a_time(variant: Variant) -> None:
    for cluster in (flat(5), flat(8), two_level(2, 3, "round_robin")):
        if not fits(variant, cluster):
            continue
        job = job_of(variant, cluster, 5 * cluster.world_size + 3)
        for model in MODELS:
            run = simulate_job(job, timeline=True, time=model)
            check_rows(run, isinstance(model, OnePort))
            assert run.seconds == simulate_job(job, time=model).seconds
            assert run.bytes_sent.tolist() == simulate_job(job, "event").bytes_sent.tolist()


def check_rows(run: Run, one_port: bool) -> None:
    rows = run.timeline
    assert rows is not None
    busy: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    sent = 0
    for rank, stream, start, end, size in zip(rows.rank, rows.stream, rows.start, rows.end, rows.bytes, strict=True):
        assert 0 <= start <= end <= run.seconds * (1 + 1e-12) or stream.startswith("send")
        sent += size if stream.startswith("send") else 0
        if one_port or not stream.startswith("send"):
            busy[rank, stream if one_port else "cpu"].append((start, end))
    assert sent == run.bytes_sent_total
    for spans in busy.values():
        spans.sort()
        assert all(end <= start * (1 + 1e-12) for (_, end), (start, _) in pairwise(spans))


def test_a_tree_whose_root_may_send_again_before_it_was_received_has_no_form() -> None:
    """Both sends of the root are asked for at once; one after another they take about twice as long."""
    (tree,) = (
        variant
        for variant in VARIANTS
        if (variant.algorithm.collective, variant.name) == ("broadcast", "tree")
        and dict(variant.options).get("root") == 0
    )
    job = job_of(tree, Cluster.flat(3, Link(1e-4, 1e6)), 1)
    model = LogGP(gap=0.0, protocol="rendezvous", threshold=0, order="event")
    assert variant_closed_form(job, model) is None
    assert variant_closed_form(job, LogGP(gap=0.0, protocol="rendezvous", threshold=0)) is not None
    check_form(job, model)


@settings(max_examples=40)
@given(
    data=st.data(), variant=st.sampled_from(VARIANTS), shape=st.sampled_from(SHAPES), intra=LINKS, inter=LINKS,
    device=DEVICES, overhead=st.none() | st.floats(0, 1e-4), gap=st.floats(0, 1e-4),
    protocol=st.sampled_from(["eager", "rendezvous"]), order=st.sampled_from(["program", "event"]),
    threshold=st.sampled_from([0, 1000]),
)  # fmt: skip
def test_any_loggp_ends_and_keeps_the_bounds(
    data: st.DataObject, variant: Variant, shape: tuple[int, int], intra: Link, inter: Link, device: Device,
    overhead: float | None, gap: float, protocol: Any, order: Any, threshold: float,
) -> None:  # fmt: skip
    order_of_ranks = tuple(data.draw(st.permutations(range(shape[0] * shape[1])), label="rank order"))
    cluster = two_level(*shape, order_of_ranks, intra, inter, device)
    if fits(variant, cluster):
        job = job_of(variant, cluster, data.draw(st.integers(0, 10**4), label="elements"))
        check_form(job, LogGP(overhead, gap, protocol, threshold, order))
