"""Measured sweeps as this project's CSV: a file of times, and a line for each set in the ``sets.csv`` beside it."""

import csv
import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.measured.sweep import MAX_FILE_BYTES, SET_COLUMNS, MeasuredSweep, is_file, open_regular
from simcollectives.metrics import algbw, bus_factor, busbw

_TIMINGS = ("set", "size_bytes", "time_us", "algbw_GBps", "busbw_GBps", "place")
_SETS = (
    *("name", "gpu", "n_gpus", "n_nodes", "intra_link", "nic", "nccl_version", "collective", "algo", "source"),
    *("caveats", "n_points", "min_size", "max_size", "bus_factor"),
)


Cells = Mapping[tuple[str, int, str], str]
"""Cells of one column, by set, size (B) and place."""


def timings_csv(sweeps: Sequence[MeasuredSweep], more: Mapping[str, Cells] | None = None) -> str:
    """A line for every point of sweeps that name their collective and ranks; times keep all their digits.

    ``more`` are further columns by their name; readers pass them over.

    Raises:
        InputError: a sweep does not name them, or two have one name and place.
    """
    _check(sweeps)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = more or {}
    writer.writerow([*_TIMINGS, *columns])
    for sweep in sweeps:
        for size, seconds in zip(sweep.message_bytes, sweep.seconds, strict=True):
            rates = (
                algbw(size, seconds) or 0.0,
                busbw(sweep.collective or "", sweep.world_size or 1, size, seconds) or 0.0,
            )
            time = format(Decimal(repr(seconds)).scaleb(6).normalize(), "f")
            own = [column.get((sweep.name, size, sweep.place), "") for column in columns.values()]
            writer.writerow([sweep.name, size, time, *(f"{rate / 1e9:.3f}" for rate in rates), sweep.place, *own])
    return text.getvalue()


def sets_csv(sweeps: Sequence[MeasuredSweep], path: Path) -> str:
    """The ``sets.csv`` that is at a path, if one is, with lines for these sweeps; older lines of the same names go.

    Raises:
        InputError: the file there is no such table.
    """
    names = {sweep.name for sweep in sweeps}
    header, rows = _rows_at(path)
    columns = [*header, *(column for column in _SETS if column not in header)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for row in rows if row["name"] not in names)
    for name in dict.fromkeys(sweep.name for sweep in sweeps):
        writer.writerow(_set_row([sweep for sweep in sweeps if sweep.name == name]))
    return text.getvalue()


def _check(sweeps: Sequence[MeasuredSweep]) -> None:
    problems = []
    seen: set[tuple[str, str]] = set()
    for sweep in sweeps:
        lacking = [
            f"--{option}"
            for option, value in (("collective", sweep.collective), ("ranks", sweep.world_size))
            if value is None
        ]
        if lacking and sweep.name not in {name for name, _ in seen}:
            rule = f"nothing says its {' and '.join(text.strip('-') for text in lacking)}"
            problems.append(Problem(sweep.name, f"{rule}; give {' and '.join(lacking)}"))
        if (sweep.name, sweep.place) in seen:
            rule = f"two sets are called {show_value(sweep.name)}; rename a file, or write them one by one"
            problems.append(Problem(sweep.name, rule))
        seen.add((sweep.name, sweep.place))
    if problems:
        raise InputError(problems)


def _rows_at(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    if not is_file(path):
        return list(_SETS), []
    with open_regular(path, MAX_FILE_BYTES) as stream:
        content = stream.read()
    try:
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig")), strict=True)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the sets.csv that is there cannot be read ({error}); mend it", str(path)) from None
    header = list(reader.fieldnames or [])
    whole = all(None not in row and None not in row.values() for row in rows)
    if not set(SET_COLUMNS) <= set(header) or not whole:
        rule = f"the sets.csv that is there does not name {', '.join(SET_COLUMNS)} in every line"
        raise InputError(f"{rule}; mend it, or write into another folder", str(path))
    return header, rows


def _set_row(sweeps: Sequence[MeasuredSweep]) -> dict[str, object]:
    """One line for both places of a set."""
    one = sweeps[0]
    sizes = [size for sweep in sweeps for size in sweep.message_bytes]
    return {
        "name": one.name,
        "gpu": one.gpu,
        "n_gpus": one.world_size,
        "n_nodes": "" if one.nodes is None else one.nodes,
        "intra_link": one.intra_link,
        "nic": one.nic,
        "nccl_version": one.nccl_version,
        "collective": one.collective,
        "algo": one.algorithm,
        "source": one.source,
        "caveats": one.caveats,
        "n_points": len(sizes),
        "min_size": min(sizes),
        "max_size": max(sizes),
        "bus_factor": bus_factor(one.collective or "", one.world_size or 1),
    }
