"""What a strategy is: a name, options, and the program that it makes of a training step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from simcollectives.algorithms.types import Option
from simcollectives.cluster.rank_order import as_whole
from simcollectives.errors import Problem, UnitError, show_value
from simcollectives.training.program import Program
from simcollectives.training.setup import Training
from simcollectives.units import parse_bytes

Options = Mapping[str, Any]


SHARDED = ("nothing", "optimizer states", "gradients", "parameters")
"""What a strategy may shard, each with all before it."""


def shards_nothing(_options: Options) -> str:
    """Every rank holds everything."""
    return SHARDED[0]


def shards_parameters(_options: Options) -> str:
    """Every rank holds a part of all model states."""
    return SHARDED[3]


def no_warnings(_training: Training, _options: Options) -> tuple[str, ...]:
    """Warn of nothing."""
    return ()


def no_choices(_options: Options) -> dict[str, tuple[str, dict[str, Any]]]:
    """Leave the algorithms of all collectives to the scenario."""
    return {}


def no_problems(_training: Training, _options: Options) -> tuple[Problem, ...]:
    """Run with all options."""
    return ()


@dataclass(frozen=True)
class Strategy:
    """One way to train.

    ``program(training, options)`` writes the step of one rank. ``warnings`` are about options that do little or harm;
    ``problems`` tell why the strategy does not run with them, each at an option. ``choices(options)`` are the
    algorithms of collectives that the strategy itself decides. ``shards(options)`` is one of ``SHARDED``.
    """

    name: str
    summary: str
    reference: str
    program: Callable[[Training, Options], Program]
    options: tuple[Option, ...] = ()
    warnings: Callable[[Training, Options], tuple[str, ...]] = no_warnings
    choices: Callable[[Options], Mapping[str, tuple[str, Mapping[str, Any]]]] = no_choices
    shards: Callable[[Options], str] = shards_nothing
    problems: Callable[[Training, Options], tuple[Problem, ...]] = no_problems


class Optioned(Protocol):
    """Whatever has a name and options."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def options(self) -> tuple[Option, ...]:
        """Its knobs."""


def flag(name: str, default: bool, summary: str) -> Option:
    """Return an option that is true or false."""

    def check(value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{value!r} is not valid; write true or false")
        return value

    return Option(name, default, summary, check)


def byte_limit(value: Any) -> float:
    """Return bytes of a limit: "25 MiB", or a number of bytes from Python.

    Raises:
        ValueError: neither.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    try:
        return parse_bytes(value)
    except UnitError as error:
        raise ValueError(error.problems[0].message) from None


def element_count(value: Any, *, least: int, most: int) -> int:
    """Return a number of elements, as frameworks' files write it: 500000000, or 5e8.

    Raises:
        ValueError: not a whole number from ``least`` to ``most``.
    """
    whole = as_whole(int(value) if isinstance(value, float) and value.is_integer() else value)
    if whole is None or not least <= whole <= most:
        raise ValueError(f"{show_value(value)} is not a number of elements; write a whole number, such as 5e8")
    return whole
