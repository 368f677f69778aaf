"""What there is: algorithms, machines and models."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from simcollectives.algorithms import ALGORITHMS, Algorithm
from simcollectives.cluster import FullMesh, Wiring, calibrated_names, load_calibrated
from simcollectives.cluster.machines import Machine, list_machines
from simcollectives.cluster.nccl_graph import SPANS
from simcollectives.report.text import NOTHING, Column, TextTable, caption, fitted, heading, spaced
from simcollectives.training.catalogue import NamedModel, list_models
from simcollectives.training.strategies.table import STRATEGIES
from simcollectives.training.strategies.types import Strategy
from simcollectives.units import format_bandwidth, format_bytes, format_flops_per_second, format_seconds

_SYMBOLS = (
    "Formulas are times on a flat cluster: M message bytes, N ranks, alpha and o (overhead) seconds a message, "
    "B bytes/s, gamma seconds a byte reduced, q = ceil(log2 N), l = floor(log2 N), P = 2^l, f = 1 where N is no power "
    "of two, else 0, k servers, c channels; of hierarchical: g GPUs a node, P nodes, T_rs, T_ar, T_ag the times of its "
    "parts."
)


def algorithm_tables(width: int, algorithms: Sequence[Algorithm] = ALGORITHMS) -> list[RenderableType]:
    """Return every algorithm with what it does, its time, its options and its reference, by collective."""
    parts: list[RenderableType] = []
    for collective in dict.fromkeys(algorithm.collective for algorithm in algorithms):
        mine = [algorithm for algorithm in algorithms if algorithm.collective == collective]
        blocks: list[RenderableType] = [heading(collective)]
        for algorithm in mine:
            blocks += _algorithm_block(algorithm)
        parts += [Text(""), *blocks] if parts else blocks
    return [*parts, Text(""), caption(_SYMBOLS)]


def _algorithm_block(algorithm: Algorithm) -> list[RenderableType]:
    lines = [f"time: {algorithm.formula}", f"reference: {algorithm.reference}"]
    lines += [f"option {option_text(option)}" for option in algorithm.options]
    name = Text.assemble((f"  {algorithm.name}", "bold cyan"), f": {algorithm.summary}")
    return [name, *(Padding(Text(line), (0, 0, 0, 6), expand=False) for line in lines)]


def option_text(option: Any) -> str:
    """Return an option as text: name, what it is, choices, default."""
    choices = f"; {' or '.join(option.choices)}" if option.choices else ""
    default = "none" if option.default is None else option.default
    default = str(default).lower() if isinstance(default, bool) else default
    return f"{option.name}: {option.summary}{choices}; default {default}"


def strategy_tables(width: int, strategies: Sequence[Strategy] = STRATEGIES) -> list[RenderableType]:
    """Return every training strategy with what it does, its options and its reference."""
    del width
    return spaced([_strategy_block(strategy) for strategy in strategies])


def _strategy_block(strategy: Strategy) -> list[RenderableType]:
    lines = [f"reference: {strategy.reference}"]
    lines += [f"option {option_text(option)}" for option in strategy.options]
    name = Text.assemble((strategy.name, "bold cyan"), f": {strategy.summary}")
    return [name, *(Padding(Text(line), (0, 0, 0, 4), expand=False) for line in lines)]


def machine_tables(width: int, machines: Sequence[Machine] | None = None) -> list[RenderableType]:
    """Return every machine with its figures, each with unit and source."""
    parts = []
    for machine in list_machines() if machines is None else machines:
        parts += [[Text.assemble((machine.name, "bold cyan"), f": {machine.summary}"), *_machine_table(machine, width)]]
    return spaced(parts)


def _machine_table(machine: Machine, width: int) -> list[RenderableType]:
    sources = dict(machine.sources)
    rows = [(name, value, _source(place, sources)) for name, value, place in _figures(machine)]
    rows += _calibrated(machine)
    table = TextTable(
        [
            Column("quantity", [name for name, _, _ in rows], right=False),
            Column("value", [value for _, value, _ in rows]),
            Column("source", [source for _, _, source in rows], right=False, wrap_at=90),
        ]
    )
    return fitted(table, width)


def _figures(machine: Machine) -> list[tuple[str, str, str]]:
    """Name, value with unit, and place in the data file of each figure."""
    device = machine.device
    found = [("GPUs per node", str(machine.gpus_per_node), "gpus_per_node"), ("GPU", device.name, "device.name")]
    for dtype, peak in device.peak_flops:
        found.append((f"peak {dtype}", format_flops_per_second(peak), f"device.peak.{dtype}"))
    for name, value, show, place in (
        ("memory", device.memory_bytes, format_bytes, "device.memory"),
        ("memory bandwidth", device.memory_bandwidth, format_bandwidth, "device.memory_bandwidth"),
        ("host link", device.host_link_bandwidth, format_bandwidth, "device.host_link_bandwidth"),
        ("host memory", device.cpu_memory_bandwidth, format_bandwidth, "device.cpu_memory_bandwidth"),
        ("NVMe read", device.nvme_read_bandwidth, format_bandwidth, "device.nvme_read_bandwidth"),
        ("NVMe write", device.nvme_write_bandwidth, format_bandwidth, "device.nvme_write_bandwidth"),
    ):
        if value is not None:
            found.append((name, show(value), place))
    if machine.nics_per_node != machine.gpus_per_node:
        found.append(("network cards per node", str(machine.nics_per_node), "nics_per_node"))
    if isinstance(machine.graph, FullMesh):
        found.append(("intra wiring", "full mesh", "intra.full_mesh"))
    elif isinstance(machine.graph, Wiring):
        found.append(("intra wiring", f"{len(machine.graph.links)} pairs", "intra.wiring"))
    for level, link in (("intra", machine.intra), ("inter", machine.inter)):
        found.append((f"{level} alpha", format_seconds(link.alpha), f"{level}.alpha"))
        found.append((f"{level} bandwidth", format_bandwidth(link.bandwidth), f"{level}.bandwidth"))
    return [*found, *_nccl(machine)]


def _nccl(machine: Machine) -> list[tuple[str, str, str]]:
    """What NCCL finds: words, then channels, as many, and the bandwidth of one inside and between nodes."""
    if machine.nccl is None:
        return []
    words = ("gpu", "cpu", "link", "nvswitch", "network_path", "network_latency", "sharp")
    found = [(f"NCCL {word}", _word_text(getattr(machine.nccl, word)), f"nccl.{word}") for word in words]
    for span, where in zip(SPANS, ("", ", 2+ nodes"), strict=True):
        for pattern, one in getattr(machine.nccl, span).items():
            rate, unit = format_bandwidth(one.intra).split()
            both = rate if one.intra == one.inter else f"{rate}/{format_bandwidth(one.inter).split()[0]}"
            value = f"{one.channels} x {both} {unit}"
            found.append((f"NCCL {pattern}{where}", value, f"nccl.{span}.{pattern}"))
    return found


def _word_text(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else format_seconds(value)


def _calibrated(machine: Machine) -> list[tuple[str, str, str]]:
    """Name, value with unit, and origin of each figure that measured times show."""
    found = []
    for one in load_calibrated(machine.name) if machine.name in calibrated_names() else ():
        for name, value, interval in zip(
            ("alpha", "bandwidth"),
            (format_seconds(one.link.alpha), format_bandwidth(one.link.bandwidth)),
            one.intervals,
            strict=True,
        ):
            origin = one.origin if name == "alpha" else "as its alpha"
            found.append((f"{one.level} {name}, calibrated", value, f"{interval}; {origin}"))
    return found


def _source(place: str, sources: dict[str, str]) -> str:
    return sources.get(place, "")


def model_tables(width: int, models: Sequence[NamedModel] | None = None) -> list[RenderableType]:
    """Return every named model with its sizes and their source."""
    found = list_models() if models is None else models
    blocks = [sum(layer.block for layer in named.model.layers) for named in found]
    shapes = [named.model.shape for named in found]
    table = TextTable(
        [
            Column("name", [named.name for named in found], right=False),
            Column("family", [named.model.family for named in found], right=False),
            Column("parameters", [f"{named.model.elements:,}" for named in found]),
            Column("layers", [str(count) for count in blocks]),
            Column("hidden", [NOTHING if shape is None else str(shape.hidden) for shape in shapes]),
            Column("tensors", [str(len(named.model.registration)) for named in found]),
            Column("source", [named.source for named in found], right=False, wrap_at=90),
        ]
    )
    return fitted(table, width)
