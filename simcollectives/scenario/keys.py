"""What a point of a scenario is made of: the keys that may be swept or named, each with its unit and its range."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

from simcollectives.algorithms import ALGORITHMS
from simcollectives.engines import DTYPES
from simcollectives.engines.conditions import DISTRIBUTIONS
from simcollectives.errors import UnitError, show_value, suggestion
from simcollectives.training.strategies.table import STRATEGIES
from simcollectives.training.workload import Recomputation
from simcollectives.units import QUANTITIES, TooLargeError

MAX_WORLD_SIZE = 1 << 20
MAX_MESSAGE_BYTES = 1 << 46
"""64 TiB: times the largest world size it still is a number of bytes that 64 bits hold."""

MAX_SIZE = 1 << 24
"""Of tensors, sequences and batches: of what is no number of devices."""

MAX_SECONDS = 86_400.0
MIN_BANDWIDTH, MAX_BANDWIDTH = 1.0, 1e18
MAX_SECONDS_PER_BYTE = 1.0

JsonSchema = dict[str, Any]
Value = int | float
"""One number of a point, in SI units."""


@dataclass(frozen=True)
class Kind:
    """A kind of number: how it is read from YAML (raising UnitError), written, and described to an editor.

    ``equals`` needs no tolerance where it is ``exact``.
    """

    name: str
    parse: Callable[[object], Value]
    format: Callable[..., str]
    example: str
    json_schema: JsonSchema
    whole: bool = False
    exact: bool = False


def _ranged(quantity: str, low: float, high: float) -> Callable[[object], float]:
    unit = QUANTITIES[quantity]

    def parse(value: object) -> float:
        try:
            number = unit.parse(value)
        except TooLargeError:
            number = math.inf
            if high == number:
                raise
        if low <= number <= high:
            return number
        bound = f"at least {unit.format(low)}" if number < low else f"at most {unit.format(high)}"
        raise UnitError(f'{show_value(value)} is out of range: it must be {bound}; write for instance "{unit.example}"')

    return parse


def _whole(low: int, high: int, what: str) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, float) and value.is_integer() and low <= value <= high:
            raise UnitError(f"{value!r} is not written as a whole number; write {int(value)}")
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
            raise UnitError(f"{show_value(value)} is text; write {int(value)} without quotes")
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise UnitError(f"{show_value(value)} is not {what}; write a whole number from {low} to {high}")
        return value

    return parse


def _parse_number(value: object) -> Value:
    if isinstance(value, str):
        raise UnitError(f"{show_value(value)} is text; write a bare number, such as 3")
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UnitError(f"{show_value(value)} is not a number; write a bare number, such as 3")
    try:
        small = math.isfinite(float(value))
    except OverflowError:
        small = False
    if not small or value < 0:
        raise UnitError(f"{show_value(value)} is out of range; write a number that is 0 or more")
    return value


def _quantity_schema(quantity: str) -> JsonSchema:
    pattern = r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*[A-Za-zµμ]+(/[A-Za-z]+)?\s*$"
    example = QUANTITIES[quantity].example
    return {"type": "string", "pattern": pattern, "description": f'A quantity with its unit, such as "{example}"'}


_RATIO_SCHEMA: JsonSchema = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\+?[0-9.]+([eE][+-]?[0-9]+)?\s*%\s*$"},
    ],
    "description": 'A ratio, such as "0.5%" or 0.005',
}


_FACTOR_SCHEMA: JsonSchema = {**_RATIO_SCHEMA, "description": 'A factor, such as "50%" or 0.5'}
_MAX_FACTOR = 1e9


def _parse_factor(value: object) -> float:
    factor = QUANTITIES["ratio"].parse(value)
    if not 1 / _MAX_FACTOR <= factor <= _MAX_FACTOR:
        raise UnitError(f'{show_value(value)} is out of range: a factor is 1e-9 to 1e9; write for instance "50%"')
    return factor


_SPREAD_SCHEMA: JsonSchema = {**_RATIO_SCHEMA, "description": 'A standard deviation over its mean, such as "20%"'}
MAX_SPREAD = 10


def _parse_spread(value: object) -> float:
    spread = QUANTITIES["ratio"].parse(value)
    if spread > MAX_SPREAD:
        rule = f"a spread is a ratio from 0 to {MAX_SPREAD}, such as 20%"
        raise UnitError(f"{show_value(value)} is out of range; {rule}")
    return spread


_OVERSUBSCRIPTION_SCHEMA: JsonSchema = {"type": "number", "minimum": 1, "maximum": _MAX_FACTOR}


def _parse_oversubscription(value: object) -> Value:
    ratio = _parse_number(value)
    if ratio < 1:
        raise UnitError(f"{show_value(value)} is less than 1, where nothing is shared; write 1 or more")
    if ratio > _MAX_FACTOR:
        raise UnitError(f"{show_value(value)} is out of range; write at most {_MAX_FACTOR:.0e}")
    return ratio


def _number_text(value: float, digits: int = 6) -> str:
    return str(value) if isinstance(value, int) else f"{value:.{digits}g}"


def _quantity(name: str, low: float, high: float) -> Kind:
    unit = QUANTITIES[name]
    return Kind(name, _ranged(name, low, high), unit.format, f'"{unit.example}"', _quantity_schema(name))


def whole_kind(name: str, low: int, high: int, what: str, example: str) -> Kind:
    """Return the kind of whole numbers in a range."""
    schema: JsonSchema = {"type": "integer", "minimum": low, "maximum": high}
    return Kind(name, _whole(low, high, what), _number_text, example, schema, whole=True)


BYTES = _quantity("bytes", 0, MAX_MESSAGE_BYTES)
ANY_BYTES, ANY_SECONDS, ANY_BANDWIDTH = (_quantity(name, 0, math.inf) for name in ("bytes", "seconds", "bandwidth"))
SECONDS = _quantity("seconds", 0, MAX_SECONDS)
BANDWIDTH = _quantity("bandwidth", MIN_BANDWIDTH, MAX_BANDWIDTH)
FLOPS_PER_SECOND = _quantity("flops_per_second", 1.0, 1e24)
SECONDS_PER_BYTE = _quantity("seconds_per_byte", 0, MAX_SECONDS_PER_BYTE)
COUNT = whole_kind("count", 1, MAX_WORLD_SIZE, "a count", "8")
SIZE = whole_kind("size", 1, MAX_SIZE, "a size", "4096")
INDEX = whole_kind("rank", 0, MAX_WORLD_SIZE - 1, "a rank", "0")
MAX_SEED, MAX_SEEDS = (1 << 63) - 1, 10_000
SEED = whole_kind("seed", 0, MAX_SEED, "a seed", "0")
SEEDS = whole_kind("seeds", 1, MAX_SEEDS, "a number of seeds", "100")
NUMBER = Kind("number", _parse_number, _number_text, "3", {"type": "number", "minimum": 0})
RATIO = Kind("ratio", QUANTITIES["ratio"].parse, QUANTITIES["ratio"].format, '"0.5%"', _RATIO_SCHEMA)

_SHARE_SCHEMA: JsonSchema = {**_RATIO_SCHEMA, "description": 'A share of the peak, such as "45%"'}


def _parse_share(value: object) -> float:
    share = QUANTITIES["ratio"].parse(value)
    if not 0 < share <= 1:
        rule = "write more than 0% and at most 100%"
        raise UnitError(f"{show_value(value)} is not a share of the peak; {rule}")
    return share


SHARE = Kind("share", _parse_share, QUANTITIES["ratio"].format, '"45%"', _SHARE_SCHEMA)
FACTOR = Kind("factor", _parse_factor, QUANTITIES["ratio"].format, '"50%"', _FACTOR_SCHEMA)
SPREAD = Kind("spread", _parse_spread, QUANTITIES["ratio"].format, '"20%"', _SPREAD_SCHEMA)
OVERSUBSCRIPTION = Kind("oversubscription", _parse_oversubscription, _number_text, "4", _OVERSUBSCRIPTION_SCHEMA)

LINK_KEYS: Mapping[str, Kind] = {"alpha": SECONDS, "bandwidth": BANDWIDTH, "overhead": SECONDS}

POINT_KEYS: Mapping[str, Kind] = {
    "message": BYTES,
    "devices": COUNT,
    "nodes": COUNT,
    "gpus_per_node": COUNT,
    **{f"{level}.{name}": kind for level in ("link", "intra", "inter") for name, kind in LINK_KEYS.items()},
    "gamma": SECONDS_PER_BYTE,
    "nics_per_node": COUNT,
    "pcie_switch.gpus": COUNT,
    "pcie_switch.bandwidth": BANDWIDTH,
    "leaf.nodes": COUNT,
    "leaf.rails": COUNT,
    "leaf.oversubscription": OVERSUBSCRIPTION,
    "device.memory": BYTES,
    "device.memory_bandwidth": BANDWIDTH,
    "device.host_link": BANDWIDTH,
    "device.cpu_memory_bandwidth": BANDWIDTH,
    "device.nvme_read": BANDWIDTH,
    "device.nvme_write": BANDWIDTH,
    "skew.random": SECONDS,
    "time.loggp.overhead": SECONDS,
    "time.loggp.gap": SECONDS,
    "time.loggp.threshold": BYTES,
    "seed": SEED,
    "seeds": SEEDS,
    "root": INDEX,
}
"""Keys of a point: the way to a number of the file, without ``cluster``; further ones are in ``KEY_PATTERNS``.

The options of algorithms and strategies, as in ``parameter_server.servers``, come on top.
"""

_LEVEL, _ITEM = "[a-z][a-z0-9_]*", "(?:0|[1-9][0-9]{0,4})"
KEY_PATTERNS: Mapping[str, Kind] = {
    **{rf"{_LEVEL}\.{name}": kind for name, kind in LINK_KEYS.items()},
    rf"{_LEVEL}\.size": COUNT,
    rf"(?:torus|mesh)\.{_ITEM}": COUNT,
    rf"slow\.{_ITEM}\.(?:rank|link\.[01])": INDEX,
    rf"slow\.{_ITEM}\.(?:alpha|bandwidth|gamma)": FACTOR,
    rf"device\.peak\.(?:{'|'.join(DTYPES)})": FLOPS_PER_SECOND,
    rf"skew\.ranks\.{_ITEM}": SECONDS,
    rf"jitter\.(?:alpha|bandwidth|reduction)\.(?:{'|'.join(DISTRIBUTIONS)})": SPREAD,
}
"""Keys of a point that name a level, or an item of a list, counted from 0."""

RUN_WORDS = ("skew", "jitter", "time", "seed", "seeds")
SECTION_WORDS = ("device", "leaf", "mesh", "pcie_switch", "slow", "torus", *RUN_WORDS)
"""First words of keys that are no names of levels; the former are of sections beside ``cluster:``."""

_SIZE_KEY = re.compile(rf"devices|nodes|gpus_per_node|{_LEVEL}\.size|(?:torus|mesh)\.{_ITEM}")
_NAMES = {algorithm.name for algorithm in ALGORITHMS} | {strategy.name for strategy in STRATEGIES}
OPTION_PATTERN = rf"(?:{'|'.join(sorted(_NAMES))})\.[a-z][a-z0-9_]*"

METRICS: Mapping[str, Kind] = {
    **dict.fromkeys(("seconds", "latency_seconds", "bandwidth_seconds", "reduction_seconds"), ANY_SECONDS),
    **dict.fromkeys(("lower_bound_seconds", "closed_form_seconds"), ANY_SECONDS),
    **dict.fromkeys(("bytes_sent_max", "bytes_sent_max_intra", "bytes_sent_max_inter"), ANY_BYTES),
    **dict.fromkeys(("bytes_sent_max_node", "bytes_sent_total"), ANY_BYTES),
    **dict.fromkeys(("algbw", "busbw"), ANY_BANDWIDTH),
    "rounds": NUMBER,
    **dict.fromkeys(("seconds_p50", "seconds_p95", "seconds_p99"), ANY_SECONDS),
}
"""What an expectation may be about, with the unit of its bounds.

``_intra`` counts the links inside nodes and ``_inter`` those between them, of one device; ``_node`` all that leaves one
node. ``_p50``, ``_p95`` and ``_p99`` are percentiles over the seeds.
"""

PERCENTILES: Mapping[str, int] = {f"seconds_p{percent}": percent for percent in (50, 95, 99)}

METRIC_LINKS: Mapping[str, str] = {
    "bytes_sent_max_intra": "links inside nodes",
    "bytes_sent_max_inter": "links between nodes",
    "bytes_sent_max_node": "links between nodes",
}


def owner(key: str) -> str:
    """Return what stands before the first dot of a key."""
    return key.partition(".")[0]


def is_option(key: str) -> bool:
    """Whether a key of a point is an option of an algorithm or a strategy, such as ``parameter_server.servers``."""
    return "." in key and owner(key) in _NAMES


def without_options(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point without options of algorithms and strategies, which their labels say."""
    return {key: value for key, value in point.items() if not is_option(key)}


def is_size(key: str) -> bool:
    """Whether a key of a point changes the number of ranks, as ``nodes``, ``rail.size`` and ``torus.0`` do."""
    return _SIZE_KEY.fullmatch(key) is not None and not is_option(key)


@lru_cache
def kind_of(key: str) -> Kind | None:
    """Return what kind of value a key of a point takes; None for the options of algorithms.

    >>> kind_of("rail.bandwidth").name, kind_of("slow.0.bandwidth").name, kind_of("ring.bandwidth")
    ('bandwidth', 'factor', None)
    """
    if key in POINT_KEYS or is_option(key):
        return POINT_KEYS.get(key)
    return next((kind for pattern, kind in KEY_PATTERNS.items() if re.fullmatch(pattern, key)), None)


def _parse_recomputation(value: object) -> Any:
    known = list(get_args(Recomputation))
    if value not in known:
        raise UnitError(f"{show_value(value)} is unknown; {suggestion(str(value), known)}")
    return value


RECOMPUTATION = Kind("option", _parse_recomputation, str, "full", {"enum": list(get_args(Recomputation))})

TRAINING_KEYS: Mapping[str, Kind] = {
    "micro_batch": SIZE,
    "sequence": SIZE,
    "accumulation": SIZE,
    "mfu": SHARE,
    "recomputation": RECOMPUTATION,
}
"""Keys of a point beside those of the cluster and the options of strategies, as in ``ddp.bucket_cap``."""


_OPTION_UNITS = {f"{one.name}.{o.name}": o.quantity for one in STRATEGIES for o in one.options if o.quantity}


def value_text(key: str, value: Any) -> str:
    """Return the value of a key of a point with its unit, as an error or a label shows it.

    >>> value_text("message", 4096), value_text("link.bandwidth", 450e9), value_text("devices", 8)
    ('4 KiB', '450 GB/s', '8')
    """
    kind = kind_of(key) or TRAINING_KEYS.get(key)
    if key in _OPTION_UNITS and not isinstance(value, str):
        return QUANTITIES[_OPTION_UNITS[key]].format(value)
    return str(value) if kind is None or isinstance(value, str) else kind.format(value)


def point_text(point: Mapping[str, Any]) -> str:
    """Return a point on one line.

    >>> point_text({"message": 4096, "devices": 8})
    'message: 4 KiB, devices: 8'
    """
    return ", ".join(f"{key}: {value_text(key, value)}" for key, value in point.items())
