# ruff: noqa: E501  (a scenario and its problems each stand on one line)
from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.scenario.yaml_text import MAX_PROBLEMS, parse_document, resolve_scalar
from tests.work import counted_calls


def problems(text: str) -> list[str]:
    try:
        return [str(problem) for problem in parse_document(text, "x.yaml").problems]
    except InputError as error:
        return [str(problem) for problem in error.problems]


def test_lines_are_those_of_keys_and_items() -> None:
    document = parse_document("a:\n  b: 1\n\n  c:\n    - x\n    - {d: 2}\n", "x.yaml")
    assert document.data == {"a": {"b": 1, "c": ["x", {"d": 2}]}}
    lines = {("a",): 1, ("a", "b"): 2, ("a", "c"): 4, ("a", "c", 0): 5, ("a", "c", 1): 6, ("a", "c", 1, "d"): 6}
    assert {path: document.lines[path] for path in lines} == lines
    assert document.line(("a", "c", 7, "e")) == 4  # of what it would stand in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9),
        ("1E+3", 1000.0),
        ("+12", 12),
        ("-7", -7),
        (".5", 0.5),
        ("1.", 1.0),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("0b101", "0b101"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("5 us", "5 us"),
    ],
)
def test_scalars_are_those_of_the_core_schema(text: str, value: object) -> None:
    found = resolve_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".nan", ".inf", "-.INF", "1e999", "9" * 401])
def test_numbers_that_are_refused(text: str) -> None:
    assert problems(f"a: 1\nb: {text}")[0].startswith("$.b (line 2): ")


def test_quoted_scalars_are_text() -> None:
    assert parse_document("a: '1e9'\nb: \"on\"\nc: |\n  1\n", "x").data == {"a": "1e9", "b": "on", "c": "1\n"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", '$: the file is empty; a scenario is a mapping such as "title: Ring on 8 GPUs"'),
        ("# only a comment\n", '$: the file is empty; a scenario is a mapping such as "title: Ring on 8 GPUs"'),
        ("- a\n- b", '$ (line 1): the file holds a list; a scenario is a mapping such as "title: Ring on 8 GPUs"'),
        ("a: [1, 2", '$ (line 1): the "[" of line 1 is never closed: is the file cut off? write the missing "]"'),
        ("a:\n  b: {c: 1", '$ (line 2): the "{" of line 2 is never closed: is the file cut off? write the missing "}"'),
        ("a: 1\nb: 'x", "$ (line 2): the quote opened in line 2 is never closed: is the file cut off? write the missing quote"),
        ("a:\n\tb: 1", "$ (line 2): a tab cannot indent YAML; indent with spaces"),
        ("a: @x", "$ (line 1): a value cannot begin with '@'; put it in quotes"),
        ("a: 1}", None),
        ("a: 1\n}", '$ (line 2): "}": "}" closes what was never opened; take it out, or write the opening one'),
        ("a:\n  b: 1\n c: 2", '$ (line 3): "c: 2": a key is not indented as the lines before it; align them'),
        ("a: 1\nb\nc: 2", '$ (line 2): "b": a key needs a colon and a space after it; write "key: value"'),
        ("a: 1\n---\nb: 2", "$ (line 2): a second document begins here; keep one scenario in a file"),
        ("%YAML 1.1\n---\na: 1", '$ (line 2): only YAML 1.2 is read; leave the "%YAML" line out'),
        ("a: \"\\q\"", "$ (line 1): a backslash in double quotes begins an escape, and this is none (found 'q'); "),
        ("a: \"\\UFFFFFFFF\"", "$: an escape in quotes is no character; mend it"),
        ("a: \"\\e[31m\"", "$.a (line 1): the character U+001B cannot stand in a text; take it out"),
        ("a: \"\\ud800\"", "$.a (line 1): the character U+D800 cannot stand in a text; take it out"),
        ("a: !!int 1", '$.a (line 1): the tag "tag:yaml.org,2002:int" is not allowed; leave it out'),
        ("<<: {a: 1}", '$ (line 1): the merge key "<<" is not allowed; write the keys out'),
        ("1: a", "$ (line 1): a key must be text, and 1 is not; put it in quotes"),
        ("[a, b]: c", '$ (line 1): a key must be text; write "key: value"'),
        (": c", "$ (line 1): a key is missing before the colon; write it"),
    ],
)  # fmt: skip
def test_every_problem_is_told_in_plain_words(text: str, message: str | None) -> None:
    found = problems(text)
    if message is None:
        assert found == []
    else:
        assert found[0][: len(message)] == message


def test_duplicate_keys_are_all_reported_with_both_lines() -> None:
    assert problems("a: 1\nb: {c: 1, c: 2}\na: 2\na: 3") == [
        "$.b.c (line 2): the key stands twice in line 2; keep one",
        "$.a (line 3): the key stands in line 1 and again in line 3; keep one",
        "$.a (line 4): the key stands in line 1 and again in line 4; keep one",
    ]


def test_aliases_are_refused_before_they_expand() -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in itertools.pairwise("abcdefghi")
    )
    found = problems(bomb)
    assert found[0] == "$.a (line 1): the anchor &a is not allowed; leave it out"
    assert found[2] == "$.b[0] (line 2): the alias *a is not allowed; write the value out"


def test_a_value_that_is_wrong_is_marked_and_not_its_neighbours() -> None:
    document = parse_document("a: &x 1\nb: *x\nc: .nan\nd: 2", "x")
    assert document.unusable == {("b",), ("c",)}
    assert document.data["d"] == 2


def hostile() -> Iterator[tuple[str, str]]:
    n, m = 1_040_000, 290_000
    yield "comments", "# x\n" * (n // 4)
    yield "blank lines", "\n" * n
    yield "one word", "a: " + "x" * n
    yield "words", "a: " + "x " * (n // 2)
    yield "lines of text", "a:\n" + " x\n" * (n // 3)
    yield "lines of words", "a:\n" + " x y\n" * 29_000
    yield "nested lists", "a: " + "[" * 49_000
    yield "nested items", "- " * 24_000
    yield "tags", ("- !" + "a" * 49_000 + " x\n") * (m // 49_000)
    yield "keys", "".join(f"a{i}: 1\n" for i in range(29_000))
    yield "duplicates", "a: 1\n" * 29_000
    yield "aliases", "- *a\n" * 29_000
    yield "values", "a: [" + "1, " * 11_900 + "1]"
    yield "spaces", "a: |\n" + (" " * 1000 + "\n") * 290
    yield "commented block", "a: |\n" + (" #" + "x" * 1000 + "\n") * (n // 1003)
    yield "long keys", ('"' + "k" * 1000 + '": 1\n') * (m // 1006)
    yield "digits", ("- " + "1" * 49_000 + "\n") * (m // 49_003)
    yield "open quote", 'a: "' + "\n" * 29_000
    yield "escapes", 'a: "' + ("\\x41" * 12_000 + "\\\n") * (m // 48_001) + '"'


@pytest.mark.parametrize(("name", "text"), [pytest.param(*case, id=case[0]) for case in hostile()])
def test_no_file_under_1_mib_is_much_work(name: str, text: str) -> None:
    """Within its bounds no file takes more than a few calls for each byte of 1 MiB."""
    assert len(text) <= 1 << 20
    with counted_calls() as calls:
        found = problems(text)
    assert calls.count < 5 << 20
    assert len(found) <= MAX_PROBLEMS + 1


@given(st.text(alphabet="ab:-?[]{},&*!|>'\"#%@`\\ \n\t0.e~<", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert all(problems(text))


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("root:x:0:0:/root\ndaemon:x:1:1:/bin\n", "$ (line 1): the file holds only a text; write a space after the colon; "),
        ("KEY=hunter2\nTOKEN: hunter2\n", "$ (line 2): the colon cannot stand here; "),
        ("hunter2", "$ (line 1): the file holds only a text; a scenario is"),
        ("[hunter2]\nx=1\n", "$ (line 2): nothing may stand here; "),
        ("12345", "$ (line 1): the file holds only one value; "),
        ("%hunter2\n", "$ (line 1): "),
        ("- hunter2: x: y\n", "$ (line 1): "),
    ],
)  # fmt: skip
def test_content_of_what_is_no_mapping_is_not_shown(text: str, beginning: str) -> None:
    (found,) = problems(text)
    assert found.startswith(beginning)
    assert "hunter2" not in found
    assert "root" not in found
    assert "12345" not in found
