"""Binomial tree: a broadcast doubles the informed ranks each round; a reduce runs it backwards.

    broadcast   q (alpha + o + M/B)                q = ceil(log2 N)
    reduce      q (alpha + o + M/B + M gamma)
    all_reduce  reduce to rank 0, then broadcast

Broadcast round r (k = q - 1 - r): every multiple i of 2^(k+1) sends to i + 2^k if that is a rank. The whole message
moves in each round: fit for small messages. The root sends q M, a rank with j trailing zero bits j M (plus M upwards).

Reference: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005). A complete binary tree costs more in this model: its
parents serve two children a round.

Time variant loggp, c = 2 o + L + M G: a broadcast reaches rank v after popcount(v) c + j max(o, g + M G), where j
counts the children that v's ancestors served before those on the way to v; under rendezvous o + L replaces o in the
maximum. A reduce takes q (c + M gamma) for N = 2^q; no form is exact for other N.
"""

import numpy as np

from simcollectives.algorithms.types import (
    ROOT,
    Algorithm,
    Cost,
    LogGPCosts,
    Options,
    Placement,
    Split,
    any_size,
    joined,
    root_exists,
)
from simcollectives.schedule.combinators import concatenate, relabel, reverse
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Phases, Round, Schedule, make_round, repeated

REFERENCE = "Thakur, Rabenseifner and Gropp 2005"


def depth(n: int) -> int:
    """ceil(log2 n)."""
    return (n - 1).bit_length()


def broadcast_phases(n: int) -> Phases:
    """From rank 0, the longest distance first."""
    q = depth(n)

    def round_at(step: int) -> Round:
        distance = 1 << (q - 1 - step)
        parents = np.arange(0, n - distance, 2 * distance, dtype=np.int64)
        return make_round(parents, parents + distance)

    return repeated(q, round_at)


def _schedule(collective: str, n: int, root: int) -> Schedule:
    down = broadcast_phases(n)
    up = reverse(down)
    phases = {"broadcast": down, "reduce": up, "all_reduce": concatenate(up, down)}[collective]
    if root:
        phases = relabel(phases, (np.arange(n, dtype=np.int64) + root) % n)
    return Schedule(collective, n, 1, (phases,), root=root)


def _served_before(n: int, v: int) -> int:
    """Children that the ancestors of ``v`` have, at longer distances than those on the way from rank 0 to ``v``."""
    served, ancestor, longest = 0, 0, depth(n)
    for k in reversed(range(v.bit_length())):
        if v >> k & 1:
            served += sum(1 for other in range(k + 1, longest) if ancestor + (1 << other) < n)
            ancestor, longest = ancestor + (1 << k), k
    return served


def _broadcast_loggp(n: int, elements: int, costs: LogGPCosts) -> Split:
    ends = {(v.bit_count(), _served_before(n, v)) for v in range(1, n)}
    ways = [
        joined(costs.alone(elements, times=hops), costs.fan_out(elements, served, rounds=True)) for hops, served in ends
    ]
    return max(ways, key=sum, default=(0.0, 0.0, 0.0))


def _loggp(collective: str, n: int, elements: int, costs: LogGPCosts) -> Split | None:
    down = (0.0, 0.0, 0.0) if collective == "reduce" else _broadcast_loggp(n, elements, costs)
    if collective == "broadcast":
        return down
    if n & (n - 1) or not costs.overlaps:
        return None
    return joined(costs.alone(elements, elements, times=depth(n)), down)


def _algorithm(collective: str, formula: str, summary: str) -> Algorithm:
    rooted = collective != "all_reduce"

    def schedule(placement: Placement, options: Options) -> Schedule:
        return _schedule(collective, placement.world_size, options["root"] if rooted else 0)

    def cost(n: int, layout: Layout, _options: Options) -> Cost:
        q = depth(n)
        rounds = q if rooted else 2 * q
        reduced = 0 if collective == "broadcast" else q * layout.elements
        return Cost(rounds, rounds, rounds * layout.elements, reduced)

    return Algorithm(
        name="tree",
        collective=collective,
        summary=summary,
        formula=formula,
        reference=REFERENCE,
        schedule=schedule,
        cost=cost,
        options=(ROOT,) if rooted else (),
        accepts=root_exists if rooted else any_size,
        loggp=lambda n, layout, _options, costs: _loggp(collective, n, layout.elements, costs),
    )


ALGORITHMS = (
    _algorithm("all_reduce", "2q(alpha + o + M/B) + q M gamma", "binomial reduce, then binomial broadcast"),
    _algorithm("broadcast", "q(alpha + o + M/B)", "binomial tree from the root"),
    _algorithm("reduce", "q(alpha + o + M/B + M gamma)", "binomial tree into the root"),
)
