"""Everything that the terminal, or a notebook, shows of a result, in reading order."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from simcollectives.report.numerics import is_numerics, numerics_blocks
from simcollectives.report.table_checks import checks_blocks
from simcollectives.report.table_fastest import fastest_blocks
from simcollectives.report.table_lists import algorithm_tables, machine_tables, model_tables, strategy_tables
from simcollectives.report.table_measured import measured_blocks
from simcollectives.report.table_measured_steps import measured_steps_blocks
from simcollectives.report.table_nccl import nccl_blocks
from simcollectives.report.table_results import results_blocks
from simcollectives.report.text import Block, caption, heading, html, make_console, rendered, show
from simcollectives.report.training import training_blocks
from simcollectives.scenario import ScenarioResult

__all__ = [
    "algorithm_tables",
    "check_tables",
    "checks_blocks",
    "fastest_blocks",
    "html",
    "machine_tables",
    "make_console",
    "measured_blocks",
    "model_tables",
    "rendered",
    "result_blocks",
    "result_tables",
    "results_blocks",
    "show",
    "strategy_tables",
    "warnings_text",
]


def result_tables(result: ScenarioResult, width: int, *, full: bool = False) -> list[RenderableType]:
    """Return title, results, fastest, NCCL's choice, measurements, contributions and expectations, for ``show``.

    ``width`` is that of the terminal; ``full`` gives details of every row. Warnings are not among them.
    """
    return rendered(result_blocks(result, full=full), width)


def check_tables(result: ScenarioResult, width: int) -> list[RenderableType]:
    """Return the title of a result and its expectations, for ``show``."""
    return rendered([_title(result), *checks_blocks(result.checks)], width)


def result_blocks(result: ScenarioResult, *, full: bool = False) -> list[Block]:
    """As ``result_tables``, for no particular width."""
    scenario = result.scenario
    parts: list[list[Block]] = [[_title(result)]]
    if scenario.description:
        parts[0].append(Text(scenario.description.strip()))
    if note := getattr(getattr(scenario, "cluster", None), "note", ""):
        parts[0].append(caption(note))
    if result.problems:
        parts[0].append(
            Text("some runs could not be made: what follows is the others, without checks", style="bold yellow")
        )
    if result.interrupted:
        parts[0].append(Text("interrupted: what follows is only what was finished", style="bold yellow"))
    if result.steps:
        parts.append(training_blocks(result, full=full))
    elif is_numerics(result):
        parts.append(numerics_blocks(result, full=full) if result.rows else [])
    elif result.rows:
        parts += [results_blocks(result.rows, full=full), fastest_blocks(result.rows)]
    parts.append(nccl_blocks(result.nccl))
    parts += [measured_blocks(result.measured), measured_steps_blocks(result.measured_steps)]
    for text in result.contributions:
        parts.append([heading("Contributions held after each round"), Text(text, no_wrap=True, overflow="ignore")])
    parts.append(checks_blocks(result.checks))
    blocks: list[Block] = []
    for part in filter(None, parts):
        blocks += [Text(""), *part] if blocks else part
    return blocks


def _title(result: ScenarioResult) -> Text:
    return Text.assemble((result.scenario.title, "bold underline"), f"  ({result.scenario.file})")


def warnings_text(warnings: Sequence[str]) -> list[RenderableType]:
    """Return warnings, one after another, for ``show`` on standard error."""
    return [Text.assemble(("warning: ", "bold yellow"), text) for text in warnings]
