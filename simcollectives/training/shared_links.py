"""Collectives of different groups that run at once share the links: progress is max-min fair.

A collective alone lasts ``seconds`` and uses, on average over that time, the share ``use[level]`` of each rank's port
at a level. While several run, each progresses at a rate of at most 1 such that the used shares of a level never sum to
more than 1: bytes over a port stay at most bandwidth x time. Rates grow together until a level is full (progressive
filling, Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from simcollectives.engines.fair_sharing import AFTER_ALL_CHANGES

Use = Mapping[str, float]


def fair_progress(uses: Sequence[Use]) -> list[float]:
    """Rates of collectives by the shares of the levels' ports that they use alone.

    >>> fair_progress([{"inter": 1.0}, {"inter": 1.0, "intra": 0.5}, {"intra": 0.25}])
    [0.5, 0.5, 1.0]
    """
    rates = [1.0] * len(uses)
    growing = set(range(len(uses)))
    left = dict.fromkeys({level for use in uses for level in use}, 1.0)
    while growing:
        wanted = {level: sum(uses[i].get(level, 0.0) for i in growing) for level in left}
        # An allowance of one rounding, so that a port that is exactly full is.
        rate, full = min(((left[x] / w, x) for x, w in wanted.items() if w > 0), default=(1.0, ""))
        if rate >= 1.0 - 1e-12:
            break
        stopped = {i for i in growing if uses[i].get(full, 0.0) > 0}
        for i in stopped:
            rates[i] = rate
            for level, share in uses[i].items():
                left[level] = max(left[level] - share * rate, 0.0)
        growing -= stopped
    return rates


@dataclass(slots=True)
class _Running:
    left: float
    use: Use
    done: Callable[[], None]
    rate: float = 0.0


class SharedLinks:
    """The collectives that run now. ``start`` adds one; its ``done`` is called when it has ended."""

    def __init__(self, env: simpy.Environment) -> None:
        """Share within one simulation."""
        self._env = env
        self._running: list[_Running] = []
        self._since = 0.0
        self._due = False
        self._next: simpy.Event | None = None

    def start(self, seconds: float, use: Use, done: Callable[[], None]) -> None:
        """Run a collective that alone lasts ``seconds``."""
        self._progress()
        self._running.append(_Running(seconds, use, done))
        self._request()

    def _progress(self) -> None:
        passed = self._env.now - self._since
        for running in self._running:
            running.left -= running.rate * passed
        self._since = self._env.now

    def _request(self) -> None:
        if not self._due:
            self._due = True
            self._call(self._update, 0.0, AFTER_ALL_CHANGES)

    def _update(self, _event: Any) -> None:
        self._due = False
        if not self._running:
            return
        self._progress()
        rates = fair_progress([running.use for running in self._running])
        for running, rate in zip(self._running, rates, strict=True):
            running.rate = rate
        wait = min(max(running.left, 0.0) / running.rate for running in self._running)
        self._next = self._call(self._finish, wait, AFTER_ALL_CHANGES)

    def _finish(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        first = min(running.left / running.rate for running in self._running)
        over = [running for running in self._running if running.left / running.rate <= first]
        self._progress()
        self._running = [running for running in self._running if running not in over]
        if self._running:
            self._request()
        for running in over:
            running.done()

    def _call(self, callback: Callable[[simpy.Event], None], delay: float, priority: Any) -> simpy.Event:
        event = simpy.Event(self._env)
        event._ok = True
        event._value = None
        if event.callbacks is not None:
            event.callbacks.append(callback)
        self._env.schedule(event, priority=priority, delay=delay)
        return event
