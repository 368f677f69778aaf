"""The table of strategies."""

from collections.abc import Mapping
from typing import Any

from simcollectives.algorithms.types import Option, gather_options
from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.training.strategies import (
    all_reduce_once,
    ddp,
    fsdp1,
    fsdp2,
    hsdp,
    megatron,
    parameter_server,
    zero1,
    zero2,
    zero3,
)
from simcollectives.training.strategies.types import Optioned, Strategy
from simcollectives.units import QUANTITIES

STRATEGIES: tuple[Strategy, ...] = (
    ddp.STRATEGY,
    all_reduce_once.STRATEGY,
    parameter_server.STRATEGY,
    zero1.STRATEGY,
    zero2.STRATEGY,
    zero3.STRATEGY,
    fsdp1.STRATEGY,
    fsdp2.STRATEGY,
    hsdp.STRATEGY,
    megatron.STRATEGY,
)


def find_strategy(name: str) -> Strategy:
    """Look a strategy up by name.

    Raises:
        InputError: there is none of that name; the message names those there are.
    """
    for strategy in STRATEGIES:
        if strategy.name == name:
            return strategy
    remedy = suggestion(name, [strategy.name for strategy in STRATEGIES], "there are")
    raise InputError([Problem("strategy", f"{show_value(name)} is not a strategy; {remedy}")])


def label_of(strategy: Strategy, options: Mapping[str, Any]) -> str:
    """Return the strategy with its options that are not defaults.

    >>> label_of(find_strategy("ddp"), resolve_strategy_options(find_strategy("ddp"), {"bucket_cap": 25e6}))
    'ddp (bucket_cap: 25 MB)'
    """
    shown = []
    for option in strategy.options:
        value = options[option.name]
        if value != option.default:
            shown.append(f"{option.name}: {_value_text(option, value)}")
    return f"{strategy.name} ({', '.join(shown)})" if shown else strategy.name


def _value_text(option: Option, value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_value_text(option, one) for one in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if option.quantity is None else QUANTITIES[option.quantity].format(value)


def resolve_strategy_options(strategy: Optioned, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all options of a strategy: those given, checked, and defaults for the rest.

    Raises:
        InputError: unknown options or wrong values, all at once.
    """
    resolved, problems = gather_options(strategy.name, strategy.options, given)
    if problems:
        raise InputError(problems)
    return resolved
