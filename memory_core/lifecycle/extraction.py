"""From waiting conversations to memories: takes from the queue, runs the update loop, commits, settles.

Messages are in the ledger before anything here begins, and leave the queue in the very transaction that commits
what was made of them: whatever is killed, each is extracted once. A model that fails leaves them waiting, with
the reason. The loop itself (``react``) never writes; which model answers it is the caller's business.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_core.errors import ModelFailed, NotFound, StoreBusy
from memory_core.llm.client import Completion, LLMClient, LLMRequest, TokenUsage, drive
from memory_core.model.changes import (
    Action,
    CommitReceipt,
    OperationResult,
    SessionProgress,
    overall,
    text_sha256,
)
from memory_core.model.conversation import Message, parse_lines
from memory_core.model.filename import short_hash
from memory_core.model.language import language_of
from memory_core.model.operations import MemoryOperations
from memory_core.model.uri import MemoryUri
from memory_core.react.brief import BriefWriter
from memory_core.react.conversation import Conversation, Outcome, split
from memory_core.react.orchestrator import MemoryReActOrchestrator
from memory_core.storage.extractions import Extraction, ExtractionQueue
from memory_core.storage.lock import StoreLock
from memory_core.storage.store import Store
from memory_core.update.corrections import find_corrections, hints
from memory_core.update.updater import MemoryUpdater, Span

#: The line of a receipt that says what became of a conversation's memories.
EXTRACTION = "extraction"
#: Older conversations that one commit takes up beside its own.
_TAKEN_UP = 2
#: Messages before the first waiting one that the model sees for context.
_EARLIER_MESSAGES = 6
#: The first failures may be tried again at once; then each waits twice as long as the one before.
_PATIENCE = 2
_RETRY_AFTER = timedelta(minutes=1)
_RETRY_LIMIT = timedelta(hours=6)
#: Conversations after which a model that fails each time is left alone.
_FAILURES_IN_A_ROW = 2
_RETRIED = "It is taken up by the next commit of a conversation, or by: runebook extract."


@dataclass(frozen=True, slots=True)
class _Part:
    """Messages of one session that one run of the loop takes."""

    span: Span
    conversation: Conversation


class Extractor:
    """Extracts the memories of one store's conversations.

    Args:
        store: Holds logs, queue and locks.
        updater: Commits operations.
        orchestrator: The update loop.
        briefs: Writes briefs for a client's own model.
        language: Language of memories; ``auto`` follows the user's messages.
    """

    def __init__(
        self,
        store: Store,
        updater: MemoryUpdater,
        orchestrator: MemoryReActOrchestrator,
        briefs: BriefWriter,
        *,
        language: str,
    ) -> None:
        self._store = store
        self._updater = updater
        self.orchestrator = orchestrator
        self._briefs = briefs
        self._language = language
        self._locks: dict[MemoryUri, StoreLock] = {}
        self._guard = threading.Lock()

    @property
    def queue(self) -> ExtractionQueue:
        """What waits."""
        return self._store.ledger.extractions

    def extraction(self, log: MemoryUri) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Extract what waits of one session.

        Yields requests to a language model and is sent its completions; a ``ModelFailed`` may be thrown in. Nothing
        is locked while the model thinks but this session's extraction, against a second one.

        Returns:
            What was committed, and a ``queued`` result with the reason for what was not.
        """
        try:
            with self._alone(log):
                return (yield from self._extract(log))
        except StoreBusy:
            note = "another client is extracting this conversation at this moment"
            return _summed([], [OperationResult(EXTRACTION, str(log), Action.QUEUED, note=note)], TokenUsage())

    def waiting(self, limit: int = 100, due_at: str | None = None) -> list[Extraction]:
        """This user's conversations that wait, longest first; see ``ExtractionQueue.waiting``."""
        return self.queue.waiting(self._updater.sessions, limit, due_at)

    def due(self, recorded: CommitReceipt, now: datetime | None = None) -> list[MemoryUri]:
        """Sessions to extract after a commit: its own, then the longest waiting ones that may be tried again."""
        own = [MemoryUri.parse(result.uri) for result in recorded.results if result.op == EXTRACTION]
        at = (now or datetime.now(UTC)).isoformat(timespec="seconds")
        older = [row.log for row in self.waiting(_TAKEN_UP + len(own), at) if row.log not in own]
        return own + older[:_TAKEN_UP]

    def extract_waiting(
        self, client: LLMClient, deadline_seconds: float, session_id: str | None = None
    ) -> Iterator[CommitReceipt]:
        """Extract what waits, a receipt for each conversation; a model that keeps failing is left alone.

        Args:
            client: Answers.
            deadline_seconds: Time for each conversation.
            session_id: Only this one, and all of it again.

        Raises:
            NotFound: If there is no such session.
        """
        failures = 0
        for log in [self._requeued(session_id)] if session_id else [row.log for row in self.waiting()]:
            receipt = drive(self.extraction(log), client, deadline_seconds)
            yield receipt
            failed = any(result.action is Action.QUEUED for result in receipt.results)
            failures = failures + 1 if failed else 0
            if failures == _FAILURES_IN_A_ROW:
                return

    def _requeued(self, session_id: str, now: datetime | None = None) -> MemoryUri:
        """Put a whole stored session into the queue again.

        Raises:
            NotFound: If there is no such session.
        """
        log = self._updater.session_uri(session_id)
        messages = self.messages(log)
        if not messages:
            raise NotFound(
                f"there is no conversation {session_id!r}.", hint="List them: runebook ls viking://session/…"
            )
        self.queue.restart(log, len(messages), (now or datetime.now(UTC)).isoformat(timespec="milliseconds"))
        return log

    def briefed(self, recorded: CommitReceipt) -> CommitReceipt:
        """The receipt with a brief for the model of the client that has just sent the conversation."""
        log = next(MemoryUri.parse(result.uri) for result in recorded.results if result.op == EXTRACTION)
        row = self.queue.get(log)
        if row is None or not row.waiting:
            return recorded
        conversation = self._conversation(self.messages(log), row.extracted, row.stored, log)
        brief = self._briefs.write(conversation)
        self.queue.briefed(log, row.stored, brief.seen)
        return replace(recorded, brief=brief.text)

    def brief(self, session_id: str | None = None, focus: str | None = None) -> str:
        """A brief about a stored conversation, with its messages, as far as one hand-in can take them.

        Args:
            session_id: The conversation; default the one that waits longest, else the one that the client has
                before it.
            focus: What to look for; also picks the memories that are shown.

        Raises:
            NotFound: If nothing of this conversation waits.
        """
        if session_id is None:
            row = next(iter(self.waiting(1)), None)
            if row is None or focus:
                return self._briefs.write_unstored(focus).text
        else:
            row = self.queue.get(self._updater.session_uri(session_id))
            if row is None or not row.waiting:
                raise NotFound(
                    f"nothing of the conversation {session_id!r} waits to be extracted.",
                    hint="See what waits with: runebook extract --list. Store new messages with commit_memory.",
                )
        part = self._part(row, self._briefs.conversation_tokens)
        brief = self._briefs.write(part.conversation, include_messages=True)
        self.queue.briefed(row.log, part.span.end, brief.seen)
        return brief.text

    def hand_in(
        self,
        operations: Mapping[str, Any] | MemoryOperations,
        session_id: str | None,
        *,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> CommitReceipt:
        """Commit operations of a client's own model, as an answer to a brief where there was one.

        The messages of the brief leave the queue, also when the operations hold nothing but the reason why. A memory
        that changed since the brief showed it is not replaced whole; the brief then stays open.

        Raises:
            InvalidInput: If there is neither an operation nor a reason.
        """
        row = None if session_id is None else self.queue.get(self._updater.session_uri(session_id))
        if row is None or row.briefed <= row.extracted:
            return self._updater.apply_operations(
                operations, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now
            )
        receipt = self._updater.apply_operations(
            operations,
            session_id=session_id,
            request_id=request_id,
            dry_run=dry_run,
            now=now,
            expected=row.seen,
            reads_elsewhere=True,
            span=Span(row.log, row.extracted, row.briefed),
        )
        moved = [MemoryUri.parse(result.uri) for result in receipt.results if result.conflict]
        if moved and not dry_run:
            seen = {str(uri): text_sha256(text) for uri in moved if (text := self._store.text(uri)) is not None}
            self.queue.briefed(row.log, row.briefed, {**row.seen, **seen})
        return receipt

    def messages(self, log: MemoryUri) -> tuple[Message, ...]:
        """The stored messages of a session; empty if there are none."""
        return tuple(parse_lines(self._store.text(log) or "")[0])

    def _part(self, row: Extraction, budget_tokens: int) -> _Part:
        """The next messages of a session that one prompt can hold."""
        messages = self.messages(row.log)
        windows = split(messages[row.extracted : row.stored], budget_tokens)
        # Lines that a person removed are done with: the last part reaches to the end of what was counted.
        end = row.extracted + windows[0][1] if len(windows) > 1 else row.stored
        return _Part(Span(row.log, row.extracted, end), self._conversation(messages, row.extracted, end, row.log))

    def _conversation(self, messages: Sequence[Message], start: int, end: int, log: MemoryUri) -> Conversation:
        taken = tuple(messages[start:end])
        return Conversation(
            session_id=log.parent.name,
            messages=taken,
            earlier=tuple(messages[max(0, start - _EARLIER_MESSAGES) : start]),
            language=language_of(messages) if self._language == "auto" else self._language,
            hints=hints(find_corrections(taken)),
        )

    def _extract(self, log: MemoryUri) -> Generator[LLMRequest, Completion, CommitReceipt]:
        receipts: list[CommitReceipt] = []
        results: list[OperationResult] = []
        notes: list[str] = []
        usage = TokenUsage()
        while (row := self.queue.get(log)) is not None and row.waiting:
            part = self._part(row, self.orchestrator.conversation_tokens)
            if not part.conversation.messages:
                self._store.ledger.advance(SessionProgress(log, extracted=part.span.end), row.since)
                continue
            try:
                outcome = yield from self.orchestrator.extract(part.conversation)
                usage += outcome.usage
                receipt = self._commit(outcome, part.span)
                receipts.append(receipt)
                if any(result.conflict for result in receipt.results):
                    mended = yield from self.orchestrator.mend(part.conversation, outcome, receipt)
                    if mended is not None:
                        usage += mended.usage
                        notes += mended.dropped
                        if len(mended.operations):
                            receipts.append(self._commit(mended, part.span))
            except ModelFailed as error:
                results.append(self._postponed(row, error.message, error.hint))
                break
            after = self.queue.get(log)
            if after is None or after.extracted <= row.extracted:
                moved = any(result.conflict for receipt in receipts for result in receipt.results)
                why = "memories changed meanwhile" if moved else "none of the model's operations could be applied"
                results.append(self._postponed(row, why))
                break
        return replace(summed := _summed(receipts, results, usage), notes=(*summed.notes, *notes))

    def _commit(self, outcome: Outcome, span: Span) -> CommitReceipt:
        operations = outcome.operations
        if not operations.reasoning:
            operations = operations.model_copy(update={"reasoning": outcome.reasoning})
        receipt = self._updater.apply_operations(
            operations, session_id=span.log.parent.name, expected=outcome.expected, span=span
        )
        kept = [
            f"kept as it is: {change.uri or change.memory_type}: {change.reason}"
            for change in outcome.decisions
            if change.change_type == "noop" and change.reason
        ]
        summary = None if outcome.summary is None else {"open_tasks": [], "summary": outcome.summary}
        return replace(receipt, notes=(*receipt.notes, *outcome.dropped, *kept), working_memory=summary)

    def _postponed(self, row: Extraction, reason: str, hint: str = _RETRIED) -> OperationResult:
        beyond = row.attempts + 1 - _PATIENCE
        wait = None if beyond <= 0 else min(_RETRY_AFTER * 2 ** min(beyond - 1, 10), _RETRY_LIMIT)
        retry_at = None if wait is None else (datetime.now(UTC) + wait).isoformat(timespec="seconds")
        self.queue.postpone(row.log, reason, retry_at)
        note = f"the conversation is stored and waits: {reason}"
        return OperationResult(EXTRACTION, str(row.log), Action.QUEUED, note=note, hint=hint)

    @contextmanager
    def _alone(self, log: MemoryUri) -> Iterator[None]:
        with self._guard:
            path = self._store.files.state / "locks" / f"extract-{short_hash(str(log))}.lock"
            lock = self._locks.setdefault(log, StoreLock(path, timeout_seconds=0.0))
        with lock.held():
            yield


def merged(recorded: CommitReceipt, log: MemoryUri, extracted: CommitReceipt) -> CommitReceipt:
    """The receipt of a recorded conversation together with what was made of the session ``log``."""
    own = any((result.op, result.uri) == ("messages", str(log)) for result in recorded.results)
    waited = [result for result in recorded.results if (result.op, result.uri) != (EXTRACTION, str(log))]
    results = (*waited, *extracted.results)
    notes = (*recorded.notes, *extracted.notes)
    if recorded.commit_id and extracted.commit_id:
        notes = (*notes, f"the memories are commit {extracted.commit_id}")
    usage = {**(recorded.usage or {})}
    for name, count in (extracted.usage or {}).items():
        usage[name] = usage.get(name, 0) + count
    return replace(
        recorded,
        commit_id=recorded.commit_id or extracted.commit_id,
        status=overall(results),
        results=results,
        similar=(*recorded.similar, *extracted.similar),
        notes=notes,
        usage=usage or None,
        working_memory=extracted.working_memory if own else recorded.working_memory,
    )


def _summed(receipts: list[CommitReceipt], results: list[OperationResult], usage: TokenUsage) -> CommitReceipt:
    """One receipt of all commits of an extraction; it bears the id of the last that changed something."""
    every = tuple(result for receipt in receipts for result in receipt.results) + tuple(results)
    told = [receipt.working_memory["summary"] for receipt in receipts if receipt.working_memory]
    return CommitReceipt(
        commit_id=next((receipt.commit_id for receipt in reversed(receipts) if receipt.commit_id), ""),
        status=overall(every),
        results=every,
        notes=tuple(dict.fromkeys(note for receipt in receipts for note in receipt.notes)),
        usage=usage.as_dict() if usage.requests else None,
        working_memory={"open_tasks": [], "summary": " ".join(told)} if told else None,
    )
