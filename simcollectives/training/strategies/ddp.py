"""PyTorch DistributedDataParallel: gradients are all-reduced in buckets while the backward pass goes on.

A bucket is reduced when its gradients and those of all buckets before it are complete; the optimizer waits for all. In
the first iteration there is one bucket for each dtype, so nothing overlaps; after it, buckets are made anew from the
order in which gradients became complete (with ``static_graph`` one iteration later, with ``find_unused_parameters``
never). Under ``no_sync`` only the last micro-batch of a step is reduced.

    traffic of a rank = 2 (N - 1)/N x bytes of the gradients, whatever the buckets

Reference: Li et al., PVLDB 13(12), 2020; torch 2.13: nn/parallel/distributed.py and c10d/reducer.cpp. Assumes that
every parameter gets a gradient, that all ranks find the same order, and that collectives do not slow kernels down.
"""

from dataclasses import dataclass, field
from typing import Any

from simcollectives.algorithms.types import Option, choice
from simcollectives.engines.job import DTYPES
from simcollectives.training.buckets import (
    DEFAULT_CAP,
    DEFAULT_FIRST_CAP,
    MIB,
    UNLIMITED,
    Bucket,
    assign,
    in_registration_order,
)
from simcollectives.training.model import Parameter
from simcollectives.training.passes import (
    GRADIENTS,
    backward,
    forward,
    nobody,
    optimizer_step,
    ready_order,
    stand_replicated,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.ddp_hooks import HOOKS, Hook
from simcollectives.training.strategies.types import Options, Strategy, byte_limit, flag
from simcollectives.units import format_bytes

BUCKETS = "buckets"
BUFFER_BUCKET_BYTES = 250 * MIB


def bucket_limits(options: Options) -> tuple[float, ...]:
    """Return the limits in bytes: of the first bucket, the next ..., the last for all others.

    The first is smaller only where no limit is given.
    """
    caps = options["bucket_cap"]
    if caps is None:
        return (DEFAULT_FIRST_CAP, DEFAULT_CAP)
    return tuple(caps) if isinstance(caps, tuple) else (caps,)


def _looks_for_unused(options: Options) -> bool:
    """Whether every iteration looks for parameters without a gradient; a static graph is looked through once."""
    return bool(options["find_unused_parameters"] and not options["static_graph"])


def rebuilding(options: Options) -> int | None:
    """Return the iteration that makes the buckets anew, from the order in which gradients became complete, if any."""
    if _looks_for_unused(options) or options["bucket_order"] == "registration":
        return None
    return 2 if options["static_graph"] else 1


def rebuilt(training: Training, options: Options) -> bool:
    """Whether buckets are those made from the order in which gradients became complete."""
    when = rebuilding(options)
    return when is not None and (training.iteration is None or training.iteration >= when)


def _rebuilds_now(training: Training, options: Options) -> bool:
    return training.iteration is not None and training.iteration == rebuilding(options)


def buckets_of(training: Training, options: Options) -> list[Bucket]:
    """Return the buckets in the order in which they are reduced."""
    how = training.gradient_dtype, training.gradient_bytes
    parameters = training.model.parameters
    limits = bucket_limits(options)
    if options["bucket_order"] == "registration":
        return assign(parameters, limits, *how)
    if rebuilt(training, options):
        return assign(ready_order(training), limits, *how)
    first = assign(parameters, limits if _looks_for_unused(options) else UNLIMITED, *how)
    return in_registration_order(first, parameters)[::-1]


@dataclass
class _Reducer:
    """Launches buckets in order during one backward pass. ``apart``: gradients are not yet views of the buckets."""

    builder: Builder
    training: Training
    options: Options
    buckets: list[Bucket]
    apart: bool
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hook: Hook = HOOKS[self.options["hook"]]
        self.pending = [len(bucket.parameters) for bucket in self.buckets]
        self.bucket_of = {p.name: i for i, bucket in enumerate(self.buckets) for p in bucket.parameters}
        self.delays = self.options["static_graph"] and self.training.iteration == 0

    def ready(self, parameter: Parameter) -> None:
        """Put a complete gradient into its bucket, divided by the number of ranks, and launch what can be."""
        index = self.bucket_of[parameter.name]
        size = self.training.gradient_bytes(parameter)
        seconds = self.training.memory_seconds(2 * size)
        if self.apart:
            frees = [(GRADIENTS, size)] if self.options["gradient_as_bucket_view"] else []
            self.builder.compute(f"{parameter.name} into bucket {index}", seconds, frees=frees)
        elif not self.hook.divides:
            self.builder.compute(f"{parameter.name} divided", seconds)
        self.pending[index] -= 1
        if not self.delays:
            self._launch()

    def _launch(self) -> None:
        while len(self.ends) < len(self.buckets) and self.pending[len(self.ends)] == 0:
            index = len(self.ends)
            self.ends.append(self.hook.reduce(self.builder, self.training, self.options, self.buckets[index], index))

    def finish(self) -> list[int]:
        """End the backward pass: wait for the buckets, and copy them back where gradients are not views of them."""
        self._launch()
        ends = list(self.ends)
        if _looks_for_unused(self.options):
            call = Call("all_reduce", WORLD, self.training.world_size, len(self.training.model.parameters), "int32")
            ends.append(self.builder.collective("unused parameters", call, after=[self.builder.last[COMPUTE]]))
        if self.options["gradient_as_bucket_view"]:
            return ends
        for index, bucket in enumerate(self.buckets):
            seconds = self.training.memory_seconds(2 * bucket.bytes)
            self.builder.compute(f"bucket {index} into gradients", seconds, after=[ends[index]])
        return ends


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    buckets = buckets_of(training, options)
    stand_replicated(builder, training)
    builder.stand(BUCKETS, sum(bucket.bytes for bucket in buckets))
    for item, size in HOOKS[options["hook"]].standing(training, options, buckets):
        builder.stand(item, size)
    views, zeroed = options["gradient_as_bucket_view"], options["zero_grad"] == "zero"
    # Gradients that are zeroed, not set to None, outlive the step; views of buckets do so until new ones are made.
    held = zeroed and training.iteration != 0
    apart = not (views and held) or _rebuilds_now(training, options)
    if held:
        if apart:
            builder.stand(GRADIENTS, training.all_gradient_bytes)
        builder.compute("gradients to zero", training.memory_seconds(training.all_gradient_bytes))
    ends: list[int] = []
    synchronised = True
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        if micro_batch == 0 and _rebuilds_now(training, options):
            _tell_order(builder, training, buckets)
        if synchronised and options["broadcast_buffers"]:
            _broadcast_buffers(builder, training)
        forward(builder, training)
        builder.phase = "backward"
        synchronised = not options["no_sync"] or micro_batch == training.accumulation - 1
        reducer = _Reducer(builder, training, options, buckets, apart)
        told = reducer.ready if synchronised else nobody
        backward(builder, training, told, first=not held and micro_batch == 0)
        if synchronised:
            ends = reducer.finish()
            apart = apart and not views
    optimizer_step(builder, training, ends, frees_gradients=not (views or zeroed))
    return builder.program()


def _tell_order(builder: Builder, training: Training, buckets: list[Bucket]) -> None:
    """Rank 0 tells the others the order of its gradients, from which the buckets are made anew."""
    for name, elements in (
        ("order of gradients", len(training.model.parameters) + 1),
        ("sizes of buckets", len(buckets)),
    ):
        call = Call("broadcast", WORLD, training.world_size, elements, "int32")
        end = builder.collective(name, call, after=_computed(builder))
        builder.host(f"wait for {name}", after=[end])


def _computed(builder: Builder) -> list[int]:
    return [builder.last[COMPUTE]] if COMPUTE in builder.last else []


def _broadcast_buffers(builder: Builder, training: Training) -> None:
    buffers = training.model.buffers
    groups = assign(
        buffers,
        (BUFFER_BUCKET_BYTES,),
        training.parameter_dtype,
        lambda buffer: buffer.elements * DTYPES[training.parameter_dtype(buffer)],
    )
    for group in groups:
        seconds = training.memory_seconds(2 * group.bytes)
        joined = builder.compute("buffers to send", seconds)
        call = Call("broadcast", WORLD, training.world_size, group.elements, group.dtype)
        end = builder.collective("buffers", call, after=[joined])
        builder.compute("buffers", seconds, after=[end])


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of buckets that are larger than the model, and of options of a hook that is not used."""
    found = []
    gradients, cap = training.all_gradient_bytes, bucket_limits(options)[0]
    if options["bucket_cap"] is not None and gradients <= cap:
        why = "one bucket holds them all, and is reduced after the backward pass: nothing overlaps"
        size = f"the gradients of {training.model.name} ({format_bytes(gradients)})"
        found.append(f"{size} are smaller than bucket_cap ({format_bytes(cap)}): {why}")
    for name, hook in HOOKS.items():
        for option in hook.options:
            if options["hook"] != name and options[option.name] != option.default:
                found.append(f"{option.name} does nothing without hook: {name}")
    return tuple(found)


def _caps(value: Any) -> float | tuple[float, ...] | None:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError('[] is empty; write a size such as "25 MiB", or a list of them')
        return tuple(byte_limit(one) for one in value)
    return byte_limit(value)


STRATEGY = Strategy(
    name="ddp",
    summary="PyTorch DistributedDataParallel: all-reduce of buckets during the backward pass",
    reference="Li et al. 2020, PVLDB 13(12); torch 2.13",
    program=write_program,
    options=(
        Option(
            "bucket_cap",
            None,
            'size at which a bucket is closed ("25 MiB"), or a list: the first, the next ..., the last for all others; '
            "without it 1 MiB for the first bucket, 25 MiB for all others",
            _caps,
            quantity="bytes",
        ),
        choice(
            "bucket_order",
            ("ready", "registration"),
            "ready",
            "buckets of gradients in the order in which they become complete, or of parameters as they are registered",
        ),
        flag("static_graph", False, "the graph never changes"),
        flag("find_unused_parameters", False, "look for parameters without a gradient in every iteration"),
        flag("gradient_as_bucket_view", False, "gradients are views of the buckets"),
        choice("zero_grad", ("set_to_none", "zero"), "set_to_none", "what becomes of gradients after the optimizer"),
        flag("broadcast_buffers", True, "rank 0 sends its buffers before a forward pass"),
        flag("no_sync", True, "reduce only the last micro-batch of a step"),
        choice("hook", tuple(HOOKS), "none", "how gradients are compressed"),
        *(option for hook in HOOKS.values() for option in hook.options),
    ),
    warnings=warnings,
)
