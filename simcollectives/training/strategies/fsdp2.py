"""PyTorch FSDP2, ``fully_shard``: every rank holds a shard of each unit, and gathers the unit to compute with it.

In the forward pass the host runs ahead, so that the next unit is gathered while this one is computed; a unit's shard is
all that stays after it. In the backward pass a unit is gathered again before the one behind it is computed, and its
gradients are reduce-scattered while the next is. All-gathers and reduce-scatters share a communicator: they run in the
order in which they are issued, AG(root), AG(0) .. AG(L-1); AG(L-1), AG(L-2), RS(L-1), AG(L-3), RS(L-2) .. RS(0),
RS(root). With P elements of a unit, padding included (each tensor's rows are filled up to a multiple of the ranks):

    bytes a rank sends = (N - 1)/N x sum P x (2 w + r), w of the gathered dtype, r of the reduced, whatever the units

Each tensor is divided along its first dimension. Reference: Zhao et al., PVLDB 16(12), 2023; torch 2.13:
distributed/fsdp/_fully_shard. Assumes that every parameter gets a gradient, and that copies run at the speed of memory.
"""

from typing import Any

from simcollectives.algorithms.types import Option, choice, whole_number
from simcollectives.errors import Problem, show_value
from simcollectives.training.passes import backward, forward
from simcollectives.training.program import Builder, Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.fsdp2_step import Fsdp2Step
from simcollectives.training.strategies.fsdp_options import SHARED
from simcollectives.training.strategies.fsdp_units import Mesh, dtypes_of, mesh_problems, unit_warnings, units_of
from simcollectives.training.strategies.types import SHARDED, Options, Strategy, flag

EVERY, LAST = "every", "last"


def write_on_mesh(training: Training, options: Options, mesh: Mesh) -> Program:
    """Write the step of one rank.

    Raises:
        InputError: dtypes differ within a unit.
    """
    units = units_of(training.model, options["units"])
    builder = Builder()
    step = Fsdp2Step(builder, training, units, mesh, dtypes_of(training, units, options), options)
    step.stand()
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        step.begin_forward()
        forward(builder, training, step.forward_hooks)
        step.end_forward()
        if options["host_reads_loss"] and (computed := builder.latest()):
            builder.host("read the loss", after=computed)
        builder.phase = "backward"
        last = micro_batch == training.accumulation - 1
        step.begin_backward(synchronised=last or options["gradient_sync"] == EVERY, last=last)
        backward(builder, training, step.backward_hooks, first=not step.raw_held)
        step.end_backward()
    step.optimizer()
    return builder.program()


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank; all ranks hold the model together."""
    return write_on_mesh(training, options, Mesh(training.world_size))


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of what the options leave unused."""
    found = unit_warnings(training, options)
    if options["reshard_after_forward"] is False and options["backward_prefetch"] > 1:
        found.append("backward_prefetch does nothing where units are kept after forward")
    return tuple(found)


def problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Tell why ranks do not divide into the parts that ``reshard_after_forward`` asks for."""
    return mesh_problems(training, training.world_size, options["reshard_after_forward"])


def shards(options: Options) -> str:
    """Without resharding after forward, parameters are whole when most stands: as ZeRO-2."""
    return SHARDED[2] if options["reshard_after_forward"] is False else SHARDED[3]


def _reshards(value: Any) -> bool | int | None:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value >= 1):
        return value
    raise ValueError(f"{show_value(value)} is not valid; write true, false, or a number of ranks")


OPTIONS: tuple[Option, ...] = (
    Option(
        "reshard_after_forward",
        None,
        "units are freed after forward; false: kept; a number of ranks: kept in parts, one for so many ranks; without "
        "it all are freed but the root",
        _reshards,
    ),
    flag("reshard_last_unit", True, "the last unit, which the backward pass needs first, is freed after forward, too"),
    flag("unshard_first_in_backward", True, "the first unit is gathered again in backward, needed or not"),
    flag(
        "reshard_after_backward", True, "units are freed after the backward pass of every micro-batch, not of the last"
    ),
    choice("gradient_sync", (EVERY, LAST), EVERY, "micro-batches of a step whose gradients are reduced"),
    flag("wait_in_every_backward", True, "every backward pass ends with a wait for its reductions, not only the last"),
    whole_number("forward_prefetch", 0, "units gathered before a unit is computed; 0: as the host runs ahead"),
    whole_number("backward_prefetch", 1, "units gathered before a unit's gradients are computed", least=1),
    whole_number("reduce_scatter_buffers", 1, "inputs of reduce-scatters that may be in flight", least=1),
    flag("separate_reduce_scatter_group", False, "reduce-scatters have a communicator of their own"),
    *SHARED,
)

STRATEGY = Strategy(
    name="fsdp2",
    summary="PyTorch fully_shard: units of sharded parameters, gathered for forward and backward",
    reference="Zhao et al. 2023, PVLDB 16(12); torch 2.13, distributed/fsdp/_fully_shard",
    program=write_program,
    options=OPTIONS,
    warnings=warnings,
    problems=problems,
    shards=shards,
)
