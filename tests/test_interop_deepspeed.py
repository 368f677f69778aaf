"""DeepSpeed configs: options of the strategies, "auto", old names, the batch, and all that is wrong at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.interop import deepspeed_keys as keys
from simcollectives.interop.deepspeed import read_deepspeed
from simcollectives.interop.deepspeed_auto import Integration, Surroundings
from simcollectives.interop.deepspeed_batch import ACCUMULATION, MICRO, TOTAL
from simcollectives.interop.json_files import parse_object, without_comments
from simcollectives.interop.settings import Findings, Key, Setting
from simcollectives.training.strategies.table import find_strategy

CONFIGS = Path(__file__).parent / "data" / "configs"
PLAIN = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}}


def read(data: Mapping[str, Any], **around: Any) -> Findings:
    """Read a config on 8 ranks, for a model with a hidden size of 4096."""
    found = Findings("ds.json")
    read_deepspeed(data, Surroundings(**{"world_size": 8, "hidden": 4096, **around}), found)
    return found


def setting(found: Findings, name: str) -> Setting:
    """The one setting of this name."""
    (one,) = (one for one in found.settings if one.name == name)
    return one


def problems(found: Findings) -> dict[str, str]:
    """Messages by place, without the file."""
    assert all(problem.place.startswith("ds.json") for problem in found.problems)
    return {problem.place.removeprefix("ds.json: $."): problem.message for problem in found.problems}


def zero(**fields: Any) -> dict[str, Any]:
    """A config with these fields of ``zero_optimization``."""
    return {**PLAIN, "zero_optimization": fields}


STAGES = {f"zero{stage}": stage for stage in (1, 2, 3)}
OWN_KEYS = (*keys.ZERO, *keys.DATA_TYPES, keys.COMMUNICATION)


@pytest.mark.parametrize(("name", "stage"), STAGES.items())
def test_the_table_has_the_options_of_the_strategies_with_their_defaults(name: str, stage: int) -> None:
    options = {option.name: option for option in find_strategy(name).options}
    mine: dict[str, Key] = {key.option: key for key in OWN_KEYS if stage in key.stages}
    if "offload_optimizer" in options:
        mine |= {
            key.option: key for known in keys.OFFLOAD.values() for key in known if stage in key.stages and key.option
        }
    assert options.keys() - {"implementation"} == mine.keys()
    for option, key in mine.items():
        default = key.written.get(key.default, key.default)
        assert options[option].check(stage == 3 if option == "overlap_comm" else default) == options[option].default


def test_defaults_are_noted_with_their_origin() -> None:
    found = read(zero(stage=3, stage3_prefetch_bucket_size=2e7))
    assert not found.problems
    assert setting(found, "zero_optimization.stage").value == 3
    given_one = [one for one in found.settings if one.name == "zero_optimization.prefetch_bucket_size"]
    kept = [one for one in found.unmodelled if one.name == "zero_optimization.prefetch_bucket_size"]
    assert [one.value for one in (*given_one, *kept)] == [20_000_000]
    assert setting(found, "gradient_accumulation_steps").origin.startswith("derived")


@pytest.mark.parametrize("name", ["prefetch_bucket_size", "stage3_prefetch_bucket_size"])
def test_names_with_and_without_stage3(name: str) -> None:
    one = setting(read(zero(stage=3, **{name: 2e7})), "zero_optimization.prefetch_bucket_size")
    assert (one.value, one.path[-1]) == (20_000_000, "prefetch_bucket_size")
    assert name in one.origin or name == "prefetch_bucket_size"
    both = read(zero(stage=3, prefetch_bucket_size=1, stage3_prefetch_bucket_size=2))
    assert "by another name" in problems(both)["zero_optimization.stage3_prefetch_bucket_size"]


AUTOS = {
    "reduce_bucket_size": (4096**2, 500_000_000),
    "stage3_prefetch_bucket_size": (15_099_494, 50_000_000),
    "stage3_param_persistence_threshold": (40_960, 100_000),
}
"""What "auto" becomes with a hidden size of 4096 (h^2, int(0.9 h^2), 10 h), and DeepSpeed's defaults."""


@pytest.mark.parametrize("integration", ["hugging_face", "deepspeed"])
def test_auto_of_hidden_sizes(integration: Integration) -> None:
    found = read(zero(stage=3, **dict.fromkeys(AUTOS, "auto")), integration=integration)
    assert not found.problems
    for name, values in AUTOS.items():
        one = setting(found, f"zero_optimization.{name.removeprefix('stage3_')}")
        assert one.value == values[integration == "deepspeed"]
        assert ("Hugging Face" if integration == "hugging_face" else 'leaves "auto" out') in one.origin


def test_auto_of_the_trainer() -> None:
    data = dict.fromkeys((TOTAL, MICRO, ACCUMULATION, "gradient_clipping"), "auto")
    data |= {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}
    found = read(data, micro_batch=3, accumulation=5, dtype="bfloat16")
    assert not found.problems
    assert [setting(found, name).value for name in (MICRO, ACCUMULATION, TOTAL)] == [3, 5, 120]
    assert {one.path[1]: one.value for one in found.settings if one.name == "bf16"} == dict.fromkeys(
        ("dtype", "parameters", "gradients"), "bfloat16"
    )
    assumed = read(data)
    assert (setting(assumed, MICRO).value, "default of TrainingArguments" in setting(assumed, MICRO).origin) == (
        8,
        True,
    )


def test_auto_that_nobody_resolves() -> None:
    data = {**zero(stage=3, overlap_comm="auto", reduce_bucket_size="auto"), "communication_data_type": "auto"}
    hugging_face = problems(read(data, hidden=None))
    assert "nothing that the Hugging Face integration fills in" in hugging_face["zero_optimization.overlap_comm"]
    assert "--model" in hugging_face["zero_optimization.reduce_bucket_size"]
    deepspeed = problems(read({**data, MICRO: "auto"}, integration="deepspeed"))
    assert "nothing that DeepSpeed itself can compute with" in deepspeed[MICRO]
    assert deepspeed.keys() >= {"communication_data_type", MICRO}
    assert "zero_optimization.overlap_comm" not in deepspeed


@pytest.mark.parametrize(
    ("data", "name", "value", "said"),
    [
        ({"zero_optimization": True}, "zero_optimization.stage", 1, "stage 1"),
        ({"zero_optimization": False}, "zero_optimization.stage", 0, "stage 0"),
        (
            {"zero_optimization": {"stage": 3, "stage3_gather_fp16_weights_on_model_save": True}},
            "zero_optimization.gather_16bit_weights_on_model_save",
            True,
            "stage3_gather_16bit_weights_on_model_save",
        ),
        ({"zero_optimization": {"cpu_offload_use_pin_memory": True}}, "zero_optimization.stage", 0, "no notice"),
    ],
)
def test_deprecated_names_are_mapped_and_said(data: dict[str, Any], name: str, value: Any, said: str) -> None:
    found = read({**PLAIN, **data})
    assert not found.problems
    assert setting(found, name).value == value
    assert any(said in warning for warning in found.warnings)


@pytest.mark.parametrize(("old", "new"), [("cpu_offload", "optimizer"), ("cpu_offload_params", "param")])
def test_deprecated_offloading(old: str, new: str) -> None:
    found = read(zero(stage=3, **{old: True}))
    name = f"zero_optimization.offload_{new}.device"
    assert not found.problems
    assert [one.value for one in (*found.settings, *found.unmodelled) if one.name == name] == ["cpu"]
    assert any(old in warning for warning in found.warnings)
    both = read(zero(stage=3, **{old: True, f"offload_{new}": {"device": "cpu"}}))
    assert "refuses both" in problems(both)[f"zero_optimization.{old}"]


def test_one_pin_memory_for_both() -> None:
    objects = {f"offload_{part}": {"device": "cpu", "pin_memory": part == "param"} for part in ("optimizer", "param")}
    found = read(zero(stage=3, **objects))
    assert not found.problems
    assert [one.value for one in found.settings if one.path[-1:] == ("pin_memory",)] in ([False], [])
    left = {one.name: one.value for one in found.unmodelled}
    assert left["zero_optimization.offload_param.pin_memory"] is True
    wrong = problems(read(zero(stage=2, **objects)))
    assert "stage 3 only" in wrong["zero_optimization.offload_param.device"]


def test_old_bfloat16() -> None:
    found = read({"train_batch_size": 8, "bfloat16": {"enabled": True}})
    assert next(one.value for one in found.settings if one.path == ("training", "dtype")) == "bfloat16"
    assert "deprecated name" in problems(read({**PLAIN, "bfloat16": {}}))["bfloat16"]


def test_everything_wrong_at_once_with_the_nearest_name() -> None:
    data = {
        "train_micro_batch_size": 4,
        "bf16": {"enabled": "yes"},
        "fp16": 5,
        "zero_optimization": {
            "stage": 4,
            "reduce_bucket_sise": 1,
            "sub_group_size": 1.5,
            "offload_param": {"devise": 1},
        },
        "optimizer": {"type": "Adan"},
        "tensor_parallel": {"autotp_size": 2},
    }
    found = problems(read(data))
    assert 'did you mean "train_micro_batch_size_per_gpu"?' in found["train_micro_batch_size"]
    assert 'did you mean "reduce_bucket_size"?' in found["zero_optimization.reduce_bucket_sise"]
    assert 'did you mean "device"?' in found["zero_optimization.offload_param.devise"]
    assert 'did you mean "adam"?' in found["optimizer.type"]
    assert "4 is not a whole number from 0 to 3" in found["zero_optimization.stage"]
    assert "tensor parallelism, which is not modelled" in found["tensor_parallel.autotp_size"]
    assert {"bf16.enabled", "fp16", "zero_optimization.sub_group_size", MICRO} <= found.keys()


def test_both_precisions_are_refused() -> None:
    found = read({**PLAIN, "fp16": {"enabled": True}})
    assert "both enabled" in problems(found)["bf16.enabled"]


def test_a_dtype_against_the_file_is_refused() -> None:
    assert "--dtype: float16 is asked for" in read(PLAIN, dtype="float16").problems[0].message


@pytest.mark.parametrize(
    ("data", "numbers"),
    [
        ({TOTAL: 64, MICRO: 2, ACCUMULATION: 4}, (64, 2, 4)),
        ({TOTAL: 64, MICRO: 2}, (64, 2, 4)),
        ({TOTAL: 64, ACCUMULATION: 4}, (64, 2, 4)),
        ({MICRO: 2, ACCUMULATION: 4}, (64, 2, 4)),
        ({TOTAL: 64}, (64, 8, 1)),
        ({MICRO: 2}, (16, 2, 1)),
    ],
)
def test_the_batch_as_deepspeed_derives_it(data: dict[str, Any], numbers: tuple[int, int, int]) -> None:
    found = read(data)
    assert not found.problems
    assert tuple(setting(found, name).value for name in (TOTAL, MICRO, ACCUMULATION)) == numbers


@pytest.mark.parametrize(
    "data", [{TOTAL: 60, MICRO: 2}, {TOTAL: 4}, {TOTAL: 64, MICRO: 2, ACCUMULATION: 3}, {ACCUMULATION: 4}, {}]
)
def test_a_batch_that_deepspeed_refuses(data: dict[str, Any]) -> None:
    found = read(data)
    assert len(found.problems) == 1
    assert found.problems[0].place in (f"ds.json: $.{TOTAL}", f"ds.json: $.{MICRO}")


@given(
    total=st.none() | st.integers(1, 300),
    micro=st.none() | st.integers(1, 9),
    steps=st.none() | st.integers(1, 9),
    ranks=st.integers(1, 9),
)
def test_the_batch_holds_or_is_refused(total: int | None, micro: int | None, steps: int | None, ranks: int) -> None:
    """What is accepted fulfils the identity and keeps what is given; what has a solution by division is accepted."""
    numbers = {TOTAL: total, MICRO: micro, ACCUMULATION: steps}
    given_ones = {name: value for name, value in numbers.items() if value is not None}
    found = read(given_ones, world_size=ranks)
    divides = total is None or total % ((micro or 1) * (steps or 1) * ranks) == 0
    if found.problems:
        assert not divides or (total is None and micro is None) or len(given_ones) == 3
        return
    result = {name: setting(found, name).value for name in numbers}
    assert result[TOTAL] == result[MICRO] * result[ACCUMULATION] * ranks
    assert given_ones.items() <= result.items()


def test_comments_and_trailing_commas_keep_lines_and_strings() -> None:
    text = '{"a": "//no, #comment,]", /* two\nlines */ "b": [1, 2,], # end\n}'
    plain, taken = without_comments(text)
    assert json.loads(plain) == {"a": "//no, #comment,]", "b": [1, 2]}
    assert plain.count("\n") == text.count("\n")
    assert taken == ("line 1: a comment", "line 2: a comment", "line 2: a trailing comma")
    with pytest.raises(InputError, match="line 3"):
        parse_object(without_comments('{"a": 1, // one\n\n"b" 2}')[0], "x.json")


def test_stage_0_is_one_all_reduce_and_says_so() -> None:
    found = read(zero(stage=0))
    assert setting(found, "zero_optimization.stage").path == ("training", "strategy", "all_reduce_once")
    assert ["5e8 elements" in one.reason for one in found.unmodelled] == [True]


def test_what_is_not_modelled_is_said() -> None:
    data = zero(stage=2, zenflow={"topk_ratio": 0.1}, mics_shard_size=4, stage3_max_live_parameters=7)
    found = read(
        {**data, "activation_checkpointing": {"partition_activations": False}, "elasticity": {"enabled": False}}
    )
    assert not found.problems
    left = {one.name for one in found.unmodelled}
    assert left >= {"zero_optimization.zenflow", "zero_optimization.mics_shard_size", "activation_checkpointing"}
    assert setting(found, "zero_optimization.max_live_parameters").note == "no consequence for zero2"
    assert setting(found, "elasticity").path == ()


@pytest.mark.parametrize("written", ["fp32", "FP32"])
@pytest.mark.parametrize(("stage", "device", "other"), [(1, "none", True), (2, "none", False), (1, "CPU", False)])
def test_with_bf16_another_optimizer_accumulates_in_float32(written: str, stage: int, device: str, other: bool) -> None:
    config = zero(stage=stage, offload_optimizer={"device": device})
    found = read({**config, "data_types": {"grad_accum_dtype": written}})
    assert any("BF16_Optimizer" in one.reason for one in found.unmodelled) == other


@pytest.mark.parametrize("written", ["bf16", "BF16", "bfloat16"])
def test_autocast_computes_in_its_dtype(written: str) -> None:
    found = read({"train_batch_size": 8, "torch_autocast": {"enabled": True, "dtype": written}})
    dtypes = {one.path[1]: one.value for one in found.settings if one.path[1:] in (("dtype",), ("parameters",))}
    assert dtypes == {"dtype": "bfloat16", "parameters": "float32"}
