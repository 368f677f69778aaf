"""What an algorithm does, in three numbers: steps inside a node, steps between nodes, and bytes on the bottleneck.

``ring`` and ``tree`` are NCCL's (a tree between nodes over chains inside them, pipelined); ``all_to_all`` its sends to
everybody at once. The others are those of MPI libraries, where a rank has a node of its own; ranks beyond a power of
two are folded in, which costs two more steps and the bytes sent there and back.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from simcollectives.measured.models.types import FloatArray
from simcollectives.measured.sweep import MeasuredSweep


class Form(NamedTuple):
    """Steps inside nodes, steps between them, and bytes on the bottleneck over the message, an entry a point."""

    inside: FloatArray
    between: FloatArray
    weight: FloatArray


FormOf = Callable[[str, FloatArray, FloatArray], Form]


def _times(collective: str) -> float:
    """Twice through the ranks for an all-reduce: to reduce, and to gather."""
    return 2.0 if collective == "all_reduce" else 1.0


def ring(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Steps to the neighbour; a broadcast or reduce is a pipelined chain, all of whose bytes pass every link."""
    times = _times(collective)
    between = np.where(nodes > 1, times * (nodes - 1), 0.0)
    chain = collective in ("broadcast", "reduce")
    return Form(times * (ranks - 1) - between, between, np.ones_like(ranks) if chain else times * (ranks - 1) / ranks)


def tree(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Up and down NCCL's double tree; every byte goes up and down once."""
    times = _times(collective)
    return Form(times * (ranks / nodes - 1), times * np.floor(np.log2(nodes) + 1e-9), np.full_like(ranks, times))


def all_to_all(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """One message a peer, all at once; between nodes the network card is the bottleneck."""
    local = ranks / nodes
    return Form(local - 1, ranks - local, np.where(nodes > 1, ranks - local, ranks - 1) / ranks)


def _alone(steps: FloatArray, weight: FloatArray) -> Form:
    """Steps of which one is like another: each rank has a node of its own."""
    return Form(np.zeros_like(steps), steps, weight)


def _folded(ranks: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Steps of halving, the power of two below, and 1 where ranks are folded in."""
    steps = np.floor(np.log2(ranks) + 1e-9)
    power = 2**steps
    return steps, power, (ranks > power).astype(np.float64)


def every_rank_its_step(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """A ring, or a partner after another."""
    times = _times(collective)
    return _alone(times * (ranks - 1), times * (ranks - 1) / ranks)


def butterfly(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Recursive doubling: whole vectors in an all-reduce, what is gathered so far in an all-gather."""
    steps, _, folded = _folded(ranks)
    if collective == "all_gather":
        return _alone(np.ceil(np.log2(ranks) - 1e-9), (ranks - 1) / ranks)
    return _alone(steps + 2 * folded, steps + 2 * folded)


def rabenseifner(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Halving, then doubling."""
    steps, power, folded = _folded(ranks)
    return _alone(2 * steps + 2 * folded, 2 * (power - 1) / power + 2 * folded)


def recursive_halving(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """The first half of it: a reduce-scatter; a folded rank gets its block alone at the end."""
    steps, power, folded = _folded(ranks)
    return _alone(steps + 2 * folded, (power - 1) / power + folded * (1 + 1 / ranks))


def neighbour(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Neighbour exchange: two blocks a step, with either side in turn."""
    return _alone(ranks / 2, (ranks - 1) / ranks)


def bruck(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """Half of the message a step in an all-to-all, what is gathered so far in an all-gather."""
    steps = np.ceil(np.log2(ranks) - 1e-9)
    return _alone(steps, steps / 2 if collective == "all_to_all" else (ranks - 1) / ranks)


def binomial(collective: str, ranks: FloatArray, nodes: FloatArray) -> Form:
    """A binomial tree, whole vectors a step; there and back for an all-reduce."""
    steps = _times(collective) * np.ceil(np.log2(ranks) - 1e-9)
    return _alone(steps, steps)


GPU_FORMS: Mapping[str, FormOf] = {"ring": ring, "tree": tree, "all_to_all": all_to_all}

HOST_FORMS: Mapping[str, FormOf] = {
    "ring": every_rank_its_step,
    "pairwise": every_rank_its_step,
    "linear": every_rank_its_step,
    "butterfly": butterfly,
    "rabenseifner": rabenseifner,
    "recursive_halving": recursive_halving,
    "neighbour": neighbour,
    "bruck": bruck,
    "binomial": binomial,
}

_WORDS: Sequence[tuple[str, str]] = (
    # What a name has in it, the first that fits, and what it then is.
    (r"neighbou?r", "neighbour"),
    (r"rabenseifner|reduce_scatter_all_?gather|redscat", "rabenseifner"),
    (r"recursive_?halving|rec_?halv", "recursive_halving"),
    (r"recursive_?doubling|butterfly|rec_?doub", "butterfly"),
    (r"bruck", "bruck"),
    (r"pairwise", "pairwise"),
    (r"linear", "linear"),
    (r"binomial", "binomial"),
    (r"(?<![a-z])ring", "ring"),
    (r"(?<![a-z])tree", "tree"),
)
_FREE = re.compile(r"auto|default|tuner|unknown")
_OTHER = re.compile(r"not nccl|hier|swing|bine|nvls|collnet|pat\b")

_ASSUMED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gpu", "all_reduce"): ("ring", "tree"),
    ("host", "all_reduce"): ("butterfly", "rabenseifner", "ring"),
    ("host", "all_gather"): ("butterfly", "ring"),
    ("host", "reduce_scatter"): ("recursive_halving", "ring"),
    ("host", "all_to_all"): ("bruck", "linear"),
    ("host", "broadcast"): ("binomial",),
    ("host", "reduce"): ("binomial",),
}

AUTOMATIC = "automatic"


def runs_on_hosts(sweep: MeasuredSweep) -> bool:
    """Whether CPUs communicate, by MPI: no GPU, or an MPI library's version."""
    return sweep.gpu.lower().startswith("none") or bool(re.search(r"mpi|osu", f"{sweep.nccl_version}", re.IGNORECASE))


def algorithm_of(sweep: MeasuredSweep) -> str | None:
    """The algorithm that a source says ran: a name of a form, "automatic" for a library's choice, or None: another.

    >>> from simcollectives.measured import load_sweep
    >>> algorithm_of(load_sweep("mn5_h100_4n4_allreduce_ring")), algorithm_of(load_sweep("aic_h100_sxm_1n8_all_gather"))
    ('ring', 'automatic')
    """
    text = sweep.algorithm.lower()
    if not text or _FREE.search(text):
        return AUTOMATIC
    if _OTHER.search(text):
        return None
    known = HOST_FORMS if runs_on_hosts(sweep) else GPU_FORMS
    name = next((name for words, name in _WORDS if re.search(words, text)), None)
    if name == "tree" and runs_on_hosts(sweep):
        name = "binomial"
    return name if name in known else None


def assumed_algorithms(sweep: MeasuredSweep, algorithm: str) -> tuple[str, ...]:
    """The algorithms that may have run: the named one, or what a library is taken to choose from."""
    hosts = runs_on_hosts(sweep)
    collective = sweep.collective or ""
    if not hosts and collective == "all_to_all":
        return ("all_to_all",)
    if algorithm != AUTOMATIC:
        return (algorithm,)
    if not hosts and sweep.nodes in (None, 1):
        return ("ring",)
    return _ASSUMED.get(("host" if hosts else "gpu", collective), ("ring",))
