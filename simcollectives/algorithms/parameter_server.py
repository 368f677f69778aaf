"""Parameter server: workers push their vectors to servers, which add them, and pull the sums back.

    2 (alpha + max(N (o + n/B), k o + M/B)) + N n gamma      n = bytes of the largest chunk, M/k

Option ``servers``: k dedicated devices on the same link as the N workers, each holding one chunk; or ``co_located``,
where every worker is the server of 1/N, which is the direct all-reduce. The server's port is the limit until k >= N.
With more servers than workers and uneven chunks no form is exact.

Time variant loggp with one server: a push of N messages into one rank, o + L + (N - 1) max(o + M G + M gamma, g + M G)
+ o + M G + M gamma, then a pull, (N - 1) max(o, g + M G) + 2 o + L + M G. With more servers no form is exact.
Under one_port none is with more servers than workers and gamma: servers then add while workers' ports are busy.

Reference: Li et al., OSDI 2014; CMU 15-779 (fall 2025), lecture 12, section 3. The world size counts workers only.
"""

from typing import Any

import numpy as np

from simcollectives.algorithms import direct
from simcollectives.algorithms.types import Algorithm, Cost, LogGPCosts, Option, Options, Placement, Split, joined
from simcollectives.errors import show_value
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Phase, Round, Schedule, make_round

CO_LOCATED = "co_located"
MAX_SERVERS = 1 << 16


def _check_servers(value: Any) -> int | str:
    if value == CO_LOCATED:
        return CO_LOCATED
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SERVERS:
        rule = f"write a number of servers, 1 to {MAX_SERVERS}, or {CO_LOCATED}"
        raise ValueError(f"{show_value(value)} is not valid; {rule}")
    return value


def _accepts(placement: Placement, options: Options) -> str | None:
    if options["servers"] == CO_LOCATED or placement.flat:
        return None
    return f"dedicated servers need a flat cluster (devices: and link:), or write servers: {CO_LOCATED}"


def schedule(placement: Placement, options: Options) -> Schedule:
    """Round 0 pushes chunk c to server c, round 1 pulls it."""
    n, servers = placement.world_size, options["servers"]
    if n == 1:
        return Schedule("all_reduce", 1, 1, ((),))
    if servers == CO_LOCATED:
        return Schedule("all_reduce", n, n, (direct.all_reduce_phases(n),))

    def push(_step: int) -> Round:
        worker = np.repeat(np.arange(n, dtype=np.int64), servers)
        chunk = (worker + np.tile(np.arange(servers, dtype=np.int64), n)) % servers
        return make_round(worker, n + chunk, first=chunk, reduce=True)

    def pull(_step: int) -> Round:
        # Every server starts at another worker, and at another than its neighbours.
        server = np.repeat(np.arange(servers, dtype=np.int64), n)
        return make_round(n + server, (server + np.tile(np.arange(n, dtype=np.int64), servers)) % n, first=server)

    ports = max(n, servers)
    return Schedule("all_reduce", n, servers, ((Phase(1, push, ports), Phase(1, pull, ports)),), servers=servers)


def cost(n: int, layout: Layout, options: Options) -> Cost | None:
    """The busier of the first server's port and a worker's port."""
    servers = options["servers"]
    if n == 1:
        return Cost()
    if servers == CO_LOCATED:
        sent = (n - 1) * layout.head(1)
        return Cost(2, 2 * (n - 1), 2 * sent, sent)
    if servers > n and not layout.even:
        return None
    return Cost(2, 2 * max(n, servers), 2 * max(n * layout.head(1), layout.elements), n * layout.head(1))


def loggp(n: int, layout: Layout, options: Options, costs: LogGPCosts) -> Split | None:
    """One server: a fan-in, then a fan-out."""
    if n == 1:
        return 0.0, 0.0, 0.0
    if options["servers"] != 1:
        return None
    elements = layout.elements
    return joined(costs.fan_in(elements, n, elements), costs.fan_out(elements, n - 1), costs.alone(elements))


ALGORITHMS = (
    Algorithm(
        name="parameter_server",
        collective="all_reduce",
        summary="push to k servers, pull the sum back",
        formula="2(alpha + max(N(o + M/kB), k o + M/B)) + N/k M gamma",
        reference="Li et al. 2014",
        schedule=schedule,
        cost=cost,
        options=(Option("servers", 1, f"number of dedicated servers, or {CO_LOCATED}", _check_servers, (CO_LOCATED,)),),
        accepts=_accepts,
        loggp=loggp,
        exact_one_port=lambda n, options, gamma: (
            not gamma or options["servers"] == CO_LOCATED or options["servers"] <= n
        ),
    ),
)
