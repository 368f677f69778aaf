"""Algorithms and points that other sections name: which entry is meant, and what the point leaves to the scenario."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simcollectives.algorithms import find_algorithm, resolve_options
from simcollectives.errors import InputError, listing, show_value, suggestion
from simcollectives.scenario.build import is_free
from simcollectives.scenario.context import Context, unknown_key
from simcollectives.scenario.fits import Fits
from simcollectives.scenario.keys import is_option, value_text
from simcollectives.scenario.load_collective import checked_options, whole_message
from simcollectives.scenario.places import Path
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.points import unique
from simcollectives.scenario.schema_values import Reference
from simcollectives.scenario.types import (
    AlgorithmEntry,
    ClusterSettings,
    CollectiveSettings,
    Point,
    Selector,
    Sweep,
)


@dataclass(frozen=True)
class Namer:
    """Resolves what is named in a scenario, as far as its sections are valid.

    ``fits`` is None where not all of them are: then names are checked, and no point is complete.
    """

    context: Context
    table: KeyTable
    collective: CollectiveSettings
    sweeps: Sequence[Sweep]
    fits: Fits | None
    all_entries: bool = True

    @property
    def cluster(self) -> ClusterSettings | None:
        """The cluster as written."""
        return self.table.cluster

    @cached_property
    def swept(self) -> Mapping[str, tuple[Any, ...]]:
        """All values that the sweeps give each key."""
        keys = unique([key for sweep in self.sweeps for key in sweep.values])
        return {key: unique([v for sweep in self.sweeps for v in sweep.values.get(key, ())]) for key in keys}

    def entry(self, path: Path, reference: Reference) -> tuple[AlgorithmEntry, dict[str, Any]] | None:
        """Return the entry that is meant, and the swept options that the reference fixes; or note why none is."""
        entries = self.collective.algorithms
        named = [entry for entry in entries if entry.name == reference.name]
        if not named and not self.all_entries:
            return None  # the entry that is meant may be one of those already reported
        if not named:
            labels = [entry.label for entry in entries]
            remedy = suggestion(reference.name, labels, "it has")
            self.context.add(path, f"{show_value(reference.name)} is no algorithm of this scenario; {remedy}")
            return None
        options = checked_options(self.context, (*path, reference.name), self.collective.name, reference)
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

    def _options(self, entry: AlgorithmEntry) -> dict[str, Any]:
        return resolve_options(find_algorithm(self.collective.name, entry.name), entry.options)

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
                    self.context.add(here, f"every run is of the scenario's own {self.collective.name}; leave it out")
                elif "unknown key" in str(error):
                    self.context.add(here, unknown_key(key, [*self.table.known, *own]))
                else:
                    self.context.add_error(here, error)
                continue
            value = self.context.quantity(here, raw[key], kind.parse)
            if key == "message" and value is not None:
                value = whole_message(self.context, here, value, self.collective.dtype)
            found[key] = value
        complete = len(self.context.problems) == before and None not in found.values()
        return found if complete else None

    def complete(self, path: Path, point: Point, entries: Sequence[AlgorithmEntry], along: str = "") -> Point | None:
        """Return a point with every key it needs, or note which one it leaves open.

        A key that is not named is as written under ``cluster:`` and ``collective:``; one that every sweep varies has no
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
            elif always or not self._is_written(key):
                some = listing([value_text(key, value) for value in values], 3)
                self.context.add(path, f"the scenario sweeps {key} ({some}); name one value here, swept or not")
                return None
        if along != "message" and "message" not in full and self.collective.message_bytes is None:
            self.context.add(path, "the point has no message; write message: 1 MiB in it")
            return None
        return full

    def _is_written(self, key: str) -> bool:
        """Whether the scenario has a value for a key beside the swept ones, if only a default."""
        return key != "message" or self.collective.message_bytes is not None

    def selector(
        self, path: Path, reference: Reference, raw: Mapping[str, Any], own: Collection[str], shared: Point
    ) -> Selector | None:
        """Return the run that a mapping names, which must exist, or note why it does not."""
        found = self.entry(path, reference)
        named = self.point(path, raw, own)
        if found is None or named is None:
            return None
        entry, fixed = found
        for key in named:
            if is_option(key) and not is_free(key, entry):
                self.context.add((*path, key), f"{entry.label} does not take it from the point; leave it out")
                return None
        return self.run(path, entry, {**shared, **named, **fixed})

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
