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
from memory_core.core.memory.results import Action, SessionProgress
from memory_core.core.memory.uri import MemoryUri, places_of, range_below
from memory_core.core.store.brief_notes import change_notes, without
from memory_core.core.store.sqlite import SET_META, Table

#: Name in ``meta`` of the newest commit when texts were erased last.
ERASED = "erased"
_COMMITS = "seq, commit_id, at, kind, author, undoes"
_ACTIONS = frozenset(Action)
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
class Stay:
    """One file at one place: several may have had its name, one after the other.

    Attributes:
        uri: The place.
        first: The commit that brought it there.
        end: The commit that brought the next file there; None where there is none.
        came_from: Where it was before, if it was moved or came back there, and the commit that took it away.
        went_to: Where it was moved to or came back, and the commit that did it; None where it ended or is there still.
    """

    uri: MemoryUri
    first: int
    end: int | None
    came_from: tuple[MemoryUri, int] | None
    went_to: tuple[MemoryUri, int] | None


@frozen
class Erasure:
    """Texts of a file to erase: every version of it, or those of some commits.

    Attributes:
        uri: Where it was.
        tombstone: What it is called there in history from now on; None keeps its name.
        first: The first commit whose text goes.
        end: The first commit whose text stays; None is none, and no file may be there then. What it replaced goes all
            the same.
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
        """The receipt of a commit, which can be long: lists read one at a time, and only where they show it.

        See ``_sound``.
        """
        return _sound(json.loads(self._value("SELECT receipt FROM commits WHERE seq = ?", seq)))

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

    def stays(self, uri: MemoryUri) -> list[Stay]:
        """The files that were at a place, one after the other, oldest first.

        A file that comes back with the text that it was deleted with, as by an undo, is the one that it was.
        """
        rows = self._rows(
            "SELECT seq, before_sha256, after_sha256, moved_from, purged FROM changes WHERE uri = ? "
            "ORDER BY seq, ordinal",
            str(uri),
        )
        moves = [
            (int(seq), MemoryUri.parse(place))
            for seq, place in self._rows("SELECT seq, uri FROM changes WHERE moved_from = ? ORDER BY seq", str(uri))
        ]
        firsts: list[tuple[int, tuple[MemoryUri, int] | None]] = []
        deleted: dict[str, int] = {}
        for seq, before, after, source, purged in rows:
            came_from = None if source is None else (MemoryUri.parse(source), int(seq))
            if firsts and not source and (before or purged):
                is_same = True
            elif firsts and not source and (gone := deleted.get(after)) is not None:
                came_from = (uri, gone)
                is_same = firsts[-1][0] < gone and not any(firsts[-1][0] < at <= seq for at, _ in moves)
            else:
                is_same = False
            if not is_same:
                firsts.append((int(seq), came_from))
            if before and not after:
                deleted[before] = int(seq)
        found: list[Stay] = []
        ends = [*(first for first, _ in firsts[1:]), None] if firsts else []
        for (first, came_from), end in zip(firsts, ends, strict=True):
            gone_to = [(place, at) for at, place in moves if first < at and (end is None or at <= end)]
            back = [
                (uri, at) for at, source in firsts if source and source[0] == uri and first < source[1] < (end or at)
            ]
            found.append(Stay(uri, first, end, came_from, next(reversed(gone_to or back), None)))
        return found

    def before(self, stay: Stay) -> list[Stay]:
        """The stay, and those of the same file at earlier places, the newest first."""
        found = [stay]
        while (source := found[-1].came_from) is not None:
            place, left = source
            earlier = next((each for each in reversed(self.stays(place)) if each.first < left), None)
            if earlier is None or earlier in found:
                break
            found.append(earlier)
        return found

    def since(self, uri: MemoryUri, seq: int) -> list[tuple[Stay, int]]:
        """Where the file that a commit changed stayed from then on, oldest first, each with its first such commit."""
        found: list[tuple[Stay, int]] = []
        place: tuple[MemoryUri, int] | None = (uri, seq)
        while place is not None:
            uri, seq = place
            stay = next((each for each in reversed(self.stays(uri)) if each.first <= seq), None)
            if stay is None:
                break
            found.append((stay, seq))
            # What was moved there with this commit may have been moved on before, by the name of another one.
            place = stay.went_to if stay.went_to is not None and stay.went_to[1] >= seq else None
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
    uri, first, end = _erased(erasure)
    tombstone = "" if erasure.tombstone is None else str(erasure.tombstone)
    rows = connection.execute(f"SELECT seq, after_sha256 FROM changes WHERE {_ERASED}", (uri, first, end)).fetchall()
    _blank(connection, _ERASED, (uri, first, end))
    connection.execute(
        "UPDATE changes SET before = NULL, before_sha256 = NULL, purged = 1 "
        "WHERE uri = ? AND seq = ? AND before_sha256 IS NOT NULL",
        (uri, end),
    )
    if tombstone:  # a receipt of another commit may name the file as something similar
        asked = "SELECT seq FROM commits WHERE seq >= ? AND seq < ? AND instr(receipt, ?) > 0"
        quoting = [seq for (seq,) in connection.execute(asked, (first, end, uri)).fetchall()]
        _clear_receipts(connection, quoting, uri, tombstone)
        connection.execute(
            "UPDATE changes SET moved_from = ? WHERE moved_from = ? AND seq > ? AND seq <= ?",
            (tombstone, uri, first, end),
        )
        connection.execute(f"UPDATE changes SET uri = ? WHERE {_ERASED}", (tombstone, uri, first, end))
    _clear_receipts(connection, [seq for seq, _ in rows])
    if erasure.end is not None:
        _forget_briefs(connection, uri, {sha256 for _, sha256 in rows})
        return
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
        receipt = _sound(json.loads(text))
        results = [
            {
                name: (tombstone if uri and value == uri else value)
                for name, value in result.items()
                if name not in ("reason", "hint", "note", "now", "went", "project")
            }
            for result in receipt["results"]
        ]
        kept: dict[str, Any] = {name: receipt[name] for name in ("commit_id", "status", "usage") if name in receipt}
        kept |= {"results": results, "similar": [near for near in receipt["similar"] if near["uri"] != uri]}
        connection.execute("UPDATE commits SET receipt = ? WHERE seq = ?", (json.dumps(kept, ensure_ascii=False), seq))


def _sound(receipt: Any) -> dict[str, Any]:
    """A receipt with ``results``, ``similar`` and ``notes``, those left out that this program does not write so.

    An import with history may have brought any.
    """
    members = receipt if isinstance(receipt, dict) else {}
    lists = {name: members.get(name) for name in ("results", "similar", "notes")}
    results, similar, notes = (each if isinstance(each, list) else [] for each in lists.values())
    return {
        **members,
        "results": list(filter(_is_result, results)),
        "similar": [near for near in similar if isinstance(near, dict) and isinstance(near.get("uri"), str)],
        "notes": [note for note in notes if isinstance(note, str)],
    }


def _is_result(given: Any) -> bool:
    """Whether this is a result of a receipt: ``op``, ``uri`` and ``action``, and what else it says as text."""
    return (
        isinstance(given, dict)
        and all(isinstance(given.get(name), str) for name in ("op", "uri", "action"))
        and all(isinstance(given.get(name, ""), str | None) for name in ("reason", "hint", "note"))
        and given["action"] in _ACTIONS
    )


def _touched(spaces: Sequence[str]) -> tuple[str, list[Any]]:
    """A condition on ``c.uri``: in one of the spaces, or archived from there; and what it compares."""
    return within("c.uri", places_of(spaces))


def within(column: str, below: Sequence[str]) -> tuple[str, list[Any]]:
    """The condition that a URI lies below one of some places, and what it compares."""
    condition = " OR ".join([f"({column} > ? AND {column} < ?)"] * len(below)) or "0 = 1"
    return f"({condition})", [bound for place in below for bound in range_below(place)]


def _at_or_below(uri: MemoryUri) -> tuple[str, str, str]:
    return str(uri), *range_below(uri)
