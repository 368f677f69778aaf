"""The constants of NCCL 2.30.7's cost model (``src/graph/tuning.cc``), in its units: microseconds and GB/s.

Rows of three are by protocol: LL, LL128, Simple. Ceilings are by number of nodes: 1, 2, more.
"""

from collections.abc import Mapping

Triple = tuple[float, float, float]

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("LL", "LL128", "Simple")
"""In NCCL's order, which decides between equal times."""

WITH_ALL_PROTOCOLS = ("tree", "ring")
"""The other algorithms have Simple only."""

COLLECTIVE_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
    "all_gather": ("ring", "collnet_direct", "nvls", "pat"),
    "reduce_scatter": ("ring", "collnet_direct", "nvls", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
}
"""The algorithms that NCCL has for each collective."""

PATTERN_OF: Mapping[str, str] = {
    "tree": "tree",
    "ring": "ring",
    "collnet_direct": "collnet_direct",
    "collnet_chain": "collnet_chain",
    "nvls": "nvls",
    "nvls_tree": "nvls",
    "pat": "tree",
}
"""Whose channels an algorithm uses."""

_NONE: Triple = (0.0, 0.0, 0.0)
BASE_LATENCY: Mapping[str, Triple] = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "collnet_direct": _NONE,
    "collnet_chain": _NONE,
    "nvls": _NONE,
    "nvls_tree": _NONE,
    "pat": (8.0, 8.0, 8.0),
}
HARDWARE_LATENCY: Mapping[str, Mapping[str, Triple]] = {
    "nvlink": {
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "collnet_direct": (0, 0, 3.7),
        "collnet_chain": (0, 0, 2.8),
        "nvls": (0, 0, 25),
        "nvls_tree": (0, 0, 25),
        "pat": (0, 0, 4.0),
    },
    "pcie": {
        "tree": (1.0, 1.9, 4.0),
        "ring": (1.0, 2.5, 5.7),
        "collnet_direct": (0, 0, 3.7),
        "collnet_chain": (0, 0, 2.8),
        "nvls": _NONE,
        "nvls_tree": _NONE,
        "pat": (0, 0, 4.0),
    },
    "network": {
        "tree": (5.0, 8.5, 14),
        "ring": (2.7, 4.0, 14.0),
        "collnet_direct": (0, 0, 31),
        "collnet_chain": (0, 0, 30),
        "nvls": (0, 0, 18),
        "nvls_tree": (0, 0, 20.9),
        "pat": (0, 0, 14),
    },
}
"""Latency of a step, by the class of link it crosses."""

NETWORK_OVERHEAD: Mapping[str, float] = {"intel": 1.0, "amd": 2.0, "arm": 1.0, "power": 1.0}
"""Of posting a message to the network, by CPU; three times it for Simple."""

LL_ONE_NODE: Mapping[str, float] = {"volta": 39.0, "ampere": 87.7, "hopper": 141.0, "blackwell": 282.0}
LL_NODES: Mapping[str, Triple] = {"amd": (0, 22.5, 19.0), "intel": (0, 39.0, 20.4)}
"""Ceiling of LL over all channels: by GPU on one node, by CPU on several (others as Intel)."""

RING_LL128: Mapping[str, Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 36.7),
    "blackwell": (40.0, 40.0, 40.0),
}
TREE_LL128: Mapping[str, Triple] = {
    "volta": (20.0, 20.0, 20.0),
    "ampere": (20.0, 20.0, 20.0),
    "hopper": (36.7, 36.7, 29.0),
    "blackwell": (55.6, 31.67, 20.0),
}
TREE: Mapping[str, Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (38.7, 41.4, 36.0),
    "blackwell": (70.0, 42.8, 24.0),
}
NVLS_TREE: Mapping[str, Triple] = {
    "volta": (26.5, 18.5, 10.0),
    "ampere": (24.0, 23.6, 17.8),
    "hopper": (0.0, 57.7, 45.5),
    "blackwell": (0.0, 96.0, 80.0),
}
"""Ceilings of one channel."""

NVLS_EFFICIENCY: Mapping[str, float] = {"volta": 0.0, "ampere": 0.0, "hopper": 0.85, "blackwell": 0.74}

TREE_FACTORS: Mapping[str, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *[0.6] * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    "Simple": (*[0.9] * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
}
"""On the bandwidth of trees, by the power of two below the message over 64 B."""

FIRST_FACTOR_BYTES = 64
TREE_FACTOR_COUNT = 23
"""Entries used for tree; nvls_tree uses all 24."""

PLATEAU_BYTES = 64
PLATEAU, OLD_PLATEAU = 1.4, 1.9
"""On the latency of ring/Simple across nodes, from so many bytes a channel and rank on; the latter before Ampere."""

MOST_LOCAL_COLLNET, MOST_LOCAL_NVLS = 8, 32
"""GPUs of a node that CollNet, and NVLS of other than all-reduce, can serve."""
