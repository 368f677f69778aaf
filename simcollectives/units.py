"""Quantities as people write them, "25 MiB" or "450 GB/s", to and from plain numbers in SI units.

Bits and bytes are never confused: 400 Gb/s, 400 Gbit/s and 400 Gbps are bits, 50 GB/s is bytes; MiB is 2^20 bytes, MB
is 10^6. Units are spelled exactly; a wrong spelling is refused with the nearest right one. Parsing and formatting are
exact in decimals, so that a text is rounded to a float once.

>>> parse_bandwidth("400 Gb/s") == parse_bandwidth("50 GB/s") == 50e9
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from fractions import Fraction
from typing import Literal

from simcollectives.errors import UnitError, nearest, show_value

ByteFamily = Literal["binary", "decimal"]  # KiB, MiB, ... or kB, MB, ...

_LONGEST_TEXT = 100
_LARGEST_EXPONENT = 400  # beyond every float; also keeps 10**exponent small
_LIKENESS = 0.76  # "GBB" is like "GB", "MT/s" is not like "Tb/s"
_NUMBER = re.compile(r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>.*)", re.DOTALL)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+(?![0-9a-zA-Z])")
_GROUPED = re.compile(r"[+-]?[0-9]+(?:[,_][0-9]+|\s+[0-9]{3})+(?:\.[0-9]+)?(?=\D|$)")
_NOT_FINITE = re.compile(r"[+-]?\.?(?:nan|inf(?:inity)?)(?![a-z])", re.IGNORECASE)

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_TIMES = {"s": 0, "ms": -3, "us": -6, "ns": -9, "ps": -12}

_BYTE_UNITS = {f"{prefix}B": Fraction(scale) for prefix, scale in (_DECIMAL | _BINARY).items()} | {"KB": Fraction(1000)}
_BIT_UNITS = {f"{prefix}bit": Fraction(scale, 8) for prefix, scale in (_DECIMAL | _BINARY).items()}
_SIZE_UNITS = _BYTE_UNITS | _BIT_UNITS | {f"{p}b": Fraction(scale, 8) for p, scale in _DECIMAL.items() if p}
_RATE_UNITS = {f"{unit}/s": scale for unit, scale in _SIZE_UNITS.items()}
_BPS_UNITS = {f"{prefix}bps": Fraction(scale, 8) for prefix, scale in _DECIMAL.items()}
_FLOP_SCALES = {**_DECIMAL, "E": 10**18}
_FLOP_UNITS = {f"{prefix}FLOP{end}": Fraction(n) for end in ("/s", "S") for prefix, n in _FLOP_SCALES.items()}
_SHORT_TIMES = {unit: Fraction(10) ** exponent for unit, exponent in _TIMES.items()}
_TIME_UNITS = _SHORT_TIMES | {"min": Fraction(60), "h": Fraction(3600)}
_PER_BYTE_UNITS = {f"{t}/{b}": s / n for t, s in _SHORT_TIMES.items() for b, n in _BYTE_UNITS.items()}

# What people write that neither case nor likeness leads to the right unit.
_HABITS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("byte", "bytes", "Byte", "Bytes"), ("B",)),
    **dict.fromkeys(("bits", "Bit", "Bits"), ("bit",)),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), ("s",)),
    **dict.fromkeys(("minute", "minutes", "mins"), ("min",)),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), ("h",)),
    **{"b": ("B", "bit"), "m": ("ms", "min"), "usec": ("us",), "msec": ("ms",), "nsec": ("ns",)},
    **{"percent": ("%",), "pct": ("%",), "k": ("kB", "KiB"), "K": ("kB", "KiB")},
    **{p: (f"{p}B", f"{p}iB") for p in "MGTP"},
    **{f"{p}b{s}": (f"{p}B{s}", f"{p}bit{s}") for p in _BINARY for s in ("", "/s")},
}


class TooLargeError(UnitError):
    """A number that is larger than every float."""


@dataclass(frozen=True)
class _Kind:
    """How one quantity is spelled: its units, the ladder used to format it, and what errors say of it."""

    noun: str
    units: Mapping[str, Fraction]
    ladder: tuple[tuple[str, int], ...]  # (unit, power of ten), largest first
    bare_unit: str  # the likeliest meaning of a number without a unit
    example: str
    bare_allowed: bool = False


def _ladder(suffix: str, scales: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((prefix + suffix, len(str(scale)) - 1) for prefix, scale in reversed(list(scales.items())))


_BYTES = _Kind("a number of bytes", _SIZE_UNITS, _ladder("B", _DECIMAL), "B", "25 MiB")
_SECONDS = _Kind("a time", _TIME_UNITS, tuple(_TIMES.items()), "us", "5 us")
_BANDWIDTH = _Kind("a bandwidth", _RATE_UNITS | _BPS_UNITS, _ladder("B/s", _DECIMAL), "GB/s", "450 GB/s")
_FLOPS = _Kind("a FLOP rate", _FLOP_UNITS, _ladder("FLOP/s", _FLOP_SCALES), "TFLOP/s", "989.4 TFLOP/s")
_PER_BYTE = _Kind("a time per byte", _PER_BYTE_UNITS, tuple((f"{t}/B", n) for t, n in _TIMES.items()), "ps/B", "2 ps/B")
_RATIO = _Kind("a ratio", {"%": Fraction(1, 100)}, (("%", -2),), "%", "0.5%", bare_allowed=True)
_KINDS = (_BYTES, _SECONDS, _BANDWIDTH, _FLOPS, _PER_BYTE, _RATIO)


def parse_bytes(value: object) -> float:
    """Return bytes from text such as "25 MiB", "1 GB", "64 kbit" or "1e9 B". Raises UnitError.

    >>> parse_bytes("4 KiB"), parse_bytes("64 kbit"), parse_bytes("1e9 B")
    (4096.0, 8000.0, 1000000000.0)
    """
    return _parse(value, _BYTES)


def parse_seconds(value: object) -> float:
    """Return seconds from text such as "5 us", "5 µs", "1.5 ms" or "1 min". Raises UnitError.

    >>> parse_seconds("5 us") == parse_seconds("5 µs") == 5e-6
    True
    """
    return _parse(value, _SECONDS)


def parse_bandwidth(value: object) -> float:
    """Return bytes per second from text such as "450 GB/s", "400 Gb/s", "400 Gbps" or "25 GiB/s". Raises UnitError.

    >>> parse_bandwidth("400 Gbit/s")
    50000000000.0
    >>> parse_bandwidth(450)
    Traceback (most recent call last):
    simcollectives.errors.UnitError: 450 has no unit; write "450 GB/s"
    """
    return _parse(value, _BANDWIDTH)


def parse_flops_per_second(value: object) -> float:
    """Return floating-point operations per second from text such as "989.4 TFLOP/s" or "312 TFLOPS". Raises UnitError.

    >>> parse_flops_per_second("989.4 TFLOP/s")
    989400000000000.0
    """
    return _parse(value, _FLOPS)


def parse_seconds_per_byte(value: object) -> float:
    """Return seconds per byte from text such as "2 ps/B" or "1 us/MiB". Raises UnitError.

    >>> parse_seconds_per_byte("2 ps/B")
    2e-12
    """
    return _parse(value, _PER_BYTE)


def parse_ratio(value: object) -> float:
    """Return a ratio from a percentage such as "45 %", or from a bare number such as 0.005. Raises UnitError.

    >>> parse_ratio("0.5%"), parse_ratio(0.45)
    (0.005, 0.45)
    """
    return _parse(value, _RATIO)


def format_bytes(value: float, digits: int | None = 4, *, family: ByteFamily | None = None) -> str:
    """Return bytes as text: with a binary prefix where that is exact and clearly shorter, else with a decimal one.

    `digits` significant digits; None for as many as parse back to the same float. `family` decides between the
    prefixes, for sizes that stand together. Raises UnitError unless finite.

    >>> format_bytes(26214400), format_bytes(1.5 * 2**20), format_bytes(19.8e6), format_bytes(512), format_bytes(0)
    ('25 MiB', '1.5 MiB', '19.8 MB', '512 B', '0 B')
    >>> format_bytes(26214400, family="decimal"), format_bytes(1792, family="binary")
    ('26.21 MB', '1.75 KiB')
    """
    binary, exact = _binary(value, digits), _binary(value, None)
    if family is None:  # 128 kB stays 128 kB (125 KiB), and 1 MiB is not 1.048576 MB
        shorter = len(exact.split()[0]) + 1 < len(_format(value, None, _BYTES).split()[0])
        family = "binary" if shorter and binary == exact and abs(value) < 2**60 else "decimal"
    return binary if family == "binary" else _format(value, digits, _BYTES)


def format_seconds(value: float, digits: int | None = 4) -> str:
    """Return seconds as text, with the arguments of `format_bytes`.

    >>> format_seconds(70.0204e-6), format_seconds(70.0204e-6, digits=None), format_seconds(0.00099999)
    ('70.02 us', '70.0204 us', '1 ms')
    """
    return _format(value, digits, _SECONDS)


def format_bandwidth(value: float, digits: int | None = 4) -> str:
    """Return bytes per second as text, with the arguments of `format_bytes`.

    >>> format_bandwidth(450e9), format_bandwidth(3.35e12)
    ('450 GB/s', '3.35 TB/s')
    """
    return _format(value, digits, _BANDWIDTH)


def format_flops_per_second(value: float, digits: int | None = 4) -> str:
    """Return floating-point operations per second as text, with the arguments of `format_bytes`.

    >>> format_flops_per_second(989.4e12)
    '989.4 TFLOP/s'
    """
    return _format(value, digits, _FLOPS)


def format_seconds_per_byte(value: float, digits: int | None = 4) -> str:
    """Return seconds per byte as text, with the arguments of `format_bytes`.

    >>> format_seconds_per_byte(2e-12)
    '2 ps/B'
    """
    return _format(value, digits, _PER_BYTE)


def format_ratio(value: float, digits: int | None = 4) -> str:
    """Return a ratio as a percentage, with the arguments of `format_bytes`.

    >>> format_ratio(0.005), format_ratio(1 / 3), format_ratio(-0.02)
    ('0.5%', '33.33%', '-2%')
    """
    return _format(value, digits, _RATIO).replace(" ", "")


@dataclass(frozen=True)
class Quantity:
    """A kind of number that carries a unit in a scenario file."""

    name: str
    parse: Callable[[object], float]
    format: Callable[..., str]
    example: str


_QUANTITIES = (
    Quantity("bytes", parse_bytes, format_bytes, _BYTES.example),
    Quantity("seconds", parse_seconds, format_seconds, _SECONDS.example),
    Quantity("bandwidth", parse_bandwidth, format_bandwidth, _BANDWIDTH.example),
    Quantity("flops_per_second", parse_flops_per_second, format_flops_per_second, _FLOPS.example),
    Quantity("seconds_per_byte", parse_seconds_per_byte, format_seconds_per_byte, _PER_BYTE.example),
    Quantity("ratio", parse_ratio, format_ratio, _RATIO.example),
)
QUANTITIES: Mapping[str, Quantity] = {quantity.name: quantity for quantity in _QUANTITIES}


def _parse(value: object, kind: _Kind) -> float:
    """Return the number that `value` means, or raise UnitError with the value, the rule and a remedy."""
    if isinstance(value, str):
        return _parse_text(value, kind)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _parse_bare(value, kind)
    words = {bool: "a truth value", list: "a list", tuple: "a list", dict: "a mapping", type(None): "empty"}
    what = words.get(type(value), f"of type {type(value).__name__}")
    raise UnitError(f"{show_value(value)} is {what}, not {kind.noun}; {_write(kind.example)}")


def _parse_bare(value: int | float, kind: _Kind) -> float:
    shown = show_value(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UnitError(f"{shown} is not a finite number; {_write(kind.example)}")
    if number < 0:
        raise UnitError(f"{shown} is negative, and {kind.noun} is 0 or more; {_write(kind.example)}")
    if kind.bare_allowed:
        return number + 0.0
    # 450 for a bandwidth means GB/s, but 450e9 already is in B/s.
    plausible = number == 0 or 1e-3 <= number < 1e6 or kind is _BYTES
    remedy = f"{shown} {kind.bare_unit}" if plausible else _format(number, None, kind)
    raise UnitError(f"{shown} has no unit; {_write(remedy)}")


def _parse_text(text: str, kind: _Kind) -> float:
    shown = show_value(text)
    if len(text) > _LONGEST_TEXT:
        raise UnitError(f"{shown} is too long ({len(text)} characters) for {kind.noun}; {_write(kind.example)}")
    stripped = text.strip()
    if not stripped:
        raise UnitError(f"{shown} is empty, not {kind.noun}; {_write(kind.example)}")
    if _NOT_FINITE.match(stripped):
        raise UnitError(f"{shown} is not a finite number; {_write(kind.example)}")
    if grouped := _GROUPED.match(stripped):
        remedy = _ungroup(grouped.group()) + stripped[grouped.end() :]
        rule = 'a number has no separators, and its decimal point is "."'
        raise UnitError(f"{shown}: {rule}; {_write(remedy if _is_valid(remedy, kind) else kind.example)}")
    if hexadecimal := _HEXADECIMAL.match(stripped):
        remedy = f"{int(hexadecimal.group(), 16)}{stripped[hexadecimal.end() :]}"
        rule = "a number is written in decimals"
        raise UnitError(f"{shown}: {rule}; {_write(remedy if _is_valid(remedy, kind) else kind.example)}")
    match = _NUMBER.fullmatch(stripped)
    if match is None:
        raise UnitError(f"{shown} does not start with a number, and {kind.noun} does; {_write(kind.example)}")
    number, unit = match["number"], match["unit"].replace("\u00b5", "u").replace("\u03bc", "u")
    decimal = _to_decimal(number, shown)
    if decimal < 0:
        raise UnitError(f"{shown} is negative, and {kind.noun} is 0 or more; {_write(kind.example)}")
    if unit not in kind.units and not (kind.bare_allowed and not unit):
        raise UnitError(_unit_problem(shown, number, unit, kind))
    return _scaled(decimal, kind.units.get(unit, Fraction(1)), shown)


def _to_decimal(number: str, shown: str) -> Decimal:
    """Return the exact number. Raises UnitError for an exponent that no float has."""
    try:
        decimal = Decimal(number)
    except InvalidOperation:  # an exponent of more than 18 digits
        raise _out_of_range(shown, large="e-" not in number.lower()) from None
    if decimal and abs(decimal.adjusted()) > _LARGEST_EXPONENT:
        raise _out_of_range(shown, large=decimal.adjusted() > 0)
    return decimal


def _scaled(number: Decimal, scale: Fraction, shown: str) -> float:
    """Return number x scale, rounded once. Raises UnitError where no float is that large or that small."""
    try:
        result = float(Fraction(number) * scale)
    except OverflowError:
        raise _out_of_range(shown, large=True) from None
    if number and not result:
        raise _out_of_range(shown, large=False)
    return result


def _out_of_range(shown: str, *, large: bool) -> UnitError:
    kind = TooLargeError if large else UnitError
    return kind(f"{shown} is outside of what a float holds; write a number between 1e-300 and 1e300")


def _ungroup(number: str) -> str:
    """Return "1,000" without its separators; a single comma that cannot group thousands becomes the decimal point."""
    if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", number) and not re.fullmatch(r"[+-]?[0-9]{1,3},[0-9]{3}", number):
        return number.replace(",", ".")
    return re.sub(r"[,_\s]", "", number)


def _is_valid(text: str, kind: _Kind) -> bool:
    try:
        _parse_text(text, kind)
    except UnitError:
        return False
    return True


def _write(*texts: str) -> str:
    return "write " + " or ".join(f'"{text}"' for text in texts)


def _unit_problem(shown: str, number: str, unit: str, kind: _Kind) -> str:
    space = "" if kind is _RATIO else " "
    if not unit:
        return f"{shown} has no unit; {_write(f'{number}{space}{kind.bare_unit}')}"
    likely = [f"{number}{space}{name}" for name in _nearest(unit, kind)]
    other = next((other for other in _KINDS if unit in other.units), None)
    rule = f"has the unknown unit {show_value(unit)}" if other is None else f"is {other.noun}, not {kind.noun}"
    return f"{shown} {rule}; {_write(*(likely or [kind.example]))}"


def _skeleton(unit: str, kind: _Kind) -> str:
    """Return what is left of a unit without case, spaces, slashes and, for a rate, the ways to write "per second"."""
    bare = re.sub(r"[\s/]", "", unit).casefold()
    return re.sub(r"(?:per|p)?s(?:ec|econd)?$", "s", bare) if kind in (_BANDWIDTH, _FLOPS) else bare


def _nearest(unit: str, kind: _Kind) -> list[str]:
    """Return the nearest units: two where the same letters may mean bits or bytes, none where nothing is near."""
    if habits := [name for name in _HABITS.get(unit, ()) if name in kind.units]:
        return habits
    alike: dict[Fraction, str] = {}
    for name, scale in kind.units.items():
        if _skeleton(name, kind) == _skeleton(unit, kind):
            alike.setdefault(scale, name)
    if unit != unit.lower():  # "gB" says bytes by its capital B, "gb" says nothing
        alike = {scale: name for scale, name in alike.items() if ("B" in name) == ("B" in unit)} or alike
    if alike:
        return list(alike.values())
    if any(character.isdigit() for character in unit):  # "5 x10 GB/s"
        return []
    near = nearest(unit, kind.units, _LIKENESS, fold=False)
    return [] if near is None else [near]


def _exact(value: float, kind: _Kind) -> Decimal:
    """Return the shortest decimal that rounds to `value`."""
    if not math.isfinite(value):
        raise UnitError(f"{show_value(value)} is not a finite number, so it is not {kind.noun}")
    return Decimal(repr(float(value)))


def _plain(number: Decimal) -> str:
    """Return a decimal without an exponent, except where that would need many zeros."""
    number = number.normalize()
    if number == 0:
        return "0"
    if -7 <= number.adjusted() < 16:
        return format(number, "f")
    mantissa = number.scaleb(-number.adjusted())
    return f"{mantissa.normalize():f}e{number.adjusted()}"


def _format(value: float, digits: int | None, kind: _Kind) -> str:
    number = _exact(value, kind)
    if digits is not None:
        with localcontext(prec=max(1, digits)):
            number = +number  # rounded before the unit is chosen: 999.99 us is 1 ms
    if number == 0:
        smallest = next(unit for unit, _ in kind.ladder if kind.units[unit] == 1 or len(kind.ladder) == 1)
        return f"0 {smallest}"
    fitting = (rung for rung in kind.ladder if number.adjusted() >= rung[1])
    unit, exponent = next(fitting, kind.ladder[-1])
    return f"{_plain(number.scaleb(-exponent))} {unit}"


def _binary(value: float, digits: int | None) -> str:
    """Return the text with the largest binary prefix that is no more than the value, rounded to `digits`."""
    number = _exact(value, _BYTES)
    fitting = [(f"{prefix}B", scale) for prefix, scale in _BINARY.items() if abs(number) >= scale]
    unit, scale = fitting[-1] if fitting else ("B", 1)
    with localcontext(prec=100):  # dividing by 2**50 is exact in 100 digits
        number = (number / scale).normalize()
    with localcontext(prec=max(1, 100 if digits is None else digits)):
        return f"{_plain(+number)} {unit}"
