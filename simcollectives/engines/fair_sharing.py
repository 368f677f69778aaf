"""Flows that share resources max-min fairly, in a SimPy environment.

Flows that meet on a resource, and those that these meet elsewhere, form a component. All changes of one instant are
applied before rates are computed, and then only those of components that changed; each has one event, its next end. A
flow whose rate does not change keeps the end that was computed for it, so that equal flows end at the very same float.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import simpy
from simpy.events import EventPriority

from simcollectives.engines.filling import Flow, rates_of
from simcollectives.errors import ScheduleError

_NONE: list[Flow] = []
AFTER_ALL_CHANGES = EventPriority(2)
"""SimPy handles events of one instant by priority; changes have 0 or 1."""


@dataclass(slots=True, eq=False)
class _Component:
    """Flows joined by resources, until one ends or another joins: then it is empty, and its event has no effect."""

    flows: list[Flow]
    resources: list[int]
    end: float = inf


class FairNetwork:
    """Flows in a SimPy environment. ``start`` adds some; ``done`` is called with those that end at one instant."""

    def __init__(self, env: simpy.Environment, capacity: Sequence[float], done: Callable[[list[Flow]], None]) -> None:
        """Take the directed resources' capacities in bytes per second."""
        self._env, self._capacity, self._done = env, capacity, done
        self._on: list[dict[Flow, None]] = [{} for _ in capacity]
        self._new: list[Flow] = []
        self._changed: dict[int, None] = {}
        self._update_due = False

    def start(self, flows: Sequence[Flow]) -> None:
        """Add flows now: at once all that one event starts.

        Raises:
            ScheduleError: a flow would never end.
        """
        self._new += flows
        self._update_soon()

    def _update_soon(self) -> None:
        """Update now where nothing else is to come at this instant, else after all that is."""
        if self._update_due or not (self._new or self._changed):
            return
        if self._env.peek() > self._env.now:
            self._update()
            return
        self._update_due = True
        event = simpy.Event(self._env)
        event._ok = True
        event._value = None
        event.callbacks = [self._update]
        self._env.schedule(event, priority=AFTER_ALL_CHANGES)

    def _update(self, _event: simpy.Event | None = None) -> None:
        """Compute the rates of all components that have changed."""
        self._update_due = False
        now, on = self._env.now, self._on
        changed, self._changed = self._changed, {}
        new, self._new = self._new, []
        for flow in new:
            flow.since = now
            for r in flow.resources:
                on[r][flow] = None
                changed[r] = None
            if not flow.resources:
                self._move(_Component([flow], []), now)
        seen: set[int] = set()
        for r in changed:
            if r not in seen and on[r]:
                self._move(self._component(r, seen), now)

    def _component(self, first: int, seen: set[int]) -> _Component:
        """All flows that are joined to those on a resource; the resources they cross are added to ``seen``."""
        on = self._on
        flows: list[Flow] = []
        resources = [first]
        found = _Component(flows, resources)
        seen.add(first)
        route: Sequence[int] = ()
        for resource in resources:
            for flow in on[resource]:
                before = flow.component
                if before is found:
                    continue
                if before is not None:
                    before.flows = _NONE
                flow.component = found
                flows.append(flow)
                if flow.resources is not route:
                    route = flow.resources
                    for r in route:
                        if r not in seen:
                            seen.add(r)
                            resources.append(r)
        return found

    def _move(self, component: _Component, now: float) -> None:
        """Give the flows of a component their rates, and the component its end."""
        flows = component.flows
        rates = rates_of(flows, component.resources, self._on, self._capacity)
        for flow, rate in zip(flows, rates, strict=True):
            if rate != flow.rate:
                left = flow.left - flow.rate * (now - flow.since)
                flow.left = left = 0.0 if left < 0.0 else left
                flow.since, flow.rate = now, rate
                flow.end = now + left / rate if rate > 0.0 else inf
        first = min([flow.end for flow in flows])
        if not first < inf:
            what = f"{flows[0].left!r} bytes at {flows[0].rate!r} bytes/s"
            raise ScheduleError(f"{len(flows)} messages that share links would never end, the first with {what}")
        component.end = first
        simpy.Timeout(self._env, max(first - now, 0.0), component).callbacks.append(self._finish)

    def _finish(self, event: Any) -> None:
        """The earliest flows of a component have ended."""
        component: _Component = event.value
        flows, component.flows = component.flows, []
        if not flows:
            return
        on, end = self._on, component.end
        finished = [flow for flow in flows if flow.end <= end]
        if len(finished) == len(flows):
            for r in component.resources:
                on[r].clear()
        else:
            for flow in finished:
                for r in flow.resources:
                    del on[r][flow]
                    self._changed[r] = None
        # What follows from the ends at once belongs to the same update.
        due, self._update_due = self._update_due, True
        self._done(finished)
        self._update_due = due
        self._update_soon()
