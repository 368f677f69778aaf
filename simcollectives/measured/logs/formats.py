"""The table of formats that are read, and reading a file of any of them: which one it is, its content says."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.measured import sweep as csv_sweeps
from simcollectives.measured.logs.alone import refuse_alone
from simcollectives.measured.logs.bar_table import looks_like_bar_table, read_bar_tables
from simcollectives.measured.logs.kineto import read_kineto
from simcollectives.measured.logs.nccl_json import read_nccl_json
from simcollectives.measured.logs.nccl_text import looks_like_nccl_text, read_nccl_text
from simcollectives.measured.logs.osu_text import looks_like_osu_text, read_osu_text
from simcollectives.measured.logs.rccl_csv import looks_like_rccl_csv, read_rccl_csv
from simcollectives.measured.logs.streams import Source
from simcollectives.measured.logs.sweeps import sweeps_of, with_dropped
from simcollectives.measured.logs.types import MAX_RANKS, LogSweep, MeasuredStep, ReadLog, Table, Tally
from simcollectives.measured.logs.world_size import ASKED, UNKNOWN
from simcollectives.metrics import COLLECTIVES

Found = tuple[list[Table], tuple[MeasuredStep, ...]]

_JSON = re.compile(r"[\s\ufeff]*[\[{]\s*[\"{]")
_TRACE = ('"traceEvents"', '"schemaVersion"', '"deviceProperties"', '"distributedInfo"', '"ph"')
_NCCL_KEYS = ('"results"', '"size"', '"nccl_version"', '"config"', '"start_time"', '"args"')


@dataclass(frozen=True)
class Format:
    """One format: ``in_head`` knows it by a file's beginning, ``in_line`` by any line, where one of these is enough."""

    name: str
    read: Callable[[Source, Tally], Found]
    in_head: Callable[[str], bool] | None = None
    in_line: Callable[[str], bool] | None = None


def _first_line(head: str) -> str:
    return head.lstrip("\ufeff\r\n ").partition("\n")[0]


def _is_project_csv(head: str) -> bool:
    cells = {cell.strip().strip('"') for cell in _first_line(head).split(",")}
    return cells.issuperset(csv_sweeps.TIMING_COLUMNS)


def _is_json_with(head: str, keys: tuple[str, ...]) -> bool:
    return _JSON.match(head) is not None and any(key in head for key in keys)


def _lines(read: Callable[..., list[Table]]) -> Callable[[Source, Tally], Found]:
    def found(source: Source, tally: Tally) -> Found:
        return read(source.lines(), tally), ()

    return found


PROJECT_CSV = Format("CSV of this project", lambda _source, _tally: ([], ()), _is_project_csv)

FORMATS: tuple[Format, ...] = (
    Format(
        "PyTorch profiler trace",
        lambda source, tally: read_kineto(source.text, tally),
        lambda head: _is_json_with(head, _TRACE),
    ),
    Format(
        "nccl-tests or rccl-tests JSON",
        lambda source, tally: (read_nccl_json(source.text, tally), ()),
        lambda head: _is_json_with(head, _NCCL_KEYS),
    ),
    PROJECT_CSV,
    Format("rccl-tests CSV", _lines(read_rccl_csv), lambda head: looks_like_rccl_csv(_first_line(head))),
    Format("nccl-tests or rccl-tests log", _lines(read_nccl_text), in_line=looks_like_nccl_text),
    Format("OSU micro-benchmarks log", _lines(read_osu_text), in_line=looks_like_osu_text),
    Format("table of hccl_test or all_reduce_bench", _lines(read_bar_tables), in_line=looks_like_bar_table),
)
"""Every format, in the order in which they are tried; the CSV of this project is read by ``measured.sweep``."""


def detect(path: Path) -> Format | None:
    """The format of a file, by its content; None where it is none that is known.

    Raises:
        InputError: the file cannot be read.
    """
    with Source(path) as source:
        head = source.head()
    for known in FORMATS:
        if known.in_head is not None and known.in_head(head):
            return known
    by_line = [known for known in FORMATS if known.in_line is not None]
    with Source(path) as source:
        for line in source.lines():
            for known in by_line:
                if known.in_line is not None and known.in_line(line.text):
                    return known
    return None


def read_log(
    path: Path | str, collective: str | None = None, ranks: int | None = None, nodes: int | None = None
) -> ReadLog:
    """Everything measured in a log: all its tables, both places of each, and what was skipped and why.

    ``collective``, ``ranks`` and ``nodes`` are taken where the log says them neither itself nor by its numbers; a sweep
    whose ranks, nodes or collective nothing says has None there.

    Raises:
        InputError: the file cannot be read, is of no known format, holds nothing that can be used, or its processes
            each ran alone.
    """
    return read_as(detect(Path(path)), Path(path), collective, ranks, nodes)


def read_as(
    known: Format | None,
    path: Path,
    collective: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
) -> ReadLog:
    """What ``read_log`` reads of a file whose format was found out before."""
    check_asked(collective, ranks, nodes)
    if known is None:
        with Source(path) as source:
            source.head()
        if source.damage:
            rule = f"{source.damage}, and nothing before is known as a measurement"
            raise InputError(f"{rule}; copy the file again", str(path))
        names = ", ".join(one.name for one in FORMATS)
        raise InputError(f"nothing in this file is known as a measurement; what is read: {names}", str(path))
    tally = Tally()
    if known is PROJECT_CSV:
        return _on_nodes(_read_project_csv(path, collective, ranks), nodes)
    try:
        with Source(path) as source:
            tables, steps = known.read(source, tally)
            if source.damage:
                tally.warn(f"{source.damage}; what stands before was read")
        refuse_alone(tables)
    except InputError as error:
        raise InputError(error.problems, str(path)) from None
    sweeps = sweeps_of(tables, path, collective, ranks, tally)
    if not sweeps and not steps:
        raise InputError(_nothing(tables, tally), str(path))
    skipped = tuple(tally.skipped.values())
    texts = tuple(map(str, skipped))
    sweeps = tuple(with_dropped(found, texts) for found in sweeps)
    log = ReadLog(str(path), known.name, tally.lines, sweeps, steps, skipped, tuple(tally.warnings))
    return _on_nodes(log, nodes)


def _on_nodes(log: ReadLog, nodes: int | None) -> ReadLog:
    """The sweeps that do not say their nodes on so many, which have to share out their ranks evenly."""
    if nodes is None:
        return log
    found = []
    for one in log.sweeps:
        ranks = one.sweep.world_size
        if one.sweep.nodes is None and ranks is not None and ranks % nodes:
            rule = f"{one.sweep.name} ran on {ranks} ranks, which {nodes} nodes cannot share evenly"
            raise InputError(f"{rule}; give the number of its nodes", log.source)
        found.append(replace(one, sweep=replace(one.sweep, nodes=one.sweep.nodes or nodes)))
    return replace(log, sweeps=tuple(found))


def check_asked(collective: str | None, ranks: int | None, nodes: int | None) -> None:
    """Refuse what no file can be of.

    Raises:
        InputError: it is given; all problems at once.
    """
    problems = []
    if collective is not None and collective not in COLLECTIVES:
        text = f"{show_value(collective)} is no collective; {suggestion(collective, COLLECTIVES)}"
        problems.append(Problem("--collective", text))
    for number, what, option in ((ranks, "ranks", "--ranks"), (nodes, "nodes", "--log-nodes")):
        if number is not None and not 1 <= number <= MAX_RANKS:
            text = f"{show_value(number)} {what} cannot be; give a number from 1 to {MAX_RANKS}"
            problems.append(Problem(option, text))
    if problems:
        raise InputError(problems)


def _nothing(tables: list[Table], tally: Tally) -> str:
    failed = [table.failed for table in tables if table.failed]
    reasons = [*(f"the run failed ({text})" for text in failed[:1]), *map(str, tally.skipped.values()), *tally.warnings]
    return f"no measured time can be used: {'; '.join(reasons[:6]) or 'there are no rows'}"


def _read_project_csv(path: Path, collective: str | None, ranks: int | None) -> ReadLog:
    sweeps = csv_sweeps.load_all(path)
    found = tuple(
        LogSweep(
            replace(sweep, collective=sweep.collective or collective, world_size=sweep.world_size or ranks),
            0,
            _source(sweep.collective, collective),
            _source(sweep.world_size, ranks),
        )
        for sweep in sweeps
    )
    lines = sum(len(sweep.message_bytes) for sweep in sweeps)
    return ReadLog(str(path), PROJECT_CSV.name, lines, found, (), (), tuple(t for s in sweeps for t in s.dropped))


def _source(stated: object, asked: object) -> str:
    return "sets.csv" if stated else ASKED if asked else UNKNOWN
