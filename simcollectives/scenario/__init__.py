"""Scenario files: what they may say, loading and checking them, running them.

`load_scenario` and `run_scenario` are the way in; `json_schema` describes the files to editors.
"""

from simcollectives.scenario.json_schema import json_schema
from simcollectives.scenario.loading import load_scenario
from simcollectives.scenario.measured import MeasuredComparison, MeasuredStepComparison
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.planning import Plan, plan_scenario
from simcollectives.scenario.progress import Progress, Standing
from simcollectives.scenario.results import Check, ScenarioResult
from simcollectives.scenario.running import run_scenario
from simcollectives.scenario.training.planning import StepPlan
from simcollectives.scenario.training.types import AnyScenario, TrainingScenario
from simcollectives.scenario.types import Scenario

__all__ = [
    "AnyScenario",
    "Check",
    "MeasuredComparison",
    "MeasuredStepComparison",
    "NumericsScenario",
    "Plan",
    "Progress",
    "Scenario",
    "ScenarioResult",
    "Standing",
    "StepPlan",
    "TrainingScenario",
    "json_schema",
    "load_scenario",
    "plan_scenario",
    "run_scenario",
]
