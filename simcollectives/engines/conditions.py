"""How a run differs from the ideal: ranks that start late, and random factors on latency, bytes and reductions.

A draw is a function of the seed and of what is drawn (which round of which channel, from which rank to which), not of
the order of events: every engine sees the same numbers.
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import numpy as np
import numpy.typing as npt

from simcollectives.cluster.link import MAX_SECONDS, is_number
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.schedule.types import IntArray

FloatArray = npt.NDArray[np.float64]
DISTRIBUTIONS = ("lognormal", "gamma")


@dataclass(frozen=True)
class Jitter:
    """A random factor of mean 1 and standard deviation ``spread``."""

    distribution: Literal["lognormal", "gamma"]
    spread: float

    def __post_init__(self) -> None:
        """Check the values."""
        problems = []
        if self.distribution not in DISTRIBUTIONS:
            rule = f"write {' or '.join(DISTRIBUTIONS)}"
            problems.append(Problem("distribution", f"{show_value(self.distribution)} is not a distribution; {rule}"))
        if not (is_number(self.spread) and 0 <= self.spread <= 10):
            problems.append(Problem("spread", f"{show_value(self.spread)} is not a spread; it is a ratio from 0 to 10"))
        if problems:
            raise InputError(problems)


@dataclass(frozen=True)
class Conditions:
    """Start of each rank in seconds (fewer than ranks: the rest start at 0), and what is drawn at random.

    ``random_skew`` adds a start drawn evenly between 0 and so many seconds. ``alpha`` and ``bandwidth`` (on the
    seconds that bytes take) are drawn for each message, ``reduction`` for each rank and round.
    """

    skew: tuple[float, ...] = ()
    random_skew: float = 0.0
    alpha: Jitter | None = None
    bandwidth: Jitter | None = None
    reduction: Jitter | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        problems = []
        given: object = self.skew
        starts = tuple(given) if isinstance(given, list | tuple | np.ndarray) else (given,)
        object.__setattr__(self, "skew", starts)
        late = [x for x in (*starts, self.random_skew) if not (is_number(x) and 0 <= x <= MAX_SECONDS)]
        if late:
            rule = f"it must be 0 or more, at most {MAX_SECONDS:.0e} s"
            problems.append(Problem("skew", f"{show_value(late[0])} s is not a start; {rule}"))
        for name in ("alpha", "bandwidth", "reduction"):
            jitter = getattr(self, name)
            if jitter is not None and not isinstance(jitter, Jitter):
                rule = 'is not a Jitter; write Jitter("lognormal", 0.2)'
                problems.append(Problem(name, f"{show_value(jitter)} {rule}"))
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral):
            problems.append(Problem("seed", f"{show_value(self.seed)} is not a seed; it must be a whole number"))
        if problems:
            raise InputError(problems)

    @property
    def random(self) -> bool:
        """Whether anything is drawn, so that seeds matter."""
        jitters = (self.alpha, self.bandwidth, self.reduction)
        return self.random_skew > 0 or any(jitter is not None and jitter.spread > 0 for jitter in jitters)

    @property
    def ideal(self) -> bool:
        """Whether all ranks start together and nothing is drawn."""
        return not any(self.skew) and not self.random

    def starts(self, devices: int) -> FloatArray:
        """[device]: seconds at which it enters the first round."""
        starts = np.zeros(devices)
        given = self.skew[:devices]
        starts[: len(given)] = given
        if self.random_skew:
            device = np.arange(devices, dtype=np.int64)
            starts += self.random_skew * uniform(self.seed, _START, 0, 0, device, device)
        return starts

    def alpha_factors(self, channel: int, number: int, src: IntArray, dst: IntArray) -> FloatArray | None:
        """Factors on the latencies of the messages of a round; None where nothing is drawn."""
        return _factors(self.alpha, _ALPHA, self.seed, channel, number, src, dst)

    def bandwidth_factors(self, channel: int, number: int, src: IntArray, dst: IntArray) -> FloatArray | None:
        """Factors on the seconds that the bytes of the messages of a round take; None where nothing is drawn."""
        return _factors(self.bandwidth, _BANDWIDTH, self.seed, channel, number, src, dst)

    def reduction_factors(self, channel: int, number: int, device: IntArray) -> FloatArray | None:
        """Factors on the seconds that devices reduce after a round; None where nothing is drawn."""
        return _factors(self.reduction, _REDUCTION, self.seed, channel, number, device, device)


IDEAL = Conditions()

_START, _ALPHA, _BANDWIDTH, _REDUCTION, _KERNEL = range(5)


def kernel_factors(jitter: Jitter, seed: int, step: int, rank: int, place: IntArray) -> FloatArray:
    """[operation]: factors on the seconds of a rank's kernels in a training step, by their places in its program."""
    factors = _factors(jitter, _KERNEL, seed, step, rank, place, place)
    return np.ones(len(place)) if factors is None else factors


def _factors(
    jitter: Jitter | None, kind: int, seed: int, channel: int, number: int, src: IntArray, dst: IntArray
) -> FloatArray | None:
    if jitter is None or jitter.spread == 0:
        return None
    from scipy import special

    drawn = uniform(seed, kind, channel, number, src, dst)
    if jitter.distribution == "gamma":
        shape = 1 / jitter.spread**2
        return np.asarray(special.gammaincinv(shape, drawn) / shape)
    variance = np.log1p(jitter.spread**2)
    return np.asarray(np.exp(np.sqrt(variance) * special.ndtri(drawn) - variance / 2))


def uniform(seed: int, kind: int, channel: int, number: int, src: IntArray, dst: IntArray) -> FloatArray:
    """Numbers evenly spread over (0, 1), one a message: a hash of everything that names the draw.

    The mixing function is splitmix64's (Steele, Lea and Flood, OOPSLA 2014).
    """
    state = np.full(len(src), np.uint64(seed % (1 << 64)))
    for word in (kind, channel, number, src, dst):
        state = _mixed(state ^ _mixed(np.broadcast_to(np.asarray(word, dtype=np.uint64), state.shape)))
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = words + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
