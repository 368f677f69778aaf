"""PyTorch FSDP1, ``FullyShardedDataParallel``: every unit is one flat parameter, sharded over the ranks.

A unit is gathered before it is computed and freed after, in forward and in backward; its gradient is reduce-scattered
while the next unit is computed. The host runs ahead, but with ``limit_all_gathers`` it waits, before it gathers a unit,
for the end of the oldest use of a unit, if it has not yet waited for two. The all-gather's output is the parameter:
nothing is copied out. With P elements of a unit, filled up to a multiple of the ranks:

    bytes a rank sends = (N - 1)/N x sum P x (2 w + r), w of the gathered dtype, r of the reduced

SHARD_GRAD_OP keeps units from forward to backward, P x (w + r); NO_SHARD all-reduces gradients; HYBRID_SHARD shards in
groups and all-reduces shards between them. A shard group of one rank is NO_SHARD. Reference: Zhao et al., PVLDB 16(12),
2023; torch 2.13: distributed/fsdp. Assumes that every parameter gets a gradient.
"""

from dataclasses import replace

from simcollectives.algorithms.types import choice
from simcollectives.errors import Problem
from simcollectives.training.passes import backward, forward
from simcollectives.training.program import Builder, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.fsdp1_step import Fsdp1Step
from simcollectives.training.strategies.fsdp_options import SHARD_SIZE, SHARED
from simcollectives.training.strategies.fsdp_units import (
    Mesh,
    dtypes_of,
    mesh_of,
    mesh_problems,
    unit_warnings,
    units_of,
)
from simcollectives.training.strategies.types import Options, Strategy, flag

HYBRID, NO_SHARD = "HYBRID_SHARD", "NO_SHARD"
MOST_STEPS = 10


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank.

    Raises:
        InputError: dtypes differ within a unit, or ranks do not divide into shard groups.
    """
    free_events = _free_events_before(training, options) if options["limit_all_gathers"] else 0
    return _write(training, options, free_events)[0]


def _free_events_before(training: Training, options: Options) -> int:
    """Return how many ends of uses the host has not waited for when the step begins.

    Every step leaves some to the next; after a few it is always as many, which is the steady state.
    """
    steps = MOST_STEPS if training.iteration is None else min(training.iteration, MOST_STEPS)
    before, seen = 0, -1
    for iteration in range(steps):
        if before == seen and iteration > 1:
            break
        seen = before
        before = _write(replace(training, iteration=iteration), options, before)[1]
    return before


def _write(training: Training, options: Options, free_events: int) -> tuple[Program, int]:
    """Write a step that begins with some free events; return it, and how many it leaves."""
    hybrid = options["sharding_strategy"] == HYBRID
    mesh = mesh_of(training, options["shard_size"]) if hybrid else Mesh(training.world_size)
    units = units_of(training.model, options["units"])
    dtypes = dtypes_of(training, units, options)
    builder = Builder()
    sharded = options["sharding_strategy"] != NO_SHARD and mesh.shard > 1
    step = Fsdp1Step(builder, training, units, mesh, dtypes, options, [None] * free_events, sharded)
    step.stand()
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        step.begin_forward(forward_order_known=training.iteration != 0 or micro_batch > 0)
        forward(builder, training, step.forward_hooks)
        step.end_forward()
        if options["host_reads_loss"] and (computed := builder.latest()):
            builder.host("read the loss", after=computed)
        builder.phase = "backward"
        last = micro_batch == training.accumulation - 1
        step.begin_backward(synchronised=last or not options["no_sync"])
        backward(builder, training, step.backward_hooks)
        step.end_backward()
    step.optimizer()
    return builder.program(), len(step.free_events)


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of what the options leave unused."""
    found = unit_warnings(training, options)
    if options["shard_size"] is not None and options["sharding_strategy"] != HYBRID:
        found.append(f"shard_size does nothing without sharding_strategy: {HYBRID}")
    return tuple(found)


def problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Tell why ranks do not divide into shard groups."""
    return mesh_problems(training, options["shard_size"]) if options["sharding_strategy"] == HYBRID else ()


def _shards(options: Options) -> str:
    return {NO_SHARD: "nothing", "SHARD_GRAD_OP": "gradients"}.get(options["sharding_strategy"], "parameters")


STRATEGY = Strategy(
    name="fsdp1",
    summary="PyTorch FullyShardedDataParallel: units are flat parameters, gathered for forward and backward",
    reference="Zhao et al. 2023, PVLDB 16(12); torch 2.13, distributed/fsdp",
    program=write_program,
    options=(
        choice(
            "sharding_strategy",
            ("FULL_SHARD", "SHARD_GRAD_OP", NO_SHARD, HYBRID),
            "FULL_SHARD",
            "what is sharded, and whether units are freed after forward",
        ),
        SHARD_SIZE,
        flag("limit_all_gathers", True, "the host waits for the use of earlier units before it gathers another"),
        flag("forward_prefetch", False, "the next unit is gathered before this one's forward, from the second pass on"),
        choice(
            "backward_prefetch",
            ("BACKWARD_PRE", "BACKWARD_POST", "none"),
            "BACKWARD_PRE",
            "the next unit is gathered before this one's gradients are computed, after that, or when it is needed",
        ),
        flag("use_orig_params", False, "original parameters are kept, each at a multiple of 16 bytes"),
        flag("no_sync", False, "reduce only the last micro-batch of a step"),
        *SHARED,
    ),
    warnings=warnings,
    problems=problems,
    shards=_shards,
)
