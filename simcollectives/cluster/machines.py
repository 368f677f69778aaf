"""Named machines: one YAML file each in ``machines/``, where every quantity has its unit and its source."""

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from simcollectives.cluster.graph import FullMesh, Graph, Wiring
from simcollectives.cluster.link import Device, Link
from simcollectives.cluster.nccl_graph import NcclGraph, read_nccl_graph
from simcollectives.errors import ClusterError, show_value, suggestion
from simcollectives.units import parse_bandwidth, parse_bytes, parse_flops_per_second, parse_seconds

OF_THE_HOST = ("cpu_memory_bandwidth", "nvme_read_bandwidth", "nvme_write_bandwidth")
"""What only some machines' files say of their nodes."""


@dataclass(frozen=True)
class Machine:
    """A type of server: its devices and links, and where each figure comes from.

    ``graph`` is what joins the devices in place of a switch, with ``intra`` the link of each pair or lane; ``inter`` is
    one network card. ``nccl`` is what NCCL finds in such a node; None where that is not known.
    """

    name: str
    summary: str
    gpus_per_node: int
    device: Device
    intra: Link
    inter: Link
    nics_per_node: int
    graph: Graph | None
    nccl: NcclGraph | None
    sources: tuple[tuple[str, str], ...]


@cache
def machine_names() -> tuple[str, ...]:
    """Names of the machines that are shipped."""
    return shipped_names("machines")


def shipped_names(folder: str) -> tuple[str, ...]:
    """Names of the YAML files in a folder beside this module, sorted."""
    files = (resources.files("simcollectives.cluster") / folder).iterdir()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in files if f.name.endswith(".yaml")))


def read_shipped(folder: str, name: str) -> dict[str, Any]:
    """What a YAML file in a folder beside this module says."""
    from ruamel.yaml import YAML

    text = (resources.files("simcollectives.cluster") / folder / f"{name}.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return data


def list_machines() -> tuple[Machine, ...]:
    """Return every shipped machine."""
    return tuple(load_machine(name) for name in machine_names())


def nccl_machine_names() -> tuple[str, ...]:
    """Names of the shipped machines whose file says what NCCL finds in them."""
    return tuple(machine.name for machine in list_machines() if machine.nccl is not None)


def load_machine(name: str) -> Machine:
    """Read a named machine; the parts of its name may stand in any order (h100-dgx is dgx-h100).

    Raises:
        ClusterError: there is no such machine; the message names the nearest and all known ones.
    """
    if isinstance(name, str):
        name = _in_order().get(tuple(sorted(name.split("-"))), name)
    if name not in machine_names():
        raise ClusterError(f"{show_value(name)} is not a known machine; {suggestion(name, machine_names())}")
    return _read(name)


@cache
def _in_order() -> dict[tuple[str, ...], str]:
    """Names by their parts, sorted."""
    return {tuple(sorted(name.split("-"))): name for name in machine_names()}


@cache
def _read(name: str) -> Machine:
    data = read_shipped("machines", name)
    device, intra, inter = data["device"], data["intra"], data["inter"]
    return Machine(
        name=name,
        summary=data["summary"],
        gpus_per_node=data["gpus_per_node"]["value"],
        device=Device(
            name=device["name"],
            peak_flops=tuple((k, parse_flops_per_second(v["value"])) for k, v in device["peak"].items()),
            memory_bytes=parse_bytes(device["memory"]["value"]),
            memory_bandwidth=parse_bandwidth(device["memory_bandwidth"]["value"]),
            host_link_bandwidth=parse_bandwidth(device["host_link_bandwidth"]["value"]),
            **{key: parse_bandwidth(device[key]["value"]) for key in OF_THE_HOST if key in device},
        ),
        intra=read_link(intra),
        inter=read_link(inter),
        nics_per_node=data["nics_per_node"]["value"] if "nics_per_node" in data else data["gpus_per_node"]["value"],
        graph=_graph(intra, data["gpus_per_node"]["value"]),
        nccl=read_nccl_graph(data["nccl"]) if "nccl" in data else None,
        sources=tuple(_sources("", data)),
    )


def read_link(data: dict[str, Any]) -> Link:
    """The link of a level of such a file."""
    return Link(parse_seconds(data["alpha"]["value"]), parse_bandwidth(data["bandwidth"]["value"]))


def _graph(intra: dict[str, Any], devices: int) -> Graph | None:
    """What joins the devices of a node in place of a switch."""
    if "wiring" in intra:
        return Wiring(devices, tuple((a, b, lanes) for a, b, lanes in intra["wiring"]["value"]))
    return FullMesh(devices) if "full_mesh" in intra else None


def _sources(place: str, data: dict[str, Any]) -> list[tuple[str, str]]:
    if "source" in data:
        return [(place, data["source"])]
    return [
        item
        for key, value in data.items()
        if isinstance(value, dict)
        for item in _sources(f"{place}.{key}" if place else key, value)
    ]
