"""Figures: text never overlaps, nothing breaks a logarithmic axis, pyplot stays out of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import Run, simulate
from simcollectives.errors import InputError
from simcollectives.measured import SHIPPED, fit_link, load_sweep
from simcollectives.report.plots import KINDS, figures, plot
from simcollectives.report.style import COLOURS, root_figure
from simcollectives.scenario import MeasuredComparison
from tests.text_boxes import EDGE, text_overlaps

Algorithm = tuple[str, dict[str, Any]]

FEW: Sequence[Algorithm] = [("ring", {}), ("tree", {})]
MANY: Sequence[Algorithm] = [
    ("naive", {}),
    ("direct", {}),
    ("ring", {}),
    ("tree", {}),
    ("butterfly", {}),
    ("rabenseifner", {}),
    ("rabenseifner", {"order": "far"}),
    ("circulant", {}),
    ("parameter_server", {"servers": 2}),
]
LONG: Sequence[Algorithm] = [
    ("hierarchical", {"intra": "butterfly", "inter": {"rabenseifner": {"order": "far"}}}),
    ("hierarchical", {"intra": "direct", "inter": "butterfly"}),
    ("hierarchical", {}),
    ("ring", {}),
]
LONG_TITLE = "What becomes of a title that goes on and on until it does not fit into one line of 800 pixels at all, $x$"


def flat(devices: int, alpha: float = 5e-6, gamma: float = 0.0) -> Cluster:
    return Cluster.flat(devices, Link(alpha, 450e9), device=Device(reduction_seconds_per_byte=gamma))


def two_level(nodes: int, gpus: int) -> Cluster:
    return Cluster.two_level(nodes, gpus, Link(5e-6, 450e9), Link(14e-6, 50e9))


def row_of(run: Run, point: dict[str, Any]) -> dict[str, Any]:
    names = (
        "collective algorithm options label world_size message_bytes seconds latency_seconds bandwidth_seconds "
        "reduction_seconds lower_bound_seconds bottleneck engine closed_form_seconds rounds bytes_sent_max "
        "bytes_sent_total algbw busbw"
    )
    return {name: getattr(run, name) for name in names.split()} | {"point": point, "verified": None}


def rows_for(
    algorithms: Sequence[Algorithm], messages: Sequence[int], sizes: Sequence[int], collective: str = "all_reduce"
) -> list[dict[str, Any]]:
    return [
        row_of(simulate(collective, name, flat(n), m, "lockstep", options), {"message": m, "devices": n})
        for m in messages
        for n in sizes
        for name, options in algorithms
    ]


def result_of(rows: Sequence[dict[str, Any]], title: str = "A title", **more: Any) -> SimpleNamespace:
    return SimpleNamespace(rows=rows, scenario=SimpleNamespace(title=title, timelines=()), **more)


def powers(low: int, high: int, step: int = 1) -> list[int]:
    return [2**k for k in range(low, high + 1, step)]


def measured_result(name: str, collective: str, cluster: Cluster, level: str) -> SimpleNamespace:
    sweep = load_sweep(name)
    fit = fit_link(collective, "ring", {}, cluster, level, sweep)
    rows = [
        row_of(simulate(collective, algorithm, cluster, size, "lockstep", dtype="int8"), {"message": size})
        for size in sweep.message_bytes
        for algorithm in ("ring", "direct")
    ]
    return result_of(rows, measured=(MeasuredComparison(sweep, "ring", fit),))


def unswept(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "point": {}} for row in rows]


def over_option() -> list[dict[str, Any]]:
    servers = [
        row_of(
            simulate("all_reduce", "parameter_server", flat(8), 2**20, "lockstep", {"servers": k}),
            {"parameter_server.servers": k},
        )
        for k in (1, 2, 4, "co_located")
    ]
    return [*servers, row_of(simulate("all_reduce", "ring", flat(8), 2**20, "lockstep"), {})]


def over_link(key: str, values: Sequence[float]) -> list[dict[str, Any]]:
    found = []
    for value in values:
        link = Link(value, 450e9) if key == "link.alpha" else Link(5e-6, value)
        found += [
            row_of(simulate("all_reduce", name, Cluster.flat(8, link), 2**20, "lockstep"), {key: value})
            for name in ("ring", "butterfly", "naive")
        ]
    return found


def over_nodes() -> list[dict[str, Any]]:
    return [
        row_of(
            simulate("all_reduce", name, two_level(n, g), 2**20, "lockstep", options), {"nodes": n, "gpus_per_node": g}
        )
        for n in (1, 2, 4)
        for g in (2, 4)
        for name, options in LONG
    ]


RESULTS = {
    "few algorithms": lambda: result_of(rows_for(FEW, powers(10, 30), [8])),
    "many algorithms": lambda: result_of(rows_for(MANY, powers(10, 30, 2), [8])),
    "many world sizes": lambda: result_of(rows_for(MANY, powers(10, 30, 4), [2, 3, 8, 24, 64]), LONG_TITLE),
    "two world sizes": lambda: result_of(rows_for(FEW, powers(10, 30, 2), [4, 16])),
    "every world size": lambda: result_of(rows_for(MANY, [2**20], list(range(1, 33)))),
    "powers of two": lambda: result_of(rows_for(MANY, [10**6], powers(1, 8))),
    "narrow messages": lambda: result_of(rows_for(FEW, [10**6, 1_001_000, 1_002_000], [8])),
    "two messages": lambda: result_of(rows_for(FEW, [4096, 8192], [8])),
    "wide messages": lambda: result_of(rows_for(FEW, [4, *powers(10, 40, 6)], [8])),
    "decimal messages": lambda: result_of(rows_for(MANY, [10**k for k in range(2, 11)], [8])),
    "irregular messages": lambda: result_of(rows_for(FEW, [4, 8, 12, 1000, 1004, 10**6, 10**9], [8])),
    "empty messages": lambda: result_of(rows_for(MANY, [0, 4, 1024], [8])),
    "only empty messages": lambda: result_of(rows_for(FEW, [0], [1, 2])),
    "one rank": lambda: result_of(rows_for(FEW, powers(10, 20, 5), [1])),
    "one and more ranks": lambda: result_of(rows_for(FEW, powers(10, 20, 5), [1, 4])),
    "one point": lambda: result_of(unswept(rows_for(MANY, [25 * 2**20], [8])), LONG_TITLE),
    "one point of one algorithm": lambda: result_of(unswept(rows_for(FEW[:1], [25 * 2**20], [8]))),
    "one point of one rank": lambda: result_of(unswept(rows_for(FEW, [4], [1]))),
    "one point, long labels": lambda: result_of(
        unswept([row_of(simulate("all_reduce", n, two_level(4, 8), 4096, "lockstep", o), {}) for n, o in LONG])
    ),
    "long labels": lambda: result_of(
        [
            row_of(simulate("all_reduce", n, two_level(2, 4), m, "lockstep", o), {"message": m})
            for m in powers(10, 30, 2)
            for n, o in LONG
        ]
    ),
    "nodes and gpus per node": lambda: result_of(over_nodes()),
    "an option": lambda: result_of(over_option()),
    "latencies": lambda: result_of(over_link("link.alpha", [0.0, 1e-6, 2e-6, 5e-6, 1e-5])),
    "bandwidths": lambda: result_of(over_link("link.bandwidth", [25e9 * 2**k for k in range(7)])),
    "broadcast": lambda: result_of(rows_for(FEW[1:], powers(10, 30, 2), [8], "broadcast")),
    "measured all_reduce": lambda: measured_result(SHIPPED[0], "all_reduce", Cluster.machine("dgx-h100"), "intra"),
    "measured all_gather": lambda: measured_result(SHIPPED[1], "all_gather", Cluster.machine("dgx-h100"), "intra"),
    "measured nodes": lambda: measured_result(SHIPPED[2], "all_reduce", two_level(4, 4), "inter"),
}


def figure_of(axes: Axes) -> Figure:
    return root_figure(axes)


def texts_of(figure: Figure) -> str:
    from matplotlib.text import Text

    texts: list[Any] = figure.findobj(Text)
    return "\n".join(text.get_text() for text in texts)


STEMS = {
    "few algorithms": ["time", "busbw", "bytes"],
    "two world sizes": ["time", "busbw", "scaling", "bytes"],
    "one point": ["time", "bytes"],
    "an option": ["scaling", "bytes"],
    "measured nodes": ["time", "busbw", "bytes", "measured"],
}
SAID = {
    "one and more ranks": "not drawn (the axes have no zero): 1 rank",
    "empty messages": "not drawn (the axes have no zero): message 0 B",
    "many world sizes": "drawn at 64 ranks: 1 of 5 such points",
    "many algorithms": "rabenseifner = rabenseifner (order: far) = circulant",
}
"""In the figure of the time: what is not drawn, and equal curves as one with all their names."""

ONE_FAMILY = ("few algorithms", "measured nodes", "two world sizes")
SIMILAR = {
    "decimal messages", "irregular messages", "wide messages", "two messages", "narrow messages", "powers of two",
    "broadcast", "measured all_gather", "measured all_reduce", "bandwidths", "many world sizes",
}  # fmt: skip
"""Drawn as others are, with other numbers."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SIMILAR else ()) for name in RESULTS]
)
def test_figures(name: str) -> None:
    """No text overlaps; which figures there are, what they say, and sizes of one family (MiB, or MB)."""
    made = list(figures(RESULTS[name]()))
    stems = [stem for stem, _ in made]
    assert stems == STEMS.get(name, list(dict.fromkeys(stems)))
    for stem, figure in made:
        assert text_overlaps(figure) == [], stem
        assert figure.get_figwidth() * figure.dpi == 800
        shown = texts_of(figure)
        assert stem != "time" or SAID.get(name, "") in shown
        binary, decimal = (re.search(rf"[0-9] {unit}\b(?!/s)", shown) for unit in ("[KMGT]iB", "[kMGT]B"))
        assert not (name in ONE_FAMILY and binary and decimal), stem


TIMELINES = [
    ("ring", {}, flat(4), 10**6),
    ("direct", {}, flat(8), 4 * 10**6),
    ("butterfly", {}, flat(6, gamma=2e-11), 10**6),
    ("hierarchical", {}, two_level(2, 4), 4 * 10**6),
    ("tree", {}, flat(16), 4),
    ("ring", {}, flat(64), 10**8),
    ("parameter_server", {"servers": 2}, flat(6), 10**6),
    ("naive", {}, flat(1), 10**6),
    ("naive", {}, flat(70), 10**3),
    ("ring", {}, flat(3, alpha=0.0), 0),
]


@pytest.mark.parametrize(("algorithm", "options", "cluster", "message"), TIMELINES)
def test_no_text_overlaps_in_timelines(algorithm: str, options: Any, cluster: Cluster, message: int) -> None:
    run = simulate("all_reduce", algorithm, cluster, message, options=options, timeline=True)
    for kind in ("timeline", "bytes"):
        assert text_overlaps(figure_of(plot(run, kind=kind))) == [], kind


def test_overlaps_are_found() -> None:
    figure = Figure(figsize=(4, 2))
    FigureCanvasAgg(figure)
    figure.text(0.1, 0.5, "first")
    figure.text(0.12, 0.5, "second")
    figure.text(0.97, 0.9, "cut off")
    assert text_overlaps(figure) == [("cut off", EDGE), ("first", "second")]


def test_a_line_sample_that_is_cut_off_is_found() -> None:
    figure = Figure(figsize=(4, 2))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.plot([0, 1], label="a")
    figure.legend(loc="center", bbox_to_anchor=(0.05, 0.5), handlelength=6)
    assert text_overlaps(figure) == [("legend: a", EDGE)]


def test_hidden_text_does_not_count() -> None:
    figure = Figure(figsize=(4, 2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xticks([0, 1, 1000], labels=["a", "b", "far outside"])
    axes.set_xlim(0, 1)
    figure.text(0.3, 0.5, "x")
    figure.text(0.3, 0.5, "y", visible=False)
    assert text_overlaps(figure) == []


def test_all_crossings_are_marked_with_their_message() -> None:
    names: list[Algorithm] = [("naive", {}), ("butterfly", {}), ("rabenseifner", {})]
    for kind in ("time", "busbw"):
        shown = texts_of(figure_of(plot(rows_for(names, powers(10, 30), [8]), kind=kind)))
        # naive: alpha + 7 M/B; butterfly: 3 (alpha + M/B); rabenseifner: 6 alpha + 7/4 M/B
        assert "1.125 MB: naive → butterfly" in shown
        assert "5.4 MB: butterfly → rabenseifner" in shown


def test_the_bus_bandwidth_has_its_marks_where_the_time_has() -> None:
    rows = rows_for([("ring", {}), ("butterfly", {})], powers(10, 30), [8])
    marked: dict[str, list[tuple[float, float]]] = {}
    for stem, figure in figures(result_of(rows)):
        lines = [line for axes in figure.axes for line in axes.lines if line.get_label() == "_crossings"]
        marked[stem] = [tuple(point) for line in lines for point in np.array(line.get_xydata()).tolist()]
    ((message, seconds),) = marked["time"]
    ((same_message, bandwidth),) = marked["busbw"]
    assert message == same_message == pytest.approx(19.8e6, rel=1e-3)
    assert bandwidth == pytest.approx(1.75 * message / seconds)


def test_ranks_that_are_not_drawn_are_said() -> None:
    shown = texts_of(figure_of(plot(simulate("all_reduce", "naive", flat(70), 1000, timeline=True), kind="timeline")))
    assert "ranks 64 to 69 not drawn" in shown


def test_measured_figures_state_the_errors() -> None:
    result = RESULTS["measured nodes"]()
    fit = result.measured[0].fit
    for stem, figure in figures(result):
        if stem in ("time", "measured"):
            shown = texts_of(figure).replace("\n", " ")
            assert f"median {100 * fit.errors.median:.3g}%" in shown
            assert f"90th percentile {100 * fit.errors.p90:.3g}%" in shown
            assert f"largest {100 * fit.errors.largest:.3g}%" in shown
            assert "measured: mn5_h100_4n4_allreduce_ring" in shown


def test_measured_sweeps_of_several_node_counts_are_told_apart() -> None:
    compared = []
    for nodes in (4, 16):
        sweep = load_sweep(f"mn5_h100_{nodes}n4_allreduce_ring")
        fit = fit_link("all_reduce", "ring", {}, two_level(nodes, 4), "inter", sweep)
        compared.append(MeasuredComparison(sweep, "ring", fit))
    result = result_of(rows_for(FEW, powers(10, 12), [4]), measured=compared)
    figure = figure_of(plot(result, kind="measured"))
    shown = texts_of(figure).replace("\n", " ")
    for nodes, one in zip((4, 16), result.measured, strict=True):
        assert f"{4 * nodes} ranks on {nodes} nodes: median {100 * one.fit.given_errors.median:.3g}%" in shown
    assert all(where in shown for where in ("below 64 KiB", "64 KiB to 4 MiB", "from 4 MiB", "too slow", "too fast"))
    upper, lower = figure.axes
    assert all(text.get_window_extent().x0 > lower.bbox.x1 for text in lower.texts if text.get_text()[:4] == "too ")
    (line,) = [line for line in lower.lines if line.get_color() == COLOURS[1]]
    assert np.array(line.get_ydata()).tolist() == pytest.approx([1 + error for error in result.measured[1].relative])
    marked = [line for line in upper.lines if line.get_linestyle() == "None" and len(line.get_xdata()) > 1]
    assert [len(line.get_xdata()) for line in marked] == [9, 9]


@pytest.fixture
def given_axes() -> Axes:
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Axes = figure.subplots(1, 2)[0]
    return axes


@pytest.mark.parametrize("kind", ["time", "busbw", "scaling", "parts", "bytes"])
def test_plot_takes_and_returns_axes(given_axes: Axes, kind: str) -> None:
    rows = rows_for(FEW, powers(10, 30, 2), [4, 8])
    assert plot(rows, given_axes, kind) is given_axes
    figure_of(given_axes).draw_without_rendering()
    assert isinstance(plot(rows, kind=kind), Axes)


def test_axes_may_be_in_a_part_of_a_figure() -> None:
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(1, 2)
    part, other = parts
    run = simulate("all_reduce", "ring", flat(4), 10**6, timeline=True)
    assert root_figure(plot(rows_for(FEW, powers(10, 30, 2), [8]), part.add_subplot())) is figure
    assert root_figure(plot(run, other.add_subplot(), "timeline")) is figure


def test_measured_and_timeline_take_axes(given_axes: Axes) -> None:
    assert plot(RESULTS["measured nodes"](), given_axes, "measured") is given_axes
    run = simulate("all_reduce", "ring", flat(4), 10**6, timeline=True)
    other = figure_of(given_axes).axes[1]
    assert plot(run, other, "timeline") is other


def test_time_shows_what_was_swept() -> None:
    assert plot(rows_for(FEW, [4096], [2, 4, 8])).get_xlabel() == "world size (ranks)"
    assert plot(unswept(rows_for(FEW, [4096], [8]))).get_xlabel() == "time"


@pytest.mark.parametrize("kind", ["pie", "timeline", "measured", "busbw"])
def test_what_there_is_not_is_refused(kind: str) -> None:
    with pytest.raises(InputError) as caught:
        plot(unswept(rows_for(FEW, [4096], [8])), kind=kind)
    assert kind in str(caught.value)
    if kind == "pie":
        assert all(known in str(caught.value) for known in KINDS)


def test_no_rows_and_no_timeline_are_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        plot([])
    with pytest.raises(InputError, match="timeline=True"):
        plot(simulate("all_reduce", "ring", flat(4), 1000), kind="timeline")


def test_pyplot_is_never_imported_nor_matplotlib_before_a_figure() -> None:
    code = (
        "import sys\n"
        "import simcollectives.report.plots as plots, simcollectives.report.tables, simcollectives.report.files\n"
        "from simcollectives.cluster import Cluster, Link\n"
        "from simcollectives.engines import simulate\n"
        "assert 'matplotlib' not in sys.modules\n"
        "run = simulate('all_reduce', 'ring', Cluster.flat(4, Link(5e-6, 450e9)), 1000, timeline=True)\n"
        "plots.plot(run, kind='timeline').figure.savefig('/dev/null', format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
