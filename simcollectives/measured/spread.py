"""How far predictions are from measurements, in all and by group: median, 90th percentile, largest, and which way.

The relative error of a prediction is ``predicted / measured - 1``: above 0 it is too slow. Median and percentiles are
of its size, so that errors of both signs do not cancel; ``bias``, the median with its sign, says whether they would.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from simcollectives.errors import InputError
from simcollectives.units import format_bytes

Group = TypeVar("Group", bound=Hashable)

SMALL_BELOW = 64 * 2**10
"""Bytes: below it nearly all of a collective's time is latency."""

LARGE_FROM = 4 * 2**20
"""Bytes: from here on nearly all of it is bandwidth."""

RANGES: Mapping[str, str] = {
    "small": f"below {format_bytes(SMALL_BELOW)}",
    "middle": f"{format_bytes(SMALL_BELOW)} to {format_bytes(LARGE_FROM)}",
    "large": f"from {format_bytes(LARGE_FROM)}",
}
"""Ranges of messages, in which other things decide the time: latency, protocols and both, bandwidth."""

STATISTICS = ("median", "p90", "largest")
"""What an expectation may be about; each is at least 0."""


@dataclass(frozen=True)
class Spread:
    """Relative errors of ``points`` predictions. ``bias`` and ``worst`` have a sign; ``worst_at`` is its place."""

    points: int
    bias: float
    median: float
    p90: float
    worst: float
    worst_at: int

    @property
    def largest(self) -> float:
        """The largest error, without its sign."""
        return abs(self.worst)


def relative_errors(predicted: Sequence[float], measured: Sequence[float]) -> tuple[float, ...]:
    """Predicted over measured, less one.

    >>> relative_errors([1.5, 1.0], [1.0, 2.0])
    (0.5, -0.5)
    """
    return tuple(float(p / m - 1) for p, m in zip(predicted, measured, strict=True))


def spread(relative: Sequence[float]) -> Spread:
    """Errors in a nutshell; of several largest ones the first is named. Raises InputError where there are none.

    >>> spread([0.1, -0.3, 0.2]).median, spread([0.1, -0.3, 0.2]).worst
    (0.2, -0.3)
    """
    if len(relative) == 0:
        raise InputError("errors need at least one measured point")
    signed = np.array(relative, dtype=np.float64)
    sizes = np.abs(signed)
    worst = int(np.argmax(sizes))
    return Spread(
        len(sizes),
        float(np.median(signed)),
        float(np.median(sizes)),
        float(np.percentile(sizes, 90)),
        float(signed[worst]),
        worst,
    )


def spreads_by(relative: Sequence[float], groups: Sequence[Group]) -> dict[Group, Spread]:
    """The errors of each group, in the order in which groups first occur; ``worst_at`` counts all points."""
    places: dict[Group, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    found = {}
    for group, mine in places.items():
        one = spread([relative[place] for place in mine])
        found[group] = Spread(one.points, one.bias, one.median, one.p90, one.worst, mine[one.worst_at])
    return found


def range_of(message_bytes: float) -> str:
    """The range that a message is in, by its name in ``RANGES``.

    >>> range_of(65535), range_of(65536), range_of(4194304)
    ('small', 'middle', 'large')
    """
    if message_bytes < SMALL_BELOW:
        return "small"
    return "middle" if message_bytes < LARGE_FROM else "large"
