# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""The section ``nccl:``: what it may say, what it answers, and expectations about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcollectives.report.files import scenario_json
from simcollectives.report.plot_nccl import nccl_figures
from simcollectives.report.plots import figures
from simcollectives.report.tables import result_blocks
from simcollectives.report.text import Column, TextTable
from simcollectives.scenario import Scenario, ScenarioResult, load_scenario, run_scenario
from tests.scenario.conftest import Refuser
from tests.test_measured_nccl_log import OTHER, init, lines_of, table, write

H100 = "cluster: {machine: dgx-h100, nodes: 2}"
COLLECTIVE = "collective: {name: all_reduce, algorithms: [ring]}"
SWEEP = "sweep: {message: [1 KiB, 1 MiB, 1 GiB], nodes: [1, 4]}"
GRAPH = "{gpu: hopper, cpu: intel, link: nvlink, nvswitch: false, network_path: PXB, several_nodes: {ring: {channels: 4, intra: 24 GB/s, inter: 24 GB/s}, tree: {channels: 4, intra: 48 GB/s, inter: 24 GB/s, plain_tree: true}}}"
OWN = "cluster: {nodes: 4, gpus_per_node: 4, intra: {alpha: 1 us, bandwidth: 300 GB/s}, inter: {alpha: 5 us, bandwidth: 25 GB/s}}"


def scenario(*lines: str) -> str:
    return "\n".join(["title: A test", *lines])


def run(folder: Path, *lines: str) -> ScenarioResult:
    path = folder / "scenario.yaml"
    path.write_text(scenario(*lines, "verify: never"), encoding="utf-8")
    return run_scenario(load_scenario(path))


CASES = {
    scenario(H100, COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: {algorithms: [rign], protocols: [ll], grph: 3, tuning: no.log, graph: {gpu: hoper, one_node: {ring: {channels: 0}}}}", "expect:", "  - {nccl_choice: {message: 1 MiB}, equals: tree/LL129}", "  - {nccl_seconds: {message: 1 MiB}}", "  - {nccl_choice: {message: 1 MiB}, equals: [tree/LL], rel: 1%}"): [
        '$.nccl.algorithms[0] (line 5): "rign" is unknown; did you mean "ring"?',
        '$.nccl.graph.gpu (line 5): "hoper" is unknown; did you mean "hopper"?',
        "$.nccl.graph.one_node.ring.channels (line 5): 0 is not a number of channels; write a whole number from 1 to 64",
        '$.nccl.grph (line 5): unknown key; did you mean "graph"?',
        '$.nccl.protocols[0] (line 5): "ll" is unknown; did you mean "LL"?',
        "$.nccl.tuning (line 5): no.log: there is no such file; mend the path",
        '$.expect[0].equals (line 7): "tree/LL129" is no algorithm/protocol of NCCL; did you mean "tree/LL128"?',
        "$.expect[1] (line 8): no bound is given; write one of equals (with rel or abs), at_most, at_least, between",
        "$.expect[2].equals (line 9): [tree/LL] is no algorithm/protocol of NCCL; known: tree/LL, ",
        "$.expect[2].rel (line 9): nccl_choice takes no rel; leave the key out",
    ],
    scenario("cluster: {machine: mi300x-8, nodes: 2}", COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: true"): [
        "$.nccl (line 5): mi300x-8 has no graph of NCCL; write graph: {gpu: hopper, cpu: intel, link: nvlink, nvswitch: true, network_path: PXB, several_nodes: {ring: {channels: 8, intra: 48 GB/s, inter: 48 GB/s}, tree: {channels: 8, intra: 48 GB/s, inter: 48 GB/s}}} as a log of NCCL_DEBUG_SUBSYS=GRAPH says it, or take one of dgx-1v, dgx-2, dgx-a100, dgx-b200, dgx-h100, dgx-h200"
    ],
    scenario(OWN, COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: {graph: {gpu: hopper, cpu: intel, several_nodes: {ring: {channels: 4}}}}"): [
        "$.nccl.graph (line 5): nothing says link, nvswitch, network_path; NCCL's graph of these nodes is not known; write graph:",
        "$.nccl.graph.several_nodes.ring (line 5): nothing says intra and inter; write 8, or 48 GB/s of one channel",
    ],
    scenario(H100, COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: {algorithms: [pat]}"): [
        "$.nccl (line 5): nothing is left for all_reduce on 2 x 8 GPUs (NCCL has no pat for all_reduce); allow ring and Simple"
    ],
    scenario(H100, "collective: {name: all_to_all, algorithms: [pairwise], message: 1 MiB}", "nccl: true"): [
        '$.nccl (line 4): NCCL\'s cost model has no "all_to_all"; it has: all_reduce, all_gather, reduce_scatter, broadcast, reduce; leave nccl: out'
    ],
    scenario(H100, COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: yes please"): [
        '$.nccl (line 5): "yes please" is neither true nor a mapping; write nccl: true, or {algorithms: [ring]}'
    ],
    scenario(H100, COLLECTIVE, "sweep: {message: [1 MiB]}", "expect: [{nccl_choice: {message: 1 MiB}, equals: ring/LL}]"): [
        "$.expect[0].nccl_choice (line 5): nothing asks for NCCL's model; write nccl: true at the top"
    ],
    scenario(H100, COLLECTIVE, SWEEP, "nccl: true", "expect: [{nccl_choice: {message: 1 MiB}, equals: ring/LL}, {nccl_choice: {message: 1 MiB, nodes: 1}, equals: nvls_tree/Simple}, {nccl_seconds: {candidate: pat/Simple, message: 1 MiB, nodes: 1}, at_most: 1 s}]"): [
        "$.expect[0].nccl_choice (line 6): the scenario sweeps nodes (1, 4); name one value here, swept or not",
        "$.expect[1].nccl_choice (line 6): NCCL cannot pick nvls_tree/Simple there: nvls_tree is off on one node; name another",
        "$.expect[2].nccl_seconds (line 6): NCCL cannot pick pat/Simple there: NCCL has no pat for all_reduce; name another",
    ],
    scenario(H100, COLLECTIVE, SWEEP, "nccl: true", "expect: [{nccl_choice: {message: 1 MiB, nodes: 1, candidate: ring/LL}, equals: ring/LL}]"): [
        "$.expect[0].nccl_choice.candidate (line 6): unknown key"
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", CASES, ids=range(len(CASES)))
def test_what_is_refused(refuse: Refuser, text: str) -> None:
    found = refuse(text)
    assert len(found) == len(CASES[text]), found
    for problem, start in zip(found, CASES[text], strict=True):
        assert problem.startswith(start), problem


def test_answers_at_all_points(tmp_path: Path) -> None:
    result = run(tmp_path, H100, COLLECTIVE, SWEEP, "nccl: true")
    assert [(one.model.nodes, one.model.world_size) for one in result.nccl] == [(1, 8), (4, 32)]
    found = scenario_json(result)["nccl"]
    # On 4 nodes: at 1 KiB the least latency (35.2 us); at 1 MiB 65.5 us + S / (0.6 x 98.6 GB/s) is less than 35.2 us +
    # S / 8.67 GB/s; at 1 GiB the most bandwidth, 384 GB/s x 32 / 62 (nvls_tree: 364 GB/s).
    labels = [[point["choice"] for point in one["points"]] for one in found]
    assert labels == [["ring/LL", "ring/LL", "nvls/Simple"], ["tree/LL", "tree/LL128", "ring/Simple"]]
    point = found[0]["points"][1]
    assert point["seconds"] == pytest.approx(15e-6 + 2**20 / (141e9 * 8 / 14))
    assert point["candidate_seconds"][point["choice"]] == point["seconds"]
    assert point["margin"] == pytest.approx(point["candidate_seconds"][point["runner_up"]] / point["seconds"] - 1)
    assert [(one["before"], one["after"]) for one in found[0]["switches"]] == [("ring/LL", "nvls/Simple")]
    assert {one["unavailable_because"] for one in found[0]["candidates"] if one["algorithm"] == "ring"} == {None}
    assert all(one["latency_seconds"] is None for one in found[0]["candidates"] if one["unavailable_because"])


def test_without_it_nothing_is_said(tmp_path: Path) -> None:
    for nccl in ((), ("nccl: false",)):
        result = run(tmp_path, H100, COLLECTIVE, SWEEP, *nccl)
        assert result.nccl == ()
        assert scenario_json(result)["nccl"] == []


def test_expectations(tmp_path: Path) -> None:
    expect = (
        "expect:",
        "  - {nccl_choice: {message: 1 MiB, nodes: 2}, equals: tree/LL128}",
        "  - {nccl_choice: {message: 1 MiB, nodes: 1}, equals: nvls/Simple, because: of the switch}",
        "  - {nccl_seconds: {message: 1 MiB, nodes: 1}, equals: 28.01 us, rel: 0.1%}",
        "  - {nccl_seconds: {candidate: ring/Simple, message: 1 MiB, nodes: 1}, at_most: 28 us}",
    )
    result = run(tmp_path, H100, COLLECTIVE, SWEEP, "nccl: true", *expect)
    assert [check.passed for check in result.checks] == [True, False, True, False]
    assert result.checks[1].message == (
        "line 8: NCCL's choice at message: 1 MiB, nodes: 1 is ring/LL; expected: equals nvls/Simple (of the switch)"
    )
    simple = (8.4 + 14 * 3.4) * 1e-6 + 2**20 / (360e9 * 8 / 14)
    assert result.checks[3].value == pytest.approx(simple)


def test_a_cluster_of_ones_own(tmp_path: Path) -> None:
    """As MareNostrum 5: 4 channels of 24 GB/s on 4 nodes of 4; 30 steps, 6 of them between nodes."""
    result = run(
        tmp_path,
        OWN,
        COLLECTIVE,
        "sweep: {message: [1 MiB]}",
        f"nccl: {{graph: {GRAPH}, algorithms: [ring], protocols: [Simple]}}",
    )
    (choice,) = result.nccl[0].choices
    latency = 1.4 * (8.4 + 24 * 3.4 + 6 * 14.0)
    assert choice.seconds == pytest.approx(latency * 1e-6 + 2**20 / (96e9 * 16 / 30))
    assert choice.runner_up is None


def test_changes_to_the_machine(tmp_path: Path) -> None:
    graph = "{cpu: amd, sharp: true, several_nodes: {ring: {inter: 24 GB/s}}}"
    result = run(
        tmp_path,
        "cluster: {machine: dgx-h100, nodes: 4}",
        COLLECTIVE,
        "sweep: {message: [1 MiB]}",
        f"nccl: {{graph: {graph}}}",
    )
    by_label = {one.label: one for one in result.nccl[0].model.candidates}
    assert by_label["ring/Simple"].bandwidth == pytest.approx(8 * 24e9 * 32 / 62)
    assert by_label["ring/LL"].bandwidth == pytest.approx(19e9 * 32 / 62)
    assert by_label["nvls/Simple"].available


def test_figures_of_a_log(tmp_path: Path) -> None:
    calls = ["AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..15}"]
    write(tmp_path, [*lines_of([init(), *table("2.30"), *calls]), "n:1:2 [0] NCCL INFO AllReduce | 1.0/"])
    result = run(tmp_path, H100, COLLECTIVE, "sweep: {message: [1 KiB, 1 MiB]}", "nccl: {tuning: run.log}")
    assert result.nccl[0].choices[0].seconds == pytest.approx(25.2e-6 + 1024 / (0.9 * 16.6e9), rel=0.02)
    picks = result.nccl[0].picks
    assert picks is not None
    assert (picks.calls, picks.agreeing) == (1, 1)
    text = " ".join(str(block) for block in result_blocks(result))
    assert "the log lists 1 call: 1 as predicted" in text
    with pytest.raises(Exception, match="no table is of all_reduce on 8 ranks"):
        run(
            tmp_path,
            "cluster: {machine: dgx-h100, nodes: 1}",
            COLLECTIVE,
            "sweep: {message: [1 KiB]}",
            "nccl: {tuning: run.log}",
        )


def test_channels_of_a_log(tmp_path: Path) -> None:
    """A log of two nodes says the channels; four nodes are predicted with them, but for what is written."""
    write(tmp_path, lines_of([*OTHER, init(), *table("2.30")]))
    result = run(
        tmp_path,
        H100,
        COLLECTIVE,
        "sweep: {message: [1 KiB, 1 MiB], nodes: [2, 4]}",
        "nccl: {tuning: run.log, graph: {several_nodes: {ring: {inter: 10 GB/s}}}}",
    )
    two, four = result.nccl
    assert {one.label: one.bandwidth for one in two.model.candidates}["ring/Simple"] == pytest.approx(204.8e9)
    by_label = {one.label: one for one in four.model.candidates}
    assert by_label["ring/Simple"].bandwidth == pytest.approx(4 * 10e9 * 32 / 62)
    assert by_label["tree/Simple"].bandwidth == pytest.approx(0.85 * 0.92 * 4 * 12e9 / 2)
    assert "channels of" in four.model.source


def test_table(tmp_path: Path) -> None:
    result = run(tmp_path, H100, COLLECTIVE, SWEEP, "nccl: true")
    (shown,) = (
        block for block in result_blocks(result) if isinstance(block, TextTable) and block.columns[0].header == "from"
    )
    cells = {column.header: column.cells for column in shown.columns if isinstance(column, Column)}
    assert cells["choice"][:2] == ["ring/LL", "nvls/Simple"]
    assert cells["from"][:2] == ["1 KiB", "1.092 MiB"]
    assert cells["to"][:2] == ["1.092 MiB", "1 GiB"]
    assert list(shown.headings.values()) == ["1 node of 8 GPUs", "4 nodes of 8 GPUs"]
    texts = [str(block) for block in result_blocks(result)]
    assert "no nvls_tree/Simple on 1 node: nvls_tree is off on one node" in texts
    assert any(text.startswith("no nvls/Simple on 4 nodes: nvls across nodes needs SHARP") for text in texts)


def test_pictures(tmp_path: Path) -> None:
    result = run(tmp_path, H100, COLLECTIVE, SWEEP, "nccl: true")
    made: dict[str, Any] = dict(nccl_figures(result.nccl))
    assert set(made) == {"nccl_choice", "nccl_times"}
    (axes,) = made["nccl_choice"].axes
    bars = [(bar.get_x(), round(bar.get_x() + bar.get_width())) for bar in axes.patches]
    assert bars[:2] == [(1024, 1144836), (1144836, 2**30 + 1)]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1 node of 8 GPUs", "4 nodes of 8 GPUs"]
    assert {"ring/LL", "nvls/Simple", "tree/LL"} <= {text.get_text() for text in axes.texts}
    first, second = made["nccl_times"].axes
    named = {text.get_text() for text in first.texts}
    assert {one.label for one in result.nccl[0].model.available} <= named
    assert "1.09 MiB" in named
    marks = [line.get_xdata()[0] for line in second.lines if line.get_marker() == "o"]
    assert marks == [one.message_bytes for one in result.nccl[1].switches]


def test_one_message_is_drawn_over_the_usual_range(tmp_path: Path) -> None:
    result = run(tmp_path, H100, COLLECTIVE, "sweep: {message: [1 MiB]}", "nccl: true")
    assert (result.nccl[0].ranges[0].first, result.nccl[0].ranges[-1].last) == (8, 1 << 34)
    assert isinstance(result.scenario, Scenario)
    assert [stem for stem, _ in figures(result)][-2:] == ["nccl_choice", "nccl_times"]
