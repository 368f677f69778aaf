"""What the command ``nccl`` does: NCCL's choice on so many nodes of a machine, as tables, files or JSON."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import typer

from simcollectives.cluster import Machine, load_machine, nccl_machine_names
from simcollectives.errors import Gathered, InputError, Problem
from simcollectives.measured.nccl import (
    Prediction,
    TuningLog,
    check_collective,
    graph_of_log,
    nccl_model,
    predict,
    prediction_json,
    read_tuning_log,
)
from simcollectives.report.reading import naming_file

MESSAGES = tuple(8 << power for power in range(32))
"""8 B to 16 GiB, as nccl-tests does."""


def run_nccl(
    machine: str,
    nodes: Sequence[int],
    collective: str,
    tuning: Path | None,
    output: Path | None,
    *,
    as_json: bool,
    say: Callable[[str], None],
) -> None:
    """Print what NCCL would pick, and write ``nccl.json`` and the plots into a folder.

    Raises:
        InputError: the machine, the collective or the log cannot be used; all problems at once.
    """
    from simcollectives.report.files import json_text
    from simcollectives.report.table_nccl import nccl_blocks
    from simcollectives.report.text import make_console, rendered, show

    predictions, warnings = predictions_of(machine, nodes, collective, tuning)
    for warning in warnings:
        say(f"warning: {warning}")
    data = {"machine": machine, "nccl": [prediction_json(one) for one in predictions]}
    if as_json:
        typer.echo(json_text(data), nl=False)
    else:
        show(rendered(nccl_blocks(predictions), make_console(sys.stdout).width), sys.stdout)
    if output is not None:
        for path in _write(predictions, json_text(data), machine, output):
            say(f"wrote {path}")


def predictions_of(
    machine: str, nodes: Sequence[int], collective: str, tuning: Path | None = None
) -> tuple[tuple[Prediction, ...], tuple[str, ...]]:
    """Return NCCL's choices on each number of nodes, and what was skipped of the log.

    Raises:
        InputError: as ``run_nccl``.
    """
    gathered = Gathered()
    gathered.errors += [InputError([problem]) for problem in check_collective(collective)]
    known = gathered.take(lambda: load_machine(machine))
    log = None if tuning is None else gathered.take(lambda: naming_file(read_tuning_log, tuning))
    if known is not None and known.nccl is None:
        have = ", ".join(nccl_machine_names())
        rule = f"NCCL's graph of {known.name} is not known; take one of {have}, or a scenario with nccl: {{graph: ..}}"
        gathered.errors.append(InputError([Problem("machine", rule)]))
    gathered.finish()
    found = [
        gathered.take(partial(_prediction, known, count, collective, log)) for count in dict.fromkeys(nodes or (1,))
    ]
    gathered.finish()
    return tuple(one for one in found if one is not None), () if log is None else log.warnings


def _prediction(machine: Machine | None, nodes: int, collective: str, log: TuningLog | None) -> Prediction:
    if machine is None or machine.nccl is None:
        raise ValueError("the machine was checked before")
    try:
        graph = machine.nccl if log is None else graph_of_log(machine.nccl, log)
        return predict(nccl_model(collective, graph, nodes, machine.gpus_per_node), MESSAGES, log)
    except InputError as error:
        place = "" if log is None else log.source
        raise InputError([Problem(place, one.message) for one in error.problems]) from None


def _write(predictions: Sequence[Prediction], text: str, title: str, folder: Path) -> list[Path]:
    from simcollectives.report.files import make_folder, png_bytes, write_whole
    from simcollectives.report.plot_nccl import nccl_figures

    make_folder(folder)
    written = [write_whole(folder / "nccl.json", text.encode())]
    for stem, figure in nccl_figures(predictions, title):
        written.append(write_whole(folder / f"{stem}.png", png_bytes(figure)))
    return written
