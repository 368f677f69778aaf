"""simcollectives predicts how long collective operations take on a cluster, shows why, and proves its answers.

    import simcollectives as sc
    cluster = sc.Cluster.flat(8, sc.Link(alpha=5e-6, bandwidth=450e9))
    sc.simulate("all_reduce", "ring", cluster, message_bytes=1e9).seconds

Bytes, seconds and bytes per second everywhere.
"""

from os import PathLike
from typing import TYPE_CHECKING

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import (
    Estimate,
    Run,
    Timeline,
    closed_form,
    contributions,
    estimate,
    execute,
    simulate,
    verify,
)
from simcollectives.errors import (
    AlgorithmError,
    ClusterError,
    InputError,
    NoClosedFormError,
    ScheduleError,
    SimcollectivesError,
    UnitError,
)

if TYPE_CHECKING:
    from simcollectives.report import Result

__version__ = "0.1.0"

__all__ = [
    "AlgorithmError",
    "Cluster",
    "ClusterError",
    "Device",
    "Estimate",
    "InputError",
    "Link",
    "NoClosedFormError",
    "Run",
    "ScheduleError",
    "SimcollectivesError",
    "Timeline",
    "UnitError",
    "closed_form",
    "contributions",
    "estimate",
    "execute",
    "run",
    "simulate",
    "verify",
]


def run(path: str | PathLike[str]) -> "Result":
    """Run a scenario file. The result has ``.rows``, ``.checks``, ``.to_frame()`` and ``.plot(ax=None)``.

    Raises:
        InputError: the file is not a valid scenario; all problems at once, with lines.
        ScheduleError: a bug in a schedule.
    """
    from simcollectives.report import Result  # keeps the command line's start-up short
    from simcollectives.scenario import load_scenario, run_scenario

    result = run_scenario(load_scenario(path))
    if result.problems:
        raise InputError(result.problems, result.scenario.file)
    return Result.of(result)
