"""The JSON Schema describes what loads, to editors."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped, unused-ignore]
import pytest

from simcollectives.scenario import json_schema
from simcollectives.scenario.yaml_text import parse_document, read_document

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_is_valid_and_describes_every_top_level_key() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    collective, training = schema["else"]["else"], schema["then"]
    assert schema["if"] == {"required": ["training"]}
    assert collective["required"] == ["title", "cluster", "collective"]
    assert set(collective["properties"]) > {"sweep", "engine", "verify", "expect", "measured", "timeline"}
    assert training["required"] == ["title", "cluster", "training"]
    assert set(training["properties"]) > {"sweep", "expect", "timeline"}
    assert "null" not in json.dumps(schema)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_scenario_fits_it(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(read_document(path).data)] == []


@pytest.mark.parametrize(
    "change",
    [
        ("450 GB/s", "450"),
        ("devices: 8", "devices: 0"),
        ("devices: 8", "device: 8"),
        ("[ring]", "[]"),
        ("all_reduce", "all_reduse"),
        ("{message: [1 KiB]}", "{mesage: [1 KiB]}"),
        ("{message: [1 KiB]}", "{message: 1 KiB}"),
        ("rel: 1%", "rel: 1 us"),
        ("title: x", "titel: x"),
        ("{message: [1 KiB]}", "{message: [1 KiB], leaf.oversubscription: [1 GB]}"),
        ("{message: [1 KiB]}", "{message: [1 KiB], leaf.oversubscription: [0.5]}"),
        ("{message: [1 KiB]}", "{message: [1 KiB], slow.0.bandwith: [50%]}"),
        ("{message: [1 KiB]}", "{message: [1 KiB], slow.x.bandwidth: [50%]}"),
        ("{message: [1 KiB]}", "{message: [1 KiB], jitter.alpha.normal: [5%]}"),
        ("{message: [1 KiB]}", "{message: [1 KiB], rail.lanes: [5]}"),
        ("message: 1 KiB}", "message: 1 KiB, torus.0: 1.5}"),
    ],
)
def test_common_mistakes_do_not_fit_it(change: tuple[str, str]) -> None:
    text = """\
title: x
cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [ring]}
sweep: {message: [1 KiB]}
expect: [{seconds: {algorithm: ring, message: 1 KiB}, equals: 70 us, rel: 1%}]
"""
    assert VALIDATOR.is_valid(parse_document(text, "x").data)
    assert not VALIDATOR.is_valid(parse_document(text.replace(*change), "x").data)


def test_keys_of_all_sections_fit_it() -> None:
    keys = (
        "leaf.oversubscription: [1, 2.5], pcie_switch.bandwidth: [63 GB/s], nics_per_node: [1, 2], rail.size: [2, 4], "
        "rail.bandwidth: {from: 1 GB/s, to: 4 GB/s, factor: 2}, torus.0: [2, 4], slow.0.bandwidth: [50%, 0.1], "
        "slow.11.rank: [0, 3], slow.2.link.1: [4], skew.random: [20 us], skew.ranks.3: [0 us], seed: [1, 2], "
        "jitter.alpha.lognormal: [0%, 0.5], jitter.reduction.gamma: [5%], seeds: [10, 100], ring.x: [1, word], "
        "time.loggp.gap: [1 us], time.loggp.threshold: [64 KiB], time.loggp.overhead: [0 us]"
    )
    text = f"""\
title: x
cluster: {{devices: 8, link: {{alpha: 5 us, bandwidth: 450 GB/s}}}}
collective: {{name: all_reduce, algorithms: [ring]}}
sweep: {{{keys}}}
expect: [{{seconds: {{algorithm: ring, slow.0.bandwidth: 50%, rail.size: 4}}, at_most: 70 us, seeds: 3}}]
"""
    assert [error.message for error in VALIDATOR.iter_errors(parse_document(text, "x").data)] == []
