"""Collectives of different groups that run at once share the links: progress is max-min fair.

A collective alone lasts ``seconds`` and uses, on average over that time, the share ``use[level]`` of the ports
at a level (its busiest port's). While several run, each progresses at a rate of at most 1 such that the used shares of
a level never sum to more than 1: bytes over a port stay at most bandwidth x time. Rates grow together until a level is
full (progressive filling, Bertsekas and Gallager, Data Networks, section 6.5.2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import simpy

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
    """``left`` seconds alone, at the time ``since`` of its present rate."""

    left: float
    use: Use
    done: Callable[[], None]
    since: float
    rate: float = 0.0
    end: float = inf


class SharedLinks:
    """The collectives that run now. ``start`` adds one; its ``done`` is called when it has ended.

    One whose rate stays keeps the end that was computed for it; alone, that is start + seconds.
    """

    def __init__(self, env: simpy.Environment) -> None:
        """Share within one simulation."""
        self._env = env
        self._running: list[_Running] = []
        self._next: simpy.Event | None = None

    def start(self, seconds: float, use: Use, done: Callable[[], None]) -> None:
        """Run a collective that alone lasts ``seconds``."""
        self._running.append(_Running(seconds, use, done, self._env.now))
        self._share()

    def _share(self) -> None:
        now = self._env.now
        rates = fair_progress([running.use for running in self._running])
        for running, rate in zip(self._running, rates, strict=True):
            if rate != running.rate:
                running.left = max(running.left - running.rate * (now - running.since), 0.0)
                running.rate, running.since = rate, now
                running.end = now + running.left / rate
        if self._running:
            first = min(running.end for running in self._running)
            timeout = simpy.Timeout(self._env, max(first - now, 0.0))
            timeout.callbacks.append(self._finish)
            self._next = timeout

    def _finish(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        first = min(running.end for running in self._running)
        over = [running for running in self._running if running.end <= first]
        self._running = [running for running in self._running if running.end > first]
        for running in over:
            running.done()
        # Those that started meanwhile have shared already.
        if self._next is event:
            self._share()
