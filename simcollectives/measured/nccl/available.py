"""Why NCCL would not take an algorithm or protocol: rules of NCCL 2.30.7 src/graph/tuning.cc and src/enqueue.cc."""

from simcollectives.cluster.nccl_graph import NETWORK_PATHS, NcclGraph, span_of
from simcollectives.measured.nccl.constants import (
    COLLECTIVE_ALGORITHMS,
    MOST_LOCAL_COLLNET,
    MOST_LOCAL_NVLS,
    PATTERN_OF,
    WITH_ALL_PROTOCOLS,
)

NEW_GPUS = ("hopper", "blackwell")


def why_not(collective: str, algorithm: str, protocol: str, graph: NcclGraph, nodes: int, gpus_per_node: int) -> str:
    """Return why an algorithm with a protocol cannot be taken; empty where it can."""
    if algorithm not in COLLECTIVE_ALGORITHMS[collective]:
        return f"NCCL has no {algorithm} for {collective}"
    if algorithm not in WITH_ALL_PROTOCOLS and protocol != "Simple":
        return f"{algorithm} has Simple only"
    return (
        _algorithm(collective, algorithm, graph, nodes, gpus_per_node)
        or _channels(algorithm, graph, nodes)
        or (_ll128(graph, nodes) if protocol == "LL128" else "")
    )


def _algorithm(collective: str, algorithm: str, graph: NcclGraph, nodes: int, gpus: int) -> str:
    if algorithm.startswith("collnet"):
        return _collnet(collective, algorithm, graph, nodes, gpus)
    if algorithm.startswith("nvls"):
        return _nvls(collective, algorithm, graph, nodes, gpus)
    if algorithm == "pat" and gpus > 1:
        return f"pat is for one GPU a node, here are {gpus}"
    return ""


def _collnet(collective: str, algorithm: str, graph: NcclGraph, nodes: int, gpus: int) -> str:
    if nodes == 1:
        return "CollNet needs two nodes or more"
    if not graph.sharp:
        return "CollNet needs SHARP; write sharp: true where the network has it and NCCL_COLLNET_ENABLE=1"
    if gpus > MOST_LOCAL_COLLNET:
        return f"CollNet serves up to {MOST_LOCAL_COLLNET} GPUs a node, here are {gpus}"
    if algorithm == "collnet_direct" and not graph.nvswitch:
        return "collnet_direct needs an NVSwitch"
    return _heads(graph, nodes, gpus) if algorithm == "collnet_direct" and collective != "all_reduce" else ""


def _nvls(collective: str, algorithm: str, graph: NcclGraph, nodes: int, gpus: int) -> str:
    if graph.gpu not in NEW_GPUS or not graph.nvswitch:
        return "NVLS needs an NVSwitch with multicast and Hopper or later"
    if gpus < 2:
        return "NVLS needs two GPUs a node or more"
    if algorithm == "nvls_tree":
        return "nvls_tree is off on one node" if nodes == 1 else ""
    if nodes > 1 and not graph.sharp:
        return "nvls across nodes needs SHARP; write sharp: true where the network has it and NCCL_COLLNET_ENABLE=1"
    if collective == "all_reduce":
        return ""
    if gpus > MOST_LOCAL_NVLS:
        return f"nvls serves up to {MOST_LOCAL_NVLS} GPUs a node, here are {gpus}"
    return _heads(graph, nodes, gpus) if nodes > 1 else ""


def _heads(graph: NcclGraph, nodes: int, gpus: int) -> str:
    """Gathering and scattering in the network needs a channel's head for every GPU."""
    found = graph.searched("collnet_direct", nodes)
    heads = 0 if found is None else found.channels
    return "" if heads >= gpus else f"it needs a network card for every GPU, and has {heads} for {gpus}"


def _channels(algorithm: str, graph: NcclGraph, nodes: int) -> str:
    pattern = PATTERN_OF[algorithm]
    found = graph.searched(pattern, nodes)
    if found is None:
        channels = f"{{{pattern}: {{channels: .., intra: .., inter: ..}}}}"
        return f"no channels of {pattern} are given; write {span_of(nodes)}: {channels}"
    if algorithm.startswith("nvls") and found.channels < 2:
        return "NVLS needs two channels or more"
    return ""


def _ll128(graph: NcclGraph, nodes: int) -> str:
    if graph.link != "nvlink":
        return "LL128 is only safe over NVLink"
    farthest = "PXN" if graph.gpu in NEW_GPUS else "PXB"
    if nodes > 1 and NETWORK_PATHS.index(graph.network_path) > NETWORK_PATHS.index(farthest):
        return f"LL128 is only safe up to {farthest} between GPU and network card, here it is {graph.network_path}"
    return ""
