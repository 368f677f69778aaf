"""Laws of the timeline: both ends of every transfer, in order, and no port carries more than its bandwidth allows."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pytest

from simcollectives.engines import Job, Run, simulate_job
from tests.laws.cases import VARIANTS, Variant, each_of, fits, flat, job_of, tolerance, two_level


class Row(NamedTuple):
    rank: int
    stream: str
    name: str
    start: float
    end: float
    bytes: int
    peer: int
    round: int
    channel: int


def rows_of(run: Run) -> list[Row]:
    timeline = run.timeline
    assert timeline is not None
    columns = [getattr(timeline, field) for field in Row._fields]
    assert {len(column) for column in columns} == {len(timeline)}
    return [Row(*values) for values in zip(*columns, strict=True)]


def check(job: Job) -> None:
    run = simulate_job(job, "event", timeline=True)
    rows = rows_of(run)
    slack = run.seconds * tolerance(job.schedule.rounds)
    assert all(0 <= row.start <= row.end <= run.seconds + slack for row in rows)
    assert [row.start for row in rows] == sorted(row.start for row in rows)
    assert max((row.end for row in rows), default=0.0) == pytest.approx(run.seconds, rel=1e-12)
    sends = [row for row in rows if row.stream.startswith("send ")]
    receives = [row for row in rows if row.stream.startswith("receive ")]
    check_pairs(sends, receives)
    check_bytes(job, run, sends)
    check_order(rows, slack)
    check_ports(job, sends + receives)


def check_pairs(sends: list[Row], receives: list[Row]) -> None:
    """Every transfer is recorded at both its ends, alike."""
    seen = sorted((r.rank, r.peer, r.round, r.channel, r.start, r.end, r.bytes, r.stream.split()[1]) for r in sends)
    again = sorted((r.peer, r.rank, r.round, r.channel, r.start, r.end, r.bytes, r.stream.split()[1]) for r in receives)
    assert seen == again
    assert all(row.name == f"to {row.peer}" for row in sends)
    assert all(row.name == f"from {row.peer}" for row in receives)


def check_bytes(job: Job, run: Run, sends: list[Row]) -> None:
    sent = [0] * job.schedule.devices
    for row in sends:
        sent[row.rank] += row.bytes
    assert sent == run.bytes_sent.tolist()


def check_order(rows: list[Row], slack: float) -> None:
    """A rank's transfers of a round start only when its last round is over, its reduction included."""
    by_round: dict[tuple[int, int], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_round[row.rank, row.channel][row.round].append(row)
    for rounds in by_round.values():
        over = 0.0
        for number in sorted(rounds):
            now = rounds[number]
            assert all(row.start >= over - slack for row in now)
            transfers = [row.end for row in now if row.peer >= 0]
            assert all(row.start >= max(transfers) - slack for row in now if row.stream == "reduce")
            over = max(row.end for row in now)


def check_ports(job: Job, rows: list[Row]) -> None:
    """In any stretch of time a port passes no more than bandwidth x time, each message after its alpha."""
    ports: dict[tuple[int, str], list[Row]] = defaultdict(list)
    for row in rows:
        ports[row.rank, row.stream].append(row)
    for (_, stream), some in ports.items():
        link = job.full_cluster.level(stream.split()[1]).link
        for begin in {row.start for row in some}:
            for end in {row.end for row in some}:
                inside = [row for row in some if begin <= row.start and row.end <= end]
                work = sum(row.bytes + link.overhead * link.bandwidth for row in inside)
                if inside:
                    assert work <= link.bandwidth * (end - begin - link.alpha) * (1 + 1e-9)


@each_of(VARIANTS)
def test_timeline(variant: Variant) -> None:
    for cluster in (flat(1), flat(3), flat(6), two_level(2, 2, "round_robin"), two_level(3, 2, "node_major")):
        if fits(variant, cluster):
            check(job_of(variant, cluster, 5 * cluster.world_size + 3))


GATHERED = [v for v in VARIANTS if v.collective in ("all_gather", "broadcast")]


@pytest.mark.parametrize("variant", GATHERED, ids=str)
def test_nobody_receives_what_it_has(variant: Variant) -> None:
    """All-gather: all but the own part, once. Broadcast: the message, once, and nothing for the root."""
    for n in (3, 7, 8):
        if not fits(variant, flat(n)):
            continue
        job = job_of(variant, flat(n), 5 * n + 3)
        received = [0] * n
        for row in rows_of(simulate_job(job, "event", timeline=True)):
            if row.stream.startswith("receive"):
                received[row.rank] += row.bytes
        own = [6 if rank < 3 else 5 for rank in range(n)]
        if variant.collective == "broadcast":
            own = [5 * n + 3 if rank == variant.option("root") else 0 for rank in range(n)]
        assert received == [4 * (5 * n + 3 - held) for held in own]
