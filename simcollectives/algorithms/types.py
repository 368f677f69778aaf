"""What an algorithm is: a name, a collective, options, the world sizes it takes, its schedule and its closed form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from simcollectives.cluster.types import Cluster
from simcollectives.errors import AlgorithmError, Problem, nearest, show_value, suggestion
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import IntArray, Schedule

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """The critical path on a uniform cluster, which lasts

    ``rounds * alpha + messages * overhead + elements * itemsize / bandwidth + gamma * reduced * itemsize``.
    """

    rounds: int = 0
    messages: int = 0
    elements: int = 0
    reduced: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        """One critical path after another."""
        return Cost(
            self.rounds + other.rounds,
            self.messages + other.messages,
            self.elements + other.elements,
            self.reduced + other.reduced,
        )


@dataclass(frozen=True)
class LevelCost:
    """The part of a critical path that runs on the links of one level."""

    level: str
    cost: Cost


Split = tuple[float, float, float]
"""Seconds of latency (overheads and gaps included), of bandwidth and of reduction."""


@dataclass(frozen=True)
class LogGPCosts:
    """What messages cost in LogGP between ranks on one kind of link; times in seconds, ``elements`` in a message.

    A send is complete, and lets its rank's next round start, after ``sending``: o, or o + L under rendezvous.
    """

    overhead: float
    latency: float
    gap: float
    seconds_per_element: float
    reduction_per_element: float
    sending: float

    @property
    def overlaps(self) -> bool:
        """Whether a message that follows a received one never waits for the gap: g <= 2 o + L."""
        return self.gap <= 2 * self.overhead + self.latency

    def alone(self, elements: int, reduced: int = 0, times: int = 1) -> Split:
        """One message after another, ``times`` of them: each 2 o + L + n G + gamma."""
        return (
            times * (2 * self.overhead + self.latency),
            times * elements * self.seconds_per_element,
            times * reduced * self.reduction_per_element,
        )

    def fan_out(self, elements: int, messages: int, *, rounds: bool = False) -> Split:
        """From the start of a rank's first send to the start of one ``messages`` later: max(o, g + n G) each.

        With ``rounds`` every send is a round of its own.
        """
        pause = self.sending if rounds else self.overhead
        port = (self.gap, elements * self.seconds_per_element, 0.0)
        step = max((pause, 0.0, 0.0), port, key=sum)
        return messages * step[0], messages * step[1], 0.0

    def fan_in(self, elements: int, messages: int, reduced: int = 0) -> Split:
        """``messages`` sent at once to one rank: o + L, then max(o + n G + gamma, g + n G) each; the last without g."""
        if messages == 0:
            return 0.0, 0.0, 0.0
        data, adding = elements * self.seconds_per_element, reduced * self.reduction_per_element
        cpu = (self.overhead, data, adding)
        step = max(cpu, (self.gap, data, 0.0), key=sum)
        return joined((self.overhead + self.latency, 0.0, 0.0), *[step] * (messages - 1), cpu)


def joined(*parts: Split) -> Split:
    """One after another."""
    latency, bandwidth, reduction = (sum(column) for column in zip(*parts, strict=True)) if parts else (0.0, 0.0, 0.0)
    return latency, bandwidth, reduction


@dataclass(frozen=True)
class Placement:
    """Where ranks sit: ``groups`` [node, member] holds rank numbers; ``flat`` tells that there is one kind of link."""

    groups: IntArray
    flat: bool = True

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return int(self.groups.size)


@dataclass(frozen=True)
class Option:
    """One knob of an algorithm or a strategy. ``check(value)`` returns the accepted value or raises ValueError.

    ``quantity`` names its unit (bytes, seconds) where it has one: files write it with the unit, Python in SI.
    """

    name: str
    default: Any
    summary: str
    check: Callable[[Any], Any]
    choices: tuple[str, ...] = ()
    quantity: str | None = None


def choice(name: str, choices: tuple[str, ...], default: str, summary: str) -> Option:
    """Return an option that takes one of a few words."""

    def check(value: Any) -> str:
        if value not in choices:
            near = nearest(value, choices)
            remedy = f"write {' or '.join(choices)}" if near is None else f'did you mean "{near}"?'
            raise ValueError(f"{show_value(value)} is not a choice; {remedy}")
        return str(value)

    return Option(name, default, summary, check, choices)


def whole_number(name: str, default: int, summary: str, least: int = 0) -> Option:
    """Return an option that takes a whole number."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < 1 << 32:
            raise ValueError(f"{show_value(value)} is not valid; write a whole number, {least} or more")
        return int(value)

    return Option(name, default, summary, check)


ROOT = whole_number("root", 0, "rank whose data is sent, or that receives the sum")


def any_size(_placement: Placement, _options: Options) -> str | None:
    """Accept every cluster."""
    return None


def always(_options: Options) -> bool:
    """Whatever the options."""
    return True


def never(_options: Options) -> bool:
    """Whatever the options, not."""
    return False


def powers_of_two(placement: Placement, _options: Options) -> str | None:
    """Accept world sizes that are powers of two."""
    n = placement.world_size
    if n & (n - 1) == 0:
        return None
    return f"needs a power of two of ranks, not {n}; circulant takes any number"


def root_exists(placement: Placement, options: Options) -> str | None:
    """Accept a root that is a rank."""
    n = placement.world_size
    root = options["root"]
    return None if root < n else f"root {root} is unreachable; ranks are 0 to {n - 1}"


@dataclass(frozen=True)
class Algorithm:
    """One algorithm for one collective.

    ``cost(world_size, layout, options)`` is the critical path where every pair of ranks has the same link, with the
    message cut into ``layout.chunks`` chunks; None where no form is exact. ``level_costs`` gives the critical path on a
    cluster of two levels, where one is known. ``same_bits(options)`` tells that all ranks end with
    identical bits. ``loggp(world_size, layout, options, costs)`` is the critical path under the time variant loggp,
    None where no form is exact; schedules in which every rank sends and receives one message a round need none.
    ``exact_one_port(world_size, options, gamma)`` tells that under one_port the path is ``cost`` with an alpha for each
    message, if chunks are even.
    """

    name: str
    collective: str
    summary: str
    formula: str
    reference: str
    schedule: Callable[[Placement, Options], Schedule]
    cost: Callable[[int, Layout, Options], Cost | None]
    options: tuple[Option, ...] = ()
    accepts: Callable[[Placement, Options], str | None] = any_size
    level_costs: Callable[[Cluster, Layout, int, Options], tuple[LevelCost, ...] | None] | None = None
    same_bits: Callable[[Options], bool] = always
    loggp: Callable[[int, Layout, Options, LogGPCosts], Split | None] | None = None
    exact_one_port: Callable[[int, Options, float], bool] = lambda _n, _options, _gamma: True


def flat_placement(world_size: int) -> Placement:
    """All ranks on one node, in order."""
    return Placement(np.arange(world_size, dtype=np.int64)[None, :])


def gather_options(
    owner: str, options: tuple[Option, ...], given: Options | None
) -> tuple[dict[str, Any], list[Problem]]:
    """Return all options of ``owner``: those given, checked, and defaults for the rest; and what is wrong with them."""
    known = {option.name: option for option in options}
    resolved = {name: option.default for name, option in known.items()}
    problems = []
    for name, value in (given or {}).items():
        if name not in known:
            rule = f"{owner} has no option {show_value(name)}"
            problems.append(Problem(str(name), f"{rule}; {suggestion(name, list(known), 'it has')}"))
            continue
        try:
            resolved[name] = known[name].check(value)
        except ValueError as error:
            problems.append(Problem(str(name), f"{owner}: {error}"))
    return resolved, problems


def resolve_options(algorithm: Algorithm, given: Options | None) -> dict[str, Any]:
    """Return all options of an algorithm: those given, checked, and defaults for the rest.

    Raises:
        AlgorithmError: unknown options or wrong values, all at once.
    """
    resolved, problems = gather_options(algorithm.name, algorithm.options, given)
    if problems:
        raise AlgorithmError(problems)
    return resolved
