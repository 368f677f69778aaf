"""Putting a training step together from what a person knows: a model, a cluster, a batch, and how fast kernels are."""

from collections.abc import Mapping

from simcollectives.cluster import Cluster
from simcollectives.cluster.rank_order import as_whole
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.activations import activations
from simcollectives.training.compute import seconds_from_flops, seconds_from_layers
from simcollectives.training.model import Model
from simcollectives.training.setup import Optimizer, Precision, Training
from simcollectives.training.workload import Workload
from simcollectives.units import format_flops_per_second

MOST_PLAYED = 1_000_000
"""Modules of all micro-batches and ranks that are played in one step."""


def peak_flops(cluster: Cluster, dtype: str) -> float | None:
    """Return the peak FLOP/s of a device, or None where it is not known."""
    return dict(cluster.device.peak_flops).get(dtype)


def prepare_training(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    mfu: float | None = None,
    layer_seconds: Mapping[str, tuple[float, float]] | None = None,
    accumulation: int = 1,
    train_batch: int | None = None,
    precision: Precision | None = None,
    optimizer: Optimizer | None = None,
    iteration: int | None = None,
    slow: Mapping[int, float] | None = None,
) -> Training:
    """Return the step to simulate: of ``accumulation`` micro-batches, each of which is a ``workload``.

    Kernels reach the share ``mfu`` of the device's peak in the dtype of the computation, or take the measured
    ``layer_seconds``, forward and backward by layer. ``train_batch`` are sequences on all ranks, for a check.
    ``iteration`` counts from 0; None is the steady state. ``slow`` multiplies the compute of ranks.

    Raises:
        InputError: the device's peak is not known, batch numbers contradict each other, a sequence is too long for the
            model, or a slow rank does not exist; all problems at once.
    """
    precision = precision or Precision()
    peak = peak_flops(cluster, precision.compute)
    problems = [
        *_size_problems(model, cluster.world_size if slow else 1, accumulation),
        *_time_problems(cluster, precision.compute, mfu, layer_seconds),
        *_batch_problems(cluster, workload, accumulation, train_batch),
        *_slow_problems(cluster, slow or {}),
    ]
    if problems:
        raise InputError(problems)
    kept = activations(model, workload, precision.compute)
    if layer_seconds:
        seconds = seconds_from_layers(model, workload, layer_seconds)
    else:
        seconds = seconds_from_flops(model, workload, (peak or 0.0) * (mfu or 0.0))
    return Training(
        model=model,
        cluster=cluster,
        micro_batch=workload.samples,
        sequence=workload.sequence,
        seconds=seconds,
        accumulation=accumulation,
        precision=precision,
        optimizer=optimizer or Optimizer(),
        activations=kept.by_layer,
        iteration=iteration,
        slow=dict(slow or {}),
    )


def _time_problems(
    cluster: Cluster, dtype: str, mfu: float | None, layer_seconds: Mapping[str, tuple[float, float]] | None
) -> list[Problem]:
    if layer_seconds:
        return [] if mfu is None else [Problem("mfu", "kernels have measured times already; leave mfu or them out")]
    if mfu is None or not 0 < mfu <= 1:
        rule = "is not a share of the peak; give more than 0 and at most 1, such as 0.45"
        return [Problem("mfu", f"{show_value(mfu)} {rule}")]
    if peak_flops(cluster, dtype) is not None:
        return []
    known = ", ".join(f"{name} {format_flops_per_second(value)}" for name, value in cluster.device.peak_flops)
    has = f"it has {known}; " if known else ""
    remedy = f"write device: {{peak: {{{dtype}: 989 TFLOP/s}}}} under cluster:, or layer_seconds:"
    return [Problem("mfu", f"the device has no known peak for {dtype}; {has}{remedy}")]


def _batch_problems(cluster: Cluster, workload: Workload, accumulation: int, train_batch: int | None) -> list[Problem]:
    whole = as_whole(accumulation)
    if whole is None or whole < 1:
        return [Problem("accumulation", f"{accumulation!r} is not a number of micro-batches; give 1 or more")]
    batch = workload.samples * accumulation * cluster.world_size
    if train_batch is None or train_batch == batch:
        return []
    product = f"{workload.samples} x {accumulation} x {cluster.world_size} = {batch}"
    rule = f"{train_batch} is not micro_batch x accumulation x world size, {product}; change one of them"
    return [Problem("train_batch", rule)]


def _size_problems(model: Model, played: int, accumulation: int) -> list[Problem]:
    modules = sum(len(layer.modules) for layer in model.layers)
    total = accumulation * modules * played
    if total <= MOST_PLAYED:
        return []
    ranks = f" x {played} ranks, which differ," if played > 1 else ""
    rule = (
        f"{accumulation} micro-batches x {modules} modules{ranks} are {total:,} passes to play; at most {MOST_PLAYED:,}"
    )
    return [Problem("accumulation", f"{rule}: take fewer micro-batches")]


def _slow_problems(cluster: Cluster, slow: Mapping[int, float]) -> list[Problem]:
    problems = []
    for rank, factor in slow.items():
        if not 0 <= rank < cluster.world_size:
            problems.append(Problem("slow", f"rank {rank} is unreachable; ranks are 0 to {cluster.world_size - 1}"))
        if not 0 < factor < float("inf"):
            rule = f"{factor!r} is not a factor on the compute of rank {rank}; it must be more than 0"
            problems.append(Problem("slow", rule))
    return problems
