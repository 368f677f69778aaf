"""What runs are estimated to cost, beside what they took.

    python benchmarks/estimates.py [--most 5]

For each engine some jobs, small and large, on clusters where messages meet and where they do not. Seconds: by rates
alone, with a part of the job timed, and as the run took. Memory: by formula, and the peak that tracemalloc saw (in a
second run, which it slows down). Jobs that are estimated to take more than ``--most`` seconds are left out.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simcollectives.cluster import Change, Cluster, Link, Uplink
from simcollectives.engines import DEFAULT, Conditions, Jitter, Job, TimeModel, make_job, parse_time
from simcollectives.engines.estimate import Estimate, measured, rough
from simcollectives.engines.simulate import simulate_job

INTRA, INTER = Link(alpha=5e-6, bandwidth=450e9, overhead=1e-7), Link(alpha=1e-5, bandwidth=50e9)
JITTER = Conditions(alpha=Jitter("lognormal", 0.2))


@dataclass(frozen=True)
class Case:
    """One run: a job, and how it is evaluated."""

    name: str
    job: Job
    engine: str = "auto"
    timeline: bool = False
    time: TimeModel = DEFAULT
    skipping: bool = True

    def run(self) -> object:
        """Run it."""
        return simulate_job(self.job, self.engine, self.timeline, self.time, skipping=self.skipping)

    def rough(self) -> Estimate:
        """Estimate it by rates."""
        return rough(self.job, self.engine, self.timeline, self.time, self.skipping)

    def measured(self) -> Estimate:
        """Estimate it with a part timed, however short the run is."""
        return measured(self.job, self.rough(), self.timeline, self.time, self.skipping, least_seconds=0.0)


def flat(ranks: int) -> Cluster:
    """Return ranks on one switch."""
    return Cluster.flat(ranks, INTRA)


def one_card(nodes: int) -> Cluster:
    """Return nodes of eight ranks that share a network card."""
    return Cluster.two_level(nodes, 8, INTRA, INTER).with_uplinks(Uplink("nic", "inter", 50e9, devices=8))


def unequal(ranks: int) -> Cluster:
    """Return a flat cluster whose ports all differ."""
    changes = [Change(rank=rank, bandwidth=0.5 + (rank * 37 % 101) / 101) for rank in range(ranks)]
    return flat(ranks).with_changes(*changes)


def all_reduce(algorithm: str, cluster: Cluster, more: int = 0, conditions: Conditions | None = None) -> Job:
    """Return an all-reduce of 4 KiB a rank, and some elements more."""
    size = 4096 * cluster.world_size + 4 * more
    return make_job("all_reduce", algorithm, cluster, size, conditions=conditions or Conditions())


def cases() -> Iterator[Case]:
    """Make all that is measured."""
    for ranks in (16, 128, 512):
        yield Case(f"event ring {ranks}", all_reduce("ring", flat(ranks)), "event")
        yield Case(f"event ring {ranks}, jitter", all_reduce("ring", flat(ranks), conditions=JITTER), "event")
        yield Case(f"event tree {ranks}", all_reduce("tree", flat(ranks)), "event")
    for ranks in (16, 64, 200):
        yield Case(f"event direct {ranks}", all_reduce("direct", flat(ranks)), "event")
    for nodes in (2, 8):
        for algorithm in ("ring", "hierarchical", "direct"):
            cluster = one_card(nodes)
            yield Case(f"event {algorithm} {nodes} x 8", all_reduce(algorithm, cluster), "event")
            job = all_reduce(algorithm, cluster, conditions=JITTER)
            yield Case(f"event {algorithm} {nodes} x 8, jitter", job, "event")
    yield Case("event ring 64, timeline", all_reduce("ring", flat(64)), "event", timeline=True)
    for ranks in (64, 1024, 4096):
        yield Case(f"vectorized ring {ranks}", all_reduce("ring", flat(ranks)))
        yield Case(f"vectorized ring {ranks}, unskipped", all_reduce("ring", flat(ranks)), skipping=False)
        yield Case(f"vectorized ring {ranks}, uneven", all_reduce("ring", flat(ranks), 1))
        yield Case(f"vectorized ring {ranks}, unequal", all_reduce("ring", unequal(ranks)))
        yield Case(f"vectorized rabenseifner {ranks}", all_reduce("rabenseifner", flat(ranks), 1))
    for ranks in (64, 1024):
        job = make_job("all_to_all", "pairwise", flat(ranks), 4096 * ranks)
        yield Case(f"vectorized pairwise {ranks}, unskipped", job, skipping=False)
        yield Case(f"vectorized ring {ranks}, jitter", all_reduce("ring", flat(ranks), conditions=JITTER))
    for ranks in (16, 256):
        for engine in ("lockstep", "closed_form"):
            for algorithm in ("ring", "direct"):
                yield Case(f"{engine} {algorithm} {ranks}", all_reduce(algorithm, flat(ranks)), engine)
    for ranks in (16, 64):
        for model in ("one_port", "loggp"):
            for algorithm in ("ring", "direct", "butterfly"):
                yield Case(f"{model} {algorithm} {ranks}", all_reduce(algorithm, flat(ranks)), time=parse_time(model))


def seconds_of(run: Callable[[], object]) -> float:
    """Time a run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak_bytes(run: Callable[[], object]) -> int:
    """Most memory held at one time beyond what was held before."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=float, default=5.0, metavar="SECONDS")
    most = parser.parse_args().most
    columns = ("rates", "part timed", "run", "formula", "peak")
    print(f"{'':36} {'messages':>11} {'s by':>10} {'s with':>10} {'s of':>10} {'kB by':>10} {'kB at':>10}")
    print(f"{'':36} {'':>11} {columns[0]:>10} {columns[1]:>10} {columns[2]:>10} {columns[3]:>10} {columns[4]:>10}")
    for case in cases():
        case.run() if case.rough().seconds < most / 10 else None  # so that what is made once is not counted
        by_rates, by_part = case.rough(), case.measured()
        if by_part.seconds > most:
            print(f"{case.name:36} {by_rates.messages:>11,} {by_rates.seconds:>10.4f} {by_part.seconds:>10.4f}")
            continue
        took, peak = min(seconds_of(case.run) for _ in range(2)), peak_bytes(case.run)
        seconds = f"{by_rates.seconds:>10.4f} {by_part.seconds:>10.4f} {took:>10.4f}"
        print(
            f"{case.name:36} {by_rates.messages:>11,} {seconds}"
            f" {by_rates.memory_bytes / 1e3:>10,.0f} {peak / 1e3:>10,.0f}"
        )


if __name__ == "__main__":
    main()
