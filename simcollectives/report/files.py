"""Results as files and as JSON. A file appears whole or not at all."""

import csv
import errno
import io
import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simcollectives.errors import InputError, Problem
from simcollectives.report.fastest import fastest
from simcollectives.report.json_measured import errors_json, measured_json, step_errors_json, step_json
from simcollectives.report.rows import Row
from simcollectives.report.training import traces
from simcollectives.scenario import Scenario, ScenarioResult
from simcollectives.scenario.results import ROW_KEYS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LISTED = "collectives"


def check_folders(files: Sequence[str]) -> None:
    """Refuse scenarios whose files would land in one folder.

    Raises:
        InputError: two have the same name.
    """
    from simcollectives.report.plots import file_stem

    first: dict[str, str] = {}
    problems = []
    for file in files:
        stem = file_stem(Path(file).stem)
        if stem in first:
            text = f"would write into the same folder as {first[stem]}; run them one at a time, with different -o"
            problems.append(Problem(file, text))
        first.setdefault(stem, file)
    if problems:
        raise InputError(problems)


def is_collective(result: ScenarioResult) -> bool:
    """Whether a result is of collectives, not of training."""
    return isinstance(result.scenario, Scenario)


def write_outputs(result: ScenarioResult, directory: str | os.PathLike[str]) -> list[Path]:
    """Write rows.csv, result.json and all figures of a result into DIR/<name of the scenario file>/.

    Returns the paths written. Files of the same names are replaced, each at once; others stay. A run that was
    interrupted before its first row writes none, so that those of an earlier run are not lost.

    Raises:
        InputError: the folder or a file cannot be written; what was being written leaves nothing behind.
    """
    from simcollectives.report.plots import figures, file_stem

    if result.interrupted and not result.rows:
        return []
    folder = Path(directory) / file_stem(Path(result.scenario.file).stem)
    make_folder(folder)
    written = [
        write_whole(folder / "rows.csv", rows_csv(result.rows).encode()),
        write_whole(folder / "result.json", json_text(scenario_json(result)).encode()),
    ]
    for stem, text in traces(result):
        written.append(write_whole(folder / f"{stem}.json", text.encode()))
    for stem, figure in figures(result) if result.rows else ():
        written.append(write_whole(folder / f"{stem}.png", png_bytes(figure)))
    return written


def prepare_folder(scenario_file: str, directory: str | os.PathLike[str]) -> None:
    """Make the folder that a scenario's files will go to, and try to write there.

    Raises:
        InputError: it cannot be made or written to.
    """
    from simcollectives.report.plots import file_stem

    folder = Path(directory) / file_stem(Path(scenario_file).stem)
    make_folder(folder)
    write_whole(folder / ".try", b"").unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that it is there with all its content, or as it was before; a link stays one.

    Raises:
        InputError: it cannot be written, or is there and no regular file.
    """
    try:
        target, part = _replaced(path)
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _cannot_write(path, error) from error
    return path


def _replaced(path: Path) -> tuple[Path, Path]:
    """The file that a path names, through links, and one beside it that takes its place; OSError for a device."""
    target = Path(os.path.realpath(path))
    # To replace a device, such as /dev/null, would take it from everybody.
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is no regular file")
    return target, target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before there is anything to write.

    Raises:
        InputError: it cannot.
    """
    try:
        target, part = _replaced(path)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        part.touch(exist_ok=False)
        part.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def check_own(path: Path, first_words: str) -> None:
    """Refuse to write over a file that does not begin as those that are written there.

    Raises:
        InputError: there is such a file, or it cannot be read.
    """
    begins = first_words.encode()
    own = True
    try:
        if path.is_file():
            with path.open("rb") as file:
                own = file.read(len(begins)) == begins
    except OSError as error:
        raise _cannot_write(path, error) from error
    if not own:
        rule = (
            f'{path} is there, does not begin with "{first_words}" as those do that fit wrote, and is not written over'
        )
        raise InputError([Problem("-o", f"{rule}; give another name, or take it away first")])


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it.

    Raises:
        InputError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error


def _cannot_write(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError([Problem("-o", f"cannot write {path}: {reason}; give a folder that can be written to")])


def png_bytes(figure: "Figure") -> bytes:
    """Return a figure as a PNG file, without the date or the version that made it, so that it only changes with it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def rows_csv(rows: Sequence[Row]) -> str:
    """Return rows as CSV: a column ``point.KEY`` for each key, options and other mappings as JSON text.

    The collectives of a training step, a list for each row, stand in result.json only.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row["point"]))
    names = [name for name in (rows[0] if rows else ROW_KEYS) if name != LISTED]
    before, after = names[: names.index("point")], names[names.index("point") + 1 :]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*before, *(f"point.{key}" for key in keys), *after])
    for row in rows:
        values = [
            *(row.get(key) for key in before),
            *(row["point"].get(key) for key in keys),
            *(row.get(key) for key in after),
        ]
        writer.writerow([_cell(value) for value in values])
    return text.getvalue()


def _cell(value: Any) -> str:
    value = plain_data(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, allow_nan=False) if isinstance(value, dict | list) else str(value)


def to_json(results: Sequence[ScenarioResult]) -> dict[str, Any]:
    """Return what ``--json`` prints of results, ready for ``json_text``."""
    from simcollectives import __version__

    return {"version": __version__, "scenarios": [scenario_json(result) for result in results]}


def scenario_json(result: ScenarioResult) -> dict[str, Any]:
    """Return one result as JSON data: the contract's keys; then notes, passed, interrupted, what was measured, fastest.

    ``measured`` is the one sweep laid over the predictions; ``measurements`` are all, ``measured_errors`` their errors.
    """
    extra = {
        "notes": result.notes,
        "passed": None if result.interrupted or result.problems else result.passed,
        "interrupted": result.interrupted,
        "measured": measured_json(result.measured[0]) if len(result.measured) == 1 else None,
        "measurements": [*map(measured_json, result.measured), *map(step_json, result.measured_steps)],
        "measured_errors": [*errors_json(result.measured), *step_errors_json(result.measured_steps)],
        "fastest": [_fastest_json(one) for one in fastest(result.rows)] if is_collective(result) else [],
        "contributions": result.contributions,
    }
    found: dict[str, Any] = plain_data({**result.to_json(), **extra})
    return found


def _fastest_json(one: Any) -> dict[str, Any]:
    return {**asdict(one), "rest": dict(one.rest)}


def json_text(data: Any) -> str:
    """Return data as JSON text, which never holds NaN or Infinity."""
    return json.dumps(plain_data(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain_data(value: Any) -> Any:
    """Return a value as JSON knows it: numbers of NumPy as plain ones, what is not finite as null.

    >>> plain_data({"a": np.int64(3), "b": (np.float64(0.5), float("nan")), "c": np.arange(2)})
    {'a': 3, 'b': [0.5, None], 'c': [0, 1]}
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain_data(inner) for key, inner in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain_data(inner) for inner in value]
    return str(value)
