"""Quantities: every accepted spelling, every refusal with its remedy, and the way back to text."""

from __future__ import annotations

import contextlib
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives import units
from simcollectives.errors import UnitError
from simcollectives.units import QUANTITIES, Quantity

everywhere = pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=QUANTITIES)
sized = st.floats(min_value=1e-290, max_value=1e290)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("25 MiB", 25 * 2**20),
        ("4 KiB", 4096),
        ("1 GB", 1e9),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("2 TB", 2e12),
        ("2 PB", 2e15),
        ("1 GiB", 2**30),
        ("1 TiB", 2**40),
        ("1 PiB", 2**50),
        ("512 B", 512),
        ("1e9 B", 1e9),
        ("1E+3 B", 1000),
        (".5 MB", 5e5),
        ("5. B", 5),
        ("+5 B", 5),
        ("-0 B", 0),
        ("0 B", 0),
        ("8 bit", 1),
        ("64 kbit", 8000),
        ("64 kb", 8000),
        ("8 Mb", 1e6),
        ("8 Mbit", 1e6),
        ("8 Gb", 1e9),
        ("8 Tbit", 1e12),
        ("8 Kibit", 1024),
        ("8 Mibit", 2**20),
        ("8 Gibit", 2**30),
        ("4KiB", 4096),
        ("  4 \t KiB\n", 4096),
    ],
)
def test_bytes(text: str, number: float) -> None:
    assert units.parse_bytes(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5 us", 5e-6),
        ("5 \u00b5s", 5e-6),
        ("5 \u03bcs", 5e-6),
        ("70.02 us", 70.02e-6),
        ("1.5 ms", 1.5e-3),
        ("2 s", 2),
        ("3 ns", 3e-9),
        ("3 ps", 3e-12),
        ("1 min", 60),
        ("1 h", 3600),
        ("0 us", 0),
    ],
)
def test_seconds(text: str, number: float) -> None:
    assert units.parse_seconds(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("450 GB/s", 450e9),
        ("50 GB/s", 50e9),
        ("400 Gb/s", 50e9),
        ("400 Gbit/s", 50e9),
        ("400 Gbps", 50e9),
        ("400 Mbps", 50e6),
        ("800 bps", 100),
        ("3.35 TB/s", 3.35e12),
        ("25 GiB/s", 25 * 2**30),
        ("1 KB/s", 1000),
        ("8 Kibit/s", 1024),
    ],
)
def test_bandwidth(text: str, number: float) -> None:
    assert units.parse_bandwidth(text) == number


def test_the_other_quantities() -> None:
    assert units.parse_flops_per_second("989.4 TFLOP/s") == 989.4e12
    assert units.parse_flops_per_second("312 TFLOPS") == 312e12
    assert units.parse_flops_per_second("1.1 EFLOP/s") == 1.1e18
    assert units.parse_flops_per_second("7 FLOP/s") == 7
    assert units.parse_seconds_per_byte("2 ps/B") == 2e-12
    assert units.parse_seconds_per_byte("1 us/MiB") == 1e-6 / 2**20
    assert units.parse_seconds_per_byte("1 s/GB") == 1e-9
    assert units.parse_ratio("0.5%") == units.parse_ratio("0.5 %") == units.parse_ratio(0.005) == 0.005
    assert units.parse_ratio("0.45") == units.parse_ratio("45%") == 0.45
    assert units.parse_ratio(1) == 1.0
    assert units.parse_ratio(0) == 0.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bandwidth", 450, '450 has no unit; write "450 GB/s"'),
        ("bandwidth", 450.0, '450 has no unit; write "450 GB/s"'),
        ("bandwidth", 450e9, '450000000000 has no unit; write "450 GB/s"'),
        ("bandwidth", "450", '"450" has no unit; write "450 GB/s"'),
        ("bandwidth", "450 GBs", '"450 GBs" has the unknown unit "GBs"; write "450 GB/s"'),
        ("bandwidth", "450 gB/s", '"450 gB/s" has the unknown unit "gB/s"; write "450 GB/s"'),
        ("bandwidth", "450 GBps", '"450 GBps" has the unknown unit "GBps"; write "450 GB/s"'),
        ("bandwidth", "450 GB/sec", '"450 GB/sec" has the unknown unit "GB/sec"; write "450 GB/s"'),
        ("bandwidth", "450 gb/s", '"450 gb/s" has the unknown unit "gb/s"; write "450 GB/s" or "450 Gb/s"'),
        ("bandwidth", "400 gbit/s", '"400 gbit/s" has the unknown unit "gbit/s"; write "400 Gbit/s"'),
        ("bandwidth", "25 Gib/s", '"25 Gib/s" has the unknown unit "Gib/s"; write "25 GiB/s" or "25 Gibit/s"'),
        ("bandwidth", "450 GB", '"450 GB" is a number of bytes, not a bandwidth; write "450 GB/s"'),
        ("bandwidth", "5 us", '"5 us" is a time, not a bandwidth; write "450 GB/s"'),
        ("bandwidth", "450 knots", '"450 knots" has the unknown unit "knots"; write "450 GB/s"'),
        ("bandwidth", "-5 GB/s", '"-5 GB/s" is negative, and a bandwidth is 0 or more; write "450 GB/s"'),
        ("bytes", 4096, '4096 has no unit; write "4096 B"'),
        ("bytes", 0, '0 has no unit; write "0 B"'),
        ("bytes", "1e9", '"1e9" has no unit; write "1e9 B"'),
        ("bytes", "25 gb", '"25 gb" has the unknown unit "gb"; write "25 GB" or "25 Gb"'),
        ("bytes", "25 mib", '"25 mib" has the unknown unit "mib"; write "25 MiB"'),
        ("bytes", "25 M", '"25 M" has the unknown unit "M"; write "25 MB" or "25 MiB"'),
        ("bytes", "8 b", '"8 b" has the unknown unit "b"; write "8 B" or "8 bit"'),
        ("bytes", "8 bytes", '"8 bytes" has the unknown unit "bytes"; write "8 B"'),
        ("bytes", "1,000 B", '"1,000 B": a number has no separators, and its decimal point is "."; write "1000 B"'),
        ("bytes", "1,5 GB", '"1,5 GB": a number has no separators, and its decimal point is "."; write "1.5 GB"'),
        ("bytes", "1_000 B", '"1_000 B": a number has no separators, and its decimal point is "."; write "1000 B"'),
        ("bytes", "1 000 B", '"1 000 B": a number has no separators, and its decimal point is "."; write "1000 B"'),
        ("bytes", "lots", '"lots" does not start with a number, and a number of bytes does; write "25 MiB"'),
        ("bytes", "0x10 B", '"0x10 B": a number is written in decimals; write "16 B"'),
        ("bytes", "0x10", '"0x10": a number is written in decimals; write "25 MiB"'),
        ("bytes", "0x1g B", '"0x1g B" has the unknown unit "x1g B"; write "25 MiB"'),
        ("seconds", 5, '5 has no unit; write "5 us"'),
        ("seconds", 0, '0 has no unit; write "0 us"'),
        ("seconds", 5e-6, '5e-06 has no unit; write "5 us"'),
        ("seconds", "5 m", '"5 m" has the unknown unit "m"; write "5 ms" or "5 min"'),
        ("seconds", "5 sec", '"5 sec" has the unknown unit "sec"; write "5 s"'),
        ("seconds", "5 PS", '"5 PS" has the unknown unit "PS"; write "5 ps"'),
        ("flops_per_second", "312 Tflops", '"312 Tflops" has the unknown unit "Tflops"; write "312 TFLOP/s"'),
        ("seconds_per_byte", "2 ps", '"2 ps" is a time, not a time per byte; write "2 ps/B"'),
        ("ratio", "45 percent", '"45 percent" has the unknown unit "percent"; write "45%"'),
        ("ratio", -1, '-1 is negative, and a ratio is 0 or more; write "0.5%"'),
    ],
)
def test_refusals_show_value_rule_and_remedy(name: str, value: object, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        QUANTITIES[name].parse(value)
    assert str(caught.value) == message


@everywhere
@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (True, "true is a truth value"),
        (None, "null is empty"),
        ([1, 2], "[1, 2] is a list"),
        ({"a": 1}, "{'a': 1} is a mapping"),
        (b"5 B", "is of type bytes"),
        ("", '"" is empty'),
        (" \t", "is empty"),
        ("nan s", "is not a finite number"),
        ("-inf B", "is not a finite number"),
        (".inf", "is not a finite number"),
        ("Infinity", "is not a finite number"),
        (math.nan, "nan is not a finite number"),
        (math.inf, "inf is not a finite number"),
        pytest.param(10**5000, "is not a finite number", id="huge"),
        (-1, "-1 is negative"),
        pytest.param(-(10**5000), "is not a finite number", id="-huge"),
        ("9" * 101, "is too long (101 characters)"),
        ("\u0663", "does not start with a number"),
    ],
)
def test_nonsense_is_refused_for_every_quantity(quantity: Quantity, value: object, rule: str) -> None:
    with pytest.raises(UnitError, match=re.escape(rule)) as caught:
        quantity.parse(value)
    assert quantity.example in str(caught.value)
    assert len(str(caught.value)) < 250


@everywhere
@pytest.mark.parametrize("number", ["1e999", "1e-999", "1e99999999999999999999999", "-1e-99999999999999999999999"])
def test_numbers_beyond_floats_are_refused_without_computing_them(quantity: Quantity, number: str) -> None:
    unit = quantity.example.lstrip("0123456789. ")
    with pytest.raises(UnitError, match="outside of what a float holds"):
        quantity.parse(f"{number} {unit}")


@everywhere
def test_each_remedy_can_be_parsed(quantity: Quantity) -> None:
    for value in [5, "5", "5 gb/s", "5 GBs", "5 Mb", "5 usec", "5 tflop", "1,5 GB", "5 psb", "5 pct", "x", None]:
        try:
            quantity.parse(value)
        except UnitError as error:
            remedies = re.findall(r'"([^"]*)"', str(error).rpartition("; write ")[2])
            assert remedies
            assert all(quantity.parse(remedy) >= 0 for remedy in remedies)


@everywhere
@given(value=st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())))
def test_any_value_is_a_finite_number_or_a_unit_error(quantity: Quantity, value: object) -> None:
    number = 0.0
    with contextlib.suppress(UnitError):
        number = quantity.parse(value)
    assert math.isfinite(number)
    assert number >= 0


@everywhere
@given(number=st.one_of(sized, st.integers(0, 2**62).map(float), st.just(0.0)))
def test_formatting_all_digits_parses_back_exactly(quantity: Quantity, number: float) -> None:
    assert quantity.parse(quantity.format(number, digits=None)) == number


@everywhere
@given(number=st.one_of(sized, st.integers(1, 2**62).map(float)))
def test_formatting_keeps_four_digits_by_default(quantity: Quantity, number: float) -> None:
    # Half a unit of the fourth digit, plus the rounding of the float itself.
    assert quantity.parse(quantity.format(number)) == pytest.approx(number, rel=0.5e-3 * (1 + 1e-9), abs=0)


@everywhere
@given(number=sized)
def test_formatting_is_a_fixed_point_and_keeps_the_sign(quantity: Quantity, number: float) -> None:
    text = quantity.format(number)
    assert quantity.format(quantity.parse(text)) == text
    assert quantity.format(-number) == f"-{text}"


@everywhere
@given(number=st.floats(min_value=1e-12, max_value=1e15))
def test_everyday_numbers_are_short_and_without_exponent(quantity: Quantity, number: float) -> None:
    if quantity.name in ("seconds", "ratio", "seconds_per_byte") or number >= 1e-3:
        mantissa = quantity.format(number).rstrip("%").split()[0]
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?|[0-9.]+e-?[0-9]+", mantissa)
        assert ("e" in mantissa) <= (number < 1e-9 or number > 1e13)


@everywhere
def test_examples_are_spelled_as_they_are_formatted(quantity: Quantity) -> None:
    assert quantity.format(quantity.parse(quantity.example)) == quantity.example


@everywhere
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_formatted(quantity: Quantity, number: float) -> None:
    with pytest.raises(UnitError, match="not a finite number"):
        quantity.format(number)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (0.125, "0.125 B"),
        (512, "512 B"),
        (1000, "1 kB"),
        (1024, "1 KiB"),
        (1023, "1.023 kB"),
        (1536, "1.5 KiB"),
        (4096, "4 KiB"),
        (100 * 1024, "100 KiB"),
        (128_000, "128 kB"),
        (512_000, "512 kB"),
        (1_024_000, "1.024 MB"),
        (1.5 * 2**20, "1.5 MiB"),
        (25 * 2**20, "25 MiB"),
        (512 * 2**20, "512 MiB"),
        (2**30, "1 GiB"),
        (2**30 + 1, "1.074 GB"),
        (19.8e6, "19.8 MB"),
        (14e9, "14 GB"),
        (999_999, "1 MB"),
        (1e9, "1 GB"),
        (2**60, "1153 PB"),
    ],
)
def test_bytes_take_a_binary_prefix_only_where_it_is_exact_and_shorter(number: float, text: str) -> None:
    assert units.format_bytes(number) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("70.02 us", 70.02e-6),
        ("5 us", 5e-6),
        ("0 s", 0),
        ("1 ms", 0.00099999),
        ("1.5 ms", 1.5e-3),
        ("100 s", 100),
        ("3661 s", 3661),
        ("3.4 ns", 3.4e-9),
        ("0.5 ps", 5e-13),
        ("1e300 s", 1e300),
        ("-2 us", -2e-6),
    ],
)
def test_format_seconds(text: str, number: float) -> None:
    assert units.format_seconds(number) == text


@pytest.mark.parametrize(
    ("number", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (512, "512 B", "512 B"),
        (1000, "1000 B", "1 kB"),
        (1792, "1.75 KiB", "1.792 kB"),
        (128_000, "125 KiB", "128 kB"),
        (132 * 2**20, "132 MiB", "138.4 MB"),
        (1e9, "953.7 MiB", "1 GB"),
        (2**60, "1024 PiB", "1153 PB"),
    ],
)
def test_a_family_decides_between_binary_and_decimal_prefixes(number: float, binary: str, decimal: str) -> None:
    assert units.format_bytes(number, family="binary") == binary
    assert units.format_bytes(number, family="decimal") == decimal


def test_digits_are_significant_digits() -> None:
    assert units.format_seconds(1.23456e-6, digits=2) == "1.2 us"
    assert units.format_seconds(1.23456e-6, digits=None) == "1.23456 us"
    assert units.format_bytes(1.5 * 2**20, digits=1) == "2 MB"
    assert units.format_ratio(0.123456) == "12.35%"
    assert units.format_bandwidth(25 * 2**30) == "26.84 GB/s"
    assert units.format_flops_per_second(1.979e15) == "1.979 PFLOP/s"
    assert units.format_seconds_per_byte(2e-12) == "2 ps/B"
