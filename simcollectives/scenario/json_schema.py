"""The JSON Schema of scenario files, for editors."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from simcollectives.scenario.keys import KEY_PATTERNS, NUMBER, POINT_KEYS, RATIO
from simcollectives.scenario.numerics.schema import NumericsFile
from simcollectives.scenario.schema import ScenarioModel
from simcollectives.scenario.schema_values import Model
from simcollectives.scenario.training.schema import TrainingFile


class _Generator(GenerateJsonSchema):
    """Leaves null out: no key of a scenario takes it, a key without a value is left out instead."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema without the null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema without a default of null."""
        described = super().default_schema(schema)
        if described.get("default", ...) is None:
            del described["default"]
        return described


_SHARED = {kind.name: kind.json_schema for kind in (*POINT_KEYS.values(), *KEY_PATTERNS.values(), RATIO, NUMBER)}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of scenario files.

    Of a training step where there is ``training:``, of training in numbers where there is ``numerics:``.
    """
    models: tuple[type[Model], ...] = (TrainingFile, NumericsFile, ScenarioModel)
    described = [model.model_json_schema(by_alias=True, schema_generator=_Generator) for model in models]
    definitions = dict(_SHARED)
    for one in described:
        definitions |= _with_shared(one.pop("$defs"))
    training, numerics, collective = (_with_shared(one) for one in described)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "simcollectives scenario",
        "type": "object",
        "if": {"required": ["training"]},
        "then": training,
        "else": {"if": {"required": ["numerics"]}, "then": numerics, "else": collective},
        "$defs": definitions,
    }


def _with_shared(node: Any) -> Any:
    """Return a schema in which every kind of number is described once, under ``$defs``."""
    for name, schema in _SHARED.items():
        if node == schema:
            return {"$ref": f"#/$defs/{name}"}
    if isinstance(node, dict):
        return {key: _with_shared(value) for key, value in node.items()}
    return [_with_shared(item) for item in node] if isinstance(node, list) else node
