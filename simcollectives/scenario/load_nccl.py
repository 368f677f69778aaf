"""The section ``nccl:``, and expectations about NCCL's choice."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path as FilePath
from typing import Any

from simcollectives.cluster import ChannelGraph, NcclGraph, load_machine, nccl_machine_names
from simcollectives.cluster.nccl_graph import SPANS
from simcollectives.errors import InputError
from simcollectives.measured.nccl import ALGORITHMS, PROTOCOLS, TuningLog, check_collective, read_tuning_log
from simcollectives.scenario.bounds import load_bound
from simcollectives.scenario.build import message_at
from simcollectives.scenario.context import Context
from simcollectives.scenario.keys import ANY_SECONDS
from simcollectives.scenario.load_points import BaseNamer, Namer
from simcollectives.scenario.nccl import model_of, shape_at, swept_messages
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.schema_nccl import NcclGraphModel, NcclModel
from simcollectives.scenario.types import (
    EMPTY,
    Bound,
    ClusterSettings,
    Common,
    Expectation,
    NcclExpectation,
    NcclSettings,
    Point,
)

PATH: Path = ("nccl",)
_WORDS = tuple(field.name for field in fields(NcclGraph) if field.name not in SPANS)
_CHANNELS = ("channels", "intra", "inter")
_DEFAULTS: Mapping[str, Any] = {"network_latency": 0.0, "sharp": False}


def with_nccl(context: Context, value: Any, namer: Namer | None) -> Namer | None:
    """Return what resolves names, with what ``nccl:`` asks, so that expectations may be about it."""
    settings = _load(context, value, namer)
    return None if namer is None else replace(namer, nccl=settings)


def _load(context: Context, value: Any, namer: Namer | None) -> NcclSettings | None:
    """Return what is asked of NCCL's model, which must have an answer at every point; or note every problem."""
    if value is False or context.is_unusable(PATH):
        return None
    if value is not True and not isinstance(value, dict):
        context.add(PATH, f"{shown(value)} is neither true nor a mapping; write nccl: true, or {{algorithms: [ring]}}")
        return None
    model = context.validate(PATH, {} if value is True else value, NcclModel)
    if model is None:
        return None
    before = len(context.problems)
    log = None if model.tuning is None else _log(context, model.tuning)
    if namer is None or namer.cluster is None:
        return None
    for problem in check_collective(namer.collective.name):
        context.add(PATH, f"{problem.message}; leave nccl: out")
    wrong = isinstance(value, dict) and "graph" in value and model.graph is None
    graph = None if wrong else _graph(context, namer.cluster, model.graph, log)
    if graph is None or len(context.problems) > before:
        return None
    settings = NcclSettings(graph, tuple(model.algorithms or ALGORITHMS), tuple(model.protocols or PROTOCOLS), log)
    return settings if _answers(context, namer, settings) else None


def _log(context: Context, name: str) -> TuningLog | None:
    try:
        return read_tuning_log(FilePath(context.document.source).parent / name)
    except InputError as error:
        context.add_file_error((*PATH, "tuning"), name, error)
    return None


def _graph(
    context: Context, cluster: ClusterSettings, model: NcclGraphModel | None, log: TuningLog | None
) -> NcclGraph | None:
    """Return the machine's graph, over it the log's channels, over these what is written.

    A problem for everything that nothing says.
    """
    known = None if cluster.machine is None else load_machine(cluster.machine).nccl
    written = {} if model is None else model.model_dump(exclude_none=True)
    if known is None and not written:
        context.add(PATH, _what_to_write(cluster))
        return None
    base = {} if known is None else {field.name: getattr(known, field.name) for field in fields(known)}
    for span, channels in {} if log is None else log.searched.items():
        base[span] = {**base.get(span, EMPTY), **channels}
    path, found = (*PATH, "graph"), {**_DEFAULTS, **base, **written}
    lacking = [word for word in _WORDS if word not in found]
    if lacking:
        context.add(path, f"nothing says {', '.join(lacking)}; {_what_to_write(cluster)}")
    for span in SPANS:
        found[span] = _patterns(context, (*path, span), base.get(span, EMPTY), written.get(span, EMPTY))
    return None if lacking else NcclGraph(**found)


def _what_to_write(cluster: ClusterSettings) -> str:
    what = f"{cluster.machine} has no graph of NCCL" if cluster.machine else "NCCL's graph of these nodes is not known"
    channels = "{channels: 8, intra: 48 GB/s, inter: 48 GB/s}"
    words = "gpu: hopper, cpu: intel, link: nvlink, nvswitch: true, network_path: PXB"
    return (
        f"{what}; write graph: {{{words}, several_nodes: {{ring: {channels}, tree: {channels}}}}} as a log of "
        f"NCCL_DEBUG_SUBSYS=GRAPH says it, or take one of {', '.join(nccl_machine_names())}"
    )


def _patterns(
    context: Context, path: Path, known: Mapping[str, ChannelGraph], written: Mapping[str, Mapping[str, Any]]
) -> dict[str, ChannelGraph]:
    found = dict(known)
    for pattern, given in written.items():
        values = {**(asdict(known[pattern]) if pattern in known else {}), **given}
        lacking = [name for name in _CHANNELS if name not in values]
        if lacking:
            context.add((*path, pattern), f"nothing says {' and '.join(lacking)}; write 8, or 48 GB/s of one channel")
        else:
            found[pattern] = ChannelGraph(**values)
    return found


def _answers(context: Context, namer: Namer, settings: NcclSettings) -> bool:
    """Whether NCCL has something to pick on every cluster that is swept; a problem for each that leaves nothing."""
    if namer.cluster is None or namer.fits is None:
        return False
    reasons: list[str] = []
    try:
        shapes = list(swept_messages(namer.cluster, namer.collective, namer.sweeps))
    except InputError:
        return False  # the sweep is reported
    for shape in shapes:
        try:
            model_of(namer.collective.name, settings, shape)
        except InputError as error:
            reasons += [problem.message for problem in error.problems]
    return not context.limited(PATH, reasons, lambda: False)


def load_nccl_expectation(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> Expectation | None:
    """Return an expectation about NCCL's choice or its time, at a point that exists; or note why there is none."""
    subject = "nccl_choice" if "nccl_choice" in raw else "nccl_seconds"
    context, timed = namer.context, subject == "nccl_seconds"
    if context.document.data.get("nccl", False) is False:
        context.add((*path, subject), "nothing asks for NCCL's model; write nccl: true at the top")
    named = namer.point((*path, subject), raw[subject], ("candidate",) if timed else ())
    bound = load_bound(context, path, parsed, ANY_SECONDS) if timed else None
    if not isinstance(namer, Namer) or namer.nccl is None or named is None:
        return None
    point = namer.complete((*path, subject), {**shared, **named}, [])
    if point is None or (timed and bound is None):
        return None
    candidate = parsed.nccl_seconds.candidate if timed else parsed.equals
    return _at_point(namer, (*path, subject), point, candidate, bound, common)


def _at_point(
    namer: Namer, path: Path, point: Point, candidate: str | None, bound: Bound | None, common: Common
) -> Expectation | None:
    settings = namer.nccl
    if settings is None or namer.cluster is None:
        return None
    try:
        model = model_of(namer.collective.name, settings, shape_at(namer.cluster, point))
    except InputError as error:
        namer.context.add_error(path, error)
        return None
    reason = next((one.reason for one in model.candidates if one.label == candidate), "")
    if reason:
        namer.context.add(path, f"NCCL cannot pick {candidate} there: {reason}; name another")
        return None
    return NcclExpectation(*common, point, message_at(namer.collective, point), candidate, bound)
