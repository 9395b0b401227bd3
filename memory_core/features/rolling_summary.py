"""The rolling summary: ``viking://user/{space}/rolling_summary.md``, the page that every new session begins with.

Owned here: its file, writes of it, and which of its lines still hold. A commit that removes memories takes their lines
out of the page, too; only of a page that was made: one that a person or a model wrote for its owner is left as it is,
and the receipt says that it may name what is gone. Whatever else stops a line from holding is seen when the page is
given. ``upkeep.rolling_pass`` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from memory_core.core.command import Arg, Command
from memory_core.core.errors import ContentRejected, InvalidUri, TooLarge
from memory_core.core.feature import Feature, RecordKind
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.requests import Now
from memory_core.core.memory.results import Action, ChangeSet, CommitReceipt, FileChange, OperationResult
from memory_core.core.memory.trailer import body_digest, join, read_members, split
from memory_core.core.memory.uri import MemoryUri, Scope

if TYPE_CHECKING:
    from memory_core.core.commit.working_copy import PlanContext
    from memory_core.core.config import RetrieveConfig
    from memory_core.core.memory.memory import Memory
    from memory_core.core.memory.operations import WriteOp
    from memory_core.core.search.context_formats import Piece
    from memory_core.core.search.context_sources import PieceReader
    from memory_core.core.store.local import Snapshot
    from memory_core.runebook import Runebook

NAME = "rolling_summary"
_FILE = f"{NAME}.md"
#: Lines of a page that are looked after; a page that is made has fewer.
_LINES_LIMIT = 80
_LOG_SUMMARIES = ("logs", "summaries")
_LOST = "lost the lines of what is gone"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page that was made, and what it was made of.

    Attributes:
        text: The line.
        uri: The memory, or the summary of logs, that says it.
        digest: Of what the memory said, see ``said_digests``.
    """

    text: str
    uri: str
    digest: str


@dataclass(frozen=True, slots=True)
class RollingSummary:
    """What the page says.

    Attributes:
        text: Its Markdown.
        authored: Whether a person or a model wrote it, or edited it by hand.
        sources: Digest of what it was made of; empty where it was written, or lost a line since.
        created_at: When there first was one, ISO 8601; None if nobody wrote it down.
        lines: What it was made of, line by line; a model may have put it in other words.
    """

    JSON: ClassVar = "text authored"

    text: str
    authored: bool
    sources: str = ""
    created_at: str | None = None
    lines: tuple[Line, ...] = ()


def rolling_summary_uri(user_space: str) -> MemoryUri:
    """Where a user's rolling summary is."""
    return MemoryUri((Scope.USER.value, user_space, _FILE))


def read_rolling_summary(text: str | None) -> RollingSummary | None:
    """The summary in a file; None for no file, or one that says nothing."""
    file = split(text or "")
    if not file.body.strip():
        return None
    trailer = file.trailer or {}
    members = {"text": file.body.strip(), "authored": True, "created_at": trailer.get("created_at")}
    if trailer.get("rendered_sha256") == body_digest(file.body) and isinstance(trailer.get("sources_sha256"), str):
        made_of = {"sources": trailer["sources_sha256"], "lines": trailer.get("lines")}
        members |= {"authored": trailer.get("authored") is True, **made_of}
    return read_members(RollingSummary, members)


def said_digests(uri: MemoryUri, body: str) -> frozenset[str]:
    """The digests that a line may have of this source: of a memory's whole text, of each line of a summary of logs."""
    whole = body.replace("\r\n", "\n").strip()
    parts = whole.split("\n") if uri.parts[2:4] == _LOG_SUMMARIES else [whole]
    return frozenset(body_digest(part.strip()) for part in parts)


def sources_digest(lines: Sequence[Line]) -> str:
    """Names what a page is made of."""
    return body_digest("\n".join(f"{line.uri} {line.digest} {line.text}" for line in lines))


def without(summary: RollingSummary, holds: Callable[[Line], bool]) -> RollingSummary:
    """The page without the lines that hold no more; itself where all do, or nobody knows what it was made of.

    A page in a model's words becomes the lines that hold of those it was made of: which of its words came from where
    nobody can tell.

    Args:
        summary: A page that was made.
        holds: Judges a line; asked for ``_LINES_LIMIT`` lines at most, further ones do not hold.
    """
    kept = tuple(line for line in summary.lines[:_LINES_LIMIT] if holds(line))
    if len(kept) == len(summary.lines):
        return summary
    shown, made_of = summary.text.split("\n"), {line.text for line in summary.lines if line.text}
    if made_of <= set(shown):
        gone = made_of - {line.text for line in kept}
        parts = "\n".join(line for line in shown if line not in gone).split("\n\n")
        text = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    else:
        text = "\n".join(line.text for line in kept)
    return replace(summary, text=text, sources="", lines=kept)


def dump_rolling_summary(summary: RollingSummary, now: str, source: Mapping[str, Any]) -> str:
    """The file of a summary.

    Args:
        summary: What it says.
        now: Time of the commit, ISO 8601.
        source: Who wrote it.
    """
    trailer: dict[str, Any] = {"created_at": summary.created_at or now, "updated_at": now, "source": dict(source)}
    if summary.authored:
        trailer["authored"] = True
    else:
        trailer |= {"sources_sha256": summary.sources, "rendered_sha256": body_digest(summary.text)}
        trailer["lines"] = [{"uri": line.uri, "digest": line.digest, "text": line.text} for line in summary.lines]
    return join(summary.text, trailer)


def _without_removed(decided: ChangeSet, snapshot: Snapshot, context: PlanContext) -> ChangeSet:
    """The change set with the rolling summary as it is without the memories that it changes, removes or moves away.

    Args:
        decided: What a plan takes out, each file once; of the page perhaps its own words.
        snapshot: The store before it.
        context: Whose page, and when.

    Returns:
        The same, where the page says nothing of them; with a note where an authored page may.
    """
    page = rolling_summary_uri(context.user_space)
    left = {str(change.uri): change.after for change in decided.changes if _is_named(change.uri) and change.uri != page}
    own = next((change for change in decided.changes if change.uri == page), None)
    before = snapshot.text(page) if own is None else own.after
    stored = read_rolling_summary(before) if left else None
    if stored is None:
        return decided
    if stored.authored:
        is_told = own is not None or all(after is not None for after in left.values())
        note = f"{page} was written by hand and may still name it"
        return decided if is_told else replace(decided, notes=(*decided.notes, note))

    def holds(line: Line) -> bool:
        if line.uri not in left:
            return True
        return line.digest in said_digests(MemoryUri.parse(line.uri), split(left[line.uri] or "").body)

    after = without(stored, holds)
    if after is stored:
        return decided
    text = dump_rolling_summary(after, context.now, context.source) if after.text else None
    action = Action.DELETED if text is None else Action.UPDATED
    if own is None:
        result = OperationResult("summary", str(page), action, note=_LOST)
        return decided.with_file(FileChange(page, before, text), result)
    changes = [replace(change, after=text) if change is own else change for change in decided.changes]
    told = [
        replace(result, action=action, note="; ".join(filter(None, (result.note, _LOST))))
        if result.uri == str(page)
        else result
        for result in decided.results
    ]
    return replace(decided, changes=tuple(changes), results=tuple(told))


def _is_named(uri: MemoryUri) -> bool:
    """Whether a page could name it: no directory's summary, nothing of the archive, no conversation."""
    return uri.scope in (Scope.USER, Scope.AGENT) and not uri.is_summary


def page_removed(uri: MemoryUri, before: str, note: str | None = None) -> ChangeSet:
    """The page is taken away."""
    result = OperationResult("summary", str(uri), Action.DELETED, note=note)
    return ChangeSet((FileChange(uri, before, None),), (result,))


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Show the page that every new session begins with."""


@dataclass(frozen=True, slots=True)
class SummaryClearRequest:
    """Remove the page that every new session begins with; the next maintenance may make it anew."""

    dry_run: Annotated[bool, Arg(help="Show what would change; store nothing.")] = False
    now: Now = None


def summary(memory: Runebook, _request: SummaryRequest) -> RollingSummary | None:
    """The page, if there is one."""
    return read_rolling_summary(memory.store.text(rolling_summary_uri(memory.config.user_space)))


def clear_summary(memory: Runebook, request: SummaryClearRequest) -> CommitReceipt:
    """Remove the page, whoever wrote it."""
    uri = rolling_summary_uri(memory.config.user_space)

    def planned(snapshot: Snapshot) -> ChangeSet:
        before = snapshot.text(uri)
        if before is None:
            return ChangeSet((), (OperationResult("summary", str(uri), Action.UNCHANGED, note="there is none"),))
        return page_removed(uri, before)

    return memory.store.commit(planned, kind="summary", now=request.now, dry_run=request.dry_run)


class RollingSummaries(RecordKind):
    """The page, and writes of it; it is not searched."""

    name = NAME
    names = frozenset({"rolling summary", "rollingsummary", "滚动摘要", "滚动总结"})

    def holds(self, uri: MemoryUri) -> bool:
        """Whether this is a rolling summary."""
        return uri.scope is Scope.USER and len(uri.parts) == 3 and uri.name == _FILE

    def target(self, context: PlanContext, moment: datetime) -> MemoryUri:
        """The user's page."""
        return rolling_summary_uri(context.user_space)

    def with_write(self, text: str | None, write: WriteOp, context: PlanContext, moment: datetime) -> tuple[str, str]:
        """The page with what was written; the same page where it says so already."""
        from memory_core.core.memory.operations import check_text

        check_text(write)
        content = write.memory_data.fields.get(CONTENT)
        if not isinstance(content, str) or not content.strip():
            raise ContentRejected(
                "a rolling summary without text says nothing.",
                hint="Give content; runebook summary --clear lets it be made anew.",
            )
        if context.assignment.confined:
            raise ContentRejected(
                "the rolling summary is seen in every project, and this commit is private to one.",
                hint="Leave private out, or keep it as a note.",
            )
        stored = read_rolling_summary(text)
        if text is not None and stored is not None and stored.authored and stored.text == content.strip():
            return text, ""
        summary = RollingSummary(content.strip(), True, created_at=None if stored is None else stored.created_at)
        after = dump_rolling_summary(summary, context.now, context.source)
        if len(after.encode("utf-8")) > context.content_bytes:
            raise TooLarge(f"the summary has more than {context.content_bytes:,} bytes.", hint="Shorten it.")
        return after, ""


def _opening(reader: PieceReader, now: datetime, _config: RetrieveConfig) -> Iterator[tuple[Piece | None, bool]]:
    """The summary of all that is known, if there is one, without what does not hold any more.

    Left out is, of a page that was made, each line whose memory is gone, archived, at rest, past its time, a
    project's, or says something else by now.
    """
    uri = rolling_summary_uri(reader.spaces.user)
    stored = read_rolling_summary(reader.text(str(uri)))
    if stored is None:
        return

    @cache
    def digests(uri: str) -> frozenset[str]:
        with suppress(InvalidUri):  # somebody edited the page's trailer
            return said_to_all(reader.memory_at(uri), now)
        return frozenset()

    text = without(stored, lambda line: line.digest in digests(line.uri)).text
    from memory_core.core.search.context_formats import Piece

    yield (Piece("summary", str(uri), text) if text else None), False


def said_to_all(memory: Memory, now: datetime) -> frozenset[str]:
    """Digests of what a memory in use, or a summary of logs, says now; none where it is of one project."""
    metadata = memory.metadata
    if not memory.text or memory.damage is not None or not metadata.is_active or metadata.is_expired(now):
        return frozenset()
    of_all = memory.uri.scope is not Scope.ARCHIVE and memory.project is None
    return said_digests(memory.uri, memory.body) if of_all else frozenset()


def _summary_text(found: RollingSummary | None) -> str:
    none = "There is no summary yet: runebook maintain makes one, runebook summary --write TEXT writes one."
    return none if found is None else found.text


SUMMARY = Command("summary", SummaryRequest, summary, member=NAME, text=_summary_text)
SUMMARY_CLEAR = Command("summary clear", SummaryClearRequest, clear_summary, writes=True)
FEATURE = Feature(
    commands=(SUMMARY, SUMMARY_CLEAR),
    record_kinds=(RollingSummaries(),),
    removals=_without_removed,
    opening=_opening,
)
