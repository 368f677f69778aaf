"""A scenario as data: validated, in SI units, with the line of whatever may later be reported.

A *point* is a mapping from keys (``message``, ``devices``, ``link.bandwidth``, ``slow.0.rank``) to values;
what it does not name is as written in the file.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

from simcollectives.cluster import Change, Device, Level, Link, NcclGraph, RankOrder
from simcollectives.engines import DEFAULT, IDEAL, Conditions, TimeModel
from simcollectives.measured import MeasuredSweep
from simcollectives.measured.nccl import TuningLog

Point = Mapping[str, Any]
EMPTY: Mapping[str, Any] = MappingProxyType({})

Form = Literal["flat", "two_level", "machine", "full_mesh", "torus", "mesh", "levels"]
Verify = Literal["auto", "always", "never"]
Relation = Literal["equals", "at_most", "at_least", "between"]


@dataclass(frozen=True)
class PcieSettings:
    """A switch between so many GPUs of a node and the network, of so many B/s."""

    gpus: int
    bandwidth: float


@dataclass(frozen=True)
class LeafSettings:
    """Leaf switches of so many ``nodes`` each, or ``rails``; the other is 0."""

    nodes: int
    rails: int
    oversubscription: float


@dataclass(frozen=True)
class ClusterSettings:
    """What ``cluster:`` says. ``machine`` is None but in its form; ``gamma`` (s/B) is None where it is not written.

    ``device`` is the machine's, with what ``device:`` says. ``sizes`` are those of a torus or mesh, ``levels`` those of
    a cluster of levels, which has no other sizes. ``nics_per_node`` is None where every device has its own card.
    ``note`` says what links were fitted to, and how far off they are; ``fitted_as``, by level, as which collectives and
    algorithms: "all_reduce by ring".
    """

    form: Form
    nodes: int = 1
    gpus_per_node: int = 1
    link: Link | None = None
    intra: Link | None = None
    inter: Link | None = None
    gamma: float | None = None
    rank_order: RankOrder = "node_major"
    machine: str | None = None
    sizes: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()
    nics_per_node: int | None = None
    pcie_switch: PcieSettings | None = None
    leaf: LeafSettings | None = None
    slow: tuple[Change, ...] = ()
    device: Device = field(default_factory=Device)
    note: str = ""
    fitted_as: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AlgorithmEntry:
    """One entry of ``algorithms:``. ``options`` are those given; ``label`` tells it from the others."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    place: str = ""
    line: int | None = None


@dataclass(frozen=True)
class CollectiveSettings:
    """What ``collective:`` says; ``message_bytes`` is None where only sweeps give it."""

    name: str
    algorithms: tuple[AlgorithmEntry, ...]
    message_bytes: int | None = None
    dtype: str = "float32"
    root: int | None = None


@dataclass(frozen=True)
class Sweep:
    """One sweep: the cartesian product of the values of its keys, in order, the last key fastest."""

    values: Mapping[str, tuple[Any, ...]]
    place: str = ""
    lines: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Selector:
    """One run: an algorithm at a point."""

    entry: AlgorithmEntry
    point: Point


@dataclass(frozen=True)
class Bound:
    """What a number has to satisfy; ``values`` has two entries for ``between``, ``relative`` is a ratio."""

    relation: Relation
    values: tuple[float, ...]
    relative: float | None = None
    absolute: float | None = None


@dataclass(frozen=True)
class Expectation:
    """What all expectations have: the text as written, its line, and the reason to show where it fails."""

    text: str
    line: int | None
    because: str | None


Common = tuple[str, int | None, str | None]
"""The fields that every expectation begins with."""


@dataclass(frozen=True)
class MetricExpectation(Expectation):
    """A metric of one run is within a bound."""

    metric: str
    selector: Selector
    bound: Bound


@dataclass(frozen=True)
class RatioExpectation(Expectation):
    """The metric of the first run over that of the second is within a bound."""

    metric: str
    first: Selector
    second: Selector
    bound: Bound


@dataclass(frozen=True)
class OrderExpectation(Expectation):
    """The metric grows strictly from one run to the next."""

    metric: str
    selectors: tuple[Selector, ...]


@dataclass(frozen=True)
class CrossoverExpectation(Expectation):
    """The times of two algorithms are equal at exactly one value of the key ``along``, which is within a bound.

    ``grid`` are the values of ``along`` at which the curves are compared first, in ascending order; the points of both
    fix the other keys.
    """

    first: Selector
    second: Selector
    along: str
    grid: tuple[Any, ...]
    bound: Bound


@dataclass(frozen=True)
class NcclExpectation(Expectation):
    """Something about NCCL's choice at a point, in nodes of so many GPUs: what it is, or its time within a bound.

    ``candidate`` is what is to be picked, where there is no ``bound``; else what is timed, None for what is picked.
    """

    point: Point
    message_bytes: int
    candidate: str | None
    bound: Bound | None = None


@dataclass(frozen=True)
class NcclSettings:
    """What ``nccl:`` says: what NCCL finds in a node, what it may pick, and the log whose figures count, if any."""

    graph: NcclGraph
    algorithms: tuple[str, ...]
    protocols: tuple[str, ...]
    log: TuningLog | None


@dataclass(frozen=True)
class ErrorExpectation(Expectation):
    """A statistic of the errors of predictions of ``metric`` is within a bound.

    ``chosen`` are the places of the measurements in ``measured:``, ``what`` says them in words, ``messages`` is a range
    of messages, None for all.
    """

    statistic: str
    metric: str
    chosen: tuple[int, ...]
    messages: str | None
    what: str
    bound: Bound


class Measurement(Protocol):
    """Something measured, at a point of the scenario."""

    @property
    def entry(self) -> AlgorithmEntry:
        """Whose predictions it is laid beside."""

    @property
    def point(self) -> Point:
        """Where it was measured."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def metrics(self) -> Collection[str]:
        """What was measured."""

    @property
    def message_bytes(self) -> Sequence[int]:
        """At which messages."""


@dataclass(frozen=True)
class MeasuredSettings:
    """A measured sweep to lay over the predictions, the algorithm to fit, where, and which level's link."""

    sweep: MeasuredSweep
    entry: AlgorithmEntry
    point: Point
    level: str
    line: int | None = None

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.sweep.name

    @property
    def metrics(self) -> Collection[str]:
        """Times alone."""
        return ("seconds",)

    @property
    def message_bytes(self) -> Sequence[int]:
        """The messages of the sweep."""
        return self.sweep.message_bytes


@dataclass(frozen=True)
class Scenario:
    """A validated scenario file. With ``seeds``, runs are made with so many seeds, from that of ``conditions`` on."""

    file: str
    title: str
    description: str | None
    cluster: ClusterSettings
    collective: CollectiveSettings
    sweeps: tuple[Sweep, ...]
    engine: str = "auto"
    verify: Verify = "auto"
    expectations: tuple[Expectation, ...] = ()
    measured: tuple[MeasuredSettings, ...] = ()
    nccl: NcclSettings | None = None
    timelines: tuple[Selector, ...] = ()
    contributions: Selector | None = None
    conditions: Conditions = IDEAL
    time: TimeModel = DEFAULT
    seeds: int | None = None
    skipping: bool = True

    @property
    def entries(self) -> tuple[AlgorithmEntry, ...]:
        """What is compared at every point."""
        return self.collective.algorithms
