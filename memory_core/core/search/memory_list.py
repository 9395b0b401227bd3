"""The list of memories as a person looks through it: filtered, sorted, page by page, with what each was used.

Straight from the catalog, with the counts of the ledger; no file is opened, so ten thousand memories are listed in
milliseconds. What is private to another project than the one somebody looks from is named without what it says, as
``ls`` does, and no word of it is looked for. Reads only, and counts as no use.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from memory_core.core.errors import InvalidInput
from memory_core.core.frozen import frozen
from memory_core.core.index.filter import (
    ANYTHING,
    Condition,
    all_of,
    compile_filter,
    in_use,
    not_private_elsewhere,
    private_elsewhere,
    utc,
)
from memory_core.core.memory.metadata import read_moment
from memory_core.core.memory.uri import SCHEME
from memory_core.core.search.browse import PRIVATE_LINE
from memory_core.core.search.ranking import RATE_PER_DAY, decay

if TYPE_CHECKING:
    from memory_core.core.index.catalog import Catalog
    from memory_core.core.index.documents import Document
    from memory_core.core.store.usage import Usage, UsageTable


Order = Literal["updated", "created", "importance", "accesses", "name"]
LIMIT_MOST = 500
#: A memory and a day: the day, its URI, its name and its type.
Dated = tuple[str, str, str, str]
#: Of the memories made on a day, so many are named.
_NAMED_A_DAY = 2
#: Tags, and projects, that a page offers to choose from.
_LABELS_MOST = 1_000
_TAGS_CHARS = 400
_WORDS_CHARS = 500
#: Each is looked for in every text.
_WORDS_MOST = 24
_SECONDS_PER_DAY = 86_400.0
_ORDERS: Mapping[str, str] = {
    "updated": "d.updated_at DESC, d.uri",
    "created": "d.created_at DESC, d.uri",
    "importance": "d.salience DESC, d.updated_at DESC, d.uri",
    "name": "d.name COLLATE NOCASE, d.uri",
    "accesses": "d.updated_at DESC, d.uri",
}
_COLUMNS = (
    *("uri", "name", "memory_type", "context_type", "abstract", "category", "tags", "project", "private", "salience"),
    *("confidence", "active", "pinned", "expires_at", "created_at", "updated_at"),
)


#: Least shares that age has left, by which memories are counted as fresh, fading, faint or nearly gone.
FRESHNESS = (0.75, 0.5, 0.25, 0.0)
_RECALL_DAYS = 30


@frozen
class EntryFilter:
    """Which memories are listed, and in which order.

    Attributes:
        memory_type: Only of this type; ``context_type`` and ``category`` likewise.
        project: Only of this project, which is also the one that somebody looks from.
        importance_min: Least salience, in [0, 1]; ``importance_max`` likewise.
        updated_after: ISO date or time from which on they were changed; ``updated_before`` up to which, included.
        pinned: Whether they are pinned.
        active: Whether they are in use: neither at rest nor past their time.
        tags: They have all of these, whatever their case.
        words: Each of these stands in the name, the line or the text, whatever its case.
        sort: Newest, weightiest or most used first; names in order.
        limit: 1 to 500.
        offset: How many are left out before the first.
    """

    memory_type: str | None = None
    context_type: str | None = None
    category: str | None = None
    project: str | None = None
    importance_min: float | None = None
    importance_max: float | None = None
    updated_after: str | None = None
    updated_before: str | None = None
    pinned: bool | None = None
    active: bool | None = None
    tags: Sequence[str] = ()
    words: str = ""
    sort: Order = "updated"
    limit: int = 50
    offset: int = 0


@frozen
class EntrySummary:
    """One memory in a list.

    Attributes:
        uri: Where it is.
        name: What it is called.
        context_type: ``memory``, ``skill`` or ``resource``.
        abstract: What it says, in a line.
        tags: In a list those that have 400 characters together, the first ones.
        expires_at: From when it no longer holds; None is never.
        accesses: How often it was read or found near the top; ``last_access`` when last.
        decay: What age leaves of it, in (0, 1], since its last access, else its last change.
    """

    JSON: ClassVar = "* path"

    uri: str
    name: str
    memory_type: str
    context_type: str
    abstract: str
    category: str | None
    tags: tuple[str, ...]
    project: str | None
    private: bool
    salience: float
    confidence: float
    active: bool
    pinned: bool
    expires_at: str | None
    created_at: str | None
    updated_at: str | None
    accesses: int = 0
    last_access: str | None = None
    decay: float = 1.0

    @property
    def path(self) -> str:
        """The URI without its scheme."""
        return self.uri.removeprefix(SCHEME)


@frozen
class EntryPage:
    """Some of the memories that meet a filter; ``total`` counts all of them."""

    entries: tuple[EntrySummary, ...]
    total: int


@frozen
class Overall:
    """The memories as a whole: how they came, how they are used, and how fresh they are. No memory is named.

    Attributes:
        months: (``2026-05``, memories made in it) in order; months without any are left out.
        recalls: (ISO date, how often something was retrieved) of the last days, in order; UTC.
        freshness: (least share that age has left, memories) for each of ``FRESHNESS``.
    """

    months: tuple[tuple[str, int], ...]
    recalls: tuple[tuple[str, int], ...]
    freshness: tuple[tuple[float, int], ...]


class MemoryList:
    """The memories of one user and agent as a list.

    Args:
        catalog: What is indexed.
        usage: What was used.
        spaces: ``scope/space`` names that may be seen.
        rate_per_day: Of decay, > 0.
    """

    def __init__(
        self, catalog: Catalog, usage: UsageTable, spaces: Sequence[str], rate_per_day: float = RATE_PER_DAY
    ) -> None:
        self._catalog = catalog
        self._usage = usage
        self._spaces = tuple(space for space in spaces if not space.startswith("session/"))
        self._rate = rate_per_day

    def entries(self, wanted: EntryFilter, now: datetime | None = None) -> EntryPage:
        """The memories that meet a filter.

        Raises:
            InvalidInput: If the filter is out of range.
        """
        if not 1 <= wanted.limit <= LIMIT_MOST or wanted.offset < 0 or len(wanted.words) > _WORDS_CHARS:
            raise InvalidInput(
                "limit, offset or words is out of range.",
                hint=f"limit is 1 to {LIMIT_MOST}, offset starts at 0, words have at most {_WORDS_CHARS} characters.",
            )
        if len(_distinct(wanted.words)) > _WORDS_MOST:
            raise InvalidInput(f"more than {_WORDS_MOST} words are looked for.", hint="Give fewer, or use search.")
        now = now or datetime.now(UTC)
        condition = self._condition(wanted, now)
        hidden = private_elsewhere(wanted.project)
        with self._catalog.reading() as connection:
            order = _ORDERS[wanted.sort]
            where = f"FROM documents d WHERE {condition.sql}"
            used: dict[str, Usage] = {}
            chosen = ""
            limits: tuple[Any, ...] = (wanted.limit, wanted.offset)
            if wanted.sort == "accesses":
                found = connection.execute(f"SELECT d.uri {where} ORDER BY {order}", condition.parameters)
                everything = [uri for (uri,) in found]
                total = len(everything)
                uris, used = self._most_used(everything, wanted)
                chosen = " AND d.uri IN (SELECT value FROM json_each(?))"
                limits = (json.dumps(uris), wanted.limit, 0)
            else:
                (total,) = connection.execute(f"SELECT count(*) {where}", condition.parameters).fetchone()
            columns = ", ".join(f"d.{name}" for name in _COLUMNS)
            rows = connection.execute(
                f"SELECT {columns}, {hidden.sql} {where}{chosen} ORDER BY {order} LIMIT ? OFFSET ?",
                (*hidden.parameters, *condition.parameters, *limits),
            ).fetchall()
        used = used or self._usage.usage(row[0] for row in rows)
        entries = [_entry(dict(zip(_COLUMNS, row[:-1], strict=True)), row[-1], used, now, self._rate) for row in rows]
        entries = [replace(entry, tags=_first_tags(entry.tags)) for entry in entries]
        if wanted.sort == "accesses":
            entries.sort(key=lambda entry: -entry.accesses)  # stable: equals stay newest first
        return EntryPage(tuple(entries), total)

    def summary(self, document: Document, now: datetime | None = None) -> EntrySummary:
        """One memory as the list would show it, from its text as it is now."""
        row = {name: getattr(document, name) for name in _COLUMNS}
        row |= {
            "uri": str(document.uri),
            "tags": json.dumps(document.tags, ensure_ascii=False),
            "expires_at": None if document.expires_at is None else document.expires_at.isoformat(),
            "created_at": utc(document.created_at),
            "updated_at": utc(document.updated_at),
        }
        return _entry(row, False, self._usage.usage([row["uri"]]), now or datetime.now(UTC), self._rate)

    def counts(self) -> dict[str, int]:
        """How many memories there are of each type, most first."""
        condition = self._condition(EntryFilter(), datetime.now(UTC))
        return dict(self._rows("d.memory_type, count(*)", condition, "GROUP BY 1 ORDER BY 2 DESC, 1"))

    def calendar(self, first: str, last: str) -> tuple[list[Dated], list[Dated], dict[str, int]]:
        """What happened in a span of days, and which memories were made on each of them.

        Args:
            first: ISO date, included.
            last: ISO date, included.

        Returns:
            Memories that tell when something happened, in order; the first ones made on each day; how many were made,
            by ISO date (UTC).
        """
        shown, made_on = self._shown(), "substr(d.created_at, 1, 10)"
        told = "substr(d.happened, 1, 10), d.uri, d.name, d.memory_type"
        within = "AND d.happened >= ? AND substr(d.happened, 1, 10) <= ? ORDER BY d.happened, d.name LIMIT ?"
        events = self._rows(told, shown, within, first, last, LIMIT_MOST)
        of_day = f"OVER (PARTITION BY {made_on}"
        rows = self._catalog.connection().execute(
            f"SELECT day, uri, name, memory_type, made FROM (SELECT {made_on} AS day, d.uri, d.name, d.memory_type, "
            f"count(*) {of_day}) AS made, row_number() {of_day} ORDER BY d.created_at, d.uri) AS place "
            f"FROM documents d WHERE {shown.sql} AND {made_on} >= ? AND {made_on} <= ?) WHERE place <= ? "
            "ORDER BY day, place",
            (*shown.parameters, first, last, _NAMED_A_DAY),
        )
        added, made = [], {}
        for *dated, count in rows:
            added.append(tuple(dated))
            made[dated[0]] = count
        return events, added, made

    def labels(self) -> tuple[dict[str, int], dict[str, int]]:
        """The most used tags and projects of memories that may be seen from no project, with how many have each."""
        shown, most_first = self._shown(), f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_LABELS_MOST}"
        tags = self._rows("t.value, count(*)", shown, most_first, more=", json_each(d.tags) t")
        projects = self._rows("d.project, count(*)", shown, f"AND d.project IS NOT NULL {most_first}")
        return dict(tags), dict(projects)

    def growth(self, user_space: str, now: datetime | None = None) -> Overall:
        """The memories as a whole, counted where they are.

        Args:
            user_space: Whose retrievals count.
            now: Aware; None is the clock's.
        """
        now = now or datetime.now(UTC)
        shown = self._shown()
        made = "AND d.created_at IS NOT NULL GROUP BY 1 ORDER BY 1"
        months = self._rows("substr(d.created_at, 1, 7), count(*)", shown, made)
        changed = "substr(coalesce(d.updated_at, d.created_at), 1, 10)"
        days = Counter[str]()
        for day, count in self._rows(f"{changed}, count(*)", shown, "GROUP BY 1"):
            days[day or ""] += count
        used = self._usage.last_used([f"{SCHEME}{space}" for space in self._spaces])
        among = "AND d.uri IN (SELECT value FROM json_each(?))"
        for uri, day in self._rows(f"d.uri, {changed}", shown, among, json.dumps(list(used))):
            days[day or ""] -= 1
            days[used[uri].date().isoformat()] += 1
        fresh = dict.fromkeys(FRESHNESS, 0)
        for day, count in days.items():
            age = max(0, (now.date() - date.fromisoformat(day)).days) if day else 0
            kept = decay(age, self._rate)
            fresh[next(least for least in FRESHNESS if kept >= least)] += count
        since = (now - timedelta(days=_RECALL_DAYS)).date().isoformat()
        return Overall(tuple(months), tuple(self._usage.recalls_by_day(user_space, since)), tuple(fresh.items()))

    def _rows(self, columns: str, condition: Condition, rest: str, *values: Any, more: str = "") -> list[Any]:
        """Columns of the documents that meet a condition.

        Args:
            columns: What is asked for, of ``documents d``.
            condition: Which documents.
            rest: Further conditions, order and limit.
            values: Parameters of the rest.
            more: What the documents are joined with.
        """
        statement = f"SELECT {columns} FROM documents d{more} WHERE {condition.sql} {rest}"
        return self._catalog.connection().execute(statement, (*condition.parameters, *values)).fetchall()

    def _shown(self) -> Condition:
        """That a memory may be seen from no project."""
        every = self._condition(EntryFilter(), datetime.now(UTC))
        return all_of([every, not_private_elsewhere(None)]) or ANYTHING

    def _most_used(self, uris: list[str], wanted: EntryFilter) -> tuple[list[str], dict[str, Usage]]:
        """The URIs of the page that is wanted, in the order of their counts, and their counts."""
        used = self._usage.usage(uris)
        uris.sort(key=lambda uri: -used[uri].access_count if uri in used else 0)
        page = uris[wanted.offset : wanted.offset + wanted.limit]
        return page, {uri: used[uri] for uri in page if uri in used}

    def _condition(self, wanted: EntryFilter, now: datetime) -> Condition:
        marks = ",".join("?" * len(self._spaces))
        simple = ("memory_type", "context_type", "category", "project", "pinned")
        tree: dict[str, Any] = {name: value for name in simple if (value := getattr(wanted, name)) is not None}
        salience = {"gte": wanted.importance_min, "lte": wanted.importance_max}
        updated = {"gte": wanted.updated_after, "lte": wanted.updated_before}
        for name, tests in (("salience", salience), ("updated_at", updated)):
            given = {op: value for op, value in tests.items() if value is not None}
            tree |= {name: given} if given else {}
        is_used = in_use(now)
        parts = [
            Condition(f"d.space IN ({marks})", self._spaces),
            Condition("d.part = 0 AND d.context_type <> 'resource'"),
            compile_filter(tree),
            *(compile_filter({"tags": {"contains": tag}}) for tag in wanted.tags),
            None
            if wanted.active is None
            else is_used
            if wanted.active
            else Condition(f"NOT {is_used.sql}", is_used.parameters),
            _holding(words, wanted.project) if (words := _distinct(wanted.words)) else None,
            not_private_elsewhere(wanted.project) if wanted.tags or wanted.category is not None else None,
        ]
        return all_of(parts) or ANYTHING


def _entry(
    row: Mapping[str, Any], hidden: bool, used: Mapping[str, Usage], now: datetime, rate_per_day: float
) -> EntrySummary:
    """The memory of one row; ``hidden``: it is named without what it says."""
    counts = used.get(row["uri"])
    last = None if counts is None else counts.last_accessed_at
    since = last or read_moment(row["updated_at"] or row["created_at"]) or now
    age_days = max(0.0, (now - since).total_seconds() / _SECONDS_PER_DAY)
    shown = (
        {"abstract": PRIVATE_LINE, "category": None, "tags": ()} if hidden else {"tags": tuple(json.loads(row["tags"]))}
    )
    flags = {name: bool(row[name]) for name in ("private", "active", "pinned")}
    return EntrySummary(
        **{**row, **shown, **flags},
        accesses=0 if counts is None else counts.access_count,
        last_access=None if last is None else last.isoformat(timespec="seconds"),
        decay=decay(age_days, rate_per_day),
    )


def _first_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Those that a list shows: a page of it may name a hundred of hundreds of memories."""
    ends = accumulate(map(len, tags))
    return tuple(tag for tag, end in zip(tags, ends, strict=True) if end <= _TAGS_CHARS)


def _distinct(words: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words.lower().split()))


def _holding(words: Sequence[str], project: str | None) -> Condition:
    """That a document that may be read says each of the words, or its name does; each text is folded once."""
    hidden = private_elsewhere(project)
    said = f"CASE WHEN {hidden.sql} THEN '' ELSE lower(d.own || ' ' || d.abstract) END"
    return Condition(
        f"NOT EXISTS (SELECT 1 FROM (SELECT lower(d.name) AS name, {said} AS said LIMIT 1) t, json_each(?) w "
        "WHERE instr(t.name, lower(w.value)) = 0 AND instr(t.said, lower(w.value)) = 0)",
        (*hidden.parameters, json.dumps(words)),
    )
