"""A ``ds_config.json``: the strategy with its options, the batch, the dtypes and the optimizer that it describes."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from simcollectives.errors import show_value, suggestion
from simcollectives.interop import deepspeed_keys as keys
from simcollectives.interop.deepspeed_auto import Surroundings, resolve_auto
from simcollectives.interop.deepspeed_batch import read_batch
from simcollectives.interop.noting import STRATEGY, note_values
from simcollectives.interop.settings import Findings, Key, Setting, Unmodelled, names_of

DEFAULT = "DeepSpeed's default"
_ZERO = "zero_optimization"
Values = dict[str, tuple[Any, str]]


def read_deepspeed(data: Mapping[str, Any], around: Surroundings, found: Findings) -> None:
    """Note what a DeepSpeed config says, with its deprecated names, what is "auto", and what is wrong."""
    data = _renamed(resolve_auto(data, around, found), found)
    found.check_keys(data, keys.TOP)
    _parallel(data, found)
    read_batch(data, around, found)
    dtype = _precision(data, around, found)
    _zero(data, dtype, found)
    _optimizer(data, found)
    _others(data, found)


def _renamed(data: dict[str, Any], found: Findings) -> dict[str, Any]:
    """Return the config with the names of today for the old ones."""
    if "bfloat16" in data:
        _rename(data, "bfloat16", "bf16", "", found)
    zero = data.get(_ZERO)
    if isinstance(zero, bool):
        found.warnings.append(f"{_ZERO}: {show_value(zero)} is deprecated; it means stage {int(zero)}")
        data[_ZERO] = {"stage": int(zero)}
        found.origins[f"{_ZERO}.stage"] = f"{found.file}: {_ZERO}, deprecated"
        data.pop("allgather_size", None)
    if not isinstance(data.get(_ZERO), dict):
        return data
    zero = data[_ZERO]
    old = "stage3_gather_fp16_weights_on_model_save"
    if old in zero:
        _rename(zero, old, "stage3_gather_16bit_weights_on_model_save", f"{_ZERO}.", found)
    for name, new in _CPU_OFFLOAD.items():
        if name in zero:
            _offload(zero, name, new, found)
    if "cpu_offload_use_pin_memory" in zero:
        zero.pop("cpu_offload_use_pin_memory")
        found.warnings.append("cpu_offload_use_pin_memory is deprecated, and DeepSpeed takes no notice of it")
    return data


_CPU_OFFLOAD: Mapping[str, str] = {
    "cpu_offload": "offload_optimizer",
    "cpu_offload_param": "offload_param",
    "cpu_offload_params": "offload_param",
}


def _rename(holder: dict[str, Any], old: str, new: str, prefix: str, found: Findings) -> None:
    value = holder.pop(old)
    if new in holder:
        found.wrong(f"{prefix}{old}", f"deprecated name of {new}, which is there, too; keep {new}")
        return
    holder[new] = value
    found.warnings.append(f"{prefix}{old} is deprecated; read as {new}")


def _offload(zero: dict[str, Any], old: str, new: str, found: Findings) -> None:
    value = zero.pop(old)
    name = f"{_ZERO}.{old}"
    if not isinstance(value, bool):
        found.wrong(name, f"{show_value(value)} is neither true nor false; write {new}: {{device: cpu}} instead")
    elif new in zero:
        found.wrong(name, f"deprecated name of {new}, which is there, too; DeepSpeed refuses both; keep {new}")
    else:
        meaning = f'{new}: {{"device": "cpu"}}' if value else f"no {new}"
        found.warnings.append(f"{name} is deprecated; {show_value(value)} is read as {meaning}")
        if value:
            zero[new] = {"device": "cpu"}
            found.origins[f"{_ZERO}.{new}.device"] = f"{found.file}: {old}, deprecated"


def _parallel(data: Mapping[str, Any], found: Findings) -> None:
    """Refuse ranks that are not data-parallel: the step would be another one, and the batch."""
    for key, (inner, what) in keys.PARALLEL.items():
        value = data.get(key)
        degree = value.get(inner) if isinstance(value, dict) else value
        if isinstance(degree, int | float) and not isinstance(degree, bool) and degree > 1:
            name = f"{key}.{inner}" if isinstance(value, dict) else key
            found.wrong(name, f"{show_value(degree)} ranks of {what}, which is not modelled; take the key out")


def _precision(data: Mapping[str, Any], around: Surroundings, found: Findings) -> str:
    """Note the dtypes; return that of the parameters."""
    sections = {"fp16": keys.FP16, "bf16": keys.BF16, "torch_autocast": keys.AUTOCAST}
    read = {}
    for section, known in sections.items():
        inside = found.section(data, section)
        found.check_keys(inside, names_of(known), f"{section}.")
        read[section] = found.read(inside, known, f"{section}.")
        note_values(found, read[section], known, prefix=f"{section}.", default=DEFAULT)
    enabled = {section: values["enabled"][1] for section, values in read.items() if values["enabled"][0]}
    if {"fp16", "bf16"} <= {*enabled}:
        found.wrong("bf16.enabled", "fp16 and bf16 are both enabled, which DeepSpeed refuses; keep one")
    held = next((keys.DTYPES[name] for name in ("bf16", "fp16") if name in enabled), "float32")
    origin = next(iter(enabled.values()), DEFAULT)
    computed = held
    if "torch_autocast" in enabled and held == "float32":
        given = read["torch_autocast"]["dtype"][0]
        computed = keys.DTYPES.get(given, given)
        found.unmodelled.append(
            Unmodelled("torch_autocast", given, "autocast communicates some gradients in its dtype, too")
        )
    if around.dtype is not None and around.dtype != computed:
        rule = f"{around.dtype} is asked for, and the file trains in {computed}"
        found.wrong("", f"--dtype: {rule}; leave --dtype out, or change fp16 or bf16 in the file")
    for name, value in (("dtype", computed), ("parameters", held), ("gradients", held)):
        found.settings.append(Setting(f"{'/'.join(enabled) or 'fp16, bf16'}", value, origin, ("training", name)))
    return held


def _zero(data: Mapping[str, Any], dtype: str, found: Findings) -> None:
    """Note the strategy and its options; ``dtype`` is that of the parameters."""
    inside = found.section(data, _ZERO)
    found.check_keys(inside, [*names_of(keys.ZERO), *keys.OFFLOAD], f"{_ZERO}.")
    values = found.read(inside, keys.ZERO, f"{_ZERO}.")
    stage, origin = values.pop("stage")
    if values["overlap_comm"][0] is None:
        values["overlap_comm"] = (stage == 3, "")
    strategy = f"zero{stage}" if stage else "all_reduce_once"
    path = (*STRATEGY, strategy)
    if stage:
        implied = Setting("implementation", "deepspeed", "the file is DeepSpeed's", (*path, "implementation"))
        found.settings += [Setting(f"{_ZERO}.stage", stage, origin or DEFAULT), implied]
    else:
        taken = "all-reduces of 5e8 elements, one after another, after the backward pass are taken as one"
        found.settings.append(Setting(f"{_ZERO}.stage", 0, origin or DEFAULT, path))
        found.unmodelled.append(Unmodelled(f"{_ZERO}.stage", 0, taken))
    note = partial(note_values, found, strategy=strategy, level=stage, default=DEFAULT)
    note(values, keys.ZERO, prefix=f"{_ZERO}.")
    offloaded = {name: _offloaded(inside, name, known, stage, found) for name, known in keys.OFFLOAD.items()}
    _pin_once(offloaded["offload_optimizer"], offloaded["offload_param"], found)
    for section, read in offloaded.items():
        note(read, keys.OFFLOAD[section], prefix=f"{_ZERO}.{section}.")
    types = found.section(data, "data_types")
    found.check_keys(types, names_of(keys.DATA_TYPES), "data_types.")
    dtypes = found.read(types, keys.DATA_TYPES, "data_types.")
    note(dtypes, keys.DATA_TYPES, prefix="data_types.")
    note(found.read(data, (keys.COMMUNICATION,)), (keys.COMMUNICATION,))
    gradients, device = dtypes["grad_accum_dtype"][0], offloaded["offload_optimizer"]["device"][0]
    if (dtype, gradients, device) == ("bfloat16", "fp32", "none") and stage < 2:
        reason = "with bf16 DeepSpeed takes its BF16_Optimizer then, which gathers and reduces in another way"
        found.unmodelled.append(Unmodelled("data_types.grad_accum_dtype", gradients, reason))


def _pin_once(optimizer: Values, parameters: Values, found: Findings) -> None:
    """Keep one ``pin_memory`` where both objects have it, as the strategies have one: that of the optimizer."""
    if "pin_memory" not in optimizer or "pin_memory" not in parameters:
        return
    value, _ = parameters.pop("pin_memory")
    if value != optimizer["pin_memory"][0]:
        reason = "one for both is modelled, that of offload_optimizer"
        found.unmodelled.append(Unmodelled(f"{_ZERO}.offload_param.pin_memory", value, reason))


def _offloaded(zero: Mapping[str, Any], section: str, known: Sequence[Key], stage: int, found: Findings) -> Values:
    """Return what an object on offloading says: where nothing is offloaded, that alone."""
    prefix = f"{_ZERO}.{section}."
    part = found.section(zero, f"{_ZERO}.{section}")
    found.check_keys(part, names_of(known), prefix)
    read = found.read(part, known, prefix)
    device = read["device"][0]
    if section == "offload_param" and device != "none" and stage != 3:
        found.wrong(f"{prefix}device", f"{device}: parameters are offloaded in stage 3 only; leave it out")
    return read if device != "none" else {"device": read["device"]}


def _optimizer(data: Mapping[str, Any], found: Findings) -> None:
    inside = found.section(data, "optimizer")
    found.check_keys(inside, ("type", "params", "legacy_fusion"), "optimizer.")
    path = ("training", "optimizer")
    kind = inside.get("type")
    if kind is None:
        found.settings.append(Setting("optimizer.type", "adamw", "assumed: the file names no optimizer", path))
        return
    folded = kind.lower().replace("_", "") if isinstance(kind, str) else ""
    if folded not in keys.OPTIMIZERS:
        rule = f"{show_value(kind)} is not an optimizer of DeepSpeed; {suggestion(kind, list(keys.OPTIMIZERS))}"
        found.wrong("optimizer.type", rule)
        return
    name, lacking = keys.OPTIMIZERS[folded]
    if name == "sgd" and found.section(inside, "optimizer.params").get("momentum"):
        name = "momentum"
    found.settings.append(Setting("optimizer.type", name, found.origin("optimizer.type"), path))
    if lacking:
        found.unmodelled.append(Unmodelled("optimizer.type", kind, lacking))


def _others(data: Mapping[str, Any], found: Findings) -> None:
    """Note what stands at the top beside."""
    for name, reason in keys.TOP_UNMODELLED.items():
        value = data.get(name)
        off = isinstance(value, dict) and value.get("enabled", True) is False
        if name in data and value not in (None, False) and not off:
            found.unmodelled.append(Unmodelled(name, value, reason))
        elif name in data:
            found.settings.append(Setting(name, value, found.file))
    for name in keys.NO_CONSEQUENCE:
        if name in data:
            found.settings.append(Setting(name, data[name], found.file))
