"""The trace of CMU 15-779, lecture 12: which ranks' contributions each chunk holds after each round."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from simcollectives.cluster.types import Cluster
from simcollectives.engines.conditions import IDEAL
from simcollectives.engines.data import Array, State, play
from simcollectives.engines.job import Job, check_parts, make_job
from simcollectives.errors import InputError, Problem
from simcollectives.schedule.collectives import COLLECTIVES

MAX_RANKS = 16
MAX_CELLS = 200_000
_LISTED_RANKS = 4


def counted(job: Job) -> list[State]:
    """Play the schedule on counts: [round][device][chunk] is a vector, how often each rank's data went in.

    Entry 0 is the state before the first round.
    """
    n = job.schedule.world_size
    before = COLLECTIVES[job.schedule.collective].before(job.schedule)
    state: State = [{} for _ in range(job.schedule.devices)]
    for rank in range(n):
        one: Array = (np.arange(n) == rank).astype(np.int64)
        state[rank] = dict.fromkeys(np.flatnonzero(before[rank]).tolist(), one)
    states = [[dict(held) for held in state]]
    play(job, state, lambda _number, now: states.append([dict(held) for held in now]))
    return states


def traceable(collective: str, algorithm: str, cluster: Cluster, options: Mapping[str, Any] | None = None) -> Job:
    """Return the job whose trace can be printed.

    Raises:
        InputError: more than 16 ranks, or than 200,000 cells; see also ``make_job``.
    """
    check_parts(cluster, IDEAL)
    n = cluster.world_size
    if n > MAX_RANKS:
        rule = f"{n} ranks are too many to print, at most {MAX_RANKS}"
        raise InputError([Problem("contributions", f"{rule}; take a smaller cluster")])
    job = make_job(collective, algorithm, cluster, n * 1024, options, "int8")
    held = job.schedule.devices * job.schedule.chunks * (job.schedule.rounds + 1)
    if held > MAX_CELLS:
        rule = f"{held:,} cells are too many to print, at most {MAX_CELLS:,}"
        raise InputError([Problem("contributions", f"{rule}; take fewer servers or ranks")])
    return job


def contributions(collective: str, algorithm: str, cluster: Cluster, options: Mapping[str, Any] | None = None) -> str:
    """Return the trace as text: a table of devices by chunks before the first and after every round.

    A cell lists the ranks whose data the chunk holds ("0+1+2"; "2x1" where rank 1 was added twice), "all" where all of
    more than four are in it once, and "-" where the device has no such chunk.

    Raises:
        InputError: more than 16 ranks, or than 200,000 cells; see also ``make_job``.
    """
    job = traceable(collective, algorithm, cluster, options)
    n = cluster.world_size
    states = counted(job)
    cells = [[[_cell(held.get(c)) for c in range(job.schedule.chunks)] for held in state] for state in states]
    width = max(len(cell) for state in cells for row in state for cell in row)
    width = max(width, len(f"chunk {job.schedule.chunks - 1}"))
    header = "  ".join(f"chunk {c}".ljust(width) for c in range(job.schedule.chunks))
    lines = [f"{job.label} {collective}, {n} ranks"]
    for number, state in enumerate(cells):
        lines += ["", "before" if number == 0 else f"after round {number}", f"           {header}".rstrip()]
        for device, row in enumerate(state):
            name = f"rank {device}" if device < n else f"server {device - n}"
            lines.append(f"{name:<9}  {'  '.join(cell.ljust(width) for cell in row)}".rstrip())
    return "\n".join(lines)


def _cell(counts: Array | None) -> str:
    if counts is None:
        return "-"
    if len(counts) > _LISTED_RANKS and np.all(counts == 1):
        return "all"
    return "+".join(str(r) if counts[r] == 1 else f"{counts[r]}x{r}" for r in np.flatnonzero(counts).tolist())
