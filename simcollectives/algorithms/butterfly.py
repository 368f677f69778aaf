"""Butterfly: partners at distances 1, 2, 4, .. exchange; rank i meets rank i xor distance.

    all_reduce      (l + 2f) (alpha + o + M/B) + (l + f) M gamma    l = floor(log2 N), f = 1 unless N is a power of two
    reduce_scatter  l (alpha + o) + (N - 1)/N M (1/B + gamma)       N a power of two
    all_gather      l (alpha + o) + (N - 1)/N M/B                   N a power of two

The all-reduce is recursive doubling: whole vectors, fewest rounds, most bytes. Other world sizes fold the extra ranks
in (two more rounds). Reduce-scatter halves what is sent each round and all-gather doubles it; option ``order`` says
which distance comes first: ``near`` (1) or ``far`` (N/2). Big halves stay inside a node where a reduce-scatter starts
near and an all-gather starts far. With uneven chunks the sums of the largest halves replace (N - 1)/N M.

Reference: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

import numpy as np

from simcollectives.algorithms.types import Algorithm, Cost, Options, Placement, choice, powers_of_two
from simcollectives.schedule.combinators import fold_in, reverse
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Phases, Round, Schedule, make_round, regular_phases

REFERENCE = "Thakur, Rabenseifner and Gropp 2005"


def floor_log2(n: int) -> int:
    """floor(log2 n)."""
    return n.bit_length() - 1


def all_reduce_phases(power: int) -> Phases:
    """Recursive doubling on a power of two of ranks, one chunk."""
    rank = np.arange(power, dtype=np.int64)
    return regular_phases(
        floor_log2(power), lambda step: make_round(rank, rank ^ (1 << step), reduce=True), reduces=True
    )


def reduce_scatter_phases(power: int, order: str) -> Phases:
    """Halving: rank i ends with chunk i. Near: the chunks that agree with a rank in its low bits; far: in its high."""
    rank = np.arange(power, dtype=np.int64)
    rounds = floor_log2(power)

    def near(step: int) -> Round:
        partner = rank ^ (1 << step)
        stride = 2 << step
        first = partner & (stride - 1)
        return make_round(rank, partner, first=first, count=power // stride, stride=stride, reduce=True)

    def far(step: int) -> Round:
        half = power >> (step + 1)
        partner = rank ^ half
        return make_round(rank, partner, first=partner & -half, count=half, reduce=True)

    round_at = near if order == "near" else far
    return regular_phases(rounds, round_at, chunks=lambda step: power >> (step + 1), reduces=True)


def all_gather_phases(power: int, order: str) -> Phases:
    """Doubling: a reduce-scatter of the other order, backwards."""
    return reverse(reduce_scatter_phases(power, "far" if order == "near" else "near"))


def halving_elements(power: int, layout: Layout, order: str) -> int:
    """Elements on the critical path of a reduce-scatter: rank 0 always receives the largest half."""
    halves = [power >> (step + 1) for step in range(floor_log2(power))]
    if order == "near":
        return sum(layout.head(half, stride=power // half) for half in halves)
    return sum(layout.head(half) for half in halves)


def _all_reduce_schedule(placement: Placement, _options: Options) -> Schedule:
    n = placement.world_size
    power = 1 << floor_log2(n)
    return Schedule("all_reduce", n, 1, (fold_in(n, 1, power, all_reduce_phases(power)),))


def _all_reduce_cost(n: int, layout: Layout, _options: Options) -> Cost:
    length = floor_log2(n)
    folds = 0 if n == 1 << length else 1
    rounds = length + 2 * folds
    return Cost(rounds, rounds, rounds * layout.elements, (length + folds) * layout.elements)


def _halving(collective: str, formula: str, default: str) -> Algorithm:
    gather = collective == "all_gather"

    def schedule(placement: Placement, options: Options) -> Schedule:
        n = placement.world_size
        make = all_gather_phases if gather else reduce_scatter_phases
        return Schedule(collective, n, n, (make(n, options["order"]),))

    def cost(n: int, layout: Layout, options: Options) -> Cost:
        order = options["order"]
        scatter_order = order if not gather else "far" if order == "near" else "near"
        elements = halving_elements(n, layout, scatter_order)
        return Cost(floor_log2(n), floor_log2(n), elements, 0 if gather else elements)

    return Algorithm(
        name="butterfly",
        collective=collective,
        summary=f"recursive {'doubling' if gather else 'halving'}; needs a power of two of ranks",
        formula=formula,
        reference=REFERENCE,
        schedule=schedule,
        cost=cost,
        options=(choice("order", ("near", "far"), default, "which distance comes first: near (1) or far (N/2)"),),
        accepts=powers_of_two,
    )


ALGORITHMS = (
    Algorithm(
        name="butterfly",
        collective="all_reduce",
        summary="recursive doubling of whole vectors; fewest rounds of one message each",
        formula="(l + 2f)(alpha + o + M/B) + (l + f) M gamma",
        reference=REFERENCE,
        schedule=_all_reduce_schedule,
        cost=_all_reduce_cost,
    ),
    _halving("reduce_scatter", "l(alpha + o) + (N-1)/N M (1/B + gamma)", "near"),
    _halving("all_gather", "l(alpha + o) + (N-1)/N M/B", "far"),
)
