"""Clusters from measured times: links are found again, the file is a cluster of a scenario, machines are calibrated."""

import json
import shlex
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

import simcollectives as sc
from simcollectives.cli import app
from simcollectives.cluster import Cluster, Link, calibrated_names, list_machines, load_calibrated, load_machine
from simcollectives.engines.closed_form import closed_form
from simcollectives.errors import ClusterError, InputError
from simcollectives.measured import MeasuredSweep, load_sweep
from simcollectives.measured.calibrate import calibrate, cluster_yaml, error_text
from simcollectives.measured.load import load_sweeps
from simcollectives.report.tables import machine_tables, result_tables, show
from simcollectives.scenario import ScenarioResult
from simcollectives.units import format_bandwidth

SIZES = tuple(2**power for power in range(12, 33, 4))
INTRA, INTER = Link(1.5e-6, 300e9), Link(6e-6, 40e9)


def made(nodes: int, gpus: int, algorithm: str, collective: str = "all_reduce") -> MeasuredSweep:
    cluster = Cluster.two_level(nodes, gpus, INTRA, INTER)
    seconds = tuple(closed_form(collective, algorithm, cluster, size, None, "int8") for size in SIZES)
    name = f"made_{collective}_{nodes}n{gpus}"
    return MeasuredSweep(
        name, collective, "ring", nodes * gpus, nodes, "GPU", "", "", "2.29", "made", "", SIZES, seconds, "out"
    )


def test_both_links_are_found_again() -> None:
    sweeps = [
        made(1, 8, "ring"),
        made(1, 4, "ring", "all_gather"),
        made(4, 8, "rotated_rings"),
        made(2, 8, "rotated_rings"),
    ]
    found = calibrate(sweeps)
    assert (found.nodes, found.gpus_per_node) == (4, 8)
    for link, known in ((found.intra, INTRA), (found.inter, INTER)):
        assert link is not None
        assert (link.alpha, link.bandwidth) == (
            pytest.approx(known.alpha, rel=1e-3),
            pytest.approx(known.bandwidth, rel=1e-3),
        )
    assert all(fit.errors.largest < 1e-3 for fit in found.fits)


def test_what_no_sweep_shows_is_a_machines_or_tied() -> None:
    sweep = made(4, 8, "rotated_rings")
    tied = calibrate([sweep])
    assert tied.intra is not None
    assert tied.inter is not None
    assert tied.intra.alpha == pytest.approx(tied.inter.alpha * 3.4 / 14)
    assert any("no sweep shows the links inside a node" in text for text in tied.remarks)
    machine = load_machine("dgx-h100")
    assert calibrate([sweep], machine).intra == machine.intra
    alone = calibrate([made(1, 8, "ring")], machine)
    assert alone.inter == machine.inter
    assert any("dgx-h100's data sheet" in text for text in alone.remarks)
    assert calibrate([made(1, 8, "ring")]).inter is None


def test_sweeps_that_no_cluster_comes_of() -> None:
    with pytest.raises(InputError, match="nodes of 4, 8 GPUs; fit apart"):
        calibrate([made(2, 4, "rotated_rings"), made(2, 8, "rotated_rings")])
    with pytest.raises(InputError, match="nothing says of which collective"):
        calibrate([replace(made(1, 8, "ring"), world_size=None)])
    with pytest.raises(InputError, match="no all_to_all has a closed form"):
        calibrate([load_sweep("h100_2n8_aws_p5_efa_alltoall")])


SCENARIO = """\
title: A fitted cluster
cluster: {{file: fitted.yaml{beside}}}
collective: {{name: all_reduce, algorithms: [ring, rotated_rings], dtype: int8}}
sweep: {{message: [1 MiB, 64 MiB]}}
engine: closed_form
"""


def write(folder: Path, text: str, beside: str = "") -> Path:
    (folder / "fitted.yaml").write_text(text, encoding="utf-8")
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.format(beside=beside), encoding="utf-8")
    return path


def test_a_cluster_file_is_a_cluster_of_a_scenario(tmp_path: Path) -> None:
    sweeps = [made(1, 8, "ring"), made(4, 8, "rotated_rings")]
    text = cluster_yaml(calibrate(sweeps))
    result = sc.run(write(tmp_path, text, ", nodes: 2"))
    assert result.rows[0]["world_size"] == 16
    exact = closed_form("all_reduce", "rotated_rings", Cluster.two_level(2, 8, INTRA, INTER), 2**20, None, "int8")
    assert result.rows[1]["seconds"] == pytest.approx(exact, rel=1e-2)
    assert result.notes[0].startswith(
        "fitted.yaml: intra fitted to made_all_reduce_1n8 (all_reduce by ring); error: median"
    )
    assert sc.run(write(tmp_path, text)).rows[0]["world_size"] == 32


@pytest.mark.parametrize(
    ("text", "beside", "part"),
    [
        ("cluster: {devices: 8}\n", "", "fitted.yaml: $.cluster"),
        ("fitted: {}\n", "", "the file has no section cluster:"),
        ("cluster: {file: other.yaml}\n", "", "file: belongs into the scenario"),
        ("clusters: {}\n", "", "a cluster file has the sections cluster and fitted"),
        ("cluster: [\n", "", "fitted.yaml: "),
        ("set,size_bytes,time_us,place\na,8,1.0,out\n", "", "fit them first: simcollectives fit fitted.yaml"),
        ("cluster: {nodes: 1, gpus_per_node: 2, intra: {alpha: 1 us, bandwidth: 1 GB/s}}\n", ", nodes: 2", "inter"),
        ("cluster: {nodes: 1, gpus_per_node: 2, intra: {alpha: 1 us, bandwidth: 1 GB/s}}\n", ", nodez: 2", "nodez"),
    ],
)
def test_bad_cluster_files(tmp_path: Path, text: str, beside: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        sc.run(write(tmp_path, text, beside))
    assert part in str(caught.value)


def test_a_cluster_file_that_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    (tmp_path / "fitted.yaml").unlink()
    with pytest.raises(InputError, match=r"fitted\.yaml: there is no such file"):
        sc.run(path)


@pytest.mark.parametrize("name", calibrated_names())
def test_calibrated_links_are_what_fitting_their_sets_gives(name: str) -> None:
    stated = load_calibrated(name)
    sweeps = [load_sweep(one) for link in stated for one in link.sets]
    found = calibrate(sweeps, load_machine(name))
    assert [fit.level for fit in found.fits] == [link.level for link in stated]
    for fit, link in zip(found.fits, stated, strict=True):
        assert fit.link.alpha == pytest.approx(link.link.alpha, rel=0.01)
        assert fit.link.bandwidth == pytest.approx(link.link.bandwidth, rel=0.01)
        assert error_text(fit) == link.error
        assert {sweep.source for sweep in fit.sweeps} == {link.source}
        assert link.date
        assert link.nccl_version


CALIBRATED = """\
title: Measured links
cluster: {{machine: {machine}, nodes: {nodes}{more}}}
collective: {{name: all_reduce, algorithms: [ring, rotated_rings], message: 1 GiB}}
engine: closed_form
"""


def run_machine(folder: Path, machine: str, more: str = ", calibrated: true", nodes: int = 4) -> ScenarioResult:
    path = folder / "machine.yaml"
    path.write_text(CALIBRATED.format(machine=machine, more=more, nodes=nodes), encoding="utf-8")
    return sc.run(path)


@pytest.mark.parametrize(
    ("more", "warned"), [("", True), (", collectives: {all_reduce: rotated_rings}", False)], ids=["default", "named"]
)
def test_steps_priced_otherwise_than_links_were_fitted_are_warned_of(tmp_path: Path, more: str, warned: bool) -> None:
    path = tmp_path / "step.yaml"
    path.write_text(
        "title: A step on calibrated links\ncluster: {machine: dgx-h100, nodes: 2, calibrated: true}\n"
        f"training: {{model: gpt2, strategy: ddp, sequence: 64, micro_batch: 1, mfu: 40%{more}}}\n",
        encoding="utf-8",
    )
    told = [
        text for text in sc.run(path).warnings if "the inter link was fitted as all_reduce by rotated_rings" in text
    ]
    assert bool(told) == warned
    assert all("write collectives: {all_reduce: rotated_rings}" in text for text in told)


def test_a_scenario_on_calibrated_links(tmp_path: Path) -> None:
    result = run_machine(tmp_path, "h100-dgx")
    intra, inter = load_calibrated("dgx-h100")
    cluster = Cluster.two_level(4, 8, intra.link, inter.link)
    for row in result.rows:
        assert row["seconds"] == pytest.approx(closed_form("all_reduce", row["algorithm"], cluster, 2**30), rel=1e-9)
    note = result.notes[0]
    for part in ("dgx-h100, calibrated", intra.error, inter.error, intra.nccl_version, inter.source, inter.date):
        assert part in note
    shown = "\n".join(str(block) for block in result_tables(result, 120))
    assert intra.error in shown
    # On four such nodes NCCL took 6.46 ms (NVIDIA/nccl-tests issue 309, comment of 2025-06).
    measured = load_sweep("h100_4n8_ib400x8_allreduce_auto_B")
    at = measured.seconds[measured.message_bytes.index(2**30)]
    assert result.rows[1]["seconds"] == pytest.approx(at, rel=0.05)
    assert "calibrated" not in " ".join(run_machine(tmp_path, "dgx-h100", "").notes)


def test_what_is_not_measured_is_said(tmp_path: Path) -> None:
    result = run_machine(tmp_path, "dgx-b200")
    assert "between nodes as in the data sheet, not measured" in result.notes[0]
    with pytest.raises(
        InputError, match='"dgx-2" has no calibrated links: no sweep of it is shipped; calibrated: dgx-a100'
    ):
        run_machine(tmp_path, "dgx-2")
    with pytest.raises(ClusterError, match="no calibrated links"):
        Cluster.machine("dgx-2", calibrated=True)
    assert Cluster.machine("dgx-h100", 2, calibrated=True).levels[1].link == load_calibrated("dgx-h100")[1].link


def test_machines_are_listed_with_their_calibrated_links() -> None:
    stream = StringIO()
    show(machine_tables(120, [load_machine("dgx-h100")]), stream)
    text = " ".join(stream.getvalue().split())
    assert "intra alpha, calibrated" in text
    assert format_bandwidth(load_calibrated("dgx-h100")[1].link.bandwidth) in text
    assert set(calibrated_names()) <= {machine.name for machine in list_machines()}


def test_patterns_and_files_give_all_their_sweeps(tmp_path: Path) -> None:
    assert [sweep.world_size for sweep in load_sweeps("aic_h100_sxm_1n*_all_reduce")] == [2, 4, 8]
    with pytest.raises(InputError, match="no shipped set fits"):
        load_sweeps("nothing*")
    file = tmp_path / "mine.csv"
    file.write_text("set,size_bytes,time_us,place\na,8,1,out\nb,8,2,in\n", encoding="utf-8")
    first, second = load_sweeps(file)
    assert (first.name, first.place, second.name, second.place) == ("a", "out", "b", "in")
    assert second.noted == ('measured only in place "in": those times are taken',)


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["fit", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_of_the_readme_prints_writes_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    words = shlex.split(text.split("<!-- fit command -->\n```sh\n")[1].split("```")[0])
    assert words[:2] == ["simcollectives", "fit"]
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(*words[2:], "--nodes", "8")
    assert code == 0
    for part in (
        "all_reduce, ring: physical",
        "t0",
        "what every call costs",
        "90th percentile",
        "64 ranks on 16 nodes",
        "64 KiB to 4 MiB",
        "of this prediction",
    ):
        assert part in out
    assert "all_reduce, ring, 8 nodes (32 ranks on 8 nodes)" in out
    assert err.count("wrote ") == 2
    assert (tmp_path / "cluster.residuals.png").read_bytes().startswith(b"\x89PNG")
    assert "mn5_h100_4n4_allreduce_ring" in (tmp_path / "cluster.yaml").read_text(encoding="utf-8")


def test_the_errors_of_predictions_stand_in_json_by_range() -> None:
    sets = ("aic_h100_sxm_1n2_all_reduce", "aic_h100_sxm_1n4_all_reduce")
    code, out, _ = invoke(*sets, "--predict", "aic_h100_sxm_1n8_all_reduce", "--json")
    assert code == 0
    (prediction,) = json.loads(out)["predictions"]
    off = [abs(one["seconds"] / one["measured_seconds"] - 1) for one in prediction["points"]]
    by_range = {one["messages"]: one for one in prediction["errors"]}
    assert sum(by_range[name]["points"] for name in ("small", "middle", "large")) == len(off)
    assert by_range[None]["largest"] == pytest.approx(max(off))
    large = [error for error, one in zip(off, prediction["points"], strict=True) if one["message_bytes"] >= 2**22]
    assert by_range["large"]["largest"] == pytest.approx(max(large))


def test_the_command_in_json() -> None:
    code, out, _ = invoke("aic_h100_sxm_1n8_all_reduce", "--model", "piecewise3", "--json")
    assert code == 0
    data = json.loads(out)
    assert data["fits"][0]["model"] == "piecewise3"
    assert {one["unit"] for one in data["fits"][0]["parameters"]} == {"s", "B/s"}
    assert 0 < data["fits"][0]["median_error"] < data["fits"][0]["largest_error"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nothing_of_the_kind"], "is no shipped measured set, and no file"),
        (["mn5_h100_4n4_ring"], 'did you mean "mn5_h100_4n4_allreduce_ring"?'),
        (["nosuch.log"], "nosuch.log: there is no such file; mend the path"),
        (["aic_h100_sxm_1n8_all_reduce", "--model", "fysical"], 'did you mean "physical"?'),
        (["aic_h100_sxm_1n8_all_reduce", "--nodes", "4"], "they show no link between nodes"),
        (["aic_h100_sxm_1n8_all_reduce", "--predict", "aic_h100_sxm_1n8_all_gather"], "no fit predicts"),
        (["aic_h100_sxm_1n8_all_reduce", "--machine", "dgx"], "not a known machine"),
    ],
)
def test_the_command_refuses_with_a_remedy(arguments: list[str], part: str) -> None:
    done = CliRunner().invoke(app, ["fit", *arguments])
    assert isinstance(done.exception, InputError)
    assert part in str(done.exception)


def test_the_command_names_every_file_that_cannot_be_read(tmp_path: Path) -> None:
    log, table = tmp_path / "other.log", tmp_path / "mine.csv"
    log.write_text("nothing\n", encoding="utf-8")
    table.write_text("set,size_bytes,time_us,place\na,x,1,out\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["fit", str(log), str(table)])
    first, second = str(done.exception).splitlines()
    assert first.startswith(f"{log}: nothing in this file is known")
    assert second.startswith(f'{table}: size_bytes (line 2): "x" is no whole number')
