"""Layers in float64, forward and backward, on the arrays of every simulated device at once.

Sequences have one entry a device. An input is [sample, feature], a weight [outputs, inputs] as in PyTorch. ``saved`` is
what the backward pass needs: the activations that a device keeps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from simcollectives.training.model import Module, Parameter
from simcollectives.training.numerics.group import Group

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]
Parameters = Mapping[str, Array]
Saved = tuple[Array, ...]


class Layer(Protocol):
    """One layer."""

    @property
    def module(self) -> Module:
        """Its parameters, and the order in which their gradients are ready."""

    def forward(
        self, parameters: Sequence[Parameters], inputs: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[Saved]]:
        """Outputs, and what to save."""

    def backward(
        self, parameters: Sequence[Parameters], saved: Sequence[Saved], gradients: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[dict[str, Array]]]:
        """Gradients of the inputs and of the parameters, from those of the outputs."""


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b."""

    name: str
    inputs: int
    outputs: int
    bias: bool = True

    @property
    def module(self) -> Module:
        """Weight, then bias."""
        weight = Parameter(f"{self.name}.weight", (self.outputs, self.inputs))
        bias = (Parameter(f"{self.name}.bias", (self.outputs,)),) if self.bias else ()
        return Module(self.name, "linear", (weight, *bias))

    def forward(
        self, parameters: Sequence[Parameters], inputs: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[Saved]]:
        """Outputs; the inputs are saved."""
        outputs = []
        for p, x in zip(parameters, inputs, strict=True):
            y = x @ p[f"{self.name}.weight"].T
            outputs.append(y + p[f"{self.name}.bias"] if self.bias else y)
        return outputs, [(x,) for x in inputs]

    def backward(
        self, parameters: Sequence[Parameters], saved: Sequence[Saved], gradients: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[dict[str, Array]]]:
        """dx = dy W, dW = dy^T x, db = the sum of dy over the samples."""
        inputs = [dy @ p[f"{self.name}.weight"] for p, dy in zip(parameters, gradients, strict=True)]
        own = []
        for (x,), dy in zip(saved, gradients, strict=True):
            weight = {f"{self.name}.weight": dy.T @ x}
            own.append(weight | ({f"{self.name}.bias": dy.sum(axis=0)} if self.bias else {}))
        return inputs, own


@dataclass(frozen=True)
class Tanh:
    """y = tanh x: smooth everywhere, so that finite differences can check every gradient."""

    @property
    def module(self) -> Module:
        """No parameters."""
        return Module("tanh", "other")

    def forward(
        self, parameters: Sequence[Parameters], inputs: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[Saved]]:
        """Outputs, which are saved."""
        outputs: list[Array] = [np.tanh(x) for x in inputs]
        return outputs, [(y,) for y in outputs]

    def backward(
        self, parameters: Sequence[Parameters], saved: Sequence[Saved], gradients: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[dict[str, Array]]]:
        """dx = (1 - y^2) dy."""
        return [(1 - y * y) * dy for (y,), dy in zip(saved, gradients, strict=True)], [{} for _ in saved]


@dataclass(frozen=True)
class BatchNorm:
    """y = g (x - mean) / sqrt(variance + epsilon) + b, with the statistics of the batch, as in training.

    ``synchronised`` takes the statistics over the samples of all devices: two all-reduces forward (sums and counts,
    then sums of squared distances from the mean, which do not cancel as x^2 - mean^2 does) and one backward. Else each
    device takes its own. Running statistics, which only evaluation uses, are not kept.
    Ioffe and Szegedy, ICML 2015; the variance is biased, as in PyTorch.
    """

    name: str
    features: int
    synchronised: bool
    epsilon: float = 1e-5

    @property
    def module(self) -> Module:
        """Weight g, then bias b."""
        names = (f"{self.name}.weight", f"{self.name}.bias")
        return Module(self.name, "norm", tuple(Parameter(name, (self.features,)) for name in names))

    def _total(self, sums: Sequence[Array], group: Group) -> list[Array]:
        return group.run("all_reduce", sums, "statistics") if self.synchronised else list(sums)

    def forward(
        self, parameters: Sequence[Parameters], inputs: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[Saved]]:
        """Outputs; the normalised inputs, 1 / sqrt(variance + epsilon) and the count are saved."""
        sums = self._total([np.append(x.sum(axis=0), len(x)) for x in inputs], group)
        centred = [x - s[:-1] / s[-1] for x, s in zip(inputs, sums, strict=True)]
        squares = self._total([(x * x).sum(axis=0) for x in centred], group)
        outputs: list[Array] = []
        saved: list[Saved] = []
        for p, x, s, square in zip(parameters, centred, sums, squares, strict=True):
            count = s[-1:]
            scale = 1 / np.sqrt(square / count + self.epsilon)
            normal = x * scale
            outputs.append(p[f"{self.name}.weight"] * normal + p[f"{self.name}.bias"])
            saved.append((normal, scale, count))
        return outputs, saved

    def backward(
        self, parameters: Sequence[Parameters], saved: Sequence[Saved], gradients: Sequence[Array], group: Group
    ) -> tuple[list[Array], list[dict[str, Array]]]:
        """dx = g / sqrt(..) (dy - mean dy - y' mean(dy y')), y' normalised, with means over the same samples."""
        own = [
            {f"{self.name}.weight": (dy * y).sum(axis=0), f"{self.name}.bias": dy.sum(axis=0)}
            for (y, _, _), dy in zip(saved, gradients, strict=True)
        ]
        totals = self._total([np.concatenate(list(g.values())) for g in own], group)
        inputs = []
        for p, (y, scale, count), dy, total in zip(parameters, saved, gradients, totals, strict=True):
            along, constant = np.split(total / count, 2)
            inputs.append(p[f"{self.name}.weight"] * scale * (dy - constant - y * along))
        return inputs, own


def cross_entropy(logits: Array, labels: Labels, weight: float) -> tuple[float, Array]:
    """Mean softmax cross-entropy of [sample, class], and the gradient of ``weight`` times it."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    totals = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(np.mean(np.log(totals[:, 0]) - shifted[rows, labels]))
    gradient: Array = exponentials / totals
    gradient[rows, labels] -= 1
    return loss, gradient * (weight / len(labels))
