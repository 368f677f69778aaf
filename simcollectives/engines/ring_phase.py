"""A phase in which rank i always sends to rank i + 1: its rounds are sums and maxima of slices."""

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job
from simcollectives.engines.path import Path
from simcollectives.engines.timed_round import TimedRound, Timer
from simcollectives.schedule.types import Ints, Phase, common

CHECK_EVERY = 8
"""Rounds between two looks whether one round adds the same constant to every rank."""


class RingPhase:
    """A ring as a chain of ranks; edge i goes from rank i to rank i + 1, and the chain may go around several times.

    Each round played on a chain leaves one more clock at either end wrong: a chain as much longer than the ring needs
    no care for where the ring closes, and a short one around a rank is enough to know that rank.
    Between steps the chunks move on by one rank, and their bytes with them.
    """

    def __init__(self, job: Job, first: TimedRound, sent: Ints, longest: int) -> None:
        """Prepare a phase by its first round and the bytes sent in it, to play up to ``longest`` rounds at a time."""
        self._ranks = n = job.schedule.devices
        self._level = np.broadcast_to(first.ends.level, (n,))
        self._moves = not job.layout.even
        bandwidth = job.full_cluster.network.links(first.ends.src, first.ends.dst)[3]
        gamma = common(job.full_cluster.gamma_of_rank)
        # Where all links and ranks are alike, what messages last moves on with their bytes.
        self._alike = all(np.ndim(x) == 0 for x in (first.latency, bandwidth, gamma))
        self._reduces = first.reduction is not None
        edge = np.arange(2 * (n + longest) + 1, dtype=np.int64) % n
        self._bytes, self._latency, self._width, self._seconds = (
            np.broadcast_to(column, (n,)).take(edge)
            for column in (np.asarray(sent, dtype=np.float64), first.latency, bandwidth, first.seconds)
        )
        # By edge, as its receiver pays them.
        self._gamma = np.broadcast_to(gamma, (n,)).take(edge + 1, mode="wrap")
        self._reduction = self._gamma * self._bytes

    @classmethod
    def of(cls, job: Job, phase: Phase, longest: int) -> "RingPhase | None":
        """Recognise a ring: one message from every rank to the next, moving on by one rank a step."""
        if phase.rotation != 1 or job.conditions.random:
            return None
        first, sent = Timer(job).timed(phase, 0, 0)
        after = np.arange(1, job.schedule.devices + 1) % job.schedule.devices
        is_ring = first.ends.all_send and np.array_equal(first.ends.dst, after)
        return cls(job, first, sent, longest) if is_ring else None

    def walk(self, clock: FloatArray, step: int, count: int, *, skip: bool) -> tuple[FloatArray, int, float | None]:
        """Play up to ``count`` rounds from the clocks at which ranks enter the first.

        Returns the clocks, the rounds played, and the seconds that every further round adds to every rank (after
        moving them by one where bytes move) once that is a constant.
        """
        chain = clock.take(np.arange(-count, self._ranks + count), mode="wrap")
        mine = chain[count : count + self._ranks]
        if not (skip and (self._alike or not self._moves)):
            self._play(chain, -count, step, count)
            return mine.copy(), count, None
        for played in range(CHECK_EVERY, count + 1, CHECK_EVERY):
            self._play(chain, -count, step + played - CHECK_EVERY, CHECK_EVERY - 1)
            before = mine.copy()
            self._play(chain, -count, step + played - 1, 1)
            growth = mine - (np.roll(before, 1) if self._moves else before)
            if growth.max() - growth.min() <= 2 * np.spacing(mine.max()):
                return mine.copy(), played, float(growth.max())
        left = count % CHECK_EVERY
        self._play(chain, -count, step + count - left, left)
        return mine.copy(), count, None

    def _play(
        self, chain: FloatArray, low: int, step: int, count: int, entered: list[FloatArray] | None = None
    ) -> None:
        """Play rounds in place on a chain of ranks from ``low`` on; ``entered`` is given the clocks before each."""
        edges = np.empty(len(chain) - 1)
        inner, here, there, left, right = chain[1:-1], chain[:-1], chain[1:], edges[:-1], edges[1:]
        seconds, reduction = self._seconds_of(low, len(edges), step)
        for number in range(step, step + count):
            if entered is not None:
                entered.append(chain.copy())
            if self._moves:
                seconds, reduction = self._seconds_of(low, len(edges), number)
            np.maximum(here, there, out=edges)
            np.add(edges, seconds, out=edges)
            np.maximum(left, right, out=inner)
            if reduction is not None:
                np.add(inner, reduction, out=inner)

    def _seconds_of(self, low: int, edges: int, step: int) -> tuple[FloatArray, FloatArray | None]:
        """Seconds of the messages of a chain in a step, and of reduction by the ranks between them."""
        start = low % self._ranks
        moved = (low - step) % self._ranks if self._moves else start
        if self._alike or not self._moves:
            seconds, reduction = self._seconds[moved : moved + edges], self._reduction[moved : moved + edges - 1]
        else:
            fixed, message_bytes = slice(start, start + edges), self._bytes[moved : moved + edges]
            seconds = alone_seconds(self._latency[fixed], message_bytes, self._width[fixed])
            reduction = (self._gamma[fixed] * message_bytes)[:-1]
        return seconds, reduction if self._reduces else None

    def skipped(self, clock: FloatArray, rounds: int, growth: float) -> FloatArray:
        """Clocks after ``rounds`` more rounds of constant growth."""
        return (np.roll(clock, rounds) if self._moves else clock) + rounds * growth

    def stationary(self) -> FloatArray | None:
        """[rank]: seconds that a round adds to it if it never waits for others; None where that changes by step."""
        if self._moves:
            return None
        n = self._ranks
        return self._seconds[:n] + self._reduction[:n] if self._reduces else self._seconds[:n]

    def stay(self, edge: int, steps: int, path: Path) -> None:
        """Add a path that stays at the receiver of an edge."""
        path.add(int(self._level[edge]), float(self._latency[edge]), float(self._seconds[edge]), steps)
        if self._reduces:
            path.reduction += steps * float(self._reduction[edge])

    def back(self, clock: FloatArray, step: int, count: int, rank: int, path: Path) -> int:
        """Walk ``count`` rounds back from a rank at their end; return where the path enters them."""
        low = rank - count
        chain = clock.take(np.arange(low, rank + count + 1), mode="wrap")
        entered: list[FloatArray] = []
        self._play(chain, low, step, count, entered)
        place = count
        for number in range(count - 1, -1, -1):
            seconds, reduction = self._seconds_of(low, len(chain) - 1, step + number)
            before, mine, after = entered[number][place - 1 : place + 2].tolist()
            into, out = seconds[place - 1 : place + 1].tolist()
            if reduction is not None:
                path.reduction += float(reduction[place - 1])
            received = max(before, mine) + into >= max(mine, after) + out
            edge = (low + place - (1 if received else 0)) % self._ranks
            path.add(int(self._level[edge]), float(self._latency[edge]), into if received else out)
            if received:
                place -= before > mine
            else:
                place += after >= mine
        return (low + place) % self._ranks

    def back_through_growth(self, clock: FloatArray, step: int, count: int, rank: int, path: Path) -> int:
        """As ``back``, where every round adds a constant: all are the first one, moved by one rank a step if at all."""
        n, moves = self._ranks, int(self._moves)
        chain = clock.take(np.arange(-1, n + 1), mode="wrap")
        seconds, reduction = self._seconds_of(-1, n + 1, step)
        end = np.maximum(chain[:-1], chain[1:]) + seconds
        received = end[:-1] >= end[1:]
        came = np.where(received, -(chain[:-2] > chain[1:-1]).astype(np.int64), chain[2:] >= chain[1:-1])
        before = (np.arange(n) + came) % n
        # In terms of the first step's ranks, a path that stays at a rank falls back by one a step where bytes move.
        following = ((before + moves) % n).tolist()
        here = (rank - moves * (count - 1)) % n
        visited = [here]
        for _ in range(count - 1):
            visited.append(here := following[here])
        times = np.bincount(visited, minlength=n)
        edge = np.where(received, np.arange(-1, n - 1), np.arange(n)) % n
        latency = times * self._latency[edge]
        flowing = times * (np.where(received, seconds[:-1], seconds[1:]) - self._latency[edge])
        for level in np.unique(self._level).tolist():
            path.latency[level] += float(latency[self._level[edge] == level].sum())
            path.bandwidth[level] += float(flowing[self._level[edge] == level].sum())
        if reduction is not None:
            path.reduction += float((times * reduction).sum())
        return int(before[here])
