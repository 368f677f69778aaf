"""Numbers of a measured step as they are given: what each may be, and what they say of each other."""

from collections.abc import Callable, Mapping

from simcollectives.scenario.keys import ANY_BYTES, ANY_SECONDS, NUMBER, RATIO
from simcollectives.scenario.training.keys import MEASURED_METRICS
from simcollectives.units import format_ratio, format_seconds

Note = Callable[[str, str], None]

_ROUNDING = 0.02
"""Numbers written by hand are rounded: so much of the whole they may be off."""

_RANGES = {
    ANY_SECONDS.name: (1e-12, 1e6),
    ANY_BYTES.name: (1.0, 1e18),
    RATIO.name: (1e-6, 1.0),
    NUMBER.name: (1e-6, 1e18),
}
"""What may be measured of each kind where it is not 0. All ratios are parts of a whole."""

_ABOVE_ZERO = ("step_seconds", "peak_bytes", "tokens_per_second")

_WHOLES = {
    "compute": ("step",),
    "communication": ("step",),
    "exposed": ("step", "communication"),
    "waiting": ("step", "exposed"),
    "idle": ("step",),
}
"""What each time is a part of."""

_SUMMANDS = ("compute", "exposed", "idle")


def check_numbers(given: Mapping[str, float], note: Note) -> None:
    """Note, by metric and message, numbers that no step has, and those that cannot be of one step."""
    wrong = {name: reason for name, value in given.items() if (reason := _unlikely(name, value))}
    for name, reason in wrong.items():
        note(name, reason)
    sound = {name: value for name, value in given.items() if name not in wrong}
    seconds = {name.removesuffix("_seconds"): value for name, value in sound.items() if name.endswith("_seconds")}
    if not _check_parts(seconds, note):
        _check_sum(seconds, note)
        _check_shares(sound, seconds, note)


def _unlikely(name: str, value: float) -> str:
    """Why nobody measured this, or nothing."""
    if value == 0:
        return "0 leaves no relative error; write what was measured, or leave it out" if name in _ABOVE_ZERO else ""
    kind = MEASURED_METRICS[name]
    low, high = _RANGES[kind.name]
    if low <= value <= high:
        return ""
    zero = "" if name in _ABOVE_ZERO else ", or 0"
    limits = f"{kind.format(low, 3)} to {kind.format(high, 3)}"
    return f"{kind.format(value, 6)} is not from {limits}{zero}; write what was measured"


def _check_parts(seconds: Mapping[str, float], note: Note) -> bool:
    """Note parts that are more than what they are a part of; returns whether there are any."""
    found = False
    for part, wholes in _WHOLES.items():
        most = min((seconds[whole] for whole in wholes if whole in seconds), default=None)
        if most is not None and part in seconds and seconds[part] > most * (1 + _ROUNDING):
            rule = f"{format_seconds(seconds[part])} are more than the {format_seconds(most)} that they are a part of"
            note(f"{part}_seconds", f"{rule}; step = compute + exposed + idle")
            found = True
    return found


def _check_sum(seconds: Mapping[str, float], note: Note) -> None:
    known = {name: seconds[name] for name in _SUMMANDS if name in seconds}
    whole = seconds.get("step")
    if whole is None or not known:
        return
    total = sum(known.values())
    words = f"{' + '.join(known)} are {' + '.join(map(format_seconds, known.values()))} = {format_seconds(total)}"
    if total > whole * (1 + _ROUNDING):
        note("step_seconds", f"{words}, the step {format_seconds(whole)}; step = compute + exposed + idle")
    elif len(known) == len(_SUMMANDS) and total < whole * (1 - _ROUNDING):
        remedy = "they must be the same: leave idle_seconds out if it is not known"
        note("step_seconds", f"{words}, the step {format_seconds(whole)}; {remedy}")


def _check_shares(given: Mapping[str, float], seconds: Mapping[str, float], note: Note) -> None:
    """Note shares that are not those of the times beside them."""
    for name, part, whole, words in (
        ("efficiency", "compute", "step", "compute over step"),
        ("overlap", "exposed", "communication", "1 less exposed over communication"),
    ):
        if name not in given or part not in seconds or not seconds.get(whole):
            continue
        share = seconds[part] / seconds[whole]
        share = 1 - share if name == "overlap" else share
        if abs(share - given[name]) > _ROUNDING:
            rule = f"{format_ratio(given[name], 3)}, and the times say {format_ratio(share, 3)}, {words}"
            note(name, f"{rule}; leave one of them out")
