"""What running a scenario gives: rows, checks, timelines, a comparison with measurements."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from simcollectives.engines import Timeline
from simcollectives.errors import Problem
from simcollectives.measured.nccl import Prediction, prediction_json
from simcollectives.scenario.measured import MeasuredComparison, MeasuredStepComparison
from simcollectives.scenario.training.types import AnyScenario
from simcollectives.scenario.types import Point
from simcollectives.training.advice import Advice
from simcollectives.training.comparison import Comparison
from simcollectives.training.step import Step

Row = Mapping[str, Any]

ROW_KEYS = (
    "collective",
    "algorithm",
    "options",
    "label",
    "point",
    "world_size",
    "message_bytes",
    "seconds",
    "latency_seconds",
    "bandwidth_seconds",
    "reduction_seconds",
    "lower_bound_seconds",
    "bottleneck",
    "engine",
    "time",
    "engine_reason",
    "closed_form_seconds",
    "rounds",
    "bytes_sent_max",
    "bytes_sent_max_intra",
    "bytes_sent_max_inter",
    "bytes_sent_max_node",
    "bytes_sent_total",
    "algbw",
    "busbw",
    "verified",
    "seeds",
    "seconds_p50",
    "seconds_p95",
    "seconds_p99",
)
"""The keys of a row, in order: SI units, ``point`` holds the swept quantities, ``verified`` is True or None.

With seeds the row is the run with the
median time. What has no value is None: percentiles without seeds, ``bytes_sent_max_inter`` where no links are between
nodes, rates where the time is zero.
"""


@dataclass(frozen=True)
class Check:
    """The outcome of one expectation.

    ``text`` is the expectation as written, ``value`` what was found (SI; a list for an order, or where a crossover is
    not single; None where there is no such number), ``found`` that in words, ``expected`` what it had to satisfy and,
    where it does not, the reason given in the scenario.
    """

    text: str
    line: int | None
    passed: bool
    value: float | int | tuple[float | int | None, ...] | None
    found: str
    expected: str

    @property
    def message(self) -> str:
        """The line, what was found and what was expected, in one sentence."""
        where = "" if self.line is None else f"line {self.line}: "
        return f"{where}{self.found}; expected: {self.expected}"

    def to_json(self) -> dict[str, Any]:
        """Return the check as ``--json`` prints it."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {
            "expect": self.text,
            "line": self.line,
            "passed": self.passed,
            "value": value,
            "message": self.message,
        }


@dataclass(frozen=True)
class PlayedStep:
    """A training step at a point: ``entry`` is the strategy as listed, ``label`` with its options at the point."""

    entry: str
    label: str
    point: Point
    step: Step


@dataclass(frozen=True)
class SweepAdvice:
    """The best value of an option of a strategy that was swept, and why others are worse."""

    label: str
    key: str
    advice: Advice


@dataclass(frozen=True)
class PointComparison:
    """Which strategy to choose at a point: ``point`` holds what the ``steps`` that are compared have in common."""

    point: Point
    steps: tuple[tuple[str, Step], ...]
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """Return what ``--json`` prints of it."""
        found, labels = self.comparison, [one.label for one in self.comparison.verdicts]
        return {
            "point": dict(self.point),
            "chosen": None if found.chosen is None else labels[found.chosen],
            "fastest": None if found.fastest is None else labels[found.fastest],
            "advice": list(found.advice),
            "verdicts": [asdict(verdict) for verdict in found.verdicts],
        }


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario that was run.

    ``rows`` have the keys `ROW_KEYS`, or those of training steps. ``notes`` say which engine ran and why. ``timelines``
    are pairs of a label and a timeline, ``contributions`` are texts, ``measured`` and
    ``measured_steps`` are measurements beside predictions. ``steps`` are the training steps of the rows, one
    each, ``drawn`` those drawn stream by stream, ``advice`` what sweeps of options say, ``comparisons`` which strategy
    to choose at each point, ``nccl`` what NCCL would pick, for every number of nodes and GPUs.
    ``interrupted`` tells that the rows and checks are only those finished. ``problems`` are runs that could not be
    made, which leaves the others without checks.
    """

    scenario: AnyScenario
    rows: tuple[Row, ...]
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    timelines: tuple[tuple[str, Timeline], ...] = ()
    measured: tuple[MeasuredComparison, ...] = ()
    measured_steps: tuple[MeasuredStepComparison, ...] = ()
    contributions: tuple[str, ...] = ()
    interrupted: bool = False
    problems: tuple[Problem, ...] = ()
    steps: tuple[PlayedStep, ...] = ()
    drawn: tuple[PlayedStep, ...] = ()
    advice: tuple[SweepAdvice, ...] = ()
    comparisons: tuple[PointComparison, ...] = ()
    nccl: tuple[Prediction, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no expectation failed."""
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of this scenario in what ``--json`` prints."""
        return {
            "file": self.scenario.file,
            "title": self.scenario.title,
            "rows": [dict(row) for row in self.rows],
            "checks": [check.to_json() for check in self.checks],
            "warnings": list(self.warnings),
            "comparisons": [one.to_json() for one in self.comparisons],
            "nccl": [prediction_json(one) for one in self.nccl],
        }
