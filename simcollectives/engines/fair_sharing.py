"""Max-min fair sharing of resources among flows, by progressive filling.

All changes of one instant are applied before rates are computed; a flow whose rate does not change keeps the end that
was computed for it, so that equal flows end at the very same float.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy
from simpy.events import EventPriority

from simcollectives.schedule.types import IntArray

FloatArray = npt.NDArray[np.float64]
AFTER_ALL_CHANGES = EventPriority(2)
"""SimPy handles events of one instant by priority; changes have 0 or 1."""


def fair_rates(resources: IntArray, capacity: FloatArray) -> FloatArray:
    """Max-min fair rates in bytes per second of flows that cross ``resources`` [flow, hop].

    Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): all rates grow together, and those on a
    resource that is full stop growing.

    >>> fair_rates(np.array([[0, 1], [0, 2]]), np.array([10.0, 10.0, 3.0])).tolist()
    [7.0, 3.0]
    """
    rates = np.zeros(len(resources))
    left = capacity.astype(np.float64, copy=True)
    open_ = np.arange(len(resources))
    while len(open_):
        crossed = resources[open_]
        flows = np.bincount(crossed.reshape(-1), minlength=len(left))
        share = np.divide(left, flows, out=np.full(len(left), np.inf), where=flows > 0)
        level = share.min()
        full = share <= level * (1 + 1e-12)
        stopped = full[crossed].any(axis=1)
        rates[open_[stopped]] = level
        used = np.bincount(crossed[stopped].reshape(-1), minlength=len(left)) * level
        left = np.maximum(left - used, 0.0)
        open_ = open_[~stopped]
    return rates


class FairNetwork:
    """Flows in a SimPy environment. ``start`` adds one; ``done(token)`` is called when its bytes have passed."""

    def __init__(self, env: simpy.Environment, capacity: FloatArray, done: Callable[[Any], None]) -> None:
        """Take the directed resources' capacities in bytes per second."""
        self._env, self._capacity, self._done = env, capacity, done
        self._resources: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._left = np.zeros(0)
        self._rate = np.zeros(0)
        self._since = np.zeros(0)
        self._end = np.zeros(0)
        self._tokens: list[Any] = []
        self._new: list[tuple[list[int], float, Any]] = []
        self._update_due = False
        self._next: simpy.Event | None = None

    def start(self, resources: list[int], work_bytes: float, token: Any) -> None:
        """Add a flow of ``work_bytes`` over ``resources`` now."""
        self._new.append((resources, work_bytes, token))
        self._request_update()

    def _request_update(self) -> None:
        if not self._update_due:
            self._update_due = True
            event = _triggered(self._env, self._update)
            self._env.schedule(event, priority=AFTER_ALL_CHANGES)

    def _update(self, _event: simpy.Event) -> None:
        self._update_due = False
        now = self._env.now
        if self._new:
            added, work, tokens = zip(*self._new, strict=True)
            rows = np.array(added, dtype=np.int64)
            self._resources = np.concatenate([self._resources, rows]) if self._tokens else rows
            self._left = np.concatenate([self._left, work])
            self._rate = np.concatenate([self._rate, np.zeros(len(work))])
            self._since = np.concatenate([self._since, np.full(len(work), now)])
            self._end = np.concatenate([self._end, np.full(len(work), np.inf)])
            self._tokens += tokens
            self._new = []
        if not self._tokens:
            return
        rates = fair_rates(self._resources, self._capacity)
        changed = rates != self._rate
        self._left[changed] -= self._rate[changed] * (now - self._since[changed])
        np.maximum(self._left, 0.0, out=self._left)
        self._since[changed] = now
        self._rate = rates
        self._end[changed] = now + self._left[changed] / rates[changed]
        event = _triggered(self._env, self._finish)
        self._next = event
        self._env.schedule(event, delay=max(float(self._end.min()) - now, 0.0))

    def _finish(self, event: simpy.Event) -> None:
        if event is not self._next:
            return
        over = self._end <= self._end.min()
        finished = [self._tokens[i] for i in np.flatnonzero(over)]
        keep = ~over
        self._resources, self._left, self._rate = self._resources[keep], self._left[keep], self._rate[keep]
        self._since, self._end = self._since[keep], self._end[keep]
        self._tokens = [self._tokens[i] for i in np.flatnonzero(keep)]
        self._request_update()
        for token in finished:
            self._done(token)


def _triggered(env: simpy.Environment, callback: Callable[[simpy.Event], None]) -> simpy.Event:
    event = simpy.Event(env)
    event._ok = True
    event._value = None
    if event.callbacks is not None:
        event.callbacks.append(callback)
    return event
