"""Where two curves cross: the sign of their difference on a grid, then root-finding between its neighbours."""

import math
from collections.abc import Callable, Sequence

from simcollectives.scenario.keys import Value

SAME = 1e-11
"""Times closer than this, relatively, are equal; engines agree to about 1e-12."""

Curve = Callable[[Value], float]


def find_crossings(
    first: Curve, second: Curve, grid: Sequence[Value], quantum: int | None, *, whole: bool
) -> list[Value]:
    """Return the values at which the curves cross, in ascending order.

    `grid` ascends. Between two of its values one crossing at most is seen. With a `quantum` curves are asked only at
    its multiples, and so are the results. With ``whole`` they are asked only on the grid, and results are interpolated.

    >>> [round(x, 6) for x in find_crossings(lambda x: x, lambda x: 9.0, [1, 4, 16, 64], None, whole=False)]
    [9.0]
    """
    differences = [_difference(first(x), second(x)) for x in grid]
    found = []
    last: int | None = None
    for index, difference in enumerate(differences):
        if difference == 0:
            continue
        if last is not None and (difference > 0) != (differences[last] > 0):
            ends = (grid[last], grid[index])
            if whole:
                found.append(_interpolate(ends, (differences[last], difference), grid[last + 1 : index]))
            else:
                found.append(_root(first, second, ends, quantum))
        last = index
    return found


def leader(first: Curve, second: Curve, grid: Sequence[Value]) -> int:
    """Return -1 where the first of two curves that do not cross is below, 1 where it is above, 0 where all is equal."""
    differences = [_difference(first(x), second(x)) for x in grid]
    return next((int(math.copysign(1, difference)) for difference in differences if difference != 0), 0)


def _difference(first: float, second: float) -> float:
    """Return first - second relative to the larger, 0 where they are equal but for rounding."""
    largest = max(abs(first), abs(second))
    if abs(first - second) <= SAME * largest:
        return 0.0
    return (first - second) / largest


def _interpolate(ends: tuple[Value, Value], differences: tuple[float, float], equal: Sequence[Value]) -> Value:
    """Return where a straight line over the logarithm of the key is zero, or where the curves are equal."""
    if equal:
        return equal[0]
    low, high = (math.log(max(end, 0.5)) for end in ends)
    share = differences[0] / (differences[0] - differences[1])
    return math.exp(low + share * (high - low))


def _root(first: Curve, second: Curve, ends: tuple[Value, Value], quantum: int | None) -> Value:
    from scipy.optimize import brentq

    logarithmic = ends[0] > 0

    def value_at(position: float) -> Value:
        value = math.exp(position) if logarithmic else position
        value = min(max(value, ends[0]), ends[1])
        return value if quantum is None else round(value / quantum) * quantum

    def difference(position: float) -> float:
        value = value_at(position)
        return _difference(first(value), second(value))

    low, high = (math.log(end) if logarithmic else float(end) for end in ends)
    position = brentq(difference, low, high, xtol=1e-300 if not logarithmic else 1e-12, rtol=1e-12, maxiter=200)
    return value_at(position)
