"""What history asks of the ledger beyond single files: commits that a reader may see, and how each moved the queue.

``PastTable`` reads commits by the spaces they touched, and erases texts for good (``erase``): what is gone there is
gone from the ledger's file too, once ``vacuum`` has run. Knows no files on disk, and decides nothing about undoing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from memory_core.core.errors import StoreBusy
from memory_core.core.frozen import frozen
from memory_core.core.memory.results import SessionProgress
from memory_core.core.memory.uri import MemoryUri, places_of, range_below
from memory_core.core.store.brief_notes import change_notes, without
from memory_core.core.store.sqlite import SET_META, Table

#: Name in ``meta`` of the newest commit when texts were erased last.
ERASED = "erased"
_COMMITS = "seq, commit_id, at, kind, author, undoes"
#: Of commits whose id begins alike.
_NAMED = 5


@frozen
class PastCommit:
    """One commit of the history: when (ISO 8601, UTC), what kind, by whom, and the commit that it takes back."""

    seq: int
    commit_id: str
    at: str
    kind: str
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
    calls = (json.dumps(sorted(keys)) for keys in (progress.call_keys, progress.uncounted))
    connection.execute(
        "INSERT INTO progress VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (seq, log, *(before or (None, None)), progress.stored, progress.extracted, *calls),
    )


#: All that took back some commits, or each other, however long the chain is.
_UNDOING = """
WITH RECURSIVE undoing (seq, commit_id, undoes) AS (
    SELECT seq, commit_id, undoes FROM commits WHERE undoes IN (SELECT value FROM json_each(?))
    UNION
    SELECT c.seq, c.commit_id, c.undoes FROM commits c JOIN undoing u ON c.undoes = u.commit_id
)
SELECT commit_id, undoes FROM undoing WHERE {where} ORDER BY seq DESC
"""


class PastTable(Table):
    """Reads commits and their progress; erases."""

    def where(self, condition: str, *values: Any) -> list[PastCommit]:
        """The commits for which an SQL condition holds, which may say their order and number."""
        return [PastCommit(*row) for row in self._rows(f"SELECT {_COMMITS} FROM commits WHERE {condition}", *values)]

    def receipt(self, seq: int) -> Mapping[str, Any]:
        """The receipt of a commit, which can be long: lists read one at a time, and only where they show it."""
        return dict(json.loads(self._value("SELECT receipt FROM commits WHERE seq = ?", seq)))

    def files_saying(self, below: str, said: str, limit: int) -> list[str]:
        """Files below a URI of which some version holds these words, newest first; it reads all texts."""
        rows = self._rows(
            "SELECT c.uri FROM changes c WHERE c.uri > ? AND c.uri < ? AND instr(c.after, ?) > 0 "
            "GROUP BY c.uri ORDER BY max(c.seq) DESC LIMIT ?",
            *range_below(below),
            said,
            limit,
        )
        return [uri for (uri,) in rows]

    def authors(self, uris: Sequence[str]) -> dict[str, str]:
        """Who changed each file last, as far as somebody said who they are."""
        rows = self._rows(
            "SELECT c.uri, k.author FROM changes c JOIN commits k ON k.seq = c.seq "
            "WHERE c.uri IN (SELECT value FROM json_each(?)) AND k.author <> '' ORDER BY c.seq",
            json.dumps(list(uris)),
        )
        return dict(rows)

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
        touched, values = _touched(spaces)
        if uri is not None:
            touched, values = f"{touched} AND (c.uri = ? OR (c.uri > ? AND c.uri < ?))", [*values, *_at_or_below(uri)]
        conditions = [f"EXISTS (SELECT 1 FROM changes c WHERE c.seq = commits.seq AND {touched})"]
        for condition, value in (("seq < ?", before), ("author = ?", author)):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        if not undos:
            conditions.append("undoes IS NULL AND kind <> 'segment'")
        return self.where(f"{' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?", *values, limit)

    def files(self, seq: int, spaces: Sequence[str]) -> list[str]:
        """URIs of the files of these spaces that a commit changed, in order."""
        touched, places = _touched(spaces)
        rows = self._rows(f"SELECT uri FROM changes c WHERE c.seq = ? AND {touched} ORDER BY ordinal", seq, *places)
        return [uri for (uri,) in rows]

    def named(self, spaces: Sequence[str], prefix: str) -> list[PastCommit]:
        """A few commits that touched one of the spaces and whose id begins so; an id itself comes first."""
        touched, places = _touched(spaces)
        return self.where(
            "substr(commit_id, 1, length(?)) = ? AND "
            f"EXISTS (SELECT 1 FROM changes c WHERE c.seq = commits.seq AND {touched}) "
            "ORDER BY commit_id <> ?, seq DESC LIMIT ?",
            *(prefix, prefix, *places, prefix, _NAMED),
        )

    def undone_by(self, commit_id: str, spaces: Sequence[str] = ()) -> list[PastCommit]:
        """Commits that took this one back and were not taken back themselves, oldest first; see ``undone``."""
        ids = self.undone([commit_id], spaces).get(commit_id, [])
        among = "commit_id IN (SELECT value FROM json_each(?)) ORDER BY seq"
        return self.where(among, json.dumps(ids)) if ids else []

    def of_kind(self, kind: str) -> list[PastCommit]:
        """Commits of one kind that were not taken back, oldest first."""
        found = self.where("kind = ? ORDER BY seq", kind)
        undone = self.undone([commit.commit_id for commit in found])
        return [commit for commit in found if commit.commit_id not in undone]

    def undone(self, commit_ids: Iterable[str], spaces: Sequence[str] = ()) -> dict[str, list[str]]:
        """By id of those commits that were taken back: which commits did and hold themselves, oldest first.

        Args:
            commit_ids: The commits.
            spaces: Only what was taken back in these counts (``scope/space``); none given are all.
        """
        touched, places = _touched(spaces)
        where = f"EXISTS (SELECT 1 FROM changes c WHERE c.seq = undoing.seq AND {touched})" if spaces else "1 = 1"
        rows = self._rows(_UNDOING.format(where=where), json.dumps(list(commit_ids)), *places)
        undone: dict[str, list[str]] = {}
        for commit_id, taken_back in rows:  # newest first: whether a commit holds is known before what it took back
            if commit_id not in undone:
                undone.setdefault(taken_back, []).insert(0, commit_id)
        return undone

    def progress(self, seq: int) -> PastProgress | None:
        """How a commit moved the queue, or None if it did not."""
        row = self._row(
            "SELECT log, stored_before, extracted_before, stored, extracted, counted, uncounted "
            "FROM progress WHERE seq = ?",
            seq,
        )
        if row is None:
            return None
        log, *numbers, counted, uncounted = row
        calls = (frozenset(json.loads(keys)) for keys in (counted, uncounted))
        return PastProgress(MemoryUri.parse(log), *numbers, *calls)

    def purged(self, seqs: Iterable[int]) -> frozenset[tuple[int, str]]:
        """Number and URI of the changes among these commits whose texts were erased."""
        rows = self._rows(
            "SELECT seq, uri FROM changes WHERE purged AND seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?))",
            json.dumps(list(seqs)),
        )
        return frozenset((seq, uri) for seq, uri in rows)

    def touching(self, uri: MemoryUri, after: int) -> list[PastCommit]:
        """Commits later than ``after`` that touched a file, oldest first."""
        return self.where("seq > ? AND seq IN (SELECT seq FROM changes WHERE uri = ?) ORDER BY seq", after, str(uri))

    def moved_to(self, uri: MemoryUri, after: int) -> MemoryUri | None:
        """Where a file went that was renamed later than ``after``, the last time; None where it was not."""
        asked = "SELECT uri FROM changes WHERE moved_from = ? AND seq > ? ORDER BY seq DESC"
        found = self._value(asked, str(uri), after)
        return None if found is None else MemoryUri.parse(found)

    def earlier_places(self, uri: MemoryUri) -> dict[MemoryUri, int]:
        """Where a file was before it was renamed, and the last commit of each place that was about this file."""
        found: dict[str, int] = {}
        asked = "SELECT moved_from, seq FROM changes WHERE uri = ? AND seq <= ? AND moved_from IS NOT NULL"
        waiting = [(str(uri), 2**62)]
        while waiting:
            for source, seq in self._rows(asked, *waiting.pop()):
                if source != str(uri) and found.get(source, -1) < seq:
                    found[source] = seq
                    waiting.append((source, seq))
        return {MemoryUri.parse(place): seq for place, seq in found.items()}

    def later_places(self, uri: MemoryUri, after: int) -> list[tuple[MemoryUri, int]]:
        """Where a file that a commit left went by later renames, and the commit of each, oldest first."""
        asked = (
            "SELECT uri, seq FROM changes moved WHERE moved_from = ?1 AND seq > ?2 AND NOT EXISTS (SELECT 1 "
            "FROM changes WHERE uri = ?1 AND seq > ?2 AND seq < moved.seq AND after_sha256 IS NULL AND purged = 0) "
            "ORDER BY seq LIMIT 1"
        )
        found: list[tuple[MemoryUri, int]] = []
        while (row := self._row(asked, str(uri), after)) is not None:
            uri, after = MemoryUri.parse(row[0]), int(row[1])
            found.append((uri, after))
        return found

    def moves_after(self, after: int) -> dict[MemoryUri, MemoryUri]:
        """``moved_to`` of all files by one query, for whoever asks for many."""
        rows = self._rows(
            "SELECT moved_from, uri FROM changes WHERE seq > ? AND moved_from IS NOT NULL ORDER BY seq", after
        )
        return {MemoryUri.parse(source): MemoryUri.parse(place) for source, place in rows}

    def seqs_of(self, uri: MemoryUri) -> list[int]:
        """Numbers of the commits that touched a file, oldest first."""
        return [seq for (seq,) in self._rows("SELECT DISTINCT seq FROM changes WHERE uri = ? ORDER BY seq", str(uri))]

    def below(self, directory: MemoryUri) -> list[MemoryUri]:
        """Every file at or below a URI that history knows."""
        rows = self._rows(
            "SELECT DISTINCT uri FROM changes WHERE uri = ? OR (uri > ? AND uri < ?) ORDER BY uri",
            *_at_or_below(directory),
        )
        return [MemoryUri.parse(uri) for (uri,) in rows]

    def texts(self, erasures: Iterable[Erasure]) -> list[str]:
        """The texts that erasing them would take away."""
        found: dict[str, None] = {}
        for erasure in erasures:
            rows = self._rows(f"SELECT before, after FROM changes WHERE {_ERASED}", *_erased(erasure))
            found |= {text: None for row in rows for text in row if text}
        return list(found)

    def erase(self, erasures: Sequence[Erasure], summaries: Sequence[MemoryUri]) -> None:
        """Erase texts, in one transaction; call ``vacuum`` afterwards.

        The receipts of all commits so far stay as they are from then on: see ``Ledger.attach``.

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
            (newest,) = connection.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()
            connection.execute(SET_META, (ERASED, str(newest)))


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
    rows = connection.execute(f"SELECT seq, after_sha256 FROM changes WHERE {_ERASED}", _erased(erasure)).fetchall()
    seqs = [seq for seq, _ in rows]
    _blank(connection, _ERASED, _erased(erasure))
    _clear_receipts(connection, seqs)
    if erasure.end is not None:
        connection.execute(
            "UPDATE changes SET before = NULL, before_sha256 = NULL, purged = 1 "
            "WHERE uri = ? AND seq = ? AND before_sha256 IS NOT NULL",
            (str(erasure.uri), erasure.end),
        )
        _forget_briefs(connection, str(erasure.uri), {sha256 for _, sha256 in rows})
        return
    uri, tombstone = str(erasure.uri), None if erasure.tombstone is None else str(erasure.tombstone)
    # A receipt of another commit may name the file as something similar.
    quoting = [seq for (seq,) in connection.execute("SELECT seq FROM commits WHERE instr(receipt, ?) > 0", (uri,))]
    _clear_receipts(connection, quoting, uri, tombstone or "")
    for statement in (
        "DELETE FROM usage WHERE uri = ?1 OR substr(uri, 1, length(?1) + 1) = ?1 || '#'",
        "DELETE FROM injections WHERE uri = ?1 OR substr(uri, 1, length(?1) + 1) = ?1 || '#'",
        "DELETE FROM extractions WHERE log = ?1",
        "DELETE FROM counted_calls WHERE log = ?1",
        "DELETE FROM progress WHERE log = ?1",
        f"DELETE FROM trail WHERE EXISTS (SELECT 1 FROM json_each(hits) WHERE {_HIT} = ?1 "
        f"OR substr({_HIT}, 1, length(?1) + 1) = ?1 || '#')",
    ):
        connection.execute(statement, (uri,))
    _forget_briefs(connection, uri)
    if tombstone is not None:
        connection.execute("UPDATE changes SET uri = ? WHERE uri = ?", (tombstone, uri))
        connection.execute("UPDATE changes SET moved_from = ? WHERE moved_from = ?", (tombstone, uri))


def _forget_briefs(connection: sqlite3.Connection, uri: str, erased: Collection[str] | None = None) -> None:
    """No note of a brief names the file any more; given the hashes of ``erased`` texts: where it showed one of them."""
    name = json.dumps(uri, ensure_ascii=False)
    shown = connection.execute("SELECT log FROM extractions WHERE instr(seen, ?) > 0", (name,)).fetchall()
    for (log,) in shown:
        change_notes(connection, log, lambda notes: without(notes, uri, erased))


def _blank(connection: sqlite3.Connection, condition: str, arguments: tuple[str | int, ...]) -> None:
    connection.execute(
        "UPDATE changes SET before = NULL, after = NULL, before_sha256 = NULL, after_sha256 = NULL, appended = 0, "
        f"purged = 1 WHERE {condition}",
        arguments,
    )


def _clear_receipts(connection: sqlite3.Connection, seqs: Iterable[int], uri: str = "", tombstone: str = "") -> None:
    """Receipts without what they quote: reasons, notes, briefs; with a name, also without it as a near neighbour."""
    for seq in set(seqs):
        (text,) = connection.execute("SELECT receipt FROM commits WHERE seq = ?", (seq,)).fetchone()
        receipt = json.loads(text)
        results = [
            {
                name: (tombstone if uri and value == uri else value)
                for name, value in result.items()
                if name not in ("reason", "hint", "note", "now", "went", "project")
            }
            for result in receipt.get("results", ())
        ]
        kept = {name: receipt[name] for name in ("commit_id", "status", "usage") if name in receipt}
        kept |= {"results": results, "similar": [near for near in receipt.get("similar", ()) if near["uri"] != uri]}
        connection.execute("UPDATE commits SET receipt = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))


def _touched(spaces: Sequence[str]) -> tuple[str, list[Any]]:
    """A condition on ``c.uri``: in one of the spaces, or archived from there; and what it compares."""
    return within("c.uri", places_of(spaces))


def within(column: str, below: Sequence[str]) -> tuple[str, list[Any]]:
    """The condition that a URI lies below one of some places, and what it compares."""
    condition = " OR ".join([f"({column} > ? AND {column} < ?)"] * len(below)) or "0 = 1"
    return f"({condition})", [bound for place in below for bound in range_below(place)]


def _at_or_below(uri: MemoryUri) -> tuple[str, str, str]:
    return str(uri), *range_below(uri)
