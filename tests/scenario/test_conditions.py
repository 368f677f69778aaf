# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Late ranks, jitter and seeds: the same numbers as the engines', percentiles by nearest rank, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

import simcollectives as sc
from simcollectives.engines import Conditions, Jitter
from simcollectives.report.curves import picture
from simcollectives.report.files import rows_csv
from simcollectives.report.plots import figures
from simcollectives.report.tables import result_tables, show
from simcollectives.scenario import Scenario, json_schema, run_scenario

Loader = Callable[[str], Scenario]
Refuser = Callable[[str], list[str]]

HEAD = """\
title: x
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}, gamma: 1 ps/B}
collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, tree]}
"""
CLUSTER = sc.Cluster.flat(8, sc.Link(5e-6, 450e9), device=sc.Device(reduction_seconds_per_byte=1e-12))


def times(conditions: Conditions, seeds: range) -> list[float]:
    made = [replace(conditions, seed=seed) for seed in seeds]
    return sorted(sc.simulate("all_reduce", "ring", CLUSTER, 1 << 20, conditions=one).seconds for one in made)


def test_late_ranks(load: Loader) -> None:
    result = run_scenario(load(HEAD + "skew: {ranks: {3: 10 us, 0: 1 us}}\n"))
    skew = Conditions(skew=(1e-6, 0, 0, 10e-6))
    assert result.rows[0]["seconds"] == times(skew, range(1))[0]
    assert result.rows[0]["seeds"] is None
    assert result.rows[0]["seconds_p99"] is None
    assert result.rows[0]["closed_form_seconds"] is None


def test_seeds_are_runs_and_the_row_is_the_median_one(load: Loader) -> None:
    jitter = "{alpha: {lognormal: 20%}, bandwidth: {gamma: 10%}, reduction: {lognormal: 0.3}}"
    text = HEAD + f"skew: {{random: 20 us}}\njitter: {jitter}\n"
    conditions = Conditions(
        random_skew=20e-6,
        alpha=Jitter("lognormal", 0.2),
        bandwidth=Jitter("gamma", 0.1),
        reduction=Jitter("lognormal", 0.3),
    )
    found = times(conditions, range(7, 47))
    row = run_scenario(load(text + "seed: 7\nseeds: 40\n")).rows[0]
    assert row["seeds"] == 40
    assert (row["seconds"], row["seconds_p50"]) == (found[19], found[19])
    assert (row["seconds_p95"], row["seconds_p99"]) == (found[37], found[39])
    parts = sum(row[f"{part}_seconds"] for part in ("latency", "bandwidth", "reduction"))
    assert parts == pytest.approx(row["seconds"], rel=1e-12)
    assert run_scenario(load(text + "seed: 7\n")).rows[0]["seconds"] == times(conditions, range(7, 8))[0]


def test_percentiles_are_metrics(load: Loader) -> None:
    text = HEAD + "jitter: {alpha: {gamma: 30%}}\nseeds: 3\n"
    scenario = load(
        text
        + """timeline: {algorithm: ring}
expect:
  - {seconds_p99: {algorithm: ring}, at_least: 70 us}
  - {ratio: [{algorithm: ring}, {algorithm: tree}], of: seconds_p95, at_least: 1}
  - {crossover: [ring, tree], along: message, from: 4 KiB, to: 64 MiB, at_least: 1 MB}
"""
    )
    result = run_scenario(scenario)
    assert [check.passed for check in result.checks] == [True, True, True], result.checks
    label, timeline = result.timelines[0]
    assert label == "ring"
    assert max(timeline.end) == pytest.approx(result.rows[0]["seconds"])


def test_tables_files_and_plots_show_them(load: Loader) -> None:
    result = run_scenario(load(HEAD + "sweep: {message: [4 KiB, 1 MiB]}\njitter: {alpha: {gamma: 30%}}\nseeds: 20\n"))
    stream = io.StringIO()
    show(result_tables(result, 160), stream, 160)
    text = stream.getvalue()
    for part in ("p95", "p99", "the median run of 20 seeds"):
        assert part in text
    assert rows_csv(result.rows).splitlines()[0].endswith("verified,seeds,seconds_p50,seconds_p95,seconds_p99")
    drawn = picture(result.rows, "message")
    assert drawn.curves[0].high == tuple(row["seconds_p99"] for row in result.rows if row["label"] == "ring")
    assert "bands: from the median to the 99th percentile of 20 seeds" in drawn.notes
    assert picture(result.rows, "message", "busbw").curves[0].high == ()
    assert list(figures(result))


RANDOM = "jitter: {alpha: {gamma: 10%}}"
WRONG = {
    "seeds: 10": ["$.seeds (line 4): nothing is random, so that every seed gives the same run; write jitter:"],
    "skew: {ranks: {1: 1 us}}\nseeds: 10\nseed: 3": ["$.seeds (line 5): nothing is random", "$.seed (line 6): nothing is random"],
    f"{RANDOM}\nengine: closed_form": ["$.engine (line 5): closed_form has no jitter; write engine: auto, or leave jitter: out"],
    "skew: {ranks: {1: 1 us}}\nengine: closed_form": ["$.engine (line 5): closed_form has no skew"],
    "skew: {ranks: {9: 1 us}}": ["$.collective.algorithms[0] (line 3): rank 9 of skew is unreachable; ranks are 0 to 7", "$.collective.algorithms[1]"],
    "skew: {ranks: {a: 1 us}}": ['$.skew.ranks.a (line 4): "a" is not a rank; write a whole number'],
    "skew: {ranks: {1: 1}}": ['$.skew.ranks["1"] (line 4): 1 has no unit; write "1 us"'],
    "skew: {ranks: {}}": ["$.skew.ranks (line 4): {} does not say which ranks start when"],
    "skew: {ranks: {1: 1 us}, random: 2 us}": ["$.skew (line 4): skew names ranks, or is random; write"],
    "skew: {randm: 2 us}": ['$.skew.randm (line 4): unknown key; did you mean "random"?'],
    "skew: 3 us": ['$.skew (line 4): "3 us" is not a mapping; write skew: {random: 20 us}'],
    "jitter: {}": ["$.jitter (line 4): nothing is drawn; write"],
    "jitter: {alfa: {gamma: 10%}}": ['$.jitter.alfa (line 4): unknown key; did you mean "alpha"?'],
    "jitter: {alpha: 10%}": ['$.jitter.alpha (line 4): "10%" is not one distribution with its spread; write {lognormal: 20%}'],
    "jitter: {alpha: {lognorml: 10%}}": ['$.jitter.alpha (line 4): "lognorml" is not a distribution; did you mean "lognormal"?'],
    "jitter: {alpha: {gamma: 10 us}}": ['$.jitter.alpha (line 4): "10 us" is a time, not a ratio'],
    "jitter: {alpha: {gamma: 2000%}}": ['$.jitter.alpha (line 4): "2000%" is out of range; a spread is a ratio from 0 to 10'],
    f"{RANDOM}\nmeasured: {{set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring}}": ["$.measured (line 5): measurements are compared with closed forms"],
    f"{RANDOM}\nseeds: 0": ["$.seeds (line 5): 0 is not a number of seeds; write a whole number from 1 to 10000"],
    f"{RANDOM}\nseed: -1": ["$.seed (line 5): -1 is not a seed; write a whole number from 0"],
    f"{RANDOM}\nsedes: 3": ['$.sedes (line 5): unknown key; did you mean "seeds"?'],
    f"{RANDOM}\nexpect: [{{seconds_p99: {{algorithm: ring}}, at_most: 1 s}}]": ["$.expect[0].seconds_p99 (line 5): seconds_p99 is over seeds, and the scenario has none; write seeds: 100"],
}  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=text) for text in WRONG])
def test_wrong_conditions(text: str, refuse: Refuser) -> None:
    found = refuse(HEAD + text)
    assert len(found) == len(WRONG[text]), found
    for problem, beginning in zip(found, WRONG[text], strict=True):
        assert problem[: len(beginning)] == beginning


def test_the_schema_has_them() -> None:
    assert {"skew", "jitter", "seed", "seeds"} <= set(json_schema()["else"]["else"]["properties"])


def test_vectorized_refuses_late_ranks_before_it_runs(refuse: Refuser) -> None:
    text = HEAD.replace("tree", "direct") + "skew: {ranks: {1: 1 us}}\nengine: vectorized\n"
    (problem,) = refuse(text)
    assert problem.startswith(
        "$.collective.algorithms[1] (line 3): direct is not exact in vectorized: up to 7 messages"
    )
