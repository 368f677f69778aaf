"""Bidirectional ring: two opposite rings at once, each with half of the message.

    all_reduce      2 (N - 1) (alpha + 2 (o + n/B)) + (N - 1) n gamma      n = bytes of the largest chunk, M/(2 N)
    reduce_scatter    (N - 1) (alpha + 2 (o + n/B) + n gamma)
    all_gather        (N - 1) (alpha + 2 (o + n/B))

where both directions leave a device by one port: the bytes of one ring, no faster. Where they are separate links (the
neighbours of a torus or a full mesh, ports of different levels) each takes alpha + o + n/B a round, half the bandwidth
term. One ring is ``ring``, the other runs from rank i to rank i - 1. Conditions: ``several_rings``.

Reference: Jain and Sabharwal, Optimal bucket algorithms for large MPI collectives on torus interconnects, ICS 2010.
"""

import numpy as np

from simcollectives.algorithms.several_rings import algorithm
from simcollectives.algorithms.types import Algorithm, Options, Placement
from simcollectives.schedule.types import IntArray


def _channels(_placement: Placement, _options: Options) -> int:
    return 2


def _rank_at(placement: Placement, channel: int, _channels: int, positions: IntArray) -> IntArray:
    return positions if channel == 0 else np.negative(positions) % placement.world_size


def _algorithm(collective: str, formula: str) -> Algorithm:
    return algorithm(
        "bidirectional_ring",
        collective,
        summary="two opposite rings with half of the message each",
        formula=formula,
        reference="Jain and Sabharwal 2010",
        channels=_channels,
        rank_at=_rank_at,
    )


ALGORITHMS = (
    _algorithm("all_reduce", "2(N-1)(alpha + 2o + M/NB) + (N-1)/2N M gamma"),
    _algorithm("reduce_scatter", "(N-1)(alpha + 2o + M/NB + M/2N gamma)"),
    _algorithm("all_gather", "(N-1)(alpha + 2o + M/NB)"),
)
