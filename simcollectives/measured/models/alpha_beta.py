"""Alpha-beta: every step costs alpha, every byte on the bottleneck 1/B. T = alpha k + W / B.

k and W are those of the algorithm (`forms`); steps inside a node cost 3.4/14 of one between nodes, the ratio of NCCL's
own constants, because at one number of GPUs a node the two cannot be told apart. Where the algorithm is not known, k
and W are 1, and nothing is said of other counts.
"""

from collections.abc import Sequence

import numpy as np

from simcollectives.measured.models.forms import (
    AUTOMATIC,
    GPU_FORMS,
    HOST_FORMS,
    Form,
    algorithm_of,
    assumed_algorithms,
    runs_on_hosts,
)
from simcollectives.measured.models.solve import Free, parameters_of, solve
from simcollectives.measured.models.types import Fitted, FloatArray, columns_of, dips, spread_errors
from simcollectives.measured.sweep import MeasuredSweep

INSIDE_OVER_BETWEEN = 3.4 / 14.0

_ALPHA = Free("alpha", 1e-3, 1e5, 10, None, "s", 1e-6, "a step")
_B = Free("B", 1e-4, 1e5, 10, None, "B/s", 1e9, "bytes of the bottleneck link")


def fit_alpha_beta(sweeps: Sequence[MeasuredSweep]) -> Fitted:
    """Alpha and bandwidth of sweeps of one collective, of one algorithm.

    Raises:
        InputError: they are not of one collective, or do not say their ranks.
    """
    columns = columns_of(sweeps)
    named = algorithm_of(sweeps[0])
    forms = HOST_FORMS if runs_on_hosts(sweeps[0]) else GPU_FORMS
    algorithm = None if named is None else assumed_algorithms(sweeps[0], named)[0]

    def predict(values: dict[str, float], ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        ones = np.ones_like(size)
        form = Form(0 * ones, ones, ones) if algorithm is None else forms[algorithm](columns.collective, ranks, nodes)
        inside = np.where(nodes > 1, INSIDE_OVER_BETWEEN, 1.0)
        return np.asarray(
            values["alpha"] * (form.inside * inside + form.between) + 1e-3 * form.weight * size / values["B"]
        )

    free = (_ALPHA, _B)
    solution = solve(
        lambda values: predict(values, columns.world_size, columns.nodes, columns.message_bytes),
        1e6 * columns.seconds,
        free,
    )

    def formula(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        return 1e-6 * predict(solution.values, ranks, nodes, size)

    parameters = parameters_of(solution, free)
    found = [f"{one.name} {one.remark}" for one in parameters if one.remark is not None]
    if named == AUTOMATIC:
        found.append(f"which algorithm ran is not known; {algorithm} is taken")
    return Fitted(
        model="alpha_beta",
        collective=columns.collective,
        algorithm=named or "unknown",
        parameters=parameters,
        errors=spread_errors(formula(columns.world_size, columns.nodes, columns.message_bytes), columns),
        columns=columns,
        predictor=formula,
        formula=formula,
        fits_counts=algorithm is not None,
        warnings=(*found, *(text for sweep in sweeps for text in dips(sweep))),
        assumed=algorithm or "",
    )
