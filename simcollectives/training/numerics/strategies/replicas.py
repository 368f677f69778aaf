"""What every strategy of training in numbers does with the arrays of its ranks, whole or in shards."""

from collections.abc import Sequence

import numpy as np

from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Array, Parameters
from simcollectives.training.numerics.optimizers import OPTIMIZERS, States
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.passes import OPTIMIZER, PARAMETERS


def new_states(plan: NumericsPlan, like: Array) -> States:
    """What an optimizer begins with."""
    return tuple(np.zeros_like(like) for _ in range(OPTIMIZERS[plan.optimizer].states))


def add_gradients(held: Sequence[dict[str, Array]], new: Sequence[Parameters]) -> None:
    """Add each rank's new gradients to those that it holds."""
    for own, gradients in zip(held, new, strict=True):
        for name, gradient in gradients.items():
            own[name] = own[name] + gradient if name in own else gradient


def update(
    plan: NumericsPlan,
    step: int,
    parameters: Sequence[dict[str, Array]],
    gradients: Sequence[Parameters],
    states: Sequence[dict[str, States]],
) -> None:
    """Let each rank update what it has gradients of; steps count from 1."""
    optimizer = OPTIMIZERS[plan.optimizer]
    for own, new, its in zip(parameters, gradients, states, strict=True):
        for name, gradient in new.items():
            own[name], its[name] = optimizer.update(own[name], gradient, its[name], plan.rate, step)


def hold_model(group: Group, parameters: Sequence[Parameters], states: Sequence[dict[str, States]]) -> None:
    """Note each rank's parameters and optimizer states."""
    group.hold(PARAMETERS, [own.values() for own in parameters])
    group.hold(OPTIMIZER, [[array for each in own.values() for array in each] for own in states])
