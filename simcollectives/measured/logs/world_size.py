"""Of which collective a table is, and how many ranks ran it: from what the log says, else from its numbers."""

from collections import Counter
from typing import NamedTuple

from simcollectives.measured.logs import checks
from simcollectives.measured.logs.types import MAX_RANKS, Kind, Sample, Table, Tally

ASKED = "as asked for"
UNKNOWN = "not known"

_NAMES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallpersonalizedexchange": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
}
_MOSTLY = 0.9


class Ranks(NamedTuple):
    """The number of ranks and where it is from; the number of nodes where the log lists all ranks."""

    world_size: int | None
    source: str
    nodes: int | None = None


def collective_named(word: str) -> str | None:
    """A collective in this project's spelling, from a program's or a library's; None where it is none of them.

    >>> collective_named("all_reduce_perf"), collective_named("AllToAll"), collective_named("sendrecv_perf")
    ('all_reduce', 'all_to_all', None)
    """
    plain = "".join(character for character in word.lower().removesuffix("_perf") if character.isalnum())
    return _NAMES.get(plain)


def collective_of(table: Table, asked: str | None) -> tuple[str | None, str]:
    """The collective of a table and where it is from: the log's word, what only its columns can mean, or ``asked``."""
    named = collective_named(table.collective) if table.collective else None
    found, source = (named, table.collective_from) if named else (_by_columns(table), "the columns")
    if found is None:
        return (asked, ASKED) if asked else (None, UNKNOWN)
    return found, source


def _by_columns(table: Table) -> str | None:
    """An operation, a root, and whether elements are counted by part: some combinations belong to one collective."""
    found = {_by_kind(kind, samples) for kind, samples in table.samples.items()}
    return found.pop() if len(found) == 1 else None


def _by_kind(kind: Kind, samples: list[Sample]) -> str | None:
    parts = _parts([(kind, sample) for sample in samples])
    if parts is None:
        return None
    if parts > 1:
        return "reduce_scatter" if kind.redop and kind.root is None else None
    ratios = [ratio for sample in samples if (ratio := checks.ratio_of(sample)) is not None]
    if kind.root is not None:
        # A gather and a scatter have a root, too, but a bus bandwidth below the algorithm's.
        below = sum(ratio.high < 1.0 for ratio in ratios)
        return None if below > (1 - _MOSTLY) * len(ratios) else "reduce" if kind.redop else "broadcast"
    # A send and a receive look the same, but for a bus bandwidth that is the algorithm's.
    above = sum(ratio.low > 1.0 for ratio in ratios)
    return "all_reduce" if kind.redop and above >= _MOSTLY * len(ratios) > 0 else None


def _parts(samples: list[tuple[Kind, Sample]]) -> int | None:
    """The number of parts that nearly all rows count elements of."""
    counts = Counter(checks.parts_of(kind, sample) for kind, sample in samples if sample.size > 0)
    if not counts:
        return None
    parts, rows = counts.most_common(1)[0]
    return parts if rows >= _MOSTLY * counts.total() else None


def ranks_of(table: Table, collective: str | None, asked: int | None, tally: Tally) -> Ranks:
    """How many ranks ran a table; where the log's statements differ, its numbers decide, and a warning says so."""
    pairs = list(table.pairs())
    parts = _parts(pairs)
    parts = parts if parts is not None and parts > 1 else None
    rates = None
    if collective is not None and parts is None:
        rates = checks.ranks_by_rates(collective, (sample for _, sample in pairs))
    stated = table.ranks if table.ranks is not None else _listed(table)
    source = table.ranks_from if table.ranks is not None else "the device lines"
    if stated is not None:
        true = _contradiction(stated, parts, rates)
        if true is not None:
            tally.warn(f"line {table.line}: {source} say {stated} ranks, the numbers {true}: {true} are taken")
            return Ranks(true, "the rows, against " + source)
    if stated is not None and rates is not None and not rates[0] <= stated <= rates[1]:
        tally.warn(f"line {table.line}: {source} say {stated} ranks, busbw over algbw {_span(rates)}: some are missing")
        stated = None
    if stated is not None:
        nodes = table.nodes or len({device.host for device in table.devices if device.host}) or None
        ranks = Ranks(stated, source, nodes)
    elif len(table.communicators) == 1:
        ranks = Ranks(next(iter(table.communicators)), "NCCL's messages")
    elif parts is not None:
        ranks = Ranks(parts, "size over count")
    elif rates is not None and rates[0] == rates[1]:
        ranks = Ranks(rates[0], "busbw over algbw")
    else:
        return _asked(table, rates, asked, tally)
    return ranks


def _asked(table: Table, rates: tuple[int, int] | None, asked: int | None, tally: Tally) -> Ranks:
    if asked is not None:
        if rates is not None and not rates[0] <= asked <= rates[1]:
            tally.warn(f"line {table.line}: busbw over algbw says {_span(rates)}, not {asked}")
        return Ranks(asked, ASKED)
    return Ranks(None, UNKNOWN if rates is None else f"{UNKNOWN}; busbw over algbw says {_span(rates)}")


def _span(rates: tuple[int, int]) -> str:
    least, most = rates
    if least == most:
        return f"{least} ranks"
    return f"{least} or more ranks" if most >= MAX_RANKS else f"{least} to {most} ranks"


def _contradiction(stated: int, parts: int | None, rates: tuple[int, int] | None) -> int | None:
    """Another number of ranks, where the rows leave no doubt about it."""
    if parts is not None:
        return parts if parts != stated else None
    if rates is not None and rates[0] == rates[1] != stated:
        return rates[0]
    return None


def _listed(table: Table) -> int | None:
    """The ranks of one group, where the log lists all ranks; None where it lists none, or some are missing."""
    listed = {(device.group, device.rank) for device in table.devices}
    ranks = {rank for _, rank in listed}
    if not ranks or ranks != set(range(len(ranks))):
        return None
    sizes = set(Counter(group for group, _ in listed).values())
    return sizes.pop() if len(sizes) == 1 else None


def groups_of(table: Table) -> int:
    """How many groups of ranks ran at once."""
    return len({device.group for device in table.devices})
