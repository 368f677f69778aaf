"""NCCL's choice at the points of a scenario, and expectations about it."""

from collections.abc import Sequence

from simcollectives.measured.nccl import Model, Prediction, candidate_seconds, choose, nccl_model, predict, with_log
from simcollectives.scenario.build import build_cluster, message_at
from simcollectives.scenario.expectations import bound_text, satisfies
from simcollectives.scenario.keys import ANY_SECONDS, point_text
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.results import Check
from simcollectives.scenario.types import (
    ClusterSettings,
    CollectiveSettings,
    NcclExpectation,
    NcclSettings,
    Point,
    Scenario,
    Sweep,
)

Shape = tuple[int, int]
"""Nodes and GPUs per node: all of a cluster that changes what NCCL picks, its graph given."""


def shape_at(cluster: ClusterSettings, point: Point) -> Shape:
    """Return the shape of the cluster at a point.

    Raises:
        ClusterError: it cannot exist.
    """
    built = build_cluster(cluster, point)
    return built.nodes, built.gpus_per_node


def model_of(collective: str, settings: NcclSettings, shape: Shape) -> Model:
    """Return NCCL's model of a collective, with the figures of the log if there is one.

    Raises:
        InputError: nothing is left to pick, or the log has no such table.
    """
    model = nccl_model(collective, settings.graph, *shape, settings.algorithms, settings.protocols)
    return model if settings.log is None else with_log(model, settings.log)


def swept_messages(
    cluster: ClusterSettings, collective: CollectiveSettings, sweeps: Sequence[Sweep]
) -> dict[Shape, list[int]]:
    """Return the messages at every shape of the cluster that the sweeps reach.

    Raises:
        ClusterError: a cluster cannot exist.
    """
    found: dict[Shape, dict[int, None]] = {}
    shapes: dict[object, Shape] = {}
    for point in sweep_points(sweeps):
        rest = {key: value for key, value in point.items() if key != "message"}
        key = frozenset(rest.items())
        if key not in shapes:
            shapes[key] = shape_at(cluster, rest)
        found.setdefault(shapes[key], {})[message_at(collective, point)] = None
    return {shape: list(messages) for shape, messages in found.items()}


def predict_nccl(scenario: Scenario, settings: NcclSettings) -> tuple[Prediction, ...]:
    """Return what NCCL would pick at all points, one prediction for every shape of the cluster, in order."""
    collective, found = scenario.collective, []
    for shape, messages in swept_messages(scenario.cluster, collective, scenario.sweeps).items():
        model = nccl_model(collective.name, settings.graph, *shape, settings.algorithms, settings.protocols)
        found.append(predict(model, messages, settings.log))
    return tuple(found)


def check_nccl(scenario: Scenario, settings: NcclSettings, expectation: NcclExpectation) -> Check:
    """Evaluate an expectation about NCCL's choice."""
    model = model_of(scenario.collective.name, settings, shape_at(scenario.cluster, expectation.point))
    message, bound = expectation.message_bytes, expectation.bound
    picked = choose(model, message)
    where = f" at {point_text(expectation.point)}" if expectation.point else ""
    because = "" if expectation.because is None else f" ({expectation.because})"
    if bound is None:
        passed = picked.label == expectation.candidate
        found = f"NCCL's choice{where} is {picked.label}"
        expected, value = f"equals {expectation.candidate}", picked.seconds
    else:
        candidate = next(one for one in model.available if one.label == (expectation.candidate or picked.label))
        value = candidate_seconds(model, candidate, message)
        passed = satisfies(bound, value)
        found = f"NCCL's time of {candidate.label}{where} is {ANY_SECONDS.format(value, 6)}"
        expected = bound_text(bound, ANY_SECONDS)
    return Check(
        expectation.text, expectation.line, passed, value, found, expected if passed else f"{expected}{because}"
    )
