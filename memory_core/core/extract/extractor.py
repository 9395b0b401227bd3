"""From waiting conversations to memories: takes from the queue, runs the update loop, commits, settles.

Messages are in the ledger before anything here begins, and leave the queue in the very transaction that commits
what was made of them: whatever is killed, each is extracted once. A model that fails leaves them waiting, with
the reason. The loop itself (``loop``) never writes; which model answers it is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory_core.core.caches import RecentCache, tallied
from memory_core.core.caller import current_author
from memory_core.core.commit.commits import (
    Commits,
    Settlement,
    Span,
    earlier_than,
    parse_operations,
    was_done_meanwhile,
)
from memory_core.core.commit.receipts import EXTRACTION, still_waits, summed
from memory_core.core.errors import InvalidInput, NotFound, RunebookError, StoreBusy
from memory_core.core.extract.answer import Answer
from memory_core.core.extract.brief import Brief, BriefWriter
from memory_core.core.extract.loop import MemoryReActOrchestrator
from memory_core.core.extract.operation_checks import for_owner, without_counts
from memory_core.core.extract.prompts import Conversation, Outcome, windows
from memory_core.core.extract.store_view import StoreView
from memory_core.core.extract.trigger import ExtractionTrigger, retry_at
from memory_core.core.feature import NO_FEATURES, Features
from memory_core.core.llm.client import Completion, LLMClient, LLMRequest, TokenUsage, drive, watched
from memory_core.core.memory.exchange import ExchangeStarts
from memory_core.core.memory.message import Message, dump_lines, language_of, last_time, numbered, parse_lines
from memory_core.core.memory.metadata import utc_text
from memory_core.core.memory.names import short_hash
from memory_core.core.memory.operations import MemoryOperations
from memory_core.core.memory.project import NO_PROJECT, ProjectAssignment, ProjectChoice, ProjectScope
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, text_sha256
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.brief_notes import BriefNote, new_id
from memory_core.core.store.locks import Lock
from memory_core.core.store.session_rows import Extraction
from memory_core.core.store.sqlite import stamp
from memory_core.core.store.usage import ModelCalls

if TYPE_CHECKING:
    from memory_core.core.store.local import Store
    from memory_core.core.store.session_rows import ExtractionQueue

#: Messages before the first waiting one that the model sees for context.
_EARLIER_MESSAGES = 6
_REMEMBERED_LOGS = 16
#: More conversations than a store holds: ``waiting`` with it returns all that wait.
ALL_LOGS = 1_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of one session that one run of the loop takes, all of one project."""

    span: Span
    conversation: Conversation
    assignment: ProjectAssignment


@dataclass(eq=False, repr=False)
class SessionReader:
    """Reads the conversations of one store.

    Attributes:
        store: Holds the logs.
        choice: The rules of projects.
        language: Language of memories; ``auto`` follows the user's messages.
        features: They know what was extracted out of its order, and give hints.
    """

    store: Store
    choice: ProjectChoice
    language: str
    features: Features = NO_FEATURES
    _analysed: RecentCache[MemoryUri, tuple[int, frozenset[int]]] = field(
        default_factory=lambda: RecentCache(_REMEMBERED_LOGS), init=False
    )

    def messages(self, log: MemoryUri) -> list[Message]:
        """The stored messages of a session; empty if there are none."""
        return parse_lines(self.store.text(log) or "")[0]

    def readable(self, log: MemoryUri) -> Sequence[Message]:
        """The stored messages of a session; none where they cannot be read."""
        try:
            return self.messages(log)
        except RunebookError:
            return ()

    def project_of(self, log: MemoryUri) -> str | None:
        """The project that a session's last message belongs to."""
        messages = self.readable(log)
        return messages[-1].project if messages else None

    def is_seen(self, log: MemoryUri, project: str | None) -> bool:
        """Whether nothing of a conversation is private to another project; what cannot be read is nobody's secret."""
        scope = ProjectScope(project)
        return all(scope.sees(message.project, private=message.private) for message in self.readable(log))

    def assignment(self, messages: Sequence[Message]) -> ProjectAssignment:
        """Whose the memories of some messages are; where any of them is private, all of them are."""
        private = next((message for message in messages if message.private), None)
        last = private or (messages[-1] if messages else None)
        return self.choice.of_session(None if last is None else last.project, private=private is not None)

    def part(self, row: Extraction, budget_tokens: int, *, again: bool = False) -> Part:
        """The next messages of a session that one prompt can hold.

        What a promotion took is passed over: the span may begin and end with it, the conversation never holds it.

        Args:
            row: Where the session stands.
            budget_tokens: Of the conversation.
            again: Whether what a promotion took is taken once more.

        Raises:
            NotFound: If the log no longer holds them.
        """
        messages = self.messages(row.log)
        if len(messages) < row.stored:
            raise NotFound(
                f"the log of the conversation holds {len(messages)} of its {row.stored} messages.",
                hint="Bring the file back, or send the conversation again.",
            )
        done = frozenset() if again else self.analysed(row.log)
        start = next((at for at in range(row.extracted, row.stored) if at not in done), row.stored)
        stop = next((at for at in range(start, row.stored) if at in done), row.stored)
        found = windows(_alike(messages[start:stop]), budget_tokens) if start < stop else [(0, 0)]
        last = start + found[0][1]
        end = next((at for at in range(last, row.stored) if at not in done), row.stored)
        earlier = earlier_than(row.extracted, messages, max(0, row.extracted - _EARLIER_MESSAGES))
        span = Span(row.log, row.extracted, end, text_sha256(dump_lines(messages[row.extracted : end])), earlier)
        return Part(span, self.excerpt(messages, range(start, last), row.log), self.assignment(messages[start:last]))

    def analysed(self, log: MemoryUri) -> frozenset[int]:
        """Places of the messages that memories were made of out of their order."""
        each = (lines(self.store, log) for lines in self.features.members("extracted_lines"))
        lines: frozenset[int] = frozenset().union(*each)
        if not lines:
            return frozenset()
        return frozenset(at for at, line in enumerate(self.lines(log)) if line in lines)

    def lines(self, log: MemoryUri) -> list[int]:
        """The line of each stored message, in order; damaged lines have none."""
        return [line for line, _ in numbered((self.store.text(log) or "").removeprefix("\ufeff"))]

    def waiting_exchanges(self, row: Extraction) -> int:
        """Exchanges of a session that hold messages to extract."""
        starts = tallied(ExchangeStarts, self.messages(row.log))
        return starts.count_touched(range(row.extracted, min(row.stored, starts.count)), self._analysed_by_now(row.log))

    def _analysed_by_now(self, log: MemoryUri) -> frozenset[int]:
        """See ``analysed``; asked again only after a commit that brought more than messages and a feature's records."""
        records = (kind.name for kind in self.features.record_kinds if kind.name)
        newest = self.store.ledger.newest_apart_from("messages", *records)
        known = self._analysed.get(log)
        if known is None or known[0] != newest:
            known = (newest, self.analysed(log))
            self._analysed.put(log, known)
        return known[1]

    def fitting(self, pages: Sequence[Sequence[Message]], budget_tokens: int) -> int:
        """How many of these pages, from the first, one prompt can hold; 0 where the first alone is too long."""
        found = windows([message for page in pages for message in page], budget_tokens)
        room, count = (found[0][1] if found else 0), 0
        for page in pages:
            room -= len(page)
            if room < 0:
                break
            count += 1
        return count

    def excerpt(self, messages: Sequence[Message], places: Sequence[int], log: MemoryUri) -> Conversation:
        """Some messages, in order, with a few before the first of them that the same project sees."""
        taken = tuple(messages[at] for at in places)
        start = places[0] if places else 0
        scope = ProjectScope(taken[-1].project if taken else None)
        before = messages[max(0, start - _EARLIER_MESSAGES) : start]
        return Conversation(
            session_id=log.parent.name,
            messages=taken,
            earlier=tuple(message for message in before if scope.sees(message.project, private=message.private)),
            language=language_of(messages) if self.language == "auto" else self.language,
            hints=tuple(hint for hints in self.features.members("hints") for hint in hints(taken)),
        )


def _alike(messages: Sequence[Message]) -> Sequence[Message]:
    """The first messages, as far as they belong to one project and are as private."""
    place = [(message.project, message.private) for message in messages]
    return messages[: next((at for at, found in enumerate(place) if found != place[0]), len(place))]


T = TypeVar("T")

#: Takes note of one call.
Note = Callable[[ModelCalls], None]


class CountedModel:
    """``client``, counted for one user.

    Args:
        client: Answers.
        note: Takes note of each call, answered or not.
        space: The user's space.
    """

    def __init__(self, client: LLMClient, note: Note, space: str) -> None:
        self._client = client
        self._note = note
        self._space = space

    def complete(self, request: LLMRequest, timeout_seconds: float) -> Completion:
        """Ask once; see ``LLMClient.complete``. A call that was broken off from outside counts as one that failed."""
        answer: Completion | None = None
        try:
            answer = self._client.complete(request, timeout_seconds)
        finally:
            self._note(_call(self._space, request, answer))
        return answer


def counted(
    steps: Generator[LLMRequest, Completion, T], note: Note, space: str
) -> Generator[LLMRequest, Completion, T]:
    """The same loop; each request that is answered, or fails, is noted."""
    return watched(steps, lambda request, answer: note(_call(space, request, answer)))


def _call(space: str, request: LLMRequest, answer: Completion | None) -> ModelCalls:
    if answer is None:
        return ModelCalls(space, request.purpose, failures=1)
    usage = answer.usage
    return ModelCalls(
        space,
        request.purpose,
        answer.model,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
    )


#: Older conversations that one commit takes up beside its own.
_TAKEN_UP = 2
#: Of these, the first that may be taken up; and as many while nobody waits.
_LOOKED_AT = 8
#: Conversations after which a model that fails each time is left alone.
_FAILURES_IN_A_ROW = 2
_RETRIED = "It is taken up by the next commit of a conversation, or by: runebook extract."


#: What is extracted next, and what the commit of its memories settles where that is not the queue's next span.
_Taken = tuple[Part, Settlement | None]
COMMIT, PROMOTION = "commit", "promotion"


@dataclass(eq=False, repr=False)
class Extractor:
    """Extracts the memories of one store's conversations.

    Attributes:
        store: Holds logs, queue and locks.
        commits: Commits operations.
        orchestrator: The update loop.
        briefs: Writes briefs for a client's own model.
        view: The store as the model sees it.
        sessions: Reads stored conversations.
    """

    store: Store
    commits: Commits
    orchestrator: MemoryReActOrchestrator
    briefs: BriefWriter
    view: StoreView
    sessions: SessionReader

    @property
    def queue(self) -> ExtractionQueue:
        """What waits."""
        return self.store.ledger.extractions

    def extraction(
        self, log: MemoryUri, now: datetime | None = None, *, again: bool = False
    ) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Extract what waits of one session.

        Yields requests to a language model and is sent its completions; a ``ModelFailed`` may be thrown in. Nothing
        is locked while the model thinks but this session's extraction, against a second one.

        Args:
            log: Of the session.
            now: Time of the commits; default the clock's.
            again: Whether what a promotion took is taken once more.

        Returns:
            What was committed, and a ``queued`` result with the reason for what was not.
        """

        def next_part() -> _Taken | None:
            row = self.queue.get(log)
            if row is None or not row.waiting:
                return None
            return self.sessions.part(row, self.orchestrator.conversation_tokens, again=again), None

        return self.extract_parts(log, next_part, now)

    def extract_parts(
        self, log: MemoryUri, next_part: Callable[[], _Taken | None], now: datetime | None
    ) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Extract one part of a session after the other, while nobody else extracts it; see ``extraction``.

        Args:
            log: Of the session.
            next_part: What is to be extracted next, with what it changes beside memories; None where nothing is left.
            now: Time of the commits; default the clock's.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock(log).held())
            except StoreBusy:
                note = "another client is extracting this conversation at this moment"
                return summed([], [OperationResult(EXTRACTION, str(log), Action.QUEUED, note=note)], TokenUsage())
            return (yield from self._extract(log, next_part, now))

    def waiting(self, limit: int = 100, due_at: str | None = None) -> list[Extraction]:
        """This user's conversations that wait, longest first; see ``ExtractionQueue.waiting``."""
        return self.queue.waiting(self.commits.sessions, limit, due_at)

    def is_due(self, recorded: CommitReceipt, trigger: ExtractionTrigger, now: datetime) -> bool:
        """Whether the session that has just grown is extracted at once."""
        own = next((MemoryUri.parse(result.uri) for result in recorded.results if result.op == EXTRACTION), None)
        return own is not None and self._takes(own, recorded, trigger, now)

    def due(self, recorded: CommitReceipt, trigger: ExtractionTrigger, now: datetime) -> list[MemoryUri]:
        """Sessions to extract after a commit: its own, then the longest waiting ones that may be tried again.

        Args:
            recorded: Of that commit.
            trigger: Which of them are extracted by now.
            now: Aware.
        """
        own = [MemoryUri.parse(result.uri) for result in recorded.results if result.op == EXTRACTION]
        project = self.sessions.project_of(own[0]) if own else None
        at = utc_text(now)
        waiting = (row for row in self.waiting(_LOOKED_AT + len(own), at) if row.log not in own)
        # What it would say in the receipt is not for another project.
        seen = (row for row in waiting if self.sessions.is_seen(row.log, project))
        older = [row.log for row in seen if trigger.takes_other(row, now)]
        return [log for log in own if self._takes(log, recorded, trigger, now)] + older[:_TAKEN_UP]

    def _takes(self, log: MemoryUri, recorded: CommitReceipt, trigger: ExtractionTrigger, now: datetime) -> bool:
        row = self.queue.get(log)
        began = any(result.op == "messages" and result.action is Action.CREATED for result in recorded.results)
        return row is not None and row.waiting > 0 and trigger.takes_own(row, now, first=began)

    def ended(self, sessions: Collection[str], trigger: ExtractionTrigger, now: datetime) -> list[MemoryUri]:
        """Conversations to extract while nobody waits: those that have just ended, and what else is due by now.

        Args:
            sessions: Those that have ended, by folder name.
            trigger: Which of the others are extracted by now.
            now: Aware.
        """
        at = utc_text(now)
        rows = [self.queue.get(self.commits.session_uri(name)) for name in sessions]
        own = [row.log for row in rows if row is not None and row.waiting and (row.retry_at or at) <= at]
        older = [row.log for row in self.waiting(due_at=at) if trigger.takes_other(row, now) and row.log not in own]
        return own + older[:_LOOKED_AT]

    def extract_waiting(
        self,
        client: LLMClient,
        deadline_seconds: float,
        session_id: str | None = None,
        logs: Sequence[MemoryUri] | None = None,
    ) -> Iterator[CommitReceipt]:
        """Extract what waits, a receipt for each conversation; a model that keeps failing is left alone.

        Args:
            client: Answers.
            deadline_seconds: Time for each conversation.
            session_id: Only this one, and all of it again.
            logs: Only these; default whatever waits.

        Raises:
            NotFound: If there is no such session.
        """
        failures = 0
        if logs is None:
            logs = [self._requeued(session_id)] if session_id else [row.log for row in self.waiting(ALL_LOGS)]
        for log in logs:
            receipt = drive(self.extraction(log, again=session_id is not None), client, deadline_seconds)
            yield receipt
            if not still_waits(receipt):
                failures = 0
            elif receipt.usage:  # without it no model was asked
                failures += 1
            if failures == _FAILURES_IN_A_ROW:
                return

    def _requeued(self, session_id: str) -> MemoryUri:
        """Put a whole stored session into the queue again.

        Raises:
            NotFound: If there is no such session.
        """
        log = self.commits.session_uri(session_id)
        with self.store.exclusive():  # a message that comes in this moment is counted, or waits for its turn
            messages = self.sessions.messages(log)
            if not messages:
                raise NotFound(
                    f"there is no conversation {session_id!r}.", hint="List them: runebook ls viking://session/…"
                )
            self.queue.restart(log, len(messages), stamp(datetime.now(UTC)))
        return log

    def briefed(self, recorded: CommitReceipt) -> CommitReceipt:
        """The receipt with a brief for the model of the client that has just sent the conversation."""
        log = next(MemoryUri.parse(result.uri) for result in recorded.results if result.op == EXTRACTION)
        row = self.queue.get(log)
        if row is None or not row.waiting:
            return recorded
        messages = self.sessions.messages(log)
        conversation = self.sessions.excerpt(messages, range(row.extracted, row.stored), log)
        assignment = self.sessions.assignment(messages[row.extracted : row.stored])
        brief_id = new_id()
        brief = self.briefs.write(_for_client(conversation), self.view.within(assignment), brief_id=brief_id)
        told = text_sha256(dump_lines(messages[row.extracted : row.stored]))
        self._note(brief, brief_id, Span(log, row.extracted, row.stored, told))
        return replace(recorded, brief=brief.text)

    def brief(
        self, session_id: str | None = None, focus: str | None = None, project: str | None = None, *, noted: bool = True
    ) -> str:
        """A brief about a stored conversation, with its messages, as far as one hand-in can take them.

        Args:
            session_id: The conversation; default the one that waits longest, else the one that the client has
                before it.
            focus: What to look for; also picks the memories that are shown.
            project: The one that the client works in; what is private to another is not offered.
            noted: False leaves no note of it, and gives it no id: for a client that may not hand anything in.

        Raises:
            NotFound: If nothing of this conversation waits.
        """
        if session_id is None:
            whole = (row for row in self.waiting() if len(self.sessions.readable(row.log)) >= row.stored)
            offered = (row for row in whole if self.sessions.is_seen(row.log, project))
            row = None if focus else next(offered, None)
            if row is None:
                return self.briefs.write_unstored(self.view.within(ProjectAssignment(project)), focus).text
        else:
            row = self.queue.get(self.commits.session_uri(session_id))
            if row is None or not row.waiting:
                raise NotFound(
                    f"nothing of the conversation {session_id!r} waits to be extracted.",
                    hint="See what waits with: runebook extract --list. Store new messages with commit_memory.",
                )
        part = self.sessions.part(row, self.briefs.conversation_tokens)
        view = self.view.within(part.assignment)
        brief_id = new_id() if noted else None
        conversation = _for_client(part.conversation)
        brief = self.briefs.write(conversation, view, brief_id=brief_id, include_messages=True)
        if brief_id is not None:
            self._note(brief, brief_id, part.span)
        return brief.text

    def _note(self, brief: Brief, brief_id: str, span: Span) -> None:
        note = BriefNote(current_author(), span.start, span.end, span.sha256, brief.seen, brief_id=brief_id)
        self.queue.briefed(span.log, note)

    def hand_in(
        self,
        operations: Mapping[str, Any] | MemoryOperations,
        session_id: str | None,
        *,
        request_id: str | None = None,
        dry_run: bool = False,
        now: datetime | None = None,
        assignment: ProjectAssignment = NO_PROJECT,
    ) -> CommitReceipt:
        """Commit operations of a client's own model, as an answer to a brief where there was one.

        The messages of the brief leave the queue, also when the operations hold nothing but the reason why. A memory
        that changed since the brief showed it takes a SEARCH/REPLACE patch, but is not replaced whole; the brief then
        stays open. Where its messages changed, a memory that it showed was erased, or no brief of the id that they name
        is kept, all is refused; see ``Answer``.

        They belong to the project of their conversation, unless the caller names another; what a private conversation
        says stays in its project all the same.

        Raises:
            InvalidInput: If there is neither an operation nor a reason, or a brief is named and no conversation.
        """
        apply = partial(
            self.commits.apply_operations, session_id=session_id, request_id=request_id, dry_run=dry_run, now=now
        )
        parsed, dropped = parse_operations(operations)
        brief_id = (parsed.brief_id or "").strip() or None
        if session_id is None and brief_id is not None:
            raise InvalidInput(
                "operations.brief_id names the brief of a conversation, and session_id is missing.",
                hint="Send both as the brief says, or neither.",
            )
        row = None if session_id is None else self._briefed_row(self.commits.session_uri(session_id), brief_id)
        parsed, moved = for_owner(parsed, self.view)
        if row is None:
            receipt = apply(parsed, dropped=dropped, source_kind="user_explicit", assignment=assignment)
            return replace(receipt, notes=(*receipt.notes, *moved)) if moved else receipt
        parsed, notes = without_counts(parsed, self.view)
        messages = self.sessions.messages(row.log)
        answer = Answer(row, current_author(), brief_id, messages)
        span = answer.span
        is_asked = span is not None or not answer.is_answerable
        if not len(parsed) and (parsed.reasoning or "").strip() and not is_asked:
            note = "nothing of this conversation waits for an answer"
            return summed([], [OperationResult(EXTRACTION, str(row.log), Action.UNCHANGED, note=note)], TokenUsage())
        told = messages[-1:] if span is None else messages[span.start : span.end]
        own = self.sessions.assignment(told)
        receipt = apply(
            parsed,
            dropped=dropped,
            seen=answer.seen,
            reads_elsewhere=True,
            settlement=answer if is_asked or len(parsed) or dropped else None,
            assignment=own if own.confined or (own.project is not None and not assignment.named) else assignment,
            said_at=last_time(messages if span is None else told),
        )
        return replace(receipt, notes=(*receipt.notes, *moved, *notes))

    def _briefed_row(self, log: MemoryUri, brief_id: str | None) -> Extraction | None:
        """Where a session stands; one that is gone has no brief, whatever id is named."""
        row = self.queue.get(log)
        return Extraction(log, stored=0, extracted=0) if row is None and brief_id is not None else row

    def _extract(
        self, log: MemoryUri, next_part: Callable[[], _Taken | None], now: datetime | None
    ) -> Generator[LLMRequest, Completion, CommitReceipt]:
        receipts: list[CommitReceipt] = []
        results: list[OperationResult] = []
        usage = TokenUsage()

        def note(_request: LLMRequest, answer: Completion | None) -> None:
            nonlocal usage  # counts also when the loop fails in the end
            usage += replace(TokenUsage() if answer is None else answer.usage, requests=1)

        before: list[Span] = []
        while (row := self.queue.get(log)) is not None:
            try:
                if (taken := next_part()) is None:
                    break
                part, settlement = taken
                if part.span in before:  # the commit left it as it was
                    moved = any(result.conflict for result in receipts[-1].results)
                    if not moved or before.count(part.span) > 1:
                        why = (
                            "memories changed meanwhile" if moved else "none of the model's operations could be applied"
                        )
                        results.append(self._postponed(row, now, why))
                        break
                before.append(part.span)
                if not part.conversation.messages:
                    receipts.append(self._passed_over(part.span, now))
                    continue
                # Where memories changed while the model thought, it is asked once more, with what is stored by then.
                loop = self.orchestrator.extract(part.conversation, self.view.within(part.assignment))
                receipts.append(self._commit((yield from watched(loop, note)), part, settlement, now))
            except RunebookError as error:
                results.append(self._postponed(row, now, error.message, error.hint))
                break
        return summed(receipts, results, usage)

    def _passed_over(self, span: Span, now: datetime | None) -> CommitReceipt:
        """Messages that a promotion took leave the queue."""
        done = MemoryOperations(reasoning="promotions of their topics took them already")
        return self.commits.apply_operations(done, session_id=span.log.parent.name, span=span, now=now)

    def _commit(
        self, outcome: Outcome, part: Part, settlement: Settlement | None, now: datetime | None
    ) -> CommitReceipt:
        span = part.span
        operations = outcome.operations
        if not operations.reasoning:
            operations = operations.model_copy(update={"reasoning": outcome.reasoning})
        receipt = self.commits.apply_operations(
            operations,
            session_id=span.log.parent.name,
            seen=outcome.seen,
            span=span if settlement is None else None,
            settlement=settlement,
            kind=COMMIT if settlement is None else PROMOTION,
            now=now,
            assignment=part.assignment,
            said_at=last_time(part.conversation.messages),
        )
        if was_done_meanwhile(receipt):  # somebody may have taken away what the model's words tell
            return receipt
        kept = [
            f"kept as it is: {change.uri or change.memory_type}: {change.reason}"
            for change in outcome.decisions
            if change.change_type == "noop" and change.reason
        ]
        summary = None if outcome.summary is None else {"open_tasks": [], "summary": outcome.summary}
        return replace(receipt, notes=(*receipt.notes, *outcome.dropped, *kept), working_memory=summary)

    def _postponed(self, row: Extraction, now: datetime | None, reason: str, hint: str = _RETRIED) -> OperationResult:
        self.queue.postpone(row.log, reason, retry_at(row.attempts + 1, now or datetime.now(UTC)))
        note = f"the conversation is stored and waits: {reason}"
        return OperationResult(EXTRACTION, str(row.log), Action.QUEUED, note=note, hint=hint)

    def _lock(self, log: MemoryUri) -> Lock:
        return self.store.lock(f"extract-{short_hash(str(log))}")


def _for_client(conversation: Conversation) -> Conversation:
    """The conversation of a brief: without a model, corrections by cue were kept as rules when it was recorded."""
    kept = tuple(f"kept already among the patterns, reword it or leave it: {hint}" for hint in conversation.hints)
    return replace(conversation, hints=kept)
