"""Circulant graph: least bytes in ceil(log2 N) rounds for any number of ranks, without folding or padding.

    all_gather      q (alpha + o) + (N - 1)/N M/B                q = ceil(log2 N)
    reduce_scatter  q (alpha + o) + (N - 1)/N M (1/B + gamma)
    all_reduce      one after the other

Skips s_q = N, s_k = ceil(s_(k+1) / 2) down to s_0 = 1. All-gather round k: rank i receives from rank i + s_k the
s_(k+1) - s_k chunks from i + s_k on. Reduce-scatter is its reversal. With uneven chunks the sum over rounds of the
largest run of chunks replaces (N - 1)/N M.

Reference: Traff, arXiv 2410.14234 and 2407.18004 (rounds and bytes are both optimal for any N).
"""

from itertools import pairwise

import numpy as np

from simcollectives.algorithms.types import Algorithm, Cost, Options, Placement
from simcollectives.schedule.combinators import concatenate, reverse
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Phases, Round, Schedule, make_round, regular_phases


def skips(n: int) -> list[int]:
    """1 = s_0 < s_1 < .. < s_q = n, each the half of the next, rounded up.

    >>> skips(9)
    [1, 2, 3, 5, 9]
    """
    result = [n]
    while result[-1] > 1:
        result.append((result[-1] + 1) // 2)
    return result[::-1]


def all_gather_phases(n: int) -> Phases:
    """Spread chunk i of rank i to all."""
    rank = np.arange(n, dtype=np.int64)
    around = np.concatenate([rank, rank])
    skip = skips(n)

    def round_at(step: int) -> Round:
        source = around[skip[step] : skip[step] + n]
        return make_round(source, rank, first=source, count=skip[step + 1] - skip[step], wrap=n)

    return regular_phases(len(skip) - 1, round_at, chunks=lambda step: skip[step + 1] - skip[step])


def reduce_scatter_phases(n: int) -> Phases:
    """Leave rank i with the sum of chunk i."""
    return reverse(all_gather_phases(n))


def _algorithm(collective: str, formula: str) -> Algorithm:
    def schedule(placement: Placement, _options: Options) -> Schedule:
        n = placement.world_size
        scatter = () if collective == "all_gather" else reduce_scatter_phases(n)
        gather = () if collective == "reduce_scatter" else all_gather_phases(n)
        return Schedule(collective, n, n, (concatenate(scatter, gather),))

    def cost(n: int, layout: Layout, _options: Options) -> Cost:
        skip = skips(n)
        passes = 2 if collective == "all_reduce" else 1
        rounds = passes * (len(skip) - 1)
        elements = sum(layout.head(after - before) for before, after in pairwise(skip))
        return Cost(rounds, rounds, passes * elements, 0 if collective == "all_gather" else elements)

    return Algorithm(
        name="circulant",
        collective=collective,
        summary="least bytes in ceil(log2 N) rounds a pass, any number of ranks",
        formula=formula,
        reference="Traff 2024",
        schedule=schedule,
        cost=cost,
    )


ALGORITHMS = (
    _algorithm("all_reduce", "2q(alpha + o) + (N-1)/N M (2/B + gamma)"),
    _algorithm("reduce_scatter", "q(alpha + o) + (N-1)/N M (1/B + gamma)"),
    _algorithm("all_gather", "q(alpha + o) + (N-1)/N M/B"),
)
