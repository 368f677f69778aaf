"""Logs of processes that ran alone, of other programs and in other forms, damaged, too large, or no logs at all."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from simcollectives.measured.logs import ReadLog, read_log
from tests import made_up_logs as made
from tests.conftest import Write
from tests.made_up_logs import ERAS, OURS, SIZES
from tests.reading_logs import expected, failure, points, skipped

NEW = ERAS["2023"]


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
