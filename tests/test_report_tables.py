"""Tables: complete, without escape codes or cut numbers, at every width."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster.machines import list_machines
from simcollectives.report.rows import byte_family, named_text
from simcollectives.report.table_fastest import fastest_blocks, margin_text
from simcollectives.report.table_results import results_blocks
from simcollectives.report.tables import (
    algorithm_tables,
    check_tables,
    html,
    machine_tables,
    model_tables,
    rendered,
    result_tables,
    show,
    warnings_text,
)
from simcollectives.report.text import Column, TextTable, with_unit
from simcollectives.scenario import ScenarioResult, load_scenario, run_scenario
from simcollectives.training.catalogue import list_models

RING = """
title: Ring against [butterfly]
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}, gamma: 1 ps/B}
collective: {name: all_reduce, algorithms: [ring, butterfly, {rabenseifner: {order: far}}]}
sweep: {message: [4 KiB, 1 MiB, 64 MiB]}
expect:
  - {seconds: {algorithm: ring, message: 4 KiB}, at_most: 71 us}
  - {ratio: [{algorithm: ring}, {algorithm: butterfly}], message: 4 KiB, at_most: 2}
contributions: {algorithm: ring, devices: 4}
"""
MANY = """
title: Many points
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [naive, ring, tree, butterfly]}
sweep: {message: {from: 1 KiB, to: 1 GiB, factor: 4}, devices: [2, 4, 8]}
engine: lockstep
verify: never
"""
ONE = """
title: One algorithm
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [ring]}
sweep: {message: [0 B, 4 KiB], devices: [1, 8]}
"""
LONG = """
title: Long labels
cluster: {machine: dgx-h100, nodes: 2}
collective:
  name: all_reduce
  message: 1 MiB
  algorithms: [ring, {hierarchical: {intra: butterfly, inter: {rabenseifner: {order: far}}}},
               {hierarchical: {inter: tree}}]
"""
MEASURED = """
title: Measured
cluster: {machine: dgx-h100}
collective: {name: all_gather, dtype: int8, algorithms: [ring]}
sweep: {message: [1 MiB, 2 MiB]}
measured: {set: aic_h100_sxm_1n8_all_gather, algorithm: ring}
"""
LISTS = """
title: Several sweeps
cluster:
  {nodes: 4, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 10 us, bandwidth: 50 GB/s}}
collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, hierarchical, tree]}
sweep:
  - {message: [1 KiB, 3 KiB, 100 MiB]}
  - {nodes: [2, 4]}
  - {inter.bandwidth: [12.5 GB/s, 25 GB/s, 50 GB/s, 100 GB/s], message: [1 MiB, 64 MiB]}
engine: lockstep
"""
SIZES = """
title: Sizes that are short in binary units, and one that is not
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [ring, tree]}
sweep: {message: [1 KiB, 3 KiB, 1 MiB]}
engine: closed_form
"""
ENGINES = """
title: Two engines
cluster:
  {nodes: 3, gpus_per_node: 4, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 10 us, bandwidth: 50 GB/s}}
collective: {name: all_reduce, algorithms: [ring, naive]}
sweep: {message: [1 KiB, 1 MiB]}
"""
TEXTS = {
    "lists": LISTS,
    "sizes": SIZES,
    "engines": ENGINES,
    "ring": RING,
    "many": MANY,
    "one": ONE,
    "long": LONG,
    "measured": MEASURED,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ScenarioResult]:
    folder: Path = tmp_path_factory.mktemp("scenarios")
    for name, text in TEXTS.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return {name: run_scenario(load_scenario(folder / f"{name}.yaml")) for name in TEXTS}


def text_of(result: ScenarioResult, width: int, *, full: bool = False) -> str:
    stream = io.StringIO()
    show(result_tables(result, width, full=full), stream, width)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", TEXTS)
def test_plain_text_fits_and_is_not_cut(results: dict[str, ScenarioResult], name: str, width: int) -> None:
    text = text_of(results[name], width)
    assert "\x1b" not in text
    assert "…" not in text
    assert all(len(line) <= width and line == line.rstrip() for line in text.splitlines())
    words = re.sub(r"\s", "", text)
    for label in {row["label"] for row in results[name].rows}:
        assert all(word in words for word in str(label).split())


@pytest.mark.parametrize("width", [20, 40, 60])
def test_what_is_wider_than_the_terminal_runs_on(results: dict[str, ScenarioResult], width: int) -> None:
    text = text_of(results["ring"], width)
    assert "…" not in text
    for number in ("70.02", "link latency"):
        assert number in text or number in text.replace("\n", " ")


def test_the_results_table_says_why(results: dict[str, ScenarioResult]) -> None:
    text = text_of(results["ring"], 160)
    line = next(line for line in text.splitlines() if line.startswith("  ring"))
    # 14 rounds of 5 us; 7/4 of 4 KiB at 450 GB/s; 7/8 of 4 KiB at 1 ps/B; butterfly takes 15.04 us; the bound is alpha
    assert line.split()[:6] == ["ring", "70.02", "4.66", "100.0", "<0.1", "<0.1"]
    assert "link latency" in line
    assert "14" in line.split()
    assert "verified: 6 of 9 rows executed on arrays" in text
    assert "equal to the closed form in 9 of the 9 rows" in text


def test_many_rows_become_a_table_of_times_and_say_so(results: dict[str, ScenarioResult]) -> None:
    text = text_of(results["many"], 120)
    assert "details of 8 of 132 rows; all are in rows.csv" in text
    assert len([line for line in text.splitlines() if re.match(r" *(1|4|16|64|256) [KMG]iB +[248] ", line)]) == 33
    assert "*" in text
    full = text_of(results["many"], 120, full=True)
    assert "details of" not in full
    assert full.count("butterfly") >= 33


def test_one_algorithm_is_a_row_for_each_point(results: dict[str, ScenarioResult]) -> None:
    text = text_of(results["one"], 120)
    lines = [line.split() for line in text.splitlines()]
    assert any(line[:3] == ["4", "8", "70.02"] for line in lines)
    assert "(KiB)" in text
    assert "fastest" not in text
    assert "Fastest" not in text


def test_checks_show_line_value_and_bound(results: dict[str, ScenarioResult]) -> None:
    stream = io.StringIO()
    show(check_tables(results["ring"], 200), stream, 200)
    ok, failed = (line for line in stream.getvalue().splitlines() if re.match("ok|FAILED", line))
    assert ok.split()[:2] == ["ok", "7"]
    assert "70.0" in ok
    assert "at most 71 us" in ok
    assert failed.split()[:2] == ["FAILED", "8"]
    assert "4.65568" in stream.getvalue()
    assert "at most 2" in failed
    assert "1 of 2 expectations hold, 1 failed" in stream.getvalue()


def test_fastest_over_message_and_world_size(results: dict[str, ScenarioResult]) -> None:
    stream = io.StringIO()
    show(rendered(fastest_blocks(results["many"].rows), 120), stream, 120)
    text = stream.getvalue()
    assert "2 ranks" in text
    assert "8 ranks" in text
    assert "margin" in text
    first = next(line for line in text.splitlines() if line.startswith("1 KiB"))
    assert "naive = butterfly" in first  # of two ranks, both exchange whole vectors once


def test_fastest_over_messages_is_ranges(results: dict[str, ScenarioResult]) -> None:
    stream = io.StringIO()
    show(rendered(fastest_blocks(results["ring"].rows), 120), stream, 120)
    text = stream.getvalue()
    assert re.search(r"4 KiB to 1 MiB +butterfly +rabenseifner", text)
    assert re.search(r"64 MiB +rabenseifner", text)


@pytest.mark.parametrize(
    ("margin", "text"), [(None, "-"), (0.0, "+0%"), (0.125, "+12%"), (0.5, "+50%"), (1.0, "2x"), (36.0, "37x")]
)
def test_margins(margin: float | None, text: str) -> None:
    assert margin_text(margin) == text


def test_every_algorithm_and_machine_is_listed() -> None:
    stream = io.StringIO()
    show([*algorithm_tables(100), *machine_tables(100)], stream, 100)
    text = re.sub(r"\s+", " ", stream.getvalue())
    for algorithm in ALGORITHMS:
        assert all(part in text for part in (algorithm.name, algorithm.formula, algorithm.reference))
        assert all(f"option {option.name}" in text for option in algorithm.options)
    for machine in list_machines():
        assert machine.summary in text
        for _, source in machine.sources:
            assert source.split()[0] in text
    assert "450 GB/s" in text


def test_every_model_is_listed_with_its_sizes_and_source() -> None:
    stream = io.StringIO()
    show(model_tables(200), stream, 200)
    lines = stream.getvalue().splitlines()
    assert lines[0].split() == ["name", "family", "parameters", "layers", "hidden", "tensors", "source"]
    for named in list_models():
        assert any(line.split()[0] == named.name and f"{named.model.elements:,}" in line for line in lines[2:])
        assert named.source.split()[0] in stream.getvalue()
    gpt2 = next(line for line in lines if line.startswith("gpt2 "))
    assert gpt2.split()[:6] == ["gpt2", "gpt2", "124,439,808", "12", "768", "148"]


def test_a_column_has_one_family_of_units(results: dict[str, ScenarioResult]) -> None:
    # a ring of 8 sends 7/4 of the message: 1.75, 5.25 and 1792 KiB
    text = text_of(results["sizes"], 120)
    lines = [line.split() for line in text.splitlines()]
    assert [line[-6:-4] for line in lines if line[:1] == ["ring"]][:3] == [
        ["1.75", "KiB"],
        ["5.25", "KiB"],
        ["1.75", "MiB"],
    ]
    # of 32 ranks it sends 31/16: 1.984 kB is no round number of KiB, and neither is any other then
    text = text_of(results["lists"], 120).partition("times bound")[0]
    assert "1.984 kB" in text
    assert "524.3 MB" in text
    assert re.findall(r"^(?!message|inter).*[KMG]iB", text, re.MULTILINE) == []
    assert byte_family([12 * 2**10, 1.2e9]) == "decimal"
    assert named_text("message", 12 * 2**10, "decimal") == "message 12.29 kB"


@pytest.mark.parametrize("width", [80, 120])
def test_a_heading_of_a_group_is_one_line(results: dict[str, ScenarioResult], width: int) -> None:
    lines = text_of(results["lists"], width).splitlines()
    assert "inter.bandwidth 12.5 GB/s, message 64 MiB" in lines
    before = lines[lines.index("inter.bandwidth 12.5 GB/s, message 64 MiB") - 1]
    assert before == ""
    page = html(results_blocks(results["lists"].rows))
    assert '<th colspan="11" style="text-align: left">inter.bandwidth 12.5 GB/s, message 64 MiB</th>' in page


def test_fastest_of_several_sweeps(results: dict[str, ScenarioResult]) -> None:
    lines = text_of(results["lists"], 120).splitlines()
    titles = [number for number, line in enumerate(lines) if line.startswith("Fastest")]
    assert [lines[number] for number in titles] == [
        "Fastest",
        "Fastest at inter.bandwidth 12.5 GB/s to 50 GB/s",
        "Fastest at inter.bandwidth 100 GB/s",
    ]
    assert all(lines[number - 1] == "" for number in titles)
    stream = io.StringIO()
    rows = [row for row in results["lists"].rows if "inter.bandwidth" not in row["point"]]
    show(rendered(fastest_blocks([row for row in rows if row["message_bytes"] != 1024]), 120), stream, 120)
    assert re.search(r"^message +16 ranks +32 ranks$", stream.getvalue(), re.MULTILINE)
    sparse = [
        row
        for row in results["many"].rows
        if row["message_bytes"] == 2**20 or (row["world_size"] == 8 and row["message_bytes"] < 2**20)
    ]
    stream = io.StringIO()
    show(rendered(fastest_blocks(sparse), 120), stream, 120)
    assert re.findall("^(?:\n?Fastest|at ).*$", stream.getvalue(), re.MULTILINE) == [
        "Fastest at 8 ranks",
        "\nFastest at message 1 MiB",
    ]


def test_engines_are_said_by_algorithm_or_row(results: dict[str, ScenarioResult]) -> None:
    text = text_of(results["engines"], 120)
    assert "engine: vectorized (ring), event (naive)" in text
    assert re.search("engine$", text, re.MULTILINE) is None
    mixed = [{**row, "engine": "event"} if number == 0 else row for number, row in enumerate(results["engines"].rows)]
    text = text_of(replace(results["engines"], rows=tuple(mixed)), 160)
    assert "engine: event (ring in 1 of 2 rows, naive), vectorized (ring in 1 of 2 rows)" in text
    assert re.findall("(?:event|vectorized)$", text, re.MULTILINE) == ["event", "event", "vectorized", "event"]


def test_a_closed_form_is_not_compared_with_itself(results: dict[str, ScenarioResult]) -> None:
    text = text_of(results["sizes"], 120)
    assert "engine: closed_form\n" in text
    assert "equal to the closed form" not in text


@pytest.mark.parametrize("command", [["list", "algorithms"], ["run", "SCENARIO"]])
def test_a_reader_that_has_gone_is_no_failure(command: list[str], tmp_path: Path) -> None:
    scenario = tmp_path / "one.yaml"
    scenario.write_text(ONE, encoding="utf-8")
    words = [str(scenario) if word == "SCENARIO" else word for word in command]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "simcollectives.cli", *words], stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_long_line_of_contributions_is_not_cut() -> None:
    stream = io.StringIO()
    show([Text("x " * 100, no_wrap=True, overflow="ignore")], stream, 80)
    assert stream.getvalue() == f"{'x ' * 100}".rstrip() + "\n"


def test_warnings_and_brackets_are_plain() -> None:
    stream = io.StringIO()
    show(warnings_text(["a [red]word[/red] $x$"]), stream, 80)
    assert stream.getvalue() == "warning: a [red]word[/red] $x$\n"


def test_units_are_said_once_where_all_are_the_same() -> None:
    assert with_unit("time", ["5 us", "-", "0 s"]).header == "time\n(us)"
    assert with_unit("time", ["5 us", "1 ms"]).header == "time"
    assert with_unit("x", ["", "12 B"]).cells == ["", "12"]


def test_html_escapes_and_keeps_every_cell(results: dict[str, ScenarioResult]) -> None:
    table = TextTable([Column("a\n(<b>)", ["1", "2"]), Column("x", ["<script>", "&"], right=False)])
    page = html([table])
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "a<br>(&lt;b&gt;)" in page
    assert html(results_blocks(results["ring"].rows)).count("<tr>") == 1 + 9 + 3
