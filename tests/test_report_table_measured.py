"""Tables of predictions against measured sweeps: errors as given and fitted, by range of messages and node count."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.measured import Fit, MeasuredSweep, errors
from simcollectives.report.tables import measured_blocks, rendered, show
from simcollectives.scenario import MeasuredComparison, load_scenario, run_scenario
from simcollectives.units import format_bandwidth, format_bytes, format_seconds
from tests.test_report_tables import MEASURED


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> MeasuredComparison:
    path = tmp_path_factory.mktemp("measured") / "measured.yaml"
    path.write_text(MEASURED)
    (found,) = run_scenario(load_scenario(path)).measured
    return found


def shown(ratio: float) -> str:
    return f"{100 * ratio:.1f}" if ratio < 0.0995 else f"{100 * ratio:.0f}"


def measured_text(measured: Sequence[MeasuredComparison], width: int = 120) -> str:
    stream = io.StringIO()
    show(rendered(measured_blocks(measured), width), stream, width)
    return re.sub(" +$", "", stream.getvalue(), flags=re.MULTILINE)


def comparison(nodes: int, measured: Mapping[int, float], predicted: Mapping[int, float]) -> MeasuredComparison:
    """Seconds by message, as measured and as predicted."""
    cluster = Cluster.two_level(nodes, 4, Link(1e-6, 4e11), Link(2e-6, 2e10))
    sizes, seconds, guesses = tuple(measured), tuple(measured.values()), tuple(predicted[size] for size in measured)
    words = ("", None, None, "", "", "", "", f"source of {nodes}", "")
    sweep = MeasuredSweep(f"on_{nodes}", None, *words, sizes, seconds, "out")
    found = errors(guesses, seconds, sizes)
    return MeasuredComparison(sweep, "ring", Fit(2e-6, 2e10, "inter", found, cluster, found, guesses, guesses))


def test_measured_table_has_errors_as_given_and_fitted(measured: MeasuredComparison) -> None:
    text = measured_text([measured])
    for name, one in (("as given", measured.fit.given_errors), ("fitted", measured.fit.errors)):
        (row,) = re.findall(f"^ring, {name} .*$", text, re.MULTILINE)
        assert row.endswith(f"{100 * one.largest:.3g}% at {format_bytes(one.largest_at_bytes, family='binary')}")
        assert f"  {shown(one.median)} / {shown(one.p90)}  " in row
    fit = measured.fit
    assert f"alpha {format_seconds(fit.alpha)}, bandwidth {format_bandwidth(fit.bandwidth)}" in text
    assert text.count("iB") + text.count(" B ") >= len(measured.sweep.message_bytes)


def test_a_measurement_without_source_ends_without_a_mark(measured: MeasuredComparison) -> None:
    bare = replace(measured, sweep=replace(measured.sweep, source="", caveats="", algorithm=""))
    assert measured_text([bare]).endswith("+ predicted too slow, - too fast\n")


def test_errors_of_several_sweeps_stand_by_range_and_node_count_with_their_signs() -> None:
    few = comparison(2, {2**10: 10e-6, 2**20: 1e-3, 2**30: 1.0}, {2**10: 12e-6, 2**20: 0.9e-3, 2**30: 1.0})
    many = comparison(8, {2**10: 10e-6, 2**30: 2.0, 2**31: 4.0}, {2**10: 9e-6, 2**30: 1.0, 2**31: 3.0})
    text = measured_text([few, many])
    rows = {line[:20].strip(): " ".join(line[20:].split()) for line in text.splitlines() if " / " in line}
    # Below 64 KiB, in between, from 4 MiB, and all, each median / 90th percentile and bias; then the worst.
    assert rows["8 ranks on 2 nodes"] == "20 / 20 +20 10 / 10 -10 0.0 / 0.0 0.0 10 / 18 0.0 +20% at 1 KiB"
    assert rows["32 ranks on 8 nodes"] == "10 / 10 -10 - - 38 / 48 -38 25 / 45 -25 -50% at 1 GiB"
    assert rows["all together"].endswith(" 15 / 38 -10 -50% at 1 GiB")
    assert "the worst: -50%, 32 ranks on 8 nodes, message 1 GiB\n" in text
    assert "8 ranks on 2 nodes: on_2, source of 2\n32 ranks on 8 nodes: on_8, source of 8\n" in text
    assert re.search(
        r"^  1 MiB +1 ms +900 us +-10% +- +- +-$", text, re.MULTILINE
    )  # the other sweep has no such message


def test_sweeps_of_one_size_go_by_their_names() -> None:
    one = comparison(2, {8: 1e-5}, {8: 1e-5})
    other = replace(one, sweep=replace(one.sweep, name="again"))
    text = measured_text([one, other])
    assert "8 ranks on 2 nodes, on_2" in text
    assert "8 ranks on 2 nodes, again" in text


def test_more_sweeps_than_fit_side_by_side_show_their_errors_alone() -> None:
    several = [comparison(nodes, {8: 1e-5, 2**20: 1e-3}, {8: 1.5e-5, 2**20: 1e-3}) for nodes in (2, 3, 4, 5)]
    text = measured_text(several)
    assert "predicted\n" not in text
    assert text.count("+50%") >= 4
