"""The shape of a scenario file: which keys there are and what kind of value each takes.

`json_schema` gives it to editors; loading validates each section with its model. Which of several forms a section has
is decided by its keys before a model sees it, so that an error is always about one form.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from simcollectives.cluster import RankOrder as WrittenOrder
from simcollectives.engines import DTYPES, ENGINES
from simcollectives.errors import UnitError, show_value
from simcollectives.measured import SHIPPED
from simcollectives.metrics import COLLECTIVES
from simcollectives.scenario.keys import (
    BANDWIDTH,
    BYTES,
    COUNT,
    INDEX,
    METRICS,
    NUMBER,
    POINT_KEYS,
    RATIO,
    SECONDS,
    SECONDS_PER_BYTE,
    JsonSchema,
    Kind,
)
from simcollectives.scenario.places import shown

OPTION_KEY = r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$"
RANGE_STEPS = ("factor", "step", "points")


def _reader(kind: Kind) -> BeforeValidator:
    def read(value: object) -> float:
        try:
            return kind.parse(value)
        except UnitError as error:
            raise custom_error(error.problems[0].message) from None

    return BeforeValidator(read)


def custom_error(message: str) -> PydanticCustomError:
    """Return an error whose message reaches the user unchanged."""
    return PydanticCustomError("scenario", "{message}", {"message": message})


Bytes = Annotated[float, _reader(BYTES), WithJsonSchema(BYTES.json_schema)]
Seconds = Annotated[float, _reader(SECONDS), WithJsonSchema(SECONDS.json_schema)]
Bandwidth = Annotated[float, _reader(BANDWIDTH), WithJsonSchema(BANDWIDTH.json_schema)]
SecondsPerByte = Annotated[float, _reader(SECONDS_PER_BYTE), WithJsonSchema(SECONDS_PER_BYTE.json_schema)]
Ratio = Annotated[float, _reader(RATIO), WithJsonSchema(RATIO.json_schema)]
Number = Annotated[float, _reader(NUMBER), WithJsonSchema(NUMBER.json_schema)]
Count = Annotated[int, _reader(COUNT), WithJsonSchema(COUNT.json_schema)]
Rank = Annotated[int, _reader(INDEX), WithJsonSchema(INDEX.json_schema)]


@dataclass(frozen=True)
class Reference:
    """An algorithm as written: a name, or {name: {option: value}}."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def _read_reference(value: object) -> Reference:
    example = "write a name such as ring, or {rabenseifner: {order: far}}"
    if isinstance(value, str):
        return Reference(value)
    if not isinstance(value, dict):
        raise custom_error(f"{shown(value)} is not an algorithm; {example}")
    if len(value) != 1:
        raise custom_error(f"{shown(value)} has {len(value)} keys where one algorithm has one; {example}")
    name, options = next(iter(value.items()))
    if not isinstance(options, dict):
        remedy = "write {name: {option: value}}, or the name alone"
        raise custom_error(f"{shown(options)} are not options of {show_value(name)}; {remedy}")
    return Reference(name, options)


_REFERENCE_SCHEMA: JsonSchema = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "object"}},
    ],
    "description": "An algorithm: its name, or {name: {option: value}}",
    "examples": ["ring", {"rabenseifner": {"order": "far"}}],
}
AlgorithmReference = Annotated[Reference, PlainValidator(_read_reference), WithJsonSchema(_REFERENCE_SCHEMA)]


def _read_rank_order(value: object) -> WrittenOrder:
    if value == "node_major":
        return "node_major"
    if value == "round_robin":
        return "round_robin"
    if isinstance(value, list):
        return tuple(value)
    raise custom_error(f"{shown(value)} is not a rank order; write node_major, round_robin or a list of devices")


_RANK_ORDER_SCHEMA: JsonSchema = {
    "oneOf": [
        {"enum": ["node_major", "round_robin"]},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
    ],
    "description": "Which device each rank sits on: a rule, or the list of devices in rank order",
}
RankOrder = Annotated[WrittenOrder, PlainValidator(_read_rank_order), WithJsonSchema(_RANK_ORDER_SCHEMA)]


class Model(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title=None)


class LinkModel(Model):
    """One direction of a link: n bytes alone take alpha + overhead + n / bandwidth."""

    alpha: Seconds = Field(description="Latency of a message", examples=["5 us"])
    bandwidth: Bandwidth = Field(description="One direction", examples=["450 GB/s", "400 Gb/s"])
    overhead: Seconds = Field(0.0, description="Time that a message occupies the port beside its bytes")


class _ClusterModel(Model):
    gamma: SecondsPerByte | None = Field(None, description="Reduction time per received byte", examples=["2 ps/B"])
    rank_order: RankOrder = "node_major"


class FlatCluster(_ClusterModel):
    """Devices that are all on one kind of link."""

    devices: Count = Field(examples=[8])
    link: LinkModel


class TwoLevelCluster(_ClusterModel):
    """Nodes of several devices: fast links inside, one network port a device between."""

    nodes: Count = Field(examples=[4])
    gpus_per_node: Count = Field(examples=[8])
    intra: LinkModel | None = Field(None, description="Links inside a node; only where gpus_per_node is 1 without")
    inter: LinkModel | None = Field(None, description="Links between nodes; only where nodes is 1 without")


class MachineCluster(_ClusterModel):
    """Nodes of a named machine."""

    machine: str = Field(description="See: simcollectives list machines", examples=["dgx-h100"])
    nodes: Count = Field(1, examples=[4])


class CollectiveModel(Model):
    """What is simulated."""

    name: Literal[COLLECTIVES]  # type: ignore[valid-type]
    algorithms: list[AlgorithmReference] = Field(min_length=1, description="See: simcollectives list algorithms")
    message: Bytes | None = Field(None, description="Bytes of the larger of a rank's buffers", examples=["1 GB"])
    dtype: Literal[tuple(DTYPES)] = "float32"  # type: ignore[valid-type]
    root: Rank | None = Field(None, description="Of broadcast and reduce; rank 0 where it is left out")


def _point_properties(schema: JsonSchema) -> None:
    """Describe the keys of a point beside a model's own."""
    properties = schema.setdefault("properties", {})
    for name, kind in POINT_KEYS.items():
        properties.setdefault(name, kind.json_schema)
    schema["patternProperties"] = {OPTION_KEY: {"type": ["integer", "string"]}}
    schema["additionalProperties"] = False


class PointModel(BaseModel):
    """A mapping that may also hold keys of a point; these are checked apart."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, json_schema_extra=_point_properties)


class SelectorModel(PointModel):
    """One run: an algorithm of the scenario, at a point."""

    algorithm: AlgorithmReference


class ExpectationModel(PointModel):
    """What every expectation may have."""

    because: str | None = Field(None, description="Shown where the expectation fails")


class OrderModel(ExpectationModel):
    """The times of these algorithms are in strictly increasing order."""

    order: list[AlgorithmReference] = Field(min_length=2)
    of: Literal[tuple(METRICS)] = Field("seconds", description="The metric compared")  # type: ignore[valid-type]


def _bounds(kind: Kind) -> dict[str, Any]:
    """Return the fields of a bound in the unit of `kind`, of which one of the first four is given."""
    value = Annotated[float, _reader(kind), WithJsonSchema(kind.json_schema)]
    pair = Annotated[list[value], Field(min_length=2, max_length=2)]
    types = {"equals": value, "at_most": value, "at_least": value, "between": pair, "rel": Ratio, "abs": value}
    return {name: (type_ | None, None) for name, type_ in types.items()}


def _metric_models() -> dict[str, type[ExpectationModel]]:
    models = {}
    for name, kind in METRICS.items():
        fields: dict[str, Any] = {name: (SelectorModel, ...), **_bounds(kind)}
        about = f"{name} of one run is within a bound."
        models[name] = create_model(f"Expect_{name}", __base__=ExpectationModel, __doc__=about, **fields)
    return models


METRIC_MODELS = _metric_models()


class RatioModel(ExpectationModel):
    """The metric of the first run over that of the second is within a bound."""

    ratio: list[SelectorModel] = Field(min_length=2, max_length=2)
    of: Literal[tuple(METRICS)] = Field("seconds", description="The metric compared")  # type: ignore[valid-type]
    equals: Number | None = None
    at_most: Number | None = None
    at_least: Number | None = None
    between: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
    rel: Ratio | None = None
    abs: Number | None = None


def _read_scalar(value: object) -> object:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise custom_error(f"{shown(value)} is not one value; write a number, with the unit of the key")


Scalar = Annotated[Any, PlainValidator(_read_scalar), WithJsonSchema({"type": ["string", "number"]})]


class CrossoverModel(ExpectationModel):
    """The times of two algorithms are equal at exactly one value of a key, which is within a bound."""

    crossover: list[AlgorithmReference] = Field(min_length=2, max_length=2)
    along: str = Field(description="A key of a point, such as message or devices", examples=["message"])
    from_: Scalar | None = Field(None, alias="from", description="Where to begin; the least swept value if left out")
    to: Scalar | None = Field(None, description="Where to end; the largest swept value if left out")
    equals: Scalar | None = None
    at_most: Scalar | None = None
    at_least: Scalar | None = None
    between: Annotated[list[Scalar], Field(min_length=2, max_length=2)] | None = None
    rel: Ratio | None = None
    abs: Scalar | None = None


class MeasuredModel(PointModel):
    """A measured sweep laid over the predictions, and the fit of one link to it."""

    set: str | None = Field(None, description="A shipped set, or one of the file's", examples=list(SHIPPED))
    file: str | None = Field(None, description="A CSV file, relative to the scenario")
    place: Literal["out", "in"] = Field("out", description="Out-of-place or in-place measurements")
    algorithm: AlgorithmReference
    level: str | None = Field(None, description="The level whose link is fitted; the outermost if left out")
    min: Bytes | None = Field(None, description="The least message used")
    max: Bytes | None = Field(None, description="The largest message used")


def _sweep_schema() -> JsonSchema:
    def values(item: JsonSchema) -> JsonSchema:
        amounts: dict[str, JsonSchema] = {
            "factor": {"type": "number", "exclusiveMinimum": 1},
            "step": item,
            "points": {"type": "integer", "minimum": 2},
        }
        ranges = [
            {
                "type": "object",
                "properties": {"from": item, "to": item, how: amounts[how]},
                "required": ["from", "to", how],
                "additionalProperties": False,
            }
            for how in RANGE_STEPS
        ]
        return {"oneOf": [{"type": "array", "items": item, "minItems": 1}, *ranges]}

    option = values({"type": ["integer", "string"]})
    return {
        "type": "object",
        "properties": {name: values(kind.json_schema) for name, kind in POINT_KEYS.items()},
        "patternProperties": {OPTION_KEY: option},
        "additionalProperties": False,
        "minProperties": 1,
        "description": "All combinations of the values of these keys, the last key fastest",
        "examples": [{"message": {"from": "1 KiB", "to": "1 GiB", "factor": 2}}],
    }


Sweeps = Annotated[
    Any,
    WithJsonSchema({"oneOf": [_sweep_schema(), {"type": "array", "items": _sweep_schema(), "minItems": 1}]}),
]
AnyExpectation: Any = OrderModel | CrossoverModel | RatioModel
for _model in METRIC_MODELS.values():
    AnyExpectation |= _model


class ScenarioModel(Model):
    """A question to the simulator: a cluster, a collective, what to vary, and what is expected."""

    title: str = Field(min_length=1)
    description: str | None = None
    cluster: FlatCluster | TwoLevelCluster | MachineCluster
    collective: CollectiveModel
    sweep: Sweeps | None = None
    engine: Literal[ENGINES] = "auto"  # type: ignore[valid-type]
    verify: Literal["auto", "always", "never"] = Field(
        "auto", description="Execute runs on arrays: auto is up to 64 ranks and 1 MiB"
    )
    expect: list[AnyExpectation] | None = Field(None, description="What must hold")
    measured: MeasuredModel | None = None
    timeline: SelectorModel | list[SelectorModel] | None = Field(None, description="Runs to draw, transfer by transfer")
    contributions: SelectorModel | None = Field(None, description="A run whose chunks are followed round by round")


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


_SHARED = {kind.name: kind.json_schema for kind in (*POINT_KEYS.values(), RATIO, NUMBER)}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of scenario files."""
    described = ScenarioModel.model_json_schema(by_alias=True, schema_generator=_Generator)
    definitions = {**_SHARED, **_with_shared(described.pop("$defs"))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_with_shared(described),
        "title": "simcollectives scenario",
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
