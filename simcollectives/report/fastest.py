"""Which algorithm is fastest where, by how much, and at which values the fastest one changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simcollectives.report.rows import Row, size_keys
from simcollectives.scenario.keys import is_option, is_size

SAME = 1e-9
"""Times closer than this, relatively, are a tie: engines agree to about this much."""


@dataclass(frozen=True)
class Fastest:
    """The fastest algorithm at one point.

    ``labels`` has several entries where times are equal; ``runner_up`` is None where no other algorithm ran. ``margin``
    is how much longer the runner-up takes: 0.25 for a quarter. ``rest`` is the point without message, the keys that
    change the world size where the world size tells them all, and the options of single algorithms.
    """

    message_bytes: int
    world_size: int
    rest: tuple[tuple[str, Any], ...]
    labels: tuple[str, ...]
    seconds: float
    runner_up: str | None
    margin: float | None


def fastest(rows: Sequence[Row]) -> tuple[Fastest, ...]:
    """Return the fastest algorithm at every point, in order of message and world size.

    Of several rows with one label at one point (an option that is swept) the fastest stands for all.
    """
    kept = _kept_size_keys(rows)
    groups: dict[tuple[tuple[tuple[str, Any], ...], int, int], dict[str, float]] = {}
    for row in rows:
        rest = tuple((key, value) for key, value in row["point"].items() if _is_rest(key, kept))
        times = groups.setdefault((rest, row["message_bytes"], row["world_size"]), {})
        label, seconds = str(row["label"]), float(row["seconds"])
        times[label] = min(seconds, times.get(label, seconds))
    order = {rest: number for number, rest in enumerate(dict.fromkeys(key[0] for key in groups))}
    keys = sorted(groups, key=lambda key: (order[key[0]], key[1], key[2]))
    return tuple(_fastest_at(*key, groups[key]) for key in keys)


def _kept_size_keys(rows: Sequence[Row]) -> tuple[str, ...]:
    """Keys that change the world size and are still needed beside it: two shapes of cluster may have one size."""
    return size_keys(rows)[1:]


def _is_rest(key: str, kept: tuple[str, ...]) -> bool:
    return key != "message" and not is_option(key) and (not is_size(key) or key in kept)


def _fastest_at(
    rest: tuple[tuple[str, Any], ...], message_bytes: int, world_size: int, times: Mapping[str, float]
) -> Fastest:
    best = min(times.values())
    tied = tuple(label for label, seconds in times.items() if same(seconds, best))
    others = {label: seconds for label, seconds in times.items() if label not in tied}
    runner_up = min(others, key=lambda label: others[label]) if others else None
    margin = None if runner_up is None or best <= 0 else others[runner_up] / best - 1
    return Fastest(message_bytes, world_size, rest, tied, best, runner_up, margin)


def same(first: float, second: float) -> bool:
    """Whether two times are a tie.

    >>> same(1.0, 1.0 + 1e-12), same(1.0, 1.001)
    (True, False)
    """
    return abs(first - second) <= SAME * max(abs(first), abs(second))


@dataclass(frozen=True)
class Crossing:
    """Where the fastest algorithm changes: ``before`` is fastest below ``at``, ``after`` above it."""

    at: float
    seconds: float
    before: str
    after: str


def crossings(values: Sequence[float], curves: Mapping[str, Sequence[float]]) -> tuple[Crossing, ...]:
    """Return where the lower envelope of the curves goes from one curve to another.

    Between two neighbouring ``values`` (ascending) a time is taken as a straight line, which it is over message sizes
    that are cut evenly. A curve that only touches the envelope is no crossing.

    >>> [(c.at, c.before, c.after) for c in crossings([0, 10], {"a": [1, 6], "b": [2, 3]})]
    [(2.5, 'a', 'b')]
    """
    found: list[Crossing] = []
    if len(values) < 2 or not curves:
        return ()
    current = _leader({label: seconds[0] for label, seconds in curves.items()}, None)
    for i in range(len(values) - 1):
        ends = {label: (float(seconds[i]), float(seconds[i + 1])) for label, seconds in curves.items()}
        share = 0.0
        while (step := _next_leader(ends, current, share)) is not None:
            share, after = step
            at = values[i] + share * (values[i + 1] - values[i])
            found.append(Crossing(at, _between(ends[after], share), current, after))
            current = after
    return tuple(found)


def _leader(times: Mapping[str, float], current: str | None) -> str:
    best = min(times.values())
    if current is not None and same(times[current], best):
        return current
    return next(label for label, seconds in times.items() if same(seconds, best))


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + share * (ends[1] - ends[0])


def _next_leader(ends: Mapping[str, tuple[float, float]], current: str, share: float) -> tuple[float, str] | None:
    """Return where in the interval, from ``share`` on, another curve first passes below the current one."""
    own = ends[current]
    best: tuple[float, float, str] | None = None
    for label, other in ends.items():
        if label == current or other[1] >= own[1] or same(other[1], own[1]):
            continue  # not below at the end: straight lines that do not cross, or are still above
        ahead, behind = other[0] - own[0], own[1] - other[1]
        at = max(share, ahead / (ahead + behind)) if ahead > 0 else share
        steepness = other[1] - other[0]
        if best is None or (at, steepness) < best[:2]:
            best = (at, steepness, label)
    return None if best is None else (best[0], best[2])
