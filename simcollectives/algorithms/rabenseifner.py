"""Rabenseifner (halving-doubling): reduce-scatter by recursive halving, all-gather by recursive doubling.

    (2l + 2f) (alpha + o) + (2 (P - 1)/P + 2f) M/B + ((P - 1)/P + f) M gamma

P = 2^l is the largest power of two in N and f = 1 where N is larger: the other ranks are folded in. Option ``order``:
``near`` halves at distances 1, 2, .., P/2, so that the big halves stay inside a node; ``far`` starts at P/2. The
all-gather mirrors the reduce-scatter. With uneven chunks the sums of the largest halves replace (P - 1)/P M.

Reference: Rabenseifner, ICCS 2004; Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

from simcollectives.algorithms.butterfly import floor_log2, halving_elements, reduce_scatter_phases
from simcollectives.algorithms.types import Algorithm, Cost, Options, Placement, choice
from simcollectives.schedule.combinators import concatenate, fold_in, reverse
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Schedule


def schedule(placement: Placement, options: Options) -> Schedule:
    """Halve, then mirror it."""
    n = placement.world_size
    power = 1 << floor_log2(n)
    halving = reduce_scatter_phases(power, options["order"])
    inner = concatenate(halving, reverse(halving))
    return Schedule("all_reduce", n, power, (fold_in(n, power, power, inner),))


def cost(n: int, layout: Layout, options: Options) -> Cost:
    """Critical path through the rank that always receives the largest half."""
    length = floor_log2(n)
    folds = 0 if n == 1 << length else 1
    rounds = 2 * length + 2 * folds
    halves = halving_elements(1 << length, layout, options["order"])
    whole = folds * layout.elements
    return Cost(rounds, rounds, 2 * halves + 2 * whole, halves + whole)


ALGORITHMS = (
    Algorithm(
        name="rabenseifner",
        collective="all_reduce",
        summary="recursive halving, then doubling; least bytes in few rounds",
        formula="(2l + 2f)(alpha + o) + (2(P-1)/P + 2f) M/B + ((P-1)/P + f) M gamma",
        reference="Rabenseifner 2004",
        schedule=schedule,
        cost=cost,
        options=(choice("order", ("near", "far"), "near", "distance halved at first: near (1) or far (N/2)"),),
    ),
)
