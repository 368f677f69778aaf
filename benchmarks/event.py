"""Speed and memory of the event engine against the barest SimPy ring, measured in one run.

    python benchmarks/event.py [--ranks 256] [--repeats 5]

The barest ring: one process and one Store a rank; a message is one timeout, one put and one get. The engine plays a
ring all-reduce of as many messages, with a byte count, ports and a critical path for each. Runs alternate, and the best
of each counts. Imports, printing and the making of the question are not timed.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import simpy

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import Job, make_job
from simcollectives.engines.event import event
from simcollectives.schedule import Phase

LINK = Link(alpha=5e-6, bandwidth=450e9)
MESSAGE_BYTES_A_RANK = 4096


def barest_ring(ranks: int, rounds: int) -> float:
    """Play the ring with SimPy alone; return the simulated seconds."""
    env = simpy.Environment()
    stores = [simpy.Store(env) for _ in range(ranks)]
    seconds = LINK.alpha + MESSAGE_BYTES_A_RANK / LINK.bandwidth

    def rank(i: int) -> Generator[simpy.Event, object, None]:
        mine, following = stores[i], stores[(i + 1) % ranks]
        for number in range(rounds):
            yield env.timeout(seconds)
            yield following.put(number)
            yield mine.get()

    for i in range(ranks):
        env.process(rank(i))
    env.run()
    return float(env.now)


def ring_job(ranks: int) -> Job:
    """Return a ring all-reduce with 4 KiB chunks: 2 (ranks - 1) rounds of ``ranks`` messages."""
    return make_job("all_reduce", "ring", Cluster.flat(ranks, LINK), MESSAGE_BYTES_A_RANK * ranks)


def shortened(job: Job, rounds: int) -> Job:
    """Return the same question with its first phase alone, ``rounds`` rounds of it, over and over if need be."""
    phase = job.schedule.channels[0][0]
    again = Phase(rounds, lambda step: phase.round_at(step % phase.steps))
    return replace(job, schedule=replace(job.schedule, channels=((again,),)))


@dataclass(frozen=True)
class Speed:
    """Best messages a second of both, and that they played the same."""

    messages: int
    barest: float
    engine: float
    barest_seconds: float
    engine_seconds: float

    @property
    def ratio(self) -> float:
        """Engine over barest ring."""
        return self.engine / self.barest


def measure_speed(ranks: int, repeats: int) -> Speed:
    """Time both in turn, ``repeats`` times each."""
    job = ring_job(ranks)
    rounds = job.schedule.rounds
    messages = ranks * rounds
    simulated: dict[str, float] = {}
    best = {"barest": float("inf"), "engine": float("inf")}
    runs: dict[str, Callable[[], float]] = {
        "barest": lambda: barest_ring(ranks, rounds),
        "engine": lambda: event(job)[1],
    }
    for _ in range(repeats):
        for name, run in runs.items():
            gc.collect()
            start = time.perf_counter()
            simulated[name] = run()
            best[name] = min(best[name], time.perf_counter() - start)
    return Speed(
        messages, messages / best["barest"], messages / best["engine"], simulated["barest"], simulated["engine"]
    )


def peak_bytes(job: Job) -> int:
    """Most memory that the engine holds at one time beyond what was held before."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    event(job)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


@dataclass(frozen=True)
class Memory:
    """Peak memory of one play."""

    ranks: int
    rounds: int
    peak_bytes: int

    @property
    def messages(self) -> int:
        """Messages played."""
        return self.ranks * self.rounds


def measure_memory(ranks: tuple[int, ...], rounds: tuple[int, ...]) -> list[Memory]:
    """Grow the ranks at the fewest rounds, then the rounds at the fewest ranks."""
    event(shortened(ring_job(4), 4))  # so that what is allocated once is not counted
    points = [(n, rounds[0]) for n in ranks] + [(ranks[0], r) for r in rounds[1:]]
    return [Memory(n, r, peak_bytes(shortened(ring_job(n), r))) for n, r in points]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    speed = measure_speed(arguments.ranks, arguments.repeats)
    print(f"ring of {arguments.ranks} ranks, {speed.messages:,} messages, best of {arguments.repeats}")
    print(f"  barest SimPy ring   {speed.barest:>12,.0f} messages/s")
    print(f"  event engine        {speed.engine:>12,.0f} messages/s")
    print(f"  ratio               {speed.ratio:>12.2f}")
    print()
    print("peak memory of the event engine")
    print(f"  {'ranks':>8} {'rounds':>8} {'messages':>10} {'KiB':>8} {'B/rank':>8}")
    for point in measure_memory((256, 512, 1024, 2048), (16, 32, 64, 128, 256)):
        kib, per_rank = point.peak_bytes / 1024, point.peak_bytes / point.ranks
        print(f"  {point.ranks:>8,} {point.rounds:>8,} {point.messages:>10,} {kib:>8,.0f} {per_rank:>8,.0f}")


if __name__ == "__main__":
    main()
