"""Building the step of a training scenario at a point, and finding out whether it can be built."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from simcollectives.algorithms import check_fits, find_algorithm, resolve_options
from simcollectives.cluster import Cluster
from simcollectives.errors import InputError, Problem
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.keys import TRAINING_KEYS, point_text
from simcollectives.scenario.training.types import TrainingSettings
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, Point
from simcollectives.training.groups import seen_alone
from simcollectives.training.prepare import prepare_training
from simcollectives.training.pricing import Choice, default_choices
from simcollectives.training.setup import Training
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from simcollectives.training.workload import Workload


def settings_at(training: TrainingSettings, point: Point) -> TrainingSettings:
    """Return the settings with what a point changes."""
    changes = {key: point[key] for key in TRAINING_KEYS if key in point}
    return replace(training, **changes)


def options_at(entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
    """Return all options of a strategy at a point.

    Raises:
        InputError: an option or its value does not exist.
    """
    prefix = f"{entry.name}."
    swept = {key.removeprefix(prefix): value for key, value in point.items() if key.startswith(prefix)}
    return resolve_strategy_options(find_strategy(entry.name), {**swept, **entry.options})


def workload_of(training: TrainingSettings) -> Workload:
    """Return what one micro-batch asks of the model.

    Raises:
        InputError: no sequence is given.
    """
    if training.sequence is None:
        remedy = "write sequence: 4096 under training:, or sweep it"
        raise InputError([Problem("sequence", f"no sequence is given; {remedy}")])
    return Workload(
        training.micro_batch,
        training.sequence,
        training.recomputation,
        training.attention_kernel,
        training.attention_flops,
    )


def build_training(training: TrainingSettings, cluster: Cluster) -> Training:
    """Return the step to simulate.

    Raises:
        InputError: the device's peak is not known, batch numbers contradict each other, or a sequence is too long.
    """
    return prepare_training(
        training.model,
        cluster,
        workload_of(training),
        mfu=training.mfu,
        layer_seconds=training.layer_seconds,
        accumulation=training.accumulation,
        train_batch=training.train_batch,
        precision=training.precision,
        optimizer=training.optimizer,
        iteration=training.iteration,
        slow=training.slow,
        jitter=training.jitter,
        seed=training.seed,
    )


def choices_at(training: TrainingSettings, entry: AlgorithmEntry, point: Point) -> Mapping[str, Choice]:
    """Return the algorithms that are named, by the scenario or by the strategy itself."""
    return {**training.choices, **find_strategy(entry.name).choices(options_at(entry, point))}


@dataclass
class TrainingFits:
    """Whether a strategy runs at a point, found out before anything is simulated; each question is answered once."""

    cluster: ClusterSettings
    training: TrainingSettings
    _found: dict[Hashable, tuple[Problem, ...]] = field(default_factory=dict)

    @property
    def worn(self) -> bool:
        """Whether a list of problems had better end."""
        return len(self._found) > 2_000

    def reason(self, entry: AlgorithmEntry, point: Point) -> str | None:
        """Return why a strategy does not run at a point, or None where it does."""
        reason = "; ".join(problem.message for problem in self.problems(entry, point))
        return f"at {point_text(point)}: {reason}" if reason and point else reason or None

    def problems(self, entry: AlgorithmEntry, point: Point) -> tuple[Problem, ...]:
        """Return all reasons why a strategy does not run at a point; their places are keys of the section, or none."""
        key = entry.label, frozenset(point.items())
        if key not in self._found:
            self._found[key] = self._find(entry, point)
        return self._found[key]

    def _find(self, entry: AlgorithmEntry, point: Point) -> tuple[Problem, ...]:
        try:
            settings = settings_at(self.training, point)
            cluster = build_cluster(self.cluster, point)
            training = build_training(settings, cluster)
            options = options_at(entry, point)
            if problems := find_strategy(entry.name).problems(training, options):
                raise InputError([Problem("", f"{entry.name}.{one.place}: {one.message}") for one in problems])
            choices = {**default_choices(cluster), **choices_at(settings, entry, point)}
            for collective in ("all_reduce", "broadcast"):
                _check_choice(collective, choices[collective], cluster)
            if settings.choices:
                _check_in_groups(training, entry.name, options, choices)
        except InputError as error:
            return error.problems
        return ()


def _check_choice(collective: str, choice: Choice, cluster: Cluster) -> None:
    name, given = choice
    algorithm = find_algorithm(collective, name)
    check_fits(algorithm, cluster, resolve_options(algorithm, given))


def _check_in_groups(
    training: Training, strategy: str, options: Mapping[str, Any], choices: Mapping[str, Choice]
) -> None:
    """Check that the algorithms that are named run in the groups in which the strategy uses them.

    Raises:
        InputError: one does not.
    """
    calls = find_strategy(strategy).program(training, options).calls
    for call in {(call.kind, call.group_size, call.stride): call for call in calls}.values():
        _check_choice(call.kind, choices[call.kind], seen_alone(training.cluster, call))
