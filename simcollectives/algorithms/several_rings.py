"""What algorithms of several rings at once have in common: a ring is a channel, with its share of every rank's part.

    T = passes (N - 1) (largest of alpha + k (o + n/B) + n gamma)      n = bytes of a chunk, M/(c N) for c channels

passes is 2 for an all-reduce, else 1; an all-gather and the second pass of an all-reduce pay no gamma; k is the most
messages of a round on one port of a level, the largest is that over levels. Exact for equal chunks: no flow ever has
less than 1/k of a port, so that no round lasts longer; on the busiest ports of the slowest level all k start together
and get just that, round after round, and all others wait for them, as an uneven ring waits for its slowest edge.
Channels reduce at the same time, each its own chunk. With uneven chunks rings drift apart where they share ports, and
no form is exact but that of one ring.
"""

from collections.abc import Callable

import numpy as np

from simcollectives.algorithms import ring
from simcollectives.algorithms.types import Algorithm, Cost, LevelCost, Option, Options, Placement
from simcollectives.cluster.link import Link
from simcollectives.cluster.types import Cluster
from simcollectives.schedule.combinators import share
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import IntArray, Phases, Schedule

RankAt = Callable[[Placement, int, int, IntArray], IntArray]
"""``rank_at(placement, channel, channels, positions)``: the ranks at these positions of a channel's ring."""


def algorithm(
    name: str,
    collective: str,
    *,
    summary: str,
    formula: str,
    reference: str,
    channels: Callable[[Placement, Options], int],
    rank_at: RankAt,
    options: tuple[Option, ...] = (),
) -> Algorithm:
    """Build an algorithm of ``channels(placement, options)`` rings."""

    def schedule(placement: Placement, chosen: Options) -> Schedule:
        n, count = placement.world_size, channels(placement, chosen)
        rings = tuple(_ring(collective, placement, channel, count, rank_at) for channel in range(count))
        return Schedule(collective, n, count * n, rings)

    def cost(n: int, layout: Layout, _options: Options) -> Cost | None:
        count = layout.chunks // n
        return _cost(collective, n, layout, count) if layout.even or 1 in (n, count) else None

    def level_costs(cluster: Cluster, layout: Layout, itemsize: int, chosen: Options) -> tuple[LevelCost, ...] | None:
        n, count = cluster.world_size, layout.chunks // cluster.world_size
        if cluster.uniform_link is not None:
            whole = cost(n, layout, chosen)
            return None if whole is None else (LevelCost(cluster.levels[0].name, whole),)
        if not layout.even:
            return None
        busiest = zip(cluster.levels, _messages_on_ports(cluster, count, rank_at), strict=True)
        used = [(level, messages) for level, messages in busiest if messages]
        chunk_bytes = layout.floor * itemsize
        level, messages = max(used, key=lambda one: _round_seconds(one[0].link, one[1], chunk_bytes))
        return (LevelCost(level.name, _cost(collective, n, layout, messages)),)

    return Algorithm(name, collective, summary, formula, reference, schedule, cost, options, level_costs=level_costs)


def _ring(collective: str, placement: Placement, channel: int, channels: int, rank_at: RankAt) -> Phases:
    n = placement.world_size
    position = np.arange(n, dtype=np.int64)
    phases = ring.phases(collective, n)
    if channels == 1 and np.array_equal(rank_at(placement, 0, 1, position), position):
        # The plain ring, as it is: what it declares lets engines go fast.
        return phases
    return share(phases, channel, channels, lambda positions: rank_at(placement, channel, channels, positions))


def _cost(collective: str, n: int, layout: Layout, messages: int) -> Cost:
    """The path of rings with ``messages`` on the busiest port of the slowest level."""
    rounds = (2 if collective == "all_reduce" else 1) * (n - 1)
    reduced = 0 if collective == "all_gather" else (n - 1) * layout.head(1)
    return Cost(rounds, rounds * messages, rounds * messages * layout.head(1), reduced)


def _round_seconds(link: Link, messages: int, chunk_bytes: int) -> float:
    return link.alpha + messages * (link.overhead + chunk_bytes / link.bandwidth)


def _messages_on_ports(cluster: Cluster, channels: int, rank_at: RankAt) -> list[int]:
    """[level]: the most messages that one port sends or receives in a round of all rings."""
    n, placement = cluster.world_size, Placement(cluster.groups)
    position = np.arange(n, dtype=np.int64)
    loads = np.zeros((len(cluster.levels), 2, n), dtype=np.int64)
    for channel in range(channels):
        src = rank_at(placement, channel, channels, position)
        dst = np.roll(src, -1)
        level = cluster.network.levels_crossed(src, dst)
        loads[level, 0, src] += 1
        loads[level, 1, dst] += 1
    return [int(most) for most in loads.max(axis=(1, 2))]
