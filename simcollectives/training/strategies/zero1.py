"""ZeRO-1: every rank keeps 1/N of the optimizer states; gradients are reduced to their owners, parameters gathered.

Two implementations: the paper's (``zero_paper``) and DeepSpeed's, which all-reduces gradients (``zero_all_reduce``).

    memory of a rank, mixed-precision Adam = (2 + 2 + 12/N) bytes a parameter

With ``offload_optimizer: cpu`` (ZeRO-Offload) states and optimizer are on the host.

Reference: Rajbhandari et al. 2020, arXiv:1910.02054; Ren et al. 2021, arXiv:2101.06840.
"""

from simcollectives.training.program import Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies import zero_all_reduce, zero_paper
from simcollectives.training.strategies.types import SHARDED, Options, Strategy
from simcollectives.training.strategies.zero_offload import OFFLOAD_1_2, offload_problems, offload_warnings
from simcollectives.training.strategies.zero_options import (
    IMPLEMENTATION,
    REDUCE_BUCKET,
    SHARED,
    STAGE_1_2,
    all_reduce_warnings,
    overlap_comm,
    uses_deepspeed,
)

OPTIONS = (IMPLEMENTATION, REDUCE_BUCKET, overlap_comm(False), *SHARED, *STAGE_1_2, *OFFLOAD_1_2)


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    if uses_deepspeed(options):
        return zero_all_reduce.write_program(training, options, stage=1)
    return zero_paper.write_program(training, options, stage=1)


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of options that do nothing."""
    found = all_reduce_warnings(training, options, OPTIONS, stage=1)
    return (*found, *offload_warnings(options)) if uses_deepspeed(options) else found


def _shards(_options: Options) -> str:
    return SHARDED[1]


STRATEGY = Strategy(
    name="zero1",
    summary="optimizer states are divided among the ranks",
    reference="Rajbhandari et al. 2020, arXiv:1910.02054; deepspeed 0.19.8",
    program=write_program,
    options=OPTIONS,
    warnings=warnings,
    problems=offload_problems,
    shards=_shards,
)
