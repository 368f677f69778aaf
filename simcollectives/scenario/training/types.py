"""A training scenario as data: validated, in SI units, with the line of whatever may later be reported."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from simcollectives.engines import Jitter
from simcollectives.measured.logs import MeasuredStep
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, Expectation, Point, Scenario, Selector, Sweep
from simcollectives.training.model import Model
from simcollectives.training.pricing import Choice
from simcollectives.training.setup import Optimizer, Precision
from simcollectives.training.workload import AttentionFlops, AttentionKernel, Recomputation


@dataclass(frozen=True)
class TrainingSettings:
    """What ``training:`` says. Strategies are entries like those of algorithms.

    ``mfu`` is None where ``layer_seconds`` are measured: forward and backward, by layer. ``iteration`` is None in the
    steady state. ``choices`` are algorithms by kind of collective.
    """

    model: Model
    strategies: tuple[AlgorithmEntry, ...]
    sequence: int | None = None
    micro_batch: int = 1
    accumulation: int = 1
    train_batch: int | None = None
    precision: Precision = field(default_factory=Precision)
    optimizer: Optimizer = field(default_factory=Optimizer)
    mfu: float | None = None
    layer_seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    recomputation: Recomputation = "none"
    attention_kernel: AttentionKernel = "flash"
    attention_flops: AttentionFlops = "full"
    iteration: int | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    jitter: Jitter | None = None
    seed: int = 0
    choices: Mapping[str, Choice] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepMeasurement:
    """What was measured of a step of a strategy at a point: ``values`` in SI units, by the names of a row's.

    ``step`` is that of a trace, of which ``told`` says what reading it had to say.
    """

    entry: AlgorithmEntry
    point: Point
    name: str
    values: Mapping[str, float]
    step: MeasuredStep | None = None
    told: tuple[str, ...] = ()
    line: int | None = None

    @property
    def metrics(self) -> Collection[str]:
        """What was measured."""
        return self.values

    @property
    def message_bytes(self) -> Sequence[int]:
        """A step has no one message."""
        return ()


@dataclass(frozen=True)
class TrainingScenario:
    """A validated file with ``training:``; ``compares`` tells that it asks which strategy to choose."""

    file: str
    title: str
    description: str | None
    cluster: ClusterSettings
    training: TrainingSettings
    sweeps: tuple[Sweep, ...]
    expectations: tuple[Expectation, ...] = ()
    timelines: tuple[Selector, ...] = ()
    measured: tuple[StepMeasurement, ...] = ()
    compares: bool = False

    @property
    def entries(self) -> tuple[AlgorithmEntry, ...]:
        """What is compared at every point."""
        return self.training.strategies


AnyScenario = Scenario | TrainingScenario | NumericsScenario
