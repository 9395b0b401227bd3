"""What commits, reads and searches return: entries, passages of files, hits and context packs."""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import Enum, StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from memory_core.core.caches import PrefixCache
from memory_core.core.frozen import frozen
from memory_core.core.memory.trailer import read_members
from memory_core.core.memory.uri import URI_LIMIT_BYTES, MemoryUri, Scope


def as_json(value: Any) -> Any:
    """The JSON form of a result, or of what is in one.

    A dataclass becomes an object of its fields in their order; a field is left out if it equals its default, and that
    is None, False, () or an empty string. A class that differs says so by ``JSON``, the names of its members, which are
    fields or properties: ``name?`` is left out where it says nothing, ``name:member`` is called ``member``, the members
    of ``*name`` stand among the others, and ``*`` is every field. A class whose form is made otherwise has ``as_dict``.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | MemoryUri | Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Mapping):
        return {str(as_json(name)): as_json(member) for name, member in value.items()}
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if not hasattr(value, "__dataclass_fields__"):
        return [as_json(item) for item in value]
    found: dict[str, Any] = {}
    kind: Any = type(value)
    for name, member, is_left_out in _members(kind):
        given = getattr(value, name)
        if not member:
            found |= as_json(given)
        elif not is_left_out(given):
            found[member] = as_json(given)
    return found


@cache
def _members(kind: type[Any]) -> tuple[tuple[str, str, Callable[[Any], bool]], ...]:
    """The members of a class: attribute, name in JSON (empty for all of the attribute's own), when it is left out."""
    if not hasattr(kind, "JSON"):
        return tuple((each.name, each.name, _left_out_as(each.default)) for each in fields(kind))
    found = []
    every = " ".join(each.name for each in fields(kind))
    for word in re.sub(r"\*(?!\w)", every, kind.JSON).split():
        name, _, member = word.rstrip("?").lstrip("*").partition(":")
        shown = "" if word.startswith("*") else member or name
        found.append((name, shown, operator.not_ if word.endswith("?") else _never))
    return tuple(found)


def json_members(kind: Any) -> list[tuple[str, str, bool]]:
    """The members of a class in its JSON form: attribute, name, and whether it may be left out; see ``as_json``."""
    return [(name, member, is_left_out is not _never) for name, member, is_left_out in _members(kind)]


def _left_out_as(default: Any) -> Callable[[Any], bool]:
    """Whether a value is left out: it is the default, and that says nothing."""
    if default is None or default is False or default in ((), ""):
        return partial(operator.eq, default)
    return _never


def _never(_value: Any) -> bool:
    return False


#: From here on a text is a log that grows, and hashing all of it again costs more than remembering it.
_LONG_CHARS = 32_768
_PIECE_CHARS = 1 << 20
_LONG_TEXTS: PrefixCache[str, hashlib._Hash] = PrefixCache(4, 64 << 20)


def text_sha256(text: str) -> str:
    """Hexadecimal SHA-256 of the UTF-8 text: a file's identity in ledger and catalog."""
    if len(text) < _LONG_CHARS:
        return hashlib.sha256(text.encode("utf-8")).hexdigest()
    return _LONG_TEXTS.value(text, hashlib.sha256(), _with_text).hexdigest()


def _with_text(digest: hashlib._Hash, text: str) -> hashlib._Hash:
    longer = digest.copy()
    for piece in _encoded(text):
        longer.update(piece)
    return longer


def _encoded(text: str) -> Iterator[bytes]:
    """The UTF-8 of a long text, in pieces."""
    return (text[at : at + _PIECE_CHARS].encode("utf-8") for at in range(0, len(text), _PIECE_CHARS))


def utf8_bytes(text: str) -> int:
    """How many bytes the text takes in a file."""
    return sum(map(len, _encoded(text)))


class Action(StrEnum):
    """What became of one operation."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    UNCHANGED = "unchanged"
    QUEUED = "queued"
    REJECTED = "rejected"

    @property
    def is_change(self) -> bool:
        """Whether a file differs afterwards."""
        return self in _CHANGES


_CHANGES = frozenset({Action.CREATED, Action.UPDATED, Action.DELETED})


class Status(StrEnum):
    """What became of a commit as a whole."""

    COMMITTED = "committed"
    PARTIAL = "partial"
    UNCHANGED = "unchanged"
    QUEUED = "queued"
    REJECTED = "rejected"
    DRY_RUN = "dry_run"


@frozen
class FileChange:
    """One file's step from ``before`` to ``after``; None means the file is absent.

    ``appended`` marks a log that only grew: the ledger then keeps the tail, not the whole file.
    ``key`` and ``memory_type`` are what the ledger's name table remembers of the file. ``moved_from`` is where
    it was until now, when the file was renamed.
    """

    uri: MemoryUri
    before: str | None
    after: str | None
    memory_type: str = ""
    key: str = ""
    appended: bool = False
    moved_from: MemoryUri | None = None

    @property
    def before_sha256(self) -> str | None:
        """Hash of ``before``, or None."""
        return None if self.before is None else text_sha256(self.before)

    @property
    def after_sha256(self) -> str | None:
        """Hash of ``after``, or None."""
        return None if self.after is None else text_sha256(self.after)


@frozen
class OperationResult:
    """One line of a receipt.

    ``reason`` says what was refused, ``hint`` what to do about it, ``note`` what else is worth knowing.
    ``conflict`` marks a refusal because the file is no longer what the author of the operation saw. Of a memory whose
    text changed, ``now`` is how it begins now, and ``went`` the sentences that it no longer has. ``project`` is the one
    that a memory or conversation belongs to.
    """

    op: str
    uri: str
    action: Action
    reason: str | None = None
    hint: str | None = None
    note: str | None = None
    conflict: bool = False
    now: str | None = None
    went: str | None = None
    project: str | None = None

    def clipped(self, most: int) -> OperationResult:
        """The same with so many characters of what it says; it may quote what was sent."""
        limits = {"uri": URI_LIMIT_BYTES, "reason": most, "hint": most, "note": most}  # a longer URI is none
        said = ((name, getattr(self, name) or "", limit) for name, limit in limits.items())
        long: dict[str, Any] = {name: clipped(text, limit) for name, text, limit in said if len(text) > limit}
        return replace(self, **long) if long else self


def clipped(text: str, limit_chars: int) -> str:
    """A text that ends with an ellipsis where it is longer."""
    return text if len(text) <= limit_chars else f"{text[: limit_chars - 1].rstrip()}…"


@frozen
class SessionProgress:
    """How far one session has come, recorded in the transaction of the commit that brought it there.

    Attributes:
        log: The session's message log.
        stored: Messages that the log now holds; None leaves it as it is.
        extracted: Messages that have been turned into memories, or judged; None leaves it as it is.
        known: Messages that were in the log before; if a person shortened the log, at most so many are extracted.
        call_keys: Tool calls that were counted, by ``features.tool_counts``.
        uncounted: Tool calls whose count was taken back.
        reason: Why an undone extraction is not done again by itself; it waits until somebody asks for it.
        answered: The id of the brief that the commit answers; None is none.
    """

    log: MemoryUri
    stored: int | None = None
    extracted: int | None = None
    known: int | None = None
    call_keys: frozenset[str] = frozenset()
    uncounted: frozenset[str] = frozenset()
    reason: str | None = None
    answered: str | None = None


@frozen
class ChangeSet:
    """The planner's answer: files to change and one result per operation, in the caller's order.

    ``notes`` and ``usage`` go into the receipt as they are, so that a repeated request gets them too.
    """

    changes: tuple[FileChange, ...] = ()
    results: tuple[OperationResult, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Mapping[str, int] | None = None
    progress: SessionProgress | None = None

    def with_file(self, change: FileChange, result: OperationResult) -> ChangeSet:
        """With one more file, and the result that says so."""
        return replace(self, changes=(*self.changes, change), results=(*self.results, result))


@frozen
class Similar:
    """A stored memory near a new one; named, never merged."""

    uri: str
    score: float


@frozen
class CommitReceipt:
    """What a commit did, operation by operation.

    Attributes:
        commit_id: Names the commit in history; empty when nothing was stored.
        status: The commit as a whole; zero changes is never ``committed``.
        results: One per operation.
        similar: Near neighbours of what was created.
        notes: Facts the caller should know, such as ignored keys.
        usage: Counts, such as messages stored or tokens spent; None when there are none.
        brief: How the client's own model turns the stored conversation into memories.
        working_memory: What must stay in a compressed context: ``open_tasks`` and ``summary``.
        space: The shared space that it changed; None for the user's own.
        author: Who did it, where it changed a shared space.
    """

    JSON: ClassVar = "commit_id status results similar notes? usage? working_memory? brief? space? author?"

    commit_id: str
    status: Status
    results: tuple[OperationResult, ...] = ()
    similar: tuple[Similar, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Mapping[str, int] | None = None
    brief: str | None = None
    working_memory: Mapping[str, Any] | None = None
    space: str | None = None
    author: str | None = None

    @property
    def changed_uris(self) -> tuple[str, ...]:
        """URIs of files that were created, updated or deleted, each once."""
        return tuple(dict.fromkeys(result.uri for result in self.results if result.action.is_change))

    @property
    def has_refusals(self) -> bool:
        """Whether anything was refused."""
        return any(result.reason for result in self.results)

    @classmethod
    def from_dict(cls, receipt: Mapping[str, Any]) -> CommitReceipt:
        """The inverse of ``as_json``; the ledger keeps receipts as JSON."""
        found = read_members(cls, receipt)
        if found is None:
            raise ValueError("a receipt has an id and a status")
        return found


def status_of(results: tuple[OperationResult, ...]) -> Status:
    """The status that a commit with these results has, as if applied."""
    actions = {result.action for result in results}
    changed = actions & _CHANGES
    rejected = Action.REJECTED in actions or any(
        result.reason is not None for result in results if result.action in changed
    )
    if Action.QUEUED in actions:
        return Status.PARTIAL if rejected else Status.QUEUED
    if changed:
        return Status.PARTIAL if rejected else Status.COMMITTED
    return Status.REJECTED if rejected else Status.UNCHANGED


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """One thing about one file that keeps it from being used as its writer may expect; the file stays as it is.

    Attributes:
        uri: The file's URI; where no URI can name it, its path below the memory folder.
        what: What is wrong, without any of the file's text.
        hint: What its owner can do.
    """

    uri: str
    what: str
    hint: str


@frozen
class Rival:
    """A newer memory that says otherwise, as it is shown beside the one that it contests.

    Attributes:
        relation: What the contested one has to it: ``contradicts`` or ``replaced_by``.
        strength: Of the relation, in [0, 1].
        confidence: How far the rival is trusted, in [0, 1].
        abstract: Its one line.
    """

    JSON: ClassVar = "*"

    uri: str
    relation: str
    strength: float
    confidence: float
    abstract: str
    updated_at: str | None = None

    @property
    def verb(self) -> str:
        """How it contests: ``contradicted by`` or ``replaced by``."""
        return "replaced by" if self.relation == "replaced_by" else "contradicted by"


@frozen
class Hit:
    """One found item.

    Attributes:
        why: What the score is made of, each in [0, 1]: ``lexical``, ``semantic``, ``rerank``, ``recency``,
            ``salience``, and 1.0 for each of ``exact``, ``speaker``, ``date``, ``project``, ``owner`` that speaks for
            it.
        project: The project it belongs to, if any.
        also: Near-identical items that are folded into this one.
        confidence: How far it is trusted, in [0, 1].
        rivals: Newer memories that contradict or replace it, the weightiest first.
        space: The shared space that it is in; None for the user's own.
        author: Of a memory in a shared space: who changed it last.
    """

    JSON: ClassVar = (
        "uri context_type memory_type score abstract updated_at confidence why project? also? rivals? space? author?"
    )

    uri: str
    context_type: str
    memory_type: str
    score: float
    abstract: str
    updated_at: str | None
    why: Mapping[str, float]
    project: str | None = None
    also: tuple[str, ...] = ()
    confidence: float = 1.0
    rivals: tuple[Rival, ...] = ()
    space: str | None = None
    author: str | None = None

    @property
    def contested_by(self) -> tuple[str, ...]:
        """The rivals' addresses."""
        return tuple(rival.uri for rival in self.rivals)


@frozen
class FindResult:
    """Hits, best first within each group.

    ``skills`` are tool and skill memories, ``resources`` session messages and logs, ``memories`` the rest;
    ``total`` counts all three. ``notes`` say what the caller should know: a hint when nothing was found, or that
    the search ran by words only. ``cached`` says that the candidates were kept from an earlier, equal query.
    """

    JSON: ClassVar = "memories resources skills total notes?"

    memories: tuple[Hit, ...] = ()
    resources: tuple[Hit, ...] = ()
    skills: tuple[Hit, ...] = ()
    notes: tuple[str, ...] = ()
    cached: bool = False

    @property
    def total(self) -> int:
        """Number of hits in all groups."""
        return len(self.memories) + len(self.resources) + len(self.skills)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """All groups together, best first."""
        return tuple(sorted((*self.memories, *self.resources, *self.skills), key=lambda hit: hit.score, reverse=True))


def merge_results(parts: Sequence[FindResult], limit: int) -> FindResult:
    """The best hits of searches in several spaces, whose scores are on one scale."""
    if len(parts) == 1:
        return parts[0]
    kept = sorted((hit for part in parts for hit in part.hits), key=lambda hit: -hit.score)[:limit]
    telling = [part for part in parts if part.total] or parts  # that one space holds nothing is no news of all
    return FindResult(
        memories=tuple(hit for hit in kept if hit.context_type == "memory"),
        resources=tuple(hit for hit in kept if hit.context_type == "resource"),
        skills=tuple(hit for hit in kept if hit.context_type == "skill"),
        notes=tuple(dict.fromkeys(note for part in telling for note in part.notes)),
        cached=all(part.cached for part in parts),
    )


@frozen
class Listing:
    """One entry of ``ls`` or ``tree``; ``size`` in bytes, ``abstract`` only in agent output."""

    uri: str
    name: str
    is_dir: bool
    size: int
    updated_at: str
    abstract: str | None = None


#: So many files below the levels of a tree are counted.
DEEPER_MOST = 1_000


@frozen
class Listings:
    """Entries of a directory or tree.

    Attributes:
        left_out: How many are beyond the limit.
        deeper: How many files are on levels below those of a tree; of very many, so many as were counted.
        levels: How many levels a tree must have to show these.
    """

    JSON: ClassVar = "entries left_out deeper? levels?"

    entries: tuple[Listing, ...]
    left_out: int = 0
    deeper: int = 0
    levels: int = 0


@frozen
class LinkedMemory:
    """Another memory that the one that is read relates to.

    Attributes:
        relation: How the one that is read relates to it.
        strength: Of the relation, in [0, 1].
        at: Since when.
        abstract: Its one line; empty where it is gone.
        state: ``in use``, ``at rest``, ``archived`` (``uri`` is where it is now) or ``gone``.
    """

    uri: str
    relation: str
    strength: float
    abstract: str
    state: str = "in use"
    at: str | None = None


def merge_listings(parts: Sequence[Listings], limit: int) -> Listings:
    """Listings of one directory in several spaces, each entry once; those below one top directory stay together."""
    if len(parts) == 1:
        return parts[0]
    entries = {entry.uri: entry for part in reversed(parts) for entry in part.entries}
    ordered = dict.fromkeys(entry.uri for part in parts for entry in part.entries)
    tops: dict[tuple[str, ...], list[Listing]] = {}
    for uri in ordered:
        names = uri.split("/")[2:]
        tops.setdefault(tuple(names[: 2 if names[0] == Scope.ARCHIVE else 1]), []).append(entries[uri])
    every = [entry for group in tops.values() for entry in group]
    return Listings(
        tuple(every[:limit]),
        sum(part.left_out for part in parts) + len(every[limit:]),
        sum(part.deeper for part in parts),
        max(part.levels for part in parts),
    )


@frozen
class ReadResult:
    """Lines of a file; ``first_line`` is 0-based, ``next_offset`` names where to go on when lines were left.

    ``links`` are the memories that this one relates to, given with its first lines; ``author`` is who changed it last,
    where it is in a shared space.
    """

    JSON: ClassVar = "uri content first_line total_lines links? next_offset? author?"

    uri: str
    content: str
    first_line: int
    total_lines: int
    next_offset: int | None = None
    links: tuple[LinkedMemory, ...] = ()
    author: str | None = None


@frozen
class ContextItem:
    """What went into a context part; ``cut`` says that only a piece of it did."""

    uri: str
    score: float | None = None
    cut: bool = False


@frozen
class ContextPart:
    """One part of a context.

    ``kind`` is profile, summary, directory, constraints, memories, tools, skill, session, recent or log.
    """

    kind: str
    text: str
    items: tuple[ContextItem, ...]


@frozen
class ContextPack:
    """Everything ``retrieve`` hands an agent.

    A tool's result holds ``structured``, which says each fact once: parts with their items (``blocks``), the text, or
    the messages; and what is said beside it. The JSON form, for programs, adds the text where that is another.

    Attributes:
        parts: In reading order.
        text: All of them, with what stands around them.
        shown: The text for clients that show only text: the parts, or the messages as JSON.
        structured: The same as JSON.
        tokens: What it costs, as ``shown`` with ``told`` or as JSON, whichever costs more.
        left_out: URIs that did not fit.
        left_out_named: How many of them are named.
        messages: Simulated tool calls and results to insert; None where the format is text.
        notes: What the caller should know.
    """

    parts: tuple[ContextPart, ...]
    text: str
    shown: str
    structured: Mapping[str, Any]
    tokens: int
    left_out: tuple[str, ...] = ()
    left_out_named: int = 0
    messages: tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """Lines below what is shown: what was left out, and the notes."""
        lines = [f"note: {note}" for note in self.notes]
        if self.left_out:
            named = ", ".join(self.left_out[: self.left_out_named])
            lines.insert(0, f"[left out for the budget: {len(self.left_out)}{f': {named}' if named else ''}]")
        return "\n".join(lines)

    def as_result(self) -> dict[str, Any]:
        """The structured form with what is said beside it; of what was left out it names what the budget holds."""
        named = list(self.left_out[: self.left_out_named])
        facts = {**self.structured, "tokens": self.tokens, "left_out": named, "left_out_count": len(self.left_out)}
        return {**facts, "notes": list(self.notes)} if self.notes else facts

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {**self.as_result(), "text": self.text}
