"""What every model of measured times takes and gives: points in columns, fitted parameters, predictions, errors."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simcollectives.errors import InputError, listing
from simcollectives.measured.spread import relative_errors, spread
from simcollectives.measured.sweep import MeasuredSweep
from simcollectives.units import format_bytes, format_ratio

FloatArray = npt.NDArray[np.float64]

UNSEEN_LEAST = 0.20
FARTHER = 0.10
SEEN_LEAST = 0.05
"""The narrowest half-width of an interval, as a share of the prediction: up to twice or half of a measured count, more
a further doubling, and where the count was measured.
"""

_WIDEST = 0.95


@dataclass(frozen=True)
class Columns:
    """Points of sweeps of one collective, one entry a point; ``sweep`` says which of ``sweeps`` a point is of."""

    collective: str
    sweeps: tuple[MeasuredSweep, ...]
    world_size: FloatArray
    nodes: FloatArray
    message_bytes: FloatArray
    seconds: FloatArray
    sweep: npt.NDArray[np.int64]

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """The (world size, nodes) that were measured, ascending."""
        pairs = zip(self.world_size, self.nodes, strict=True)
        return tuple(sorted({(int(ranks), int(nodes)) for ranks, nodes in pairs}))


@dataclass(frozen=True)
class Parameter:
    """A fitted number: SI units (``unit`` is "s", "B/s", "B" or empty for a ratio) and an interval of about 95 %.

    ``remark`` says in words where the number is not to be trusted: at its bound, or undetermined.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    meaning: str
    remark: str | None = None


@dataclass(frozen=True)
class SpreadErrors:
    """Relative errors ``|predicted / measured - 1|``: median, 90th percentile, the largest and where it occurs."""

    median: float
    p90: float
    largest: float
    largest_at_bytes: int
    largest_in: str
    points: int

    def text(self, digits: int) -> str:
        """Return the errors in words: "median 11%, 90th percentile 30%, largest 40% at 1 MiB"."""
        median, p90, largest = (format_ratio(one, digits) for one in (self.median, self.p90, self.largest))
        return f"median {median}, 90th percentile {p90}, largest {largest} at {format_bytes(self.largest_at_bytes)}"


@dataclass(frozen=True)
class Choice:
    """Which algorithm a model takes to run, a name a message, and by how much the next one is slower (a ratio - 1).

    ``margin`` is infinite where there is one algorithm only.
    """

    algorithm: tuple[str, ...]
    runner_up: tuple[str, ...]
    margin: tuple[float, ...]


Predictor = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Seconds, of world sizes, nodes and message bytes."""


@dataclass(frozen=True)
class Fitted:
    """A model with its parameters. ``errors`` are those on the points it was fitted to, by its formula alone.

    ``predictor`` may know more than the formula: what the formula left over. ``fits_counts`` tells whether it says
    anything of counts that were not measured.
    """

    model: str
    collective: str
    algorithm: str
    parameters: tuple[Parameter, ...]
    errors: SpreadErrors
    columns: Columns
    predictor: Predictor
    formula: Predictor
    fits_counts: bool
    warnings: tuple[str, ...] = ()
    chooser: Callable[[FloatArray, FloatArray, FloatArray], Choice] | None = None
    assumed: str = ""

    def predict(self, message_bytes: Sequence[float], world_size: int, nodes: int) -> FloatArray:
        """Seconds at messages, on so many ranks and nodes.

        Raises:
            InputError: the model describes one count alone, and this is another.
        """
        if not self.fits_counts and (world_size, nodes) not in self.columns.counts:
            known = listing([f"{ranks} ranks on {on} nodes" for ranks, on in self.columns.counts])
            asked = f"{world_size} ranks on {nodes} nodes"
            raise InputError(f"the model {self.model} describes {known} alone, not {asked}; take physical")
        return self.predictor(*_spread(message_bytes, world_size, nodes))

    def choice(self, message_bytes: Sequence[float], world_size: int, nodes: int) -> Choice:
        """The algorithm that the model takes to run at each message, and its margin to the next."""
        if self.chooser is None:
            one = (self.algorithm,) * len(message_bytes)
            return Choice(one, ("",) * len(one), (float("inf"),) * len(one))
        return self.chooser(*_spread(message_bytes, world_size, nodes))

    def half_width(self, world_size: int, nodes: int) -> float:
        """Half of the interval around a prediction, as a share of it; the wider, the farther from measured counts."""
        if (world_size, nodes) in self.columns.counts:
            return min(_WIDEST, max(2 * self.errors.p90, SEEN_LEAST))
        away = min(abs(math.log2(world_size / ranks)) for ranks, _ in self.columns.counts)
        return min(_WIDEST, max(2 * self.errors.p90, UNSEEN_LEAST + FARTHER * max(away - 1, 0)))


def _spread(message_bytes: Sequence[float], world_size: int, nodes: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    sizes = np.array(message_bytes, dtype=np.float64)
    return np.full_like(sizes, world_size), np.full_like(sizes, nodes), sizes


def columns_of(sweeps: Sequence[MeasuredSweep], min_bytes: float = 0) -> Columns:
    """Points of at least ``min_bytes``; all of them where fewer than half are left.

    Raises:
        InputError: the sweeps are of several collectives, of one rank, or do not say how many ranks they ran on.
    """
    kinds = list(dict.fromkeys(sweep.collective for sweep in sweeps))
    if kinds == [None]:
        raise InputError("nothing says which collective this is; give it, for instance --collective all_reduce")
    if not sweeps or len(kinds) > 1:
        named = listing([str(kind) for kind in kinds]) or "none"
        raise InputError(f"sweeps of one known collective are fitted together; these are of: {named}")
    lacking = [sweep.name for sweep in sweeps if sweep.world_size is None]
    if lacking:
        raise InputError(f"nothing says how many ranks {listing(lacking)} ran on; give it, for instance --ranks 8")
    alone = [sweep.name for sweep in sweeps if sweep.world_size == 1]
    if alone:
        raise InputError(f"{listing(alone)} ran on one rank, which sends nothing; fit two ranks or more")
    return stacked(sweeps, min_bytes)


def stacked(sweeps: Sequence[MeasuredSweep], min_bytes: float = 0) -> Columns:
    """Points of sweeps that say their collective and ranks, one after another; ``collective`` is the first one's."""
    rows = [
        (sweep.world_size or 1, sweep.nodes or 1, size, seconds, index)
        for index, sweep in enumerate(sweeps)
        for size, seconds in zip(sweep.message_bytes, sweep.seconds, strict=True)
    ]
    large = [row for row in rows if row[2] >= min_bytes]
    kept = large if 2 * len(large) >= len(rows) else rows
    ranks, nodes, sizes, seconds, index = (np.array(column, dtype=np.float64) for column in zip(*kept, strict=True))
    return Columns(str(sweeps[0].collective), tuple(sweeps), ranks, nodes, sizes, seconds, index.astype(np.int64))


def spread_errors(predicted: FloatArray, columns: Columns) -> SpreadErrors:
    """Relative errors of predictions at the points of columns."""
    found = spread(relative_errors(predicted.tolist(), columns.seconds.tolist()))
    worst = found.worst_at
    return SpreadErrors(
        found.median,
        found.p90,
        found.largest,
        int(columns.message_bytes[worst]),
        columns.sweeps[int(columns.sweep[worst])].name,
        found.points,
    )


def share_inside(predicted: FloatArray, measured: FloatArray, half_width: float) -> float:
    """The share of measured times in the interval, which is around the prediction: the difference is measured by it."""
    return float(np.mean(np.abs(measured / predicted - 1) <= half_width))


def dips(sweep: MeasuredSweep) -> list[str]:
    """Sentences for messages at most twice as long that took less than nine tenths of the time: switches or noise."""
    points = list(zip(sweep.message_bytes, sweep.seconds, strict=True))
    found = [
        (small, large)
        for (small, before), (large, after) in itertools.pairwise(points)
        if small < large <= 2 * small and after < 0.9 * before
    ]
    if not found:
        return []
    where = listing([f"{format_bytes(small)} to {format_bytes(large)}" for small, large in found], 4)
    return [f"{sweep.name}: a longer message took over a tenth less time ({where}): a switch of algorithm, or noise"]
