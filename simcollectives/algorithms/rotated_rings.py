"""Rotated rings: c rings at once, each of which leaves the nodes by other devices, so that all network ports work.

    all_reduce  2 (N - 1) (largest of alpha2 + o2 + n/B2, alpha1 + (g - 1) (o1 + n/B1)) + (N - 1) n gamma

for P nodes of g devices with a network port (alpha2, B2) each, links alpha1, B1 inside, c = g and n = M/(g N) bytes a
chunk; half the rounds for reduce_scatter and all_gather, no gamma for the latter. All rings visit the nodes in order;
ring k passes through every node from its member k g/c (rounded down) on, and leaves it by the member before. For any c
a network port carries up to ceil(c/g) rings, a link inside c - floor(c/g), with n = M/(c N): see ``several_rings``,
where the conditions stand as well (equal chunks, ports that nothing else shares). Nodes are those of the cluster,
whatever the rank order. Option ``channels``: a number, or auto: g; on one node, where nothing is gained, 1.

Reference: NCCL makes as many rings as there are network cards, each over another one (github.com/NVIDIA/nccl, issue
601); each ring is that of Patarasuk and Yuan 2009.
"""

from typing import Any

from simcollectives.algorithms.several_rings import algorithm
from simcollectives.algorithms.types import Algorithm, Option, Options, Placement, whole_number
from simcollectives.schedule.types import IntArray

_number = whole_number("channels", 1, "", least=1)


def _check(value: Any) -> Any:
    if value == "auto":
        return value
    try:
        return _number.check(value)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


CHANNELS = Option(
    "channels", "auto", "rings at once: a number, or auto (gpus_per_node; 1 on one node)", _check, choices=("auto",)
)


def _channels(placement: Placement, options: Options) -> int:
    nodes, members = placement.groups.shape
    if options["channels"] == "auto":
        return int(members) if nodes > 1 else 1
    return int(options["channels"])


def _rank_at(placement: Placement, channel: int, channels: int, positions: IntArray) -> IntArray:
    members = placement.groups.shape[1]
    first = channel * members // channels
    ranks: IntArray = placement.groups[positions // members, (positions + first) % members]
    return ranks


def _algorithm(collective: str, formula: str) -> Algorithm:
    return algorithm(
        "rotated_rings",
        collective,
        summary="rings over all network ports: each leaves nodes by another device",
        formula=formula,
        reference="NCCL; Patarasuk and Yuan 2009",
        channels=_channels,
        rank_at=_rank_at,
        options=(CHANNELS,),
    )


ALGORITHMS = (
    _algorithm("all_reduce", "2(N-1)(alpha + c(o + M/cNB)) + (N-1)/cN M gamma"),
    _algorithm("reduce_scatter", "(N-1)(alpha + c(o + M/cNB) + M/cN gamma)"),
    _algorithm("all_gather", "(N-1)(alpha + c(o + M/cNB))"),
)
