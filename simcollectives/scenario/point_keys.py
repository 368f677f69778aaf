"""Which keys a point of one scenario may have: those of its form of cluster, and its algorithms' options."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simcollectives.algorithms import Option, find_algorithm
from simcollectives.errors import AlgorithmError, InputError, UnitError, show_value
from simcollectives.scenario.build import is_option, owner
from simcollectives.scenario.context import unknown_key
from simcollectives.scenario.keys import LINK_KEYS, POINT_KEYS, Kind, kind_of
from simcollectives.scenario.load_cluster import key_problem
from simcollectives.scenario.places import listing, shown
from simcollectives.scenario.types import ClusterSettings, CollectiveSettings
from simcollectives.schedule.collectives import COLLECTIVES


@dataclass(frozen=True)
class KeyTable:
    """The keys of the points of a scenario, as far as its sections are valid (None where they are not)."""

    cluster: ClusterSettings | None
    collective: CollectiveSettings | None

    def kind(self, key: str) -> Kind:
        """Return what kind of value a key takes.

        Raises:
            InputError: the scenario has no such key; the message holds the remedy.
        """
        if is_option(key):
            return self._option_kind(key)
        kind = kind_of(key)
        if kind is None:
            raise InputError(unknown_key(key, self.known))
        problem = None if self.cluster is None else key_problem(self.cluster, key)
        if problem is not None:
            raise InputError(problem)
        if key == "root" and self.collective is not None and not COLLECTIVES[self.collective.name].rooted:
            raise InputError(f"{self.collective.name} has no root; leave it out")
        return kind

    @property
    def known(self) -> list[str]:
        """All keys that fit."""
        options = [] if self.collective is None else _option_keys(self.collective)
        keys = list(POINT_KEYS)
        if self.cluster is not None and self.cluster.levels:
            keys += [f"{level.name}.{name}" for level in self.cluster.levels for name in LINK_KEYS]
        fitting = [key for key in keys if self.cluster is None or key_problem(self.cluster, key) is None]
        return [*fitting, *options]

    def _option_kind(self, key: str) -> Kind:
        if self.collective is None:
            return Kind("option", _hashable(lambda value: value), str, "1", {})
        name = owner(key)
        names = list(dict.fromkeys(entry.name for entry in self.collective.algorithms))
        if name not in names:
            if name in {owner(known) for known in POINT_KEYS if "." in known}:
                raise InputError(unknown_key(key, self.known))
            raise InputError(f"{show_value(name)} is no algorithm of this scenario; it has: {listing(names)}")
        options = {option.name: option for option in find_algorithm(self.collective.name, name).options}
        option = options.get(key.partition(".")[2])
        if option is None:
            has = listing([f"{name}.{other}" for other in options]) or "none"
            raise InputError(f"{name} has no such option; its options: {has}")
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
