"""Files with ``numerics:``: what they say, and every mistake with its place, line, rule and remedy."""

from __future__ import annotations

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import pytest

from simcollectives.scenario import NumericsScenario, json_schema
from simcollectives.scenario.yaml_text import parse_document
from simcollectives.training.numerics import Network, NumericsPlan
from tests.scenario.conftest import Loader, Refuser

HEAD = "title: x\ncluster: {devices: 4, link: {alpha: 5 us, bandwidth: 450 GB/s}}\n"
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def numerics(load: Loader, text: str, head: str = HEAD) -> NumericsScenario:
    scenario = load(head + text)
    assert isinstance(scenario, NumericsScenario)
    return scenario


def test_an_empty_section_is_the_plan_of_the_package(load: Loader) -> None:
    settings = numerics(load, "numerics: {}").numerics
    assert settings.plans == {"ddp": NumericsPlan()}
    assert settings.record == (200,)


def test_every_key_arrives(load: Loader) -> None:
    text = """\
numerics:
  strategy: ddp
  algorithm: {hierarchical: {inter: tree}}
  optimizer: adam
  learning_rate: 0.001
  samples: 12
  shards: [3, 3, 2, 4]
  accumulation: 2
  bucket: 4 KiB
  gradient_dtype: float32
  batch_norm: local
  mistake: left_out_parameter
  left_out: output.bias
  seed: 7
  steps: 9
  record: [1, 9]
"""
    head = HEAD.replace(
        "devices: 4, link:", "nodes: 2, gpus_per_node: 2, intra: {alpha: 1 us, bandwidth: 1 GB/s}, inter:"
    )
    settings = numerics(load, text, head).numerics
    plan = settings.plans["ddp"]
    assert plan.options["inter"] == "tree"
    assert settings.record == (1, 9)
    assert plan == NumericsPlan(
        algorithm="hierarchical",
        options=plan.options,
        optimizer="adam",
        learning_rate=0.001,
        samples=12,
        shards=(3, 3, 2, 4),
        accumulation=2,
        bucket_bytes=4096,
        gradient_dtype="float32",
        network=Network(batch_norm="local"),
        mistake="left_out_parameter",
        left_out="output.bias",
        seed=7,
        steps=9,
    )


def test_a_strategy_with_options(load: Loader) -> None:
    plans = numerics(load, "numerics: {strategy: {hsdp: {shard_size: 4}}, variants: {a: {}, b: {strategy: zero1}}}")
    assert plans.numerics.plans == {
        "a": NumericsPlan(strategy="hsdp", strategy_options={"shard_size": 4}),
        "b": NumericsPlan(strategy="zero1"),
    }


def test_variants_differ_from_the_section_in_what_they_say(load: Loader) -> None:
    text = """\
numerics:
  mistake: no_all_reduce
  steps: 3
  variants: {as it is: {}, right: {mistake: none}, in parts: {accumulation: 2, algorithm: tree}}
"""
    plans = numerics(load, text).numerics.plans
    base = NumericsPlan(steps=3, mistake="no_all_reduce")
    assert list(plans) == ["as it is", "right", "in parts"]
    assert plans["as it is"] == base
    assert plans["right"] == NumericsPlan(steps=3)
    assert plans["in parts"] == NumericsPlan(steps=3, mistake="no_all_reduce", accumulation=2, algorithm="tree")


TWO = "numerics: {variants: {a: {}, b: {}}, record: [1, 200]}\nexpect:\n"
BAD: dict[str, list[str]] = {
    "numerics: 3": ["$.numerics (line 3): 3 is not a mapping; write numerics: {algorithm: ring, steps: 200}"],
    "numerics:": ["$.numerics (line 3): no value stands here; write one, or leave it out"],
    "numerics: {stepz: 3, bucket: 4, mistake: foo, shards: [1, x], record: [0]}": [
        '$.numerics.bucket (line 3): 4 has no unit; write "4 B"',
        '$.numerics.mistake (line 3): "foo" is unknown; known: none, mean_of_means, no_all_reduce, left_out_parameter',
        "$.numerics.record[0] (line 3): 0 is not a size; write a whole number from 1 to 1000000",
        '$.numerics.shards[1] (line 3): "x" is not a size; write a whole number from 1',
        '$.numerics.stepz (line 3): unknown key; did you mean "steps"?',
    ],
    "numerics: {algorithm: rong}": [
        '$.numerics.algorithm (line 3): all_reduce has no algorithm "rong"; did you mean "ring"?'
    ],
    "numerics: {algorithm: {hierarchical: {foo: 1}}}": [
        '$.numerics.algorithm.hierarchical.foo (line 3): hierarchical has no option "foo"; it has: intra, inter'
    ],
    "numerics: {samples: 3}": ["$.numerics.samples (line 3): 3 samples for 4 ranks x 1 micro-batches; every"],
    "numerics: {shards: [1, 2, 3]}": ["$.numerics.shards (line 3): [1, 2, 3] does not fit; write 4 whole numbers"],
    "numerics: {record: [5, 3]}": ["$.numerics.record (line 3): [5, 3] are not in order; write each step once"],
    "numerics: {record: [300]}": ["$.numerics.record (line 3): [300] are not all steps; steps are 1 to 200"],
    "numerics: {steps: 1000001}": [
        "$.numerics.steps (line 3): 1000001 is not a size; write a whole number from 1 to 1000000"
    ],
    "numerics: {bucket: 4.5 B}": ["$.numerics.bucket (line 3): 4.5 is not valid; write a whole number"],
    "numerics: {learning_rate: 0}": ["$.numerics.learning_rate (line 3): 0 is no rate; write a number above 0"],
    "numerics: {left_out: output.bias}": ["$.numerics.left_out (line 3): output.bias: no mistake leaves it out; write"],
    "numerics: {mistake: left_out_parameter, left_out: foo}": [
        '$.numerics.left_out (line 3): "foo" is not known; write one of: hidden.weight, hidden.bias'
    ],
    "numerics: {strategy: fsdp}": ['$.numerics.strategy (line 3): "fsdp" is not a strategy; did you mean "fsdp2"?'],
    "numerics: {strategy: {hsdp: {shard_sise: 2}}}": [
        '$.numerics.strategy.hsdp.shard_sise (line 3): hsdp has no option "shard_sise"; did you mean "shard_size"?'
    ],
    "numerics: {strategy: [zero1]}": [
        "$.numerics.strategy (line 3): [zero1] is not a strategy; write a name such as zero1, or {hsdp: "
    ],
    "numerics: {bucket: 1 KiB, variants: {a: {strategy: zero3}, b: {strategy: {hsdp: {}}, bucket: 1 B}}}": [
        "$.numerics.bucket (line 3): zero3 reduces unit by unit, not in buckets; leave it out",
        "$.numerics.variants.b.bucket (line 3): hsdp reduces unit by unit, not in buckets; leave it out",
    ],
    "numerics: {strategy: {hsdp: {shard_size: 3}}}": [
        "$.numerics.strategy (line 3): hsdp: shard: 4 ranks cannot be divided into groups of 3; take a divisor of 4"
    ],
    "numerics: {algorithm: tree, strategy: zero1}": [
        '$.numerics.algorithm (line 3): zero1: reduce_scatter has no algorithm "tree"; it has: '
    ],
    "numerics: {variants: {}}": ["$.numerics.variants (line 3): 0 entries; write at least 1"],
    "numerics: {variants: {a: {steps: 3}, b: {mistake: nope}}}": [
        "$.numerics.variants.a.steps (line 3): unknown key; known keys: strategy, algorithm, ",
        '$.numerics.variants.b.mistake (line 3): "nope" is unknown; did you mean "none"?',
    ],
    "numerics: {variants: {a: {shards: [1]}, b: {algorithm: trea}, c: {left_out: output.bias}}}": [
        "$.numerics.variants.a.shards (line 3): [1] does not fit; write 4 whole numbers",
        '$.numerics.variants.b.algorithm (line 3): all_reduce has no algorithm "trea"; did you mean "tree"?',
        "$.numerics.variants.c.left_out (line 3): output.bias: no mistake leaves it out; write",
    ],
    "numerics: {steps: 2}\nsweep: {devices: [2, 4]}\nskew: 3\ncollective: {}": [
        "$.sweep (line 4): sweep belongs to a training step or a collective; leave it out",
        "$.skew (line 5): skew belongs to a collective; leave it out",
        "$.collective (line 6): a scenario is about training in numbers or about a collective; leave one out",
    ],
    TWO
    + """\
- {bit_identical: {}, equals: true}
- {bit_identical: {variant: a}, equals: true}
- {bit_identical: {variant: c, step: 1}, equals: true}
- {bit_identical: {variant: a, step: 2}, equals: 2}
- {bytes_sent_max: {variant: a, step: 1}, at_most: 5}
- {loss: {variant: a, step: 1}, equals: 1}
- {los: {variant: a, step: 1}, equals: 1, abs: 0}
- {crossover: [a, b], along: step, equals: 3}
- {order: [a, zz], step: 1}
- {loss: {variant: a, step: 1, devices: 4}, at_most: 1}
- {loss: {variant: a, step: 1}, at_most: 1 s}
- {loss: {variant: 5, step: 1}, at_most: 1}
- {ratio: [{variant: a}, {variant: b}], step: 1}
""": [
        "$.expect[0].bit_identical (line 5): nothing says which variant is meant; write variant: with one of a, b",
        "$.expect[1].bit_identical (line 6): nothing says which step is meant; write step: with one of 1, 200",
        '$.expect[2].bit_identical (line 7): "c" is no variant of this scenario; it has: a, b',
        "$.expect[3].bit_identical (line 8): step 2 is not recorded; add it to record:, or write one of 1, 200",
        "$.expect[3].equals (line 8): 2 is neither true nor false; write one of them, or 1 or 0",
        '$.expect[4].at_most (line 9): 5 has no unit; write "5 B"',
        "$.expect[5].equals (line 10): equals has no tolerance; write rel: 0.1%, or abs: 3",
        '$.expect[6].los (line 11): unknown key; did you mean "loss"?',
        "$.expect[7] (line 12): nothing says what is expected; write one of ratio, order, difference_from_one_device",
        '$.expect[8].order[1] (line 13): "zz" is no variant of this scenario; it has: a, b',
        "$.expect[9].loss.devices (line 14): unknown key; known keys: variant, step",
        '$.expect[10].at_most (line 15): "1 s" is text; write a bare number, such as 3',
        "$.expect[11].loss.variant (line 16): 5 is not the name of a variant; write one as under variants:",
        "$.expect[12] (line 17): no bound is given; write one of equals",
    ],
}


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=[text[:40] for text in BAD])
def test_all_problems_at_once(refuse: Refuser, text: str, expected: list[str]) -> None:
    found = refuse(HEAD + text)
    assert len(found) == len(expected), found
    for problem, start in zip(found, expected, strict=True):
        assert problem.startswith(start)


def test_the_ranks_are_the_clusters(refuse: Refuser) -> None:
    many = HEAD.replace("devices: 4", "devices: 100000")
    (problem,) = refuse(many + "numerics: {}")
    assert problem.startswith(
        "$.cluster (line 2): number of ranks: 100000 is not valid; write a whole number, 1 to 65536"
    )


def test_a_misspelt_section_is_recognised(refuse: Refuser) -> None:
    assert '$.numeric (line 3): unknown key; did you mean "numerics"?' in refuse(HEAD + "numeric: {steps: 3}")


def test_the_schema_knows_the_section() -> None:
    good = "numerics: {steps: 3, variants: {a: {mistake: no_all_reduce}}}\n"
    good += "expect: [{bit_identical: {variant: a, step: 3}, equals: false}, {order: [a, a], of: loss, step: 3}]"
    assert list(VALIDATOR.iter_errors(parse_document(HEAD + good, "x").data)) == []
    sharded = good.replace("mistake: no_all_reduce", "strategy: {hsdp: {shard_size: 2}}")
    assert list(VALIDATOR.iter_errors(parse_document(HEAD + sharded, "x").data)) == []
    assert list(VALIDATOR.iter_errors(parse_document(HEAD + sharded.replace("hsdp", "fsdp"), "x").data))
    for old, new in (("no_all_reduce", "none_at_all"), ("steps: 3,", "stepz: 3,"), ("of: loss", "of: seconds")):
        assert list(VALIDATOR.iter_errors(parse_document(HEAD + good.replace(old, new), "x").data))
