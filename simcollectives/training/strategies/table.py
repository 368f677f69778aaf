"""The table of strategies."""

import difflib
from collections.abc import Mapping
from typing import Any

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.strategies import all_reduce_once, ddp, parameter_server
from simcollectives.training.strategies.types import Strategy

STRATEGIES: tuple[Strategy, ...] = (
    ddp.STRATEGY,
    all_reduce_once.STRATEGY,
    parameter_server.STRATEGY,
)


def find_strategy(name: str) -> Strategy:
    """Look a strategy up by name.

    Raises:
        InputError: there is none of that name; the message names those there are.
    """
    known = {strategy.name: strategy for strategy in STRATEGIES}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    rule = f"{show_value(name)} is not a strategy; {hint}there are: {', '.join(known)}"
    raise InputError([Problem("strategy", rule)])


def resolve_strategy_options(strategy: Strategy, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return all options of a strategy: those given, checked, and defaults for the rest.

    Raises:
        InputError: unknown options or wrong values, all at once.
    """
    known = {option.name: option for option in strategy.options}
    resolved = {name: option.default for name, option in known.items()}
    problems = []
    for name, value in (given or {}).items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            has = f"it has: {', '.join(known)}" if known else "it has none"
            problems.append(Problem(str(name), f"{strategy.name} has no option {show_value(name)}; {hint}{has}"))
            continue
        try:
            resolved[name] = known[name].check(value)
        except ValueError as error:
            problems.append(Problem(str(name), f"{strategy.name}: {error}"))
    if problems:
        raise InputError(problems)
    return resolved
