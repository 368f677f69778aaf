"""Variants of what a time means: ``one_port`` (alpha occupies the ports) and ``loggp`` (CPU, latency and gaps)."""

from simcollectives.engines.variants.closed_forms import variant_closed_form
from simcollectives.engines.variants.loggp import loggp
from simcollectives.engines.variants.models import DEFAULT, TIMES, Default, LogGP, OnePort, TimeModel, parse_time
from simcollectives.engines.variants.one_port import one_port

__all__ = [
    "DEFAULT",
    "TIMES",
    "Default",
    "LogGP",
    "OnePort",
    "TimeModel",
    "loggp",
    "one_port",
    "parse_time",
    "variant_closed_form",
]
