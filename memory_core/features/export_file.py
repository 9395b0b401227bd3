"""Reading an export that came from somewhere else: nothing in it is believed before it was checked.

A name in an archive is never a path on the disk: each file's URI goes through ``MemoryUri.parse``, and an entry that
no export of ours would hold (a link, an encrypted or foreign entry, a name that leaves the folder, two files for one
URI) is a problem. Sizes and ratios are bounded before and while anything is unpacked, and every hash is compared
before the first file is handed out. Writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

import contextlib
import hashlib
import json
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from memory_core.core.errors import InvalidInput, InvalidUri, StorageFailed
from memory_core.core.index.documents import MESSAGES_NAME, is_session_log, memory_document
from memory_core.core.memory import names
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.uri import SCHEME, MemoryUri, Scope
from memory_core.core.store.files import FILE_LIMIT_BYTES, FileStore
from memory_core.core.store.ledger_snapshot import LedgerSnapshot, SnapshotFile

FORMAT = "runebook-export"
FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"
HISTORY_NAME = "history.jsonl"
_EVERYWHERE = MemoryUri()


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a store is exported.

    Attributes:
        target: Only this file, or what lies below this directory.
        project: Only memories, and whole conversations, of this project.
        memory_type: Only memories of this type.
        sessions: Whether conversations are taken.
        history: Whether the commits that touched the files are taken.
        messages: Whether conversations also come as one line a message; JSON lines only.
    """

    target: MemoryUri = _EVERYWHERE
    project: str | None = None
    memory_type: str | None = None
    sessions: bool = True
    history: bool = False
    messages: bool = False

    @property
    def is_everything(self) -> bool:
        """Whether no file is left out."""
        return not self.target.parts and self.project is None and self.memory_type is None and self.sessions

    def places(self, uri: MemoryUri) -> bool:
        """Whether a file at this place may be taken, whatever it holds."""
        if not self.target.contains(uri) or (uri.scope is Scope.SESSION and not self.sessions):
            return False
        narrow = self.project is not None or self.memory_type is not None
        return not (narrow and uri.is_summary)  # they tell of the memories that are left out

    def takes(self, uri: MemoryUri, text: str, registry: MemoryTypeRegistry) -> bool:
        """Whether a file at such a place is taken."""
        if self.memory_type is None and self.project is None:
            return True
        memory = parse(uri, text, registry)
        if self.memory_type is not None and memory.type_name != self.memory_type:
            return False
        if self.project is None:
            return True
        if is_session_log(uri):
            messages, _ = parse_lines(text)
            return bool(messages) and all(message.project == self.project for message in messages)
        return memory.type is not None and memory.project == self.project

    def as_dict(self) -> dict[str, Any]:
        """What narrows it, for the manifest."""
        members = {
            "target_uri": str(self.target) if self.target.parts else None,
            "project": self.project,
            "memory_type": self.memory_type,
            "sessions": None if self.sessions else False,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TransferFile:
    """One file: bytes as they are on disk; ``updated_at`` is ISO 8601, or empty."""

    uri: MemoryUri
    content: bytes
    updated_at: str

    @property
    def sha256(self) -> str:
        """Hash of the bytes."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def text(self) -> str:
        """The text; bytes that are not UTF-8 become U+FFFD."""
        return self.content.decode("utf-8", "replace")


def content_at(files: FileStore, snapshot: LedgerSnapshot, file: SnapshotFile) -> bytes | None:
    """A file as the snapshot has it: from the disk while it is still that, else from the ledger.

    Returns:
        The bytes; None if neither has them, which only somebody who changed both can bring about.
    """
    try:
        found = files.path_for(MemoryUri.parse(file.uri)).read_bytes()
    except OSError:
        found = None
    # Hand-made files that are not UTF-8 are known by the hash of what could be read of them.
    if found is not None and _readable_sha256(found) == file.sha256:
        return found
    text = snapshot.text(file.uri)
    if text is not None and (content := text.encode("utf-8")) and hashlib.sha256(content).hexdigest() == file.sha256:
        return content
    return b"" if text == "" and file.sha256 == hashlib.sha256().hexdigest() else None


def _readable_sha256(content: bytes) -> str:
    return hashlib.sha256(content.decode("utf-8", "replace").encode("utf-8")).hexdigest()


def memory_facts(uri: MemoryUri, text: str, registry: MemoryTypeRegistry) -> dict[str, Any]:
    """A memory for programs that know nothing of our files; empty for files that are no memories."""
    if uri.scope not in (Scope.USER, Scope.AGENT, Scope.ARCHIVE) or not uri.name.endswith(".md"):
        return {}
    if uri.is_summary:
        return {}
    memory = parse(uri, text, registry)
    if memory.type is None:
        return {}
    document = memory_document(memory)
    facts: dict[str, Any] = {
        "memory_type": memory.type_name,
        "name": document.name,
        "fields": dict(memory.fields),
        "abstract": document.abstract,
        "tags": list(document.tags),
        "salience": document.salience,
        "project": document.project,
    }
    return facts


def archive_paths(uris: Sequence[MemoryUri]) -> dict[MemoryUri, str]:
    """The path of each file in an archive; twins that a file system would confuse get names of their own."""
    taken: set[str] = {MANIFEST_NAME, HISTORY_NAME}
    paths: dict[MemoryUri, str] = {}
    for uri in uris:
        path = "/".join(uri.parts)
        if names.fold(path) in taken:
            stem, dot, extension = uri.name.rpartition(".")
            mark = "~" + names.short_hash(str(uri))
            path = "/".join((*uri.parts[:-1], names.fit(stem or uri.name, dot + extension if stem else "", mark)))
        taken.add(names.fold(path))
        paths[uri] = path
    return paths


def kind_of(uri: MemoryUri) -> str:
    """What a file counts as: ``memories``, ``sessions``, ``archived``, ``logs`` or ``others``."""
    if uri.scope is Scope.ARCHIVE:
        return "archived"
    if uri.scope is Scope.SESSION:
        return "sessions" if uri.name == MESSAGES_NAME else "others"
    if not uri.name.endswith(".md") or uri.is_summary:
        return "others"
    return {"memories": "memories", "logs": "logs"}.get("".join(uri.parts[2:3]), "others")


def counted(uris: Sequence[MemoryUri]) -> dict[str, int]:
    """How many files of each kind there are, and in all."""
    counts = {"files": len(uris), "memories": 0, "sessions": 0, "logs": 0, "archived": 0, "others": 0}
    for uri in uris:
        counts[kind_of(uri)] += 1
    return counts


def spaces_of(uris: Sequence[MemoryUri]) -> list[str]:
    """The spaces, as ``user/default``, in order."""
    return sorted({uri.space for uri in uris})


def chosen_history(commits: Iterator[dict[str, Any]], taken: frozenset[str] | None) -> Iterator[dict[str, Any]]:
    """The commits with what they say of other files left out; ``taken`` None leaves them whole."""
    for commit in commits:
        if taken is None:
            yield commit
            continue
        changes = [change for change in commit["changes"] if change["uri"] in taken]
        if changes:
            receipt = _narrowed(commit["receipt"], taken)
            moved = [
                change | {"moved_from": change["moved_from"] if change["moved_from"] in taken else None}
                for change in changes
            ]
            yield commit | {"receipt": receipt, "changes": moved}


def _narrowed(receipt: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    return {
        "commit_id": receipt["commit_id"],
        "status": receipt["status"],
        "results": [result for result in receipt["results"] if result["uri"] in taken],
        "similar": [],
    }


def path_uri(path: str) -> MemoryUri:
    """The URI that a path in an archive would have.

    Raises:
        InvalidUri: If the path would leave the memory folder, or is no portable one.
    """
    return MemoryUri.parse(SCHEME + path)


ENTRIES_LIMIT = 1_000_000
TOTAL_LIMIT_BYTES = 16 * 1024**3
MANIFEST_LIMIT_BYTES = 512 * 1024**2
#: A line holds one file as JSON, which may write six bytes for one.
LINE_LIMIT_BYTES = 6 * FILE_LIMIT_BYTES
#: Ours stay below 50 to 1; bombs are near 1,000.
RATIO_LIMIT = 200
_RATIO_FROM_BYTES = 1024**2
_LEAST_PARTS = 3
_CHUNK_BYTES = 1024**2
_HINT = "Get a sound copy of the file, or take what is sound of it with --partial."


@dataclass(frozen=True, slots=True)
class ArchivedFile:
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

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"name": self.name, "reason": self.reason}


class Archive(Protocol):
    """An export whose files were checked."""

    files: list[ArchivedFile]
    problems: list[Problem]
    sessions: list[Mapping[str, Any]]

    def content(self, file: ArchivedFile) -> bytes:
        """The bytes of a file.

        Raises:
            InvalidInput: If they are no longer what was checked.
        """
        ...

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        """The commits, oldest first; None for an export without history."""
        ...


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open and check an export, zip or JSON lines, whichever it is by its content.

    Raises:
        InvalidInput: If it is no export of ours, is cut short, or asks for more room than is sensible.
        StorageFailed: If it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            begins = stream.read(4)
            stream.seek(0)
            if begins.startswith(b"PK"):
                with zipfile.ZipFile(stream) as archive:
                    yield _Zip(archive)
            else:
                yield _Lines(stream)
    except OSError as error:
        raise StorageFailed(
            f"{path.name!r} cannot be read: {error.strerror or error}.", hint="Name an export that you may read."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InvalidInput(f"{path.name!r} is damaged or incomplete: {error}.", hint=_HINT) from error


class _Sorted:
    """Files and problems as they are found; one URI, one file, and no file where another has its folder."""

    def __init__(self) -> None:
        self.files: list[ArchivedFile] = []
        self.problems: list[Problem] = []
        self._known: set[MemoryUri] = set()
        self._folders: set[MemoryUri] = set()

    def refuse(self, name: str, reason: str) -> None:
        self.problems.append(Problem(name[:200], reason))

    def take(self, uri: MemoryUri, sha256: str, place: str | int, size_bytes: int) -> None:
        """Take a sound file, unless it stands in the way of another."""
        above = {MemoryUri(uri.parts[:depth]) for depth in range(1, len(uri.parts))}
        if uri in self._known:
            self.refuse(str(uri), "the export holds this file twice")
        elif len(uri.parts) < _LEAST_PARTS:
            self.refuse(str(uri), "this is the place of a space, not of a file")
        elif uri in self._folders or above & self._known:
            self.refuse(str(uri), "another file needs this name for a folder")
        else:
            self._known.add(uri)
            self._folders |= above
            self.files.append(ArchivedFile(uri, sha256, place, size_bytes))


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._sorted = _Sorted()
        self.files, self.problems = self._sorted.files, self._sorted.problems
        self._entries = self._bounded()
        self.manifest = self._manifest()
        self.sessions = _records(self.manifest.get("sessions"))
        self._check_files()
        self._history = self._checked_history()

    def content(self, file: ArchivedFile) -> bytes:
        content = self._read(self._entries[str(file.place)], file.size_bytes)
        return _unchanged(content, file)

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        return None if self._history is None else self._commits(self._history)

    def _bounded(self) -> dict[str, zipfile.ZipInfo]:
        """The entries by name, without those that no export holds."""
        infos = self._archive.infolist()
        if len(infos) > ENTRIES_LIMIT or sum(info.file_size for info in infos) > TOTAL_LIMIT_BYTES:
            raise InvalidInput(
                f"the archive would unpack to over {ENTRIES_LIMIT:,} files or {TOTAL_LIMIT_BYTES // 1024**3} GiB.",
                hint="Export in parts, with --target-uri.",
            )
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            reason = _foreign(info)
            if reason is None and info.filename in found:
                reason = "the archive holds this name twice"
            if reason is not None:
                self._sorted.refuse(info.filename, reason)
            elif not info.is_dir():
                found[info.filename] = info
        return found

    def _manifest(self) -> dict[str, Any]:
        info = self._entries.pop(MANIFEST_NAME, None)
        if info is None or info.file_size > MANIFEST_LIMIT_BYTES:
            raise InvalidInput(
                f"the archive has no {MANIFEST_NAME}: it is no export of Runebook.",
                hint="Name a file that runebook export wrote; for a backup, use runebook restore.",
            )
        manifest = _object(self._read(info, info.file_size), MANIFEST_NAME)
        _check_format(manifest)
        return manifest

    def _check_files(self) -> None:
        named: set[str] = set()
        for facts in _records(self.manifest.get("files")):
            path, uri, sha256 = (str(facts.get(name, "")) for name in ("path", "uri", "sha256"))
            named.add(path)
            try:
                place, _ = MemoryUri.parse(uri), path_uri(path)
                info = self._entries.get(path)
                if info is None:
                    self._sorted.refuse(path, "the manifest names this file and the archive does not hold it")
                elif info.file_size != facts.get("size") or info.file_size > FILE_LIMIT_BYTES:
                    self._sorted.refuse(path, "its size is not the one in the manifest, or too large")
                elif hashlib.sha256(self._read(info, info.file_size)).hexdigest() != sha256:
                    self._sorted.refuse(path, "its content is not what the manifest says")
                else:
                    self._sorted.take(place, sha256, path, info.file_size)
            except InvalidUri as error:
                self._sorted.refuse(path, error.message)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                self._sorted.refuse(path, f"it is damaged: {error}")
        for name in self._entries.keys() - named - {HISTORY_NAME}:
            self._sorted.refuse(name, "the manifest does not name this entry")

    def _checked_history(self) -> zipfile.ZipInfo | None:
        facts = self.manifest.get("history")
        info = self._entries.get(HISTORY_NAME)
        if not isinstance(facts, dict):
            if info is not None:
                self._sorted.refuse(HISTORY_NAME, "the manifest does not name this entry")
            return None
        digest = hashlib.sha256()
        if info is not None and info.file_size == facts.get("size"):
            try:
                with self._archive.open(info) as stream:
                    while chunk := stream.read(_CHUNK_BYTES):
                        digest.update(chunk)
            except (zipfile.BadZipFile, zlib.error, EOFError):
                digest = hashlib.sha256()
        if info is None or digest.hexdigest() != facts.get("sha256"):
            self._sorted.refuse(HISTORY_NAME, "the history is not what the manifest says")
            return None
        return info

    def _commits(self, info: zipfile.ZipInfo) -> Iterator[Mapping[str, Any]]:
        with self._archive.open(info) as stream:
            while line := stream.readline(LINE_LIMIT_BYTES):
                yield _object(line, HISTORY_NAME)

    def _read(self, info: zipfile.ZipInfo, size_bytes: int) -> bytes:
        """The bytes of an entry, never more than it says it has."""
        with self._archive.open(info) as stream:
            content = stream.read(size_bytes + 1)
        if len(content) != size_bytes:
            raise zipfile.BadZipFile("an entry is longer or shorter than it says")
        return content


def hazard(info: zipfile.ZipInfo) -> str | None:
    """Why an entry of an archive from elsewhere is not unpacked; None if it may be."""
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "it is a link or a device, not a file"
    if info.flag_bits & 0x1:
        return "it is encrypted"
    if info.file_size > _RATIO_FROM_BYTES and info.file_size > RATIO_LIMIT * max(1, info.compress_size):
        return "it unpacks to far more than it holds"
    return None


def _foreign(info: zipfile.ZipInfo) -> str | None:
    """Why no export of ours holds such an entry; None if one may."""
    danger = hazard(info)
    if danger is not None or info.filename in (MANIFEST_NAME, HISTORY_NAME):
        return danger
    try:
        path_uri(info.filename)
    except InvalidUri as error:
        return error.message
    return None


class _Lines:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._sorted = _Sorted()
        self.files, self.problems = self._sorted.files, self._sorted.problems
        self._commits: list[int] = []
        self.sessions: list[Mapping[str, Any]] = []
        self._survey()

    def content(self, file: ArchivedFile) -> bytes:
        return _unchanged(_text(_object(self._line_at(int(file.place)), "the line")).encode("utf-8"), file)

    def history(self) -> Iterator[Mapping[str, Any]] | None:
        return self._history() if self._commits else None

    def _history(self) -> Iterator[Mapping[str, Any]]:
        for place in self._commits:
            commit = _object(self._line_at(place), "the line").get("commit")
            yield commit if isinstance(commit, dict) else {}

    def _line_at(self, place: int) -> bytes:
        self._stream.seek(place)
        return self._stream.readline(LINE_LIMIT_BYTES)

    def _survey(self) -> None:
        """One look at every line: nothing is kept of a file but where it is."""
        digest, place, ended = hashlib.sha256(), 0, False
        begun = False
        while line := self._stream.readline(LINE_LIMIT_BYTES):
            if not begun:
                self._begin(line)
                begun = True
            name = f"byte {place}"
            try:
                facts = _object(line, name)
            except InvalidInput as error:
                self._sorted.refuse(name, error.message)
                facts = {}
            if facts.get("kind") == "end":
                ended = True
                self._end(facts, digest.hexdigest())
            elif ended:
                self._sorted.refuse(name, "there is more after the end of the export")
            self._take(facts, place)
            digest.update(line)
            place += len(line)
        if not begun:
            raise InvalidInput("the file is empty.", hint="Name a file that runebook export wrote.")
        if not ended:
            self._sorted.refuse("end", "the export is cut short: its last line is missing")

    def _begin(self, line: bytes) -> None:
        _check_format(_object(line, "the first line"))

    def _end(self, facts: Mapping[str, Any], sha256: str) -> None:
        self.sessions = _records(facts.get("sessions"))
        if facts.get("sha256") != sha256:
            self._sorted.refuse("end", "the lines are not those that were exported")

    def _take(self, facts: Mapping[str, Any], place: int) -> None:
        if facts.get("kind") == "commit":
            self._commits.append(place)
        if facts.get("kind") != "file":
            return
        try:
            uri, content = MemoryUri.parse(str(facts.get("uri", ""))), _text(facts).encode("utf-8")
        except (InvalidUri, InvalidInput) as error:
            self._sorted.refuse(str(facts.get("uri", "")), error.message)
            return
        sha256 = hashlib.sha256(content).hexdigest()
        if len(content) > FILE_LIMIT_BYTES:
            self._sorted.refuse(str(uri), "it is too large")
        elif facts.get("sha256", sha256) != sha256:
            self._sorted.refuse(str(uri), "its text is not what its hash says")
        else:
            self._sorted.take(uri, sha256, place, len(content))


def _check_format(facts: Mapping[str, Any]) -> None:
    if facts.get("format") != FORMAT:
        raise InvalidInput(
            "the file is no export of Runebook.",
            hint="Name a file that runebook export wrote; for a backup, use runebook restore.",
        )
    version = facts.get("format_version")
    if not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise InvalidInput(
            f"the export has format version {version!r}; this program knows {FORMAT_VERSION}.", hint="Upgrade Runebook."
        )


def _object(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {type(error).__name__}.", hint=_HINT) from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{name} is no JSON object.", hint=_HINT)
    return found


def _records(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(facts: Mapping[str, Any]) -> str:
    text = facts.get("text")
    if not isinstance(text, str):
        raise InvalidInput("it has no text.", hint=_HINT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("its text holds half a character, which no file can.", hint=_HINT) from None
    return text


def _unchanged(content: bytes, file: ArchivedFile) -> bytes:
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise InvalidInput(f"{str(file.uri)!r} was changed in the export while it was read.", hint=_HINT)
    return content
