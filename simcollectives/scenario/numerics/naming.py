"""Variants and steps that the expectations of a numerics scenario name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simcollectives.errors import InputError, listing
from simcollectives.scenario.context import unknown_key
from simcollectives.scenario.keys import Kind
from simcollectives.scenario.load_points import BaseNamer
from simcollectives.scenario.numerics.keys import NUMERICS_KEYS, NUMERICS_METRICS
from simcollectives.scenario.numerics.types import NumericsSettings
from simcollectives.scenario.places import Path
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.types import AlgorithmEntry, Point


@dataclass(frozen=True)
class StepTable(KeyTable):
    """The only key of a point is a step."""

    def kind(self, key: str) -> Kind:
        """Return what kind of value a key takes.

        Raises:
            InputError: there is no such key; the message holds the remedy.
        """
        if key in NUMERICS_KEYS:
            return NUMERICS_KEYS[key]
        raise InputError(unknown_key(key, self.known))

    @property
    def known(self) -> list[str]:
        """All keys that fit."""
        return list(NUMERICS_KEYS)


@dataclass(frozen=True)
class Recorded:
    """Whether a step is recorded."""

    record: tuple[int, ...]
    worn: bool = False

    def reason(self, entry: AlgorithmEntry, point: Point) -> str | None:
        """Return why a step cannot be looked at, or None where it can."""
        del entry
        if point["step"] in self.record:
            return None
        known = listing([str(step) for step in self.record], 5)
        return f"step {point['step']} is not recorded; add it to record:, or write one of {known}"


@dataclass(frozen=True)
class VariantNamer(BaseNamer):
    """Names in a numerics scenario."""

    settings: NumericsSettings = field(kw_only=True)

    @property
    def names(self) -> str:
        """The key that names what is run."""
        return "variant"

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """What expectations may be about."""
        return NUMERICS_METRICS

    @property
    def entries(self) -> Sequence[AlgorithmEntry]:
        """The variants."""
        return self.settings.entries

    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Variants have no options."""
        del name
        return dict(options)

    def complete(self, path: Path, point: Point, entries: Sequence[AlgorithmEntry], along: str = "") -> Point | None:
        """Return a point with its step, which need not be named where one is recorded, or note that it has none."""
        del entries, along
        record = self.settings.record
        if "step" in point or len(record) == 1:
            return {"step": record[0], **point}
        steps = listing([str(step) for step in record], 5)
        self.context.add(path, f"nothing says which step is meant; write step: with one of {steps}")
        return None
