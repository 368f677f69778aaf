"""What DeepSpeed's stage 3 gathers and releases at each module: its PartitionedParameterCoordinator, without streams.

The first pass is recorded: parameters are gathered when a module needs them and released after it, so that exactly
Psi + Psi elements are gathered. From the second on, a queue of all uses is known, and

- at a module, what it needs and nobody gathered is gathered at once; then uses are taken off the queue until those of
  the module are;
- then up to ``prefetch`` elements are gathered ahead, while fewer than ``max_live`` are held: the last parameter goes
  over; what is held already is skipped, but noted as wanted at that use;
- after a module its parameters are released, but not those noted for a later use, those used again within
  ``max_reuse`` elements, or those that are ``persistent``.

Shards that are ``on_drive`` are read into one of a few buffers of the host, and stay there until the parameter is
released. The next of the queue are read while twice the elements in flight are passed, and buffers last; what has not
been read ends the gathering ahead.

Reference: deepspeed 0.19.8, runtime/zero/partitioned_param_coordinator.py.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from simcollectives.errors import InputError, Problem
from simcollectives.training.model import Parameter
from simcollectives.training.strategies.types import Options
from simcollectives.training.strategies.zero_visits import Stop, Visit


@dataclass(frozen=True)
class Fetch:
    """What one module's hook does: gathers ``needed``, waits for ``waited``, gathers ``ahead``, reads from drives."""

    needed: tuple[Parameter, ...]
    waited: tuple[Parameter, ...]
    ahead: tuple[Parameter, ...]
    read: tuple[Parameter, ...] = ()


@dataclass
class Coordinator:
    """Follows the visits of a forward and a backward pass. ``known``: they were recorded before.

    ``live`` are the elements gathered and not released, ``most_live`` the most of them; persistent parameters that were
    there from the start do not count. ``buffers`` are those of the host for shards ``on_drive``.
    """

    visits: Sequence[Visit]
    options: Options
    persistent: frozenset[str]
    known: bool = True
    available: set[str] = field(default_factory=set)
    live: int = 0
    most_live: int = 0
    on_drive: frozenset[str] = frozenset()
    buffers: int = 0

    def __post_init__(self) -> None:
        uses = [(p, step) for step, visit in enumerate(self.visits) for p in visit.parameters]
        self.queue = deque(uses if self.known else [])
        self.wanted: dict[str, int] = {}
        self.in_flight: set[str] = set()
        self.read: set[str] = set()
        self.elements = {p.name: p.elements for p, _ in uses}
        self.step = 0

    def fetch(self, visit: Visit) -> Fetch:
        """Run the hook before a module."""
        needed = [p for p in visit.parameters if self._is_away(p)]
        self._gather(needed)
        waited = [p for p in visit.parameters if p.name in self.in_flight]
        self.in_flight -= {p.name for p in waited}
        self.available |= {p.name for p in waited}
        ahead = self._ahead(visit) if self.known else []
        read = self._read_ahead() if self.known and self.options["prefetch_bucket_size"] else []
        self.step += 1
        return Fetch(tuple(needed), tuple(waited), tuple(ahead), tuple(read))

    def _read_ahead(self) -> list[Parameter]:
        flying = sum(self.elements[name] for name in self.in_flight)
        passed, found = 0, []
        for parameter, _ in self.queue if self.on_drive else ():
            if passed > 2 * flying or len(self.read) >= self.buffers:
                break
            if self._is_on_drive(parameter):
                self.read.add(parameter.name)
                found.append(parameter)
            passed += parameter.elements
        return found

    def _is_on_drive(self, parameter: Parameter) -> bool:
        return parameter.name in self.on_drive and parameter.name not in self.read

    def _ahead(self, visit: Visit) -> list[Parameter]:
        missing = {p.name for p in visit.parameters if self.wanted.get(p.name, -1) < self.step}
        while self.queue and missing:
            parameter, use = self.queue.popleft()
            self.wanted[parameter.name] = use
            missing.discard(parameter.name)
        most = min(self.options["max_live_parameters"] - self.live, self.options["prefetch_bucket_size"])
        picked: dict[str, Parameter] = {}
        size = 0
        while self.options["prefetch_bucket_size"] and self.queue and size < most:
            if self._is_on_drive(self.queue[0][0]):
                break
            parameter, use = self.queue.popleft()
            self.wanted[parameter.name] = max(self.wanted.get(parameter.name, -1), use)
            if self._is_away(parameter) and parameter.name not in picked:
                picked[parameter.name] = parameter
                size += parameter.elements
        self._gather(picked.values())
        return list(picked.values())

    def _is_away(self, parameter: Parameter) -> bool:
        return parameter.name not in self.available and parameter.name not in self.in_flight

    def _gather(self, parameters: Iterable[Parameter]) -> None:
        for parameter in parameters:
            self.in_flight.add(parameter.name)
            self.live += parameter.elements
            self.read |= {parameter.name} & self.on_drive
        if len(self.read) > self.buffers:
            rule = f"{self.buffers} buffers do not hold the shards of {len(self.read)} parameters that are not released"
            remedy = f"write {len(self.read)} or more, or a smaller max_reuse_distance"
            raise InputError([Problem("param_buffer_count", f"{rule}; {remedy}")])
        self.most_live = max(self.most_live, self.live)

    def release(self, visit: Visit, *, late: bool = False) -> tuple[Parameter, ...]:
        """Run the hook after a module, before the next module's; ``late``: it has none, and the pass ends instead."""
        names = {p.name for p in visit.parameters}
        if self.known or late:
            names -= self.persistent
        if self.known:
            names -= {name for name in names if self.wanted.get(name, -1) > self.step}
            names -= self._soon(names)
        released = tuple(p for p in visit.parameters if p.name in names and p.name in self.available)
        for parameter in released:
            self.available.discard(parameter.name)
            self.read.discard(parameter.name)
            self.live -= parameter.elements
        return released

    def _soon(self, names: set[str]) -> set[str]:
        """Of some parameters, those used again within the distance."""
        passed, distance = 0, self.options["max_reuse_distance"]
        found: set[str] = set()
        for visit in islice(self.visits, self.step, None):
            if passed >= distance or names <= found:
                break
            for parameter in visit.parameters:
                found |= {parameter.name} & names
                passed += parameter.elements
        return found


def visits_of(stops: Iterable[Stop]) -> list[Visit]:
    """Return all that is entered, in order."""
    return [visit for stop in stops for visit in stop.entered]


def most_live(stops: Sequence[Stop], coordinator: Coordinator) -> int:
    """Run a whole forward and backward pass, and return the most elements that are held at once."""
    for stop in stops:
        for visit in stop.entered:
            coordinator.fetch(visit)
        if stop.left is not None:
            coordinator.release(stop.left)
    return coordinator.most_live


def persistent_parameters(parameters: Iterable[Parameter], options: Options) -> tuple[Parameter, ...]:
    """Return what stays whole on every rank, in registration order; those that do not fit are passed over."""
    found, whole = [], 0
    for parameter in parameters:
        small = parameter.elements <= options["param_persistence_threshold"]
        if small and whole + parameter.elements <= options["model_persistence_threshold"]:
            found.append(parameter)
            whole += parameter.elements
    return tuple(found)
