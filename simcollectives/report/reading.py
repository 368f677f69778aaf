"""The command ``read``: logs of measurements, shown, and written as this project's CSV."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from simcollectives.errors import Gathered, InputError, Problem
from simcollectives.measured.logs import ReadLog, read_log
from simcollectives.measured.logs.write import sets_csv, timings_csv
from simcollectives.report.files import json_text, write_whole
from simcollectives.report.table_logs import log_blocks, log_json
from simcollectives.report.text import make_console, rendered, show

Say = Callable[[str], None]
Value = TypeVar("Value")


def read_and_show(
    paths: Sequence[Path],
    asked: tuple[str | None, int | None, int | None],
    output: Path | None,
    *,
    as_json: bool,
    say: Say,
) -> None:
    """Read logs, print what was read (``say`` takes warnings and files written), and write the sweeps of all.

    ``asked`` is the collective, the ranks and the nodes that are taken where a log does not say them.

    Raises:
        InputError: of the logs that cannot be read, after the others were shown; or nothing can be written.
    """
    if output is not None:
        check_output(output, paths)
    gathered = Gathered()
    logs = []
    for path in paths:
        log = gathered.take(partial(naming_file, read_log, path, *asked))
        if log is not None:
            logs.append(log)
    if as_json:
        from simcollectives import __version__

        sys.stdout.write(json_text({"version": __version__, "logs": [log_json(log) for log in logs]}) + "\n")
    else:
        for log in logs:
            show([*rendered(log_blocks(log), make_console(sys.stdout).width), ""], sys.stdout)
    for log in logs:
        for warning in log.warnings:
            say(f"warning: {log.source}: {warning}")
    gathered.finish()
    if output is not None:
        for written in _write(logs, output):
            say(f"wrote {written}")


def naming_file(read: Callable[..., Value], file: object, *more: object) -> Value:
    """Return what ``read`` returns of a file; errors of several files are raised together, so each names its own."""
    try:
        return read(file, *more)
    except InputError as error:
        raise InputError(
            [Problem(f"{file}{f': {p.place}' if p.place else ''}", p.message, p.line) for p in error.problems]
        ) from None


def check_output(output: Path, paths: Sequence[Path] = ()) -> None:
    """Refuse a file that is none for times, or one of the logs that are read.

    Raises:
        InputError: it is.
    """
    if output.suffix.lower() != ".csv" or output.name == "sets.csv":
        raise InputError([Problem("-o", f"{output} is no file for times; write for instance -o measured.csv")])
    check_no_input(output, paths)


def check_no_input(output: Path, paths: Sequence[Path]) -> None:
    """Refuse to write over a file that is read.

    Raises:
        InputError: it is one.
    """
    if output.resolve() in {path.resolve() for path in paths}:
        raise InputError([Problem("-o", f"{output} is one of the logs; write into another file")])


def _write(logs: Sequence[ReadLog], output: Path) -> list[Path]:
    sweeps = [sweep for log in logs for sweep in log.measured]
    if not sweeps:
        raise InputError("the files hold steps, but no sweep that could be written")
    beside = output.with_name("sets.csv")
    timings, sets = timings_csv(sweeps), sets_csv(sweeps, beside)
    return [write_whole(output, timings.encode()), write_whole(beside, sets.encode())]
