"""Logs of processes that did not know of each other: nccl-tests without MPI, started on every rank or host.

Each then runs its own test on its own GPUs, at the same time as all others: no time in such a log is one of the
collective that was meant.
"""

from collections import Counter
from collections.abc import Sequence

from simcollectives.errors import InputError, listing
from simcollectives.measured.logs.checks import Range, printed
from simcollectives.measured.logs.types import Sample, Table

_PRINTED_GBPS = 1.0
_NOTHING = Range(0.0, 0.0)

REMEDY = (
    "build nccl-tests with MPI=1 (make MPI=1 MPI_HOME=..) and start it again; "
    "if they were meant to run one by one, read one log for each"
)


def refuse_alone(tables: Sequence[Table]) -> None:
    """Raise where processes or hosts each ran alone.

    Raises:
        InputError: they did; the message says what shows it, and what to do.
    """
    shown = _several_writers(tables) or _rank_twice(tables) or _interleaved(tables) or _hosts(tables) or _single(tables)
    if shown:
        raise InputError(f"{shown}: they ran alone, not together; {REMEDY}")


def _several_writers(tables: Sequence[Table]) -> str:
    for table in tables:
        if len(table.writers) > 1:
            return f"rows were written by several processes ({listing(sorted(table.writers), 4)})"
    return ""


def _rank_twice(tables: Sequence[Table]) -> str:
    for table in tables:
        places: dict[tuple[int, int], tuple[str, str]] = {}
        for device in table.devices:
            here = device.host, device.process
            if places.setdefault((device.group, device.rank), here) != here:
                first = places[device.group, device.rank]
                names = listing([" process ".join(filter(None, place)) for place in (first, here)])
                return f"rank {device.rank} is listed on {names}"
    return ""


def _interleaved(tables: Sequence[Table]) -> str:
    """Several heads of runs, then rows of all of them: every size stands there more than once."""
    heads = 0
    for table in tables:
        if not table.samples:
            heads = 0 if table.failed else heads + 1
            continue
        repeats = max(map(_repeats, table.samples.values()))
        runs = heads + max(1, table.headers)
        heads = 0
        if runs > 1 and (table.footers > 1 or repeats >= runs):
            return f"{runs} heads of runs stand before rows that repeat their sizes"
    return ""


def _repeats(samples: Sequence[Sample]) -> int:
    """How often the most frequent size of a place stands there."""
    return max(Counter((sample.size, sample.place) for sample in samples).values(), default=0)


def _hosts(tables: Sequence[Table]) -> str:
    """The same test on one host after another, each with itself."""
    hosts: dict[tuple[object, ...], list[str]] = {}
    with_rows = [table for table in tables if table.samples]
    for table in with_rows:
        own = {device.host for device in table.devices}
        if len(own) != 1:
            return ""
        test = (table.collective, tuple(sorted(table.settings.items())), frozenset(table.samples), len(table.devices))
        hosts.setdefault(test, []).append(own.pop())
    for names in hosts.values():
        if len(set(names)) > 1:
            return f"the same test stands here once for each of {listing(sorted(set(names)), 4)}, on its own ranks only"
    return ""


def _single(tables: Sequence[Table]) -> str:
    single = [table for table in tables if table.samples and _has_one_rank(table)]
    if not single:
        return ""
    return "one process with one rank" if len(single) == 1 else f"{len(single)} processes with one rank each"


def _has_one_rank(table: Table) -> bool:
    """Whether rank 0 is the only one listed, or none is, and no bus bandwidth speaks of more.

    One rank has none in a reduction, which alone shows it where the rates are large enough to be printed.
    """
    if [device.rank for device in table.devices] not in ([0], []) or max(table.communicators, default=1) > 1:
        return False
    reduced = [sample for kind, samples in table.samples.items() if kind.redop for sample in samples]
    if any(printed(sample.busbw) is not None for sample in reduced):
        return False
    return bool(table.devices) or any((printed(sample.algbw) or _NOTHING).low >= _PRINTED_GBPS for sample in reduced)
