"""The numbers of a scenario that a point may give: the key of each, and where it stands in the settings.

A key is the way to the number in the file, without ``cluster``: ``leaf.oversubscription``, ``slow.0.bandwidth``. Levels
go by their names, and what has a default may be given where the file does not write it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from simcollectives.cluster import Device
from simcollectives.cluster.link import DEVICE_KEYS
from simcollectives.engines import Conditions, LogGP, TimeModel
from simcollectives.scenario.keys import LINK_KEYS, POINT_KEYS, is_option, owner
from simcollectives.scenario.types import ClusterSettings, Point

Way = tuple[str | int, ...]
"""Attributes and positions, from the settings to a number in them."""

Settings = TypeVar("Settings", ClusterSettings, Conditions, TimeModel)

COUNTS: Mapping[str, tuple[str, ...]] = {
    "flat": ("devices",),
    "two_level": ("nodes", "gpus_per_node"),
    "machine": ("nodes",),
    "full_mesh": ("devices",),
    "torus": (),
    "mesh": (),
    "levels": (),
}
"""The keys that count the devices of each form of a cluster; the others have their sizes in lists."""

_JITTER = ("alpha", "bandwidth", "reduction")


def numbers_of(settings: ClusterSettings | Conditions | TimeModel) -> dict[str, Way]:
    """Return the keys of points that settings take, each with the way to its number.

    >>> numbers_of(LogGP())["time.loggp.gap"]
    ('gap',)
    """
    if isinstance(settings, ClusterSettings):
        return _of_cluster(settings)
    if isinstance(settings, Conditions):
        return _of_conditions(settings)
    if isinstance(settings, LogGP):
        return {f"time.loggp.{name}": (name,) for name in ("overhead", "gap", "threshold")}
    return {}


def at(settings: Settings, point: Point) -> Settings:
    """Return settings with the numbers that a point gives; its other keys are left to whom they concern."""
    given = [key for key in point if key != "message" and not is_option(key)]
    if not given:
        return settings
    ways = numbers_of(settings)
    for key in given:
        if key in ways:
            settings = _replaced(settings, ways[key], point[key])
    return settings


def number_at(settings: ClusterSettings | Conditions | TimeModel, point: Point, key: str) -> Any:
    """Return the number of a key at a point, as the point gives it or the settings do; None where there is none."""
    if key in point:
        return point[key]
    way = numbers_of(settings).get(key)
    found: Any = None if way is None else settings
    for step in way or ():
        found = found[step] if isinstance(step, int) else getattr(found, step)
    return found


def _replaced(part: Any, way: Way, number: Any) -> Any:
    first, rest = way[0], way[1:]
    if isinstance(first, int):
        inner = number if not rest else _replaced(part[first], rest, number)
        return (*part[:first], inner, *part[first + 1 :])
    return replace(part, **{first: number if not rest else _replaced(getattr(part, first), rest, number)})


def _of_cluster(settings: ClusterSettings) -> dict[str, Way]:
    ways: dict[str, Way] = {key: ("gpus_per_node" if key == "devices" else key,) for key in COUNTS[settings.form]}
    ways |= {f"{settings.form}.{index}": ("sizes", index) for index in range(len(settings.sizes))}
    for level in ("link", "intra", "inter"):
        if getattr(settings, level) is not None:
            ways |= {f"{level}.{name}": (level, name) for name in LINK_KEYS}
    for index, one in enumerate(settings.levels):
        ways[f"{one.name}.size"] = ("levels", index, "size")
        ways |= {f"{one.name}.{name}": ("levels", index, "link", name) for name in LINK_KEYS}
    ways["gamma"] = ("gamma",)
    if settings.form in ("two_level", "machine"):
        ways["nics_per_node"] = ("nics_per_node",)
    shared = [tuple(key.split(".")) for key in POINT_KEYS if owner(key) in ("pcie_switch", "leaf")]
    ways |= {".".join(way): way for way in shared if getattr(getattr(settings, way[0]), way[1], None)}
    for index, change in enumerate(settings.slow):
        factors = ("alpha", "bandwidth") if change.rank is None else ("alpha", "bandwidth", "gamma", "rank")
        ways |= {f"slow.{index}.{name}": ("slow", index, name) for name in factors}
        ways |= {f"slow.{index}.link.{end}": ("slow", index, "link", end) for end in range(len(change.link or ()))}
    return ways | _of_device(settings.device)


def _of_device(device: Device) -> dict[str, Way]:
    ways: dict[str, Way] = {
        f"device.{key}": ("device", field) for key, field in DEVICE_KEYS.items() if getattr(device, field) is not None
    }
    for index, (dtype, _) in enumerate(device.peak_flops):
        ways[f"device.peak.{dtype}"] = ("device", "peak_flops", index, 1)
    return ways


def _of_conditions(conditions: Conditions) -> dict[str, Way]:
    ways: dict[str, Way] = {f"skew.ranks.{rank}": ("skew", rank) for rank in range(len(conditions.skew))}
    ways["skew.random"] = ("random_skew",)
    drawn = {name: one for name in _JITTER if (one := getattr(conditions, name)) is not None}
    ways |= {f"jitter.{name}.{one.distribution}": (name, "spread") for name, one in drawn.items()}
    return ways | {"seed": ("seed",)} if drawn or conditions.random_skew else ways
