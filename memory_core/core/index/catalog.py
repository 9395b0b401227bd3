"""The catalog: a disposable SQLite index that follows the ledger by sequence number.

Owns the manifest of documents, their full-text views and passages, and says which vectors are live. Any
process may bring it up to date; all of it can be deleted and comes back equal. It decides what a hit is:
what it does not hold does not exist, whatever a vector index answers.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.frozen import frozen
from memory_core.core.index import embedding_queue, page_rows
from memory_core.core.index.catalog_file import CatalogFile
from memory_core.core.index.documents import NEIGHBOURS, Document, SessionGrowth, Turn
from memory_core.core.index.encoder import PASSAGE_LIMIT_COUNT
from memory_core.core.index.filter import ANYTHING, Condition, private_elsewhere, utc
from memory_core.core.index.vectors import VectorRow, append, chunks
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.locks import Lock, StoreLock
from memory_core.core.store.sqlite import SET_META
from memory_core.core.text.analysis import index_tokens

if TYPE_CHECKING:
    from memory_core.core.index.search_rows import Words


class SpacePosition(NamedTuple):
    """How far the changes of a space are indexed.

    Attributes:
        seq: All changes of earlier commits are.
        ordinal: And of this commit those of earlier places.
        lines: And so many lines of the log that this change is of.
        first: The number of the first of these lines in its log.
    """

    seq: int
    ordinal: int = 0
    lines: int = 0
    first: int = 0


@frozen
class Position:
    """How far the catalog has followed which ledger.

    Attributes:
        ledger_id: Of which ledger; empty for a new catalog.
        seq: The last commit that is indexed.
        filling: While the files of before are still being indexed: the last one that is, as ``indexer`` writes it
            (commit:place); None when all are.
        filling_id: Names the filling that numbered the documents; their ids mean nothing after another.
        features: The features that say what is searched of files that are no memories; None where nobody noted it.
        ahead: The spaces (``scope/space``) of which more is indexed than ``seq`` says, because somebody searches them.
        partial: The log of which only some lines are indexed while the files of before are, and how many lines.
    """

    ledger_id: str
    seq: int
    filling: str | None = None
    filling_id: str = ""
    features: str | None = None
    ahead: tuple[tuple[str, SpacePosition], ...] = ()
    partial: tuple[str, int] | None = None

    def reached(self, spaces: Sequence[str]) -> int:
        """The last commit that is indexed of these spaces, with all before it; none given are all."""
        if not spaces or not self.ahead:
            return self.seq
        ahead = dict(self.ahead)
        return min(ahead[space].seq - 1 if space in ahead else self.seq for space in spaces)


class Entry(NamedTuple):
    """A document as ranking sees it; times are ISO 8601 in UTC, ``happened`` is a date or a part of one.

    ``contested_by`` is a JSON list of the memories that contradict or replace this one, each with relation and
    strength; ``support`` what others lend it, in [0, 1]. Documents with the same ``signature`` say the same thing.
    """

    id: int
    uri: str
    part: int
    context_type: str
    memory_type: str
    abstract: str
    created_at: str | None
    updated_at: str | None
    salience: float
    project: str | None
    private: bool
    contested_by: str
    signature: str
    confidence: float
    active: bool
    expires_at: str | None
    support: float
    happened: str | None

    def in_use(self, now: str) -> bool:
        """Whether it was not put to rest and is not past its time; ``now`` as the catalog writes times."""
        return bool(self.active) and (self.expires_at is None or self.expires_at > now)


class Voice(NamedTuple):
    """A memory as one that speaks for or against another: its address and line, how far it is trusted, since when."""

    uri: str
    abstract: str
    confidence: float
    updated_at: str


class Saying(NamedTuple):
    """Who says a document, by name or else by role, when it happened, if that is known, and how much it tells."""

    speaker: str | None
    happened: str | None
    substance: float


#: What of a document has a column; words and passages have tables of their own.
_COLUMNS = [each.name for each in fields(Document) if each.name not in ("heading", "previous", "passages")]
#: The scope term of no space: their numbers begin at 1.
_NO_SPACE = "space0"
_OPENING_TURNS = 20


def words_of(document: Document) -> tuple[str, str]:
    """What a document is found by: the words of its own text, and of the turns before it."""
    return index_tokens(f"{document.heading} {document.own}"), index_tokens(document.previous)


class Catalog:
    """Reads and writes ``index.sqlite3``."""

    def __init__(self, path: Path) -> None:
        self.file = CatalogFile(path)

    def close(self) -> None:
        """Close all connections."""
        self.file.close()

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, for reading."""
        return self.file.connection()

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """One consistent view for several reads."""
        return self.file.reading()

    def writing(self, **options: Any) -> AbstractContextManager[sqlite3.Connection]:
        """One write transaction; see ``Database.writing``."""
        return self.file.writing(**options)

    def position(self) -> Position:
        """How far this catalog has come; ``seq`` 0 of no ledger when it is new."""
        found = self._meta()
        filling_id, features = found.get("filling_id", ""), found.get("kinds")
        ahead = tuple((space, SpacePosition(*place)) for space, place in json.loads(found.get("ahead", "{}")).items())
        uri, lines = json.loads(found.get("partial", "[null, 0]"))
        partial = None if uri is None else (uri, lines)
        ledger_id, seq = found.get("ledger_id", ""), int(found.get("seq", 0))
        return Position(ledger_id, seq, found.get("filling"), filling_id, features, ahead, partial)

    def state(self, spaces: Sequence[str]) -> Hashable:
        """What a search of some spaces (``scope/space``) rests on: another once anything of theirs changed."""
        rows = self.connection().execute(
            "SELECT name, changed FROM spaces WHERE name IN (SELECT value FROM json_each(?)) ORDER BY id",
            (json.dumps(list(spaces)),),
        )
        return self.file.generation, self.position().filling_id, *rows.fetchall()

    def together(self) -> AbstractContextManager[object]:
        """Several reads of one state, where each would go a long way alone."""
        return nullcontext()

    def _meta(self) -> dict[str, str]:
        return dict(self.connection().execute("SELECT name, value FROM meta"))

    def _numbers(self) -> dict[str, int]:
        """Numbers of spaces, by name."""
        return dict(self.connection().execute("SELECT name, id FROM spaces"))

    @cached_property
    def words(self) -> Words:
        """Keeps the words of documents, and searches them."""
        from memory_core.core.index.search_rows import Words  # whoever only reads and commits searches nothing

        return Words(self.connection)

    def lock(self, name: str) -> Lock:
        """A lock of this catalog by its name, shared by all who use it."""
        return StoreLock(self.file.path.parent / "locks" / f"{name}.lock")

    def append_vectors(self, connection: sqlite3.Connection, rows: Iterable[VectorRow]) -> None:
        """Add vectors; one already there (same passage, text and model) is left as it is."""
        append(connection, rows)

    def advance(self, connection: sqlite3.Connection, position: Position) -> None:
        """Note that everything up to ``position`` is indexed."""
        rows = [("ledger_id", position.ledger_id), ("seq", str(position.seq))]
        connection.execute("DELETE FROM meta WHERE name IN ('filling', 'ahead', 'partial')")
        if position.filling is not None:
            rows.append(("filling", position.filling))
        if position.ahead:
            rows.append(("ahead", json.dumps(dict(position.ahead))))
        if position.partial is not None:
            rows.append(("partial", json.dumps(position.partial)))
        connection.executemany(SET_META, rows)

    def note_features(self, connection: sqlite3.Connection, features: str) -> None:
        """Note the features that the documents were made with; see ``Position``."""
        connection.execute(SET_META, ("kinds", features))

    def clear(self, connection: sqlite3.Connection) -> None:
        """Forget all documents; vectors stay, as the cache of what was embedded."""
        for table in ("meta", "documents", "resting"):
            connection.execute(f"DELETE FROM {table}")
        self.words.clear()
        embedding_queue.clear(connection)
        page_rows.clear(connection)
        connection.execute("INSERT INTO meta VALUES ('filling_id', ?)", (secrets.token_hex(8),))

    def remove(self, connection: sqlite3.Connection, uri: MemoryUri) -> None:
        """Drop every document of a file."""
        ids = [row[0] for row in connection.execute("SELECT id FROM documents WHERE uri = ?", (str(uri),))]
        self.words.remove(ids)
        embedding_queue.remove(connection, str(uri))
        connection.execute("DELETE FROM documents WHERE uri = ?", (str(uri),))

    def put(self, connection: sqlite3.Connection, document: Document) -> None:
        """Add a document; its file's older documents must have been removed."""
        space = document.uri.space
        scope = f"space{self._space_id(connection, space)}"
        row = {name: getattr(document, name) for name in _COLUMNS} | {
            "uri": str(document.uri),
            "space": space,
            "created_at": utc(document.created_at),
            "updated_at": utc(document.updated_at),
            "tags": json.dumps(document.tags, ensure_ascii=False),
            "contested_by": json.dumps(document.contested_by, ensure_ascii=False),
            "expires_at": None if document.expires_at is None else utc(document.expires_at.isoformat()),
        }
        marks = ", ".join("?" * len(row))
        cursor = connection.execute(f"INSERT INTO documents ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
        identifier = int(cursor.lastrowid or 0)
        self.words.put(identifier, *words_of(document), scope)
        self._put_passages(connection, identifier, document.uri, document.part, document.passages)

    def grow(self, connection: sqlite3.Connection, uri: MemoryUri, growth: SessionGrowth) -> None:
        """Add a session's new messages and renew the passages of the turns just before them."""
        for part, texts in growth.revised.items():
            row = connection.execute("SELECT id FROM documents WHERE uri = ? AND part = ?", (str(uri), part)).fetchone()
            if row is not None:
                self._put_passages(connection, row[0], uri, part, texts)
        for document in growth.documents:
            self.put(connection, document)
        if growth.documents:
            self._note_use(connection, uri, [(growth.documents[0].part, growth.documents[-1].part)])

    def put_resting_lines(
        self, connection: sqlite3.Connection, uri: MemoryUri, log: MemoryUri, lines: Sequence[tuple[int, int]]
    ) -> None:
        """Note the lines of a log, first and last, that an archived file stands for, in place of those it had.

        Their messages stay where they are, and are at rest: found only by those who ask for such. Which lines these are
        follows from the archived files alone, whatever is indexed first. Those of a restored file are in use again.
        """
        before = connection.execute("SELECT first, last FROM resting WHERE segment = ?", (str(uri),)).fetchall()
        connection.execute("DELETE FROM resting WHERE segment = ?", (str(uri),))
        connection.executemany(
            "INSERT INTO resting VALUES (?, ?, ?, ?) ON CONFLICT (segment, first) DO UPDATE SET last = excluded.last",
            [(str(uri), str(log), *span) for span in lines],
        )
        self._note_use(connection, log, {(int(first), int(last)) for first, last in (*before, *lines)})

    def _note_use(self, connection: sqlite3.Connection, log: MemoryUri, spans: Iterable[tuple[int, int]]) -> None:
        """Say of messages of a log, from lines to lines, whether they are in use; those of most logs all are."""
        covered = "EXISTS (SELECT 1 FROM resting r WHERE r.log = d.uri AND d.part BETWEEN r.first AND r.last)"
        changed = "UPDATE documents AS d SET active = 1 - active WHERE uri = ? AND part >= ? AND part <= ?"
        connection.executemany(f"{changed} AND {covered} = (active = 1)", [(str(log), *span) for span in spans])

    def last_turns(self, uri: MemoryUri) -> list[Turn]:
        """The last indexed turns of a session, oldest first."""
        rows = self.connection().execute(
            "SELECT part, own, speaker FROM documents WHERE uri = ? ORDER BY part DESC LIMIT ?",
            (str(uri), 2 * NEIGHBOURS),
        )
        return [Turn(*row) for row in rows][::-1]

    def spaces(self) -> list[str]:
        """Names of all indexed spaces."""
        return [name for (name,) in self.connection().execute("SELECT name FROM spaces ORDER BY id")]

    def scope_terms(self, spaces: Sequence[str]) -> list[str] | None:
        """Full-text terms that confine a search to ``spaces``; None when they are all there is."""
        known = self._numbers()
        if known.keys() <= set(spaces):
            return None
        return [f"space{known[space]}" for space in spaces if space in known] or [_NO_SPACE]

    def _rows(
        self, columns: Iterable[str], ids: Sequence[int], condition: Condition = ANYTHING
    ) -> Iterator[tuple[Any, ...]]:
        """Columns of documents by id; ids that are gone, or do not meet the condition, are left out."""
        for marks, chunk in chunks(ids):
            yield from self.connection().execute(
                f"SELECT {', '.join(columns)} FROM documents d WHERE d.id IN ({marks}) AND {condition.sql}",
                [*chunk, *condition.parameters],
            )

    def entries(self, ids: Sequence[int]) -> dict[int, Entry]:
        """Documents by id; ids that are gone are left out."""
        return {row[0]: Entry(*row) for row in self._rows(Entry._fields, ids)}

    def sayings(self, ids: Sequence[int]) -> dict[int, Saying]:
        """Who says each document and when, and how much it tells; documents that are gone are left out."""
        return {identifier: Saying(*rest) for identifier, *rest in self._rows(("id", *Saying._fields), ids)}

    def own_texts(self, uris: Iterable[str]) -> dict[str, str]:
        """What memories, and turns (``…messages.jsonl#12``), say below their names, by URI."""
        found: dict[str, str] = {}
        for uri in uris:
            file, _, line = uri.partition("#")
            asked = "SELECT own, name FROM documents WHERE uri = ? AND part = ?"
            for own, name in self.connection().execute(asked, (file, int(line or 0))):
                found[uri] = own.removeprefix(f"{name}\n").strip() or own
        return found

    def speakers(self, uris: Sequence[str]) -> dict[str, set[str]]:
        """Who speaks in each of these conversations."""
        found: dict[str, set[str]] = {}
        rows = self.connection().execute(
            "SELECT DISTINCT uri, speaker FROM documents WHERE uri IN (SELECT value FROM json_each(?))",
            (json.dumps(list(uris)),),
        )
        for uri, speaker in rows:
            found.setdefault(uri, set()).add(speaker)
        return found

    def last_said(self, logs: Sequence[str]) -> dict[str, str]:
        """When something was last said in each of these conversations, ISO 8601 in UTC, where a message tells."""
        latest = "SELECT updated_at FROM documents WHERE uri = value AND updated_at IS NOT NULL"
        rows = self.connection().execute(
            f"SELECT value, ({latest} ORDER BY part DESC LIMIT 1) FROM json_each(?)", (json.dumps(list(logs)),)
        )
        return {log: at for log, at in rows if at is not None}

    def opening(self, log: str) -> str:
        """What the user says first in a conversation, greetings apart; empty where nobody says anything."""
        row = (
            self.connection()
            .execute(
                "SELECT own, speaker FROM documents WHERE uri = ? AND role = 'user' AND part < ? "
                "ORDER BY substance < 0.5, part LIMIT 1",
                (log, _OPENING_TURNS),
            )
            .fetchone()
        )
        return "" if row is None else str(row[0]).removeprefix(f"{row[1]}: ")

    def happened_between(
        self, space: str, start: str, end: str, limit: int, condition: Condition | None = None
    ) -> list[int]:
        """Documents dated from ``start`` to ``end`` (ISO dates, included), the newest first."""
        condition = condition or ANYTHING
        rows = self.connection().execute(
            "SELECT d.id FROM documents d WHERE d.space = ? AND d.happened >= ? AND d.happened <= ? "
            f"AND {condition.sql} ORDER BY d.happened DESC, d.id DESC LIMIT ?",
            (space, start, end, *condition.parameters, limit),
        )
        return [int(identifier) for (identifier,) in rows]

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """What documents say, by id."""
        return dict(self._rows(("id", "own"), ids))

    def voices(
        self, uris: Sequence[str], spaces: Sequence[str], condition: Condition | None = None
    ) -> dict[str, Voice]:
        """Memories of these spaces by URI; those that are gone, or whose time nobody knows, are left out."""
        condition = condition or ANYTHING
        rows = self.connection().execute(
            "SELECT d.uri, d.abstract, d.confidence, d.updated_at FROM documents d WHERE d.part = 0 "
            "AND d.updated_at IS NOT NULL AND d.uri IN (SELECT value FROM json_each(?)) "
            f"AND d.space IN ({', '.join('?' * len(spaces))}) AND {condition.sql}",
            (json.dumps(list(uris)), *spaces, *condition.parameters),
        )
        return {row[0]: Voice(*row) for row in rows}

    def count(self) -> int:
        """How many documents there are."""
        return int(self.connection().execute("SELECT count(*) FROM documents").fetchone()[0])

    def holds_private(self, spaces: Sequence[str], project: str | None) -> bool:
        """Whether any document of some spaces is private to a project other than this one."""
        elsewhere = private_elsewhere(project)
        row = self.connection().execute(
            f"SELECT 1 FROM documents d WHERE d.space IN ({', '.join('?' * len(spaces))}) AND {elsewhere.sql} LIMIT 1",
            (*spaces, *elsewhere.parameters),
        )
        return row.fetchone() is not None

    def own_text(self, uri: str) -> str:
        """What a memory says; empty when it is not indexed."""
        asked = "SELECT own FROM documents WHERE uri = ? AND context_type <> 'resource'"
        row = self.connection().execute(asked, (uri,)).fetchone()
        return "" if row is None else str(row[0])

    def matching(self, spaces: Sequence[str], condition: Condition, limit: int) -> list[int]:
        """Documents of these spaces that meet a condition, at most ``limit``."""
        marks = ",".join("?" * len(spaces))
        rows = self.connection().execute(
            f"SELECT d.id FROM documents d WHERE d.space IN ({marks}) AND {condition.sql} LIMIT ?",
            (*spaces, *condition.parameters, limit),
        )
        return [int(identifier) for (identifier,) in rows]

    def satisfying(self, ids: Sequence[int], condition: Condition) -> set[int]:
        """Those of the documents that meet a condition."""
        return {identifier for (identifier,) in self._rows(("id",), ids, condition)}

    def abstracts(self, uris: Sequence[str]) -> Mapping[str, str]:
        """Abstracts of files, for listings; session messages are left out."""
        rows = self.connection().execute(
            "SELECT uri, abstract FROM documents WHERE uri IN (SELECT value FROM json_each(?)) AND part = 0 "
            "AND context_type <> 'resource'",
            (json.dumps(list(uris)),),
        )
        return dict(rows.fetchall())

    def _space_id(self, connection: sqlite3.Connection, name: str) -> int:
        connection.execute("INSERT OR IGNORE INTO spaces (name) VALUES (?)", (name,))
        return int(connection.execute("SELECT id FROM spaces WHERE name = ?", (name,)).fetchone()[0])

    def _put_passages(
        self, connection: sqlite3.Connection, document: int, uri: MemoryUri, part: int, texts: Sequence[str]
    ) -> None:
        """The passages of a document, in place of those it had; each document has its own range of numbers."""
        first = part * PASSAGE_LIMIT_COUNT
        for number, text in enumerate(texts, first):
            embedding_queue.put(connection, document, uri.space, str(uri), number, text, text_sha256(text))
        embedding_queue.remove_range(connection, str(uri), first + len(texts), first + PASSAGE_LIMIT_COUNT)
