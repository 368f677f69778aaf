"""Naive all-reduce: every rank sends its whole vector to every other, and each adds all of them.

    alpha + (N - 1) (o + M/B) + (N - 1) M gamma

One round: one latency, but N - 1 messages on every port, each with its overhead. Every rank adds in its own order, so
the ranks' floats may differ in the last bits.

Reference: CMU 15-779 (fall 2025), lecture 12. Assumes that a device may start N - 1 messages at once.
"""

import numpy as np

from simcollectives.algorithms.types import Algorithm, Cost, Options, Placement, never
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Round, Schedule, make_round, regular_phases


def schedule(placement: Placement, _options: Options) -> Schedule:
    """One round; rank i sends to i + 1, i + 2, .. in turn."""
    n = placement.world_size
    if n == 1:
        return Schedule("all_reduce", 1, 1, ((),))

    def round_at(_step: int) -> Round:
        src = np.repeat(np.arange(n, dtype=np.int64), n - 1)
        return make_round(src, (src + np.tile(np.arange(1, n, dtype=np.int64), n)) % n, reduce=True)

    return Schedule("all_reduce", n, 1, (regular_phases(1, round_at, messages=n - 1, reduces=True),), own_first=True)


def cost(n: int, layout: Layout, _options: Options) -> Cost:
    """Every port carries N - 1 whole messages."""
    if n == 1:
        return Cost()
    return Cost(1, n - 1, (n - 1) * layout.elements, (n - 1) * layout.elements)


ALGORITHMS = (
    Algorithm(
        name="naive",
        collective="all_reduce",
        summary="everyone sends everything to everyone; one round, most bytes",
        formula="alpha + (N-1)(o + M/B) + (N-1) M gamma",
        reference="CMU 15-779, lecture 12",
        schedule=schedule,
        cost=cost,
        same_bits=never,
    ),
)
