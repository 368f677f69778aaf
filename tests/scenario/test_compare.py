"""Comparisons of strategies: as a scenario, from another one, and from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import simcollectives as sc
from simcollectives.cli import app
from simcollectives.errors import InputError
from simcollectives.scenario.compare import read_comparison, write_comparison

SCENARIO = """\
title: Which?
cluster: {devices: 4, link: {alpha: 5 us, bandwidth: 50 GB/s}, device: {memory: 40 GB, peak: {bfloat16: 312 TFLOP/s}}}
training: {model: gpt2, micro_batch: 4, sequence: 1024, mfu: 40%}
compare: [ddp, all_reduce_once]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "which.yaml"
    path.write_text(SCENARIO)
    return path


def test_a_scenario_says_which(scenario: Path) -> None:
    result = sc.run(scenario)
    (found,) = result.to_json()["comparisons"]
    assert [one["label"] for one in found["verdicts"]] == ["ddp", "all_reduce_once"]
    rows = {row["label"]: row for row in result.rows}
    for one in found["verdicts"]:
        assert one["fits"] is rows[one["label"]]["fits"] is True
        assert one["spare_bytes"] == 40e9 - rows[one["label"]]["peak_bytes"]
    assert found["chosen"] == min(rows, key=lambda label: rows[label]["step_seconds"])


def test_every_point_is_compared(scenario: Path) -> None:
    scenario.write_text(SCENARIO + "sweep: {devices: [1, 2, 4], ddp.bucket_cap: [1 MiB, 25 MiB]}\n")
    found = sc.run(scenario).to_json()["comparisons"]
    assert [one["point"] for one in found] == [{"devices": n} for n in (1, 2, 4)]
    assert [len(one["verdicts"]) for one in found] == [3, 3, 3]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("compare: [ddp,", "compare: [dpd,", '$.compare[0] (line 4): "dpd" is not a strategy; did you mean "ddp"?'),
        ("compare: [", "compare: [ddp, ", "$.compare[1] (line 4): ddp is listed twice, first at [0]; keep one"),
        ("compare: [ddp, all_reduce_once]", "compare: some", '$.compare (line 4): "some" is not a list of strategies'),
        ("mfu: 40%", "mfu: 40%, strategy: ddp", "$.training.strategy (line 3): compare: names the strategies already"),
    ],
)
def test_bad_comparisons(scenario: Path, old: str, new: str, problem: str) -> None:
    scenario.write_text(SCENARIO.replace(old, new))
    with pytest.raises(InputError) as caught:
        sc.run(scenario)
    assert str(caught.value).startswith(f"{scenario}: {problem}")
    assert len(caught.value.problems) == 1


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in ("compare", *arguments)])


def test_the_command_line_and_the_scenario_it_saves_agree(tmp_path: Path) -> None:
    saved = tmp_path / "deep" / "saved.yaml"
    saved.parent.mkdir()
    words = ["--model", "gpt2", "--machine", "dgx-h100", "--sequence", "512", "--strategies", "ddp,all_reduce_once"]
    first = run(*words, "--save", saved, "--json")
    assert first.exit_code == 0, first.output
    again = run(saved, "--json")
    rows = [json.loads(one.stdout)["scenarios"][0]["rows"] for one in (first, again)]
    assert rows[0] == rows[1]
    assert {row["strategy"] for row in rows[0]} == {"ddp", "all_reduce_once"}


def test_any_training_scenario_can_be_compared(scenario: Path) -> None:
    own = SCENARIO.replace("compare: [ddp, all_reduce_once]", "timeline: {strategy: ddp}")
    own = own.replace("mfu: 40%", "mfu: 40%, strategy: ddp")
    scenario.write_text(own + "expect:\n  - {step_seconds: {strategy: ddp}, at_most: 1 ns}\n")
    compared = read_comparison(scenario, "parameter_server,all_reduce_once")
    assert [entry.name for entry in compared.entries] == ["parameter_server", "all_reduce_once"]  # type: ignore[union-attr]
    assert not compared.expectations


@pytest.mark.parametrize(
    ("sweep", "kept"),
    [
        ("{devices: [2, 4], ddp.bucket_cap: [1 MiB, 25 MiB]}", [["devices"]]),
        ("{ddp.bucket_cap: [1 MiB, 25 MiB]}", []),
        ("[{devices: [2, 4]}, {ddp.bucket_cap: [1 MiB]}, {devices: [8], ddp.bucket_cap: [1 MiB]}]", [["devices"]] * 2),
    ],
)
def test_sweeps_over_options_of_other_strategies_are_left_out(scenario: Path, sweep: str, kept: list[Any]) -> None:
    scenario.write_text(SCENARIO + f"sweep: {sweep}\n")
    compared = read_comparison(scenario, "zero2,all_reduce_once")
    assert [[*one.values] for one in compared.sweeps] == kept  # type: ignore[union-attr]


def test_own_strategies_are_compared_with_all_others(scenario: Path) -> None:
    own = "mfu: 40%, strategies: [{zero2: {implementation: deepspeed}}, all_reduce_once]"
    scenario.write_text(SCENARIO.replace("compare: [ddp, all_reduce_once]\n", "").replace("mfu: 40%", own))
    compared = read_comparison(scenario)
    names = ["zero2", "all_reduce_once", "ddp", "zero1", "zero3", "fsdp2"]
    assert [entry.name for entry in compared.entries] == names  # type: ignore[union-attr]
    assert compared.entries[0].options == {"implementation": "deepspeed"}  # type: ignore[union-attr]


def test_a_config_is_named_from_the_folder_of_the_scenario() -> None:
    text = write_comparison({"model": "models/a/config.json"}, "dgx-h100", 1, "all", Path("scenarios"))
    assert "config: ../models/a/config.json" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "nothing to compare"),
        (["--model", "gpt2"], "nothing to compare"),
        (["scenarios/small.yaml"], "there is no training: in it"),
        (["scenarios/ddp_on_two_nodes.yaml", "--model", "gpt2"], "--model: the scenario says it already"),
    ],
)
def test_bad_command_lines(words: list[str], problem: str) -> None:
    found = run(*words)
    assert isinstance(found.exception, InputError)
    assert problem in str(found.exception)
