"""Graphs of links: routes over them."""

from __future__ import annotations

import numpy as np
import pytest

from simcollectives.cluster import Torus


@pytest.mark.parametrize(("sizes", "wraps", "most"), [((4, 4), True, 4), ((5, 2), True, 3), ((3, 4), False, 5)])
def test_routes_on_a_grid_have_as_many_columns_whatever_the_messages(
    sizes: tuple[int, ...], wraps: bool, most: int
) -> None:
    """The longest way across, so that flows of several rounds fit into one array; neighbours use one column of it."""
    hops = Torus(sizes, wraps).hops(np.array([0]), np.array([1]))
    assert hops.shape == (1, most)
    assert (hops >= 0).sum() == 1
