"""The table of algorithms. A new algorithm is one file and one line here."""

from collections.abc import Mapping
from typing import Any

from simcollectives.algorithms import (
    bidirectional_ring,
    butterfly,
    circulant,
    direct,
    hierarchical,
    naive,
    pairwise,
    parameter_server,
    rabenseifner,
    ring,
    rotated_rings,
    tree,
)
from simcollectives.algorithms.types import Algorithm, Options, Placement
from simcollectives.cluster.types import Cluster
from simcollectives.errors import AlgorithmError, Problem, show_value, suggestion
from simcollectives.schedule.collectives import find_collective

FLAT: tuple[Algorithm, ...] = (
    *naive.ALGORITHMS,
    *direct.ALGORITHMS,
    *ring.ALGORITHMS,
    *tree.ALGORITHMS,
    *butterfly.ALGORITHMS,
    *rabenseifner.ALGORITHMS,
    *circulant.ALGORITHMS,
    *parameter_server.ALGORITHMS,
    *pairwise.ALGORITHMS,
)
"""What other algorithms are made of: one channel each."""

ALGORITHMS: tuple[Algorithm, ...] = (
    *FLAT,
    *hierarchical.algorithms(FLAT),
    *rotated_rings.ALGORITHMS,
    *bidirectional_ring.ALGORITHMS,
)

_BY_NAME = {(a.collective, a.name): a for a in ALGORITHMS}


def has_algorithm(collective: str, name: str) -> bool:
    """Whether a collective has an algorithm of this name."""
    return (collective, name) in _BY_NAME


def find_algorithm(collective: str, name: object) -> Algorithm:
    """Look an algorithm up.

    Raises:
        AlgorithmError: the collective or the algorithm is not known; the message names those that are.
    """
    find_collective(collective)
    if not isinstance(name, str) or (collective, name) not in _BY_NAME:
        known = [n for c, n in _BY_NAME if c == collective]
        raise AlgorithmError(f"{collective} has no algorithm {show_value(name)}; {suggestion(name, known, 'it has')}")
    return _BY_NAME[collective, name]


def placement_of(cluster: Cluster) -> Placement:
    """Which ranks share a node."""
    return Placement(cluster.groups, flat=cluster.nodeless and cluster.levels[0].graph is None)


def check_fits(algorithm: Algorithm, cluster: Cluster, options: Options) -> None:
    """Check that an algorithm with resolved options runs on a cluster.

    Raises:
        AlgorithmError: it does not; the message says what it needs.
    """
    reason = algorithm.accepts(placement_of(cluster), options)
    if reason:
        raise AlgorithmError([Problem("", f"{label(algorithm, options)} {algorithm.collective}: {reason}")])


def label(algorithm: Algorithm, options: Options) -> str:
    """Name an algorithm with those of its options that are not defaults.

    >>> label(find_algorithm("all_reduce", "rabenseifner"), {"order": "far"})
    'rabenseifner (order: far)'
    """
    defaults = {option.name: option.default for option in algorithm.options}
    changed = [f"{k}: {_text(v)}" for k, v in options.items() if v != defaults.get(k)]
    return f"{algorithm.name} ({', '.join(changed)})" if changed else algorithm.name


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({', '.join(f'{k}: {v}' for k, v in o.items())})" for name, o in value.items())
    return str(value)
