"""The simulated devices together: their collectives, run by the project's schedules, and the account of each device."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.algorithms.types import Options
from simcollectives.cluster import Cluster
from simcollectives.engines import execute, make_job
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.training.groups import members_of, seen_alone
from simcollectives.training.program import Call

AnyArray = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """What was sent with one purpose: ``sent_bytes`` [device], the ranks first, then dedicated servers."""

    collective: str
    purpose: str
    calls: int
    sent_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Among:
    """Which ranks run a collective together: groups of ``size`` ranks (all, if None) that stand ``stride`` apart."""

    name: str
    size: int | None = None
    stride: int = 1


WORLD = Among("world")


def part_of(collective: str, algorithm: str, options: Options) -> tuple[str, Options]:
    """Return the algorithm and options of a reduce-scatter or all-gather that is a part of an all-reduce.

    The halves of Rabenseifner's are the butterfly's, the second the mirror of the first.
    """
    if algorithm != "rabenseifner" or collective == "all_reduce":
        return algorithm, options
    first = options.get("order", "near")
    mirrored = "far" if first == "near" else "near"
    return "butterfly", {"order": mirrored if collective == "all_gather" else first}


class Group:
    """Devices that run collectives on their arrays; counts the bytes that each sends and holds."""

    def __init__(self, cluster: Cluster, algorithm: str, options: Options) -> None:
        self.cluster = cluster
        self.algorithm = algorithm
        self.options = options
        self._sent_by_call: dict[Call, Counts] = {}
        self._traffic: dict[tuple[str, str], tuple[int, Counts]] = {}
        self._standing: list[dict[str, tuple[AnyArray, ...]]] = [{} for _ in range(self.world_size)]
        self._held: list[dict[str, int]] = [{} for _ in range(self.world_size)]
        self._peak = list(self._held)
        self._most = list(self._held)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.cluster.world_size

    def run(self, collective: str, arrays: Sequence[AnyArray], purpose: str, among: Among = WORLD) -> list[AnyArray]:
        """Run a collective on one array a rank, in all groups of ``among``; ``purpose`` is the entry of the account."""
        size = among.size or self.world_size
        elements = arrays[0].size * (size if collective == "all_gather" else 1)
        call = Call(collective, among.name, size, elements, str(arrays[0].dtype), among.stride)
        algorithm, options = part_of(collective, self.algorithm, self.options)
        alone = seen_alone(self.cluster, call)
        outputs = list(arrays)
        for members in members_of(self.world_size, call).tolist():
            found = execute(collective, algorithm, [arrays[rank] for rank in members], options, alone)
            for rank, output in zip(members, found, strict=True):
                outputs[rank] = output
        sent = self._sent(call)
        calls, before = self._traffic.get((collective, purpose), (0, np.zeros_like(sent)))
        self._traffic[collective, purpose] = (calls + 1, before + sent)
        return outputs

    def _sent(self, call: Call) -> Counts:
        if call not in self._sent_by_call:
            algorithm, options = part_of(call.kind, self.algorithm, self.options)
            job = make_job(call.kind, algorithm, seen_alone(self.cluster, call), call.bytes, options, call.dtype)
            sent = count_bytes_sent(job).sum(axis=0)
            if call.group_size < self.world_size:
                by_rank = np.zeros(self.world_size, dtype=np.int64)
                by_rank[members_of(self.world_size, call)] = sent
                sent = by_rank
            self._sent_by_call[call] = sent
        return self._sent_by_call[call]

    def hold(self, item: str, arrays: Sequence[Iterable[AnyArray]]) -> None:
        """Note which arrays of an item each rank holds from now on."""
        for rank, own in enumerate(arrays):
            standing = tuple(own)
            count = bytes_of(standing)
            self._standing[rank][item] = standing
            held = self._held[rank] | {item: count}
            self._held[rank] = held
            self._most[rank] = self._most[rank] | {item: max(count, self._most[rank].get(item, 0))}
            if sum(held.values()) > sum(self._peak[rank].values()):
                self._peak[rank] = held

    def drop(self, item: str) -> None:
        """Note that no rank holds arrays of an item any more."""
        self.hold(item, [() for _ in range(self.world_size)])

    @property
    def standing(self) -> tuple[Mapping[str, tuple[AnyArray, ...]], ...]:
        """The arrays that each rank holds now, by item."""
        return tuple({item: arrays for item, arrays in own.items() if arrays} for own in self._standing)

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """All that was sent."""
        return tuple(
            Traffic(collective, purpose, calls, tuple(sent.tolist()))
            for (collective, purpose), (calls, sent) in self._traffic.items()
        )

    @property
    def peak_memory(self) -> tuple[Mapping[str, int], ...]:
        """What each rank held when it held most, by item, in bytes."""
        return tuple({item: count for item, count in peak.items() if count} for peak in self._peak)

    @property
    def most_held(self) -> tuple[Mapping[str, int], ...]:
        """The most that each rank ever held of each item, in bytes."""
        return tuple(dict(most) for most in self._most)


def bytes_of(arrays: Iterable[AnyArray]) -> int:
    """Bytes of arrays together, each counted once."""
    return sum({id(array): array.nbytes for array in arrays}.values())
