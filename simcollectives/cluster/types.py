"""Clusters of devices.

A cluster has levels of links, from the innermost to the outermost: flat (one level), two-level (fast links inside a
node, a network port for each device between nodes), or more. At every level a device has one full-duplex port, separate
from its others, unless the level is a graph of links between pairs. Uplinks are what several devices share on the way
out; changes make ranks or links unequal.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from simcollectives.cluster.graph import FullMesh, Torus
from simcollectives.cluster.link import DEVICE_EXAMPLE, LINK_EXAMPLE, Device, Link, type_problems
from simcollectives.cluster.network import Level, Network, Routes
from simcollectives.cluster.rank_order import RankOrder, as_whole, checked_rank_order, device_of_rank
from simcollectives.cluster.unequal import Change, Uplink, checked_changes, checked_uplinks, rank_factors
from simcollectives.errors import ClusterError, Problem, show_value, suggestion
from simcollectives.schedule.types import IntArray, spread

FloatArray = npt.NDArray[np.float64]

__all__ = ["Cluster", "Level", "Routes"]

MAX_DEVICES = 1 << 24


@dataclass(frozen=True)
class Cluster:
    """Devices on nodes, the links between them, and which device each rank sits on.

    Make one with ``flat``, ``two_level``, ``layered``, ``full_mesh``, ``torus`` or ``machine``.
    """

    nodes: int
    gpus_per_node: int
    levels: tuple[Level, ...]
    rank_order: RankOrder = "node_major"
    device: Device = field(default_factory=Device)
    name: str | None = None
    uplinks: tuple[Uplink, ...] = ()
    changes: tuple[Change, ...] = ()

    @classmethod
    def flat(
        cls, devices: int, link: Link, *, rank_order: RankOrder = "node_major", device: Device | None = None
    ) -> "Cluster":
        """Every pair of ``devices`` devices on one kind of link; one full-duplex port a device.

        Raises:
            ClusterError: the number of devices or the rank order is not valid.
        """
        _check_counts({"devices": devices}, _link_problems(link=link), device)
        devices = int(devices)
        order = checked_rank_order(rank_order, 1, devices)
        return cls(1, devices, (Level("link", link, devices),), order, device or Device())

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
        links = {name: link for name, link in (("intra", intra), ("inter", inter)) if link is not None}
        _check_counts({"nodes": nodes, "gpus_per_node": gpus_per_node}, _link_problems(**links), device)
        nodes, gpus_per_node = int(nodes), int(gpus_per_node)
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
        order = checked_rank_order(rank_order, nodes, gpus_per_node)
        used = [("intra", intra, gpus_per_node)] if gpus_per_node > 1 or nodes == 1 else []
        used += [("inter", inter, nodes)] if nodes > 1 else []
        # A single device sends nothing: any link will do.
        levels = tuple(Level(level, link or inter or Link(0.0, 1.0), size) for level, link, size in used)
        return cls(nodes, gpus_per_node, levels, order, device or Device(), name)

    @classmethod
    def layered(
        cls,
        levels: Sequence[Level],
        *,
        rank_order: RankOrder | Sequence[int] = "node_major",
        device: Device | None = None,
        name: str | None = None,
    ) -> "Cluster":
        """Any number of levels, the innermost first; the first is the node.

        Raises:
            ClusterError: sizes, names or graphs do not fit; all problems at once.
        """
        wrong = _level_problems(levels)
        _check_counts({} if wrong else {level.name: level.size for level in levels}, wrong, device)
        problems = []
        names = [level.name for level in levels]
        for index, level in enumerate(levels):
            if names.count(level.name) > 1:
                problems.append(Problem(f"levels[{index}]", f"{level.name!r} is the name of two levels"))
            if level.ports_of is not None and level.ports_of not in names[:index]:
                problems.append(Problem(f"levels[{index}].ports_of", f"{level.ports_of!r} is not a level further in"))
            if level.graph is not None and (index > 0 or level.graph.devices != level.size):
                problems.append(Problem(f"levels[{index}].graph", "a graph joins all devices of the innermost level"))
        if not levels:
            problems.append(Problem("levels", "a cluster has at least one level"))
        if problems:
            raise ClusterError(problems)
        inner, outer = levels[0].size, math.prod(level.size for level in levels[1:])
        order = checked_rank_order(rank_order, outer, inner)
        return cls(outer, inner, tuple(levels), order, device or Device(), name)

    @classmethod
    def full_mesh(cls, devices: int, link: Link, *, rank_order: RankOrder | Sequence[int] = "node_major") -> "Cluster":
        """One link for every ordered pair of devices, and no other limit.

        Raises:
            ClusterError: the number of devices or the rank order is not valid.
        """
        _check_counts({"devices": devices}, _link_problems(link=link))
        return cls.layered([Level("link", link, devices, FullMesh(devices))], rank_order=rank_order)

    @classmethod
    def torus(
        cls,
        sizes: Sequence[int],
        link: Link,
        *,
        wraps: bool = True,
        rank_order: RankOrder | Sequence[int] = "node_major",
    ) -> "Cluster":
        """A grid of devices with links between neighbours; ``wraps`` closes every dimension to a ring.

        Raises:
            ClusterError: a size or the rank order is not valid.
        """
        listed = _is_list(sizes)
        wrong = [] if listed else [Problem("sizes", f"{show_value(sizes)} is not a list of sizes; write [4, 4]")]
        counts = {f"sizes[{i}]": size for i, size in enumerate(sizes)} if listed else {}
        _check_counts(counts, wrong + _link_problems(link=link))
        graph = Torus(tuple(sizes), wraps)
        return cls.layered([Level("link", link, graph.devices, graph)], rank_order=rank_order)

    @classmethod
    def machine(
        cls,
        name: str,
        nodes: int = 1,
        *,
        rank_order: RankOrder | Sequence[int] = "node_major",
        calibrated: bool = False,
    ) -> "Cluster":
        """``nodes`` nodes of a named machine; ``simcollectives list machines`` shows the names.

        With ``calibrated`` its links are those that measured times show, where there are any.

        Raises:
            ClusterError: the machine is not known, or the number of nodes or the rank order is not valid.
        """
        from simcollectives.cluster.calibrated import calibrated_links
        from simcollectives.cluster.machines import load_machine

        machine = load_machine(name)
        intra, inter = calibrated_links(machine)[:2] if calibrated else (machine.intra, machine.inter)
        cluster = cls.two_level(
            nodes,
            machine.gpus_per_node,
            intra,
            inter,
            rank_order=rank_order,
            device=machine.device,
            name=machine.name,
        )
        cluster = replace(cluster, levels=(replace(cluster.levels[0], graph=machine.graph), *cluster.levels[1:]))
        shared = machine.gpus_per_node // machine.nics_per_node
        if nodes == 1 or shared == 1:
            return cluster
        return cluster.with_uplinks(Uplink("nic", "inter", inter.bandwidth, devices=shared))

    @property
    def world_size(self) -> int:
        """Number of devices, each with one rank."""
        return self.nodes * self.gpus_per_node

    @cached_property
    def device_of_rank(self) -> IntArray:
        """[rank]: the device it sits on; device d is on node ``d // gpus_per_node``."""
        return _fixed(device_of_rank(self.rank_order, self.nodes, self.gpus_per_node))

    @cached_property
    def groups(self) -> IntArray:
        """[node, member]: the ranks on each node, in rank order."""
        node = self.device_of_rank // self.gpus_per_node
        return _fixed(np.argsort(node, kind="stable").astype(np.int64).reshape(self.nodes, self.gpus_per_node))

    @property
    def nodeless(self) -> bool:
        """Whether the devices form no nodes: one level of links, named link, joins them all."""
        return len(self.levels) == 1 and self.levels[0].name == "link"

    @property
    def uniform_link(self) -> Link | None:
        """The link that every pair of ranks uses, each port alike; None where links or ports are not all the same."""
        return self.levels[0].link if len(self.levels) == 1 and self.network.plain else None

    def level(self, name: str) -> Level:
        """Look a level up by name.

        Raises:
            ClusterError: the cluster has no such level.
        """
        for level in self.levels:
            if level.name == name:
                return level
        known = [level.name for level in self.levels]
        raise ClusterError(f"{show_value(name)} is not a level of this cluster; {suggestion(name, known, 'it has')}")

    def _ports_level(self, level: Level) -> Level:
        """The level whose ports a level uses: its own, unless it names one further in."""
        return level if level.ports_of is None else self._ports_level(self.level(level.ports_of))

    def with_link(self, level_name: str, link: Link) -> "Cluster":
        """Return the same cluster with another link at one level."""
        self.level(level_name)
        _check_counts({}, _link_problems(link=link))
        levels = tuple(replace(x, link=link) if x.name == level_name else x for x in self.levels)
        return replace(self, levels=levels)

    def with_servers(self, servers: int) -> "Cluster":
        """Return a flat cluster with ``servers`` more devices on the same link, numbered after the ranks.

        Raises:
            ClusterError: the cluster is not flat.
        """
        if servers == 0:
            return self
        if not self.nodeless or self.levels[0].graph is not None:
            raise ClusterError(
                "dedicated servers share the workers' link: they need a flat cluster (devices: and link:)"
            )
        order = self.rank_order
        if not isinstance(order, str):
            order = (*order, *range(self.world_size, self.world_size + servers))
        devices = self.gpus_per_node + servers
        return replace(self, gpus_per_node=devices, levels=(replace(self.levels[0], size=devices),), rank_order=order)

    def with_uplinks(self, *uplinks: Uplink) -> "Cluster":
        """Return the cluster with resources that several devices share.

        Raises:
            ClusterError: an uplink does not fit the cluster.
        """
        names = [level.name for level in self.levels]
        return replace(self, uplinks=self.uplinks + checked_uplinks(uplinks, names, self.gpus_per_node))

    def with_changes(self, *changes: Change) -> "Cluster":
        """Return the cluster with slower or faster ranks and links.

        Raises:
            ClusterError: a change does not fit the cluster.
        """
        names = [level.name for level in self.levels]
        return replace(self, changes=self.changes + checked_changes(changes, names, self.world_size))

    @property
    def shared(self) -> tuple[Uplink, ...]:
        """What several devices share: the ways up to levels without ports of their own, then ``uplinks``."""
        inner = [math.prod(level.size for level in self.levels[:index]) for index in range(len(self.levels))]
        spines = [
            Uplink(level.name, level.name, level.link.bandwidth, devices=devices)
            for level, devices in zip(self.levels, inner, strict=True)
            if level.ports_of is not None and level.size > 1
        ]
        return (*spines, *self.uplinks)

    @cached_property
    def network(self) -> Network:
        """The directed resources, and the routes of messages over them."""
        return Network(self.levels, self.device_of_rank, self.gpus_per_node, self.shared, self.changes)

    def routes(self, src: IntArray, dst: IntArray) -> Routes:
        """Directed resources that messages from ranks ``src`` to ranks ``dst`` cross."""
        return self.network.routes(src, dst)

    @cached_property
    def gamma_of_rank(self) -> FloatArray:
        """[rank]: seconds of reduction a byte, held once where all are alike."""
        gamma = self.device.reduction_seconds_per_byte
        if all(change.gamma == 1 for change in self.changes):
            return spread(np.array([gamma], dtype=np.float64), self.world_size)
        return rank_factors(self.changes, "gamma", None, self.world_size) * gamma

    @cached_property
    def port_bandwidths(self) -> FloatArray:
        """[device]: bytes per second of all its ports or edges together, one direction."""
        total = np.zeros(self.world_size)
        for level in self.levels:
            if level.ports_of is not None:
                continue
            factor = rank_factors(self.changes, "bandwidth", level.name, self.world_size)
            lanes = 1.0 if level.graph is None else level.graph.lanes_out()
            total += lanes * level.link.bandwidth * np.maximum(factor, 1.0 if level.graph is not None else 0.0)
        return total

    @property
    def cuts(self) -> tuple[tuple[int, float], ...]:
        """(devices of a group, bytes per second out of the group): what bounds how fast data leave nodes and units."""
        found = []
        if self.nodes > 1:
            outer = {self._ports_level(level).name for level in self.levels[1:] or self.levels}
            widest = max((change.bandwidth for change in self.changes), default=1.0)
            out = sum(level.link.bandwidth for level in self.levels if level.name in outer)
            found.append((self.gpus_per_node, out * self.gpus_per_node * max(widest, 1.0)))
        names = [level.name for level in self.levels]
        for uplink in self.shared:
            # All that leaves a unit of ``level`` below crosses the uplinks of the units in it, or of the one around it.
            inner = math.prod(level.size for level in self.levels[: names.index(uplink.level)])
            size = math.lcm(inner, uplink.devices)
            if uplink.devices and self.world_size % size == 0 and size < self.world_size:
                found.append((size, uplink.bandwidth * (size // uplink.devices)))
        return tuple(found)


def _fixed(ranks: IntArray) -> IntArray:
    """Return the array after closing it to writing: a cluster does not change."""
    ranks.setflags(write=False)
    return ranks


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _link_problems(**links: object) -> list[Problem]:
    return [problem for name, link in links.items() for problem in type_problems(name, link, Link, LINK_EXAMPLE)]


def _level_problems(levels: object) -> list[Problem]:
    example = f'Level("rail", {LINK_EXAMPLE}, 4)'
    if not (isinstance(levels, Sequence) and _is_list(levels)):
        return [Problem("levels", f"{show_value(levels)} is not a list of levels; write [{example}]")]
    found: list[Problem] = []
    for index, level in enumerate(levels):
        wrong = type_problems(f"levels[{index}]", level, Level, example)
        found += wrong or type_problems(f"levels[{index}].link", level.link, Link, LINK_EXAMPLE)
    return found


def _check_counts(counts: Mapping[str, object], problems: Sequence[Problem], device: object = None) -> None:
    """Raise ClusterError with the problems found, those of the counts and that of a device which is none."""
    whole = {name: as_whole(value) for name, value in counts.items()}
    problems = [*problems, *type_problems("device", device, Device, DEVICE_EXAMPLE, optional=True)]
    problems += [
        Problem(name, f"{show_value(counts[name])} is not a number of {name}; it must be a whole number, 1 or more")
        for name, value in whole.items()
        if value is None or value < 1
    ]
    if not problems and math.prod(value or 1 for value in whole.values()) > MAX_DEVICES:
        problems.append(Problem(next(iter(counts)), f"more than {MAX_DEVICES} devices are not supported"))
    if problems:
        raise ClusterError(problems)
