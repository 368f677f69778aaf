"""Reading a scenario file as text, refusing whatever cannot be one before it costs time or memory."""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from simcollectives.errors import InputError, Problem, listing, show_value

MAX_FILE_BYTES = 1 << 20
"""A larger file is refused before it is read."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_OTHER_ENCODINGS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def read_source(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, without its byte order mark.

    Raises:
        InputError: there is no such file, it is a folder or a device, over 1 MiB, binary, or not UTF-8.
    """
    given: object = path
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{show_value(path)} is not the name of a file; write the path of a scenario, as text")
    name = os.fspath(path)
    return decode(_read_bytes(name), name)


def decode(content: bytes, source: str) -> str:
    """Return bytes as text.

    Raises:
        InputError: the bytes are not UTF-8, or hold characters that no text has.
    """
    for mark, encoding in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise _refusal(f"the file is {encoding} text; save it as UTF-8", source)
    zero = content.find(b"\0")
    if zero >= 0:
        line = content.count(b"\n", 0, zero) + 1
        raise _refusal("byte 0x00: this is a binary file; a scenario is YAML text, saved as UTF-8", source, line)
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{content[error.start]:02x} at line {line} is not UTF-8: save the file as UTF-8"
        raise _refusal(message, source, line) from None
    control = _CONTROL.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        message = f"the control character U+{ord(control.group()):04X} cannot stand in a YAML file; take it out"
        raise _refusal(message, source, line)
    return text


def _refusal(message: str, source: str, line: int | None = None) -> InputError:
    return InputError([Problem("", message, line)], source)


def _read_bytes(name: str) -> bytes:
    try:
        _check_kind(os.stat(name), name)
        # Should a pipe take the file's place now, opening it must not wait for a writer.
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as stream:
            _check_kind(os.fstat(descriptor), name)
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _refusal(_explain(error, name), name) from None
    if len(content) > MAX_FILE_BYTES:
        raise _refusal(_too_large(f"more than {MAX_FILE_BYTES}"), name)
    return content


def _check_kind(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        inside = sorted(entry.name for entry in Path(name).iterdir() if entry.suffix in (".yaml", ".yml"))
        has = f"it has {listing(inside, 5)}" if inside else "it has none"
        raise _refusal(f"this is a folder; name a scenario file (.yaml) in it: {has}", name)
    if not stat.S_ISREG(status.st_mode):
        raise _refusal("this is a device or a pipe, not a file; save the scenario as a file first", name)
    if status.st_size > MAX_FILE_BYTES:
        raise _refusal(_too_large(str(status.st_size)), name)


def _too_large(size: str) -> str:
    return f"{size} bytes; a scenario file has at most {MAX_FILE_BYTES} (1 MiB): is this the right file?"


def _explain(error: OSError | ValueError, name: str) -> str:
    if isinstance(error, FileNotFoundError):
        folder = Path(name).parent
        where = "" if folder.is_dir() else f" (nor a folder {show_value(str(folder))})"
        return f"there is no such file{where}; check the path"
    if isinstance(error, PermissionError):
        return "the file may not be read; change its permissions"
    if "\0" in name:
        return "a file's name holds no zero byte; check the path"
    reason = getattr(error, "strerror", None) or str(error)
    return f"the file cannot be read ({reason}); check the path"


def scenario_files(paths: Sequence[Path]) -> list[Path]:
    """Return files as given, and of folders the YAML files below them.

    Raises:
        InputError: a folder has none.
    """
    found: list[Path] = []
    problems: list[Problem] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(file for suffix in ("*.yaml", "*.yml") for file in path.rglob(suffix) if file.is_file())
        found += inside
        if not inside:
            problems.append(Problem(str(path), "this folder has no scenario files (*.yaml); give a file or a folder"))
    if problems:
        raise InputError(problems)
    return found
