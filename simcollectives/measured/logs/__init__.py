"""Logs of measurements: every format that other tools write, read into measured sweeps and steps.

One file a format, one table of formats (``formats``). A reader hands over tables as they stand in a log; what their
numbers say about each other, and which rows contradict themselves, is decided for all formats alike (``sweeps``).
"""

from simcollectives.measured.logs.formats import FORMATS, detect, read_log
from simcollectives.measured.logs.types import LogSweep, MeasuredCollective, MeasuredStep, ReadLog, Skipped

__all__ = [
    "FORMATS",
    "LogSweep",
    "MeasuredCollective",
    "MeasuredStep",
    "ReadLog",
    "Skipped",
    "detect",
    "read_log",
]
