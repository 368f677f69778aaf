"""Logs as they come out of pipes, pages and shells: every row with its own time, or counted with the reason why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.measured.logs import ReadLog, read_log
from tests import made_up_logs as made
from tests.made_up_logs import ERAS, OURS, SIZES, Era
from tests.reading_logs import skipped

NEW = ERAS["2023"]
ALL = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "reduce"]
LAUNCHERS = (
    *("", " 0: ", "7: ", "[1,0]<stdout>:", "Thu Jul 18 15:41:05 2030<stdout>:", "    ", "\x1b[32m"),
    *("2030-07-18T15:41:05.123Z  0: ", "[2030-07-18 15:41:05] "),
)
PREFIXES = (*LAUNCHERS, "# ", "> ", "node01: ", "launcher-0  | ")
NOISE = (
    "hostA:4242:4243 [0] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7",
    "[2030-01-02 03:04:05] host0:77:78 [0] init.cc:1234 NCCL WARN something to look at",
    "NCCL version 2.23.4+cuda12.6",
    "RCCL version : 2.20.5-HEAD:a1b2c3d",
    "# Testing 1 cycle.",
    "step 12, loss 3.4, and other words of a job",
    "",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "run.log"


def read(path: Path, text: str | bytes, **asked: object) -> ReadLog:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_log(path, **asked)  # type: ignore[arg-type]


def points(log: ReadLog, place: str = "out") -> dict[int, float]:
    found = [one.sweep for one in log.sweeps if one.sweep.place == place]
    return {size: time for sweep in found for size, time in zip(sweep.message_bytes, sweep.seconds, strict=True)}


def printed(era: Era, place: str = "out", sizes: tuple[int, ...] = SIZES) -> dict[int, float]:
    return {size: made.printed_seconds(era, size, place) for size in sizes}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_layouts_in_any_dress(path: Path, data: st.DataObject) -> None:
    """Era, collective, label, encoding, line ends, messages between and inside rows: none changes what is read."""
    era = data.draw(st.sampled_from(list(ERAS.values())))
    collective, ranks = data.draw(st.sampled_from(ALL)), data.draw(st.sampled_from([8, 12, 16]))
    sizes = tuple(size * ranks for size in SIZES[: data.draw(st.integers(3, len(SIZES)))])
    listed = data.draw(st.booleans())
    lines = made.log(era, collective, ranks, sizes, listed=listed, head=data.draw(st.booleans()))
    rows = [number for number, line in enumerate(lines) if " float " in line]
    torn = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=3))
    prefix = data.draw(st.sampled_from(LAUNCHERS if torn else PREFIXES))
    blank = " " * 6 if torn else data.draw(st.sampled_from([" " * 6, " ", "\t"]))
    for number in torn:
        text = lines[number]
        gaps = [at for at in range(1, len(text)) if text[at] == " " != text[at - 1] and text[:at].strip()]
        gap = data.draw(st.sampled_from(gaps))
        lines[number] = f"{text[:gap]}{NOISE[0]}\n{text[gap:]}"
    lines = "\n".join(lines).split("\n")
    for at in data.draw(st.lists(st.integers(0, len(lines)), max_size=4)):
        lines.insert(at, data.draw(st.sampled_from(NOISE)))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    encoding = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]))
    text = "".join(f"{prefix}{line}{end}" for line in lines).replace(" " * 6, blank)
    log = read(path, text.encode(encoding), collective=OURS[collective], ranks=ranks)
    assert points(log) == printed(era, "out", sizes)
    assert points(log, "in") == printed(era, "in", sizes)
    assert log.skipped == ()
    assert {(one.sweep.collective, one.sweep.world_size) for one in log.sweeps} == {(OURS[collective], ranks)}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_garbled_row_is_read_right_or_counted(path: Path, data: st.DataObject) -> None:
    era = data.draw(st.sampled_from(list(ERAS.values())))
    lines = made.log(era)
    rows = [number for number, line in enumerate(lines) if " float " in line]
    hit = data.draw(st.sampled_from(rows[1:-1]))
    at = data.draw(st.integers(0, len(lines[hit]) - 1))
    junk = data.draw(st.text("xyz?~!$%&@\0\x07|", min_size=1, max_size=4))
    lines[hit] = lines[hit][:at] + junk + lines[hit][at + data.draw(st.integers(0, 3)) :]
    log = read(path, "\n".join(lines))
    taken = 0
    for place in ("out", "in"):
        found = points(log, place)
        assert found.items() <= printed(era, place).items()
        taken += len(found)
    assert taken >= 2 * len(SIZES) - 2
    assert taken == 2 * len(SIZES) or sum(skipped(log).values()) >= 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"{SIZES[2]:12d}", "       16x84"),
        (f"{SIZES[2]:12d}", "        none"),
        ("float", "f10at"),
    ],
)
def test_rows_that_cannot_be_read_are_counted(path: Path, old: str, new: str) -> None:
    lines = made.log(NEW)
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{SIZES[2]:12d}"))
    lines[at] = lines[at].replace(old, new, 1)
    log = read(path, "\n".join(lines))
    assert points(log) == {size: time for size, time in printed(NEW).items() if size != SIZES[2]}
    assert sum(skipped(log).values()) == 1


def test_what_a_shell_and_a_page_add_is_taken_away(path: Path) -> None:
    """Colours, hard blanks, and UTF-16 that was appended to UTF-8."""
    text = "\n".join(made.log(NEW)) + "\n"
    for dressed in (text.replace("\n", "\x1b[0m\n\x1b[1;32m"), text.replace(" ", "\xa0")):
        assert points(read(path, dressed)) == printed(NEW)
    both = read(path, text.encode() + text.encode("utf-16-le"))
    assert [one.sweep.seconds for one in both.sweeps if one.sweep.place == "out"] == [tuple(printed(NEW).values())] * 2


def test_a_hole_in_a_file_joins_no_numbers(path: Path) -> None:
    rows = [made.row(NEW, "all_reduce", size, 16) for size in SIZES[:3]]
    text = "\n".join(made.log(NEW, sizes=())[:-3]) + f"\n{rows[0][:52]}\0\0\0\0{rows[1].strip()}\n{rows[2]}\n"
    found = points(read(path, text))
    assert found.items() <= printed(NEW).items()
    assert SIZES[2] in found


def test_processes_of_one_rank_without_any_head_are_refused(path: Path) -> None:
    """A reduction over one rank has no bus bandwidth, however large its rate is."""
    rows = []
    for size in SIZES:
        cells = made.row(NEW, "all_reduce", size, 16).split()
        cells[7] = cells[11] = "0.00"
        rows += ["  ".join(cells)] * 2
    with pytest.raises(InputError, match="ran alone"):
        read(path, "\n".join(rows))


def test_one_size_of_a_broken_row_of_json_is_no_time(path: Path) -> None:
    rows = [json.dumps(row) for row in made.rccl_rows(sizes=SIZES[:4])]
    digits = rows[-1].index('"time": ') + len('"time": ') + 3
    log = read(path, "\n".join([*rows[:-1], rows[-1][:digits]]))
    assert len(points(log, "in")) == 3
    assert sum(skipped(log).values()) == 1


@pytest.mark.parametrize("broken", ['{"name": oops', "NCCL version 2.23.4+cuda12.6", '{"size": 8, "time": 1', "]["])
def test_lines_of_json_go_on_after_a_broken_one(path: Path, broken: str) -> None:
    rows = [json.dumps(row) for row in made.rccl_rows()]
    log = read(path, "\n".join([*rows[:5], broken, *rows[5:]]))
    assert len(points(log)) == len(points(log, "in")) == len(SIZES)
    assert skipped(log) == {"a line or row that is no whole JSON": 1}


class TestOsu:
    def test_results_that_failed_their_validation_and_rows_without_a_time_are_counted(self, path: Path) -> None:
        head = "# OSU MPI-CUDA Allreduce Latency Test v7.5\n# Size       Avg Latency(us)        Validation\n"
        rows = "4   1.40   Pass\n8   1.50   Fail\n16   nan   Pass\n32   -1.6   Pass\n64   1.70   Pass\n128  1.8\n"
        log = read(path, head + rows + "512 bytes are enough\n", ranks=4)
        assert points(log) == {4: 1.4e-6, 64: 1.7e-6}
        assert skipped(log) == {
            "the check of the result failed": 1,
            "no time that a collective takes": 2,
            "a row is cut off": 1,
        }

    def test_between_cpus_or_gpus_by_the_title(self, path: Path) -> None:
        text = "\n".join(made.osu())
        assert read(path, text).sweeps[0].sweep.gpu.startswith("none")
        assert read(path, text.replace("OSU MPI ", "OSU MPI-CUDA ")).sweeps[0].sweep.gpu == ""


class TestTablesWithBars:
    def test_hccl(self, path: Path) -> None:
        head = "mpirun -n 8 ./bin/all_reduce_test -b 8K -e 64M -p 8\n"
        head += "data_size(Bytes): | aveg_time(us): | alg_bandwidth(GB/s): | check_result:\n"
        rows = "8192 | 20.00 | 0.40960 | success\n16384 | 32.00 | 0.51200 | failed\n32768 | 64.00 | 0.51200 | NULL\n"
        log = read(path, head + rows + "65536 | 64.00\n131072 | nan | 1.0 | success\n262144 | 64.00 | 9.0 | success\n")
        assert points(log) == {8192: 20e-6, 32768: 64e-6}
        assert log.sweeps[0].sweep.collective == "all_reduce"
        assert sum(skipped(log).values()) == 4

    def test_rates_alone(self, path: Path) -> None:
        """1 MiB at 10.00 GB/s takes 104.8576 us; 18.75 over 10.00 is 15 / 8, an all-reduce of 16 ranks."""
        text = "see all_reduce_bench.py\n| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
        rows = ["|   32KiB |   0.02GBps |   0.01GBps |", "|    1MiB |  18.75GBps |  10.00GBps |", "|    2MiB | - | - |"]
        log = read(path, text + "\n".join(rows))
        assert points(log) == {1 << 20: pytest.approx(104.8576e-6, rel=1e-4)}
        assert (log.sweeps[0].sweep.collective, log.sweeps[0].sweep.world_size) == ("all_reduce", 16)
        assert sum(skipped(log).values()) == 2

    def test_powers_of_1024(self, path: Path) -> None:
        """As printed until January 2025: 16 MiB at 100 GiB/s take 1 / 6400 s."""
        text = "see all_reduce_bench.py\n| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
        log = read(path, text + "|  1MB |  18.75GBps |  10.00GBps |\n| 16MB | 187.50GBps | 100.00GBps |\n")
        assert points(log) == {
            1 << 20: pytest.approx(1 / 10240, rel=1e-4),
            1 << 24: pytest.approx(1 / 6400, rel=1e-4),
        }
        assert (log.sweeps[0].sweep.world_size, "powers of 1024" in log.sweeps[0].sweep.caveats) == (16, True)


def test_a_gather_is_no_broadcast(path: Path) -> None:
    """Both have a root and no operation; the bus bandwidth of a gather is that of the parts sent."""
    rows = []
    for line in made.log(NEW, "broadcast", 8):
        cells = line.split()
        if " float " in line:
            cells[7] = cells[11] = f"{float(cells[6]) * 7 / 8:.2f}"
        rows.append("  ".join(cells) if " float " in line else line)
    assert read(path, "\n".join(made.log(NEW, "broadcast", 8))).sweeps[0].sweep.collective == "broadcast"
    assert read(path, "\n".join(["mpirun gather_perf", *rows])).sweeps[0].sweep.collective is None
