"""SimGrid as an oracle: the same schedule on the same resources, played by ``smpirun -replay``.

Traps and their reasons are numbered as in the specification of this oracle:

1. The solver is ``Full``: ``Lazy`` (the default) reports times below what the links can carry.
2. Flows share a link in proportion to 1 / latency of their routes: flows that may meet need one latency.
3. SMPI adds 16 bytes to a message, so the trace says 16 less.
4. No message is sent detached (``send-is-detached-thresh``), and none is eager (``async-small-thresh``).
5. Six decimals are printed, so time is stretched by ``STRETCH``.
7. Replay allocates what it sends: keep messages modest.

Channels become further processes on the same hosts, and gamma becomes a sleep after the round. What SimGrid cannot
express raises Inexpressible: a message of fewer than 16 bytes (an empty one is such), and an overhead, of which it has
no notion; an overhead worth a whole number of bytes is the same work as a longer message, and is sent as one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simcollectives.cluster import Cluster
from simcollectives.engines import Job
from simcollectives.engines.job import messages_of

SMPIRUN = shutil.which("smpirun")
STRETCH = 1000
HEADER_BYTES = 16
TIMEOUT_SECONDS = 60
FLAGS = (
    "--log=xbt_cfg.thres:error",
    "--log=smpi_coll.thres:error",
    "--cfg=network/model:CM02",
    "--cfg=network/optim:Full",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1",
    "--cfg=network/weight-S:0",
    "--cfg=smpi/simulate-computation:no",
    "--cfg=smpi/host-speed:1Gf",
    "--cfg=smpi/send-is-detached-thresh:0",
    "--cfg=smpi/async-small-thresh:0",
    # The replayer has no globals of its own: copying it for every process only costs time.
    "--cfg=smpi/privatization:no",
)


class Inexpressible(ValueError):
    """SimGrid has no way to say this."""


@dataclass(frozen=True)
class Platform:
    """A platform file and the host that each device is on."""

    xml: str
    hosts: tuple[str, ...]


def simgrid_seconds(job: Job, platform: Platform | None = None) -> float:
    """Seconds of a job's schedule by SimGrid, on a platform made from the job's cluster unless one is given.

    Raises:
        Inexpressible: a message is too short, or an overhead is not a whole number of bytes.
        RuntimeError: smpirun failed or printed no time.
    """
    return replay_seconds(platform or platform_of(job.full_cluster), traces_of(job))


def bandwidth_text(bandwidth: float) -> str:
    """Bytes per second of stretched time."""
    return f"{bandwidth / STRETCH!r}Bps"


def latency_text(seconds: float) -> str:
    """Stretched seconds."""
    return f"{seconds * STRETCH!r}s"


def zone(content: str) -> str:
    """Wrap the content of a platform."""
    doctype = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    return f'<?xml version="1.0"?>\n{doctype}\n<platform version="4.1">\n{content}\n</platform>\n'


def platform_of(cluster: Cluster) -> Platform:
    """Write a cluster's own routes: one shared link a directed resource, one route an ordered pair of ranks.

    The first resource of a route carries its latency. Where it can't, because routes of other latencies start there or
    others pass through it (an edge of a torus), a wide link of the pair alone does.
    """
    devices = cluster.world_size
    src, dst = (index.reshape(-1) for index in np.divmod(np.arange(devices**2, dtype=np.int64), devices))
    src, dst = src[src != dst], dst[src != dst]
    routes, network = cluster.routes(src, dst), cluster.network
    crossed = [[r for r in row if r != network.count] for row in routes.resources.tolist()]
    alphas: dict[int, set[float]] = {}
    for row, alpha in zip(crossed, routes.alpha.tolist(), strict=True):
        alphas.setdefault(row[0], set()).add(alpha)
    passed = Counter(r for row in crossed for r in row[1:])
    latency = {r: min(of) for r, of in alphas.items() if len(of) == 1 and r not in passed}
    used = sorted({r for row in crossed for r in row})
    hosts = tuple(f"host{device}" for device in range(devices))
    links = [_link(f"r{r}", float(network.capacity[r]), latency.get(r, 0.0)) for r in used]
    pairs = []
    for s, d, row, alpha in zip(src.tolist(), dst.tolist(), crossed, routes.alpha.tolist(), strict=True):
        names = [f"r{r}" for r in row]
        if row[0] not in latency:
            names.insert(0, f"alpha{s}-{d}")
            links.append(_link(names[0], 1e3 * float(network.capacity[row].max()), alpha))
        inside = "".join(f'<link_ctn id="{name}"/>' for name in names)
        pairs.append(f'<route src="{hosts[s]}" dst="{hosts[d]}" symmetrical="NO">{inside}</route>')
    body = [f'<host id="{host}" speed="1Gf"/>' for host in hosts] + links + pairs
    return Platform(zone("\n".join(['<zone id="all" routing="Full">', *body, "</zone>"])), hosts)


def _link(name: str, bandwidth: float, latency: float) -> str:
    numbers = f'bandwidth="{bandwidth_text(bandwidth)}" latency="{latency_text(latency)}"'
    return f'<link id="{name}" {numbers} sharing_policy="SHARED"/>'


def traces_of(job: Job) -> list[str]:
    """Write what every process does; process ``channel * devices + rank`` plays a rank's part of a channel.

    Raises:
        Inexpressible: a message is too short, or an overhead is not a whole number of bytes.
    """
    devices, gamma = job.schedule.devices, job.full_cluster.gamma_of_rank
    lines: list[list[str]] = [["init"] for _ in range(devices * len(job.schedule.channels))]
    for channel in range(len(job.schedule.channels)):
        base = channel * devices
        for tag, round_ in enumerate(job.schedule.rounds_of(channel)):
            messages = messages_of(job, round_)
            routes = job.full_cluster.routes(messages.src, messages.dst)
            sizes = [_traced(work) for work in (messages.bytes + routes.overhead * routes.bandwidth).tolist()]
            rows = list(zip(messages.src.tolist(), messages.dst.tolist(), sizes, strict=True))
            for src, dst, size in rows:
                lines[base + dst].append(f"irecv {base + src} {tag} {size}")
            for src, dst, size in rows:
                lines[base + src].append(f"isend {base + dst} {tag} {size}")
            for rank in sorted({rank for src, dst, _ in rows for rank in (src, dst)}):
                lines[base + rank].append("waitall")
            reduced = np.bincount(messages.dst, messages.reduced_bytes, minlength=devices)
            for rank, seconds in enumerate((reduced * gamma).tolist()):
                lines[base + rank] += [f"sleep {seconds * STRETCH!r}"] if seconds else []
    return ["".join(f"{process} {line}\n" for line in [*own, "finalize"]) for process, own in enumerate(lines)]


def _traced(work_bytes: float) -> int:
    whole = round(work_bytes)
    if abs(whole - work_bytes) > 1e-9 * work_bytes:
        raise Inexpressible(f"a message with its overhead is {work_bytes!r} bytes of work, not a whole number")
    if whole < HEADER_BYTES:
        raise Inexpressible(f"a message of {whole} bytes is shorter than the {HEADER_BYTES} that SMPI adds")
    return whole - HEADER_BYTES


def replay_seconds(platform: Platform, traces: list[str]) -> float:
    """Replay one trace a process; processes go round the hosts in order. Returns seconds, no longer stretched.

    Raises:
        RuntimeError: smpirun failed or printed no time.
    """
    with tempfile.TemporaryDirectory(prefix="simgrid-") as name:
        folder = Path(name)
        (folder / "platform.xml").write_text(platform.xml)
        hosts = platform.hosts * (len(traces) // len(platform.hosts))
        (folder / "hosts").write_text("".join(f"{host}\n" for host in hosts))
        for process, trace in enumerate(traces):
            (folder / f"trace{process}").write_text(trace)
        (folder / "traces").write_text("".join(f"{folder / f'trace{process}'}\n" for process in range(len(traces))))
        command = [str(SMPIRUN), "-np", str(len(traces)), "-platform", "platform.xml", "-hostfile", "hosts"]
        command += ["-replay", "traces", *FLAGS]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    found = re.findall(r"Simulation time (\d+\.\d+)", done.stdout + done.stderr)
    if done.returncode or len(found) != 1:
        raise RuntimeError(f"smpirun ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return float(found[0]) / STRETCH
