"""Rounds and bytes sent of every algorithm, written from the textbooks and not from the package.

``sent`` counts elements for each rank (then each dedicated server) from the sizes of the chunks: ``sizes`` has one
entry for each chunk of the message. Works for uneven chunks. A new algorithm needs one entry in ``ROUNDS`` and one in
``SENT`` or ``SENT_BY_GROUPS`` here; a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

Options = Mapping[str, Any]
Sent = list[int]


def ceil_log2(n: int) -> int:
    return (n - 1).bit_length()


def floor_log2(n: int) -> int:
    return n.bit_length() - 1


def folds(n: int) -> int:
    """1 where ranks beyond the largest power of two must be folded in."""
    return 0 if n & (n - 1) == 0 else 1


def part(value: Any) -> tuple[str, Options]:
    """The name and options of a nested algorithm."""
    return next(iter(value.items())) if isinstance(value, Mapping) else (value, {})


# --- rounds: (collective, name) -> f(nodes, gpus_per_node, options)


def _hierarchical_rounds(nodes: int, members: int, options: Options) -> int:
    (intra, intra_options), (inter, inter_options) = part(options["intra"]), part(options["inter"])
    inside = [ROUNDS[c, intra](1, members, intra_options) for c in ("reduce_scatter", "all_gather")]
    return sum(inside) + ROUNDS["all_reduce", inter](1, nodes, inter_options)


def _of_size(f: Callable[[int], int]) -> Callable[[int, int, Options], int]:
    return lambda nodes, members, _options: f(nodes * members)


def _one(n: int) -> int:
    return min(n - 1, 1)


RINGS = ("ring", "rotated_rings", "bidirectional_ring")

ROUNDS: dict[tuple[str, str], Callable[[int, int, Options], int]] = {
    **{("all_reduce", name): _of_size(lambda n: 2 * (n - 1)) for name in RINGS},
    **{(c, name): _of_size(lambda n: n - 1) for name in RINGS for c in ("reduce_scatter", "all_gather")},
    ("all_reduce", "naive"): _of_size(_one),
    ("all_reduce", "direct"): _of_size(lambda n: 2 * _one(n)),
    ("all_reduce", "tree"): _of_size(lambda n: 2 * ceil_log2(n)),
    ("all_reduce", "butterfly"): _of_size(lambda n: floor_log2(n) + 2 * folds(n)),
    ("all_reduce", "rabenseifner"): _of_size(lambda n: 2 * floor_log2(n) + 2 * folds(n)),
    ("all_reduce", "circulant"): _of_size(lambda n: 2 * ceil_log2(n)),
    ("all_reduce", "parameter_server"): _of_size(lambda n: 2 * _one(n)),
    ("all_reduce", "hierarchical"): _hierarchical_rounds,
    ("reduce_scatter", "direct"): _of_size(_one),
    ("reduce_scatter", "butterfly"): _of_size(floor_log2),
    ("reduce_scatter", "circulant"): _of_size(ceil_log2),
    ("all_gather", "direct"): _of_size(_one),
    ("all_gather", "butterfly"): _of_size(floor_log2),
    ("all_gather", "circulant"): _of_size(ceil_log2),
    ("all_to_all", "direct"): _of_size(_one),
    ("all_to_all", "pairwise"): _of_size(lambda n: n - 1),
    ("broadcast", "direct"): _of_size(_one),
    ("broadcast", "tree"): _of_size(ceil_log2),
    ("reduce", "direct"): _of_size(_one),
    ("reduce", "tree"): _of_size(ceil_log2),
}


# --- elements sent: (collective, name) -> f(n, sizes, options); sizes: elements of each chunk


def _all_but_own(n: int, sizes: list[int], _options: Options) -> Sent:
    """Reduce-scatters and all-to-alls that move every part once: all of the message but the rank's own part."""
    return [sum(sizes) - sizes[i] for i in range(n)]


def _gather_direct(n: int, sizes: list[int], _options: Options) -> Sent:
    return [(n - 1) * sizes[i] for i in range(n)]


def _gather_ring(n: int, sizes: list[int], _options: Options) -> Sent:
    """A rank passes on every part except the one that its neighbour made."""
    return [sum(sizes) - sizes[(i + 1) % n] for i in range(n)]


def _gather_circulant(n: int, sizes: list[int], _options: Options) -> Sent:
    """With h parts held (its own and those of the next ranks) a rank sends the first min(h, what lacks) of them."""
    targets = [n]
    while targets[-1] > 1:
        targets.append(-(-targets[-1] // 2))
    steps = [(held, goal - held) for goal, held in pairwise(targets)]
    return [sum(sizes[(i + k) % n] for _, count in steps for k in range(count)) for i in range(n)]


def _agreeing(i: int, n: int, sizes: list[int], mask: int) -> int:
    """Elements of the chunks whose number agrees with i in the bits of ``mask``."""
    return sum(sizes[c] for c in range(n) if (c ^ i) & mask == 0)


def _gather_butterfly(n: int, sizes: list[int], options: Options) -> Sent:
    """Before each exchange a rank sends all it holds: the chunks that differ from it in the distances already met."""
    bits = floor_log2(n)
    order = range(bits) if options.get("order", "far") == "near" else reversed(range(bits))
    sent, mask = [0] * n, n - 1
    for bit in order:
        for i in range(n):
            sent[i] += _agreeing(i, n, sizes, mask)
        mask &= ~(1 << bit)
    return sent


def _added(*parts: Sent) -> Sent:
    return [sum(column) for column in zip(*parts, strict=True)]


def _children(n: int) -> list[int]:
    """Of each rank in the binomial tree: r + 2^k below n, for every k under r's lowest set bit (any k for rank 0)."""
    q = ceil_log2(n)
    low = [q if r == 0 else (r & -r).bit_length() - 1 for r in range(n)]
    return [sum(1 for k in range(low[r]) if r + (1 << k) < n) for r in range(n)]


def _tree_down(n: int, sizes: list[int], options: Options) -> Sent:
    root, children = options.get("root", 0), _children(n)
    return [children[(i - root) % n] * sum(sizes) for i in range(n)]


def _all_but_root(n: int, sizes: list[int], options: Options) -> Sent:
    return [0 if i == options.get("root", 0) else sum(sizes) for i in range(n)]


def _root_to_all(n: int, sizes: list[int], options: Options) -> Sent:
    return [(n - 1) * sum(sizes) if i == options["root"] else 0 for i in range(n)]


def _folded(n: int, sizes: list[int], inner: Callable[[int, int], int]) -> Sent:
    """``inner(i, power)`` for the active ranks; the first even ranks and their odd neighbours send one more vector."""
    power = 1 << floor_log2(n)
    extra, whole = n - power, sum(sizes)
    pairs = [x for j in range(extra) for x in (whole, whole + inner(j, power))]
    return pairs + [inner(j, power) for j in range(extra, power)]


def _butterfly(n: int, sizes: list[int], _options: Options) -> Sent:
    return _folded(n, sizes, lambda _i, power: floor_log2(power) * sum(sizes))


def _rabenseifner(n: int, sizes: list[int], options: Options) -> Sent:
    """Halving sends all but the own chunk; doubling mirrors it."""
    mirrored = {"near": "far", "far": "near"}[options.get("order", "near")]
    power = 1 << floor_log2(n)
    doubling = _gather_butterfly(power, sizes, {"order": mirrored})
    return _folded(n, sizes, lambda i, _power: sum(sizes) - sizes[i] + doubling[i])


def _parameter_server(n: int, sizes: list[int], options: Options) -> Sent:
    if n == 1:
        return [0]
    if options["servers"] == "co_located":
        return _added(_all_but_own(n, sizes, {}), _gather_direct(n, sizes, {}))
    return [sum(sizes)] * n + [n * size for size in sizes]


SENT: dict[tuple[str, str], Callable[[int, list[int], Options], Sent]] = {
    ("all_reduce", "naive"): lambda n, sizes, _: [(n - 1) * sum(sizes)] * n,
    ("all_reduce", "direct"): lambda n, sizes, o: _added(_all_but_own(n, sizes, o), _gather_direct(n, sizes, o)),
    ("all_reduce", "ring"): lambda n, sizes, o: _added(_all_but_own(n, sizes, o), _gather_ring(n, sizes, o)),
    ("all_reduce", "tree"): lambda n, sizes, o: _added(_all_but_root(n, sizes, o), _tree_down(n, sizes, o)),
    ("all_reduce", "butterfly"): _butterfly,
    ("all_reduce", "rabenseifner"): _rabenseifner,
    ("all_reduce", "circulant"): lambda n, sizes, o: _added(_all_but_own(n, sizes, o), _gather_circulant(n, sizes, o)),
    ("all_reduce", "parameter_server"): _parameter_server,
    ("reduce_scatter", "direct"): _all_but_own,
    ("reduce_scatter", "ring"): _all_but_own,
    ("reduce_scatter", "butterfly"): _all_but_own,
    ("reduce_scatter", "circulant"): _all_but_own,
    ("all_gather", "direct"): _gather_direct,
    ("all_gather", "ring"): _gather_ring,
    ("all_gather", "butterfly"): _gather_butterfly,
    ("all_gather", "circulant"): _gather_circulant,
    ("all_to_all", "direct"): _all_but_own,
    ("all_to_all", "pairwise"): _all_but_own,
    ("broadcast", "direct"): _root_to_all,
    ("broadcast", "tree"): _tree_down,
    ("reduce", "direct"): _all_but_root,
    ("reduce", "tree"): _all_but_root,
}


# --- elements sent where it matters who shares a node: (collective, name) -> f(groups, sizes, options)


def hierarchical_sent(groups: list[list[int]], sizes: list[int], options: Options) -> Sent:
    """``groups``: the ranks of each node. Inside: parts of the vector; between: member j's part, cut again."""
    (intra, intra_options), (inter, inter_options) = part(options["intra"]), part(options["inter"])
    members = len(groups[0])
    cut = len(sizes) // members
    parts = [sizes[j * cut : (j + 1) * cut] for j in range(members)]
    whole_parts = [sum(p) for p in parts]
    inside = _added(*(SENT[c, intra](members, whole_parts, intra_options) for c in ("reduce_scatter", "all_gather")))
    sent = [0] * (members * len(groups))
    for j in range(members):
        between = SENT["all_reduce", inter](len(groups), parts[j], inter_options)
        for group, elements in zip(groups, between, strict=True):
            sent[group[j]] = inside[j] + elements
    return sent


def rings_sent(collective: str, rings: list[list[int]], sizes: list[int]) -> Sent:
    """``rings``: of each channel the ranks in order. Of each rank's part a channel moves one chunk.

    Reducing, a rank sends all but its own part; gathering, all but what its next neighbour in each ring made.
    """
    n, channels = len(rings[0]), len(rings)
    part = [sizes[i * channels : (i + 1) * channels] for i in range(n)]
    sent = [0] * n
    for channel, ring in enumerate(rings):
        whole = sum(part[i][channel] for i in range(n))
        for rank, following in zip(ring, ring[1:] + ring[:1], strict=True):
            if collective != "all_gather":
                sent[rank] += whole - part[rank][channel]
            if collective != "reduce_scatter":
                sent[rank] += whole - part[following][channel]
    return sent


def rotated(groups: list[list[int]], options: Options) -> list[list[int]]:
    """Ring k enters every node at member k g/c."""
    members = len(groups[0])
    count = options["channels"] if options["channels"] != "auto" else members if len(groups) > 1 else 1
    firsts = [channel * members // count for channel in range(count)]
    return [[rank for group in groups for rank in group[first:] + group[:first]] for first in firsts]


def opposite(n: int) -> list[list[int]]:
    """Upwards, and downwards."""
    return [list(range(n)), [0, *range(n - 1, 0, -1)]]


def _rotated_sent(collective: str) -> Callable[[list[list[int]], list[int], Options], Sent]:
    return lambda groups, sizes, options: rings_sent(collective, rotated(groups, options), sizes)


def _opposite_sent(collective: str) -> Callable[[int, list[int], Options], Sent]:
    return lambda n, sizes, _options: rings_sent(collective, opposite(n), sizes)


_RINGED = ("all_reduce", "reduce_scatter", "all_gather")
SENT |= {(collective, "bidirectional_ring"): _opposite_sent(collective) for collective in _RINGED}
SENT_BY_GROUPS: dict[tuple[str, str], Callable[[list[list[int]], list[int], Options], Sent]] = {
    ("all_reduce", "hierarchical"): hierarchical_sent,
    **{(collective, "rotated_rings"): _rotated_sent(collective) for collective in _RINGED},
}
