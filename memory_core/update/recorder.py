"""Conversations as they come in: stored verbatim, counted, and put into the queue, in one commit.

What needs no model happens here: messages that are already stored are skipped, tool and skill statistics follow
the tool-call records, failures and corrections become procedural memories. Nothing is asked of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from memory_core.errors import InvalidInput
from memory_core.model.changes import Action, ChangeSet, CommitReceipt, FileChange, OperationResult, SessionProgress
from memory_core.model.conversation import Message, dump_lines, parse_lines, parse_messages, session_id_for, unseen
from memory_core.model.forgetting import with_forgotten
from memory_core.model.language import language_of
from memory_core.model.memory_file import parse
from memory_core.model.operations import MemoryOperations, WriteOp
from memory_core.model.project import NO_PROJECT, Belonging
from memory_core.model.record import read_record
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry
from memory_core.storage.store import Snapshot, Store
from memory_core.update.bounds import Context
from memory_core.update.corrections import correction_writes, find_corrections
from memory_core.update.draft import Draft
from memory_core.update.planner import plan
from memory_core.update.procedural import lessons
from memory_core.update.project_choice import ProjectChoice
from memory_core.update.review import propose
from memory_core.update.statistics import Growth, call_keys, growth
from memory_core.update.updater import MemoryUpdater

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
        updater: Names sessions and their limits.
        choice: The rules of projects.
        queues: Whether recorded messages wait for extraction.
        keeps_corrections: Whether corrections by cue become memories; a model that extracts sees them itself.
    """

    def __init__(
        self,
        store: Store,
        registry: MemoryTypeRegistry,
        updater: MemoryUpdater,
        choice: ProjectChoice,
        *,
        queues: bool,
        keeps_corrections: bool,
    ) -> None:
        self._store = store
        self._registry = registry
        self._updater = updater
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
        self._updater.discretion.check_names(session_id=session_id, request_id=request_id, project=belonging.project)
        messages, redactions = self._updater.discretion.messages(parse_messages(raw))
        if not messages:
            raise InvalidInput("messages is empty.", hint="Send at least one {role, content}.")
        self._updater.check_size(dump_lines(messages))
        session = session_id or session_id_for(messages)
        log = self._updater.session_uri(session)
        moment = now or datetime.now(UTC)
        context = self._updater.context(moment, _SOURCE_KIND, session)

        def planned(snapshot: Snapshot) -> ChangeSet:
            before = snapshot.text(log)
            stored, _ = parse_lines(before or "")
            # What was stored under another setting is known again too.
            known = self._updater.discretion.messages(stored)[0] if redactions else stored
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

    def _decided(self, learned: _Learned, snapshot: Snapshot, context: Context, moment: datetime) -> ChangeSet:
        """The plan of what was learned; counts of calls are facts, what cues say may have to wait for the owner."""
        if not self._updater.reviews:
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
        self, stored: Sequence[Message], fresh: Sequence[Message], snapshot: Snapshot, context: Context
    ) -> _Learned:
        """What the new messages teach without a model."""
        draft = Draft(snapshot, context)

        def existing(type_name: str, fields: Mapping[str, str]) -> Mapping[str, Any] | None:
            memory_type = self._registry.get(type_name)
            uri = draft.locate(context.directory(memory_type), memory_type, fields)
            if uri is None:
                return None
            return read_record(memory_type, parse(draft.existing(uri)), uri.name.removesuffix(".md")).fields

        counted = self._store.ledger.extractions.counted(call_keys([*stored, *fresh]), self._updater.sessions)
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
