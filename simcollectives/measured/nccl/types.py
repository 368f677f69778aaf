"""What NCCL's cost model says of one collective on one cluster."""

from dataclasses import dataclass

from simcollectives.measured.nccl.constants import COLLECTIVE_ALGORITHMS, WITH_ALL_PROTOCOLS


def is_whole(value: object, least: int, most: float) -> bool:
    """Whether a value is a whole number in a range."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


@dataclass(frozen=True)
class Candidate:
    """An algorithm with a protocol: its latency (s) and algorithm bandwidth (B/s), or why NCCL cannot take it.

    ``reason`` is empty where it can; else the figures are 0.
    """

    algorithm: str
    protocol: str
    latency: float = 0.0
    bandwidth: float = 0.0
    reason: str = ""

    @property
    def label(self) -> str:
        """The algorithm and the protocol, as in ``ring/LL128``."""
        return f"{self.algorithm}/{self.protocol}"

    @property
    def available(self) -> bool:
        """Whether NCCL can take it."""
        return not self.reason


@dataclass(frozen=True)
class Model:
    """Every candidate for a collective, in NCCL's order, and what corrects their times.

    ``channels`` are those of the communicator. ``tree_factor`` and ``nvls_tree_factor`` tell that the bandwidth of
    these is corrected by size, ``plateau`` is what ring/Simple's latency is multiplied by on the plateau (1 for
    nothing). ``source`` says where the figures are from.
    """

    collective: str
    nodes: int
    gpus_per_node: int
    channels: int
    candidates: tuple[Candidate, ...]
    tree_factor: bool
    nvls_tree_factor: bool
    plateau: float
    source: str

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.nodes * self.gpus_per_node

    @property
    def available(self) -> tuple[Candidate, ...]:
        """The candidates that NCCL can take."""
        return tuple(candidate for candidate in self.candidates if candidate.available)

    @property
    def missing(self) -> tuple[Candidate, ...]:
        """The candidates that NCCL has for the collective, but cannot take here."""
        algorithms = COLLECTIVE_ALGORITHMS[self.collective]
        known = (one for one in self.candidates if one.algorithm in algorithms and not one.available)
        return tuple(one for one in known if one.protocol == "Simple" or one.algorithm in WITH_ALL_PROTOCOLS)


@dataclass(frozen=True)
class Choice:
    """What NCCL picks for a message: ``margin`` is how much longer the runner-up takes, 0.25 for a quarter.

    ``times`` are the seconds of all available candidates, by label; ``runner_up`` and ``margin`` are None where there
    is no other.
    """

    message_bytes: int
    label: str
    seconds: float
    runner_up: str | None
    margin: float | None
    times: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Switch:
    """Where the choice changes: ``message_bytes`` is the first message, in whole bytes, for which ``after`` is taken.

    ``crossing`` is where both times are equal, in bytes; None where a correction factor changes and the times jump.
    """

    message_bytes: int
    crossing: float | None
    before: str
    after: str
    seconds: float


@dataclass(frozen=True)
class Range:
    """Messages from ``first`` to ``last`` bytes with one choice, its seconds at both, and the choice midway (log)."""

    first: int
    last: int
    label: str
    first_seconds: float
    last_seconds: float
    midway: Choice
