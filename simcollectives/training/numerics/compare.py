"""How far a training run on many devices is from the same one on one device, and its replicas from each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.algorithms.table import find_algorithm, label
from simcollectives.algorithms.types import resolve_options
from simcollectives.cluster import Cluster
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.loop import History, train
from simcollectives.training.numerics.plan import NumericsPlan, one_device


@dataclass(frozen=True)
class NumericsRow:
    """The state after one step. Differences are the largest over parameters, elements and ranks.

    ``loss`` is that of the step's batch before the update, weighted by samples. ``gradient_difference`` is between the
    gradients used and those of one device at the same step; ``bit_identical`` is about the replicas. Bytes are those
    that devices send in a step; dedicated servers are devices, too. ``memory`` is what the rank with the highest peak
    holds then, and sums to ``peak_bytes``; ``most_held`` is the most that any rank ever holds of each item.
    """

    strategy: str
    algorithm: str
    world_size: int
    mistake: str | None
    step: int
    loss: float
    loss_of_one_device: float
    difference_from_one_device: float
    gradient_difference: float
    difference_between_replicas: float
    bit_identical: bool
    bytes_sent_max: int
    bytes_sent_total: int
    peak_bytes: int
    memory: Mapping[str, int]
    most_held: Mapping[str, int]


def run_numerics(
    plan: NumericsPlan, record: Sequence[int] | None = None, cluster: Cluster | None = None
) -> tuple[NumericsRow, ...]:
    """Train by a plan and on one device, and compare after each of the steps ``record`` (by default the last).

    Raises:
        InputError: see ``train``.
    """
    return compare(train(plan, record, cluster), train(one_device(plan), record))


def compare(history: History, reference: History) -> tuple[NumericsRow, ...]:
    """Return a row for each snapshot; ``reference`` is a run on one device with snapshots after the same steps."""
    plan = history.plan
    algorithm = find_algorithm("all_reduce", plan.algorithm)
    sent = np.sum([traffic.sent_bytes for traffic in history.traffic] or [(0,)], axis=0) // plan.steps
    memory = max(history.peak_memory, key=lambda held: sum(held.values()))
    most = {item: max(held[item] for held in history.most_held) for item in history.most_held[0]}
    return tuple(
        NumericsRow(
            strategy=plan.strategy,
            algorithm=label(algorithm, resolve_options(algorithm, plan.options)),
            world_size=plan.world_size,
            mistake=plan.mistake,
            step=snapshot.step,
            loss=snapshot.loss,
            loss_of_one_device=one.loss,
            difference_from_one_device=largest_difference(snapshot.parameters, one.parameters[0]),
            gradient_difference=largest_difference(snapshot.gradients, one.gradients[0]),
            difference_between_replicas=spread(snapshot.parameters),
            bit_identical=same_bits(snapshot.parameters),
            bytes_sent_max=int(sent.max()),
            bytes_sent_total=int(sent.sum()),
            peak_bytes=sum(memory.values()),
            memory=memory,
            most_held=most,
        )
        for snapshot, one in zip(history.snapshots, reference.snapshots, strict=True)
    )


def largest_difference(replicas: Sequence[Parameters], one: Parameters) -> float:
    """Return the largest distance of any element of any replica from one set of parameters."""
    return max(float(np.abs(replica[name] - one[name]).max()) for replica in replicas for name in one)


def spread(replicas: Sequence[Parameters]) -> float:
    """Return the largest distance between two replicas, over all elements."""
    return max(float(np.ptp([replica[name] for replica in replicas], axis=0).max()) for name in replicas[0])


def same_bits(replicas: Sequence[Parameters]) -> bool:
    """Return whether all replicas hold the same bits."""
    first = replicas[0]
    return all(replica[name].tobytes() == first[name].tobytes() for replica in replicas[1:] for name in first)
