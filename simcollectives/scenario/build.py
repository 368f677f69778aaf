"""Building what runs at a point: the cluster, the message, the algorithm's options."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simcollectives.algorithms import find_algorithm, label, resolve_options
from simcollectives.cluster import Cluster, Device, Link, RankOrder, load_machine
from simcollectives.cluster.rank_order import checked_rank_order
from simcollectives.errors import ClusterError, InputError, Problem
from simcollectives.scenario.keys import MAX_WORLD_SIZE
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, CollectiveSettings, Point

LEVELS: Mapping[str, tuple[str, ...]] = {
    "flat": ("link",),
    "two_level": ("intra", "inter"),
    "machine": ("intra", "inter"),
}
COUNTS: Mapping[str, tuple[str, ...]] = {
    "flat": ("devices",),
    "two_level": ("nodes", "gpus_per_node"),
    "machine": ("nodes",),
}
"""The keys by which each form of a cluster grows."""


def build_cluster(settings: ClusterSettings, point: Point) -> Cluster:
    """Return the cluster at a point.

    Raises:
        ClusterError: it cannot exist; the places of the problems are keys of ``cluster:``.
    """
    nodes = int(point.get("nodes", settings.nodes))
    gpus_per_node = int(point.get("devices" if settings.form == "flat" else "gpus_per_node", settings.gpus_per_node))
    if nodes * gpus_per_node > MAX_WORLD_SIZE:
        rule = f"a cluster has at most {MAX_WORLD_SIZE}"
        place = "devices" if settings.form == "flat" else "nodes"
        raise ClusterError([Problem(place, f"{nodes * gpus_per_node} devices are too many; {rule}")])
    device = load_machine(settings.machine).device if settings.machine is not None else Device()
    gamma = point.get("gamma", settings.gamma)
    if gamma is not None:
        device = replace(device, reduction_seconds_per_byte=gamma)
    if settings.form == "flat":
        link = _link(settings.link, "link", point)
        if link is None:
            raise ClusterError([Problem("link", "the devices have no link")])
        flat = Cluster.flat(gpus_per_node, link, device=device)
        return replace(flat, rank_order=_order(settings, flat))
    intra, inter = (_link(getattr(settings, level), level, point) for level in ("intra", "inter"))
    two = Cluster.two_level(nodes, gpus_per_node, intra, inter, device=device, name=settings.machine)
    return replace(two, rank_order=_order(settings, two))


def _order(settings: ClusterSettings, cluster: Cluster) -> RankOrder:
    """Return the rank order, checked against the number of devices."""
    return checked_rank_order(settings.rank_order, cluster.nodes, cluster.gpus_per_node)


def _link(link: Link | None, level: str, point: Point) -> Link | None:
    if link is None:
        return None
    changes = {
        name: point[f"{level}.{name}"] for name in ("alpha", "bandwidth", "overhead") if f"{level}.{name}" in point
    }
    return replace(link, **changes) if changes else link


def options_at(collective: CollectiveSettings, entry: AlgorithmEntry, point: Point) -> dict[str, Any]:
    """Return all options of an entry at a point: those of the point, then those given, then defaults.

    Raises:
        AlgorithmError: an option or its value does not exist.
    """
    algorithm = find_algorithm(collective.name, entry.name)
    given = dict(entry.options)
    root = point.get("root", collective.root)
    if root is not None and any(option.name == "root" for option in algorithm.options):
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


def restricted(point: Point, entry: AlgorithmEntry) -> dict[str, Any]:
    """Return a point without the options that change nothing for an entry: of other algorithms, or given with it."""
    return {key: value for key, value in point.items() if not is_option(key) or is_free(key, entry)}


def is_free(key: str, entry: AlgorithmEntry) -> bool:
    """Whether a key of a point sets an option of an entry: one of its algorithm that is not given with the entry."""
    name, _, option = key.partition(".")
    return name == entry.name and option not in entry.options


def is_option(key: str) -> bool:
    """Whether a key of a point is an option of an algorithm, such as ``parameter_server.servers``."""
    return "." in key and owner(key) not in ("link", "intra", "inter")


def owner(key: str) -> str:
    """Return what stands before the dot of a key."""
    return key.partition(".")[0]


def settings_value(cluster: ClusterSettings, collective: CollectiveSettings, key: str) -> Any:
    """Return what ``cluster:`` and ``collective:`` give for a key of a point, or None."""
    if key == "message":
        return collective.message_bytes
    if key == "root":
        return collective.root
    if key in ("devices", "gpus_per_node"):
        return cluster.gpus_per_node
    if key in ("nodes", "gamma"):
        return getattr(cluster, key)
    if is_option(key):
        return None
    level, _, name = key.partition(".")
    link = getattr(cluster, level)
    return None if link is None else getattr(link, name)
