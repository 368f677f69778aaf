"""Everything that a strategy turns into a program: model, cluster, batch, precision, optimizer, times, activations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from simcollectives.cluster import Cluster
from simcollectives.cluster.rank_order import as_whole
from simcollectives.engines.conditions import Jitter
from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.model import Model, Parameter

FLOATS = tuple(name for name in DTYPES if "float" in name)
"""Dtypes that parameters, gradients and matrix products may have."""


@dataclass(frozen=True)
class Precision:
    """Dtypes: of the matrix products, of the parameters that the model holds, and of their gradients.

    Raises:
        InputError: one is not a floating-point dtype; all problems at once.
    """

    compute: str = "bfloat16"
    parameters: str = "bfloat16"
    gradients: str = "bfloat16"

    def __post_init__(self) -> None:
        problems = [
            Problem(name, f"{show_value(value)} is not a dtype to train in; write one of: {', '.join(FLOATS)}")
            for name, value in vars(self).items()
            if value not in FLOATS
        ]
        if problems:
            raise InputError(problems)


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps for each parameter: ``state_bytes`` (momentum, variance), and a float32 ``master``.

    ``gradient_copy`` is a copy of the gradients in float32, made at the step and read instead of them. By default, Adam
    in mixed precision, a parameter with its gradient takes 2 + 2 + 12 bytes.

    Raises:
        InputError: ``state_bytes`` is not a whole number of bytes.
    """

    name: str = "adam"
    state_bytes: int = 8
    master: bool = True
    gradient_copy: bool = False

    def __post_init__(self) -> None:
        whole = as_whole(self.state_bytes)
        if whole is None or whole < 0:
            rule = f"{show_value(self.state_bytes)} is not a number of bytes a parameter; write 8 for Adam, 0 for SGD"
            raise InputError([Problem("state_bytes", rule)])

    @property
    def held_bytes(self) -> int:
        """Bytes for each parameter beside the parameter and its gradient."""
        return self.state_bytes + (4 if self.master else 0)

    def moved_bytes(self, parameter_bytes: int, gradient_bytes: int) -> int:
        """Bytes that a step reads and writes for each parameter.

        It reads states, weights and gradient; it writes states and weights, and the model's copy beside a master: for
        Adam 28 bytes in float32, 30 with a master, 16-bit parameters and float32 gradients. A copy of the gradients
        is one read and one write more.
        """
        weights = 4 if self.master else parameter_bytes
        copied = gradient_bytes + 4 if self.gradient_copy else 0
        read = self.state_bytes + weights + (4 if self.gradient_copy else gradient_bytes)
        written = self.state_bytes + weights + (parameter_bytes if self.master else 0)
        return copied + read + written


OPTIMIZERS: Mapping[str, int] = {"adam": 8, "adamw": 8, "momentum": 4, "sgd": 0}
"""Bytes of state for each parameter, in float32."""


@dataclass(frozen=True)
class ModuleSeconds:
    """Seconds of a module's kernels: forward, backward, and forward again where it is recomputed in the backward."""

    forward: float
    backward: float
    recompute: float = 0.0


@dataclass(frozen=True)
class LayerBytes:
    """What a layer keeps from its forward to its backward, and what it needs only while it is computed."""

    kept: int = 0
    working: int = 0


@dataclass(frozen=True)
class Training:
    """One training step to be simulated.

    ``micro_batch`` are sequences of ``sequence`` tokens for each rank, ``accumulation`` micro-batches make a step.
    ``seconds`` are by module name, ``activations`` by layer name (absent: none known). ``iteration`` counts from 0;
    None is the steady state. ``slow`` multiplies the compute of single ranks; ``jitter`` draws a factor for each kernel
    of each rank, from ``seed``.
    """

    model: Model
    cluster: Cluster
    micro_batch: int
    sequence: int
    seconds: Mapping[str, ModuleSeconds]
    accumulation: int = 1
    precision: Precision = field(default_factory=Precision)
    optimizer: Optimizer = field(default_factory=Optimizer)
    activations: Mapping[str, LayerBytes] = field(default_factory=dict)
    iteration: int | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    jitter: Jitter | None = None
    seed: int = 0

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.cluster.world_size

    def parameter_dtype(self, parameter: Parameter) -> str:
        """The dtype that a parameter is held in."""
        return parameter.dtype or self.precision.parameters

    def gradient_dtype(self, parameter: Parameter) -> str:
        """The dtype of its gradient: the parameter's own where it has one."""
        return parameter.dtype or self.precision.gradients

    def gradient_bytes(self, parameter: Parameter) -> int:
        """Bytes of its gradient."""
        return parameter.elements * DTYPES[self.gradient_dtype(parameter)]

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(p.elements * DTYPES[self.parameter_dtype(p)] for p in self.model.parameters)

    @property
    def all_gradient_bytes(self) -> int:
        """Bytes of the gradients of all parameters."""
        return sum(self.gradient_bytes(p) for p in self.model.parameters)

    def memory_seconds(self, moved_bytes: float) -> float:
        """Seconds that a kernel needs which only moves bytes; none where the device's memory bandwidth is not known."""
        bandwidth = self.cluster.device.memory_bandwidth
        return moved_bytes / bandwidth if bandwidth else 0.0
