"""Which sweeps are fitted together: one collective, one algorithm, one kind of system with nodes of one size."""

from collections.abc import Sequence

from simcollectives.errors import InputError, Problem
from simcollectives.measured.models import Fitted, Model, algorithm_of, runs_on_hosts
from simcollectives.measured.sweep import MeasuredSweep


def grouped(sweeps: Sequence[MeasuredSweep]) -> list[list[MeasuredSweep]]:
    """The sweeps that one fit explains, group by group, in the order given.

    Sweeps on one node stand apart from those on several, whose bottleneck is another.
    """
    groups: dict[tuple[object, ...], list[MeasuredSweep]] = {}
    for sweep in sweeps:
        nodes, ranks = sweep.nodes or 1, sweep.world_size or 1
        local = ranks // nodes if nodes > 1 else None
        key = (sweep.collective, algorithm_of(sweep), sweep.algorithm if algorithm_of(sweep) is None else "")
        groups.setdefault((*key, runs_on_hosts(sweep), local), []).append(sweep)
    return list(groups.values())


def fit_all(sweeps: Sequence[MeasuredSweep], model: Model) -> list[Fitted]:
    """A fit of each group, or of each sweep where the model describes one alone.

    Raises:
        InputError: some cannot be fitted; all reasons at once, each with the names of its sweeps.
    """
    together = grouped(sweeps) if model.several else [[sweep] for sweep in sweeps]
    found, problems = [], []
    for some in together:
        try:
            found.append(model.fit(some))
        except InputError as error:
            names = ", ".join(sweep.name for sweep in some)
            problems += [Problem(names, problem.message) for problem in error.problems]
    if problems:
        raise InputError(problems)
    return found


def fit_for(fits: Sequence[Fitted], sweep: MeasuredSweep) -> Fitted | None:
    """The fit that predicts a sweep: of its collective and, if one is, of its algorithm; on one node or on several."""
    same = [
        fit
        for fit in fits
        if fit.collective == sweep.collective and (fit.columns.nodes.max() > 1) == ((sweep.nodes or 1) > 1)
    ]
    exact = [fit for fit in same if fit.algorithm == algorithm_of(sweep)]
    return next(iter(exact or same), None)
