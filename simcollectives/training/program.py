"""A program: what one rank's host issues in a step, in order, on named streams, as CUDA plays it.

A stream is first-in first-out. Work on different streams overlaps unless ``after`` orders it. What stands on the stream
``host`` stops the host: nothing later is issued before it ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from simcollectives.engines.job import DTYPES

Phase = Literal["forward", "backward", "optimizer"]
Kind = Literal["compute", "copy", "collective", "host"]
Item = tuple[str, int]
"""A name in the account of memory, and bytes."""

COMPUTE, HOST = "compute", "host"


@dataclass(frozen=True, slots=True)
class Call:
    """A collective as a framework issues it; ``elements`` are those of the larger buffer, padding included.

    All groups of the name ``group`` run it at once. Each has ``group_size`` ranks, ``stride`` apart: 0 to 7, 8 to 15
    and so on, or with a stride of 8 the ranks 0, 8, 16 ..; 1, 9, 17 ..
    """

    kind: str
    group: str
    group_size: int
    elements: int
    dtype: str
    stride: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of the larger buffer."""
        return self.elements * DTYPES[self.dtype]

    def siblings(self, rank: int) -> tuple[int, int]:
        """Which of the groups a rank is in."""
        return rank // (self.stride * self.group_size), rank % self.stride


@dataclass(frozen=True, slots=True)
class Operation:
    """One piece of work. ``after`` are the places in the program of operations that must have ended before it starts.

    It lasts ``seconds``, or as long as its ``call``. ``allocates`` happens when it starts, ``frees`` when it ends.
    """

    stream: str
    name: str
    kind: Kind
    phase: Phase
    micro_batch: int = 0
    seconds: float = 0.0
    call: Call | None = None
    after: tuple[int, ...] = ()
    allocates: tuple[Item, ...] = ()
    frees: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Program:
    """Operations in issue order, and what stands in memory before the first."""

    operations: tuple[Operation, ...]
    standing: tuple[Item, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The collectives, in issue order."""
        return tuple(operation.call for operation in self.operations if operation.call is not None)


@dataclass
class Builder:
    """Writes a program. Every method that issues returns the place of the operation."""

    phase: Phase = "forward"
    micro_batch: int = 0
    operations: list[Operation] = field(default_factory=list)
    standing: list[Item] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)

    def compute(
        self,
        name: str,
        seconds: float,
        *,
        stream: str = COMPUTE,
        after: Iterable[int] = (),
        allocates: Iterable[Item] = (),
        frees: Iterable[Item] = (),
    ) -> int:
        """Issue a kernel."""
        return self._issue(stream, name, "compute", seconds, None, after, allocates, frees)

    def collective(
        self,
        name: str,
        call: Call,
        *,
        stream: str | None = None,
        after: Iterable[int] = (),
        allocates: Iterable[Item] = (),
        frees: Iterable[Item] = (),
    ) -> int:
        """Issue a collective, on the stream of its group unless another is named."""
        on = f"communication {call.group}" if stream is None else stream
        return self._issue(on, name, "collective", 0.0, call, after, allocates, frees)

    def copy(
        self,
        name: str,
        seconds: float,
        *,
        stream: str,
        after: Iterable[int] = (),
        allocates: Iterable[Item] = (),
        frees: Iterable[Item] = (),
    ) -> int:
        """Issue a copy between device and host, or between the host and its drives."""
        return self._issue(stream, name, "copy", seconds, None, after, allocates, frees)

    def host(self, name: str, seconds: float = 0.0, *, after: Iterable[int] = ()) -> int:
        """Let the host wait, and work for some seconds."""
        return self._issue(HOST, name, "host", seconds, None, after, (), ())

    def latest(self, stream: str = COMPUTE) -> list[int]:
        """What was issued last on a stream, if anything: what comes after it comes after all before it."""
        return [self.last[stream]] if stream in self.last else []

    def stand(self, item: str, size: int) -> None:
        """Note what is in memory all the time."""
        self.standing.append((item, size))

    def program(self) -> Program:
        """Return what was written."""
        return Program(tuple(self.operations), tuple(self.standing))

    def _issue(
        self,
        stream: str,
        name: str,
        kind: Kind,
        seconds: float,
        call: Call | None,
        after: Iterable[int],
        allocates: Iterable[Item],
        frees: Iterable[Item],
    ) -> int:
        place = len(self.operations)
        self.operations.append(
            Operation(
                stream=stream,
                name=name,
                kind=kind,
                phase=self.phase,
                micro_batch=self.micro_batch,
                seconds=seconds,
                call=call,
                after=tuple(after),
                allocates=tuple(allocates),
                frees=tuple(frees),
            )
        )
        self.last[stream] = place
        return place
