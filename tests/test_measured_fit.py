"""Fits: known links are found again, the optimum is one, and errors are what hand computation gives."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.engines.closed_form import closed_form
from simcollectives.errors import ClusterError, InputError, NoClosedFormError
from simcollectives.measured import Errors, Fit, MeasuredSweep, errors, fit_link, load_sweep
from simcollectives.measured.fit import ALPHA_BOUNDS, BANDWIDTH_BOUNDS

SIZES = tuple(2**power for power in range(8, 31, 2))
WRONG = Link(alpha=1e-4, bandwidth=1e9)


def sweep_of(
    seconds: list[float], sizes: tuple[int, ...] = SIZES, collective: str = "all_reduce", world_size: int = 8
) -> MeasuredSweep:
    return MeasuredSweep(
        "made", collective, "", world_size, None, "", "", "", "", "", "", sizes, tuple(seconds), "out"
    )  # fmt: skip


def made(
    cluster: Cluster,
    collective: str = "all_reduce",
    algorithm: str = "ring",
    sizes: tuple[int, ...] = SIZES,
    noise: float = 0.0,
) -> MeasuredSweep:
    """Times that the closed form gives on a cluster, each times ``exp(noise * a normal number)``, always the same."""
    random = np.random.default_rng(20)
    exact = [closed_form(collective, algorithm, cluster, size, None, "int8") for size in sizes]
    seconds = [time * math.exp(noise * random.standard_normal()) for time in exact]
    return sweep_of(seconds, sizes, collective, cluster.world_size)


def sum_of_squares(fit: Fit, sweep: MeasuredSweep, alpha: float, bandwidth: float, algorithm: str = "ring") -> float:
    cluster = fit.cluster.with_link(fit.level, Link(alpha, bandwidth))
    predicted = [closed_form("all_reduce", algorithm, cluster, size, None, "int8") for size in sweep.message_bytes]
    return sum((p / m - 1) ** 2 for p, m in zip(predicted, sweep.seconds, strict=True))


def test_errors_by_hand() -> None:
    # |1/2 - 1|, |3/2 - 1|, |4/4 - 1|, |9/8 - 1| = 1/2, 1/2, 0, 1/8: the median is (1/8 + 1/2) / 2,
    # with signs (0 + 1/8) / 2
    assert errors([1, 3, 4, 9], [2, 2, 4, 8], [8, 16, 32, 64]) == Errors(0.3125, 0.5, 0.5, 8, 0.0625)
    assert errors([5.0], [4.0], [100]) == Errors(0.25, 0.25, 0.25, 100, 0.25)


@pytest.mark.parametrize(
    ("predicted", "measured", "sizes", "part"),
    [
        ([], [], [], "0 predicted, 0 measured, 0 sizes"),
        ([1.0], [1.0, 2.0], [8, 16], "1 predicted, 2 measured, 2 sizes"),
        ([1.0], [0.0], [8], "a measured time of 0.0 s"),
        ([1.0], [math.nan], [8], "a measured time of nan s"),
    ],
)
def test_errors_refuses_what_has_none(
    predicted: list[float], measured: list[float], sizes: list[int], part: str
) -> None:
    with pytest.raises(InputError, match=part):
        errors(predicted, measured, sizes)


@pytest.mark.parametrize("algorithm", ["ring", "tree", "butterfly", "rabenseifner", "direct", "naive", "circulant"])
@pytest.mark.parametrize("link", [Link(5e-6, 450e9), Link(3e-8, 2e7), Link(2e-3, 5e13)])
def test_a_known_link_is_found_again(algorithm: str, link: Link) -> None:
    sweep = made(Cluster.flat(8, link), algorithm=algorithm)
    fit = fit_link("all_reduce", algorithm, None, Cluster.flat(8, WRONG), "link", sweep)
    predicted_by_both = 1e-6  # where all sizes but one are latency, rounding of that one limits the bandwidth
    assert fit.alpha == pytest.approx(link.alpha, rel=predicted_by_both)
    assert fit.bandwidth == pytest.approx(link.bandwidth, rel=predicted_by_both)
    assert fit.errors.largest < 1e-9
    assert fit.cluster.level("link").link == Link(fit.alpha, fit.bandwidth)


@settings(max_examples=25, deadline=None)
@given(
    world_size=st.integers(2, 20),
    alpha=st.floats(1e-7, 1e-4),
    bandwidth=st.floats(1e9, 1e12),
    collective=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
)
def test_any_usual_link_is_found_again(world_size: int, alpha: float, bandwidth: float, collective: str) -> None:
    sweep = made(Cluster.flat(world_size, Link(alpha, bandwidth)), collective)
    fit = fit_link(collective, "ring", None, Cluster.flat(world_size, WRONG), "link", sweep)
    assert fit.alpha == pytest.approx(alpha, rel=1e-7)
    assert fit.bandwidth == pytest.approx(bandwidth, rel=1e-7)


@pytest.mark.parametrize(("level", "slow"), [("inter", "inter"), ("intra", "intra")])
def test_the_slower_level_of_two_is_found_again(level: str, slow: str) -> None:
    slow_link = Link(14e-6, 40e9)
    other = Link(3e-6, 450e9)
    links = {"intra": other, "inter": other} | {slow: slow_link}
    cluster = Cluster.two_level(4, 4, links["intra"], links["inter"])
    fit = fit_link("all_reduce", "ring", None, cluster.with_link(level, WRONG), level, made(cluster))
    assert fit.alpha == pytest.approx(slow_link.alpha, rel=1e-7)
    assert fit.bandwidth == pytest.approx(slow_link.bandwidth, rel=1e-7)
    assert fit.cluster == cluster.with_link(level, Link(fit.alpha, fit.bandwidth))
    assert fit.warnings == ()


def test_noise_moves_the_link_little() -> None:
    link = Link(5e-6, 450e9)
    fit = fit_link("all_reduce", "ring", None, Cluster.flat(8, WRONG), "link", made(Cluster.flat(8, link), noise=0.05))
    # About six points determine each parameter, so its standard error is about 0.05 / sqrt(6) = 2 %.
    assert fit.alpha == pytest.approx(link.alpha, rel=0.06)
    assert fit.bandwidth == pytest.approx(link.bandwidth, rel=0.06)
    assert 0.001 < fit.errors.median < 0.1


@pytest.mark.parametrize("algorithm", ["ring", "tree", "circulant"])
def test_no_neighbour_is_better(algorithm: str) -> None:
    sweep = made(Cluster.flat(8, Link(5e-6, 450e9)), algorithm=algorithm, noise=0.3)
    fit = fit_link("all_reduce", algorithm, None, Cluster.flat(8, WRONG), "link", sweep)
    best = sum_of_squares(fit, sweep, fit.alpha, fit.bandwidth, algorithm)
    for alpha in (0.99, 1, 1.01):
        for bandwidth in (0.99, 1, 1.01):
            near = sum_of_squares(fit, sweep, fit.alpha * alpha, fit.bandwidth * bandwidth, algorithm)
            assert near >= best * (1 - 1e-12)


def test_the_optimum_agrees_with_linear_algebra() -> None:
    """A ring's time is linear in alpha and 1 / bandwidth, so the weighted normal equations give the same link."""
    sweep = load_sweep("h100_1n8_aws_p5_allreduce_auto")
    measured = np.array(sweep.seconds)
    design = np.stack([np.full(len(measured), 14.0), 14 * np.array(sweep.message_bytes) / 8], axis=1)
    alpha, per_byte = np.linalg.lstsq(design / measured[:, None], np.ones(len(measured)))[0]
    fit = fit_link("all_reduce", "ring", None, Cluster.flat(8, WRONG), "link", sweep)
    assert fit.alpha == pytest.approx(alpha, rel=1e-6)
    assert fit.bandwidth == pytest.approx(1 / per_byte, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "collective", "cluster"),
    [
        ("h100_1n8_aws_p5_allreduce_auto", "all_reduce", Cluster.flat(8, Link(3.4e-6, 450e9))),
        ("aic_h100_sxm_1n8_all_gather", "all_gather", Cluster.flat(8, Link(3.4e-6, 450e9))),
        ("mn5_h100_4n4_allreduce_ring", "all_reduce", Cluster.two_level(4, 4, Link(6e-7, 450e9), Link(2.7e-6, 25e9))),
    ],
)
def test_shipped_sweeps_are_fitted_better_than_predicted(name: str, collective: str, cluster: Cluster) -> None:
    sweep = load_sweep(name)
    level = cluster.levels[-1].name
    fit = fit_link(collective, "ring", None, cluster, level, sweep)
    predicted = [closed_form(collective, "ring", fit.cluster, size, None, "int8") for size in sweep.message_bytes]
    assert list(fit.predicted) == pytest.approx(predicted, rel=1e-12)
    assert fit.errors == errors(fit.predicted, sweep.seconds, sweep.message_bytes)
    assert fit.given_errors == errors(fit.given_predicted, sweep.seconds, sweep.message_bytes)
    assert fit.errors.median < fit.given_errors.median
    assert fit.errors.largest_at_bytes in sweep.message_bytes
    assert fit.warnings == ()


def test_the_given_link_keeps_its_overhead() -> None:
    truth = Cluster.flat(8, Link(5e-6, 450e9, overhead=2e-6))
    fit = fit_link("all_reduce", "ring", None, Cluster.flat(8, replace(WRONG, overhead=2e-6)), "link", made(truth))
    assert fit.cluster.level("link").link.overhead == 2e-6
    assert fit.alpha == pytest.approx(5e-6, rel=1e-7)


def test_a_parameter_at_its_bound_is_told() -> None:
    """Times proportional to the size have no latency at all; times that do not grow have no bandwidth."""
    flat = Cluster.flat(8, WRONG)
    fit = fit_link("all_reduce", "ring", None, flat, "link", sweep_of([size * 1e-9 for size in SIZES]))
    assert fit.alpha == pytest.approx(ALPHA_BOUNDS[0], rel=1e-2)
    assert fit.hits_bound is not None
    assert "alpha of link stands at the end of its range, 1 ns to 10 ms" in fit.hits_bound
    assert "bandwidth" not in fit.hits_bound
    fit = fit_link("all_reduce", "ring", None, flat, "link", sweep_of([1e-3] * len(SIZES)))
    assert fit.bandwidth == pytest.approx(BANDWIDTH_BOUNDS[1], rel=1e-2)
    assert fit.hits_bound is not None
    assert "bandwidth of link stands at the end of its range, 1 MB/s to 100 TB/s" in fit.hits_bound
    assert fit.hits_bound in fit.warnings


def test_a_parameter_that_changes_nothing_is_told() -> None:
    slow = Link(14e-6, 40e9)
    cluster = Cluster.two_level(4, 4, Link(3e-6, 450e9), slow)
    fit = fit_link("all_reduce", "ring", None, cluster, "intra", made(cluster))
    assert (fit.alpha, fit.bandwidth) == pytest.approx((3e-6, 450e9))
    assert fit.undetermined is not None
    assert "alpha of intra may as well be any value below 3 us" in fit.undetermined
    assert "bandwidth of intra may as well be any value above 450 GB/s" in fit.undetermined
    small = made(Cluster.flat(8, Link(5e-6, 450e9)), sizes=(8, 16, 32, 64))
    fit = fit_link("all_reduce", "ring", None, Cluster.flat(8, Link(1e-6, 450e9)), "link", small)
    assert fit.undetermined is not None
    assert "alpha" not in fit.undetermined


def test_sizes_between_elements_are_cut_by_bytes() -> None:
    sizes = (6, 64, 2**20, 2**26)
    sweep = made(Cluster.flat(8, Link(5e-6, 450e9)), sizes=sizes)
    fit = fit_link("all_reduce", "ring", None, Cluster.flat(8, WRONG), "link", sweep, dtype="float32")
    assert fit.cut_by_bytes is not None
    assert fit.cut_by_bytes.startswith("1 of 4 sizes (6 B)")
    assert fit_link("all_reduce", "ring", None, Cluster.flat(8, WRONG), "link", sweep).cut_by_bytes is None


def test_what_does_not_fit_is_told_at_once() -> None:
    sweep = replace(load_sweep("aic_h100_sxm_1n8_all_gather"), message_bytes=(8, 16), seconds=(1e-6, 2e-6))
    with pytest.raises(InputError) as raised:
        fit_link("all_reduce", "ring", None, Cluster.flat(16, WRONG), "link", sweep, dtype="float61")
    text = str(raised.value)
    assert [problem.place for problem in raised.value.problems] == ["collective", "cluster", "measured", "dtype"]
    assert "is of all_gather, the prediction of all_reduce" in text
    assert "ran on 8 ranks, the cluster has 16; give the cluster 8 devices" in text
    assert "has 2 points; a fit needs at least 3" in text
    assert '"float61" is no dtype' in text


def test_a_file_that_names_no_world_size_fits_any() -> None:
    sweep = replace(made(Cluster.flat(8, Link(5e-6, 450e9))), world_size=None, collective=None)
    assert fit_link("all_reduce", "ring", None, Cluster.flat(4, WRONG), "link", sweep).errors.largest < 1


def test_an_unknown_level_is_told() -> None:
    with pytest.raises(ClusterError, match="inter"):
        fit_link("all_reduce", "ring", None, Cluster.flat(8, WRONG), "inter", made(Cluster.flat(8, WRONG)))


def test_no_closed_form_passes_on_with_size_and_remedy() -> None:
    cluster = Cluster.two_level(3, 2, Link(3e-6, 450e9), Link(1e-5, 50e9))
    sweep = sweep_of([1e-5, 2e-5, 3e-5], (6, 12, 25), world_size=6)
    with pytest.raises(NoClosedFormError, match="a fit needs one at every size, also 25 B: take another algorithm"):
        fit_link("all_reduce", "ring", None, cluster, "inter", sweep)
