"""Running numerics scenarios: rows, checks, table, picture and files."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from simcollectives.cli import main
from simcollectives.errors import InputError
from simcollectives.report.files import json_text, rows_csv, scenario_json, write_outputs
from simcollectives.report.plots import plot
from simcollectives.report.tables import result_blocks
from simcollectives.report.text import TextTable
from simcollectives.scenario import ScenarioResult, Standing, run_scenario
from simcollectives.training.numerics import NumericsPlan, run_numerics
from tests.scenario.conftest import Loader

TEXT = """\
title: A short run
cluster: {devices: 4, link: {alpha: 5 us, bandwidth: 450 GB/s}}
numerics:
  steps: 4
  samples: 24
  record: [1, 4]
  variants: {right: {}, apart: {mistake: no_all_reduce}}
expect:
  - {bit_identical: {variant: right, step: 4}, equals: true}
  - {bit_identical: {variant: right, step: 4}, equals: false, because: it is made to fail}
  - {bit_identical: {variant: apart, step: 4}, at_most: 0}
  - {difference_from_one_device: {variant: right, step: 4}, at_most: 1e-14}
  - {difference_from_one_device: {variant: right, step: 4}, at_least: 0.1}
  - {bytes_sent_max: {variant: right, step: 1}, equals: 2544 B, rel: 0%}
  - {order: [right, apart], step: 4}
  - {order: [apart, right], of: bytes_sent_max, step: 4}
  - {ratio: [{variant: right, step: 4}, {variant: right, step: 1}], of: loss, at_most: 1}
  - {ratio: [{variant: apart, step: 4}, {variant: right, step: 1}], of: bytes_sent_max, equals: 0, abs: 0}
"""


@pytest.fixture
def result(load: Loader) -> ScenarioResult:
    return run_scenario(load(TEXT))


def test_rows_are_those_of_the_package(result: ScenarioResult) -> None:
    plans = {
        name: NumericsPlan(steps=4, samples=24, mistake=m) for name, m in (("right", None), ("apart", "no_all_reduce"))
    }
    expected: list[dict[str, Any]] = [
        {"label": name, "point": {"step": row.step}, **asdict(row)}
        for name, plan in plans.items()
        for row in run_numerics(plan, (1, 4))
    ]
    assert [dict(row) for row in result.rows] == expected
    assert [row["step"] for row in result.rows] == [1, 4, 1, 4]


def test_checks_hold_or_fail_as_they_should(result: ScenarioResult) -> None:
    """2544 B: 2 x 3/4 of 212 gradients of 8 B, and chunks of 53 of them."""
    failing = {1, 4}
    assert [check.passed for check in result.checks] == [i not in failing for i in range(len(result.checks))]
    message = "line 10: bit_identical of right at step: 4 is true; expected: equals false (it is made to fail)"
    assert result.checks[1].message == message


def test_variants_share_the_run_on_one_device(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    from simcollectives.scenario.numerics import running

    trained: list[int] = []
    real = running.train

    def counted(plan: NumericsPlan, *rest: Any) -> Any:
        trained.append(plan.world_size)
        return real(plan, *rest)

    monkeypatch.setattr(running, "train", counted)
    run_scenario(load(TEXT))
    assert sorted(trained) == [1, 4, 4]


def test_a_loss_that_is_no_longer_finite_is_a_problem_and_the_others_are_kept(load: Loader) -> None:
    wild = TEXT.replace("{mistake: no_all_reduce}", "{learning_rate: 1e308}")
    result = run_scenario(load(wild))
    assert {row["label"] for row in result.rows} == {"right"}
    assert result.checks == ()
    (problem,) = result.problems
    assert str(problem).startswith("$.numerics.variants.apart (line 7): apart: training is no longer finite at step ")


def test_progress_counts_variants_and_checks(load: Loader) -> None:
    seen: list[tuple[int, int]] = []
    run_scenario(load(TEXT), lambda standing: seen.append((standing.done, standing.total)))
    assert seen == [(number, 12) for number in range(1, 13)]


def test_an_interrupt_keeps_what_is_finished(load: Loader) -> None:
    def stop(standing: Standing) -> None:
        if standing.done == 1:
            raise KeyboardInterrupt

    result = run_scenario(load(TEXT), stop)
    assert result.interrupted
    assert [row["label"] for row in result.rows] == ["right", "right"]


def test_the_table(result: ScenarioResult) -> None:
    table = next(block for block in result_blocks(result) if isinstance(block, TextTable))
    columns = {column.header.replace("\n", " "): list(column.cells) for column in table.columns}
    assert columns[""] == ["right", "", "apart", ""]
    assert columns["step"] == ["1", "4", "1", "4"]
    assert columns["same bits"] == ["yes", "yes", "no", "no"]
    assert columns["between replicas"][:2] == ["0", "0"]
    assert columns["sent (kB)"] == ["2.544", "2.544", "0", "0"]


def test_tables_of_what_is_sent_and_held(load: Loader) -> None:
    """Of 212 numbers: a ring sends 3/4 in each half; ZeRO-3 gathers twice and holds a quarter."""
    text = TEXT[: TEXT.index("expect:")].replace("apart: {mistake: no_all_reduce}", "sharded: {strategy: zero3}")
    blocks = [block for block in result_blocks(run_scenario(load(text))) if isinstance(block, TextTable)]
    main, sent, held = ({c.header.replace("\n", " "): list(c.cells) for c in block.columns} for block in blocks)
    assert main["same bits as ddp"] == ["yes", "yes", "no", "no"]
    assert sent == {
        "": ["right", "sharded"],
        "all_reduce (kB)": ["2.544", "0"],
        "reduce_scatter (kB)": ["0", "1.272"],
        "all_gather (kB)": ["0", "2.544"],
    }
    assert held["parameters"] == ["1.696 kB", "424 B"]
    assert held["unsharded parameters (kB)"] == ["0", "1.152"]


def test_the_picture(result: ScenarioResult) -> None:
    axes = plot(result, kind="drift")
    assert isinstance(axes, Axes)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    lines = {line.get_label(): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
    assert list(lines) == ["right", "apart"]
    expected = [row["difference_from_one_device"] for row in result.rows if row["label"] == "apart"]
    assert list(lines["apart"].get_xdata()) == [1, 4]
    assert list(lines["apart"].get_ydata()) == expected
    below = axes.figure.axes[1]
    assert below.get_yticklabels()[0].get_text() == "0"
    assert set(below.get_lines()[0].get_ydata()) == {below.get_yticks()[0]}
    with pytest.raises(InputError, match="no plot of kind"):
        plot(result, kind="busbw")


def test_variants_stand_side_by_side_where_one_step_is_recorded(result: ScenarioResult) -> None:
    last = replace(result, rows=tuple(row for row in result.rows if row["step"] == 4))
    axes = plot(last, kind="drift")
    drawn = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    assert [list(line.get_xdata()) for line in drawn] == [[0], [1]]
    assert axes.figure.axes[1].get_xlabel() == "step 4, the only one recorded"


def test_files(result: ScenarioResult, tmp_path: Path) -> None:
    assert [path.name for path in write_outputs(result, tmp_path)] == ["rows.csv", "result.json", "drift.png"]
    rows = list(csv.DictReader(io.StringIO(rows_csv(result.rows))))
    assert [(row["label"], row["point.step"], row["bit_identical"]) for row in rows] == [
        ("right", "1", "true"),
        ("right", "4", "true"),
        ("apart", "1", "false"),
        ("apart", "4", "false"),
    ]
    data = json.loads(json_text(scenario_json(result)))
    assert data["rows"][0]["memory"] == dict(result.rows[0]["memory"])
    assert data["checks"][0]["value"] is True
    assert data["fastest"] == []


def test_check_says_what_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    path = tmp_path / "short.yaml"
    path.write_text(TEXT)
    monkeypatch.setattr("sys.argv", ["simcollectives", "check", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert "8 of 10 expectations hold" in capsys.readouterr().out
