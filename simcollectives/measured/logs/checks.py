"""What the numbers of one table say about each other: the unit of its times, its ranks, and which rows contradict them.

A printed number stands for all that round to it, so rates are compared as intervals. ``algbw`` is size over time, and
``busbw`` that times a factor of the number of ranks n: 2 (n - 1) / n for an all-reduce, (n - 1) / n for a
reduce-scatter, all-gather or all-to-all. Until June 2020 the ``algbw`` of all-gather and reduce-scatter had the
factor in it already (nccl-tests ec1b5e2).
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from simcollectives.measured.logs.nccl_row import ITEM_BYTES
from simcollectives.measured.logs.types import MAX_RANKS, Kind, Sample, rounding
from simcollectives.metrics import bus_factor
from simcollectives.units import format_bytes, format_seconds

TOLERANCE = 0.01
SLOW = 1.6
"""A point so many times slower than both its neighbours is warned about."""

_SHORTEST_CHECKED = 10e-6
_LEAST_CHECKED_ALGBW = 5.0
_MOST_SECONDS = 1e6
_AGREEING = 0.8
_MOST_COMPARED = 5000
_LISTED = 4


class Range(NamedTuple):
    """All numbers from ``low`` to ``high``."""

    low: float
    high: float

    def meets(self, other: "Range", tolerance: float = 0.0) -> bool:
        """Whether the two have a number in common, when both are widened by half the tolerance each."""
        slack = 1 + tolerance
        return self.low <= other.high * slack and other.low <= self.high * slack


def printed(text: str | None, unit: float = 1.0) -> Range | None:
    """What a printed number stands for; None where it is none, or not positive."""
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    if not 0 < value < math.inf:
        return None
    half = rounding(text)
    return Range(max(value - half, 0.0) * unit, (value + half) * unit)


def seconds_of(text: str, exponent: int) -> float | None:
    """Seconds of a printed time in units of ten to ``exponent``; None where it is no time that a collective takes."""
    try:
        value = float(Decimal(text).scaleb(exponent))
    except ArithmeticError:
        return None
    return value if 0 < value < _MOST_SECONDS else None


def rate_of(sample: Sample, exponent: int) -> Range | None:
    """Size over time (B/s); None where it is not known well enough to be compared."""
    seconds = seconds_of(sample.time, exponent)
    time = printed(sample.time, 10.0**exponent)
    if seconds is None or time is None or seconds <= _SHORTEST_CHECKED or time.low <= 0 or sample.size <= 0:
        return None
    return Range(sample.size / time.high, sample.size / time.low)


def parts_of(kind: Kind, sample: Sample) -> int | None:
    """Into how many parts a message is cut: its size over that of the elements counted; None where not whole."""
    if sample.elements is None or sample.elements <= 0 or kind.dtype not in ITEM_BYTES:
        return None
    parts, rest = divmod(sample.size, sample.elements * ITEM_BYTES[kind.dtype])
    return parts if rest == 0 and 1 <= parts <= MAX_RANKS else None


def algbw_agrees(kind: Kind, sample: Sample, exponent: int) -> bool:
    """Whether ``algbw`` is size over time, or, as once for parts of a message, that times (n - 1) / n."""
    rate, stated = rate_of(sample, exponent), printed(sample.algbw, 1e9)
    if rate is None or stated is None or stated.meets(rate, TOLERANCE):
        return True
    return counts_parts_sent(kind, sample, exponent)


def counts_parts_sent(kind: Kind, sample: Sample, exponent: int) -> bool:
    """Whether both rates count the n - 1 parts that a rank sends, as the logs of all-gather before June 2020 do."""
    rate, algbw, busbw = rate_of(sample, exponent), printed(sample.algbw, 1e9), printed(sample.busbw, 1e9)
    parts = parts_of(kind, sample)
    if rate is None or algbw is None or busbw is None or parts is None or parts < 2:
        return False
    share = (parts - 1) / parts
    sent = Range(rate.low * share, rate.high * share)
    return algbw.meets(busbw) and algbw.meets(sent, TOLERANCE) and not algbw.meets(rate, TOLERANCE / 10)


def unit_of(samples: Iterable[tuple[Kind, Sample]]) -> int | None:
    """The power of ten that takes the times to seconds, by the rates beside them; None where they do not tell."""
    pairs = list(itertools.islice(samples, _MOST_COMPARED))
    votes = dict.fromkeys((-6, -3), 0)
    for kind, sample in pairs:
        for exponent in votes:
            checked = rate_of(sample, exponent) is not None and printed(sample.algbw) is not None
            votes[exponent] += checked and algbw_agrees(kind, sample, exponent)
    best = max(votes, key=lambda exponent: votes[exponent])
    return best if votes[best] > min(votes.values()) else None


def ratio_of(sample: Sample) -> Range | None:
    """``busbw`` over ``algbw``."""
    algbw, busbw = printed(sample.algbw), printed(sample.busbw)
    if algbw is None or busbw is None or algbw.low <= 0:
        return None
    return Range(busbw.low / algbw.high, busbw.high / algbw.low)


def ranks_by_rates(collective: str, samples: Iterable[Sample]) -> tuple[int, int] | None:
    """The numbers of ranks that nearly all rows allow, from the least to the most; None where there are none.

    >>> ranks_by_rates("all_reduce", [Sample(1, 1 << 20, None, "out", "28.56", "36.72", "64.25")])
    (8, 8)
    """
    if collective in ("broadcast", "reduce"):
        return None
    whole = 2.0 if collective == "all_reduce" else 1.0
    found = []
    for sample in itertools.islice(samples, _MOST_COMPARED):
        ratio = ratio_of(sample)
        if ratio is not None and ratio.high > 0:
            least, most = (min(whole / (whole - r) if r < whole else math.inf, MAX_RANKS + 1) for r in ratio)
            found.append((max(2, math.ceil(least - 1e-9)), min(math.floor(most + 1e-9), MAX_RANKS)))
    return _most_agreed([(least, most) for least, most in found if least <= most], len(found))


def _most_agreed(ranges: Sequence[tuple[int, int]], rows: int) -> tuple[int, int] | None:
    """The whole numbers that lie in most of the ranges, if these are nearly all rows."""
    changes: dict[int, int] = {}
    for least, most in ranges:
        changes[least] = changes.get(least, 0) + 1
        changes[most + 1] = changes.get(most + 1, 0) - 1
    places = sorted(changes)
    best, here, where = 0, 0, (0, 0)
    for number, place in enumerate(places):
        here += changes[place]
        if here > best:
            best, where = here, (place, places[number + 1] - 1)
    return where if best and best >= _AGREEING * rows else None


def busbw_agrees(collective: str, ranks: int, sample: Sample) -> bool:
    """Whether ``busbw`` over ``algbw`` is the factor of this collective on so many ranks, where both are precise."""
    ratio, algbw = ratio_of(sample), printed(sample.algbw)
    if ratio is None or algbw is None or algbw.low < _LEAST_CHECKED_ALGBW:
        return True
    factor = bus_factor(collective, ranks)
    return ratio.meets(Range(factor, factor), TOLERANCE)


def suspects(message_bytes: Sequence[int], seconds: Sequence[float]) -> dict[int, str]:
    """Sizes that are out of line, and why: much slower than both neighbours, or at the start of the log."""
    times: dict[int, list[float]] = {}
    for size, time in zip(message_bytes, seconds, strict=True):
        times.setdefault(size, []).append(time)
    sizes = sorted(times)
    medians = [statistics.median(times[size]) for size in sizes]
    found = {}
    for number in range(1, len(sizes) - 1):
        slowest_neighbour = max(medians[number - 1], medians[number + 1])
        if medians[number] > SLOW * slowest_neighbour:
            times_as_slow = medians[number] / slowest_neighbour
            found[sizes[number]] = (
                f"{format_bytes(sizes[number])} ({format_seconds(medians[number])}, {times_as_slow:.1f} times)"
            )
    if sizes and sizes[0] == 1:
        found[1] = "the message of 1 byte: the first row may hold start-up"
    elif len(sizes) > 1 and medians[0] > SLOW * medians[1]:
        text = f"the first size, {format_bytes(sizes[0])}, is slower than the next: it may hold start-up"
        found[sizes[0]] = text
    return found


def slow_points(message_bytes: Sequence[int], seconds: Sequence[float]) -> list[str]:
    """Sentences on points that are out of line."""
    found = suspects(message_bytes, seconds)
    first = min(message_bytes, default=0)
    slow = [text for size, text in found.items() if size != first]
    more = f" and {len(slow) - _LISTED} more" if len(slow) > _LISTED else ""
    texts = [f"slower than both neighbours by more than {SLOW}: {', '.join(slow[:_LISTED])}{more}"] if slow else []
    return [*texts, *([found[first]] if first in found else [])]
