"""What happens to a conversation once it is recorded: memories by a model, or a brief for another's.

Owns the order of things (the conversation just recorded, then the oldest that still waits) and the one
receipt about all of it. Does not record, decide or write; recorder, extractor and ``Commits`` do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from memory_core.core.commit.receipts import EXTRACTION, added, merged, still_waits
from memory_core.core.errors import ModelFailed, ModelUnavailable
from memory_core.core.extract.extractor import Extractor
from memory_core.core.extract.trigger import ExtractionTrigger
from memory_core.core.extract.working_memory import Compactor
from memory_core.core.frozen import frozen
from memory_core.core.llm.client import Completion, LLMClient, LLMRequest, drive
from memory_core.core.memory.project import ProjectScope
from memory_core.core.memory.results import CommitReceipt, OperationResult
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.progress import tell
from memory_core.core.store.local import REPEATED, Store

#: Where nobody waits, each conversation gets so many times the time of one that somebody waits for.
_UNWATCHED = 4
NO_MODEL = (
    "Set llm.provider to command, anthropic or openai, or let a client's model do it: commit_memory(brief=true), or "
    "the prompt extract_memories."
)
#: What comes after an extraction: given the log that grew, the project at hand and the moment, what was committed, or
#: None where there was nothing to do.
FollowUp = Callable[[MemoryUri | None, ProjectScope, datetime], Generator[LLMRequest, Completion, CommitReceipt | None]]


@frozen
class ConversationIntake:
    """Turns recorded conversations into memories, for one store.

    Attributes:
        store: Keeps the final receipts.
        extractor: Runs the update loop over one session.
        trigger: Says what is extracted by now.
        follow_ups: What comes after an extraction that did not fail.
        compactor: Adds what must stay in a compressed context.
        indexed: Brings the index up to date with a receipt, for whoever works in a project.
        client: Opens the configured model, or returns None; raises ``ModelUnavailable`` if it cannot be used.
        deadline_seconds: Time that one commit may spend on the model.
    """

    store: Store
    extractor: Extractor
    trigger: ExtractionTrigger
    follow_ups: Sequence[FollowUp]
    compactor: Compactor
    indexed: Callable[[CommitReceipt, ProjectScope], CommitReceipt]
    client: Callable[[], LLMClient | None]
    deadline_seconds: float

    def take_in(self, recorded: CommitReceipt, now: datetime | None = None, *, brief: bool = False) -> CommitReceipt:
        """Make of a conversation what is made of it by now: memories by the model, or without one a brief if asked for.

        Without a model the receipt says how to take the brief once enough waits.
        """
        if not still_waits(recorded):
            return self.compactor.completed(recorded)
        moment = now or datetime.now().astimezone()
        try:
            client = self.client()
        except ModelFailed as error:
            recorded = replace(recorded, notes=(*recorded.notes, f"the model cannot be used: {error}"))
            if brief:
                recorded = self.extractor.briefed(recorded)
            return self.compactor.completed(recorded)
        if client is None:
            if brief:
                return self.compactor.completed(self.extractor.briefed(recorded))
            receipt = self._left_waiting(recorded)
            if self.extractor.is_due(recorded, self.trigger, moment):
                receipt = replace(receipt, results=tuple(map(_with_brief_hint, receipt.results)))
            return self.compactor.completed(receipt)
        return drive(self.extraction(recorded, now), client, self.deadline_seconds)

    def extraction(
        self, recorded: CommitReceipt, now: datetime | None = None
    ) -> Generator[LLMRequest, Completion, CommitReceipt]:
        """Extract the conversation that was just recorded, then the oldest that still waits, as far as they are due.

        Yields requests to a language model and is sent its completions; see ``llm.client.drive``.

        Args:
            recorded: The receipt of the conversation's commit.
            now: The moment; default the clock's.

        Returns:
            The receipt of everything together.
        """
        moment = now or datetime.now().astimezone()
        receipt = recorded
        if not still_waits(recorded):
            return self.compactor.completed(receipt)
        own = _log_of(recorded)
        scope = ProjectScope(None if own is None else self.extractor.sessions.project_of(own))
        due = self.extractor.due(recorded, self.trigger, moment)
        failed = False
        for log in due:
            done = yield from self.extractor.extraction(log, now)
            receipt = merged(receipt, log, self.indexed(done, scope))
            failed = still_waits(done)
            if failed:
                break
            tell(f"the model's answer was applied, {len(done.changed_uris)} files changed")
        for follow_up in () if failed else self.follow_ups:
            done_after = yield from follow_up(own, scope, moment)
            if done_after is not None:
                receipt = added(receipt, self.indexed(done_after, scope))
        receipt = self.compactor.completed(receipt)
        if REPEATED not in recorded.notes:
            self.store.finish(receipt)
        return receipt if own in due else self._left_waiting(receipt)

    def _left_waiting(self, recorded: CommitReceipt) -> CommitReceipt:
        """The receipt with what the conversation waits for."""
        log = str(_log_of(recorded))
        results = tuple(
            replace(result, note=f"{result.note}; {self.trigger.why(row)}")
            if (result.op, result.uri) == (EXTRACTION, log)
            and (row := self.extractor.queue.get(MemoryUri.parse(log))) is not None
            else result
            for result in recorded.results
        )
        return replace(recorded, results=results)

    def extract_waiting(self, session_id: str | None = None) -> Iterator[CommitReceipt]:
        """Extract what waits, conversation by conversation, with the configured model.

        Args:
            session_id: Only this one, and all of it again.

        Raises:
            ModelUnavailable: If no model is configured, or it cannot be used as it is set up.
            NotFound: If there is no such session.
        """
        client = self._model()
        for receipt in self.extractor.extract_waiting(client, self.deadline_seconds, session_id):
            yield self.indexed(receipt, ProjectScope())

    def extract_ended(self, sessions: Collection[str]) -> Iterator[CommitReceipt]:
        """Extract conversations that have ended, and what else is due; nobody waits, so each gets more time.

        Args:
            sessions: Those that have ended, by folder name.

        Raises:
            ModelUnavailable: If no model is configured, or it cannot be used as it is set up.
        """
        client = self._model()
        logs = self.extractor.ended(sessions, self.trigger, datetime.now().astimezone())
        seconds = _UNWATCHED * self.deadline_seconds
        for receipt in self.extractor.extract_waiting(client, seconds, logs=logs):
            yield self.indexed(receipt, ProjectScope())

    def _model(self) -> LLMClient:
        client = self.client()
        if client is None:
            raise ModelUnavailable("no language model is configured.", hint=NO_MODEL)
        return client


def _with_brief_hint(result: OperationResult) -> OperationResult:
    """The line of a conversation that waits, with how the client's own model takes it."""
    if result.op != EXTRACTION:
        return result
    session = json.dumps(MemoryUri.parse(result.uri).parent.name, ensure_ascii=False)
    hint = f"To turn it into memories now, take its brief: commit_memory(brief=true, session_id={session})."
    return replace(result, hint=hint)


def _log_of(recorded: CommitReceipt) -> MemoryUri | None:
    """The log of the conversation that was recorded."""
    found = next((result.uri for result in recorded.results if result.op == "messages"), None)
    return None if found is None else MemoryUri.parse(found)
