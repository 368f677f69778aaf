"""How well models predict what they were not fitted to: held-out messages, held-out counts, other machines.

Whatever sweeps are given are paired by what they say of themselves, so that new sweeps make new tests.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.measured.models import AUTOMATIC, Fitted, algorithm_of, find_model, runs_on_hosts
from simcollectives.measured.models.physical import MIN_BYTES
from simcollectives.measured.models.types import SpreadErrors, share_inside
from simcollectives.measured.spread import spread
from simcollectives.measured.sweep import MeasuredSweep, restrict, with_points

LEAST_MESSAGES = 16
"""Of a sweep whose every second message is held out."""

_HOPPER = re.compile(r"\bG?H(100|200|800|20)\b")


@dataclass(frozen=True)
class Goal:
    """What is asked of the median and of the 90th percentile of relative errors."""

    median: float
    p90: float


@dataclass(frozen=True)
class Test:
    """Sweeps to fit, one to predict from them, what kind of prediction that is, and what is asked of it, if at all."""

    __test__ = False  # not one of pytest's

    title: str
    kind: str
    fitted: tuple[MeasuredSweep, ...]
    predicted: MeasuredSweep
    goal: Goal | None
    one_algorithm: bool


@dataclass(frozen=True)
class Outcome:
    """Relative errors of a test, point by point, and the share of points inside the interval."""

    test: Test
    model: Fitted
    relative: tuple[float, ...]
    covered: float

    @property
    def median(self) -> float:
        """The median error."""
        return spread(self.relative).median

    @property
    def p90(self) -> float:
        """The 90th percentile."""
        return spread(self.relative).p90

    @property
    def largest(self) -> float:
        """The largest error."""
        return spread(self.relative).largest

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        goal = self.test.goal
        return None if goal is None else self.median <= goal.median and self.p90 <= goal.p90


def points_of(sweep: MeasuredSweep, start: int, step: int = 1) -> MeasuredSweep:
    """A sweep with one point a message, and of those every ``step``-th from ``start``."""
    first = dict(reversed(list(zip(sweep.message_bytes, sweep.seconds, strict=True))))
    return with_points(sweep, sorted(first.items())[start::step])


def held_out(sweep: MeasuredSweep, model: str) -> Outcome:
    """A model fitted to the first, third, fifth .. message, at the others."""
    test = Test(sweep.name, "held out", (points_of(sweep, 0, 2),), points_of(sweep, 1, 2), None, False)
    return predict(test, model)


def held_out_in_hindsight(sweep: MeasuredSweep, model: str) -> Outcome:
    """A model fitted to every message, at those that ``held_out`` holds out: what its form can do at best."""
    test = Test(sweep.name, "held out", (points_of(sweep, 0),), points_of(sweep, 1, 2), None, False)
    return predict(test, model)


def lines_between(sweep: MeasuredSweep) -> tuple[float, float]:
    """Median and largest error of straight lines through the first, third, fifth .. message, at the others."""
    kept, others = points_of(sweep, 0, 2), points_of(sweep, 1, 2)
    drawn = np.interp(others.message_bytes, kept.message_bytes, kept.seconds)
    relative = np.abs(drawn / np.array(others.seconds) - 1)
    return float(np.median(relative)), float(relative.max())


def in_hindsight(test: Test, model: str = "physical") -> SpreadErrors:
    """Errors of the formula fitted to the predicted sweep itself: what is more is noise, or another form."""
    return find_model(model).fit((test.predicted,)).errors


def is_long(sweep: MeasuredSweep) -> bool:
    """Whether a sweep has messages enough to hold out half of them."""
    return len(set(sweep.message_bytes)) >= LEAST_MESSAGES


def predict(test: Test, model: str = "physical") -> Outcome:
    """Fit and predict.

    Raises:
        InputError: the sweeps cannot be fitted together.
    """
    fitted = find_model(model).fit(test.fitted)
    sweep = test.predicted
    ranks, nodes = sweep.world_size or 1, sweep.nodes or 1
    predicted, measured = fitted.predict(sweep.message_bytes, ranks, nodes), np.array(sweep.seconds)
    relative = np.abs(predicted / measured - 1)
    inside = share_inside(predicted, measured, fitted.half_width(ranks, nodes))
    return Outcome(test, fitted, tuple(relative.tolist()), inside)


def count_tests(sweeps: Sequence[MeasuredSweep]) -> Iterator[Test]:
    """For every system, collective and algorithm that ran on several counts: the largest, from all smaller ones."""
    groups: dict[tuple[object, ...], list[MeasuredSweep]] = {}
    for sweep in sweeps:
        if sweep.world_size is not None and sweep.collective is not None and algorithm_of(sweep) is not None:
            groups.setdefault(_system(sweep), []).append(sweep)
    for mine in groups.values():
        ordered = sorted(mine, key=lambda sweep: (sweep.nodes or 1, sweep.world_size or 1))
        largest = ordered[-1]
        smaller = [one for one in ordered if one.world_size != largest.world_size]
        if smaller and len(largest.message_bytes) >= 3:
            kind = _kind(largest)
            of = "GPUs" if kind == "one node" else "nodes"
            counts = [str((one.world_size if kind == "one node" else one.nodes) or 1) for one in (*smaller, largest)]
            title = f"{_named(largest)} {' and '.join(dict.fromkeys(counts[:-1]))} -> {counts[-1]} {of}"
            goal = _goal(largest, kind, min(one.nodes or 1 for one in smaller))
            known = algorithm_of(largest) != AUTOMATIC or largest.collective == "all_to_all"
            yield Test(title, kind, tuple(smaller), _large(largest), goal, known)


def machine_tests(sweeps: Sequence[MeasuredSweep]) -> Iterator[Test]:
    """Hopper machines from one another at the same counts: from the sweep with most points, all others."""
    groups: dict[tuple[object, ...], list[MeasuredSweep]] = {}
    for sweep in sweeps:
        if _HOPPER.search(sweep.gpu) and algorithm_of(sweep) == AUTOMATIC and not runs_on_hosts(sweep):
            groups.setdefault((sweep.collective, sweep.world_size, sweep.nodes), []).append(sweep)
    for mine in groups.values():
        source = max(mine, key=lambda sweep: (sweep.name.startswith("aic_"), len(sweep.message_bytes)))
        one_node = source.nodes in (None, 1)
        for other in mine:
            if other is not source:
                title = f"{source.name} -> {other.name}"
                goal = Goal(0.05, 0.15) if one_node else None
                yield Test(title, "another machine", (source,), _large(other), goal, False)


def _large(sweep: MeasuredSweep) -> MeasuredSweep:
    """The messages of 1 KiB and more, where there are any."""
    return sweep if max(sweep.message_bytes) < MIN_BYTES else restrict(sweep, MIN_BYTES)


def _system(sweep: MeasuredSweep) -> tuple[object, ...]:
    kind = _kind(sweep)
    local = None if kind == "one node" else (sweep.world_size or 1) // (sweep.nodes or 1)
    words = (sweep.gpu, sweep.intra_link, sweep.nic, sweep.nccl_version)
    return (*words, kind, local, sweep.collective, algorithm_of(sweep), sweep.algorithm)


def _kind(sweep: MeasuredSweep) -> str:
    if runs_on_hosts(sweep):
        return "hosts"
    return "one node" if sweep.nodes in (None, 1) else "nodes"


def _named(sweep: MeasuredSweep) -> str:
    system = sweep.gpu.removeprefix("none: ").split(" (")[0] if sweep.gpu else sweep.name
    if _kind(sweep) == "nodes" and "(" in sweep.gpu:
        system = sweep.gpu.rsplit("(", 1)[1].rstrip(")")
    algorithm = algorithm_of(sweep) or "?"
    library = sweep.algorithm.rsplit("_", 1)[-1] if _kind(sweep) == "hosts" and "_" in sweep.algorithm else ""
    return " ".join(part for part in (system, sweep.collective or "", algorithm, library) if part)


def _goal(sweep: MeasuredSweep, kind: str, least_nodes: int) -> Goal | None:
    """What a study of such predictions reached, which is asked for here; none across links without a switch."""
    if kind == "hosts":
        return Goal(0.20, 0.40)
    exchange = sweep.collective == "all_to_all"
    if kind == "one node":
        if "NVSwitch" not in sweep.intra_link:
            return None
        return Goal(0.10, 0.22) if exchange else Goal(0.07, 0.24)
    if exchange:
        return Goal(0.07, 0.17)
    if sweep.collective != "all_reduce":
        return Goal(0.05, 0.18)
    algorithm = algorithm_of(sweep)
    if algorithm == AUTOMATIC:
        return Goal(0.06, 0.16) if least_nodes >= 4 else Goal(0.12, 0.32)
    return Goal(0.12, 0.30) if algorithm == "ring" else Goal(0.14, 0.35)
