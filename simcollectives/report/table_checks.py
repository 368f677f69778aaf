"""Tables of what was checked: expectations, and predictions against measurements."""

from collections.abc import Callable, Sequence
from functools import partial

from rich.text import Text

from simcollectives.errors import counted
from simcollectives.report.rows import byte_family
from simcollectives.report.text import Block, Column, TextTable, caption, heading
from simcollectives.scenario import Check, MeasuredComparison
from simcollectives.units import format_bandwidth, format_bytes, format_ratio, format_seconds


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


def measured_blocks(measured: MeasuredComparison) -> list[Block]:
    """Return how far the predictions are from the measurements, as given and fitted, and every measured point."""
    sweep, fit = measured.sweep, measured.fit
    show_bytes = partial(format_bytes, family=byte_family(sweep.message_bytes))
    where = ", ".join(text for text in (sweep.gpu, _ranks(sweep.world_size, sweep.nodes)) if text)
    level = next((level.link for level in fit.cluster.levels if level.name == fit.level), None)
    given, fitted_errors = fit.given_errors, fit.errors
    summary = TextTable(
        [
            Column("prediction", [f"{measured.label}, as given", f"{measured.label}, fitted"], right=False),
            Column("median error", [format_ratio(one.median, 3) for one in (given, fitted_errors)]),
            Column("largest error", [format_ratio(one.largest, 3) for one in (given, fitted_errors)]),
            Column("at message", [show_bytes(one.largest_at_bytes) for one in (given, fitted_errors)]),
        ]
    )
    overhead = "" if level is None or level.overhead == 0 else f", overhead {format_seconds(level.overhead)} as given"
    found = f"{fit.level} alpha {format_seconds(fit.alpha)}, bandwidth {format_bandwidth(fit.bandwidth)}{overhead}"
    notes = [
        f"fitted by least squares in relative error: {found}",
        "; ".join(text for text in ("error: |predicted / measured - 1|", sweep.source) if text),
    ]
    ran = f"measured algorithm: {sweep.algorithm}" if sweep.algorithm else ""
    more = [text for text in (ran, f"caveats: {sweep.caveats}" if sweep.caveats else "") if text]
    return [
        heading(f"Measured: {sweep.name}" + (f" ({where})" if where else "")),
        summary,
        Text(""),
        _points_table(measured, show_bytes),
        *map(caption, [*notes, *more]),
    ]


def _ranks(world_size: int | None, nodes: int | None) -> str:
    if world_size is None:
        return ""
    return f"{world_size} ranks" if nodes in (None, 1) else f"{world_size} ranks on {nodes} nodes"


def _points_table(measured: MeasuredComparison, show_bytes: Callable[[float], str]) -> TextTable:
    sweep, fit = measured.sweep, measured.fit

    def signed(predicted: Sequence[float]) -> list[str]:
        ratios = [p / m - 1 for p, m in zip(predicted, sweep.seconds, strict=True)]
        return [("+" if ratio > 0 else "") + format_ratio(ratio, 3) for ratio in ratios]

    return TextTable(
        [
            Column("\nmessage", [show_bytes(size) for size in sweep.message_bytes]),
            Column("\nmeasured", [format_seconds(time) for time in sweep.seconds]),
            Column("predicted\nas given", [format_seconds(time) for time in fit.given_predicted]),
            Column("\noff by", signed(fit.given_predicted)),
            Column("predicted\nfitted", [format_seconds(time) for time in fit.predicted]),
            Column("\noff by", signed(fit.predicted)),
        ]
    )
