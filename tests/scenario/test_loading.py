# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""What a valid scenario file means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simcollectives.cluster import Link
from simcollectives.scenario import Scenario
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.types import EMPTY, CrossoverExpectation, MetricExpectation, RatioExpectation

Loader = Callable[[str], Scenario]

HEAD = """\
title: A test
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, tree, rabenseifner, {rabenseifner: {order: far}}]}
"""
SERVERS = """\
title: A test
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, message: 1 MiB, algorithms: [parameter_server, {parameter_server: {servers: co_located}}, ring]}
sweep: {parameter_server.servers: [1, 2]}
"""  # fmt: skip


def test_a_flat_cluster(load: Loader) -> None:
    text = HEAD.replace("450 GB/s}", "400 Gb/s, overhead: 1 us}, gamma: 2 ps/B, rank_order: [7, 6, 5, 4, 3, 2, 1, 0]")
    scenario = load(text)
    cluster = build_cluster(scenario.cluster, EMPTY)
    assert cluster.world_size == 8
    assert cluster.uniform_link == Link(5e-6, 50e9, 1e-6)
    assert cluster.device.reduction_seconds_per_byte == 2e-12
    assert cluster.rank_order == (7, 6, 5, 4, 3, 2, 1, 0)
    assert scenario.collective.message_bytes == 2**20
    assert (scenario.engine, scenario.verify, scenario.sweeps) == ("auto", "auto", ())


def test_a_two_level_cluster_and_its_points(load: Loader) -> None:
    text = HEAD.replace(
        "{devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}",
        "{nodes: 1, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 1 us, bandwidth: 1 GB/s}}",
    )
    scenario = load(text + "sweep: {nodes: [1, 2]}\n")
    assert len(build_cluster(scenario.cluster, EMPTY).levels) == 1
    cluster = build_cluster(scenario.cluster, {"nodes": 2, "gpus_per_node": 4, "inter.alpha": 3e-6, "gamma": 1e-12})
    assert (cluster.nodes, cluster.gpus_per_node) == (2, 4)
    assert cluster.level("inter").link == Link(3e-6, 1e9)
    assert cluster.device.reduction_seconds_per_byte == 1e-12


def test_a_machine(load: Loader) -> None:
    text = HEAD.replace("{devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}", "{machine: dgx-h100, nodes: 2}")
    cluster = build_cluster(load(text).cluster, EMPTY)
    assert (cluster.world_size, cluster.name) == (16, "dgx-h100")
    assert cluster.device.name == "H100-SXM5-80GB"


def test_one_node_needs_no_links_between_nodes(load: Loader) -> None:
    link = "{alpha: 5 us, bandwidth: 450 GB/s}"
    for form in (f"{{nodes: 1, gpus_per_node: 8, intra: {link}}}", f"{{nodes: 8, gpus_per_node: 1, inter: {link}}}"):
        scenario = load(HEAD.replace("{devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}", form))
        assert build_cluster(scenario.cluster, EMPTY).world_size == 8


def test_sweeps_keep_the_order_of_the_file(load: Loader) -> None:
    sweeps = load(
        HEAD + "sweep: [{devices: [4, 2, 4], message: {from: 4 B, to: 32 B, factor: 2}}, {link.alpha: [1 us]}]\n"
    ).sweeps
    assert [dict(sweep.values) for sweep in sweeps] == [
        {"devices": (4, 2), "message": (4, 8, 16, 32)},
        {"link.alpha": (1e-6,)},
    ]
    assert all(isinstance(value, int) for value in sweeps[0].values["message"])


def test_inner_points_of_a_message_range_are_whole_elements(load: Loader) -> None:
    messages = load(HEAD + "sweep: {message: {from: 4 B, to: 1000 B, points: 9}}\n").sweeps[0].values["message"]
    assert (messages[0], messages[-1], len(messages)) == (4, 1000, 9)
    assert all(message % 4 == 0 for message in messages)


def test_a_bare_name_is_the_entry_with_the_defaults(load: Loader) -> None:
    lines = "expect:\n" + "".join(
        f"  - {{seconds: {{algorithm: {name}}}, at_least: 0 us}}\n"
        for name in ("rabenseifner", "{rabenseifner: {order: near}}", "{rabenseifner: {order: far}}")
    )
    found = [e.selector.entry.label for e in load(HEAD + lines).expectations if isinstance(e, MetricExpectation)]
    assert found == ["rabenseifner", "rabenseifner", "rabenseifner (order: far)"]


def test_options_that_are_swept_are_part_of_the_point(load: Loader) -> None:
    lines = """expect:
  - {seconds: {algorithm: {parameter_server: {servers: 4}}}, at_least: 0 us}
  - {seconds: {algorithm: parameter_server, parameter_server.servers: 2}, at_least: 0 us}
  - {seconds: {algorithm: {parameter_server: {servers: co_located}}}, at_least: 0 us}
  - {seconds: {algorithm: ring}, at_least: 0 us}
"""
    found = [e.selector for e in load(SERVERS + lines).expectations if isinstance(e, MetricExpectation)]
    assert [(run.entry.label, dict(run.point)) for run in found] == [
        ("parameter_server", {"parameter_server.servers": 4}),
        ("parameter_server", {"parameter_server.servers": 2}),
        ("parameter_server (servers: co_located)", {}),
        ("ring", {}),
    ]


def test_a_point_takes_what_it_does_not_name_from_the_scenario(load: Loader) -> None:
    sweep = "sweep: [{devices: [2, 4]}, {message: [4 KiB, 8 KiB]}, {link.alpha: [1 us]}]\n"
    expectation = load(
        HEAD + sweep + "expect: [{seconds: {algorithm: ring, devices: 3}, at_least: 0 us}]"
    ).expectations[0]
    assert isinstance(expectation, MetricExpectation)
    assert dict(expectation.selector.point) == {"devices": 3}  # message and alpha: as under collective: and cluster:


def test_a_key_that_is_swept_with_one_value_has_that_value(load: Loader) -> None:
    text = HEAD + "sweep: {devices: [4], message: [4 KiB, 8 KiB]}\n"
    expectation = load(
        text + "expect: [{ratio: [{algorithm: ring}, {algorithm: tree, message: 1 MiB}], message: 4 KiB, at_least: 0}]"
    )
    ratio = expectation.expectations[0]
    assert isinstance(ratio, RatioExpectation)
    assert dict(ratio.first.point) == {"message": 4096, "devices": 4}
    assert dict(ratio.second.point) == {"message": 2**20, "devices": 4}


def test_the_text_and_line_of_an_expectation(load: Loader) -> None:
    text = (
        HEAD + "expect:\n\n  - seconds: {algorithm: ring}\n    equals: 5 us\n    rel: 0.5%\n    because: 'so: it is'\n"
    )
    expectation = load(text).expectations[0]
    assert expectation.text == '{seconds: {algorithm: ring}, equals: 5 us, rel: 0.5%, because: "so: it is"}'
    assert (expectation.line, expectation.because) == (6, "so: it is")


def test_a_crossover_looks_at_the_swept_values_and_between(load: Loader) -> None:
    sweep = "sweep: {message: [1 KiB, 1 MiB, 1 GiB]}\n"
    crossover = load(HEAD + sweep + "expect: [{crossover: [ring, tree], along: message, from: 4 KiB, at_most: 1 MB}]")
    expectation = crossover.expectations[0]
    assert isinstance(expectation, CrossoverExpectation)
    assert (expectation.grid[0], expectation.grid[-1]) == (4096, 2**30)
    assert 2**20 in expectation.grid
    assert len(expectation.grid) >= 33
    assert all(message % 4 == 0 for message in expectation.grid)


def test_a_crossover_along_devices_stays_at_whole_numbers(load: Loader) -> None:
    crossover = "expect: [{crossover: [ring, tree], along: devices, from: 2, to: 300, at_least: 1}]"
    expectation = load(HEAD + crossover).expectations[0]
    assert isinstance(expectation, CrossoverExpectation)
    assert (expectation.grid[0], expectation.grid[-1]) == (2, 300)
    assert all(isinstance(value, int) for value in expectation.grid)
    swept = load(HEAD + "sweep: {devices: [2, 4, 8]}\n" + crossover).expectations[0]
    assert isinstance(swept, CrossoverExpectation)
    assert swept.grid == (2, 4, 8, 300)


@pytest.mark.parametrize("name", ["title", "description"])
def test_texts_may_hold_what_they_like(load: Loader, name: str) -> None:
    text = HEAD.replace("title: A test", "title: x\ndescription: y").replace(
        f"{name}: ", f"{name}: 'Größe: 5 µs \U0001f600'\n# "
    )
    assert getattr(load(text), name) == "Größe: 5 µs \U0001f600"
