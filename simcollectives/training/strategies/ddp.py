"""PyTorch DistributedDataParallel: gradients are all-reduced in buckets while the backward pass goes on.

A bucket is reduced when its gradients and those of all buckets before it are complete; the optimizer waits for all. In
the first iteration there is one bucket for each dtype, so nothing overlaps; after it, buckets are made anew from the
order in which gradients became complete (with ``static_graph`` one iteration later, with ``find_unused_parameters``
never). Under ``no_sync`` only the last micro-batch of a step is reduced. Gradients are copied into the buckets and
back, and held twice, unless they are views of the buckets: then those that are made anew are copied once, and those
that outlive the step are divided in place.

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
    BUCKETS,
    GRADIENTS,
    NO_HOOKS,
    Hooks,
    backward,
    forward,
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

BUFFER_BUCKET_BYTES = 250 * MIB


def bucket_limits(options: Options) -> tuple[float, ...]:
    """Return the limits in bytes: of the first bucket, the next ..., the last for all others.

    The first is smaller only where no limit is given.
    """
    caps = options["bucket_cap"]
    if caps is None:
        return (DEFAULT_FIRST_CAP, DEFAULT_CAP)
    return tuple(caps) if isinstance(caps, tuple) else (caps,)


def _rebuilt_after(options: Options) -> int | None:
    """Return after how many reduced backward passes buckets are made anew; None: never."""
    if options["bucket_order"] == "registration":
        return None
    if options["static_graph"]:
        return 2
    return None if options["find_unused_parameters"] else 1


def buckets_of(training: Training, options: Options, reduced: int | None = None) -> list[Bucket]:
    """Return the buckets in the order in which they are reduced, after so many ``reduced`` backward passes.

    None is the steady state.
    """
    how = training.gradient_dtype, training.gradient_bytes
    parameters, limits = training.model.parameters, bucket_limits(options)
    when = _rebuilt_after(options)
    if options["bucket_order"] == "registration":
        return assign(parameters, limits, *how)
    if when is not None and (reduced is None or reduced >= when):
        return assign(ready_order(training), limits, *how)
    first = assign(parameters, limits if when is None else UNLIMITED, *how)
    return in_registration_order(first, parameters)[::-1]


@dataclass
class _Reducer:
    """Launches buckets in order during one backward pass. ``apart``: gradients are not yet views of the buckets.

    ``delays`` the launches to the end, as the first pass over a static graph does.
    """

    builder: Builder
    training: Training
    options: Options
    buckets: list[Bucket]
    apart: bool
    delays: bool
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hook: Hook = HOOKS[self.options["hook"]]
        self.pending = [len(bucket.parameters) for bucket in self.buckets]
        self.bucket_of = {p.name: i for i, bucket in enumerate(self.buckets) for p in bucket.parameters}

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

    def finish(self) -> None:
        """End the backward pass: wait for the buckets, and copy them back where gradients are not views of them."""
        unused = [self._unused()] if self.delays else []
        self._launch()
        if self.options["find_unused_parameters"] and not self.options["static_graph"]:
            unused = [self._unused()]
        if not self.options["gradient_as_bucket_view"]:
            for index, bucket in enumerate(self.buckets):
                seconds = self.training.memory_seconds(2 * bucket.bytes)
                self.builder.compute(f"bucket {index} into gradients", seconds, after=[self.ends[index]])
        self.builder.compute("wait for the buckets", 0.0, after=[*self.ends, *unused])

    def _unused(self) -> int:
        """Tell all ranks which parameters had no gradient: a number for each."""
        call = Call("all_reduce", WORLD, self.training.world_size, len(self.training.model.parameters), "int32")
        return self.builder.collective("unused parameters", call, after=[self.builder.last[COMPUTE]])


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    steady = buckets_of(training, options)
    stand_replicated(builder, training)
    builder.stand(BUCKETS, sum(bucket.bytes for bucket in steady))
    for item, size in HOOKS[options["hook"]].standing(training, options, steady):
        builder.stand(item, size)
    # Gradients that are zeroed, not set to None, outlive a step.
    views, kept = options["gradient_as_bucket_view"], options["zero_grad"] == "zero"
    held = kept and training.iteration != 0
    if held and not views:
        builder.stand(GRADIENTS, training.all_gradient_bytes)
    if held:
        builder.compute("gradients to zero", training.memory_seconds(training.all_gradient_bytes))
    _passes(builder, training, options, steady, held)
    optimizer_step(builder, training, frees_gradients=not (views or kept))
    return builder.program()


def _passes(builder: Builder, training: Training, options: Options, steady: list[Bucket], held: bool) -> None:
    """Issue all micro-batches. ``held``: gradients of zero are there already."""
    views = options["gradient_as_bucket_view"]
    reduced = _reduced_before(training, options)
    synchronised, apart = True, not (views and held)
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        buckets = steady if reduced is None else buckets_of(training, options, reduced)
        if synchronised and reduced is not None and reduced == _rebuilt_after(options):
            _tell_order(builder, training, buckets)
            if not apart:
                # Gradients are views of the old buckets, which stay until each has been copied.
                builder.compute("new buckets", 0.0, allocates=[(GRADIENTS, training.all_gradient_bytes)])
                apart = True
        if synchronised and options["broadcast_buffers"]:
            _broadcast_buffers(builder, training)
        forward(builder, training)
        builder.phase = "backward"
        synchronised = not options["no_sync"] or micro_batch == training.accumulation - 1
        reducer = _Reducer(builder, training, options, buckets, apart, options["static_graph"] and reduced == 0)
        hooks = Hooks(ready=reducer.ready) if synchronised else NO_HOOKS
        backward(builder, training, hooks, first=not held and micro_batch == 0)
        if synchronised:
            reducer.finish()
            apart = apart and not views
            reduced = None if reduced is None else reduced + 1


def _reduced_before(training: Training, options: Options) -> int | None:
    """Return how many backward passes were reduced before this step; None in the steady state."""
    if training.iteration is None:
        return None
    return training.iteration * (1 if options["no_sync"] else training.accumulation)


def _tell_order(builder: Builder, training: Training, buckets: list[Bucket]) -> None:
    """Rank 0 tells the others its order of gradients, once, when buckets are made from it."""
    for name, elements in (
        ("order of gradients", len(training.model.parameters) + 1),
        ("sizes of buckets", len(buckets)),
    ):
        call = Call("broadcast", WORLD, training.world_size, elements, "int32")
        end = builder.collective(name, call, after=builder.latest())
        builder.host(f"wait for {name}", after=[end])


def _broadcast_buffers(builder: Builder, training: Training) -> None:
    buffers = training.model.buffers
    groups = assign(
        buffers,
        (BUFFER_BUCKET_BYTES,),
        training.parameter_dtype,
        lambda buffer: buffer.elements * DTYPES[training.parameter_dtype(buffer)],
    )
    for group in in_registration_order(groups, buffers):
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
