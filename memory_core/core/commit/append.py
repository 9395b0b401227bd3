"""Conversations as they come in: stored verbatim, counted, and put into the queue, in one commit.

What needs no model happens here: messages that are already stored are skipped, and what features learn of the new ones
is planned with them. Nothing is asked of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar

from memory_core.core.caches import tallied
from memory_core.core.commit.commits import LARGE_CHARS, Commits
from memory_core.core.commit.forgotten import with_forgotten
from memory_core.core.commit.overlap import unseen
from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext, WorkingCopy
from memory_core.core.errors import InvalidInput, TooLarge
from memory_core.core.frozen import frozen
from memory_core.core.memory.message import (
    Message,
    dump_lines,
    language_of,
    last_time,
    parse_lines,
    session_id_for,
    value_count,
)
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.operations import MemoryOperations, WriteOp
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment, ProjectChoice
from memory_core.core.memory.results import (
    Action,
    ChangeSet,
    CommitReceipt,
    FileChange,
    OperationResult,
    SessionProgress,
    utf8_bytes,
)
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Snapshot, Store

_SOURCE_KIND = "auto_reflection"
#: A quarter of what is read of a file: what works at a long conversation holds its text several times.
_LOG_LIMIT_BYTES = 16 * 1024**2
#: Messages, calls, results and values of calls' arguments: where none is remembered, all are read while others wait.
_LOG_LIMIT_ITEMS = 100_000


T = TypeVar("T")


@dataclass(eq=False)
class Growing:
    """A conversation that grows, as learners see it.

    Attributes:
        stored: The session's messages so far.
        fresh: Those that follow them now.
        snapshot: The store before this commit.
        context: Of the plan.
        is_extracted: Whether a model will make memories of it.
        known_calls: Which of some calls were counted before, by their keys.
    """

    stored: Sequence[Message]
    fresh: Sequence[Message]
    snapshot: Snapshot
    context: PlanContext
    is_extracted: bool
    known_calls: Callable[[frozenset[str]], frozenset[str]]
    _made: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def language(self) -> str:
        """Language of the conversation; see ``language_of``."""
        return language_of([*self.stored, *self.fresh])

    @cached_property
    def _copy(self) -> WorkingCopy:
        return WorkingCopy(self.snapshot, self.context)

    def existing(self, type_name: str, fields: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Stored fields of the memory of a type with these key fields; None where there is none."""
        copy = self._copy
        memory_type = self.context.registry.get(type_name)
        uri = copy.locate(self.context.directory(memory_type), memory_type, fields)
        return None if uri is None else copy.existing(uri).fields

    def once(self, make: Callable[[Growing], T]) -> T:
        """What several learners need, made for the first of them."""
        if make not in self._made:
            self._made[make] = make(self)
        found: T = self._made[make]
        return found


@dataclass(frozen=True, slots=True)
class Learned:
    """What one feature learns of messages without a model.

    Attributes:
        writes: What is to be remembered.
        are_facts: Whether it is what happened, such as a count, so that it never waits for the owner.
        calls_counted: Given the results of the writes: keys of the calls that are counted now.
        notes: For the receipt.
    """

    writes: Sequence[WriteOp] = ()
    are_facts: bool = False
    calls_counted: Callable[[Sequence[OperationResult]], frozenset[str]] = lambda _results: frozenset()
    notes: tuple[str, ...] = ()


#: So many messages take long enough to be read that other writers notice; so does a log of so many bytes.
_LARGE_MESSAGES, _LONG_LOG_BYTES = 500, 1 << 20


@frozen
class MessageRecorder:
    """Records conversations into one store.

    Attributes:
        store: The store.
        commits: Names sessions and their limits.
        choice: The rules of projects.
        queues: Whether recorded messages wait for extraction.
        is_extracted: Whether there is a model that extracts them.
    """

    store: Store
    commits: Commits
    choice: ProjectChoice
    queues: bool
    is_extracted: bool

    def record(
        self,
        raw: Sequence[Any],
        *,
        session_id: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        assignment: ProjectAssignment = NO_PROJECT,
    ) -> CommitReceipt:
        """Append what is new of a conversation to its session's log, verbatim.

        Args:
            raw: Messages as a client sends them.
            session_id: The session; default one made from the first message.
            request_id: Makes a retry return the first receipt.
            dry_run: Plan only.
            now: Time of the commit; default the clock's.
            assignment: The project of a conversation that has none yet, or of this part of it, if it is named.

        Raises:
            InvalidInput: If a message is malformed; nothing of the conversation is stored then.
        """
        self.commits.cleaner.check_names(session_id=session_id, request_id=request_id, project=assignment.project)
        given = parse_messages(raw)
        messages, redactions = self.commits.cleaner.messages(given)
        if not messages:
            raise InvalidInput("messages is empty.", hint="Send at least one {role, content}.")
        sent = dump_lines(messages)
        self.commits.check_size(sent, len(messages))
        session = session_id or session_id_for(messages)
        log = self.commits.session_uri(session)
        stat = self.store.files.stat(log)
        is_long = stat is not None and stat.size_bytes >= _LONG_LOG_BYTES
        is_large = is_long or len(messages) >= _LARGE_MESSAGES or len(sent) >= LARGE_CHARS
        del sent
        moment = now or datetime.now(UTC)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(log)
            stored, _ = parse_lines(before or "")
            known = with_forgotten(self._redacted(stored, given) if redactions else stored, messages)
            project, private = _place(stored, assignment)
            fresh = [replace(message, project=project, private=private) for message in unseen(known, messages)]
            counts = {"messages": len(messages), "messages_new": len(fresh)}
            total = len(stored) + len(fresh)
            waiting = self._waiting(log, total, len(stored))
            if not fresh:
                progress = SessionProgress(log, stored=total, known=total) if self.queues else None
                results = (OperationResult("messages", str(log), Action.UNCHANGED, project=project), *waiting)
                return ChangeSet((), results, notes=redactions, usage=counts, progress=progress)
            dated = self.commits.context(moment, _SOURCE_KIND, session, last_time(fresh))
            own = replace(dated, assignment=self.choice.of_session(project, private=private))
            learned = self._learn(stored, fresh, snapshot, own)
            decided = self._decided(learned, snapshot, own, moment)
            notes = (note for each in learned for note in each.notes)
            action = Action.CREATED if before is None else Action.UPDATED
            after = _joined(before, fresh)
            _check_length(after, [*stored, *fresh])
            change = FileChange(log, before, after, "", session, appended=True)
            return ChangeSet(
                changes=(change, *decided.changes),
                results=(OperationResult("messages", str(log), action, project=project), *decided.results, *waiting),
                notes=(*decided.notes, *notes, *redactions),
                usage=counts,
                progress=SessionProgress(
                    log,
                    stored=total if self.queues else None,
                    known=len(stored),
                    call_keys=_calls_counted(learned, decided.results),
                ),
            )

        return self.store.commit(
            planned,
            kind="messages",
            request_id=request_id,
            now=moment,
            dry_run=dry_run,
            large_of=self.commits.user_space,
            is_large=is_large,
        )

    def _redacted(self, stored: Sequence[Message], given: Sequence[Message]) -> list[Message]:
        """What is stored, redacted where it may have come as it comes now, before redaction was on."""
        texts = {message.text for message in given}
        redacted = iter(self.commits.cleaner.messages([message for message in stored if message.text in texts])[0])
        return [next(redacted) if message.text in texts else message for message in stored]

    def _decided(
        self, learned: Sequence[Learned], snapshot: Snapshot, context: PlanContext, moment: datetime
    ) -> ChangeSet:
        """The plan of what was learned; facts are stored, what cues say may have to wait for the owner."""
        reviewer = self.commits.reviewer
        facts = [write for each in learned if reviewer is None or each.are_facts for write in each.writes]
        others = [write for each in learned if not each.are_facts for write in each.writes]
        stored = plan(MemoryOperations(write_operations=facts), snapshot, context)
        if reviewer is None:
            return stored
        waits = reviewer(MemoryOperations(write_operations=others), snapshot, context, moment, self.commits.features)
        return replace(
            stored,
            changes=(*stored.changes, *waits.changes),
            results=(*stored.results, *waits.results),
            notes=(*stored.notes, *waits.notes),
        )

    def _learn(
        self, stored: Sequence[Message], fresh: Sequence[Message], snapshot: Snapshot, context: PlanContext
    ) -> list[Learned]:
        """What the new messages teach without a model: first the facts."""

        def known_calls(keys: frozenset[str]) -> frozenset[str]:
            return self.store.ledger.extractions.counted(keys, self.commits.sessions)

        growing = Growing(stored, fresh, snapshot, context, self.is_extracted, known_calls)
        learned = [learn(growing) for learn in self.commits.features.members("learner")]
        return sorted(learned, key=lambda each: not each.are_facts)

    def _waiting(self, log: MemoryUri, stored: int, known: int) -> tuple[OperationResult, ...]:
        """A line for the messages that wait for extraction, if any do."""
        if not self.queues:
            return ()
        row = self.store.ledger.extractions.get(log)
        waiting = stored - (0 if row is None else min(row.extracted, known))
        if waiting <= 0:
            return ()
        note = f"{waiting} messages are stored and wait to become memories"
        return (OperationResult("extraction", str(log), Action.QUEUED, note=note),)


def _calls_counted(learned: Sequence[Learned], results: Sequence[OperationResult]) -> frozenset[str]:
    """Keys of the calls that are counted, by the results of what was learned, in its order."""
    keys: frozenset[str] = frozenset()
    at = 0
    for each in learned:
        keys |= each.calls_counted(results[at : at + len(each.writes)])
        at += len(each.writes)
    return keys


def as_before(stored: Sequence[Message], assignment: ProjectAssignment) -> ProjectAssignment:
    """The assignment of messages that go on in another session: their conversation's, as ``_place`` finds it."""
    project, private = _place(stored, assignment)
    return replace(assignment, project=project, private=private)


def _place(stored: Sequence[Message], assignment: ProjectAssignment) -> tuple[str | None, bool]:
    """Project and privacy of a conversation's new messages: as named, else as its last one, else where it is sent."""
    last = stored[-1] if stored else None
    if not assignment.named and last is not None and last.project is not None:
        return last.project, last.private if assignment.private is None else assignment.private
    private = assignment.by_default if assignment.private is None else assignment.private
    return assignment.project, private and assignment.project is not None


class _Items:
    """How many messages, calls, values of their arguments and results a conversation holds."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, message: Message) -> None:
        calls = sum(1 + value_count(call.arguments) for call in message.tool_calls)
        self.count += 1 + calls + len(message.tool_results)

    def copy(self) -> _Items:
        return copy(self)


def _check_length(log: str, messages: Sequence[Message]) -> None:
    """Refuse a conversation that is too long to go on."""
    if 4 * len(log) > _LOG_LIMIT_BYTES < utf8_bytes(log):
        over = f"{_LOG_LIMIT_BYTES // 1024**2} MiB"
    elif len(log) > _LOG_LIMIT_ITEMS and tallied(_Items, messages).count > _LOG_LIMIT_ITEMS:
        over = f"{_LOG_LIMIT_ITEMS:,} messages, tool calls with their values, and results"
    else:
        return
    raise TooLarge(f"the conversation would be over {over}.", hint="Send it under another session_id.")


def _joined(before: str | None, fresh: Sequence[Message]) -> str:
    joint = "\n" if before and not before.endswith("\n") else ""
    return (before or "") + joint + dump_lines(fresh)
