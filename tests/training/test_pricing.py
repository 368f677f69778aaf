"""What collectives of a step cost: by formulas worked by hand, against engines, and each size once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Change, Cluster, Device, Link
from simcollectives.engines import simulate
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.job import Job, make_job
from simcollectives.errors import InputError
from simcollectives.training import pricing
from simcollectives.training.pricing import FREE, Pricer, default_choices
from simcollectives.training.program import Call

LINK, INTRA, INTER = Link(5e-6, 100e9), Link(2e-6, 400e9), Link(10e-6, 50e9)
FLAT = Cluster.flat(8, LINK)
NODES = Cluster.two_level(4, 8, INTRA, INTER)
SLOW_CARD = FLAT.with_changes(Change(rank=3, bandwidth=0.5))


def all_reduce(elements: int, cluster: Cluster = FLAT, dtype: str = "float32") -> Call:
    return Call("all_reduce", "world", cluster.world_size, elements, dtype)


def test_a_ring_costs_its_closed_form() -> None:
    """2 (N - 1) alpha and 2 (N - 1)/N M/B; each rank sends 2 (N - 1)/N M, at the port's bandwidth but for alpha."""
    price = Pricer(FLAT)(all_reduce(8_000_000))
    size = 32_000_000
    assert price.seconds == pytest.approx(14 * 5e-6 + 2 * 7 / 8 * size / 100e9, rel=1e-12)
    assert price.latency_seconds == pytest.approx(14 * 5e-6)
    assert price.sent_bytes == 2 * 7 * size // 8
    assert (price.algorithm, price.engine) == ("ring", "closed_form")
    assert list(price.use.values()) == pytest.approx([price.sent_bytes / (100e9 * price.seconds)])


def test_two_levels_by_default() -> None:
    """All-reduce in nodes and between them: (G - 1)/G M twice inside, (n - 1)/n of M/G twice outside."""
    size = 32_000_000
    price = Pricer(NODES)(all_reduce(8_000_000, NODES))
    inside, outside = 2 * 7 / 8 * size, 2 * 3 / 4 * size / 8
    assert price.seconds == pytest.approx(14 * 2e-6 + 6 * 10e-6 + inside / 400e9 + outside / 50e9, rel=1e-12)
    assert price.sent_bytes == inside + outside
    assert price.algorithm == "hierarchical"
    assert price.use == pytest.approx(
        {"intra": inside / 400e9 / price.seconds, "inter": outside / 50e9 / price.seconds}
    )


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        (FLAT, {"all_reduce": "ring", "broadcast": "tree", "reduce": "tree", "all_to_all": "pairwise"}),
        (NODES, {"all_reduce": "hierarchical", "all_gather": "rotated_rings", "broadcast": "tree"}),
        (Cluster.two_level(4, 1, INTRA, INTER), {"all_reduce": "ring", "reduce_scatter": "ring"}),
        (Cluster.two_level(1, 8, INTRA, INTER), {"all_reduce": "ring", "all_gather": "ring"}),
    ],
)
def test_default_algorithms(cluster: Cluster, expected: dict[str, str]) -> None:
    found = default_choices(cluster)
    assert set(found) == {algorithm.collective for algorithm in ALGORITHMS}
    assert {kind: found[kind][0] for kind in expected} == expected


def test_choices_name_algorithms_and_options() -> None:
    price = Pricer(FLAT, {"all_reduce": ("parameter_server", {"servers": 2})})(all_reduce(8_000_000))
    assert price.algorithm == "parameter_server (servers: 2)"
    # Two servers each receive half of 8 messages, then send it; a worker sends its message once. Servers are no ranks.
    assert price.seconds == pytest.approx(2 * (5e-6 + 8 * 16_000_000 / 100e9), rel=1e-12)
    assert price.sent_bytes == 32_000_000
    assert price.use == pytest.approx({"link": 8 * 16_000_000 / 100e9 / price.seconds})


@pytest.mark.parametrize("cluster", [SLOW_CARD, Cluster.torus((2, 4), LINK)], ids=["slow", "torus"])
def test_what_has_no_closed_form_is_simulated(cluster: Cluster) -> None:
    price = Pricer(cluster)(all_reduce(8_000_000))
    run = simulate("all_reduce", price.algorithm.split(" ")[0], cluster, message_bytes=32_000_000)
    assert run.closed_form_seconds is None
    assert (price.seconds, price.latency_seconds, price.engine) == (run.seconds, run.latency_seconds, run.engine)
    assert price.sent_bytes == run.bytes_sent_max


def test_a_slow_port_is_in_use_all_the_time() -> None:
    """The ring waits for a card of half the bandwidth, which is nearly always busy, as others are half of the time."""
    price = Pricer(SLOW_CARD)(all_reduce(8_000_000))
    (use,) = price.use.values()
    assert use == pytest.approx((price.seconds - price.latency_seconds) / price.seconds, rel=1e-9)
    assert use > 0.9


def test_sizes_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, counted = [], []

    def make(*arguments: Any) -> Any:
        made.append(arguments)
        return make_job(*arguments)

    def count(job: Any) -> Any:
        counted.append(job)
        return count_bytes_sent(job)

    monkeypatch.setattr(pricing, "make_job", make)
    monkeypatch.setattr(pricing, "count_bytes_sent", count)
    pricer = Pricer(NODES)
    first = [pricer(all_reduce(elements, NODES)) for elements in (320, 3200, 3201, 320, 3201)]
    assert len(made) == 3
    assert len(counted) == 2, "even sizes are in proportion, and counted together"
    assert first[0] is first[3]
    expected = [int(count_bytes_sent(make_job(*one)).sum(axis=0).max()) for one in made]
    assert [price.sent_bytes for price in first[:3]] == expected


@pytest.mark.parametrize("kind", sorted({algorithm.collective for algorithm in ALGORITHMS}))
@pytest.mark.parametrize("elements", [640, 641, 7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cluster", [FLAT, NODES], ids=["flat", "nodes"])
def test_prices_equal_the_engines(kind: str, elements: int, dtype: str, cluster: Cluster) -> None:
    call = Call(kind, "world", cluster.world_size, elements, dtype)
    price = Pricer(cluster)(call)
    name, options = default_choices(cluster)[kind]
    run = simulate(kind, name, cluster, message_bytes=call.bytes, options=options, dtype=dtype)
    assert price.seconds == pytest.approx(run.seconds, rel=1e-12)
    assert price.latency_seconds == pytest.approx(run.latency_seconds, rel=1e-12)
    assert price.sent_bytes == run.bytes_sent_max


def port_shares(job: Job, seconds: float) -> dict[str, float]:
    """The largest share of the time in which a port of each level passes bytes, in either direction."""
    cluster, moved = job.full_cluster, Counter[tuple[int, int, str]]()
    for channel in range(len(job.schedule.channels)):
        for round_ in job.schedule.rounds_of(channel):
            level = cluster.network.levels_crossed(round_.src, round_.dst)
            rows = zip(round_.src, round_.dst, level, job.layout.row_elements(round_), strict=True)
            for src, dst, where, count in rows:
                moved[where, src, "out"] += count * job.itemsize
                moved[where, dst, "in"] += count * job.itemsize
    shares: dict[str, float] = {}
    for (where, _, _), size in moved.items():
        name, link = cluster.levels[where].name, cluster.levels[where].link
        shares[name] = max(shares.get(name, 0.0), size / link.bandwidth / seconds)
    return shares


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=[f"{a.collective}-{a.name}" for a in ALGORITHMS])
@pytest.mark.parametrize("size", [64_000, 5])
def test_no_port_carries_more_than_its_use(algorithm: Any, size: int) -> None:
    """Against bytes that are counted on each port, sent or received, message by message."""
    for cluster in (Cluster.flat(8, LINK), Cluster.two_level(2, 4, INTRA, INTER)):
        choices = {algorithm.collective: (algorithm.name, {})}
        try:
            price = Pricer(cluster, choices)(Call(algorithm.collective, "world", 8, size, "int8"))
        except InputError:
            continue
        job = make_job(algorithm.collective, algorithm.name, cluster, size, None, "int8")
        counted = port_shares(job, price.seconds)
        assert set(price.use) == set(counted)
        for level, share in counted.items():
            assert share <= price.use[level] * (1 + 1e-12)
            assert price.use[level] <= 1
            if job.layout.even:
                assert price.use[level] == pytest.approx(share, rel=1e-12)


@pytest.mark.parametrize("kind", ["all_reduce", "broadcast", "all_gather"])
def test_nothing_is_paid_for_nothing(kind: str) -> None:
    """NCCL drops a collective without elements; one rank has nobody to talk to."""
    assert Pricer(FLAT)(Call(kind, "world", 8, 0, "float32")) == FREE
    assert Pricer(Cluster.flat(1, LINK))(Call(kind, "world", 1, 4096, "float32")) == FREE
    assert (FREE.seconds, FREE.sent_bytes, dict(FREE.use)) == (0.0, 0, {})


def test_latency_without_bytes_is_paid() -> None:
    """One element on eight ranks: the rounds cost their alphas all the same, and gamma is paid by element."""
    cluster = Cluster.flat(8, LINK, device=Device(reduction_seconds_per_byte=1e-9))
    price = Pricer(cluster)(all_reduce(1))
    assert price.seconds == pytest.approx(14 * (5e-6 + 4 / 100e9) + 7 * 4e-9, rel=1e-12)


def test_errors() -> None:
    with pytest.raises(InputError, match="ranks cannot be divided into groups of 3"):
        Pricer(FLAT)(Call("all_gather", "shard", 3, 96, "float32"))
    with pytest.raises(InputError, match="dedicated servers need a flat cluster"):
        Pricer(NODES, {"all_reduce": ("parameter_server", {})})(all_reduce(600, NODES))
