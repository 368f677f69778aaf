# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Every wrong input gets all its problems at once, each with its place, line, rule and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simcollectives.errors import InputError
from simcollectives.scenario import load_scenario
from tests.work import counted_calls

Refuser = Callable[[str], list[str]]

FLAT = "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}"
NODES = (
    "cluster: {nodes: 4, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, "
    "inter: {alpha: 10 us, bandwidth: 50 GB/s}}"
)
COLLECTIVE = "collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, tree, {rabenseifner: {order: far}}]}"
NO_MESSAGE = "collective: {name: all_reduce, algorithms: [ring, tree]}"


def scenario(*lines: str, cluster: str = FLAT, collective: str = COLLECTIVE) -> str:
    return "\n".join(["title: A test", cluster, collective, *lines])


def cluster(text: str) -> str:
    return scenario(cluster=f"cluster: {text}")


def collective(text: str) -> str:
    return scenario(collective=f"collective: {text}")


LINK = "link: {alpha: 5 us, bandwidth: 450 GB/s}"
TWO = "intra: {alpha: 5 us, bandwidth: 450 GB/s}"

CASES = {
    # the cluster
    cluster("{devices: 8, link: {alpha: 5 us, bandwidth: 450}}"): [
        '$.cluster.link.bandwidth (line 2): 450 has no unit; write "450 GB/s"'
    ],
    cluster("{devices: 8, link: {alpha: 0, bandwidth: 450 GB}}"): [
        '$.cluster.link.alpha (line 2): 0 has no unit; write "0 us"',
        '$.cluster.link.bandwidth (line 2): "450 GB" is a number of bytes, not a bandwidth; write "450 GB/s"',
    ],
    cluster("{devices: 8, link: {alpha: 5 us, bandwidth: -450 GB/s}}"): [
        '$.cluster.link.bandwidth (line 2): "-450 GB/s" is negative, and a bandwidth is 0 or more; write "450 GB/s"'
    ],
    cluster("{devices: 8, link: {alpha: 5 us, bandwidth: 0 GB/s}}"): [
        '$.cluster.link.bandwidth (line 2): "0 GB/s" is out of range: it must be at least 1 B/s; '
        'write for instance "450 GB/s"'
    ],
    cluster("{devices: 8, link: {alpha: 5 us, bandwith: 450 GB/s, lanes: 4}}"): [
        '$.cluster.link.bandwith (line 2): unknown key; did you mean "bandwidth"?',
        "$.cluster.link.lanes (line 2): unknown key; known keys: alpha, bandwidth, overhead",
    ],
    cluster("{devices: 8, link: {alpha: 5 us}}"): [
        "$.cluster.link (line 2): the key bandwidth is missing; write bandwidth: 450 GB/s"
    ],
    cluster("{devices: 8, link: 450 GB/s}"): [
        '$.cluster.link (line 2): "450 GB/s" is not a mapping; write link: {alpha: 5 us, bandwidth: 450 GB/s}'
    ],
    cluster(f"{{devices: 0, {LINK}}}"): [
        "$.cluster.devices (line 2): 0 is not a count; write a whole number from 1 to 1048576"
    ],
    cluster(f"{{devices: 8.0, {LINK}}}"): [
        "$.cluster.devices (line 2): 8.0 is not written as a whole number; write 8"
    ],
    cluster(f"{{devices: '8', {LINK}}}"): ['$.cluster.devices (line 2): "8" is text; write 8 without quotes'],
    cluster(f"{{devices: 2000000, {LINK}}}"): [
        "$.cluster.devices (line 2): 2000000 is not a count; write a whole number from 1 to 1048576"
    ],
    cluster(f"{{devices: 3, {LINK}, rank_order: [0, 0, 5]}}"): [
        "$.cluster.rank_order (line 2): 5 is not a device; devices are 0 to 2",
        "$.cluster.rank_order (line 2): device 0 has two ranks; every device has one",
        "$.cluster.rank_order (line 2): device 1, 2 has no rank and is unreachable; list each of the 3 devices once",
    ],
    cluster(f"{{devices: 8, {LINK}, rank_order: snake}}"): [
        '$.cluster.rank_order (line 2): "snake" is not a rank order; write node_major, round_robin or a list of devices'
    ],
    cluster(f"{{nodes: 4, gpus_per_node: 8, {TWO}}}"): [
        "$.cluster.inter (line 2): ranks 0 and 8 cannot reach each other: 4 nodes need a link, inter"
    ],
    cluster(f"{{nodes: 4, gpus_per_node: 8, inter: {LINK[6:]}}}"): [
        "$.cluster.intra (line 2): ranks 0 and 1 cannot reach each other: devices of a node need a link, intra"
    ],
    cluster(f"{{nodes: 4, devices: 8, {LINK}}}"): [
        "$.cluster.devices (line 2): devices and nodes belong to different forms of a cluster; write"
    ],
    cluster("{machine: dgx-h10, nodes: 2}"): ['$.cluster.machine (line 2): "dgx-h10" is not a known machine; did you mean "dgx-h100"?'],
    cluster("{}"): ["$.cluster (line 2): the cluster has no devices; write {devices: 8"],
    cluster("{device: 8}"): ['$.cluster.device (line 2): unknown key; did you mean "devices"?'],
    cluster("8"): ["$.cluster (line 2): 8 is not a mapping; write cluster: {devices: 8"],
    cluster("{devices: 8,link}"): ["$.cluster.link (line 2): no value stands here; write one, or leave it out"],
    # the collective
    collective("{name: all_reduse, algorithms: [ring]}"): [
        '$.collective.name (line 3): "all_reduse" is unknown; did you mean "all_reduce"?'
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [rign]}"): [
        '$.collective.algorithms[0] (line 3): all_reduce has no algorithm "rign"; did you mean "ring"?'
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [{rabenseifner: {ordr: far}}, {rabenseifner: {order: fra}}]}"): [
        '$.collective.algorithms[0].rabenseifner.ordr (line 3): rabenseifner has no option "ordr"; did you mean "order"?',
        '$.collective.algorithms[1].rabenseifner.order (line 3): rabenseifner: "fra" is not a choice; did you mean "far"?',
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: []}"): [
        "$.collective.algorithms (line 3): 0 entries; write at least 1"
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: ring}"): [
        '$.collective.algorithms (line 3): "ring" is not a list; write algorithms: [ring, tree]'
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [ring, tree, ring]}"): [
        "$.collective.algorithms[2] (line 3): ring is listed twice, first at [0]; keep one"
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [3, {ring: {}, tree: {}}, {ring: far}]}"): [
        "$.collective.algorithms[0] (line 3): 3 is not an algorithm; write a name such as ring",
        "$.collective.algorithms[1] (line 3): {ring: {}, tree: {}} has 2 keys where one algorithm has one",
        '$.collective.algorithms[2] (line 3): "far" are not options of "ring"; write {name: {option: value}}, or the name alone',
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [5, rign, {ring: {x: 1}}]}"): [
        "$.collective.algorithms[0] (line 3): 5 is not an algorithm; write a name such as ring",
        '$.collective.algorithms[1] (line 3): all_reduce has no algorithm "rign"; did you mean "ring"?',
        '$.collective.algorithms[2].ring.x (line 3): ring has no option "x"; it has: none',
    ],
    collective("{name: all_reduse, message: 1 MiB, algorithms: [rign, {ring: {x: 1}}]}"): [
        '$.collective.algorithms[0] (line 3): all_reduce has no algorithm "rign"; did you mean "ring"?',
        '$.collective.algorithms[1].ring.x (line 3): ring has no option "x"; it has: none',
        '$.collective.name (line 3): "all_reduse" is unknown; did you mean "all_reduce"?',
    ],
    collective("{name: qqq, message: 1 MiB, algorithms: [rign, tree]}"): [
        '$.collective.algorithms[0] (line 3): "rign" is no algorithm of any collective; did you mean "ring"?',
        '$.collective.name (line 3): "qqq" is unknown; known: all_reduce, ',
    ],
    collective("{name: all_reduce, message: 6 B, dtype: bfloat61, algorithms: [rign]}"): [
        '$.collective.algorithms[0] (line 3): all_reduce has no algorithm "rign"; did you mean "ring"?',
        '$.collective.dtype (line 3): "bfloat61" is unknown; did you mean "bfloat16"?',
    ],
    collective("{name: all_reduce, message: 3 B, dtype: bfloat16, algorithms: [ring]}"): [
        "$.collective.message (line 3): 3 B is not a whole number of bfloat16 elements of 2 B; write 2 B or 4 B"
    ],
    collective("{name: all_reduce, message: 1 MiB, algorithms: [ring, ring, " + "tree, " * 9 + "rign]}"): [
        "$.collective.algorithms[1] (line 3): ring is listed twice, first at [0]; keep one",
        *(f"$.collective.algorithms[{i}] (line 3): tree is listed twice, first at [2]; keep one" for i in range(3, 11)),
        '$.collective.algorithms[11] (line 3): all_reduce has no algorithm "rign"',
    ],
    collective("{name: all_reduce, message: 6 B, algorithms: [ring]}"): [
        "$.collective.message (line 3): 6 B is not a whole number of float32 elements of 4 B; write 4 B or 8 B"
    ],
    collective("{name: all_reduce, message: 1 MiB, dtype: float23, algorithms: [ring]}"): [
        '$.collective.dtype (line 3): "float23" is unknown; did you mean "float32"?'
    ],
    collective("{name: all_reduce, message: 1 MiB, root: 1, algorithms: [ring]}"): [
        "$.collective.root (line 3): all_reduce has no root; leave it out"
    ],
    collective("{name: broadcast, message: 1 MiB, root: 8, algorithms: [tree]}"): [
        "$.collective.root (line 3): root 8 is unreachable; ranks are 0 to 7"
    ],
    collective("{name: all_reduce, message: 1 PiB, algorithms: [ring]}"): [
        '$.collective.message (line 3): "1 PiB" is out of range: it must be at most 64 TiB; write for instance "25 MiB"'
    ],
    collective("{name: all_reduce, message: 1e300 GB, algorithms: [ring]}"): [
        '$.collective.message (line 3): "1e300 GB" is out of range: it must be at most 64 TiB; write for instance "25 MiB"'
    ],
    # algorithms that do not fit
    scenario(
        cluster=FLAT.replace("8", "6"),
        collective="collective: {name: all_gather, message: 1 MiB, algorithms: [ring, butterfly]}",
    ): ["$.collective.algorithms[1] (line 3): butterfly all_gather: needs a power of two of ranks, not 6"],
    scenario("sweep: {devices: [4, 6, 7]}", collective="collective: {name: all_gather, message: 1 MiB, algorithms: [butterfly]}"): [
        "$.sweep (line 4): at devices: 6: butterfly all_gather: needs a power of two of ranks, not 6",
        "$.sweep (line 4): at devices: 7: butterfly all_gather: needs a power of two of ranks, not 7",
    ],
    scenario(cluster=NODES, collective="collective: {name: all_reduce, message: 1 MiB, algorithms: [parameter_server]}"): [
        "$.collective.algorithms[0] (line 3): parameter_server all_reduce: dedicated servers need a flat cluster"
    ],
    scenario("engine: closed_form", cluster=NODES, collective="collective: {name: all_reduce, message: 1 MiB, algorithms: [tree]}"): [
        "$.collective.algorithms[0] (line 3): tree all_reduce has no exact closed form on links of several kinds; use"
    ],
    # sweeps
    scenario("sweep: {mesage: [1 KiB]}"): ['$.sweep.mesage (line 4): unknown key; did you mean "message"?'],
    scenario("sweep: {nodes: [1, 2]}"): ["$.sweep.nodes (line 4): a flat cluster has no key nodes; vary devices"],
    scenario("sweep: {devices: [1, 2]}", cluster=NODES): [
        "$.sweep.devices (line 4): a two-level cluster has no key devices; vary nodes or gpus_per_node"
    ],
    scenario("sweep: {gpus_per_node: [1]}", cluster="cluster: {machine: dgx-h100}"): [
        "$.sweep.gpus_per_node (line 4): dgx-h100 has 8 GPUs a node; vary nodes"
    ],
    scenario("sweep: {inter.alpha: [1 us]}"): [
        '$.sweep["inter.alpha"] (line 4): this cluster has no inter; vary link.alpha'
    ],
    scenario("sweep: {root: [1]}"): ["$.sweep.root (line 4): all_reduce has no root; leave it out"],
    scenario("sweep: {message: [1, 2 KiB, 3 B]}"): [
        '$.sweep.message[0] (line 4): 1 has no unit; write "1 B"',
    ],
    scenario("sweep: {message: [1 KiB, 3 B]}"): [
        "$.sweep.message[1] (line 4): 3 B is not a whole number of float32 elements of 4 B; write 0 B or 4 B"
    ],
    scenario("sweep: {message: 1 KiB}"): [
        '$.sweep.message (line 4): "1 KiB" is one value; write a list of values, or {from: 1 KiB, to: 1 GiB, factor: 2}'
    ],
    scenario("sweep: {message: []}"): ["$.sweep.message (line 4): the list is empty; write a list of values"],
    scenario("sweep: []"): ["$.sweep (line 4): the list is empty; write a sweep, or leave the key out"],
    scenario("sweep: {message: {from: 1 KiB, to: 1 GiB}}"): [
        "$.sweep.message (line 4): nothing says how wide the steps are; write one of factor, step and points"
    ],
    scenario("sweep: {message: {from: 1 KiB, to: 1 GiB, factr: 2}}"): [
        '$.sweep.message.factr (line 4): unknown key; did you mean "factor"?'
    ],
    scenario("sweep: {message: {from: 1 KiB, factor: 2}}"): ["$.sweep.message (line 4): the key to is missing; write"],
    scenario("sweep: {message: {from: 1 KiB, to: 1 GiB, factor: 2, points: 3}}"): [
        "$.sweep.message (line 4): factor and points cannot stand together; write one of factor, step and points"
    ],
    scenario("sweep: {message: {from: 1 GiB, to: 1 KiB, factor: 2}}"): [
        "$.sweep.message (line 4): the range ends below its beginning; swap from: and to:"
    ],
    scenario("sweep: {message: {from: 1 KiB, to: 1 GiB, factor: 1}}"): [
        "$.sweep.message (line 4): the factor 1 does not lead upwards; write one above 1, such as 2"
    ],
    scenario("sweep: {message: {from: 0 B, to: 1 GiB, step: 4 B}}"): [
        "$.sweep.message (line 4): 268435457 points; a sweep has at most 10000: take wider steps"
    ],
    scenario("sweep: {message: {from: 4 MiB, to: 1 GiB, points: 1000}, devices: {from: 1, to: 100, step: 1}}"): [
        "$.sweep (line 4): 100000 points; at most 10000: take fewer values"
    ],
    scenario("sweep: {parameter_server.servers: [1]}"): [
        '$.sweep["parameter_server.servers"] (line 4): "parameter_server" is no algorithm of this scenario; it has: ring'
    ],
    scenario("sweep: {ring.order: [far]}"): [
        '$.sweep["ring.order"] (line 4): ring has no such option; its options: none'
    ],
    scenario("sweep: {rabenseifner.order: [near, far]}"): [
        '$.sweep["rabenseifner.order"] (line 4): order is given with rabenseifner in line 3, and swept here; keep one'
    ],
    scenario(
        "sweep: {rabenseifner.order: [near, far]}",
        collective="collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, rabenseifner, {rabenseifner: {order: far}}]}",
    ): [
        "$.sweep (line 4): at rabenseifner.order: far: algorithms[1] and algorithms[2] are both rabenseifner (order: far); "
        "leave one out"
    ],
    scenario(
        "sweep: {root: [0, 2]}",
        collective="collective: {name: broadcast, message: 1 MiB, algorithms: [tree, {tree: {root: 2}}]}",
    ): ["$.sweep (line 4): at root: 2: algorithms[0] and algorithms[1] are both tree (root: 2); leave one out"],
    scenario("measured: {file: '', algorithm: ring}"): ["$.measured.file (line 4): the text is empty; write file: mine.csv"],
    scenario("expect: [{ratio: [ring, tree], at_most: 1}]"): [
        '$.expect[0].ratio[0] (line 4): "ring" is not a mapping; write {algorithm: tree}',
        '$.expect[0].ratio[1] (line 4): "tree" is not a mapping; write {algorithm: tree}',
    ],
    scenario("expect: [{busbw: ring, at_most: 1 GB/s}]"): [
        '$.expect[0].busbw (line 4): "ring" is not a mapping; write busbw: {algorithm: ring, message: 4 KiB}'
    ],
    scenario("expect: [{crossover: ring, along: message, at_most: 1 MB}]"): [
        '$.expect[0].crossover (line 4): "ring" is not a list; write crossover: [ring, tree]'
    ],
    cluster(f"{{devices: 8, {LINK}, slow: [{{link: 5, alpha: 2}}, 3]}}"): [
        "$.cluster.slow[0].link (line 2): 5 is not a list; write link: [0, 1]",
        "$.cluster.slow[1] (line 2): 3 is not a mapping; write {rank: 3, bandwidth: 50%}",
    ],
    "title: x\ncluster: 5\ncollective: 6": [
        "$.cluster (line 2): 5 is not a mapping; write cluster: {devices: 8",
        "$.collective (line 3): 6 is not a mapping; write collective: {name: all_reduce, algorithms: [ring, tree]}",
    ],
    scenario(collective=NO_MESSAGE): [
        "$.collective (line 3): no message is given; write message: 1 MiB here, or sweep it"
    ],
    scenario("sweep: [{message: [1 KiB]}, {devices: [2]}]", collective=NO_MESSAGE): [
        "$.sweep[1] (line 4): no message is given; sweep it here, or write message: under collective:"
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", [pytest.param(text, id=places[0][:60]) for text, places in CASES.items()])
def test_each_problem_has_place_line_rule_and_remedy(text: str, refuse: Refuser) -> None:
    found = refuse(text)
    expected = CASES[text]
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, expected, strict=True):
        assert problem[: len(beginning)] == beginning


def test_everything_wrong_is_told_at_once(refuse: Refuser) -> None:
    text = """\
title: Many mistakes
cluster: {devices: 8, link: {alpha: 5, bandwith: 450 GB/s}}
collective: {name: all_reduce, algorithms: [rign, {rabenseifner: {ordr: far}}, tree, tree], root: 3, dtype: float61}
sweep: {message: {from: 1 KiB, to: 1 GiB, factr: 2}, nodes: [0]}
engine: fast
expect:
  - {crossover: [tree, rabenseifner], along: messag, equals: 19.8 MB, rel: 0.5%}
  - {seconds: {algorithm: tree, mesage: 4 KiB}, equals: 70.02 us}
title: Again
"""
    places = [problem.partition(" (")[0] for problem in refuse(text)]
    assert places == [
        "$.cluster.link.alpha",
        "$.cluster.link.bandwith",
        "$.collective.algorithms[0]",
        "$.collective.algorithms[1].rabenseifner.ordr",
        "$.collective.algorithms[3]",
        "$.collective.dtype",
        "$.collective.root",
        "$.sweep.message.factr",
        "$.sweep.nodes[0]",
        "$.engine",
        "$.expect[0].along",
        "$.expect[1].equals",
        "$.expect[1].seconds.mesage",
        "$.title",
    ]


def test_many_problems_of_a_kind_are_counted(refuse: Refuser) -> None:
    text = scenario(
        "sweep: {devices: {from: 33, to: 63, step: 1}}",
        collective="collective: {name: all_gather, message: 1 MiB, algorithms: [butterfly]}",
    )
    found = refuse(text)
    assert len(found) == 11
    assert "$.sweep (line 4): 21 more points with the like problem" in found


def test_a_sweep_of_large_clusters_that_do_not_fit_is_little_work(refuse: Refuser) -> None:
    text = scenario(
        "sweep: {devices: {from: 60000, to: 65536, step: 1}}",
        collective="collective: {name: all_gather, message: 1 MiB, algorithms: [butterfly]}",
    )
    with counted_calls() as calls:
        found = refuse(text)
    assert calls.count < 10 * 5537  # of the clusters of a sweep that is worn out, most are not looked at
    assert sum("more points with the like problem" in problem for problem in found) == 1


def test_the_file_name_stands_before_each_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("title: x\n")
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert str(caught.value).splitlines()[0].startswith(f"{path}: $ (line 1): the key cluster is missing")


def test_a_long_wrong_file_is_little_work(refuse: Refuser) -> None:
    algorithms = ",\n ".join(f"ring{i}" for i in range(5000))
    values = ",\n ".join("1, 2, 3, x" for _ in range(1200))
    text = scenario(
        f"sweep: {{message: [{values}]}}",
        collective=f"collective: {{name: all_reduce, algorithms: [{algorithms}]}}",
    )
    with counted_calls() as calls:
        found = refuse(text)
    assert calls.count < 500 * 9800  # values in the file
    assert len(found) == 101
    assert found[-1] == "more than 100 problems; mend these first"
