"""Engines evaluate schedules: event (SimPy), vectorized (NumPy), lockstep, closed_form; data moves real arrays."""

from simcollectives.engines.closed_form import closed_form
from simcollectives.engines.conditions import IDEAL, Conditions, Jitter
from simcollectives.engines.contributions import contributions
from simcollectives.engines.data import execute, verify, verify_job
from simcollectives.engines.estimate import Estimate, estimate
from simcollectives.engines.job import DTYPES, Job, make_job
from simcollectives.engines.run import Parts, Run, Timeline
from simcollectives.engines.simulate import ENGINES, check_engine, choose_engine, simulate, simulate_job
from simcollectives.engines.variants import DEFAULT, TIMES, Default, LogGP, OnePort, TimeModel, parse_time

__all__ = [
    "DEFAULT",
    "DTYPES",
    "ENGINES",
    "IDEAL",
    "TIMES",
    "Conditions",
    "Default",
    "Estimate",
    "Jitter",
    "Job",
    "LogGP",
    "OnePort",
    "Parts",
    "Run",
    "TimeModel",
    "Timeline",
    "check_engine",
    "choose_engine",
    "closed_form",
    "contributions",
    "estimate",
    "execute",
    "make_job",
    "parse_time",
    "simulate",
    "simulate_job",
    "verify",
    "verify_job",
]
