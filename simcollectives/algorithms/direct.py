"""Direct: every rank exchanges with all others in one round.

    all_reduce      2 (alpha + (N - 1) (o + n/B)) + (N - 1) n gamma   n = bytes of the largest chunk, M/N
    reduce_scatter     alpha + (N - 1) (o + n/B) + (N - 1) n gamma
    all_gather, all_to_all   alpha + (N - 1) (o + n/B)
    broadcast          alpha + (N - 1) (o + M/B)                      from the root
    reduce             alpha + (N - 1) (o + M/B) + (N - 1) M gamma    into the root

The all-reduce ("two-shot") is a reduce-scatter, rank i sending chunk j to rank j, and an all-gather: what a parameter
server sharded over all its workers does. Who reduces adds in the order of ranks, so every element is summed alike.

Reference: CMU 15-779 (fall 2025), lecture 12, section 3. Assumes that a device may start N - 1 messages at once.

Time variant loggp: broadcast (N - 2) max(o, g + M G) + 2 o + L + M G; reduce
o + L + (N - 2) max(o + M G + M gamma, g + M G) + o + M G + M gamma. The other forms are not exact.
"""

from collections.abc import Callable

import numpy as np

from simcollectives.algorithms.types import (
    ROOT,
    Algorithm,
    Cost,
    LogGPCosts,
    Options,
    Placement,
    Split,
    joined,
    root_exists,
)
from simcollectives.schedule.combinators import concatenate
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import IntArray, Phases, Round, Schedule, make_round, regular_phases, single

REFERENCE = "CMU 15-779, lecture 12"


def _pairs(n: int) -> tuple[IntArray, IntArray]:
    src = np.repeat(np.arange(n, dtype=np.int64), n - 1)
    return src, (src + np.tile(np.arange(1, n, dtype=np.int64), n)) % n


def _one_round(n: int, chunk: Callable[[IntArray, IntArray], IntArray], reduces: bool = False) -> Phases:
    def round_at(_step: int) -> Round:
        src, dst = _pairs(n)
        return make_round(src, dst, first=chunk(src, dst), reduce=reduces)

    return regular_phases(min(n - 1, 1), round_at, messages=n - 1, reduces=reduces)


def reduce_scatter_phases(n: int) -> Phases:
    """One round: rank i sends chunk j to rank j, which adds it."""
    return _one_round(n, lambda _src, dst: dst, reduces=True)


def all_gather_phases(n: int) -> Phases:
    """One round: rank i sends chunk i to all."""
    return _one_round(n, lambda src, _dst: src)


def all_to_all_phases(n: int) -> Phases:
    """One round: rank i sends its part j to rank j."""
    return _one_round(n, lambda src, dst: src * n + dst)


def all_reduce_phases(n: int) -> Phases:
    """Reduce-scatter, then all-gather."""
    return concatenate(reduce_scatter_phases(n), all_gather_phases(n))


def _chunked(collective: str, formula: str, summary: str) -> Algorithm:
    make = {
        "all_reduce": all_reduce_phases,
        "reduce_scatter": reduce_scatter_phases,
        "all_gather": all_gather_phases,
        "all_to_all": all_to_all_phases,
    }[collective]

    def schedule(placement: Placement, _options: Options) -> Schedule:
        n = placement.world_size
        return Schedule(collective, n, n * n if collective == "all_to_all" else n, (make(n),))

    def cost(n: int, layout: Layout, _options: Options) -> Cost:
        rounds = (2 if collective == "all_reduce" else 1) if n > 1 else 0
        sent = (n - 1) * layout.head(1)
        return Cost(rounds, rounds * (n - 1), rounds * sent, sent if "reduce" in collective else 0)

    return Algorithm("direct", collective, summary, formula, REFERENCE, schedule, cost)


def _rooted(collective: str, formula: str, summary: str) -> Algorithm:
    def schedule(placement: Placement, options: Options) -> Schedule:
        n, root = placement.world_size, options["root"]
        others = np.delete(np.arange(n, dtype=np.int64), root)
        if collective == "broadcast":
            phases = (single(make_round(root, others), n - 1),) if n > 1 else ()
        else:
            phases = (single(make_round(others, root, reduce=True), n - 1),) if n > 1 else ()
        return Schedule(collective, n, 1, (phases,), root=root)

    def cost(n: int, layout: Layout, _options: Options) -> Cost:
        sent = (n - 1) * layout.elements
        return Cost(min(n - 1, 1), n - 1, sent, sent if collective == "reduce" else 0)

    def loggp(n: int, layout: Layout, _options: Options, costs: LogGPCosts) -> Split:
        if n == 1:
            return 0.0, 0.0, 0.0
        if collective == "reduce":
            return costs.fan_in(layout.elements, n - 1, layout.elements)
        return joined(costs.fan_out(layout.elements, n - 2), costs.alone(layout.elements))

    return Algorithm(
        "direct", collective, summary, formula, REFERENCE, schedule, cost, (ROOT,), root_exists, loggp=loggp
    )


ALGORITHMS = (
    _chunked(
        "all_reduce",
        "2(alpha + (N-1)(o + M/NB)) + (N-1)/N M gamma",
        "reduce-scatter and all-gather in one round each (two-shot)",
    ),
    _chunked("reduce_scatter", "alpha + (N-1)(o + M/NB + M/N gamma)", "everyone sends part j to rank j at once"),
    _chunked("all_gather", "alpha + (N-1)(o + M/NB)", "everyone sends its part to everyone at once"),
    _chunked("all_to_all", "alpha + (N-1)(o + M/NB)", "all exchanges at once"),
    _rooted("broadcast", "alpha + (N-1)(o + M/B)", "the root sends to everyone at once"),
    _rooted("reduce", "alpha + (N-1)(o + M/B + M gamma)", "everyone sends to the root at once"),
)
