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
    collective, training = schema["else"], schema["then"]
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
