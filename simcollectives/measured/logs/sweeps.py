"""Tables of a log as measured sweeps: rows that contradict themselves are left out and counted, doubts are warnings."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simcollectives.engines.job import MAX_MESSAGE_BYTES
from simcollectives.measured.logs import checks
from simcollectives.measured.logs.types import Kind, LogSweep, Sample, Table, Tally
from simcollectives.measured.logs.world_size import Ranks, collective_named, collective_of, groups_of, ranks_of
from simcollectives.measured.sweep import PLACES, MeasuredSweep

LAUNCH_ONLY = "a table of cputime: what the launches took, not the collectives"
_PER_RANK = ("all_gather", "all_to_all")
_PLACE_WORDS = {"out": "out of place", "in": "in place"}
_MOSTLY = 0.5


@dataclass(frozen=True)
class Settled:
    """What holds for all rows of a table."""

    collective: str | None
    collective_from: str
    ranks: Ranks
    exponent: int


def sweeps_of(
    tables: Sequence[Table], source: Path, collective: str | None, ranks: int | None, tally: Tally
) -> tuple[LogSweep, ...]:
    """The sweeps of all tables, each place of each element type, operation and root one; ``tally`` counts the rest."""
    used = [table for table in tables if table.samples]
    found: list[LogSweep] = []
    for number, table in enumerate(used, start=1):
        ending = table.name or ("" if len(used) == 1 else str(number))
        name = "_".join(filter(None, (_name(source), ending)))
        settled = _settle(table, collective, ranks, tally)
        if settled is not None:
            found += _sweeps(table, settled, name, source, tally)
    _warn_if_unused("--collective", collective, [(one.sweep.collective, one.collective_from) for one in found], tally)
    _warn_if_unused("--ranks", ranks, [(one.sweep.world_size, one.world_size_from) for one in found], tally)
    return tuple(found)


def _warn_if_unused(option: str, asked: object, found: Sequence[tuple[object, str]], tally: Tally) -> None:
    """Warn of something asked for that every table says itself, and differently."""
    if asked is not None and found and asked not in {value for value, _ in found}:
        value, source = found[0]
        tally.warn(f"{option} {asked} is not applied: by {source} it is {value}")


def _name(source: Path) -> str:
    """A set's name from a file's: without endings, in letters, digits, dots, dashes and underscores.

    >>> _name(Path("runs/all reduce,8.log.gz"))
    'all_reduce_8'
    """
    stem = source.name
    for _ in range(2):
        stem = re.sub(r"\.(gz|log|txt|out|md|markdown|json|jsonl|csv|pt|trace)$", "", stem)
    return re.sub(r"[^\w.\-]+", "_", stem).strip("_.") or "log"


def _settle(table: Table, collective: str | None, ranks: int | None, tally: Tally) -> Settled | None:
    """What holds for all rows; None where they are of no use, which is then counted."""
    if table.launch_only:
        tally.skip(LAUNCH_ONLY, table.line, table.count)
        return None
    if table.collective and table.collective_from == "the log" and collective_named(table.collective) is None:
        tally.skip(f"rows of {table.collective[:40]}, which this project does not have", table.line, table.count)
        return None
    exponent = _exponent(table, tally)
    _drop_unusable(table, exponent, tally)
    found, found_from = collective_of(table, collective)
    size = ranks_of(table, found, ranks, tally)
    if table.per_rank and found in _PER_RANK and size.world_size is None:
        rule = f"sizes of {found} are of one rank's part here; say of how many ranks, for instance --ranks 8"
        tally.skip(rule, table.line, table.count)
        return None
    settled = Settled(found, found_from, size, exponent)
    _drop_other_busbw(table, settled, tally)
    return settled


def _exponent(table: Table, tally: Tally) -> int:
    """The unit of the times: the header's, else the one that the rates fit, else microseconds."""
    if table.exponent is not None:
        return table.exponent
    fitting = checks.unit_of(table.pairs())
    if fitting == -3:
        tally.warn(f"line {table.line}: no header says the unit of the times; they are milliseconds by the rates")
    return -6 if fitting is None else fitting


def _drop_unusable(table: Table, exponent: int, tally: Tally) -> None:
    """Take out samples that are no time of a collective that moved the right data."""
    for kind, samples in table.samples.items():
        kept = []
        for sample in samples:
            reason = _unusable(kind, sample, exponent)
            if reason:
                tally.skip(reason, sample.line)
            else:
                kept.append(sample)
        table.samples[kind] = kept


def _unusable(kind: Kind, sample: Sample, exponent: int) -> str:
    if sample.size == 0:
        return "size 0: no bytes move, so only a launch was timed"
    if sample.size > MAX_MESSAGE_BYTES:
        return f"a size above {MAX_MESSAGE_BYTES} bytes"
    if checks.seconds_of(sample.time, exponent) is None:
        return "no time that a collective takes"
    if sample.wrong:
        return "the check of the result failed"
    if not checks.algbw_agrees(kind, sample, exponent):
        return "algbw is not size over time: the row contradicts itself"
    return ""


def _drop_other_busbw(table: Table, settled: Settled, tally: Tally) -> None:
    """Take out samples whose bus bandwidth contradicts the ranks; where most do, warn instead."""
    collective, ranks = settled.collective, settled.ranks.world_size
    if collective is None or ranks is None or ranks < 2:
        return

    def agrees(kind: Kind, sample: Sample) -> bool:
        return checks.busbw_agrees(collective, ranks, sample) or checks.counts_parts_sent(
            kind, sample, settled.exponent
        )

    agreeing: dict[Kind, list[Sample]] = {kind: [] for kind in table.samples}
    others: list[Sample] = []
    for kind, sample in table.pairs():
        (agreeing[kind] if agrees(kind, sample) else others).append(sample)
    if table.count - len(others) < _MOSTLY * table.count:
        tally.warn(f"line {table.line}: busbw over algbw is not that of {collective} on {ranks} ranks")
        return
    for sample in others:
        tally.skip("busbw over algbw contradicts the other rows", sample.line)
    table.samples = agreeing


def _sweeps(table: Table, settled: Settled, name: str, source: Path, tally: Tally) -> list[LogSweep]:
    found = []
    for kind, samples in table.samples.items():
        own = name if len(table.samples) == 1 else f"{name}_{_kind_name(kind)}"
        for place in PLACES:
            here = [sample for sample in samples if sample.place == place]
            if here:
                sweep = _sweep(table, settled, own, source, here)
                for text in checks.slow_points(sweep.message_bytes, sweep.seconds):
                    tally.warn(f"{own} ({_PLACE_WORDS[place]}): {text}")
                found.append(_log_sweep(table, settled, kind, sweep))
    if table.failed_rows:
        tally.warn(f"line {table.line}: the test counted {table.failed_rows} results out of bounds")
    if table.failed:
        tally.warn(f"line {table.line}: the run failed ({table.failed})")
    return found


def _kind_name(kind: Kind) -> str:
    parts = [kind.dtype, kind.redop, "" if kind.root is None else f"root{kind.root}"]
    return "_".join(filter(None, parts)) or "other"


def _log_sweep(table: Table, settled: Settled, kind: Kind, sweep: MeasuredSweep) -> LogSweep:
    sources = settled.collective_from, settled.ranks.source
    return LogSweep(sweep, table.line, *sources, dtype=kind.dtype, redop=kind.redop, root=kind.root)


def _sweep(table: Table, settled: Settled, name: str, source: Path, samples: Iterable[Sample]) -> MeasuredSweep:
    scaled = table.per_rank and settled.collective in _PER_RANK
    factor = settled.ranks.world_size or 1 if scaled else 1
    points = []
    for sample in samples:
        seconds = checks.seconds_of(sample.time, settled.exponent)
        if seconds is not None:
            points.append((sample.size * factor, seconds, sample.place))
    points.sort()
    gpus = Counter(device.gpu for device in table.devices if device.gpu)
    return MeasuredSweep(
        name=name,
        collective=settled.collective,
        algorithm="",
        world_size=settled.ranks.world_size,
        nodes=settled.ranks.nodes,
        gpu=table.gpu or " and ".join(sorted(gpus)[:3]),
        intra_link="",
        nic="",
        nccl_version=table.nccl_version,
        source=source.name,
        caveats="; ".join(_caveats(table)),
        message_bytes=tuple(size for size, _, _ in points),
        seconds=tuple(seconds for _, seconds, _ in points),
        place=points[0][2],
    )


def _caveats(table: Table) -> list[str]:
    """What of a run moves its times."""
    found = list(table.caveats)
    settings = table.settings
    if int(settings.get("nThread", "1")) > 1 or int(settings.get("nGpus", "1")) > 1:
        found.append("several GPUs in one process: launching takes longer")
    if int(settings.get("agg iters", "1")) > 1:
        found.append(f"{settings['agg iters']} operations aggregated into one launch")
    if int(settings.get("graph", "0")) > 0:
        found.append("launched as a CUDA graph")
    if groups_of(table) > 1:
        found.append(f"{groups_of(table)} groups of ranks at once")
    return found


def with_dropped(found: LogSweep, texts: tuple[str, ...]) -> LogSweep:
    """The sweep, which says itself what was left out of its log."""
    return replace(found, sweep=replace(found.sweep, dropped=texts))
