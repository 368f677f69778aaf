"""JSON of any length, one member or element at a time: of objects their members, of arrays in them their elements.

Nothing but one value at a time is held. Several documents may follow one another, as in JSON lines.
"""

import json
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

MAX_VALUE = 1 << 24
"""Characters of one value: far more than any that a log or trace holds."""

_CHUNK = 1 << 16
_BLANKS = " \t\r\n"


class Part(NamedTuple):
    """A piece of a document, in order. ``key`` is that of the member of the top object, empty in a top array.

    ``element`` tells an element of that member's array from a whole value. The key None ends a document; its value is
    then None, or the text of what is wrong with it.
    """

    key: str | None
    value: Any
    element: bool


class MalformedError(Exception):
    """The text is no JSON, or ends early; the message says which. What was yielded before it stands."""


def json_parts(stream: IO[str], parse_float: Callable[[str], Any] = float, *, by_line: bool = False) -> Iterator[Part]:
    """The parts of all documents of a stream; ``parse_float`` makes of a text the number that it writes.

    With ``by_line``, a document that breaks in its first line ends there, and the next one begins in the next line.

    Raises:
        MalformedError: no JSON from there on.
    """
    text = _Text(stream, parse_float)
    while first := text.blank():
        text.ends_passed = 0
        broken = None
        try:
            yield from _document(text, first)
        except MalformedError as error:
            if not by_line or not text.next_line():
                raise
            broken = str(error)
        yield Part(None, broken, False)


def _document(text: "_Text", first: str) -> Iterator[Part]:
    if first == "{":
        yield from _object(text)
    elif first == "[":
        for value in _elements(text):
            yield Part("", value, True)
    else:
        raise MalformedError(f"{first!r} begins no JSON object or array")


def _object(text: "_Text") -> Iterator[Part]:
    text.take("{")
    while text.blank() != "}":
        key = text.value()
        if not isinstance(key, str):
            raise MalformedError("a key of an object is no text")
        text.blank()
        text.take(":")
        if text.blank() == "[":
            for value in _elements(text):
                yield Part(key, value, True)
        else:
            yield Part(key, text.value(), False)
        if text.blank() != ",":
            break
        text.take(",")
    text.blank()
    text.take("}")


def _elements(text: "_Text") -> Iterator[Any]:
    text.take("[")
    while text.blank() != "]":
        yield text.value()
        if text.blank() != ",":
            break
        text.take(",")
    text.blank()
    text.take("]")


class _Text:
    """A window on the stream."""

    def __init__(self, stream: IO[str], parse_float: Callable[[str], Any]) -> None:
        self._stream = stream
        self._held = ""
        self._at = 0
        self._ended = False
        self.ends_passed = 0
        self._decoder = json.JSONDecoder(parse_float=parse_float)

    def _more(self, size: int = _CHUNK) -> bool:
        """Read on; False at the end."""
        new = self._stream.read(size)
        self._ended = self._ended or not new
        self._held = self._held[self._at :] + new
        self._at = 0
        return bool(new)

    def blank(self) -> str:
        """Pass over blanks; return the next character, empty at the end."""
        while True:
            while self._at < len(self._held) and self._held[self._at] in _BLANKS:
                self.ends_passed += self._held[self._at] == "\n"
                self._at += 1
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def take(self, wanted: str) -> None:
        """Pass over one character."""
        if self._at >= len(self._held):
            raise MalformedError("the JSON ends early")
        if self._held[self._at] != wanted:
            raise MalformedError(f"{self._held[self._at]!r} stands where {wanted!r} should")
        self._at += 1

    def next_line(self) -> bool:
        """Go where a document may begin after one that broke in its first line; False where there is no such place."""
        if self.ends_passed == 1 and self._held[self._at : self._at + 1] in ("{", "["):
            return True  # the broken one was cut at the end of its line
        if self.ends_passed:
            return False
        while (end := self._held.find("\n", self._at)) < 0:
            self._at = len(self._held)
            if not self._more():
                return False
        self._at = end + 1
        return True

    def value(self) -> Any:
        """The value that begins here."""
        size = _CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                # An error well before the end of the window is one; a text that is not closed may go on.
                whole = error.pos < len(self._held) - 16 and not error.msg.startswith("Unterminated")
                if whole or self._ended:
                    raise MalformedError("the JSON ends early" if not whole else f"no JSON: {error.msg}") from None
            except (RecursionError, ValueError):
                raise MalformedError(
                    "no JSON that can be read: nested too deeply, or a number of too many digits"
                ) from None
            else:
                if end < len(self._held) or self._ended:
                    self.ends_passed += self._held.count("\n", self._at, end)
                    self._at = end
                    return value
            if len(self._held) - self._at > MAX_VALUE:
                raise MalformedError(f"one value of the JSON is longer than {MAX_VALUE} characters")
            self._more(size)
            size *= 2
