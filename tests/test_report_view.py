"""The result in a notebook: table, plot, frame."""

from __future__ import annotations

import base64
import dataclasses
import pickle
import re
import sys
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcollectives.errors import SimcollectivesError
from simcollectives.report import Result
from simcollectives.scenario import ScenarioResult, load_scenario, run_scenario

TEXT = """
title: Ring & <tree>
cluster: {devices: 4, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [ring, tree]}
sweep: {message: [4 KiB, 1 MiB]}
expect: [{order: [tree, ring], message: 4 KiB}]
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path: Path = tmp_path_factory.mktemp("scenarios") / "view.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return Result.of(run_scenario(load_scenario(path)))


def test_it_is_the_scenario_result(result: Result) -> None:
    assert isinstance(result, ScenarioResult)
    assert len(result.rows) == 4
    assert result.passed
    assert result.warnings == ()
    assert pickle.loads(pickle.dumps(result.rows)) == result.rows


def test_it_prints_as_its_tables(result: Result) -> None:
    assert str(result) == repr(result)
    assert "Ring & <tree>" in str(result)
    assert "30.01" in str(result)
    assert "\x1b" not in str(result)


def test_it_displays_as_a_table_and_a_plot(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    page = result._repr_html_()
    assert "<table>" in page
    assert "Ring &amp; &lt;tree&gt;" in page
    (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(image).startswith(b"\x89PNG")


def test_it_plots_into_given_axes(result: Result) -> None:
    axes = Figure().add_subplot()
    assert result.plot(ax=axes) is axes
    assert isinstance(result.plot(kind="busbw"), Axes)


def test_a_frame_has_a_row_a_run_and_points_as_columns(result: Result) -> None:
    pandas = pytest.importorskip("pandas")
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["message"]) == [4096, 4096, 2**20, 2**20]
    assert list(frame["seconds"]) == [row["seconds"] for row in result.rows]
    assert "point" not in frame.columns


def test_without_pandas_the_extra_is_named(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SimcollectivesError, match=r"extra `notebook`.*simcollectives\[notebook\]"):
        result.to_frame()


def test_it_can_be_replaced_and_stays_what_it_is(result: Result) -> None:
    fewer = dataclasses.replace(result, rows=result.rows[:1], warnings=("beware",))
    assert type(fewer) is Result
    assert len(fewer.rows) == 1
    assert str(fewer).endswith("warning: beware")
    assert fewer.checks == result.checks
    assert pickle.loads(pickle.dumps(fewer.checks)) == fewer.checks
