"""Floating-point operations of a model: what it needs, and what the device executes.

Forward, a token takes 2 FLOPs for each weight element that it is multiplied with, and attention 4 x sequence x
heads x head_dim for its two products with the other tokens; half of that where causal attention is counted so. Lookups,
norms, biases, activation functions and softmax are not counted. The backward takes twice the forward. Both equal
torch.utils.flop_counter on eager attention. Recomputation repeats the forward of the blocks, of their attention, or of
every second matrix product; a flash kernel rebuilds the scores in its backward, half of its forward more. A sliding
window is not applied.

Model FLOPs, those of MFU, are forward and backward; hardware FLOPs, those of HFU, add what is computed twice.
"""

from dataclasses import dataclass

from simcollectives.training.model import Layer, Model, Module
from simcollectives.training.workload import Workload, check_fits


@dataclass(frozen=True)
class Flops:
    """FLOPs of one micro-batch: of a module, a layer or a model.

    ``recomputation`` is the forward again; ``rebuilding`` is what a flash kernel computes again in its backward.
    """

    forward: int = 0
    backward: int = 0
    recomputation: int = 0
    rebuilding: int = 0

    @property
    def model(self) -> int:
        """FLOPs that the model needs: forward and backward."""
        return self.forward + self.backward

    @property
    def hardware(self) -> int:
        """FLOPs that the device executes."""
        return self.model + self.recomputation + self.rebuilding

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(
            self.forward + other.forward,
            self.backward + other.backward,
            self.recomputation + other.recomputation,
            self.rebuilding + other.rebuilding,
        )


def recomputed(layer: Layer, workload: Workload) -> frozenset[str]:
    """Return the names of a layer's modules that the backward computes again."""
    if workload.recomputation == "selective":
        return frozenset(module.name for module in layer.modules if module.kind == "attention")
    if workload.recomputation == "none" or not layer.block:
        return frozenset()
    names = [module.name for module in layer.modules]
    if workload.recomputation == "full":
        return frozenset(names)
    return frozenset(names) - {module.name for module in kept_operators(layer)}


def kept_operators(layer: Layer) -> list[Module]:
    """Return the modules whose outputs are kept where operators are recomputed: attention, and every second product."""
    products = [module for module in layer.modules if module.matmul_elements]
    attention = [module for module in layer.modules if module.kind == "attention"]
    return [*products[::2], *attention]


def module_flops(module: Module, workload: Workload, *, again: bool = False) -> Flops:
    """Return the FLOPs of a module; ``again``: the backward computes its forward again."""
    positions = workload.sequence if module.positions is None else module.positions
    matmul = 2 * positions * module.matmul_elements
    pairs = workload.sequence**2
    attention = (2 if module.causal and workload.attention_flops == "causal" else 4) * pairs * module.attention_width
    forward = workload.samples * (matmul + attention)
    rebuilt = workload.samples * attention // 2 if workload.attention_kernel == "flash" else 0
    return Flops(forward, 2 * forward, forward if again else 0, rebuilt)


def layer_flops(layer: Layer, workload: Workload) -> Flops:
    """Return the FLOPs of a layer."""
    names = recomputed(layer, workload)
    return sum((module_flops(module, workload, again=module.name in names) for module in layer.modules), Flops())


def model_flops(model: Model, workload: Workload) -> Flops:
    """Return the FLOPs of one micro-batch through a model.

    Raises:
        InputError: the sequence is longer than the model's learned positions.
    """
    check_fits(model, workload)
    return sum((layer_flops(layer, workload) for layer in model.layers), Flops())


def utilisation(flops: int, seconds: float, peak_flops: float) -> float | None:
    """Return the part of a device's peak that is used: MFU of model FLOPs, HFU of hardware FLOPs; None in no time."""
    return flops / (seconds * peak_flops) if seconds > 0 and peak_flops > 0 else None


def convention(workload: Workload) -> str:
    """Return in words what is counted."""
    pairs = "every pair of tokens" if workload.attention_flops == "full" else "half of the pairs where it is causal"
    again = {
        "none": "nothing is recomputed",
        "selective": "attention is recomputed",
        "operators": "every second matrix product is recomputed",
        "full": "blocks are recomputed",
    }[workload.recomputation]
    flash = ", flash attention rebuilds its scores" if workload.attention_kernel == "flash" else ""
    return (
        f"MFU counts model FLOPs: forward and backward, attention over {pairs}; "
        f"HFU counts what the device executes: {again}{flash}"
    )
