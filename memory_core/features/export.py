"""Export: a zip, or JSON lines, of a store as it was at one commit, for any store to take in (``import_export``).

Others go on writing meanwhile. An export appears under its name only when it is whole, private to the user. Texts are
never logged.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from memory_core.core.errors import InvalidInput, InvalidUri, NeedsFolder
from memory_core.core.index.documents import MESSAGES_NAME, is_session_log, memory_document
from memory_core.core.memory import names
from memory_core.core.memory.memory import parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import parse_lines, to_record
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.store import atomic
from memory_core.core.store.files import FileStore
from memory_core.core.store.ledger import is_lossy
from memory_core.core.store.ledger_snapshot import LedgerSnapshot, SnapshotFile
from memory_core.core.store.local import Store
from memory_core.features.export_file import (
    EXPORT,
    HISTORY_NAME,
    MANIFEST_NAME,
    ZipWriter,
    appearing,
    created,
    end_sha256,
    is_bomb_like,
    json_line,
    pack,
    pack_manifest,
)
from memory_core.version import program_version

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_EVERYWHERE = MemoryUri()
_NOT_UTF8 = "it is not UTF-8 text: save it as UTF-8, then export again; a .zip or a backup keeps it as it is"


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
        return not self.target.parts and not self._narrows and self.sessions

    def places(self, uri: MemoryUri) -> bool:
        """Whether a file at this place may be taken, whatever it holds."""
        if not self.target.contains(uri) or (uri.scope is Scope.SESSION and not self.sessions):
            return False
        return not (self._narrows and uri.is_summary)  # they tell of the memories that are left out

    @property
    def _narrows(self) -> bool:
        return self.project is not None or self.memory_type is not None

    def takes(self, uri: MemoryUri, text: str, registry: MemoryTypeRegistry) -> bool:
        """Whether a file at such a place is taken."""
        if not self._narrows:
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


def content_at(files: FileStore, snapshot: LedgerSnapshot, file: SnapshotFile) -> bytes | None:
    """A file as the snapshot has it: from the disk while it is still that, else from the ledger.

    Returns:
        The bytes; None if neither has them: somebody changed both, or the file is gone and was not UTF-8.
    """
    has_files = True
    found: bytes | None = None
    try:
        found = files.path_for(MemoryUri.parse(file.uri)).read_bytes()
    except NeedsFolder:
        has_files = False
    except (OSError, InvalidUri):
        pass
    # Hand-made files that are not UTF-8 are known by the hash of what could be read of them.
    if found is not None and text_sha256(found.decode("utf-8", "replace")) == file.sha256:
        return found
    text = snapshot.text(file.uri)
    if text is not None and has_files and is_lossy(text, file.size_bytes):
        return None
    return text.encode("utf-8") if text is not None and text_sha256(text) == file.sha256 else None


def _counted_as(uri: MemoryUri) -> str:
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
        counts[_counted_as(uri)] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported.

    Attributes:
        path: Where it is; None for a stream.
        counts: Files by kind, and commits.
        spaces: The spaces they are of.
        seq: The last commit that is in it.
        left_out: Files whose text neither disk nor ledger has as it was committed, and those of ``not_utf8``.
        not_utf8: Files that are not UTF-8, which JSON lines cannot hold.
        sessions: How far each session's messages were extracted.
    """

    JSON: ClassVar = "path counts spaces seq left_out not_utf8"

    path: Path | None
    counts: dict[str, int]
    spaces: list[str]
    seq: int
    left_out: list[str] = field(default_factory=list)
    not_utf8: list[str] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left_out_lines(self) -> list[str]:
        """What was left out, each with why and what to do."""
        lost, odd = "its text is neither on disk nor in the history", frozenset(self.not_utf8)
        return [f"{uri} ({_NOT_UTF8 if uri in odd else lost})" for uri in self.left_out]


def export(memory: Runebook, target: Path | IO[bytes], selection: Selection, *, force: bool = False) -> Export:
    """Write a zip archive, or JSON lines: to a file whose name does not end in ``.zip``, or to an open stream.

    Args:
        memory: The store; others may go on using it.
        target: The file to be, or a stream.
        selection: What is taken.
        force: Replace a file that is there.

    Raises:
        InvalidInput: If the file is there and ``force`` is not given. Nothing was written.
        StorageFailed: If the disk refuses; the file is then as it was.
    """
    memory.store.adopt()  # what people wrote is part of it
    with contextlib.ExitStack() as opened:
        snapshot = opened.enter_context(LedgerSnapshot.of(memory.store.ledger))
        source = _Source(memory.store, memory.registry, selection, snapshot)
        if not isinstance(target, Path):
            return _write_lines(source, target, None)
        partial = opened.enter_context(_whole(target, force=force))
        if target.suffix.lower() != ".zip":
            return _write_lines(source, opened.enter_context(created(partial)), target)
        return _write_zip(source, opened.enter_context(contextlib.closing(ZipWriter(partial))), target)


def _write_zip(source: _Source, writer: ZipWriter, target: Path) -> Export:
    paths = _zip_paths(source.uris)
    files: list[dict[str, Any]] = []
    any_stored = False
    for uri, content, updated_at in source.files():
        stored = is_bomb_like(content)
        packed = pack(writer, paths[uri], [content], stored=stored)
        any_stored |= stored
        files.append(packed.facts | {"uri": str(uri), "updated_at": updated_at})
    history: dict[str, Any] | None = None
    if source.selection.history:
        # It holds the texts of these files once more.
        history = pack(writer, HISTORY_NAME, map(json_line, source.history()), stored=any_stored).facts
        history["commits"] = source.commits
    export = source.export(target)
    facts: dict[str, Any] = {"spaces": export.spaces, "counts": export.counts, "left_out": export.left_out}
    facts |= {"sessions": export.sessions, "history": history, "files": files}
    pack_manifest(writer, EXPORT, source.header() | facts)
    return export


def _write_lines(source: _Source, stream: IO[bytes], target: Path | None) -> Export:
    digest = hashlib.sha256()

    def write(facts: dict[str, Any]) -> None:
        raw = json_line(facts)
        digest.update(raw)
        stream.write(raw)

    begins = {"kind": "export", "format": EXPORT.format, "format_version": EXPORT.version, "end_is_hashed": True}
    write(begins | source.header())
    for uri, content, updated_at in source.files(utf8=True):
        text = content.decode("utf-8")
        facts = {"kind": "file", "uri": str(uri), "sha256": text_sha256(text), "updated_at": updated_at}
        write(facts | {"text": text} | _memory_facts(uri, text, source.registry))
        if source.selection.messages and is_session_log(uri):
            for index, message in enumerate(parse_lines(text)[0]):
                write({"kind": "message", "uri": f"{uri}#{index}"} | to_record(message))
    for commit in source.history() if source.selection.history else ():
        write({"kind": "commit", "commit": commit})
    export = source.export(target)
    end = {"kind": "end", "counts": export.counts, "left_out": export.left_out, "sessions": export.sessions}
    end["sha256"] = digest.hexdigest()
    write(end | {"end_sha256": end_sha256(end)})
    stream.flush()
    return export


@contextlib.contextmanager
def _whole(target: Path, *, force: bool) -> Iterator[Path]:
    """Where the file is written whose content appears at ``target``; see ``appearing``."""
    if target.is_dir() or (target.exists() and not force):
        raise InvalidInput(f"{target.name!r} is there already.", hint="Name another file, or add --force.")
    partial = target.parent / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    with appearing(target, partial, repr(target.name)):
        yield partial
        if target.exists() and not force:
            raise InvalidInput(f"{target.name!r} has appeared meanwhile.", hint="Name another file, or add --force.")


class _Source:
    """The chosen files of one moment."""

    def __init__(
        self, store: Store, registry: MemoryTypeRegistry, selection: Selection, snapshot: LedgerSnapshot
    ) -> None:
        self._store = store
        self.registry = registry
        self.selection = selection
        self._snapshot = snapshot
        self._rows = [row for row in snapshot.files() if selection.places(MemoryUri.parse(row.uri))]
        self._taken: list[MemoryUri] = []
        self._left_out: list[str] = []
        self._not_utf8: list[str] = []
        self.commits = 0

    @property
    def uris(self) -> list[MemoryUri]:
        """Every file that may be taken."""
        return [MemoryUri.parse(row.uri) for row in self._rows]

    def files(self, *, utf8: bool = False) -> Iterator[tuple[MemoryUri, bytes, str]]:
        """The files, one at a time: its bytes as they are on disk, and when it was changed (ISO 8601, or empty).

        Args:
            utf8: Leave out what is not UTF-8.
        """
        for done, row in enumerate(self._rows, 1):
            uri = MemoryUri.parse(row.uri)
            content = content_at(self._store.files, self._snapshot, row)
            text = "" if content is None else content.decode("utf-8", "replace")
            if content is None:
                self._left_out.append(row.uri)
            elif self.selection.takes(uri, text, self.registry):
                if utf8 and text.encode() != content:
                    self._left_out.append(row.uri)
                    self._not_utf8.append(row.uri)
                else:
                    self._taken.append(uri)
                    yield uri, content, row.updated_at
            tell("exporting", done, len(self._rows), unit="files")

    def history(self) -> Iterator[dict[str, Any]]:
        """The commits that touched what was taken; all of them when everything was."""
        taken = None if self.selection.is_everything else frozenset(str(uri) for uri in self._taken)
        for commit in _chosen_history(self._snapshot.history(), taken):
            self.commits += 1
            yield commit

    def export(self, path: Path | None) -> Export:
        """What was taken, once it was."""
        taken = {str(uri) for uri in self._taken}
        queued = [row for row in self._snapshot.queue() if row.log in taken]
        sessions = [{"uri": row.log, "stored": row.stored, "extracted": row.extracted} for row in queued]
        counts = counted(self._taken) | {"commits": self.commits}
        left_out = (self._left_out, self._not_utf8)
        return Export(path, counts, _spaces(self._taken), self._snapshot.seq, *left_out, sessions)

    def header(self) -> dict[str, Any]:
        """What every form says first."""
        return {
            "program_version": program_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ledger_id": self._snapshot.ledger_id,
            "seq": self._snapshot.seq,
            "selection": self.selection.as_dict(),
            "spaces": _spaces(self.uris),
        }


def _zip_paths(uris: Sequence[MemoryUri]) -> dict[MemoryUri, str]:
    """The path of each file in a zip; twins that a file system would confuse get names of their own."""
    taken: set[str] = {MANIFEST_NAME, HISTORY_NAME}
    paths: dict[MemoryUri, str] = {}
    for uri in uris:
        path = "/".join(uri.parts)
        if names.fold(path) in taken:
            path = "/".join((*uri.parts[:-1], marked(uri.name, names.short_hash(str(uri)))))
        taken.add(names.fold(path))
        paths[uri] = path
    return paths


def marked(name: str, mark: str) -> str:
    """A file's name with a mark before its ending, within the limit."""
    stem, dot, extension = name.rpartition(".")
    return names.fit(stem or name, dot + extension if stem else "", f"~{mark}")


def _spaces(uris: Sequence[MemoryUri]) -> list[str]:
    return sorted({uri.space for uri in uris})


def _memory_facts(uri: MemoryUri, text: str, registry: MemoryTypeRegistry) -> dict[str, Any]:
    """A memory for programs that know nothing of our files; empty for files that are no memories."""
    if uri.scope is Scope.SESSION or uri.is_summary or not uri.name.endswith(".md"):
        return {}
    memory = parse(uri, text, registry)
    if memory.type is None:
        return {}
    document = memory_document(memory)
    return {
        "memory_type": memory.type_name,
        "name": document.name,
        "fields": dict(memory.fields),
        "abstract": document.abstract,
        "tags": list(document.tags),
        "salience": document.salience,
        "project": document.project,
    }


def _chosen_history(commits: Iterator[dict[str, Any]], taken: frozenset[str] | None) -> Iterator[dict[str, Any]]:
    """The commits with what they say of other files left out; ``taken`` None leaves them whole."""
    for commit in commits:
        if taken is None:
            yield commit
            continue
        changes = [
            change | {"moved_from": change["moved_from"] if change["moved_from"] in taken else None}
            for change in commit["changes"]
            if change["uri"] in taken
        ]
        if changes:
            yield commit | {"receipt": _narrowed(commit["receipt"], taken), "changes": changes}


def _narrowed(receipt: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    return {
        "commit_id": receipt["commit_id"],
        "status": receipt["status"],
        "results": [result for result in receipt["results"] if result["uri"] in taken],
        "similar": [],
    }
