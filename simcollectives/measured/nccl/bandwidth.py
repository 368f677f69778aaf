"""The algorithm bandwidth that NCCL's cost model gives an algorithm and protocol: message bytes over seconds.

Channels times the bandwidth of one, cut by what each protocol and GPU generation reaches, then times n over the
steps of a ring, or a half. Facts from NCCL 2.30.7 src/graph/tuning.cc.
"""

from simcollectives.measured.nccl import constants
from simcollectives.measured.nccl.latency import Asked

GIGABYTE = 1e9


def bandwidth(asked: Asked) -> float:
    """Return the algorithm bandwidth in B/s; 0 where the model has none."""
    shared = asked.collective in ("all_gather", "reduce_scatter")
    match asked.algorithm:
        case "ring":
            return GIGABYTE * _ring(asked) * asked.world_size / asked.steps
        case "nvls" | "nvls_tree":
            return GIGABYTE * _nvls(asked) * (1 if shared else asked.world_size / asked.steps)
        case "collnet_direct":
            return GIGABYTE * _collnet_direct(asked) * (1 if shared else 0.5)
        case "tree":
            return GIGABYTE * _tree(asked) * 0.5
        case "collnet_chain":
            return GIGABYTE * _bus(asked) * 0.5
    return GIGABYTE * _bus(asked) * 0.75  # pat


def _column(asked: Asked) -> int:
    return min(asked.nodes, 3) - 1


def _bus(asked: Asked) -> float:
    """All channels together; up to two nodes, and for CollNet, the inside of a node counts."""
    inside = asked.nodes <= 2 or asked.algorithm.startswith("collnet")
    one = asked.channels.intra if inside else asked.channels.inter
    return asked.channels.channels * one / GIGABYTE


def _ll_ceiling(asked: Asked) -> float:
    if asked.nodes == 1:
        return constants.LL_ONE_NODE[asked.graph.gpu]
    return constants.LL_NODES["amd" if asked.graph.cpu == "amd" else "intel"][_column(asked)]


def _ring(asked: Asked) -> float:
    bus = _bus(asked)
    if asked.protocol == "LL":
        return min(_ll_ceiling(asked), 0.5 * bus)
    if asked.protocol == "LL128":
        return min(0.92 * bus, asked.channels.channels * constants.RING_LL128[asked.graph.gpu][_column(asked)])
    return bus


def _tree(asked: Asked) -> float:
    gpu, column, channels = asked.graph.gpu, _column(asked), asked.channels.channels
    bus = min(0.92 * _bus(asked), channels * constants.TREE[gpu][column])
    if asked.protocol == "LL":
        bus = min(bus / 3.8, _ll_ceiling(asked))
    if asked.protocol == "LL128":
        share = 7 / 9 if asked.nodes == 1 else 120 / 128
        bus = min(share * bus, channels * constants.TREE_LL128[gpu][column])
    return 0.85 * bus if asked.channels.plain_tree else bus


def _nvls(asked: Asked) -> float:
    channels, gpus = asked.channels.channels, asked.gpus_per_node
    inside = asked.channels.intra / GIGABYTE * constants.NVLS_EFFICIENCY[asked.graph.gpu] * (channels - 1) / channels
    inside *= 2 if asked.collective == "all_reduce" else (gpus - 1) / gpus
    between = asked.channels.inter / GIGABYTE
    if asked.algorithm == "nvls":
        return channels * min(inside, between)
    between *= 2 if asked.nodes <= 2 else 1
    return channels * min(inside, between, constants.NVLS_TREE[asked.graph.gpu][_column(asked)])


def _collnet_direct(asked: Asked) -> float:
    gpus, searched = asked.gpus_per_node, asked.channels
    if asked.collective != "all_reduce":
        return gpus * min(searched.intra, 0.9 * searched.inter) / GIGABYTE
    sharing = gpus / searched.channels
    sharing -= (sharing - 1) / 2
    return _bus(asked) / sharing * (0.85 if asked.graph.gpu in ("hopper", "blackwell") else 1)
