"""Pictures of training steps: legible from two operations to thousands, and true to the spans."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from simcollectives.cluster import Cluster, Device
from simcollectives.report.plot_memory import OTHERS, held, memory_figure
from simcollectives.report.plot_step import (
    BACKWARD,
    DEVICE_COPIES,
    FORWARD,
    HOST_COPIES,
    HOST_WORK,
    OPTIMIZER,
    RANKS,
    RECOMPUTED,
    STALL,
    category_of,
    step_figure,
)
from simcollectives.report.plot_training import MAX_BARS, efficiency_figure, strategies_figure, sweep_figure
from simcollectives.training.advice import advise
from simcollectives.training.pricing import Pricer
from simcollectives.training.program import Builder, Call
from simcollectives.training.setup import Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.timeline import total, union, without
from simcollectives.units import format_bytes
from tests.text_boxes import text_overlaps
from tests.training.steps import (
    H100,
    INFINIBAND,
    NVLINK,
    SIXTY_FOUR,
    every_kind,
    uniform_step,
    uniform_training,
    written_step,
)

DEVICES = Cluster.two_level(8, 8, NVLINK, INFINIBAND, device=H100)
NODES = Cluster.two_level(2, 4, NVLINK, INFINIBAND, device=H100)
LONG_TITLE = "What becomes of a title that goes on and on until it does not fit into one line of 800 pixels at all, $x$"


def straggling(slow: dict[int, float], layers: int = 6) -> Step:
    return simulate_step(uniform_training(10**9, layers, 6, 2000, NODES, slow=slow), "ddp", {"bucket_cap": 10**8})


STEPS: dict[str, Callable[[], Step]] = {
    "a lecture's": lambda: uniform_step(options={"bucket_cap": 25e6}),
    "mostly exposed": lambda: uniform_step(options={"bucket_cap": 7e6}),
    "few buckets": lambda: uniform_step(options={"bucket_cap": 200e6}),
    "nothing overlaps": lambda: uniform_step("all_reduce_once", elements=10**8),
    "recomputation": lambda: uniform_step(
        options={"bucket_cap": 10**8}, cluster=DEVICES, recompute=True, kept=200_000_000
    ),
    "micro-batches": lambda: uniform_step(elements=10**9, layers=12, tensors=6, accumulation=4, cluster=DEVICES),
    "many micro-batches": lambda: uniform_step(elements=10**8, layers=3, tensors=2, accumulation=32, cluster=DEVICES),
    "stragglers": lambda: straggling({0: 1.1, 3: 1.3}),
    "every rank": lambda: straggling({rank: 1 + rank / 10 for rank in range(8)}, layers=2),
    "two operations": lambda: uniform_step(elements=8, layers=1, tensors=1, tokens=10, cluster=NODES),
    "wide modules": lambda: uniform_step(
        options={"bucket_cap": 4e8}, elements=10**9, layers=4, tensors=3, cluster=DEVICES
    ),
    "2,000 operations": lambda: uniform_step(
        elements=70 * 10**9, layers=80, tensors=9, tokens=8192, cluster=DEVICES, kept=10**8
    ),
    "no time": lambda: uniform_step(elements=16, layers=1, tensors=1, tokens=0, cluster=Cluster.flat(1, NVLINK)),
    "one device": lambda: uniform_step(elements=10**8, layers=4, tensors=4, cluster=Cluster.flat(1, NVLINK)),
    "a hook": lambda: uniform_step(
        options={"hook": "fp16"},
        elements=10**9,
        layers=12,
        tensors=6,
        cluster=DEVICES,
        precision=Precision("bfloat16", "float32", "float32"),
    ),
    "memory that is full": lambda: uniform_step(elements=5 * 10**9, tensors=4, cluster=DEVICES, kept=10**8),
}


@cache
def step_named(name: str) -> Step:
    return STEPS[name]()


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("figure_of", [step_figure, memory_figure])
def test_no_text_overlaps(name: str, figure_of: Callable[..., Figure]) -> None:
    figure = figure_of(step_named(name), "A title")
    assert text_overlaps(figure) == []
    assert figure.get_figwidth() * figure.dpi == 800


@pytest.mark.parametrize("figure_of", [step_figure, memory_figure])
def test_titles_may_be_long_or_missing(figure_of: Callable[..., Figure]) -> None:
    for title in (LONG_TITLE, None):
        assert text_overlaps(figure_of(step_named("wide modules"), title)) == []


def test_no_text_overlaps_in_a_step_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    step = written_step(monkeypatch, every_kind)
    assert text_overlaps(step_figure(step)) == []
    assert text_overlaps(memory_figure(step)) == []


def texts_of(figure: Figure) -> list[str]:
    from matplotlib.text import Text

    found: list[Any] = figure.findobj(Text)
    return [text.get_text() for text in found if text.get_text()]


def drawn(figure: Figure) -> dict[str, list[tuple[float, float, float]]]:
    """Boxes by category: row, start and end."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for collection in figure.axes[0].collections:
        if isinstance(collection, PolyCollection) and not str(collection.get_label()).startswith("_"):
            corners = [np.asarray(path.vertices) for path in collection.get_paths()]
            found[str(collection.get_label())] = [
                (float(np.floor(c[:, 1].min())), float(c[:, 0].min()), float(c[:, 0].max())) for c in corners
            ]
    return found


@pytest.mark.parametrize("name", [name for name in STEPS if name not in ("no time", "every rank")])
def test_boxes_are_where_the_spans_are(name: str) -> None:
    """Each category's boxes cover its spans, and little more: what is joined across gaps is less than a pixel."""
    step = step_named(name)
    figure = step_figure(step)
    pixel = step.step_seconds / 500
    boxes = drawn(figure)
    spans: dict[str, list[tuple[float, float]]] = {}
    for span in step.timeline.of_rank(0):
        if span.end > span.begins:
            spans.setdefault(category_of(span, step), []).append((span.begins, span.end))
    streams = {span.operation.stream for span in step.timeline.of_rank(0) if span.seconds > 0}
    for category, its in spans.items():
        mine = union((start, end) for row, start, end in boxes[category] if row < len(streams))
        missing = total(without(union(its), mine))
        assert missing <= 1e-9 * step.step_seconds, category
        beyond = without(mine, union(its))
        assert all(end - start <= pixel for start, end in beyond if category not in (FORWARD, BACKWARD)), category


@pytest.mark.parametrize("name", ["a lecture's", "mostly exposed", "stragglers", "wide modules"])
def test_what_is_hatched_on_the_compute_row_is_the_exposed_time(name: str) -> None:
    step = step_named(name)
    figure = step_figure(step)
    hatched = [(start, end) for row, start, end in drawn(figure)[STALL] if row == 0]
    widened = 2 * len(hatched) * step.step_seconds / 500  # slivers are drawn as wide as a pixel
    assert total(union(hatched)) == pytest.approx(step.exposed_seconds, abs=widened if name == "stragglers" else 1e-12)


def test_waits_for_other_ranks_are_hatched() -> None:
    step = straggling({0: 1.1, 3: 1.3}, layers=2)
    boxes = drawn(step_figure(step))
    waits = [
        (span.start, span.begins)
        for span in step.timeline.of_rank(0)
        if span.operation.call is not None and span.begins > span.start
    ]
    rows = {row for row, _, _ in boxes[RANKS]}
    assert waits
    assert {1.0, 3.0} <= rows, "the communication of ranks 0 and 1"
    for start, end in waits:
        assert any(first <= start and end <= last for row, first, last in boxes[RANKS] if row == 1.0)


def test_few_operations_are_drawn_one_by_one_and_many_by_layer_or_pass() -> None:
    few, some, many = (
        drawn(step_figure(step_named(name))) for name in ("wide modules", "a lecture's", "2,000 operations")
    )
    assert (len(few[FORWARD]), len(few[BACKWARD])) == (12, 12)
    assert (len(some[FORWARD]), len(some[BACKWARD])) == (24, 24)
    assert (len(many[FORWARD]), len(many[BACKWARD])) == (1, 80)


def test_names_are_written_where_there_is_room() -> None:
    few = texts_of(step_figure(step_named("few buckets")))
    assert {"forward", "backward"} <= set(few)
    many = texts_of(step_figure(step_named("2,000 operations")))
    assert "720 x all_reduce" in many
    assert not any(re.fullmatch(r"layers\.\d+\.\d+", text) for text in many)
    hooked = texts_of(step_figure(step_named("a hook")))
    assert [text for text in hooked if re.fullmatch(r"\d+", text)] == [str(layer) for layer in reversed(range(12))]
    batches = texts_of(step_figure(step_named("micro-batches")))
    assert {"backward 0", "backward 1", "backward 2", "backward 3"} <= set(batches)


def test_the_heading_and_the_note_tell_the_step() -> None:
    shown = "\n".join(texts_of(step_figure(step_named("a lecture's"), "Why?")))
    assert "Why?\nddp, 64 ranks: step 75.54 ms, exposed 444 us, efficiency 99.4%" in shown
    assert "rank 0 stands for all 64, which are alike" in shown
    shown = "\n".join(texts_of(step_figure(step_named("every rank"))))
    assert "not drawn: ranks 4, 5, 6, 7" in shown


def test_categories_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    step = written_step(monkeypatch, every_kind)
    found = {span.operation.name: category_of(span, step) for span in step.timeline.spans}
    assert found["shard from the host"] == HOST_COPIES
    assert found["Adam on the host"] == HOST_WORK
    assert found["all"] == "all_reduce"
    assert found["Sync of statistics"] == DEVICE_COPIES
    assert found["optimizer"] == OPTIMIZER
    recomputed = step_named("recomputation")
    by_name = {span.operation.name: category_of(span, recomputed) for span in recomputed.timeline.spans}
    assert by_name["layers.3.5"] == FORWARD
    assert by_name["layers.3.5 backward"] == BACKWARD
    assert by_name["layers.3.5 recompute"] == RECOMPUTED
    assert {by_name[name] for name in by_name if name.startswith("layers.3.5.weight into")} == {DEVICE_COPIES}
    assert by_name["bucket 0 into gradients"] == DEVICE_COPIES


def areas(figure: Figure) -> dict[str, Any]:
    return {
        str(one.get_label()).partition(",")[0]: one.get_paths()[0].vertices
        for one in figure.axes[0].collections
        if not str(one.get_label()).startswith("_")
    }


@pytest.mark.parametrize("name", ["recomputation", "micro-batches", "a hook", "memory that is full"])
def test_the_areas_are_the_memory(name: str) -> None:
    step = step_named(name)
    names, times, sizes = held(step)
    assert sizes.sum(axis=0).max() == step.peak_bytes
    at = int(np.argmax(sizes.sum(axis=0)))
    assert times[at] == step.peak_seconds
    assert {item: int(size) for item, size in zip(names, sizes[:, at], strict=True) if size} == step.memory
    assert times[0] == 0
    assert times[-1] == step.step_seconds
    assert set(areas(memory_figure(step))) == set(names)
    changes = step.timeline.memory
    middle = len(changes) // 2
    while changes[middle].time == changes[middle + 1].time:
        middle += 1
    column = int(np.flatnonzero(times == changes[middle].time)[-1])
    assert sizes[:, column].sum() == sum(change.bytes for change in changes[: middle + 1])


def test_an_item_has_one_colour_in_all_pictures() -> None:
    colours: dict[str, set[str]] = {}
    for name in ("recomputation", "micro-batches", "a hook", "a lecture's"):
        for area in memory_figure(step_named(name)).axes[0].collections:
            item = str(area.get_label()).partition(",")[0]
            colours.setdefault(item, set()).add(str(area.get_facecolor().tolist()))
    assert {"parameters", "gradients", "activations", "compressed buckets"} <= set(colours)
    assert all(len(some) == 1 for some in colours.values())
    usual = {
        item: some for item, some in colours.items() if item not in ("compressed buckets", "gradients to be added")
    }
    assert len({next(iter(some)) for some in usual.values()}) == len(usual)


def test_the_peak_is_marked_and_named() -> None:
    step = step_named("recomputation")
    figure = memory_figure(step)
    shown = texts_of(figure)
    binary, decimal = (format_bytes(step.peak_bytes, family=family) for family in ("binary", "decimal"))
    assert f"peak {binary} ({decimal}) at 28.1 ms" in shown
    assert f"activations, {format_bytes(step.memory['activations'], 3, family='binary')} at the peak" in shown
    (mark,) = (line for line in figure.axes[0].lines if line.get_marker() == "v")
    assert np.asarray(mark.get_xydata()).tolist() == [[step.peak_seconds, step.peak_bytes]]


def test_the_memory_of_the_device_is_drawn_where_it_is_near() -> None:
    full = "\n".join(texts_of(memory_figure(step_named("memory that is full"))))
    assert "memory of H100, 74.5 GiB" in full
    assert "the device has more" not in full
    free = "\n".join(texts_of(memory_figure(step_named("micro-batches"))))
    assert "the device has more: H100, 74.5 GiB" in free
    assert "activations (none are known)" in free


def test_more_items_than_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(builder: Builder) -> None:
        for number in range(12):
            builder.stand(f"item {number}", 1000 * (number + 1))
        builder.compute("work", 1e-3, allocates=[("item 0", 500)])

    step = written_step(monkeypatch, write)
    names, _, sizes = held(step)
    assert len(names) == 7
    assert OTHERS in names
    assert sizes.sum(axis=0).max() == step.peak_bytes == sum(range(1000, 13000, 1000)) + 500
    figure = memory_figure(step)
    assert text_overlaps(figure) == []
    others = step.peak_bytes - sum(step.memory[name] for name in names if name != OTHERS)
    named = "item 5, item 4, item 3, item 2, item 1, item 0"
    told = f"others, {format_bytes(others, 3, family='binary')} at the peak ({named})"
    assert told in [text.replace("\n", " ") for text in texts_of(figure)]


def test_nothing_to_draw() -> None:
    assert "nothing to draw: no operation takes time" in texts_of(step_figure(step_named("no time")))
    assert "nothing to draw: the step takes no time" in texts_of(memory_figure(step_named("no time")))


def sweep(training: Training, caps: list[float]) -> list[tuple[Any, Step]]:
    pricer = Pricer(training.cluster)
    return [(cap, simulate_step(training, "ddp", {"bucket_cap": cap}, pricer=pricer)) for cap in caps]


@pytest.fixture(scope="module")
def points() -> list[tuple[Any, Step]]:
    return sweep(uniform_training(340_000_000, 6, 16), [7e6 * 2**power for power in range(8)])


def test_a_sweep(points: list[tuple[Any, Step]]) -> None:
    advice = advise(points)
    figure = sweep_figure(points, "bucket_cap", format_bytes, "Which bucket size?", advice)
    assert text_overlaps(figure) == []
    heading = f"shortest at bucket_cap {format_bytes(advice.optimum)}; why not smaller: latency, larger: tail"
    assert f"Which bucket size?\n{heading}" in texts_of(figure)
    bars = {str(one.get_label()): [bar.get_height() for bar in one] for one in figure.axes[0].containers}
    assert bars["compute"] == [step.compute_seconds for _, step in points]
    assert bars["exposed communication"] == [step.exposed_seconds for _, step in points]
    (line,) = figure.axes[1].lines
    assert list(line.get_ydata()) == [step.efficiency for _, step in points]
    (mark,) = figure.axes[0].lines
    assert list(mark.get_xdata()) == [[value for value, _ in points].index(advice.optimum)]


def test_sweeps_of_other_sizes(points: list[tuple[Any, Step]]) -> None:
    many = [(value * 1.01**number, step) for number in range(7) for value, step in points]
    assert len(many) > MAX_BARS
    for some, title in ((points[:1], None), (points[:2], LONG_TITLE), (many, LONG_TITLE)):
        figure = sweep_figure(some, "ddp.bucket_cap", format_bytes, title)
        assert text_overlaps(figure) == []
    areas = [one for one in sweep_figure(many, "ddp.bucket_cap").axes[0].collections if one.get_label() == "compute"]
    assert len(areas) == 1


def test_strategies_side_by_side(points: list[tuple[Any, Step]]) -> None:
    steps = [
        ("ddp", points[2][1]),
        ("ddp (bucket_cap: 7 MB, gradient_as_bucket_view, zero_grad: zero)", points[0][1]),
        ("all_reduce_once", uniform_step("all_reduce_once", elements=340_000_000, layers=6)),
        ("no time", step_named("no time")),
    ]
    figure = strategies_figure(steps, "Which strategy?")
    assert text_overlaps(figure) == []
    assert f"{1e3 * steps[0][1].step_seconds:.2f} ms, 97.7%" in texts_of(figure)
    assert text_overlaps(strategies_figure(steps * 8, LONG_TITLE)) == []
    assert f"the first {MAX_BARS} of 32 steps" in texts_of(strategies_figure(steps * 8))
    assert text_overlaps(strategies_figure([("no time", step_named("no time"))])) == []


def test_efficiency_of_strategies(points: list[tuple[Any, Step]]) -> None:
    other = [(value, step) for (value, _), (_, step) in zip(points, reversed(points), strict=True)]
    figure = efficiency_figure({"ddp": points, "the same, backwards": other}, "bucket_cap", format_bytes, "Scaling")
    assert text_overlaps(figure) == []
    assert [str(line.get_label()) for line in figure.axes[0].lines] == ["ddp", "the same, backwards"]
    nothing = efficiency_figure({"ddp": [(1, step_named("no time"))]}, "bucket_cap")
    assert text_overlaps(nothing) == []


def test_figures_take_axes_of_others(points: list[tuple[Any, Step]]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from simcollectives.report.plot_memory import draw_memory
    from simcollectives.report.plot_step import draw_step
    from simcollectives.report.plot_training import draw_strategies, draw_sweep

    figure = Figure(figsize=(10, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(4, 1))
    draw_step(axes[0], points[0][1])
    draw_memory(axes[1], points[0][1])
    draw_sweep(axes[2], points, format_bytes)
    draw_strategies(axes[3], [("ddp", points[0][1])])
    figure.draw_without_rendering()


def test_a_small_device_is_full() -> None:
    small = Cluster.flat(4, NVLINK, device=Device(name="small", memory_bytes=2e9, memory_bandwidth=1e12))
    step = uniform_step(elements=10**8, layers=2, tensors=2, cluster=small)
    assert "memory of small, 1.86 GiB" in texts_of(memory_figure(step))
    assert SIXTY_FOUR.device.memory_bytes is None


def test_collectives_that_alternate_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slivers of two kinds on one stream: neither hides the other."""

    def write(builder: Builder) -> None:
        builder.phase = "backward"
        for number in range(500):
            builder.collective(f"a {number}", Call("all_gather", "world", 8, 100, "int8"))
            builder.collective(f"b {number}", Call("reduce_scatter", "world", 8, 100, "int8"))

    boxes = drawn(step_figure(written_step(monkeypatch, write)))
    assert len(boxes["all_gather"]) == len(boxes["reduce_scatter"]) == 500
