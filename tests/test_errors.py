"""Errors say where, what and how to mend it, and survive the trip between processes."""

from __future__ import annotations

import pickle

import pytest

from simcollectives import errors
from simcollectives.errors import (
    AlgorithmError,
    Gathered,
    InputError,
    Problem,
    ScheduleError,
    SimcollectivesError,
    UnitError,
    listing,
    nearest,
    show_value,
    suggestion,
)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("$.a", "is wrong", 2), "$.a (line 2): is wrong"),
        (Problem("$.a", "is wrong"), "$.a: is wrong"),
        (Problem("", "is wrong", 2), "line 2: is wrong"),
        (Problem("", "is wrong"), "is wrong"),
    ],
)
def test_a_problem_leaves_out_what_is_not_known(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_input_error_prints_one_problem_a_line_after_its_source() -> None:
    problems = [Problem("$.a", "is wrong", 2), Problem("$.b", "is missing")]
    assert str(InputError(problems)) == "$.a (line 2): is wrong\n$.b: is missing"
    assert str(InputError(problems, "x.yaml")) == "x.yaml: $.a (line 2): is wrong\nx.yaml: $.b: is missing"
    assert InputError(problems).problems == tuple(problems)


def test_a_bare_message_is_one_problem_without_a_place() -> None:
    error = InputError("is wrong", source="x.yaml")
    assert error.problems == (Problem("", "is wrong"),)
    assert str(error) == "x.yaml: is wrong"
    assert str(InputError("is wrong")) == "is wrong"


def test_an_input_error_without_problems_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        InputError([])


@pytest.mark.parametrize("name", ["InputError", "UnitError", "ClusterError", "AlgorithmError", "NoClosedFormError"])
def test_bad_input_is_one_branch_and_survives_pickling(name: str) -> None:
    error = getattr(errors, name)([Problem("$.a", "is wrong", 2)], "x.yaml")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(error, InputError)
    assert type(copy) is type(error)
    assert (str(copy), copy.problems, copy.source) == (str(error), error.problems, "x.yaml")


def test_a_wrong_schedule_is_no_bad_input() -> None:
    assert issubclass(ScheduleError, SimcollectivesError)
    assert not issubclass(ScheduleError, InputError)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (450, "450"),
        (450.0, "450"),
        (0.5, "0.5"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (None, "null"),
        (False, "false"),
        ("450 GBs", '"450 GBs"'),
        ("", '""'),
        ("a\nb\x1b[31m\u202e", '"a\\nb\\x1b[31m\\u202e"'),
    ],
)
def test_values_are_shown_as_they_were_written(value: object, shown: str) -> None:
    assert show_value(value) == shown


HUGE = {
    "text": "x" * 10**7,
    "control": "\0" * 10**6,
    "number": 10**5000,
    "list": list(range(10**5)),
    "mapping": {"a": "b" * 10**6},
    "nested": [[[[[10**5000]]]]],
    "numbers": [10**5000],
}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
def test_huge_values_are_cut_to_one_short_line(value: object) -> None:
    shown = show_value(value)
    assert len(shown) < 300
    assert "\n" not in shown


def test_a_very_long_file_name_shows_its_end_and_what_does_not_print_is_escaped() -> None:
    text = str(InputError("is wrong", "/".join(["x" * 50] * 20) + "/ring.yaml"))
    assert text.startswith("...x")
    assert text.endswith("x/ring.yaml: is wrong")
    assert len(text) < 220
    assert str(InputError("is wrong", "a\0b\n.yaml")) == "a\\x00b\\n.yaml: is wrong"


def test_the_nearest_word_is_found_whatever_the_case_and_the_dashes() -> None:
    assert nearest("DGX_H10", ["dgx-h100", "dgx-2"]) == "dgx-h100"
    assert nearest("mB", ["MB", "Mb"], fold=False, likeness=0.5) == "MB"
    assert nearest(5, ["5"]) is None
    assert nearest("x" * 10**6, ["x"]) is None
    assert nearest("c", (name for name in "abc")) == "c"


def test_a_long_list_is_cut_and_its_names_print_on_one_line() -> None:
    assert listing(["a\nb", "c" * 100]) == f"a\\nb, {'c' * 60}..."
    assert suggestion("zzz", [f"n{i}" for i in range(30)], "it has").endswith("n23 and 6 more")
    assert suggestion("zzz", []) == "known: none"


def test_errors_of_one_input_are_raised_together() -> None:
    def fail(kind: type[InputError], text: str) -> int:
        raise kind([Problem("place", text)])

    gathered = Gathered()
    assert gathered.take(lambda: 3) == 3
    gathered.finish()
    assert gathered.take(lambda: fail(UnitError, "one")) is None
    assert gathered.take(lambda: fail(UnitError, "two")) is None
    with pytest.raises(UnitError, match=r"place: one\nplace: two"):
        gathered.finish()
    gathered.take(lambda: fail(AlgorithmError, "three"))
    with pytest.raises(InputError) as error:
        gathered.finish()
    assert type(error.value) is InputError
    assert len(error.value.problems) == 3
