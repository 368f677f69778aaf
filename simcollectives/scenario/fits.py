"""Whether an algorithm of a scenario runs at a point, found out before anything is run."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol

from simcollectives.algorithms import check_fits, find_algorithm
from simcollectives.cluster import Cluster
from simcollectives.engines import DEFAULT, DTYPES, IDEAL, Conditions, Default, TimeModel, check_engine, make_job
from simcollectives.engines.closed_form import require_closed_form
from simcollectives.engines.data import MAX_HELD_BYTES, held_bytes
from simcollectives.engines.job import count_elements
from simcollectives.errors import InputError
from simcollectives.scenario.build import build_cluster, message_at, options_at, restricted
from simcollectives.scenario.keys import FACTOR, is_option, kind_of, point_text
from simcollectives.scenario.numbers import at
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, CollectiveSettings, Point
from simcollectives.units import format_bytes

_ENOUGH_WORK = 5_000_000  # about a second; what is not looked at before the run is refused in it, row by row
_WORK_OF_A_JOB = 2_000
_QUICK_WORLD_SIZE = 1024  # up to here the rounds on links of several kinds are walked to choose the engine


class Reasons(Protocol):
    """What finds out whether an entry runs at a point."""

    def reason(self, entry: AlgorithmEntry, point: Point) -> str | None:
        """Return why an entry does not run at a point, or None where it does."""

    @property
    def worn(self) -> bool:
        """Whether so much was looked into that a list of problems had better end."""


@dataclass
class Fits:
    """Answers, each thought out once, for the sections of one scenario. ``work`` counts the ranks looked at."""

    cluster: ClusterSettings
    collective: CollectiveSettings
    engine: str = "auto"
    verify: str = "auto"
    time: TimeModel = DEFAULT
    conditions: Conditions = IDEAL
    work: int = 0
    _cluster: tuple[Hashable, Cluster | str] | None = None  # only the last one: large clusters hold large arrays
    _reasons: dict[Hashable, str | None] = field(default_factory=dict)

    def reason(self, entry: AlgorithmEntry, point: Point) -> str | None:
        """Return why an algorithm does not run at a point, or None where it does."""
        mine = restricted(point, entry)
        try:
            message = message_at(self.collective, mine)
            count_elements(message, self.collective.dtype)
        except InputError as error:
            return _text(error)
        exact = message if self.engine in ("closed_form", "vectorized") else None
        placed = {name: value for name, value in mine.items() if name != "message" and self._decides(name)}
        key = frozenset(placed.items())
        cached = (entry.label, key, exact)
        if cached in self._reasons and self._reasons[cached] is None and self.verify != "always":
            return None
        cluster = self._cluster_at(frozenset(item for item in key if not is_option(item[0])), mine)
        if isinstance(cluster, str):
            return _at(placed, cluster)
        if cached not in self._reasons:
            self._reasons[cached] = self._job_reason(entry, mine, cluster, message)
        if (reason := self._reasons[cached]) is not None:
            return _at(placed if exact is None else mine, reason)
        reason = self._memory_reason(cluster, message)
        return None if reason is None else _at(mine, reason)

    def _decides(self, key: str) -> bool:
        """Whether a key decides what runs: latencies, bandwidths and the like were checked when they were read."""
        kind = kind_of(key)
        precise = self.engine in ("closed_form", "vectorized") or not isinstance(self.time, Default)
        return precise or kind is None or kind.whole or kind is FACTOR

    @property
    def worn(self) -> bool:
        """Whether so much was looked into that a list of problems had better end."""
        return self.work > _ENOUGH_WORK

    def _cluster_at(self, key: Hashable, point: Point) -> Cluster | str:
        if self._cluster is None or self._cluster[0] != key:
            try:
                self._cluster = key, build_cluster(self.cluster, point)
            except InputError as error:
                self._cluster = key, _text(error)
        return self._cluster[1]

    def _job_reason(self, entry: AlgorithmEntry, point: Point, cluster: Cluster, message: int) -> str | None:
        name, dtype = self.collective.name, self.collective.dtype
        conditions, time = at(self.conditions, point), at(self.time, point)
        try:
            self.work += cluster.world_size
            if len(conditions.skew) > cluster.world_size:
                late = len(conditions.skew) - 1
                return f"rank {late} of skew is unreachable; ranks are 0 to {cluster.world_size - 1}"
            options: dict[str, Any] = options_at(self.collective, entry, point)
            check_fits(find_algorithm(name, entry.name), cluster, options)
            if self.engine == "closed_form":
                require_closed_form(make_job(name, entry.name, cluster, message, options, dtype, conditions), time)
            elif not self.worn and (len(cluster.levels) == 1 or cluster.world_size <= _QUICK_WORLD_SIZE):
                self.work += _WORK_OF_A_JOB
                size = message if self.engine == "vectorized" else DTYPES[dtype]
                job = make_job(name, entry.name, cluster, size, options, dtype, conditions)
                check_engine(job, self.engine, time=time)
        except InputError as error:
            return _text(error)
        return None

    def _memory_reason(self, cluster: Cluster, message: int) -> str | None:
        held = held_bytes(cluster.world_size, message, self.collective.dtype)
        if self.verify != "always" or held <= MAX_HELD_BYTES:
            return None
        rule = f"executing needs {format_bytes(held)}, at most {format_bytes(MAX_HELD_BYTES)} are taken"
        return f"{rule}; write verify: auto, or a smaller message"


def _at(point: Point, reason: str) -> str:
    return f"at {point_text(point)}: {reason}" if point else reason


def _text(error: InputError) -> str:
    return "; ".join(problem.message for problem in error.problems)
