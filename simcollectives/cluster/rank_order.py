"""Which device each rank sits on: node-major, round-robin, or a list."""

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Literal

import numpy as np

from simcollectives.errors import ClusterError, Problem, show_value
from simcollectives.schedule.types import IntArray

RankOrder = Literal["node_major", "round_robin"] | tuple[int, ...]


def device_of_rank(rank_order: RankOrder, nodes: int, gpus_per_node: int) -> IntArray:
    """[rank]: its device; device d is on node ``d // gpus_per_node``. Round-robin puts rank r on node ``r % nodes``.

    >>> device_of_rank("round_robin", 2, 3).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    ranks = np.arange(nodes * gpus_per_node, dtype=np.int64)
    if rank_order == "node_major":
        return ranks
    if rank_order == "round_robin":
        return (ranks % nodes) * gpus_per_node + ranks // nodes
    return np.array(rank_order, dtype=np.int64)


def as_whole(value: object) -> int | None:
    """Return an integer, also one of NumPy, as an int; None for what is none, a bool included."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None


def checked_rank_order(rank_order: RankOrder | Sequence[int], nodes: int, gpus_per_node: int) -> RankOrder:
    """Return the rank order, a list as a tuple, if it puts exactly one rank on every device.

    Raises:
        ClusterError: an unknown word, or a list that misses, repeats or invents devices; all problems at once.
    """
    if isinstance(rank_order, str) or not isinstance(rank_order, Sequence | np.ndarray):
        if rank_order not in ("node_major", "round_robin"):
            rule = "write node_major, round_robin or a list of devices"
            raise ClusterError([Problem("rank_order", f"{show_value(rank_order)} is not a rank order; {rule}")])
        return rank_order
    devices = nodes * gpus_per_node
    order: tuple[object, ...] = tuple(rank_order)
    problems = []
    numbers = [as_whole(d) for d in order]
    whole = [d for d in numbers if d is not None and 0 <= d < devices]
    valid = set(whole)
    invented = [given for given, d in zip(order, numbers, strict=True) if d is None or d not in valid]
    if invented:
        problems.append(f"{_some(invented)} is not a device; devices are 0 to {devices - 1}")
    repeated = sorted(d for d, times in Counter(whole).items() if times > 1)
    if repeated:
        problems.append(f"device {_some(repeated)} has two ranks; every device has one")
    missing = sorted(set(range(devices)) - valid)
    if missing:
        problems.append(
            f"device {_some(missing)} has no rank and is unreachable; list each of the {devices} devices once"
        )
    if not problems and len(order) != devices:
        problems.append(f"{len(order)} ranks for {devices} devices; list each device once")
    if problems:
        raise ClusterError([Problem("rank_order", text) for text in problems])
    return tuple(whole)


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(str(v) for v in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
