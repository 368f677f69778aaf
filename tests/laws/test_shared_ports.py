"""Where messages share ports, neither "event <= lockstep" nor "a faster link is never slower" holds: one example each.

Max-min sharing is fair, not fast: it lets a long flow wait for short ones that gain nothing from it. Worked by hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import make_job, simulate_job
from tests.laws.cases import is_private
from tests.laws.exact import arbitrary_job


def test_event_may_be_slower_than_lockstep() -> None:
    """Five workers, seven servers, eight bytes at 2 B/s: 12 s, where the busiest port alone would need 10 s.

    Chunk 0 has two bytes, the others one. A worker shares 2 B/s among seven flows. The one-byte flows end after 3.5 s;
    by then one byte is left of each of the five flows into server 0, whose port passes them in 2.5 s more: 6 s a round.
    Alone, server 0's ten bytes would need 5 s.
    """
    cluster = Cluster.flat(5, Link(alpha=0.0, bandwidth=2.0))
    job = make_job("all_reduce", "parameter_server", cluster, 8, {"servers": 7}, "int8")
    assert not is_private(job)
    assert simulate_job(job, "event").seconds == pytest.approx(12.0, rel=1e-12)
    assert simulate_job(job, "lockstep").seconds == pytest.approx(10.0, rel=1e-12)


def test_a_faster_link_may_lengthen_a_run() -> None:
    """Three nodes of two; 1 B/s between nodes. Four times the bandwidth inside nodes: 24.5 s instead of 20 s.

    Rank 5 sends 8 bytes to 2, which then sends 12 to 1, and 12 bytes to 0, which is first busy with what 1 sends it
    inside the node. Slow: 0 is ready after 1 + 1 + 12/2 = 8 s, just when 5 has served 2; both last transfers end at
    20 s. Fast: 0 is ready after 3.5 s and takes half of 5's port, so that 2 has its 8 bytes at 12.5 s only, and 1 its
    12 bytes at 24.5 s.
    """
    slow = Cluster.two_level(3, 2, intra=Link(1.0, 2.0), inter=Link(0.0, 1.0))
    rounds = [
        [(1, 3, 1, False)],
        [(1, 0, 12, False)],
        [(5, 2, 8, False), (5, 0, 12, False)],
        [(2, 1, 12, False)],
    ]
    job = arbitrary_job(slow, [rounds])
    assert not is_private(job)
    assert simulate_job(job, "event").seconds == pytest.approx(20.0, rel=1e-12)
    fast = slow.with_link("intra", Link(1.0, 8.0))
    assert simulate_job(replace(job, cluster=fast, full_cluster=fast), "event").seconds == pytest.approx(
        24.5, rel=1e-12
    )
