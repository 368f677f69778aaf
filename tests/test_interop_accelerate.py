"""accelerate configs: FSDP 1 and 2, hybrid sharding, DeepSpeed inside or in a file, plain data parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simcollectives.errors import InputError
from simcollectives.interop import accelerate_keys as keys
from simcollectives.interop.accelerate import Launch, inline_deepspeed, read_fsdp, read_launch
from simcollectives.interop.importing import Imported, import_files
from simcollectives.interop.importing_given import Given
from simcollectives.interop.settings import Findings
from simcollectives.interop.yaml_files import parse_mapping
from simcollectives.training.strategies.table import find_strategy

CONFIGS = Path(__file__).parent / "data" / "configs"
FSDP = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "bf16"}


def problems(found: Findings) -> dict[str, str]:
    """Messages by place."""
    return {problem.place.removeprefix("a.yaml: $."): problem.message for problem in found.problems}


def fsdp(accumulation: int = 1, mesh: Mapping[str, Any] | None = None, **config: Any) -> Findings:
    """Read a config of FSDP with these fields."""
    data = {**FSDP, "fsdp_config": config, **({"parallelism_config": mesh} if mesh else {})}
    found = Findings("a.yaml")
    read_fsdp(data, read_launch(data, found), accumulation, found)
    return found


def options(found: Findings) -> tuple[str, dict[str, Any]]:
    """The strategy, and its options that are noted."""
    placed = [one for one in found.settings if one.path[:2] == ("training", "strategy")]
    (name,) = {one.path[2] for one in placed}
    return name, {one.path[3]: one.value for one in placed if len(one.path) > 3}


@pytest.mark.parametrize("version", [1, 2])
def test_the_table_has_options_of_the_strategies(version: int) -> None:
    """All but offloading, which is said to be not modelled as long as there is no such option."""
    known = {option.name for option in find_strategy(f"fsdp{version}").options}
    mine = {key.option for key in keys.FSDP if version in key.stages} - {"cpu_offload"}
    assert mine <= known
    if version == 2:
        assert {"reshard_after_forward", "param_dtype", "reduce_dtype", "gradient_sync"} <= known
        assert {"shard_size", *known} == {option.name for option in find_strategy("hsdp").options} - {"all_reduce"}
    else:
        assert {"param_dtype", "reduce_dtype", "no_sync"} <= known


@pytest.mark.parametrize("value", keys.SHARDING[:4])
def test_every_value_of_fsdp1_is_one_of_the_strategy(value: str) -> None:
    checks = {option.name: option.check for option in find_strategy("fsdp1").options}
    for number in (value, value.lower(), keys.SHARDING.index(value) + 1, str(keys.SHARDING.index(value) + 1)):
        assert (
            checks["sharding_strategy"](options(fsdp(fsdp_sharding_strategy=number))[1]["sharding_strategy"]) == value
        )
    for prefetch in keys.PREFETCH:
        checks["backward_prefetch"](options(fsdp(fsdp_backward_prefetch=prefetch))[1]["backward_prefetch"])


def test_fsdp1_has_the_defaults_of_accelerate_not_those_of_torch() -> None:
    name, found = options(fsdp())
    assert name == "fsdp1"
    assert (found["backward_prefetch"], found["use_orig_params"]) == ("none", True)
    assert options(fsdp(accumulation=4))[1]["no_sync"] is True


def test_fsdp2_takes_no_notice_of_the_sharding_strategy() -> None:
    name, found = options(fsdp(fsdp_version=2, fsdp_sharding_strategy="SHARD_GRAD_OP"))
    assert (name, found["reshard_after_forward"]) == ("fsdp2", True)
    assert options(fsdp(fsdp_version="2", reshard_after_forward="false"))[1]["reshard_after_forward"] is False
    assert options(fsdp(accumulation=4, fsdp_version=2))[1]["gradient_sync"] == "last"
    wrong = problems(fsdp(fsdp_version=2, fsdp_reshard_after_forward="FULL_SHARD"))
    assert "with fsdp_version: 2" in wrong["fsdp_config.fsdp_reshard_after_forward"]


def test_replicas_make_hybrid_sharding() -> None:
    mesh = {"dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4}
    name, found = options(fsdp(mesh=mesh, fsdp_version=2))
    assert (name, found["shard_size"]) == ("hsdp", 4)
    assert "need version 2" in problems(fsdp(mesh=mesh))["fsdp_config.fsdp_version"]
    assert (
        "= 6, and num_processes is 8"
        in problems(fsdp(mesh={"dp_replicate_size": 2, "dp_shard_size": 3}))["parallelism_config"]
    )
    assert "not data-parallel" in problems(fsdp(mesh={"tp_size": 2}))["parallelism_config.parallelism_config_tp_size"]


def test_units_that_are_no_blocks_are_said() -> None:
    left = {
        one.name: one.reason for one in fsdp(fsdp_auto_wrap_policy="SIZE_BASED_WRAP", offload_params=True).unmodelled
    }
    assert "number of parameters" in left["fsdp_config.fsdp_auto_wrap_policy"]
    assert {one.name for one in fsdp().unmodelled} == {"fsdp_config.fsdp_auto_wrap_policy"}
    assert not fsdp(fsdp_auto_wrap_policy="TRANSFORMER_BASED_WRAP").unmodelled


def test_everything_wrong_at_once() -> None:
    data = {"distributed_typ": "FSDP", "mixed_precision": False, "num_processes": 0, "compute_environment": "AMAZON"}
    found = Findings("a.yaml")
    read_launch(data, found)
    wrong = problems(found)
    assert 'did you mean "distributed_type"?' in wrong["distributed_typ"]
    assert "write 'no'" in wrong["mixed_precision"]
    assert {"distributed_type", "num_processes", "compute_environment"} <= wrong.keys()
    other = Findings("a.yaml")
    read_launch({"distributed_type": "MEGATRON_LM"}, other)
    assert "is not modelled" in problems(other)["distributed_type"]


def test_deepspeed_keys_become_its_config() -> None:
    found = Findings("a.yaml")
    data = {"deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu", "gradient_accumulation_steps": 4}}
    made, name = inline_deepspeed(data, Launch("DEEPSPEED", 8, 1, "bf16"), found)
    assert (name, found.problems) == (None, [])
    assert made is not None
    assert made["zero_optimization"]["stage"] == 3
    assert made["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    assert (made["gradient_accumulation_steps"], made["bf16"]) == (4, {"enabled": True})
    assert found.origins["zero_optimization.stage"] == "a.yaml: zero_stage"


def test_a_file_beside_keys_that_accelerate_refuses() -> None:
    found = Findings("a.yaml")
    data: dict[str, Any] = {"deepspeed_config": {"zero_stage": 3, "deepspeed_config_file": "ds.json"}}
    inline_deepspeed(data, Launch("DEEPSPEED", 8, 1, "bf16"), found)  # a precision of the command line
    assert problems(found).keys() == {"deepspeed_config.zero_stage"}
    data["mixed_precision"] = "bf16"
    made, name = inline_deepspeed(data, Launch("DEEPSPEED", 8, 1, "bf16"), found)
    assert (made, name) == (None, "ds.json")
    assert problems(found).keys() == {"deepspeed_config.zero_stage", "mixed_precision"}


def importing(name: str, **given: Any) -> Imported:
    """Import a sample for a small model on machines of 8."""
    return import_files([CONFIGS / name], Given(**{"cluster": "dgx-h100", "model": "gpt2", **given}))


def placed(imported: Imported) -> dict[str, Any]:
    """What stands in the scenario, by its place."""
    return {".".join(one.path): one.value for one in imported.settings if one.path}


def test_precision_of_torch_is_mixed_and_that_of_deepspeed_is_not() -> None:
    sharded = placed(importing("accelerate_fsdp2.yaml"))
    assert (sharded["training.dtype"], sharded["training.parameters"]) == ("bfloat16", "float32")
    assert sharded["training.recomputation"] == "full"
    deepspeed = placed(importing("accelerate_zero3.yaml", micro_batch=2))
    assert (deepspeed["training.dtype"], deepspeed["training.parameters"]) == ("bfloat16", "bfloat16")
    assert deepspeed["training.train_batch"] == 2 * 4 * 8


def test_machines_and_processes_make_the_cluster() -> None:
    assert placed(importing("accelerate_hsdp.yaml"))["cluster.nodes"] == 2
    part = placed(importing("accelerate_fsdp1.yaml"))
    assert (part["cluster.gpus_per_node"], part["cluster.intra"]["bandwidth"]) == (2, "450 GB/s")
    with pytest.raises(InputError, match="--nodes: 4 is not num_machines") as caught:
        importing("accelerate_hsdp.yaml", nodes=4, gpus_per_node=3)
    assert "--gpus-per-node: 3 is not num_processes" in str(caught.value)


def test_the_file_of_deepspeed_is_found_beside_the_config() -> None:
    found = importing("accelerate_deepspeed_file.yaml")
    assert placed(found)["training.train_batch"] == 256
    assert placed(found)["cluster.nodes"] == 2


def test_yaml_as_pyyaml_reads_it() -> None:
    text = "a: no\nb: 'no'\nc: 1e5\nd: 1_000\ne: 1.5e+3\nf: ~\ng: [x, on]\n"
    assert parse_mapping(text, "x") == {
        **{"a": False, "b": "no", "c": "1e5", "d": 1000, "e": 1500.0, "f": None},
        "g": ["x", True],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "there twice"),
        ("a: &x [1]\nb: *x\n", "an alias stands here"),
        ("a: !!python/object:os.system {}\n", "the tag"),
        ("- 1\n", "must hold keys"),
        ("", "the file holds null"),
        ("a: [1\n", "this is not YAML"),
        (f"{'[' * 100}{']' * 100}", "nested more than"),
        ("a: x\n" * 20_000, "characters of YAML"),
        ('a: "\\UFFFFFFFF"\n', "this is not YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_mapping(text, "x")


def test_a_key_by_both_of_its_names_is_refused() -> None:
    found = fsdp(mesh={"dp_shard_size": 8, "parallelism_config_dp_shard_size": 4}, version=2, fsdp_version=1)
    assert {place: rule for place, rule in problems(found).items() if "there twice" in rule} == {
        "fsdp_config": "a key is there twice, with and without fsdp_; keep one",
        "parallelism_config": "a key is there twice, with and without parallelism_config_; keep one",
    }


@pytest.mark.parametrize("value", ["HYBRID_SHARD_ZERO2", "hybrid_shard_zero2", 5, "5"])
@pytest.mark.parametrize("name", ["fsdp_sharding_strategy", "sharding_strategy"])
def test_what_the_strategies_do_not_have_is_refused_where_it_is_written(name: str, value: object) -> None:
    found = fsdp(**{name: value})
    assert problems(found)["fsdp_config.fsdp_sharding_strategy"].startswith("HYBRID_SHARD_ZERO2 is not modelled")
