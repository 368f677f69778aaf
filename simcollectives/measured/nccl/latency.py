"""The latency that NCCL's cost model gives an algorithm and protocol: a base, and a term for every step.

n ranks, m nodes. Ring: base + (steps - inter) intra + inter network, with inter = 2(m-1) or m-1 steps between nodes;
tree: a chain in the node, floor(log2 m) levels between nodes, up and down. Facts from NCCL 2.30.7 src/graph/tuning.cc.
"""

from dataclasses import dataclass

from simcollectives.cluster.nccl_graph import ChannelGraph, NcclGraph
from simcollectives.measured.nccl.constants import BASE_LATENCY, HARDWARE_LATENCY, NETWORK_OVERHEAD, PROTOCOLS

MICROSECOND = 1e-6


@dataclass(frozen=True)
class Asked:
    """What one pair of latency and bandwidth is asked for."""

    collective: str
    algorithm: str
    protocol: str
    graph: NcclGraph
    channels: ChannelGraph
    nodes: int
    gpus_per_node: int

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def steps(self) -> int:
        """Steps of a ring."""
        n = self.world_size
        return {"all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1}.get(self.collective, n)


def latency_seconds(asked: Asked) -> float:
    """Return the latency in seconds."""
    protocol, algorithm = PROTOCOLS.index(asked.protocol), asked.algorithm
    intra = _hardware(asked, asked.graph.link, algorithm)
    # With one GPU a node all latency is exposed: NCCL takes the tree's, whatever the algorithm.
    network = HARDWARE_LATENCY["network"]["tree" if asked.gpus_per_node == 1 else algorithm][protocol]
    flushes = 2 if asked.protocol == "Simple" else 1
    network += flushes * asked.graph.network_latency / MICROSECOND
    base = BASE_LATENCY[algorithm][protocol]
    assemble = _ring if algorithm == "ring" else _other
    return MICROSECOND * assemble(asked, base, intra, network)


def _hardware(asked: Asked, link: str, algorithm: str) -> float:
    protocol = PROTOCOLS.index(asked.protocol)
    # On POWER, NCCL gives tree/Simple over PCIe the ring's latency.
    if asked.graph.cpu == "power" and (link, algorithm, asked.protocol) == ("pcie", "tree", "Simple"):
        algorithm = "ring"
    return HARDWARE_LATENCY[link][algorithm][protocol]


def _ring(asked: Asked, base: float, intra: float, network: float) -> float:
    m, steps = asked.nodes, asked.steps
    if asked.collective in ("broadcast", "reduce"):
        link = asked.graph.link if m == 1 else "network"
        if asked.channels.same_channels:
            return base + _hardware(asked, link, "ring")
        return base + steps * _hardware(asked, link, "tree" if asked.protocol == "Simple" else "ring")
    if m == 1:
        return base + steps * intra
    overhead = NETWORK_OVERHEAD[asked.graph.cpu] * (3 if asked.protocol == "Simple" else 1)
    between = (2 if asked.collective == "all_reduce" else 1) * (m - 1)
    return base + (steps - between) * max(intra, overhead) + between * network


def _other(asked: Asked, base: float, intra: float, network: float) -> float:
    m, others, levels = asked.nodes, asked.gpus_per_node - 1, asked.nodes.bit_length() - 1
    match asked.algorithm:
        case "tree":
            return base + 2 * (others * intra + levels * network)
        case "collnet_direct":
            return base + 2 * (min(1, others) * intra + 0.4 * others) + network
        case "collnet_chain":
            return base + 2 * others * intra + network
        case "nvls":
            return intra + (network if m > 1 else 0.0)
        case "nvls_tree":
            return base + intra + 2 * levels * network
    return base + levels * network / 3.5 + 2.8 * asked.world_size  # pat
