"""Figures of whole scenarios: bounds, bars, measurements and timelines say what is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import closed_form
from simcollectives.report.plots import figures, plot
from simcollectives.scenario import ScenarioResult, load_scenario, run_scenario
from tests.text_boxes import text_overlaps

CLUSTER = "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}"
LEGEND = """
collective: {name: all_reduce, algorithms: [ring, tree, circulant]}
sweep: {message: [12 KiB, 12 MiB, 1200 MB], gamma: [0 ps/B, 2 ps/B]}
"""
SERVERS = """
collective: {name: all_reduce, message: 8 MB, algorithms: [ring, {parameter_server: {servers: 64}}]}
"""
BOUND = """
collective: {name: all_reduce, algorithms: [ring, butterfly]}
sweep: {message: {from: 1 KiB, to: 1 GiB, factor: 16}}
"""
MEASURED = """
collective: {name: all_reduce, dtype: int8, algorithms: [ring]}
sweep: {message: [1 KiB, 1 MiB, 1 GiB]}
measured: {file: mine.csv, algorithm: ring}
"""
CSV = """set,size_bytes,time_us,place
mine,1024,30,out
mine,1048576,50,out
mine,1073741824,5000,out
"""
TIMELINES = """
collective: {name: all_reduce, message: 1 MB, algorithms: [ring, tree]}
timeline: [{algorithm: tree, message: 4 MiB}, {algorithm: ring, devices: 4, link.alpha: 1 us}]
"""


def result_of(folder: Path, text: str) -> ScenarioResult:
    (folder / "mine.csv").write_text(CSV, encoding="utf-8")
    file = folder / "scenario.yaml"
    file.write_text(f"title: A title\n{CLUSTER}{text}", encoding="utf-8")
    return run_scenario(load_scenario(file))


def texts_of(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_a_legend_with_many_labels_fits(tmp_path: Path) -> None:
    made = dict(figures(result_of(tmp_path, LEGEND)))
    (legend,) = made["scaling"].legends
    assert "circulant, message 12.58 MB" in [text.get_text() for text in legend.get_texts()]
    assert [stem for stem, figure in made.items() if text_overlaps(figure)] == []


def test_no_bar_ends_before_what_the_busiest_device_must_send(tmp_path: Path) -> None:
    # with 64 servers to help, 8 workers need send only their vectors: M; all others 2 (N - 1) / N M
    axes: Any = plot(result_of(tmp_path, SERVERS), kind="bytes")
    (marks,) = [part for part in axes.collections if "busiest" in str(part.get_label())]
    assert [path.vertices[0][0] for path in marks.get_paths()] == [14e6, 8e6]
    assert [patch.get_width() for patch in axes.patches] == [14e6, 8e6]


@pytest.mark.parametrize("kind", ["time", "busbw"])
def test_the_bound_has_a_kink(tmp_path: Path, kind: str) -> None:
    axes = plot(result_of(tmp_path, BOUND), kind=kind)
    (line,) = [line for line in axes.lines if line.get_label() in ("lower bound", "upper bound")]
    for message, value in np.array(line.get_xydata()).tolist():
        seconds = max(5e-6, 1.75 * message / 450e9)
        assert value == pytest.approx(seconds if kind == "time" else 1.75 * message / seconds)


def test_predictions_between_measured_points_are_the_closed_form(tmp_path: Path) -> None:
    result = result_of(tmp_path, MEASURED)
    (measured,) = result.measured
    axes = plot(result, kind="measured")
    given = Cluster.flat(8, Link(5e-6, 450e9))
    for prefix, cluster in (("ring, as given", given), ("ring, fitted", measured.fit.cluster)):
        (line,) = [line for line in axes.lines if str(line.get_label()).startswith(prefix)]
        points = np.array(line.get_xydata()).tolist()
        assert len(points) > 20
        for message, seconds in points:
            expected = closed_form("all_reduce", "ring", cluster, round(message), dtype="int8")
            assert seconds == pytest.approx(expected, rel=1e-5)


def test_timelines_say_message_and_ranks(tmp_path: Path) -> None:
    made = {stem: texts_of(figure) for stem, figure in figures(result_of(tmp_path, TIMELINES))}
    assert "all_reduce, tree, message 4 MiB, 8 ranks" in made["timeline_tree_message_4_MiB"]
    assert "all_reduce, ring, message 1 MB, 4 ranks, link.alpha 1 us" in "\n".join(made.values())
