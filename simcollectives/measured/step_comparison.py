"""A measured step beside a simulated one: which part of the step the difference is in, and which collectives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simcollectives.measured.logs.types import MeasuredCollective, MeasuredStep
from simcollectives.training.step import IssuedCollective

PARTS = ("compute_seconds", "exposed_seconds", "idle_seconds")
"""What a step is the sum of, measured or simulated."""

MEDIAN = "median"
_ALL = ("bytes", "group_size", "phase")
_OF_PREDICTED = ("bytes", "group_size")


class _Alike(NamedTuple):
    kind: str
    bytes: int | None
    group_size: int | None
    phase: str | None


@dataclass(frozen=True)
class CollectiveMatch:
    """Collectives that are alike, as many as were measured and are predicted, with the seconds of all of them.

    ``bytes``, ``group_size`` and ``phase`` are None where the trace does not say them, or they differ.
    """

    kind: str
    bytes: int | None
    group_size: int | None
    phase: str | None
    measured: int
    measured_seconds: float
    predicted: int
    predicted_seconds: float

    @property
    def difference(self) -> float:
        """Predicted less measured seconds."""
        return self.predicted_seconds - self.measured_seconds


def step_values(step: MeasuredStep) -> dict[str, float]:
    """The quantities of a measured step by the names of a simulated one's; without those that it does not have."""
    names = ("step", "compute", "communication", "exposed", "waiting", "idle")
    values = {f"{name}_seconds": getattr(step, f"{name}_seconds") for name in names} | {"overlap": step.overlap}
    return {name: value for name, value in values.items() if value is not None}


def chosen_step(steps: Sequence[MeasuredStep], name: str = MEDIAN) -> MeasuredStep | None:
    """The step of this name; or the one of median length, of an even number the shorter. None where there is none."""
    if name != MEDIAN:
        return next((step for step in steps if step.name == name), None)
    ordered = sorted(steps, key=lambda step: step.step_seconds)
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def match_collectives(
    measured: Sequence[MeasuredCollective], predicted: Sequence[IssuedCollective]
) -> tuple[CollectiveMatch, ...]:
    """Collectives that are alike, those first whose time differs most.

    Alike are those of one kind that agree in size, group size and phase, as far as every measured one of this kind says
    them. The time is that in which they run, without the wait for other ranks where the trace tells it apart.
    """
    telling = {
        kind: tuple(
            name for name in _ALL if all(getattr(one, name) not in (None, "") for one in measured if one.kind == kind)
        )
        for kind in dict.fromkeys(one.kind for one in measured)
    }
    found: dict[_Alike, tuple[list[float], list[float]]] = {}
    sides: tuple[Sequence[MeasuredCollective | IssuedCollective], ...] = (measured, predicted)
    for side, several in enumerate(sides):
        for one in several:
            told = telling.get(one.kind, _OF_PREDICTED)
            alike = _Alike(
                one.kind,
                one.bytes if "bytes" in told else None,
                one.group_size if "group_size" in told else None,
                one.phase if "phase" in told else None,
            )
            found.setdefault(alike, ([], []))[side].append(one.end - one.start)
    matches = [
        CollectiveMatch(*alike, len(mine), sum(mine), len(theirs), sum(theirs))
        for alike, (mine, theirs) in found.items()
    ]
    return tuple(sorted(matches, key=lambda match: -abs(match.difference)))


def by_kind(matches: Sequence[CollectiveMatch]) -> tuple[CollectiveMatch, ...]:
    """The same, all of a kind together; ``bytes`` are then None."""
    kinds: dict[str, list[CollectiveMatch]] = {}
    for one in matches:
        kinds.setdefault(one.kind, []).append(one)
    return tuple(
        CollectiveMatch(
            kind,
            None,
            None,
            None,
            sum(one.measured for one in some),
            sum(one.measured_seconds for one in some),
            sum(one.predicted for one in some),
            sum(one.predicted_seconds for one in some),
        )
        for kind, some in kinds.items()
    )
