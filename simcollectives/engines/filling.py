"""Max-min fair rates of flows, by progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2).

All rates grow together; those on a resource that is full stop growing, and those that have reached their own cap.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Any

TIE = 1 + 1e-12
"""Levels no further apart than this factor are one, so that equal flows get equal rates whatever rounding did."""


class Flow:
    """Bytes on their way over ``resources``, shared with other flows, at a rate of at most ``cap`` B/s.

    ``left`` bytes were left at ``since``; at ``rate`` the last of them has passed at ``end``. Flows of one route should
    hold one and the same ``resources``, which is then walked once.
    """

    __slots__ = ("cap", "component", "end", "left", "rate", "resources", "since", "token")

    def __init__(self, resources: Sequence[int], left: float, token: Any = None, cap: float = inf) -> None:
        """Make a flow of ``left`` bytes that does not move yet; no resource comes twice."""
        self.resources, self.left, self.token, self.cap = resources, left, token, cap
        self.rate = self.since = 0.0
        self.end = inf
        self.component: Any = None


FlowsOn = Mapping[int, Collection[Flow]] | Sequence[Collection[Flow]]
"""The flows on each resource."""


def fair_rates(
    routes: Sequence[Sequence[int]], capacity: Sequence[float], caps: Sequence[float] | None = None
) -> list[float]:
    """Max-min fair rates in B/s of flows that cross the resources ``routes`` [flow, hop], none above its cap.

    >>> fair_rates([[0, 1], [0, 2]], [10.0, 10.0, 3.0])
    [7.0, 3.0]
    """
    limits = [inf] * len(routes) if caps is None else caps
    flows = [Flow(tuple(dict.fromkeys(route)), 1.0, cap=cap) for route, cap in zip(routes, limits, strict=True)]
    on: dict[int, list[Flow]] = {}
    for flow in flows:
        for r in flow.resources:
            on.setdefault(r, []).append(flow)
    return rates_of(flows, list(on), on, capacity)


def rates_of(flows: Sequence[Flow], resources: Sequence[int], on: FlowsOn, capacity: Sequence[float]) -> list[float]:
    """[flow]: rates in B/s, each at most the flow's cap.

    ``resources`` are all that the flows cross, and ``on`` has no other flows on them.
    """
    count = len(flows)
    caps = [flow.cap for flow in flows]
    if not resources:
        return caps
    crossing = [len(on[r]) for r in resources]
    shares = [capacity[r] / n for r, n in zip(resources, crossing, strict=True)]
    level = min(shares)
    tightest = shares.index(level)
    if min(caps) >= level:
        if crossing[tightest] == count or (max(shares) <= level * TIE and all(flow.resources for flow in flows)):
            return [level] * count
    elif max(caps) <= level:
        return caps
    elif min(crossing) == count:
        level = _level(caps, capacity[resources[tightest]])
        return [level if level < cap else cap for cap in caps]
    rates = _Filling(flows, resources, on, capacity).run()
    return [rates[flow] for flow in flows]


def _level(caps: list[float], capacity: float) -> float:
    """On one resource that all flows cross: those with caps below their share leave the rest of it to the others."""
    while caps:
        share = capacity / len(caps)
        above = [cap for cap in caps if cap >= share]
        if len(above) == len(caps):
            return share
        capacity -= sum([cap for cap in caps if cap < share])
        caps = above
    return inf


class _Filling:
    """Filling under way. A resource's share for each flow never falls, so that the heap may hold old ones."""

    def __init__(self, flows: Sequence[Flow], resources: Sequence[int], on: FlowsOn, capacity: Sequence[float]) -> None:
        self.flows, self.on = flows, on
        self.rates: dict[Flow, float] = {}
        self.left = {r: capacity[r] for r in resources}
        self.moving = {r: len(on[r]) for r in resources}
        self.heap = [(self.left[r] / self.moving[r], r) for r in resources]
        heapify(self.heap)
        self.capped = sorted((flow for flow in flows if flow.cap < inf), key=lambda flow: flow.cap, reverse=True)

    def run(self) -> dict[Flow, float]:
        """Fill until every flow has its rate."""
        rates, left, moving = self.rates, self.left, self.moving
        while len(rates) < len(self.flows):
            level = self._next_level()
            if level == inf:
                return {flow: rates.get(flow, inf) for flow in self.flows}
            fewer: dict[int, int] = {}
            for flow in self._stopped_at(level):
                rates[flow] = level
                for r in flow.resources:
                    fewer[r] = fewer.get(r, 0) + 1
            for r, stopped in fewer.items():
                left[r] = max(left[r] - stopped * level, 0.0)
                moving[r] -= stopped
        return rates

    def _next_level(self) -> float:
        """The least share of a resource with moving flows, or the least cap of a moving flow."""
        heap, capped, left, moving = self.heap, self.capped, self.left, self.moving
        while capped and capped[-1] in self.rates:
            capped.pop()
        lowest = capped[-1].cap if capped else inf
        while heap:
            share, r = heap[0]
            if not moving[r]:
                heappop(heap)
                continue
            now = left[r] / moving[r]
            if now <= share:
                return min(now, lowest)
            heapreplace(heap, (now, r))
        return lowest

    def _stopped_at(self, level: float) -> dict[Flow, None]:
        """Moving flows that have reached their cap, or are on a full resource."""
        heap, capped, rates, limit = self.heap, self.capped, self.rates, level * TIE
        stopped: dict[Flow, None] = {}
        while capped and capped[-1].cap <= limit:
            stopped[capped.pop()] = None
        full = []
        while heap and heap[0][0] <= limit:
            r = heappop(heap)[1]
            if not self.moving[r]:
                continue
            share = self.left[r] / self.moving[r]
            if share <= limit:
                full.append(r)
            else:
                heappush(heap, (share, r))
        for r in full:
            stopped.update(dict.fromkeys(self.on[r]))
        return {flow: None for flow in stopped if flow not in rates}
