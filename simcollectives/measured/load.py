"""One measured sweep by name or path: a shipped set, a set of a CSV file, or a table of any log that is read."""

import os
from pathlib import Path

from simcollectives.errors import InputError, Problem, listing, show_value, suggestion
from simcollectives.measured import sweep as csv_sweeps
from simcollectives.measured.logs.formats import PROJECT_CSV, detect, read_log
from simcollectives.measured.logs.types import ReadLog
from simcollectives.measured.sweep import PLACES, SHIPPED, MeasuredSweep


def load_sweep(
    set_name_or_path: str | os.PathLike[str],
    set: str | None = None,
    place: str = "out",
    collective: str | None = None,
    ranks: int | None = None,
) -> MeasuredSweep:
    """A measured sweep: a shipped set by its name, or set ``set`` of a CSV file or log.

    A text is a file where it is no shipped name and has a folder in it, ends in ``.csv`` or exists. ``set`` may be left
    out where the file holds one set. ``place`` takes the out-of-place or the in-place measurements. ``collective`` and
    ``ranks`` are taken where a log does not say them. Raises :class:`InputError` with every problem of the file.

    >>> sweep = load_sweep("aic_h100_sxm_1n8_all_gather")
    >>> sweep.collective, sweep.world_size, sweep.message_bytes[0], sweep.seconds[0]
    ('all_gather', 8, 512, 1.014e-05)
    """
    name = os.fspath(set_name_or_path)
    path = Path(name)
    if name in SHIPPED or place not in PLACES or not csv_sweeps.is_file(path):
        return csv_sweeps.load_sweep(set_name_or_path, set, place)
    known = detect(path)
    if known is PROJECT_CSV or (known is None and path.suffix.lower() == ".csv"):
        return csv_sweeps.load_sweep(path, set, place)
    return choose(read_log(path, collective, ranks), set, place)


def choose(log: ReadLog, set: str | None = None, place: str = "out") -> MeasuredSweep:
    """The sweep of a log with this name, or its only one, in this place.

    Raises:
        InputError: there are several and none is named, or there is none of this name or place.
    """
    names = list(dict.fromkeys(sweep.name for sweep in log.measured))
    if set is None and len(names) > 1:
        message = f"the file holds {len(names)} sets; name one of them: {listing(names)}"
    elif set is not None and set not in names:
        message = f"no set {show_value(set)} in the file; {suggestion(set, names)}"
    elif not names:
        message = "the file holds steps, but no sweep"
    else:
        mine = [sweep for sweep in log.measured if sweep.name == (set or names[0])]
        here = [sweep for sweep in mine if sweep.place == place]
        if here:
            return here[0]
        other = mine[0].place
        message = f"set {show_value(mine[0].name)} has no time with place {show_value(place)}; take place {other}"
        raise InputError([Problem("place", message)], log.source)
    raise InputError([Problem("set", message)], log.source)
