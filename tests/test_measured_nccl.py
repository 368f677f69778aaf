"""NCCL's cost model: hand-written arithmetic from the constants of NCCL 2.30.7 src/graph/tuning.cc, rules, switches."""

from __future__ import annotations

import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simcollectives.cluster import ChannelGraph, NcclGraph, load_machine
from simcollectives.errors import InputError
from simcollectives.measured.nccl import (
    ALGORITHMS,
    COLLECTIVE_ALGORITHMS,
    PROTOCOLS,
    Candidate,
    Model,
    candidate_seconds,
    choose,
    kinks,
    nccl_model,
    predict,
    ranges,
    switches,
)

KIB, MIB = 1024, 1 << 20


def graph_of(name: str) -> NcclGraph:
    found = load_machine(name).nccl
    assert found is not None
    return found


H100 = graph_of("dgx-h100")


def found(model: Model, label: str) -> tuple[float, float]:
    """Latency in us and bandwidth in GB/s."""
    one = next(one for one in model.candidates if one.label == label)
    assert one.available, one.reason
    return one.latency * 1e6, one.bandwidth / 1e9


def why(model: Model, label: str) -> str:
    return next(one.reason for one in model.candidates if one.label == label)


def test_eight_h100() -> None:
    """12 channels of 30 GB/s for ring and tree, 8 of 40 (60 outward) for NVLS; 14 steps, 7 links of a chain."""
    model = nccl_model("all_reduce", H100, 1, 8)
    assert found(model, "ring/LL") == pytest.approx((6.6 + 14 * 0.6, min(141, 0.5 * 360) * 8 / 14))
    assert found(model, "ring/LL128") == pytest.approx((14.0 + 14 * 1.9, min(0.92 * 360, 12 * 36.7) * 8 / 14))
    assert found(model, "ring/Simple") == pytest.approx((8.4 + 14 * 3.4, 360 * 8 / 14))
    tree = min(0.92 * 360, 12 * 38.7)
    assert found(model, "tree/LL") == pytest.approx((6.8 + 2 * 7 * 0.6, min(tree / 3.8, 141) / 2))
    assert found(model, "tree/LL128") == pytest.approx((14.0 + 2 * 7 * 1.25, min(tree * 7 / 9, 12 * 36.7) / 2))
    assert found(model, "tree/Simple") == pytest.approx((8.4 + 2 * 7 * 4.0, tree / 2))
    nvls = 8 * min(40 * 0.85 * 7 / 8 * 2, 60)  # 476 GB/s
    assert found(model, "nvls/Simple") == pytest.approx((25.0, nvls * 8 / 14))


def test_four_nodes_of_eight_h100() -> None:
    """8 channels of 48 GB/s; NVLS 8 of 45 and 48. 62 steps, of which 6 cross nodes; two levels of the tree."""
    model = nccl_model("all_reduce", H100, 4, 8)
    ring = 8 * 48
    # Posting to the network costs 1 us on Intel, 3 us with Simple: more than 0.6, less than 1.9 and 3.4 of a step.
    assert found(model, "ring/LL") == pytest.approx((6.6 + 56 * 1.0 + 6 * 2.7, min(20.4, 0.5 * ring) * 32 / 62))
    ring_ll128 = min(0.92 * ring, 8 * 36.7)
    assert found(model, "ring/LL128") == pytest.approx((14.0 + 56 * 1.9 + 6 * 4.0, ring_ll128 * 32 / 62))
    assert found(model, "ring/Simple") == pytest.approx((8.4 + 56 * 3.4 + 6 * 14.0, ring * 32 / 62))
    tree = min(0.92 * ring, 8 * 36.0)  # 288
    assert found(model, "tree/LL") == pytest.approx((6.8 + 2 * (7 * 0.6 + 2 * 5.0), 0.85 * 20.4 / 2))
    tree_ll128 = 0.85 * min(tree * 120 / 128, 8 * 29.0)
    assert found(model, "tree/LL128") == pytest.approx((14.0 + 2 * (7 * 1.25 + 2 * 8.5), tree_ll128 / 2))
    assert found(model, "tree/Simple") == pytest.approx((8.4 + 2 * (7 * 4.0 + 2 * 14.0), 0.85 * tree / 2))
    nvls_tree = 8 * min(45 * 0.85 * 7 / 8 * 2, 48, 45.5)
    assert found(model, "nvls_tree/Simple") == pytest.approx((25 + 2 * 2 * 20.9, nvls_tree * 32 / 62))


def test_two_nodes_take_the_inside_of_a_node() -> None:
    """Two nodes: the bandwidth inside, other ceilings, and twice the way out for NVLS-Tree."""
    graph = replace(H100, several_nodes={**H100.several_nodes, "ring": ChannelGraph(8, 40e9, 20e9)})
    model = nccl_model("all_reduce", graph, 2, 8)
    assert found(model, "ring/Simple") == pytest.approx((8.4 + 28 * 3.4 + 2 * 14.0, 8 * 40 * 16 / 30))
    assert found(model, "ring/LL")[1] == pytest.approx(39 * 16 / 30)
    nvls_tree = 8 * min(45 * 0.85 * 7 / 8 * 2, 2 * 48, 57.7)
    assert found(model, "nvls_tree/Simple") == pytest.approx((25 + 2 * 20.9, nvls_tree * 16 / 30))


def test_in_the_network() -> None:
    """SHARP: 8 heads of 48 GB/s on 4 nodes; with Hopper 0.85 for CollNetDirect, and all at once for gathering."""
    graph = replace(H100, sharp=True)
    model = nccl_model("all_reduce", graph, 4, 8)
    assert found(model, "collnet_direct/Simple") == pytest.approx((2 * (3.7 + 7 * 0.4) + 31, 8 * 48 * 0.85 / 2))
    assert found(model, "collnet_chain/Simple") == pytest.approx((2 * 7 * 2.8 + 30, 8 * 48 / 2))
    nvls = 8 * min(45 * 0.85 * 7 / 8 * 2, 48)
    assert found(model, "nvls/Simple") == pytest.approx((25 + 18, nvls * 32 / 62))
    gather = nccl_model("all_gather", graph, 4, 8)
    assert found(gather, "collnet_direct/Simple")[1] == pytest.approx(8 * min(48, 0.9 * 48))
    assert found(gather, "nvls/Simple")[1] == pytest.approx(8 * min(45 * 0.85 * 7 / 8 * 7 / 8, 48))
    # With 4 heads for 8 GPUs: GPUs per head 2, less half of what is over 1; and nothing for gathering.
    few = {**graph.several_nodes, "collnet_direct": ChannelGraph(4, 48e9, 48e9)}
    shared = replace(graph, several_nodes=few)
    assert found(nccl_model("all_reduce", shared, 4, 8), "collnet_direct/Simple")[1] == pytest.approx(
        4 * 48 / 1.5 * 0.85 / 2
    )
    assert "a network card for every GPU" in why(nccl_model("all_gather", shared, 4, 8), "collnet_direct/Simple")
    assert "a network card for every GPU" in why(nccl_model("reduce_scatter", shared, 4, 8), "nvls/Simple")


def test_gather_scatter_broadcast_reduce() -> None:
    for collective in ("all_gather", "reduce_scatter"):
        model = nccl_model(collective, H100, 4, 8)
        assert found(model, "ring/LL") == pytest.approx((6.6 + 28 * 1.0 + 3 * 2.7, 20.4 * 32 / 31))
        assert found(model, "ring/Simple") == pytest.approx((8.4 + 28 * 3.4 + 3 * 14.0, 8 * 48 * 32 / 31))
        assert {one.algorithm for one in model.available} == {"ring"}
        one = nccl_model(collective, H100, 1, 8)
        assert found(one, "nvls/Simple") == pytest.approx((25.0, 8 * min(40 * 0.85 * 7 / 8 * 7 / 8, 60)))
    for collective in ("broadcast", "reduce"):
        same = nccl_model(collective, H100, 1, 8)  # all rings visit the GPUs in one order: one step counts
        assert found(same, "ring/LL128") == pytest.approx((14.0 + 1.9, min(0.92 * 360, 12 * 36.7)))
        assert found(same, "ring/Simple") == pytest.approx((8.4 + 3.4, 360))
        other = nccl_model(collective, H100, 4, 8)  # different orders: n steps, of the tree's latency for Simple
        assert found(other, "ring/LL") == pytest.approx((6.6 + 32 * 2.7, 20.4))
        assert found(other, "ring/Simple") == pytest.approx((8.4 + 32 * 14.0, 8 * 48))


def test_cpu_network_latency_and_pcie() -> None:
    """AMD: 2 us to post, 6 with Simple, and other ceilings of LL; the network's latency counts twice for Simple."""
    graph = replace(H100, cpu="amd", network_latency=1e-6)
    model = nccl_model("all_reduce", graph, 4, 8)
    assert found(model, "ring/LL") == pytest.approx((6.6 + 56 * 2.0 + 6 * (2.7 + 1), 19.0 * 32 / 62))
    assert found(model, "ring/Simple")[0] == pytest.approx(8.4 + 56 * 6.0 + 6 * (14.0 + 2))
    pcie = replace(H100, link="pcie", nvswitch=False)
    one = nccl_model("all_reduce", pcie, 1, 8)
    assert found(one, "ring/Simple")[0] == pytest.approx(8.4 + 14 * 5.7)
    assert found(one, "tree/Simple")[0] == pytest.approx(8.4 + 14 * 4.0)
    power = nccl_model("all_reduce", replace(pcie, cpu="power"), 1, 8)
    assert found(power, "tree/Simple")[0] == pytest.approx(8.4 + 14 * 5.7)


def test_older_and_newer_gpus() -> None:
    a100 = nccl_model("all_reduce", graph_of("dgx-a100"), 1, 8)
    assert found(a100, "ring/LL")[1] == pytest.approx(min(87.7, 0.5 * 240) * 8 / 14)
    assert found(a100, "ring/LL128")[1] == pytest.approx(min(0.92 * 240, 12 * 20) * 8 / 14)
    assert found(a100, "tree/Simple")[1] == pytest.approx(min(0.92 * 240, 12 * 24) / 2)
    b200 = nccl_model("all_reduce", graph_of("dgx-b200"), 4, 8)
    assert found(b200, "tree/Simple")[1] == pytest.approx(0.85 * min(0.92 * 384, 8 * 24) / 2)
    assert found(b200, "nvls_tree/Simple")[1] == pytest.approx(8 * min(48 * 0.74 * 7 / 8 * 2, 48, 80) * 32 / 62)
    v100 = nccl_model("all_reduce", graph_of("dgx-2"), 4, 16)
    assert found(v100, "tree/LL128")[1] == pytest.approx(min(min(0.92 * 96, 80) * 120 / 128, 8 * 20) / 2)


def test_one_gpu_a_node() -> None:
    """The tree's network latency for all, and PAT for gathering: log2 m levels and 2.8 us a rank."""
    model = nccl_model("all_gather", H100, 16, 1)
    assert found(model, "ring/LL")[0] == pytest.approx(6.6 + 15 * 5.0)
    assert found(model, "pat/Simple") == pytest.approx((8.0 + 4 * 14.0 / 3.5 + 16 * 2.8, 0.75 * 8 * 48))
    assert "Simple only" in why(model, "pat/LL")
    assert "no pat" in why(nccl_model("all_reduce", H100, 16, 1), "pat/Simple")
    assert "one GPU a node" in why(nccl_model("all_gather", H100, 16, 8), "pat/Simple")
    assert "two GPUs" in why(nccl_model("all_reduce", H100, 16, 1), "nvls_tree/Simple")


def test_what_may_be_picked() -> None:
    one, four = nccl_model("all_reduce", H100, 1, 8), nccl_model("all_reduce", H100, 4, 8)
    assert "off on one node" in why(one, "nvls_tree/Simple")
    assert "SHARP" in why(four, "nvls/Simple")
    assert "SHARP" in why(four, "collnet_chain/Simple")
    sharp = replace(H100, sharp=True)
    assert "two nodes" in why(nccl_model("all_reduce", sharp, 1, 8), "collnet_direct/Simple")
    assert "up to 8 GPUs" in why(nccl_model("all_reduce", sharp, 4, 9), "collnet_direct/Simple")
    unswitched = nccl_model("all_reduce", replace(sharp, nvswitch=False), 4, 8)
    assert "NVSwitch" in why(unswitched, "collnet_direct/Simple")
    assert why(unswitched, "collnet_chain/Simple") == ""
    assert "NVSwitch with multicast" in why(unswitched, "nvls_tree/Simple")
    assert "Hopper" in why(nccl_model("all_reduce", graph_of("dgx-a100"), 1, 8), "nvls/Simple")
    narrow = replace(H100, one_node={**H100.one_node, "nvls": ChannelGraph(1, 40e9, 60e9)})
    assert "two channels" in why(nccl_model("all_reduce", narrow, 1, 8), "nvls/Simple")
    lacking = replace(H100, one_node={"ring": H100.one_node["ring"]})
    assert "write one_node: {tree:" in why(nccl_model("all_reduce", lacking, 1, 8), "tree/LL")
    wide = nccl_model("all_gather", replace(H100), 1, 64)
    assert "up to 32 GPUs" in why(wide, "nvls/Simple")


@pytest.mark.parametrize(
    ("machine", "path", "safe"),
    [("dgx-h100", "PXN", True), ("dgx-h100", "PHB", False), ("dgx-a100", "PXB", True), ("dgx-a100", "PXN", False)],
)
def test_ll128_is_taken_where_it_is_safe(machine: str, path: str, safe: bool) -> None:
    graph = replace(graph_of(machine), network_path=path)
    for algorithm in ("ring", "tree"):
        assert (why(nccl_model("all_reduce", graph, 2, 8), f"{algorithm}/LL128") == "") is safe
        assert why(nccl_model("all_reduce", graph, 1, 8), f"{algorithm}/LL128") == ""
        over_pcie = nccl_model("all_reduce", replace(graph, link="pcie"), 1, 8)
        assert "NVLink" in why(over_pcie, f"{algorithm}/LL128")


@pytest.mark.parametrize("collective", COLLECTIVE_ALGORITHMS)
def test_algorithms_of_a_collective(collective: str) -> None:
    model = nccl_model(collective, replace(H100, sharp=True), 4, 8)
    for one in model.candidates:
        if one.algorithm not in COLLECTIVE_ALGORITHMS[collective]:
            assert f"no {one.algorithm} for {collective}" in one.reason
    assert [one.label for one in model.candidates] == [f"{a}/{p}" for a in ALGORITHMS for p in PROTOCOLS]


def test_plateau_and_tree_factors() -> None:
    """4 nodes, 16 channels, 32 ranks: the plateau begins at 64 x 16 x 32 = 32 KiB; factors by power of two."""
    model = nccl_model("all_reduce", H100, 4, 8)
    by_label = {one.label: one for one in model.candidates}
    ring, tree = by_label["ring/Simple"], by_label["tree/LL128"]
    below, above = 32 * KIB - 1, 32 * KIB
    assert candidate_seconds(model, ring, below) == pytest.approx(ring.latency + below / ring.bandwidth)
    assert candidate_seconds(model, ring, above) == pytest.approx(1.4 * ring.latency + above / ring.bandwidth)
    for message, factor in ((63, 1), (64, 1), (2 * KIB, 0.9), (64 * KIB, 0.6), (4 * MIB - 1, 0.6), (4 * MIB, 0.8)):
        expected = tree.latency + message / (factor * tree.bandwidth)
        assert candidate_seconds(model, tree, message) == pytest.approx(expected), message
    simple = by_label["tree/Simple"]
    for message, factor in ((63, 1), (64, 0.9), (256 * MIB, 0.9), (512 * MIB, 1)):  # NCCL stops before the last entry
        assert candidate_seconds(model, simple, message) == pytest.approx(
            simple.latency + message / (factor * simple.bandwidth)
        )
    one = nccl_model("all_reduce", H100, 1, 8)
    ring = next(x for x in one.candidates if x.label == "ring/Simple")
    assert candidate_seconds(one, ring, 1 << 30) == pytest.approx(ring.latency + (1 << 30) / ring.bandwidth)
    volta = nccl_model("all_reduce", graph_of("dgx-2"), 2, 16)
    ring = next(x for x in volta.candidates if x.label == "ring/Simple")
    assert candidate_seconds(volta, ring, MIB) == pytest.approx(1.9 * ring.latency + MIB / ring.bandwidth)


def test_nvls_tree_factors_are_of_blackwell_on_x86() -> None:
    graph = graph_of("dgx-b200")
    for cpu, factor in (("intel", 0.9), ("arm", 1.0)):
        model = nccl_model("all_reduce", replace(graph, cpu=cpu), 4, 8)
        one = next(x for x in model.candidates if x.label == "nvls_tree/Simple")
        size = 512 * MIB
        assert candidate_seconds(model, one, size) == pytest.approx(one.latency + size / (factor * one.bandwidth))


def test_channels_of_the_communicator() -> None:
    """Twice the searched ones; four times few fast ones from Hopper on, between nodes."""
    assert nccl_model("all_reduce", H100, 1, 8).channels == 24  # "24 coll channels" of 8 x H100
    assert nccl_model("all_reduce", H100, 4, 8).channels == 16  # "Channel 00/16" of 3 x 8 H100, NCCL issue 1453
    few = {**H100.several_nodes, "ring": ChannelGraph(4, 48e9, 48e9), "tree": ChannelGraph(4, 48e9, 48e9)}
    assert nccl_model("all_reduce", replace(H100, several_nodes=few), 4, 4).channels == 16
    assert nccl_model("all_reduce", replace(H100, gpu="ampere", several_nodes=few), 4, 4).channels == 8


def test_protocols_come_in_order() -> None:
    """Forced ring: LL for small messages, then LL128, then Simple, on every machine and number of nodes."""
    for machine in ("dgx-2", "dgx-a100", "dgx-h100", "dgx-b200"):
        for nodes in (1, 4, 16):
            graph, gpus = graph_of(machine), load_machine(machine).gpus_per_node
            for collective in ("all_reduce", "all_gather", "broadcast"):
                model = nccl_model(collective, graph, nodes, gpus, ["ring"])
                labels = [one.label for one in ranges(model, 8, 1 << 40)]
                ordered = [label for label in ("ring/LL", "ring/LL128", "ring/Simple") if label in labels]
                assert labels == ordered, (machine, nodes, collective)
                assert labels[0] == "ring/LL"
                assert labels[-1] == "ring/Simple"


def test_switch_by_hand() -> None:
    """8 H100: ring/LL is left for NVLS where 15 us + S / 80.571 GB/s = 25 us + S / 272 GB/s: S = 1,144,835.8 B."""
    model = nccl_model("all_reduce", H100, 1, 8)
    crossing = (25e-6 - 15e-6) / (14 / 8 / 141e9 - 14 / 8 / 476e9)
    (switch,) = switches(model)
    assert crossing == pytest.approx(1144835.8, abs=0.1)
    assert (switch.message_bytes, switch.before, switch.after) == (1144836, "ring/LL", "nvls/Simple")
    assert switch.crossing == pytest.approx(crossing)
    assert switch.seconds == pytest.approx(25e-6 + 1144836 / 272e9)


def test_margin() -> None:
    choice = choose(nccl_model("all_reduce", H100, 1, 8), 0)
    assert (choice.label, choice.runner_up) == ("ring/LL", "tree/LL")
    assert choice.margin == pytest.approx(15.2 / 15.0 - 1)
    alone = choose(nccl_model("all_reduce", H100, 1, 8, ["nvls"], ["Simple"]), MIB)
    assert (alone.runner_up, alone.margin) == (None, None)


SIZES = st.integers(1, 200).map(lambda tenth: tenth * 0.1)
LINES = st.tuples(st.sampled_from(ALGORITHMS), st.sampled_from(PROTOCOLS), SIZES, SIZES)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=8, unique_by=lambda line: line[:2]), first=st.integers(0, 300))
@example(lines=[("ring", "LL", 1.0, 1.0), ("ring", "Simple", 1.0, 2.0), ("tree", "LL", 1.0, 2.0)], first=0)
def test_switches_are_where_the_choice_changes(lines: list[tuple[str, str, float, float]], first: int) -> None:
    """Every whole message of some range, one by one: the choice changes at the switches, and nowhere else."""
    candidates = tuple(Candidate(a, p, latency * 1e-9, rate * 1e9) for a, p, latency, rate in lines)
    model = Model("all_reduce", 2, 1, 1, candidates, True, True, 1.4, "test")
    last = first + 700
    labels = [choose(model, size).label for size in range(first, last + 1)]
    expected = [
        (first + place + 1, before, after)
        for place, (before, after) in enumerate(pairwise(labels))
        if before != after
    ]  # fmt: skip
    assert [(one.message_bytes, one.before, one.after) for one in switches(model, first, last)] == expected
    assert [one.label for one in ranges(model, first, last)] == [labels[0], *(after for _, _, after in expected)]


@settings(max_examples=40, deadline=None)
@given(
    machine=st.sampled_from(["dgx-1v", "dgx-2", "dgx-a100", "dgx-h100", "dgx-b200"]),
    nodes=st.integers(1, 64),
    collective=st.sampled_from(list(COLLECTIVE_ALGORITHMS)),
    sizes=st.lists(st.integers(8, 1 << 34), min_size=1, max_size=20),
)
def test_real_switches(machine: str, nodes: int, collective: str, sizes: list[int]) -> None:
    """On machines: just before and at each switch, at the kinks, and anywhere, the choice is that of the ranges."""
    model = nccl_model(collective, graph_of(machine), nodes, load_machine(machine).gpus_per_node)
    some = ranges(model)
    assert (some[0].first, some[-1].last) == (8, 1 << 34)
    assert all(a.last + 1 == b.first and a.label != b.label for a, b in pairwise(some))
    near = [size + side for one in switches(model) for size in [one.message_bytes] for side in (-1, 0)]
    for size in [*sizes, *near, *(kink - side for kink in kinks(model) for side in (0, 1))]:
        if 8 <= size <= 1 << 34:
            assert choose(model, size).label == next(one.label for one in some if one.first <= size <= one.last)


def test_one_rank() -> None:
    model = nccl_model("all_reduce", H100, 1, 1)
    assert [(one.label, one.seconds) for one in [choose(model, MIB)]] == [("ring/Simple", 0.0)]
    assert switches(model) == ()


def test_prediction_covers_the_messages() -> None:
    model = nccl_model("all_reduce", H100, 4, 8)
    some = predict(model, [MIB, 1 * KIB, 64 * MIB])
    assert [one.message_bytes for one in some.choices] == [KIB, MIB, 64 * MIB]
    assert (some.ranges[0].first, some.ranges[-1].last) == (KIB, 64 * MIB)
    single = predict(model, [MIB])
    assert (single.ranges[0].first, single.ranges[-1].last) == (8, 1 << 34)


def test_bad_questions() -> None:
    with pytest.raises(InputError) as caught:
        nccl_model("all_to_all", H100, 1, 8, ["rign"], ["LL64"])
    text = str(caught.value)
    assert 'no "all_to_all"; it has: all_reduce' in text
    assert 'did you mean "ring"' in text
    assert 'did you mean "LL' in text
    with pytest.raises(
        InputError, match=r"nothing is left for all_reduce on 1 x 8 GPUs.*NCCL has no pat for all_reduce"
    ):
        nccl_model("all_reduce", H100, 1, 8, ["pat"])


# NCCL 2.30.7 src/graph/search.cc and topo.h: speeds that are tried inside one node and between nodes, GB/s of a link.
_OLD = ((40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3), (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3))
SPEEDS = {
    "volta": _OLD,
    "ampere": _OLD,
    "hopper": ((60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3), (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3)),
    "blackwell": (
        (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
        (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3),
    ),
}
LINKS = {"dgx-1v": 6 * 20, "dgx-2": 6 * 20, "dgx-a100": 12 * 20, "dgx-h100": 18 * 20.6, "dgx-b200": 18 * 40.1}
CARDS = {"dgx-1v": 12, "dgx-2": 12, "dgx-a100": 24, "dgx-h100": 48, "dgx-b200": 48}  # the less of card and PCIe


@pytest.mark.parametrize("machine", LINKS)
def test_channels_of_machines_are_what_the_search_may_find(machine: str) -> None:
    """Speeds of NCCL's lists, half of one where channels were doubled; what passes a GPU or a card fits through it."""
    graph, known = graph_of(machine), load_machine(machine)
    for place, span in enumerate((graph.one_node, graph.several_nodes)):
        for pattern, one in span.items():
            speeds = {speed * 1e9 for speed in SPEEDS[graph.gpu][place]} | {s * 5e8 for s in SPEEDS[graph.gpu][0]}
            assert {one.intra, one.inter} <= speeds, (machine, pattern)
            share = 1 if pattern in ("ring", "nvls") and place == 0 else 1 - 1 / known.gpus_per_node
            assert one.channels * one.intra * share <= LINKS[machine] * 1e9 * (1 + 1e-9), (machine, pattern)
            if place == 1:
                assert one.inter <= CARDS[machine] * 1e9
                assert one.channels <= known.nics_per_node
    assert graph.one_node["tree"].channels == graph.one_node["ring"].channels
    assert graph.several_nodes["tree"].channels == graph.several_nodes["ring"].channels


def test_the_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(Path(__file__).parent.parent / "benchmarks" / "nccl_choice.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "h100_1n8_aws_p5_allreduce_auto" in out
    assert out.count("the faster of ring and tree for") == 2


def test_numbers_that_cannot_be() -> None:
    graph = load_machine("dgx-h100").nccl
    assert graph is not None
    with pytest.raises(InputError) as refused:
        nccl_model("all_reduce", graph, -1, 1.5)  # type: ignore[arg-type]
    assert [problem.place for problem in refused.value.problems] == ["nodes", "gpus_per_node"]
    model = nccl_model("all_reduce", graph, 1, 8)
    for message in (-1, 1.5, True):
        with pytest.raises(InputError, match="is no message; give a whole number of bytes"):
            choose(model, message)  # type: ignore[arg-type]
