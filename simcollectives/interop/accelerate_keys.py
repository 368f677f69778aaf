"""The keys of an accelerate config: checks, defaults, and the options of the strategies fsdp1, fsdp2 and hsdp they set.

Reference: accelerate 1.15, commands/config/config_args.py (keys at the top), commands/launch.py (defaults of what a
file leaves out), utils/launch.py and utils/dataclasses.py (what FSDP and DeepSpeed are made with).
"""

from collections.abc import Mapping
from typing import Any

from simcollectives.interop.settings import Check, Key, anything, boolean, one_of, text, whole

ONE, TWO, BOTH = (1,), (2,), (1, 2)

SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
NOT_MODELLED: Mapping[str, str] = {"HYBRID_SHARD_ZERO2": "HYBRID_SHARD, which also frees parameters after forward"}
"""Sharding strategies that are refused, and what to write instead."""

PREFETCH = ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
WRAP = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


def _numbered(names: tuple[str, ...]) -> Check:
    """Take one of the names, or its number, counted from 1."""
    by_name = one_of(*names)

    def check(value: Any) -> str:
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= len(names):
            return names[number - 1]
        return str(by_name(value))

    return check


def _sharding(value: Any) -> str:
    """Take a sharding strategy that FSDP 1 has here."""
    name: str = _numbered(SHARDING)(value)
    if name in NOT_MODELLED:
        raise ValueError(f"{name} is not modelled; write {NOT_MODELLED[name]}")
    return name


FSDP: tuple[Key, ...] = (
    Key("fsdp_version", whole(1, 2), 1),
    Key("fsdp_sharding_strategy", _sharding, SHARDING[0], "sharding_strategy", ONE),
    Key("fsdp_reshard_after_forward", anything, None),
    Key(
        "fsdp_backward_prefetch",
        _numbered(PREFETCH),
        PREFETCH[2],
        "backward_prefetch",
        ONE,
        written={PREFETCH[2]: "none"},
    ),
    Key("fsdp_forward_prefetch", boolean, False, "forward_prefetch", ONE),
    Key("fsdp_use_orig_params", boolean, True, "use_orig_params", ONE),
    Key("fsdp_offload_params", boolean, False, "cpu_offload", BOTH),
    Key("fsdp_auto_wrap_policy", one_of(*WRAP), WRAP[2]),
    Key("fsdp_transformer_layer_cls_to_wrap", text),
    Key("fsdp_min_num_params", whole(0), 100_000_000),
    Key("fsdp_activation_checkpointing", boolean, False),
    Key("fsdp_activation_checkpointing_offload", boolean, False, why="activations on the host"),
    Key("fsdp_ignored_modules", anything, None, why="modules that are not sharded"),
    Key("fsdp_state_dict_type", anything),
    Key("fsdp_sync_module_states", boolean, True),
    Key("fsdp_cpu_ram_efficient_loading", boolean, True),
)
"""Keys of ``fsdp_config``, which may lack the ``fsdp_``."""

DEEPSPEED: tuple[Key, ...] = (
    Key("deepspeed_config_file", text),
    Key("zero_stage", whole(0, 3), 2),
    Key("gradient_accumulation_steps", anything, "auto"),
    Key("gradient_clipping", anything, "auto"),
    Key("offload_optimizer_device", one_of("none", "cpu", "nvme"), "none"),
    Key("offload_param_device", one_of("none", "cpu", "nvme"), "none"),
    Key("offload_optimizer_nvme_path", text, "none"),
    Key("offload_param_nvme_path", text, "none"),
    Key("zero3_save_16bit_model", boolean, False),
    Key("zero3_init_flag", boolean, None),
    Key("deepspeed_hostfile", text),
    Key("deepspeed_exclusion_filter", text),
    Key("deepspeed_inclusion_filter", text),
    Key("deepspeed_multinode_launcher", text),
    Key("deepspeed_moe_layer_cls_names", text, None, why="modules that are fetched as a whole"),
)
"""Keys of ``deepspeed_config``."""

WITH_A_FILE_REFUSED = (
    *("zero_stage", "gradient_accumulation_steps", "gradient_clipping", "zero3_save_16bit_model"),
    *("offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path", "offload_param_nvme_path"),
)
"""Keys that accelerate refuses beside ``deepspeed_config_file``; so it does ``mixed_precision``."""

PARALLELISM: tuple[Key, ...] = tuple(
    Key(f"parallelism_config_{name}_size", whole(1), 1) for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
)
PARALLELISM_OTHERS = (
    *("parallelism_config_cp_backend", "parallelism_config_cp_comm_strategy", "parallelism_config_sp_backend"),
    *("parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable"),
    "parallelism_config_sp_attn_implementation",
)

TOP: tuple[str, ...] = (
    *("compute_environment", "distributed_type", "mixed_precision", "num_processes", "num_machines"),
    *("fsdp_config", "deepspeed_config", "parallelism_config", "fp16"),
)
TOP_UNMODELLED: Mapping[str, str] = {
    "megatron_lm_config": "Megatron-LM",
    "fp8_config": "matrix products in 8 bits",
    "dynamo_config": "compiled kernels",
    "dynamo_backend": "compiled kernels",
}
TOP_NO_CONSEQUENCE = (
    *("debug", "use_cpu", "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend"),
    *("same_network", "main_training_function", "enable_cpu_affinity", "mpirun_config", "downcast_bf16", "tpu_name"),
    *("tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env"),
)

TYPES: Mapping[str, str] = {"DEEPSPEED": "DEEPSPEED", "FSDP": "FSDP", "MULTI_GPU": "DDP", "NO": "DDP"}
OTHER_TYPES = ("MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "MULTI_HPU", "XLA", "TPU", "MEGATRON_LM")
PRECISIONS: Mapping[str, str] = {"no": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


def _precision(value: Any) -> str:
    """Without quotes ``no`` is false to YAML, and accelerate does not take it."""
    if value is False:
        raise ValueError("no without quotes is false in YAML, which accelerate refuses; write 'no'")
    return str(one_of(*PRECISIONS)(value))


LAUNCH: tuple[Key, ...] = (
    Key("distributed_type", one_of(*TYPES, *OTHER_TYPES)),
    Key("num_processes", whole(1)),
    Key("num_machines", whole(1)),
    Key("mixed_precision", _precision),
)
FP16 = Key("fp16", boolean)
"""The old way to write ``mixed_precision: fp16``; of no consequence beside that key."""
