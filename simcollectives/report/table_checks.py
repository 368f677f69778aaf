"""The table of expectations."""

from collections.abc import Sequence

from simcollectives.errors import counted
from simcollectives.report.text import Block, Column, TextTable, caption, heading
from simcollectives.scenario import Check


def checks_blocks(checks: Sequence[Check]) -> list[Block]:
    """Return a row for each expectation: whether it holds, its line, what was found and what it has to be."""
    if not checks:
        return []
    columns = [
        Column("", ["ok" if check.passed else "FAILED" for check in checks], right=False),
        Column("line", ["" if check.line is None else str(check.line) for check in checks]),
        Column("found", [check.found for check in checks], right=False, wrap_at=60),
        Column("expected", [check.expected for check in checks], right=False, wrap_at=60),
    ]
    styles = ["green" if check.passed else "bold red" for check in checks]
    failed = sum(not check.passed for check in checks)
    verb = "holds" if len(checks) == 1 else "hold"
    of_all = f"{len(checks) - failed} of {counted(len(checks), 'expectation')} {verb}"
    summary = of_all + (f", {failed} failed" if failed else "")
    return [heading("Expectations"), TextTable(columns, styles, fixed=2), caption(summary)]
