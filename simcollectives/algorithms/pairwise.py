"""Pairwise all-to-all: in round k rank i sends to rank i + k and receives from rank i - k.

    (N - 1) (alpha + o + n/B)      n = bytes of the largest part, M/N

One message a port at any time. Every part goes straight to its destination.

Reference: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

import numpy as np

from simcollectives.algorithms.types import Algorithm, Cost, Options, Placement
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Round, Schedule, make_round, regular_phases


def schedule(placement: Placement, _options: Options) -> Schedule:
    """N - 1 rounds of shifted exchanges."""
    n = placement.world_size
    rank = np.arange(n, dtype=np.int64)
    around = np.concatenate([rank, rank])
    own = rank * n

    def round_at(step: int) -> Round:
        destination = around[step + 1 : step + 1 + n]
        return make_round(rank, destination, first=own + destination)

    return Schedule("all_to_all", n, n * n, (regular_phases(n - 1, round_at),))


def cost(n: int, layout: Layout, _options: Options) -> Cost:
    """One largest part a round."""
    return Cost(n - 1, n - 1, (n - 1) * layout.head(1), 0)


ALGORITHMS = (
    Algorithm(
        name="pairwise",
        collective="all_to_all",
        summary="one partner a round",
        formula="(N-1)(alpha + o + M/NB)",
        reference="Thakur, Rabenseifner and Gropp 2005",
        schedule=schedule,
        cost=cost,
    ),
)
