"""Measured sweeps by what a person writes: shipped sets, sets of a CSV file, or the tables of any log that is read."""

import fnmatch
import os
from dataclasses import replace
from pathlib import Path

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.measured.logs.formats import PROJECT_CSV, Format, check_asked, detect, read_as
from simcollectives.measured.logs.types import ReadLog
from simcollectives.measured.sweep import PLACES, SHIPPED, MeasuredSweep, is_file, load_set, wrong_set

_PATTERN = "*?["


def load_sweep(
    set_name_or_path: str | os.PathLike[str],
    set: str | None = None,
    place: str = "out",
    collective: str | None = None,
    ranks: int | None = None,
) -> MeasuredSweep:
    """A measured sweep: a shipped set by its name, or set ``set`` of a CSV file or log.

    A text is a file where it is no shipped name and has a folder or a suffix in it, or exists. ``set`` may be left out
    where the file holds one set. ``place`` takes the out-of-place or the in-place measurements. ``collective`` and
    ``ranks`` are taken where a log does not say them. Raises :class:`InputError` with every problem of the file.

    >>> sweep = load_sweep("aic_h100_sxm_1n8_all_gather")
    >>> sweep.collective, sweep.world_size, sweep.message_bytes[0], sweep.seconds[0]
    ('all_gather', 8, 512, 1.014e-05)
    """
    name = os.fspath(set_name_or_path)
    path = Path(name)
    if name in SHIPPED or place not in PLACES or not is_file(path):
        return load_set(set_name_or_path, set, place)
    known = detect(path)
    if _is_csv(known, path):
        return load_set(path, set, place)
    return _choose(read_as(known, path, collective, ranks), set, place)


def load_sweeps(
    what: str | os.PathLike[str],
    place: str = "out",
    collective: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> tuple[MeasuredSweep, ...]:
    """Every sweep of a file, one shipped set, or all shipped sets whose names fit a pattern with ``*``.

    ``collective``, ``ranks`` and ``nodes`` are taken where a file does not say them.

    Raises:
        InputError: there is no such set or file, or it has problems; all of them at once.
    """
    check_asked(collective, ranks, nodes)
    name = os.fspath(what)
    path = Path(name)
    if name in SHIPPED or not is_file(path):
        fitting = fnmatch.filter(SHIPPED, name) if any(one in name for one in _PATTERN) else [what]
        if not fitting:
            raise InputError(f'no shipped set fits "{name}"; a pattern is like aic_h100_sxm_1n*_all_reduce')
        return tuple(load_set(one, place=place) for one in fitting)
    places: dict[str, MeasuredSweep] = {}
    for sweep in _all_of(path, collective, ranks, nodes):
        if sweep.place == place or sweep.name not in places:
            told = (
                ()
                if sweep.place == place
                else (f"measured only in place {show_value(sweep.place)}: those times are taken",)
            )
            places[sweep.name] = replace(sweep, noted=(*told, *sweep.noted))
    return tuple(places.values())


def _is_csv(known: Format | None, path: Path) -> bool:
    """Whether a file is read as a CSV of this project: also one that is nothing else, to say what is wrong in it."""
    return known is PROJECT_CSV or (known is None and path.suffix.lower() == ".csv")


def _all_of(path: Path, collective: str | None, ranks: int | None, nodes: int | None) -> tuple[MeasuredSweep, ...]:
    known = detect(path)
    found = read_as(PROJECT_CSV if _is_csv(known, path) else known, path, collective, ranks, nodes).measured
    if not found:
        raise InputError("the file holds steps, but no sweep; give a log of messages of several sizes", str(path))
    return found


def _choose(log: ReadLog, set: str | None, place: str) -> MeasuredSweep:
    """The sweep of a log with this name, or its only one, in this place."""
    names = list(dict.fromkeys(sweep.name for sweep in log.measured))
    wrong = wrong_set(names, set) if names else "the file holds steps, but no sweep"
    if wrong is not None:
        raise InputError([Problem("set", wrong)], log.source)
    mine = [sweep for sweep in log.measured if sweep.name == (set or names[0])]
    here = [sweep for sweep in mine if sweep.place == place]
    if not here:
        rule = f"set {show_value(mine[0].name)} has no time with place {show_value(place)}"
        message = f"{rule}; take place {mine[0].place}"
        raise InputError([Problem("place", message)], log.source)
    return here[0]
