"""Measurements beside predictions: sweeps of a collective, and training steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simcollectives.errors import counted
from simcollectives.measured import Fit, MeasuredSweep
from simcollectives.measured.logs import MeasuredStep
from simcollectives.measured.spread import relative_errors
from simcollectives.measured.step_comparison import CollectiveMatch
from simcollectives.scenario.keys import point_text, without_options
from simcollectives.scenario.types import Point
from simcollectives.units import format_bytes


@dataclass(frozen=True)
class PointError:
    """The relative error of one prediction: of which metric, at which message (B), if at one, and where, in words."""

    metric: str
    relative: float
    message_bytes: int | None
    where: str


@dataclass(frozen=True)
class MeasuredComparison:
    """Measured times beside predictions of one algorithm: ``fit`` holds both, before and after fitting the link."""

    sweep: MeasuredSweep
    label: str
    fit: Fit
    point: Point = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """Nodes that it ran on."""
        return self.fit.cluster.nodes

    @property
    def world_size(self) -> int:
        """Ranks that it ran on."""
        return self.fit.cluster.world_size

    @property
    def relative(self) -> tuple[float, ...]:
        """Errors of the predictions as given, a point of the sweep each."""
        return relative_errors(self.fit.given_predicted, self.sweep.seconds)

    @property
    def fitted_relative(self) -> tuple[float, ...]:
        """The same with the fitted link."""
        return relative_errors(self.fit.predicted, self.sweep.seconds)

    @property
    def errors(self) -> tuple[PointError, ...]:
        """Errors of the predictions as given, each with where it is."""
        ranks = counted(self.world_size, "rank")
        return tuple(
            PointError("seconds", relative, size, f"{format_bytes(size)} on {ranks}")
            for size, relative in zip(self.sweep.message_bytes, self.relative, strict=True)
        )


@dataclass(frozen=True)
class MeasuredStepComparison:
    """A measured step beside the simulated one of a strategy at a point, in SI units.

    ``measured`` has what was measured, ``predicted`` the same of the simulated step, None where that has no such value.
    ``step_seconds`` and ``parts`` are the simulated step's, whatever was measured. ``step`` and ``collectives`` are of
    a trace; numbers that were given have none.
    """

    label: str
    point: Point
    name: str
    measured: Mapping[str, float]
    predicted: Mapping[str, float | None]
    world_size: int
    step_seconds: float
    parts: Mapping[str, float]
    step: MeasuredStep | None = None
    collectives: tuple[CollectiveMatch, ...] = ()

    @property
    def relative(self) -> Mapping[str, float]:
        """The error of each metric that has one: what was measured as 0 has none."""
        found = {}
        for name, measured in self.measured.items():
            predicted = self.predicted[name]
            if measured > 0 and predicted is not None:
                found[name] = predicted / measured - 1
        return found

    @property
    def errors(self) -> tuple[PointError, ...]:
        """The same, each with where it is."""
        point = point_text(without_options(self.point))
        where = f"{self.label}, {point}" if point else self.label
        return tuple(PointError(name, relative, None, where) for name, relative in self.relative.items())
