"""DeepSpeed's estimators of the memory for model states, and what lies between them and a simulated step.

Of Psi parameters on N GPUs, bytes of a GPU:

    ZeRO-2                            2 Psi + 18 Psi / N
    ZeRO-2, optimizer offloaded       2 Psi
    ZeRO-3                            4 L + 18 Psi / N
    ZeRO-3, optimizer offloaded       4 L + 2 Psi / N
    ZeRO-3, parameters too            4 L

with L the parameters of the largest module, gathered with their gradients in 16 bits. The 18 bytes of ZeRO-2 are
gradients in 16 and in 32 bits, float32 parameters and Adam's two states; those of ZeRO-3 are the same with the 16-bit
parameters in place of the 16-bit gradients.

Reference: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py and stage3.py, estimate_zero{2,3}_model_states_mem_needs.
They know Adam in 16-bit mixed precision only, and leave out activations, buckets and buffers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from simcollectives.cluster.rank_order import as_whole
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.model import Model
from simcollectives.training.offload import offloads
from simcollectives.training.passes import GRADIENT_COPY, GRADIENTS, OPTIMIZER, PARAMETERS
from simcollectives.training.sharding import UNSHARDED, UNSHARDED_GRADIENTS
from simcollectives.training.step import Step
from simcollectives.training.strategies.zero_options import uses_deepspeed
from simcollectives.units import format_bytes

BUFFER_FACTOR = 1.5
"""What DeepSpeed multiplies the memory of the host with, for buffers."""


@dataclass(frozen=True)
class Estimate:
    """Bytes of a GPU, and of the host of one node. ``items`` are those of the GPU, by the names a step gives them."""

    gpu_bytes: int
    cpu_bytes: int
    items: Mapping[str, int]


@dataclass(frozen=True)
class Difference:
    """One item: bytes by the estimator, bytes that stand at the peak of the step, and why they differ."""

    item: str
    estimated_bytes: int
    simulated_bytes: int
    reason: str


def largest_layer_elements(model: Model) -> int:
    """Return the most parameters that one module owns itself: what DeepSpeed calls the largest layer."""
    return max((sum(p.elements for p in m.parameters) for layer in model.layers for m in layer.modules), default=0)


def zero2_estimate(parameters: int, gpus_per_node: int, nodes: int = 1, *, offload_optimizer: bool = False) -> Estimate:
    """Return what DeepSpeed estimates for ZeRO-2.

    Raises:
        InputError: a number is not whole and positive; all problems at once.
    """
    problems = _problems(parameters=parameters, gpus_per_node=gpus_per_node, nodes=nodes)
    if problems:
        raise InputError(problems)
    gpus = gpus_per_node * nodes
    items = {PARAMETERS: 2 * parameters}
    if offload_optimizer:
        return Estimate(2 * parameters, int(parameters * max(4 * gpus, 16) * BUFFER_FACTOR), items)
    items |= _shards(Fraction(parameters, gpus), {GRADIENTS: 2, GRADIENT_COPY: 4, OPTIMIZER: 12})
    return Estimate(sum(items.values()), int(parameters * 4 * gpus_per_node * BUFFER_FACTOR), items)


def zero3_estimate(
    parameters: int,
    largest_layer: int,
    gpus_per_node: int,
    nodes: int = 1,
    *,
    offload_optimizer: bool = False,
    offload_parameters: bool = False,
    zero_init: bool = True,
) -> Estimate:
    """Return what DeepSpeed estimates for ZeRO-3; without ``zero_init`` each rank makes the whole model first.

    Raises:
        InputError: a number is not whole and positive, the largest layer is larger than the model, or parameters are
            offloaded without the optimizer; all problems at once.
    """
    problems = _problems(parameters=parameters, largest_layer=largest_layer, gpus_per_node=gpus_per_node, nodes=nodes)
    if not problems and largest_layer > parameters:
        rule = f"{largest_layer} is more than all {parameters} parameters; give those of the largest module"
        problems.append(Problem("largest_layer", rule))
    if offload_parameters and not offload_optimizer:
        rule = "parameters are offloaded with the optimizer only; set offload_optimizer, too"
        problems.append(Problem("offload_parameters", rule))
    if problems:
        raise InputError(problems)
    share = Fraction(parameters, gpus_per_node * nodes)
    items = {UNSHARDED: 2 * largest_layer, UNSHARDED_GRADIENTS: 2 * largest_layer}
    if not offload_optimizer:
        items |= _shards(share, {PARAMETERS: 2, GRADIENT_COPY: 4, OPTIMIZER: 12})
        host: float = 4 * gpus_per_node * (largest_layer if zero_init else parameters)
    else:
        items |= {} if offload_parameters else _shards(share, {PARAMETERS: 2})
        states = (18 if offload_parameters else 16) / nodes
        host = parameters * (states if zero_init else max(4 * gpus_per_node, states))
    return Estimate(sum(items.values()), int(host * BUFFER_FACTOR), items)


def _shards(share: Fraction, bytes_each: Mapping[str, int]) -> dict[str, int]:
    """Bytes of a GPU's part, item by item; their sum is rounded down once, as DeepSpeed does."""
    items = {name: int(size * share) for name, size in bytes_each.items()}
    items[OPTIMIZER if OPTIMIZER in items else PARAMETERS] += int(sum(bytes_each.values()) * share) - sum(
        items.values()
    )
    return items


def _problems(**numbers: int) -> list[Problem]:
    return [
        Problem(name, f"{show_value(value)} is not a whole number of 1 or more; give for instance 8")
        for name, value in numbers.items()
        if (whole := as_whole(value)) is None or whole < 1
    ]


def estimate_of(step: Step) -> Estimate | None:
    """Return what DeepSpeed estimates for the model and cluster of a step, None where it has no estimator for it."""
    options, training = step.options, step.training
    if step.strategy not in ("zero2", "zero3") or not uses_deepspeed(options):
        return None
    elements, cluster = training.model.elements, training.cluster
    optimizer, parameters = (place != "none" for place in offloads(options))
    if step.strategy == "zero2":
        return zero2_estimate(elements, cluster.gpus_per_node, cluster.nodes, offload_optimizer=optimizer)
    return zero3_estimate(
        elements,
        largest_layer_elements(training.model),
        cluster.gpus_per_node,
        cluster.nodes,
        offload_optimizer=optimizer or parameters,
        offload_parameters=parameters,
    )


_REASONS: Mapping[str, str] = {
    PARAMETERS: "shards are padded, parameters have another dtype, or some stay whole on every rank",
    GRADIENTS: "gradients of what is being computed stand beside the shard, or have another dtype",
    GRADIENT_COPY: "the estimator counts it all the time; a step may make it in parts",
    OPTIMIZER: "another optimizer, no master copy, or shards that are padded",
    UNSHARDED: "the estimator has one module gathered; a step has the one it computes and those gathered ahead",
    UNSHARDED_GRADIENTS: "the estimator has those of one module; a step has those not yet reduced",
}


def beside_peak(estimate: Estimate, step: Step) -> tuple[Difference, ...]:
    """Return an estimate beside what stands at the peak of a step, item by item.

    The differences of the items sum to that of ``estimate.gpu_bytes`` and ``step.peak_bytes``.
    """
    names = dict.fromkeys([*estimate.items, *step.memory])
    return tuple(_difference(name, estimate.items.get(name, 0), step.memory.get(name, 0), step) for name in names)


def _difference(name: str, estimated: int, simulated: int, step: Step) -> Difference:
    if estimated == simulated:
        reason = "alike"
    elif name not in _REASONS:
        reason = "the estimator leaves it out"
    elif not simulated and (most := step.most_bytes.get(name, 0)):
        reason = f"does not stand at the peak; at another time {format_bytes(most)} do"
    elif not simulated:
        reason = "does not stand in this step at all"
    else:
        reason = _REASONS[name] if estimated else "the estimator leaves it out"
    return Difference(name, estimated, simulated, reason)
