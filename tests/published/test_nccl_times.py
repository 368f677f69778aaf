"""What NCCL itself printed in public logs (issues of github.com/NVIDIA/nccl): times of its model, and its picks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcollectives.cluster import ChannelGraph, NcclGraph, load_machine
from simcollectives.measured.nccl import candidate_seconds, choose, nccl_model


def graph_of(name: str) -> NcclGraph:
    found = load_machine(name).nccl
    assert found is not None
    return found


def test_ring_simple_on_8_h100() -> None:
    """Issue 1595, 8 H100: "805306368 Bytes -> Algo 1 proto 2 time 3970.683594"."""
    model = nccl_model("all_reduce", graph_of("dgx-h100"), 1, 8, ["ring"], ["Simple"])
    assert choose(model, 805306368).seconds * 1e6 == pytest.approx(3970.683594, rel=1e-6)


def test_tree_ll128_on_3_nodes_of_8_h100() -> None:
    """Issue 1453, 24 H100: "262144 Bytes -> Algo 0 proto 1 time 54.707825"; its ring's time says 8 x 24 GB/s.

    "8589934592 Bytes -> Algo 1 proto 2 time 86069.968750": that version counted 2 m steps between nodes, not 2 (m - 1).
    """
    channels = {"ring": ChannelGraph(8, 24e9, 24e9), "tree": ChannelGraph(8, 24e9, 24e9, plain_tree=True)}
    graph = replace(graph_of("dgx-h100"), several_nodes=channels)
    model = nccl_model("all_reduce", graph, 3, 8)
    picked = choose(model, 262144)
    assert picked.label == "tree/LL128"
    assert picked.seconds * 1e6 == pytest.approx(54.707825, rel=1e-6)
    ring = next(one for one in model.candidates if one.label == "ring/Simple")
    more = 1.4 * 2 * (14.0 - 3.4)
    size = 8589934592
    assert choose(model, size).label == "ring/Simple"
    assert candidate_seconds(model, ring, size) * 1e6 + more == pytest.approx(86069.968750, rel=1e-6)


def test_picks_on_64_nodes_of_8_h200() -> None:
    """Issue 1752, 64 hosts of 8 H200, 16 channels: TREE LL128 for 16777216 bytes, NVLS_TREE SIMPLE for 33554432."""
    model = nccl_model("all_reduce", graph_of("dgx-h200"), 64, 8)
    assert model.channels == 16
    assert choose(model, 16777216).label == "tree/LL128"
    assert choose(model, 33554432).label == "nvls_tree/Simple"


def test_tree_of_h800() -> None:
    """Issue 1154, H800 with 8 NVLinks of 20 GB/s and 8 x 400 Gb/s: a table with 68.8 GB/s for tree/Simple; 8 x 22."""
    channels = {"ring": ChannelGraph(8, 22e9, 22e9), "tree": ChannelGraph(8, 22e9, 22e9, plain_tree=True)}
    model = nccl_model("all_reduce", replace(graph_of("dgx-h100"), several_nodes=channels), 4, 8)
    tree = next(one for one in model.candidates if one.label == "tree/Simple")
    assert tree.bandwidth / 1e9 == pytest.approx(68.8, abs=0.05)
