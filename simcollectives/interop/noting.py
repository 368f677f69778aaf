"""Sorting what a config says: options of the strategy, values that change no step, and what is not modelled."""

from collections.abc import Mapping, Sequence
from typing import Any

from simcollectives.interop.settings import Findings, Key, ScenarioPath, Setting, Unmodelled
from simcollectives.training.strategies.table import STRATEGIES

STRATEGY: ScenarioPath = ("training", "strategy")


def options_of(strategy: str) -> frozenset[str]:
    """Return the names of a strategy's options; none where there is no such strategy."""
    return frozenset(option.name for one in STRATEGIES if one.name == strategy for option in one.options)


def note_values(
    found: Findings,
    values: Mapping[str, tuple[Any, str]],
    known: Sequence[Key],
    strategy: str = "",
    *,
    level: int = 0,
    prefix: str = "",
    default: str,
) -> None:
    """Note values with their origins: as an option of the strategy where it is one, else as not modelled where needed.

    ``level`` is the ZeRO stage or the version of FSDP, ``default`` the origin of what the config leaves out.
    """
    options = options_of(strategy)
    by_name = {key.name: key for key in known}
    for name, (value, origin) in values.items():
        key = by_name[name]
        full = f"{prefix}{name}"
        counts = level in key.stages
        written = key.written.get(value, value) if isinstance(value, str | bool | None) else value
        if counts and key.option in options and written is not None:
            found.settings.append(Setting(full, written, origin or default, (*STRATEGY, strategy, key.option)))
        elif counts and value != key.default:
            reason = key.why or f"{strategy} has no option for it"
            found.unmodelled.append(Unmodelled(full, value, reason))
        elif key.why and not key.stages and value != key.default:
            found.unmodelled.append(Unmodelled(full, value, key.why))
        elif origin or counts:
            note = "" if not key.stages or counts else f"no consequence for {strategy or 'this strategy'}"
            found.settings.append(Setting(full, value, origin or default, (), note))
