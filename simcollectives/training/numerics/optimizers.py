"""Optimizers, element by element: the update of a part is the part of the update, bit for bit, so shards can do it.

    sgd        p <- p - r g
    momentum   v <- mu v + g;  p <- p - r v
    adam       m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
               p <- p - r (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e)

As PyTorch's SGD and Adam. Reference: Kingma and Ba, ICLR 2015.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from simcollectives.training.numerics.layers import Array

States = tuple[Array, ...]
MOMENTUM = 0.9
BETAS = (0.9, 0.999)
EPSILON = 1e-8


@dataclass(frozen=True)
class Optimizer:
    """``states`` arrays for each parameter, zero at first; ``update(parameter, gradient, states, rate, step)``.

    Steps count from 1.
    """

    states: int
    learning_rate: float
    update: Callable[[Array, Array, States, float, int], tuple[Array, States]]


def _sgd(parameter: Array, gradient: Array, states: States, rate: float, step: int) -> tuple[Array, States]:
    return parameter - rate * gradient, states


def _momentum(parameter: Array, gradient: Array, states: States, rate: float, step: int) -> tuple[Array, States]:
    velocity = MOMENTUM * states[0] + gradient
    return parameter - rate * velocity, (velocity,)


def _adam(parameter: Array, gradient: Array, states: States, rate: float, step: int) -> tuple[Array, States]:
    first = BETAS[0] * states[0] + (1 - BETAS[0]) * gradient
    second = BETAS[1] * states[1] + (1 - BETAS[1]) * gradient * gradient
    scale = np.sqrt(second / (1 - BETAS[1] ** step)) + EPSILON
    return parameter - rate * (first / (1 - BETAS[0] ** step)) / scale, (first, second)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(0, 0.1, _sgd),
    "momentum": Optimizer(1, 0.02, _momentum),
    "adam": Optimizer(2, 0.01, _adam),
}
"""By name, with the learning rate where none is given."""
