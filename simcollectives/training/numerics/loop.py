"""The training loop on simulated devices, and what it leaves: losses, replicas, traffic, memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import make_job
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.numerics.ddp import DataParallel
from simcollectives.training.numerics.group import Group, Traffic
from simcollectives.training.numerics.layers import Array, Layer, Parameters
from simcollectives.training.numerics.network import initial_parameters, make_batch, propagate, split
from simcollectives.training.numerics.plan import NumericsPlan, plan_problems


class Strategy(Protocol):
    """Where parameters, gradients and optimizer states live, and what is sent between devices.

    Sequences have one entry a rank. ``parameters`` are whole, and ``gradients`` are those that the update used.
    """

    parameters: list[dict[str, Array]]
    gradients: list[dict[str, Array]]

    def start_step(self) -> None:
        """Prepare for the first micro-batch."""

    def gather(self, layer: Layer) -> Sequence[Parameters]:
        """Give each rank the whole parameters of a layer."""

    def collect(self, layer: Layer, gradients: Sequence[Parameters]) -> None:
        """Take each rank's gradients of a layer for one micro-batch."""

    def finish_step(self, step: int) -> None:
        """Synchronise what is not yet, and update."""


STRATEGIES: Mapping[str, Callable[[NumericsPlan, Group, Parameters], Strategy]] = {"ddp": DataParallel}


@dataclass(frozen=True)
class Snapshot:
    """After a step: every rank's parameters, the gradients that it used, and the step's loss before the update."""

    step: int
    loss: float
    parameters: tuple[Parameters, ...]
    gradients: tuple[Parameters, ...]


@dataclass(frozen=True)
class History:
    """A training run. ``traffic`` is of all steps.

    By rank and item, in bytes: ``peak_memory`` is what stood when the sum was largest, ``most_held`` each item's most.
    """

    plan: NumericsPlan
    snapshots: tuple[Snapshot, ...]
    traffic: tuple[Traffic, ...]
    peak_memory: tuple[Mapping[str, int], ...]
    most_held: tuple[Mapping[str, int], ...]


def train(plan: NumericsPlan, record: Sequence[int] | None = None, cluster: Cluster | None = None) -> History:
    """Train, and keep snapshots after the steps ``record`` (counted from 1; by default the last).

    ``cluster`` matters to algorithms that look at nodes.

    Raises:
        InputError: the plan, the steps or the algorithm do not fit, or the loss is no longer finite.
    """
    problems = problems_of(plan, record, cluster)
    if problems:
        raise InputError(problems)
    wanted = frozenset([plan.steps] if record is None else record)
    group = Group(cluster or _flat(plan), plan.algorithm, plan.options)
    strategy = STRATEGIES[plan.strategy](plan, group, initial_parameters(plan.network, plan.seed))
    snapshots = []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, plan.steps + 1):
            loss = _step(plan, strategy, group, step)
            if step in wanted:
                replicas, gradients = (tuple(map(dict, held)) for held in (strategy.parameters, strategy.gradients))
                snapshots.append(Snapshot(step, loss, replicas, gradients))
    return History(plan, tuple(snapshots), group.traffic, group.peak_memory, group.most_held)


def _step(plan: NumericsPlan, strategy: Strategy, group: Group, step: int) -> float:
    shards = split(make_batch(plan.network, plan.samples, plan.seed, step), plan.shard_sizes)
    parts = [split(shard, sizes) for shard, sizes in zip(shards, plan.micro_batch_sizes, strict=True)]
    loss = 0.0
    strategy.start_step()
    for micro in range(plan.accumulation):
        batches = [part[micro] for part in parts]
        weights = [row[micro] for row in plan.weights]
        losses = propagate(plan.network.layers, strategy.gather, strategy.collect, batches, weights, group)
        loss += sum(len(batch.labels) / plan.samples * one for batch, one in zip(batches, losses, strict=True))
    strategy.finish_step(step)
    if not (np.isfinite(loss) and all(np.isfinite(a).all() for held in strategy.parameters for a in held.values())):
        what = f"training is no longer finite at step {step}"
        raise InputError([Problem("learning_rate", f"{what}; write a smaller learning rate")])
    return loss


def problems_of(
    plan: NumericsPlan, record: Sequence[int] | None = None, cluster: Cluster | None = None
) -> list[Problem]:
    """Return what is wrong with a training run before it is run; places are fields of the plan, or ``record``."""
    problems = plan_problems(plan, tuple(STRATEGIES))
    if problems:
        return problems
    if record is not None and not all(step in range(1, plan.steps + 1) for step in record):
        problems.append(Problem("record", f"{show_value(list(record))} are not all steps; steps are 1 to {plan.steps}"))
    if cluster is not None and cluster.world_size != plan.world_size:
        what = f"{plan.world_size} for a cluster of {cluster.world_size} ranks"
        return [*problems, Problem("world_size", f"{what}; write {cluster.world_size}")]
    try:
        make_job("all_reduce", plan.algorithm, cluster or _flat(plan), 0, plan.options)
    except InputError as error:
        problems += error.problems
    return problems


def _flat(plan: NumericsPlan) -> Cluster:
    return Cluster.flat(plan.world_size, Link(0.0, 1.0))
