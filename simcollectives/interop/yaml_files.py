"""YAML files of other tools, read as PyYAML reads them: YAML 1.1, where ``no`` is false and ``1e5`` is a text."""

import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from simcollectives.errors import InputError, Problem, show_value

MAX_CHARACTERS = 1 << 16
MAX_DEPTH = 20

_BOOL = re.compile(r"(?P<true>yes|Yes|YES|true|True|TRUE|on|On|ON)|no|No|NO|false|False|FALSE|off|Off|OFF")
_NULL = re.compile(r"null|Null|NULL|~|")
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]{0,300})")
_FLOAT = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?")
_TAGS = {
    f"tag:yaml.org,2002:{name}"
    for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
}


def parse_mapping(text: str, source: str) -> dict[str, Any]:
    """Return the mapping in YAML text; ``source`` names it in errors.

    Raises:
        InputError: it has more than 65,536 characters, is not YAML or no mapping, a key is there twice, or there are
            aliases or tags.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"more than {MAX_CHARACTERS} characters of YAML: is it the right file?", source)
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        data = None if node is None else _value(node, "$", set(), 0)
    except MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        what = error.problem or error.context
        raise InputError([Problem("", f"this is not YAML: {what}; mend it", line)], source) from None
    except InputError as error:
        raise InputError(error.problems, source) from None
    except (YAMLError, ValueError, OverflowError, RecursionError):
        raise InputError(
            "this is not YAML: it is nested too deeply or has a wrong character; mend it", source
        ) from None
    if not isinstance(data, dict):
        raise InputError([Problem("$", f"the file holds {show_value(data)}; it must hold keys with values")], source)
    return data


def _value(node: Node, place: str, seen: set[int], depth: int) -> Any:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise InputError([Problem(place, "an alias stands here; write the value out", line)])
    seen.add(id(node))
    if depth > MAX_DEPTH:
        raise InputError([Problem(place, f"nested more than {MAX_DEPTH} deep; is it the right file?", line)])
    if str(node.tag) not in _TAGS:
        raise InputError([Problem(place, f"the tag {show_value(str(node.tag))} is not read; take it out", line)])
    if isinstance(node, ScalarNode):
        return _scalar(node.value) if node.style is None else node.value
    if isinstance(node, SequenceNode):
        return [_value(item, f"{place}[{index}]", seen, depth + 1) for index, item in enumerate(node.value)]
    if not isinstance(node, MappingNode):
        raise InputError([Problem(place, "this is no value; write one", line)])
    return _mapping(node, place, seen, depth)


def _mapping(node: MappingNode, place: str, seen: set[int], depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode):
            raise InputError([Problem(place, "a key must be a text", line)])
        key = str(key_node.value)
        if key in found:
            raise InputError([Problem(f"{place}.{key}", "the key is there twice; keep one", line)])
        found[key] = _value(value_node, f"{place}.{key}", seen, depth + 1)
    return found


def _scalar(text: str) -> Any:
    """What a scalar without quotes means to PyYAML; times, and numbers in other bases, stay text."""
    if _NULL.fullmatch(text):
        return None
    if match := _BOOL.fullmatch(text):
        return match["true"] is not None
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    return float(text.replace("_", "")) if _FLOAT.fullmatch(text) else text
