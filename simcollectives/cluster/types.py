"""Links, devices and clusters of them.

A cluster is flat (every pair of devices on one kind of link) or two-level: fast links inside a node, and a network
interface for each device between nodes. Every device has one full-duplex port per level, separate from its others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from simcollectives.cluster.rank_order import RankOrder, checked_rank_order, device_of_rank
from simcollectives.errors import ClusterError, Problem
from simcollectives.schedule.types import IntArray

FloatArray = npt.NDArray[np.float64]

MAX_DEVICES = 1 << 24


@dataclass(frozen=True)
class Link:
    """One direction of a link: a message of n bytes alone takes ``alpha + overhead + n / bandwidth``.

    ``alpha`` seconds pass with nothing occupied; ``bandwidth`` is in bytes per second; ``overhead`` is the seconds that
    each message occupies the port beside its bytes.

    Raises:
        ClusterError: a value is not finite, alpha or overhead is negative, or bandwidth is not positive.
    """

    alpha: float
    bandwidth: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        problems = [
            Problem(name, f"{value!r} s is not a latency; it must be 0 or more and finite")
            for name, value in (("alpha", self.alpha), ("overhead", self.overhead))
            if not (_is_number(value) and 0 <= value < math.inf)
        ]
        if not (_is_number(self.bandwidth) and 0 < self.bandwidth < math.inf):
            rule = "it must be more than 0 and finite"
            problems.append(Problem("bandwidth", f"{self.bandwidth!r} B/s is not a bandwidth; {rule}"))
        if problems:
            raise ClusterError(problems)


def message_seconds(link: Link, message_bytes: float) -> float:
    """Seconds that one message alone takes on a link."""
    return link.alpha + link.overhead + message_bytes / link.bandwidth


@dataclass(frozen=True)
class Device:
    """One accelerator. ``peak_flops`` is FLOP/s by dtype; ``reduction_seconds_per_byte`` is gamma, paid by receivers.

    Fields that a machine's data sheet does not give are None.
    """

    name: str = "device"
    peak_flops: tuple[tuple[str, float], ...] = ()
    memory_bytes: float | None = None
    memory_bandwidth: float | None = None
    host_link_bandwidth: float | None = None
    reduction_seconds_per_byte: float = 0.0

    def __post_init__(self) -> None:
        """Check gamma."""
        gamma = self.reduction_seconds_per_byte
        if not (_is_number(gamma) and 0 <= gamma < math.inf):
            raise ClusterError([Problem("gamma", f"{gamma!r} s/B is not a reduction time; it must be 0 or more")])


@dataclass(frozen=True)
class Level:
    """A class of links; levels go from the innermost to the outermost."""

    name: str
    link: Link


@dataclass(frozen=True)
class Routes:
    """What the messages of a round cross; one row a message.

    ``level`` is the outermost level crossed, whose alpha and overhead count; ``bandwidth`` is the least capacity on the
    way; ``resources`` [message, hop] numbers the directed ports.
    """

    level: IntArray
    alpha: FloatArray
    overhead: FloatArray
    bandwidth: FloatArray
    resources: IntArray


@dataclass(frozen=True)
class Cluster:
    """Devices on nodes, the links between them, and which device each rank sits on.

    Make one with ``Cluster.flat``, ``Cluster.two_level`` or ``Cluster.machine``.
    """

    nodes: int
    gpus_per_node: int
    levels: tuple[Level, ...]
    rank_order: RankOrder = "node_major"
    device: Device = field(default_factory=Device)
    name: str | None = None

    @classmethod
    def flat(
        cls, devices: int, link: Link, *, rank_order: RankOrder = "node_major", device: Device | None = None
    ) -> "Cluster":
        """Every pair of ``devices`` devices on one kind of link; one full-duplex port a device.

        Raises:
            ClusterError: the number of devices or the rank order is not valid.
        """
        _check_counts(devices=devices)
        order = checked_rank_order(rank_order, 1, devices)
        return cls(1, devices, (Level("link", link),), order, device or Device())

    @classmethod
    def two_level(
        cls,
        nodes: int,
        gpus_per_node: int,
        intra: Link | None,
        inter: Link | None,
        *,
        rank_order: RankOrder | Sequence[int] = "node_major",
        device: Device | None = None,
        name: str | None = None,
    ) -> "Cluster":
        """Nodes of ``gpus_per_node`` devices: ``intra`` links inside a node, one ``inter`` port a device between them.

        ``intra`` may be None where a node has one device, ``inter`` where there is one node.

        Raises:
            ClusterError: a count or the rank order is not valid, or ranks cannot reach each other.
        """
        _check_counts(nodes=nodes, gpus_per_node=gpus_per_node)
        problems = []
        if gpus_per_node > 1 and intra is None:
            problems.append(
                Problem("intra", "ranks 0 and 1 cannot reach each other: devices of a node need a link, intra")
            )
        if nodes > 1 and inter is None:
            other = f"ranks 0 and {gpus_per_node}"
            problems.append(Problem("inter", f"{other} cannot reach each other: {nodes} nodes need a link, inter"))
        if problems:
            raise ClusterError(problems)
        used = [("intra", intra if gpus_per_node > 1 or nodes == 1 else None), ("inter", inter if nodes > 1 else None)]
        levels = tuple(Level(level, link) for level, link in used if link is not None)
        if not levels:
            levels = (Level("intra", intra or inter or Link(0.0, 1.0)),)
        order = checked_rank_order(rank_order, nodes, gpus_per_node)
        return cls(nodes, gpus_per_node, levels, order, device or Device(), name)

    @classmethod
    def machine(cls, name: str, nodes: int = 1, *, rank_order: RankOrder | Sequence[int] = "node_major") -> "Cluster":
        """``nodes`` nodes of a named machine; ``simcollectives list machines`` shows the names.

        Raises:
            ClusterError: the machine is not known, or the number of nodes or the rank order is not valid.
        """
        from simcollectives.cluster.machines import load_machine

        machine = load_machine(name)
        return cls.two_level(
            nodes,
            machine.gpus_per_node,
            machine.intra,
            machine.inter,
            rank_order=rank_order,
            device=machine.device,
            name=machine.name,
        )

    @property
    def world_size(self) -> int:
        """Number of devices, each with one rank."""
        return self.nodes * self.gpus_per_node

    @cached_property
    def device_of_rank(self) -> IntArray:
        """[rank]: the device it sits on; device d is on node ``d // gpus_per_node``."""
        return device_of_rank(self.rank_order, self.nodes, self.gpus_per_node)

    @cached_property
    def groups(self) -> IntArray:
        """[node, member]: the ranks on each node, in rank order."""
        node = self.device_of_rank // self.gpus_per_node
        return np.argsort(node, kind="stable").astype(np.int64).reshape(self.nodes, self.gpus_per_node)

    @property
    def uniform_link(self) -> Link | None:
        """The link that every pair of ranks uses, or None where there are several kinds."""
        return self.levels[0].link if len(self.levels) == 1 else None

    def level(self, name: str) -> Level:
        """Look a level up by name.

        Raises:
            ClusterError: the cluster has no such level.
        """
        for level in self.levels:
            if level.name == name:
                return level
        known = ", ".join(level.name for level in self.levels)
        raise ClusterError(f"{name!r} is not a level of this cluster; it has: {known}")

    def with_link(self, level_name: str, link: Link) -> "Cluster":
        """Return the same cluster with another link at one level."""
        self.level(level_name)
        levels = tuple(Level(x.name, link) if x.name == level_name else x for x in self.levels)
        return replace(self, levels=levels)

    def with_servers(self, servers: int) -> "Cluster":
        """Return a flat cluster with ``servers`` more devices on the same link, numbered after the ranks.

        Raises:
            ClusterError: the cluster is not flat.
        """
        if servers == 0:
            return self
        if self.levels[0].name != "link":
            raise ClusterError(
                "dedicated servers share the workers' link: they need a flat cluster (devices: and link:)"
            )
        order = self.rank_order
        if not isinstance(order, str):
            order = (*order, *range(self.world_size, self.world_size + servers))
        return replace(self, gpus_per_node=self.gpus_per_node + servers, rank_order=order)

    def levels_crossed(self, src: IntArray, dst: IntArray) -> IntArray:
        """Outermost level that messages from ranks ``src`` to ranks ``dst`` cross; one entry a message."""
        if len(self.levels) == 1:
            return np.zeros(len(src), dtype=np.int64)
        node = self.device_of_rank // self.gpus_per_node
        crossed: IntArray = (node[src] != node[dst]).astype(np.int64)
        return crossed

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Ports that messages from ranks ``src`` to ranks ``dst`` cross."""
        level = self.levels_crossed(src, dst)
        source, destination = self.device_of_rank[src], self.device_of_rank[dst]
        alpha, bandwidth, overhead = self.link_columns
        resources = np.stack([self._port(source, level, 0), self._port(destination, level, 1)], axis=1)
        return Routes(level, alpha[level], overhead[level], bandwidth[level], resources)

    def _port(self, device: IntArray, level: IntArray, direction: int) -> IntArray:
        result: IntArray = (device * len(self.levels) + level) * 2 + direction
        return result

    @property
    def resource_count(self) -> int:
        """Number of directed ports."""
        return self.world_size * len(self.levels) * 2

    @cached_property
    def resource_capacity(self) -> FloatArray:
        """[resource]: bytes per second of each directed port."""
        bandwidth = np.repeat([level.link.bandwidth for level in self.levels], 2)
        return np.tile(bandwidth, self.world_size).astype(np.float64)

    def resource_level(self, resource: int) -> int:
        """Level of a directed port."""
        return (resource // 2) % len(self.levels)

    @cached_property
    def link_columns(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Alpha, bandwidth and overhead, each by level."""
        links = [level.link for level in self.levels]
        return (
            np.array([link.alpha for link in links], dtype=np.float64),
            np.array([link.bandwidth for link in links], dtype=np.float64),
            np.array([link.overhead for link in links], dtype=np.float64),
        )

    @property
    def port_bandwidth(self) -> float:
        """Bytes per second of all ports of one device together, one direction."""
        return sum(level.link.bandwidth for level in self.levels)

    @property
    def node_bandwidth(self) -> float | None:
        """Bytes per second out of one node, or None where there is one node."""
        if self.nodes == 1:
            return None
        return self.levels[-1].link.bandwidth * self.gpus_per_node


def _check_counts(**counts: object) -> None:
    problems = []
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(Problem(name, f"{value!r} is not a number of {name}; it must be a whole number, 1 or more"))
    if not problems and math.prod(c for c in counts.values() if isinstance(c, int)) > MAX_DEVICES:
        problems.append(Problem(next(iter(counts)), f"more than {MAX_DEVICES} devices are not supported"))
    if problems:
        raise ClusterError(problems)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
