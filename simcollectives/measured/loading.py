"""Measured sweeps by what a person writes: a shipped set or a pattern of them, or a file, of any format, with all."""

import fnmatch
import os
from dataclasses import replace
from pathlib import Path

from simcollectives.errors import InputError, show_value
from simcollectives.measured.logs import detect, read_log
from simcollectives.measured.sweep import SHIPPED, MeasuredSweep, load_all, load_sweep

_PATTERN = "*?["


def load_sweeps(what: str | os.PathLike[str], place: str = "out") -> tuple[MeasuredSweep, ...]:
    """Every sweep of a file, one shipped set, or all shipped sets whose names fit a pattern with ``*``.

    Raises:
        InputError: there is no such set or file, or it has problems; all of them at once.
    """
    name = os.fspath(what)
    if name not in SHIPPED and any(one in name for one in _PATTERN) and not Path(name).exists():
        fitting = fnmatch.filter(SHIPPED, name)
        if not fitting:
            raise InputError(f'no shipped set fits "{name}"; a pattern is like aic_h100_sxm_1n*_all_reduce')
        return tuple(load_sweep(one, place=place) for one in fitting)
    if name in SHIPPED or not Path(name).is_file():
        return (load_sweep(what, place=place),)
    places: dict[str, MeasuredSweep] = {}
    for sweep in _all_of(Path(name)):
        if sweep.place == place or sweep.name not in places:
            told = () if sweep.place == place else (f"measured only in place {show_value(sweep.place)}",)
            places[sweep.name] = replace(sweep, dropped=(*told, *sweep.dropped))
    return tuple(places.values())


def _all_of(path: Path) -> tuple[MeasuredSweep, ...]:
    """Every sweep of a file: a CSV of this project, also where it has problems, or any log."""
    if path.suffix.lower() == ".csv" and detect(path) is None:
        return load_all(path)
    found = read_log(path).measured
    if not found:
        raise InputError("the file holds steps, but no sweep; give a log of messages of several sizes", str(path))
    return found
