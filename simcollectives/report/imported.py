"""What an import of other tools' configs found, as tables, and its scenario checked and written."""

import os
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from simcollectives.errors import InputError, Problem
from simcollectives.interop.importing import Imported
from simcollectives.interop.scenario_text import shown
from simcollectives.interop.settings import Setting
from simcollectives.report.files import write_whole
from simcollectives.report.text import NOTHING, Column, TextTable, heading, rendered, spaced
from simcollectives.scenario.loading import load_document
from simcollectives.scenario.yaml_text import parse_document


def imported_tables(imported: Imported, width: int) -> list[RenderableType]:
    """Return every value with its origin, then what is not modelled."""
    used = [one for one in imported.settings if one.path]
    unused = [one for one in imported.settings if not one.path]
    blocks = [[heading("in the scenario"), _values(used, placed=True)]]
    if unused:
        blocks.append([heading("of no consequence for the step"), _values(unused, placed=False)])
    if imported.unmodelled:
        names = [one.name for one in imported.unmodelled]
        values = [shown(one.value) for one in imported.unmodelled]
        reasons = [one.reason for one in imported.unmodelled]
        table = TextTable(
            [
                Column("value", names, right=False),
                Column("is", values, right=False),
                Column("why", reasons, right=False),
            ]
        )
        blocks.append([heading("not modelled"), table])
    return rendered(spaced(blocks), width)


def _values(settings: list[Setting], *, placed: bool) -> TextTable:
    columns = [
        Column("value", [one.name for one in settings], right=False),
        Column("is", [shown(one.value) for one in settings], right=False),
        Column("from", [one.origin for one in settings], right=False),
    ]
    if placed:
        columns.insert(2, Column("in the scenario", [".".join(one.path) for one in settings], right=False))
    if any(one.note for one in settings):
        columns.append(Column("note", [one.note or NOTHING for one in settings], right=False))
    return TextTable(columns)


def check_scenario(text: str, file: Path) -> None:
    """Load the scenario of an import as ``run`` would, from the place where it will stand.

    Raises:
        InputError: it cannot be run; problems name the value and its place in the scenario.
    """
    try:
        load_document(parse_document(text, os.fspath(file)))
    except InputError as error:
        problems = [Problem(one.place, one.message) for one in error.problems]
        raise InputError(problems, "the scenario of these files") from None


def write_scenario(text: str, file: Path, inputs: list[Path]) -> Path:
    """Write the scenario whole, but over none of the files that it was made from.

    Raises:
        InputError: the file is one of the inputs, or cannot be written.
    """
    if any(file.resolve() == one.resolve() for one in inputs):
        raise InputError([Problem("-o", f"{file} is one of the files that are read; write to another file")])
    return write_whole(file, text.encode())
