"""The catalog: a disposable SQLite index that follows the ledger by sequence number.

Owns the manifest of documents, their full-text views and passages, and says which vectors are live. Any
process may bring it up to date; all of it can be deleted and comes back equal. It decides what a hit is:
what it does not hold does not exist, whatever a vector index answers.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from memory_core.errors import StorageFailed
from memory_core.index.documents import NEIGHBOURS, Document, SessionGrowth
from memory_core.index.filter import Condition, utc
from memory_core.index.tokenizer import index_tokens
from memory_core.index.vectors import DDL as VECTORS_DDL
from memory_core.index.vectors import chunks
from memory_core.model.changes import text_sha256
from memory_core.model.uri import MemoryUri
from memory_core.scoring.fusion import FILLER_ROWS, FILLER_TEXT
from memory_core.storage.database import Database

_log = logging.getLogger(__name__)

_SCHEMA_1 = (
    """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    space TEXT NOT NULL,
    context_type TEXT NOT NULL,
    memory_type TEXT NOT NULL,
    name TEXT NOT NULL,
    abstract TEXT NOT NULL,
    own TEXT NOT NULL,
    created_at TEXT,
    updated_at TEXT,
    salience REAL NOT NULL,
    tags TEXT NOT NULL,
    category TEXT,
    project TEXT,
    role TEXT,
    speaker TEXT,
    session_id TEXT,
    UNIQUE (uri, part)
);
CREATE INDEX documents_space ON documents (space);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document_id INTEGER NOT NULL,
    space TEXT NOT NULL,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    text TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    embedded TEXT,
    UNIQUE (uri, part)
);
CREATE INDEX passages_document ON passages (document_id);
CREATE INDEX passages_space ON passages (space);
CREATE INDEX passages_waiting ON passages (id) WHERE embedded IS NULL;
CREATE VIRTUAL TABLE words USING fts5 (
    own, previous, scope, tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
    + VECTORS_DDL
)


@dataclass(frozen=True, slots=True)
class Position:
    """How far the catalog has followed which ledger."""

    ledger_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to embed; ``part`` and ``content_sha256`` name its vector."""

    id: int
    space: str
    uri: str
    part: int
    text: str
    content_sha256: str


class Entry(NamedTuple):
    """A document as ranking sees it."""

    id: int
    uri: str
    part: int
    context_type: str
    memory_type: str
    abstract: str
    updated_at: str | None
    salience: float
    role: str | None
    speaker: str | None


class Catalog:
    """Reads and writes ``index.sqlite3``."""

    def __init__(self, path: Path) -> None:
        try:
            self._database = Database(path, (_SCHEMA_1,), "NORMAL")
        except StorageFailed as error:
            _log.warning("the catalog is rebuilt: %s", error.message)
            _move_aside(path)
            self._database = Database(path, (_SCHEMA_1,), "NORMAL")

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, for reading."""
        return self._database.connection()

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """One write transaction."""
        return self._database.writing()

    def position(self) -> Position:
        """How far this catalog has come; ``seq`` 0 of no ledger when it is new."""
        found = dict(self.connection().execute("SELECT name, value FROM meta WHERE name IN ('ledger_id', 'seq')"))
        return Position(found.get("ledger_id", ""), int(found.get("seq", 0)))

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Rows without a searchable word, so that idf means something in a store of one memory."""
        connection.executemany(
            "INSERT OR IGNORE INTO words (rowid, own, previous, scope) VALUES (?, ?, '', '')",
            [(-number, FILLER_TEXT) for number in range(1, FILLER_ROWS + 1)],
        )

    def advance(self, connection: sqlite3.Connection, position: Position) -> None:
        """Note that everything up to ``position`` is indexed."""
        rows = [("ledger_id", position.ledger_id), ("seq", str(position.seq))]
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def clear(self, connection: sqlite3.Connection) -> None:
        """Forget all documents; vectors stay, as the cache of what was embedded."""
        for table in ("meta", "documents", "passages", "words"):
            connection.execute(f"DELETE FROM {table}")
        self._fill(connection)

    def remove(self, connection: sqlite3.Connection, uri: MemoryUri) -> None:
        """Drop every document of a file."""
        ids = [row[0] for row in connection.execute("SELECT id FROM documents WHERE uri = ?", (str(uri),))]
        for identifier in ids:
            connection.execute("DELETE FROM words WHERE rowid = ?", (identifier,))
        connection.execute("DELETE FROM passages WHERE uri = ?", (str(uri),))
        connection.execute("DELETE FROM documents WHERE uri = ?", (str(uri),))

    def put(self, connection: sqlite3.Connection, document: Document) -> None:
        """Add a document; its file's older documents must have been removed."""
        space = document.uri.space
        scope = f"space{self._space_id(connection, space)}"
        cursor = connection.execute(
            "INSERT INTO documents (uri, part, space, context_type, memory_type, name, abstract, own, created_at, "
            "updated_at, salience, tags, category, project, role, speaker, session_id) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                str(document.uri),
                document.part,
                space,
                document.context_type,
                document.memory_type,
                document.name,
                document.abstract,
                document.own,
                utc(document.created_at),
                utc(document.updated_at),
                document.salience,
                json.dumps(document.tags, ensure_ascii=False),
                document.category,
                document.project,
                document.role,
                document.speaker,
                document.session_id,
            ),
        )
        identifier = int(cursor.lastrowid or 0)
        connection.execute(
            "INSERT INTO words (rowid, own, previous, scope) VALUES (?, ?, ?, ?)",
            (identifier, index_tokens(f"{document.heading} {document.own}"), index_tokens(document.previous), scope),
        )
        for offset, text in enumerate(document.passages):
            self._put_passage(connection, identifier, document.uri, document.part + offset, text)

    def grow(self, connection: sqlite3.Connection, uri: MemoryUri, growth: SessionGrowth) -> None:
        """Add a session's new messages and renew the passages of the turns just before them."""
        for part, text in growth.revised.items():
            row = connection.execute("SELECT id FROM documents WHERE uri = ? AND part = ?", (str(uri), part)).fetchone()
            if row is not None:
                self._put_passage(connection, row[0], uri, part, text)
        for document in growth.documents:
            self.put(connection, document)

    def last_turns(self, uri: MemoryUri) -> list[tuple[int, str]]:
        """``(part, own)`` of the last indexed turns of a session, oldest first."""
        rows = self.connection().execute(
            "SELECT part, own FROM documents WHERE uri = ? ORDER BY part DESC LIMIT ?",
            (str(uri), 2 * NEIGHBOURS),
        )
        return [(part, own) for part, own in rows][::-1]

    def waiting(self, limit: int) -> list[Passage]:
        """Passages that have no vector yet, oldest first."""
        rows = self.connection().execute(
            "SELECT id, space, uri, part, text, content_sha256 FROM passages WHERE embedded IS NULL "
            "ORDER BY id LIMIT ?",
            (limit,),
        )
        return [Passage(*row) for row in rows]

    def waiting_count(self) -> int:
        """How many passages have no vector yet."""
        row = self.connection().execute("SELECT count(*) FROM passages WHERE embedded IS NULL").fetchone()
        return int(row[0])

    def passage_count(self, space: str) -> int:
        """How many passages a space has."""
        row = self.connection().execute("SELECT count(*) FROM passages WHERE space = ?", (space,)).fetchone()
        return int(row[0])

    def dead_vectors(self, space: str, fingerprint: str) -> list[int]:
        """Sequence numbers of vectors whose text is no passage any more."""
        rows = self.connection().execute(
            "SELECT v.seq FROM vectors v LEFT JOIN passages p ON p.uri = v.uri AND p.part = v.part "
            "AND p.content_sha256 = v.content_sha256 WHERE v.space = ? AND v.fingerprint = ? AND p.id IS NULL",
            (space, fingerprint),
        )
        return [int(seq) for (seq,) in rows]

    def mark_embedded(self, connection: sqlite3.Connection, passages: Iterable[Passage], fingerprint: str) -> None:
        """Note that these passages have vectors, unless their text changed meanwhile."""
        connection.executemany(
            "UPDATE passages SET embedded = ? WHERE id = ? AND content_sha256 = ?",
            [(fingerprint, passage.id, passage.content_sha256) for passage in passages],
        )

    def expect(self, fingerprint: str) -> None:
        """Ask for vectors of this model: passages embedded by another wait again."""
        row = self.connection().execute(
            "SELECT 1 FROM passages WHERE embedded IS NOT NULL AND embedded <> ? LIMIT 1", (fingerprint,)
        )
        if row.fetchone() is not None:
            with self.writing() as connection:
                connection.execute("UPDATE passages SET embedded = NULL WHERE embedded <> ?", (fingerprint,))

    def spaces(self) -> list[str]:
        """Names of all indexed spaces."""
        return [name for (name,) in self.connection().execute("SELECT name FROM spaces ORDER BY id")]

    def scope_terms(self, spaces: Sequence[str]) -> list[str] | None:
        """Full-text terms that confine a search to ``spaces``; None when they are all there is."""
        known = dict(self.connection().execute("SELECT name, id FROM spaces"))
        if known.keys() <= set(spaces):
            return None
        return [f"space{known[space]}" for space in spaces if space in known]

    def entries(self, ids: Sequence[int]) -> dict[int, Entry]:
        """Documents by id; ids that are gone are left out."""
        found: dict[int, Entry] = {}
        for marks, chunk in chunks(ids):
            rows = self.connection().execute(
                f"SELECT {', '.join(Entry._fields)} FROM documents WHERE id IN ({marks})", chunk
            )
            found |= {row[0]: Entry(*row) for row in rows}
        return found

    def live(self, seqs: Sequence[int]) -> dict[int, int]:
        """Document id by vector sequence number, for vectors of passages that are current."""
        found: dict[int, int] = {}
        for marks, chunk in chunks(seqs):
            rows = self.connection().execute(
                "SELECT v.seq, p.document_id FROM vectors v JOIN passages p ON p.uri = v.uri AND p.part = v.part "
                f"AND p.content_sha256 = v.content_sha256 WHERE v.seq IN ({marks})",
                chunk,
            )
            found |= {int(seq): int(document) for seq, document in rows}
        return found

    def vector_seqs(self, ids: Sequence[int], fingerprint: str) -> dict[int, list[int]]:
        """Sequence numbers of the live vectors of each document."""
        found: dict[int, list[int]] = {}
        for marks, chunk in chunks(ids):
            rows = self.connection().execute(
                "SELECT p.document_id, v.seq FROM passages p JOIN vectors v ON v.space = p.space AND v.uri = p.uri "
                "AND v.part = p.part AND v.content_sha256 = p.content_sha256 AND v.fingerprint = ? "
                f"WHERE p.document_id IN ({marks})",
                [fingerprint, *chunk],
            )
            for document, seq in rows:
                found.setdefault(int(document), []).append(int(seq))
        return found

    def own_text(self, uri: str) -> str:
        """The indexed words of a memory; empty when it is not indexed."""
        row = (
            self.connection()
            .execute("SELECT own FROM documents WHERE uri = ? AND context_type <> 'resource'", (uri,))
            .fetchone()
        )
        return "" if row is None else str(row[0])

    def satisfying(self, ids: Sequence[int], condition: Condition) -> set[int]:
        """Those of the documents that meet a condition."""
        found: set[int] = set()
        for marks, chunk in chunks(ids):
            rows = self.connection().execute(
                f"SELECT d.id FROM documents d WHERE d.id IN ({marks}) AND {condition.sql}",
                [*chunk, *condition.parameters],
            )
            found |= {int(row[0]) for row in rows}
        return found

    def abstracts(self, uris: Sequence[str]) -> Mapping[str, str]:
        """Abstracts of files, for listings; session messages are left out."""
        found: dict[str, str] = {}
        for uri in uris:
            row = self.connection().execute(
                "SELECT abstract FROM documents WHERE uri = ? AND part = 0 AND context_type <> 'resource'",
                (uri,),
            )
            line = row.fetchone()
            if line is not None:
                found[uri] = line[0]
        return found

    def _space_id(self, connection: sqlite3.Connection, name: str) -> int:
        connection.execute("INSERT OR IGNORE INTO spaces (name) VALUES (?)", (name,))
        return int(connection.execute("SELECT id FROM spaces WHERE name = ?", (name,)).fetchone()[0])

    def _put_passage(self, connection: sqlite3.Connection, document: int, uri: MemoryUri, part: int, text: str) -> None:
        digest = text_sha256(text)
        connection.execute(
            "INSERT OR REPLACE INTO passages (document_id, space, uri, part, text, content_sha256) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (document, uri.space, str(uri), part, text, digest),
        )


def _move_aside(path: Path) -> None:
    """Make room for a new catalog; the damaged one is kept once, for whoever wants to look."""
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.replace(path.with_name(f"{path.name}.damaged{suffix}"))
