"""Collectives of different groups that run at once share the links: progress is max-min fair.

A collective alone lasts ``seconds`` and uses, on average over that time, the share ``use[port]`` of ports (its busiest
one's of a level, or one by one). While several run, each progresses at a rate of at most 1 such that the used shares of
a port never sum to more than 1: bytes over a port stay at most bandwidth x time. Rates grow together until a port is
full (progressive filling, Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

import simpy

Use = Mapping[Any, float]
"""Shares by port."""


def fair_progress(uses: Sequence[Use]) -> list[float]:
    """Rates of collectives by the shares of the ports that they use alone.

    >>> fair_progress([{"inter": 1.0}, {"inter": 1.0, "intra": 0.5}, {"intra": 0.25}])
    [0.5, 0.5, 1.0]
    """
    rates = [1.0] * len(uses)
    growing = set(range(len(uses)))
    left = dict.fromkeys((port for use in uses for port in use), 1.0)
    while growing:
        wanted = dict.fromkeys(left, 0.0)
        for i in sorted(growing):
            for port, share in uses[i].items():
                wanted[port] += share
        # An allowance of one rounding, so that a port that is exactly full is.
        rate = min((left[port] / share for port, share in wanted.items() if share > 0), default=1.0)
        if rate >= 1.0 - 1e-12:
            break
        full = {port for port, share in wanted.items() if share > 0 and left[port] / share == rate}
        stopped = {i for i in growing if any(uses[i].get(port, 0.0) > 0 for port in full)}
        for i in stopped:
            rates[i] = rate
            for port, share in uses[i].items():
                left[port] = max(left[port] - share * rate, 0.0)
        growing -= stopped
    return rates


@dataclass(slots=True)
class _Running:
    """``left`` seconds alone, at the time ``since`` of its present rate."""

    number: int
    left: float
    use: Use
    done: Callable[[], None]
    since: float
    rate: float = 0.0
    end: float = inf


class SharedLinks:
    """The collectives that run now. ``start`` adds one; its ``done`` is called when it has ended.

    One whose rate stays keeps the end that was computed for it; alone, that is start + seconds. When one comes or goes,
    only those that are joined to it by ports get new rates.
    """

    def __init__(self, env: simpy.Environment) -> None:
        """Share within one simulation."""
        self._env = env
        self._numbers = count()
        self._users: dict[Hashable, dict[int, _Running]] = {}
        self._ends: list[tuple[float, int, _Running]] = []
        self._next: simpy.Event | None = None
        self._next_time = inf

    def start(self, seconds: float, use: Use, done: Callable[[], None]) -> None:
        """Run a collective that alone lasts ``seconds``."""
        running = _Running(next(self._numbers), seconds, use, done, self._env.now)
        for port in use:
            self._users.setdefault(port, {})[running.number] = running
        self._share([running])
        self._wake()

    def _share(self, changed: Sequence[_Running]) -> None:
        """Give new rates to what is joined to some by ports."""
        now = self._env.now
        together = self._joined(changed)
        rates = fair_progress([running.use for running in together]) if len(together) > 1 else [1.0] * len(together)
        for running, rate in zip(together, rates, strict=True):
            if rate != running.rate:
                running.left = max(running.left - running.rate * (now - running.since), 0.0)
                running.rate, running.since = rate, now
                running.end = now + running.left / rate
                heapq.heappush(self._ends, (running.end, running.number, running))

    def _joined(self, some: Sequence[_Running]) -> list[_Running]:
        found = {running.number: running for running in some}
        to_do, seen = list(some), set()
        while to_do:
            for port in to_do.pop().use:
                if port not in seen:
                    seen.add(port)
                    new = {number: other for number, other in self._users[port].items() if number not in found}
                    found |= new
                    to_do += new.values()
        return [found[number] for number in sorted(found)]

    def _wake(self) -> None:
        """Be called at the next end."""
        while self._ends and self._ends[0][0] != self._ends[0][2].end:
            heapq.heappop(self._ends)
        first = self._ends[0][0] if self._ends else inf
        if first == self._next_time:
            return
        self._next, self._next_time = None, first
        if self._ends:
            self._next = simpy.Timeout(self._env, max(first - self._env.now, 0.0))
            self._next.callbacks.append(self._finish)

    def _finish(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        over: dict[int, _Running] = {}
        while self._ends and self._ends[0][0] <= self._next_time:
            end, number, running = heapq.heappop(self._ends)
            if end == running.end:
                over[number] = running
        left = [running for running in self._joined(list(over.values())) if running.number not in over]
        for running in over.values():
            running.end = -inf
            for port in running.use:
                del self._users[port][running.number]
        self._next, self._next_time = None, inf
        for running in over.values():
            running.done()
        self._share(left)
        self._wake()
