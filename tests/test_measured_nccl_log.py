"""Logs of NCCL_DEBUG_SUBSYS=TUNING, in the layouts of NCCL 2.5 to 2.30 (printf formats of src/graph/tuning.cc)."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcollectives.cluster import ChannelGraph, load_machine
from simcollectives.errors import InputError
from simcollectives.measured.nccl import (
    Model,
    TuningLog,
    choose,
    compare_picks,
    graph_of_log,
    nccl_model,
    ran_as,
    read_tuning_log,
    tuning_log,
    with_log,
)

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ERAS: Mapping[str, tuple[str, ...]] = {
    "2.5": ("Tree", "Ring"),
    "2.8": ("Tree", "Ring", "CollNet"),
    "2.14": ("Tree", "Ring", "CollNetDirect", "CollNetChain"),
    "2.19": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"),
    "2.30": ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"),
}
PROTOCOLS = ("LL", "LL128", "Simple")
# Of 2 x 8 GPUs, rounded as NCCL prints them; what is not named is 0.0/0.0.
FIGURES = {
    ("AllReduce", "Tree", "LL"): (25.2, 16.6),
    ("AllReduce", "Tree", "LL128"): (48.5, 124.8),
    ("AllReduce", "Ring", "Simple"): (131.6, 204.8),
    ("AllReduce", "NVLSTree", "Simple"): (66.8, 246.2),
    ("Broadcast", "Ring", "LL"): (49.8, 39.0),
    ("AllGather", "Ring", "Simple"): (73.8, 409.6),
    ("AllGather", "PAT", "Simple"): (30.0, 0.0),
}
NAMES = {"Tree": "tree", "Ring": "ring", "NVLSTree": "nvls_tree", "PAT": "pat"}
Figures = Mapping[tuple[str, str, str], tuple[float, float]]


def table(era: str, figures: Figures = FIGURES) -> list[str]:
    """The lines of a table, without what stands before them."""
    algorithms = ERAS[era]
    if era in ("2.19", "2.30"):
        blocks = [algorithms[start : start + 3] for start in range(0, len(algorithms), 3)]
        return [line for block in blocks for line in block_lines(block, figures)]
    pairs = list(itertools.product(algorithms, PROTOCOLS))
    if era == "2.5":
        lines = ["Latency/AlgBw |" + "".join(f" {a:>4}/{p:>6} |" for a, p in pairs)]
        cell = "{:7.1f}/{:5.1f}|"
    else:
        lines = ["Latency/AlgBw |" + "".join(f" {a:>7}/{p:>6} |" for a, p in pairs), threads(len(pairs))]
        cell = "{:8.1f}/{:6.1f} |"
    return lines + [
        f"{function:>13} |" + "".join(cell.format(*figures.get((function, a, p), (0.0, 0.0))) for a, p in pairs)
        for function in FUNCTIONS
    ]


def threads(count: int) -> str:
    return " Max NThreads |" + f" {512:14d} |" * count


def block_lines(block: Sequence[str], figures: Figures) -> list[str]:
    rows = []
    for function in FUNCTIONS:
        cells = [figures.get((function, a, p), (0.0, 0.0)) for a in block for p in PROTOCOLS]
        rows.append(f"{function:>13} |" + "".join(f"{latency:8.1f}/{rate:6.1f} |" for latency, rate in cells))
    return [
        "  Algorithm   |" + "".join(f" {'':14}   {a:>14}   {'':14} |" for a in block),
        "  Protocol    |" + "".join(f" {p:>14} |" for _ in range(3) for p in PROTOCOLS),  # three, also over one
        threads(3 * len(block)),
        *rows,
    ]


def init(rank: int = 0, ranks: int = 16, nodes: int = 2) -> str:
    return f"comm 0x55d35c3a9ec0 rank {rank} nRanks {ranks} nNodes {nodes} localRanks 8 localRank {rank % 8} MNNVL 0"


CHANNELS = "16 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer"


def lines_of(lines: Iterable[str], writer: str = "node-1:1214:1263", before: str = "") -> list[str]:
    return [f"{before}{writer} [0] NCCL INFO {line}" for line in lines]


def write(folder: Path, lines: Iterable[str], name: str = "run.log") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def model(nodes: int = 2, collective: str = "all_reduce") -> Model:
    graph = load_machine("dgx-h100").nccl
    assert graph is not None
    return nccl_model(collective, graph, nodes, 8)


def figures_of(log: TuningLog) -> dict[tuple[str, str, str], tuple[float, float]]:
    (only,) = log.tables
    return {key: (latency * 1e6, rate / 1e9) for key, (latency, rate) in only.entries if rate or latency}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:", "2025-06-25T10:11:12.123Z ", "0: "])
def test_layouts(tmp_path: Path, era: str, before: str) -> None:
    lines = ["NCCL version 2.21.5+cuda12.4", *lines_of([init(), *table(era), CHANNELS], before=before)]
    log = read_tuning_log(write(tmp_path, lines))
    expected = {
        (tuning_log.FUNCTIONS[function.lower()], NAMES[a], p): pytest.approx(figures)
        for (function, a, p), figures in FIGURES.items()
        if a in ERAS[era]
    }
    assert figures_of(log) == expected
    assert (log.version, log.warnings) == ("2.21.5", ())
    (only,) = log.tables
    assert (only.ranks, only.nodes, only.channels, only.lines) == (16, 2, 16, (4,) if era in ("2.19", "2.30") else (3,))


def test_without_prefix(tmp_path: Path) -> None:
    """Pasted into a page without what NCCL writes before every line."""
    log = read_tuning_log(write(tmp_path, table("2.30")))
    assert log.tables[0].ranks is None
    assert dict(log.tables[0].entries)["all_reduce", "tree", "LL"] == pytest.approx((25.2e-6, 16.6e9))


def test_writers_interleaved(tmp_path: Path) -> None:
    """Two communicators at once, line by line, each with its figures; a table printed twice is one."""
    other = {("AllReduce", "Ring", "LL"): (15.0, 80.6)}
    first = lines_of([init(), *table("2.30")])
    second = lines_of([init(ranks=8, nodes=1), *table("2.30", other)], "node-2:77:78")
    again = lines_of([init(), *table("2.30")], "node-1:1214:1300")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    log = read_tuning_log(write(tmp_path, [*mixed, *again]))
    assert [(one.ranks, one.nodes, len(one.lines)) for one in log.tables] == [(16, 2, 2), (8, 1, 1)]
    two = with_log(model(), log)
    assert {one.label for one in two.available} == {"tree/LL", "tree/LL128", "ring/Simple", "nvls_tree/Simple"}
    assert choose(with_log(model(1), log), 8).label == "ring/LL"


def test_figures_replace_those_of_the_model(tmp_path: Path) -> None:
    """25.2 us + S / 16.6 GB/s (factor 1 below 1 KiB) for tree/LL; what the log gives no bandwidth is not taken."""
    log = read_tuning_log(write(tmp_path, lines_of([init(), *table("2.19")])))
    found = with_log(model(), log)
    assert choose(found, 512).seconds == pytest.approx(25.2e-6 + 512 / 16.6e9)
    reasons = {one.label: one.reason for one in found.candidates}
    assert reasons["ring/LL"] == "its bandwidth is 0 in the log"
    assert reasons["pat/Simple"] == "the log has no such column"
    assert "run.log, line 3" in found.source


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (lines_of([init(ranks=64, nodes=8), *table("2.30")]), "it has: 64 ranks on 8 nodes"),
        (lines_of([init(), *table("2.30"), *table("2.30", {})]), "different tables fit"),
        (lines_of([init(), *table("2.30", {})]), "nothing is left for all_reduce"),
    ],
)  # fmt: skip
def test_log_of_something_else(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_log(model(), read_tuning_log(write(tmp_path, lines)))


def test_calls(tmp_path: Path) -> None:
    """The three layouts of calls; with channels, gathering counts the bytes of one rank: 1 MiB is 16 MiB together."""
    calls = [
        "AllReduce: 64 Bytes -> Algo 0 proto 0 time 25.200000",  # 2.23
        "AllReduce: 64 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..15}",  # 2.24 and later
        "AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}",
        "AllGather: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}",
        "8589934592 Bytes -> Algo 1 proto 2 time 86069.968750",  # does not say what
        "AllReduce: 64 Bytes -> Algo 99 proto 0 time 1.0",
    ]
    log = read_tuning_log(write(tmp_path, lines_of([init(), *table("2.30"), *calls])))
    picks = compare_picks(with_log(model(), log), log.calls)
    assert (picks.calls, picks.agreeing) == (3, 2)
    assert [(one.message_bytes, one.picked, one.predicted) for one in picks.others] == [
        (1 << 30, "ring/Simple", "nvls_tree/Simple")
    ]
    gathered = compare_picks(with_log(model(collective="all_gather"), log), log.calls)
    assert (gathered.calls, gathered.agreeing) == (1, 1)
    assert next(call for call in log.calls if call.collective == "all_gather").per_rank
    assert [ran_as(model(nodes), log) for nodes in (2, 4)] == [True, False]
    assert log.warnings == (
        "2 lines skipped: a call of which it is not said what, or by what algorithm (first: line 30)",
    )


PATTERNS = [  # the lines of 8 x H100 in NVIDIA/nccl issue 1197; other words and a plain tree, made up after them
    "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1",
    "Pattern 1, crossNic 0, nChannels 12, bw 30.000000/30.000000, type NVL/PIX, sameChannels 1",
    "Pattern 5, crossNic 0, nChannels 8, bw 40.000000/60.000000, type NVL/PIX, sameChannels 0",
]
OTHER = [
    "Pattern 4, crossNic 2, nChannels 4, speed 24.000000/12.000000, type NVL/PXN, sameChannels 0",
    "Pattern 3, crossNic 0, nChannels 4, speed 48.000000/12.000000, type NVL/PXN, sameChannels 0",
    "Pattern 3, crossNic 0, nChannels 3, speed 20.000000/12.000000, type NVL/PXN, sameChannels 0",
]


def test_channels_that_were_searched(tmp_path: Path) -> None:
    """By span; of several ranks the least; the second plain tree is CollNet's chain. They predict other node counts."""
    lines = [*lines_of([*PATTERNS, init(ranks=8, nodes=1)]), *lines_of([*OTHER, init()], "b:1:2")]
    less = [line.replace("nChannels 4", "nChannels 3") for line in OTHER]
    log = read_tuning_log(write(tmp_path, [*lines, *lines_of([*less, init(rank=8)], "c:1:2")]))
    assert log.searched == {
        "one_node": {
            "ring": ChannelGraph(12, 30e9, 30e9, same_channels=True),
            "tree": ChannelGraph(12, 30e9, 30e9, same_channels=True),
            "nvls": ChannelGraph(8, 40e9, 60e9),
        },
        "several_nodes": {
            "ring": ChannelGraph(3, 24e9, 12e9),
            "tree": ChannelGraph(3, 48e9, 12e9, plain_tree=True),
            "collnet_chain": ChannelGraph(3, 20e9, 12e9),
        },
    }
    graph = load_machine("dgx-a100").nccl
    assert graph is not None
    four = with_log(nccl_model("all_reduce", graph_of_log(graph, log), 4, 8), log)
    ring = next(one for one in four.candidates if one.label == "ring/Simple")
    assert ring.bandwidth == pytest.approx(3 * 12e9 * 32 / 62)
    assert "channels of" in four.source


def test_ranks_of_older_versions(tmp_path: Path) -> None:
    """They say how many ranks there are, at the end, and not on how many nodes."""
    done = "comm 0x561097745b80 rank 0 nranks 24 cudaDev 0 nvmlDev 0 busId a4000 - Init COMPLETE"
    log = read_tuning_log(write(tmp_path, lines_of([*table("2.14"), done])))
    assert (log.tables[0].ranks, log.tables[0].nodes) == (24, None)
    with pytest.raises(InputError, match="24 ranks on unknown nodes"):
        with_log(model(), log)


def test_cut_lines_are_counted(tmp_path: Path) -> None:
    lines = lines_of([init(), *table("2.30")])
    whole = read_tuning_log(write(tmp_path, lines))
    cut = [line[: len(line) - 5] if "AllReduce |" in line else line for line in lines]
    log = read_tuning_log(write(tmp_path, cut))
    assert "3 lines skipped: a row that is cut or does not fit its heading (first: line 9)" in log.warnings
    assert len(log.tables[0].entries) < len(whole.tables[0].entries)


def test_no_table(tmp_path: Path) -> None:
    for lines in ([], ["nothing"], lines_of([init(), CHANNELS]), lines_of(table("2.30")[:2])):
        with pytest.raises(InputError, match="NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING"):
            read_tuning_log(write(tmp_path, lines))
    with pytest.raises(InputError, match="no such file"):
        read_tuning_log(tmp_path / "missing.log")


def test_encodings(tmp_path: Path) -> None:
    text = "\r\n".join(lines_of([init(), *table("2.30")])) + "\r\n"
    expected = None
    for name, data in (
        ("plain", text.encode()),
        ("utf16", text.encode("utf-16")),
        ("gzip", gzip.compress(text.encode())),
        ("bytes", b"\x80\xff\xfe\x00\n" * 3 + text.encode() + b"\x80\x81"),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        found = [one.entries for one in read_tuning_log(path).tables]
        expected = expected or found
        assert found == expected, name
    damaged = tmp_path / "damaged"
    packed = gzip.compress(text.encode() * 50)
    damaged.write_bytes(packed[: len(packed) * 2 // 3])
    assert "end early" in " ".join(read_tuning_log(damaged).warnings)


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_TABLES", 3), ("MAX_WRITERS", 5), ("MAX_CALLS", 4)):
        monkeypatch.setattr(tuning_log, name, value)
    lines: list[str] = []
    for number in range(20):
        own = {("AllReduce", "Ring", "LL"): (10.0 + number, 80.0)}
        call = f"AllReduce: {number} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..15}}"
        lines += lines_of([init(), *table("2.14", own), call], f"node:{number}:1")
    log = read_tuning_log(write(tmp_path, lines))
    assert (len(log.tables), len(log.calls)) == (3, 4)
    assert "17 lines skipped: beyond the first 3 tables" in " ".join(log.warnings)
    assert "16 lines skipped: beyond the first 4 different calls" in " ".join(log.warnings)


MANY = [*lines_of([*PATTERNS, init(), *table("2.30"), CHANNELS]), *lines_of([init(), *table("2.8")], "b:1:2")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_hostile(tmp_path: Path, data: st.DataObject) -> None:
    """Lines left out, cut, doubled, exchanged, with numbers and bars changed: a clear error, or finite figures."""
    lines = list(MANY)
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "cut", "double", "swap", "replace", "insert"]))
        line = lines[at]
        if kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "cut":
            lines[at] = line[: data.draw(st.integers(0, len(line)))]
        elif kind == "double":
            lines.insert(at, line)
        elif kind == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], line
        elif kind == "replace":
            old = data.draw(st.sampled_from(["|", "/", ".", "0", "Tree", "LL", "Algorithm", "nRanks 16", "12", "4,"]))
            lines[at] = line.replace(old, data.draw(st.sampled_from(["", "|", "nan", "-1", "9" * 40, "\x00", "é"])))
        else:
            lines.insert(at, data.draw(st.text(max_size=80)))
    path = tmp_path / "hostile.log"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    try:
        log = read_tuning_log(path)
        found = with_log(model(), log)
    except InputError:
        return
    for one in log.tables:
        assert all(0 <= latency < 1e7 and 0 <= rate < 1e23 for _, (latency, rate) in one.entries)
    compare_picks(found, log.calls)
