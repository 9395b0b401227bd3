"""What an export is: which files it takes, how it describes them, and the form of archive and lines.

Owns the format's names and version, the choice of files, and the description of a memory for other programs.
``transfer_export`` writes it, ``transfer_archive`` reads it as what it is, a file from somewhere else, and
``transfer_import`` brings it into a store.

A zip archive holds each file under the path that its URI has in a memory folder, ``manifest.json`` with hash and
size of each, and ``history.jsonl`` if it was asked for. JSON lines are an ``export`` line, a ``file`` line for each
file, ``message`` and ``commit`` lines if asked for, and an ``end`` line with the hash of all lines before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_core.index.documents import MESSAGES_NAME, is_session_log, memory_document
from memory_core.model import filename
from memory_core.model.conversation import parse_lines
from memory_core.model.memory_file import parse
from memory_core.model.record import read_record
from memory_core.model.uri import SCHEME, MemoryUri, Scope
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.file_store import FileStore
from memory_core.storage.ledger_snapshot import LedgerSnapshot, SnapshotFile

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
        memory_type = registry.type_at(uri, parse(text).type_name)
        if self.memory_type is not None and (memory_type is None or memory_type.name != self.memory_type):
            return False
        if self.project is None:
            return True
        if is_session_log(uri):
            messages, _ = parse_lines(text)
            return bool(messages) and all(message.project == self.project for message in messages)
        return memory_type is not None and memory_document(uri, text, memory_type).project == self.project

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
    memory_type = registry.type_at(uri, parse(text).type_name)
    if memory_type is None:
        return {}
    record = read_record(memory_type, parse(text), uri.name.removesuffix(".md"))
    document = memory_document(uri, text, memory_type)
    facts: dict[str, Any] = {
        "memory_type": memory_type.name,
        "name": document.name,
        "fields": dict(record.fields),
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
        if filename.fold(path) in taken:
            stem, dot, extension = uri.name.rpartition(".")
            mark = "~" + filename.short_hash(str(uri))
            path = "/".join((*uri.parts[:-1], filename.fit(stem or uri.name, dot + extension if stem else "", mark)))
        taken.add(filename.fold(path))
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
