"""Files packed for another place: a zip, a folder, or JSON lines; written whole, and never believed when read.

An export is a zip (or JSON lines) of memories, a backup a zip (or folder) of everything; both have a manifest that
names each file with its size and hash, one writer and one reader. A name in an archive is never a path on the disk:
each file's URI goes through ``MemoryUri.parse``, and an entry that no export of ours would hold (a link, an encrypted
or foreign entry, a name that leaves the folder, two files for one URI) is a problem. Of an export, sizes and ratios
are bounded before and while anything is unpacked, and every hash is compared before the first file is handed out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeAlias

from memory_core.core.errors import InvalidInput, InvalidUri, StorageFailed
from memory_core.core.memory.uri import SCHEME, MemoryUri
from memory_core.core.store import atomic
from memory_core.core.store.files import FILE_LIMIT_BYTES

MANIFEST_NAME = "manifest.json"
HISTORY_NAME = "history.jsonl"
ENTRIES_LIMIT = 1_000_000
TOTAL_LIMIT_BYTES = 16 * 1024**3
_MANIFEST_LIMIT_BYTES = 512 * 1024**2
#: In one manifest or line: of a million files the manifest has four million, of a line of ours thousands.
_VALUES_MOST = 8_000_000
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
#: A line holds one file, of a memory its fields again, or a whole commit.
_LINE_LIMIT_BYTES = 2 * FILE_LIMIT_BYTES
#: Ours stay below 50 to 1; bombs are near 1,000.
_RATIO_LIMIT = 200
_RATIO_FROM_BYTES = 1024**2
#: What a reader takes for a bomb is stored as it is instead: a text of one repeated line is none.
_DEFLATE_LIMIT = 50
_DEFLATE_FROM_BYTES = 64 * 1024
_LEAST_PARTS = 3
_NAME_CHARS = 200
_CHUNK_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class Form:
    """What a pack is: its name, format and version, its manifest, and the next step where it is damaged, or another."""

    name: str
    format: str
    manifest: str
    damaged: str
    other: str
    version: int = 1


EXPORT = Form(
    "export",
    "runebook-export",
    MANIFEST_NAME,
    "Get a sound copy of the file, or take what is sound of it with --partial.",
    "Name a file that runebook export wrote; for a backup, use runebook restore.",
)
BACKUP = Form(
    "backup",
    "runebook-backup",
    "backup.json",
    "Take another backup; this one was changed or cut short.",
    "Name what runebook backup wrote; for an export, use runebook import.",
)


# Writing -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackedFile:
    """One file of a pack; ``path`` is relative, with ``/``."""

    path: str
    sha256: str
    size_bytes: int

    @property
    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"path": self.path, "sha256": self.sha256, "size": self.size_bytes}


class FolderWriter:
    """Files below a folder, private to the user and durable one by one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        atomic.make_folder(root)
        self._folders = {root}

    @contextlib.contextmanager
    def opened(self, path: str, *, stored: bool = False) -> Iterator[IO[bytes]]:
        """A new file of the pack; none is compressed."""
        del stored
        target = self._root.joinpath(*path.split("/"))
        atomic.make_folder(target.parent)
        self._folders |= {folder for folder in target.parents if folder.is_relative_to(self._root)}
        with created(target) as stream:
            yield stream

    def close(self) -> None:
        """Make the folders durable, too."""
        for folder in sorted(self._folders, reverse=True):
            sync_folder(folder)


class ZipWriter:
    """Files in one zip."""

    def __init__(self, path: Path) -> None:
        self._file = contextlib.ExitStack()
        self._archive = zipfile.ZipFile(self._file.enter_context(created(path)), "w")

    @contextlib.contextmanager
    def opened(self, path: str, *, stored: bool = False) -> Iterator[IO[bytes]]:
        """A new file of the pack; ``stored`` leaves it as it is where others are compressed."""
        info = zipfile.ZipInfo(path, datetime.now(UTC).timetuple()[:6])
        info.external_attr = 0o600 << 16
        info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
        with self._archive.open(info, "w", force_zip64=True) as stream:
            yield stream

    def close(self) -> None:
        """Make everything durable."""
        self._archive.close()
        self._file.close()


#: Where files are packed into.
Writer: TypeAlias = FolderWriter | ZipWriter


def pack(writer: Writer, path: str, chunks: Iterable[bytes], *, stored: bool = False) -> PackedFile:
    """Write one file of a pack, of any size."""
    with writer.opened(path, stored=stored) as target:
        return _poured(path, chunks, target)


def pack_manifest(writer: Writer, form: Form, facts: Mapping[str, Any]) -> None:
    """Write the manifest, which comes last; then the writer is to be closed."""
    manifest = {"format": form.format, "format_version": form.version, **facts}
    pack(writer, form.manifest, [json.dumps(manifest, ensure_ascii=False, indent=1).encode()])


def json_line(facts: Mapping[str, Any]) -> bytes:
    """A line of JSON; ASCII where a text holds half a character, which UTF-8 cannot.

    Raises:
        InvalidInput: If it is longer than a reader takes.
    """
    try:
        line = json.dumps(facts, ensure_ascii=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        line = json.dumps(facts).encode("ascii") + b"\n"
    if len(line) > _LINE_LIMIT_BYTES:
        raise InvalidInput(
            f"{facts.get('uri') or 'a commit'} is too long for a line of an export.",
            hint="Export to a .zip, or without --history.",
        )
    return line


def end_sha256(end: Mapping[str, Any]) -> str:
    """The hash of the last of an export's lines, of what it says but this hash."""
    return hashlib.sha256(json_line({name: value for name, value in end.items() if name != "end_sha256"})).hexdigest()


def is_bomb_like(content: bytes) -> bool:
    """Whether a reader would take a text for a bomb, were it compressed."""
    return len(content) > _DEFLATE_FROM_BYTES and len(zlib.compress(content, 1)) * _DEFLATE_LIMIT < len(content)


def chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """A stream to its end."""
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


@contextlib.contextmanager
def created(path: Path) -> Iterator[IO[bytes]]:
    """A new file, private to the user and durable when the body ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def appearing(target: Path, partial: Path, name: str) -> Iterator[None]:
    """What the body writes at ``partial`` appears at ``target`` when the body ends, and not at all when it raises.

    Raises:
        StorageFailed: If the system refuses; ``name`` is what could not be written.
    """
    atomic.make_folder(target.absolute().parent)
    try:
        yield
        partial.replace(target)
        sync_folder(target.absolute().parent)
    except (OSError, zipfile.LargeZipFile) as error:
        raise StorageFailed(
            f"{name} could not be written: {getattr(error, 'strerror', None) or error}.",
            hint="Check free space and permissions of the destination.",
        ) from error
    finally:
        remove_whole(partial)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries survive a power loss."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_whole(path: Path) -> None:
    """Delete a pack of either form."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _poured(path: str, chunks: Iterable[bytes], target: IO[bytes] | None, limit_bytes: int | None = None) -> PackedFile:
    """Copy chunks, at most one more than ``limit_bytes`` allows."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        if limit_bytes is not None and size > limit_bytes:
            break
        if target is not None:
            target.write(chunk)
    return PackedFile(path, digest.hexdigest(), size)


# Reading a zip or a folder -------------------------------------------------------------------------------------------

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@contextlib.contextmanager
def reading(path: Path, form: Form) -> Iterator[None]:
    """Errors of the system and of unpacking, as ours.

    Raises:
        InvalidInput: If there is nothing, or it is damaged.
        StorageFailed: If it cannot be read.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no {form.name} at {path.name!r}.", hint=form.other) from error
    except _BROKEN as error:
        raise InvalidInput(f"the {form.name} {path.name!r} is damaged: {error}.", hint=form.damaged) from error
    except OSError as error:
        raise StorageFailed(
            f"the {form.name} {path.name!r} cannot be used: {error.strerror or error}.",
            hint="Name what you may read, and check free space and permissions.",
        ) from error


class Pack:
    """A zip or folder as its manifest describes it.

    Args:
        form: What it is to be.
        manifest: The stream of its manifest.
        opener: Opens the file at a path of the pack.
    """

    def __init__(self, form: Form, manifest: IO[bytes], opener: Callable[[str], IO[bytes]]) -> None:
        self._form = form
        self._open = opener
        with manifest:
            content = manifest.read(_MANIFEST_LIMIT_BYTES + 1)
        if len(content) > _MANIFEST_LIMIT_BYTES:
            raise InvalidInput(f"the {form.name}'s manifest is too large.", hint=form.damaged)
        self.manifest = _read_object(content, form.manifest, form)
        _check_format(self.manifest, form)

    def files(self) -> list[PackedFile]:
        """What the manifest names.

        Raises:
            InvalidInput: If one of them is not described.
        """
        try:
            return [PackedFile(str(f["path"]), str(f["sha256"]), int(f["size"])) for f in self.manifest["files"]]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"the {self._form.name}'s manifest is damaged.", hint=self._form.damaged) from error

    def pour(self, file: PackedFile, target: IO[bytes] | None) -> None:
        """Read a file to its end, into ``target`` if there is one, and never more than it should have.

        Raises:
            InvalidInput: If it is not what the manifest says.
        """
        try:
            with self._open(file.path) as stream:
                found = _poured(file.path, chunks_of(stream), target, file.size_bytes)
        except (KeyError, FileNotFoundError, *_BROKEN) as error:
            raise InvalidInput(
                f"the {self._form.name}'s {file.path!r} is missing or damaged.", hint=self._form.damaged
            ) from error
        if found != file:
            raise InvalidInput(
                f"the {self._form.name}'s {file.path!r} is not what the manifest says.", hint=self._form.damaged
            )

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a file that was checked."""
        with self._open(path) as stream:
            while line := stream.readline(_LINE_LIMIT_BYTES):
                yield line


@contextlib.contextmanager
def open_pack(path: Path, form: Form) -> Iterator[Pack]:
    """Open a zip or a folder, whatever its name; its files are checked when they are read.

    Raises:
        InvalidInput: If it is none of this form.
        StorageFailed: If it cannot be read.
    """
    with reading(path, form), contextlib.ExitStack() as opened:
        if path.is_dir():
            yield Pack(form, _open_inside(path, form.manifest), lambda name: _open_inside(path, name))
            return
        archive = opened.enter_context(zipfile.ZipFile(path))
        links = any(stat.S_ISLNK(info.external_attr >> 16) for info in archive.infolist())
        if links or form.manifest not in archive.namelist():
            raise InvalidInput(f"this is no {form.name} of Runebook.", hint=form.other)
        yield Pack(form, archive.open(form.manifest), archive.open)


def _open_inside(root: Path, name: str) -> IO[bytes]:
    path = root.joinpath(*name.split("/"))
    if not path.resolve().is_relative_to(root.resolve()):
        raise FileNotFoundError(name)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe, say, would be waited for
        os.close(descriptor)
        raise FileNotFoundError(name)
    return os.fdopen(descriptor, "rb")


def sound_entries(archive: zipfile.ZipFile, hint: str) -> tuple[dict[str, zipfile.ZipInfo], list[Problem]]:
    """The files of an archive from elsewhere by name, and what of it is not to be unpacked.

    Raises:
        InvalidInput: If all of it would unpack to more than is sensible.
    """
    infos = archive.infolist()
    if len(infos) > ENTRIES_LIMIT or sum(info.file_size for info in infos) > TOTAL_LIMIT_BYTES:
        raise InvalidInput(
            f"the archive would unpack to over {ENTRIES_LIMIT:,} files or {TOTAL_LIMIT_BYTES // 1024**3} GiB.",
            hint=hint,
        )
    known: dict[str, zipfile.ZipInfo] = {}
    problems: list[Problem] = []
    for info in infos:
        reason = "the archive holds this name twice" if info.filename in known else _hazard(info)
        if reason is not None:
            problems.append(Problem(info.filename[:_NAME_CHARS], reason))
        elif not info.is_dir():
            known[info.filename] = info
    return known, problems


def _hazard(info: zipfile.ZipInfo) -> str | None:
    """Why an entry of an archive from elsewhere is not unpacked; None if it may be."""
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device, not a file"
    if info.flag_bits & 0x1:
        return "it is encrypted"
    if info.file_size > _RATIO_FROM_BYTES and info.file_size > _RATIO_LIMIT * max(1, info.compress_size):
        return "it unpacks to far more than it holds"
    return None


def _check_format(facts: Mapping[str, Any], form: Form) -> None:
    """Refuse what is no pack of this form, or of a newer program.

    Raises:
        InvalidInput: If it is none.
    """
    if facts.get("format") != form.format:
        raise InvalidInput(f"this is no {form.name} of Runebook.", hint=form.other)
    version = facts.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= form.version:
        raise InvalidInput(
            f"the {form.name} has format version {version!r}; this program knows {form.version}.",
            hint="Upgrade Runebook.",
        )


def _read_object(content: bytes, name: str, form: Form = EXPORT) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidInput: If it is none.
    """
    if _value_count(content) > _VALUES_MOST and _value_count(_STRING.sub(b"", content)) > _VALUES_MOST:
        raise InvalidInput(f"{name} holds more than {_VALUES_MOST:,} values.", hint=form.damaged)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {type(error).__name__}.", hint=form.damaged) from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{name} is no JSON object.", hint=form.damaged)
    return found


def _value_count(content: bytes) -> int:
    """How many values JSON can have at most: before each but the first one there is one of these marks."""
    return sum(map(content.count, (b",", b"[", b"{")))


# An export that came from somewhere else -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One sound file of an export: where it belongs, and where in the export it is."""

    uri: MemoryUri
    sha256: str
    place: str | int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Problem:
    """What of an export cannot be taken, and why; ``name`` is shown, never used."""

    name: str
    reason: str


class OpenExport:
    """An export whose files were checked: one URI, one file, and no file where another has its folder."""

    def __init__(self) -> None:
        self.files: list[ExportedFile] = []
        self.problems: list[Problem] = []
        self.sessions: list[Mapping[str, Any]] = []
        self._known: set[MemoryUri] = set()
        self._folders: set[MemoryUri] = set()

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        """The commits, oldest first; None for an export without history."""
        raise NotImplementedError

    def content(self, file: ExportedFile) -> bytes:
        """The bytes of a file.

        Raises:
            InvalidInput: If they are no longer what was checked.
        """
        content = self._content(file)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise InvalidInput(f"{str(file.uri)!r} was changed in the export while it was read.", hint=EXPORT.damaged)
        return content

    def _content(self, file: ExportedFile) -> bytes:
        raise NotImplementedError

    def _refuse(self, name: str, reason: str) -> None:
        self.problems.append(Problem(name[:_NAME_CHARS], reason))

    def _take(self, uri: MemoryUri, sha256: str, place: str | int, size_bytes: int) -> None:
        """Take a sound file, unless it stands in the way of another."""
        above = {MemoryUri(uri.parts[:depth]) for depth in range(1, len(uri.parts))}
        if uri in self._known:
            self._refuse(str(uri), "the export holds this file twice")
        elif len(uri.parts) < _LEAST_PARTS:
            self._refuse(str(uri), "this is the place of a space, not of a file")
        elif size_bytes > FILE_LIMIT_BYTES:
            self._refuse(str(uri), "it is too large")
        elif uri in self._folders or above & self._known:
            self._refuse(str(uri), "another file needs this name for a folder")
        else:
            self._known.add(uri)
            self._folders |= above
            self.files.append(ExportedFile(uri, sha256, place, size_bytes))


@contextlib.contextmanager
def open_export(path: Path) -> Iterator[OpenExport]:
    """Open and check an export, zip or JSON lines, whichever it is by its content.

    Raises:
        InvalidInput: If it is no export of ours, is cut short, or asks for more room than is sensible.
        StorageFailed: If it cannot be read.
    """
    with reading(path, EXPORT), path.open("rb") as stream:
        begins = stream.read(4)
        stream.seek(0)
        if begins.startswith(b"PK"):
            with zipfile.ZipFile(stream) as archive:
                yield _Zip(archive)
        else:
            yield _Lines(stream)


class _Zip(OpenExport):
    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__()
        self._entries, problems = sound_entries(archive, "Export in parts, with --target-uri.")
        self.problems += problems
        if MANIFEST_NAME not in self._entries:
            raise InvalidInput(f"the archive has no {MANIFEST_NAME}: it is no export of Runebook.", hint=EXPORT.other)
        self._pack = Pack(EXPORT, archive.open(MANIFEST_NAME), archive.open)
        self.sessions = _records(self._pack.manifest.get("sessions"))
        named = {self._check(facts) for facts in _records(self._pack.manifest.get("files"))}
        history = self._pack.manifest.get("history")
        self._has_history = isinstance(history, dict) and self._is_sound({**history, "path": HISTORY_NAME})
        named |= {MANIFEST_NAME} | ({HISTORY_NAME} if isinstance(history, dict) else set())
        for name in self._entries.keys() - named:
            self._refuse(name, "the manifest does not name this entry")

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        lines = self._pack.lines(HISTORY_NAME)
        return (_read_object(line, HISTORY_NAME) for line in lines) if self._has_history else None

    def _content(self, file: ExportedFile) -> bytes:
        content = io.BytesIO()
        self._pack.pour(PackedFile(str(file.place), file.sha256, file.size_bytes), content)
        return content.getvalue()

    def _check(self, facts: Mapping[str, Any]) -> str:
        """Take a file that the manifest names, if it is sound; returns its path."""
        path = str(facts.get("path", ""))
        try:
            uri, _ = MemoryUri.parse(str(facts.get("uri", ""))), path_uri(path)
            if self._is_sound(facts):
                self._take(uri, str(facts["sha256"]), path, self._entries[path].file_size)
        except InvalidUri as error:
            self._refuse(path, error.message)
        return path

    def _is_sound(self, facts: Mapping[str, Any]) -> bool:
        """Whether an entry is what the manifest says; a problem, if not."""
        path = str(facts.get("path", ""))
        info = self._entries.get(path)
        if info is None:
            self._refuse(path, "the manifest names this file and the archive does not hold it")
        elif info.file_size != facts.get("size"):
            self._refuse(path, "its size is not the one in the manifest")
        else:
            try:
                self._pack.pour(PackedFile(path, str(facts.get("sha256", "")), info.file_size), None)
                return True
            except InvalidInput as error:
                self._refuse(path, error.message.rstrip("."))
        return False


class _Lines(OpenExport):
    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream = stream
        self._commits: list[int] = []
        self._is_end_hashed = False
        self._survey()

    def _content(self, file: ExportedFile) -> bytes:
        return _text(_read_object(self._line_at(int(file.place)), "the line")).encode("utf-8")

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        commits = (_read_object(self._line_at(place), "the line").get("commit") for place in self._commits)
        return (commit if isinstance(commit, dict) else {} for commit in commits) if self._commits else None

    def _line_at(self, place: int) -> bytes:
        self._stream.seek(place)
        return self._stream.readline(_LINE_LIMIT_BYTES)

    def _survey(self) -> None:
        """One look at every line: nothing is kept of a file but where it is."""
        digest, place, ended = hashlib.sha256(), 0, False
        while line := self._stream.readline(_LINE_LIMIT_BYTES):
            if not place:
                header = _read_object(line, "the first line")
                _check_format(header, EXPORT)
                self._is_end_hashed = header.get("end_is_hashed") is True  # older exports have no such hash
            facts = self._facts(line, f"byte {place}")
            if facts.get("kind") == "end":
                ended = True
                self.sessions = _records(facts.get("sessions"))
                if facts.get("sha256") != digest.hexdigest():
                    self._refuse("end", "the lines are not those that were exported")
                elif self._is_end_hashed and facts.get("end_sha256") != end_sha256(facts):
                    self._refuse("end", "it is not what was exported")
            elif ended:
                self._refuse(f"byte {place}", "there is more after the end of the export")
            elif facts.get("kind") == "commit":
                self._commits.append(place)
            elif facts.get("kind") == "file":
                self._take_line(facts, place)
            digest.update(line)
            place += len(line)
        if not place:
            raise InvalidInput("the file is empty.", hint=EXPORT.other)
        if not ended:
            self._refuse("end", "the export is cut short: its last line is missing")

    def _facts(self, line: bytes, name: str) -> dict[str, Any]:
        try:
            return _read_object(line, name)
        except InvalidInput as error:
            self._refuse(name, error.message)
            return {}

    def _take_line(self, facts: Mapping[str, Any], place: int) -> None:
        name = str(facts.get("uri", ""))
        try:
            uri, content = MemoryUri.parse(name), _text(facts).encode("utf-8")
        except (InvalidUri, InvalidInput) as error:
            self._refuse(name, error.message)
            return
        sha256 = hashlib.sha256(content).hexdigest()
        if facts.get("sha256", sha256) != sha256:
            self._refuse(name, "its text is not what its hash says")
        else:
            self._take(uri, sha256, place, len(content))


def path_uri(path: str) -> MemoryUri:
    """The URI that a path in an archive would have.

    Raises:
        InvalidUri: If the path would leave the memory folder, or is no portable one.
    """
    return MemoryUri.parse(SCHEME + path)


def _records(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(facts: Mapping[str, Any]) -> str:
    text = facts.get("text")
    if not isinstance(text, str):
        raise InvalidInput("it has no text.", hint=EXPORT.damaged)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("its text holds half a character, which no file can.", hint=EXPORT.damaged) from None
    return text
