"""How far models of measured times are off where they were not fitted, goals and failures included.

    python benchmarks/prediction.py [FOLDER]

FOLDER holds sets.csv and timings.csv, in the columns of simcollectives/measured/data/README.md; the default is what
the package ships. Two tables:

1. Held-out messages: every second message of each sweep of 16 or more is held out. Medians over sweeps. Below, what
   the best could be: straight lines through the messages that are kept, and three regimes fitted to all messages.
2. Held-out counts and machines: the physical model, fitted to sweeps at some node (or GPU) counts, at the largest one;
   and fitted to one Hopper machine, on the others. Messages of 1 KiB and more, out of place. "itself", where a goal
   is missed, is the error that remains when the formula is fitted to the very sweep that it is to predict.

An error is |predicted / measured - 1|. "inside" is the share of points within the interval that the model states.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from simcollectives.errors import InputError
from simcollectives.measured import MeasuredSweep
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
from simcollectives.measured.load import load_sweeps
from simcollectives.measured.models import MODELS

HELD_OUT_GOALS = {"piecewise3": "3 / 12", "alpha_beta": "about 11 / 40"}


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="with sets.csv and timings.csv; default: what is shipped")
    arguments = parser.parse_args()
    started = time.perf_counter()
    sweeps = read(arguments.folder)
    print(f"{len(sweeps)} sweeps, {sum(len(sweep.seconds) for sweep in sweeps)} points out of place\n")
    print_held_out(sweeps)
    outcomes = run([*count_tests(sweeps), *machine_tests(sweeps)])
    print_predictions(outcomes)
    print_coverage(outcomes)
    print(f"\n{time.perf_counter() - started:.0f} s")


def read(folder: Path | None) -> list[MeasuredSweep]:
    return list(load_sweeps("*" if folder is None else folder / "timings.csv"))


def print_held_out(sweeps: Sequence[MeasuredSweep]) -> None:
    long = [sweep for sweep in sweeps if is_long(sweep)]
    finest = [sweep for sweep in long if len(points_of(sweep, 0, 2).seconds) >= 12]
    print(f"Every second message held out: {len(long)} sweeps of 16 messages or more, {len(finest)} of 23 or more")
    print(f"{'model':12} {'median %':>9} {'largest %':>10} {'inside %':>9} {'23 or more':>14}  goal (median / largest)")
    for model in MODELS:
        outcomes = {sweep.name: held_out(sweep, model.name) for sweep in long}
        median, largest = medians(outcomes.values())
        inside = percent(mean_inside(outcomes.values()))
        fine = " / ".join(medians(outcomes[sweep.name] for sweep in finest)) if finest else "-"
        goal = HELD_OUT_GOALS.get(model.name, "")
        print(f"{model.name:12} {median:>9} {largest:>10} {inside:>9} {fine:>14}  {goal}")
    if not long:
        return
    drawn = [percent(float(np.median(one))) for one in zip(*map(lines_between, long), strict=True)]
    print(f"{'straight lines between':22} {drawn[0]} / {drawn[1]}")
    best = medians(held_out_in_hindsight(sweep, "piecewise3") for sweep in long)
    print(f"{'piecewise3, all fitted':22} {' / '.join(best)}\n")


def medians(outcomes: Iterable[Outcome]) -> tuple[str, str]:
    found = list(outcomes)
    return percent(float(np.median([one.median for one in found]))), percent(
        float(np.median([one.largest for one in found]))
    )


def mean_inside(outcomes: Iterable[Outcome]) -> float:
    """Share of all points that are inside."""
    found = [(one.covered, len(one.relative)) for one in outcomes]
    return sum(covered * points for covered, points in found) / max(sum(points for _, points in found), 1)


def run(tests: Iterable[Test]) -> list[Outcome]:
    outcomes = []
    for test in tests:
        try:
            outcomes.append(predict(test))
        except InputError as error:
            print(f"not predicted: {test.title}: {error}")
    return outcomes


def print_predictions(outcomes: Sequence[Outcome]) -> None:
    print("Physical model at counts and on machines that it was not fitted to (errors in %)")
    for kind in dict.fromkeys(one.test.kind for one in outcomes):
        mine = [one for one in outcomes if one.test.kind == kind]
        width = max(len(one.test.title) for one in mine)
        print(f"\n{kind}\n{'':{width}} {'median':>7} {'p90':>6} {'largest':>8} {'inside':>7}  {'goal':>7}")
        for one in mine:
            goal = one.test.goal
            asked = "-" if goal is None else f"{100 * goal.median:.0f} / {100 * goal.p90:.0f}"
            verdict = {None: "", True: "reached", False: "MISSED"}[one.reached]
            if one.reached is False:
                best = in_hindsight(one.test)
                verdict = f"MISSED; itself {percent(best.median)} / {percent(best.p90)}"
            numbers = f"{percent(one.median):>7} {percent(one.p90):>6} {percent(one.largest):>8}"
            print(f"{one.test.title:{width}} {numbers} {percent(one.covered):>7}  {asked:>7}  {verdict}")
        with_goal = [one for one in mine if one.reached is not None]
        if with_goal:
            median, p90 = (float(np.mean([getattr(one, name) for one in with_goal])) for name in ("median", "p90"))
            reached = sum(bool(one.reached) for one in with_goal)
            print(
                f"of those with a goal: mean {percent(median)} / {percent(p90)}, {reached} of {len(with_goal)} reached"
            )


def print_coverage(outcomes: Sequence[Outcome]) -> None:
    known = [one for one in outcomes if one.test.one_algorithm and one.test.kind != "another machine"]
    regime = [one for one in known if one.test.goal is not None]
    if known:
        print(f"\nPoints inside the interval where one algorithm is known: {percent(mean_inside(known))} %", end="")
        print(f", {percent(mean_inside(regime))} % where there is a goal; goal: 85 or more")


if __name__ == "__main__":
    main()
