"""What a probe finds, as it finds it; and the measured sweeps that its rows are."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from simcollectives.errors import counted
from simcollectives.measured.probe.plan import SPLIT, Plan
from simcollectives.measured.sweep import MeasuredSweep


@dataclass(frozen=True)
class Started:
    """One rank: the host, the process, and the GPU that it measured with (``none: ..`` names the CPU instead)."""

    rank: int
    host: str
    process: int
    device: int
    device_name: str


@dataclass(frozen=True)
class System:
    """What ran: the backend, versions (``nccl_version`` is empty for gloo), every rank, and when (ISO 8601, UTC).

    ``timing`` says how a time is taken.
    """

    backend: str
    torch_version: str
    nccl_version: str
    date: str
    timing: str
    ranks: tuple[Started, ...]

    @property
    def nodes(self) -> int:
        """How many hosts there are."""
        return len({one.host for one in self.ranks})

    @property
    def device_names(self) -> str:
        """What the devices are called."""
        return " and ".join(sorted({one.device_name for one in self.ranks})[:3])


@dataclass(frozen=True)
class Times:
    """Seconds of one call: the median, 10th and 90th percentile over ``calls``."""

    seconds: float
    p10: float
    p90: float
    calls: int

    @property
    def spread(self) -> float:
        """From the 10th to the 90th percentile, over the median."""
        return (self.p90 - self.p10) / self.seconds


def times_of(seconds: Sequence[float]) -> Times:
    """The median and spread of the times of some calls, two or more.

    >>> times_of([1.0, 2.0, 3.0, 4.0, 11.0]).seconds
    3.0
    """
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    return Times(statistics.median(seconds), tenths[0], tenths[-1], len(seconds))


@dataclass(frozen=True)
class Half:
    """One place of a row: its times, and how many elements of all ranks' results were wrong."""

    place: str
    times: Times
    wrong: int


@dataclass(frozen=True)
class Row:
    """A collective at one size, in every place that it has."""

    collective: str
    dtype: str
    message_bytes: int
    elements: int
    halves: tuple[Half, ...]

    def counted_elements(self, world_size: int) -> int:
        """Elements as nccl-tests counts them: of one part, where the message has a part of every rank."""
        return self.elements // world_size if self.collective in SPLIT else self.elements


@dataclass(frozen=True)
class Multiplied:
    """A matrix product of (rows, inner) by (inner, columns) on every rank at once: times of the slowest."""

    use: str
    dtype: str
    rows: int
    inner: int
    columns: int
    times: Times

    @property
    def flops_per_second(self) -> float:
        """Two floating-point operations for each of rows x inner x columns, over the median time."""
        return 2.0 * self.rows * self.inner * self.columns / self.times.seconds


@dataclass(frozen=True)
class Copied:
    """A copy on every rank at once: times of the slowest. ``kind`` says from where to where."""

    kind: str
    message_bytes: int
    times: Times

    @property
    def bandwidth(self) -> float:
        """Bytes per second, by the median time."""
        return self.message_bytes / self.times.seconds


@dataclass(frozen=True)
class LeftOut:
    """Something that was asked for and not measured, and why."""

    what: str
    why: str


Event = System | Row | Multiplied | Copied | LeftOut
"""What a probe reports; the system comes first."""


def sweeps_of(rows: Sequence[Row], system: System, plan: Plan, name: str, version: str) -> list[MeasuredSweep]:
    """Rows with right results as sweeps, one for each collective, element type and place.

    ``name`` begins the names of all, ``version`` is that of this program.
    """
    points: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    wrong: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for half in row.halves:
            key = (row.collective, row.dtype, half.place)
            if half.wrong:
                wrong[key] = wrong.get(key, 0) + 1
            else:
                points.setdefault(key, []).append((row.message_bytes, half.times.seconds))
    found = []
    for key, here in points.items():
        collective, dtype, place = key
        left_out = (f"{counted(wrong[key], 'point')} with a wrong result left out",) if key in wrong else ()
        found.append(
            MeasuredSweep(
                name=set_name(name, collective, dtype, plan),
                collective=collective,
                algorithm="",
                world_size=len(system.ranks),
                nodes=system.nodes,
                gpu=system.device_names,
                intra_link="",
                nic="",
                nccl_version=system.nccl_version,
                source=f"simcollectives probe {version}: torch {system.torch_version}, {system.backend}, {system.date}",
                caveats="; ".join((dtype, system.timing, *left_out)),
                message_bytes=tuple(size for size, _ in here),
                seconds=tuple(seconds for _, seconds in here),
                place=place,
            )
        )
    return found


def set_name(name: str, collective: str, dtype: str, plan: Plan) -> str:
    """A set's name; it says the element type where several are measured.

    >>> set_name("mine", "all_reduce", "float32", Plan(("all_reduce",), ("float32", "int8"), (8,)))
    'mine_all_reduce_float32'
    """
    return f"{name}_{collective}_{dtype}" if len(plan.dtypes) > 1 else f"{name}_{collective}"


def spread_columns(rows: Sequence[Row], plan: Plan, name: str) -> dict[str, dict[tuple[str, int, str], str]]:
    """Further columns of the CSV of times, by set, size and place: percentiles (us) and the number of calls."""
    found: dict[str, dict[tuple[str, int, str], str]] = {"p10_us": {}, "p90_us": {}, "calls": {}}
    for row in rows:
        for half in row.halves:
            key = (set_name(name, row.collective, row.dtype, plan), row.message_bytes, half.place)
            found["p10_us"][key] = f"{half.times.p10 * 1e6:.3f}"
            found["p90_us"][key] = f"{half.times.p90 * 1e6:.3f}"
            found["calls"][key] = str(half.times.calls)
    return found
