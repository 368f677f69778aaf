"""How far a scenario is, by the seconds that its runs were estimated to take."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simcollectives.scenario.planning import Plan


@dataclass(frozen=True)
class Standing:
    """Rows, checks and timelines ``done`` of ``total``; and estimated ``seconds_done`` of ``seconds``.

    The seconds grow inside a long run, too. They say how much is done, not how long it took.
    """

    done: int
    total: int
    seconds_done: float
    seconds: float


Progress = Callable[[Standing], None]

_LEAST_SECONDS = 1e-3
"""What has no cost is something to do all the same."""


class Tally:
    """Follows a run through items that cost so many seconds each, and tells after each how far it is."""

    def __init__(self, costs: Iterable[float], tell: Progress) -> None:
        self._tell = tell
        self._costs = [max(cost, _LEAST_SECONDS) for cost in costs]
        self._total = sum(self._costs)
        self._done, self._seconds = 0, 0.0

    def finish_item(self) -> None:
        """Note that a row, a check or a timeline is finished."""
        self._seconds += self._costs[self._done]
        self._done += 1
        self._tell(Standing(self._done, len(self._costs), min(self._seconds, self._total), self._total))


class Tracker(Tally):
    """Follows a run through its plan, also inside an item."""

    def __init__(self, plan: Plan, tell: Progress) -> None:
        super().__init__((sum(run.seconds for run in item) for item in plan.items), tell)
        # Executing on arrays comes after the run of a row, and is not watched.
        self._watched = [sum(run.times * run.estimate.seconds for run in item) for item in plan.items]
        self._to_play = [sum(run.times * run.estimate.played for run in item) for item in plan.items]
        self._played = 0

    def watch(self, messages: int) -> None:
        """Note that an engine has played some messages of the item in hand."""
        self._played += messages
        expected = self._to_play[self._done] if self._done < len(self._to_play) else 0
        share = min(self._played / expected, 1.0) if expected else 0.0
        inside = share * self._watched[self._done] if expected else 0.0
        self._tell(Standing(self._done, len(self._costs), self._seconds + inside, self._total))

    def finish_item(self) -> None:
        """Note that a row, a check or a timeline is finished."""
        self._played = 0
        super().finish_item()
