"""What the rows of a result have in common: their labels, the keys that were swept, and points as text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from simcollectives.algorithms import find_algorithm
from simcollectives.algorithms.table import label as algorithm_label
from simcollectives.errors import InputError, counted
from simcollectives.scenario.keys import is_size, kind_of
from simcollectives.units import ByteFamily, format_bytes, parse_bytes

Row = Mapping[str, Any]
"""One row of a result, with the keys of the contract: SI units, the swept quantities in ``point``."""

_NOUNS = {
    "devices": ("device", "devices"),
    "nodes": ("node", "nodes"),
    "gpus_per_node": ("GPU per node", "GPUs per node"),
    "world_size": ("rank", "ranks"),
}


def rows_of(result_or_rows: Any) -> list[Row]:
    """Return the rows of a result, or of a sequence of rows.

    Raises:
        InputError: there are none.
    """
    rows = list(getattr(result_or_rows, "rows", result_or_rows))
    if not rows:
        raise InputError("there are no rows to show; run a scenario with at least one algorithm and one point")
    return rows


def labels_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the labels, each once, in order."""
    return tuple(dict.fromkeys(str(row["label"]) for row in rows))


def size_keys(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the keys of the points that change the world size, each once, in order."""
    return tuple(dict.fromkeys(key for row in rows for key in row["point"] if is_size(key)))


def swept_values(rows: Iterable[Row]) -> dict[str, tuple[Any, ...]]:
    """Return the keys of the points that have several values, each with its values in ascending order.

    >>> swept_values([{"point": {"message": 8, "devices": 2}}, {"point": {"message": 4, "devices": 2}}])
    {'message': (4, 8)}
    """
    found: dict[str, dict[Any, None]] = {}
    for row in rows:
        for key, value in row["point"].items():
            found.setdefault(key, {})[value] = None
    return {key: tuple(ascending(values)) for key, values in found.items() if len(values) > 1}


def ascending(values: Iterable[Any]) -> list[Any]:
    """Return numbers in ascending order, then texts in the order given."""
    given = list(values)
    numbers = sorted(value for value in given if is_number(value))
    return [*numbers, *(value for value in given if not is_number(value))]


def is_number(value: object) -> bool:
    """Whether a value of a point has a place on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def byte_family(sizes: Iterable[float]) -> ByteFamily:
    """Return how to write sizes that stand together: binary where all are exact in it and one asks for it by itself.

    >>> byte_family([3072, 1792, 8]), byte_family([3072, 1.2e9]), byte_family([1000, 128_000])
    ('binary', 'decimal', 'decimal')
    """
    given = list(sizes)
    asked = any(format_bytes(size).endswith("iB") for size in given)
    exact = all(parse_bytes(format_bytes(size, family="binary")) == size for size in given)
    return "binary" if asked and exact else "decimal"


def message_family(rows: Iterable[Row]) -> ByteFamily:
    """Return how to write the messages of rows."""
    return byte_family({row["message_bytes"] for row in rows})


def value_text(key: str, value: Any, family: ByteFamily | None = None) -> str:
    """Return a value of a point with its unit, without its key; ``family`` is that of messages that stand together.

    >>> value_text("message", 4096), value_text("link.alpha", 5e-6), value_text("devices", 8)
    ('4 KiB', '5 us', '8')
    """
    if key == "message" and is_number(value):
        return format_bytes(value, family=family)
    kind = kind_of(key)
    if kind is not None and is_number(value):
        return kind.format(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def named_text(key: str, value: Any, family: ByteFamily | None = None) -> str:
    """Return a value of a point so that it tells what it is, with the arguments of ``value_text``.

    >>> named_text("message", 4096), named_text("devices", 8), named_text("link.alpha", 5e-6)
    ('message 4 KiB', '8 devices', 'link.alpha 5 us')
    """
    if key in _NOUNS:
        return f"{value_text(key, value)} {_NOUNS[key][value != 1]}"
    return f"{key} {value_text(key, value, family)}"


def point_text(point: Mapping[str, Any], family: ByteFamily | None = None) -> str:
    """Return a point as text, with the arguments of ``value_text``."""
    return ", ".join(named_text(key, value, family) for key, value in point.items())


def family_name(row: Row, option_key: str | None = None) -> str:
    """Return the label of a row, without the option that is swept."""
    name, _, option = (option_key or "").partition(".")
    if name != row["algorithm"] or option not in row["options"]:
        return str(row["label"])
    algorithm = find_algorithm(row["collective"], name)
    defaults = {known.name: known.default for known in algorithm.options}
    return algorithm_label(algorithm, {**row["options"], option: defaults[option]})


def seeds_text(rows: Iterable[Row]) -> str | None:
    """Return with how many seeds rows were run; None where they have none.

    >>> seeds_text([{"seeds": 20}, {"seeds": None}]), seeds_text([{"seeds": 1}, {"seeds": 5}])
    ('20 seeds', '1 to 5 seeds')
    """
    found = sorted({row["seeds"] for row in rows if row.get("seeds") is not None})
    if not found:
        return None
    return counted(found[0], "seed") if len(found) == 1 else f"{found[0]} to {found[-1]} seeds"


def common_text(rows: Sequence[Row]) -> str:
    """Return what all rows share: collective, and where they do not differ, message and world size.

    >>> common_text([{"collective": "all_reduce", "message_bytes": 4096, "world_size": 8}])
    'all_reduce, message 4 KiB, 8 ranks'
    """
    found = list(dict.fromkeys(str(row["collective"]) for row in rows))
    messages, sizes = {row["message_bytes"] for row in rows}, {row["world_size"] for row in rows}
    if len(messages) == 1:
        found.append(f"message {format_bytes(messages.pop())}")
    if len(sizes) == 1:
        found.append(named_text("world_size", sizes.pop()))
    return ", ".join(found)
