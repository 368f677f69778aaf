"""Tables of training steps: every number of a step, memory in GiB and GB, and collectives grouped."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from simcollectives.cluster import Cluster
from simcollectives.report.table_training import (
    MAX_COLLECTIVES,
    advice_blocks,
    collectives_blocks,
    grouped,
    memory_blocks,
    priced_text,
    step_blocks,
)
from simcollectives.report.text import Block, TextTable, rendered, show
from simcollectives.training import Workload, load_model, prepare_training
from simcollectives.training.advice import advise
from simcollectives.training.program import Builder, Call
from simcollectives.training.step import Step, simulate_step
from simcollectives.units import format_bytes
from tests.training.steps import (
    H100,
    INFINIBAND,
    NVLINK,
    every_kind,
    uniform_step,
    uniform_training,
    written_step,
)

NODES = Cluster.two_level(2, 4, NVLINK, INFINIBAND, device=H100)


@pytest.fixture(scope="module")
def lecture() -> Step:
    return uniform_step(options={"bucket_cap": 25e6})


@pytest.fixture(scope="module")
def once() -> Step:
    return uniform_step("all_reduce_once")


def text_of(blocks: Sequence[Block], width: int = 120) -> str:
    out = io.StringIO()
    show(rendered(blocks, width), out, width)
    return out.getvalue()


def table_of(blocks: Sequence[Block]) -> dict[str, list[str]]:
    """The cells of the only table by header, its lines joined."""
    (table,) = (block for block in blocks if isinstance(block, TextTable))
    return {column.header.replace("\n", " "): list(column.cells) for column in table.columns}


def test_steps(lecture: Step, once: Step) -> None:
    cells = table_of(step_blocks([("ddp", lecture), ("all_reduce_once", once)], [0.447, None]))
    assert cells == {
        "": ["ddp", "all_reduce_once"],
        "step (ms)": ["75.54", "97.79"],
        "compute (ms)": ["75.1", "75.1"],
        "communication (ms)": ["42.64", "22.69"],
        "exposed (ms)": ["0.4441", "22.69"],
        "overlap (%)": ["99.0", "0.0"],
        "efficiency (%)": ["99.4", "76.8"],
        "MFU (%)": ["44.7", "-"],
        # a ring's 2 (N - 1)/N of the gradients
        "sent by all_reduce (GB)": [f"{2 * 63 / 64 * 2.72:.4g}"] * 2,
        # 2 + 2 + 12 B for each parameter; the buckets of ddp are 2 B more
        "peak memory (GiB)": [f"{1.36 * 18e9 / 2**30:.4g}", f"{1.36 * 16e9 / 2**30:.4g}"],
    }


def test_the_columns_of_rare_things_stand_where_they_are() -> None:
    training = uniform_training(10**9, 6, 6, 2000, NODES, slow={3: 1.3})
    step = simulate_step(training, "ddp", {"bucket_cap": 10**8})
    assert step.waiting_seconds > 0
    cells = table_of(step_blocks([("slow", step)]))
    assert float(cells["of it waiting (ms)"][0]) == pytest.approx(1e3 * step.waiting_seconds, rel=1e-3)
    assert "idle (ms)" not in cells
    assert "MFU (%)" not in cells


def test_idle_time_and_every_kind_of_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    step = written_step(monkeypatch, every_kind)
    cells = table_of(step_blocks([("written", step)]))
    assert cells["idle (us)"] == ["60"]
    sent = {header.removeprefix("sent by ").partition(" (")[0] for header in cells if header.startswith("sent by")}
    assert sent == {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "reduce", "broadcast"}


def test_algorithm_and_engine_are_named(lecture: Step) -> None:
    shown = text_of(step_blocks([("ddp", lecture)]))
    assert "collectives priced by: hierarchical (closed_form) for all_reduce" in shown
    training = uniform_training(10**6, 1, 1, cluster=Cluster.flat(4, NVLINK))
    tree = simulate_step(training, "all_reduce_once", choices={"all_reduce": ("tree", {})})
    assert priced_text([*lecture.collectives, *tree.collectives]) == (
        "hierarchical (closed_form) for all_reduce; tree (closed_form) for all_reduce"
    )
    alone = uniform_step("all_reduce_once", elements=10**6, layers=1, cluster=Cluster.flat(1, NVLINK))
    assert "priced by" not in text_of(step_blocks([("alone", alone)]))


def test_memory_of_one_step(lecture: Step) -> None:
    blocks = memory_blocks([("ddp", lecture)])
    assert table_of(blocks) == {
        "": ["optimizer states", "parameters", "buckets", "gradients", "peak"],
        "GiB": ["15.199", "2.533", "2.533", "2.533", "22.799"],
        "GB": ["16.320", "2.720", "2.720", "2.720", "24.480"],
        "share (%)": ["66.7", "11.1", "11.1", "11.1", "100.0"],
    }
    shown = text_of(blocks)
    assert (
        "not included: the CUDA context, workspaces of libraries, fragmentation, activations (none are known)" in shown
    )
    assert f"{1e3 * lecture.peak_seconds:.2f} ms into the step" in shown


def test_memory_of_a_small_model_and_of_a_known_device() -> None:
    step = uniform_step(elements=10**6, layers=2, tensors=2, cluster=NODES, kept=2**20)
    blocks = memory_blocks([("ddp", step)])
    cells = table_of(blocks)
    assert {"MiB", "MB"} <= set(cells)
    assert cells["MiB"][cells[""].index("activations")] == f"{step.memory['activations'] / 2**20:.3f}"
    shown = text_of(blocks)
    assert "activations (none are known)" not in shown
    assert "H100 has 74.51 GiB (80 GB): the peak fits" in shown
    full = uniform_step(elements=5 * 10**9, layers=2, tensors=2, cluster=NODES)
    assert "H100 has 74.51 GiB (80 GB): the peak does not fit" in text_of(memory_blocks([("ddp", full)]))


def test_memory_of_several_steps(lecture: Step, once: Step) -> None:
    cells = table_of(memory_blocks([("ddp", lecture), ("all_reduce_once", once)]))
    assert cells["buckets (GiB)"] == ["2.533", "0"]
    assert cells["peak (GiB)"] == ["22.799", "20.266"]
    assert cells["peak (GB)"] == ["24.48", "21.76"]
    items = [float(cells[header][0]) for header in cells if header.endswith("(GiB)") and header != "peak (GiB)"]
    assert sum(items) == pytest.approx(22.799, abs=0.002)


def test_collectives_that_look_alike_are_one_row(lecture: Step) -> None:
    blocks = collectives_blocks(lecture)
    cells = table_of(blocks)
    assert cells[""] == ["96 x"]
    assert cells["of (MB)"] == ["28.33"]
    assert cells["name"] == ["bucket 0 to bucket 95"]
    assert cells["each takes (ms)"] == ["0.4441"]
    assert cells["all take (ms)"] == ["42.64"]
    assert cells["last ends (ms)"] == ["75.54"]
    shown = text_of(blocks)
    assert "96 in issue order, 2.72 GB in all, in the group world of 64" in shown
    assert "96 x  all_reduce  28.33" in shown
    assert "priced by: hierarchical (closed_form) for all_reduce" in shown


def test_groups_keep_the_order_and_every_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    step = written_step(monkeypatch, every_kind)
    groups = grouped(step.collectives)
    assert [group.first.kind for group in groups] == [one.kind for one in step.collectives]
    cells = table_of(collectives_blocks(step))
    assert cells["group"] == ["shard (4)", "shard (4)", "world (8)", "world (8)", "world (8)", "world (8)"]
    first = uniform_step(elements=10**7, layers=4, tensors=6, options={"bucket_cap": 10**6})
    by_size = grouped(first.collectives)
    assert sum(len(group.members) for group in by_size) == len(first.collectives)
    assert [format_bytes(group.first.bytes) for group in by_size] == list(
        dict.fromkeys(format_bytes(one.bytes) for one in first.collectives)
    )


def test_too_many_rows_are_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(builder: Builder) -> None:
        for number in range(MAX_COLLECTIVES + 5):
            builder.collective(f"c {number}", Call("all_reduce", "world", 8, 1000 * (number + 1), "int8"))

    blocks = collectives_blocks(written_step(monkeypatch, write))
    assert len(table_of(blocks)[""]) == MAX_COLLECTIVES
    assert "5 more collectives in 5 rows are not shown; all are in --json" in text_of(blocks)


def test_a_step_without_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(builder: Builder) -> None:
        builder.compute("work", 1e-3)

    step = written_step(monkeypatch, write)
    assert collectives_blocks(step) == []
    cells = table_of(step_blocks([("alone", step)]))
    assert cells["overlap (%)"] == ["-"]
    assert cells["efficiency (%)"] == ["100.0"]
    assert "peak" in text_of(memory_blocks([("alone", step)]))


def test_prices_have_a_column_where_one_kind_has_several(lecture: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = lecture.collectives
    other = replace(lecture, collectives=(replace(first, engine="event"), *others))
    priced = [f"{first.algorithm} (event)", f"{first.algorithm} (closed_form)"]
    assert list(dict.fromkeys(table_of(collectives_blocks(other))["priced by"])) == priced
    written = written_step(monkeypatch, every_kind)
    by_kind = replace(written, collectives=tuple(replace(one, engine=one.kind) for one in written.collectives))
    for step in (lecture, by_kind):
        assert "priced by" not in table_of(collectives_blocks(step))


def test_broadcasts_do_not_break_the_table() -> None:
    training = prepare_training(load_model("resnet-18"), Cluster.machine("dgx-h100", 2), Workload(1, 1), mfu=0.45)
    blocks = collectives_blocks(simulate_step(training, "ddp"))
    assert {"broadcast", "all_reduce"} <= set(table_of(blocks)["collective"])
    assert sum("─" in line for line in text_of(blocks).splitlines()) == 1


def test_no_line_is_wider_than_the_terminal(lecture: Step, once: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [("ddp (bucket_cap: 25 MB)", lecture), ("all_reduce_once", once)]
    written = written_step(monkeypatch, every_kind)
    every: list[list[Block]] = [
        step_blocks(steps, [0.4, 0.3]),
        step_blocks([("written", written)]),
        memory_blocks(steps),
        memory_blocks(steps[:1]),
        collectives_blocks(lecture),
        collectives_blocks(written),
    ]
    for blocks in every:
        for width in (80, 120):
            assert max(map(len, text_of(blocks, width).splitlines())) <= width


def test_advice() -> None:
    training = uniform_training(340_000_000, 6, 16)
    points: list[tuple[Any, Step]] = [
        (cap, simulate_step(training, "ddp", {"bucket_cap": cap})) for cap in (7e6, 25e6, 1e9)
    ]
    shown = text_of(advice_blocks(advise(points), "bucket_cap", format_bytes))
    assert re.search(r"^Best bucket_cap: 25 MB, 19\.\d+ ms a step$", shown, re.MULTILINE)
    assert re.search(r"^smaller: latency; at 7 MB the step is", shown, re.MULTILINE)
    assert re.search(r"^larger: tail; at 1 GB the step is", shown, re.MULTILINE)
