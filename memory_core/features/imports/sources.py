"""What is imported from: a file, a folder, or a zip, all read the same way and none believed.

Names inside are shown and compared, never joined to a path. Links and devices are left alone, a zip is bounded before
anything of it is unpacked, and what is read whole has a limit. JSON is read element by element or line by line, so
that what is damaged, too large or nested too deeply costs only itself; a ``Record`` gives members of an object by
their kind. Reads only.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NoReturn

from memory_core.core.errors import InvalidInput, NotFound, StorageFailed
from memory_core.core.memory.memory_type import resolve_category
from memory_core.core.memory.message import moment
from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import word_table
from memory_core.features.export_file import ENTRIES_LIMIT, sound_entries
from memory_core.features.imports.items import LeftOut

#: Of one element, one line, or JSON that is read whole. Reading a conversation takes about five times as much memory,
#: and what is made of empty objects alone about fifty times.
ELEMENT_LIMIT_BYTES = 32 * 1024**2
#: Of a file that has to be in memory at once.
_WHOLE_LIMIT_BYTES = 64 * 1024**2
_CHUNK_BYTES = 1024**2
_HEAD_BYTES = 1024**2
_ZIP_BEGINS = b"PK\x03\x04"
_BOM = b"\xef\xbb\xbf"
_JSON_BEGINS = re.compile(rb"\s*(?:\[\s*)?\{")
_STRUCTURE = re.compile(rb'["{}\[\],]')
#: From within a string to its end, or to that of the chunk, which may be in the middle of an escape.
_REST_OF_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+(["\\]?)', re.DOTALL)
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_CONVERSATIONS = re.compile(r"conversations?(?:[-_ ]?\(?\d+\)?)?\.json", re.IGNORECASE)
_LOOKED_AT = 3
_HINT = "Get a sound copy of the file, or leave that part out."
_BROKEN_STREAM = (OSError, zlib.error, zipfile.BadZipFile, EOFError)


# Files ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a source.

    Attributes:
        name: Its name within the source, with ``/`` between folders.
        modified: When it was last written, if the source says.
        path: Where it is on disk; None inside a zip.
    """

    name: str
    modified: datetime | None = None
    path: Path | None = None

    @property
    def base(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]


@dataclass(slots=True)
class Source:
    """A file, folder or zip that is open for reading.

    Attributes:
        label: Its own name.
        entries: Its files, by name.
        refused: What of it was not even looked at.
        is_folder: Whether it is a folder.
    """

    label: str
    entries: list[Entry]
    _open: Callable[[Entry], IO[bytes]]
    refused: list[LeftOut] = field(default_factory=list)
    is_folder: bool = False

    @property
    def has_one_file(self) -> bool:
        """Whether it is a single file, or a zip of one, which may have any name."""
        return len(self.entries) == 1 and not self.is_folder

    def open(self, entry: Entry) -> IO[bytes]:
        """The bytes of a file, to be closed by the caller.

        Raises:
            StorageFailed: If it cannot be opened.
            InvalidInput: If it is damaged.
        """
        with _readable_errors(entry.name):
            return self._open(entry)

    def read(self, entry: Entry) -> bytes:
        """All bytes of a file.

        Raises:
            InvalidInput: If there are more than ``_WHOLE_LIMIT_BYTES``, or they are damaged.
            StorageFailed: If they cannot be read.
        """
        with _readable_errors(entry.name), self._open(entry) as stream:
            content = stream.read(_WHOLE_LIMIT_BYTES + 1)
        if len(content) > _WHOLE_LIMIT_BYTES:
            raise InvalidInput(
                f"{entry.name} has more than {_WHOLE_LIMIT_BYTES // 1024**2} MiB.", hint="Split it, then import again."
            )
        return content

    def text(self, entry: Entry) -> str:
        """All of a file as text, with plain line feeds.

        Raises:
            InvalidInput: If it is not UTF-8, or too large.
            StorageFailed: If it cannot be read.
        """
        try:
            text = self.read(entry).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"{entry.name} is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8, then import again."
            ) from error
        return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "�")

    def head(self, entry: Entry) -> bytes:
        """The beginning of a file, to tell what it is; empty if it cannot be read."""
        try:
            with self.open(entry) as stream:
                return stream.read(_HEAD_BYTES)
        except (InvalidInput, StorageFailed, *_BROKEN_STREAM):
            return b""


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open what is to be imported.

    Raises:
        NotFound: If there is no such file or folder.
        InvalidInput: If it is a damaged zip, or would unpack to more than is sensible.
        StorageFailed: If it cannot be read.
    """
    if not path.exists():
        raise NotFound(f"there is no file or folder {str(path)!r}.", hint="Check the path.")
    with ExitStack() as opened:
        with _readable_errors(path.name):
            source = _opened(path, opened)
        yield source


def _opened(path: Path, opened: ExitStack) -> Source:
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise InvalidInput(f"{path.name!r} is neither a file nor a folder.", hint="Name a file or a folder.")
    with path.open("rb") as stream:
        is_zip = stream.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS
    if is_zip:
        return _zip(path.name, opened.enter_context(zipfile.ZipFile(path)))
    found = path.stat()
    return Source(path.name, [Entry(path.name, _modified(found), path)], _open_file)


def _open_file(entry: Entry) -> IO[bytes]:
    assert entry.path is not None
    return entry.path.open("rb")


def _folder(root: Path) -> Source:
    """The regular files below a folder; hidden ones, and hidden folders, are left alone."""
    source = Source(root.name, [], _open_file, is_folder=True)

    def unreadable(error: OSError) -> None:
        path = Path(error.filename)
        if path == root:
            raise error
        source.refused.append(
            LeftOut(path.relative_to(root).as_posix(), f"it cannot be read: {error.strerror or error}")
        )

    for folder, folders, names in os.walk(root, onerror=unreadable, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            try:
                found = path.lstat()
            except OSError as error:
                source.refused.append(LeftOut(shown, f"it cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISREG(found.st_mode):
                source.entries.append(Entry(shown, _modified(found), path))
            elif stat.S_ISLNK(found.st_mode):
                source.refused.append(LeftOut(shown, "it is a link"))
        if len(source.entries) > ENTRIES_LIMIT:
            raise InvalidInput(f"{root.name!r} holds over {ENTRIES_LIMIT:,} files.", hint="Import it in parts.")
    return source


def _zip(label: str, archive: zipfile.ZipFile) -> Source:
    known, problems = sound_entries(archive, "Unpack what you know of it, and import the folder.")
    entries = [Entry(name, _packed_at(info)) for name, info in known.items()]
    refused = [LeftOut(problem.name, problem.reason) for problem in problems]
    return Source(label, entries, lambda entry: archive.open(known[entry.name]), refused)


def _packed_at(info: zipfile.ZipInfo) -> datetime | None:
    """When a file was last written before it was packed; 1980 is no time."""
    try:
        return datetime(*info.date_time).astimezone() if info.date_time[0] > 1980 else None
    except (ValueError, OverflowError, OSError):
        return None


def _modified(found: os.stat_result) -> datetime | None:
    try:
        return datetime.fromtimestamp(found.st_mtime, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@contextmanager
def _readable_errors(name: str) -> Iterator[None]:
    """Errors of the system and of unpacking, as ours."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(
            f"{name!r} cannot be read: {error.strerror or error}.", hint="Name what you may read, then import again."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InvalidInput(
            f"{name!r} is damaged or incomplete: {error}.", hint="Get a sound copy of the file."
        ) from error


# JSON ----------------------------------------------------------------------------------------------------------------


class Record:
    """A JSON object as it came: a member that is missing, or of another kind than asked for, is empty.

    Args:
        value: The object; anything else is one without members.
    """

    __slots__ = ("members",)

    def __init__(self, value: Any) -> None:
        self.members: Mapping[str, Any] = value if isinstance(value, dict) else {}

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def get(self, name: str) -> Any:
        """A member as it is; None for one that is missing."""
        return self.members.get(name)

    def text(self, *names: str) -> str:
        """The first of these members that is text and not blank; else empty."""
        found = (self.members.get(name) for name in names)
        return next((value for value in found if isinstance(value, str) and value.strip()), "")

    def record(self, name: str) -> Record:
        """A member that is an object."""
        return Record(self.members.get(name))

    def items(self, name: str) -> list[Any]:
        """A member that is a list."""
        value = self.members.get(name)
        return value if isinstance(value, list) else []

    def records(self, name: str) -> list[Record]:
        """The items of a member that is a list, as objects."""
        return [Record(value) for value in self.items(name)]

    def time(self, name: str) -> datetime | None:
        """A member that is a moment; see ``time_of``."""
        return time_of(self.members.get(name))

    def unit(self, name: str) -> float | None:
        """A member that is a number; see ``unit_of``."""
        return unit_of(self.members.get(name))

    def count(self, name: str) -> int:
        """A member that is a count; 0 for what is none."""
        value = self.members.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


@dataclass(frozen=True, slots=True)
class Found:
    """One value and its place in the file, or, with ``value`` None, what is wrong there."""

    place: str
    value: Any
    problem: str | None = None

    @property
    def record(self) -> Record:
        """The value as an object."""
        return Record(self.value)

    def left_out(self, otherwise: str) -> LeftOut:
        """That it was not taken: for its problem, or ``otherwise``."""
        return LeftOut(self.place, self.problem or otherwise)


def may_be_json(head: bytes) -> bool:
    """Whether a file begins as a JSON object, or an array of them; text may quote one."""
    return _JSON_BEGINS.match(head.removeprefix(_BOM)) is not None


def whole(source: Source, entry: Entry) -> Any:
    """The value of a whole file.

    Raises:
        InvalidInput: If it is not JSON, or too large.
        StorageFailed: If it cannot be read.
    """
    content = source.read(entry)
    if len(content) > ELEMENT_LIMIT_BYTES:
        raise InvalidInput(f"{entry.name} is too large.", hint="Split it, then import again.")
    return _loads(content.removeprefix(_BOM), entry.name)


def elements(source: Source, entry: Entry) -> Iterator[Found]:
    """The elements of a file that is one array, or the one value of a file that is not; never raises."""
    return _as_far_as_sound(entry, _elements(source, entry))


def lines(source: Source, entry: Entry) -> Iterator[Found]:
    """The values of a file with a value a line, blank lines aside; never raises."""
    return _as_far_as_sound(entry, _lines(source, entry))


def _as_far_as_sound(entry: Entry, values: Iterator[Found]) -> Iterator[Found]:
    try:
        yield from values
    except (InvalidInput, StorageFailed) as error:
        yield Found(entry.name, None, error.message)
    except _BROKEN_STREAM as error:
        yield Found(entry.name, None, f"the file is damaged from here on: {error}")


def _elements(source: Source, entry: Entry) -> Iterator[Found]:
    with source.open(entry) as stream:
        if _first_byte(stream) != b"[":
            yield _found(source.read(entry).removeprefix(_BOM), entry.name)
            return
        for index, content in enumerate(_cut(stream)):
            yield _found(content, f"{entry.name}[{index}]")


def _lines(source: Source, entry: Entry) -> Iterator[Found]:
    with source.open(entry) as stream:
        number = 0
        while line := stream.readline(ELEMENT_LIMIT_BYTES + 1):
            number += 1
            rest = line if len(line) > ELEMENT_LIMIT_BYTES else b""
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(_CHUNK_BYTES)
            content = line.strip().removeprefix(_BOM)
            if content:
                yield _found(content, f"{entry.name}:{number}")


def _found(content: bytes, place: str) -> Found:
    if len(content) > ELEMENT_LIMIT_BYTES:
        return Found(place, None, "it is too large")
    try:
        return Found(place, _loads(content, place))
    except InvalidInput as error:
        return Found(place, None, error.message.removeprefix(f"{place} ").rstrip("."))


def _first_byte(stream: IO[bytes]) -> bytes:
    """The first byte that is no white space; it stays read, for ``_cut`` begins behind the bracket."""
    while byte := stream.read(1):
        if not byte.isspace() and byte not in _BOM:
            return byte
    return b""


def _cut(stream: IO[bytes]) -> Iterator[bytes]:
    """The elements of an array whose opening bracket was read; of one that is too large, a byte more than the limit.

    What a file that is cut short holds of its last element comes out as it is, and will not parse.
    """
    element = bytearray()
    depth, in_string, escaped = 1, False, False
    while depth and (chunk := stream.read(_CHUNK_BYTES)):
        start, place = 0, int(escaped)
        escaped = False
        while depth and place < len(chunk):
            token = _REST_OF_STRING.match(chunk, place) if in_string else _STRUCTURE.search(chunk, place)
            if token is None:
                break
            place = token.end()
            if in_string:
                in_string, escaped = token[1] != b'"', token[1] == b"\\"
                continue
            in_string = token[0] == b'"'
            depth += (token[0] in b"{[") - (token[0] in b"}]")
            if depth == 0 or (depth == 1 and token[0] == b","):
                yield from _taken(element, chunk[start : place - 1])
                start = place
        element += chunk[start:][: ELEMENT_LIMIT_BYTES + 1 - len(element)]
    if depth:
        yield from _taken(element, b"")


def _taken(element: bytearray, end: bytes) -> Iterator[bytes]:
    """The element with its end, unless there is nothing; what follows begins anew."""
    content = bytes(element + end[: ELEMENT_LIMIT_BYTES + 1 - len(element)]).strip()
    element.clear()
    if content:
        yield content


def _loads(content: bytes, place: str) -> Any:
    """The value of a JSON text, fit to be stored.

    Raises:
        InvalidInput: If it is not JSON, holds NaN or an infinity, or is nested too deeply.
    """
    try:
        value = json.loads(content, parse_constant=_not_finite, parse_float=_finite)
        return _mended(value) if _SUSPECT.search(content) else value
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"{place} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.", hint=_HINT
        ) from error
    except RecursionError as error:
        raise InvalidInput(f"{place} is nested too deeply.", hint=_HINT) from error
    except ValueError as error:
        raise InvalidInput(f"{place} is not JSON: {error}.", hint=_HINT) from error


def _finite(text: str) -> float:
    value = float(text)
    return _not_finite(text) if math.isinf(value) else value


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _mended(value: Any) -> Any:
    """The value without NUL and half surrogate pairs, which no file can hold."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("�", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


# Numbers, times and labels -------------------------------------------------------------------------------------------


def unit_of(value: Any) -> float | None:
    """A number, cut to 0 to 1; what is none is None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        return None
    return float(min(1.0, max(0.0, value)))


def time_of(value: Any) -> datetime | None:
    """A moment; one without an offset is of this machine's clock. What is none is None."""
    try:
        found = datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
        if found is not None and found.tzinfo is None:
            return found.astimezone()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return moment(value, "an imported item")
    except InvalidInput:
        return None


def time_on(day: str, clock: str) -> datetime | None:
    """The moment of a day and a time on this machine's clock, such as ``2026-02-21`` and ``14:30``."""
    if not _DAY.fullmatch(day):
        return None
    hour, _, rest = clock.strip().partition(":")
    return time_of(f"{day}T{hour.zfill(2)}:{rest or '00'}")


def type_of(category: Any) -> str | None:
    """The memory type that a category, heading or label of another program stands for."""
    if not isinstance(category, str):
        return None
    folded = unicode_form("NFKC", category).casefold()
    words = " ".join(re.split(r"[\s_-]+", folded)).strip(" :：*#")
    return resolve_category(words) or _labels().get(words)


@functools.cache
def _labels() -> Mapping[str, str]:
    """Headings and labels beyond the categories that the registry knows."""
    return {label: memory_type for memory_type, labels in word_table(__file__).items() for label in labels}


# Exports of chats ----------------------------------------------------------------------------------------------------


def conversation_files(source: Source) -> list[Entry]:
    """The files of an export that hold conversations; of a single file that one, whatever its name."""
    if source.has_one_file:
        return source.entries
    return [entry for entry in source.entries if _CONVERSATIONS.fullmatch(entry.base) or "conversations/" in entry.name]


def has_member(source: Source, member: str) -> bool:
    """Whether the conversations of an export have a member of this name."""
    sign = f'"{member}"'.encode()
    heads = (source.head(entry) for entry in conversation_files(source)[:_LOOKED_AT])
    return any(sign in head and may_be_json(head) for head in heads)


def branch(parents: Mapping[str, str | None], leaf: str) -> list[str]:
    """The messages from the first to ``leaf``; a parent that is not there, or comes again, ends the walk.

    Args:
        parents: Of each message the one before it.
        leaf: The last message.
    """
    found: dict[str, None] = {}
    place: str | None = leaf
    while place is not None and place in parents and place not in found:
        found[place] = None
        place = parents[place]
    return list(reversed(found))
