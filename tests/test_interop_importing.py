"""Importing whole files: what they make runs, and whatever is in them, errors are errors of the input."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from simcollectives.errors import InputError
from simcollectives.interop.importing import import_files
from simcollectives.interop.importing_given import Given
from simcollectives.interop.json_files import without_comments
from simcollectives.interop.scenario_text import written
from simcollectives.report.imported import check_scenario, imported_tables

CONFIGS = Path(__file__).parent / "data" / "configs"
SAMPLES = sorted(path for path in CONFIGS.iterdir() if path.suffix in (".json", ".yaml"))
SMALL = Given(cluster="dgx-h100", model="gpt2", peak=60e12)


def load(path: Path) -> dict[str, Any]:
    """The data of a sample."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return json.loads(without_comments(text)[0])  # type: ignore[no-any-return]
    return YAML(typ="safe", pure=True).load(text)  # type: ignore[no-any-return]


def attempt(path: Path, given_values: Given) -> None:
    """Import a file and check what it makes; only an error of the input may come of it."""
    with contextlib.suppress(InputError):
        imported = import_files([path], given_values, path.parent)
        imported_tables(imported, 120)
        if imported.text is not None:
            check_scenario(imported.text, path.with_name("made.yaml"))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=True)
    | st.sampled_from(["auto", "none", "cpu", "bf16", "no", "FULL_SHARD", "2", "", "\u2028", "x" * 200])
    | st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner), max_leaves=5
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested objects."""
    found = [path]
    if isinstance(data, dict):
        for key, value in data.items():
            found += places(value, (*path, key))
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_configs_with_other_values_never_break(tmp_path: Path, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    config = load(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places(config)[1:] or [("new",)]))
        holder = config
        for key in place[:-1]:
            holder = holder[key]
        change = data.draw(st.sampled_from(["value", "drop", "rename", "add"]))
        if change == "value":
            holder[place[-1]] = data.draw(VALUES)
        elif change == "add":
            holder[data.draw(st.text(max_size=10))] = data.draw(VALUES)
        elif place[-1] in holder:
            value = holder.pop(place[-1])
            if change == "rename":
                holder[data.draw(st.sampled_from([f"{place[-1]}s", str(place[-1])[1:], f"stage3_{place[-1]}"]))] = value
    path = tmp_path / "mutated.json"
    path.write_text(json.dumps(config), "utf-8")
    attempt(path, data.draw(st.sampled_from([SMALL, Given(), Given(model="gpt2", auto="deepspeed", nodes=3)])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_texts_with_holes_and_insertions_never_break(tmp_path: Path, data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    text = sample.read_text("utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        insertion = data.draw(
            st.sampled_from(["", "{", "}", "[", '"', ",", ":", "//", "/*", "\t", "- ", "&a ", "*a"])
            | st.text(max_size=3)
        )
        text = text[:start] + insertion + text[end:]
    path = tmp_path / sample.name
    path.write_text(text, "utf-8", errors="replace")
    attempt(path, SMALL)


def importing(*paths: Path, **options: Any) -> Any:
    """Import with these options."""
    return import_files(paths, Given(**options))


def test_files_of_one_kind_or_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ds_zero2.json: this is a DeepSpeed config, and so is .*ds_old_names.json"):
        importing(CONFIGS / "ds_old_names.json", CONFIGS / "ds_zero2.json")
    (tmp_path / "other.json").write_text('{"stages": 2}', "utf-8")
    with pytest.raises(InputError, match="no config that is known here: it has stages"):
        importing(tmp_path / "other.json")
    with pytest.raises(InputError, match="cannot be read"):
        importing(tmp_path / "missing.json")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("title: t\ncluster: {}\ntraining: {}\n", "utf-8")
    with pytest.raises(InputError, match="a scenario already"):
        importing(scenario)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', "utf-8")
    with pytest.raises(InputError) as caught:
        importing(tmp_path / "config.json")
    assert "no file says how the model is trained" in str(caught.value)


def test_two_descriptions_of_deepspeed_are_refused() -> None:
    with pytest.raises(InputError, match="has no deepspeed_config_file"):
        importing(CONFIGS / "accelerate_zero3.yaml", CONFIGS / "ds_zero2.json")
    with pytest.raises(InputError, match="does not train with DeepSpeed"):
        importing(CONFIGS / "accelerate_fsdp2.yaml", CONFIGS / "ds_zero2.json")


def test_accelerate_resolves_auto_in_its_own_way() -> None:
    with pytest.raises(InputError, match=r"--auto: .* as Hugging Face does"):
        importing(CONFIGS / "accelerate_zero3.yaml", auto="deepspeed")


def test_problems_of_files_and_of_options_come_together(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 7, "steps_per_prin": 1}', "utf-8")
    with pytest.raises(InputError) as caught:
        importing(path, cluster="dgx-h10", model="gpt-2", micro_batch=2)
    places_found = {problem.place for problem in caught.value.problems}
    assert places_found >= {f"{path}: $.steps_per_prin", "--cluster", "--model"}
    assert 'did you mean "dgx-h100"?' in str(caught.value)


def test_a_config_json_stands_in_the_scenario_by_its_way_from_there(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 128, "vocab_size": 500}
    (tmp_path / "models" / "config.json").write_text(json.dumps(config), "utf-8")
    folder = tmp_path / "made"
    folder.mkdir()
    for files, model in (([], tmp_path / "models" / "config.json"), ([tmp_path / "models" / "config.json"], None)):
        given_values = Given(cluster="dgx-h100", model=model and str(model))
        imported = import_files([CONFIGS / "accelerate_fsdp2.yaml", *files], given_values, folder)
        assert 'config: "../models/config.json"' in (imported.text or "")
        check_scenario(imported.text or "", folder / "s.yaml")
        assert any(one.path == ("training", "sequence") and one.value == 128 for one in imported.settings)


def test_hidden_size_is_that_of_the_model() -> None:
    found = importing(CONFIGS / "ds_zero3_auto.json", model="gpt2", nodes=1, gpus_per_node=8)
    values = {one.name: one.value for one in (*found.settings, *found.unmodelled)}
    assert values["zero_optimization.reduce_bucket_size"] == 768 * 768
    assert values["zero_optimization.prefetch_bucket_size"] == int(0.9 * 768 * 768)
    assert values["zero_optimization.param_persistence_threshold"] == 7680
    assert found.text is None
    assert found.lacking == "a scenario needs --cluster, too"


@pytest.mark.parametrize(
    "value", ["true", "on", "a: b", "#", "", "45%", "llama-3-8b", "450 GB/s", "12", "1e5", "../x y"]
)
def test_a_written_text_is_read_as_that_text(value: str) -> None:
    assert YAML(typ="safe", pure=True).load(f"x: {written(value)}  # comment") == {"x": value}
