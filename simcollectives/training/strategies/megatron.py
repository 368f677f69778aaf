"""Megatron-LM's data parallelism with its distributed optimizer: whole parameters and gradients, a shard of the states.

Gradients of all micro-batches add up in one buffer; nothing is communicated before the last. Then every bucket is
reduce-scattered, after the backward pass, or (``overlap_grad_reduce``) as soon as its own gradients are complete,
whatever becomes of the others. The optimizer updates the shard, and buckets are all-gathered: after it, or
(``overlap_param_gather``) in the next forward pass, where a module waits for its own bucket and sends for the next.
In the first step buckets are reduced after the backward pass, and nothing needs to be gathered.

    traffic of a rank = (d - 1)/d x (bytes of the gradients + bytes of the parameters), d ranks sharing the states
    bytes a parameter = 4 + 16/d with 16-bit gradients, 6 + 12/d with float32 gradients, 8 + 8/d all in float32

With more ``num_distributed_optimizer_instances``, neighbouring ranks share the states, and shards of gradients are
all-reduced across instances. Without the distributed optimizer gradients are all-reduced, and every rank holds all
states.

Reference: Megatron-LM d98e8a64, core/distributed and core/optimizer/distrib_optimizer.py; Rajbhandari et al. 2020,
arXiv:1910.02054 (stage 1). Assumes data parallelism alone, and modules in the order in which they are registered.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from simcollectives.algorithms.types import Option, whole_number
from simcollectives.engines.job import DTYPES
from simcollectives.errors import Problem, suggestion
from simcollectives.training.model import Module, Parameter
from simcollectives.training.passes import (
    GRADIENT_COPY,
    GRADIENTS,
    PARAMETERS,
    Hooks,
    backward,
    forward,
    stand_model,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item, Program
from simcollectives.training.setup import Training
from simcollectives.training.sharding import stand_optimizer_shard
from simcollectives.training.strategies.megatron_buffers import (
    Bucket,
    bucket_alignment,
    cut_buffer,
    default_bucket_size,
)
from simcollectives.training.strategies.types import SHARDED, Options, Strategy, element_count, flag

SHARD, REPLICATE = "shard", "replicate"
SIDE_STREAM = "communication"
"""Both collectives of a bucket follow one another here where there are several instances."""


def shard_size(training: Training, options: Options) -> int:
    """Return the number of ranks among which the optimizer states are divided."""
    if not options["use_distributed_optimizer"]:
        return 1
    return training.world_size // int(options["num_distributed_optimizer_instances"])


def gradient_dtype(training: Training, options: Options, parameter: Parameter) -> str:
    """Return the dtype of a parameter's gradient in the buffer."""
    return "float32" if options["grad_reduce_in_fp32"] else training.gradient_dtype(parameter)


def buckets_of(training: Training, options: Options) -> list[Bucket]:
    """Return all buckets: buffers in the order of their first parameters, buckets from the last parameter on."""
    buffers: dict[tuple[str, str], list[Parameter]] = {}
    for parameter in training.model.parameters:
        key = training.parameter_dtype(parameter), gradient_dtype(training, options, parameter)
        buffers.setdefault(key, []).append(parameter)
    limit = None
    if options["overlap_grad_reduce"]:
        limit = options["bucket_size"] or default_bucket_size(training.world_size)
    alignment = None
    if options["use_distributed_optimizer"]:
        busbw = options["pad_buckets_for_high_nccl_busbw"]
        alignment = bucket_alignment(shard_size(training, options), high_bus_bandwidth=busbw)
    return [
        Bucket(held, elements, *dtypes)
        for dtypes, parameters in buffers.items()
        for held, elements in cut_buffer(parameters, limit, alignment)
    ]


@dataclass
class _Writer:
    """What the parts of a step share. ``sent``: buckets that are being gathered or have been; ``ends``: those that are.

    A bucket counts down ``pending`` gradients, in the micro-batch that is reduced, until it is ``launched``.
    """

    builder: Builder
    training: Training
    options: Options
    buckets: list[Bucket]
    sent: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)
    launched: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranks = shard_size(self.training, self.options)
        self.instances = int(self.options["num_distributed_optimizer_instances"])
        self.group = WORLD if self.ranks == self.training.world_size else SHARD
        self.overlaps = bool(self.options["overlap_grad_reduce"])
        self.first = self.training.iteration == 0
        self.bucket_of = {p.name: i for i, bucket in enumerate(self.buckets) for p in bucket.parameters}
        self.pending = [len(bucket.parameters) for bucket in self.buckets]
        self.fused = _fused(self.training, self.options)

    def gather(self, index: int, stream: str | None = None) -> int:
        """All-gather the parameters of a bucket, in place."""
        bucket = self.buckets[index]
        call = Call("all_gather", self.group, self.ranks, bucket.elements, bucket.parameter_dtype)
        return self.builder.collective(f"bucket {index}", call, stream=stream, after=self.builder.latest())

    def before_module(self, module: Module) -> None:
        """Wait for the buckets that hold a module's parameters; each that had to be waited for sends for the next."""
        for parameter in module.parameters:
            index = self.bucket_of[parameter.name]
            self._send(index)
            if index in self.ends:
                self.builder.compute(f"wait for bucket {index}", 0.0, after=[self.ends.pop(index)])
                if index > 0:
                    self._send(index - 1)

    def _send(self, index: int) -> None:
        if index not in self.sent:
            self.sent.add(index)
            self.ends[index] = self.gather(index)

    def gradient_bytes(self, parameter: Parameter) -> int:
        """Bytes of a gradient beside the buffer: none where the product adds to the buffer itself."""
        size = parameter.elements * DTYPES[self.training.parameter_dtype(parameter)]
        return 0 if parameter.name in self.fused else size

    def ready(self, parameter: Parameter, *, reduced: bool) -> None:
        """Add a complete gradient to the buffer; launch its bucket if it was the last one missing."""
        if size := self.gradient_bytes(parameter):
            held = parameter.elements * DTYPES[gradient_dtype(self.training, self.options, parameter)]
            seconds = self.training.memory_seconds(size + 2 * held)
            self.builder.compute(f"{parameter.name} into the buffer", seconds, frees=[(GRADIENTS, size)])
        if not reduced:
            return
        index = self.bucket_of[parameter.name]
        self.pending[index] -= 1
        if self.pending[index] == 0 and self.overlaps and not self.first:
            self._reduce(index)

    def finish(self) -> None:
        """Wait for all buckets; those that have not been launched are, one after the other."""
        for index in range(len(self.buckets)):
            if index not in self.launched:
                self._reduce(index)
            self.builder.compute(f"wait for bucket {index}", 0.0, after=[self.launched[index]])

    def _reduce(self, index: int) -> None:
        bucket = self.buckets[index]
        if not self.options["average_in_collective"]:
            seconds = self.training.memory_seconds(2 * bucket.gradient_bytes)
            self.builder.compute(f"bucket {index} divided", seconds)
        name, stream = f"bucket {index}", None if self.overlaps else COMPUTE
        if self.instances > 1 and self.overlaps:
            stream = SIDE_STREAM
        if self.options["use_distributed_optimizer"]:
            call = Call("reduce_scatter", self.group, self.ranks, bucket.elements, bucket.gradient_dtype)
        else:
            call = Call("all_reduce", WORLD, self.training.world_size, bucket.elements, bucket.gradient_dtype)
        self.launched[index] = self.builder.collective(name, call, stream=stream, after=self.builder.latest())
        if self.instances > 1:
            shard = bucket.elements // self.ranks
            call = Call("all_reduce", REPLICATE, self.instances, shard, bucket.gradient_dtype, stride=self.ranks)
            after = [self.launched[index]]
            self.launched[index] = self.builder.collective(name, call, stream=stream, after=after)


def _fused(training: Training, options: Options) -> set[str]:
    """Names of parameters whose gradients are never apart: weights that only linear layers multiply with."""
    if not options["gradient_accumulation_fusion"]:
        return set()
    fused: set[str] = set()
    others: set[str] = set()
    for layer in training.model.layers:
        for module in layer.modules:
            for parameter in module.parameters:
                is_weight = len(parameter.shape) > 1 or parameter.elements == module.matmul_elements
                (fused if is_weight and module.kind == "linear" else others).add(parameter.name)
    return fused - others


def write_program(training: Training, options: Options) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    writer = _Writer(builder, training, options, buckets_of(training, options))
    _stand(writer)
    builder.compute("gradients to zero", training.memory_seconds(sum(b.gradient_bytes for b in writer.buckets)))
    gathers = options["overlap_param_gather"] and not writer.first
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        forward(builder, training, Hooks(before_module=writer.before_module) if gathers else Hooks())
        builder.phase = "backward"
        ready = partial(writer.ready, reduced=micro_batch == training.accumulation - 1)
        backward(builder, training, Hooks(ready=ready, gradient_bytes=writer.gradient_bytes))
    writer.finish()
    _optimize(writer)
    return builder.program()


def _stand(writer: _Writer) -> None:
    builder, training = writer.builder, writer.training
    stand_model(builder, training)
    if padding := sum(bucket.parameter_bytes for bucket in writer.buckets) - training.parameter_bytes:
        builder.stand(PARAMETERS, padding)
    builder.stand(GRADIENTS, sum(bucket.gradient_bytes for bucket in writer.buckets))
    stand_optimizer_shard(builder, training, sum(bucket.elements for bucket in writer.buckets) // writer.ranks)


def _optimize(writer: _Writer) -> None:
    """Issue the norm of the gradients, the optimizer on the shard, and what of the parameters is gathered after it."""
    builder, training, options = writer.builder, writer.training, writer.options
    builder.phase = "optimizer"
    moved, copied = 0, 0
    for bucket in writer.buckets:
        elements = bucket.elements // writer.ranks
        copies = bucket.gradient_dtype != "float32" or training.optimizer.gradient_copy
        optimizer = replace(training.optimizer, gradient_copy=copies)
        moved += elements * optimizer.moved_bytes(DTYPES[bucket.parameter_dtype], DTYPES[bucket.gradient_dtype])
        copied += 4 * elements * copies
    if any(bucket.parameter_dtype == "float16" for bucket in writer.buckets):
        builder.host("wait for the overflow flag", after=[_statistic(writer, "overflow flag")])
    after: list[int] = []
    if options["clip_grad"]:
        shard = sum(bucket.elements for bucket in writer.buckets) // writer.ranks
        builder.compute("norm of the gradients", training.memory_seconds(4 * shard))
        after = [_statistic(writer, "norm of the gradients")]
    copy: list[Item] = [(GRADIENT_COPY, copied)] if copied else []
    builder.compute("optimizer", training.memory_seconds(moved), after=after, allocates=copy, frees=copy)
    if options["use_distributed_optimizer"] and not options["overlap_param_gather"]:
        for index in range(len(writer.buckets)):
            writer.gather(index, stream=COMPUTE)


def _statistic(writer: _Writer, name: str) -> int:
    """All-reduce one number among the ranks that share the states."""
    group, ranks = writer.group, writer.ranks
    if not writer.options["use_distributed_optimizer"]:
        group, ranks = WORLD, writer.training.world_size
    call = Call("all_reduce", group, ranks, 1, "float32")
    return writer.builder.collective(name, call, stream=COMPUTE, after=[writer.builder.last[COMPUTE]])


def shards(options: Options) -> str:
    """Return what is divided: the optimizer states, if anything."""
    return SHARDED[1] if options["use_distributed_optimizer"] else SHARDED[0]


def problems(training: Training, options: Options) -> tuple[Problem, ...]:
    """Tell which options do not go together, as Megatron-LM does."""
    found = []
    distributed, instances = options["use_distributed_optimizer"], options["num_distributed_optimizer_instances"]
    if options["overlap_param_gather"] and not distributed:
        rule = "without use_distributed_optimizer no parameters are gathered; leave overlap_param_gather out"
        found.append(Problem("overlap_param_gather", rule))
    if options["overlap_param_gather"] and not options["overlap_grad_reduce"]:
        rule = "it needs buckets, which overlap_grad_reduce makes; write overlap_grad_reduce: true"
        found.append(Problem("overlap_param_gather", rule))
    if instances > 1 and not distributed:
        rule = f"{instances} instances of what is not distributed; write use_distributed_optimizer: true"
        found.append(Problem("num_distributed_optimizer_instances", rule))
    elif training.world_size % instances:
        divisors = [str(n) for n in range(1, min(training.world_size, 64) + 1) if training.world_size % n == 0]
        rule = f"{instances} instances do not divide {training.world_size} ranks; {suggestion('', divisors, 'write')}"
        found.append(Problem("num_distributed_optimizer_instances", rule))
    return tuple(found)


def warnings(training: Training, options: Options) -> tuple[str, ...]:
    """Tell of options that Megatron-LM would set otherwise, or that do nothing."""
    found = []
    if "bfloat16" in {gradient_dtype(training, options, parameter) for parameter in training.model.parameters}:
        found.append("gradients add up in bfloat16; Megatron-LM's --bf16 sets grad_reduce_in_fp32: true")
    if options["bucket_size"] is not None and not options["overlap_grad_reduce"]:
        found.append("bucket_size does nothing without overlap_grad_reduce: all gradients are one bucket")
    if options["pad_buckets_for_high_nccl_busbw"] and not options["use_distributed_optimizer"]:
        found.append("pad_buckets_for_high_nccl_busbw does nothing without use_distributed_optimizer")
    return tuple(found)


def _bucket_size(value: Any) -> int | None:
    return None if value is None else element_count(value, least=1, most=(1 << 62) - 1)


STRATEGY = Strategy(
    name="megatron",
    summary="Megatron-LM's distributed optimizer: gradients reduce-scattered, states sharded, parameters all-gathered",
    reference="Megatron-LM d98e8a64; Rajbhandari et al. 2020, arXiv:1910.02054",
    program=write_program,
    options=(
        Option(
            "bucket_size",
            None,
            "elements at which a bucket is closed; without it 40e6, or 1e6 a rank where that is more",
            _bucket_size,
        ),
        flag("overlap_grad_reduce", False, "reduce buckets during the backward pass"),
        flag("overlap_param_gather", False, "gather buckets during the next forward pass"),
        flag("use_distributed_optimizer", True, "divide the optimizer states among the ranks"),
        flag("grad_reduce_in_fp32", False, "hold and reduce gradients in float32"),
        flag("average_in_collective", False, "let the collective divide by the number of ranks"),
        flag("pad_buckets_for_high_nccl_busbw", False, "fill buckets up to a multiple of 2^16 elements"),
        whole_number("num_distributed_optimizer_instances", 1, "groups of ranks that hold all states", least=1),
        flag("gradient_accumulation_fusion", True, "linear layers add to the buffer as they multiply"),
        flag("clip_grad", True, "take the norm of all gradients before the optimizer"),
    ),
    warnings=warnings,
    problems=problems,
    shards=shards,
)
