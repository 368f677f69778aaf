"""Which strategy to choose: a table with the reasons in words."""

from collections.abc import Sequence

from rich.text import Text

from simcollectives.report.table_training import Labelled
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, with_unit
from simcollectives.training.comparison import NEAR, Comparison, Verdict
from simcollectives.units import format_bytes, format_seconds


def comparison_blocks(comparison: Comparison, steps: Sequence[Labelled], where: str = "") -> list[Block]:
    """Return strategies with what each shards, whether it fits and by how much, its time, and why it is not chosen."""
    verdicts = comparison.verdicts
    columns = [
        Column("", [one.label for one in verdicts], right=False, wrap_at=30),
        Column("shards", [one.sharded for one in verdicts], right=False),
        Column("fits", [_fits(one) for one in verdicts], right=False),
        with_unit("to spare", [_spare(one) for one in verdicts]),
        Column("step", [format_seconds(step.step_seconds) for _, step in steps]),
        Column("why", [one.reason for one in verdicts], right=False, wrap_at=60),
    ]
    styles = ["bold" if place == comparison.chosen else "" for place in range(len(verdicts))]
    title = f"Which strategy{f', {where}' if where else ''}"
    notes = [
        f"chosen: of those that fit and are at most {NEAR:.0%} slower than the fastest, the one that shards least: "
        "nothing, then optimizer states, gradients, parameters"
    ]
    if any(step.strategy.startswith("zero") and step.options["implementation"] == "paper" for _, step in steps):
        notes.append("zero1, zero2, zero3 are the paper's; DeepSpeed's: {zero2: {implementation: deepspeed}}")
    return [heading(title), TextTable(columns, styles=styles), *map(Text, comparison.advice), *map(caption, notes)]


def _fits(verdict: Verdict) -> str:
    return {True: "yes", False: "no", None: "?"}[verdict.fits]


def _spare(verdict: Verdict) -> str:
    return NOTHING if verdict.spare_bytes is None else format_bytes(verdict.spare_bytes, family="decimal")
