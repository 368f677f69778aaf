"""ZeRO-3 as DeepSpeed does it: the step, from gathering parameters (``zero_prefetch``) and reducing gradients
(``zero_scatter``).

In the first iteration the first micro-batch is recorded; ranks then tell each other what they recorded. The optimizer
goes through the rank's shard in groups of ``sub_group_size``, each with its gradients copied to float32.

Reference: deepspeed 0.19.8, runtime/zero/stage3.py. Assumes that the whole model has one dtype.
"""

from collections.abc import Sequence
from dataclasses import replace

from simcollectives.training.model import Module, Parameter
from simcollectives.training.offload import Host, HostOptimizer, copy_to_host, offloads, on_device
from simcollectives.training.passes import (
    BUCKETS,
    GRADIENT_COPY,
    GRADIENTS,
    PARAMETERS,
    Hooks,
    backward,
    forward,
    optimizer_on,
    stand_buffers,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Program
from simcollectives.training.setup import Training
from simcollectives.training.sharding import (
    UNSHARDED_GRADIENTS,
    padded,
    stand_optimizer_shard,
)
from simcollectives.training.strategies.types import Options
from simcollectives.training.strategies.zero_all_reduce import tell
from simcollectives.training.strategies.zero_fetch import persistent_parameters, visits_of
from simcollectives.training.strategies.zero_offload import host_in_use
from simcollectives.training.strategies.zero_options import Dtypes, dtypes_of, with_gradient_copy
from simcollectives.training.strategies.zero_prefetch import Parameters
from simcollectives.training.strategies.zero_scatter import Gradients, local_elements
from simcollectives.training.strategies.zero_visits import Stop, Tree, stops_of_step


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    training, dtypes = with_gradient_copy(training), dtypes_of(training, options)
    persistent = persistent_parameters(training.model.parameters, options)
    host, (optimizer, parameters) = host_in_use(training, options), offloads(options)
    gathered = Parameters(builder, training, options, dtypes, persistent, host=host if parameters != "none" else None)
    gradients = Gradients(
        builder,
        training,
        options,
        dtypes,
        host=host if optimizer != "none" else None,
        stays=names_on_device(training, options),
    )
    _stand(builder, training, options, dtypes, gathered)
    stops = stops_of_step(training, Tree(training.model, options["module_granularity_threshold"]))
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        before = _passes_before(training, micro_batch)
        gradients.last = micro_batch == training.accumulation - 1
        _tell_records(builder, training, stops, before)
        gathered.begin(stops, known=before is None or before > 0)
        _pass(builder, training, dtypes, gathered, gradients)
    _step(builder, training, options, dtypes, host)
    gathered.renew()
    return builder.program()


def _stand(builder: Builder, training: Training, options: Options, dtypes: Dtypes, gathered: Parameters) -> None:
    """Note shards of everything, a bucket, and what is whole."""
    shard = local_elements(training.model.parameters, training.world_size)
    optimizer, parameters = offloads(options)
    if parameters == "none":
        builder.stand(PARAMETERS, shard * dtypes.model_bytes)
    stand_buffers(builder, training)
    if optimizer == "none":
        stand_optimizer_shard(builder, training, shard)
        builder.stand(GRADIENTS, shard * dtypes.accumulation_bytes)
    elif here := sum(groups_of(training, options)[0]):
        stand_optimizer_shard(builder, training, here)
        builder.stand(GRADIENT_COPY, 4 * here)
    if options["contiguous_gradients"]:
        builder.stand(BUCKETS, options["reduce_bucket_size"] * dtypes.model_bytes)
    gathered.stand()


def _passes_before(training: Training, micro_batch: int) -> int | None:
    """Return how many passes there were before this one; None in the steady state."""
    return None if training.iteration is None else training.iteration * training.accumulation + micro_batch


def _tell_records(builder: Builder, training: Training, stops: Sequence[Stop], before: int | None) -> None:
    """Rank 0 tells the others what it recorded: nothing before the first pass, modules and parameters after it."""
    visits = visits_of(stops)
    parameters = sum(len(visit.parameters) for visit in visits)
    lists = {0: [0], 1: [len(visits), parameters, parameters]}.get(-1 if before is None else before, [])
    for length in lists:
        for elements in (1, length):
            call = Call("broadcast", WORLD, training.world_size, elements, "int64")
            end = builder.collective("recorded modules", call, after=list(builder.last.values())[-1:])
            builder.host("wait for recorded modules", after=[end])


def _pass(builder: Builder, training: Training, dtypes: Dtypes, gathered: Parameters, gradients: Gradients) -> None:
    waiting: list[Parameter] = []

    def after(module: Module) -> None:
        """Reduce gradients in registration order (the linear function of stage 3 returns the weight's first).

        Those of a container that is gathered whole wait until all of it is done.
        """
        if not gathered.stops[0].whole or gathered.stops[0].left is not None:
            for parameter in sorted(waiting, key=lambda p: training.model.place[p.name]):
                gradients.ready(parameter)
            waiting.clear()
        gathered.after(module)

    forward(builder, training, Hooks(before_module=gathered.before, after_module=gathered.after))
    builder.phase = "backward"
    hooks = Hooks(
        before_module=gathered.before,
        after_module=after,
        before_again=gathered.before,
        after_again=gathered.after,
        ready=waiting.append,
        gradient_bytes=lambda p: p.elements * dtypes.model_bytes,
        gradient_item=UNSHARDED_GRADIENTS,
    )
    backward(builder, training, hooks)
    gradients.finish()
    gathered.end()


def sub_groups(parameters: Sequence[Parameter], ranks: int, size: int) -> list[list[Parameter]]:
    """Return what the optimizer takes at a time; a group is closed when a rank's shard of it is full."""
    found: list[list[Parameter]] = [[]]
    held = 0
    for parameter in parameters:
        if found[-1] and held >= size:
            found.append([])
            held = 0
        found[-1].append(parameter)
        held += padded(parameter.elements, ranks) // ranks
    return found if parameters else []


def groups_of(training: Training, options: Options) -> tuple[list[int], list[int]]:
    """Return the elements of a rank's sub-groups: those whose optimizer is on the device, and those on the host."""
    ranks = training.world_size
    groups = sub_groups(training.model.parameters, ranks, options["sub_group_size"])
    sizes = [local_elements(group, ranks) for group in groups]
    here = len(sizes) if offloads(options)[0] == "none" else on_device(sizes, options["ratio"])
    return sizes[:here], sizes[here:]


def names_on_device(training: Training, options: Options) -> frozenset[str]:
    """Return the parameters whose optimizer is on the device."""
    groups = sub_groups(training.model.parameters, training.world_size, options["sub_group_size"])
    return frozenset(p.name for group in groups[: len(groups_of(training, options)[0])] for p in group)


def _step(builder: Builder, training: Training, options: Options, dtypes: Dtypes, host: Host | None) -> None:
    """The optimizer, after the norm of the gradients, and in float16 their overflow; the host waits for each."""
    builder.phase = "optimizer"
    optimizer, parameters = offloads(options)
    shard = local_elements(training.model.parameters, training.world_size)
    read = shard * dtypes.accumulation_bytes if optimizer == "none" else 0
    if dtypes.model == "float16":
        tell(builder, training, "overflow of gradients", "uint8", read)
    tell(builder, training, "norm of gradients", "float64", read)
    here, there = groups_of(training, options)
    gradient_dtype = dtypes.accumulation
    if optimizer != "none":
        # Gradients are in float32 already.
        training = replace(training, optimizer=replace(training.optimizer, gradient_copy=False))
        gradient_dtype = "float32"
    for elements in here:
        end = optimizer_on(builder, training, [(elements, dtypes.model, gradient_dtype)])
        if host is not None and parameters != "none":
            size = elements * dtypes.model_bytes
            copy_to_host(builder, host, "updated parameters", size, stream=COMPUTE, after=[end], blocks=True)
    if there and host is not None:
        updater = HostOptimizer(builder, training, host, options, dtypes.model, COMPUTE, blocks=True)
        end = updater.run(there, after=builder.last.values())
        builder.compute("parameters updated", 0.0, after=[end])
    if COMPUTE not in builder.last:
        builder.compute("optimizer", 0.0)
