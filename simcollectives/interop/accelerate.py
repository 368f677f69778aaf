"""An accelerate config (YAML): how many processes, and FSDP, DeepSpeed or plain data parallelism.

accelerate trains in mixed precision with parameters in float32, but for DeepSpeed, which holds them in 16 bits. When it
accumulates, gradients are reduced after the last micro-batch only. With ``fsdp_version: 2`` it takes no notice of
``fsdp_sharding_strategy`` and of prefetching, with 1 none of ``fsdp_reshard_after_forward``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from simcollectives.errors import show_value
from simcollectives.interop import accelerate_keys as keys
from simcollectives.interop.deepspeed_auto import AUTO
from simcollectives.interop.noting import STRATEGY, note_values, options_of
from simcollectives.interop.settings import Findings, Setting, Unmodelled, boolean, names_of

DEFAULT = "accelerate's default"


@dataclass(frozen=True)
class Launch:
    """What ``accelerate launch`` starts. ``kind`` is DEEPSPEED, FSDP or DDP; ``precision`` is None where none is given.

    ``processes`` are those of all ``machines``; None where the file does not say.
    """

    kind: str
    processes: int | None
    machines: int | None
    precision: str | None


def read_launch(data: Mapping[str, Any], found: Findings, dtype: str | None = None) -> Launch:
    """Return what is started; what is wrong with it goes into ``found``. ``dtype`` is that of the command line."""
    found.check_keys(data, [*keys.TOP, *keys.TOP_UNMODELLED, *keys.TOP_NO_CONSEQUENCE])
    if data.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        rule = f"{show_value(data['compute_environment'])} is not modelled; write LOCAL_MACHINE"
        found.wrong("compute_environment", rule)
    read = {name: value for name, (value, _) in found.read(data, keys.LAUNCH).items()}
    kind, processes = read["distributed_type"], read["num_processes"]
    if data.get("distributed_type") is None:
        found.wrong("distributed_type", f"this key is missing; write one of {', '.join(keys.TYPES)}")
    elif kind in keys.OTHER_TYPES:
        found.wrong("distributed_type", f"{kind} is not modelled; write one of {', '.join(keys.TYPES)}")
    if kind == "NO" and processes is None:
        processes = 1
    precision = _mixed_precision(data, read["mixed_precision"], dtype, found)
    _others(data, precision, found)
    return Launch(keys.TYPES.get(kind or "", "DDP"), processes, read["num_machines"], precision)


def _mixed_precision(data: Mapping[str, Any], given: str | None, dtype: str | None, found: Findings) -> str | None:
    """Return the precision that the file, ``given`` in it or by its old key, or the command line has."""
    if given is None and found.read(data, (keys.FP16,))["fp16"][0]:
        given = "fp16"
        found.warnings.append("fp16 is deprecated; read as mixed_precision: fp16")
    if given is not None and dtype not in (None, keys.PRECISIONS[given]):
        rule = f"{given} here, and --dtype {dtype}; leave one out, or make them alike"
        found.wrong("mixed_precision", rule)
    if given is None and dtype is not None:
        given = next(name for name, one in keys.PRECISIONS.items() if one == dtype)
        found.origins["mixed_precision"] = "--dtype"
    return given


def _others(data: Mapping[str, Any], precision: str | None, found: Findings) -> None:
    for name, reason in keys.TOP_UNMODELLED.items():
        value = data.get(name)
        if value and not (isinstance(value, str) and value.upper() == "NO"):
            found.unmodelled.append(Unmodelled(name, value, reason))
    if precision == "fp8":
        found.unmodelled.append(Unmodelled("mixed_precision", "fp8", "taken as bf16"))
    if data.get("use_cpu"):
        found.unmodelled.append(Unmodelled("use_cpu", data["use_cpu"], "training on CPUs"))


def read_data_parallel(launch: Launch, found: Findings) -> None:
    """Note plain data parallelism."""
    path = (*STRATEGY, "ddp")
    found.settings.append(Setting("distributed_type", "MULTI_GPU", found.file, path))
    note_precision(launch, found)


def note_precision(launch: Launch, found: Findings) -> None:
    """Note mixed precision with parameters in float32."""
    origin = DEFAULT if launch.precision is None else found.origin("mixed_precision")
    dtype = keys.PRECISIONS[launch.precision or "no"]
    found.settings.append(Setting("mixed_precision", dtype, origin, ("training", "dtype")))
    for name in ("parameters", "gradients"):
        found.settings.append(Setting("mixed_precision", "float32", "held in float32", ("training", name)))


def read_fsdp(data: Mapping[str, Any], launch: Launch, accumulation: int, found: Findings) -> None:
    """Note FSDP of version 1 or 2, or hybrid sharding, with its options."""
    inside, prefix = _whole_names(data, "fsdp_config", "fsdp_", found), "fsdp_config."
    found.check_keys(inside, names_of(keys.FSDP), prefix)
    values = found.read(inside, keys.FSDP, prefix)
    version, origin = values.pop("fsdp_version")
    reshard, resharded = values.pop("fsdp_reshard_after_forward")
    replicas, shard, sized = _mesh(data, launch, found)
    strategy = "hsdp" if replicas > 1 else f"fsdp{version}"
    if replicas > 1 and version == 1:
        rule = (
            "the replicas of parallelism_config need version 2; in version 1 write fsdp_sharding_strategy: HYBRID_SHARD"
        )
        found.wrong("fsdp_config.fsdp_version", rule)
    path = (*STRATEGY, strategy)
    found.settings.append(Setting(f"{prefix}fsdp_version", version, origin or DEFAULT, path))
    if replicas > 1:
        found.settings.append(Setting("parallelism_config", shard, sized, (*path, "shard_size")))
    if values["fsdp_activation_checkpointing"][0]:
        _, said = values.pop("fsdp_activation_checkpointing")
        name = f"{prefix}fsdp_activation_checkpointing"
        found.settings.append(Setting(name, "full", said, ("training", "recomputation")))
    note_values(found, values, keys.FSDP, strategy, level=version, prefix=prefix, default=DEFAULT)
    _reshard(reshard, resharded, version, strategy, found)
    _units(values, found)
    _implied(launch, strategy, accumulation, found)
    note_precision(launch, found)


def _whole_names(data: Mapping[str, Any], section: str, start: str, found: Findings) -> dict[str, Any]:
    """Return an object whose keys may lack the ``start`` of their names, with whole names."""
    given = found.section(data, section)
    inside = {name if name.startswith(start) else f"{start}{name}": value for name, value in given.items()}
    if len(inside) < len(given):
        found.wrong(section, f"a key is there twice, with and without {start}; keep one")
    return inside


def _mesh(data: Mapping[str, Any], launch: Launch, found: Findings) -> tuple[int, int, str]:
    """Return how many replicas there are, of how many shards each, and where that comes from."""
    prefix, start = "parallelism_config.", "parallelism_config_"
    inside = _whole_names(data, "parallelism_config", start, found)
    found.check_keys(inside, [*names_of(keys.PARALLELISM), *keys.PARALLELISM_OTHERS], prefix)
    sizes = {name.removeprefix(start): value for name, value in found.read(inside, keys.PARALLELISM, prefix).items()}
    for name in ("tp_size", "cp_size", "sp_size"):
        if sizes[name][0] > 1:
            rule = f"{sizes[name][0]} ranks that are not data-parallel are not modelled; write 1"
            found.wrong(f"{prefix}{start}{name}", rule)
    replicas, shard = sizes["dp_replicate_size"][0], sizes["dp_shard_size"][0]
    if launch.processes is not None and inside and replicas * shard != launch.processes and not found.problems:
        product = f"{replicas} replicas x {shard} shards = {replicas * shard}"
        found.wrong("parallelism_config", f"{product}, and num_processes is {launch.processes}; make them alike")
    return replicas, shard, sizes["dp_shard_size"][1] or DEFAULT


def _reshard(value: Any, origin: str, version: int, strategy: str, found: Findings) -> None:
    """Note whether units are freed after the forward pass; in version 1 the sharding strategy says it."""
    name = "fsdp_config.fsdp_reshard_after_forward"
    if version == 1:
        if value is not None:
            found.settings.append(Setting(name, value, origin, (), "accelerate takes no notice of it in version 1"))
        return
    try:
        reshards = True if value is None else boolean(value)
    except ValueError as error:
        found.wrong(name, f"{error} (with fsdp_version: 2)")
        return
    target = (*STRATEGY, strategy, "reshard_after_forward")
    found.settings.append(Setting(name, reshards, origin or DEFAULT, target))


def _units(values: Mapping[str, tuple[Any, str]], found: Findings) -> None:
    """Say where units are other than the blocks and the rest."""
    policy = values["fsdp_auto_wrap_policy"][0]
    reasons = {
        "NO_WRAP": "the whole model is one unit; here every block is one",
        "SIZE_BASED_WRAP": "units are made by their number of parameters; here every block is one",
    }
    if policy in reasons:
        found.unmodelled.append(Unmodelled("fsdp_config.fsdp_auto_wrap_policy", policy, reasons[policy]))


def _implied(launch: Launch, strategy: str, accumulation: int, found: Findings) -> None:
    """Note what accelerate sets and no key says: dtypes of the communication, reduction after the last micro-batch."""
    options = options_of(strategy)
    dtype = keys.PRECISIONS[launch.precision or "no"]
    for option in ("param_dtype", "reduce_dtype"):
        if option in options:
            origin = "accelerate: as mixed_precision"
            found.settings.append(Setting(option, dtype, origin, (*STRATEGY, strategy, option)))
    for option, value in (("gradient_sync", "last"), ("no_sync", True)):
        if accumulation > 1 and option in options:
            origin = "accelerate: no synchronisation before the last micro-batch"
            found.settings.append(Setting(option, value, origin, (*STRATEGY, strategy, option)))


def inline_deepspeed(
    data: Mapping[str, Any], launch: Launch, found: Findings
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the DeepSpeed config that the plugin makes of its keys, or else the name of the file that it reads."""
    inside = found.section(data, "deepspeed_config")
    prefix = "deepspeed_config."
    found.check_keys(inside, names_of(keys.DEEPSPEED), prefix)
    values = found.read(inside, keys.DEEPSPEED, prefix)
    file = values["deepspeed_config_file"][0]
    if file is not None and file != "none":
        refused = [f"{prefix}{name}" for name in keys.WITH_A_FILE_REFUSED if name in inside]
        for name in [*refused, *(["mixed_precision"] if data.get("mixed_precision") is not None else [])]:
            rule = "accelerate refuses this key beside deepspeed_config_file; take it out, and write it in that file"
            found.wrong(name, rule)
        return None, file
    for name, (value, origin) in values.items():
        if origin and name in ("zero3_init_flag", "deepspeed_multinode_launcher", "deepspeed_hostfile"):
            found.settings.append(Setting(f"{prefix}{name}", value, origin))
    return _plugin(values, launch, found), None


def _plugin(values: Mapping[str, tuple[Any, str]], launch: Launch, found: Findings) -> dict[str, Any]:
    """Return what accelerate makes DeepSpeed's config of; origins of it go into ``found``."""
    zero: dict[str, Any] = {"stage": values["zero_stage"][0]}
    made: dict[str, Any] = {"train_batch_size": AUTO, "train_micro_batch_size_per_gpu": AUTO, "zero_optimization": zero}
    named = partial(_name_origin, values, found)
    named("zero_optimization.stage", "zero_stage")
    for part in ("optimizer", "param"):
        device = values[f"offload_{part}_device"][0]
        zero[f"offload_{part}"] = {"device": device}
        named(f"zero_optimization.offload_{part}.device", f"offload_{part}_device")
    made["gradient_accumulation_steps"] = values["gradient_accumulation_steps"][0]
    named("gradient_accumulation_steps", "gradient_accumulation_steps")
    if launch.precision in ("fp16", "bf16", "fp8"):
        section = "fp16" if launch.precision == "fp16" else "bf16"
        made[section] = {"enabled": True}
        found.origins[f"{section}.enabled"] = found.origins.get("mixed_precision", f"{found.file}: mixed_precision")
    if zero["stage"] != 3 and values["offload_param_device"][0] != "none":
        rule = f"{values['offload_param_device'][0]}: parameters are offloaded in stage 3 only; write none"
        found.wrong("deepspeed_config.offload_param_device", rule)
        zero.pop("offload_param")
    return made


def _name_origin(values: Mapping[str, tuple[Any, str]], found: Findings, name: str, key: str) -> None:
    found.origins[name] = f"{found.file}: {key}" if values[key][1] else f"{DEFAULT} of {key}"
