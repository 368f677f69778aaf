"""Logs in every layout: each row once, with the printed time, or counted with the reason why not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from simcollectives.errors import InputError
from simcollectives.measured.logs import ReadLog, read_log
from simcollectives.metrics import busbw
from tests import made_up_logs as made
from tests.made_up_logs import ERAS, OURS, SIZES, Era

Write = Callable[..., Path]
ALL = list(ERAS.values())
NEW = ERAS["2023"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(lines: Sequence[str] | str | bytes, name: str = "run.log") -> Path:
        content = lines if isinstance(lines, str | bytes) else "\n".join(lines) + "\n"
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def points(log: ReadLog, place: str = "out") -> list[tuple[int, float]]:
    (found,) = [one.sweep for one in log.sweeps if one.sweep.place == place]
    return list(zip(found.message_bytes, found.seconds, strict=True))


def expected(era: Era, place: str = "out", sizes: Sequence[int] = SIZES) -> list[tuple[int, float]]:
    return [(size, made.printed_seconds(era, size, place)) for size in sizes]


def skipped(log: ReadLog) -> dict[str, int]:
    return {one.reason: one.count for one in log.skipped}


def failure(path: Path, **asked: object) -> str:
    with pytest.raises(InputError) as raised:
        read_log(path, **asked)  # type: ignore[arg-type]
    return str(raised.value)


@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
@pytest.mark.parametrize("collective", list(OURS))
@pytest.mark.parametrize("ranks", [8, 12])
def test_every_era_and_collective(write: Write, era: Era, collective: str, ranks: int) -> None:
    sizes = [size * ranks for size in SIZES]
    log = read_log(write(made.log(era, collective, ranks, sizes)), collective=OURS[collective])
    assert points(log) == expected(era, "out", sizes)
    assert points(log, "in") == expected(era, "in", sizes)
    assert log.skipped == ()
    assert log.warnings == ()
    for one in log.sweeps:
        assert (one.sweep.collective, one.sweep.world_size) == (OURS[collective], ranks)
        assert one.sweep.nodes == -(-ranks // 8)
        assert one.world_size_from == "the device lines"
        assert one.sweep.gpu == "GPU H"


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        " 0: ",
        "0:  ",
        "Thu Jul 18 15:41:05 2030<stdout>:",
        "2030-07-18T15:41:05.123Z ",
        "[2030-07-18 15:41:05] ",
        "2030-07-18T15:41:05Z [1,0]<stdout>:",
        "    ",
        "\t",
        "# ",
        "> ",
    ],
)
@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
def test_prefixes(write: Write, era: Era, prefix: str) -> None:
    log = read_log(write([prefix + line for line in made.log(era)]))
    assert points(log) == expected(era)
    assert points(log, "in") == expected(era, "in")
    assert log.skipped == ()
    assert (log.sweeps[0].sweep.collective, log.sweeps[0].sweep.world_size) == ("all_reduce", 16)


NOISE = [
    "host1:4242:4243 [3] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7",
    "host0:4242:4250 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
    "",
    "[2030-01-02 03:04:05] host0:77:78 [0] init.cc:1234 NCCL WARN something to look at",
    "NCCL version 2.23.4+cuda12.6",
    "RCCL version : 2.20.5-HEAD:a1b2c3d",
    "HIP version  : 6.2.41133",
    "Librccl path : /opt/rocm/lib/librccl.so.1",
    "rccl-tests: Version develop:abc1234",
    "# Testing 1 cycle.",
    "some words that belong to nothing",
]


@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
def test_messages_between_any_two_lines(write: Write, era: Era) -> None:
    lines = []
    for number, line in enumerate(made.log(era)):
        lines += [line, NOISE[number % len(NOISE)], NOISE[(number * 7 + 3) % len(NOISE)]]
    log = read_log(write(lines))
    assert points(log) == expected(era)
    assert points(log, "in") == expected(era, "in")
    assert log.skipped == ()


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "0: "])
@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
def test_messages_inside_every_row_at_every_gap(write: Write, era: Era, prefix: str) -> None:
    """Several ranks share one output: a row stops anywhere, a message follows, then the row goes on."""
    message = "hostA:4242:4243 [0] NCCL INFO Launch mode Parallel"
    whole = made.row(era, "all_reduce", SIZES[3], 16)
    gaps = [at for at in range(1, len(whole)) if whole[at] == " " and whole[at - 1] != " " and whole[:at].strip()]
    assert len(gaps) > 9
    for gap in gaps:
        lines = made.log(era)
        at = lines.index(whole)
        lines[at : at + 1] = [whole[:gap] + message, whole[gap:]]
        log = read_log(write([prefix + line for line in lines]))
        assert points(log) == expected(era), whole[:gap]
        assert points(log, "in") == expected(era, "in")
        assert log.skipped == ()


def test_version_inside_a_row(write: Write) -> None:
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at : at + 1] = [lines[at][:50] + "NCCL version 2.30.1+cuda13.0", lines[at][50:]]
    log = read_log(write(lines))
    assert points(log) == expected(NEW)
    assert log.sweeps[0].sweep.nccl_version == "2.30.1+cuda13.0"


def test_newest_layout_says_its_collective_and_version(write: Write) -> None:
    log = read_log(write(made.log(ERAS["2025"], "all_gather", 16)))
    assert {(one.sweep.collective, one.collective_from) for one in log.sweeps} == {("all_gather", "the log")}
    assert log.sweeps[0].sweep.nccl_version == "2.23.4"


@pytest.mark.parametrize(("collective", "source"), [("all_reduce", "the columns"), ("reduce_scatter", "the columns")])
def test_columns_that_only_one_collective_has(write: Write, collective: str, source: str) -> None:
    log = read_log(write(made.log(NEW, collective)))
    assert (log.sweeps[0].sweep.collective, log.sweeps[0].collective_from) == (collective, source)


def test_columns_that_several_collectives_have(write: Write) -> None:
    path = write(made.log(NEW, "all_gather"))
    assert read_log(path).sweeps[0].sweep.collective is None
    assert read_log(path, "all_to_all").sweeps[0].sweep.collective == "all_to_all"


def test_a_command_in_the_log_names_the_collective(write: Write) -> None:
    log = read_log(write(["$ mpirun -np 16 ./build/alltoall_perf -b 1K -e 1G", *made.log(NEW, "alltoall")]))
    assert (log.sweeps[0].sweep.collective, log.sweeps[0].collective_from) == ("all_to_all", "the command in the log")


def test_what_the_log_says_is_not_overruled(write: Write) -> None:
    log = read_log(write(made.log(ERAS["2025"])), collective="all_gather", ranks=4)
    assert (log.sweeps[0].sweep.collective, log.sweeps[0].sweep.world_size) == ("all_reduce", 16)
    assert any("--collective all_gather is not applied: by the log it is all_reduce" in text for text in log.warnings)
    assert any("--ranks 4 is not applied: by the device lines it is 16" in text for text in log.warnings)


# Two decimals of rates above 100 GB/s tell 2 (n - 1) / n apart up to about 100 ranks.
@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 30, 64])
@pytest.mark.parametrize("era", [ERAS["2021"], NEW], ids=lambda era: era.name)
def test_ranks_from_the_bus_bandwidth(write: Write, era: Era, ranks: int) -> None:
    log = read_log(write(made.log(era, "all_reduce", ranks, listed=False)), collective="all_reduce")
    assert {(one.sweep.world_size, one.world_size_from) for one in log.sweeps} == {(ranks, "busbw over algbw")}


@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
@pytest.mark.parametrize("ranks", [2, 8, 96, 1000])
def test_ranks_from_parts_are_exact(write: Write, era: Era, ranks: int) -> None:
    sizes = [4 * ranks * 4**power for power in range(4, 12)]
    log = read_log(write(made.log(era, "all_gather", ranks, sizes, listed=False)), collective="all_gather")
    assert {(one.sweep.world_size, one.world_size_from) for one in log.sweeps} == {(ranks, "size over count")}
    assert log.skipped == ()


def test_ranks_that_nothing_tells_are_asked_for(write: Write) -> None:
    path = write(made.log(NEW, "all_reduce", 4096, listed=False))
    log = read_log(path, collective="all_reduce")
    assert log.sweeps[0].sweep.world_size is None
    assert "busbw over algbw says" in log.sweeps[0].world_size_from
    assert read_log(path, "all_reduce", 4096).sweeps[0].world_size_from == "as asked for"
    assert any("not 8" in text for text in read_log(path, "all_reduce", 8).warnings)


def test_ranks_from_messages(write: Write) -> None:
    lines = ["h0:1:2 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 4096 cudaDev 0 - Init COMPLETE"]
    log = read_log(write([*lines, *made.log(NEW, "all_reduce", 4096, listed=False, head=False)]))
    assert (log.sweeps[0].sweep.world_size, log.sweeps[0].world_size_from) == (4096, "NCCL's messages")


def test_device_lines_that_were_cut_do_not_count(write: Write) -> None:
    lines = [line for line in made.log(NEW) if "Rank  9" not in line]
    log = read_log(write(lines))
    assert (log.sweeps[0].sweep.world_size, log.sweeps[0].sweep.nodes) == (16, None)
    lines = [line for line in made.log(NEW) if not ("Rank" in line and int(line.split()[2]) > 5)]
    log = read_log(write(lines))
    assert log.sweeps[0].sweep.world_size == 16
    assert any("6 ranks, the numbers 16" in text for text in log.warnings)


def test_unsorted_device_lines(write: Write) -> None:
    lines = made.log(NEW)
    ranks = [line for line in lines if "  Rank " in line]
    at = lines.index(ranks[0])
    lines[at : at + 16] = reversed(ranks)
    assert read_log(write(lines)).sweeps[0].sweep.world_size == 16


def test_groups_of_ranks(write: Write) -> None:
    lines = [
        line.replace("Group  0", "Group  1") if "on      host1" in line else line for line in made.log(NEW, ranks=16)
    ]
    rows = [made.row(NEW, "all_reduce", size, 8) for size in SIZES]
    lines = [line for line in lines if " float " not in line]
    log = read_log(write([*lines, *rows]))
    assert log.sweeps[0].sweep.world_size == 8
    assert "2 groups of ranks at once" in log.sweeps[0].sweep.caveats


@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
def test_unchecked_results(write: Write, era: Era) -> None:
    log = read_log(write(made.log(era, check="    N/A")))
    assert points(log) == expected(era)
    assert log.skipped == ()


def test_failed_results_are_counted(write: Write) -> None:
    lines = made.log(NEW)
    wrong = [
        made.row(NEW, "all_reduce", 4096, 16, check="     12"),
        made.row(NEW, "all_reduce", 16384, 16, check="     0*"),
    ]
    lines = [line for line in lines if not line.split()[:1] or line.split()[0] not in ("4096", "16384")]
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at + 1 : at + 1] = wrong
    lines.append("# Out of bounds values : 24 FAILED")
    log = read_log(write(lines))
    assert points(log) == expected(NEW, "out", [size for size in SIZES if size not in (4096, 16384)])
    assert skipped(log) == {"the check of the result failed": 4}
    assert any("24 results out of bounds" in text for text in log.warnings)


def test_an_asterisk_after_the_count(write: Write) -> None:
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at] = lines[at].replace(f"{SIZES[0] // 4} ", f"{SIZES[0] // 4}* ", 1)
    log = read_log(write(lines))
    assert points(log) == expected(NEW, "out", SIZES[1:])
    assert skipped(log) == {"the check of the result failed": 2}


def test_cut_rows(write: Write) -> None:
    lines = made.log(NEW)
    rows = [number for number, line in enumerate(lines) if " float " in line]
    lines[rows[2]] = lines[rows[2]][:95]
    lines[rows[4]] = lines[rows[4]][:60]
    lines[rows[6]] = "     ..."
    log = read_log(write(lines))
    assert points(log) == expected(NEW, "out", [size for number, size in enumerate(SIZES) if number not in (4, 6)])
    assert points(log, "in") == expected(NEW, "in", [s for number, s in enumerate(SIZES) if number not in (2, 4, 6)])
    assert skipped(log) == {
        "the second half of a row is cut off": 1,
        "a row is cut off before its first time is whole": 1,
    }
    assert any("taken out of the log by hand" in text for text in log.warnings)


def test_rows_of_size_0_and_of_other_types_are_counted(write: Write) -> None:
    lines = made.log(NEW, "all_gather")
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at:at] = [
        "           0             0     float    none      -1" + "     6.12    0.00    0.00       0" * 2,
        lines[at].replace(" float ", " quart "),
    ]
    log = read_log(write(lines), collective="all_gather")
    assert points(log) == expected(NEW)
    assert skipped(log) == {
        "size 0: no bytes move, so only a launch was timed": 2,
        "a row whose element type is not known": 1,
    }


def test_rows_that_contradict_themselves_are_counted(write: Write) -> None:
    lines = made.log(NEW)
    rows = [number for number, line in enumerate(lines) if " float " in line]
    lines[rows[5]] = "9" + lines[rows[5]].lstrip()  # a digit too many in the size
    cells = lines[rows[7]].split()
    lines[rows[7]] = lines[rows[7]].replace(cells[7], "1.00")  # the bus bandwidth
    log = read_log(write(lines))
    assert points(log) == expected(NEW, "out", [size for number, size in enumerate(SIZES) if number not in (5, 7)])
    assert skipped(log) == {
        "algbw is not size over time: the row contradicts itself": 2,
        "busbw over algbw contradicts the other rows": 1,
    }


@pytest.mark.parametrize("era", ALL, ids=lambda era: era.name)
def test_rows_alone_without_any_header(write: Write, era: Era) -> None:
    """Milliseconds, too, are known by the rates."""
    log = read_log(write([line for line in made.log(era) if " float " in line]))
    assert points(log) == expected(era)
    assert points(log, "in") == expected(era, "in")
    assert log.sweeps[0].sweep.world_size == 16
    assert any("milliseconds" in text for text in log.warnings) == era.milliseconds


def test_several_tables(write: Write) -> None:
    lines = made.log(ERAS["2025"]) + made.log(NEW, "reduce_scatter", 8) + made.log(NEW, "broadcast", 4, head=False)
    log = read_log(write(lines, "three.log"))
    found = [(one.sweep.name, one.sweep.collective, one.sweep.world_size) for one in log.sweeps[::2]]
    assert found == [("three_1", "all_reduce", 16), ("three_2", "reduce_scatter", 8), ("three_3", "broadcast", 4)]
    assert [len(one.sweep.seconds) for one in log.sweeps] == [len(SIZES)] * 6


def test_several_types_in_one_table(write: Write) -> None:
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at:at] = [made.row(NEW, "all_reduce", size, 16, "bfloat16", 2) for size in SIZES]
    log = read_log(write(lines))
    assert [one.sweep.name for one in log.sweeps[::2]] == ["run_bfloat16_sum", "run_float_sum"]
    assert all(list(one.sweep.message_bytes) == list(SIZES) for one in log.sweeps)


def test_other_tests_are_counted(write: Write) -> None:
    lines = [line.replace("all_reduce_perf", "sendrecv_perf") for line in made.log(ERAS["2025"])]
    log = read_log(write(lines + made.log(ERAS["2025"])))
    assert skipped(log) == {"rows of sendrecv_perf, which this project does not have": 2 * len(SIZES)}
    assert len(log.sweeps) == 2
    assert "sendrecv_perf" in failure(write(lines))


def test_one_place_only(write: Write) -> None:
    """rccl-tests with -O 0, and the broadcast of nccl-tests 2.0."""
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if "#wrong" in line)
    lines[at] = lines[at][: lines[at].index("#wrong") + 6]
    lines[at - 1] = "#                                  in-place"
    cut = [line[: len(line) - 33] if " float " in line else line for line in lines]
    log = read_log(write(cut))
    assert points(log, "in") == expected(NEW, "out")
    assert log.skipped == ()


def test_columns_of_single_iterations_and_time_stamps(write: Write) -> None:
    lines = made.log(NEW)
    for number, line in enumerate(lines):
        if "#wrong" in line:
            first, _, second = line.partition("#wrong")
            more = "  i_min  i_max  i_p99  i_cv%"
            lines[number] = f"{first}#wrong{more}{second}{more}  timestamp"
        elif " float " in line:
            cells = line.split()
            lines[number] = "  ".join(
                [*cells[:9], "1.00", "2.00", "3.00", "4.0", *cells[9:], "5.00", "6.0", "7", "8", "2030-01-01 10:00:00"]
            )
    log = read_log(write(lines))
    assert points(log) == expected(NEW)
    assert points(log, "in") == expected(NEW, "in")
    assert log.skipped == ()


def test_times_of_launches_are_refused(write: Write) -> None:
    lines = [line.replace("  time", "  cputime") for line in made.log(NEW)]
    assert "what the launches took, not the collectives" in failure(write(lines))


def test_settings_that_move_times_are_caveats(write: Write) -> None:
    lines = [line.replace("agg iters: 1", "agg iters: 10").replace("graph: 0", "graph: 5").replace("nGpus 1", "nGpus 8")
             for line in made.log(NEW)]  # fmt: skip
    assert read_log(write(lines)).sweeps[0].sweep.caveats.split("; ") == [
        "several GPUs in one process: launching takes longer",
        "10 operations aggregated into one launch",
        "launched as a CUDA graph",
    ]


def test_slow_points_are_warned_about(write: Write) -> None:
    slow = made.row(NEW, "all_reduce", SIZES[5], 16).split()
    slow[5:8] = ["500.0", f"{SIZES[5] / 500e3:.2f}", f"{SIZES[5] / 500e3 * 1.875:.2f}"]
    lines = made.log(NEW)
    at = lines.index(made.row(NEW, "all_reduce", SIZES[5], 16))
    lines[at] = "  ".join(slow)
    log = read_log(write(lines))
    (text,) = log.warnings
    assert "1 MiB (500 us" in text
    assert "out of place" in text
    small = [
        made.row(NEW, "all_reduce", 1, 16, "int8", 1),
        *(made.row(NEW, "all_reduce", 2**k, 16, "int8", 1) for k in range(1, 20)),
    ]
    assert "1 byte" in read_log(write(small), "all_reduce").warnings[0]


def test_a_failed_run_says_so(write: Write) -> None:
    lines = [line for line in made.log(NEW) if " float " not in line]
    lines.insert(-4, "host0: Test NCCL failure common.cu:954 'unhandled system error'")
    assert "the run failed (host0: Test NCCL failure" in failure(write(lines))
    log = read_log(write(lines + made.log(NEW)))
    assert points(log) == expected(NEW)


class TestAlone:
    """Every process ran its own test: nccl-tests without MPI."""

    def refused(self, path: Path) -> None:
        text = failure(path, collective="all_reduce")
        assert "ran alone" in text
        assert "MPI=1" in text

    def one(self, host: str, pid: int, ranks: int = 8) -> list[str]:
        lines = made.log(NEW, ranks=ranks, listed=False)
        at = lines.index("# Using devices")
        lines[at + 1 : at + 1] = made.devices(NEW, ranks, host=host, pid=pid)
        return lines

    def test_interleaved(self, write: Write) -> None:
        pairs = zip(self.one("a", 100), self.one("b", 200), strict=True)
        self.refused(write([line for pair in pairs for line in pair]))

    def test_heads_then_rows(self, write: Write) -> None:
        first, second = self.one("a", 100), self.one("b", 200)
        head = next(number for number, line in enumerate(first) if " float " in line)
        rows = [line for pair in zip(first[head:], second[head:], strict=True) for line in pair]
        self.refused(write(first[:head] + second[:head] + rows))

    def test_one_after_another(self, write: Write) -> None:
        self.refused(write(self.one("a", 100) + self.one("b", 200)))

    def test_labels_of_several_processes(self, write: Write) -> None:
        pairs = [(f"[1,0]<stdout>:{a}", f"[1,1]<stdout>:{a}") for a in made.log(NEW, ranks=8, listed=False)]
        self.refused(write([line for pair in pairs for line in pair]))

    @pytest.mark.parametrize("processes", [1, 4])
    def test_one_rank_each(self, write: Write, processes: int) -> None:
        lines = []
        for process in range(processes):
            for line in self.one("a", 100 + process, ranks=1):
                cells = line.split()
                if " float " in line:
                    cells[7] = cells[11] = "0.00"
                lines.append("  ".join(cells) if " float " in line else line)
        self.refused(write(lines))

    def test_runs_one_after_another_on_one_host_are_fine(self, write: Write) -> None:
        log = read_log(write(self.one("a", 100) + self.one("a", 200)))
        assert [one.sweep.world_size for one in log.sweeps] == [8] * 4

    def test_a_run_that_was_started_again_is_fine(self, write: Write) -> None:
        first = self.one("a", 100)
        head = next(number for number, line in enumerate(first) if " float " in line)
        assert points(read_log(write(first[:head] + self.one("a", 200)))) == expected(NEW)

    def test_cycles_are_fine(self, write: Write) -> None:
        lines = made.log(NEW)
        rows = [line for line in lines if " float " in line]
        at = lines.index(rows[-1]) + 1
        lines[at:at] = ["# Testing 2 cycle.", *rows]
        assert points(read_log(write(lines))) == sorted(expected(NEW) * 2)


class TestJson:
    @pytest.mark.parametrize("collective", list(OURS))
    def test_document(self, write: Write, collective: str) -> None:
        log = read_log(write(json.dumps(made.nccl_document(collective)), "run.json"))
        for place in ("out", "in"):
            wanted = [(size, float(f"{round(made.time_us(size, place), 6)!r}e-6")) for size in SIZES]
            assert points(log, place) == wanted
        for one in log.sweeps:
            assert (one.sweep.collective, one.sweep.world_size, one.sweep.nodes) == (OURS[collective], 16, 2)
            assert one.sweep.nccl_version == "2.23.4"

    def test_of_several_gpus_in_a_process_only_the_first_is_listed(self, write: Write) -> None:
        document = made.nccl_document(ranks=16, gpus=8)
        assert len(document["config"]["devices"]) == 2
        assert read_log(write(json.dumps(document))).sweeps[0].sweep.world_size == 16

    @pytest.mark.parametrize("indent", [None, 2])
    def test_documents_one_after_another(self, write: Write, indent: int | None) -> None:
        documents = [made.nccl_document("all_reduce"), made.nccl_document("all_gather", 8)]
        log = read_log(write("\n".join(json.dumps(one, indent=indent) for one in documents), "two.jsonl"))
        found = [(one.sweep.name, one.sweep.collective, one.sweep.world_size) for one in log.sweeps[::2]]
        assert found == [("two_1", "all_reduce", 16), ("two_2", "all_gather", 8)]
        log = read_log(write(json.dumps(documents)))
        assert [one.sweep.world_size for one in log.sweeps[::2]] == [16, 8]

    def test_results_as_lines(self, write: Write) -> None:
        results = made.nccl_document()["results"]
        log = read_log(write("\n".join(json.dumps(one) for one in results)), "all_reduce")
        assert [len(one.sweep.seconds) for one in log.sweeps] == [len(SIZES)] * 2
        assert log.sweeps[0].sweep.world_size == 16

    @pytest.mark.parametrize("form", ["array", "lines", "csv"])
    def test_rccl(self, write: Write, form: str) -> None:
        rows = made.rccl_rows()
        header = ",".join(rows[0])
        text = {
            "array": json.dumps(rows, indent=1),
            "lines": "\n".join(map(json.dumps, rows)),
            "csv": "\n".join([header, *(",".join(map(str, one.values())) for one in rows)]),
        }[form]
        log = read_log(write(text, f"run.{form}"))
        for place in ("out", "in"):
            assert points(log, place) == [(size, float(f"{round(made.time_us(size, place), 4)}e-6")) for size in SIZES]
        assert {(one.sweep.collective, one.sweep.world_size, one.sweep.nodes) for one in log.sweeps} == {
            ("all_reduce", 16, 2)
        }
        assert log.skipped == ()

    @pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
    def test_a_run_that_was_stopped(self, write: Write, share: float) -> None:
        text = json.dumps(made.nccl_document())
        cut = text[: int(len(text) * share)]
        complete = cut.count('"in_place"') - ('"in_place"' in cut.rpartition("}}")[2])
        path = write(cut)
        if not complete:
            assert "ends early" in failure(path)
            return
        log = read_log(path)
        assert any("ends early" in text for text in log.warnings)
        assert len(log.sweeps[0].sweep.seconds) == complete

    def test_what_is_no_result_is_counted(self, write: Write) -> None:
        document = made.nccl_document()
        document["results"][0]["in_place"] = None
        document["results"][1]["out_of_place"]["nwrong"] = 3.0
        document["results"][2]["out_of_place"]["time"] = "nan"
        document["results"][3] = "nothing"
        log = read_log(write(json.dumps(document)))
        assert skipped(log) == {
            "no in_place result": 1,
            "the check of the result failed": 1,
            "a result without a time": 1,
            "a result that is no object": 1,
        }
        assert [len(one.sweep.seconds) for one in log.sweeps] == [len(SIZES) - 3, len(SIZES) - 2]


class TestOsu:
    @pytest.mark.parametrize("columns", [1, 4])
    @pytest.mark.parametrize(
        ("title", "collective"),
        [
            ("Allreduce", "all_reduce"),
            ("Reduce_scatter", "reduce_scatter"),
            ("Broadcast", "broadcast"),
            ("Reduce", "reduce"),
        ],
    )
    def test_whole_messages(self, write: Write, title: str, collective: str, columns: int) -> None:
        log = read_log(write(made.osu(title, columns=columns)), ranks=4)
        assert points(log) == [(size, float(f"{made.time_us(size):.2f}e-6")) for size in SIZES]
        assert (log.sweeps[0].sweep.collective, log.sweeps[0].sweep.world_size) == (collective, 4)

    @pytest.mark.parametrize("title", ["Allgather", "All-to-All Personalized Exchange"])
    def test_parts(self, write: Write, title: str) -> None:
        path = write(made.osu(title))
        log = read_log(path, ranks=4)
        assert [size for size, _ in points(log)] == [4 * size for size in SIZES]
        assert "--ranks" in failure(path)

    @pytest.mark.parametrize("title", ["MPI-CUDA Allreduce", "NCCL Allreduce"])
    def test_other_libraries(self, write: Write, title: str) -> None:
        lines = [line.replace("MPI Allreduce", title) for line in made.osu()]
        assert read_log(write([f"[1,0]<stdout>:{line}" for line in lines])).sweeps[0].sweep.collective == "all_reduce"

    def test_others_are_counted(self, write: Write) -> None:
        lines = made.osu() + made.osu("Non-blocking Allreduce") + made.osu("Bandwidth")
        log = read_log(write(lines))
        assert sum(skipped(log).values()) == 2 * len(SIZES)
        assert len(points(log)) == len(SIZES)


def encoded(encoding: str, mark: bytes = b"") -> Callable[[str], bytes]:
    return lambda text: mark + text.encode(encoding)


@pytest.mark.parametrize(
    "encode",
    [
        encoded("utf-8"),
        encoded("utf-8-sig"),
        encoded("utf-16"),
        encoded("utf-16-le"),
        encoded("utf-16-be"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.replace("GPU H", "GPU \udce9").encode("utf-8", "surrogateescape"),
        lambda text: text.replace("#\n", "# \xb5s\n").encode("latin-1"),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text[:2000].encode()) + gzip.compress(text[2000:].encode()),
        lambda text: gzip.compress(text.encode("utf-16")),
    ],
)  # fmt: skip
def test_encodings_line_ends_and_gzip(write: Write, encode: Callable[[str], bytes]) -> None:
    log = read_log(write(encode("\n".join(made.log(NEW)) + "\n")))
    assert points(log) == expected(NEW)
    assert points(log, "in") == expected(NEW, "in")


def test_damaged_gzip_is_read_up_to_the_damage(write: Write) -> None:
    packed = gzip.compress("\n".join(made.log(NEW) * 400).encode())
    log = read_log(write(packed[: len(packed) // 2]))
    assert any("gzip data end early" in text for text in log.warnings)
    assert set(points_of_all(log)) <= set(expected(NEW))
    broken = bytearray(packed)
    broken[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    assert any("gzip" in text for text in read_log(write(bytes(broken))).warnings)


def points_of_all(log: ReadLog) -> list[tuple[int, float]]:
    return [
        point
        for one in log.sweeps
        if one.sweep.place == "out"
        for point in zip(one.sweep.message_bytes, one.sweep.seconds, strict=True)
    ]


def test_long_lines_are_passed_over(write: Write) -> None:
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at:at] = ["x" * 3_000_000, "5" * 200_000]
    log = read_log(write(lines))
    assert points(log) == expected(NEW)
    assert sum("very long" in text for text in log.warnings) == 2


def test_samples_beyond_the_limit_are_counted(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcollectives.measured.logs.types.MAX_SAMPLES", 7)
    for content in ("\n".join(made.log(NEW)), json.dumps(made.nccl_document())):
        log = read_log(write(content))
        assert sum(len(one.sweep.seconds) for one in log.sweeps) == 7
        assert skipped(log) == {"beyond the first 7 samples": 2 * len(SIZES) - 7}


def test_warnings_beyond_the_limit_are_left_out(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcollectives.measured.logs.types.MAX_WARNINGS", 3)
    log = read_log(write([*made.log(NEW), *["..."] * 5]))
    assert ["by hand" in text for text in log.warnings] == [True, True, False]
    assert log.warnings[-1] == "further warnings of this log are left out"
    assert points(log) == expected(NEW)


@pytest.mark.parametrize("limit", [1, 2])
def test_tables_beyond_the_limit_are_counted(write: Write, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("simcollectives.measured.logs.nccl_text.MAX_TABLES", limit)
    log = read_log(write(made.log(NEW) * 5))
    assert len(log.sweeps) == 2 * limit
    assert skipped(log) == {f"beyond the first {limit} tables": 2 * (5 - limit) * len(SIZES)}


@pytest.mark.parametrize("text", ["", "\n\n", "hello\n" * 100, '{"a": 1}', "a,b\n1,2\n", "\x00" * 100, "\x1f\x8b"])
def test_other_files_are_refused_with_what_is_read(write: Write, text: str) -> None:
    assert "nccl-tests or rccl-tests log" in failure(write(text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in failure(tmp_path / "no.log")
    assert "folder" in failure(tmp_path)
    path = tmp_path / "x.log"
    path.write_text("")
    assert "no collective" in failure(path, collective="allreduce")
    assert "ranks cannot be" in failure(path, ranks=0)


def test_csv_of_this_project(write: Write) -> None:
    path = write("set,size_bytes,time_us,place\na,8,1.5,out\na,8,1.25,in\nb,16,2,out\nb,0,1,out\n", "mine.csv")
    log = read_log(path)
    found = [(one.sweep.name, one.sweep.place, one.sweep.message_bytes, one.sweep.seconds) for one in log.sweeps]
    assert found == [("a", "out", (8,), (1.5e-6,)), ("a", "in", (8,), (1.25e-6,)), ("b", "out", (16,), (2e-6,))]
    assert "1 row of size 0" in log.warnings[0]


def test_bus_bandwidths_are_those_of_the_log(write: Write) -> None:
    """What this project computes from a sweep is what the log prints."""
    lines = made.log(NEW)
    sweep = read_log(write(lines)).sweeps[0].sweep
    stated = [float(line.split()[7]) for line in lines if " float " in line]
    for size, seconds, rate in zip(sweep.message_bytes, sweep.seconds, stated, strict=True):
        computed = busbw("all_reduce", 16, size, seconds)
        assert computed is not None
        assert computed / 1e9 == pytest.approx(rate, rel=2e-3, abs=0.006)
