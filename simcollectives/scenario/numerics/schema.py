"""The shape of the section ``numerics:`` and of what an expectation about a variant may say."""

from typing import Annotated, Any, Literal, Union

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from simcollectives.scenario.keys import JsonSchema
from simcollectives.scenario.numerics.keys import AMOUNT, NUMERICS_KEYS, NUMERICS_METRICS
from simcollectives.scenario.places import shown
from simcollectives.scenario.schema import ExpectationModel, OrderModel, PointModel, RatioModel, metric_models
from simcollectives.scenario.schema_cluster import AnyCluster
from simcollectives.scenario.schema_values import (
    AlgorithmReference,
    Bytes,
    Model,
    Number,
    Reference,
    Seed,
    custom_error,
    reader,
    reference_reader,
)
from simcollectives.training.numerics import MISTAKES, OPTIMIZERS, STRATEGIES
from simcollectives.training.numerics.network import BATCH_NORMS
from simcollectives.training.numerics.plan import DTYPES

NO_MISTAKE = "none"
Amount = Annotated[int, reader(AMOUNT), WithJsonSchema(AMOUNT.json_schema)]

_STRATEGY_SCHEMA: JsonSchema = {
    "oneOf": [
        {"enum": list(STRATEGIES)},
        {
            "type": "object",
            "properties": {name: {"type": "object"} for name in STRATEGIES},
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        },
    ],
    "description": "Where parameters, gradients and optimizer states live: a name, or {name: {option: value}}",
    "examples": ["zero1", {"hsdp": {"shard_size": 2}}],
}
StrategyReference = Annotated[
    Reference,
    PlainValidator(reference_reader("strategy", "write a name such as zero1, or {hsdp: {shard_size: 2}}")),
    WithJsonSchema(_STRATEGY_SCHEMA),
]


class VariantModel(Model):
    """How the network is trained; in a variant, what differs from the section."""

    strategy: StrategyReference = Reference("ddp")
    algorithm: AlgorithmReference | None = Field(None, description="An all-reduce, or its halves; ring, if left out")
    optimizer: Literal[tuple(OPTIMIZERS)] = "sgd"  # type: ignore[valid-type]
    learning_rate: Number | None = Field(None, description="The optimizer's own, if left out", examples=[0.1])
    samples: Amount = Field(256, description="Of all ranks in a step")
    shards: list[Amount] | None = Field(
        None, description="Samples of each rank; as equal as may be, if left out", examples=[[100, 60, 60, 36]]
    )
    accumulation: Amount = Field(1, description="Micro-batches of a rank in a step")
    bucket: Bytes | None = Field(
        None, description="Gradients of ddp, zero1, zero2 are reduced in buckets of about so much; in one, if left out"
    )
    gradient_dtype: Literal[DTYPES] = Field("float64", description="Of gradients as sent")  # type: ignore[valid-type]
    batch_norm: Literal[BATCH_NORMS] = Field("none", description="Before the tanh")  # type: ignore[valid-type]
    mistake: Literal[(NO_MISTAKE, *MISTAKES)] = NO_MISTAKE  # type: ignore[valid-type]
    left_out: str = Field("hidden.weight", description="The parameter that mistake: left_out_parameter forgets")
    seed: Seed = Field(0, description="Of the parameters and the data")


class NumericsModel(VariantModel):
    """A small network really trained on simulated devices, and on one device to compare."""

    steps: Amount = 200
    record: list[Amount] | None = Field(
        None, min_length=1, description="Steps after which to compare; the last, if left out", examples=[[1, 10, 200]]
    )
    variants: dict[str, VariantModel] | None = Field(
        None,
        min_length=1,
        description="Several to compare: by name, what differs from this section",
        examples=[{"correct": {}, "no all-reduce": {"mistake": "no_all_reduce"}}],
    )


def _read_variant(value: object) -> Reference:
    if isinstance(value, str):
        return Reference(value)
    raise custom_error(
        f"{shown(value)} is not the name of a variant; write one as under variants:, in quotes if need be"
    )


VariantReference = Annotated[Reference, PlainValidator(_read_variant), WithJsonSchema({"type": "string"})]


def _point(schema: JsonSchema) -> None:
    schema.setdefault("properties", {}).update({key: kind.json_schema for key, kind in NUMERICS_KEYS.items()})
    schema["additionalProperties"] = False


_POINTS = ConfigDict(json_schema_extra=_point)


class VariantSelector(PointModel):
    """A variant of the scenario, after a step."""

    model_config = _POINTS

    variant: VariantReference | None = Field(None, description="May be left out where there is one")


class VariantOrder(OrderModel):
    """The values of these variants are in strictly increasing order."""

    model_config = _POINTS
    order: list[VariantReference] = Field(min_length=2)
    of: Literal[tuple(NUMERICS_METRICS)] = "difference_from_one_device"  # type: ignore[valid-type]


class VariantRatio(RatioModel):
    """The metric of the first over that of the second is within a bound."""

    model_config = _POINTS
    ratio: list[VariantSelector] = Field(min_length=2, max_length=2)  # type: ignore[assignment]
    of: Literal[tuple(NUMERICS_METRICS)] = "difference_from_one_device"  # type: ignore[valid-type]


class VariantExpectation(ExpectationModel):
    """What every expectation about a variant may have."""

    model_config = _POINTS


VARIANT_MODELS: dict[str, type[ExpectationModel]] = {
    "ratio": VariantRatio,
    "order": VariantOrder,
    **metric_models(NUMERICS_METRICS, VariantSelector, VariantExpectation, "Expect_variant", "one variant"),
}
AnyVariantExpectation: Any = Union[tuple(VARIANT_MODELS.values())]  # noqa: UP007


class NumericsFile(Model):
    """A question to the simulator: devices, a training run in numbers, its variants, and what is expected."""

    title: str = Field(min_length=1)
    description: str | None = None
    cluster: AnyCluster
    numerics: NumericsModel
    expect: list[AnyVariantExpectation] | None = Field(None, description="What must hold")
