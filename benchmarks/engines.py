"""Speed of the vectorized engine, and of the event engine beside the barest SimPy ring, measured in one run.

    python benchmarks/engines.py [--repeats 5] [--largest 4096]

Messages a second inside the engine, imports and printing excluded, the best of several runs. "clock" is the time alone;
"and why" adds the walk back along the critical path. "skipping off" plays every round; "on" cuts a phase short once it
repeats. Ratios are to the barest SimPy ring of benchmarks/event.py in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from event import barest_ring, ring_job

from simcollectives.cluster import Change, Cluster, Link
from simcollectives.engines import Job, make_job
from simcollectives.engines.event import event
from simcollectives.engines.vectorized import vectorized, vectorized_seconds

LINK = Link(alpha=5e-6, bandwidth=450e9, overhead=1e-7)
RANKS_OF_THE_BAREST = 256


def best(run: Callable[[], object], repeats: int) -> float:
    """Least seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def messages(job: Job) -> int:
    """Count the messages of a schedule whose rounds have one row a message."""
    return sum(len(round_.src) for round_ in job.schedule.rounds_of(0))


def unequal(ranks: int) -> Cluster:
    """Return a flat cluster whose ports all differ."""
    changes = [Change(rank=rank, bandwidth=0.5 + (rank * 37 % 101) / 101) for rank in range(ranks)]
    return Cluster.flat(ranks, LINK).with_changes(*changes)


def jobs(ranks: int) -> list[tuple[str, Job]]:
    """Return what is timed at one world size."""
    flat, even = Cluster.flat(ranks, LINK), 4096 * ranks
    made = [
        ("ring, even chunks", make_job("all_reduce", "ring", flat, even)),
        ("ring, uneven chunks", make_job("all_reduce", "ring", flat, even + 4)),
        ("ring, unequal ports", make_job("all_reduce", "ring", unequal(ranks), even)),
        ("rabenseifner", make_job("all_reduce", "rabenseifner", flat, even)),
        ("butterfly", make_job("all_reduce", "butterfly", flat, even)),
    ]
    if ranks <= 1024:
        made.append(("pairwise", make_job("all_to_all", "pairwise", flat, even)))
    return made


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=4096)
    given = parser.parse_args()
    n = RANKS_OF_THE_BAREST
    count = n * 2 * (n - 1)
    barest = count / best(lambda: barest_ring(n, 2 * (n - 1)), given.repeats)
    played = count / best(lambda: event(ring_job(n)), given.repeats)
    print(f"barest SimPy ring, {n} ranks: {barest:,.0f} messages/s; event engine: {played / barest:.2f} times that\n")
    print("vectorized engine, million messages/s (times the barest SimPy ring)")
    print(f"{'':22} {'ranks':>7} {'clock, off':>18} {'and why, off':>18} {'and why, on':>18}")
    for ranks in (size for size in (1024, 4096, 16384) if size <= given.largest):
        for name, job in jobs(ranks):
            total = messages(job)
            rates = [
                total / best(run, given.repeats)
                for run in (
                    lambda job=job: vectorized_seconds(job, skip=False),
                    lambda job=job: vectorized(job, skip=False),
                    lambda job=job: vectorized(job),
                )
            ]
            cells = " ".join(f"{f'{rate / 1e6:,.0f} ({rate / barest:,.0f})':>18}" for rate in rates)
            print(f"{name:22} {ranks:>7,} {cells}")


if __name__ == "__main__":
    main()
