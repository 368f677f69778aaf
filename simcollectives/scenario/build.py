"""Building what runs at a point: the cluster, the message, the algorithm's options."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simcollectives.algorithms import find_algorithm, label, resolve_options
from simcollectives.cluster import Cluster, Uplink, load_machine
from simcollectives.cluster.rank_order import checked_rank_order
from simcollectives.errors import ClusterError, InputError, Problem
from simcollectives.scenario.keys import MAX_WORLD_SIZE, is_option
from simcollectives.scenario.numbers import COUNTS, at
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, CollectiveSettings, Point, Sweep

MAX_MESH = 1024
MAX_TORUS = 4096
"""Devices of a full mesh, whose links grow as their square, and of a torus or mesh, whose routes are long."""


def levels_of(settings: ClusterSettings) -> tuple[str, ...]:
    """Return the names of the levels that a form of cluster may have."""
    if settings.form in ("two_level", "machine"):
        return ("intra", "inter")
    return tuple(level.name for level in settings.levels) or ("link",)


def build_cluster(written: ClusterSettings, point: Point) -> Cluster:
    """Return the cluster at a point.

    Raises:
        ClusterError: it cannot exist; the places of the problems are keys of ``cluster:``.
    """
    settings = at(written, point)
    device = settings.device
    if settings.gamma is not None:
        device = replace(device, reduction_seconds_per_byte=settings.gamma)
    _check_size(settings)
    bare = replace(_BUILDERS[settings.form](settings), device=device)
    cluster = replace(bare, rank_order=checked_rank_order(settings.rank_order, bare.nodes, bare.gpus_per_node))
    return cluster.with_uplinks(*_uplinks(settings, cluster)).with_changes(*settings.slow)


def _check_size(settings: ClusterSettings) -> None:
    form, counts = settings.form, COUNTS[settings.form]
    sizes: list[int] = [level.size for level in settings.levels] or list(settings.sizes)
    sizes = sizes or [settings.nodes, settings.gpus_per_node]
    most = {"full_mesh": MAX_MESH, "torus": MAX_TORUS, "mesh": MAX_TORUS}.get(form, MAX_WORLD_SIZE)
    if math.prod(sizes) > most:
        rule = f"a cluster has at most {most}" if most == MAX_WORLD_SIZE else f"a {_NOUNS[form]} has at most {most}"
        place = "full_mesh" if form == "full_mesh" else counts[0] if counts else form
        raise ClusterError([Problem(place, f"{math.prod(sizes)} devices are too many; {rule}")])


_NOUNS: Mapping[str, str] = {
    "flat": "flat cluster",
    "two_level": "two-level cluster",
    "machine": "machine's cluster",
    "full_mesh": "full mesh",
    "torus": "torus",
    "mesh": "mesh",
    "levels": "cluster of levels",
}


def noun(settings: ClusterSettings) -> str:
    """Return what the form of a cluster is called."""
    return _NOUNS[settings.form]


def _of_devices(settings: ClusterSettings) -> Cluster:
    if settings.link is None:
        raise ClusterError([Problem("link", "the devices have no link")])
    if settings.sizes:
        return Cluster.torus(settings.sizes, settings.link, wraps=settings.form == "torus")
    make = Cluster.flat if settings.form == "flat" else Cluster.full_mesh
    return make(settings.gpus_per_node, settings.link)


def _of_nodes(settings: ClusterSettings) -> Cluster:
    cluster = Cluster.two_level(
        settings.nodes, settings.gpus_per_node, settings.intra, settings.inter, name=settings.machine
    )
    if settings.machine is None:
        return cluster
    graph = load_machine(settings.machine).graph
    return replace(cluster, levels=(replace(cluster.levels[0], graph=graph), *cluster.levels[1:]))


def _of_levels(settings: ClusterSettings) -> Cluster:
    return Cluster.layered(settings.levels)


_BUILDERS: Mapping[str, Callable[[ClusterSettings], Cluster]] = {
    **dict.fromkeys(("flat", "full_mesh", "torus", "mesh"), _of_devices),
    **dict.fromkeys(("two_level", "machine"), _of_nodes),
    "levels": _of_levels,
}


def _uplinks(settings: ClusterSettings, cluster: Cluster) -> list[Uplink]:
    """Return what devices share on the way out of their node; nothing that can never bind."""
    gpus, nics = cluster.gpus_per_node, settings.nics_per_node or cluster.gpus_per_node
    switch, leaf = settings.pcie_switch, settings.leaf
    problems = []
    if gpus % nics:
        problems.append(Problem("nics_per_node", f"{nics} cards do not divide the {gpus} GPUs of a node"))
    if switch is not None and gpus % switch.gpus:
        problems.append(Problem("pcie_switch.gpus", f"{switch.gpus} GPUs do not divide the {gpus} GPUs of a node"))
    if leaf is not None and leaf.rails and nics % leaf.rails:
        problems.append(Problem("leaf.rails", f"{leaf.rails} rails do not divide the {nics} network cards of a node"))
    if problems:
        raise ClusterError(problems)
    if cluster.nodes == 1 or settings.form not in ("two_level", "machine"):
        return []
    port = cluster.level("inter").link.bandwidth
    found = [Uplink("nic", "inter", port, devices=gpus // nics)] if nics < gpus else []
    if switch is not None:
        found.append(Uplink("pcie", "inter", switch.bandwidth, devices=switch.gpus))
    if leaf is not None and leaf.rails > 1:
        bandwidth = cluster.nodes * nics // leaf.rails * port / leaf.oversubscription
        found.append(Uplink("leaf", "inter", bandwidth, rails=leaf.rails))
    elif leaf is not None and 0 < leaf.nodes < cluster.nodes:
        bandwidth = leaf.nodes * nics * port / leaf.oversubscription
        found.append(Uplink("leaf", "inter", bandwidth, devices=leaf.nodes * gpus))
    return found


def options_at(collective: CollectiveSettings, entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
    """Return all options of an entry at a point: those of the point, then those given, then defaults.

    Raises:
        AlgorithmError: an option or its value does not exist.
    """
    algorithm = find_algorithm(collective.name, entry.name)
    given = dict(entry.options)
    root = point.get("root", collective.root)
    if root is not None and "root" not in given and any(option.name == "root" for option in algorithm.options):
        given["root"] = root
    prefix = f"{entry.name}."
    given |= {key.removeprefix(prefix): value for key, value in point.items() if key.startswith(prefix)}
    return resolve_options(algorithm, given)


def label_at(collective: CollectiveSettings, entry: AlgorithmEntry, point: Point) -> str:
    """Return the label of an entry with the options that it has at a point."""
    return label(find_algorithm(collective.name, entry.name), options_at(collective, entry, point))


def message_at(collective: CollectiveSettings, point: Point) -> int:
    """Return the bytes of the message at a point.

    Raises:
        InputError: neither the point nor the scenario gives it.
    """
    message = point.get("message", collective.message_bytes)
    if message is None:
        raise InputError([Problem("message", "the point has no message; write message: in it")])
    return int(message)


def planned_runs(
    sweeps: Sequence[Sweep], entries: Sequence[AlgorithmEntry]
) -> list[tuple[AlgorithmEntry, dict[str, Any]]]:
    """Return the rows to be, in order: point by point, and the entries in each; none twice.

    An entry that a swept option does not concern has one row for all its values.
    """
    found: dict[Any, tuple[AlgorithmEntry, dict[str, Any]]] = {}
    for point in sweep_points(sweeps):
        for entry in entries:
            mine = restricted(point, entry)
            found.setdefault((entry.label, frozenset(mine.items())), (entry, mine))
    return list(found.values())


def restricted(point: Point, entry: AlgorithmEntry) -> dict[str, Any]:
    """Return a point without the options that change nothing for an entry: of other algorithms, or given with it."""
    own_root = "root" in entry.options
    free = {key: value for key, value in point.items() if not is_option(key) or is_free(key, entry)}
    return {key: value for key, value in free.items() if not (key == "root" and own_root)}


def is_free(key: str, entry: AlgorithmEntry) -> bool:
    """Whether a key of a point sets an option of an entry: one of its algorithm that is not given with the entry."""
    name, _, option = key.partition(".")
    return name == entry.name and option not in entry.options
