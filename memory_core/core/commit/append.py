"""Conversations as they come in: stored verbatim, counted, and put into the queue, in one commit.

What needs no model happens here: messages that are already stored are skipped, tool and skill statistics follow
the tool-call records, failures and corrections become procedural memories. Nothing is asked of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memory_core.core.commit.commits import Commits
from memory_core.core.commit.forgotten import is_forgotten, with_forgotten
from memory_core.core.commit.overlap import unseen
from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.exchange import exchanges, opener_of, speaker_of
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import (
    Message,
    dump_lines,
    parse_lines,
    search_text,
    session_id_for,
    transcript_line,
)
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.operations import MemoryOperations, WriteOp
from memory_core.core.memory.project import NO_PROJECT, Belonging, ProjectChoice
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    text_sha256,
)
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot, Store
from memory_core.core.text.extractive_summary import keywords
from memory_core.core.text.language import language_of, spoken
from memory_core.features.corrections import correction_writes, find_corrections
from memory_core.features.procedural import lessons
from memory_core.features.proposals import propose
from memory_core.features.statistics import Growth, call_keys, growth

PAGE_KEYWORDS = 8
#: Of a text that is compared with others.
COMPARED_CHARS = 1_500
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page as a session's log holds it.

    Attributes:
        first: Line of its first message; ``last`` of its last one.
        text: What was said, prompts left out.
        digest: Of its messages.
        date: ``YYYY-MM-DD`` of the first dated one.
        project: That its messages belong to; where any is private, the project of that one.
        private: Whether any of them is private to it.
        keywords: Of the text, the best first.
    """

    first: int
    last: int
    text: str
    digest: str
    date: str | None = None
    project: str | None = None
    private: bool = False
    keywords: tuple[str, ...] = ()

    @property
    def compared(self) -> str:
        """What it is compared by."""
        return self.text[:COMPARED_CHARS]


class SessionLog:
    """The log of a session, read as pages; only what is asked for is read.

    Args:
        text: Its JSON lines; damaged ones are passed over.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.removeprefix("\ufeff").split("\n")
        self._messages: dict[int, Message | None] = {}
        self._pages: dict[tuple[int, int], SessionPage | None] = {}

    def lines(self) -> list[int]:
        """The line of each message that can be read, in order."""
        return [line for line, _ in self._numbered(0, len(self._lines))]

    def spans(self, since: int = 0, until: int | None = None) -> list[tuple[int, int]]:
        """First and last line of each page from a line on, which should begin one, up to another, not included."""
        numbered = self._numbered(since, len(self._lines) if until is None else min(until, len(self._lines)))
        opener = opener_of(speaker_of(self._message(line)) for line in range(len(self._lines)))
        found = exchanges([message for _, message in numbered], opener)
        return [(numbered[first][0], numbered[end - 1][0]) for first, end in found]

    def page(self, first: int, last: int) -> SessionPage | None:
        """The page of these lines; None where there is nothing of it, or nothing in words."""
        if (first, last) not in self._pages:
            numbered = self._numbered(first, last + 1) if last < len(self._lines) else []
            page = _page(first, last, [message for _, message in numbered]) if numbered else None
            self._pages[first, last] = page if page is not None and page.text else None
        return self._pages[first, last]

    def _numbered(self, start: int, end: int) -> list[tuple[int, Message]]:
        return [(line, message) for line in range(start, end) if (message := self._message(line)) is not None]

    def _message(self, line: int) -> Message | None:
        if line not in self._messages:
            self._messages[line] = next(iter(parse_lines(self._lines[line])[0]), None)
        return self._messages[line]


def _page(first: int, last: int, messages: Sequence[Message]) -> SessionPage:
    shown = [message for message in messages if speaker_of(message) is not None and not is_forgotten(message)]
    text = "\n".join(said for message in shown if (said := spoken(search_text(message)).strip()))
    private = next((message for message in messages if message.private), None)
    dates = (message.time.date().isoformat() for message in messages if message.time is not None)
    return SessionPage(
        first=first,
        last=last,
        text=text,
        digest=text_sha256("\n".join(transcript_line(message, None) for message in messages))[:_DIGEST_CHARS],
        date=next(dates, None),
        project=(private or messages[-1]).project,
        private=private is not None,
        keywords=keywords(text, PAGE_KEYWORDS),
    )


_SOURCE_KIND = "auto_reflection"


@dataclass(frozen=True, slots=True)
class _Learned:
    """What records and cues alone say: operations, first those that count calls, and a note if there was too much."""

    operations: MemoryOperations
    growth: Growth
    notes: tuple[str, ...] = ()

    def counted(self, results: Sequence[OperationResult]) -> frozenset[str]:
        """Keys of the calls whose count was taken, not of those whose memory refused it."""
        refused = {
            write.memory_data.fields.get("tool_name")
            for write, result in zip(self.growth.writes, results, strict=False)
            if result.action is Action.REJECTED
        }
        return frozenset(call.key for call in self.growth.calls if call.key is not None and call.name not in refused)


class MessageRecorder:
    """Records conversations into one store.

    Args:
        store: The store.
        registry: Memory types.
        commits: Names sessions and their limits.
        choice: The rules of projects.
        queues: Whether recorded messages wait for extraction.
        keeps_corrections: Whether corrections by cue become memories; a model that extracts sees them itself.
    """

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        commits: Commits,
        choice: ProjectChoice,
        *,
        queues: bool,
        keeps_corrections: bool,
    ) -> None:
        self._store = store
        self._registry = registry
        self._commits = commits
        self._choice = choice
        self._queues = queues
        self._keeps_corrections = keeps_corrections

    def record(
        self,
        raw: Sequence[Any],
        *,
        session_id: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        belonging: Belonging = NO_PROJECT,
    ) -> CommitReceipt:
        """Append what is new of a conversation to its session's log, verbatim.

        Args:
            raw: Messages as a client sends them.
            session_id: The session; default one made from the first message.
            request_id: Makes a retry return the first receipt.
            dry_run: Plan only.
            now: Time of the commit; default the clock's.
            belonging: The project of a conversation that has none yet, or of this part of it, if it is named.

        Raises:
            InvalidInput: If a message is malformed; nothing of the conversation is stored then.
        """
        self._commits.discretion.check_names(session_id=session_id, request_id=request_id, project=belonging.project)
        messages, redactions = self._commits.discretion.messages(parse_messages(raw))
        if not messages:
            raise InvalidInput("messages is empty.", hint="Send at least one {role, content}.")
        self._commits.check_size(dump_lines(messages))
        session = session_id or session_id_for(messages)
        log = self._commits.session_uri(session)
        moment = now or datetime.now(UTC)
        context = self._commits.context(moment, _SOURCE_KIND, session)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(log)
            stored, _ = parse_lines(before or "")
            # What was stored under another setting is known again too.
            known = self._commits.discretion.messages(stored)[0] if redactions else stored
            known = with_forgotten(known, messages)
            project, private = _place(stored, belonging)
            fresh = [replace(message, project=project, private=private) for message in unseen(known, messages)]
            counts = {"messages": len(messages), "messages_new": len(fresh)}
            total = len(stored) + len(fresh)
            waiting = self._waiting(log, total, len(stored))
            if not fresh:
                progress = SessionProgress(log, stored=total, known=total) if self._queues else None
                results = (OperationResult("messages", str(log), Action.UNCHANGED), *waiting)
                return ChangeSet((), results, notes=redactions, usage=counts, progress=progress)
            own = replace(context, belonging=self._choice.of_session(project, private=private))
            learned = self._learn(stored, fresh, snapshot, own)
            decided = self._decided(learned, snapshot, own, moment)
            action = Action.CREATED if before is None else Action.UPDATED
            change = FileChange(log, before, _joined(before, fresh), "", session, appended=True)
            return ChangeSet(
                changes=(change, *decided.changes),
                results=(OperationResult("messages", str(log), action), *decided.results, *waiting),
                notes=(*decided.notes, *learned.notes, *redactions),
                usage=counts,
                progress=SessionProgress(
                    log,
                    stored=total if self._queues else None,
                    known=len(stored),
                    call_keys=learned.counted(decided.results),
                ),
            )

        return self._store.commit(planned, kind="messages", request_id=request_id, now=moment, dry_run=dry_run)

    def _decided(self, learned: _Learned, snapshot: Snapshot, context: PlanContext, moment: datetime) -> ChangeSet:
        """The plan of what was learned; counts of calls are facts, what cues say may have to wait for the owner."""
        if not self._commits.reviews:
            return plan(learned.operations, snapshot, context)
        writes, known = learned.operations.write_operations, len(learned.growth.writes)
        counted = plan(MemoryOperations(write_operations=writes[:known]), snapshot, context)
        waits = propose(MemoryOperations(write_operations=writes[known:]), snapshot, context, moment)
        return replace(
            counted,
            changes=(*counted.changes, *waits.changes),
            results=(*counted.results, *waits.results),
            notes=(*counted.notes, *waits.notes),
        )

    def _learn(
        self, stored: Sequence[Message], fresh: Sequence[Message], snapshot: Snapshot, context: PlanContext
    ) -> _Learned:
        """What the new messages teach without a model."""
        copy = WorkingCopy(snapshot, context)

        def existing(type_name: str, fields: Mapping[str, str]) -> Mapping[str, Any] | None:
            memory_type = self._registry.get(type_name)
            uri = copy.locate(context.directory(memory_type), memory_type, fields)
            return None if uri is None else copy.existing(uri).fields

        counted = self._store.ledger.extractions.counted(call_keys([*stored, *fresh]), self._commits.sessions)
        known = counted - call_keys(stored)
        grown = growth(stored, fresh, known, self._registry, existing)
        language = language_of([*stored, *fresh])
        failed = lessons(grown.calls, self._registry, existing, language=language)
        writes: list[WriteOp] = [*grown.writes]
        for lesson in failed.lessons:
            lesson.write.memory_data.sourced(lesson.source)
            writes.append(lesson.write)
        if self._keeps_corrections:
            whole = [*stored, *fresh]
            spoken = [found for found in find_corrections(whole) if found.index >= len(stored)]
            writes += correction_writes(spoken, whole, self._registry)
        notes = (f"{failed.left_out} kinds of tool errors were not kept",) if failed.left_out else ()
        return _Learned(MemoryOperations(write_operations=writes), grown, notes)

    def _waiting(self, log: MemoryUri, stored: int, known: int) -> tuple[OperationResult, ...]:
        """A line for the messages that wait for extraction, if any do."""
        if not self._queues:
            return ()
        row = self._store.ledger.extractions.get(log)
        waiting = stored - (0 if row is None else min(row.extracted, known))
        if waiting <= 0:
            return ()
        note = f"{waiting} messages are stored and wait to become memories"
        return (OperationResult("extraction", str(log), Action.QUEUED, note=note),)


def _place(stored: Sequence[Message], belonging: Belonging) -> tuple[str | None, bool]:
    """Project and privacy of a conversation's new messages: as named, else as its last one, else where it is sent."""
    last = stored[-1] if stored else None
    if not belonging.named and last is not None and last.project is not None:
        return last.project, last.private if belonging.private is None else belonging.private
    private = belonging.by_default if belonging.private is None else belonging.private
    return belonging.project, private and belonging.project is not None


def _joined(before: str | None, fresh: Sequence[Message]) -> str:
    joint = "\n" if before and not before.endswith("\n") else ""
    return (before or "") + joint + dump_lines(fresh)
