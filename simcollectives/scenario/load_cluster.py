"""The section ``cluster:``, in each of its three forms."""

from typing import Any

from simcollectives.cluster import Link, load_machine
from simcollectives.errors import ClusterError
from simcollectives.scenario.build import COUNTS, LEVELS, build_cluster
from simcollectives.scenario.context import EXAMPLES, Context
from simcollectives.scenario.places import Path, shown, suggestion
from simcollectives.scenario.schema import FlatCluster, LinkModel, MachineCluster, TwoLevelCluster
from simcollectives.scenario.types import EMPTY, ClusterSettings

PATH: Path = ("cluster",)
_MARKS = {
    "machine": ("machine",),
    "two_level": ("nodes", "gpus_per_node", "intra", "inter"),
    "flat": ("devices", "link"),
}
_FORMS = (
    "write {devices: 8, link: {...}}, {nodes: 4, gpus_per_node: 8, intra: {...}, inter: {...}} "
    "or {machine: dgx-h100, nodes: 4}"
)


def load_cluster(context: Context, value: Any) -> ClusterSettings | None:
    """Return the settings of a cluster that can exist, or note every problem and return None."""
    if not isinstance(value, dict):
        context.add(PATH, f"{shown(value)} is not a mapping; write {EXAMPLES['cluster']}")
        return None
    form = _form(context, value)
    settings = _READERS[form](context, value) if form is not None else None
    if settings is None:
        return None
    return settings if _exists(context, settings) else None


def _form(context: Context, value: dict[str, Any]) -> str | None:
    """Decide the form by the keys; None, with a problem, where they are of two forms or of none."""
    marked = {form: [key for key in keys if key in value] for form, keys in _MARKS.items()}
    if marked["machine"]:
        marked["two_level"] = [key for key in marked["two_level"] if key != "nodes"]
    forms = [form for form, keys in marked.items() if keys]
    if len(forms) > 1:
        first, other = marked[forms[0]][0], marked[forms[1]][0]
        context.add((*PATH, other), f"{other} and {first} belong to different forms of a cluster; {_FORMS}")
        return None
    if not forms:
        known = [key for keys in _MARKS.values() for key in keys]
        unknown = [key for key in value if key not in ("gamma", "rank_order")]
        if not unknown:
            context.add(PATH, f"the cluster has no devices; {_FORMS}")
        for key in unknown:
            context.add((*PATH, key), f"unknown key; {suggestion(key, known, 'known keys')}")
        return None
    return forms[0]


def _flat(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model = context.validate(PATH, value, FlatCluster)
    if model is None:
        return None
    return ClusterSettings(
        form="flat",
        gpus_per_node=model.devices,
        link=_link(model.link),
        gamma=model.gamma,
        rank_order=model.rank_order,
    )


def _two_level(context: Context, value: dict[str, Any]) -> ClusterSettings | None:
    model = context.validate(PATH, value, TwoLevelCluster)
    if model is None:
        return None
    return ClusterSettings(
        form="two_level",
        nodes=model.nodes,
        gpus_per_node=model.gpus_per_node,
        intra=None if model.intra is None else _link(model.intra),
        inter=None if model.inter is None else _link(model.inter),
        gamma=model.gamma,
        rank_order=model.rank_order,
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
    return ClusterSettings(
        form="machine",
        nodes=model.nodes,
        gpus_per_node=machine.gpus_per_node,
        intra=machine.intra,
        inter=machine.inter,
        gamma=model.gamma,
        rank_order=model.rank_order,
        machine=model.machine,
    )


_READERS = {"flat": _flat, "two_level": _two_level, "machine": _machine}


def _link(model: LinkModel) -> Link:
    return Link(model.alpha, model.bandwidth, model.overhead)


def _exists(context: Context, settings: ClusterSettings) -> bool:
    """Whether the cluster as written can be built; a problem for each reason why not."""
    try:
        build_cluster(settings, EMPTY)
    except ClusterError as error:
        for problem in error.problems:
            context.add((*PATH, problem.place) if problem.place else PATH, problem.message)
        return False
    return True


def key_problem(settings: ClusterSettings, key: str) -> str | None:
    """Return why a key of a point does not fit the form of a cluster, with the remedy; None where it does."""
    counts, levels = COUNTS[settings.form], LEVELS[settings.form]
    remedy = " or ".join(counts)
    if key in ("devices", "nodes", "gpus_per_node") and key not in counts:
        if settings.form == "machine" and key == "gpus_per_node":
            return f"{settings.machine} has {settings.gpus_per_node} GPUs a node; vary nodes"
        kind = {"flat": "flat", "two_level": "two-level"}.get(settings.form, "machine's")
        return f"a {kind} cluster has no key {key}; vary {remedy}"
    level, dot, name = key.partition(".")
    if dot and level in ("link", "intra", "inter"):
        if level not in levels:
            return f"this cluster has no {level}; vary {' or '.join(f'{other}.{name}' for other in levels)}"
        if getattr(settings, level) is None:
            return f"this cluster has no {level} links; write {level}: under cluster:"
    return None
