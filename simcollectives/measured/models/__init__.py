"""Models of measured times: alpha-beta, piecewise, physical. One file a model, one table of models."""

from simcollectives.measured.models.forms import AUTOMATIC, algorithm_of, runs_on_hosts
from simcollectives.measured.models.table import MODELS, Model, find_model
from simcollectives.measured.models.types import Choice, Columns, Fitted, Parameter, SpreadErrors, columns_of

__all__ = [
    "AUTOMATIC",
    "MODELS",
    "Choice",
    "Columns",
    "Fitted",
    "Model",
    "Parameter",
    "SpreadErrors",
    "algorithm_of",
    "columns_of",
    "find_model",
    "runs_on_hosts",
]
