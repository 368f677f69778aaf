"""Errors of predictions as a table: in all and by range of messages, how large and which way."""

from collections.abc import Sequence

from simcollectives.errors import counted
from simcollectives.measured.spread import RANGES, Spread, range_of, spread, spreads_by
from simcollectives.report.rows import byte_family
from simcollectives.report.text import NOTHING, Column, TextTable
from simcollectives.units import ByteFamily, format_bytes, format_ratio

_DIGITS = 3
ERROR_WORDS = (
    "error: |predicted / measured - 1|, median / 90th percentile; "
    "bias: its signed median, + predicted too slow, - too fast"
)

Errors = tuple[str, Sequence[float], Sequence[int]]
"""A label, and of each point the relative error and the message (B)."""


def signed(ratio: float) -> str:
    """Return a ratio as a percentage with its sign.

    >>> signed(0.125), signed(-0.5)
    ('+12.5%', '-50%')
    """
    return ("+" if ratio > 0 else "") + format_ratio(ratio, _DIGITS)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.{0 if abs(ratio) >= 0.0995 else 1}f}"


def spread_text(found: Spread | None) -> str:
    """Return median and 90th percentile in per cent.

    >>> spread_text(spread([0.025, 0.025])), spread_text(spread([0.123])), spread_text(None)
    ('2.5 / 2.5', '12 / 12', '-')
    """
    return NOTHING if found is None else f"{_percent(found.median)} / {_percent(found.p90)}"


def bias_text(found: Spread | None) -> str:
    """Return the bias in per cent with its sign."""
    return NOTHING if found is None else ("+" if found.bias > 0 else "") + _percent(found.bias)


def worst_text(found: Spread, message_bytes: Sequence[int], family: ByteFamily) -> str:
    """Return the worst error and where it is: "+92% at 256 B"."""
    return f"{signed(found.worst)} at {format_bytes(message_bytes[found.worst_at], family=family)}"


def errors_table(rows: Sequence[Errors], first: str = "") -> TextTable:
    """Return a row for each label: the errors in each range of messages that has points, in all, and the worst."""
    family = byte_family(size for _, _, sizes in rows for size in sizes)
    by_range = [spreads_by(relative, [range_of(size) for size in sizes]) for _, relative, sizes in rows]
    whole = [spread(relative) for _, relative, _ in rows]
    columns = [Column(first, [label for label, _, _ in rows], right=False, wrap_at=34)]
    for name, where in RANGES.items():
        if any(name in found for found in by_range):
            columns += _pair(f"{where}\nerror (%)", [found.get(name) for found in by_range])
    if len(columns) > 3:
        columns += _pair("all\nerror (%)", whole)
    worst = [worst_text(found, sizes, family) for found, (_, _, sizes) in zip(whole, rows, strict=True)]
    return TextTable([*columns, Column("\nworst", worst)])


def _pair(header: str, found: Sequence[Spread | None]) -> list[Column]:
    return [Column(header, [spread_text(one) for one in found]), Column("\nbias", [bias_text(one) for one in found])]


def ranks_text(world_size: int | None, nodes: int | None) -> str:
    """Return where something ran: "64 ranks on 16 nodes"; empty where that is not known."""
    if world_size is None:
        return ""
    ranks = counted(world_size, "rank")
    return ranks if nodes in (None, 1) else f"{ranks} on {nodes} nodes"


def told_apart(titles: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return titles, those that stand more than once with a name behind.

    >>> told_apart(["8 ranks", "16 ranks", "8 ranks"], ["a", "b", "c"])
    ['8 ranks, a', '16 ranks', '8 ranks, c']
    """
    both = zip(titles, names, strict=True)
    return [title if titles.count(title) == 1 else f"{title}, {name}" for title, name in both]
