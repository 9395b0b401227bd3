"""Counts that the ledger keeps: what was found and read, what each session was given, what language models cost.

What was used and asked is written off the request path (``UsageLog``). Questions are kept in the trail alone, which is
bounded; of calls of models neither question nor answer is. Sums of these calls never fall, so that what watches them
may take differences.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, ClassVar, Literal, TypeVar

from memory_core.core.errors import RunebookError
from memory_core.core.frozen import frozen
from memory_core.core.memory.results import Similar
from memory_core.core.memory.uri import range_below
from memory_core.core.store.sqlite import SET_META, Table, stamp

T = TypeVar("T")

_log = logging.getLogger(__name__)
#: Rows of the trail; older ones leave.
TRAIL_ROWS = 10_000
QUERY_CHARS = 500
#: Hits of one row; beyond them nobody looks, and a row stays small.
TRAIL_HITS = 50
_WAITING_ROWS = 10_000
#: A hit that scores at least this share of the best one's counts as used.
_NEAR_SHARE = 0.8
#: Texts below this prefix are no memories, and never among those used most.
_SESSIONS = "viking://session/"
#: As in the index ``usage_most``.
_NO_SESSION = f"substr(uri, 1, {len(_SESSIONS)}) <> '{_SESSIONS}'"

#: Names in ``meta`` that say when a client last called.
_CLIENT = "client "
_IS_CLIENT = f"substr(name, 1, {len(_CLIENT)}) = '{_CLIENT}'"
_CLIENTS = 200
_CALL_NOTED_EVERY = timedelta(minutes=1)
_COUNT = (
    "INSERT INTO usage (uri, access_count, last_accessed_at) VALUES (?, ?, ?) "
    "ON CONFLICT (uri) DO UPDATE SET access_count = usage.access_count + excluded.access_count, "
    "last_accessed_at = max(usage.last_accessed_at, excluded.last_accessed_at)"
)
_COLUMNS = "at, query, kind, hits, milliseconds, cached, rank, session_id, project, space"


@frozen
class Usage:
    """How often and when a memory was last used."""

    access_count: int
    last_accessed_at: datetime


@frozen
class Recall:
    """One retrieval.

    Attributes:
        at: When; aware.
        query: What was asked; empty for a context without a question, or where the setting keeps it out.
        kind: What retrieved.
        hits: (URI, score) of what was returned, best first; turns of a session with their fragment.
        milliseconds: That it took.
        cached: Whether the answer came from a cache.
        rank: Profile that ordered it.
        session_id: Session it was for, if it was named.
        project: Project it was for, if there was one.
        space: The user's space; what one user asked is not shown to another.
        asked: Whether there was a question; what is given without one is not counted, or what is used most would be
            given for that, and stay it for that. Not stored.
    """

    JSON: ClassVar = "at query kind found:hits milliseconds cached rank session_id project"

    at: datetime
    query: str
    kind: Literal["find", "retrieve"]
    hits: tuple[tuple[str, float], ...]
    milliseconds: float
    cached: bool = False
    rank: str = ""
    session_id: str | None = None
    project: str | None = None
    space: str = "default"
    asked: bool = field(default=True, compare=False)

    @property
    def found(self) -> tuple[Similar, ...]:
        """The hits by name."""
        return tuple(Similar(uri, score) for uri, score in self.hits)


@frozen
class Latencies:
    """Of the retrievals in the trail.

    Attributes:
        milliseconds: Ascending.
        cached: How many of them were answered from a cache.
    """

    milliseconds: tuple[float, ...]
    cached: int


class UsageTable(Table):
    """Reads and writes ``usage`` and ``trail``."""

    def record(self, recalls: Sequence[Recall], reads: Iterable[tuple[str, datetime]] = ()) -> None:
        """Count accesses and extend the trail, in one transaction.

        Args:
            recalls: Retrievals, oldest first; each counts once for every memory or turn that it returned.
            reads: URI and time of files that were read.
        """
        counts = _counts(recalls, reads)
        with self._database.writing(synced=False) as connection:
            connection.executemany(_COUNT, [(uri, count, at.isoformat()) for uri, (count, at) in counts.items()])
            _extend_trail(connection, recalls)

    def begin(self, known: Mapping[str, Usage]) -> None:
        """Let memories that were used elsewhere begin with those counts; what has a count here keeps it."""
        with self._database.writing(synced=False) as connection:
            connection.executemany(
                "INSERT INTO usage (uri, access_count, last_accessed_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [
                    (uri, used.access_count, used.last_accessed_at.astimezone(UTC).isoformat())
                    for uri, used in known.items()
                ],
            )

    def usage(self, uris: Iterable[str]) -> dict[str, Usage]:
        """Access statistics of those that have any."""
        rows = self._rows(
            "SELECT uri, access_count, last_accessed_at FROM usage WHERE uri IN (SELECT value FROM json_each(?))",
            json.dumps(list(uris)),
        )
        return {uri: _usage(count, at) for uri, count, at in rows}

    def top(self, limit: int, keep: Callable[[str], bool] = lambda _uri: True) -> list[tuple[str, Usage]]:
        """The memories used most, most first, the one used last before others of its count.

        Args:
            limit: At most.
            keep: Whether a URI is wanted; asked in order until ``limit`` are found.
        """
        rows = self._database.connection().execute(
            f"SELECT uri, access_count, last_accessed_at FROM usage WHERE {_NO_SESSION} "
            "ORDER BY access_count DESC, last_accessed_at DESC, uri"
        )
        found = list(islice(((uri, _usage(count, at)) for uri, count, at in rows if keep(uri)), limit))
        rows.close()
        return found

    def totals(self, below: Sequence[str]) -> tuple[int, int]:
        """(URIs with an access, accesses) at or below the given URIs."""
        files = accesses = 0
        for place in below:
            asked = "SELECT count(*), total(access_count) FROM usage WHERE uri > ? AND uri < ?"
            used, times = self._row(asked, *range_below(place))
            files, accesses = files + int(used), accesses + int(times)
        return files, accesses

    def last_used(self, below: Sequence[str]) -> dict[str, datetime]:
        """When each file below the given URIs was used last, as far as any was."""
        found: dict[str, datetime] = {}
        for place in below:
            rows = self._rows("SELECT uri, last_accessed_at FROM usage WHERE uri > ? AND uri < ?", *range_below(place))
            found |= {uri: datetime.fromisoformat(at) for uri, at in rows}
        return found

    def recalls_by_day(self, space: str, since: str) -> list[tuple[str, int]]:
        """How often something was retrieved for a user on each day (UTC), as far as the trail goes back.

        Args:
            space: The user's.
            since: ISO date, included.
        """
        return self._rows(
            "SELECT substr(at, 1, 10), count(*) FROM trail WHERE space = ? AND at >= ? GROUP BY 1 ORDER BY 1",
            space,
            since,
        )

    def trail(self, limit: int, uri: str | None = None, space: str | None = None) -> list[Recall]:
        """Retrievals, newest first.

        Args:
            limit: At most.
            uri: Only those that returned this file, one of its turns, or something below it.
            space: Only those of this user's space.
        """
        conditions, values = ["1"], list[str]()
        if uri is not None:
            found = "json_extract(value, '$[0]')"
            at_or_below = " OR ".join([f"{found} = ?", *[f"substr({found}, 1, length(?)) = ?"] * 2])
            conditions.append(f"EXISTS (SELECT 1 FROM json_each(hits) WHERE {at_or_below})")
            values += [uri, f"{uri}#", f"{uri}#", f"{uri}/", f"{uri}/"]
        if space is not None:
            conditions.append("space = ?")
            values.append(space)
        where = " AND ".join(conditions)
        rows = self._rows(f"SELECT {_COLUMNS} FROM trail WHERE {where} ORDER BY id DESC LIMIT ?", *values, limit)
        return [_recall(row) for row in rows]

    def latencies(self, space: str | None = None) -> Latencies:
        """How long the retrievals of the trail took; with ``space``, those of one user's."""
        rows = self._rows(
            "SELECT milliseconds, cached FROM trail WHERE ? IS NULL OR space = ? ORDER BY milliseconds", space, space
        )
        return Latencies(tuple(float(milliseconds) for milliseconds, _ in rows), sum(int(cached) for _, cached in rows))

    def note_clients(self, calls: Mapping[str, datetime]) -> None:
        """Note when clients last called; the ``_CLIENTS`` that called last are kept."""
        with self._database.writing(synced=False) as connection:
            for name, at in calls.items():
                connection.execute(SET_META, (f"{_CLIENT}{_storable(name)}", stamp(at)))
            connection.execute(
                f"DELETE FROM meta WHERE {_IS_CLIENT} AND name NOT IN "
                f"(SELECT name FROM meta WHERE {_IS_CLIENT} ORDER BY value DESC LIMIT ?)",
                (_CLIENTS,),
            )

    def clients(self) -> list[tuple[str, datetime]]:
        """Clients and when each last called, to the minute; the latest first."""
        rows = self._rows(f"SELECT name, value FROM meta WHERE {_IS_CLIENT} ORDER BY value DESC, name")
        return [(name.removeprefix(_CLIENT), datetime.fromisoformat(at)) for name, at in rows]


class UsageLog:
    """What was used and is not written yet; safe to use from many threads.

    Args:
        table: Where it goes.
        model_calls: Where calls of language models go.
        wake: Called after each note, so that a background thread flushes soon.
    """

    def __init__(self, table: UsageTable, model_calls: ModelCallTable, wake: Callable[[], None]) -> None:
        self._table = table
        self._model_calls = model_calls
        self._wake = wake
        self._guard = threading.Lock()
        self._writing = threading.Lock()
        # Bounded: a ledger that cannot be written must not fill the memory of a server that only reads.
        self._used: deque[Recall | tuple[str, datetime]] = deque(maxlen=_WAITING_ROWS)
        self._calls: deque[ModelCalls] = deque(maxlen=_WAITING_ROWS)
        self._clients: deque[tuple[str, datetime]] = deque(maxlen=_WAITING_ROWS)
        self._noted: dict[str, datetime] = {}

    def recalled(self, recall: Recall) -> None:
        """Note a retrieval."""
        self._note(self._used, recall)

    def read(self, uri: str, at: datetime) -> None:
        """Note that a file was read."""
        self._note(self._used, (uri, at))

    def asked(self, call: ModelCalls) -> None:
        """Note that a language model was asked."""
        self._note(self._calls, call)

    def called(self, client: str, at: datetime) -> None:
        """Note that a client called; at most once a minute."""
        with self._guard:
            if client in self._noted and at - self._noted[client] < _CALL_NOTED_EVERY:
                return
            if len(self._noted) > _WAITING_ROWS:
                self._noted.clear()
            self._noted[client] = at
        self._note(self._clients, (client, at))

    def flush(self) -> None:
        """Write what was noted, also what another thread is writing; what cannot be written now is kept for later."""
        with self._writing:
            self._write(self._calls, self._model_calls.add, "calls of the model are not counted yet")
            self._write(self._clients, self._note_clients, "calls of clients are not noted yet")
            self._write(self._used, self._record, "what was used is not counted yet")

    def _note_clients(self, calls: list[tuple[str, datetime]]) -> None:
        self._table.note_clients(dict(calls))

    def _record(self, used: list[Recall | tuple[str, datetime]]) -> None:
        recalls = [each for each in used if isinstance(each, Recall)]
        self._table.record(recalls, [each for each in used if not isinstance(each, Recall)])

    def _note(self, waiting: deque[T], note: T) -> None:
        with self._guard:
            waiting.append(note)
        self._wake()

    def _write(self, waiting: deque[T], write: Callable[[list[T]], None], trouble: str) -> None:
        with self._guard:
            notes = list(waiting)
            waiting.clear()
        if not notes:
            return
        try:
            write(notes)
        except RunebookError as error:
            _log.warning("%s: %s", trouble, error.message)
            with self._guard:
                room = _WAITING_ROWS - len(waiting)
                waiting.extendleft(islice(reversed(notes), room))  # the oldest are lost


def move_usage(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Let a renamed file, and its turns, keep their counts; within the transaction of the commit that says so."""
    rows = connection.execute(
        "DELETE FROM usage WHERE uri = ? OR (uri > ? AND uri < ?) RETURNING uri, access_count, last_accessed_at",
        (old, f"{old}#", f"{old}$"),  # "$" is the character after "#"
    ).fetchall()
    connection.executemany(_COUNT, [(new + uri.removeprefix(old), count, at) for uri, count, at in rows])


def counts_as_access(uri: str) -> bool:
    """Whether returning or reading this is an access: a memory, or one turn or page of a session."""
    parts = uri.split("/")  # viking: · · scope · space · memories
    if uri.startswith(_SESSIONS):
        return "#" in parts[-1]
    return len(parts) > 5 and parts[4] == "memories" and not parts[-1].startswith(".")


def _counts(recalls: Iterable[Recall], reads: Iterable[tuple[str, datetime]]) -> dict[str, tuple[int, datetime]]:
    found: dict[str, tuple[int, datetime]] = {}
    hits = [(uri, recall.at) for recall in recalls if recall.asked for uri in _near_the_best(recall.hits)]
    for uri, moment in (*hits, *reads):
        if counts_as_access(uri):
            at = moment.astimezone(UTC)
            count, last = found.get(uri, (0, at))
            found[uri] = (count + 1, max(last, at))
    return found


def _near_the_best(hits: Sequence[tuple[str, float]]) -> list[str]:
    """What scores near the best, memories and turns each among themselves."""
    best: dict[bool, float] = {}
    for uri, score in hits:
        turn = uri.startswith(_SESSIONS)
        best[turn] = max(score, best.get(turn, 0.0))
    near = (uri for uri, score in hits if score >= _NEAR_SHARE * best[uri.startswith(_SESSIONS)])
    return list(dict.fromkeys(near))


def _extend_trail(connection: sqlite3.Connection, recalls: Iterable[Recall]) -> None:
    rows = [
        (
            recall.at.astimezone(UTC).isoformat(),
            _storable(recall.query[:QUERY_CHARS]),
            recall.kind,
            json.dumps(recall.hits[:TRAIL_HITS], ensure_ascii=False, separators=(",", ":")),
            round(recall.milliseconds, 3),
            int(recall.cached),
            recall.rank,
            _storable(recall.session_id),
            _storable(recall.project),
            recall.space,
        )
        for recall in recalls
    ]
    if not rows:
        return
    marks = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO trail ({_COLUMNS}) VALUES ({marks})", rows)
    connection.execute("DELETE FROM trail WHERE id <= (SELECT max(id) FROM trail) - ?", (TRAIL_ROWS,))


def _recall(row: Sequence[Any]) -> Recall:
    """A retrieval from its ``_COLUMNS``."""
    at, query, kind, hits, milliseconds, cached, *rest = row
    found = tuple((uri, float(score)) for uri, score in json.loads(hits))
    return Recall(datetime.fromisoformat(at), query, kind, found, milliseconds, bool(cached), *rest)


def _storable(text: str | None) -> str | None:
    """The text without lone surrogates, which no database takes: one of them must not cost the whole batch."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8")


def _usage(count: int, at: str) -> Usage:
    return Usage(int(count), datetime.fromisoformat(at))


KEPT_DAYS = 30


class InjectionTable(Table):
    """Reads and writes the rows of ``injections``."""

    def seen(self, session: str) -> dict[str, str]:
        """What a session was shown: URI → digest of the text as it was last injected."""
        return dict(self._rows("SELECT uri, digest FROM injections WHERE session = ?", session))

    def record(self, session: str, items: Mapping[str, str], at: str) -> None:
        """Note what a session was shown now; with no items, that it still lives.

        Args:
            session: Any name that stays the same while a context lives.
            items: URI → digest of the text that was injected; replaces the earlier digest of a URI.
            at: ISO 8601; sessions last touched ``KEPT_DAYS`` before it are dropped.

        Raises:
            ValueError: If ``at`` is no time.
            StoreBusy: If another process wrote for longer than the timeout.
        """
        moment = datetime.fromisoformat(at)
        with self._database.writing(synced=False) as connection:
            connection.execute(
                "INSERT INTO injected_sessions VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET "
                "touched_at = max(injected_sessions.touched_at, excluded.touched_at)",
                (session, stamp(moment)),
            )
            connection.executemany(
                "INSERT INTO injections VALUES (?, ?, ?) ON CONFLICT (session, uri) DO UPDATE SET "
                "digest = excluded.digest",
                [(session, uri, digest) for uri, digest in items.items()],
            )
            connection.execute(
                "DELETE FROM injected_sessions WHERE touched_at < ?", (stamp(moment - timedelta(days=KEPT_DAYS)),)
            )

    def forget(self, session: str) -> None:
        """Let everything be injected into a session again: its context was compressed or began anew."""
        with self._database.writing(synced=False) as connection:
            connection.execute("DELETE FROM injected_sessions WHERE session = ?", (session,))


#: Of a model's name; a provider may answer with anything.
_MODEL_CHARS = 200
_SUMS = ("calls", "failures", "prompt_tokens", "completion_tokens", "cached_tokens")
_ADD = (
    "INSERT INTO model_calls VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (space, purpose, model) DO UPDATE SET "
    + ", ".join(f"{name} = model_calls.{name} + excluded.{name}" for name in _SUMS)
)


@frozen
class ModelCalls:
    """Calls of one model for one purpose.

    Attributes:
        space: The user's space that they were made for.
        purpose: extraction, summaries, chat, …
        model: Its name, as the provider gave it; empty where no answer named it.
        calls: How often it was asked, failures included.
        failures: How often there was no answer.
        prompt_tokens: Tokens that it read, as the provider counted them.
        completion_tokens: Tokens that it wrote.
        cached_tokens: Of those it read, the share that came from the provider's cache.
    """

    JSON: ClassVar = "purpose model calls failures prompt_tokens completion_tokens cached_tokens"

    space: str
    purpose: str
    model: str = ""
    calls: int = 1
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class ModelCallTable(Table):
    """Reads and writes ``model_calls``."""

    def add(self, calls: Iterable[ModelCalls]) -> None:
        """Add to the sums, in one transaction."""
        rows = [
            (each.space, each.purpose, _storable(each.model[:_MODEL_CHARS]), *(getattr(each, name) for name in _SUMS))
            for each in calls
        ]
        with self._database.writing(synced=False) as connection:
            connection.executemany(_ADD, rows)

    def counted_today(self, name: str, limit: int) -> bool:
        """Count what may happen so often a day (of the clock on the wall), in whatever process.

        Args:
            name: Of what is counted; any, but the same each time.
            limit: Times a day, > 0.

        Returns:
            Whether it may happen; if not, it is not counted.
        """
        today = datetime.now().astimezone().date().isoformat()
        with self._database.writing(synced=False) as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            day, _, count = ("" if row is None else str(row[0])).partition(" ")
            before = int(count) if day == today else 0
            if before < limit:
                connection.execute(SET_META, (name, f"{today} {before + 1}"))
        return before < limit

    def totals(self, space: str | None = None) -> list[ModelCalls]:
        """The sums of one user's space, or of all; the most asked first."""
        rows = self._rows(
            f"SELECT space, purpose, model, {', '.join(_SUMS)} "
            "FROM model_calls WHERE ? IS NULL OR space = ? ORDER BY calls DESC, space, purpose, model",
            space,
            space,
        )
        return [ModelCalls(*row) for row in rows]
