# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""What is wrong with expectations and the sections after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Refuser = Callable[[str], list[str]]

FLAT = "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}"
COLLECTIVE = "collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, tree, {rabenseifner: {order: far}}]}"


SWEEP = "{set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring}"


def scenario(*lines: str) -> str:
    return "\n".join(["title: A test", FLAT, COLLECTIVE, *lines])


CASES = {
    # expectations
    scenario("expect: [{seconds: {algorithm: ring}, equals: 5 us}]"): [
        '$.expect[0].equals (line 4): equals has no tolerance; write rel: 0.1%, or abs: "5 us"'
    ],
    scenario("expect: [{seconds: {algorithm: ring}, equals: 5 us, rel: 1%, abs: 1 us}]"): [
        '$.expect[0].equals (line 4): rel and abs cannot stand together; write rel: 0.1%, or abs: "5 us"'
    ],
    scenario("expect: [{seconds: {algorithm: ring}}]"): [
        "$.expect[0] (line 4): no bound is given; write one of equals (with rel or abs), at_most, at_least, between"
    ],
    scenario("expect: [{seconds: {algorithm: ring}, at_most: 5 us, rel: 1%}]"): [
        "$.expect[0].rel (line 4): a tolerance belongs to equals, not to at_most; leave it out"
    ],
    scenario("expect: [{seconds: {algorithm: ring}, at_most: 5 us, at_least: 1 us}]"): [
        "$.expect[0] (line 4): at_most and at_least cannot stand together; write one of"
    ],
    scenario("expect: [{seconds: {algorithm: ring}, between: [5 us, 1 us]}]"): [
        "$.expect[0].between (line 4): the range ends below its beginning; swap the two values"
    ],
    scenario("expect: [{seconds: {algorithm: ring}, at_most: 5}]"): [
        '$.expect[0].at_most (line 4): 5 has no unit; write "5 us"'
    ],
    scenario("expect: [{seconds: {algorithm: ring}, at_most: 5 GB}]"): [
        '$.expect[0].at_most (line 4): "5 GB" is a number of bytes, not a time; write'
    ],
    scenario("expect: [{rounds: {algorithm: ring}, equals: 14 rounds, abs: 0}]"): [
        '$.expect[0].equals (line 4): "14 rounds" is text; write a bare number, such as 3'
    ],
    scenario("expect: [{seconds: {algorithm: butterfly}, at_most: 5 us}]"): [
        '$.expect[0].seconds (line 4): "butterfly" is no algorithm of this scenario; it has: ring, tree, rabenseifner (order: far)'
    ],
    scenario("expect: [{seconds: {algorithm: rign}, at_most: 5 us}]"): [
        '$.expect[0].seconds (line 4): "rign" is no algorithm of this scenario; did you mean "ring"?'
    ],
    scenario("expect: [{seconds: {algorithm: {rabenseifner: {order: near}}}, at_most: 5 us}]"): [
        "$.expect[0].seconds (line 4): no entry has these options; name one of rabenseifner (order: far)"
    ],
    scenario("expect: [{seconds: {algorithm: ring, collective: all_gather}, at_most: 5 us}]"): [
        "$.expect[0].seconds.collective (line 4): every run is of the scenario's own collective; leave it out"
    ],
    scenario("expect: [{secnds: {algorithm: ring}, at_most: 5 us}]"): [
        '$.expect[0].secnds (line 4): unknown key; did you mean "seconds"?'
    ],
    scenario("expect: [{power: {algorithm: ring}, at_most: 5 us}]"): [
        "$.expect[0] (line 4): nothing says what is expected; write one of crossover, ratio, order, seconds"
    ],
    scenario("expect: [{bytes_sent_max_inter: {algorithm: ring}, at_most: 5 GB}]"): [
        "$.expect[0].bytes_sent_max_inter (line 4): a flat cluster has no links between nodes; write bytes_sent_max"
    ],
    scenario("expect: [{seconds: {algorithm: ring}, busbw: {algorithm: ring}, at_most: 5 us}]"): [
        "$.expect[0] (line 4): seconds and busbw are subjects of two expectations; write each on a line of its own"
    ],
    scenario("expect: [{seconds: {message: 1 KiB}, at_most: 5 us}]"): [
        "$.expect[0].seconds (line 4): the key algorithm is missing; write algorithm: ring"
    ],
    scenario("expect: [{seconds: {algorithm: ring, mesage: 1 KiB}, at_most: 5 us}]"): [
        '$.expect[0].seconds.mesage (line 4): unknown key; did you mean "message"?'
    ],
    scenario("expect: [{seconds: {algorithm: ring, nodes: 2}, at_most: 5 us}]"): [
        "$.expect[0].seconds.nodes (line 4): a flat cluster has no key nodes; vary devices"
    ],
    scenario("expect: [{seconds: {algorithm: ring, devices: 0}, at_most: 5 us}]"): [
        "$.expect[0].seconds.devices (line 4): 0 is not a count; write a whole number from 1 to 1048576"
    ],
    scenario("expect: [{seconds: {algorithm: ring, message: 5 B}, at_most: 5 us}]"): [
        "$.expect[0].seconds.message (line 4): 5 B is not a whole number of float32 elements of 4 B; write 4 B or 8 B"
    ],
    scenario(
        "sweep: {devices: [4, 8]}",
        "expect: [{seconds: {algorithm: ring}, at_most: 5 us}]",
    ): ["$.expect[0].seconds (line 5): the scenario sweeps devices (4, 8); name one value here, swept or not"],
    scenario("expect: [{order: [ring]}]"): ["$.expect[0].order (line 4): 1 entry; write at least 2"],
    scenario("expect: [{order: [ring, tree], rel: 1%}]"): [
        "$.expect[0].rel (line 4): order takes no rel; leave the key out"
    ],
    scenario("expect: [{order: [ring, tree], of: power}]"): ['$.expect[0].of (line 4): "power" is unknown; known:'],
    scenario("expect: [{ratio: [{algorithm: ring}], at_most: 2}]"): [
        "$.expect[0].ratio (line 4): 1 entry; write at least 2"
    ],
    scenario("expect: [{crossover: [ring, tree], along: message, at_most: 1 MB}]"): [
        "$.expect[0] (line 4): the scenario does not sweep message; write from: and to: with the values to look between"
    ],
    scenario("expect: [{crossover: [ring, ring], along: message, from: 1 KiB, to: 1 MiB, at_most: 1 MB}]"): [
        "$.expect[0].crossover (line 4): ring does not cross itself; name two algorithms"
    ],
    scenario("expect: [{crossover: [ring, tree], along: time, at_most: 1 MB}]"): [
        "$.expect[0].along (line 4): unknown key; known keys: message, devices, link.alpha"
    ],
    scenario("expect: [{crossover: [ring, tree], along: message, from: 1 MiB, to: 1 MiB, at_most: 1 MB}]"): [
        "$.expect[0] (line 4): between 1 MiB and 1 MiB nothing can cross; write from: and to: wider apart"
    ],
    scenario("expect: [{crossover: [ring, tree], along: message, from: 1 KiB, to: 1 MiB, equals: 1 us, rel: 1%}]"): [
        '$.expect[0].equals (line 4): "1 us" is a time, not a number of bytes; write'
    ],
    scenario("expect: {seconds: {algorithm: ring}, at_most: 5 us}"): [
        "$.expect (line 4): {seconds: {algorithm: ring}, at_most: 5 us} is not a list; write one expectation a line"
    ],
    scenario("expect: [5]"): ["$.expect[0] (line 4): 5 is not an expectation; write {seconds: "],
    # the rest
    scenario("engine: warp"): ['$.engine (line 4): "warp" is unknown; known: auto, '],
    scenario("verify: yes"): ['$.verify (line 4): "yes" is unknown; known: auto, always, never'],
    scenario("verify: always").replace("1 MiB", "1 GiB"): [
        "$.collective.algorithms[0] (line 3): executing needs 24 GiB, at most 8 GiB are taken; write verify: auto",
        "$.collective.algorithms[1] (line 3): executing needs 24 GiB",
        "$.collective.algorithms[2] (line 3): executing needs 24 GiB",
    ],
    scenario("enigne: auto"): ['$.enigne (line 4): unknown key; did you mean "engine"?'],
    scenario("training: {model: gpt}"): [
        "$.collective (line 3): a scenario is about a training step or about a collective; leave one out",
        "$.training (line 4): compute takes its time from mfu, or from layer_seconds; write one of them",
        "$.training (line 4): no strategy is named; write strategy: ddp",
        '$.training.model (line 4): "gpt" is not a known model; ',
    ],
    scenario("engine:"): ["$.engine (line 4): no value stands here; write one, or leave it out"],
    scenario("{engine:auto}".strip("{}")): ["$ (line 4): "],
    "{title: x, cluster:8}": [
        "$ (line 1): the key collective is missing; write collective: {name: all_reduce",
        '$["cluster:8"] (line 1): unknown key; write a space after the colon: "cluster: ..."',
    ],
    f"title: ''\n{FLAT}\n{COLLECTIVE}": [
        "$.title (line 1): the text is empty; write title: Ring against tree on 8 GPUs"
    ],
    f"title: 5\n{FLAT}\n{COLLECTIVE}": ["$.title (line 1): 5 is not text; put it in quotes"],
    scenario("timeline: {algorithm: ring}", "engine: lockstep"): ["$.timeline (line 4): lockstep has no timeline; "],
    scenario("timeline: [{algorithm: rung}]"): [
        '$.timeline[0] (line 4): "rung" is no algorithm of this scenario; did you mean "ring"?'
    ],
    scenario("timeline: {algorithm: ring, devices: 2000}"): [
        "$.timeline (line 4): more than 100000 transfers are too many to draw; "
    ],
    scenario("contributions: {algorithm: ring, devices: 32}"): [
        "$.contributions (line 4): 32 ranks are too many to print, at most 16; take a smaller cluster"
    ],
    scenario("measured: {set: h100, algorithm: ring}"): [
        '$.measured.set (line 4): "h100" is no shipped set; shipped are: '
    ],
    scenario("measured: {algorithm: ring}"): ["$.measured (line 4): no measured set is named; shipped are: "],
    scenario("measured: {file: nothing.csv, algorithm: ring}"): [
        "$.measured.file (line 4): nothing.csv: there is no such file; mend the path"
    ],
    scenario("measured: {set: aic_h100_sxm_1n8_all_gather, algorithm: ring}"): [
        "$.measured.set (line 4): aic_h100_sxm_1n8_all_gather measured all_gather, the scenario simulates all_reduce"
    ],
    scenario("measured: {set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring, devices: 4}"): [
        "$.measured.set (line 4): h100_1n8_aws_p5_allreduce_auto ran on 8 GPUs, the cluster has 4"
    ],
    scenario("measured: {set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring, level: inter}"): [
        '$.measured.level (line 4): "inter" is no level of this cluster; it has: link'
    ],
    scenario("measured: []"): ["$.measured (line 4): an empty list measures nothing; write {set: "],
    scenario("measured: [ring]"): ['$.measured[0] (line 4): "ring" is not a mapping; write {set: '],
    scenario(f"measured: [{SWEEP}, {SWEEP[:-1]}, devices: 8}}]"): [
        "$.measured[1] (line 4): the same as $.measured[0]; leave one of them out"
    ],
    scenario(f"measured: [{SWEEP}, {{set: h100, algorithm: rung}}]"): [
        '$.measured[1].algorithm (line 4): "rung" is no algorithm of this scenario',
        '$.measured[1].set (line 4): "h100" is no shipped set; shipped are: ',
    ],
    scenario("expect: [{median_error: {algorithm: ring}, at_most: 10%}]"): [
        "$.expect[0].median_error (line 4): nothing is measured, so that there are no errors; write measured: in the"
    ],
    scenario(f"measured: {SWEEP}\nexpect: [{{median_error: {{devices: 4}}, at_most: 10%}}]"): [
        "$.expect[0].median_error (line 5): none of what is measured is there; measured: has ring at the point as written (set: h100_"
    ],
    scenario(f"measured: {SWEEP}\nexpect: [{{p90_error: {{set: other, messages: tiny}}, at_most: 10}}]"): [
        '$.expect[0].p90_error.messages (line 5): "tiny" is unknown; known: small, middle, large',
    ],
    scenario(f"measured: {SWEEP[:-1]}, min: 8 MiB}}\nexpect: [{{p90_error: {{messages: small}}, at_most: 10%}}]"): [
        '$.expect[0].p90_error (line 5): no measured message is small, below 64 KiB; take "large"'
    ],
    scenario(f"measured: {SWEEP}\nexpect: [{{largest_error: {{message: 8 B}}, at_most: 1%, rel: 1%}}]"): [
        "$.expect[0].largest_error (line 5): errors are of many messages; take a range: messages: large",
        "$.expect[0].rel (line 5): a tolerance belongs to equals, not to at_most; leave it out",
    ],
    scenario("measured: {file: one.csv, algorithm: ring}"): [
        "$.measured (line 4): 1 measured point is left; a fit needs 3: measure more messages"
    ],
    scenario("measured: {file: wrong.csv, algorithm: ring}"): [
        f'$.measured.file (line 4): wrong.csv: time_us (line {line}): "x" is no time' for line in (9, 10)
    ],
    scenario("measured: {file: three.csv, algorithm: ring, devices: 1}"): [
        "$.measured (line 4): one rank moves nothing, so that no time is predicted; name a point of 2 ranks or more"
    ],
    scenario("measured: {file: three.csv, algorithm: ring, rabenseifner.order: far}"): [
        '$.measured["rabenseifner.order"] (line 4): ring does not take it from the point; leave it out'
    ],
    scenario(
        "sweep: {rabenseifner.order: [near, far]}",
        "measured: {file: three.csv, algorithm: {rabenseifner: {order: near}}, rabenseifner.order: far}",
    ).replace("{rabenseifner: {order: far}}]", "rabenseifner]"): [
        '$.measured["rabenseifner.order"] (line 5): far, but the algorithm is named with near; leave one of them out'
    ],
    scenario("measured: {set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring, min: 1 TiB}"): [
        "$.measured (line 4): 0 measured points are left; a fit needs 3 of 8 B to 16 GiB: widen min and max"
    ],
}


@pytest.mark.parametrize("text", [pytest.param(text, id=places[0][:60]) for text, places in CASES.items()])
def test_each_problem_has_place_line_rule_and_remedy(text: str, refuse: Refuser, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("set,size_bytes,time_us,place\nmine,8,1,out\n")
    rows = "".join(f"mine,{2**line},{'x' if line >= 9 else 1},out\n" for line in range(2, 11))
    (tmp_path / "wrong.csv").write_text(f"set,size_bytes,time_us,place\n{rows}")
    (tmp_path / "three.csv").write_text("set,size_bytes,time_us,place\nmine,8,1,out\nmine,16,1,out\nmine,32,1,out\n")
    found = refuse(text)
    expected = CASES[text]
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, expected, strict=True):
        assert problem[: len(beginning)] == beginning
