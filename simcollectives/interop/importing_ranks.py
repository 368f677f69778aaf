"""How many ranks there are, and the cluster: from a machine's name, the command line, and what accelerate starts."""

from dataclasses import dataclass
from typing import Any

from simcollectives.cluster.link import DEVICE_KEYS
from simcollectives.cluster.machines import Machine, load_machine
from simcollectives.errors import InputError, Problem
from simcollectives.interop.accelerate import Launch
from simcollectives.interop.importing_given import Given
from simcollectives.interop.settings import Findings, Setting
from simcollectives.units import format_bandwidth, format_bytes, format_flops_per_second, format_seconds


@dataclass(frozen=True)
class Ranks:
    """Numbers of nodes and of GPUs on each, with their origins."""

    nodes: int
    gpus_per_node: int
    origins: tuple[str, str]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.gpus_per_node


def read_ranks(given: Given, launch: Launch | None, file: str, found: Findings) -> Ranks | None:
    """Note the machine, and return how many ranks there are; None where nobody says."""
    machine = None
    if given.cluster is not None:
        try:
            machine = load_machine(given.cluster)
        except InputError as error:
            found.problems += [Problem("--cluster", problem.message) for problem in error.problems]
    nodes, of_nodes = _nodes(given, launch, file, found)
    each, of_each = _gpus_per_node(given, launch, nodes, file, found)
    if each is None and machine is not None:
        each, of_each = machine.gpus_per_node, f"all of a {machine.name}"
    if found.problems or each is None:
        return None
    ranks = Ranks(nodes, each, (of_nodes, of_each))
    if machine is not None:
        _note_cluster(machine, ranks, found)
    return ranks


def _nodes(given: Given, launch: Launch | None, file: str, found: Findings) -> tuple[int, str]:
    machines = None if launch is None else launch.machines
    if given.nodes is None:
        return (1, "assumed: --nodes gives more") if machines is None else (machines, f"{file}: num_machines")
    if machines not in (None, given.nodes):
        rule = f"{given.nodes} is not num_machines of {file}, {machines}; leave --nodes out, or change the file"
        found.problems.append(Problem("--nodes", rule))
    return given.nodes, "--nodes"


def _gpus_per_node(
    given: Given, launch: Launch | None, nodes: int, file: str, found: Findings
) -> tuple[int | None, str]:
    processes = None if launch is None else launch.processes
    if processes is None:
        return given.gpus_per_node, "--gpus-per-node"
    each, rest = divmod(processes, nodes)
    if rest or not each:
        rule = f"{processes} processes (num_processes of {file}) are not as many on each of {nodes} nodes"
        found.problems.append(Problem("--nodes", f"{rule}; change one of them"))
    if given.gpus_per_node not in (None, each):
        rule = f"{given.gpus_per_node} is not num_processes of {file}, {processes}, over {nodes} nodes"
        found.problems.append(Problem("--gpus-per-node", f"{rule}; leave it out, or change the file"))
    return each, f"{file}: num_processes"


def note_peak(given: Given, dtype: str, found: Findings) -> None:
    """Note the device's peak in the dtype of the training, where it is given; a problem where nobody knows it."""
    if given.cluster is None or found.problems:
        return
    known = dict(load_machine(given.cluster).device.peak_flops)
    if given.peak is not None:
        written = {"peak": {dtype: format_flops_per_second(given.peak, None)}}
        _merge_device(written, "--peak", found)
    elif dtype not in known:
        has = ", ".join(f"{name} {format_flops_per_second(value)}" for name, value in known.items())
        rule = f"the peak of a {given.cluster} in {dtype} is not known; it has {has}"
        remedy = (
            'write --dtype bfloat16 if you train with it and the files leave it open ("auto"), or --peak "60 TFLOP/s"'
        )
        found.problems.append(Problem("--peak", f"{rule}; {remedy}"))


def _merge_device(written: dict[str, Any], origin: str, found: Findings) -> None:
    path = ("cluster", "device")
    for index, one in enumerate(found.settings):
        if one.path == path:
            peaks = {**one.value.get("peak", {}), **written["peak"]}
            found.settings[index] = Setting("device", {**one.value, "peak": peaks}, f"{one.origin}, {origin}", path)
            return
    found.settings.append(Setting("device", written, origin, path))


def _note_cluster(machine: Machine, ranks: Ranks, found: Findings) -> None:
    """Note the cluster: whole machines, or a part of each with their links."""
    of_nodes, of_each = ranks.origins
    if ranks.gpus_per_node == machine.gpus_per_node:
        found.settings.append(Setting("machine", machine.name, "--cluster", ("cluster", "machine")))
        found.settings.append(Setting("nodes", ranks.nodes, of_nodes, ("cluster", "nodes")))
        found.settings.append(Setting("gpus_per_node", ranks.gpus_per_node, of_each))
        return
    if ranks.gpus_per_node > machine.gpus_per_node or machine.graph is not None:
        have = f"{ranks.gpus_per_node} GPUs on a node ({of_each}), and a {machine.name} has {machine.gpus_per_node}"
        remedy = "take another machine" if machine.graph is None else "a part of its mesh is not modelled; take all"
        found.problems.append(Problem("--cluster", f"{have}; {remedy}"))
        return
    values: dict[str, tuple[Any, str]] = {
        "nodes": (ranks.nodes, of_nodes),
        "gpus_per_node": (ranks.gpus_per_node, of_each),
    }
    part = f"--cluster: a part of a {machine.name}"
    for name, link, needed in (
        ("intra", machine.intra, ranks.gpus_per_node > 1),
        ("inter", machine.inter, ranks.nodes > 1),
    ):
        if needed:
            written = {"alpha": format_seconds(link.alpha, None), "bandwidth": format_bandwidth(link.bandwidth, None)}
            values[name] = (written, part)
    values["device"] = (_device(machine), part)
    found.settings += [Setting(name, value, origin, ("cluster", name)) for name, (value, origin) in values.items()]


def _device(machine: Machine) -> dict[str, Any]:
    device = machine.device
    written: dict[str, Any] = {
        "peak": {dtype: format_flops_per_second(peak, None) for dtype, peak in device.peak_flops}
    }
    for key, attribute in DEVICE_KEYS.items():
        value = getattr(device, attribute)
        if value is not None:
            written[key] = (format_bytes if key == "memory" else format_bandwidth)(value, None)
    return written
