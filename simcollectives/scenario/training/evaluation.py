"""Simulating the steps of a training scenario, each once."""

import re
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from simcollectives.algorithms import has_algorithm
from simcollectives.cluster import Cluster
from simcollectives.errors import InputError, listing
from simcollectives.scenario.build import build_cluster, restricted
from simcollectives.scenario.keys import TRAINING_KEYS, Kind, kind_of, point_text
from simcollectives.scenario.places import placed
from simcollectives.scenario.training.build import (
    build_training,
    choices_at,
    options_at,
    settings_at,
    workload_of,
)
from simcollectives.scenario.training.keys import TRAINING_METRICS
from simcollectives.scenario.training.types import TrainingScenario, TrainingSettings
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, Point, Selector
from simcollectives.training.flops import convention, model_flops, utilisation
from simcollectives.training.passes import ACTIVATIONS, BUCKETS, GRADIENTS, MODEL_STATES, OPTIMIZER, PARAMETERS
from simcollectives.training.prepare import peak_flops
from simcollectives.training.pricing import Pricer
from simcollectives.training.sharding import GATHER_BUFFERS, UNSHARDED
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.table import find_strategy, label_of
from simcollectives.training.timeline import peak

TRAINING_ROW_KEYS = (
    "strategy",
    "options",
    "label",
    "point",
    "model",
    "world_size",
    "micro_batch",
    "sequence",
    "accumulation",
    "step_seconds",
    "compute_seconds",
    "communication_seconds",
    "exposed_seconds",
    "waiting_seconds",
    "idle_seconds",
    "overlap",
    "efficiency",
    "mfu",
    "hfu",
    "tokens_per_second",
    "peak_bytes",
    "memory",
    "device_memory_bytes",
    "fits",
    "sent_bytes",
    "sent_bytes_total",
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "bucket_bytes",
    "activation_bytes",
    "model_state_bytes",
    "unsharded_bytes",
    "all_reduce_bytes",
    "reduce_scatter_bytes",
    "all_gather_bytes",
    "all_to_all_bytes",
    "collective_count",
    "algorithms",
    "collectives",
)
"""The keys of a row, in order: SI units; ``fits`` is None where the device's memory is not known."""

_COUNTED = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


def priced_otherwise(settings: ClusterSettings, step: Step) -> list[str]:
    """What to warn of: collectives of all ranks priced by another algorithm than links were fitted as."""
    cluster = step.training.cluster
    level = "inter" if cluster.nodes > 1 else "intra"
    fitted = re.findall(r" by (\w+)", settings.fitted_as.get(level, ""))
    if not fitted:
        return []
    others = {one.kind: one.algorithm for one in step.collectives if one.group_size == cluster.world_size}
    return [
        f"{kind} is priced by {algorithm}, but the {level} link was fitted as {settings.fitted_as[level]}: "
        f"its times are only near as that; under training: write collectives: {{{kind}: {fitted[0]}}}"
        for kind, algorithm in others.items()
        if algorithm not in fitted and has_algorithm(kind, fitted[0])
    ]


@dataclass
class TrainingEvaluator:
    """Simulates a scenario's steps. ``warnings`` collects what strategies and models warn of."""

    scenario: TrainingScenario
    warnings: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, None] = field(default_factory=dict)
    _issued: dict[str, bool] = field(default_factory=dict)
    _values: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    _pricers: dict[Hashable, Pricer] = field(default_factory=dict)

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """The metrics of a step, with their units."""
        return TRAINING_METRICS

    def label(self, run: Selector) -> str:
        """Return what a step is called."""
        return label_of(find_strategy(run.entry.name), options_at(run.entry, run.point))

    def quantum(self, key: str) -> int | None:
        """No key has whole multiples only."""
        del key
        return None

    def kind(self, key: str) -> Kind | None:
        """Return what kind of value a key of a point takes; None for the options of strategies."""
        return TRAINING_KEYS.get(key) or kind_of(key)

    def lack(self, metric: str) -> str:
        """Return why a step may lack a metric."""
        if metric in ("mfu", "hfu"):
            return "not known, since the device's peak is not, or the step takes no time"
        return "not defined, since nothing is communicated" if metric == "overlap" else "not defined"

    def row(self, entry: AlgorithmEntry, point: Point) -> tuple[dict[str, Any], Step]:
        """Return one row of the result, and its step.

        Raises:
            InputError: it cannot be simulated.
            ScheduleError: a bug in a strategy.
        """
        mine = restricted(point, entry)
        step = self.step(entry, mine)
        values = self._values[_key(entry, mine)] = self._measure(entry, mine, step)
        return {**values, "point": mine}, step

    def values(self, entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
        """Return the metrics of one step, and what describes it. Raises as `row` does."""
        mine = restricted(point, entry)
        if _key(entry, mine) not in self._values:
            self.row(entry, mine)
        return self._values[_key(entry, mine)]

    def seconds(self, entry: AlgorithmEntry, point: Point) -> float:
        """Return the time of one step. Raises as `row` does."""
        return float(self.values(entry, point)["step_seconds"])

    def step(self, entry: AlgorithmEntry, point: Point) -> Step:
        """Simulate one step. Raises as `row` does."""
        settings = settings_at(self.scenario.training, point)
        try:
            cluster = build_cluster(self.scenario.cluster, point)
            training = build_training(settings, cluster)
            options = options_at(entry, point)
            pricer = self._pricer(cluster, settings, entry, point)
            step = simulate_step(training, entry.name, options, pricer=pricer)
        except (InputError, MemoryError) as error:
            where = f"at {point_text(point)}" if point else ""
            raise placed(error, entry, where, "take a smaller model", self.scenario.file) from error
        self.warnings.update(dict.fromkeys([*step.warnings, *priced_otherwise(self.scenario.cluster, step)]))
        decided = find_strategy(entry.name).choices(options)
        for one in step.collectives:
            self._issued[one.kind] = self._issued.get(one.kind, False) or one.kind not in decided
        return step

    @property
    def unused_choices(self) -> list[str]:
        """What to warn of: algorithms under ``collectives:`` that no collective of the steps so far was priced by."""
        found = []
        for kind in self.scenario.training.choices if self._issued else ():
            if self._issued.get(kind):
                continue
            why = "the strategy itself decides its algorithm" if kind in self._issued else f"no step issues {kind}"
            has = f"{why}; steps issue {listing(list(self._issued))}"
            found.append(f"collectives: {kind} is not used: {has}")
        return found

    def _pricer(self, cluster: Cluster, settings: TrainingSettings, entry: AlgorithmEntry, point: Point) -> Pricer:
        """Return what prices collectives; those of one cluster and the same algorithms share their prices."""
        choices = choices_at(settings, entry, point)
        key = repr((cluster, sorted((name, one, sorted(options.items())) for name, (one, options) in choices.items())))
        if key not in self._pricers:
            self._pricers[key] = Pricer(cluster, choices)
        return self._pricers[key]

    def _measure(self, entry: AlgorithmEntry, point: Point, step: Step) -> dict[str, Any]:
        settings = settings_at(self.scenario.training, point)
        training, cluster = step.training, step.training.cluster
        workload = workload_of(settings)
        flops = model_flops(settings.model, workload)
        most_flops = peak_flops(cluster, settings.precision.compute) or 0.0
        tokens = workload.tokens * settings.accumulation
        held = step.most_bytes
        capacity = cluster.device.memory_bytes
        fits = None if capacity is None else step.peak_bytes <= capacity
        label = label_of(find_strategy(entry.name), step.options)
        used = dict.fromkeys(f"{one.kind} {one.algorithm} ({one.engine})" for one in step.collectives)
        self.reasons.update(dict.fromkeys(f"priced: {text}" for text in used))
        if most_flops:
            self.reasons[convention(workload)] = None
        return {
            "strategy": step.strategy,
            "options": dict(step.options),
            "label": label,
            "model": settings.model.name,
            "world_size": training.world_size,
            "micro_batch": settings.micro_batch,
            "sequence": workload.sequence,
            "accumulation": settings.accumulation,
            **{name: getattr(step, name) for name in TRAINING_METRICS if hasattr(step, name)},
            "mfu": utilisation(flops.model * settings.accumulation, step.step_seconds, most_flops),
            "hfu": utilisation(flops.hardware * settings.accumulation, step.step_seconds, most_flops),
            "tokens_per_second": tokens * training.world_size / step.step_seconds if step.step_seconds else None,
            "memory": dict(step.memory),
            "device_memory_bytes": capacity,
            "fits": fits,
            "sent_bytes": dict(step.sent_bytes),
            "sent_bytes_total": sum(step.sent_bytes.values()),
            "parameter_bytes": held.get(PARAMETERS, 0),
            "gradient_bytes": held.get(GRADIENTS, 0),
            "optimizer_bytes": held.get(OPTIMIZER, 0),
            "bucket_bytes": held.get(BUCKETS, 0),
            "activation_bytes": held.get(ACTIVATIONS, 0),
            "model_state_bytes": sum(held.get(item, 0) for item in MODEL_STATES),
            "unsharded_bytes": peak([c for c in step.timeline.memory if c.item in (UNSHARDED, GATHER_BUFFERS)]).bytes,
            **{f"{kind}_bytes": step.sent_bytes.get(kind, 0) for kind in _COUNTED},
            "collective_count": len(step.collectives),
            "algorithms": ", ".join(used),
            "collectives": [asdict(one) for one in step.collectives],
        }


def _key(entry: AlgorithmEntry, point: Point) -> Hashable:
    return entry.label, frozenset(point.items())
