"""Textbook schedules that the table of algorithms does not have, as jobs of equal int8 chunks."""

from __future__ import annotations

import numpy as np

from simcollectives.algorithms import find_algorithm
from simcollectives.cluster import Cluster
from simcollectives.engines import Job
from simcollectives.schedule import Layout, Phase, Round, Schedule, make_round

Rows = list[tuple[int, int, int, bool]]
"""Of one round: src, dst, chunk, reduce."""


def job_of_rounds(cluster: Cluster, rounds: list[Rows], chunks: int, chunk_bytes: int) -> Job:
    phases = tuple(Phase(1, lambda _step, rows=rows: _round(rows), ports=99) for rows in rounds if rows)  # type: ignore[misc]
    schedule = Schedule("all_reduce", cluster.world_size, chunks, (phases,))
    layout = Layout(chunks * chunk_bytes, chunks)
    return Job(find_algorithm("all_reduce", "naive"), {}, cluster, cluster, schedule, layout, "int8")


def _round(rows: Rows) -> Round:
    src, dst, chunk, reduce = (np.array(column) for column in zip(*rows, strict=True))
    return make_round(src, dst, first=chunk, reduce=reduce)


def _up_and_down(parent: dict[int, int]) -> list[Rows]:
    """Reduce level by level to rank 0, then broadcast."""
    depth = {0: 0}
    for v in sorted(parent, key=lambda v: len(_ancestors(v, parent))):
        depth[v] = depth[parent[v]] + 1
    levels = [[v for v in sorted(parent) if depth[v] == level] for level in range(1, max(depth.values()) + 1)]
    up: list[Rows] = [[(v, parent[v], 0, True) for v in level] for level in reversed(levels)]
    return up + [[(parent[v], v, 0, False) for v in level] for level in levels]


def _ancestors(v: int, parent: dict[int, int]) -> list[int]:
    return [] if v == 0 else [parent[v], *_ancestors(parent[v], parent)]


def heap_tree(n: int) -> list[Rows]:
    """Children 2i + 1 and 2i + 2."""
    return _up_and_down({v: (v - 1) // 2 for v in range(1, n)})


def in_order_tree(n: int) -> list[Rows]:
    """NCCL's: the parent of v replaces its lowest set bit b by 2b, if that is a rank, or by nothing."""
    up = {v: (v ^ (v & -v)) | 2 * (v & -v) for v in range(1, n)}
    return _up_and_down({v: p if p < n else v ^ (v & -v) for v, p in up.items()})


def flat_tree(n: int) -> list[Rows]:
    """The root adds up, then sends."""
    return [[(v, 0, 0, True) for v in range(1, n)], [(0, v, 0, False) for v in range(1, n)]]


def incast(n: int) -> list[Rows]:
    """Naive, every rank sending to 0, 1, 2, .. in this order."""
    return [[(i, j, 0, True) for i in range(n) for j in range(n) if j != i]]


def chain(n: int, segments: int) -> list[Rows]:
    return [[(i, i + 1, r - i, False) for i in range(n - 1) if 0 <= r - i < segments] for r in range(n - 2 + segments)]


def binary_broadcast(n: int, segments: int) -> list[Rows]:
    """Pipelined down the heap tree."""
    depth = [(v + 1).bit_length() - 1 for v in range(n)]
    rounds = range(depth[-1] + segments - 1)
    return [
        [((v - 1) // 2, v, r - depth[v] + 1, False) for v in range(1, n) if 0 <= r - depth[v] + 1 < segments]
        for r in rounds
    ]


def segmented_ring(n: int, segments: int) -> list[Rows]:
    """All-reduce; every chunk goes in ``segments`` messages, a round each."""
    rounds: list[Rows] = []
    for adds in (True, False):
        for step in range(n - 1):
            for s in range(segments):
                chunks = [(i - step - (1 if adds else 0)) % n * segments + s for i in range(n)]
                rounds.append([(i, (i + 1) % n, chunks[i], adds) for i in range(n)])
    return rounds
