"""Files as text: plain or gzip, in any usual encoding, in lines of bounded length, up to where they are damaged."""

import codecs
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from simcollectives.errors import InputError
from simcollectives.measured.sweep import open_regular

MAX_LINE = 1 << 16
"""Characters that are looked at of one line; what is longer is passed over."""

HEAD = 1 << 16
"""Characters of a file's beginning."""

_CHUNK = 1 << 16
_GZIP = b"\x1f\x8b"
_LEAST_ZEROS = 3
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Line(NamedTuple):
    """A line without its end: its number from 1, its text, and whether the rest of it was passed over."""

    number: int
    text: str
    cut: bool


class Source:
    """A file opened as text. ``damage`` says, once it is read, why it ends early; empty where it does not."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path, limit=None)
        try:
            first = self._file.read(_CHUNK)
            self._file.seek(0)
        except OSError as error:
            self._file.close()
            raise InputError(f"cannot be read ({error.strerror}); check the file", str(path)) from error
        self._raw = _Unpacked(self._file, packed=first.startswith(_GZIP))
        buffered = io.BufferedReader(self._raw, _CHUNK)
        encoding = _encoding(buffered.peek(_CHUNK)[:4096])
        self.text = io.TextIOWrapper(buffered, encoding=encoding, errors="replace", newline=None)

    @property
    def damage(self) -> str:
        """Why the file ends early; empty where it does not, as far as it was read."""
        return self._raw.damage

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: object) -> None:
        self.text.close()
        self._file.close()

    def head(self) -> str:
        """The beginning of the file; what is read afterwards begins behind it."""
        return self.text.read(HEAD)

    def lines(self) -> Iterator[Line]:
        """The lines, one at a time."""
        number = 0
        while text := self.text.readline(MAX_LINE):
            number += 1
            cut = not text.endswith("\n") and len(text) == MAX_LINE
            rest = text
            while len(rest) == MAX_LINE and not rest.endswith("\n"):
                rest = self.text.readline(MAX_LINE)
            yield Line(number, _plain(text.rstrip("\n")), cut)


def _plain(text: str) -> str:
    """A line without the colours of a terminal, the hard blanks of a web page, and the zeros of UTF-16.

    Those are in every other place where a shell added UTF-16 to a file in UTF-8. Others are damage, and stay.
    """
    if "\0" in text and _LEAST_ZEROS * text.count("\0") >= len(text):
        text = text.replace("\0", "")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return text.replace("\xa0", " ")


def _encoding(first: bytes) -> str:
    """UTF-16 as Windows shells write it, with or without a mark; else UTF-8, whatever bytes do not belong to it."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = first[0::2].count(0), first[1::2].count(0)
    if len(first) >= 8 and max(even, odd) > len(first) // 4 and min(even, odd) < len(first) // 32 + 1:
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig"


class _Unpacked(io.RawIOBase):
    """The bytes of a file, unpacked where it is gzip; at damage it ends, and ``damage`` says so."""

    def __init__(self, file: IO[bytes], packed: bool) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(31) if packed else None
        self._ready = b""
        self.damage = ""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; 0 at the end."""
        while not self._ready:
            more = self._next(len(buffer))
            if more is None:
                return 0
            self._ready = more
        part, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)

    def _next(self, size: int) -> bytes | None:
        """The next bytes, which may be none yet; None at the end."""
        if self.damage:
            return None
        try:
            if self._unpack is None:
                return self._file.read(size) or None
            return self._unpacked(self._unpack)
        except OSError as error:
            self.damage = f"it cannot be read further ({error.strerror or error})"
        except zlib.error:
            self.damage = "its gzip data are damaged"
        return None

    def _unpacked(self, unpack: Any) -> bytes | None:
        if unpack.eof:
            packed = unpack.unused_data.lstrip(b"\0") or self._file.read(_CHUNK).lstrip(b"\0")
            if not packed:
                return None
            self._unpack = unpack = zlib.decompressobj(31)
        else:
            packed = unpack.unconsumed_tail or self._file.read(_CHUNK)
            if not packed:
                self.damage = "its gzip data end early"
                return None
        found: bytes = unpack.decompress(packed, _CHUNK)
        return found
