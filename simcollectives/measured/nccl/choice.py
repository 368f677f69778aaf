"""Times by message, what NCCL picks, and exactly where it picks something else.

seconds = latency (times the plateau factor) + bytes / (bandwidth times the tree factor). Between the sizes at which a
factor changes every time is a straight line, so that the choice changes where lines cross, or where a factor jumps.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.measured.nccl.constants import (
    FIRST_FACTOR_BYTES,
    PLATEAU_BYTES,
    TREE_FACTOR_COUNT,
    TREE_FACTORS,
)
from simcollectives.measured.nccl.types import Candidate, Choice, Model, Range, Switch, is_whole

LEAST_BYTES, MOST_BYTES = 8, 1 << 34
"""8 B to 16 GiB: the messages over which switches are looked for where nothing else is asked."""


def candidate_seconds(model: Model, candidate: Candidate, message_bytes: int) -> float:
    """Return the time that NCCL's model gives a message with an available candidate."""
    latency, rate = _line(model, candidate, message_bytes)
    return latency + message_bytes / rate


def _line(model: Model, candidate: Candidate, message_bytes: int) -> tuple[float, float]:
    """Latency and bandwidth at a message."""
    power = (message_bytes // FIRST_FACTOR_BYTES).bit_length() - 1
    factors = _factors(model, candidate)
    factor = factors[power] if 0 <= power < len(factors) else 1.0
    on_plateau = message_bytes // (model.channels * model.world_size) >= PLATEAU_BYTES
    plateau = model.plateau if candidate.label == "ring/Simple" and on_plateau else 1.0
    return candidate.latency * plateau, candidate.bandwidth * factor


def _factors(model: Model, candidate: Candidate) -> tuple[float, ...]:
    """The factors on a candidate's bandwidth by size, from 64 B on; 1 beyond them."""
    if candidate.algorithm == "tree" and model.tree_factor:
        return TREE_FACTORS[candidate.protocol][:TREE_FACTOR_COUNT]
    return TREE_FACTORS[candidate.protocol] if candidate.algorithm == "nvls_tree" and model.nvls_tree_factor else ()


def choose(model: Model, message_bytes: int) -> Choice:
    """Return what NCCL picks for a message: the least time, the first in its order where times are equal.

    Raises:
        InputError: the message is no whole number of bytes, 0 or more.
    """
    if not is_whole(message_bytes, 0, math.inf):
        rule = f"{show_value(message_bytes)} is no message; give a whole number of bytes, 0 or more"
        raise InputError([Problem("message_bytes", rule)])
    times = [(one.label, candidate_seconds(model, one, message_bytes)) for one in model.available]
    ranked = sorted(range(len(times)), key=lambda place: (times[place][1], place))
    label, seconds = times[ranked[0]]
    second = times[ranked[1]] if len(ranked) > 1 else None
    margin = None if second is None or seconds <= 0 else second[1] / seconds - 1
    return Choice(message_bytes, label, seconds, None if second is None else second[0], margin, tuple(times))


def kinks(model: Model) -> list[int]:
    """Return the messages, in bytes, at which a factor of the model may change."""
    powers = [FIRST_FACTOR_BYTES << power for power in range(len(TREE_FACTORS["LL"]) + 1)]
    return sorted({*powers, PLATEAU_BYTES * model.channels * model.world_size})


@dataclass(frozen=True)
class _Stretch:
    """Whole messages from ``first`` to ``last`` bytes between two kinks, with each candidate's (label, L, W)."""

    first: int
    last: int
    lines: Sequence[tuple[str, float, float]]

    def best(self, message_bytes: int) -> int:
        """Which line is least; of equal ones the first."""
        times = [latency + message_bytes / rate for _, latency, rate in self.lines]
        return min(range(len(times)), key=lambda place: (times[place], place))

    def overtaken(self, place: int, message_bytes: int) -> bool:
        """Whether a line of more bandwidth is below this one."""
        best = self.best(message_bytes)
        return best != place and self.lines[best][2] > self.lines[place][2]


def _stretches(model: Model, least: int, most: int) -> list[_Stretch]:
    bounds = [least, *(kink for kink in kinks(model) if least < kink <= most), most + 1]
    return [
        _Stretch(first, after - 1, [(one.label, *_line(model, one, first)) for one in model.available])
        for first, after in itertools.pairwise(bounds)
    ]


def switches(model: Model, least: int = LEAST_BYTES, most: int = MOST_BYTES) -> tuple[Switch, ...]:
    """Return every change of the choice from ``least`` to ``most`` bytes, in order."""
    found: list[Switch] = []
    current: str | None = None
    for stretch in _stretches(model, least, most):
        place = stretch.best(stretch.first)
        if current is not None and stretch.lines[place][0] != current:
            found.append(_switch(stretch, stretch.first, current, place, None))
        while (step := _next(stretch, place)) is not None:
            at, crossing, after = step
            found.append(_switch(stretch, at, stretch.lines[place][0], after, crossing))
            place = after
        current = stretch.lines[place][0]
    return tuple(found)


def _switch(stretch: _Stretch, at: int, before: str, after: int, crossing: float | None) -> Switch:
    label, latency, rate = stretch.lines[after]
    return Switch(at, crossing, before, label, latency + at / rate)


def _next(stretch: _Stretch, place: int) -> tuple[int, float, int] | None:
    """Return where in a stretch a line first falls below this one: the message, the crossing, and which line.

    This line is the least where it begins, so that only lines of more bandwidth fall below it, and stay there.
    """
    later = range(stretch.first, stretch.last + 1)
    found = bisect.bisect_left(later, True, key=lambda at: stretch.overtaken(place, at))
    if found == len(later):
        return None
    at = later[found]
    after = stretch.best(at)
    (_, latency, rate), (_, more, faster) = stretch.lines[place], stretch.lines[after]
    return at, (more - latency) / (1 / rate - 1 / faster), after


def ranges(model: Model, least: int = LEAST_BYTES, most: int = MOST_BYTES) -> tuple[Range, ...]:
    """Return the messages from ``least`` to ``most`` bytes as ranges of one choice each."""
    starts = [least, *(one.message_bytes for one in switches(model, least, most)), most + 1]
    return tuple(_range(model, first, after - 1) for first, after in itertools.pairwise(starts))


def _range(model: Model, first: int, last: int) -> Range:
    midway = choose(model, min(last, max(first, math.isqrt(max(first, 1) * max(last, 1)))))
    start, end = choose(model, first), choose(model, last)
    return Range(first, last, start.label, start.seconds, end.seconds, midway)
