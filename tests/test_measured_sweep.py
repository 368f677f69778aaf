"""Measured sweeps: the shipped ones hold what their sources say; no file is read wrongly or answered by a traceback."""

import csv
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.measured import PLACES, SHIPPED, load_sweep, restrict
from simcollectives.measured.sweep import MAX_FILE_BYTES, load_all
from simcollectives.measured.table import PROBLEM_LIMIT

HEADER = "set,size_bytes,time_us,algbw_GBps,busbw_GBps,place\n"
SETS_HEADER = "name,gpu,n_gpus,n_nodes,intra_link,nic,nccl_version,collective,algo,source,caveats\n"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a timings file, and a sets.csv beside it where one is given."""

    def write(timings: str | bytes, sets: str | None = None) -> Path:
        path = tmp_path / "timings.csv"
        path.write_bytes(timings if isinstance(timings, bytes) else timings.encode())
        if sets is not None:
            (tmp_path / "sets.csv").write_text(sets, encoding="utf-8")
        return path

    return write


def failure(path: str | os.PathLike[str], set_name: str | None = None, place: str = "out") -> str:
    with pytest.raises(InputError) as raised:
        load_sweep(path, set_name, place)
    return str(raised.value)


# Times and sizes as printed by the source of each set, in microseconds and bytes.
@pytest.mark.parametrize(
    ("name", "place", "size", "time_us"),
    [
        ("h100_1n8_aws_p5_allreduce_auto", "out", 8, 12.9),
        ("h100_1n8_aws_p5_allreduce_auto", "out", 1048576, 28.56),
        ("h100_1n8_aws_p5_allreduce_auto", "out", 17179869184, 62239.0),
        ("h100_1n8_aws_p5_allreduce_auto", "in", 17179869184, 62200.0),
        ("aic_h100_sxm_1n8_all_gather", "out", 512, 10.14),
        ("aic_h100_sxm_1n8_all_gather", "out", 1048576, 17.13),
        ("aic_h100_sxm_1n8_all_gather", "out", 536870912, 1401.5),
        ("mn5_h100_4n4_allreduce_ring", "out", 256, 42.177),
        ("mn5_h100_4n4_allreduce_ring", "out", 1048576, 136.518),
        ("mn5_h100_4n4_allreduce_ring", "out", 536870912, 11325.7215),
    ],
)
def test_shipped_times_are_the_sources(name: str, place: str, size: int, time_us: float) -> None:
    sweep = load_sweep(name, place=place)
    assert sweep.seconds[sweep.message_bytes.index(size)] == float(f"{time_us}e-6")


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("h100_1n8_aws_p5_allreduce_auto", ("all_reduce", 8, 1, 32), "aws-samples/awsome-distributed-training"),
        ("aic_h100_sxm_1n8_all_gather", ("all_gather", 8, 1, 21), "ai-dynamo/aiconfigurator (Apache-2.0)"),
        ("mn5_h100_4n4_allreduce_ring", ("all_reduce", 16, 4, 9), "HLC-Lab/pico"),
    ],
)
def test_shipped_sets_say_what_they_are(name: str, facts: tuple[str, int, int, int], words: str) -> None:
    sweep = load_sweep(name)
    assert (sweep.collective, sweep.world_size, sweep.nodes, len(sweep.message_bytes)) == facts
    assert len(sweep.message_bytes) == len(sweep.seconds)
    assert words in sweep.source
    assert sweep.algorithm
    assert sweep.caveats
    assert sweep.dropped == ()


def test_shipped_names_are_the_data_files_names() -> None:
    data = resources.files("simcollectives.measured") / "data"
    for file, column in (("sets.csv", "name"), ("timings.csv", "set")):
        with (data / file).open(encoding="utf-8") as stream:
            assert tuple(dict.fromkeys(row[column] for row in csv.DictReader(stream))) == SHIPPED


def test_every_shipped_set_says_what_it_is_and_loads() -> None:
    for name in SHIPPED:
        sweep = load_sweep(name)
        assert sweep.collective is not None
        assert sweep.world_size is not None
        assert sweep.source
        assert sweep.algorithm
        assert len(sweep.message_bytes) >= 3
        assert sweep.dropped == ()


def test_a_file_needs_four_columns_in_any_order(write: Write) -> None:
    path = write('\ufeffplace,comment,time_us,size_bytes,set\nout,first,2.5,16,a\n\nout,"x, y",1.5,8,a\n')
    sweep = load_sweep(path)
    assert (sweep.name, sweep.message_bytes, sweep.seconds) == ("a", (8, 16), (1.5e-6, 2.5e-6))
    assert (sweep.collective, sweep.world_size, sweep.nodes, sweep.source) == (None, None, None, "")


def test_equal_sizes_are_kept_and_sorted(write: Write) -> None:
    sweep = load_sweep(write(HEADER + "a,16,3,,,out\na,8,9,,,out\na,16,2,,,out\n"))
    assert sweep.message_bytes == (8, 16, 16)
    assert sweep.seconds == (9e-6, 2e-6, 3e-6)


def test_size_zero_is_left_out_and_counted(write: Write) -> None:
    sweep = load_sweep(write(HEADER + "a,0,3,,,out\na,8,9,,,out\na,0,2,,,out\na,0,2,,,in\n"))
    assert sweep.message_bytes == (8,)
    (told,) = sweep.dropped
    assert "2 rows of size 0" in told
    assert "line 2, 4" in told


def test_sets_file_beside_is_read_and_its_spelling_translated(write: Write) -> None:
    sets = SETS_HEADER + 'b,,4,,,,,broadcast,,,\na,GPU,8,2,NVLink,"2 NICs",2.30,alltoall,auto,a report,none\n'
    sweep = load_sweep(write(HEADER + "a,8,9,,,in\n", sets), place="in")
    assert (sweep.collective, sweep.world_size, sweep.nodes, sweep.place) == ("all_to_all", 8, 2, "in")
    assert (sweep.gpu, sweep.intra_link, sweep.nic, sweep.nccl_version) == ("GPU", "NVLink", "2 NICs", "2.30")
    assert (sweep.algorithm, sweep.source, sweep.caveats) == ("auto", "a report", "none")


def test_one_of_several_sets_must_be_named(write: Write) -> None:
    path = write(HEADER + "ring_a,8,1,,,out\nring_b,8,2,,,out\n")
    assert "holds 2 sets; name one of them: ring_a, ring_b" in failure(path)
    assert load_sweep(str(path), "ring_b").seconds == (2e-6,)
    assert 'no set "ringb" in the file; did you mean "ring_b"' in failure(path, "ringb")


def test_a_file_in_the_folder_of_the_run_needs_no_slash(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(HEADER + "a,8,1,,,out\n")
    path.rename(path.with_name("mine"))
    monkeypatch.chdir(path.parent)
    assert load_sweep("mine").name == "a"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["the file is empty", "set,size_bytes,time_us,place"]),
        (HEADER, ["no line below the header"]),
        ("set,size,time_us,place\na,8,1,out\n", ['names no "size_bytes"', 'rename "size" to "size_bytes"']),
        ("a;b\n1;2\n", ['the first line names no "set", "size_bytes", "time_us", "place"', "is this the right file?"]),
        ("set,set,size_bytes,time_us,place\na,a,8,1,out\n", ['column "set" stands more than once']),
        (HEADER + "a,8,fast,,,out\n", ['time_us (line 2): "fast" is no time']),
        (HEADER + "a,8,nan,,,out\n", ['time_us (line 2): "nan"']),
        (HEADER + "a,8,inf,,,out\n", ['time_us (line 2): "inf"']),
        (HEADER + "a,8,0,,,out\n", ['time_us (line 2): "0"', "write a positive number such as 12.9"]),
        (HEADER + "a,8,-1,,,out\n", ['time_us (line 2): "-1"']),
        (HEADER + "a,8,1e-300,,,out\n", ['time_us (line 2): "1e-300"']),
        (HEADER + 'a,8,"12,9",,,out\n', ['time_us (line 2): "12,9"']),
        (HEADER + "a,8,,,,out\n", ['time_us (line 2): ""']),
        (HEADER + "a,-8,1,,,out\n", ['size_bytes (line 2): "-8" is no whole number']),
        (HEADER + "a,8.5,1,,,out\n", ['size_bytes (line 2): "8.5"']),
        (HEADER + "a,8 KiB,1,,,out\n", ['size_bytes (line 2): "8 KiB"']),
        (HEADER + f"a,{'9' * 5000},1,,,out\n", ["size_bytes (line 2)"]),
        (HEADER + "a,8,1,,,sideways\n", ['place (line 2): "sideways" is no place; write out or in']),
        (HEADER + ",8,1,,,out\n", ["set (line 2): empty"]),
        (HEADER + "a,8,1,out\n", ["line 2: 4 cells where the header names 6 columns"]),
        (HEADER + 'a,8,1,,,"out\n', ["line 2: not a comma-separated table"]),
        (HEADER + "a,0,1,,,out\n", ['every line of set "a" has size 0']),
        (HEADER + "a,8,1,,,in\n", ['set "a" has no line with place "out"; take place "in"']),
        (b"\x7fELF\0\0", ["line 1: a binary file"]),
        (HEADER.encode() + b"caf\xe9,8,1,,,out\n", ["line 2: byte 0xe9 is not UTF-8"]),
        (HEADER + "a,8,1,,,out\n" + "x" * 200_000 + "\n", ["line 3: not a comma-separated table"]),
    ],
)
def test_bad_files_say_line_value_rule_and_remedy(write: Write, text: str | bytes, parts: list[str]) -> None:
    path = write(text)
    message = failure(path)
    for part in parts:
        assert part in message
    assert all(line.startswith(f"{path}: ") for line in message.splitlines())


def test_all_errors_come_at_once(write: Write) -> None:
    timings = HEADER + "a,8,1,,,out\n,x,-1,,,up\na,8\na,16,0,,,out\n"
    with pytest.raises(InputError) as raised:
        load_sweep(write(timings, SETS_HEADER + "a,,zero,,,,,all_reduces,,,\n"))
    places = [(problem.place, problem.line) for problem in raised.value.problems]
    assert places == [
        ("set", 3),
        ("place", 3),
        ("size_bytes", 3),
        ("time_us", 3),
        ("", 4),
        ("time_us", 5),
        ("sets.csv collective", 2),
        ("sets.csv n_gpus", 2),
    ]


def test_reading_stops_where_nothing_is_right(write: Write) -> None:
    with pytest.raises(InputError) as raised:
        load_sweep(write(HEADER + "a,8,no,,,out\n" * 10_000))
    assert len(raised.value.problems) == PROBLEM_LIMIT + 1
    assert "reading stopped" in raised.value.problems[-1].message


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        ("name,n_gpus\na,8\n", 'sets.csv (line 1): "name", "n_gpus" names no "collective"'),
        (SETS_HEADER + "b,,8,,,,,all_reduce,,,\n", 'sets.csv: no line for set "a"'),
        (SETS_HEADER + "a,,8,,,,,all_reduce,,,\n" * 2, "sets.csv: 2 lines (line 2, 3) for set"),
        (SETS_HEADER + "a,,0,,,,,all_reduce,,,\n", 'sets.csv n_gpus (line 2): "0" is no whole number from 1'),
        (SETS_HEADER + "a,,8,-1,,,,all_reduce,,,\n", 'sets.csv n_nodes (line 2): "-1" is no whole number from 1'),
        (SETS_HEADER + "a,,8,,,,,all_reduse,,,\n", 'no collective; did you mean "all_reduce"'),
        ("", "sets.csv: the file is empty"),
    ],
)
def test_bad_sets_files(write: Write, sets: str, part: str) -> None:
    assert part in failure(write(HEADER + "a,8,1,,,out\n", sets))


def test_a_bad_sets_file_is_told_once_for_all_sets(write: Write) -> None:
    with pytest.raises(InputError) as raised:
        load_all(write(HEADER + "a,8,1,,,out\nb,8,1,,,out\n", "name,n_gpus\na,8\nb,8\n"))
    assert len(raised.value.problems) == 1


def test_no_file_to_read(tmp_path: Path) -> None:
    assert "this is a folder" in failure(tmp_path)
    assert "there is no such file" in failure(tmp_path / "nothing.csv")
    assert "there is no such file" in failure("nothing.csv")
    assert "there is no such file" in failure("zero\0byte.csv")
    assert "cannot be read" in failure("long/" + "x" * 5000 + ".csv")
    assert "no regular file" in failure("/dev/null")


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    assert f"{MAX_FILE_BYTES + 1} bytes are more than" in failure(path)


@pytest.mark.parametrize(
    ("name", "set_name", "place", "part"),
    [
        ("mn5_h100_allreduce_ring", None, "out", 'did you mean "mn5_h100_4n4_allreduce_ring"'),
        ("qqq", None, "out", "such as h100_1n8_aws_p5_allreduce_auto"),
        (SHIPPED[0], "other", "out", 'holds no "other"; leave `set` out'),
        (SHIPPED[1], None, "in", 'has no line with place "in"; take place "out"'),
        (SHIPPED[0], None, "inside", '"inside" is no place; write out or in'),
    ],
)
def test_wrong_names(name: str, set_name: str | None, place: str, part: str) -> None:
    assert part in failure(name, set_name, place)


def test_restrict_keeps_a_range_and_says_so() -> None:
    sweep = load_sweep("mn5_h100_4n4_allreduce_ring")
    part = restrict(sweep, 16384, 1048576)
    assert part.message_bytes == (16384, 131072, 1048576)
    assert part.seconds == sweep.seconds[2:5]
    assert part.dropped == ("6 of 9 points left out: only messages from 16 KiB to 1 MiB were asked for",)
    assert restrict(sweep) is sweep
    assert restrict(sweep, max_bytes=2048).message_bytes == (256, 2048)
    with pytest.raises(InputError, match="no message from 1 GiB to any size; it has 256 B to 512 MiB"):
        restrict(sweep, min_bytes=2**30)


LINES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", '"', "é"]),
        st.sampled_from(["0", "8", "1024", "x", "-1", "", "9" * 30]),
        st.sampled_from(["1", "2.5", "nan", "0", "1e400", "", "-3", "1e-9"]),
        st.sampled_from(["out", "in", "up", ""]),
    ).map(",".join)
)


@given(
    timings=st.one_of(
        st.binary(), LINES.map(lambda lines: "\n".join(["set,size_bytes,time_us,place", *lines]).encode())
    ),
    sets=st.one_of(st.none(), st.binary(), st.just(b"name,n_gpus,collective\na,8,all_reduce\n")),
)
def test_any_bytes_are_a_sweep_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, timings: bytes, sets: bytes | None
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "timings.csv"
    path.write_bytes(timings)
    if sets is not None:
        path.with_name("sets.csv").write_bytes(sets)
    for place in PLACES:
        try:
            sweep = load_sweep(path, place=place)
        except InputError:
            continue
        assert sweep.message_bytes == tuple(sorted(sweep.message_bytes))
        assert min(sweep.message_bytes) > 0
        assert min(sweep.seconds) > 0
