"""Which meaning a time has, as a typed choice, and how it is read from plain data.

time: one_port
time: {loggp: {overhead: 1.5 us, gap: 1 us, protocol: rendezvous, threshold: 64 KiB, order: event}}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from simcollectives.cluster.link import is_number
from simcollectives.errors import InputError, Problem, UnitError, show_value, suggestion
from simcollectives.units import parse_bytes, parse_seconds

_LARGEST = 1e18

Protocol = Literal["eager", "rendezvous"]
Order = Literal["program", "event"]
PROTOCOLS: tuple[Protocol, ...] = ("eager", "rendezvous")
ORDERS: tuple[Order, ...] = ("program", "event")


@dataclass(frozen=True)
class Default:
    """Alpha passes with nothing occupied; then flows share ports max-min fairly (README, "what a time means")."""

    name: ClassVar[str] = "default"


@dataclass(frozen=True)
class OnePort:
    """Hockney's asynchronous model: a message occupies a send and a receive port for alpha + overhead + n / B."""

    name: ClassVar[str] = "one_port"


@dataclass(frozen=True)
class LogGP:
    """LogGP as LogGOPSim plays it: L and G are the link's alpha and 1 / bandwidth.

    ``overhead`` (o, seconds of CPU at each end of a message) is the link's own overhead where it is None; ``gap`` (g,
    seconds) is the least time between the starts of two messages on one port, beside their bytes. Under ``rendezvous``
    a message of more than ``threshold`` bytes starts only when its receive is posted too. ``order`` is what a rank may
    do next: ``program`` (a round when the one before is over) or ``event`` (whatever has its data).

    Raises:
        InputError: a time or the threshold is negative or not finite, or a word is not known; all at once.
    """

    name: ClassVar[str] = "loggp"
    overhead: float | None = None
    gap: float = 0.0
    protocol: Protocol = "eager"
    threshold: float = 0.0
    order: Order = "program"

    def __post_init__(self) -> None:
        """Check the values."""
        quantities = {"overhead": self.overhead, "gap": self.gap, "threshold": self.threshold}
        problems = [
            Problem(name, f"{show_value(value)} is not valid; it must be 0 or more, at most {_LARGEST:.0e}")
            for name, value in quantities.items()
            if not (value is None and name == "overhead") and not _is_quantity(value)
        ]
        for name, word, words in (("protocol", self.protocol, PROTOCOLS), ("order", self.order, ORDERS)):
            if word not in words:
                remedy = suggestion(word, words, "write one of")
                problems.append(Problem(name, f"{show_value(word)} is not a choice; {remedy}"))
        if problems:
            raise InputError(problems)

    def is_rendezvous(self, message_bytes: float) -> bool:
        """Whether a message waits for its receive before it starts."""
        return self.protocol == "rendezvous" and message_bytes > self.threshold


TimeModel = Default | OnePort | LogGP
DEFAULT = Default()
TIMES: Mapping[str, type[TimeModel]] = {model.name: model for model in (Default, OnePort, LogGP)}

_EXAMPLE = "time: {loggp: {overhead: 1.5 us}}"


def parse_time(value: object, place: str = "$.time") -> TimeModel:
    """Read a time model: a name, or {loggp: {parameter: value}}. A model is returned as it is.

    Raises:
        InputError: an unknown name, parameter or word, or a quantity without its unit; all problems at once.

    >>> parse_time("one_port"), parse_time({"loggp": {"gap": "1 us", "order": "event"}})
    (OnePort(), LogGP(overhead=None, gap=1e-06, protocol='eager', threshold=0.0, order='event'))
    >>> parse_time("onport")
    Traceback (most recent call last):
    simcollectives.errors.InputError: $.time: "onport" is not a time model; did you mean "one_port"?
    """
    if isinstance(value, Default | OnePort | LogGP):
        return value
    name: object = value
    given: object = {}
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, given),) = value.items()
    if not isinstance(name, str) or name not in TIMES:
        remedy = suggestion(name, list(TIMES), "write one of")
        raise InputError([Problem(place, f"{show_value(name)} is not a time model; {remedy}")])
    reader = _Reader(f"{place}.{name}")
    parameters = reader.parameters({} if given is None else given, _LOGGP if name == LogGP.name else {})
    if reader.problems:
        raise InputError(reader.problems)
    return TIMES[name](**parameters)


def _word(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise InputError(f"{show_value(value)} is not a choice; {suggestion(value, words, 'write one of')}")
        return value

    return read


_LOGGP: Mapping[str, Callable[[object], Any]] = {
    "overhead": parse_seconds,
    "gap": parse_seconds,
    "protocol": _word(*PROTOCOLS),
    "threshold": parse_bytes,
    "order": _word(*ORDERS),
}


@dataclass
class _Reader:
    """The problems found so far below one place."""

    place: str
    problems: list[Problem] = field(default_factory=list)

    def parameters(self, given: object, known: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            rule = f"are not parameters; write {_EXAMPLE}" if known else "are not parameters; it has none"
            self.problems.append(Problem(self.place, f"{show_value(given)} {rule}"))
            return {}
        read = {}
        for key, value in given.items():
            place = f"{self.place}.{key}"
            if key not in known:
                remedy = suggestion(key, list(known), "write one of") if known else "it has none"
                self.problems.append(Problem(place, f"{show_value(key)} is not a parameter; {remedy}"))
                continue
            try:
                read[key] = known[key](value)
            except (InputError, UnitError) as error:
                self.problems += [Problem(place, problem.message) for problem in error.problems]
        return read


def _is_quantity(value: Any) -> bool:
    return is_number(value) and 0 <= value <= _LARGEST
