"""What readers of logs hand over: samples in tables, and a tally of what was skipped; and what is made of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple

from simcollectives.measured.logs.streams import Line
from simcollectives.measured.sweep import MeasuredSweep

SHOWN_LINES = 5
MAX_SAMPLES = 200_000
"""Samples that are kept of one log: it bounds the memory that a log of any length needs. Further ones are counted."""

MAX_TABLES = 1000
"""Tables that are kept of one log."""

MAX_WARNINGS = 1000
"""Warnings of one log that are kept: a line may give one, and each new one is compared with all."""

MAX_RANKS = 1 << 20
"""Ranks beyond which a number in a log is none of ranks."""


class Sample(NamedTuple):
    """One time of a row. ``time`` and its rounding are in the unit of the table, rates in GB/s; None where not given.

    ``elements`` are those that the log counts, ``wrong`` whether its own check of the result failed.
    """

    line: int
    size: int
    elements: int | None
    place: str
    time: str
    algbw: str | None = None
    busbw: str | None = None
    wrong: bool = False


class Kind(NamedTuple):
    """What tells the sweeps of one table apart."""

    dtype: str = ""
    redop: str = ""
    root: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """One rank as a log lists it; texts are empty where the log does not say them."""

    rank: int
    group: int = 0
    process: str = ""
    host: str = ""
    gpu: str = ""


@dataclass
class Table:
    """One table of a log, as it stands there. ``exponent`` of ten takes times to seconds; None where it is not said.

    ``collective`` is the log's own word, ``collective_from`` where it stands. ``ranks`` and ``nodes`` are those that a
    format states as such, ``devices`` the list of ranks. ``per_rank`` tells that sizes are of one rank's part.
    """

    line: int
    samples: dict[Kind, list[Sample]] = field(default_factory=dict)
    name: str = ""
    collective: str = ""
    collective_from: str = ""
    exponent: int | None = None
    ranks: int | None = None
    ranks_from: str = ""
    nodes: int | None = None
    devices: list[DeviceLine] = field(default_factory=list)
    gpu: str = ""
    nccl_version: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    per_rank: bool = False
    failed: str = ""
    failed_rows: int = 0
    writers: set[str] = field(default_factory=set)
    communicators: set[int] = field(default_factory=set)
    headers: int = 0
    footers: int = 0
    launch_only: bool = False
    caveats: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return sum(len(samples) for samples in self.samples.values())

    def pairs(self) -> Iterator[tuple[Kind, Sample]]:
        """Every sample, with what it is of."""
        for kind, samples in self.samples.items():
            for sample in samples:
                yield kind, sample

    def add(self, kind: Kind, sample: Sample) -> None:
        """Note one sample."""
        self.samples.setdefault(kind, []).append(sample)


@dataclass(frozen=True)
class Skipped:
    """Rows, or halves of rows, that were not taken: why, how many, and the first lines they stand in."""

    reason: str
    count: int
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the skipped rows as a sentence."""
        where = ", ".join(map(str, self.lines)) + (", .." if self.count > len(self.lines) else "")
        return f"{self.count} skipped: {self.reason}" + (f" (line {where})" if self.lines else "")


@dataclass
class Tally:
    """What a reader notes beside the samples."""

    skipped: dict[str, Skipped] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    lines: int = 0
    samples: int = 0

    def keep(self, table: Table, kind: Kind, sample: Sample) -> None:
        """Note a sample of a table; beyond ``MAX_SAMPLES`` it is counted only."""
        if self.samples >= MAX_SAMPLES:
            self.skip(f"beyond the first {MAX_SAMPLES} samples", sample.line)
            return
        self.samples += 1
        table.add(kind, sample)

    def skip(self, reason: str, line: int | None = None, count: int = 1) -> None:
        """Count something that is not taken."""
        known = self.skipped.get(reason, Skipped(reason, 0))
        lines = known.lines
        if line is not None and len(lines) < SHOWN_LINES and line not in lines:
            lines = (*lines, line)
        self.skipped[reason] = replace(known, count=known.count + count, lines=lines)

    def warn(self, text: str) -> None:
        """Note a warning, once; the last of ``MAX_WARNINGS`` says that there are more."""
        if len(self.warnings) < MAX_WARNINGS and text not in self.warnings:
            last = len(self.warnings) == MAX_WARNINGS - 1
            self.warnings.append("further warnings of this log are left out" if last else text)

    def follow(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield the lines, each counted; one that was passed over in part is warned of."""
        for line in lines:
            self.lines = line.number
            if line.cut:
                self.warn(f"line {line.number} is very long; its end was passed over")
            yield line


@dataclass(frozen=True)
class LogSweep:
    """A sweep of a log, with where its collective and world size are from, and what its elements and operation are."""

    sweep: MeasuredSweep
    line: int
    collective_from: str
    world_size_from: str
    dtype: str = ""
    redop: str = ""
    root: int | None = None


@dataclass(frozen=True)
class MeasuredCollective:
    """A collective of a trace; what that does not say is None or empty. Times are seconds from the step's start.

    ``start`` is when the last rank had come, where the trace says so, else when this rank's kernel began.
    """

    kind: str
    name: str
    group: str
    group_size: int | None
    elements: int | None
    dtype: str
    bytes: int | None
    micro_batch: int | None
    phase: str
    start: float
    end: float
    exposed: float


@dataclass(frozen=True)
class MeasuredStep:
    """A training step of one rank, in the quantities of a simulated one.

    step_seconds = compute_seconds + exposed_seconds + idle_seconds. ``waiting_seconds`` is None where a trace does not
    say when other ranks came, ``world_size`` where it does not say how many ranks there are.
    """

    name: str
    rank: int | None
    step_seconds: float
    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    waiting_seconds: float | None
    idle_seconds: float
    collectives: tuple[MeasuredCollective, ...]
    world_size: int | None = None

    @property
    def overlap(self) -> float | None:
        """Share of the communication that runs beside compute; None where nothing is communicated."""
        return 1 - self.exposed_seconds / self.communication_seconds if self.communication_seconds > 0 else None


@dataclass(frozen=True)
class ReadLog:
    """Everything that was read of one file: its sweeps (a table's out-of-place and in-place halves are two), its steps
    where it is a trace, and what was skipped.
    """

    source: str
    format: str
    lines: int
    sweeps: tuple[LogSweep, ...]
    steps: tuple[MeasuredStep, ...]
    skipped: tuple[Skipped, ...]
    warnings: tuple[str, ...]

    @property
    def measured(self) -> tuple[MeasuredSweep, ...]:
        """The sweeps alone."""
        return tuple(found.sweep for found in self.sweeps)


def rounding(text: str) -> float:
    """Half a unit of the last digit of a printed number.

    >>> rounding("34.81"), rounding("573.2"), rounding("15984"), rounding("1.2e+05")
    (0.005, 0.05, 0.5, 5000.0)
    """
    if text.isascii() and text.replace(".", "", 1).isdigit():  # quickly, as nearly all are
        return 0.5 * 10.0 ** -len(text.partition(".")[2])
    return 0.5 * 10.0 ** int(Decimal(text).as_tuple().exponent)
