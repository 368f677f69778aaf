"""Text logs of nccl-tests in every layout: each row once, with the printed time, or counted with the reason why not."""

from __future__ import annotations

import pytest

from simcollectives.measured.logs import read_log
from simcollectives.metrics import busbw
from tests import made_up_logs as made
from tests.conftest import Write
from tests.made_up_logs import ERAS, OURS, SIZES, Era
from tests.reading_logs import expected, failure, points, skipped

ALL = list(ERAS.values())
NEW = ERAS["2023"]


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


def test_bus_bandwidths_are_those_of_the_log(write: Write) -> None:
    """What this project computes from a sweep is what the log prints."""
    lines = made.log(NEW)
    sweep = read_log(write(lines)).sweeps[0].sweep
    stated = [float(line.split()[7]) for line in lines if " float " in line]
    for size, seconds, rate in zip(sweep.message_bytes, sweep.seconds, stated, strict=True):
        computed = busbw("all_reduce", 16, size, seconds)
        assert computed is not None
        assert computed / 1e9 == pytest.approx(rate, rel=2e-3, abs=0.006)
