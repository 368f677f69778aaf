"""Kinds of values in a scenario file, each with how it is read and how it is described to an editor."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from simcollectives.cluster import RankOrder as WrittenOrder
from simcollectives.engines import Jitter
from simcollectives.engines.conditions import DISTRIBUTIONS
from simcollectives.errors import UnitError, show_value, suggestion
from simcollectives.scenario.keys import (
    BANDWIDTH,
    BYTES,
    COUNT,
    FACTOR,
    FLOPS_PER_SECOND,
    INDEX,
    MAX_WORLD_SIZE,
    NUMBER,
    OVERSUBSCRIPTION,
    RATIO,
    SECONDS,
    SECONDS_PER_BYTE,
    SEED,
    SEEDS,
    SHARE,
    SIZE,
    SPREAD,
    JsonSchema,
    Kind,
)
from simcollectives.scenario.places import shown


def reader(kind: Kind) -> BeforeValidator:
    """Return what reads a value of a kind, and says what is wrong with it."""

    def read(value: object) -> float:
        try:
            return kind.parse(value)
        except UnitError as error:
            raise custom_error(error.problems[0].message) from None

    return BeforeValidator(read)


def custom_error(message: str) -> PydanticCustomError:
    """Return an error whose message reaches the user unchanged."""
    return PydanticCustomError("scenario", "{message}", {"message": message})


Bytes = Annotated[float, reader(BYTES), WithJsonSchema(BYTES.json_schema)]
Seconds = Annotated[float, reader(SECONDS), WithJsonSchema(SECONDS.json_schema)]
Bandwidth = Annotated[float, reader(BANDWIDTH), WithJsonSchema(BANDWIDTH.json_schema)]
SecondsPerByte = Annotated[float, reader(SECONDS_PER_BYTE), WithJsonSchema(SECONDS_PER_BYTE.json_schema)]
Ratio = Annotated[float, reader(RATIO), WithJsonSchema(RATIO.json_schema)]
Share = Annotated[float, reader(SHARE), WithJsonSchema(SHARE.json_schema)]
Factor = Annotated[float, reader(FACTOR), WithJsonSchema(FACTOR.json_schema)]
Oversubscription = Annotated[float, reader(OVERSUBSCRIPTION), WithJsonSchema(OVERSUBSCRIPTION.json_schema)]
FlopsPerSecond = Annotated[float, reader(FLOPS_PER_SECOND), WithJsonSchema(FLOPS_PER_SECOND.json_schema)]
Number = Annotated[float, reader(NUMBER), WithJsonSchema(NUMBER.json_schema)]
Count = Annotated[int, reader(COUNT), WithJsonSchema(COUNT.json_schema)]
Size = Annotated[int, reader(SIZE), WithJsonSchema(SIZE.json_schema)]
Seed = Annotated[int, reader(SEED), WithJsonSchema(SEED.json_schema)]
Seeds = Annotated[int, reader(SEEDS), WithJsonSchema(SEEDS.json_schema)]
Rank = Annotated[int, reader(INDEX), WithJsonSchema(INDEX.json_schema)]


@dataclass(frozen=True)
class Reference:
    """An algorithm as written: a name, or {name: {option: value}}."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


def reference_reader(what: str, example: str) -> Callable[[object], Reference]:
    """Return what reads a name, or a name with options."""

    def read(value: object) -> Reference:
        if isinstance(value, str):
            return Reference(value)
        if not isinstance(value, dict):
            article = "an" if what[0] in "aeiou" else "a"
            raise custom_error(f"{shown(value)} is not {article} {what}; {example}")
        if len(value) != 1:
            raise custom_error(f"{shown(value)} has {len(value)} keys where one {what} has one; {example}")
        name, options = next(iter(value.items()))
        if not isinstance(options, dict):
            remedy = "write {name: {option: value}}, or the name alone"
            raise custom_error(f"{shown(options)} are not options of {show_value(name)}; {remedy}")
        return Reference(name, options)

    return read


_REFERENCE_SCHEMA: JsonSchema = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "object"}},
    ],
    "description": "An algorithm: its name, or {name: {option: value}}",
    "examples": ["ring", {"rabenseifner": {"order": "far"}}],
}
read_algorithm = reference_reader("algorithm", "write a name such as ring, or {rabenseifner: {order: far}}")
AlgorithmReference = Annotated[Reference, PlainValidator(read_algorithm), WithJsonSchema(_REFERENCE_SCHEMA)]


def _read_jitter(value: object) -> Jitter:
    example = "write {lognormal: 20%} or {gamma: 20%}"
    if not isinstance(value, dict) or len(value) != 1:
        raise custom_error(f"{shown(value)} is not one distribution with its spread; {example}")
    name, spread = next(iter(value.items()))
    if name not in DISTRIBUTIONS:
        raise custom_error(f"{shown(name)} is not a distribution; {suggestion(name, DISTRIBUTIONS)}")
    try:
        return Jitter(name, SPREAD.parse(spread))
    except UnitError as error:
        raise custom_error(error.problems[0].message) from None


_JITTER_SCHEMA: JsonSchema = {
    "oneOf": [
        {"type": "object", "properties": {name: SPREAD.json_schema}, "required": [name], "additionalProperties": False}
        for name in DISTRIBUTIONS
    ],
    "description": "A distribution of mean 1, with its standard deviation",
    "examples": [{"lognormal": "20%"}],
}
JitterReference = Annotated[Jitter, PlainValidator(_read_jitter), WithJsonSchema(_JITTER_SCHEMA)]


_RANK = re.compile(r"0|[1-9][0-9]{0,8}")


def _by_rank(kind: Kind, what: str, example: str) -> Any:
    """Return the type of a mapping from ranks to values of a kind."""

    def check(value: object) -> object:
        if not isinstance(value, dict) or not value:
            raise custom_error(f"{shown(value)} does not say {what}; write {example}")
        return value

    def read_rank(key: str) -> int:
        if _RANK.fullmatch(key) is None or int(key) >= MAX_WORLD_SIZE:
            raise custom_error(f"{shown(key)} is not a rank; write a whole number, as in {example}")
        return int(key)

    schema: JsonSchema = {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[0-9]+$": kind.json_schema},
        "additionalProperties": False,
    }
    ranks = Annotated[int, PlainValidator(read_rank)]
    return Annotated[
        dict[ranks, Annotated[float, reader(kind)]],
        BeforeValidator(check),
        WithJsonSchema(schema),
    ]


RankSeconds: Any = _by_rank(SECONDS, "which ranks start when", "{3: 10 us}")
RankFactors: Any = _by_rank(FACTOR, "which ranks are slower", "{3: 120%}")


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

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title=None, defer_build=True)
