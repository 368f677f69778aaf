"""The clusters and schedules that SimGrid is asked about: every way in which messages share, small enough for seconds.

All routes that can meet on a resource have one latency (trap 2); 5 and 10 us are on separate ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from simcollectives.cluster import Change, Cluster, Device, Level, Link, Uplink, Wiring
from simcollectives.engines import Job, make_job
from tests.laws.exact import arbitrary_job

INTRA = Link(alpha=5e-6, bandwidth=7e9)
INTER = Link(alpha=10e-6, bandwidth=1.3e9)
# 3,001 bytes of port work beside each message.
BUSY = Link(alpha=5e-6, bandwidth=1e9, overhead=3.001e-6)
MESSAGE_BYTES = 1_600_012
SEED = 20240607

Question = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """One schedule on one cluster; ``make`` makes it, so that collecting the tests costs nothing."""

    name: str
    make: Callable[[], Job]


def name_of(question: Question) -> str:
    collective, algorithm, options = question
    return " ".join([collective, algorithm, *(f"{key}={value}" for key, value in options.items())])


def _ask(collective: str, *algorithms: str, **options: Any) -> list[Question]:
    return [(collective, algorithm, options) for algorithm in algorithms]


ALL_REDUCE = _ask("all_reduce", "ring", "butterfly", "rabenseifner", "tree", "circulant", "direct", "naive")
FAR = _ask("all_reduce", "rabenseifner", order="far")
ALL_TO_ALL = _ask("all_to_all", "pairwise", "direct")
HALVES = [
    *_ask("reduce_scatter", "ring", "circulant", "direct"),
    *_ask("all_gather", "ring", "butterfly", "circulant"),
    *_ask("reduce_scatter", "butterfly", order="far"),
]
ROOTED = [*_ask("broadcast", "tree", "direct", root=2), *_ask("reduce", "tree", "direct", root=5)]
SERVERS = [q for k in (1, 3, 11, "co_located") for q in _ask("all_reduce", "parameter_server", servers=k)]
RINGS = [
    *_ask("all_reduce", "rotated_rings", "bidirectional_ring"),
    *_ask("all_reduce", "rotated_rings", channels=3),
    *_ask("reduce_scatter", "rotated_rings", "bidirectional_ring"),
    *_ask("all_gather", "rotated_rings", "bidirectional_ring"),
]
"""Several channels; the first two of them are all-reduces with the default options."""

HIERARCHICAL = [
    question
    for intra, inter in (
        ("ring", "ring"),
        ("butterfly", {"rabenseifner": {"order": "far"}}),
        ("direct", "naive"),
        ("circulant", "tree"),
        ("ring", "direct"),
        ("direct", "circulant"),
        ("ring", {"parameter_server": {"servers": "co_located"}}),
    )
    for question in _ask("all_reduce", "hierarchical", intra=intra, inter=inter)
]
FEW = [*ALL_REDUCE[:5], *FAR, *ALL_TO_ALL, HIERARCHICAL[0], HIERARCHICAL[1]]


def ask(question: Question, cluster: Cluster) -> Job:
    collective, algorithm, options = question
    return make_job(collective, algorithm, cluster, MESSAGE_BYTES, options)


def flat(devices: int, gamma: float = 0.0) -> Cluster:
    return Cluster.flat(devices, INTER, device=Device(reduction_seconds_per_byte=gamma))


def two_level(nodes: int, gpus_per_node: int, rank_order: Any = "node_major") -> Cluster:
    return Cluster.two_level(nodes, gpus_per_node, INTRA, INTER, rank_order=rank_order)


def nics(cluster: Cluster, devices: int) -> Cluster:
    """One network interface for ``devices`` devices, as fast as the port of one."""
    return cluster.with_uplinks(Uplink("nic", "inter", INTER.bandwidth, devices=devices))


def leaf(cluster: Cluster, devices: int) -> Cluster:
    """A leaf switch for ``devices`` devices, with a quarter of their bandwidth upwards."""
    return cluster.with_uplinks(Uplink("leaf", "inter", INTER.bandwidth * devices / 4, devices=devices))


def spine() -> Cluster:
    """Leaves of four devices under a spine as a level of its own, which uses the leaves' ports; two to one."""
    shared = Link(INTER.alpha, 2 * INTER.bandwidth)
    return Cluster.layered([Level("leaf", INTER, 4), Level("spine", shared, 4, ports_of="leaf")])


def cube_mesh() -> Cluster:
    """Two squares with diagonals, some links doubled, joined corner to corner; other pairs take two hops."""
    square = [(0, 1, 1), (1, 2, 2), (2, 3, 1), (0, 3, 2), (0, 2, 1), (1, 3, 1)]
    links = [*square, *((a + 4, b + 4, lanes) for a, b, lanes in square), *((a, a + 4, 2) for a in range(4))]
    return Cluster.layered([Level("link", INTER, 8, Wiring(8, tuple(links)))])


def unequal(cluster: Cluster, seed: int, *, links: int = 3) -> Cluster:
    """Every rank's ports between 30 % and all of their bandwidth, some gammas, and a few slow pairs."""
    rng = np.random.default_rng([SEED, seed])
    n = cluster.world_size
    changes = [
        Change(rank=rank, bandwidth=float(rng.uniform(0.3, 1.0)), gamma=float(rng.uniform(0.5, 4.0)))
        for rank in range(n)
    ]
    for _ in range(links):
        src, step = int(rng.integers(n)), int(rng.integers(1, n))
        changes.append(Change(link=(src, (src + step) % n), bandwidth=float(rng.uniform(0.05, 0.3))))
    return replace(cluster, device=Device(reduction_seconds_per_byte=1e-10)).with_changes(*changes)


def traffic(cluster: Cluster, seed: int, channels: int = 2, rounds: int = 3, rows: int = 24) -> Job:
    """Any traffic at all: pairs and sizes at random, every round more than one message at many ranks."""
    rng = np.random.default_rng([SEED, seed])
    n = cluster.world_size

    def row() -> tuple[int, int, int, bool]:
        src, step = int(rng.integers(n)), int(rng.integers(1, n))
        return src, (src + step) % n, int(rng.integers(16, 60_000)), bool(rng.integers(2))

    return arbitrary_job(cluster, [[[row() for _ in range(rows)] for _ in range(rounds)] for _ in range(channels)])


def _families() -> Iterator[tuple[str, Cluster, list[Question]]]:
    one, two = nics(two_level(4, 4), 4), nics(two_level(4, 4), 2)
    rails = two_level(4, 4).with_uplinks(Uplink("rail", "inter", INTER.bandwidth, rails=4))
    both = leaf(nics(two_level(16, 4, "round_robin"), 2), 16)
    yield "flat 8", flat(8), [*ALL_REDUCE, *FAR, *ALL_TO_ALL, *HALVES, *ROOTED, *SERVERS]
    yield "flat 13, gamma", flat(13, gamma=2e-10), [ALL_REDUCE[0], *ALL_REDUCE[3:], *SERVERS[1:3]]
    yield "flat 32", flat(32), [*FEW[2:5], ALL_REDUCE[5], SERVERS[1]]
    yield "flat 64", flat(64), [*FEW[:2], *FAR]
    yield "flat 8, overhead", Cluster.flat(8, BUSY), [*ALL_REDUCE[:2], *ALL_REDUCE[5:], *SERVERS[1:2]]
    yield "4 x 4, one NIC", one, [*ALL_REDUCE, *FAR, *ALL_TO_ALL, *SERVERS[3:], *HIERARCHICAL]
    yield "4 x 4, two NICs", two, [*FEW[::2], *ALL_REDUCE[5:], *HIERARCHICAL[2:4]]
    yield "4 x 4, one NIC, round-robin", nics(two_level(4, 4, "round_robin"), 4), FEW[::2]
    yield "4 x 4, rails", rails, FEW[1:8:2]
    yield "8 x 8, leaf 4:1", leaf(two_level(8, 8), 16), [*FEW[:3], *FAR, *HIERARCHICAL[:2]]
    yield "16 x 4, leaf 4:1", leaf(two_level(16, 4), 16), [*FEW[1:7:2], HIERARCHICAL[0], HIERARCHICAL[4]]
    yield "16 x 4, NICs and leaf 4:1", both, [*FEW[1:2], HIERARCHICAL[3]]
    yield "spine over leaves", spine(), [*FEW[:8:2], *ALL_REDUCE[5:]]
    yield "unequal flat 16", unequal(flat(16), 1), [*FEW[:8:2], *ALL_REDUCE[5:], ROOTED[0]]
    yield "unequal 4 x 4, one NIC", unequal(one, 2), [*FEW[1::2], *ALL_REDUCE[5:], HIERARCHICAL[0]]
    yield "full mesh 8", Cluster.full_mesh(8, INTER), [*ALL_REDUCE[1:3], *ALL_REDUCE[5:], *ALL_TO_ALL]
    yield "unequal full mesh 6", unequal(Cluster.full_mesh(6, INTER), 3), [*ALL_REDUCE[:1], *ALL_REDUCE[5:]]
    yield "torus 4 x 4", Cluster.torus((4, 4), INTER), FEW[:8:2]
    yield "torus 3 x 2 x 2", Cluster.torus((3, 2, 2), INTER), [*ALL_REDUCE[4:], *ALL_TO_ALL[1:]]
    yield "mesh 3 x 4", Cluster.torus((3, 4), INTER, wraps=False), [*ALL_REDUCE[4:], *ALL_TO_ALL[1:]]
    yield "cube mesh", cube_mesh(), [*FEW[1:8:2], *ALL_REDUCE[5:]]
    yield "4 x 4, channels", two_level(4, 4), RINGS
    yield "3 x 5 round-robin, channels", two_level(3, 5, "round_robin"), RINGS
    yield "4 x 4, two NICs, channels", two, RINGS[:3]
    yield "8 x 8, leaf 4:1, channels", leaf(two_level(8, 8), 16), RINGS[:1]
    yield "unequal 4 x 4, one NIC, channels", unequal(one, 2), RINGS[:3]
    yield "ring of 9, channels", Cluster.torus((9,), INTER), RINGS[1::2]
    yield "mesh 3 x 4, channels", Cluster.torus((3, 4), INTER, wraps=False), RINGS[1:3]


def collectives() -> Iterator[Case]:
    """Algorithms of the table."""
    for family, cluster, questions in _families():
        for question in questions:
            yield Case(f"{family}: {name_of(question)}", partial(ask, question, cluster))


def arbitrary() -> Iterator[Case]:
    """Traffic without any pattern, on two channels."""
    clusters = (
        ("flat 8", flat(8, gamma=1e-10)),
        ("4 x 4, one NIC", nics(two_level(4, 4), 4)),
        ("unequal 4 x 4, two NICs", unequal(nics(two_level(4, 4), 2), 4)),
        ("8 x 2, NICs and leaf", leaf(nics(two_level(8, 2), 2), 8)),
        ("torus 3 x 3", Cluster.torus((3, 3), INTER)),
        ("cube mesh", cube_mesh()),
    )
    seeds = count()
    for family, cluster in clusters:
        for number in range(3):
            yield Case(f"{family}: traffic {number}", partial(traffic, cluster, next(seeds)))


CASES = (*collectives(), *arbitrary())
