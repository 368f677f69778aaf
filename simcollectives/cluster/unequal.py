"""What makes a cluster's devices share or differ: uplinks that several devices use, and changes to ranks and links."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.cluster.link import BANDWIDTHS, MAX_FACTOR, is_number, type_problems
from simcollectives.cluster.rank_order import as_whole
from simcollectives.errors import ClusterError, Problem, show_value, suggestion
from simcollectives.schedule.types import IntArray


@dataclass(frozen=True)
class Uplink:
    """A resource that the devices of one unit share on the way out, and one that they share on the way in.

    Messages that cross ``level`` or one further out, between different units, flow over the uplink of either unit, each
    of ``bandwidth`` B/s and direction. Units are runs of ``devices`` consecutive devices (a network interface, a PCIe
    switch, the nodes of a leaf), or, with ``rails``, the devices with the same place in their nodes (``rails`` of them
    to a node; a rail-optimised leaf).
    """

    name: str
    level: str
    bandwidth: float
    devices: int = 0
    rails: int = 0

    def units(self, world_size: int) -> int:
        """Number of units."""
        return self.rails if self.rails else -(-world_size // self.devices)

    def unit_of(self, device: IntArray, gpus_per_node: int) -> IntArray:
        """The unit of each device."""
        if self.rails:
            return device % gpus_per_node * self.rails // gpus_per_node
        return device // self.devices


@dataclass(frozen=True)
class Change:
    """Factors on the links of one rank, or of the directed link from rank ``link[0]`` to ``link[1]``.

    ``alpha`` multiplies the latency of its messages, ``bandwidth`` the capacity (of the rank's ports, or of what the
    pair may use of its own, at most all), ``gamma`` the rank's reduction time. ``level`` restricts it to one level.
    """

    rank: int | None = None
    link: tuple[int, int] | None = None
    level: str | None = None
    alpha: float = 1.0
    bandwidth: float = 1.0
    gamma: float = 1.0


def checked_uplinks(uplinks: Sequence[Uplink], levels: Sequence[str], gpus_per_node: int) -> tuple[Uplink, ...]:
    """Return uplinks if they fit the cluster.

    Raises:
        ClusterError: all that do not, at once.
    """
    least, most = BANDWIDTHS
    problems = []
    for index, uplink in enumerate(uplinks):
        place = f"uplinks[{index}]"
        if wrong := type_problems(place, uplink, Uplink, 'Uplink("nic", "inter", 50e9, devices=8)'):
            problems += wrong
            continue
        if uplink.level not in levels:
            problems.append(_level_problem(place, uplink.level, levels))
        if not (is_number(uplink.bandwidth) and least <= uplink.bandwidth <= most):
            rule = f"it must be more than 0: from {least:.0e} to {most:.0e} B/s"
            problems.append(Problem(place, f"{show_value(uplink.bandwidth)} B/s is not a bandwidth; {rule}"))
        devices, rails = as_whole(uplink.devices), as_whole(uplink.rails)
        if devices is None or rails is None or min(devices, rails) < 0 or (devices > 0) == (rails > 0):
            problems.append(Problem(place, "an uplink has units of devices, or rails; give exactly one of them"))
        elif rails and gpus_per_node % rails:
            problems.append(Problem(place, f"{rails} rails do not divide {gpus_per_node} devices of a node"))
    if problems:
        raise ClusterError(problems)
    return tuple(uplinks)


def checked_changes(changes: Sequence[Change], levels: Sequence[str], world_size: int) -> tuple[Change, ...]:
    """Return changes if they fit the cluster.

    Raises:
        ClusterError: all that do not, at once.
    """
    problems = []
    for index, change in enumerate(changes):
        place = f"changes[{index}]"
        if wrong := type_problems(place, change, Change, "Change(rank=3, bandwidth=0.5)"):
            problems += wrong
            continue
        problems += _ends_problems(place, change, world_size)
        if change.level is not None and change.level not in levels:
            problems.append(_level_problem(place, change.level, levels))
        for name in ("alpha", "bandwidth", "gamma"):
            factor = getattr(change, name)
            if not (is_number(factor) and 0 <= factor <= MAX_FACTOR) or (name == "bandwidth" and factor == 0):
                rule = f"it must be more than 0, at most {MAX_FACTOR:.0e}"
                problems.append(Problem(f"{place}.{name}", f"{show_value(factor)} is not a factor; {rule}"))
        if change.link is not None and is_number(change.bandwidth) and change.bandwidth > 1:
            shown = show_value(change.bandwidth)
            rule = f"{shown} is more than 1 (100%); a link is no faster than its ports; give it to a rank"
            problems.append(Problem(f"{place}.bandwidth", rule))
        if change.link is not None and change.gamma != 1:
            problems.append(Problem(f"{place}.gamma", "a link does not reduce; give gamma to a rank"))
    if problems:
        raise ClusterError(problems)
    return tuple(changes)


def _level_problem(place: str, level: object, levels: Sequence[str]) -> Problem:
    return Problem(place, f"{show_value(level)} is not a level; {suggestion(level, levels)}")


def _ends_problems(place: str, change: Change, world_size: int) -> list[Problem]:
    """What is wrong with the rank, or the two ranks of the link, of a change."""
    if (change.rank is None) == (change.link is None):
        return [Problem(place, "a change is of a rank or of a link; give exactly one of them")]
    link: object = change.link
    if link is not None and not (isinstance(link, tuple | list) and len(link) == 2):
        return [Problem(place, f"{show_value(link)} is not a link; give two ranks, (0, 1)")]
    ranks = [change.rank] if change.link is None else list(change.link)
    outside = [rank for rank in ranks if (whole := as_whole(rank)) is None or not 0 <= whole < world_size]
    if outside:
        rule = f"is unreachable; ranks are 0 to {world_size - 1}"
        return [Problem(place, f"rank {show_value(rank)} {rule}") for rank in dict.fromkeys(outside)]
    return [Problem(place, "a link joins two different ranks")] if ranks[0] == ranks[-1] and link is not None else []


def rank_factors(
    changes: Sequence[Change], name: str, level: str | None, world_size: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """[rank]: product of a factor over the changes of ranks at a level; None for what levels do not concern."""
    factors = np.ones(world_size)
    for change in changes:
        if change.rank is not None and (level is None or change.level in (None, level)):
            factors[change.rank] *= getattr(change, name)
    return factors
