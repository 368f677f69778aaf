"""Which keys a point of one scenario may have: its numbers, and its algorithms' options."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from simcollectives.algorithms import Option, find_algorithm
from simcollectives.engines import Conditions, TimeModel
from simcollectives.errors import AlgorithmError, InputError, UnitError, listing, nearest, show_value, suggestion
from simcollectives.scenario.build import levels_of, noun
from simcollectives.scenario.context import EXAMPLES, unknown_key
from simcollectives.scenario.keys import (
    POINT_KEYS,
    RUN_WORDS,
    SECTION_WORDS,
    Kind,
    is_option,
    is_size,
    kind_of,
    owner,
)
from simcollectives.scenario.numbers import numbers_of
from simcollectives.scenario.places import shown
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, CollectiveSettings
from simcollectives.schedule.collectives import COLLECTIVES


@dataclass(frozen=True)
class KeyTable:
    """The keys of the points of a scenario, as far as its sections are valid (None where they are not)."""

    cluster: ClusterSettings | None
    collective: CollectiveSettings | None = None
    conditions: Conditions | None = None
    time: TimeModel | None = None
    seeds: int | None = None
    ignored: ClassVar[tuple[str, ...]] = ("device",)
    """First words of keys that change nothing in this kind of scenario."""

    def kind(self, key: str) -> Kind:
        """Return what kind of value a key takes.

        Raises:
            InputError: the scenario has no such key; the message holds the remedy.
        """
        if is_option(key):
            return self._option_kind(key)
        kind = kind_of(key)
        if kind is None or owner(key) in self.ignored:
            raise InputError(unknown_key(key, self.known))
        problem = None if key in ("message", *self._numbers) else self._problem(key)
        if problem is not None:
            raise InputError(problem)
        return kind

    @property
    def entries(self) -> Sequence[AlgorithmEntry]:
        """What the scenario compares."""
        return () if self.collective is None else self.collective.algorithms

    @property
    def known(self) -> list[str]:
        """All keys that fit."""
        options = [] if self.collective is None else _option_keys(self.collective)
        numbers = list(POINT_KEYS) if self.cluster is None else ["message", *self._numbers]
        return [*(key for key in dict.fromkeys(numbers) if owner(key) not in self.ignored), *options]

    @cached_property
    def _numbers(self) -> tuple[str, ...]:
        """The keys of the valid sections."""
        parts = (part for part in (self.cluster, self.conditions, self.time) if part is not None)
        found = [key for part in parts for key in numbers_of(part)]
        if self.collective is not None and COLLECTIVES[self.collective.name].rooted:
            found.append("root")
        return tuple(found if self.seeds is None else [*found, "seeds"])

    def _problem(self, key: str) -> str | None:
        """Return why the scenario has no such number, with the remedy; None where its section is not valid."""
        first = owner(key)
        if key == "root":
            name = None if self.collective is None else self.collective.name
            return None if name is None else f"{name} has no root; leave it out"
        if first in RUN_WORDS:
            return None if self.conditions is None or self.time is None else self._run_problem(key)
        return None if self.cluster is None else self._cluster_problem(self.cluster, key)

    def _run_problem(self, key: str) -> str:
        alike = [known for known in self._numbers if owner(known) == owner(key)]
        if key == "seed":
            return f"nothing is random, so that every seed gives the same run; write {EXAMPLES['jitter']}"
        if alike:
            return f"the scenario has no {key}; {suggestion(key, alike, 'it has')}"
        return f"the scenario has no {owner(key)} of its own; write {EXAMPLES[owner(key)]}"

    def _cluster_problem(self, cluster: ClusterSettings, key: str) -> str:
        first, _, last = key.partition(".")
        alike = [known for known in self._numbers if owner(known) == first]
        sizes = [known for known in self._numbers if is_size(known)]
        if cluster.form == "machine" and key == "gpus_per_node":
            return f"{cluster.machine} has {cluster.gpus_per_node} GPUs a node; vary nodes"
        if alike:
            return f"the cluster has no {key}; {suggestion(key, alike, 'it has')}"
        if is_size(key):
            return f"a {noun(cluster)} has no key {key}; vary {' or '.join(sizes)}"
        if first in ("nics_per_node", "leaf", "pcie_switch") and cluster.form not in ("two_level", "machine"):
            return f"a {noun(cluster)} has no {first}; nodes have, of nodes: and gpus_per_node:, or of a machine:"
        if first in SECTION_WORDS:
            return f"this cluster has no {first}; write {EXAMPLES[first]} under cluster:"
        levels = levels_of(cluster)
        if first in levels:
            return f"this cluster has no {first} links; write {first}: under cluster:"
        near = nearest(first, levels)
        varied = [f"{level}.{last}" for level in levels if f"{level}.{last}" in self._numbers]
        remedy = f'did you mean "{near}.{last}"?' if near else f"vary {' or '.join(varied)}"
        return f"this cluster has no {first}; {remedy}"

    def _option_kind(self, key: str) -> Kind:
        if self.collective is None:
            return Kind("option", _hashable(lambda value: value), str, "1", {})
        name = owner(key)
        names = list(dict.fromkeys(entry.name for entry in self.collective.algorithms))
        if name not in names:
            raise InputError(f"{show_value(name)} is no algorithm of this scenario; it has: {listing(names)}")
        options = {option.name: option for option in find_algorithm(self.collective.name, name).options}
        option = options.get(key.partition(".")[2])
        if option is None:
            has = [f"{name}.{other}" for other in options]
            raise InputError(f"{name} has no such option; {suggestion(key, has, 'its options')}")
        return Kind("option", _hashable(_checked(option)), str, str(option.default), {}, whole=_takes_numbers(option))


def _takes_numbers(option: Option) -> bool:
    try:
        option.check(1)
    except ValueError:
        return False
    return True


def _checked(option: Option) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        try:
            return option.check(value)
        except ValueError as error:
            raise UnitError(str(error)) from None

    return parse


def _hashable(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise UnitError(f"{shown(value)} is no single option; write a name or a whole number")
        return parse(value)

    return read


def _option_keys(collective: CollectiveSettings) -> list[str]:
    found = []
    for name in dict.fromkeys(entry.name for entry in collective.algorithms):
        try:
            found += [f"{name}.{option.name}" for option in find_algorithm(collective.name, name).options]
        except AlgorithmError:
            continue
    return [key for key in found if not key.endswith(".root")]
