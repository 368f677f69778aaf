# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Keys of points that lead to a number of the file: a point there is the file with that number in its place."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from simcollectives.report import Result
from simcollectives.report.curves import axis_keys
from simcollectives.report.plots import figures
from simcollectives.report.tables import result_tables, show
from simcollectives.scenario import Scenario, run_scenario
from simcollectives.scenario.keys import kind_of

Loader = Callable[[str], Scenario]
Refuser = Callable[[str], list[str]]

LINKS = "intra: {alpha: 1 us, bandwidth: 450 GB/s}, inter: {alpha: 2 us, bandwidth: 50 GB/s}"
NODES = f"nodes: 2, gpus_per_node: 4, {LINKS}"
FLAT = "devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}"
LEVELS = (
    "levels: [{name: nvlink, size: 4, alpha: 1 us, bandwidth: 450 GB/s}, {name: rail, size: 2, alpha: 2 us, "
    "bandwidth: 50 GB/s}, {name: spine, size: 3, alpha: 4 us, bandwidth: 60 GB/s, ports_of: rail}]"
)
JITTER = "jitter: {alpha: {lognormal: 20%}, bandwidth: {gamma: 10%}, reduction: {lognormal: 0.3}}"
LOGGP = "time: {loggp: {overhead: 1.5 us, gap: 1 us, protocol: rendezvous, threshold: 64 KiB}}"


def text(cluster: str, *lines: str, algorithms: str = "direct, tree") -> str:
    collective = f"collective: {{name: all_reduce, message: 1 MiB, algorithms: [{algorithms}]}}"
    return "\n".join(["title: x", f"cluster: {{{cluster}}}", collective, *lines])


# The cluster and the other lines with a gap for the number; its key; the number in the file, in the sweep, in SI units.
CASES: list[tuple[str, str, str, str, str, float]] = [
    (f"{NODES}, leaf: {{nodes: 1, oversubscription: @}}", "", "leaf.oversubscription", "1", "6.5", 6.5),
    (
        f"{NODES.replace('nodes: 2', 'nodes: 4')}, leaf: {{nodes: @, oversubscription: 9}}",
        "",
        "leaf.nodes",
        "1",
        "2",
        2,
    ),
    (f"{NODES}, leaf: {{rails: @, oversubscription: 9}}", "", "leaf.rails", "2", "4", 4),
    (f"{NODES}, nics_per_node: @", "", "nics_per_node", "4", "1", 1),
    (f"{NODES}, pcie_switch: {{gpus: 2, bandwidth: @}}", "", "pcie_switch.bandwidth", "63 GB/s", "8 GB/s", 8e9),
    (f"{NODES}, pcie_switch: {{gpus: @, bandwidth: 20 GB/s}}", "", "pcie_switch.gpus", "1", "4", 4),
    (LEVELS.replace("size: 2", "size: @"), "", "rail.size", "2", "3", 3),
    (LEVELS.replace("size: 4", "size: @"), "", "nvlink.size", "4", "2", 2),
    (LEVELS.replace("60 GB/s", "@"), "", "spine.bandwidth", "60 GB/s", "9 GB/s", 9e9),
    ("torus: [@, 4], link: {alpha: 1 us, bandwidth: 64 GB/s}", "", "torus.0", "2", "3", 3),
    ("mesh: [2, @], link: {alpha: 1 us, bandwidth: 64 GB/s}", "", "mesh.1", "2", "4", 4),
    (f"{FLAT}, slow: [{{rank: 3, bandwidth: @}}]", "", "slow.0.bandwidth", "50%", "12.5%", 0.125),
    (f"{FLAT}, slow: [{{rank: 3, alpha: 2}}, {{rank: 1, alpha: @}}]", "", "slow.1.alpha", "1", "700%", 7.0),
    (f"{FLAT}, gamma: 2 ps/B, slow: [{{rank: 3, gamma: @}}]", "", "slow.0.gamma", "1", "400%", 4.0),
    (f"{NODES}, slow: [{{rank: @, level: inter, bandwidth: 10%}}]", "", "slow.0.rank", "1", "0", 0),
    (f"{FLAT}, slow: [{{link: [0, @], bandwidth: 10%}}]", "", "slow.0.link.1", "3", "1", 1),
    (FLAT, "skew: {ranks: {3: @, 5: 1 us}}", "skew.ranks.3", "0 us", "20 us", 20e-6),
    (FLAT, "skew: {random: @}", "skew.random", "1 us", "20 us", 20e-6),
    (FLAT, JITTER.replace("20%", "@"), "jitter.alpha.lognormal", "20%", "55%", 0.55),
    (FLAT, JITTER.replace("10%", "@"), "jitter.bandwidth.gamma", "10%", "55%", 0.55),
    (f"{FLAT}, gamma: 2 ps/B", JITTER.replace("0.3", "@"), "jitter.reduction.lognormal", "0.3", "0.9", 0.9),
    (FLAT, f"{JITTER}\nseed: @", "seed", "0", "7", 7),
    (FLAT, f"{JITTER}\nseeds: @", "seeds", "1", "9", 9),
    (FLAT, LOGGP.replace("1.5 us", "@"), "time.loggp.overhead", "1.5 us", "3 us", 3e-6),
    (FLAT, LOGGP.replace("gap: 1 us", "gap: @"), "time.loggp.gap", "1 us", "40 us", 40e-6),
    (FLAT.replace("8", "6"), LOGGP.replace("64 KiB", "@"), "time.loggp.threshold", "64 KiB", "1 MB", 1e6),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[2])
def test_a_point_is_the_file_with_that_number(case: tuple[str, str, str, str, str, float], load: Loader) -> None:
    cluster, lines, key, first, second, number = case
    lines = f"verify: never\n{lines}"  # what moves on arrays depends on none of these numbers
    swept = text(cluster.replace("@", first), lines.replace("@", first), f"sweep: {{{key}: [{first}, {second}]}}")
    rows = run_scenario(load(swept)).rows
    assert [row["point"][key] for row in rows[2:]] == [number] * 2
    for value, some in ((first, rows[:2]), (second, rows[2:])):
        written = run_scenario(load(text(cluster.replace("@", value), lines.replace("@", value)))).rows
        for row, other in zip(some, written, strict=True):
            assert {**row, "point": {}} == dict(other)
    assert rows[0]["seconds"] != rows[2]["seconds"] or rows[1]["seconds"] != rows[3]["seconds"]


def test_what_has_a_default_need_not_be_written(load: Loader) -> None:
    shared, alone = run_scenario(load(text(NODES, "sweep: {nics_per_node: [1, 4]}", algorithms="direct"))).rows
    assert shared["seconds"] > alone["seconds"]
    ideal, late = run_scenario(load(text(FLAT, "sweep: {skew.random: [0 us, 20 us]}", algorithms="ring"))).rows
    assert ideal["closed_form_seconds"] == pytest.approx(ideal["seconds"], rel=1e-12)
    assert late["closed_form_seconds"] is None


def test_tables_and_plots_name_them_with_their_units(load: Loader) -> None:
    slow = f"{FLAT}, slow: [{{rank: 3, bandwidth: 50%}}]"
    result = run_scenario(load(text(slow, "sweep: {slow.0.bandwidth: [25%, 50%]}", algorithms="ring")))
    stream = io.StringIO()
    show(result_tables(result, 160), stream, 160)
    lines = stream.getvalue().splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("slow.0.bandwidth"))
    assert [lines[head + 1].split()[0], *(lines[head + row].split()[0] for row in (3, 4))] == ["(%)", "25", "50"]
    ((stem, figure), *_) = list(figures(Result.of(result)))
    axes = figure.axes[0]
    assert (stem, axes.get_xlabel()) == ("scaling", "slow.0.bandwidth")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["25%", "50%"]


def test_sizes_of_levels_and_grids_are_drawn_against_the_world_size(load: Loader) -> None:
    result = run_scenario(load(text(LEVELS, "sweep: {rail.size: [1, 2], spine.size: [1, 2]}", algorithms="ring")))
    assert axis_keys(result.rows) == ("world_size",)
    assert [row["world_size"] for row in result.rows] == [4, 8, 8, 16]
    names = [line.get_label() for line in next(iter(figures(result)))[1].axes[0].get_lines()]
    assert names[:2] == ["spine.size 1", "spine.size 2"]


def test_crossovers_along_them(load: Loader) -> None:
    """1 GB on 2 x 2: a ring takes 6 x M/4 over 50 GB/s, 30 ms; of direct M leaves each node twice, over 2 x 50/x GB/s."""
    links = "intra: {alpha: 0 us, bandwidth: 1 PB/s}, inter: {alpha: 0 us, bandwidth: 50 GB/s}"
    leaf = f"nodes: 2, gpus_per_node: 2, {links}, leaf: {{nodes: 1, oversubscription: 1}}"
    bound = "from: 1, to: 1.9, equals: 1.5, rel: 0.01%"
    expect = f"expect: [{{crossover: [ring, direct], along: leaf.oversubscription, {bound}}}]"
    (check,) = run_scenario(load(text(leaf, expect, algorithms="ring, direct").replace("1 MiB", "1 GB"))).checks
    assert check.passed, check.message


def test_an_expectation_names_a_number_that_is_not_swept(load: Loader) -> None:
    jitter = "jitter: {alpha: {lognormal: 20%}}\nseeds: 3"
    expect = "expect: [{seconds_p99: {algorithm: ring, jitter.alpha.lognormal: 0%, seeds: 1}, equals: 70 us, rel: 10%}]"
    (check,) = run_scenario(load(text(FLAT, jitter, expect, algorithms="ring"))).checks
    assert check.found.startswith("seconds_p99 of ring at jitter.alpha.lognormal: 0%, seeds: 1 is 7"), check.message


WRONG = [
    (FLAT, "", "leaf.oversubscription: [2]", "a flat cluster has no leaf; nodes have, of nodes: and gpus_per_node:"),
    (NODES, "", "leaf.oversubscription: [2]", "this cluster has no leaf; write leaf: {nodes: 2, oversubscription: 4} under"),
    (f"{NODES}, leaf: {{nodes: 1, oversubscription: 2}}", "", "leaf.rails: [2]", "the cluster has no leaf.rails; it has: leaf.nodes"),
    (f"{NODES}, leaf: {{nodes: 1, oversubscription: 2}}", "", "leaf.oversubscripton: [2]", 'unknown key; did you mean "leaf.oversubscription"?'),
    (FLAT, "", "slow.0.bandwidth: [50%]", "this cluster has no slow; write slow: [{rank: 3, bandwidth: 50%}] under cluster:"),
    (f"{FLAT}, slow: [{{rank: 3, alpha: 2}}]", "", "slow.1.alpha: [2]", 'the cluster has no slow.1.alpha; did you mean "slow.0.alpha"?'),
    (f"{FLAT}, slow: [{{link: [0, 1], alpha: 2}}]", "", "slow.0.gamma: [2]", "the cluster has no slow.0.gamma; "),
    ("torus: [4, 4], link: {alpha: 1 us, bandwidth: 64 GB/s}", "", "torus.2: [4]", "the cluster has no torus.2; did you mean"),
    (NODES, "", "rail.size: [4]", "a two-level cluster has no key rail.size; vary nodes or gpus_per_node"),
    (FLAT, "", "jitter.alpha.lognormal: [5%]", "the scenario has no jitter of its own; write jitter: {alpha: {lognormal: 20%}}"),
    (FLAT, "jitter: {alpha: {lognormal: 20%}}", "jitter.alpha.gamma: [5%]", "the scenario has no jitter.alpha.gamma; "),
    (FLAT, "skew: {ranks: {3: 1 us}}", "skew.ranks.5: [5 us]", "the scenario has no skew.ranks.5; did you mean"),
    (FLAT, "", "seed: [5]", "nothing is random, so that every seed gives the same run; write jitter:"),
    (FLAT, "jitter: {alpha: {lognormal: 20%}}", "seeds: [5]", "the scenario has no seeds of its own; write seeds: 100"),
    (FLAT, "time: one_port", "time.loggp.gap: [5 us]", "the scenario has no time of its own; write time: {loggp: {"),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "lines", "sweep", "beginning"), WRONG)
def test_keys_that_the_scenario_does_not_have(
    cluster: str, lines: str, sweep: str, beginning: str, refuse: Refuser
) -> None:
    (problem,) = refuse(text(cluster, lines, f"sweep: {{{sweep}}}"))
    assert problem.partition("): ")[2].startswith(beginning), problem


VALUES = [
    ("leaf.oversubscription: [0.5]", "0.5 is less than 1, where nothing is shared; write 1 or more"),
    ("leaf.oversubscription: [4 GB/s]", '"4 GB/s" is text; write a bare number'),
    ("slow.0.bandwidth: [0%]", '"0%" is out of range: a factor is 1e-9 to 1e9'),
    (
        "slow.1.bandwidth: [200%]",
        "at slow.1.bandwidth: 200%: 2 is more than 1 (100%); a link is no faster than its ports",
    ),
    ("slow.0.rank: [8]", "at slow.0.rank: 8: rank 8 is unreachable; ranks are 0 to 7"),
    ("jitter.alpha.lognormal: [1100%]", '"1100%" is out of range; a spread is a ratio from 0 to 10'),
    ("nics_per_node: [3]", "at nics_per_node: 3: 3 cards do not divide the 4 GPUs of a node"),
    ("seeds: [0]", "0 is not a number of seeds"),
]


@pytest.mark.parametrize(("sweep", "beginning"), VALUES)
def test_values_out_of_range(sweep: str, beginning: str, refuse: Refuser) -> None:
    slow = "slow: [{rank: 3, bandwidth: 50%}, {link: [0, 1], bandwidth: 50%}]"
    cluster = f"{NODES}, leaf: {{nodes: 1, oversubscription: 2}}, {slow}"
    lines = ("jitter: {alpha: {lognormal: 20%}}", "seeds: 3", f"sweep: {{{sweep}}}")
    problems = refuse(text(cluster, *lines, algorithms="ring"))
    assert [problem.partition("): ")[2][: len(beginning)] for problem in problems] == [beginning]


def test_closed_form_refuses_points_with_late_runs(refuse: Refuser) -> None:
    (problem,) = refuse(text(FLAT, "engine: closed_form", "sweep: {skew.random: [0 us, 1 us]}", algorithms="ring"))
    assert problem.endswith(
        "at skew.random: 1 us: ring all_reduce has no exact closed form with late or random runs; "
        "use engine event or lockstep"
    )


@pytest.mark.parametrize("name", ["ring", "slow", "jitter", "leaf", "time"])
def test_levels_take_no_names_of_keys(name: str, refuse: Refuser) -> None:
    (problem,) = refuse(text(LEVELS.replace("spine", name)))
    assert f"{name} is a" in problem
    assert "take another name" in problem


def test_crossovers_go_along_quantities(refuse: Refuser) -> None:
    expect = "expect: [{crossover: [tree, direct], along: seed, from: 0, to: 9, at_least: 1}]"
    (problem,) = refuse(text(FLAT, JITTER, expect))
    assert "seed is no quantity that times could cross along" in problem


def test_kinds_go_by_the_key_alone() -> None:
    names = {"spine.alpha": "seconds", "slow.3.link.0": "rank", "mesh.2": "count", "jitter.bandwidth.gamma": "spread"}
    assert {key: kind.name for key in names if (kind := kind_of(key)) is not None} == names
    for key in ("slow.00.rank", "ring.size", "jitter", "torus", "a.b.alpha", "slow.0.link.2"):
        assert kind_of(key) is None


TRAINING = """\
title: x
cluster: {nodes: 2, gpus_per_node: 2, LINKS, nics_per_node: 2, device: {peak: {bfloat16: PEAK, float32: 60 TFLOP/s}}}
training: {model: {parameters: 1e8, layers: 4}, strategy: ddp, sequence: 512, mfu: 45%}
""".replace("LINKS", LINKS)


@pytest.mark.parametrize(
    ("key", "old", "new"),
    [
        ("device.peak.bfloat16", "PEAK", "100 TFLOP/s"),
        ("nics_per_node", "nics_per_node: 2", "1"),
        ("inter.bandwidth", "bandwidth: 50 GB/s", "5 GB/s"),
    ],
)
def test_a_point_of_a_training_scenario_is_the_file_with_that_number(
    key: str, old: str, new: str, load: Callable[[str], Any]
) -> None:
    usual = run_scenario(load(TRAINING.replace("PEAK", "989 TFLOP/s"))).rows[0]
    swept = run_scenario(load(TRAINING.replace("PEAK", "989 TFLOP/s") + f"sweep: {{{key}: [{new}]}}")).rows[0]
    label = old.partition(":")[0] + ": " if ":" in old else ""
    written = run_scenario(load(TRAINING.replace(old, label + new).replace("PEAK", "989 TFLOP/s"))).rows[0]
    assert {**swept, "point": {}} == dict(written)
    assert swept["step_seconds"] > usual["step_seconds"]


@pytest.mark.parametrize("key", ["seed", "seeds", "skew.random", "message", "time.loggp.gap", "root"])
def test_keys_of_collectives_are_none_of_training(key: str, refuse: Refuser) -> None:
    (problem,) = refuse(TRAINING.replace("PEAK", "989 TFLOP/s") + f"sweep: {{{key}: [1]}}")
    assert "unknown key; " in problem


def test_keys_of_training_are_none_of_collectives(refuse: Refuser) -> None:
    (problem,) = refuse(text(FLAT, "sweep: {device.memory: [80 GB]}"))
    assert "unknown key; known keys: message, devices, " in problem
