"""Tables of measured training steps beside predictions: which part is off, which collectives, and at which points."""

from collections.abc import Mapping, Sequence

from rich.text import Text

from simcollectives.errors import counted
from simcollectives.measured.spread import Spread, spreads_by
from simcollectives.measured.step_comparison import PARTS, CollectiveMatch, by_kind
from simcollectives.report.table_errors import bias_text, signed, spread_text, told_apart
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading
from simcollectives.scenario import MeasuredStepComparison
from simcollectives.scenario.keys import value_text, without_options
from simcollectives.scenario.training.keys import MEASURED_METRICS
from simcollectives.units import format_bytes, format_seconds

_MOST_MATCHES = 12
_MOST_NAMED = 6
_WHERE = "error: |predicted / measured - 1|, median / 90th percentile; bias: its signed median, + predicted too high"


def measured_steps_blocks(measured: Sequence[MeasuredStepComparison]) -> list[Block]:
    """Return every measured step beside the simulated one, and where the errors are."""
    names = step_titles(measured)
    blocks: list[Block] = []
    given = [pair for pair in zip(names, measured, strict=True) if pair[1].step is None]
    for name, one in zip(names, measured, strict=True):
        if one.step is not None:
            blocks += [*([Text("")] if blocks else []), *_trace_blocks(name, one)]
    if given:
        blocks += [*([Text("")] if blocks else []), *_given_blocks(given)]
    if len(measured) > 1:
        blocks += [Text(""), *_where_blocks(names, measured)]
    return blocks


def step_titles(measured: Sequence[MeasuredStepComparison]) -> list[str]:
    """Return what tells measured steps apart: strategy, point, or both, and where these do not, their names."""
    points = [
        ", ".join(f"{key} {value_text(key, value)}" for key, value in without_options(one.point).items())
        for one in measured
    ]
    alone = len(measured) > 1 and len({one.label for one in measured}) == 1 and all(points)
    both = zip(measured, points, strict=True)
    short = [point if alone else ", ".join(filter(None, (one.label, point))) for one, point in both]
    return told_apart(short, [one.name for one in measured])


def metric_name(metric: str) -> str:
    """Return what a metric is called in tables: "step", "tokens per second"."""
    return metric.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def _shown(metric: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    if metric.endswith("bytes"):
        return format_bytes(value, 4, family="binary")
    if metric == "tokens_per_second" and value >= 1000:
        return f"{value:,.0f}"
    return MEASURED_METRICS[metric].format(value, 4)


def _off(one: MeasuredStepComparison, metric: str) -> str:
    return signed(one.relative[metric]) if metric in one.relative else NOTHING


def _trace_blocks(name: str, one: MeasuredStepComparison) -> list[Block]:
    whole = (one.predicted["step_seconds"] or 0.0) - one.measured["step_seconds"]
    metrics = list(one.measured)
    rows = ["step_seconds", *PARTS, *(metric for metric in metrics if metric not in ("step_seconds", *PARTS))]
    differences = {metric: (one.predicted[metric] or 0.0) - one.measured[metric] for metric in rows}
    parts = [metric in ("step_seconds", *PARTS) for metric in rows]
    shares = [differences[metric] / whole if whole and part else None for metric, part in zip(rows, parts, strict=True)]
    columns = [
        Column(
            "", [f"  {metric_name(metric)}" if metric in PARTS else metric_name(metric) for metric in rows], right=False
        ),
        Column("measured", [_shown(metric, one.measured[metric]) for metric in rows]),
        Column("predicted", [_shown(metric, one.predicted[metric]) for metric in rows]),
        Column("off by", [_off(one, metric) for metric in rows]),
        Column(
            "difference",
            [_difference(differences[metric]) if metric.endswith("seconds") else NOTHING for metric in rows],
        ),
        Column("of the step's (%)", [NOTHING if share is None else f"{round(100 * share)}" for share in shares]),
    ]
    largest = max(PARTS, key=lambda metric: abs(differences[metric]))
    way = "longer" if differences[largest] > 0 else "shorter"
    most = f"most of it is {metric_name(largest)}, predicted {format_seconds(abs(differences[largest]), 3)} {way}"
    rank = "" if one.step is None or one.step.rank in (None, 0) else f" of rank {one.step.rank}"
    return [
        heading(f"Measured step{rank}: {name}" + ("" if one.name in name else f" ({one.name})")),
        TextTable(columns),
        caption(f"difference: predicted less measured; of compute, exposed and idle it sums to the step's: {most}"),
        Text(""),
        *_collectives_blocks(one.collectives),
    ]


def _difference(seconds: float) -> str:
    return ("+" if seconds > 0 else "") + format_seconds(seconds, 3)


def _collectives_blocks(matches: Sequence[CollectiveMatch]) -> list[Block]:
    if not matches:
        return [caption("collectives: none, measured or predicted")]
    blocks: list[Block] = [heading("Its collectives, all of a kind"), _kinds_table(matches)]
    shown = matches[:_MOST_MATCHES]
    if len(matches) > len(by_kind(matches)):
        title = f"The {len(shown)} of {len(matches)} sorts" if len(shown) < len(matches) else "The same by sort"
        blocks += [Text(""), heading(f"{title} whose time differs most"), _matches_table(shown)]
    blocks.append(caption("time: of all of them, in which they run; count and time: measured, predicted"))
    for what, some in (("measured", "predicted"), ("predicted", "measured")):
        alone = [(getattr(one, what) - getattr(one, some), one) for one in matches]
        if alone := [(count, one) for count, one in alone if count > 0]:
            blocks.append(caption(f"{what} without a {some} one alike: {_named(alone)}"))
    return blocks


def _kinds_table(matches: Sequence[CollectiveMatch]) -> TextTable:
    kinds = by_kind(matches)
    known = {one.kind: [match for match in matches if match.kind == one.kind] for one in kinds}
    columns = [Column("\ncollective", [one.kind for one in kinds], right=False), *_counts(kinds)]
    for side in ("measured", "predicted"):
        sizes = [_bytes_of(known[one.kind], side) for one in kinds]
        columns.append(Column(f"bytes\n{side}", [NOTHING if size is None else format_bytes(size) for size in sizes]))
    return TextTable([*columns, *_times(kinds)])


def _bytes_of(matches: Sequence[CollectiveMatch], side: str) -> int | None:
    """Bytes of all of a side; None where some are not known."""
    mine = [(one.bytes, getattr(one, side)) for one in matches if getattr(one, side)]
    return None if any(size is None for size, _ in mine) else sum((size or 0) * count for size, count in mine)


def _matches_table(matches: Sequence[CollectiveMatch]) -> TextTable:
    columns = [
        Column("\ncollective", [one.kind for one in matches], right=False),
        Column("\nof", [NOTHING if one.bytes is None else format_bytes(one.bytes, 7) for one in matches]),
    ]
    if len({one.group_size for one in matches}) > 1:
        columns.append(
            Column("\nranks", [NOTHING if one.group_size is None else str(one.group_size) for one in matches])
        )
    if any(one.phase for one in matches):
        columns.append(Column("\nphase", [one.phase or NOTHING for one in matches], right=False))
    return TextTable([*columns, *_counts(matches), *_times(matches)], fixed=2)


def _counts(matches: Sequence[CollectiveMatch]) -> list[Column]:
    return [
        Column("count\nmeasured", [str(one.measured) for one in matches]),
        Column("\npredicted", [str(one.predicted) for one in matches]),
    ]


def _times(matches: Sequence[CollectiveMatch]) -> list[Column]:
    measured = [format_seconds(one.measured_seconds, 4) if one.measured else NOTHING for one in matches]
    predicted = [format_seconds(one.predicted_seconds, 4) if one.predicted else NOTHING for one in matches]
    off = []
    for one in matches:
        known = one.measured_seconds > 0 and one.predicted > 0
        off.append(signed(one.predicted_seconds / one.measured_seconds - 1) if known else NOTHING)
    return [
        Column("time\nmeasured", measured),
        Column("\npredicted", predicted),
        Column("\noff by", off),
        Column("\ndifference", [_difference(one.difference) for one in matches]),
    ]


def _named(matches: Sequence[tuple[int, CollectiveMatch]]) -> str:
    texts = [
        f"{count} x {one.kind}" + ("" if one.bytes is None else f" of {format_bytes(one.bytes, 7)}")
        for count, one in matches[:_MOST_NAMED]
    ]
    more = len(matches) - len(texts)
    return ", ".join(texts) + (f" and {counted(more, 'more sort')}" if more else "")


def _given_blocks(given: Sequence[tuple[str, MeasuredStepComparison]]) -> list[Block]:
    """A row for each number, or for each point where one number was measured at each."""
    rows = [(name, one, metric) for name, one in given for metric in MEASURED_METRICS if metric in one.measured]
    single = len({metric for _, _, metric in rows}) == 1
    headings: dict[int, str] = {}
    for place, (name, one, _) in enumerate(rows):
        if place == 0 or rows[place - 1][1] is not one:
            headings[place] = name
    sources = [f"{name}: {one.name}" for name, one in given]
    if len({one.name for _, one in given}) == 1:
        sources = [f"source: {given[0][1].name}"]
    what = f": {metric_name(rows[0][2])}" if single else ""
    first = [name if single else f"  {metric_name(metric)}" for name, _, metric in rows]
    table = TextTable(
        [
            Column("", first, right=False, wrap_at=40),
            Column("ranks", [str(one.world_size) for _, one, _ in rows]),
            Column("measured", [_shown(metric, one.measured[metric]) for _, one, metric in rows]),
            Column("predicted", [_shown(metric, one.predicted[metric]) for _, one, metric in rows]),
            Column("off by", [_off(one, metric) for _, one, metric in rows]),
        ],
        headings={} if single else headings,
    )
    title = f"Measured steps against predicted{what}"
    labels = list(dict.fromkeys(one.label for _, one in given))
    return [
        heading(f"{title}{' of' if what else ':'} {labels[0]}" if len(labels) == 1 else title),
        table,
        *map(caption, sources),
    ]


def _where_blocks(names: Sequence[str], measured: Sequence[MeasuredStepComparison]) -> list[Block]:
    """The errors of each metric in all, by strategy and by each key of the points of which several are alike."""
    rows: list[tuple[str, str, Spread]] = []
    worst = []
    for metric in MEASURED_METRICS:
        mine = [(name, one) for name, one in zip(names, measured, strict=True) if metric in one.relative]
        if len(mine) < 2:
            continue
        relative = [one.relative[metric] for _, one in mine]
        for where, groups in groups_of([one for _, one in mine]).items():
            found = spreads_by(relative, groups)
            if where == "all" or 1 < len(found) < len(mine):
                rows += [(metric, group if where == "all" else f"{where} {group}", one) for group, one in found.items()]
                if where == "all":
                    place = found["all"].worst_at
                    worst.append(f"{metric_name(metric)} {signed(relative[place])}, {mine[place][0]}")
    if not rows:
        return [caption("no metric was measured at two points, so that there is no median")]
    table = TextTable(
        [
            Column("", [metric_name(metric) for metric, _, _ in rows], right=False),
            Column("where", [where for _, where, _ in rows], right=False, wrap_at=40),
            Column("points", [str(found.points) for _, _, found in rows]),
            Column("error (%)", [spread_text(found) for _, _, found in rows]),
            Column("bias", [bias_text(found) for _, _, found in rows]),
            Column("worst", [signed(found.worst) for _, _, found in rows]),
        ],
        fixed=2,
    )
    return [heading("Where the predictions are off"), table, caption(_WHERE), caption(f"the worst: {'; '.join(worst)}")]


def groups_of(measured: Sequence[MeasuredStepComparison]) -> Mapping[str, list[str]]:
    """Return ways to group measured steps, each with the group of every step: all, strategy, keys of the points."""
    keys = dict.fromkeys(key for one in measured for key in without_options(one.point))
    found = {"all": ["all"] * len(measured), "strategy": [one.label for one in measured]}
    for key in keys:
        found[key] = [NOTHING if key not in one.point else value_text(key, one.point[key]) for one in measured]
    return found
