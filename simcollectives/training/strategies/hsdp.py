"""Hybrid sharding: groups of ranks hold the model together as in FSDP2, and groups that hold the same reduce gradients.

The mesh has shard groups of consecutive ranks, by default those of a node, and replicas ``shard_size`` apart. A unit's
gradients are reduce-scattered in its shard group, then its shard is all-reduced between replicas, on a communicator and
a stream of its own, so that it overlaps. With S ranks in a shard group and R replicas, and P, w, r as in ``fsdp2``:

    bytes a rank sends = (S - 1)/S x sum P x (2 w + r) + 2 (R - 1)/R x sum P/S x r

Reference: Zhao et al., PVLDB 16(12), 2023; torch 2.13, ``fully_shard`` on a mesh of two dimensions.
"""

from simcollectives.algorithms.types import choice
from simcollectives.errors import Problem
from simcollectives.training.program import Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.fsdp2 import EVERY, LAST, OPTIONS, shards, warnings, write_on_mesh
from simcollectives.training.strategies.fsdp_options import SHARD_SIZE
from simcollectives.training.strategies.fsdp_units import mesh_of, mesh_problems
from simcollectives.training.strategies.types import Options, Strategy


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank.

    Raises:
        InputError: ranks do not divide into shard groups; and what ``fsdp2`` raises.
    """
    return write_on_mesh(training, options, mesh_of(training, options["shard_size"]))


def problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Tell why ranks do not divide into shard groups, or those into the parts that are kept."""
    return mesh_problems(training, options["shard_size"], options["reshard_after_forward"])


STRATEGY = Strategy(
    name="hsdp",
    summary="PyTorch fully_shard on a mesh: sharded within groups of ranks, replicated between them",
    reference="Zhao et al. 2023, PVLDB 16(12); torch 2.13, distributed/fsdp/_fully_shard",
    program=write_program,
    options=(
        SHARD_SIZE,
        choice("all_reduce", (EVERY, LAST), EVERY, "micro-batches of a step that replicas reduce together"),
        *OPTIONS,
    ),
    warnings=warnings,
    problems=problems,
    shards=shards,
)
