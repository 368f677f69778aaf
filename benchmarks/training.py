"""Speed of training steps: of one large model on many GPUs, a sweep over bucket sizes, FSDP, and every rank played.

    python benchmarks/training.py [--model llama-3-70b] [--nodes 128] [--points 50] [--repeats 5]
                                  [--sharded llama-3.1-405b] [--sharded-nodes 2048] [--jittered-nodes 64]

Seconds inside the simulator, imports and the model's loading excluded, the best of several runs. "program" writes the
operations of a rank, "play" puts them on streams, "prices" are those of all collectives, asked for the first time. The
ratio is to as many timeouts of SimPy, one after another, in the same run. Nodes have eight GPUs; all-reduces go in two
steps. Bucket sizes of the sweep go from 1 MiB to 1 GiB, even on a logarithmic scale. Last come a step of FSDP2, prices
included, and one in which every rank is played, its kernels with a jitter of 1 % (a step before it, too, since ranks do
not begin together).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import simpy

from simcollectives.cluster import Cluster
from simcollectives.engines.conditions import Jitter
from simcollectives.training import Workload, load_model, prepare_training, simulate_step
from simcollectives.training.pricing import Pricer
from simcollectives.training.setup import Training
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from simcollectives.training.streams import play

MIB = 1 << 20
STRATEGY = "ddp"
JITTER = Jitter("lognormal", 0.01)


def best(run: Callable[[], object], repeats: int) -> float:
    """Least seconds of several runs."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def training_of(model: str, nodes: int) -> Training:
    """Return a step of 1,024 tokens a GPU on DGX H100."""
    return prepare_training(load_model(model), Cluster.machine("dgx-h100", nodes), Workload(1, 1024), mfu=0.45)


def barest_timeouts(count: int) -> None:
    """As many timeouts, one after another, as a step has operations."""
    env = simpy.Environment()

    def chain() -> simpy.events.ProcessGenerator:
        for _ in range(count):
            yield env.timeout(1.0)

    env.process(chain())
    env.run()


@dataclass(frozen=True)
class StepSpeed:
    """Best seconds of a step and its parts."""

    operations: int
    collectives: int
    whole: float
    program: float
    play: float
    prices: float
    barest: float


def measure_step(training: Training, repeats: int) -> StepSpeed:
    """Time one step, and its parts."""
    strategy = find_strategy(STRATEGY)
    options = resolve_strategy_options(strategy, None)
    program = strategy.program(training, options)
    known = Pricer(training.cluster)
    play({0: program}, known)

    def prices() -> None:
        pricer = Pricer(training.cluster)
        for call in program.calls:
            pricer(call)

    count = len(program.operations)
    return StepSpeed(
        operations=count,
        collectives=len(program.calls),
        whole=best(lambda: simulate_step(training, STRATEGY), repeats),
        program=best(lambda: strategy.program(training, options), repeats),
        play=best(lambda: play({0: program}, known), repeats),
        prices=best(prices, repeats),
        barest=best(lambda: barest_timeouts(count), repeats),
    )


def sweep(training: Training, points: int) -> list[tuple[float, int, float]]:
    """Simulate a step at each bucket size; bytes, number of collectives, seconds of the step."""
    pricer = Pricer(training.cluster)
    found = []
    for number in range(points):
        cap = MIB * 1024 ** (number / max(points - 1, 1))
        step = simulate_step(training, STRATEGY, {"bucket_cap": cap}, pricer=pricer)
        found.append((cap, len(step.collectives), step.step_seconds))
    return found


def print_sharded(sharded: Training, jittered: Training, barest: float, repeats: int) -> None:
    """Print the seconds of a step of FSDP2, and of one in which every rank is played."""
    seconds = best(lambda: simulate_step(sharded, "fsdp2"), repeats)
    what = f"{sharded.model.name} on {sharded.world_size:,} GPUs, fsdp2"
    print(f"\n{what}: {seconds:.3f} s, ratio {seconds / barest:.1f}")
    start = time.perf_counter()
    step = simulate_step(replace(jittered, jitter=JITTER), "fsdp2")
    seconds = time.perf_counter() - start
    plain = simulate_step(jittered, "fsdp2").step_seconds
    longer = f"{step.step_seconds / plain - 1:.2%} longer, {step.waiting_seconds:.3f} s of it waiting"
    what = f"{jittered.model.name}, each of {jittered.world_size} ranks played with 1 % jitter"
    print(f"{what}: {seconds:.1f} s, ratio {seconds / barest:.0f}; the step is {longer}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-3-70b")
    parser.add_argument("--nodes", type=int, default=128)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sharded", default="llama-3.1-405b")
    parser.add_argument("--sharded-nodes", type=int, default=2048)
    parser.add_argument("--jittered-nodes", type=int, default=64)
    given = parser.parse_args()
    training = training_of(given.model, given.nodes)
    speed = measure_step(training, given.repeats)
    what = f"{given.model} on {training.world_size:,} GPUs, {STRATEGY}"
    print(f"{what}: {speed.operations:,} operations, {speed.collectives:,} of them collectives\n")
    print(f"{'':10} {'seconds':>9} {'ratio':>7}")
    for name in ("whole", "program", "play", "prices"):
        seconds = getattr(speed, name)
        print(f"{name:10} {seconds:9.3f} {seconds / speed.barest:7.1f}")
    print(f"\n{speed.operations:,} timeouts of SimPy: {speed.barest:.4f} s, ratio 1")
    start = time.perf_counter()
    steps = sweep(training, given.points)
    seconds = time.perf_counter() - start
    print(f"{given.points} bucket sizes: {seconds:.2f} s, {seconds / given.points / speed.barest:.1f} a point")
    size, collectives, fastest = min(steps, key=lambda step: step[2])
    print(f"the best of them is {size / MIB:.1f} MiB: {collectives} collectives, a step of {fastest:.3f} s")
    sharded = training_of(given.sharded, given.sharded_nodes)
    print_sharded(sharded, training_of(given.sharded, given.jittered_nodes), speed.barest, given.repeats)


if __name__ == "__main__":
    main()
