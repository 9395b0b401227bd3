"""What a client's own model hands in about a conversation, judged by the brief that it answers.

That is its author's own brief. Who has none may have been told the task under another name: they are judged by all that
are open together, or by the last one. Decides under the store's lock whether what was briefed still stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memory_core.core.commit.commits import Span, done_meanwhile
from memory_core.core.commit.receipts import EXTRACTION
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, SessionProgress, text_sha256
from memory_core.core.store.brief_notes import BriefState, Notes
from memory_core.core.store.local import Snapshot
from memory_core.core.store.session_rows import Extraction


@dataclass(slots=True)
class Answer:
    """A hand-in; a ``Settlement``.

    Attributes:
        row: Where the session stood.
        author: Who hands in.
        messages: The session's, as they were read before the store was locked.
        stands: Whether those of the briefs were then as they had been shown.
    """

    row: Extraction
    author: str
    messages: Sequence[Message]
    stands: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stands = self._stand(self.messages)

    @property
    def briefs(self) -> Notes:
        """What it answers; empty where nobody was briefed."""
        notes, extracted = self.row.briefs, self.row.extracted
        own = tuple(note for note in notes if note.author == self.author)
        return own or tuple(note for note in notes if note.covers(extracted)) or notes[-1:]

    @property
    def seen(self) -> Mapping[str, str]:
        """SHA-256 of the memories that its author was shown, by URI: of several briefs that of the first."""
        return {uri: sha256 for note in reversed(self.briefs) for uri, sha256 in note.seen.items()}

    @property
    def is_void(self) -> bool:
        """Whether a memory was erased that its author was shown."""
        return any(note.state is BriefState.VOID for note in self.briefs)

    @property
    def span(self) -> Span | None:
        """The messages that leave the queue with it; None where it moves nothing."""
        ends = [note.end for note in self.briefs if note.covers(self.row.extracted)]
        return Span(self.row.log, self.row.extracted, min(ends)) if ends else None

    def refusal(self, snapshot: Snapshot) -> ChangeSet | None:
        """Why nothing is done; None if what was briefed still stands."""
        if self.is_void:
            return self._refused("a memory that its brief showed was erased since")
        messages = parse_lines(snapshot.text(self.row.log) or "")[0]
        end = max((note.end for note in self.briefs), default=0)
        is_same = messages[:end] == self.messages[:end]  # hashing a long conversation would hold up other writers
        if not (self.stands if is_same else self._stand(messages)):
            return self._refused("the messages of its brief changed since")
        row = snapshot.ledger.extractions.get(self.row.log)
        span = self.span
        if span is not None and (row is None or not all(note.covers(row.extracted) for note in self.briefs)):
            return done_meanwhile(span.log)
        return None

    def settled(self, decided: ChangeSet, _snapshot: Snapshot) -> ChangeSet:
        """The change set with what leaves the queue, and whose brief was answered."""
        if all(note.state is BriefState.DONE for note in self.briefs):
            return decided
        span = self.span
        progress = SessionProgress(self.row.log, extracted=None if span is None else span.end, answered_by=self.author)
        return replace(decided, progress=progress)

    def _stand(self, messages: Sequence[Message]) -> bool:
        return all(
            text_sha256(dump_lines(messages[note.start : note.end])) == note.sha256
            for note in self.briefs
            if note.sha256 and note.state is not BriefState.DONE
        )

    def _refused(self, why: str) -> ChangeSet:
        session = json.dumps(self.row.session_id, ensure_ascii=False)
        hint = (
            f"Ask for the brief again, commit_memory(brief=true, session_id={session}), and answer that one. What has "
            "nothing to do with it goes without session_id."
        )
        reason = f"nothing was handed in: {why}."
        return ChangeSet((), (OperationResult(EXTRACTION, str(self.row.log), Action.REJECTED, reason, hint),))
