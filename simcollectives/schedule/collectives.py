"""Each collective as a pre- and a postcondition on (rank, chunk): who must hold what before, and after.

Contributions are counted: a chunk that a rank holds is a vector with one entry a rank, the number of times that rank's
data went into the sum. An algorithm is correct when its rounds take ``before`` to ``after``.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simcollectives.errors import AlgorithmError, show_value, suggestion
from simcollectives.schedule.types import Schedule

Held = npt.NDArray[np.bool_]
"""[rank, chunk]: whether the rank holds the chunk."""


@dataclass(frozen=True)
class Collective:
    """A collective operation.

    ``before(schedule)`` and ``after(schedule)`` say which (rank, chunk) pairs must hold data. ``reduces`` tells whether
    the chunks at the end hold the sum over all ranks, or the data of the chunk's one origin.
    """

    name: str
    summary: str
    reduces: bool
    rooted: bool
    before: Callable[[Schedule], Held]
    after: Callable[[Schedule], Held]

    def contributors(self, schedule: Schedule, chunk: int) -> list[int]:
        """Ranks whose data must be in ``chunk`` at the end, each once."""
        if self.reduces:
            return list(range(schedule.world_size))
        if self.rooted:
            return [schedule.root]
        return [chunk * schedule.world_size // schedule.chunks]


def _everywhere(schedule: Schedule) -> Held:
    return np.ones((schedule.world_size, schedule.chunks), dtype=np.bool_)


def _own_part(schedule: Schedule) -> Held:
    """Rank i holds the i-th of ``world_size`` equal runs of chunks."""
    owner = np.arange(schedule.chunks) * schedule.world_size // schedule.chunks
    held: Held = owner[None, :] == np.arange(schedule.world_size)[:, None]
    return held


def _root_only(schedule: Schedule) -> Held:
    held = np.zeros((schedule.world_size, schedule.chunks), dtype=np.bool_)
    held[schedule.root] = True
    return held


def _addressed(schedule: Schedule) -> Held:
    """All-to-all: chunk ``origin * world_size + destination`` ends at its destination."""
    destination = np.arange(schedule.chunks) % schedule.world_size
    held: Held = destination[None, :] == np.arange(schedule.world_size)[:, None]
    return held


COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (
        Collective("all_reduce", "every rank ends with the sum", True, False, _everywhere, _everywhere),
        Collective("reduce_scatter", "rank i ends with part i of the sum", True, False, _everywhere, _own_part),
        Collective("all_gather", "every rank ends with every rank's part", False, False, _own_part, _everywhere),
        Collective("all_to_all", "rank j ends with part j of every rank", False, False, _own_part, _addressed),
        Collective("broadcast", "every rank ends with the root's data", False, True, _root_only, _everywhere),
        Collective("reduce", "the root ends with the sum", True, True, _everywhere, _root_only),
    )
}


def find_collective(name: object) -> Collective:
    """Look a collective up by name.

    Raises:
        AlgorithmError: there is no such collective; the message names the known ones.
    """
    if not isinstance(name, str) or name not in COLLECTIVES:
        raise AlgorithmError(f"{show_value(name)} is not a collective; {suggestion(name, list(COLLECTIVES))}")
    return COLLECTIVES[name]
