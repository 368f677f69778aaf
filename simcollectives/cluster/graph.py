"""Links between pairs of devices instead of ports: full meshes, tori and meshes, and wirings given edge by edge.

A graph numbers its directed edges and routes messages over them; each edge is a resource of the link's bandwidth, times
the number of parallel lanes.
"""

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from simcollectives.errors import ClusterError, Problem
from simcollectives.schedule.types import IntArray


class Graph(Protocol):
    """What a cluster needs to know of a wiring."""

    @property
    def devices(self) -> int:
        """Devices that it joins."""
        ...

    @property
    def edges(self) -> int:
        """Directed edges."""
        ...

    @property
    def owned(self) -> bool:
        """Whether every edge only ever carries messages of one source to one destination."""
        ...

    @property
    def lanes(self) -> npt.NDArray[np.float64]:
        """[edge]: parallel links."""
        ...

    def ends(self) -> IntArray:
        """[edge]: the devices that it leaves and enters."""
        ...

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """[message, hop]: the edges from ``src`` to ``dst``, -1 where a route has fewer hops than the longest."""
        ...

    def lanes_out(self) -> float:
        """Most lanes out of one device."""
        ...


@dataclass(frozen=True)
class FullMesh:
    """One link for every ordered pair, as the eight MI300X of a server have: no switch, and no port of a device."""

    devices: int

    @property
    def edges(self) -> int:
        """One for each ordered pair; those from a device to itself are never used."""
        return self.devices**2

    @property
    def owned(self) -> bool:
        """A pair has its edge for itself."""
        return True

    @property
    def lanes(self) -> npt.NDArray[np.float64]:
        """One link a pair."""
        return np.ones(self.edges)

    def ends(self) -> IntArray:
        """Every ordered pair."""
        edge = np.arange(self.edges, dtype=np.int64)
        return np.stack([edge // self.devices, edge % self.devices], axis=1)

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """One hop."""
        return (src * self.devices + dst)[:, None]

    def lanes_out(self) -> float:
        """One to each other device."""
        return float(max(self.devices - 1, 1))


@dataclass(frozen=True)
class Torus:
    """Neighbour links along each dimension of a grid, with wrap-around links for a torus or without for a mesh.

    Messages take the dimensions in order, the shorter way round (upwards where both are equal).
    """

    sizes: tuple[int, ...]
    wraps: bool = True

    @property
    def devices(self) -> int:
        """Product of the sizes."""
        return prod(self.sizes)

    @property
    def edges(self) -> int:
        """Two directions a dimension and device."""
        return self.devices * 2 * len(self.sizes)

    @property
    def owned(self) -> bool:
        """Edges carry what passes through."""
        return False

    @property
    def lanes(self) -> npt.NDArray[np.float64]:
        """One link each."""
        return np.ones(self.edges)

    def ends(self) -> IntArray:
        """From each device, dimension by dimension, upwards and downwards."""
        device = np.repeat(np.arange(self.devices, dtype=np.int64), 2 * len(self.sizes))
        into, stride, columns = np.arange(self.devices, dtype=np.int64), 1, []
        for size in self.sizes:
            at = into // stride % size
            columns += [into + ((at + step) % size - at) * stride for step in (1, -1)]
            stride *= size
        return np.stack([device, np.stack(columns, axis=1).reshape(-1)], axis=1)

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """Dimension-ordered route; device numbers have the first size fastest."""
        here, columns, stride = src.copy(), [], 1
        for dimension, size in enumerate(self.sizes):
            at, goal = src // stride % size, dst // stride % size
            ahead = (goal - at) % size if self.wraps else goal - at
            backwards = ahead > size - ahead if self.wraps else ahead < 0
            left = np.where(backwards, (size - ahead) if self.wraps else -ahead, ahead)
            # As many columns whatever the messages: flows of several rounds are rows of one array.
            for _ in range(size // 2 if self.wraps else size - 1):
                moves = left > 0
                edge = (here * len(self.sizes) + dimension) * 2 + backwards
                columns.append(np.where(moves, edge, -1))
                coordinate = here // stride % size
                after = (coordinate + np.where(backwards, -1, 1)) % size
                here = np.where(moves, here + (after - coordinate) * stride, here)
                left = left - moves
            stride *= size
        return np.stack(columns, axis=1) if columns else np.full((len(src), 1), -1, dtype=np.int64)

    def lanes_out(self) -> float:
        """Two a dimension, where the dimension has more than one device; one where it has two and does not wrap."""
        return float(max(sum(2 if size > 2 or (self.wraps and size > 1) else size - 1 for size in self.sizes), 1))


@dataclass(frozen=True)
class Wiring:
    """Links given one by one as (device, device, lanes), both directions; messages take a shortest path.

    Among shortest paths a message takes the one with the most lanes at its narrowest, then the lowest device numbers.

    Raises:
        ClusterError: a device cannot be reached.
    """

    devices: int
    links: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        """Check that every device can be reached from device 0."""
        lost = sorted(set(range(self.devices)) - set(self._paths_from(0)))
        if lost:
            raise ClusterError([Problem("links", f"device {lost[0]} is unreachable; add a link to it")])

    @property
    def edges(self) -> int:
        """Two directed edges a link."""
        return 2 * len(self.links)

    @property
    def owned(self) -> bool:
        """Edges carry what passes through."""
        return False

    @property
    def lanes(self) -> npt.NDArray[np.float64]:
        """Lanes of each link, in both directions."""
        return np.repeat([float(lanes) for _, _, lanes in self.links], 2)

    @cached_property
    def _edge_of(self) -> dict[tuple[int, int], int]:
        ahead = {(a, b): 2 * i for i, (a, b, _) in enumerate(self.links)}
        return ahead | {(b, a): 2 * i + 1 for i, (a, b, _) in enumerate(self.links)}

    def _paths_from(self, start: int) -> dict[int, tuple[int, ...]]:
        lanes = self.lanes
        found: dict[int, tuple[float, tuple[int, ...]]] = {start: (np.inf, (start,))}
        queue = deque([start])
        neighbours: dict[int, list[int]] = {}
        for a, b in self._edge_of:
            neighbours.setdefault(a, []).append(b)
        while queue:
            device = queue.popleft()
            width, path = found[device]
            for other in sorted(neighbours.get(device, [])):
                candidate = (min(width, lanes[self._edge_of[device, other]]), (*path, other))
                if other not in found:
                    queue.append(other)
                    found[other] = candidate
                elif len(found[other][1]) == len(candidate[1]) and candidate[0] > found[other][0]:
                    found[other] = candidate
        return {device: path for device, (_, path) in found.items()}

    @cached_property
    def _table(self) -> IntArray:
        paths = [self._paths_from(start) for start in range(self.devices)]
        longest = max(len(path) - 1 for per_start in paths for path in per_start.values())
        table = np.full((self.devices, self.devices, max(longest, 1)), -1, dtype=np.int64)
        for start, per_start in enumerate(paths):
            for end, path in per_start.items():
                for hop, pair in enumerate(pairwise(path)):
                    table[start, end, hop] = self._edge_of[pair]
        return table

    def ends(self) -> IntArray:
        """Both directions of every link."""
        return np.array([pair for a, b, _ in self.links for pair in ((a, b), (b, a))], dtype=np.int64)

    def hops(self, src: IntArray, dst: IntArray) -> IntArray:
        """Shortest path."""
        found: IntArray = self._table[src, dst]
        return found

    def lanes_out(self) -> float:
        """Most lanes of one device."""
        ends = [(device, lanes) for a, b, lanes in self.links for device in (a, b)]
        return float(max((sum(n for d, n in ends if d == device) for device in range(self.devices)), default=1))
