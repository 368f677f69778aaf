"""Strategies and points that the sections of a training scenario name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from simcollectives.errors import InputError, Problem, UnitError, suggestion
from simcollectives.scenario.context import unknown_key
from simcollectives.scenario.keys import BYTES, RUN_WORDS, TRAINING_KEYS, Kind, is_option, owner
from simcollectives.scenario.load_points import BaseNamer
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.training.keys import TRAINING_METRICS
from simcollectives.scenario.training.types import TrainingSettings
from simcollectives.scenario.types import AlgorithmEntry, Point
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from simcollectives.units import QUANTITIES

_OF_A_MICRO_BATCH = ("micro_batch", "sequence", "mfu", "recomputation")


@dataclass(frozen=True)
class TrainingKeyTable(KeyTable):
    """The keys of the points of a training scenario."""

    training: TrainingSettings | None = field(default=None, kw_only=True)
    ignored: ClassVar[tuple[str, ...]] = ("message", "root", "gamma", *RUN_WORDS)

    def kind(self, key: str) -> Kind:
        """Return what kind of value a key takes.

        Raises:
            InputError: the scenario has no such key; the message holds the remedy.
        """
        if self.training is not None and self.training.layer_seconds and key in _OF_A_MICRO_BATCH:
            raise InputError(f"layer_seconds are measured for one {key}; leave it as it is, or write mfu: instead")
        if key in TRAINING_KEYS:
            return TRAINING_KEYS[key]
        if self.training is not None and is_option(key) and owner(key) in self._strategies:
            return self._strategy_kind(key)
        if is_option(key):
            raise InputError(unknown_key(key, self.known))
        return super().kind(key)

    @property
    def entries(self) -> Sequence[AlgorithmEntry]:
        """The strategies of the scenario."""
        return self.training.strategies if self.training else ()

    @property
    def _strategies(self) -> list[str]:
        return list(dict.fromkeys(entry.name for entry in self.entries))

    @property
    def known(self) -> list[str]:
        """All keys that fit."""
        options = [f"{name}.{option.name}" for name in self._strategies for option in find_strategy(name).options]
        return [*TRAINING_KEYS, *super().known, *options]

    def _strategy_kind(self, key: str) -> Kind:
        name, _, wanted = key.partition(".")
        options = {option.name: option for option in find_strategy(name).options}
        if wanted not in options:
            has = [f"{name}.{other}" for other in options]
            raise InputError(f"{name} has no such option; {suggestion(key, has, 'its options')}")
        option = options[wanted]
        if option.quantity == "bytes":
            return BYTES

        def parse(value: object) -> Any:
            try:
                return option.check(value)
            except ValueError as error:
                raise UnitError(str(error)) from None

        return Kind("option", parse, shown, str(option.default), {}, whole=_is_whole(option.default))


def _is_whole(default: object) -> bool:
    return isinstance(default, int) and not isinstance(default, bool)


@dataclass(frozen=True)
class TrainingNamer(BaseNamer):
    """Names in a training scenario."""

    training: TrainingSettings = field(kw_only=True)

    @property
    def names(self) -> str:
        """The key that names what is run."""
        return "strategy"

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """What expectations may be about."""
        return TRAINING_METRICS

    @property
    def entries(self) -> Sequence[AlgorithmEntry]:
        """The strategies that the scenario compares."""
        return self.training.strategies

    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options of a strategy.

        Raises:
            InputError: it does not exist, or an option does not.
        """
        return written_options(name, options)

    def _options(self, entry: AlgorithmEntry) -> dict[str, Any]:
        return resolve_strategy_options(find_strategy(entry.name), entry.options)

    def is_written(self, key: str) -> bool:
        """Whether the scenario has a value for a key beside the swept ones, if only a default."""
        return key not in TRAINING_KEYS or getattr(self.training, key) is not None

    def number(self, point: Point, key: str) -> Any:
        """Return the number of a key at a point, which names it or leaves it as written; None where there is none."""
        return super().number(point, key) if key not in TRAINING_KEYS else point.get(key, getattr(self.training, key))

    def lacks(self, path: Path, point: Point, along: str) -> bool:
        """Whether a point has no sequence or mfu; a problem if so."""
        for key, example in (("sequence", "4096"), ("mfu", "45%")):
            written = getattr(self.training, key) is not None or (key == "mfu" and self.training.layer_seconds)
            if not written and key not in (*point, along):
                self.context.add(path, f"the point has no {key}; write {key}: {example} in it")
                return True
        return False


def written_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a strategy as a file writes them: quantities with their units.

    Raises:
        InputError: the strategy or an option does not exist, or a value is wrong; all problems at once.
    """
    strategy = find_strategy(name)
    quantities = {option.name: option.quantity for option in strategy.options if option.quantity is not None}
    problems = []
    read = dict(options)
    for key in [key for key in options if key in quantities]:
        parse = QUANTITIES[quantities[key]].parse
        try:
            given = options[key]
            read[key] = [parse(one) for one in given] if isinstance(given, list) else parse(given)
        except UnitError as error:
            problems.append(Problem(key, error.problems[0].message))
            del read[key]
    try:
        resolved = resolve_strategy_options(strategy, read)
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems:
        raise InputError(problems)
    return resolved
