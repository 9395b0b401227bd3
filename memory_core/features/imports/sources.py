"""What is imported from: a file, a folder, or a zip, all read the same way and none believed.

Names inside are shown and compared, never joined to a path. Links and devices are left alone, a zip is bounded before
anything of it is unpacked, and what is read whole has a limit. Reads only.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import unicodedata
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
from memory_core.features.export_file import ENTRIES_LIMIT, TOTAL_LIMIT_BYTES, hazard
from memory_core.features.imports.items import LeftOut, digest_of

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


#: Headings and labels of the documents beyond the categories that the registry knows.
_LABELS = {
    label: memory_type
    for memory_type, labels in {
        "profile": "user memory|about me|about the user|关于我",
        "preferences": "user preferences|my preferences|preferences and habits|偏好设置",
        "facts": "known facts|important facts|key facts|重要事实|已知事实|事实信息",
        "tasks": "todo|todos|to do|open tasks|任务备忘|待办事项",
        "reflections": "反思日志|反思总结",
        "patterns": (
            "user patterns|learnings|lessons|lessons learned|procedural memory|best practices|workflows|"
            "程序性记忆|程序记忆|用户模式|行为模式|最佳实践|经验教训|学习记录"
        ),
        "skills": "proven skills|已验证技能|技能经验",
        "notes": "general notes|通用记忆|其他",
        "events": "decisions|决策",
    }.items()
    for label in labels.split("|")
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,98}[A-Za-z0-9_]|[A-Za-z0-9_]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def type_of(category: Any) -> str | None:
    """The memory type that a category, heading or label of another program stands for."""
    if not isinstance(category, str):
        return None
    folded = unicodedata.normalize("NFKC", category).casefold()
    words = " ".join(re.split(r"[\s_-]+", folded)).strip(" :：*#")
    return resolve_category(words) or _LABELS.get(words)


def text_of(record: Mapping[str, Any], *names: str) -> str:
    """The first of these members that is text and not blank; else empty."""
    found = (record.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def unit_of(value: Any) -> float | None:
    """A number from 0 to 1; what lies outside is cut, what is no number is None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return min(1.0, max(0.0, float(value)))


def count_of(value: Any) -> int:
    """A count; what is none is 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def time_of(value: Any) -> datetime | None:
    """A moment; one without an offset is of this machine's clock. What is none is None."""
    if isinstance(value, str) and not re.search(r"(?:[zZ]|[+-]\d\d:?\d\d)\s*$", value[10:]):
        try:
            return datetime.fromisoformat(value.strip()).astimezone()
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


def session_name(program: str, name: str) -> str:
    """The session that a conversation of another program becomes: its own name where that can be a folder's."""
    return f"{program}-{name if _NAME.fullmatch(name) else digest_of(name)}"


def records_of(value: Any) -> list[Any]:
    """A list, or an empty one for what is none."""
    return value if isinstance(value, list) else []


def mapping_of(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one for what is none."""
    return value if isinstance(value, dict) else {}


#: Of a file that has to be in memory at once.
WHOLE_LIMIT_BYTES = 256 * 1024**2
_ZIP_BEGINS = b"PK\x03\x04"
_HEAD_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a source.

    Attributes:
        name: Its name within the source, with ``/`` between folders.
        size_bytes: As far as the source says.
        modified: When it was last written, if the source says.
        path: Where it is on disk; None inside a zip.
    """

    name: str
    size_bytes: int
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

    def open(self, entry: Entry) -> IO[bytes]:
        """The bytes of a file, to be closed by the caller.

        Raises:
            StorageFailed: If it cannot be opened.
            InvalidInput: If it is damaged.
        """
        with _told(entry.name):
            return self._open(entry)

    def read(self, entry: Entry) -> bytes:
        """All bytes of a file.

        Raises:
            InvalidInput: If there are more than ``WHOLE_LIMIT_BYTES``, or they are damaged.
            StorageFailed: If they cannot be read.
        """
        with _told(entry.name), self._open(entry) as stream:
            content = stream.read(WHOLE_LIMIT_BYTES + 1)
        if len(content) > WHOLE_LIMIT_BYTES:
            raise InvalidInput(
                f"{entry.name} has more than {WHOLE_LIMIT_BYTES // 1024**2} MiB.", hint="Split it, then import again."
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
        except (InvalidInput, StorageFailed, OSError, zlib.error, zipfile.BadZipFile):
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
        with _told(path.name):
            source = _opened(path, opened)
        yield source


def _opened(path: Path, opened: ExitStack) -> Source:
    if path.is_dir():
        entries, refused = _walk(path)
        return Source(path.name, entries, _open_file, refused, is_folder=True)
    if not path.is_file():
        raise InvalidInput(f"{path.name!r} is neither a file nor a folder.", hint="Name a file or a folder.")
    if _begins(path).startswith(_ZIP_BEGINS):
        return _zip_source(path.name, opened.enter_context(zipfile.ZipFile(path)))
    found = path.stat()
    return Source(path.name, [Entry(path.name, found.st_size, _moment(found.st_mtime), path)], _open_file)


def _begins(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(len(_ZIP_BEGINS))


def _open_file(entry: Entry) -> IO[bytes]:
    if entry.path is None:
        raise InvalidInput(f"{entry.name} is not on disk.", hint="Import from a folder.")
    return entry.path.open("rb")


def _walk(root: Path) -> tuple[list[Entry], list[LeftOut]]:
    """The regular files below a folder; hidden ones, and hidden folders, are left alone."""
    entries: list[Entry] = []
    refused: list[LeftOut] = []
    for folder, folders, names in os.walk(root, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            shown = path.relative_to(root).as_posix()
            if name.startswith("."):
                continue
            try:
                found = path.lstat()
            except OSError as error:
                refused.append(LeftOut(shown, f"it cannot be read: {error.strerror or error}"))
                continue
            if stat.S_ISREG(found.st_mode):
                entries.append(Entry(shown, found.st_size, _moment(found.st_mtime), path))
            elif stat.S_ISLNK(found.st_mode):
                refused.append(LeftOut(shown, "it is a link"))
        if len(entries) > ENTRIES_LIMIT:
            raise InvalidInput(f"{root.name!r} holds over {ENTRIES_LIMIT:,} files.", hint="Import it in parts.")
    return entries, refused


def _zip_source(label: str, archive: zipfile.ZipFile) -> Source:
    infos = archive.infolist()
    if len(infos) > ENTRIES_LIMIT or sum(info.file_size for info in infos) > TOTAL_LIMIT_BYTES:
        raise InvalidInput(
            f"the archive would unpack to over {ENTRIES_LIMIT:,} files or {TOTAL_LIMIT_BYTES // 1024**3} GiB.",
            hint="Unpack what you know of it, and import the folder.",
        )
    known: dict[str, zipfile.ZipInfo] = {}
    entries: list[Entry] = []
    refused: list[LeftOut] = []
    for info in infos:
        reason = "the archive holds this name twice" if info.filename in known else hazard(info)
        if reason is not None:
            refused.append(LeftOut(info.filename[:200], reason))
        elif not info.is_dir():
            known[info.filename] = info
            entries.append(Entry(info.filename, info.file_size, _zip_moment(info)))
    return Source(label, entries, lambda entry: archive.open(known[entry.name]), refused)


def _zip_moment(info: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*info.date_time).astimezone() if info.date_time[0] > 1980 else None
    except (ValueError, OverflowError, OSError):
        return None


def _moment(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@contextmanager
def _told(name: str) -> Iterator[None]:
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
