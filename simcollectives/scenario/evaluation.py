"""Evaluating an algorithm of a scenario at a point, each combination once."""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simcollectives.algorithms import placement_of
from simcollectives.engines import DTYPES, Conditions, Default, Job, Parts, Run, make_job, simulate_job, verify_job
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.watch import Watch
from simcollectives.errors import InputError
from simcollectives.scenario.build import build_cluster, label_at, message_at, options_at, restricted
from simcollectives.scenario.keys import METRIC_LINKS, METRICS, PERCENTILES, Kind, kind_of, point_text
from simcollectives.scenario.numbers import at
from simcollectives.scenario.places import placed
from simcollectives.scenario.types import AlgorithmEntry, Point, Scenario, Selector

VERIFIED_RANKS = 64
VERIFIED_BYTES = 1 << 20
"""``verify: auto`` executes runs up to these."""


@dataclass
class Evaluator:
    """Runs a scenario's algorithms. ``reasons`` collects which engines ran, and why; ``watch`` is told of messages."""

    scenario: Scenario
    watch: Watch | None = None
    reasons: dict[str, None] = field(default_factory=dict)
    _values: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    _medians: dict[Hashable, Conditions] = field(default_factory=dict)
    _seconds: dict[Hashable, float] = field(default_factory=dict)
    _verified: set[Hashable] = field(default_factory=set)

    def row(self, entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
        """Return one row of the result, executed on arrays where ``verify:`` says so.

        Raises:
            InputError: the run is too large for its engine.
            ScheduleError: a bug in a schedule.
        """
        mine = restricted(point, entry)
        job = self.job(entry, mine)
        values = self._evaluate(entry, mine, job)
        return {**values, "point": mine, "verified": self._verify(entry, mine, job)}

    def values(self, entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
        """Return the metrics of one run, and what describes it. Raises as `row` does."""
        mine = restricted(point, entry)
        key = _key(entry, mine)
        return self._values[key] if key in self._values else self._evaluate(entry, mine, self.job(entry, mine))

    def seconds(self, entry: AlgorithmEntry, point: Point) -> float:
        """Return the time of one run; with engine auto by the closed form where that is exact, and so the same."""
        mine = restricted(point, entry)
        key = _key(entry, mine)
        if key in self._values:
            return float(self._values[key]["seconds"])
        if key not in self._seconds:
            job = self.job(entry, mine)
            parts = self.form(job)
            self._seconds[key] = self._evaluate(entry, mine, job)["seconds"] if parts is None else parts.seconds
        return self._seconds[key]

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """The metrics of a run, with their units."""
        return METRICS

    def label(self, run: Selector) -> str:
        """Return what a run is called."""
        return label_at(self.scenario.collective, run.entry, run.point)

    def quantum(self, key: str) -> int | None:
        """Return of what the values of a key are whole multiples: a message of its elements."""
        return DTYPES[self.scenario.collective.dtype] if key == "message" else None

    def kind(self, key: str) -> Kind | None:
        """Return what kind of value a key of a point takes; None for the options of algorithms."""
        return kind_of(key)

    def lack(self, metric: str) -> str:
        """Return why a run may lack a metric."""
        if metric == "closed_form_seconds":
            return "not known, since no closed form is exact there"
        if metric in METRIC_LINKS:
            return f"not defined, since the cluster has no {METRIC_LINKS[metric]} there"
        return "not defined, since the time is zero"

    def run(self, entry: AlgorithmEntry, point: Point) -> Run:
        """Return one run with its timeline; with seeds, that with the median time. Raises as `row` does."""
        mine = restricted(point, entry)
        job = self.job(entry, mine)
        if self.seeds(mine) is not None:
            self._evaluate(entry, mine, job)
            job = replace(job, conditions=self._medians[_key(entry, mine)])
        return self._simulate(entry, mine, job, timeline=True)

    def form(self, job: Job) -> Parts | None:
        """Return the closed form's answer where it stands for a run of which only the seconds are asked."""
        plain = self.scenario.engine == "auto" and self.scenario.skipping and isinstance(self.scenario.time, Default)
        return closed_form_parts(job) if plain else None

    def job(self, entry: AlgorithmEntry, point: Point) -> Job:
        """Return the question that an algorithm is asked at a point.

        Raises:
            InputError: it is too large.
        """
        collective, conditions = self.scenario.collective, at(self.scenario.conditions, point)
        try:
            cluster = build_cluster(self.scenario.cluster, point)
            options = options_at(collective, entry, point)
            message = message_at(collective, point)
            return make_job(collective.name, entry.name, cluster, message, options, collective.dtype, conditions)
        except (InputError, MemoryError) as error:
            raise self._placed(error, entry, point) from error

    def seeds(self, point: Point) -> int | None:
        """Return the number of seeds at a point; None where there is one run."""
        seeds: int | None = point.get("seeds", self.scenario.seeds)
        return seeds

    def _evaluate(self, entry: AlgorithmEntry, point: Point, job: Job) -> dict[str, Any]:
        key = _key(entry, point)
        if key not in self._values:
            run, percentiles = self._median(entry, point, job)
            self.reasons[f"engine {run.engine} ({run.engine_reason})"] = None
            self._values[key] = _values_of(run, self.seeds(point), percentiles)
        return self._values[key]

    def _median(self, entry: AlgorithmEntry, point: Point, job: Job) -> tuple[Run, dict[str, float]]:
        """Return the run with the median time over the seeds, and percentiles by nearest rank; or the one run."""
        first, count = job.conditions.seed, self.seeds(point)
        if count is None:
            return self._simulate(entry, point, job), {}
        found = []
        for seed in range(first, first + count):
            seeded = replace(job, conditions=replace(job.conditions, seed=seed))
            found.append((self._simulate(entry, point, seeded).seconds, seed))
        found.sort()
        ranked = {name: found[-(-percent * count // 100) - 1] for name, percent in PERCENTILES.items()}
        median = replace(job, conditions=replace(job.conditions, seed=ranked["seconds_p50"][1]))
        self._medians[_key(entry, point)] = median.conditions
        return self._simulate(entry, point, median), {name: seconds for name, (seconds, _) in ranked.items()}

    def _simulate(self, entry: AlgorithmEntry, point: Point, job: Job, *, timeline: bool = False) -> Run:
        try:
            asked = self.scenario
            time = at(asked.time, point)
            return simulate_job(job, asked.engine, timeline, time, skipping=asked.skipping, watch=self.watch)
        except (InputError, MemoryError) as error:
            raise self._placed(error, entry, point) from error

    def _verify(self, entry: AlgorithmEntry, point: Point, job: Job) -> bool | None:
        """Execute a run on arrays: True where the answer is right, None where it is not executed."""
        if not is_verified(self.scenario, job.schedule.world_size, job.message_bytes):
            return None
        placement = placement_of(job.cluster)
        groups = (placement.groups.shape, placement.groups.tobytes(), placement.flat)
        key = (job.algorithm.name, _options_text(job.options), groups, job.layout.elements, job.dtype)
        if key not in self._verified:
            try:
                verify_job(job)
            except (InputError, MemoryError) as error:
                raise self._placed(error, entry, point) from error
            self._verified.add(key)
        return True

    def _placed(self, error: InputError | MemoryError, entry: AlgorithmEntry, point: Point) -> InputError:
        where = f"at {point_text(point)}" if point else ""
        return placed(error, entry, where, "take fewer devices or a smaller message", self.scenario.file)


def is_verified(scenario: Scenario, world_size: int, message_bytes: int) -> bool:
    """Whether a row is executed on arrays."""
    small = world_size <= VERIFIED_RANKS and message_bytes <= VERIFIED_BYTES
    return scenario.verify == "always" or (scenario.verify == "auto" and small)


def _key(entry: AlgorithmEntry, point: Point) -> Hashable:
    return entry.label, frozenset(point.items())


def _options_text(options: Any) -> str:
    return json.dumps(options, sort_keys=True, default=str)


def _values_of(run: Run, seeds: int | None, percentiles: dict[str, float]) -> dict[str, Any]:
    return {
        "collective": run.collective,
        "algorithm": run.algorithm,
        "options": dict(run.options),
        "label": run.label,
        "world_size": run.world_size,
        "message_bytes": run.message_bytes,
        "bottleneck": run.bottleneck,
        "engine": run.engine,
        "time": run.time,
        "engine_reason": run.engine_reason,
        **{name: getattr(run, name) for name in METRICS if name not in PERCENTILES},
        "seeds": seeds,
        **{name: percentiles.get(name) for name in PERCENTILES},
    }
