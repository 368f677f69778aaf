"""``fit`` on logs: what they do not say is given, points out of line are left out and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simcollectives.cli import app
from simcollectives.errors import InputError
from simcollectives.measured import MeasuredSweep, load_sweep
from simcollectives.measured.calibrate import cluster_yaml
from simcollectives.measured.load import load_sweeps
from simcollectives.measured.suspects import without_suspects
from simcollectives.report.fit_report import Asked, errors_text, make_report
from simcollectives.scenario import load_scenario, run_scenario
from tests import made_up_logs as made
from tests.made_up_logs import ERAS, SIZES

NEW = ERAS["2023"]


def put(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def sweep(seconds: dict[int, float]) -> MeasuredSweep:
    return MeasuredSweep(
        *("mine", "all_reduce", "", 8, 1, "", "", "", "", "", ""), tuple(seconds), tuple(seconds.values()), "out"
    )


@pytest.mark.parametrize(("size", "told"), [(SIZES[4], "slower than both neighbours"), (SIZES[0], "may hold start-up")])
def test_points_out_of_line_are_left_out_and_named(size: int, told: str) -> None:
    clean = {one: 1e-6 * made.time_us(one) for one in SIZES}
    kept = without_suspects(sweep({**clean, size: 1e-3}))
    assert dict(zip(kept.message_bytes, kept.seconds, strict=True)) == {s: t for s, t in clean.items() if s != size}
    assert kept.dropped[0].startswith("left out of the fit:")
    assert told in kept.dropped[0]
    assert without_suspects(sweep(clean)) == sweep(clean)


def test_noise_all_over_is_kept_and_said() -> None:
    noisy = {one: 1e-4 * (5 if number % 3 == 1 else 1) for number, one in enumerate(SIZES)}
    kept = without_suspects(sweep(noisy))
    assert kept.seconds == tuple(noisy.values())
    assert "too many to leave out" in kept.noted[0]


def test_a_slow_point_changes_nothing_and_is_in_the_cluster_file(tmp_path: Path) -> None:
    lines = made.log(NEW, ranks=8)
    row = next(number for number, line in enumerate(lines) if line.startswith(f"{SIZES[3]:12d}"))
    cells = lines[row].split()
    cells[5:8] = ["500.0", "0.13", "0.23"]  # 64 KiB in 500 us
    lines[row] = "  ".join(cells)
    slow = put(tmp_path / "slow.log", lines)
    report, clean = (make_report([str(path)], "physical", (), (), None, Asked()) for path in
                     (slow, put(tmp_path / "clean.log", made.log(NEW, ranks=8))))  # fmt: skip
    for one, other in zip(report.fits[0].parameters, clean.fits[0].parameters, strict=True):
        assert one.value == pytest.approx(other.value, rel=0.05)
    assert report.fits[0].errors.points == clean.fits[0].errors.points - 1
    output = tmp_path / "cluster.yaml"
    done = CliRunner().invoke(app, ["fit", str(slow), "-o", str(output)])
    assert "left out of the fit: slower than both neighbours" in done.stderr
    assert "not_taken: 'slow: left out of the fit" in output.read_text(encoding="utf-8")


def test_what_a_log_does_not_say_is_given(tmp_path: Path) -> None:
    gather = made.log(NEW, "all_gather", 16, listed=False, head=False)
    path = put(tmp_path / "gather.log", gather)
    with pytest.raises(InputError, match="--collective all_reduce"):
        make_report([str(path)], "physical", (), (), None, Asked())
    report = make_report([str(path)], "physical", (), (), None, Asked("out", "all_gather", 16, 2))
    assert (report.fits[0].collective, report.fits[0].columns.counts) == ("all_gather", ((16, 2),))
    (one,) = load_sweeps(path, "out", "all_gather", 16)
    assert one.nodes is None
    with pytest.raises(InputError, match="cannot share evenly"):
        load_sweeps(path, "out", "all_gather", 16, 3)
    with pytest.raises(InputError, match="--ranks 8"):
        make_report([str(put(tmp_path / "osu.txt", made.osu()))], "physical", (), (), None, Asked())


def test_ranks_on_unknown_nodes_are_said(tmp_path: Path) -> None:
    path = put(tmp_path / "run.log", made.log(NEW, ranks=16, listed=False))
    (told,) = make_report([str(path)], "physical", (), (), None, Asked()).told
    assert "16 ranks" in told
    assert "--log-nodes" in told
    assert make_report([str(path)], "physical", (), (), None, Asked(nodes=2)).told == ()
    done = CliRunner().invoke(
        app, ["fit", str(path), "--log-nodes", "2", "--collective", "all_reduce", "--ranks", "16"]
    )
    assert done.exit_code == 0
    assert "16 ranks on 2 nodes" in done.stdout


def test_a_csv_without_its_sets_takes_what_is_given(tmp_path: Path) -> None:
    times = "".join(f"a,{size},{made.time_us(size):.3f},out\n" for size in SIZES)
    path = tmp_path / "mine.csv"
    path.write_text(f"set,size_bytes,time_us,place\n{times}", encoding="utf-8")
    (one,) = load_sweeps(path, "out", "all_reduce", 8, 1)
    assert (one.collective, one.world_size, one.nodes) == ("all_reduce", 8, 1)
    done = CliRunner().invoke(app, ["read", str(path), "--collective", "all_reduce", "--ranks", "8"])
    assert "collective: as asked for; ranks: as asked for" in done.stdout
    assert load_sweep(path).world_size is None


def test_mpi_between_cpus_is_fitted_as_such(tmp_path: Path) -> None:
    path = put(tmp_path / "osu.txt", made.osu())
    report = make_report([str(path)], "physical", (), (), None, Asked(ranks=16, nodes=16))
    assert report.fits[0].assumed == "butterfly or rabenseifner or ring"


def test_a_scenario_says_which_links_of_a_cluster_file_were_not_fitted(tmp_path: Path) -> None:
    path = put(tmp_path / "run.log", made.log(NEW, ranks=8))
    CliRunner().invoke(app, ["fit", str(path), "--machine", "dgx-h100", "-o", str(tmp_path / "cluster.yaml")])
    scenario = put(
        tmp_path / "four.yaml",
        [
            "title: four nodes",
            "cluster: {file: cluster.yaml, nodes: 4}",
            "collective: {name: all_reduce, algorithms: [ring], message: 1 MiB}",
        ],
    )
    notes = " ".join(run_scenario(load_scenario(scenario)).notes)
    assert "intra fitted to run" in notes
    assert "inter not fitted" in notes


def test_other_node_counts_are_predicted_by_the_groups_that_can(tmp_path: Path) -> None:
    logs = [str(put(tmp_path / f"n{nodes}.log", made.log(NEW, ranks=8 * nodes))) for nodes in (1, 2, 4)]
    report = make_report(logs, "physical", (), (8,), None, Asked())
    assert [(one.nodes, one.world_size) for one in report.predictions] == [(8, 64)]
    assert "n1: 8 nodes cannot be predicted" in report.told[0]
    with pytest.raises(InputError, match="n1: 8 nodes cannot be predicted"):
        make_report(logs[:1], "physical", (), (8,), None, Asked())


def test_times_in_place_are_noted_and_a_collective_is_chosen(tmp_path: Path) -> None:
    names = ("all_reduce", "broadcast")
    sets = "".join(f"{name},8,{name}\n" for name in names)
    (tmp_path / "sets.csv").write_text(f"name,n_gpus,collective\n{sets}", encoding="utf-8")
    times = "".join(f"{name},{size},{made.time_us(size):.3f},in\n" for name in names for size in SIZES)
    path = tmp_path / "mine.csv"
    path.write_text(f"set,size_bytes,time_us,place\n{times}", encoding="utf-8")
    report = make_report([str(path)], "physical", (), (), None, Asked(collective="all_reduce"))
    assert [fit.collective for fit in report.fits] == ["all_reduce"]
    assert report.cluster is not None
    written = cluster_yaml(report.cluster)
    assert "noted: 'all_reduce: measured only in place" in written
    assert "not_taken" not in written
    with pytest.raises(InputError, match="there are those of all_reduce, broadcast"):
        make_report([str(path)], "physical", (), (), None, Asked(collective="all_gather"))


def test_only_cluster_files_of_a_fit_are_written_over(tmp_path: Path) -> None:
    log = str(put(tmp_path / "run.log", made.log(NEW, ranks=8)))
    other = put(tmp_path / "keep.yaml", ["title: mine"])
    done = CliRunner().invoke(app, ["fit", log, "-o", str(other)])
    assert isinstance(done.exception, InputError)
    assert "give another name" in str(done.exception)
    assert other.read_text(encoding="utf-8") == "title: mine\n"
    own = str(tmp_path / "own.yaml")
    assert [CliRunner().invoke(app, ["fit", log, "-o", own]).exit_code for _ in range(2)] == [0, 0]


@pytest.mark.parametrize(("power", "warned"), [(1.0, False), (0.4, True)])
def test_links_far_off_their_times_are_warned_of(tmp_path: Path, power: float, warned: bool) -> None:
    # An alpha and a bandwidth give times that grow with the message itself, and none those that grow with its root.
    times = {size: 1e-5 + 1e-5 * (size / 64e3) ** power for size in (2**bits for bits in range(6, 31))}
    path = put(
        tmp_path / "mine.csv",
        ["set,size_bytes,time_us,place", *(f"a,{size},{1e6 * one:.4f},out" for size, one in times.items())],
    )
    told = " ".join(make_report([str(path)], "piecewise3", (), (), None, Asked("out", "all_reduce", 8, 1)).told)
    assert ("link intra of the cluster is far off" in told) == warned
    assert ("--model piecewise3 are nearer" in told) == warned


def test_cpus_whose_steps_take_milliseconds_are_fitted_within_the_range(tmp_path: Path) -> None:
    # Eight ranks and a binomial tree: three steps of 2 ms, and 1 ns a byte.
    times = "".join(f"slow,{2**power},{6000 + 1e-3 * 2**power:.3f},out\n" for power in range(10, 27))
    (tmp_path / "sets.csv").write_text("name,gpu,n_gpus,collective\nslow,none: CPU,8,broadcast\n", encoding="utf-8")
    path = tmp_path / "mine.csv"
    path.write_text(f"set,size_bytes,time_us,place\n{times}", encoding="utf-8")
    (fit,) = make_report([str(path)], "physical", (), (), None, Asked()).fits
    parameters = {one.name: one for one in fit.parameters}
    assert parameters["t0"].value + 3 * parameters["alpha"].value == pytest.approx(6e-3, rel=0.05)
    assert not [one.name for one in fit.parameters if "upper end" in (one.remark or "")]


def test_messages_too_small_for_the_physical_model_are_counted(tmp_path: Path) -> None:
    sizes = [2**power for power in range(8, 21)]
    path = str(put(tmp_path / "run.log", made.log(NEW, ranks=8, sizes=sizes)))
    physical, other = (
        make_report([path], model, (), (), None, Asked()).fits[0] for model in ("physical", "alpha_beta")
    )
    assert errors_text(physical).endswith("; 11 points, 2 below 1 KiB left out")
    assert errors_text(other).endswith("; 13 points")


def test_what_a_sweep_says_itself_is_not_overruled_silently(call: Callable[..., Any]) -> None:
    done = call("fit", "mn5_h100_4n4_allreduce_ring", "--ranks", "8", "--log-nodes", "4")
    assert [line.partition(": ")[2].partition(": ")[2] for line in done.stderr.splitlines()] == [
        "--ranks 8 is not applied: it says 16",
    ]


def test_all_problems_at_once(call: Callable[..., Any]) -> None:
    done = call("fit", "no.log", "--model", "physics", "--machine", "dgx", "--predict", "no2.log")
    assert done.returncode == 2
    for problem in ('"physics" is no model', '"dgx" is not a known machine', "no.log", "no2.log"):
        assert problem in done.stderr
    done = call("fit", "mn5_h100_4n4_allreduce_ring", "--ranks", "-3", "--collective", "sum", "--log-nodes", "0")
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == ["--collective", "--ranks", "--log-nodes"]


def test_what_is_measured_is_not_written_over(call: Callable[..., Any], tmp_path: Path) -> None:
    path = put(tmp_path / "run.log", made.log(NEW, ranks=8))
    before = path.read_bytes()
    done = call("fit", "run.log", "-o", "run.log")
    assert (done.returncode, path.read_bytes()) == (2, before)


def test_one_rank_sends_nothing(call: Callable[..., Any], tmp_path: Path) -> None:
    put(tmp_path / "osu.txt", made.osu())
    done = call("fit", "osu.txt", "--ranks", "1")
    assert (done.returncode, done.stderr) == (
        2,
        "osu: osu ran on one rank, which sends nothing; fit two ranks or more\n",
    )
