"""The options of ``probe``: texts of the command line to a plan, with all that is wrong in them at once."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from simcollectives.engines.job import DTYPES, MAX_MESSAGE_BYTES
from simcollectives.errors import Gathered, InputError, Problem, show_value, suggestion
from simcollectives.measured.probe import BACKENDS, PLACES_OF, Placement, Plan, placement_of
from simcollectives.report.files import check_writable
from simcollectives.report.reading import check_output
from simcollectives.scenario.points import RangeError, expand_factor
from simcollectives.units import parse_bytes, parse_seconds

INSTALL = "PyTorch is not installed, and probe measures with it; pip install 'simcollectives[probe]'"
MAX_LOCAL_RANKS = 1024
_MOST_CALLS = 100_000
_MOST_SECONDS = 86_400.0
Value = TypeVar("Value")


@dataclass(frozen=True)
class Asked:
    """What to measure, by whom: ``placement`` is torchrun's, else ``ranks`` local ones (None for the default)."""

    plan: Plan
    placement: Placement | None
    ranks: int | None


def read_options(options: Mapping[str, str | None], plan: Plan, environment: Mapping[str, str]) -> Asked:
    """A plan from the texts of options, by their names without dashes; None is an option that was not given.

    ``plan`` holds what the options do not set.

    Raises:
        InputError: everything that is wrong, PyTorch that is missing included.
    """
    gathered = Gathered()

    def take(name: str, read: Callable[[str], Value], default: Value) -> Value:
        text = options.get(name)
        value = default if text is None else gathered.take(partial(_at, f"--{name}", read, text))
        return default if value is None else value

    sizes = _sizes(take, gathered)
    found = Plan(
        collectives=take("collectives", _collectives, plan.collectives),
        dtypes=take("dtype", partial(_names, what="element type", known=tuple(DTYPES)), plan.dtypes),
        sizes=sizes,
        backend=take("backend", _backend, plan.backend),
        warmup=take("warmup", partial(_whole, least=0, most=_MOST_CALLS), plan.warmup),
        iterations=take("iterations", partial(_whole, least=5, most=_MOST_CALLS), plan.iterations),
        seconds_per_point=take("seconds-per-point", partial(_seconds, least=1e-3), plan.seconds_per_point),
        timeout=take("timeout", partial(_seconds, least=1.0), plan.timeout),
        matmul=plan.matmul,
        copies=plan.copies,
    )
    ranks = take("ranks", partial(_whole, least=1, most=MAX_LOCAL_RANKS), 0) or None
    placement = gathered.take(lambda: placement_of(environment))
    gathered.take(lambda: _check_together(found, ranks, placement))
    gathered.take(lambda: _check_output(options.get("output")))
    gathered.take(_check_torch)
    gathered.finish()
    return Asked(found, placement, ranks)


def _at(place: str, read: Callable[[str], Value], text: str) -> Value:
    """What ``read`` returns; its problems are those of an option."""
    try:
        return read(text)
    except InputError as error:
        raise InputError([Problem(place, problem.message) for problem in error.problems]) from None


def _sizes(take: Callable[..., float], gathered: Gathered) -> tuple[int, ...]:
    low = take("from", _bytes, 1024.0)
    high = take("to", _bytes, max(low, 64.0 * 2**20))
    factor = take("factor", _factor, 2.0)
    if gathered.errors:
        return (int(low),)
    try:
        return tuple(dict.fromkeys(int(size) for size in expand_factor(low, high, factor)))
    except RangeError as error:
        gathered.errors.append(InputError([Problem("--from, --to, --factor", str(error))]))
        return (int(low),)


def _bytes(text: str) -> float:
    size = parse_bytes(text)
    if not (size == int(size) and 1 <= size <= MAX_MESSAGE_BYTES):
        raise InputError(f'{show_value(text)} is no message of 1 or more whole bytes; write for instance "1 KiB"')
    return size


def _seconds(text: str, least: float) -> float:
    seconds = parse_seconds(text)
    if not least <= seconds <= _MOST_SECONDS:
        raise InputError(f'{show_value(text)} is not from {least:g} s to {_MOST_SECONDS:g} s; write for instance "2 s"')
    return seconds


def _factor(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{show_value(text)} is no number; write one above 1, such as 2") from None


def _whole(text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise InputError(
        f"{show_value(text)} is no whole number from {least} to {most}; write for instance {max(least, 8)}"
    )


def _names(text: str, what: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in known]
    problems = [Problem("", f"{show_value(name)} is no {what}; {suggestion(name, known)}") for name in wrong]
    if not names:
        problems.append(Problem("", f"names no {what}; known: {', '.join(known)}"))
    if problems:
        raise InputError(problems)
    return names


def _collectives(text: str) -> tuple[str, ...]:
    if text in ("all", "none"):
        return tuple(PLACES_OF) if text == "all" else ()
    return _names(text, "collective", tuple(PLACES_OF))


def _backend(text: str) -> str:
    if text not in BACKENDS:
        raise InputError(f"{show_value(text)} is no backend; {suggestion(text, BACKENDS)}")
    return text


def _check_together(plan: Plan, ranks: int | None, placement: Placement | None) -> None:
    problems = []
    if ranks is not None and placement is not None and ranks != placement.world_size:
        rule = f"{ranks}, but torchrun started {placement.world_size}"
        problems.append(Problem("--ranks", f"{rule}; leave it out, or start probe without torchrun"))
    if not (plan.collectives or plan.matmul or plan.copies):
        problems.append(Problem("--collectives", "none leaves nothing to measure; add --matmul or --copies"))
    if plan.matmul and not plan.fractional:
        rule = f"FLOP/s are of numbers with fractions, and --dtype is {', '.join(plan.dtypes)}"
        problems.append(Problem("--matmul", f"{rule}; add one, such as bfloat16"))
    if problems:
        raise InputError(problems)


def _check_output(text: str | None) -> None:
    if text is None:
        return
    output = Path(text)
    check_output(output)
    if not output.parent.is_dir():
        raise InputError([Problem("-o", f"there is no folder {output.parent}; make it first")])
    for path in (output, output.with_name("sets.csv")):
        check_writable(path)


def _check_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise InputError(INSTALL)
