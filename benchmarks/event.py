"""Speed and memory of the event engine against the barest SimPy ring, measured in one run.

    python benchmarks/event.py [--ranks 256] [--repeats 5]

The barest ring: one process and one Store a rank; a message is one timeout, one put and one get. The engine plays, with
a byte count, ports and a critical path for each message:

- private resources: a ring all-reduce of as many messages, none of which meets another;
- symmetric sharing: a ring over 8 nodes of 8 GPUs with one network card a node, neighbours on different nodes, so that
  eight equal messages share each card;
- random capacities: hierarchical all-reduces on the same nodes, where every port and card has between a fifth and all
  of its bandwidth in each direction, so that hardly any two messages start or end together.

Runs alternate, and the best of each counts. Imports, printing and the making of the question are not timed.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
import simpy

from simcollectives.cluster import Cluster, Link, Uplink
from simcollectives.engines import Job, make_job
from simcollectives.engines.event import event
from simcollectives.schedule import Phase

LINK = Link(alpha=5e-6, bandwidth=450e9)
MESSAGE_BYTES_A_RANK = 4096
NODES, GPUS_PER_NODE = 8, 8
INTRA, INTER = Link(alpha=2e-6, bandwidth=450e9), Link(alpha=5e-6, bandwidth=50e9)
SHARED_MESSAGE_BYTES = 4 << 20
LEAST_FACTOR = 0.2
RANDOM_JOBS = 4


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


def one_card_a_node(rank_order: str = "node_major") -> Cluster:
    """Return nodes whose devices share one network card, as fast as the port of one."""
    cluster = Cluster.two_level(NODES, GPUS_PER_NODE, INTRA, INTER, rank_order=rank_order)
    return cluster.with_uplinks(Uplink("nic", "inter", INTER.bandwidth, devices=GPUS_PER_NODE))


def sharing_job() -> Job:
    """Return a ring in which each of a node's messages crosses its card, with all others."""
    return make_job("all_reduce", "ring", one_card_a_node("round_robin"), SHARED_MESSAGE_BYTES)


def random_job(seed: int) -> Job:
    """Return a hierarchical all-reduce where the capacity of every port and card is drawn."""
    cluster = one_card_a_node()
    network = cluster.network
    factor = np.random.default_rng(seed).uniform(LEAST_FACTOR, 1.0, len(network.capacity))
    network.capacity = network.capacity * factor
    return make_job("all_reduce", "hierarchical", cluster, SHARED_MESSAGE_BYTES)


def shortened(job: Job, rounds: int) -> Job:
    """Return the same question with its first phase alone, ``rounds`` rounds of it, over and over if need be."""
    phase = job.schedule.channels[0][0]
    again = Phase(rounds, lambda step: phase.round_at(step % phase.steps))
    return replace(job, schedule=replace(job.schedule, channels=((again,),)))


@dataclass(frozen=True)
class Speed:
    """Messages of one play, the best seconds that it took, and the seconds that were simulated, in all its jobs."""

    name: str
    messages: int
    wall_seconds: float
    simulated_seconds: float

    @property
    def messages_per_second(self) -> float:
        """Messages played in a second."""
        return self.messages / self.wall_seconds

    def times(self, other: Speed) -> float:
        """How many times as fast as another."""
        return self.messages_per_second / other.messages_per_second


def measure_speed(ranks: int, repeats: int) -> tuple[Speed, ...]:
    """Time the barest ring, private resources, symmetric sharing and random capacities in turn, ``repeats`` times."""
    private, sharing = ring_job(ranks), sharing_job()
    drawn = [random_job(seed) for seed in range(RANDOM_JOBS)]
    plays: dict[str, tuple[int, Callable[[], float]]] = {
        "barest SimPy ring": (messages(private), lambda: barest_ring(ranks, private.schedule.rounds)),
        "private resources": (messages(private), lambda: event(private)[1]),
        "symmetric sharing": (messages(sharing), lambda: event(sharing)[1]),
        "random capacities": (sum(map(messages, drawn)), lambda: sum(event(job)[1] for job in drawn)),
    }
    best = dict.fromkeys(plays, float("inf"))
    simulated: dict[str, float] = {}
    for _ in range(repeats):
        for name, (_count, play) in plays.items():
            gc.collect()
            start = time.perf_counter()
            simulated[name] = play()
            best[name] = min(best[name], time.perf_counter() - start)
    return tuple(Speed(name, count, best[name], simulated[name]) for name, (count, _play) in plays.items())


def messages(job: Job) -> int:
    """Count the messages of a schedule of one channel whose rounds have one row a message."""
    return sum(len(round_.src) for round_ in job.schedule.rounds_of(0))


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    barest, *played = measure_speed(arguments.ranks, arguments.repeats)
    print(f"messages a second, best of {arguments.repeats}; the first two rings have {arguments.ranks} ranks")
    print(f"  {'':20} {'messages':>10} {'messages/s':>12} {'times the barest':>18}")
    for speed in (barest, *played):
        rate = f"{speed.messages_per_second:>12,.0f}"
        print(f"  {speed.name:20} {speed.messages:>10,} {rate} {speed.times(barest):>18.2f}")
    print()
    print("peak memory of the event engine")
    print(f"  {'ranks':>8} {'rounds':>8} {'messages':>10} {'KiB':>8} {'B/rank':>8}")
    for point in measure_memory((256, 512, 1024, 2048), (16, 32, 64, 128, 256)):
        kib, per_rank = point.peak_bytes / 1024, point.peak_bytes / point.ranks
        print(f"  {point.ranks:>8,} {point.rounds:>8,} {point.messages:>10,} {kib:>8,.0f} {per_rank:>8,.0f}")


if __name__ == "__main__":
    main()
