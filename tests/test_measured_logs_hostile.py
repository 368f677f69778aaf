"""Hostile logs: whatever is done to a log, what is read of it is right, or the error is clear."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.interop.chrome_trace import trace_text
from simcollectives.measured.logs import ReadLog, read_log
from simcollectives.measured.logs.streams import MAX_LINE
from tests import made_up_logs as made
from tests.made_up_logs import ERAS, SIZES
from tests.training.steps import uniform_step

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1")
PREFIXES = ("", " 0: ", "[1,0]<stdout>:", "2030-07-18T15:41:05Z ", "# ")


def text_of(kind: str) -> str:
    if kind in ERAS:
        return "\n".join(made.log(ERAS[kind])) + "\n"
    return {
        "osu": lambda: "\n".join(made.osu()) + "\n",
        "document": lambda: json.dumps(made.nccl_document()),
        "rows": lambda: "\n".join(map(json.dumps, made.rccl_rows())),
        "trace": lambda: trace_text(uniform_step(elements=10**6, layers=2, tensors=2)),
    }[kind]()


TEXTS = {kind: text_of(kind) for kind in (*ERAS, "osu", "document", "rows", "trace")}
Mutation = Callable[[bytes], bytes]


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """One thing done to the bytes of a log."""
    kind = draw(st.sampled_from(["bytes", "cut", "drop", "double", "swap", "join", "ends", "zeros"]))
    where, size = draw(st.floats(0, 1)), draw(st.integers(1, 200))
    junk = draw(st.binary(max_size=200))

    def mutate(content: bytes) -> bytes:
        at = int(where * len(content))
        if kind == "bytes":
            return content[:at] + junk + content[at + len(junk) :]
        if kind == "cut":
            return content[:at]
        if kind == "drop":
            return content[:at] + content[at + size :]
        if kind == "double":
            return content[: at + size] + content[at:]
        if kind == "swap":
            lines = content.split(b"\n")
            first, second = int(where * len(lines)) % len(lines), size % len(lines)
            lines[first], lines[second] = lines[second], lines[first]
            return b"\n".join(lines)
        if kind == "join":
            return content[:at] + content[at : at + 4000].replace(b"\n", b" ", 1) + content[at + 4000 :]
        if kind == "ends":
            return content.replace(b"\n", b"\r\n" if size % 2 else b"\r")
        return content[:at] + bytes(size) + content[at:]

    return mutate


def read(path: Path, content: bytes) -> ReadLog | None:
    """What is read, or None where the error says what is wrong, and nothing of the program's inside."""
    path.write_bytes(content)
    try:
        return read_log(path, collective="all_reduce", ranks=16)
    except InputError as error:
        text = str(error)
        assert text
        assert "Traceback" not in text
        assert len(text) < 4000
        return None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "run.log"


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(list(TEXTS)),
    done=st.lists(mutations(), max_size=4),
    encoding=st.sampled_from(ENCODINGS),
    prefix=st.sampled_from(PREFIXES),
    packed=st.booleans(),
    after=st.lists(mutations(), max_size=1),
)
def test_mutated_logs(
    path: Path, kind: str, done: list[Mutation], encoding: str, prefix: str, packed: bool, after: list[Mutation]
) -> None:
    text = TEXTS[kind]
    if kind in ERAS or kind == "osu":
        text = "".join(f"{prefix}{line}\n" for line in text.split("\n")[:-1])
    content = text.encode(encoding)
    for mutate in done:
        content = mutate(content)
    if packed:
        content = gzip.compress(content)
        for mutate in after:
            content = mutate(content)
    log = read(path, content)
    if log is None:
        assert done or (packed and after)
        return
    for sweep in log.measured:
        assert len(sweep.message_bytes) == len(sweep.seconds) > 0
        assert list(sweep.message_bytes) == sorted(sweep.message_bytes)
        assert all(0 < time < 1e6 for time in sweep.seconds)
        assert all(size > 0 for size in sweep.message_bytes)
    for step in log.steps:
        parts = step.compute_seconds + step.exposed_seconds + step.idle_seconds
        assert parts == pytest.approx(step.step_seconds, abs=1e-9)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from([*ERAS, "osu"]), share=st.floats(0, 1), packed=st.booleans())
def test_a_truncated_log_holds_the_rows_before_the_cut(path: Path, kind: str, share: float, packed: bool) -> None:
    """Not one row more, and each with its own time."""
    text = TEXTS[kind]
    cut = text[: int(share * len(text))]
    log = read(path, gzip.compress(cut.encode()) if packed else cut.encode())
    whole = [line for line in text.split("\n") if line.split()[:1] and line.split()[0] in set(map(str, SIZES))]
    before = sum(cut.count(f"{line}\n") for line in whole)
    if log is None:
        assert before == 0
        return
    era = ERAS.get(kind)
    wanted = [
        (size, made.printed_seconds(era, size) if era else float(f"{made.time_us(size):.2f}e-6")) for size in SIZES
    ]
    found = list(zip(log.measured[0].message_bytes, log.measured[0].seconds, strict=True))
    # The row that is cut may be whole for this place; the last digits of its last number may be missing then.
    assert before <= len(found) <= before + 1
    assert found[:before] == wanted[:before]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=3000))
def test_random_bytes(path: Path, content: bytes) -> None:
    for start in (
        b"",
        b"{",
        b"[{",
        b"\x1f\x8b",
        b"\xff\xfe",
        b"# nThread 1 nGpus 1\n",
        b'{"traceEvents": [',
        b'{"results": [',
    ):
        read(path, start + content)


@pytest.mark.parametrize(
    "text",
    [
        '{"results": ' + "[" * 100_000,
        '{"traceEvents": [' + '{"a":' * 100_000,
        '{"results": [' + "1" * 100_000 + "]}",
        '{"results": [{"size": ' + "9" * 5000 + ', "time": 1e999999}]}',
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": 1e999999999, "dur": 1}]}',
        '{"traceEvents": "none", "results": 3}',
        '{"results": [{"out_of_place": {"time": "inf"}, "size": 8}]}',
        '{"config": {"devices": [{"rank": 1e300}, 3, null], "ngpus": -1}, "results": [{"size": 8, "in_place": {}}]}',
        "# nThread " + "9" * 5000 + " nGpus 1\n     8  2  float  sum  -1  1e999999999  0.1  0.1  0",
        "#  Rank " + "9" * 30 + " on h device 0\n" * 3,
        "8 2 float " * 5000,
        "8 2 float sum -1 " + "1.0 " * 5000,
        "8 2 float sum -1\n" * 5000,
        "9999999999999999999 9999999999999999999 float sum -1 1.00 0.1 0.1 0 1.00 0.1 0.1 0",
        "# OSU MPI Allreduce Latency Test\n# Size   Avg Latency(us)\n8 1e999999\n9999999999999999999 5",
        "size,time,inPlace\n1,2\n\"\n,,,,\n8,nan,1",
    ],
)  # fmt: skip
def test_what_breaks_parsers(path: Path, text: str) -> None:
    read(path, text.encode())


@pytest.mark.parametrize("kind", ["long line", "messages", "rows", "spaces", "json"])
def test_memory_is_bounded(path: Path, kind: str) -> None:
    """2.5 MB of a log need no more than half a megabyte of the same."""
    rows = "\n".join(made.row(ERAS["2023"], "all_reduce", size, 16) for size in SIZES) + "\n"
    head = "\n".join(made.log(ERAS["2023"])) + "\n"
    message = "host1:4242:4243 [3] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7\n"

    def content(times: int) -> bytes:
        body = {
            "long line": lambda: "x" * (100_000 * times) + "\n",
            "messages": lambda: message * (1200 * times),
            "rows": lambda: rows.replace(" float ", " fl0at ") * (66 * times),
            "spaces": lambda: " " * (100_000 * times) + "8\n",
            "json": lambda: "",
        }[kind]()
        if kind == "json":
            entry = '"' + "e" * 1000 + '", '
            start = f'{{"start_time": "now", "env": [{entry * (100 * times)}"x"], '
            return (start + json.dumps(made.nccl_document())[1:]).encode()
        return (head + body).encode()

    peaks = []
    for times in (4, 25):
        path.write_bytes(content(times))
        tracemalloc.start()
        log = read_log(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(log.measured) == 2
    assert peaks[1] < peaks[0] + 20 * MAX_LINE


def test_damaged_gzip_that_leaves_nothing_is_said(tmp_path: Path) -> None:
    packed = gzip.compress(TEXTS["osu"].encode())
    (tmp_path / "a.log.gz").write_bytes(packed[:-8] + bytes(8))
    with pytest.raises(InputError, match="its gzip data are damaged, and nothing before is known as a measurement"):
        read_log(tmp_path / "a.log.gz")
