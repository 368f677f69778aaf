"""The shape of a scenario file: which keys there are and what kind of value each takes.

`json_schema` gives it to editors; loading validates each section with its model. Which of several forms a section has
is decided by its keys before a model sees it, so that an error is always about one form.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, create_model

from simcollectives.engines import DTYPES, ENGINES
from simcollectives.measured import SHIPPED
from simcollectives.measured.spread import RANGES, STATISTICS
from simcollectives.metrics import COLLECTIVES
from simcollectives.scenario.keys import (
    ANY_SECONDS,
    KEY_PATTERNS,
    METRICS,
    OPTION_PATTERN,
    POINT_KEYS,
    RATIO,
    JsonSchema,
    Kind,
)
from simcollectives.scenario.places import shown
from simcollectives.scenario.schema_cluster import AnyCluster
from simcollectives.scenario.schema_nccl import Label, NcclModel
from simcollectives.scenario.schema_values import (
    AlgorithmReference,
    Bytes,
    JitterReference,
    Model,
    Number,
    Rank,
    RankSeconds,
    Ratio,
    Seconds,
    Seed,
    Seeds,
    custom_error,
    reader,
)

_KEY_SCHEMAS: JsonSchema = {
    **{f"^{pattern}$": kind.json_schema for pattern, kind in KEY_PATTERNS.items()},
    f"^{OPTION_PATTERN}$": {"type": ["integer", "string", "boolean"]},
}
RANGE_STEPS = ("factor", "step", "points")


class CollectiveModel(Model):
    """What is simulated."""

    name: Literal[COLLECTIVES]  # type: ignore[valid-type]
    algorithms: list[AlgorithmReference] = Field(min_length=1, description="See: simcollectives list algorithms")
    message: Bytes | None = Field(None, description="Bytes of the larger of a rank's buffers", examples=["1 GB"])
    dtype: Literal[tuple(DTYPES)] = "float32"  # type: ignore[valid-type]
    root: Rank | None = Field(None, description="Of broadcast and reduce; rank 0 where it is left out")


def point_properties(keys: Mapping[str, Kind]) -> Callable[[JsonSchema], None]:
    """Return what describes the keys of a point beside a model's own."""

    def describe(schema: JsonSchema) -> None:
        properties = schema.setdefault("properties", {})
        for name, kind in keys.items():
            properties.setdefault(name, kind.json_schema)
        schema["patternProperties"] = _KEY_SCHEMAS
        schema["additionalProperties"] = False

    return describe


class PointModel(BaseModel):
    """A mapping that may also hold keys of a point; these are checked apart."""

    model_config = ConfigDict(
        extra="allow", strict=True, frozen=True, defer_build=True, json_schema_extra=point_properties(POINT_KEYS)
    )


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


def bound_fields(kind: Kind) -> dict[str, Any]:
    """Return the fields of a bound in the unit of `kind`, of which one of the first four is given."""
    value = Annotated[float, reader(kind), WithJsonSchema(kind.json_schema)]
    pair = Annotated[list[value], Field(min_length=2, max_length=2)]
    types = {"equals": value, "at_most": value, "at_least": value, "between": pair, "rel": Ratio, "abs": value}
    return {name: (type_ | None, None) for name, type_ in types.items()}


def metric_models(
    metrics: Mapping[str, Kind], selector: type[PointModel], base: type[ExpectationModel], prefix: str, what: str
) -> dict[str, type[ExpectationModel]]:
    """Return the model of an expectation about each metric of ``what`` a selector names, such as one run."""
    models: dict[str, type[ExpectationModel]] = {}
    for name, kind in metrics.items():
        fields: dict[str, Any] = {name: (selector, ...), **bound_fields(kind)}
        about = f"{name} of {what} is within a bound."
        models[name] = create_model(f"{prefix}_{name}", __base__=base, __doc__=about, **fields)
    return models


METRIC_MODELS = metric_models(METRICS, SelectorModel, ExpectationModel, "Expect", "one run")


class ErrorSelector(PointModel):
    """Measurements of the scenario: all that have what is named here."""

    algorithm: AlgorithmReference | None = None
    set: str | None = Field(None, description="One of the measured sets")
    messages: Literal[tuple(RANGES)] | None = Field(  # type: ignore[valid-type]
        None, description=", ".join(f"{name}: {where}" for name, where in RANGES.items())
    )


def error_models(
    selector: type[PointModel], base: type[ExpectationModel], prefix: str, **more: Any
) -> dict[str, type[ExpectationModel]]:
    """Return the model of an expectation about each statistic of the errors against measurements."""
    models: dict[str, type[ExpectationModel]] = {}
    for statistic in STATISTICS:
        name = f"{statistic}_error"
        fields: dict[str, Any] = {name: (selector, ...), **bound_fields(RATIO), **more}
        about = f"The {statistic} of |predicted / measured - 1| is within a bound."
        models[name] = create_model(f"{prefix}_{name}", __base__=base, __doc__=about, **fields)
    return models


ERROR_MODELS = error_models(ErrorSelector, ExpectationModel, "Expect")


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


class NcclSelectorModel(PointModel):
    """A point; and a candidate, if not the one that NCCL picks there."""

    candidate: Label | None = None


class NcclChoiceModel(ExpectationModel):
    """What NCCL picks at a point."""

    nccl_choice: PointModel
    equals: Label


_FIELDS: dict[str, Any] = {"nccl_seconds": (NcclSelectorModel, ...), **bound_fields(ANY_SECONDS)}
NCCL_MODELS: Mapping[str, type[ExpectationModel]] = {
    "nccl_choice": NcclChoiceModel,
    "nccl_seconds": create_model(
        "Expect_nccl_seconds", __base__=ExpectationModel, __doc__="NCCL's own time is within a bound.", **_FIELDS
    ),
}


class MeasuredModel(PointModel):
    """A measured sweep laid over the predictions, and the fit of one link to it."""

    set: str | None = Field(None, description="A shipped set, or one of the file's", examples=list(SHIPPED[:3]))
    file: str | None = Field(None, min_length=1, description="A CSV file or log, relative to the scenario")
    place: Literal["out", "in"] = Field("out", description="Out-of-place or in-place measurements")
    algorithm: AlgorithmReference
    level: str | None = Field(None, description="The level whose link is fitted; the outermost if left out")
    min: Bytes | None = Field(None, description="The least message used")
    max: Bytes | None = Field(None, description="The largest message used")


def sweep_schema(more: Mapping[str, Kind] = MappingProxyType({})) -> JsonSchema:
    """Return the schema of sweeps: a mapping, or a list of mappings, from keys of a point (and ``more``) to values."""
    one = _one_sweep({**POINT_KEYS, **more})
    return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def _one_sweep(keys: Mapping[str, Kind]) -> JsonSchema:
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

    return {
        "type": "object",
        "properties": {name: values(kind.json_schema) for name, kind in keys.items()},
        "patternProperties": {pattern: values(schema) for pattern, schema in _KEY_SCHEMAS.items()},
        "additionalProperties": False,
        "minProperties": 1,
        "description": "All combinations of the values of these keys, the last key fastest",
        "examples": [{"message": {"from": "1 KiB", "to": "1 GiB", "factor": 2}}],
    }


Sweeps = Annotated[Any, WithJsonSchema(sweep_schema())]
AnyExpectation: Any = OrderModel | CrossoverModel | RatioModel
for _model in (*METRIC_MODELS.values(), *ERROR_MODELS.values(), *NCCL_MODELS.values()):
    AnyExpectation |= _model


class SkewModel(Model):
    """Ranks that start late: those named, or each by a random time."""

    ranks: RankSeconds | None = Field(None, description="Start of each late rank", examples=[{"3": "10 us"}])
    random: Seconds | None = Field(None, description="Each rank starts between 0 and so much later, evenly drawn")


class JitterModel(Model):
    """Random factors of mean 1, drawn for each message, or each rank and round."""

    alpha: JitterReference | None = Field(None, description="On the latency of each message")
    bandwidth: JitterReference | None = Field(None, description="On the time that the bytes of each message take")
    reduction: JitterReference | None = Field(None, description="On the reduction time of each rank and round")


class LogGPModel(Model):
    """LogGP, with L and G from the links: alpha and 1 / bandwidth."""

    overhead: Seconds | None = Field(None, description="CPU time at each end of a message, if not the link's")
    gap: Seconds | None = Field(None, description="Least time between the starts of two messages on a port")
    protocol: Literal["eager", "rendezvous"] = "eager"
    threshold: Bytes | None = Field(None, description="Rendezvous only above so many bytes")
    order: Literal["program", "event"] = "program"


class ScenarioModel(Model):
    """A question to the simulator: a cluster, a collective, what to vary, and what is expected."""

    title: str = Field(min_length=1)
    description: str | None = None
    cluster: AnyCluster
    collective: CollectiveModel
    sweep: Sweeps | None = None
    engine: Literal[ENGINES] = "auto"  # type: ignore[valid-type]
    verify: Literal["auto", "always", "never"] = Field(
        "auto", description="Execute runs on arrays: auto is up to 64 ranks and 1 MiB"
    )
    skipping: bool = Field(True, description="Rounds that repeat may be cut short, to the same time; false plays all")
    expect: list[AnyExpectation] | None = Field(None, description="What must hold")
    measured: MeasuredModel | list[MeasuredModel] | None = Field(
        None, description="Measured sweeps to lay over the predictions; several, each at a point of its own"
    )
    nccl: bool | NcclModel | None = Field(None, description="What NCCL would pick, by its own cost model")
    time: str | dict[Literal["loggp"], LogGPModel] | None = Field(
        None,
        description="What a time means: default, one_port, loggp",
        examples=["one_port", {"loggp": {"gap": "1 us"}}],
    )
    skew: SkewModel | None = None
    jitter: JitterModel | None = None
    seed: Seed = Field(0, description="Of what is drawn at random")
    seeds: Seeds | None = Field(None, description="Runs of every point, each with the next seed", examples=[100])
    timeline: SelectorModel | list[SelectorModel] | None = Field(None, description="Runs to draw, transfer by transfer")
    contributions: SelectorModel | None = Field(None, description="A run whose chunks are followed round by round")
