"""Sweeps to points: expanding ranges, counting before anything is made, and combining keys."""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from simcollectives.errors import show_value
from simcollectives.scenario.types import Sweep

MAX_POINTS = 10_000
_SAME = 1e-9  # two ends of a factor's steps closer than this, relatively, are one point


class RangeError(ValueError):
    """A range that has no points, or too many; the message holds the rule and the remedy."""


def expand_factor(low: float, high: float, factor: float) -> list[float]:
    """Return low, low * factor, ... and high, which is a point even where no step reaches it.

    >>> expand_factor(1, 10, 2)
    [1, 2, 4, 8, 10]
    """
    _check_order(low, high)
    if not factor > 1:
        raise RangeError(f"the factor {show_value(factor)} does not lead upwards; write one above 1, such as 2")
    if factor > sys.float_info.max:
        raise RangeError(f"{show_value(factor)} is too large a factor; write one above 1, such as 2")
    if low == high:
        return [low]
    if low == 0:
        raise RangeError("no factor leads away from 0; begin above 0, or write step: instead of factor:")
    steps = (math.log(high) - math.log(low)) / math.log(factor)
    _check_count(steps + 1)
    inner = [low * factor**i for i in range(math.floor(steps + _SAME) + 1)]
    if len(inner) > 1 and (inner[-1] >= high or math.isclose(inner[-1], high, rel_tol=_SAME)):
        inner.pop()
    return [*inner, high]


def expand_step(low: float, high: float, step: float) -> list[float]:
    """Return low, low + step, ... and high, which is a point even where no step reaches it.

    >>> expand_step(1, 8, 3)
    [1, 4, 7, 8]
    """
    _check_order(low, high)
    if not step > 0:
        raise RangeError(f"the step {show_value(step)} leads nowhere; write one above 0")
    steps = (high - low) / step
    _check_count(steps + 1)
    inner = [low + step * i for i in range(math.floor(steps + _SAME) + 1)]
    if inner[-1] >= high or high - inner[-1] < _SAME * step:
        inner.pop()
    return [*inner, high]


def expand_points(low: float, high: float, points: int) -> list[float]:
    """Return so many points from low to high, evenly spaced on a logarithmic axis.

    >>> [round(x) for x in expand_points(1, 1000, 4)]
    [1, 10, 100, 1000]
    """
    _check_order(low, high)
    if points < 2:
        raise RangeError(f"{points} points do not have two ends; write 2 or more")
    _check_count(points)
    if low == high:
        return [low]
    if low == 0:
        raise RangeError("0 has no place on a logarithmic axis; begin above 0, or write step: instead of points:")
    first, width = math.log(low), math.log(high) - math.log(low)
    inner = [math.exp(first + width * i / (points - 1)) for i in range(1, points - 1)]
    return [low, *inner, high]


def rounded(values: Sequence[float], quantum: int) -> list[int]:
    """Return the values as whole multiples of `quantum`; the two ends stay as they are.

    >>> rounded([4, 6.9, 21.3, 30], 4)
    [4, 8, 20, 30]
    """
    inner = [round(value / quantum) * quantum for value in values[1:-1]]
    return [int(values[0]), *inner, *(int(value) for value in values[1:][-1:])]


def unique(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values without repetitions, in order."""
    return tuple(dict.fromkeys(values))


def count_points(sweeps: Sequence[Mapping[str, Sequence[Any]]]) -> int:
    """Return how many points the sweeps have, repeated ones counted each time."""
    return sum(math.prod(len(values) for values in sweep.values()) for sweep in sweeps)


def sweep_points(sweeps: Sequence[Sweep]) -> tuple[dict[str, Any], ...]:
    """Return the points of all sweeps, one after another, repeated ones once. Without a sweep there is one point.

    >>> sweep_points([Sweep({"message": (4, 8), "devices": (2, 3)})])[:2]
    ({'message': 4, 'devices': 2}, {'message': 4, 'devices': 3})
    """
    if not sweeps:
        return ({},)
    found: dict[frozenset[tuple[str, Any]], dict[str, Any]] = {}
    for sweep in sweeps:
        for combination in itertools.product(*sweep.values.values()):
            point = dict(zip(sweep.values, combination, strict=True))
            found.setdefault(frozenset(point.items()), point)
    return tuple(found.values())


def _check_order(low: float, high: float) -> None:
    if low > high:
        raise RangeError("the range ends below its beginning; swap from: and to:")


def _check_count(points: float) -> None:
    if not points <= MAX_POINTS:
        rule = f"a sweep has at most {MAX_POINTS}"
        raise RangeError(
            f"{show_value(math.floor(points)) if points < 1e18 else 'endless'} points; {rule}: take wider steps"
        )
