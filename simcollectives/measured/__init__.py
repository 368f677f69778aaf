"""Measured sweeps and what they say about predictions: loading, errors, and fitting one link's alpha and bandwidth.

Logs of other tools are read by ``logs``, NCCL's own cost model is in ``nccl``. The shipped sweeps and their columns are
described in ``data/README.md`` beside this file.
"""

from simcollectives.measured.fit import Errors, Fit, errors, fit_link
from simcollectives.measured.load import load_sweep
from simcollectives.measured.sweep import PLACES, SHIPPED, MeasuredSweep, restrict

__all__ = ["PLACES", "SHIPPED", "Errors", "Fit", "MeasuredSweep", "errors", "fit_link", "load_sweep", "restrict"]
