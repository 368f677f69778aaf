"""Options of the ZeRO strategies, with the names and defaults of DeepSpeed's configuration, and which do nothing.

Names and defaults are those of deepspeed 0.19.8 (runtime/zero/config.py), without the prefix ``stage3_``; sizes are in
elements, as there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from simcollectives.algorithms.types import Option, choice, whole_number
from simcollectives.engines.job import DTYPES
from simcollectives.errors import Problem
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options, element_count, flag

PAPER, DEEPSPEED = "paper", "deepspeed"
AUTO = "auto"
SHORT_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
UNLIMITED_ELEMENTS = (1 << 63) - 1


def elements(name: str, default: int, summary: str) -> Option:
    """Return an option that is a number of elements."""
    return Option(name, default, f"{summary}, in elements", partial(element_count, least=0, most=UNLIMITED_ELEMENTS))


def dtype_option(name: str, summary: str) -> Option:
    """Return an option that is a dtype, by its long name or DeepSpeed's short one."""
    plain = choice(name, (AUTO, *SHORT_DTYPES.values()), AUTO, summary)

    def check(value: Any) -> Any:
        return plain.check(SHORT_DTYPES.get(value, value) if isinstance(value, str) else value)

    return replace(plain, check=check)


IMPLEMENTATION = choice(
    "implementation",
    (PAPER, DEEPSPEED),
    PAPER,
    "reduce-scatter and all-gather as in the paper, or what DeepSpeed does",
)
REDUCE_BUCKET = elements("reduce_bucket_size", 500_000_000, "size of a bucket of gradients")
SHARED = (
    flag("contiguous_gradients", True, "gradients are copied into a buffer before they are reduced"),
    flag("reduce_scatter", True, "reduce to the owners where the stage can; false: a plain all-reduce"),
    dtype_option("communication_data_type", "dtype that gradients are reduced in; auto: the model's if it has 16 bits"),
    dtype_option("grad_accum_dtype", "dtype that gradients are added up in; auto: the model's"),
)
STAGE_1_2 = (
    flag("use_multi_rank_bucket_allreduce", True, "all-reduce a whole bucket; false: a reduce to each of its owners"),
    flag("round_robin_gradients", False, "neighbouring parameters belong to different ranks"),
)
STAGE_3 = (
    elements("prefetch_bucket_size", 50_000_000, "what one module's call gathers ahead"),
    elements("param_persistence_threshold", 100_000, "parameters up to this size stay whole on every rank"),
    elements("model_persistence_threshold", UNLIMITED_ELEMENTS, "the most that stays whole for that reason"),
    elements("max_live_parameters", 1_000_000_000, "gathered parameters at which nothing more is gathered ahead"),
    elements("max_reuse_distance", 1_000_000_000, "parameters used again within this distance are not released"),
    elements("sub_group_size", 1_000_000_000, "the part of a rank's shard that the optimizer takes at a time"),
    elements("module_granularity_threshold", 0, "modules of at most this many for each one in them are gathered whole"),
    flag("use_all_reduce_for_fetch_params", False, "gather several parameters by an all-reduce"),
    whole_number("zero_hpz_partition_size", 1, "ranks of a node that keep a second copy of the parameters; 1: none", 1),
    flag("zero_quantized_weights", False, "gather parameters in 8 bits"),
    flag("zero_quantized_gradients", False, "reduce gradients in 4 bits by two all-to-alls"),
)


def overlap_comm(default: bool) -> Option:
    """Return DeepSpeed's option, true for stage 3 unless it is written."""
    return flag("overlap_comm", default, "communicate gradients while the backward pass goes on")


def uses_deepspeed(options: Options) -> bool:
    """Whether to do what DeepSpeed does."""
    return bool(options["implementation"] == DEEPSPEED)


@dataclass(frozen=True)
class Dtypes:
    """DeepSpeed's dtypes: of parameters and their gradients, of what is reduced, of what is added up."""

    model: str
    communication: str
    accumulation: str

    @property
    def model_bytes(self) -> int:
        """Bytes of a parameter, and of its gradient."""
        return DTYPES[self.model]

    @property
    def communication_bytes(self) -> int:
        """Bytes of a gradient while it is reduced."""
        return DTYPES[self.communication]

    @property
    def accumulation_bytes(self) -> int:
        """Bytes of a gradient while it is kept."""
        return DTYPES[self.accumulation]


def dtypes_of(training: Training, options: Options) -> Dtypes:
    """Return the dtypes in use: the whole model has that of the run's parameters."""
    model = training.precision.parameters
    reduced, kept = options["communication_data_type"], options["grad_accum_dtype"]
    default = model if DTYPES[model] == 2 else "float32"
    return Dtypes(model, default if reduced == AUTO else reduced, model if kept == AUTO else kept)


def with_gradient_copy(training: Training) -> Training:
    """Return the run with DeepSpeed's optimizer, which always copies gradients to float32."""
    return replace(training, optimizer=replace(training.optimizer, gradient_copy=True))


def paper_warnings(options: Options, known: Iterable[Option], used: tuple[str, ...]) -> tuple[str, ...]:
    """Tell of options that only DeepSpeed has."""
    remedy = "does nothing with implementation: paper; write implementation: deepspeed"
    used = ("implementation", *used)
    return tuple(f"{o.name} {remedy}" for o in known if o.name not in used and options[o.name] != o.default)


def deepspeed_warnings(training: Training, options: Options) -> list[str]:
    """Tell of what does nothing in any stage."""
    found = []
    model, gradients = training.precision.parameters, training.precision.gradients
    if model != gradients:
        rule = f"DeepSpeed keeps gradients in {model} like parameters, not in {gradients}"
        found.append(f"{rule}; grad_accum_dtype and communication_data_type say what becomes of them")
    if not (options["reduce_scatter"] or options["contiguous_gradients"]):
        found.append("reduce_scatter: false does nothing without contiguous_gradients")
    return found


def group_problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Refuse second shards over a number of ranks that does not divide all."""
    size, ranks = options["zero_hpz_partition_size"], training.world_size
    if not uses_deepspeed(options) or ranks % min(size, ranks) == 0:
        return ()
    return (Problem("zero_hpz_partition_size", f"{ranks} ranks are no groups of {size}; take a divisor of {ranks}"),)


def all_reduce_warnings(training: Training, options: Options, known: Iterable[Option], stage: int) -> tuple[str, ...]:
    """Tell of options that do nothing in stages 1 and 2."""
    if not uses_deepspeed(options):
        return paper_warnings(options, known, ("reduce_bucket_size",))
    found = deepspeed_warnings(training, options)
    dtypes = dtypes_of(training, options)
    if stage == 1 and (dtypes.model, dtypes.accumulation) == ("bfloat16", "float32"):
        found.append("DeepSpeed uses its BF16_Optimizer for grad_accum_dtype: float32 in stage 1; it is not modelled")
    to_owners = options["reduce_scatter"] and options["contiguous_gradients"]
    if not (to_owners or options["use_multi_rank_bucket_allreduce"]):
        rule = "does nothing without reduce_scatter and contiguous_gradients"
        found.append(f"use_multi_rank_bucket_allreduce: false {rule}")
    return tuple(found)
