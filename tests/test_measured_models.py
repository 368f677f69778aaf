"""Models of measured times: known parameters are found again, outliers pull little, words say what is not known."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.engines.closed_form import closed_form
from simcollectives.errors import InputError
from simcollectives.measured import MeasuredSweep, load_sweep
from simcollectives.measured.groups import fit_all, fit_for, grouped
from simcollectives.measured.models import MODELS, Fitted, algorithm_of, find_model
from simcollectives.measured.models.forms import GPU_FORMS, HOST_FORMS
from simcollectives.measured.models.physical import GROWTH

SIZES = tuple(2**power for power in range(10, 31))
Times = Callable[[float, float, float], float]
"""Microseconds, of ranks, nodes and bytes."""


def made(
    times: Times,
    counts: tuple[tuple[int, int], ...],
    algorithm: str = "ring forced",
    collective: str = "all_reduce",
    gpu: str = "a GPU",
    noise: float = 0.0,
    sizes: tuple[int, ...] = SIZES,
) -> list[MeasuredSweep]:
    random = np.random.default_rng(3)
    sweeps = []
    for ranks, nodes in counts:
        factors = np.exp(noise * random.standard_normal(len(sizes)))
        seconds = tuple(1e-6 * times(ranks, nodes, size) * factor for size, factor in zip(sizes, factors, strict=True))
        name = f"made_{nodes}n{ranks // nodes}"
        sweeps.append(
            MeasuredSweep(name, collective, algorithm, ranks, nodes, gpu, "", "", "", "made", "", sizes, seconds, "out")
        )
    return sweeps


def q_norm(latency: float, transfer: float, q: float) -> float:
    return float((latency**q + transfer**q) ** (1 / q))


def between_nodes(ranks: float, nodes: float, size: float) -> float:
    """The formula of the physical model for a ring, written out: t0 12 us, lambda 1.3, B 90 GB/s, q 0.9, r_LL 0.2."""
    between, inside = 2 * (nodes - 1), 2 * (ranks - 1) - 2 * (nodes - 1)
    moved = 2 * (ranks - 1) / ranks * size + 0.5 * size / ranks
    protocols = ((0.6, 2.7, 0.2), (1.9, 4.0, 0.92), (3.4, 14.0, 1.0))
    return min(
        q_norm(12 + 1.3 * (inside * one + between * other), 1e-3 * moved / (rate * 90), 0.9)
        for one, other, rate in protocols
    )


def on_one_node(ranks: float, nodes: float, size: float) -> float:
    """T0 6 us, alpha 0.8 us, B 400 GB/s, q 0.6, phi 0.5."""
    moved = 2 * (ranks - 1) / ranks * size + 0.5 * size / ranks
    return q_norm(6 + 0.8 * 2 * (ranks - 1), 1e-3 * moved / 400, 0.6)


def on_hosts(ranks: float, nodes: float, size: float) -> float:
    """Recursive doubling: t0 2 us, alpha 3 us, B 8 GB/s, q 1.1, R 1.5 from 8 MB on."""
    steps = math.log2(ranks)
    rolled = 1 + 1.5 * size**2 / (size**2 + 8e6**2)
    return q_norm(2 + 3 * steps, 1e-3 * steps * size / 8 * rolled, 1.1)


PHYSICAL = {
    "nodes": (between_nodes, ((16, 4), (32, 8)), (128, 32), "ring forced", "a GPU"),
    "one node": (on_one_node, ((2, 1), (4, 1)), (8, 1), "ring forced", "a GPU"),
    "hosts": (on_hosts, ((8, 8), (16, 16)), (64, 64), "recursive_doubling_ompi", "none: a CPU"),
}


@pytest.mark.parametrize("kind", PHYSICAL)
def test_known_physics_predict_a_count_that_was_not_fitted(kind: str) -> None:
    times, counts, other, algorithm, gpu = PHYSICAL[kind]
    fit = find_model("physical").fit(made(times, counts, algorithm, gpu=gpu))
    assert fit.errors.largest < 0.02
    ranks, nodes = other
    exact = np.array([1e-6 * times(ranks, nodes, size) for size in SIZES])
    # Beyond the measured nodes of GPUs the time grows by GROWTH a doubling, of which these times know nothing.
    growth = (1 + GROWTH) ** math.log2(nodes / counts[-1][1]) if kind == "nodes" else 1
    assert np.abs(fit.predict(SIZES, ranks, nodes) / growth / exact - 1).max() < 0.05


def test_known_parameters_are_found_again_with_si_units() -> None:
    fit = find_model("physical").fit(made(between_nodes, ((16, 4), (32, 8))))
    found = {one.name: (one.value, one.unit) for one in fit.parameters}
    for name, value, unit in (
        ("t0", 12e-6, "s"),
        ("lambda", 1.3, ""),
        ("B", 90e9, "B/s"),
        ("q", 0.9, ""),
        ("r_LL", 0.2, ""),
    ):
        assert found[name][1] == unit
        assert found[name][0] == pytest.approx(value, rel=0.1)
    assert all(one.low <= one.value <= one.high for one in fit.parameters)


def test_intervals_hold_the_truth_in_noise() -> None:
    fit = find_model("physical").fit(made(on_one_node, ((2, 1), (4, 1), (8, 1)), noise=0.03))
    truth = {"t0": 6e-6, "alpha": 0.8e-6, "B": 400e9, "q": 0.6, "phi": 0.5}
    held = [one.low <= truth[one.name] <= one.high for one in fit.parameters]
    assert sum(held) >= 4  # of five, at about 95 % each
    assert fit.errors.median < 0.04


@pytest.mark.parametrize("model", ["alpha_beta", "physical", "piecewise3"])
def test_an_outlier_pulls_little(model: str) -> None:
    def straight(ranks: float, nodes: float, size: float) -> float:
        return 2 * (ranks - 1) * 2.0 + 2 * (ranks - 1) / ranks * 1e-3 * size / 100

    (clean,) = made(straight, ((8, 1),))
    spoilt = replace(clean, seconds=tuple(6 * t if i == 9 else t for i, t in enumerate(clean.seconds)))
    both = [find_model(model).fit([sweep]).formula(*columns(8, 1)) for sweep in (clean, spoilt)]
    off = np.abs(both[1] / both[0] - 1)
    assert np.median(off) < 0.02
    assert np.delete(off, range(7, 12)).max() < 0.1


def columns(ranks: int, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = np.array(SIZES, dtype=np.float64)
    return np.full_like(sizes, ranks), np.full_like(sizes, nodes), sizes


def test_alpha_beta_of_several_counts() -> None:
    def ring(ranks: float, nodes: float, size: float) -> float:
        return 2 * (ranks - 1) * 1.5 + 2 * (ranks - 1) / ranks * 1e-3 * size / 250

    fit = find_model("alpha_beta").fit(made(ring, ((2, 1), (4, 1))))
    alpha, bandwidth = fit.parameters
    assert (alpha.value, bandwidth.value) == (pytest.approx(1.5e-6, rel=1e-3), pytest.approx(250e9, rel=1e-3))
    assert fit.predict([2**20], 16, 1)[0] == pytest.approx(1e-6 * ring(16, 1, 2**20), rel=1e-3)


def test_what_the_points_leave_open_is_said() -> None:
    large = tuple(2**power for power in range(27, 34))

    def stream(ranks: float, nodes: float, size: float) -> float:
        return 1e-3 * size / 50

    fit = find_model("alpha_beta").fit(made(stream, ((8, 1),), sizes=large, noise=0.01))
    alpha, bandwidth = fit.parameters
    assert alpha.remark in ("is undetermined: these points hardly depend on it", "stands at the lower end of its range")
    assert f"alpha {alpha.remark}" in fit.warnings
    assert bandwidth.remark is None


def three_regimes(ranks: float, nodes: float, size: float) -> float:
    """10 us and 1 GB/s up to 64 KiB, then 10 GB/s up to 4 MiB, then 100 GB/s; continuous."""
    first, second = 2**16, 2**22
    if size <= first:
        return 10 + 1e-3 * size
    if size <= second:
        return 10 + 1e-3 * first + 1e-4 * (size - first)
    return 10 + 1e-3 * first + 1e-4 * (second - first) + 1e-5 * (size - second)


def test_piecewise_finds_regimes_again() -> None:
    fit = find_model("piecewise3").fit(made(three_regimes, ((8, 1),)))
    assert fit.errors.largest < 1e-6
    rates = [one.value for one in fit.parameters if one.unit == "B/s"]
    assert rates == pytest.approx([1e9, 10e9, 100e9], rel=1e-6)
    alphas = [one.value for one in fit.parameters if one.unit == "s"]
    # Alpha of a regime is where its line meets zero bytes: 10 us, then + joint x (1/B1 - 1/B2).
    assert alphas[:2] == pytest.approx([10e-6, 10e-6 + 2**16 * (1e-9 - 1e-10)], rel=1e-6)


def test_piecewise_is_continuous_and_never_falls() -> None:
    fit = find_model("piecewise3").fit([load_sweep("h100_1n8_aws_p5_allreduce_auto")])
    sizes = np.exp(np.linspace(math.log(8), math.log(2**34), 2000))
    times = fit.predict(sizes.tolist(), 8, 1)
    assert np.all(np.diff(times) >= 0)
    assert (times[1:] / times[:-1]).max() < sizes[1] / sizes[0] + 1e-9  # alpha and slopes are not negative


def test_piecewise_takes_fewer_regimes_where_points_are_few() -> None:
    (sweep,) = made(three_regimes, ((8, 1),), sizes=SIZES[:8])
    fit = find_model("piecewise3").fit([sweep])
    assert "8 messages allow 2 regimes with 4 points each, not 3" in fit.warnings
    with pytest.raises(InputError, match="3 messages are too few"):
        find_model("piecewise2").fit([replace(sweep, message_bytes=SIZES[:3], seconds=sweep.seconds[:3])])


def test_one_sweep_models_refuse_several_and_other_counts() -> None:
    sweeps = made(three_regimes, ((8, 1), (16, 2)))
    with pytest.raises(InputError, match="describes one sweep, not 2"):
        find_model("piecewise3").fit(sweeps)
    with pytest.raises(InputError, match="describes 8 ranks on 1 nodes alone, not 16 ranks on 2 nodes; take physical"):
        find_model("piecewise3").fit(sweeps[:1]).predict([8], 16, 2)


def test_automatic_names_the_algorithm_assumed_and_the_margin() -> None:
    fit = find_model("physical").fit([load_sweep("mn5_h100_4n4_allreduce_auto")])
    assert (fit.algorithm, fit.assumed) == ("automatic", "ring or tree")
    choice = fit.choice([2**11, 2**29], 16, 4)
    # Forced runs of the same system: 26 against 63 us at 2 KiB, 12.9 against 11.3 ms at 512 MiB.
    assert choice.algorithm == ("tree", "ring")
    assert choice.runner_up == ("ring", "tree")
    assert all(margin > 0 for margin in choice.margin)
    assert any("which algorithm ran is not known" in text for text in fit.warnings)
    known = find_model("physical").fit([load_sweep("mn5_h100_4n4_allreduce_ring")])
    assert known.choice([8], 16, 4).margin == (math.inf,)


def test_two_nodes_and_missing_protocols_are_said() -> None:
    fit = find_model("physical").fit([load_sweep("h100_2n8_aws_p5_efa_allgather")])
    assert any(text.startswith("two nodes are special") for text in fit.warnings)
    assert any(text.startswith("protocols LL and LL128 are not calibrated") for text in fit.warnings)


def test_dips_are_shown() -> None:
    (sweep,) = made(on_one_node, ((8, 1),))
    dipped = replace(sweep, seconds=tuple(0.5 * t if i >= 12 else t for i, t in enumerate(sweep.seconds)))
    fit = find_model("physical").fit([dipped])
    assert any("2 MiB to 4 MiB" in text for text in fit.warnings)


def test_few_points_and_unknown_algorithms_get_alpha_and_beta() -> None:
    (short,) = made(on_one_node, ((8, 1),), sizes=SIZES[::5])
    assert find_model("physical").fit([short]).model == "alpha_beta"
    other = find_model("physical").fit([load_sweep("mn5_h100_4n4_allreduce_hier_bw_mpi")])
    assert other.model == "alpha_beta"
    assert "is no algorithm that the physical model knows" in other.warnings[0]
    with pytest.raises(InputError, match="alone"):
        other.predict([8], 64, 16)


def test_intervals_grow_with_the_distance() -> None:
    fit = find_model("physical").fit(made(between_nodes, ((16, 4),)))
    widths = [fit.half_width(4 * nodes, nodes) for nodes in (4, 8, 16, 64)]
    assert widths == pytest.approx([0.05, 0.20, 0.30, 0.50])


@pytest.mark.parametrize("algorithm", ["ring", "butterfly", "rabenseifner"])
@pytest.mark.parametrize("ranks", [2, 8, 12, 16])
def test_forms_are_those_of_the_closed_forms(algorithm: str, ranks: int) -> None:
    """Steps and bytes are what the closed forms of this package's own algorithms say."""
    size = 2**10 * 3 * 16
    form = HOST_FORMS[algorithm]("all_reduce", np.array([float(ranks)]), np.array([float(ranks)]))
    steps = closed_form("all_reduce", algorithm, Cluster.flat(ranks, Link(1.0, 1e24)), size, None, "int8")
    carried = closed_form("all_reduce", algorithm, Cluster.flat(ranks, Link(0.0, 1.0)), size, None, "int8")
    assert form.inside[0] + form.between[0] == pytest.approx(steps)
    assert form.weight[0] * size == pytest.approx(carried)


def test_a_ring_of_nodes_has_all_the_steps_of_a_ring() -> None:
    form = GPU_FORMS["ring"]("all_reduce", np.array([32.0]), np.array([4.0]))
    assert (form.between[0], form.inside[0], form.weight[0]) == (6, 56, 2 * 31 / 32)


@pytest.mark.parametrize(
    ("text", "gpu", "name"),
    [
        ("Ring forced, NCCL_MIN_CTAS=24", "H100", "ring"),
        ("auto (NVLSTree at large sizes)", "H100", "automatic"),
        ("", "H100", "automatic"),
        ("not NCCL: the authors' hierarchical bandwidth algorithm over MPI", "H100", None),
        ("recursive_doubling_over", "none: a CPU", "butterfly"),
        ("neighbor_ompi", "none: a CPU", "neighbour"),
        ("default_mpich", "none: a CPU", "automatic"),
        ("string theory", "H100", None),
    ],
)
def test_algorithms_by_what_sources_say(text: str, gpu: str, name: str | None) -> None:
    (sweep,) = made(on_one_node, ((8, 1),), text, gpu=gpu)
    assert algorithm_of(sweep) == name


def test_sweeps_are_grouped_by_what_one_fit_explains() -> None:
    one_node, nodes = made(on_one_node, ((4, 1), (8, 1))), made(between_nodes, ((16, 4), (32, 8)))
    assert [[sweep.name for sweep in group] for group in grouped([*one_node, *nodes])] == [
        ["made_1n4", "made_1n8"],
        ["made_4n4", "made_8n4"],
    ]
    fits: list[Fitted] = fit_all([*one_node, *nodes], find_model("alpha_beta"))
    assert fit_for(fits, made(between_nodes, ((64, 16),))[0]) is fits[1]
    assert fit_for(fits, replace(nodes[0], collective="all_gather")) is None


def test_models_are_found_by_name() -> None:
    assert [model.name for model in MODELS] == ["alpha_beta", "piecewise2", "piecewise3", "physical"]
    with pytest.raises(InputError, match='did you mean "physical"'):
        find_model("phisical")
    lacking = [replace(made(on_one_node, ((8, 1),))[0], world_size=None)]
    with pytest.raises(InputError, match="nothing says how many ranks made_1n8 ran on"):
        find_model("physical").fit(lacking)
