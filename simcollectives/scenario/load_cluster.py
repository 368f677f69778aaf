"""The section ``cluster:``, in each of its forms."""

import math
import re
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from simcollectives.cluster import Change, Device, Level, Link, calibrated_links, load_calibrated, load_machine
from simcollectives.cluster.link import DEVICE_KEYS
from simcollectives.errors import ClusterError, nearest, suggestion
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.cluster_file import read_cluster_file
from simcollectives.scenario.context import EXAMPLES, Context
from simcollectives.scenario.keys import SECTION_WORDS, is_option
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.schema_cluster import (
    ClusterModel,
    DeviceModel,
    FlatCluster,
    FullMeshCluster,
    LayeredCluster,
    LinkModel,
    MachineCluster,
    MeshCluster,
    NetworkModel,
    SlowModel,
    TorusCluster,
    TwoLevelCluster,
)
from simcollectives.scenario.types import EMPTY, ClusterSettings, Form, LeafSettings, PcieSettings

PATH: Path = ("cluster",)
_MARKS = {
    "machine": ("machine", "calibrated"),
    "full_mesh": ("full_mesh",),
    "torus": ("torus",),
    "mesh": ("mesh",),
    "levels": ("levels",),
    "two_level": ("nodes", "gpus_per_node", "intra", "inter"),
    "flat": ("devices", "link"),
}
_SHARED = {"machine": "nodes", "full_mesh": "link", "torus": "link", "mesh": "link"}
_ANYWHERE = ("gamma", "rank_order", "slow", "device")
_NETWORK = ("nics_per_node", "pcie_switch", "leaf")
_KNOWN = {key for keys in _MARKS.values() for key in keys} | {*_ANYWHERE, *_NETWORK, "file"}
_HEADS = ("machine", "file", "full_mesh", "torus", "mesh", "levels", "devices", "gpus_per_node")
_FORMS = (
    "write {devices: 8, link: {...}}, {nodes: 4, gpus_per_node: 8, intra: {...}, inter: {...}}, "
    "{machine: dgx-h100, nodes: 4}, {file: cluster.yaml}, {full_mesh: 8, link: {...}}, {torus: [4, 4], link: {...}}, "
    "{mesh: [4, 4], link: {...}} or {levels: [...]}"
)
_PLACE = re.compile(r"([a-z_]+)(?:\[(\d+)\])?(?:\.([a-z_]+))?")


def load_cluster(context: Context, value: Any) -> ClusterSettings | None:
    """Return the settings of a cluster that can exist, or note every problem and return None."""
    if not isinstance(value, dict):
        context.add(PATH, f"{shown(value)} is not a mapping; write {EXAMPLES['cluster']}")
        return None
    note = ""
    fitted_as: dict[str, str] = {}
    if "file" in value:
        read = read_cluster_file(context, value, load_cluster)
        if read is None:
            return None
        value, note, fitted_as = read
    form = _form(context, value)
    settings = _READERS[form](context, value) if form is not None else None
    if settings is None:
        return None
    settings = replace(settings, note=settings.note or note, fitted_as=settings.fitted_as or fitted_as)
    return settings if _exists(context, settings) else None


def _form(context: Context, value: dict[str, Any]) -> str | None:
    """Decide the form by the keys; None, with a problem, where they are of two forms or of none."""
    marked = {form: [key for key in keys if key in value] for form, keys in _MARKS.items()}
    shared = {key for form, key in _SHARED.items() if marked[form]}
    for form in ("two_level", "flat"):
        marked[form] = [key for key in marked[form] if key not in shared]
    forms = [form for form, keys in marked.items() if keys]
    if len(forms) > 1:
        first, other = marked[forms[0]][0], marked[forms[1]][0]
        context.add((*PATH, other), f"{other} and {first} belong to different forms of a cluster; {_FORMS}")
        return None
    # A device that is no mapping is a misspelt number of devices.
    well_known = _KNOWN if isinstance(value.get("device"), dict) else _KNOWN - {"device"}
    misspelt = {key: near for key in value if key not in well_known and (near := nearest(key, _HEADS))}
    if len(forms) == 1 and set(marked[forms[0]]) <= {"link", "nodes"} and misspelt:
        for key, near in misspelt.items():
            context.add((*PATH, key), f'unknown key; did you mean "{near}"?')
        return None
    if not forms:
        known = [key for keys in _MARKS.values() for key in keys]
        unknown = [key for key in value if key not in well_known]
        if not unknown:
            context.add(PATH, f"the cluster has no devices; {_FORMS}")
        for key in unknown:
            context.add((*PATH, key), f"unknown key; {suggestion(key, known, 'known keys')}")
        return None
    return forms[0]


def _of_devices(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model: FullMeshCluster | FlatCluster | None
    if "full_mesh" in value:
        model = context.validate(PATH, value, FullMeshCluster)
    else:
        model = context.validate(PATH, value, FlatCluster)
    if model is None:
        return None
    form: Form = "full_mesh" if isinstance(model, FullMeshCluster) else "flat"
    devices = model.full_mesh if isinstance(model, FullMeshCluster) else model.devices
    return ClusterSettings(form, gpus_per_node=devices, link=_link(model.link), **_everywhere(context, model))


def _grid(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model: TorusCluster | MeshCluster | None
    if "torus" in value:
        model = context.validate(PATH, value, TorusCluster)
    else:
        model = context.validate(PATH, value, MeshCluster)
    if model is None:
        return None
    form: Form = "torus" if isinstance(model, TorusCluster) else "mesh"
    sizes = tuple(model.torus if isinstance(model, TorusCluster) else model.mesh)
    return ClusterSettings(
        form,
        gpus_per_node=math.prod(sizes),
        sizes=sizes,
        link=_link(model.link),
        **_everywhere(context, model),
    )


def _levels(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model = context.validate(PATH, value, LayeredCluster)
    if model is None:
        return None
    before = len(context.problems)
    for index, level in enumerate(model.levels):
        what = "an algorithm" if is_option(f"{level.name}.alpha") else "a key of scenarios"
        if level.name in SECTION_WORDS or is_option(f"{level.name}.alpha"):
            context.add((*PATH, "levels", index, "name"), f"{level.name} is {what}; take another name")
    if len(context.problems) > before:
        return None
    levels = tuple(Level(one.name, _link(one), one.size, ports_of=one.ports_of) for one in model.levels)
    return ClusterSettings(
        "levels",
        nodes=math.prod(level.size for level in levels[1:]),
        gpus_per_node=levels[0].size,
        levels=levels,
        **_everywhere(context, model),
    )


def _two_level(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model = context.validate(PATH, value, TwoLevelCluster)
    if model is None:
        return None
    return ClusterSettings(
        "two_level",
        nodes=model.nodes,
        gpus_per_node=model.gpus_per_node,
        intra=None if model.intra is None else _link(model.intra),
        inter=None if model.inter is None else _link(model.inter),
        **_shared_ways(context, model, None),
        **_everywhere(context, model),
    )


def _machine(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model = context.validate(PATH, value, MachineCluster)
    if model is None:
        return None
    try:
        machine = load_machine(model.machine)
    except ClusterError as error:
        context.add_error((*PATH, "machine"), error)
        return None
    intra, inter, note = machine.intra, machine.inter, ""
    fitted_as: dict[str, str] = {}
    if model.calibrated:
        try:
            intra, inter, note = calibrated_links(machine)
            fitted_as = {one.level: one.simulated for one in load_calibrated(machine.name)}
        except ClusterError as error:
            context.add_error((*PATH, "calibrated"), error)
            return None
    return ClusterSettings(
        "machine",
        nodes=model.nodes,
        gpus_per_node=machine.gpus_per_node,
        intra=intra,
        inter=inter,
        machine=machine.name,
        note=note,
        fitted_as=fitted_as,
        **_shared_ways(context, model, machine.nics_per_node),
        **_everywhere(context, model),
    )


_READERS = {
    **dict.fromkeys(("flat", "full_mesh"), _of_devices),
    **dict.fromkeys(("torus", "mesh"), _grid),
    "levels": _levels,
    "two_level": _two_level,
    "machine": _machine,
}


def _link(model: LinkModel) -> Link:
    return Link(model.alpha, model.bandwidth, model.overhead)


def _everywhere(context: Context, model: ClusterModel) -> dict[str, Any]:
    """Return what every form may have."""
    slow = _slow(context, context.document.data["cluster"].get("slow"))
    machine = getattr(model, "machine", None)
    device = _device(context, model.device, Device() if machine is None else load_machine(machine).device)
    return {"gamma": model.gamma, "rank_order": model.rank_order, "slow": slow, "device": device}


def _slow(context: Context, written: Any) -> tuple[Change, ...]:
    """Return the changes as written; those with a problem, which is noted, change nothing."""
    found = []
    for index, raw in enumerate(written if isinstance(written, list) else ()):
        try:
            one = SlowModel.model_validate(raw)
        except ValidationError:
            found.append(Change(rank=0))
            continue
        if not {"alpha", "bandwidth", "gamma"} & set(raw):
            rule = "nothing says what is slower; write alpha, bandwidth or gamma, such as bandwidth: 50%"
            context.add((*PATH, "slow", index), rule)
        link = None if one.link is None else (one.link[0], one.link[1])
        found.append(Change(one.rank, link, one.level, one.alpha, one.bandwidth, one.gamma))
    return tuple(found)


def _device(context: Context, model: DeviceModel | None, known: Device) -> Device:
    """Return a device with what is said of it."""
    if model is None:
        return known
    path = (*PATH, "device")
    if not model.model_fields_set:
        context.add(path, "nothing is said of the device; write {peak: {bfloat16: 989 TFLOP/s}, memory: 80 GB}")
    peak = {**dict(known.peak_flops), **(model.peak or {})}
    given = {attribute: getattr(model, key) for key, attribute in DEVICE_KEYS.items()}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return replace(known, peak_flops=tuple(peak.items()), **changes)


def _shared_ways(context: Context, model: NetworkModel, nics: int | None) -> dict[str, Any]:
    """Return what the devices of nodes may share on the way to each other."""
    switch, leaf = model.pcie_switch, model.leaf
    found: dict[str, Any] = {"nics_per_node": nics if model.nics_per_node is None else model.nics_per_node}
    if switch is not None:
        found["pcie_switch"] = PcieSettings(switch.gpus, switch.bandwidth)
    if leaf is not None:
        if (leaf.nodes is None) == (leaf.rails is None):
            context.add((*PATH, "leaf"), "a leaf has so many nodes, or is a rail; write one of nodes and rails")
        else:
            found["leaf"] = LeafSettings(leaf.nodes or 0, leaf.rails or 0, leaf.oversubscription)
    return found


def _exists(context: Context, settings: ClusterSettings) -> bool:
    """Whether the cluster as written can be built; a problem for each reason why not."""
    try:
        build_cluster(settings, EMPTY)
    except ClusterError as error:
        for problem in error.problems:
            context.add(_path_of(problem.place), problem.message)
        return False
    return True


def _path_of(place: str) -> Path:
    """Return where in the file a problem of a cluster stands."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return PATH
    key, index, inner = match.groups()
    path: Path = (*PATH, {"changes": "slow"}.get(key, key))
    path = path if index is None else (*path, int(index))
    return path if inner is None else (*path, inner)
