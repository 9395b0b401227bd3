"""Passages, the models in use, and which passage still waits for a vector of which model.

Owns the tables ``passages``, ``models`` and ``waiting`` of the catalog's database. A model is registered when it is
first used; from then on every passage without a vector of its own waits for it, those of before included. Several
models may be in use at once, each by another process: none takes anything from another. Vectors are kept when
texts and models go (``vectors``), so going back to a model costs nothing for what it has embedded before.

Promises: what waits is exactly what has no vector of that model, at most one row for each passage and model.
Does not embed anything, and does not read a clock: times are given, in seconds of ``time.time``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DDL = """
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document_id INTEGER NOT NULL,
    space TEXT NOT NULL,
    uri TEXT NOT NULL,
    part INTEGER NOT NULL,
    text TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    UNIQUE (uri, part)
);
CREATE INDEX passages_document ON passages (document_id);
CREATE INDEX passages_space ON passages (space);
CREATE TABLE models (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, last_used REAL NOT NULL);
CREATE TABLE waiting (
    model_id INTEGER NOT NULL, passage_id INTEGER NOT NULL, PRIMARY KEY (model_id, passage_id)
) WITHOUT ROWID;
"""

#: A model that nobody used for so long is no longer waited for.
FORGOTTEN_SECONDS = 30 * 86_400.0

_NO_VECTOR = (
    "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.space = p.space AND v.uri = p.uri AND v.part = p.part "
    "AND v.content_sha256 = p.content_sha256 AND v.fingerprint = m.fingerprint)"
)
#: The row of ``meta`` that counts texts which needed no vector.
_REUSED = "vectors_reused"
_MODEL = "(SELECT id FROM models WHERE fingerprint = ?)"


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to embed; ``space``, ``uri``, ``part`` and ``content_sha256`` name its vector."""

    id: int
    space: str
    uri: str
    part: int
    text: str
    content_sha256: str


def put(
    connection: sqlite3.Connection, document_id: int, space: str, uri: str, part: int, text: str, content_sha256: str
) -> None:
    """Add a passage, or replace the one at that place; it waits for every model that has no vector of it."""
    held = connection.execute(
        "SELECT id, content_sha256 FROM passages WHERE uri = ? AND part = ?", (uri, part)
    ).fetchone()
    if held is not None:
        if held[1] == content_sha256:
            _note_reuse(connection)
            connection.execute("UPDATE passages SET document_id = ? WHERE id = ?", (document_id, held[0]))
            return
        _forget(connection, "id = ?", held[0])
    cursor = connection.execute(
        "INSERT INTO passages (document_id, space, uri, part, text, content_sha256) VALUES (?, ?, ?, ?, ?, ?)",
        (document_id, space, uri, part, text, content_sha256),
    )
    added = connection.execute(
        f"INSERT INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE p.id = ? AND {_NO_VECTOR}",
        (cursor.lastrowid,),
    )
    if added.rowcount == 0:
        _note_reuse(connection)


def remove(connection: sqlite3.Connection, uri: str) -> None:
    """Drop every passage of a file, and with it what waited."""
    _forget(connection, "uri = ?", uri)


def remove_range(connection: sqlite3.Connection, uri: str, first: int, end: int) -> None:
    """Drop a file's passages from number ``first`` to ``end``, not included."""
    numbers = connection.execute(
        "SELECT part FROM passages WHERE uri = ? AND part >= ? AND part < ?", (uri, first, end)
    )
    for (number,) in numbers.fetchall():
        _forget(connection, "uri = ? AND part = ?", uri, number)


def clear(connection: sqlite3.Connection) -> None:
    """Drop all passages; the models stay registered."""
    connection.execute("DELETE FROM waiting")
    connection.execute("DELETE FROM passages")


def standing(connection: sqlite3.Connection, spaces: Sequence[str], fingerprint: str | None) -> tuple[int, int]:
    """How many passages some spaces hold, and how many of them wait for the model; 0 wait for none."""
    row = connection.execute(
        "SELECT count(*), coalesce(sum(EXISTS (SELECT 1 FROM waiting w WHERE w.passage_id = p.id AND w.model_id = "
        f"{_MODEL})), 0) FROM passages p WHERE p.space IN (SELECT value FROM json_each(?))",
        (fingerprint, json.dumps(list(spaces))),
    ).fetchone()
    return int(row[0]), int(row[1])


def effort(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many vectors were computed, and how often a text came again that had its vector, since the index was made."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM vectors), coalesce((SELECT value FROM meta WHERE name = ?), 0)", (_REUSED,)
    ).fetchone()
    return int(row[0]), int(row[1])


def _note_reuse(connection: sqlite3.Connection) -> None:
    """Count a text that needs no vector of any model in use; without one nothing is counted."""
    connection.execute(
        "INSERT INTO meta SELECT ?, '1' WHERE EXISTS (SELECT 1 FROM models) "
        "ON CONFLICT (name) DO UPDATE SET value = value + 1",
        (_REUSED,),
    )


def is_registered(connection: sqlite3.Connection, fingerprint: str, since: float) -> bool:
    """Whether the model is registered and was used at ``since`` or later."""
    row = connection.execute("SELECT last_used FROM models WHERE fingerprint = ?", (fingerprint,)).fetchone()
    return row is not None and row[0] >= since


def register(connection: sqlite3.Connection, fingerprint: str, now: float) -> None:
    """Note that a model is in use; for one that was not, the passages it has no vector of begin to wait.

    Models unused for ``FORGOTTEN_SECONDS`` are no longer waited for; their vectors stay.
    """
    updated = connection.execute("UPDATE models SET last_used = ? WHERE fingerprint = ?", (now, fingerprint))
    if not updated.rowcount:
        connection.execute("INSERT INTO models (fingerprint, last_used) VALUES (?, ?)", (fingerprint, now))
        connection.execute(
            f"INSERT INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE m.fingerprint = ? AND {_NO_VECTOR}",
            (fingerprint,),
        )
    unused = "SELECT id FROM models WHERE last_used < ?"
    connection.execute(f"DELETE FROM waiting WHERE model_id IN ({unused})", (now - FORGOTTEN_SECONDS,))
    connection.execute("DELETE FROM models WHERE last_used < ?", (now - FORGOTTEN_SECONDS,))


def await_missing(connection: sqlite3.Connection) -> int:
    """Let every passage wait that has no vector of a model in use and does not wait yet.

    Returns:
        How many there were.
    """
    cursor = connection.execute(
        f"INSERT OR IGNORE INTO waiting SELECT m.id, p.id FROM models m, passages p WHERE {_NO_VECTOR}"
    )
    return cursor.rowcount


def passages_without_vector(connection: sqlite3.Connection) -> dict[str, int]:
    """How many passages have neither a vector of a model in use nor wait for one, by model; none for most."""
    rows = connection.execute(
        f"SELECT m.fingerprint, count(*) FROM models m, passages p WHERE {_NO_VECTOR} AND NOT EXISTS "
        "(SELECT 1 FROM waiting w WHERE w.model_id = m.id AND w.passage_id = p.id) GROUP BY m.id"
    )
    return {str(fingerprint): int(lacking) for fingerprint, lacking in rows}


def newest(connection: sqlite3.Connection, fingerprint: str, limit: int) -> list[Passage]:
    """Passages that wait for a vector of this model, newest first: what was just said is asked for next."""
    rows = connection.execute(
        "SELECT p.id, p.space, p.uri, p.part, p.text, p.content_sha256 FROM waiting w "
        f"JOIN passages p ON p.id = w.passage_id WHERE w.model_id = {_MODEL} ORDER BY w.passage_id DESC LIMIT ?",
        (fingerprint, limit),
    )
    return [Passage(*row) for row in rows]


def backlog(connection: sqlite3.Connection, fingerprint: str, limit: int = -1) -> int:
    """How many passages wait for this model; counting ends at ``limit``, -1 counts all."""
    row = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM waiting WHERE model_id = {_MODEL} LIMIT ?)", (fingerprint, limit)
    ).fetchone()
    return int(row[0])


def settle(connection: sqlite3.Connection, passages: Iterable[Passage], fingerprint: str) -> None:
    """Note that these passages have vectors of this model, unless their text changed meanwhile."""
    connection.executemany(
        f"DELETE FROM waiting WHERE model_id = {_MODEL} AND passage_id = ? AND EXISTS "
        "(SELECT 1 FROM passages WHERE id = ? AND uri = ? AND part = ? AND content_sha256 = ?)",
        [
            (fingerprint, passage.id, passage.id, passage.uri, passage.part, passage.content_sha256)
            for passage in passages
        ],
    )


def passage_count(connection: sqlite3.Connection, space: str | None = None) -> int:
    """How many passages a space has, or all spaces together."""
    if space is None:
        return int(connection.execute("SELECT count(*) FROM passages").fetchone()[0])
    return int(connection.execute("SELECT count(*) FROM passages WHERE space = ?", (space,)).fetchone()[0])


def dead_vectors(connection: sqlite3.Connection, space: str, fingerprint: str) -> list[int]:
    """Sequence numbers of vectors whose text is no passage any more."""
    rows = connection.execute(
        "SELECT v.seq FROM vectors v LEFT JOIN passages p ON p.uri = v.uri AND p.part = v.part "
        "AND p.content_sha256 = v.content_sha256 WHERE v.space = ? AND v.fingerprint = ? AND p.id IS NULL",
        (space, fingerprint),
    )
    return [int(seq) for (seq,) in rows]


def _forget(connection: sqlite3.Connection, condition: str, *values: str | int) -> None:
    connection.execute(
        "DELETE FROM waiting WHERE model_id IN (SELECT id FROM models) "
        f"AND passage_id IN (SELECT id FROM passages WHERE {condition})",
        values,
    )
    connection.execute(f"DELETE FROM passages WHERE {condition}", values)
