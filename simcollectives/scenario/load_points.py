"""Algorithms and points that other sections name: which entry is meant, and what the point leaves to the scenario."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simcollectives.algorithms import find_algorithm, resolve_options
from simcollectives.engines import DTYPES
from simcollectives.errors import InputError, listing, show_value, suggestion
from simcollectives.scenario.build import is_free, levels_of, noun
from simcollectives.scenario.context import Context, unknown_key
from simcollectives.scenario.fits import Fits, Reasons
from simcollectives.scenario.keys import METRIC_LINKS, METRICS, PERCENTILES, Kind, is_option, value_text
from simcollectives.scenario.load_collective import whole_message
from simcollectives.scenario.numbers import number_at
from simcollectives.scenario.places import Path
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.points import unique
from simcollectives.scenario.schema_values import Reference
from simcollectives.scenario.types import (
    AlgorithmEntry,
    ClusterSettings,
    CollectiveSettings,
    Measurement,
    NcclSettings,
    Point,
    Selector,
    Sweep,
)


@dataclass(frozen=True)
class BaseNamer(ABC):
    """Resolves what is named in a scenario, as far as its sections are valid.

    ``fits`` is None where not all of them are: then names are checked, and no point is complete.
    """

    context: Context
    table: KeyTable
    sweeps: Sequence[Sweep]
    fits: Reasons | None
    all_entries: bool = True
    measured: Sequence[Measurement] | None = ()
    """What the scenario measured; None where that section has a problem."""

    @property
    def cluster(self) -> ClusterSettings | None:
        """The cluster as written."""
        return self.table.cluster

    @property
    @abstractmethod
    def names(self) -> str:
        """The key that names what is run: algorithm, or strategy."""

    @property
    @abstractmethod
    def metrics(self) -> Mapping[str, Kind]:
        """What expectations may be about."""

    @property
    @abstractmethod
    def entries(self) -> Sequence[AlgorithmEntry]:
        """What the scenario compares."""

    @abstractmethod
    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options of what is named.

        Raises:
            InputError: it does not exist, or an option does not.
        """

    def has_metric(self, path: Path, metric: str) -> bool:
        """Whether the runs of the scenario have a metric, or note why not."""
        del path, metric
        return True

    def is_written(self, key: str) -> bool:
        """Whether the scenario has a value for a key beside the swept ones, if only a default."""
        del key
        return True

    def read(self, path: Path, key: str, value: object, kind: Kind) -> Any:
        """Return the value of a key of a point, or note what is wrong with it and return None."""
        del key
        return self.context.quantity(path, value, kind.parse)

    def quantum(self, key: str) -> int | None:
        """Return of what the values of a key are whole multiples, if anything."""
        del key
        return None

    def number(self, point: Point, key: str) -> Any:
        """Return the number of a key at a point, which names it or leaves it as written; None where there is none."""
        return point.get(key) if self.cluster is None else number_at(self.cluster, point, key)

    def same_point(self, one: Point, other: Point) -> bool:
        """Whether two points are the same, where one may name what the other leaves as written."""
        return all(self.number(one, key) == self.number(other, key) for key in {**one, **other})

    def lacks(self, path: Path, point: Point, along: str) -> bool:
        """Whether a point leaves something open that no key gives; a problem if so."""
        del path, point, along
        return False

    @cached_property
    def swept(self) -> Mapping[str, tuple[Any, ...]]:
        """All values that the sweeps give each key."""
        keys = unique([key for sweep in self.sweeps for key in sweep.values])
        return {key: unique([v for sweep in self.sweeps for v in sweep.values.get(key, ())]) for key in keys}

    def entry(self, path: Path, reference: Reference) -> tuple[AlgorithmEntry, dict[str, Any]] | None:
        """Return the entry that is meant, and the swept options that the reference fixes; or note why none is."""
        named = [entry for entry in self.entries if entry.name == reference.name]
        if not named and not self.all_entries:
            return None  # the entry that is meant may be one of those already reported
        if not named:
            labels = [entry.label for entry in self.entries]
            remedy = suggestion(reference.name, labels, "it has")
            self.context.add(path, f"{show_value(reference.name)} is no {self.names} of this scenario; {remedy}")
            return None
        options = self._checked(path, reference)
        if options is None:
            return None
        fitting = [entry for entry in named if self._may_have(entry, options, reference.options)]
        exact = [entry for entry in fitting if self._options(entry) == options]
        if len(exact) == 1 or len(fitting) == 1:
            entry = exact[0] if exact else fitting[0]
            keys = {f"{entry.name}.{name}": options[name] for name in reference.options}
            return entry, {key: value for key, value in keys.items() if key in self.swept and is_free(key, entry)}
        has = listing([entry.label for entry in named])
        what = "no entry has these options" if not fitting else f"{reference.name} may be each of several entries"
        remedy = f"name one of {has} with all its options: {{{reference.name}: {{option: value}}}}"
        self.context.add(path, f"{what}; {remedy}")
        return None

    def _checked(self, path: Path, reference: Reference) -> dict[str, Any] | None:
        try:
            return self.resolve(reference.name, reference.options)
        except InputError as error:
            for problem in error.problems:
                self.context.add((*path, reference.name, problem.place), problem.message)
        return None

    def _options(self, entry: AlgorithmEntry) -> dict[str, Any]:
        return self.resolve(entry.name, entry.options)

    def _may_have(self, entry: AlgorithmEntry, options: Mapping[str, Any], names: Collection[str]) -> bool:
        """Whether an entry has the options of these names, or leaves them to a sweep."""
        own = self._options(entry)
        keys = {name: f"{entry.name}.{name}" for name in names}
        return all(own[n] == options[n] or (keys[n] in self.swept and is_free(keys[n], entry)) for n in names)

    def point(self, path: Path, raw: Mapping[str, Any], own: Collection[str]) -> dict[str, Any] | None:
        """Return the keys of a point in a mapping that also has keys of its `own`; None after noting a problem."""
        before = len(self.context.problems)
        found = {}
        for key in (key for key in raw if key not in own):
            here = (*path, key)
            try:
                kind = self.table.kind(key)
            except InputError as error:
                if key == "collective":
                    self.context.add(here, "every run is of the scenario's own collective; leave it out")
                elif "unknown key" in str(error):
                    self.context.add(here, unknown_key(key, [*self.table.known, *own]))
                else:
                    self.context.add_error(here, error)
                continue
            found[key] = self.read(here, key, raw[key], kind)
        complete = len(self.context.problems) == before and None not in found.values()
        return found if complete else None

    def complete(self, path: Path, point: Point, entries: Sequence[AlgorithmEntry], along: str = "") -> Point | None:
        """Return a point with every key it needs, or note which one it leaves open.

        A key that is not named is as written in its section; one that every sweep varies has no
        such value unless it has a single one.
        """
        if self.fits is None:
            return None
        full = dict(point)
        for key, values in self.swept.items():
            if key in full or key == along or (is_option(key) and not any(is_free(key, e) for e in entries)):
                continue
            always = all(key in sweep.values for sweep in self.sweeps)
            if always and len(values) == 1:
                full[key] = values[0]
            elif always or not self.is_written(key):
                some = listing([value_text(key, value) for value in values], 3)
                self.context.add(path, f"the scenario sweeps {key} ({some}); name one value here, swept or not")
                return None
        return None if self.lacks(path, full, along) else full

    def selector(
        self, path: Path, reference: Reference | None, raw: Mapping[str, Any], own: Collection[str], shared: Point
    ) -> Selector | None:
        """Return the run that a mapping names, which must exist, or note why it does not.

        Where there is one entry, a mapping need not name it.
        """
        if reference is not None:
            return self.select(path, self.entry(path, reference), raw, own, shared)
        if len(self.entries) == 1:
            return self.select(path, (self.entries[0], {}), raw, own, shared)
        labels = listing([entry.label for entry in self.entries])
        what = f"nothing says which {self.names} is meant"
        self.context.add(path, f"{what}; write {self.names}: with one of {labels}")
        return None

    def select(
        self,
        path: Path,
        found: tuple[AlgorithmEntry, Mapping[str, Any]] | None,
        raw: Mapping[str, Any],
        own: Collection[str],
        shared: Point,
    ) -> Selector | None:
        """Return the run of an entry, with the swept options that its reference fixes, at the point of a mapping."""
        named = self.point(path, raw, own)
        if found is None or named is None:
            return None
        entry, fixed = found
        mine = self.own_point(path, entry, named, fixed)
        return None if mine is None else self.run(path, entry, {**shared, **mine})

    def own_point(
        self, path: Path, entry: AlgorithmEntry, named: Mapping[str, Any], fixed: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the named keys of a point and the options that a reference fixes; or note those that do not go."""
        before = len(self.context.problems)
        for key in named:
            if is_option(key) and not is_free(key, entry):
                self.context.add((*path, key), f"{entry.label} does not take it from the point; leave it out")
            elif named[key] != fixed.get(key, named[key]):
                other = f"the {self.names} is named with {value_text(key, fixed[key])}"
                self.context.add((*path, key), f"{value_text(key, named[key])}, but {other}; leave one of them out")
        return {**named, **fixed} if len(self.context.problems) == before else None

    def run(self, path: Path, entry: AlgorithmEntry, point: Point) -> Selector | None:
        """Return an algorithm at a point that exists, or note why it does not."""
        full = self.complete(path, point, [entry])
        if full is None or self.fits is None:
            return None
        reason = self.fits.reason(entry, full)
        if reason is not None:
            self.context.add(path, reason)
            return None
        return Selector(entry, full)


@dataclass(frozen=True)
class Namer(BaseNamer):
    """Names in a scenario of a collective."""

    fits: Fits | None
    collective: CollectiveSettings = field(kw_only=True)
    nccl: NcclSettings | None = None

    @property
    def names(self) -> str:
        """The key that names what is run."""
        return "algorithm"

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """What expectations may be about."""
        return METRICS

    @property
    def entries(self) -> Sequence[AlgorithmEntry]:
        """The algorithms that the scenario compares."""
        return self.collective.algorithms

    def has_metric(self, path: Path, metric: str) -> bool:
        """Whether the runs of the scenario have a metric: those of a level need a cluster with that level."""
        if metric in PERCENTILES and self.table.seeds is None:
            self.context.add(path, f"{metric} is over seeds, and the scenario has none; write seeds: 100")
            return False
        links = METRIC_LINKS.get(metric)
        if links is None or self.cluster is None or len(levels_of(self.cluster)) > 1:
            return True
        self.context.add(path, f"a {noun(self.cluster)} has no {links}; write bytes_sent_max")
        return False

    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options of an algorithm.

        Raises:
            AlgorithmError: it does not exist, or an option does not.
        """
        return resolve_options(find_algorithm(self.collective.name, name), options)

    def is_written(self, key: str) -> bool:
        """Whether the scenario has a value for a key: only a message has no default."""
        return key != "message" or self.collective.message_bytes is not None

    def read(self, path: Path, key: str, value: object, kind: Kind) -> Any:
        """Return the value of a key of a point; a message is a whole number of elements."""
        found = super().read(path, key, value, kind)
        if key == "message" and found is not None:
            return whole_message(self.context, path, found, self.collective.dtype)
        return found

    def quantum(self, key: str) -> int | None:
        """Return of what the values of a key are whole multiples: a message of its elements."""
        return DTYPES[self.collective.dtype] if key == "message" else None

    def lacks(self, path: Path, point: Point, along: str) -> bool:
        """Whether a point has no message; a problem if so."""
        if along == "message" or "message" in point or self.collective.message_bytes is not None:
            return False
        self.context.add(path, "the point has no message; write message: 1 MiB in it")
        return True
