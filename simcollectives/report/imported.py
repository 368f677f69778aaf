"""An import of other tools' configs: its tables, and its scenario checked and written."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import RenderableType

from simcollectives.errors import InputError, Problem, UnitError, show_value, suggestion
from simcollectives.interop.deepspeed_auto import Integration
from simcollectives.interop.importing import Imported, import_files
from simcollectives.interop.importing_given import Given
from simcollectives.interop.scenario_text import shown
from simcollectives.interop.settings import ScenarioPath, Setting
from simcollectives.report.files import write_whole
from simcollectives.report.text import NOTHING, Block, Column, TextTable, heading, make_console, rendered, show, spaced
from simcollectives.scenario.keys import FLOPS_PER_SECOND, SHARE
from simcollectives.scenario.loading import load_document
from simcollectives.scenario.yaml_text import parse_document
from simcollectives.training.workload import Recomputation

_PRINTED = Path("imported.yaml")
_SHOWN = 30
_CHOICES: Mapping[str, Sequence[str]] = {
    "dtype": ("bfloat16", "float16", "float32"),
    "recomputation": get_args(Recomputation),
    "auto": get_args(Integration),
}


def run_import(files: Sequence[Path], options: Mapping[str, Any], output: Path | None) -> None:
    """Import files: tables, warnings, and the scenario into ``output``, or printed.

    Raises:
        InputError: whatever is wrong with the files or the options, all at once; then nothing is written.
    """
    place = output or _PRINTED
    imported = import_files(files, _given(options), place.parent)
    if imported.text is not None:
        check_scenario(imported.text, place)
    elif output is not None:
        raise InputError([Problem("-o", f"{imported.lacking}; give them, or leave -o out to see the values")])
    stream = sys.stderr if output is None and imported.text is not None else sys.stdout
    show(imported_tables(imported, make_console(stream).width), stream)
    for warning in imported.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if imported.text is None:
        print(f"no scenario: {imported.lacking}", file=sys.stderr)
    elif output is None:
        print(imported.text, end="")
    else:
        print(f"wrote {write_scenario(imported.text, output, files)}", file=sys.stderr)


def _given(options: Mapping[str, Any]) -> Given:
    """Return the options, quantities as numbers.

    Raises:
        InputError: one is no quantity, out of its range, or not among its choices; all problems at once.
    """
    problems = [
        Problem(f"--{name}", f"{show_value(options[name])} is not among its values; {suggestion(options[name], known)}")
        for name, known in _CHOICES.items()
        if options.get(name) is not None and options[name] not in known
    ]
    numbers: dict[str, float] = {}
    for name, kind in (("mfu", SHARE), ("peak", FLOPS_PER_SECOND)):
        try:
            numbers |= {} if options.get(name) is None else {name: kind.parse(options[name])}
        except UnitError as error:
            problems += [Problem(f"--{name}", problem.message) for problem in error.problems]
    if problems:
        raise InputError(problems)
    return Given(**{**options, **numbers})


def imported_tables(imported: Imported, width: int) -> list[RenderableType]:
    """Return every value with its origin, then what is not modelled."""
    used = [one for one in imported.settings if one.path]
    unused = [one for one in imported.settings if not one.path]
    blocks: list[list[Block]] = [[heading("in the scenario"), _values(used, placed=True)]]
    if unused:
        blocks.append([heading("beside it: what stands for something else there, or changes no step"), _values(unused)])
    if left := imported.unmodelled:
        names, values = [_short(one.name) for one in left], [shown(one.value, _SHOWN) for one in left]
        reasons = [one.reason for one in left]
        columns = [_text("value", names), _text("is", values), _text("what it changes", reasons, wrap_at=60)]
        blocks.append([heading("not modelled"), TextTable(columns)])
    return rendered(spaced(blocks), width)


def _values(settings: Sequence[Setting], *, placed: bool = False) -> TextTable:
    columns = [
        _text("value", [_short(one.name) for one in settings]),
        _text("is", [shown(one.value, _SHOWN) for one in settings]),
        _text("from", [one.origin for one in settings], wrap_at=60),
    ]
    if placed:
        columns.insert(2, _text("in the scenario", [_place(one.path) for one in settings]))
    if any(one.note for one in settings):
        columns.append(_text("note", [one.note or NOTHING for one in settings], wrap_at=60))
    return TextTable(columns)


def _place(path: ScenarioPath) -> str:
    """A place in the scenario, without what all of them share."""
    return ".".join(path).removeprefix("training.").removeprefix("strategy.")


def _short(name: str) -> str:
    """A key without the object that nearly all of them stand in."""
    return name.removeprefix("zero_optimization.").removeprefix("fsdp_config.")


def _text(header: str, cells: Sequence[str], wrap_at: int | None = None) -> Column:
    return Column(header, cells, right=False, wrap_at=wrap_at)


def check_scenario(text: str, file: Path) -> None:
    """Load the scenario of an import as ``run`` would, from the place where it will stand.

    Raises:
        InputError: it cannot be run; problems name the value's place in the scenario.
    """
    try:
        load_document(parse_document(text, os.fspath(file)))
    except InputError as error:
        problems = [Problem(one.place, one.message) for one in error.problems]
        raise InputError(problems, "the scenario that these files make") from None


def write_scenario(text: str, file: Path, inputs: Sequence[Path]) -> Path:
    """Write the scenario whole, but over none of the files that it was made from.

    Raises:
        InputError: the file is one of the inputs, or cannot be written.
    """
    if any(file.resolve() == one.resolve() for one in inputs):
        raise InputError([Problem("-o", f"{file} is one of the files that are read; write to another file")])
    return write_whole(file, text.encode())
