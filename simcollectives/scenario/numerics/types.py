"""A numerics scenario as data: validated, with the line of whatever may later be reported."""

from collections.abc import Mapping
from dataclasses import dataclass

from simcollectives.scenario.types import AlgorithmEntry, ClusterSettings, Expectation
from simcollectives.training.numerics import NumericsPlan


@dataclass(frozen=True)
class NumericsSettings:
    """What ``numerics:`` says: variants, each with its plan by label, and the steps after which each is compared.

    ``plans`` lacks the variants that have a problem.
    """

    entries: tuple[AlgorithmEntry, ...]
    plans: Mapping[str, NumericsPlan]
    record: tuple[int, ...]


@dataclass(frozen=True)
class NumericsScenario:
    """A validated file with ``numerics:``."""

    file: str
    title: str
    description: str | None
    cluster: ClusterSettings
    numerics: NumericsSettings
    expectations: tuple[Expectation, ...] = ()
