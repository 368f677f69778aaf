"""Tables of training steps: where the time goes, what stands in memory, and which collectives were issued."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from simcollectives.cluster import Device
from simcollectives.report.rows import byte_family
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, with_unit
from simcollectives.training.advice import Advice, advice_lines
from simcollectives.training.step import IssuedCollective, Step
from simcollectives.units import format_bytes, format_seconds

Labelled = tuple[str, Step]
"""A step and what tells it apart: a strategy, or a point of a sweep."""

MAX_COLLECTIVES = 40
_NOT_INCLUDED = ("the CUDA context", "workspaces of libraries", "fragmentation")
_TIMES = (("s", 1), ("ms", 1e3), ("us", 1e6))
_RARE = ("of it\nwaiting", "idle")
_SCALES = ((2**30, "GiB", 10**9, "GB"), (2**20, "MiB", 10**6, "MB"), (2**10, "KiB", 10**3, "kB"), (1, "B", 1, "B"))


def step_blocks(steps: Sequence[Labelled], mfu: Sequence[float | None] = ()) -> list[Block]:
    """Return a row for each step: its parts, shares, bytes sent and peak memory.

    ``mfu`` is the model FLOPs utilisation of each step, where known.
    """
    several = [step for _, step in steps]
    seconds = {
        "step": [step.step_seconds for step in several],
        "compute": [step.compute_seconds for step in several],
        "communication": [step.communication_seconds for step in several],
        "exposed": [step.exposed_seconds for step in several],
        "of it\nwaiting": [step.waiting_seconds for step in several],
        "idle": [step.idle_seconds for step in several],
    }
    columns = [Column("", [label for label, _ in steps], right=False, wrap_at=36)]
    columns += _seconds_columns({name: x for name, x in seconds.items() if name not in _RARE or any(x)})
    columns.append(Column("overlap\n(%)", [percent(step.overlap) for step in several]))
    columns.append(Column("efficiency\n(%)", [percent(step.efficiency) for step in several]))
    if any(value is not None for value in mfu):
        columns.append(Column("MFU\n(%)", [percent(value) for value in mfu]))
    columns += _sent_columns(several)
    columns.append(with_unit("peak\nmemory", [format_bytes(step.peak_bytes, family="binary") for step in several]))
    return [heading("Steps of rank 0"), TextTable(columns), *map(caption, _step_captions(several))]


def _seconds_columns(columns: Mapping[str, Sequence[float]]) -> list[Column]:
    """Columns of times in one unit, that of the longest."""
    longest = max((value for values in columns.values() for value in values), default=0.0)
    unit, scale = next(((u, s) for u, s in _TIMES if longest >= 1 / s), _TIMES[-1])
    return [
        Column(f"{name}\n({unit})", [f"{value * scale:.4g}" for value in values]) for name, values in columns.items()
    ]


def percent(share: float | None) -> str:
    """Return a share in per cent with one decimal.

    >>> percent(0.9941), percent(None), percent(0.0002), percent(0.0)
    ('99.4', '-', '<0.1', '0.0')
    """
    if share is None:
        return NOTHING
    return "<0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}"


def _sent_columns(steps: Sequence[Step]) -> list[Column]:
    kinds = dict.fromkeys(kind for step in steps for kind in step.sent_bytes)
    columns = []
    for kind in kinds:
        sent = [step.sent_bytes.get(kind, 0) for step in steps]
        family = byte_family(sent)
        columns.append(with_unit(f"sent by\n{kind}", [format_bytes(size, family=family) for size in sent]))
    return columns


def _step_captions(steps: Sequence[Step]) -> list[str]:
    found = [
        "step = compute + exposed + idle; exposed: communication without compute beside it; overlap: the share of the "
        "communication beside compute; efficiency: compute over step; sent: by the rank that sends most"
    ]
    priced = priced_text(collective for step in steps for collective in step.collectives)
    return [*found, f"collectives priced by: {priced}"] if priced else found


def priced_text(collectives: Iterable[IssuedCollective]) -> str:
    """Return the algorithms and engines that priced collectives, with their kinds; no text where nothing was sent."""
    by_price: dict[tuple[str, str], dict[str, None]] = {}
    for one in collectives:
        if one.algorithm != "none":
            by_price.setdefault((one.algorithm, one.engine), {})[one.kind] = None
    return "; ".join(
        f"{algorithm} ({engine}) for {', '.join(kinds)}" for (algorithm, engine), kinds in by_price.items()
    )


def memory_blocks(steps: Sequence[Labelled]) -> list[Block]:
    """Return what stands in memory at the peak, item by item; of several steps, a row for each."""
    if len(steps) == 1:
        return _memory_of(steps[0][1])
    items = memory_items(step for _, step in steps)
    binary, unit, *_ = _scale(max(step.peak_bytes for _, step in steps))
    columns = [Column("", [label for label, _ in steps], right=False, wrap_at=36)]
    for item in items:
        sizes = [step.memory.get(item, 0) for _, step in steps]
        columns.append(
            Column(f"{_broken(item)}\n({unit})", [f"{size / binary:.3f}" if size else "0" for size in sizes])
        )
    columns.append(Column(f"peak\n({unit})", [f"{step.peak_bytes / binary:.3f}" for _, step in steps]))
    columns.append(with_unit("peak", [format_bytes(step.peak_bytes, family="decimal") for _, step in steps]))
    notes = _memory_captions([step for _, step in steps])
    return [heading("Memory of rank 0 at the peak"), TextTable(columns), *map(caption, notes)]


def _memory_of(step: Step) -> list[Block]:
    items = memory_items([step])
    binary, binary_name, decimal, decimal_name = _scale(step.peak_bytes)
    sizes = [*(step.memory[item] for item in items), step.peak_bytes]
    shares = [percent(size / step.peak_bytes if step.peak_bytes else None) for size in sizes]
    columns = [
        Column("", [*items, "peak"], right=False),
        Column(binary_name, [f"{size / binary:.3f}" for size in sizes]),
        Column(decimal_name, [f"{size / decimal:.3f}" for size in sizes]),
        Column("share\n(%)", shares),
    ]
    title = f"Memory of rank 0 at the peak, {format_seconds(step.peak_seconds)} into the step"
    table = TextTable(columns, styles=[*("" for _ in items), "bold"])
    return [heading(title), table, *map(caption, _memory_captions([step]))]


def memory_items(steps: Iterable[Step]) -> list[str]:
    """Return the items of all steps, the largest first."""
    most: dict[str, int] = {}
    for step in steps:
        for item, size in step.memory.items():
            most[item] = max(most.get(item, 0), size)
    return sorted(most, key=lambda item: -most[item])


def _scale(largest: float) -> tuple[int, str, int, str]:
    """A binary and a decimal unit for sizes up to the largest.

    >>> _scale(3 * 2**30), _scale(5e6)
    ((1073741824, 'GiB', 1000000000, 'GB'), (1048576, 'MiB', 1000000, 'MB'))
    """
    return next((scale for scale in _SCALES if largest >= scale[0]), _SCALES[-1])


def _broken(item: str) -> str:
    """A heading in two lines, where it has a blank near its middle."""
    blanks = [place for place, character in enumerate(item) if character == " "]
    if not blanks:
        return item
    middle = min(blanks, key=lambda place: abs(place - len(item) / 2))
    return f"{item[:middle]}\n{item[middle + 1 :]}"


def _memory_captions(steps: Sequence[Step]) -> list[str]:
    missing = list(_NOT_INCLUDED)
    if any(not step.training.activations for step in steps):
        missing.append("activations (none are known)")
    fits: dict[Device, list[bool]] = {}
    for step in steps:
        device = step.training.cluster.device
        if device.memory_bytes is not None:
            fits.setdefault(device, []).append(step.peak_bytes <= device.memory_bytes)
    return [f"not included: {', '.join(missing)}", *(_fits_text(device, some) for device, some in fits.items())]


def _fits_text(device: Device, fits: Sequence[bool]) -> str:
    binary, decimal = (format_bytes(device.memory_bytes or 0, family=family) for family in ("binary", "decimal"))
    name = "the device" if device.name == Device().name else device.name
    if len(fits) == 1:
        told = "the peak fits" if fits[0] else "the peak does not fit"
    else:
        told = "every peak fits" if all(fits) else f"{sum(fits)} of {len(fits)} peaks fit"
    return f"{name} has {binary} ({decimal}): {told}"


@dataclass(frozen=True)
class CollectiveGroup:
    """Collectives that look alike: one kind, group, dtype and phase, and sizes that are written alike."""

    members: tuple[IssuedCollective, ...]

    @property
    def first(self) -> IssuedCollective:
        """The first that was issued."""
        return self.members[0]

    @property
    def seconds(self) -> float:
        """Time of all together."""
        return sum(one.end - one.start for one in self.members)


def grouped(collectives: Iterable[IssuedCollective]) -> list[CollectiveGroup]:
    """Return collectives in groups, in the order of the first of each."""
    found: dict[tuple[object, ...], list[IssuedCollective]] = {}
    for one in collectives:
        size = format_bytes(one.bytes)
        alike = (one.kind, one.group, one.group_size, size, one.dtype, one.phase, one.algorithm, one.engine)
        found.setdefault(alike, []).append(one)
    return [CollectiveGroup(tuple(members)) for members in found.values()]


def collectives_blocks(step: Step) -> list[Block]:
    """Return the collectives of a step in issue order, those that look alike in one row: 12 x all_reduce of 28.4 MB."""
    if not step.collectives:
        return []
    groups = grouped(step.collectives)
    shown = groups[:MAX_COLLECTIVES]
    count, size = len(step.collectives), sum(one.bytes for one in step.collectives)
    title = f"Collectives of rank 0: {count} in issue order, {format_bytes(size)} in all"
    if len({one.group for one in step.collectives}) == 1:
        title += f", in the group {step.collectives[0].group} of {step.collectives[0].group_size}"
    notes = [f"priced by: {priced_text(step.collectives) or 'nothing, for one rank sends nothing'}"]
    if len(shown) < len(groups):
        left = sum(len(group.members) for group in groups[MAX_COLLECTIVES:])
        notes.append(f"{left} more collectives in {len(groups) - len(shown)} rows are not shown; all are in --json")
    return [heading(title), TextTable(_collective_columns(shown)), *map(caption, notes)]


def _collective_columns(groups: Sequence[CollectiveGroup]) -> list[Column]:
    firsts = [group.first for group in groups]
    many = [len(group.members) for group in groups]
    columns = [
        Column("", [f"{number} x" for number in many]),
        Column("collective", [one.kind for one in firsts], right=False),
        with_unit("of", [format_bytes(one.bytes) for one in firsts]),
        Column("elements", [f"{one.elements:,}" for one in firsts]),
        Column("dtype", [one.dtype for one in firsts], right=False),
    ]
    if len({(one.group, one.group_size) for one in firsts}) > 1:
        columns.append(Column("group", [f"{one.group} ({one.group_size})" for one in firsts], right=False))
    columns += [
        Column("phase", [one.phase for one in firsts], right=False),
        Column("name", [_names(group) for group in groups], right=False, wrap_at=30),
        *_seconds_columns(
            {
                "each\ntakes": [group.seconds / number for group, number in zip(groups, many, strict=True)],
                "all\ntake": [group.seconds for group in groups],
                "first\nstarts": [min(one.start for one in group.members) for group in groups],
                "last\nends": [max(one.end for one in group.members) for group in groups],
            }
        ),
    ]
    # The caption says what priced each kind, which is enough where every kind has one price.
    if len({(one.kind, one.algorithm, one.engine) for one in firsts}) > len({one.kind for one in firsts}):
        priced = [f"{one.algorithm} ({one.engine})" for one in firsts]
        columns.append(Column("priced by", priced, right=False, wrap_at=24))
    return columns


def _names(group: CollectiveGroup) -> str:
    names = list(dict.fromkeys(one.name for one in group.members))
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def advice_blocks(advice: Advice, key: str, show: Callable[[Any], str] = str) -> list[Block]:
    """Return the best value of a sweep and the reasons on either side; ``show`` writes a value."""
    best, *sides = advice_lines(advice, key, show)
    return [heading(f"{best[0].upper()}{best[1:]}"), *map(Text, sides)]
