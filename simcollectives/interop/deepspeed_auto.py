"""What "auto" means in a DeepSpeed config.

The Hugging Face integration (transformers' Trainer on accelerate) replaces it before DeepSpeed sees the file, from the
arguments of the training and from the hidden size h of the model, and refuses every other "auto". DeepSpeed itself
leaves it out of the objects that it reads with pydantic, so that defaults hold, and cannot compute with it elsewhere.

Reference: transformers 5.24, integrations/deepspeed.py; accelerate 1.15, accelerator.py, _prepare_deepspeed, and
utils/dataclasses.py, DeepSpeedPlugin; deepspeed 0.19.8, runtime/config_utils.py, DeepSpeedConfigModel.
"""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from simcollectives.interop.deepspeed_keys import PYDANTIC
from simcollectives.interop.settings import Findings

Integration = Literal["hugging_face", "deepspeed"]

AUTO = "auto"
TRAINER_MICRO_BATCH = 8
_NAMES: Mapping[Integration, str] = {"hugging_face": "the Hugging Face integration", "deepspeed": "DeepSpeed itself"}


@dataclass(frozen=True)
class Surroundings:
    """What a config is resolved with; None is what nobody gives.

    ``micro_batch``, ``accumulation`` and ``dtype`` come from the command line; ``hidden`` is the model's hidden size,
    ``world_size`` the number of ranks.
    """

    integration: Integration = "hugging_face"
    world_size: int | None = None
    hidden: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    dtype: str | None = None


Filled = tuple[Any, str]
"""A value, and how it comes about."""

_LEFT_OUT = object()
"""A value that changes no step, or follows from others by itself."""


def _hidden(form: str, value: Callable[[int], int]) -> Callable[[Surroundings], Filled | None]:
    def fill(around: Surroundings) -> Filled | None:
        h = around.hidden
        return None if h is None else (value(h), f"{form}, h = {h}")

    return fill


def _micro_batch(around: Surroundings) -> Filled:
    if around.micro_batch is not None:
        return around.micro_batch, "--micro-batch"
    return TRAINER_MICRO_BATCH, "default of TrainingArguments"


def _accumulation(around: Surroundings) -> Filled:
    return (
        (1, "default of TrainingArguments") if around.accumulation is None else (around.accumulation, "--accumulation")
    )


def _enabled(dtype: str) -> Callable[[Surroundings], Filled]:
    def fill(around: Surroundings) -> Filled:
        origin = "default of TrainingArguments" if around.dtype is None else "--dtype"
        return around.dtype == dtype, origin

    return fill


def _always(value: Any, origin: str) -> Callable[[Surroundings], Filled]:
    return lambda _around: (value, origin)


_ZERO = "zero_optimization"
_ARGUMENT = _always(_LEFT_OUT, "from TrainingArguments")
FILLED: Mapping[str, Callable[[Surroundings], Filled | None]] = {
    f"{_ZERO}.reduce_bucket_size": _hidden("h^2", lambda h: h * h),
    f"{_ZERO}.stage3_prefetch_bucket_size": _hidden("int(0.9 h^2)", lambda h: int(0.9 * h * h)),
    f"{_ZERO}.stage3_param_persistence_threshold": _hidden("10 h", lambda h: 10 * h),
    f"{_ZERO}.stage": _always(2, "default of accelerate"),
    f"{_ZERO}.offload_optimizer.device": _always("none", "default of accelerate"),
    f"{_ZERO}.offload_param.device": _always("none", "default of accelerate"),
    f"{_ZERO}.offload_optimizer.nvme_path": _always("none", "default of accelerate"),
    f"{_ZERO}.offload_param.nvme_path": _always("none", "default of accelerate"),
    f"{_ZERO}.stage3_gather_16bit_weights_on_model_save": _always(False, "default of accelerate"),
    "train_micro_batch_size_per_gpu": _micro_batch,
    "gradient_accumulation_steps": _accumulation,
    "train_batch_size": _always(_LEFT_OUT, "micro-batch x accumulation x ranks"),
    "fp16.enabled": _enabled("float16"),
    "bf16.enabled": _enabled("bfloat16"),
    "gradient_clipping": _ARGUMENT,
    **{f"optimizer.params.{name}": _ARGUMENT for name in ("lr", "betas", "eps", "weight_decay")},
    **{
        f"scheduler.params.{name}": _ARGUMENT
        for name in ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps")
    },
}
"""What the Hugging Face integration replaces "auto" with, by the full name of the key."""


def resolve_auto(data: Mapping[str, Any], around: Surroundings, found: Findings) -> dict[str, Any]:
    """Return the config without "auto"; where values come from goes into ``found.origins``, what is wrong, too."""
    resolved = deepcopy(dict(data))
    for holder, key, name in list(_autos(resolved)):
        kept = _fill(name, around, found) if around.integration == "hugging_face" else _left_out(name, found)
        if kept is None:
            del holder[key]
        else:
            holder[key], found.origins[name] = kept
    return resolved


def _autos(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _autos(value, f"{prefix}{key}.")
        elif value == AUTO and isinstance(value, str) and prefix != "pipeline.":
            yield data, key, f"{prefix}{key}"


def _fill(name: str, around: Surroundings, found: Findings) -> Filled | None:
    who = _NAMES["hugging_face"]
    if name not in FILLED:
        rule = f'"auto" is nothing that {who} fills in here, and it refuses it; write a value, or leave the key out'
        found.wrong(name, rule)
        return None
    filled = FILLED[name](around)
    if filled is None:
        rule = (
            f'"auto" is made from the hidden size of the model by {who}; give a model with one (--model), or a number'
        )
        found.wrong(name, rule)
        return None
    value, how = filled
    found.origins[name] = f"Hugging Face auto: {how}"
    return None if value is _LEFT_OUT else (value, found.origins[name])


def _left_out(name: str, found: Findings) -> Filled | None:
    if name.split(".", maxsplit=1)[0] in PYDANTIC and "." in name:
        found.origins[name] = 'DeepSpeed itself leaves "auto" out: its default'
    else:
        rule = f'"auto" is nothing that {_NAMES["deepspeed"]} can compute with; write a value'
        found.wrong(name, f"{rule}, or resolve it as Hugging Face does (--auto hugging_face)")
    return None
