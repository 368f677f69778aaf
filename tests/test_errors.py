"""Errors say where, what and how to mend it, and survive the trip between processes."""

from __future__ import annotations

import pickle

import pytest

from simcollectives import errors
from simcollectives.errors import InputError, Problem, ScheduleError, SimcollectivesError, show_value


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
