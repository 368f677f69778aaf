"""What is wrong with text that is not YAML, in plain words with a remedy."""

import re
from collections.abc import Sequence

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from simcollectives.errors import Problem, show_value

_TOKENS = {
    "<stream end>": "the end of the file",
    "<block end>": "the end of the block",
    "<block mapping start>": "a key",
    "<block sequence start>": 'a list item "- "',
    "<scalar>": "a value",
    "<document start>": 'a line "---"',
    "<document end>": 'a line "..."',
    "?": "a key",
    "-": 'a list item "- "',
}


def syntax_problem(error: YAMLError, lines: Sequence[str], *, quoted: bool) -> Problem:
    """Return what a syntax error of the YAML reader means; `lines` are those of the file.

    With ``quoted`` the wrong line is shown; what never was a scenario is nobody's business.
    """
    if not isinstance(error, MarkedYAMLError):
        return Problem("$", "the file holds a character that YAML does not allow; take it out")
    mark = error.problem_mark or error.context_mark
    line = None if mark is None else min(mark.line, max(len(lines) - 1, 0)) + 1
    opened = None if error.context_mark is None else error.context_mark.line + 1
    problem, context = str(error.problem or ""), str(error.context or "")
    if opened is not None and "could not find expected ':'" in problem:
        line = opened  # the key began there, and may go on over several lines
    text = lines[line - 1] if line is not None and line <= len(lines) else ""
    if re.match(r" *\t", text) or "'\\t'" in problem:
        return Problem("$", "a tab cannot indent YAML; indent with spaces", line)
    shown = f"{show_value(text.strip())}: " if quoted else ""
    message = _flow(problem, context, opened) or _scalar(problem, context, opened) or _block(problem, context, shown)
    return Problem("$", message or f"{shown}this is not YAML; check the lines around it", line)


def _token(problem: str) -> str:
    found = re.search(r"(?:found|got) '(.*)'$", problem)
    token = found.group(1) if found else ""
    return _TOKENS.get(token, f'"{token}"') if token else "something else"


def _flow(problem: str, context: str, opened: int | None) -> str | None:
    """Brackets and braces."""
    for kind, first, last in (("sequence", "[", "]"), ("mapping", "{", "}")):
        if f"flow {kind}" not in context:
            continue
        if "stream end" in problem:
            return f'the "{first}" of line {opened} is never closed: is the file cut off? write the missing "{last}"'
        item = "an item" if first == "[" else "a value"
        where = f'after {item} within the "{first}" of line {opened}'
        return f'{where} comes "," or "{last}", not {_token(problem)}; write it'
    return None


def _scalar(problem: str, context: str, opened: int | None) -> str | None:
    """Quotes, escapes and characters that no value begins with."""
    if "unexpected end of stream" in problem or "unexpected document separator" in problem:
        return f"the quote opened in line {opened} is never closed: is the file cut off? write the missing quote"
    if "escape" in problem or "hexdecimal" in problem:
        found = re.search(r"found (?:unknown escape character )?(.*)$", problem)
        shown = f" (found {found.group(1)})" if found else ""
        rule = f"a backslash in double quotes begins an escape, and this is none{shown}"
        return f'{rule}; write "\\\\" or use single quotes'
    start = re.search(r"found character (.*) that cannot start any token", problem)
    if start:
        return f"a value cannot begin with {start.group(1)}; put it in quotes"
    if "block scalar" in context:
        return 'the lines after "|" or ">" must be indented alike, and nothing else may stand beside the sign'
    if "tag" in context or "anchor" in context or "alias" in context:
        return 'a value that begins with "!", "&" or "*" must stand in quotes'
    return None


def _block(problem: str, context: str, shown: str) -> str | None:
    """Indentation, colons and documents."""
    if "could not find expected ':'" in problem:
        return f'{shown}a key needs a colon and a space after it; write "key: value"'
    if "mapping values are not allowed" in problem or "found unexpected ':'" in problem:
        return f"{shown}the colon cannot stand here; put the text in quotes, or indent the line as its neighbours are"
    if "sequence entries are not allowed" in problem:
        return f'{shown}a list item "- " begins a line of its own; move it there, or write [item, item]'
    if "mapping keys are not allowed" in problem:
        return f'{shown}the "?" cannot stand here; put the text in quotes'
    if "directive" in context or "directive" in problem or "incompatible" in problem:
        return f'{shown}a line that begins with "%" is a YAML directive; leave it out'
    if "document" in problem:
        return f"{shown}nothing may stand here; keep one scenario in a file"
    if "expected the node content" in problem:
        return f"{shown}a value is missing before {_token(problem)}; write it"
    if "expected <block end>" in problem:
        if re.search(r"found '[\]}]'", problem):
            return f"{shown}{_token(problem)} closes what was never opened; take it out, or write the opening one"
        return f"{shown}{_token(problem)} is not indented as the lines before it; align them"
    return None
