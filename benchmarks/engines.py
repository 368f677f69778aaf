"""Whether the engines agree, and how fast they are: everything in one run.

    python benchmarks/engines.py [--repeats 5] [--largest 16384]

1. Whole processes, from start to printed result: seconds, those of the processor, and peak memory of `simcollectives
   run` on large clusters.
2. Equality: the vectorized engine against the event engine, bit for bit, over the whole table of algorithms on random
   unequal clusters of private links, flat and of two levels, of 1 to 40 ranks (up to ``--largest``).
3. The vectorized engine: million messages a second inside the engine, imports and printing excluded. "clock" is the
   time alone, "and why" adds the critical path; both play every round. "skipping" cuts a phase short once it repeats.
   "cost" is the time of a message over that of the fastest size.
4. The event engine, as multiples of the barest SimPy ring (benchmarks/event.py).

The best of several runs counts; a short one is repeated for a tenth of a second each time. Inside the engine seconds
are those of the processor, which has one thread to run: on an idle machine there is no difference.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from event import barest_ring, measure_speed

from simcollectives.algorithms import ALGORITHMS, Algorithm, placement_of
from simcollectives.cluster import Change, Cluster, Device, Link
from simcollectives.engines import Job, make_job
from simcollectives.engines.event import event
from simcollectives.engines.vectorized import refusal, vectorized, vectorized_seconds

LINK = Link(alpha=5e-6, bandwidth=450e9, overhead=1e-7)
INTER = Link(alpha=9e-6, bandwidth=50e9, overhead=2e-7)
DEVICE = Device(reduction_seconds_per_byte=1e-12)
GPUS_PER_NODE = 8
RANKS_OF_THE_BAREST = 256
SIZES = (1024, 4096, 16384)
MOST_EQUAL_RANKS = 40
SHORTEST_SECONDS = 0.1

SCENARIO = """\
title: {title}
cluster: {{devices: {devices}, link: {{alpha: 5 us, bandwidth: 450 GB/s}}}}
collective: {{name: all_reduce, algorithms: [{algorithm}], message: 1 GiB}}
skipping: {skipping}
"""
PROCESSES = (
    # Devices, algorithm, whether what repeats is skipped.
    (4096, "ring", False),
    (65536, "ring", True),
    (1048576, "rabenseifner", True),
)
RUN = "from simcollectives.cli import main; main()"


def best(run: Callable[[], object], repeats: int) -> float:
    """Least processor seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        until = time.process_time() + SHORTEST_SECONDS
        while True:
            start = time.process_time()
            run()
            end = time.process_time()
            seconds.append(end - start)
            if end > until:
                break
    return min(seconds)


def measure_process(devices: int, algorithm: str, *, skipping: bool, repeats: int) -> tuple[float, ...]:
    """Return the least seconds, processor seconds and peak MB of whole processes that run one scenario."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        how = {"devices": devices, "algorithm": algorithm, "skipping": str(skipping).lower()}
        file.write_text(SCENARIO.format(title=f"{algorithm} of {devices}", **how))
        command = [sys.executable, "-c", RUN, "run", str(file)]
        measured = [_measure_once(command) for _ in range(repeats)]
    return tuple(min(values) for values in zip(*measured, strict=True))


def _measure_once(command: list[str]) -> tuple[float, float, float]:
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with status {status}")
    # Linux counts in KiB, macOS in bytes.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return seconds, usage.ru_utime + usage.ru_stime, peak / 1e6


def variants() -> Iterator[tuple[Algorithm, dict[str, Any]]]:
    """Every line of the table with every choice of its options."""
    for algorithm in ALGORITHMS:
        names = [option.name for option in algorithm.options]
        choices = [dict.fromkeys([option.default, *option.choices]) for option in algorithm.options]
        for values in itertools.product(*choices):
            yield algorithm, dict(zip(names, values, strict=True))


def unequal(cluster: Cluster, random: np.random.Generator) -> Cluster:
    """Give every rank its own factors on latency, bandwidth and reduction."""
    factors = random.uniform(0.3, 2.0, (cluster.world_size, 3)).tolist()
    return cluster.with_changes(*(Change(rank=i, alpha=a, bandwidth=b, gamma=g) for i, (a, b, g) in enumerate(factors)))


def unequal_clusters(ranks: int, random: np.random.Generator) -> list[Cluster]:
    """One flat cluster, and one of two levels with a random number of nodes and rank order."""
    nodes = int(random.choice([d for d in range(1, ranks + 1) if ranks % d == 0]))
    order = random.permutation(ranks).tolist()
    two = Cluster.two_level(nodes, ranks // nodes, LINK, INTER, rank_order=order, device=DEVICE)
    return [unequal(cluster, random) for cluster in (Cluster.flat(ranks, LINK, device=DEVICE), two)]


def compare_engines(most_ranks: int) -> tuple[int, int, int]:
    """Return the clusters, the lines of the table (options and all) and the runs that were compared and are equal."""
    random = np.random.default_rng(0)
    clusters = [cluster for ranks in range(1, most_ranks + 1) for cluster in unequal_clusters(ranks, random)]
    runs, lines = 0, set()
    for cluster, (algorithm, options) in itertools.product(clusters, variants()):
        if algorithm.accepts(placement_of(cluster), options):
            continue
        message = 4 * int(random.integers(0, 20 * cluster.world_size))
        job = make_job(algorithm.collective, algorithm.name, cluster, message, options)
        if refusal(job):
            continue
        seconds, quick = event(job)[1], vectorized_seconds(job, skip=False)
        if seconds != quick:
            raise AssertionError(
                f"{job.label} on {cluster.world_size} ranks: {seconds!r} s, but {quick!r} s vectorized"
            )
        lines.add((algorithm.collective, job.label))
        runs += 1
    return len(clusters), len(lines), runs


def count_messages(job: Job) -> int:
    """Messages of a schedule of one channel: one for each pair of ranks in a round."""
    total = 0
    for phase in job.schedule.channels[0]:
        if phase.regular is not None:
            total += phase.steps * phase.regular.messages * job.schedule.world_size
        else:
            rounds = (phase.round_at(step) for step in range(phase.steps))
            total += sum(len(np.unique(round_.src * job.schedule.devices + round_.dst)) for round_ in rounds)
    return total


def jobs(ranks: int) -> Iterator[tuple[str, Job]]:
    """What is timed at one world size."""
    random = np.random.default_rng(0)
    flat, even, uneven = Cluster.flat(ranks, LINK), 4096 * ranks, 4096 * ranks + 4
    two = Cluster.two_level(ranks // GPUS_PER_NODE, GPUS_PER_NODE, LINK, INTER)
    unequal_flat, unequal_two = unequal(flat, random), unequal(two, random)
    yield "ring", make_job("all_reduce", "ring", flat, even)
    yield "ring, uneven chunks", make_job("all_reduce", "ring", flat, uneven)
    yield "ring, unequal ports", make_job("all_reduce", "ring", unequal_flat, even)
    yield "rabenseifner", make_job("all_reduce", "rabenseifner", flat, even)
    yield "rabenseifner, uneven chunks", make_job("all_reduce", "rabenseifner", flat, uneven)
    yield "rabenseifner, unequal ports", make_job("all_reduce", "rabenseifner", unequal_flat, even)
    yield "rabenseifner, two levels", make_job("all_reduce", "rabenseifner", two, even)
    yield "butterfly", make_job("all_reduce", "butterfly", flat, even)
    yield "circulant", make_job("all_reduce", "circulant", flat, even)
    yield "tree", make_job("all_reduce", "tree", flat, even)
    yield "hierarchical", make_job("all_reduce", "hierarchical", two, even)
    yield "hierarchical, unequal ports", make_job("all_reduce", "hierarchical", unequal_two, even)
    if ranks <= 4096:
        yield "pairwise", make_job("all_to_all", "pairwise", flat, even)
        yield "pairwise, uneven chunks", make_job("all_to_all", "pairwise", flat, uneven)


def print_processes(repeats: int) -> None:
    """Section 1."""
    print("whole processes, start to printed result")
    for devices, algorithm, skipping in PROCESSES:
        seconds, busy, peak = measure_process(devices, algorithm, skipping=skipping, repeats=repeats)
        how = "" if skipping else ", every round played"
        what = f"{algorithm} of 1 GiB on {devices:,} ranks{how}"
        print(f"  {what:56} {seconds:6.2f} s, {busy:5.2f} s of the processor, {peak:4.0f} MB")


def print_rates(largest: int, repeats: int, barest: float) -> None:
    """Section 3."""
    print("vectorized engine, million messages/s (times the barest SimPy ring); cost of a message to its best")
    print(f"  {'':28} {'ranks':>7} {'clock':>16} {'and why':>16} {'skipping':>18} {'cost':>6}")
    rates: dict[str, dict[int, list[float]]] = {}
    for ranks in (size for size in SIZES if size <= largest):
        for name, found in _rates(ranks, repeats):
            rates.setdefault(name, {})[ranks] = found
    for name, by_size in rates.items():
        fastest = max(found[1] for found in by_size.values())
        for ranks, found in by_size.items():
            cells = [f"{rate / 1e6:,.0f} ({rate / barest:,.0f})" for rate in found]
            cost = fastest / found[1]
            print(f"  {name:28} {ranks:>7,} {cells[0]:>16} {cells[1]:>16} {cells[2]:>18} {cost:>6.1f}")


def _rates(ranks: int, repeats: int) -> Iterator[tuple[str, list[float]]]:
    for name, job in jobs(ranks):
        runs = (
            lambda job=job: vectorized_seconds(job, skip=False),
            lambda job=job: vectorized(job, skip=False),
            lambda job=job: vectorized(job),
        )
        total = count_messages(job)
        yield name, [total / best(run, repeats) for run in runs]


def event_multiples(repeats: int) -> list[tuple[str, float]]:
    """Section 4: each case of benchmarks/event.py, as a multiple of the barest ring beside it."""
    barest, *played = measure_speed(RANKS_OF_THE_BAREST, repeats)
    return [(speed.name, speed.times(barest)) for speed in played]


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=max(SIZES))
    given = parser.parse_args()
    # Measured first, as a child's peak memory begins with what this process held.
    print_processes(given.repeats)
    clusters, lines, runs = compare_engines(max(min(given.largest, MOST_EQUAL_RANKS), 4))
    print(f"\nevent == vectorized: {runs:,} runs on {clusters} clusters, {lines} lines of the table of algorithms\n")
    rounds = 2 * (RANKS_OF_THE_BAREST - 1)
    seconds = best(lambda: barest_ring(RANKS_OF_THE_BAREST, rounds), given.repeats)
    print_rates(given.largest, given.repeats, RANKS_OF_THE_BAREST * rounds / seconds)
    print("\nevent engine, times the barest SimPy ring")
    for name, times in event_multiples(given.repeats):
        print(f"  {name:28} {times:.2f}")


if __name__ == "__main__":
    main()
