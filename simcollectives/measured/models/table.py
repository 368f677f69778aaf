"""The table of models: one line a model. The command line, the benchmark and the tests pick them up from here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simcollectives.errors import InputError, show_value, suggestion
from simcollectives.measured.models.alpha_beta import fit_alpha_beta
from simcollectives.measured.models.physical import fit_physical
from simcollectives.measured.models.piecewise import three_regimes, two_regimes
from simcollectives.measured.models.types import Fitted
from simcollectives.measured.sweep import MeasuredSweep


@dataclass(frozen=True)
class Model:
    """A model by its name; ``several`` tells whether it describes several sweeps at once."""

    name: str
    summary: str
    several: bool
    fit: Callable[[Sequence[MeasuredSweep]], Fitted]


MODELS: tuple[Model, ...] = (
    Model("alpha_beta", "every step alpha, every byte 1/B", True, fit_alpha_beta),
    Model("piecewise2", "two regimes of alpha and bandwidth, of one sweep", False, two_regimes),
    Model("piecewise3", "three regimes of alpha and bandwidth, of one sweep", False, three_regimes),
    Model(
        "physical",
        "latency and bandwidth of protocols and algorithms, for counts that were not measured",
        True,
        fit_physical,
    ),
)


def find_model(name: str) -> Model:
    """A model by its name.

    Raises:
        InputError: there is none of this name.
    """
    for model in MODELS:
        if model.name == name:
            return model
    raise InputError(f"{show_value(name)} is no model; {suggestion(name, [model.name for model in MODELS])}")
