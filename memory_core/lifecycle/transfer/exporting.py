"""Export: one archive, or JSON lines, of a store as it was at one commit, while others go on writing.

The file appears under its name only when it is whole, private to the user. Texts are never logged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from memory_core.errors import InvalidInput, StorageFailed
from memory_core.index.documents import is_session_log
from memory_core.lifecycle.transfer.forms import (
    FORMAT,
    FORMAT_VERSION,
    HISTORY_NAME,
    MANIFEST_NAME,
    Selection,
    TransferFile,
    archive_paths,
    chosen_history,
    content_at,
    counted,
    memory_facts,
    spaces_of,
)
from memory_core.model.changes import text_sha256
from memory_core.model.conversation import parse_lines, to_record
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage import atomic
from memory_core.storage.file_store import LEDGER_NAME
from memory_core.storage.ledger_snapshot import LedgerSnapshot
from memory_core.storage.store import Store
from memory_core.version import program_version

#: What an importer takes for a bomb is stored as it is instead: a text of one repeated line is none.
_DEFLATE_LIMIT = 50
_RATIO_FROM_BYTES = 64 * 1024
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported.

    Attributes:
        path: Where it is; None for a stream.
        counts: Files by kind, and commits.
        spaces: The spaces they are of.
        seq: The last commit that is in it.
        left_out: Files whose text neither disk nor ledger has as it was committed.
        sessions: How far each session's messages were extracted.
    """

    path: Path | None
    counts: dict[str, int]
    spaces: list[str]
    seq: int
    left_out: list[str] = field(default_factory=list)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "path": None if self.path is None else str(self.path),
            "counts": self.counts,
            "spaces": self.spaces,
            "seq": self.seq,
            "left_out": self.left_out,
        }


def export_zip(
    store: Store,
    registry: MemoryTypeRegistry,
    target: Path,
    selection: Selection,
    *,
    force: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Export:
    """Write a zip archive.

    Args:
        store: The store; others may go on using it.
        registry: The memory types.
        target: The archive to be.
        selection: What is taken.
        force: Replace a file that is there.
        progress: Called with files done and files in all.

    Raises:
        InvalidInput: If ``target`` is there and ``force`` is not given. Nothing was written.
        StorageFailed: If the disk refuses; ``target`` is then as it was.
    """
    with _source(store, registry, selection) as source, _whole(target, force=force) as stream:
        entries: list[dict[str, Any]] = []
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            paths = archive_paths(source.uris)
            for file in source.files(progress):
                _put(archive, paths[file.uri], file.content)
                facts = {"path": paths[file.uri], "uri": str(file.uri), "sha256": file.sha256}
                entries.append(facts | {"size": len(file.content), "updated_at": file.updated_at})
            commits = _put_history(archive, source) if selection.history else None
            export = source.export(target, 0 if commits is None else commits["commits"])
            manifest = source.header(export) | {"history": commits, "files": entries}
            _put(archive, MANIFEST_NAME, json.dumps(manifest, ensure_ascii=False, indent=1).encode())
        return export


def export_lines(
    store: Store,
    registry: MemoryTypeRegistry,
    target: Path | IO[bytes],
    selection: Selection,
    *,
    force: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> Export:
    """Write JSON lines, to a file or to an open stream; see ``export_zip``."""
    path = target if isinstance(target, Path) else None
    destination = _whole(target, force=force) if isinstance(target, Path) else contextlib.nullcontext(target)
    with _source(store, registry, selection) as source, destination as stream:
        lines = _Lines(stream)
        lines.write({"kind": "export"} | source.header(None))
        for file in source.files(progress):
            sha256 = text_sha256(file.text)  # of the text: a hand-made file may hold bytes that are none
            facts = {"kind": "file", "uri": str(file.uri), "sha256": sha256, "updated_at": file.updated_at}
            lines.write(facts | {"text": file.text} | memory_facts(file.uri, file.text, registry))
            if selection.messages and is_session_log(file.uri):
                for index, message in enumerate(parse_lines(file.text)[0]):
                    lines.write({"kind": "message", "uri": f"{file.uri}#{index}"} | to_record(message))
        commits = 0
        for commit in source.history() if selection.history else ():
            lines.write({"kind": "commit", "commit": commit})
            commits += 1
        export = source.export(path, commits)
        lines.write(
            {"kind": "end", "counts": export.counts, "left_out": export.left_out, "sessions": export.sessions}
            | {"sha256": lines.digest.hexdigest()}
        )
        stream.flush()
        return export


class _Lines:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, facts: dict[str, Any]) -> None:
        # ASCII where a text holds half a character, which UTF-8 cannot: the line stays valid JSON.
        line = json.dumps(facts, ensure_ascii=False)
        try:
            raw = line.encode("utf-8") + b"\n"
        except UnicodeEncodeError:
            raw = json.dumps(facts).encode("ascii") + b"\n"
        self.digest.update(raw)
        self._stream.write(raw)


@contextlib.contextmanager
def _source(store: Store, registry: MemoryTypeRegistry, selection: Selection) -> Iterator[_Source]:
    store.adopt()  # what people wrote is part of it
    with LedgerSnapshot(store.files.state / LEDGER_NAME) as snapshot:
        yield _Source(store, registry, selection, snapshot)


class _Source:
    """The chosen files of one moment."""

    def __init__(
        self, store: Store, registry: MemoryTypeRegistry, selection: Selection, snapshot: LedgerSnapshot
    ) -> None:
        self._store = store
        self._registry = registry
        self._selection = selection
        self._snapshot = snapshot
        self._rows = [row for row in snapshot.files() if selection.places(MemoryUri.parse(row.uri))]
        self._taken: list[MemoryUri] = []
        self._left_out: list[str] = []

    @property
    def uris(self) -> list[MemoryUri]:
        """Every file that may be taken."""
        return [MemoryUri.parse(row.uri) for row in self._rows]

    def files(self, progress: Progress) -> Iterator[TransferFile]:
        """The files, one at a time."""
        for done, row in enumerate(self._rows, 1):
            uri = MemoryUri.parse(row.uri)
            content = content_at(self._store.files, self._snapshot, row)
            if content is None:
                self._left_out.append(row.uri)
            elif self._selection.takes(uri, content.decode("utf-8", "replace"), self._registry):
                self._taken.append(uri)
                yield TransferFile(uri, content, row.updated_at)
            progress(done, len(self._rows))

    def history(self) -> Iterator[dict[str, Any]]:
        """The commits that touched what was taken; all of them when everything was."""
        if self._selection.is_everything:
            return chosen_history(self._snapshot.history(), None)
        return chosen_history(self._snapshot.history(), frozenset(str(uri) for uri in self._taken))

    def export(self, path: Path | None, commits: int) -> Export:
        """What was taken, once it was."""
        counts = counted(self._taken) | {"commits": commits}
        taken = {str(uri) for uri in self._taken}
        sessions = [
            {"uri": row.log, "stored": row.stored, "extracted": row.extracted}
            for row in self._snapshot.queue()
            if row.log in taken
        ]
        return Export(path, counts, spaces_of(self._taken), self._snapshot.seq, self._left_out, sessions)

    def header(self, export: Export | None) -> dict[str, Any]:
        """What every form says first; counts are known once everything was taken."""
        facts: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "program_version": program_version(),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "ledger_id": self._snapshot.ledger_id,
            "seq": self._snapshot.seq,
            "selection": self._selection.as_dict(),
        }
        if export is None:
            return facts | {"spaces": spaces_of(self.uris)}
        facts |= {"spaces": export.spaces, "counts": export.counts, "left_out": export.left_out}
        return facts | {"sessions": export.sessions}


def _put(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    info = zipfile.ZipInfo(path, datetime.now(UTC).timetuple()[:6])
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    if len(content) > _RATIO_FROM_BYTES and len(zlib.compress(content, 1)) * _DEFLATE_LIMIT < len(content):
        info.compress_type = zipfile.ZIP_STORED
    archive.writestr(info, content)


def _put_history(archive: zipfile.ZipFile, source: _Source) -> dict[str, Any]:
    digest, size, commits = hashlib.sha256(), 0, 0
    info = zipfile.ZipInfo(HISTORY_NAME, datetime.now(UTC).timetuple()[:6])
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=True) as stream:
        for commit in source.history():
            line = json.dumps(commit).encode("ascii") + b"\n"
            stream.write(line)
            digest.update(line)
            size += len(line)
            commits += 1
    return {"path": HISTORY_NAME, "sha256": digest.hexdigest(), "size": size, "commits": commits}


@contextlib.contextmanager
def _whole(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A stream whose content appears at ``target`` when the body ends, and not at all when it raises."""
    if target.is_dir() or (target.exists() and not force):
        raise InvalidInput(f"{target.name!r} is there already.", hint="Name another file, or add --force.")
    atomic.make_folder(target.absolute().parent)
    temporary = target.parent / f"{atomic.TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(temporary, flags, 0o600), "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists() and not force:
            raise InvalidInput(f"{target.name!r} has appeared meanwhile.", hint="Name another file, or add --force.")
        temporary.replace(target)
        atomic.sync(target)
    except OSError as error:
        raise StorageFailed(
            f"{target.name!r} could not be written: {error.strerror or error}.",
            hint="Check free space and permissions.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
