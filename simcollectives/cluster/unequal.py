"""What makes a cluster's devices share or differ: uplinks that several devices use, and changes to ranks and links."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.cluster.link import is_number
from simcollectives.errors import ClusterError, Problem
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
    problems = []
    for index, uplink in enumerate(uplinks):
        place = f"uplinks[{index}]"
        if uplink.level not in levels:
            problems.append(Problem(place, f"{uplink.level!r} is not a level; write one of: {', '.join(levels)}"))
        if not (is_number(uplink.bandwidth) and 0 < uplink.bandwidth < math.inf):
            problems.append(Problem(place, f"{uplink.bandwidth!r} B/s is not a bandwidth; it must be more than 0"))
        if (uplink.devices > 0) == (uplink.rails > 0):
            problems.append(Problem(place, "an uplink has units of devices, or rails; give exactly one of them"))
        elif uplink.rails and gpus_per_node % uplink.rails:
            problems.append(Problem(place, f"{uplink.rails} rails do not divide {gpus_per_node} devices of a node"))
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
        if (change.rank is None) == (change.link is None):
            problems.append(Problem(place, "a change is of a rank or of a link; give exactly one of them"))
        ranks = [change.rank] if change.rank is not None else list(change.link or ())
        outside = [rank for rank in ranks if not 0 <= rank < world_size]
        if outside:
            problems.append(Problem(place, f"rank {outside[0]} is unreachable; ranks are 0 to {world_size - 1}"))
        elif change.link is not None and change.link[0] == change.link[1]:
            problems.append(Problem(place, "a link joins two different ranks"))
        if change.level is not None and change.level not in levels:
            problems.append(Problem(place, f"{change.level!r} is not a level; write one of: {', '.join(levels)}"))
        for name in ("alpha", "bandwidth", "gamma"):
            factor = getattr(change, name)
            if not (is_number(factor) and 0 <= factor < math.inf) or (name == "bandwidth" and factor == 0):
                problems.append(Problem(f"{place}.{name}", f"{factor!r} is not a factor; it must be more than 0"))
        if change.link is not None and is_number(change.bandwidth) and change.bandwidth > 1:
            rule = f"{change.bandwidth!r} is more than 1 (100%); a link is no faster than its ports; give it to a rank"
            problems.append(Problem(f"{place}.bandwidth", rule))
        if change.link is not None and change.gamma != 1:
            problems.append(Problem(f"{place}.gamma", "a link does not reduce; give gamma to a rank"))
    if problems:
        raise ClusterError(problems)
    return tuple(changes)


def rank_factors(
    changes: Sequence[Change], name: str, level: str, world_size: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """[rank]: product of a factor over the changes of ranks at a level."""
    factors = np.ones(world_size)
    for change in changes:
        if change.rank is not None and change.level in (None, level):
            factors[change.rank] *= getattr(change, name)
    return factors
