"""A two-layer perceptron, its synthetic data, and one pass forward and backward on all devices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simcollectives.training.model import Parameter
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import (
    Array,
    BatchNorm,
    Labels,
    Layer,
    Linear,
    Parameters,
    Saved,
    Tanh,
    cross_entropy,
)
from simcollectives.training.passes import ACTIVATIONS

BATCH_NORMS = ("none", "local", "synchronised")
_PARAMETERS, _CENTRES, _SAMPLES = 1, 2, 3


@dataclass(frozen=True)
class Network:
    """inputs -> hidden -> tanh -> classes; BatchNorm before the tanh unless ``batch_norm`` is none.

    With BatchNorm the hidden layer has no bias, which the mean would take away again.
    """

    inputs: int = 8
    hidden: int = 16
    classes: int = 4
    batch_norm: str = "none"

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """In forward order."""
        plain = self.batch_norm == "none"
        norm = () if plain else (BatchNorm("norm", self.hidden, self.batch_norm == "synchronised"),)
        hidden = Linear("hidden", self.inputs, self.hidden, bias=plain)
        return (hidden, *norm, Tanh(), Linear("output", self.hidden, self.classes))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """In registration order."""
        return tuple(parameter for layer in self.layers for parameter in layer.module.parameters)

    @property
    def ready(self) -> tuple[Parameter, ...]:
        """In the order in which the backward pass finishes their gradients."""
        return tuple(parameter for layer in reversed(self.layers) for parameter in layer.module.gradients)


@dataclass(frozen=True)
class Batch:
    """Samples: ``inputs`` [sample, feature] and ``labels`` [sample]."""

    inputs: Array
    labels: Labels


def initial_parameters(network: Network, seed: int) -> dict[str, Array]:
    """Normal weights of variance 1 / inputs; biases 0; BatchNorm 1 and 0."""
    generator = np.random.default_rng((seed, _PARAMETERS))
    parameters: dict[str, Array] = {}
    for parameter in network.parameters:
        name, shape = parameter.name, parameter.shape
        if len(shape) == 2:
            parameters[name] = generator.standard_normal(shape) / np.sqrt(shape[1])
        else:
            parameters[name] = np.full(shape, 1.0 if name.endswith(".weight") else 0.0)
    return parameters


def make_batch(network: Network, samples: int, seed: int, step: int) -> Batch:
    """Return the samples of one step: normal around the centre of a class, the centres normal and twice as wide."""
    centres = 2 * np.random.default_rng((seed, _CENTRES)).standard_normal((network.classes, network.inputs))
    generator = np.random.default_rng((seed, _SAMPLES, step))
    labels = generator.integers(network.classes, size=samples)
    return Batch(centres[labels] + generator.standard_normal((samples, network.inputs)), labels)


def split(batch: Batch, sizes: Sequence[int]) -> list[Batch]:
    """Cut a batch into consecutive parts."""
    ends = np.cumsum(sizes)[:-1]
    parts = zip(np.split(batch.inputs, ends), np.split(batch.labels, ends), strict=True)
    return [Batch(inputs, labels) for inputs, labels in parts]


def propagate(
    layers: Sequence[Layer],
    gather: Callable[[Layer], Sequence[Parameters]],
    collect: Callable[[Layer, Sequence[Parameters]], None],
    batches: Sequence[Batch],
    weights: Sequence[float],
    group: Group,
    release: Callable[[Layer], None] = lambda _: None,
) -> list[float]:
    """Pass each device's batch forward and backward, and return each device's mean loss.

    ``gather`` gives each device's parameters of a layer, ``collect`` takes its gradients: those of the sum over devices
    of ``weights`` times mean loss. (Scaling losses, not gradients, is what synchronised statistics need.) ``release``
    is called after a layer's forward pass.
    """
    values = [batch.inputs for batch in batches]
    kept: list[list[Saved]] = []
    for layer in layers:
        values, saved = layer.forward(gather(layer), values, group)
        release(layer)
        kept.append(saved)
        _hold(kept, group)
    results = [
        cross_entropy(logits, batch.labels, weight)
        for logits, batch, weight in zip(values, batches, weights, strict=True)
    ]
    gradients = [gradient for _, gradient in results]
    for layer in reversed(layers):
        gradients, own = layer.backward(gather(layer), kept.pop(), gradients, group)
        collect(layer, own)
        _hold(kept, group)
    return [loss for loss, _ in results]


def _hold(kept: Sequence[Sequence[Saved]], group: Group) -> None:
    group.hold(ACTIVATIONS, [[a for saved in kept for a in saved[rank]] for rank in range(group.world_size)])
