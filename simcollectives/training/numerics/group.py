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

AnyArray = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Traffic:
    """What was sent with one purpose: ``sent_bytes`` [device], the ranks first, then dedicated servers."""

    collective: str
    purpose: str
    calls: int
    sent_bytes: tuple[int, ...]


class Group:
    """Devices that run collectives on their arrays; counts the bytes that each sends and holds."""

    def __init__(self, cluster: Cluster, algorithm: str, options: Options) -> None:
        self.cluster = cluster
        self.algorithm = algorithm
        self.options = options
        self._sent_by_call: dict[tuple[str, int, str], Counts] = {}
        self._traffic: dict[tuple[str, str], tuple[int, Counts]] = {}
        self._held: list[dict[str, int]] = [{} for _ in range(self.world_size)]
        self._peak = list(self._held)
        self._most = list(self._held)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.cluster.world_size

    def run(self, collective: str, arrays: Sequence[AnyArray], purpose: str) -> list[AnyArray]:
        """Run a collective on one array a rank; ``purpose`` is the entry of the account."""
        outputs = execute(collective, self.algorithm, arrays, self.options, self.cluster)
        elements = sum(a.size for a in arrays) if collective == "all_gather" else arrays[0].size
        sent = self._sent(collective, elements, arrays[0].dtype)
        calls, before = self._traffic.get((collective, purpose), (0, np.zeros_like(sent)))
        self._traffic[collective, purpose] = (calls + 1, before + sent)
        return outputs

    def _sent(self, collective: str, elements: int, dtype: np.dtype[Any]) -> Counts:
        key = (collective, elements, str(dtype))
        if key not in self._sent_by_call:
            job = make_job(
                collective, self.algorithm, self.cluster, elements * dtype.itemsize, self.options, str(dtype)
            )
            self._sent_by_call[key] = count_bytes_sent(job).sum(axis=0)
        return self._sent_by_call[key]

    def hold(self, item: str, held_bytes: Sequence[int]) -> None:
        """Note what each rank holds of an item from now on, in bytes."""
        for rank, count in enumerate(held_bytes):
            held = self._held[rank] | {item: count}
            self._held[rank] = held
            self._most[rank] = self._most[rank] | {item: max(count, self._most[rank].get(item, 0))}
            if sum(held.values()) > sum(self._peak[rank].values()):
                self._peak[rank] = held

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
