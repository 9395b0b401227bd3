r"""JSON of unknown origin: whole, a value a line, or one element of a long array after the other.

Memory holds one element at a time, however large the file. What is not JSON is told with its place and costs nothing
but itself: the elements of an array are cut apart by their brackets before any of them is parsed. NUL and halves of
surrogate pairs, which JSON can escape and no file holds, become ``\ufffd``.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from memory_core.errors import InvalidInput, StorageFailed
from memory_core.lifecycle.imports.sources import Entry, Source

#: Of one element or line.
ELEMENT_LIMIT_BYTES = 256 * 1024**2
_CHUNK_BYTES = 1024**2
_STRUCTURE = re.compile(rb'["{}\[\],]')
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_HINT = "Get a sound copy of the file, or leave that part out."
_BROKEN_STREAM = (OSError, zlib.error, zipfile.BadZipFile, EOFError)


@dataclass(frozen=True, slots=True)
class Found:
    """One value and its place in the file, or, with ``value`` None, what is wrong there."""

    place: str
    value: Any
    problem: str | None = None


def loads(content: bytes, place: str) -> Any:
    """The value of a JSON text, fit to be stored.

    Raises:
        InvalidInput: If it is not JSON, holds NaN or an infinity, or is nested too deeply.
    """
    try:
        value = json.loads(content, parse_constant=_not_finite)
        return _mended(value) if _SUSPECT.search(content) else value
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{place} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", hint=_HINT
        ) from error
    except RecursionError as error:
        raise InvalidInput(f"{place} is nested too deeply.", hint=_HINT) from error
    except ValueError as error:
        raise InvalidInput(f"{place} is not JSON: {type(error).__name__}.", hint=_HINT) from error


def whole(source: Source, entry: Entry) -> Any:
    """The value of a whole file.

    Raises:
        InvalidInput: If it is not JSON, or too large.
        StorageFailed: If it cannot be read.
    """
    return loads(source.read(entry).removeprefix(b"\xef\xbb\xbf"), entry.name)


def elements(source: Source, entry: Entry) -> Iterator[Found]:
    """The elements of a file that is one array, or the one value of a file that is not; never raises."""
    try:
        with source.open(entry) as stream:
            if _first_byte(stream) != b"[":
                yield _found(source.read(entry).removeprefix(b"\xef\xbb\xbf"), entry.name)
                return
            for index, content in enumerate(_cut(stream)):
                place = f"{entry.name}[{index}]"
                yield Found(place, None, "it is too large") if content is None else _found(content, place)
    except (InvalidInput, StorageFailed) as error:
        yield Found(entry.name, None, error.message)
    except _BROKEN_STREAM as error:
        yield Found(entry.name, None, f"the file is damaged from here on: {error}")


def lines(source: Source, entry: Entry) -> Iterator[Found]:
    """The values of a file with a value a line, blank lines aside; never raises."""
    try:
        with source.open(entry) as stream:
            number = 0
            while line := stream.readline(ELEMENT_LIMIT_BYTES):
                number += 1
                place = f"{entry.name}:{number}"
                if len(line) == ELEMENT_LIMIT_BYTES and not line.endswith(b"\n"):
                    while (rest := stream.readline(ELEMENT_LIMIT_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    yield Found(place, None, "it is too large")
                elif content := line.strip().removeprefix(b"\xef\xbb\xbf"):
                    yield _found(content, place)
    except (InvalidInput, StorageFailed) as error:
        yield Found(entry.name, None, error.message)
    except _BROKEN_STREAM as error:
        yield Found(entry.name, None, f"the file is damaged from here on: {error}")


def _found(content: bytes, place: str) -> Found:
    try:
        return Found(place, loads(content, place))
    except InvalidInput as error:
        return Found(place, None, error.message.removeprefix(f"{place} ").rstrip("."))


def _first_byte(stream: IO[bytes]) -> bytes:
    """The first byte that is not white, read and left unread alike: the cut skips what stands before a bracket."""
    while byte := stream.read(1):
        if not byte.isspace() and byte not in (b"\xef", b"\xbb", b"\xbf"):
            return byte
    return b""


def _cut(stream: IO[bytes]) -> Iterator[bytes | None]:
    """The elements of an array whose opening bracket was read; None for one that is too large.

    What a file that is cut short holds of its last element comes out as it is, and will not parse.
    """
    cutter = _Cutter()
    while not cutter.ended and (chunk := stream.read(_CHUNK_BYTES)):
        yield from cutter.feed(chunk)
    yield from cutter.rest()


class _Cutter:
    """Where one element ends and the next begins, a chunk at a time."""

    def __init__(self) -> None:
        self.ended = False
        self._depth = 1
        self._in_string = False
        self._escaped = False
        self._element = bytearray()
        self._too_large = False

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The elements that end in this chunk."""
        start = place = 0
        while place < len(chunk) and not self.ended:
            if self._in_string:
                place = self._string(chunk, place)
                continue
            token = _STRUCTURE.search(chunk, place)
            if token is None:
                break
            place = token.end()
            if self._structure(token[0]):
                self._keep(chunk[start : place - 1])
                start = place
                yield from self._taken()
        if not self.ended:
            self._keep(chunk[start:])

    def rest(self) -> Iterator[bytes | None]:
        """What a file that is cut short leaves behind."""
        if not self.ended:
            yield from self._taken()

    def _structure(self, token: bytes) -> bool:
        """Take note of a token outside of strings; whether an element ends with it."""
        if token == b'"':
            self._in_string = True
        elif token in b"{[":
            self._depth += 1
        elif token != b",":
            self._depth -= 1
            self.ended = self._depth == 0
        return self.ended or (token == b"," and self._depth == 1)

    def _string(self, chunk: bytes, place: int) -> int:
        """Where the string ends that goes on at ``place``, or the chunk does."""
        end = chunk.find(b'"', place)
        stop = len(chunk) if end < 0 else end
        backslashes = stop - place - len(chunk[place:stop].rstrip(b"\\"))
        escapes = backslashes % 2 == 1
        if backslashes == stop - place:  # the last chunk may have ended within an escape
            escapes = escapes != self._escaped
        self._escaped = escapes and end < 0
        self._in_string = escapes or end < 0
        return stop if end < 0 else end + 1

    def _keep(self, content: bytes) -> None:
        self._too_large = self._too_large or len(self._element) + len(content) > ELEMENT_LIMIT_BYTES
        if self._too_large:
            self._element.clear()
        else:
            self._element += content

    def _taken(self) -> Iterator[bytes | None]:
        content = bytes(self._element).strip()
        if self._too_large or content:
            yield None if self._too_large else content
        self._element.clear()
        self._too_large = False


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("�", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value
