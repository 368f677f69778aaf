"""The training loop on simulated devices, and what it leaves: losses, replicas, traffic, memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import make_job
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.groups import members_of, seen_alone
from simcollectives.training.numerics.group import AnyArray, Group, Traffic, part_of
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.network import initial_parameters, make_batch, propagate, split
from simcollectives.training.numerics.plan import NumericsPlan, plan_problems
from simcollectives.training.numerics.strategies.table import STRATEGIES
from simcollectives.training.numerics.strategies.types import Strategy
from simcollectives.training.passes import PARAMETERS
from simcollectives.training.program import Call
from simcollectives.training.strategies.table import resolve_strategy_options


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
    ``standing`` are the arrays themselves that each rank holds after the last step.
    """

    plan: NumericsPlan
    snapshots: tuple[Snapshot, ...]
    traffic: tuple[Traffic, ...]
    peak_memory: tuple[Mapping[str, int], ...]
    most_held: tuple[Mapping[str, int], ...]
    standing: tuple[Mapping[str, tuple[AnyArray, ...]], ...]


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
    strategy = start(plan, group)
    snapshots = []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, plan.steps + 1):
            loss = train_step(plan, strategy, group, step)
            if step in wanted:
                whole = strategy.whole_parameters(), strategy.whole_gradients()
                snapshots.append(Snapshot(step, loss, *(tuple(map(dict, held)) for held in whole)))
    return History(plan, tuple(snapshots), group.traffic, group.peak_memory, group.most_held, group.standing)


def start(plan: NumericsPlan, group: Group) -> Strategy:
    """Hand out the initial parameters."""
    entry = STRATEGIES[plan.strategy]
    options = resolve_strategy_options(entry, plan.strategy_options)
    return entry.make(plan, group, initial_parameters(plan.network, plan.seed), options)


def train_step(plan: NumericsPlan, strategy: Strategy, group: Group, step: int) -> float:
    """Train on the samples of one step, and return their mean loss before the update; steps count from 1.

    Raises:
        InputError: the loss or a parameter is no longer finite.
    """
    shards = split(make_batch(plan.network, plan.samples, plan.seed, step), plan.shard_sizes)
    parts = [split(shard, sizes) for shard, sizes in zip(shards, plan.micro_batch_sizes, strict=True)]
    loss = 0.0
    strategy.start_step()
    for micro in range(plan.accumulation):
        batches = [part[micro] for part in parts]
        weights = [row[micro] for row in plan.weights]
        layers = plan.network.layers
        losses = propagate(layers, strategy.gather, strategy.collect, batches, weights, group, strategy.release)
        loss += sum(len(batch.labels) / plan.samples * one for batch, one in zip(batches, losses, strict=True))
    strategy.finish_step(step)
    if not (np.isfinite(loss) and all(np.isfinite(a).all() for held in group.standing for a in held[PARAMETERS])):
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
    problems += _strategy_problems(plan)
    if record is not None and not all(step in range(1, plan.steps + 1) for step in record):
        problems.append(Problem("record", f"{show_value(list(record))} are not all steps; steps are 1 to {plan.steps}"))
    if cluster is not None and cluster.world_size != plan.world_size:
        what = f"{plan.world_size} for a cluster of {cluster.world_size} ranks"
        return [*problems, Problem("world_size", f"{what}; write {cluster.world_size}")]
    try:
        make_job("all_reduce", plan.algorithm, cluster or _flat(plan), 0, plan.options)
    except InputError as error:
        return [*problems, *error.problems]
    return problems or _collective_problems(plan, cluster or _flat(plan))


def _strategy_problems(plan: NumericsPlan) -> list[Problem]:
    """Return what a strategy does not have: options, buckets, an all-reduce to forget."""
    entry = STRATEGIES[plan.strategy]
    problems = []
    try:
        resolve_strategy_options(entry, plan.strategy_options)
    except InputError as error:
        problems += [Problem("strategy", problem.message) for problem in error.problems]
    if plan.bucket_bytes is not None and not entry.buckets:
        problems.append(Problem("bucket_bytes", f"{entry.name} reduces unit by unit, not in buckets; leave it out"))
    if plan.unsynchronised and not entry.synchronised_by_all_reduce:
        rule = f"{entry.name} has no all-reduce that could be forgotten; write strategy ddp"
        problems.append(Problem("mistake", f"{plan.mistake}: {rule}"))
    return problems


def _collective_problems(plan: NumericsPlan, cluster: Cluster) -> list[Problem]:
    """Return why a collective of the strategy cannot run."""
    entry = STRATEGIES[plan.strategy]
    for kind, among in entry.collectives(cluster, resolve_strategy_options(entry, plan.strategy_options)):
        call = Call(kind, among.name, among.size or plan.world_size, 0, "float64", among.stride)
        try:
            members_of(plan.world_size, call)
        except InputError as error:
            return [Problem("strategy", f"{plan.strategy}: {problem.message}") for problem in error.problems]
        try:
            algorithm, options = part_of(kind, plan.algorithm, plan.options)
            make_job(kind, algorithm, seen_alone(cluster, call), 0, options)
        except InputError as error:
            return [Problem("algorithm", f"{plan.strategy}: {problem.message}") for problem in error.problems]
    return []


def _flat(plan: NumericsPlan) -> Cluster:
    return Cluster.flat(plan.world_size, Link(0.0, 1.0))
