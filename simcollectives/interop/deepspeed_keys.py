"""The keys of a DeepSpeed config: checks, defaults, and the options of the strategies zero1, zero2, zero3 they set.

Reference: deepspeed 0.19.8, runtime/zero/config.py, offload_config.py, precision_config.py, config.py, constants.py.
"""

import sys
from collections.abc import Mapping

from simcollectives.interop.settings import Key, anything, boolean, one_of, ratio, text, whole

ALL, REPLICATED, THREE = (1, 2, 3), (1, 2), (3,)
DTYPES: Mapping[str, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_WRITTEN: Mapping[str | None, str] = {**dict(DTYPES.items()), None: "auto"}


def _stage3(name: str, check: object, default: object, option: str = "", why: str = "") -> Key:
    return Key(name, check, default, option or name, THREE, why, (f"stage3_{name}",))  # type: ignore[arg-type]


ZERO: tuple[Key, ...] = (
    Key("stage", whole(0, 3), 0),
    Key("reduce_bucket_size", whole(1), 500_000_000, "reduce_bucket_size", ALL),
    Key("overlap_comm", boolean, None, "overlap_comm", ALL),
    Key("contiguous_gradients", boolean, True, "contiguous_gradients", ALL),
    Key("reduce_scatter", boolean, True, "reduce_scatter", ALL),
    Key("use_multi_rank_bucket_allreduce", boolean, True, "use_multi_rank_bucket_allreduce", REPLICATED),
    Key("round_robin_gradients", boolean, False, "round_robin_gradients", REPLICATED),
    _stage3("prefetch_bucket_size", whole(0), 50_000_000),
    _stage3("param_persistence_threshold", whole(0), 100_000),
    _stage3("model_persistence_threshold", whole(0), sys.maxsize),
    _stage3("max_live_parameters", whole(0), 1_000_000_000),
    _stage3("max_reuse_distance", whole(0), 1_000_000_000),
    _stage3("module_granularity_threshold", whole(0), 0),
    _stage3("use_all_reduce_for_fetch_params", boolean, False),
    Key(
        "allgather_sequential",
        boolean,
        False,
        why="gathers every parameter by itself",
        also=("stage3_allgather_sequential",),
    ),
    Key("sub_group_size", whole(0), 1_000_000_000, "sub_group_size", THREE),
    Key("zero_hpz_partition_size", whole(1), 1, "zero_hpz_partition_size", THREE),
    Key("zero_quantized_weights", boolean, False, "zero_quantized_weights", THREE),
    Key("zero_quantized_gradients", boolean, False, "zero_quantized_gradients", THREE),
    Key("zero_quantized_nontrainable_weights", boolean, False, why="quantized frozen weights"),
    Key("zenflow", anything, None, why="ZenFlow updates parameters in another order"),
    Key("parameter_alignment", boolean, False, why="pads the flat buffers between parameters"),
    Key("leaf_module", anything, None, why="modules that are fetched as a whole"),
    Key("legacy_stage1", boolean, False, why="the old stage 1"),
    Key("mics_shard_size", whole(-1), -1, why="MiCS shards within groups (DeepSpeed 0.19.8 refuses it)"),
    Key("mics_hierarchical_params_gather", boolean, False, why="MiCS gathers in two steps (0.19.8 refuses it)"),
    Key("zeropp_loco_param", anything, None, why="LoCo corrects quantized gradients (0.19.8 refuses it)"),
    # What follows changes no step: with torch's own all-gather the first two are read and not used.
    Key("allgather_bucket_size", whole(0), 500_000_000),
    Key("allgather_partitions", boolean, True),
    Key("compute_grad_norm", boolean, True),
    Key("load_from_fp32_weights", boolean, True),
    Key("elastic_checkpoint", boolean, False),
    Key("gather_16bit_weights_on_model_save", boolean, False, also=("stage3_gather_16bit_weights_on_model_save",)),
    Key("ignore_unused_parameters", boolean, True),
    Key("memory_efficient_linear", boolean, True),
    Key("pipeline_loading_checkpoint", boolean, False),
    Key("override_module_apply", boolean, True),
    Key("log_trace_cache_warnings", boolean, False),
    Key("enable_sanity_checks", boolean, False),
    Key("save_muon_momentum_buffer_in_memory", boolean, False),
)
"""Keys of ``zero_optimization`` but for the two objects that follow."""

_DEVICE = one_of("none", "cpu", "nvme")

OFFLOAD: Mapping[str, tuple[Key, ...]] = {
    "offload_optimizer": (
        Key("device", _DEVICE, "none", "offload_optimizer", ALL),
        Key("pin_memory", boolean, True, "pin_memory", ALL, "copies from memory that is not pinned are slower"),
        Key("ratio", ratio, 1.0, "ratio", THREE, "a part of the optimizer stays on the GPU"),
        Key("buffer_count", whole(0), 4, "buffer_count", THREE, "buffers for NVMe"),
        Key("pipeline_read", boolean, False, "pipeline_read", THREE, "reading from NVMe overlaps"),
        Key("pipeline_write", boolean, False, "pipeline_write", THREE, "writing to NVMe overlaps"),
        Key("super_offload", boolean, False, why="SuperOffload has another schedule"),
        Key("nvme_path", text),
        Key("fast_init", boolean, False),
        Key("cpuadam_cores_perc", ratio, 0.8),
    ),
    "offload_param": (
        Key("device", _DEVICE, "none", "offload_param", THREE),
        Key("pin_memory", boolean, True, "pin_memory", THREE, "copies from memory that is not pinned are slower"),
        Key("buffer_count", whole(0), 5, "param_buffer_count", THREE, "buffers for NVMe"),
        Key("buffer_size", whole(0), 100_000_000, why="buffers for NVMe"),
        Key("max_in_cpu", whole(0), 1_000_000_000, why="parameters that stay on the host beside NVMe"),
        Key("nvme_path", text),
    ),
}
"""Keys of the objects in ``zero_optimization``."""

DATA_TYPES: tuple[Key, ...] = (
    Key("grad_accum_dtype", one_of(*DTYPES), None, "grad_accum_dtype", ALL, written=_WRITTEN),
    Key("param_dtype", text),
    Key("buffer_dtype", text),
    Key("keep_in_fp32_modules", anything),
)

FP16: tuple[Key, ...] = (
    Key("enabled", boolean, False),
    Key("auto_cast", boolean, False),
    Key("fp16_master_weights_and_grads", boolean, False, why="master weights and gradients in 16 bits"),
    *(Key(name, anything) for name in ("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis")),
    *(Key(name, anything) for name in ("consecutive_hysteresis", "min_loss_scale")),
)

BF16: tuple[Key, ...] = (
    Key("enabled", boolean, False),
    Key("immediate_grad_update", boolean, False),
    Key("check_grad_overflow", boolean, True),
    Key("bf16_master_weights_and_grads", boolean, False, why="master weights and gradients in 16 bits"),
    Key("bf16_optimizer_states", boolean, False, why="optimizer states in 16 bits"),
)

AUTOCAST: tuple[Key, ...] = (
    Key("enabled", boolean, False),
    Key("dtype", one_of("float16", "bfloat16", "fp16", "bf16"), "bfloat16"),
    Key("lower_precision_safe_modules", anything),
)

BATCH: tuple[Key, ...] = (
    Key("train_batch_size", whole(1)),
    Key("train_micro_batch_size_per_gpu", whole(1)),
    Key("gradient_accumulation_steps", whole(1)),
)

OPTIMIZERS: Mapping[str, tuple[str, str]] = {
    "adam": ("adam", ""),
    "adamw": ("adamw", ""),
    "muadam": ("adam", ""),
    "muadamw": ("adamw", ""),
    "fusedadam": ("adam", ""),
    "deepspeedcpuadam": ("adam", ""),
    "sgd": ("sgd", ""),
    "musgd": ("sgd", ""),
    "lion": ("momentum", ""),
    "adagrad": ("momentum", ""),
    "muon": ("momentum", "orthogonalisation of the updates"),
    "lamb": ("adam", "norms of layers"),
    "onebitadam": ("adam", "1-bit compression of what is communicated"),
    "zerooneadam": ("adam", "1-bit compression of what is communicated"),
    "onebitlamb": ("adam", "1-bit compression of what is communicated"),
}
"""DeepSpeed's optimizers: which of ours keeps as much, and what of it is not modelled."""

NO_CONSEQUENCE: tuple[str, ...] = (
    *("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "scheduler", "gradient_clipping"),
    *("tensorboard", "wandb", "csv_monitor", "comet", "comms_logger", "flops_profiler", "log_level"),
    *("checkpoint", "dataloader_drop_last", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    *("disable_python_gc", "autotuning", "vocabulary_size", "timers", "datastates_ckpt", "prescale_gradients"),
    *("gradient_predivide_factor", "gradient_allreduce_op", "seq_parallel_communication_data_type"),
    *("managed_gradient_accumulation", "use_data_before_expert_parallelism", "data_efficiency", "hybrid_engine"),
)
"""Keys at the top that change no step."""

TOP_UNMODELLED: Mapping[str, str] = {
    "activation_checkpointing": "it says how, not whether, activations are recomputed; give --recomputation",
    "aio": "how fast NVMe is read and written",
    "compile": "DeepCompile schedules communication anew",
    "weight_quantization": "quantized weights",
    "disable_allgather": "an all-gather that is left out",
    "amp": "NVIDIA's Apex (DeepSpeed 0.19.8 refuses it)",
    "sparse_gradients": "sparse gradients of embeddings (DeepSpeed 0.19.8 refuses it)",
    "sparse_attention": "sparse attention (DeepSpeed 0.19.8 refuses it)",
    "compression_training": "compression of weights (DeepSpeed 0.19.8 refuses it)",
    "quantize_training": "quantization of weights (DeepSpeed 0.19.8 refuses it)",
    "elasticity": "batches that change with the ranks (DeepSpeed 0.19.8 refuses it)",
    "curriculum_learning": "sequences that grow (DeepSpeed 0.19.8 refuses it)",
    "progressive_layer_drop": "layers that are left out (DeepSpeed 0.19.8 refuses it)",
    "eigenvalue": "quantization by eigenvalues (DeepSpeed 0.19.8 refuses it)",
    "nebula": "checkpoints (DeepSpeed 0.19.8 refuses it)",
    "graph_harvesting": "CUDA graphs (DeepSpeed 0.19.8 refuses it)",
}
"""Keys at the top that may change the step, and how."""

PARALLEL: Mapping[str, tuple[str, str]] = {
    "tensor_parallel": ("autotp_size", "tensor parallelism"),
    "sequence_parallel_size": ("", "sequence parallelism"),
    "expert_parallel": ("autoep_size", "expert parallelism"),
    "pipeline": ("stages", "pipeline parallelism"),
}
"""Keys that set a number of ranks which are not data-parallel, the number's name, and what it is."""

COMMUNICATION = Key("communication_data_type", one_of(*DTYPES), None, "communication_data_type", ALL, written=_WRITTEN)

TOP: tuple[str, ...] = (
    *(key.name for key in BATCH),
    *("zero_optimization", "fp16", "bf16", "torch_autocast", "optimizer", "data_types", "communication_data_type"),
    *PARALLEL,
    *TOP_UNMODELLED,
    *NO_CONSEQUENCE,
)
"""Every key at the top."""

PYDANTIC: tuple[str, ...] = (
    *("zero_optimization", "fp16", "bf16", "bfloat16", "compile", "comms_logger", "flops_profiler", "autotuning"),
    *("tensorboard", "wandb", "csv_monitor", "comet", "hybrid_engine", "timers", "weight_quantization"),
)
"""Keys of objects from which DeepSpeed itself leaves out whatever is "auto"."""
