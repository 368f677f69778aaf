"""What ZeRO-1 and ZeRO-2 have in common: all but how much is sharded, and how often gradients are reduced."""

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


def strategy_of(stage: int, summary: str) -> Strategy:
    """Return stage 1 or 2."""

    def write_program(training: Training, options: Options) -> Program:
        """Write the step of one rank."""
        if uses_deepspeed(options):
            return zero_all_reduce.write_program(training, options, stage)
        return zero_paper.write_program(training, options, stage)

    def warnings(training: Training, options: Options) -> tuple[str, ...]:
        """Tell of options that do nothing."""
        found = all_reduce_warnings(training, options, OPTIONS, stage)
        return (*found, *offload_warnings(options)) if uses_deepspeed(options) else found

    return Strategy(
        name=f"zero{stage}",
        summary=summary,
        reference="Rajbhandari et al. 2020, arXiv:1910.02054; deepspeed 0.19.8",
        program=write_program,
        options=OPTIONS,
        warnings=warnings,
        problems=offload_problems,
        shards=lambda _options: SHARDED[stage],
    )
