"""What history asks of the ledger beyond single files: commits that a reader may see, and how each moved the queue.

``PastTable`` reads commits by the spaces they touched, and erases texts for good (``erase``): what is gone there is
gone from the ledger's file too, once ``vacuum`` has run. Knows no files on disk, and decides nothing about undoing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memory_core.core.errors import StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.memory.results import SessionProgress
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.sqlite import Database

SCHEMA = """
ALTER TABLE changes ADD COLUMN purged INTEGER NOT NULL DEFAULT 0;
CREATE TABLE progress (
    seq INTEGER PRIMARY KEY REFERENCES commits (seq),
    log TEXT NOT NULL,
    stored_before INTEGER,
    extracted_before INTEGER,
    stored INTEGER,
    extracted INTEGER,
    counted TEXT NOT NULL,
    uncounted TEXT NOT NULL
);
"""
_COMMITS = "seq, commit_id, at, kind, receipt, author, undoes"


@frozen
class PastCommit:
    """One commit as the ledger keeps it; ``settled`` once its files are known to be on disk."""

    seq: int
    commit_id: str
    at: str
    kind: str
    receipt: Mapping[str, Any]
    author: str
    undoes: str | None


@frozen
class PastProgress:
    """How a commit moved its session in the queue; None where there was no row, or the number stayed.

    ``counted`` and ``uncounted`` are the tool calls that it counted, and those that it took back.
    """

    log: MemoryUri
    stored_before: int | None
    extracted_before: int | None
    stored: int | None
    extracted: int | None
    counted: frozenset[str]
    uncounted: frozenset[str]


@frozen
class Erasure:
    """Texts to erase: every version of a file (``tombstone`` then takes its name), or those of some commits.

    Attributes:
        uri: The file.
        tombstone: What it is called in history from now on; None keeps its name.
        first: The first commit whose text of the file goes.
        end: The first commit whose text stays; None is none. What it replaced goes all the same.
    """

    uri: MemoryUri
    tombstone: MemoryUri | None = None
    first: int = 0
    end: int | None = None


def note_progress(connection: sqlite3.Connection, seq: int, progress: SessionProgress) -> None:
    """Keep how a commit is about to move the queue, inside its transaction, so that it can be taken back."""
    log = str(progress.log)
    before = connection.execute("SELECT stored, extracted FROM extractions WHERE log = ?", (log,)).fetchone()
    connection.execute(
        "INSERT INTO progress VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            seq,
            log,
            *(before or (None, None)),
            progress.stored,
            progress.extracted,
            json.dumps(sorted(progress.call_keys)),
            json.dumps(sorted(progress.uncounted)),
        ),
    )


class PastTable:
    """Reads commits and their progress; erases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def files_saying(self, below: str, said: str, limit: int) -> list[str]:
        """Files at or below a URI of which some version holds these words, newest first; it reads all texts."""
        rows = self._database.connection().execute(
            "SELECT c.uri FROM changes c WHERE c.uri > ? AND c.uri < ? AND instr(c.after, ?) > 0 "
            "GROUP BY c.uri ORDER BY max(c.seq) DESC LIMIT ?",
            (f"{below}/", f"{below}0", said, limit),  # "0" is the character after "/"
        )
        return [str(uri) for (uri,) in rows]

    def authors(self, uris: Sequence[str]) -> dict[str, str]:
        """Who changed each file last, as far as somebody said who they are."""
        rows = self._database.connection().execute(
            "SELECT c.uri, k.author FROM changes c JOIN commits k ON k.seq = c.seq "
            "WHERE c.uri IN (SELECT value FROM json_each(?)) AND k.author <> '' ORDER BY c.seq",
            (json.dumps(list(uris)),),
        )
        return {str(uri): str(author) for uri, author in rows}

    def commits(
        self,
        spaces: Sequence[str],
        *,
        uri: MemoryUri | None = None,
        before: int | None = None,
        limit: int = 50,
        author: str | None = None,
        undos: bool = True,
    ) -> list[PastCommit]:
        """Commits that touched one of the spaces, newest first.

        Args:
            spaces: ``scope/space`` names.
            uri: Only those that touched this file, or something below it.
            before: Only those with a smaller number.
            limit: At most.
            author: Only those by this author.
            undos: Whether those that take another back are among them, and those that only sort what was said.
        """
        conditions, arguments = ["1"], list[str | int]()
        touched, places = _within(spaces)
        if uri is not None:
            touched, places = f"({touched}) AND (c.uri = ? OR (c.uri > ? AND c.uri < ?))", [*places, *_at_or_below(uri)]
        conditions.append(f"EXISTS (SELECT 1 FROM changes c WHERE c.seq = commits.seq AND {touched})")
        arguments += places
        if before is not None:
            conditions.append("seq < ?")
            arguments.append(before)
        if author is not None:
            conditions.append("author = ?")
            arguments.append(author)
        if not undos:
            conditions.append("undoes IS NULL AND kind <> 'segment'")
        rows = self._database.connection().execute(
            f"SELECT {_COMMITS} FROM commits WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?",
            (*arguments, limit),
        )
        return [_commit(row) for row in rows]

    def named(self, spaces: Sequence[str], prefix: str, limit: int = 5) -> list[PastCommit]:
        """Commits that touched one of the spaces and whose id begins so; an id itself comes first."""
        touched, places = _within(spaces)
        rows = self._database.connection().execute(
            f"SELECT {_COMMITS} FROM commits WHERE substr(commit_id, 1, length(?)) = ? AND "
            f"EXISTS (SELECT 1 FROM changes c WHERE c.seq = commits.seq AND {touched}) "
            "ORDER BY commit_id <> ?, seq DESC LIMIT ?",
            (prefix, prefix, *places, prefix, limit),
        )
        return [_commit(row) for row in rows]

    def undone_by(self, commit_id: str) -> list[PastCommit]:
        """Commits that took this one back and were not taken back themselves, oldest first."""
        rows = self._database.connection().execute(
            f"SELECT {_COMMITS} FROM commits WHERE undoes = ? ORDER BY seq", (commit_id,)
        )
        return [commit for commit in map(_commit, rows.fetchall()) if not self.undone_by(commit.commit_id)]

    def of_kind(self, kind: str) -> list[PastCommit]:
        """Commits of one kind that were not taken back, oldest first."""
        rows = self._database.connection().execute(
            f"SELECT {_COMMITS} FROM commits WHERE kind = ? ORDER BY seq", (kind,)
        )
        return [commit for commit in map(_commit, rows.fetchall()) if not self.undone_by(commit.commit_id)]

    def progress(self, seq: int) -> PastProgress | None:
        """How a commit moved the queue, or None if it did not."""
        row = (
            self._database.connection()
            .execute(
                "SELECT log, stored_before, extracted_before, stored, extracted, counted, uncounted "
                "FROM progress WHERE seq = ?",
                (seq,),
            )
            .fetchone()
        )
        if row is None:
            return None
        log, stored_before, extracted_before, stored, extracted, counted, uncounted = row
        return PastProgress(
            MemoryUri.parse(log),
            stored_before,
            extracted_before,
            stored,
            extracted,
            frozenset(json.loads(counted)),
            frozenset(json.loads(uncounted)),
        )

    def purged(self, seqs: Iterable[int]) -> frozenset[tuple[int, str]]:
        """Number and URI of the changes among these commits whose texts were erased."""
        rows = self._database.connection().execute(
            "SELECT seq, uri FROM changes WHERE purged AND seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
            (json.dumps(list(seqs)),),
        )
        return frozenset((int(seq), str(uri)) for seq, uri in rows)

    def touching(self, uri: MemoryUri, after: int) -> list[PastCommit]:
        """Commits later than ``after`` that touched a file, oldest first."""
        rows = self._database.connection().execute(
            f"SELECT {_COMMITS} FROM commits WHERE seq > ? AND seq IN (SELECT seq FROM changes WHERE uri = ?) "
            "ORDER BY seq",
            (after, str(uri)),
        )
        return [_commit(row) for row in rows]

    def moved_to(self, uri: MemoryUri, after: int) -> MemoryUri | None:
        """Where a file went that was renamed later than ``after``, the last time; None where it was not."""
        row = (
            self._database.connection()
            .execute("SELECT uri FROM changes WHERE moved_from = ? AND seq > ? ORDER BY seq DESC", (str(uri), after))
            .fetchone()
        )
        return None if row is None else MemoryUri.parse(row[0])

    def seqs_of(self, uri: MemoryUri) -> list[int]:
        """Numbers of the commits that touched a file, oldest first."""
        rows = self._database.connection().execute(
            "SELECT DISTINCT seq FROM changes WHERE uri = ? ORDER BY seq", (str(uri),)
        )
        return [int(seq) for (seq,) in rows]

    def below(self, directory: MemoryUri) -> list[MemoryUri]:
        """Every file at or below a URI that history knows."""
        rows = self._database.connection().execute(
            "SELECT DISTINCT uri FROM changes WHERE uri = ? OR (uri > ? AND uri < ?) ORDER BY uri",
            _at_or_below(directory),
        )
        return [MemoryUri.parse(uri) for (uri,) in rows]

    def texts(self, erasures: Iterable[Erasure]) -> list[str]:
        """The texts that erasing them would take away."""
        found: dict[str, None] = {}
        for erasure in erasures:
            rows = self._database.connection().execute(
                f"SELECT before, after FROM changes WHERE {_ERASED}", _erased(erasure)
            )
            found |= {text: None for row in rows for text in row if text}
        return list(found)

    def erase(self, erasures: Sequence[Erasure], summaries: Sequence[MemoryUri]) -> None:
        """Erase texts, in one transaction; call ``vacuum`` afterwards.

        Args:
            erasures: What.
            summaries: Directory summaries that may quote it: their earlier texts go as well.
        """
        with self._database.writing() as connection:
            connection.execute("PRAGMA secure_delete=ON")
            for erasure in erasures:
                _erase(connection, erasure)
            for uri in summaries:
                newest = connection.execute("SELECT max(seq) FROM changes WHERE uri = ?", (str(uri),)).fetchone()[0]
                _blank(connection, "uri = ? AND seq < ?", (str(uri), newest or 0))
                connection.execute("UPDATE changes SET before = NULL WHERE uri = ?", (str(uri),))

    def vacuum(self) -> None:
        """Write the ledger's file anew without what was erased; see ``vacuum``."""
        vacuum(self._database.connection())


def vacuum(connection: sqlite3.Connection) -> None:
    """Write a database's file anew, so that no byte of what was deleted is left in it or in its log.

    Raises:
        StoreBusy: If another process used the file all the while.
    """
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("VACUUM")
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise StoreBusy(
            "another program reads the store: what was erased may still be in its journal.",
            hint="Stop the servers that use this folder, then run the same command again.",
        )


_HIT = "json_extract(value, '$[0]')"
_ERASED = "uri = ? AND seq >= ? AND seq < ?"


def _erased(erasure: Erasure) -> tuple[str, int, int]:
    return str(erasure.uri), erasure.first, 2**62 if erasure.end is None else erasure.end


def _erase(connection: sqlite3.Connection, erasure: Erasure) -> None:
    seqs = [seq for (seq,) in connection.execute(f"SELECT seq FROM changes WHERE {_ERASED}", _erased(erasure))]
    _blank(connection, _ERASED, _erased(erasure))
    if erasure.end is not None:
        connection.execute(
            "UPDATE changes SET before = NULL, before_sha256 = NULL, purged = 1 WHERE uri = ? AND seq = ?",
            (str(erasure.uri), erasure.end),
        )
        _clear_receipts(connection, seqs)
        return
    uri, tombstone = str(erasure.uri), None if erasure.tombstone is None else str(erasure.tombstone)
    _clear_receipts(connection, seqs)
    # A receipt of another commit may name the file as something similar.
    quoting = [seq for (seq,) in connection.execute("SELECT seq FROM commits WHERE instr(receipt, ?) > 0", (uri,))]
    _clear_receipts(connection, quoting, uri, tombstone or "")
    for statement in (
        "DELETE FROM usage WHERE uri = ? OR substr(uri, 1, length(?) + 1) = ? || '#'",
        "DELETE FROM injections WHERE uri = ? OR substr(uri, 1, length(?) + 1) = ? || '#'",
        "DELETE FROM extractions WHERE log IN (?, ?, ?)",
        "DELETE FROM counted_calls WHERE log IN (?, ?, ?)",
        "DELETE FROM progress WHERE log IN (?, ?, ?)",
        f"DELETE FROM trail WHERE EXISTS (SELECT 1 FROM json_each(hits) WHERE {_HIT} IN (?1, ?2) "
        f"OR substr({_HIT}, 1, length(?1) + 1) = ?3 || '#')",
    ):
        connection.execute(statement, (uri, uri, uri))
    connection.execute("UPDATE extractions SET seen = '{}' WHERE instr(seen, ?) > 0", (uri,))
    if tombstone is not None:
        connection.execute("UPDATE changes SET uri = ? WHERE uri = ?", (tombstone, uri))
        connection.execute("UPDATE changes SET moved_from = ? WHERE moved_from = ?", (tombstone, uri))


def _blank(connection: sqlite3.Connection, condition: str, arguments: tuple[str | int, ...]) -> None:
    connection.execute(
        "UPDATE changes SET before = NULL, after = NULL, before_sha256 = NULL, after_sha256 = NULL, appended = 0, "
        f"purged = 1 WHERE {condition}",
        arguments,
    )


def _clear_receipts(connection: sqlite3.Connection, seqs: Iterable[int], uri: str = "", tombstone: str = "") -> None:
    """Receipts without what they quote: reasons, notes, briefs, near neighbours; and without a name."""
    for seq in set(seqs):
        (text,) = connection.execute("SELECT receipt FROM commits WHERE seq = ?", (seq,)).fetchone()
        receipt = json.loads(text)
        results = [
            {
                name: (tombstone if uri and value == uri else value)
                for name, value in result.items()
                if name not in ("reason", "hint", "note", "now", "went")
            }
            for result in receipt.get("results", ())
        ]
        kept = {name: receipt[name] for name in ("commit_id", "status", "usage") if name in receipt}
        kept |= {"results": results, "similar": [near for near in receipt.get("similar", ()) if near["uri"] != uri]}
        connection.execute("UPDATE commits SET receipt = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))


def _within(spaces: Sequence[str]) -> tuple[str, list[str | int]]:
    """A condition on ``c.uri``: in one of the spaces, or archived from there."""
    prefixes = [f"viking://{place}{space}" for space in spaces for place in ("", f"{Scope.ARCHIVE.value}/")]
    arguments: list[str | int] = [bound for prefix in prefixes for bound in (f"{prefix}/", f"{prefix}0")]
    return "(" + " OR ".join(["(c.uri > ? AND c.uri < ?)"] * len(prefixes)) + ")", arguments


def _at_or_below(uri: MemoryUri) -> tuple[str, str, str]:
    return str(uri), f"{uri}/", f"{uri}0"


def _commit(row: Sequence[Any]) -> PastCommit:
    seq, commit_id, at, kind, receipt, author, undoes = row
    return PastCommit(int(seq), commit_id, at, kind, json.loads(receipt), author, undoes)
