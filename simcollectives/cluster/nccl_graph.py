"""What NCCL finds out about a node before it predicts times: the inputs of its cost model (``measured.nccl``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simcollectives.units import parse_bandwidth, parse_seconds

GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""Compute capability 7.x, 8.x, 9.x and 10.x or more."""

CPUS = ("intel", "amd", "arm", "power")
LINK_CLASSES = ("nvlink", "pcie")
NETWORK_PATHS = ("PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""How far a network card is from its GPU, in NCCL's words, the nearest first."""

PATTERNS = ("ring", "tree", "nvls", "collnet_direct", "collnet_chain")
"""What channels are searched for; nvls_tree uses those of nvls, pat those of tree."""

SPANS = ("one_node", "several_nodes")

MAX_CHANNELS = 64
"""NCCL has no more of them (MAXCHANNELS of src/include/device.h)."""


@dataclass(frozen=True)
class ChannelGraph:
    """The channels that were found for a pattern, and the bandwidth (B/s) of one inside and between nodes.

    ``same_channels`` tells that all of them visit the GPUs in one order; ``plain_tree`` that one GPU has all the
    network traffic of its channel (pattern 3 of NCCL's logs, not 1).
    """

    channels: int
    intra: float
    inter: float
    same_channels: bool = False
    plain_tree: bool = False


@dataclass(frozen=True)
class NcclGraph:
    """A node as NCCL sees it. ``network_path`` and ``network_latency`` (s) are those between a GPU and its card.

    ``sharp`` tells that switches of the network reduce, and that NCCL is let use it (NCCL_COLLNET_ENABLE=1).
    """

    gpu: str
    cpu: str
    link: str
    nvswitch: bool
    network_path: str
    network_latency: float
    sharp: bool
    one_node: Mapping[str, ChannelGraph]
    several_nodes: Mapping[str, ChannelGraph]

    def searched(self, pattern: str, nodes: int) -> ChannelGraph | None:
        """Return the channels for a pattern on so many nodes; None where none are given."""
        found: Mapping[str, ChannelGraph] = getattr(self, span_of(nodes))
        return found.get(pattern)


def span_of(nodes: int) -> str:
    """Return which channels count on so many nodes."""
    return SPANS[nodes > 1]


def read_nccl_graph(data: Mapping[str, Any]) -> NcclGraph:
    """Return what the section ``nccl:`` of a machine's file says."""
    return NcclGraph(
        **{key: data[key]["value"] for key in ("gpu", "cpu", "link", "nvswitch", "network_path", "sharp")},
        network_latency=parse_seconds(data["network_latency"]["value"]),
        one_node=_patterns(data["one_node"]),
        several_nodes=_patterns(data["several_nodes"]),
    )


def _patterns(data: Mapping[str, Any]) -> dict[str, ChannelGraph]:
    found = {}
    for pattern, entry in data.items():
        value: dict[str, Any] = {**entry["value"]}
        value |= {name: parse_bandwidth(value[name]) for name in ("intra", "inter")}
        found[pattern] = ChannelGraph(**value)
    return found
