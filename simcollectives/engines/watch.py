"""How far a run is: engines tell a watch now and then, and what the watch raises ends the run."""

from collections.abc import Callable, Iterator

from simcollectives.schedule.types import Round

Watch = Callable[[int], None]
"""Called with the number of messages played since it was last called; those on the way back of an engine count, too."""


def watched(rounds: Iterator[Round], watch: Watch | None) -> Iterator[Round]:
    """Return the rounds, after each of which (when the next is asked for) the watch is told of its rows."""
    return rounds if watch is None else _telling(rounds, watch)


def _telling(rounds: Iterator[Round], watch: Watch) -> Iterator[Round]:
    for round_ in rounds:
        yield round_
        watch(len(round_.src))
