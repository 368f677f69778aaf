"""ZeRO-3: every rank keeps 1/N of everything; parameters are gathered when they are needed.

Two implementations: the paper's (``zero_gathered``), and DeepSpeed's (``zero_traced``), which gathers by a recorded
trace, and has ZeRO++ (hpZ, qwZ, qgZ). With ``offload_optimizer`` and ``offload_param`` (ZeRO-Offload, ZeRO-Infinity)
states are on the host or on its drives.

    memory of a rank, mixed-precision Adam = (2 + 2 + 12)/N bytes a parameter

Reference: Rajbhandari et al. 2020, arXiv:1910.02054; Rajbhandari et al. 2021, arXiv:2104.07857; Wang et al. 2023,
arXiv:2306.10209.
"""

from simcollectives.errors import Problem
from simcollectives.training.offload import offloads
from simcollectives.training.program import Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies import zero_gathered, zero_traced
from simcollectives.training.strategies.types import Options, Strategy, shards_parameters
from simcollectives.training.strategies.zero_offload import OFFLOAD_3, offload_problems, offload_warnings
from simcollectives.training.strategies.zero_options import (
    IMPLEMENTATION,
    REDUCE_BUCKET,
    SHARED,
    STAGE_3,
    deepspeed_warnings,
    group_problems,
    overlap_comm,
    paper_warnings,
    uses_deepspeed,
)
from simcollectives.training.strategies.zero_visits import Tree

OPTIONS = (IMPLEMENTATION, REDUCE_BUCKET, overlap_comm(True), *SHARED, *STAGE_3, *OFFLOAD_3)


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    if uses_deepspeed(options):
        return zero_traced.write_program(training, options)
    return zero_gathered.write_program(training)


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of options that do nothing."""
    if not uses_deepspeed(options):
        return paper_warnings(options, OPTIONS, ())
    found = [*deepspeed_warnings(training, options), *offload_warnings(options)]
    if options["zero_quantized_gradients"] and training.cluster.nodes == 1:
        found.append("zero_quantized_gradients does nothing on one node: gradients are reduce-scattered")
    if options["zero_quantized_gradients"] and options["contiguous_gradients"] and not options["reduce_scatter"]:
        found.append("zero_quantized_gradients does nothing with reduce_scatter: false")
    if options["zero_quantized_weights"] and options["use_all_reduce_for_fetch_params"]:
        found.append("use_all_reduce_for_fetch_params does nothing with zero_quantized_weights")
    if options["zero_quantized_weights"]:
        found += _odd_shards(training)
    if threshold := options["module_granularity_threshold"]:
        smallest = min(Tree(training.model).granularities.values(), default=0)
        if threshold < smallest:
            rule = f"the smallest granularity of a module is {smallest}"
            found.append(f"module_granularity_threshold: {threshold} does nothing: {rule}")
    return tuple(found)


def problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Tell why options do not go together, with each other or with the cluster."""
    found = group_problems(training, options)
    if offloads(options)[1] != "none" and options["zero_hpz_partition_size"] > 1:
        rule = "second shards of parameters that are offloaded are not modelled; leave it out, or offload_param"
        found = (*found, Problem("zero_hpz_partition_size", rule))
    groups = zero_traced.groups_of(training, options)[1]
    return (*found, *offload_problems(training, options, groups))


def _odd_shards(training: Training) -> list[str]:
    """Tell of shards that DeepSpeed cannot quantize."""
    ranks = training.world_size
    odd = [p.name for p in training.model.parameters if -(-p.elements // ranks) % 8]
    if not odd:
        return []
    rule = f"DeepSpeed only quantizes shards of a multiple of 8 elements; on {ranks} ranks {odd[0]}"
    more = f" and {len(odd) - 1} others have" if len(odd) > 1 else " has"
    return [f"{rule}{more} none: here the last group is smaller"]


STRATEGY = Strategy(
    name="zero3",
    summary="optimizer states, gradients and parameters are divided among the ranks",
    reference="Rajbhandari et al. 2020, arXiv:1910.02054; deepspeed 0.19.8",
    program=write_program,
    options=OPTIONS,
    warnings=warnings,
    problems=problems,
    shards=shards_parameters,
)
