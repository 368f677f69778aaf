"""The shape of the section ``training:`` and of what an expectation about a step may say."""

from typing import Annotated, Any, Literal, Union

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema, create_model

from simcollectives.errors import listing, suggestion
from simcollectives.scenario.keys import POINT_KEYS, TRAINING_KEYS
from simcollectives.scenario.places import shown
from simcollectives.scenario.schema import (
    CrossoverModel,
    ExpectationModel,
    OrderModel,
    PointModel,
    RatioModel,
    error_models,
    metric_models,
    point_properties,
    sweep_schema,
)
from simcollectives.scenario.schema_cluster import AnyCluster
from simcollectives.scenario.schema_values import (
    AlgorithmReference,
    JitterReference,
    Model,
    RankFactors,
    Reference,
    Seconds,
    Seed,
    Share,
    Size,
    custom_error,
    reader,
    reference_reader,
)
from simcollectives.scenario.training.keys import MEASURED_METRICS, TRAINING_METRICS
from simcollectives.training.comparison import COMPARED
from simcollectives.training.setup import FLOATS, OPTIMIZERS
from simcollectives.training.workload import AttentionFlops, AttentionKernel, Recomputation

_REFERENCE_SCHEMA = {
    "oneOf": [
        {"type": "string"},
        {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "object"}},
    ],
    "description": "A strategy: its name, or {name: {option: value}}; see: simcollectives list strategies",
    "examples": ["ddp", {"ddp": {"bucket_cap": "25 MiB"}}],
}
read_strategy = reference_reader("strategy", "write a name such as ddp, or {ddp: {bucket_cap: 25 MiB}}")
StrategyReference = Annotated[Reference, PlainValidator(read_strategy), WithJsonSchema(_REFERENCE_SCHEMA)]


MAX_PARAMETERS = 10**14


def _read_parameters(value: object) -> int:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MAX_PARAMETERS
    if not fits or value != int(value):  # type: ignore[call-overload]
        rule = f"write a whole number from 1 to {MAX_PARAMETERS:.0e}, such as 1.3e9"
        raise custom_error(f"{shown(value)} is not a number of parameters; {rule}")
    return int(value)  # type: ignore[call-overload, no-any-return]


Parameters = Annotated[
    int, PlainValidator(_read_parameters), WithJsonSchema({"type": "number", "minimum": 1, "maximum": MAX_PARAMETERS})
]


class UniformModel(Model):
    """So many parameters in equal layers of equal tensors."""

    parameters: Parameters = Field(description="In all", examples=[1.3e9])
    layers: Size = Field(examples=[24])
    tensors_per_layer: Size = Field(1, examples=[16])


class ConfigModel(Model):
    """A Hugging Face config.json."""

    config: str = Field(min_length=1, description="A file, relative to the scenario", examples=["config.json"])


class TensorModel(Model):
    """A plain list of tensors in registration order."""

    tensors: dict[str, list[Size]] = Field(min_length=1, examples=[{"wte.weight": [50257, 768]}])


class OptimizerModel(Model):
    """What an optimizer keeps for each parameter."""

    name: Literal[tuple(OPTIMIZERS)] = "adam"  # type: ignore[valid-type]
    master: bool | None = Field(None, description="A float32 copy; where parameters have 16 bits, if left out")
    gradient_copy: bool = Field(False, description="A float32 copy of the gradients for the step")


def _read_optimizer(value: object) -> OptimizerModel:
    if isinstance(value, dict):
        return OptimizerModel.model_validate(value)
    if not isinstance(value, str) or value not in OPTIMIZERS:
        raise custom_error(f"{shown(value)} is not an optimizer; {suggestion(value, list(OPTIMIZERS))}")
    return OptimizerModel(name=value)


_WRITTEN = Literal[tuple(OPTIMIZERS)] | OptimizerModel  # type: ignore[valid-type]
AnyOptimizer = Annotated[OptimizerModel, PlainValidator(_read_optimizer, json_schema_input_type=_WRITTEN)]


class PassModel(Model):
    """Measured seconds of a layer for one micro-batch."""

    forward: Seconds
    backward: Seconds


def _read_model(value: object) -> Any:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, dict):
        named = [form for form in _FORMS if {*form.model_fields} & {*value}]
        if len(named) > 1:
            keys = listing([key for key in value if any(key in form.model_fields for form in named)])
            raise custom_error(
                f"{keys} are of different ways to write a model; keep one of parameters, config, tensors"
            )
        if named:
            return named[0].model_validate(value)
    examples = "llama-3-8b, {config: config.json}, {parameters: 1.3e9, layers: 24} or {tensors: {name: [768, 768]}}"
    raise custom_error(f"{shown(value)} is not a model; write {examples}")


_FORMS = (UniformModel, ConfigModel, TensorModel)
AnyModel = Annotated[
    Any,
    _FORMS,  # whose keys are suggested
    PlainValidator(_read_model),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string", "description": "See: simcollectives list models"},
                *(model.model_json_schema() for model in _FORMS),
            ]
        }
    ),
]


MAX_STEP = 1_000_000


def _read_iteration(value: object) -> int | None:
    if value == "steady":
        return None
    if value == "first":
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_STEP:
        return value - 1
    raise custom_error(f"{shown(value)} is not a step; write first, steady, or a whole number from 1 to {MAX_STEP}")


Iteration = Annotated[
    Any,
    PlainValidator(_read_iteration),
    WithJsonSchema({"oneOf": [{"enum": ["first", "steady"]}, {"type": "integer", "minimum": 1, "maximum": MAX_STEP}]}),
]


class TrainingModel(Model):
    """One training step."""

    model: AnyModel = Field(examples=["llama-3-8b"])
    strategy: StrategyReference | None = Field(None, description="How it is trained")
    strategies: list[StrategyReference] | None = Field(None, min_length=1, description="Several, to be compared")
    sequence: Size | None = Field(
        None, description="Tokens of a sequence; of models that have any, not of images", examples=[4096]
    )
    micro_batch: Size = Field(1, description="Sequences of a rank in one pass")
    accumulation: Size = Field(1, description="Micro-batches of a step")
    train_batch: Size | None = Field(
        None, description="Sequences of a step on all ranks; checked: micro_batch x accumulation x world size"
    )
    dtype: Literal[FLOATS] = Field("bfloat16", description="Of the matrix products")  # type: ignore[valid-type]
    parameters: Literal[FLOATS] | None = Field(  # type: ignore[valid-type]
        None, description="Dtype that parameters are held in; dtype, if left out"
    )
    gradients: Literal[FLOATS] | None = Field(  # type: ignore[valid-type]
        None, description="Dtype of gradients; that of parameters, if left out"
    )
    optimizer: AnyOptimizer = Field(default_factory=OptimizerModel)
    mfu: Share | None = Field(None, description="Share of the device's peak that kernels reach", examples=["45%"])
    layer_seconds: dict[str, PassModel] | None = Field(
        None, description='Measured, by layer, or "block" for every block; instead of mfu'
    )
    recomputation: Recomputation = Field("none", description="What the backward computes again")
    attention_kernel: AttentionKernel = Field("flash", description="Whether attention keeps its weights (eager)")
    attention_flops: AttentionFlops = Field("full", description="Every pair of tokens, or half where it is causal")
    step: Iteration = Field(None, description="first, steady (the default), or a number")
    slow: RankFactors | None = Field(None, description="Factor on the compute of ranks", examples=[{"3": "120%"}])
    jitter: JitterReference | None = Field(None, description="On the time of each kernel of each rank")
    seed: Seed = Field(0, description="Of the jitter")
    collectives: dict[str, AlgorithmReference] | None = Field(
        None, description="Algorithm of each collective", examples=[{"all_reduce": "hierarchical"}]
    )


_POINTS = ConfigDict(json_schema_extra=point_properties({**POINT_KEYS, **TRAINING_KEYS}))


class StepSelector(PointModel):
    """One step: a strategy of the scenario, at a point."""

    model_config = _POINTS

    strategy: StrategyReference | None = Field(None, description="May be left out where there is one")


class StepOrder(OrderModel):
    """The values of these strategies are in strictly increasing order."""

    model_config = _POINTS
    order: list[StrategyReference] = Field(min_length=2)
    of: Literal[tuple(TRAINING_METRICS)] = "step_seconds"  # type: ignore[valid-type]


class StepRatio(RatioModel):
    """The metric of the first step over that of the second is within a bound."""

    model_config = _POINTS
    ratio: list[StepSelector] = Field(min_length=2, max_length=2)  # type: ignore[assignment]
    of: Literal[tuple(TRAINING_METRICS)] = "step_seconds"  # type: ignore[valid-type]


class StepCrossover(CrossoverModel):
    """The step times of two strategies are equal at exactly one value of a key, which is within a bound."""

    model_config = _POINTS
    crossover: list[StrategyReference] = Field(min_length=2, max_length=2)


class StepExpectation(ExpectationModel):
    """What every expectation about a step may have."""

    model_config = _POINTS


class StepErrorSelector(PointModel):
    """Measured steps of the scenario: all that have what is named here."""

    model_config = _POINTS

    strategy: StrategyReference | None = None


_OF = (Literal[tuple(MEASURED_METRICS)], Field("step_seconds", description="What was measured"))
STEP_ERROR_MODELS = error_models(StepErrorSelector, StepExpectation, "Expect_step", of=_OF)

STEP_MODELS: dict[str, type[ExpectationModel]] = {
    "crossover": StepCrossover,
    "ratio": StepRatio,
    "order": StepOrder,
    **metric_models(TRAINING_METRICS, StepSelector, StepExpectation, "Expect_step", "one step"),
    **STEP_ERROR_MODELS,
}


_METRIC_FIELDS: dict[str, Any] = {
    name: (Annotated[float, reader(kind), WithJsonSchema(kind.json_schema)] | None, None)
    for name, kind in MEASURED_METRICS.items()
}


def _read_step(value: object) -> object:
    if isinstance(value, int) or str(value).isdigit():
        raise custom_error(f"{shown(value)} is no mark of a step; write it as the trace does, such as ProfilerStep#9")
    return value


class _MeasuredStepModel(PointModel):
    """A measured step of a strategy at a point: one of a trace of PyTorch's profiler, or numbers."""

    model_config = _POINTS

    strategy: StrategyReference | None = Field(None, description="May be left out where there is one")
    file: str | None = Field(
        None, min_length=1, description="A trace of PyTorch's profiler, plain or gzip, relative to the scenario"
    )
    step: Annotated[str, BeforeValidator(_read_step)] = Field(
        "median", min_length=1, description="The step by its mark, ProfilerStep#9, or the one of median length"
    )
    source: str | None = Field(None, min_length=1, description="Where the numbers are from")


StepMeasuredModel: Any = create_model("StepMeasuredModel", __base__=_MeasuredStepModel, **_METRIC_FIELDS)


ALL = "all"


def _read_compared(value: object) -> object:
    if value == ALL:
        return list(COMPARED)
    if not isinstance(value, list) or not value:
        raise custom_error(f"{shown(value)} is not a list of strategies; write {ALL}, or [ddp, zero2, fsdp2]")
    return value


Compared = Annotated[
    list[StrategyReference],
    BeforeValidator(_read_compared),
    WithJsonSchema({"oneOf": [{"const": ALL}, {"type": "array", "minItems": 1, "items": _REFERENCE_SCHEMA}]}),
]


TrainingSweeps = Annotated[Any, WithJsonSchema(sweep_schema(TRAINING_KEYS))]
AnyStepExpectation: Any = Union[tuple(STEP_MODELS.values())]  # noqa: UP007


class TrainingFile(Model):
    """A question to the simulator: a cluster, a training step, what to vary, and what is expected."""

    title: str = Field(min_length=1)
    description: str | None = None
    cluster: AnyCluster
    training: TrainingModel
    compare: Compared | None = Field(None, description="Strategies to choose from, instead of training.strategy")
    sweep: TrainingSweeps | None = None
    expect: list[AnyStepExpectation] | None = Field(None, description="What must hold")
    timeline: StepSelector | list[StepSelector] | None = Field(None, description="Steps to draw, stream by stream")
    measured: StepMeasuredModel | list[StepMeasuredModel] | None = Field(
        None, description="Measured steps to lay beside predictions, each at a point of its own"
    )
