"""Ring: N chunks travel around; every rank always sends to its next and receives from its previous neighbour.

    all_reduce      2 (N - 1) (alpha + o + n/B) + (N - 1) n gamma     n = bytes of the largest chunk, M/N
    reduce_scatter    (N - 1) (alpha + o + n/B + n gamma)
    all_gather        (N - 1) (alpha + o + n/B)

Reduce-scatter, step t: rank i sends chunk i - 1 - t, and after N - 1 steps owns chunk i. All-gather, step t: rank i
sends chunk i - t. Each rank sends 2 (N - 1)/N M in an all-reduce, the least possible.

On links of two kinds an even ring runs at the pace of its slowest edge (alpha + o + n/B largest), in any rank order.

Reference: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009). Assumes full-duplex ports, nothing shared.
"""

import numpy as np

from simcollectives.algorithms.types import Algorithm, Cost, LevelCost, Options, Placement
from simcollectives.cluster.link import message_seconds
from simcollectives.cluster.types import Cluster
from simcollectives.schedule.combinators import concatenate
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Phases, Round, Schedule, make_round, regular_phases

REFERENCE = "Patarasuk and Yuan 2009"


def reduce_scatter_phases(n: int) -> Phases:
    """N - 1 rounds that leave rank i with the sum of chunk i."""
    rank = np.arange(n, dtype=np.int64)
    after = (rank + 1) % n

    def round_at(step: int) -> Round:
        return make_round(rank, after, first=(rank - 1 - step) % n, reduce=True)

    return regular_phases(n - 1, round_at, reduces=True, rotation=1)


def all_gather_phases(n: int) -> Phases:
    """N - 1 rounds that spread chunk i of rank i to all."""
    rank = np.arange(n, dtype=np.int64)
    after = (rank + 1) % n

    def round_at(step: int) -> Round:
        return make_round(rank, after, first=(rank - step) % n)

    return regular_phases(n - 1, round_at, rotation=1)


def phases(collective: str, n: int) -> Phases:
    """Rounds of a ring for one collective."""
    if collective == "reduce_scatter":
        return reduce_scatter_phases(n)
    if collective == "all_gather":
        return all_gather_phases(n)
    return concatenate(reduce_scatter_phases(n), all_gather_phases(n))


def _algorithm(collective: str, formula: str) -> Algorithm:
    passes = 2 if collective == "all_reduce" else 1

    def schedule(placement: Placement, _options: Options) -> Schedule:
        n = placement.world_size
        return Schedule(collective, n, n, (phases(collective, n),))

    def cost(n: int, layout: Layout, _options: Options) -> Cost:
        steps = passes * (n - 1)
        reduced = 0 if collective == "all_gather" else (n - 1) * layout.head(1)
        return Cost(steps, steps, steps * layout.head(1), reduced)

    def level_costs(cluster: Cluster, layout: Layout, itemsize: int, options: Options) -> tuple[LevelCost, ...] | None:
        if cluster.uniform_link is not None:
            return (LevelCost(cluster.levels[0].name, cost(cluster.world_size, layout, options)),)
        if not layout.even:
            return None
        rank = np.arange(cluster.world_size)
        used = [cluster.levels[i] for i in np.unique(cluster.network.levels_crossed(rank, (rank + 1) % len(rank)))]
        chunk_bytes = layout.head(1) * itemsize
        slowest = max(used, key=lambda level: message_seconds(level.link, chunk_bytes))
        return (LevelCost(slowest.name, cost(cluster.world_size, layout, options)),)

    return Algorithm(
        name="ring",
        collective=collective,
        summary="chunks travel around a ring; least bytes, most rounds",
        formula=formula,
        reference=REFERENCE,
        schedule=schedule,
        cost=cost,
        level_costs=level_costs,
    )


ALGORITHMS = (
    _algorithm("all_reduce", "2(N-1)(alpha + o + M/NB) + (N-1)/N M gamma"),
    _algorithm("reduce_scatter", "(N-1)(alpha + o + M/NB + M/N gamma)"),
    _algorithm("all_gather", "(N-1)(alpha + o + M/NB)"),
)
