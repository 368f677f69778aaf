"""Putting a training step together from what a person knows: a model, a cluster, a batch, and how fast kernels are."""

from collections.abc import Mapping, Sequence
from math import inf
from numbers import Real
from typing import TypeGuard

from simcollectives.cluster import Cluster
from simcollectives.cluster.rank_order import as_whole
from simcollectives.engines.conditions import Jitter
from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.training.activations import activations
from simcollectives.training.compute import seconds_from_flops, seconds_from_layers
from simcollectives.training.model import Model
from simcollectives.training.setup import Optimizer, Precision, Training
from simcollectives.training.workload import Workload, check_fits
from simcollectives.units import format_flops_per_second

LayerSeconds = Mapping[str, tuple[float, float]]

MOST_PLAYED = 1_000_000
"""Modules of all micro-batches, and of one rank of each speed, that are played in one step."""


def peak_flops(cluster: Cluster, dtype: str) -> float | None:
    """Return the peak FLOP/s of a device, or None where it is not known."""
    return dict(cluster.device.peak_flops).get(dtype)


def prepare_training(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    mfu: float | None = None,
    layer_seconds: LayerSeconds | None = None,
    accumulation: int = 1,
    train_batch: int | None = None,
    precision: Precision | None = None,
    optimizer: Optimizer | None = None,
    iteration: int | None = None,
    slow: Mapping[int, float] | None = None,
    jitter: Jitter | None = None,
    seed: int = 0,
) -> Training:
    """Return the step to simulate: of ``accumulation`` micro-batches, each of which is a ``workload``.

    Kernels reach the share ``mfu`` of the device's peak in the dtype of the computation, or take the measured
    ``layer_seconds``, forward and backward by layer. ``train_batch`` are sequences on all ranks, for a check.
    ``iteration`` counts from 0; None is the steady state. ``slow`` multiplies the compute of ranks, ``jitter`` draws a
    factor for each kernel of each, all of which are then played. Where they are not given, ``precision`` is bfloat16
    throughout and ``optimizer`` Adam, with a master copy if parameters are narrower than float32.

    Raises:
        InputError: the device's peak is not known, layers lack measured times, batch numbers contradict each other, a
            sequence is too long for the model, or a slow rank does not exist; all problems at once.
    """
    precision = precision or Precision()
    problems = [
        *_size_problems(model, _played_ranks(cluster, slow or {}, jitter), accumulation),
        *_time_problems(model, cluster, precision.compute, mfu, layer_seconds),
        *_batch_problems(cluster, workload, accumulation, train_batch),
        *_iteration_problems(iteration),
        *_slow_problems(cluster, slow or {}),
        *_length_problems(model, workload),
    ]
    if problems:
        raise InputError(problems)
    if layer_seconds:
        seconds = seconds_from_layers(model, workload, layer_seconds)
    else:
        seconds = seconds_from_flops(model, workload, (peak_flops(cluster, precision.compute) or 0.0) * (mfu or 0.0))
    return Training(
        model=model,
        cluster=cluster,
        micro_batch=workload.samples,
        sequence=workload.sequence,
        seconds=seconds,
        accumulation=int(accumulation),
        precision=precision,
        optimizer=optimizer or Optimizer(master=DTYPES[precision.parameters] < DTYPES["float32"]),
        activations=activations(model, workload, precision.compute).by_layer,
        iteration=iteration,
        slow=dict(slow or {}),
        jitter=jitter,
        seed=seed,
    )


def _time_problems(
    model: Model, cluster: Cluster, dtype: str, mfu: float | None, measured: LayerSeconds | None
) -> list[Problem]:
    if measured:
        return _measured_problems(model, measured, mfu)
    if not _is_number(mfu) or not 0 < mfu <= 1:
        rule = f"{show_value(mfu)} is not a share of the peak; give more than 0 and at most 1, such as 0.45"
        return [Problem("mfu", rule)]
    if peak_flops(cluster, dtype) is not None:
        return []
    known = ", ".join(f"{name} {format_flops_per_second(value)}" for name, value in cluster.device.peak_flops)
    has = f"it has {known}; " if known else ""
    remedy = f"write device: {{peak: {{{dtype}: 989 TFLOP/s}}}} under cluster:, or layer_seconds:"
    return [Problem("mfu", f"the device has no known peak for {dtype}; {has}{remedy}")]


def _measured_problems(model: Model, measured: LayerSeconds, mfu: float | None) -> list[Problem]:
    problems = [] if mfu is None else [Problem("mfu", "kernels have measured times already; leave mfu or them out")]
    names = [layer.name for layer in model.layers]
    for name in measured:
        if name not in names:
            rule = f"{show_value(name)} is not a layer of {model.name}; {suggestion(name, names, 'there are')}"
            problems.append(Problem("layer_seconds", rule))
        elif not _are_times(measured[name]):
            rule = f"{show_value(measured[name])} are no times of {name}; give the seconds of forward and backward"
            problems.append(Problem("layer_seconds", rule))
    if lacking := [name for name in names if name not in measured]:
        problems.append(Problem("layer_seconds", f"{_some(lacking)} have no time; give (0.0, 0.0) to what takes none"))
    return problems


def _are_times(pair: object) -> bool:
    times = pair if isinstance(pair, tuple | list) else ()
    return len(times) == 2 and all(_is_number(one) and 0 <= one < inf for one in times)


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"


def _batch_problems(cluster: Cluster, workload: Workload, accumulation: int, train_batch: int | None) -> list[Problem]:
    whole = as_whole(accumulation)
    if whole is None or whole < 1:
        rule = f"{show_value(accumulation)} is not a number of micro-batches; give 1 or more"
        return [Problem("accumulation", rule)]
    batch = workload.samples * whole * cluster.world_size
    if train_batch is None or train_batch == batch:
        return []
    product = f"{workload.samples} x {whole} x {cluster.world_size} = {batch}"
    rule = f"{show_value(train_batch)} is not micro_batch x accumulation x world size, {product}; change one of them"
    return [Problem("train_batch", rule)]


def _iteration_problems(iteration: int | None) -> list[Problem]:
    whole = as_whole(iteration)
    if iteration is None or (whole is not None and whole >= 0):
        return []
    rule = f"{show_value(iteration)} is not a step; give 0 for the first, None for the steady one"
    return [Problem("iteration", rule)]


def _played_ranks(cluster: Cluster, slow: Mapping[int, float], jitter: Jitter | None) -> int:
    return len({1.0, *slow.values()}) if jitter is None else cluster.world_size


def _size_problems(model: Model, played: int, accumulation: int) -> list[Problem]:
    if as_whole(accumulation) is None:
        return []
    modules = sum(len(layer.modules) for layer in model.layers)
    total = accumulation * modules * played
    if total <= MOST_PLAYED:
        return []
    ranks = f" x {played} ranks of different speeds" if played > 1 else ""
    rule = (
        f"{accumulation} micro-batches x {modules} modules{ranks} are {total:,} passes to play; at most {MOST_PLAYED:,}"
    )
    return [Problem("accumulation", f"{rule}: take fewer micro-batches")]


def _slow_problems(cluster: Cluster, slow: Mapping[int, float]) -> list[Problem]:
    problems = []
    for rank, factor in slow.items():
        whole = as_whole(rank)
        if whole is None or not 0 <= whole < cluster.world_size:
            rule = f"there is no rank {show_value(rank)}; ranks are 0 to {cluster.world_size - 1}"
            problems.append(Problem("slow", rule))
        if not _is_number(factor) or not 0 < factor < inf:
            what = f"{show_value(factor)} is not a factor on the compute of rank {rank}"
            rule = f"{what}; write a number above 0, such as 1.2"
            problems.append(Problem("slow", rule))
    return problems


def _length_problems(model: Model, workload: Workload) -> list[Problem]:
    try:
        check_fits(model, workload)
    except InputError as error:
        return list(error.problems)
    return []


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)
