"""The directed resources of a cluster, and which of them a message crosses."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from simcollectives.cluster.graph import Graph
from simcollectives.cluster.link import Link
from simcollectives.cluster.unequal import Change, Uplink, rank_factors
from simcollectives.schedule.types import IntArray, Ints, common, constant

FloatArray = npt.NDArray[np.float64]
Floats = float | FloatArray
"""One entry a message or device, or one number for all."""
Links = tuple[Ints, Floats, Floats, Floats]


@dataclass(frozen=True)
class Level:
    """A class of links, among ``size`` units of the level below (devices, at the innermost).

    Its devices have a port each, or those of the level named ``ports_of`` (a spine has no network cards of its own:
    the link's bandwidth is then what the devices of each unit below share, one direction), or, at the innermost level,
    the edges of ``graph``, one copy in every unit of the level.
    """

    name: str
    link: Link
    size: int
    graph: Graph | None = None
    ports_of: str | None = None


@dataclass(frozen=True)
class Routes:
    """What the messages of a round cross; one row a message.

    ``level`` is the outermost level crossed, whose alpha and overhead count; ``bandwidth`` is the least capacity on the
    way; ``resources`` [message, hop] numbers the directed resources, the number after the last standing for none.
    """

    level: IntArray
    alpha: FloatArray
    overhead: FloatArray
    bandwidth: FloatArray
    resources: IntArray


class _Numbers(NamedTuple):
    """Where the resources of each level, uplink and changed pair begin, and what all of them are."""

    level_offsets: list[int]
    uplink_offsets: list[int]
    narrow_offsets: list[int]
    capacity: FloatArray
    owned: npt.NDArray[np.bool_]
    level_of: IntArray


class Network:
    """Numbers the resources: ports or edges level by level, then uplinks, then links whose bandwidth is changed.

    ``plain`` networks have ports only, all of a level alike. Asked with the array ``every_rank`` itself as the ends of
    messages, it need not look them up.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        device_of_rank: IntArray,
        gpus_per_node: int,
        uplinks: Sequence[Uplink] = (),
        changes: Sequence[Change] = (),
    ) -> None:
        """Take a cluster whose parts have been checked; resources are numbered when first asked for."""
        self._levels, self._uplinks, self._changes = levels, uplinks, changes
        self._device, self._gpus_per_node = device_of_rank, gpus_per_node
        self.every_rank = np.arange(len(device_of_rank), dtype=np.int64)
        self._names = [level.name for level in levels]
        # [level][rank]: the unit that a rank is in, at every level but the outermost.
        self._units = [device_of_rank // size for size in np.cumprod([level.size for level in levels])[:-1].tolist()]
        self._changes_alpha = any(change.alpha != 1 for change in changes)
        self._late_pairs = [change for change in changes if change.link is not None and change.alpha != 1]
        self.plain = not uplinks and not changes and all(not x.graph and not x.ports_of for x in levels)
        links = [level.link for level in levels]
        self.alpha = np.array([link.alpha for link in links], dtype=np.float64)
        self.overhead = np.array([link.overhead for link in links], dtype=np.float64)
        self.bandwidth = np.array([link.bandwidth for link in links], dtype=np.float64)
        self._narrow = [change for change in changes if change.link is not None and change.bandwidth != 1]

    @cached_property
    def _numbers(self) -> _Numbers:
        blocks: list[FloatArray] = []
        owned: list[npt.NDArray[np.bool_]] = []
        level_of: list[IntArray] = []

        def add(capacity: FloatArray, level: int, *, own: bool) -> int:
            offset = sum(len(block) for block in blocks)
            blocks.append(capacity.astype(np.float64))
            owned.append(np.full(len(capacity), own))
            level_of.append(np.full(len(capacity), level, dtype=np.int64))
            return offset

        devices = len(self._device)
        offsets: list[int] = []
        for index, level in enumerate(self._levels):
            if level.ports_of is not None:
                offsets.append(offsets[self._names.index(level.ports_of)])
            elif level.graph is not None:
                graph, copies = level.graph, devices // level.graph.devices
                ends = np.concatenate([graph.ends() + copy * graph.devices for copy in range(copies)])
                lanes = np.tile(graph.lanes, copies) * self._port_factors(level)[ends].min(axis=1)
                offsets.append(add(lanes * level.link.bandwidth, index, own=graph.owned))
            else:
                capacity = self._port_factors(level) * level.link.bandwidth
                offsets.append(add(np.repeat(capacity, 2), index, own=True))
        uplinks = [
            add(np.full(2 * x.units(devices), x.bandwidth), self._names.index(x.level), own=False)
            for x in self._uplinks
        ]
        narrow = [add(np.array([self._pair_bandwidth(x)]), self._pair_level(x), own=True) for x in self._narrow]
        columns = (
            np.concatenate([*blocks, [np.inf]]),
            np.concatenate([*owned, [True]]),
            np.concatenate([*level_of, [0]]),
        )
        return _Numbers(offsets, uplinks, narrow, *columns)

    @cached_property
    def capacity(self) -> FloatArray:
        """[resource]: B/s; one more, of no resource, is boundless."""
        return self._numbers.capacity

    @property
    def owned(self) -> npt.NDArray[np.bool_]:
        """[resource]: whether its messages all have one source rank, or all one destination."""
        return self._numbers.owned

    @property
    def level_of(self) -> IntArray:
        """[resource]: the level that it belongs to."""
        return self._numbers.level_of

    @property
    def count(self) -> int:
        """Number of resources."""
        return len(self.capacity) - 1

    @property
    def private(self) -> bool:
        """Whether all resources are owned."""
        return self.plain or bool(self.owned.all())

    def _port_factors(self, level: Level) -> FloatArray:
        factor = np.empty(len(self._device))
        factor[self._device] = rank_factors(self._changes, "bandwidth", level.name, len(self._device))
        return factor

    def _pair_level(self, change: Change) -> int:
        src, dst = (np.array([rank]) for rank in change.link or (0, 0))
        return int(self.levels_crossed(src, dst)[0])

    def _pair_bandwidth(self, change: Change) -> float:
        level = self._levels[self._pair_level(change)]
        while level.ports_of is not None:
            level = self._levels[self._names.index(level.ports_of)]
        return change.bandwidth * level.link.bandwidth

    def levels_crossed(self, src: IntArray, dst: IntArray) -> IntArray:
        """Outermost level that messages from ranks ``src`` to ranks ``dst`` cross; one entry a message."""
        level: IntArray = constant(0, len(src))
        for unit in self._units:
            level = np.add(level, self._of(unit, src) != self._of(unit, dst))
        return level

    def links(self, src: IntArray, dst: IntArray) -> Links:
        """Level, alpha, overhead and bandwidth of messages that meet no others; each an array, or a number for all."""
        level: Ints = common(self.levels_crossed(src, dst)) if self._units else 0
        if isinstance(level, np.ndarray) and len(level) and not np.count_nonzero(level != level[0]):
            level = int(level[0])
        if self.plain:
            return self._links_of[level] if isinstance(level, int) else self._links(level)
        if self._uplinks or self._levels[0].graph is not None:
            routes = self.routes(src, dst)
            return routes.level, routes.alpha, routes.overhead, routes.bandwidth
        bandwidth = np.minimum(self._of(self._ports_out, src, level), self._of(self._ports_in, dst, level))
        for change, offset in zip(self._narrow, self._numbers.narrow_offsets, strict=True):
            narrow = np.minimum(bandwidth, self.capacity[offset])
            bandwidth = np.where(self._is_pair(change, src, dst, level), narrow, bandwidth)
        return level, self._changed_alpha(src, dst, level), self.overhead[level], bandwidth

    def _links(self, level: Ints) -> Links:
        return level, self.alpha[level], self.overhead[level], self.bandwidth[level]

    @cached_property
    def _links_of(self) -> list[Links]:
        return [self._links(level) for level in range(len(self._levels))]

    @cached_property
    def _ports_out(self) -> FloatArray:
        """[level, rank]: capacity of the port that a rank sends from."""
        return self.capacity[np.array(self._numbers.level_offsets)[:, None] + 2 * self._device]

    @cached_property
    def _ports_in(self) -> FloatArray:
        """[level, rank]: capacity of the port that a rank receives at."""
        return self.capacity[np.array(self._numbers.level_offsets)[:, None] + 2 * self._device + 1]

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Resources that messages from ranks ``src`` to ranks ``dst`` cross."""
        level = self.levels_crossed(src, dst)
        source, destination = self._device[src], self._device[dst]
        columns = self._ports(level, source, destination)
        for uplink, offset in zip(self._uplinks, self._numbers.uplink_offsets, strict=True):
            out, into = (uplink.unit_of(device, self._gpus_per_node) for device in (source, destination))
            leaves = (level >= self._names.index(uplink.level)) & (out != into)
            columns += [
                np.where(leaves, offset + 2 * out, self.count),
                np.where(leaves, offset + 2 * into + 1, self.count),
            ]
        for change, offset in zip(self._narrow, self._numbers.narrow_offsets, strict=True):
            columns.append(np.where(self._is_pair(change, src, dst, level), offset, self.count))
        resources = np.stack(columns, axis=1)
        alpha = np.asarray(self._changed_alpha(src, dst, level))
        bandwidth = self.bandwidth[level] if self.plain else self.capacity[resources].min(axis=1)
        return Routes(level, alpha, self.overhead[level], bandwidth, resources)

    def _ports(self, level: IntArray, source: IntArray, destination: IntArray) -> list[IntArray]:
        offset = np.array(self._numbers.level_offsets, dtype=np.int64)[level]
        graph = self._levels[0].graph
        ports = [offset + 2 * source, offset + 2 * destination + 1]
        if graph is None:
            return ports
        inside = level == 0
        hops = graph.hops(
            source % graph.devices, destination % graph.devices * inside + source % graph.devices * ~inside
        )
        edges = np.where(
            hops >= 0,
            self._numbers.level_offsets[0] + (source // graph.devices * graph.edges)[:, None] + hops,
            self.count,
        )
        edges[~inside] = self.count
        return [*edges.T, *(np.where(inside, self.count, port) for port in ports)]

    def _is_pair(self, change: Change, src: IntArray, dst: IntArray, level: Ints) -> npt.NDArray[np.bool_]:
        start, end = change.link or (-1, -1)
        on_level = True if change.level is None else level == self._names.index(change.level)
        found: npt.NDArray[np.bool_] = (src == start) & (dst == end) & on_level
        return found

    def _changed_alpha(self, src: IntArray, dst: IntArray, level: Ints) -> Floats:
        alpha = self.alpha[level]
        if not self._changes_alpha:
            return alpha
        factors = self._alpha_factors
        factor = np.maximum(self._of(factors, src, level), self._of(factors, dst, level))
        for change in self._late_pairs:
            factor = np.where(self._is_pair(change, src, dst, level), factor * change.alpha, factor)
        changed: FloatArray = alpha * factor
        return changed

    @cached_property
    def _alpha_factors(self) -> FloatArray:
        """[level, rank]: factor on the latency of its messages."""
        return np.stack([rank_factors(self._changes, "alpha", name, len(self._device)) for name in self._names])

    def _of(self, table: npt.NDArray[Any], rank: IntArray, level: Ints | None = None) -> npt.NDArray[Any]:
        """Entries of a table by rank, or by level and rank; those of all ranks in order are not copied."""
        if isinstance(level, np.ndarray):
            table, rank = table.reshape(-1), level * len(self.every_rank) + rank
        elif level is not None:
            table = table[level]
        entries: npt.NDArray[Any] = table if rank is self.every_rank else table.take(rank)
        return entries
