"""Sibling groups: each is priced as what it sees alone where that is exact, which all of them together must confirm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.cluster.unequal import Uplink
from simcollectives.engines.job import make_job
from simcollectives.engines.simulate import simulate_job
from simcollectives.errors import InputError
from simcollectives.training.groups import all_together, members_of, seen_alone, undisturbed
from simcollectives.training.pricing import Pricer, default_choices
from simcollectives.training.program import Call

INTRA, INTER = Link(2e-6, 400e9, 1e-7), Link(10e-6, 50e9, 3e-7)


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Cluster, Call]:
    nodes, inner = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    order = draw(st.sampled_from(["node_major", "round_robin"]))
    cluster = draw(
        st.sampled_from(
            [
                Cluster.two_level(nodes, inner, INTRA, INTER, rank_order=order),
                Cluster.flat(nodes * inner, INTRA),
            ]
        )
    )
    n = cluster.world_size
    size = draw(st.sampled_from([size for size in range(1, n + 1) if n % size == 0]))
    stride = draw(st.sampled_from([stride for stride in range(1, n + 1) if n % (size * stride) == 0]))
    kind = draw(st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "all_to_all"]))
    return cluster, Call(kind, "some", size, draw(st.integers(1, 50)) * size * n, "float32", stride)


@given(grouped())
def test_a_group_alone_takes_as_long_as_beside_its_siblings(question: tuple[Cluster, Call]) -> None:
    cluster, call = question
    alone = seen_alone(cluster, call)
    assert alone.world_size == call.group_size
    if not undisturbed(cluster, call) or call.group_size == 1:
        return
    name, options = default_choices(alone)[call.kind]
    job = make_job(call.kind, name, alone, call.bytes, options)
    assert simulate_job(all_together(job, cluster, call), "event").seconds == pytest.approx(
        simulate_job(job, "event").seconds, rel=1e-12
    )


@given(grouped())
def test_every_rank_is_in_one_group(question: tuple[Cluster, Call]) -> None:
    cluster, call = question
    groups = members_of(cluster.world_size, call)
    assert sorted(groups.ravel().tolist()) == list(range(cluster.world_size))
    assert {len({call.siblings(rank) for rank in group}) for group in groups.tolist()} == {1}
    assert len({call.siblings(group[0]) for group in groups.tolist()}) == len(groups)


def test_groups_that_share_a_network_port_wait_for_each_other() -> None:
    """Eight rings of two ranks between two nodes: each has the port of its device, or an eighth of the node's one."""
    own = Cluster.two_level(2, 8, Link(0.0, 400e9), Link(0.0, 50e9))
    shared = own.with_uplinks(Uplink("nic", "inter", 50e9, devices=8))
    call = Call("all_reduce", "replicate", 2, 1_000_000, "float32", stride=8)
    assert Pricer(own)(call).seconds == pytest.approx(2 * 2_000_000 / 50e9)
    assert Pricer(shared)(call).seconds == pytest.approx(8 * 2 * 2_000_000 / 50e9)
    inside = Call("all_reduce", "shard", 8, 1_000_000, "float32")
    assert Pricer(shared)(inside).seconds == pytest.approx(2 * 7 / 8 * 4_000_000 / 400e9)


def test_ranks_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(InputError, match=r"shard: 16 ranks cannot be divided into groups of 3"):
        Pricer(Cluster.flat(16, INTRA))(Call("all_reduce", "shard", 3, 12, "float32"))


def test_large_uneven_rings_are_priced_with_equal_chunks() -> None:
    """1,024 chunks of 976 or 977 elements take as long as 1,024 of 977; a rank sends all but one of 128 parts."""
    pricer = Pricer(Cluster.two_level(16, 8, INTRA, INTER))
    price = pricer(Call("all_gather", "world", 128, 976 * 1024 + 1, "float32"))
    assert price.engine == "closed_form of equal chunks"
    assert price.seconds == pricer(Call("all_gather", "world", 128, 977 * 1024, "float32")).seconds
    assert price.sent_bytes == pytest.approx(127 / 128 * 4 * (976 * 1024 + 1), abs=8)
