"""What launchers and loggers write before a line: labels of ranks, and time stamps."""

import re

_LABEL = re.compile(r"^\s*(\[[0-9]+,[0-9]+\](?:<\w+>)?|[0-9]{1,6}(?=:[\s#]))(?::? ?|: ?)")
_TIME_STAMP = re.compile(
    r"^\s*\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]{8} [0-9]{4}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9:.,]+(?:Z|[+-][0-9:]+)?)\]?(?:<\w+>)?:? ?"
)


def label(text: str) -> str:
    """The rank that a launcher wrote before a line; empty where it wrote none.

    >>> label("[1,0]<stdout>:   8"), label(" 3: 8"), label("  8  2  float")
    ('[1,0]<stdout>', '3', '')
    """
    stamp = _TIME_STAMP.match(text)
    found = _LABEL.match(text[stamp.end() :] if stamp else text)
    return found.group(1) if found else ""


def without_prefix(text: str) -> str:
    """A line without rank labels and time stamps before it; further blanks stay.

    >>> without_prefix("2024-07-18T15:41:05.123Z  0:  # size")
    ' # size'
    """
    for _ in range(3):
        found = _TIME_STAMP.match(text) or _LABEL.match(text)
        if found is None:
            break
        text = text[found.end() :]
    return text
