"""What a client's own model hands in about a conversation, judged by the brief that it answers.

That is the brief whose id it names, else the newest of its author. Who has none may have been told the task under
another name: they are judged by all that are open together, or by the last one. An answer to a brief that is not kept
any more is refused. Decides under the store's lock whether what was briefed still stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memory_core.core.commit.commits import Span, done_meanwhile
from memory_core.core.commit.receipts import EXTRACTION
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, SessionProgress, text_sha256
from memory_core.core.store.brief_notes import LOST, BriefState, Notes
from memory_core.core.store.local import Snapshot
from memory_core.core.store.session_rows import Extraction


@dataclass(slots=True)
class Answer:
    """A hand-in; a ``Settlement``.

    Attributes:
        row: Where the session stood.
        author: Who hands in.
        brief_id: Of the brief that it names; None where it names none.
        messages: The session's, as they were read before the store was locked.
        stands: Whether those of the briefs were then as they had been shown.
    """

    row: Extraction
    author: str
    brief_id: str | None
    messages: Sequence[Message]
    stands: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stands = self._stand(self.messages)

    @property
    def briefs(self) -> Notes:
        """What it answers; empty where nobody was briefed."""
        notes, extracted = self.row.briefs, self.row.extracted
        if self.brief_id is not None:
            return tuple(note for note in notes if note.brief_id == self.brief_id) or (LOST,)
        own = tuple(note for note in notes if note.author == self.author and note != LOST)
        if own or LOST in notes:
            return own[-1:] or (LOST,)
        return tuple(note for note in notes if note.covers(extracted)) or notes[-1:]

    @property
    def seen(self) -> Mapping[str, str]:
        """SHA-256 of the memories that its author was shown, by URI: of several briefs that of the first."""
        return {uri: sha256 for note in reversed(self.briefs) for uri, sha256 in note.seen.items()}

    @property
    def is_answerable(self) -> bool:
        """Whether an answer to what its author was shown may be taken."""
        return all(note.is_answerable for note in self.briefs)

    @property
    def span(self) -> Span | None:
        """The messages that leave the queue with it; None where it moves nothing."""
        ends = [note.end for note in self.briefs if note.covers(self.row.extracted)]
        return Span(self.row.log, self.row.extracted, min(ends)) if ends else None

    def refusal(self, snapshot: Snapshot) -> ChangeSet | None:
        """Why nothing is done; None if what was briefed still stands."""
        if LOST in self.briefs:
            return self._refused("its brief is not among those that are kept of this conversation")
        row = snapshot.ledger.extractions.get(self.row.log)
        ids = {note.brief_id for note in self.briefs}
        void = (note.brief_id for note in (*self.briefs, *(row.briefs if row else ())) if note.state is BriefState.VOID)
        if not ids.isdisjoint(void):
            return self._refused("a memory that its brief showed was erased since")
        messages = parse_lines(snapshot.text(self.row.log) or "")[0]
        end = max((note.end for note in self.briefs), default=0)
        is_same = messages[:end] == self.messages[:end]  # hashing a long conversation would hold up other writers
        if not (self.stands if is_same else self._stand(messages)):
            return self._refused("the messages of its brief changed since")
        span = self.span
        if span is not None and (row is None or not all(note.covers(row.extracted) for note in self.briefs)):
            return done_meanwhile(span.log)
        return None

    def settled(self, decided: ChangeSet, _snapshot: Snapshot) -> ChangeSet:
        """The change set with what leaves the queue, and which brief was answered."""
        if all(note.state is BriefState.DONE for note in self.briefs):
            return decided
        span = self.span
        end = None if span is None else span.end
        answered = (note for note in self.briefs if self.brief_id is not None or note.author == self.author)
        brief_id = next((note.brief_id for note in answered), None)
        return replace(decided, progress=SessionProgress(self.row.log, extracted=end, answered=brief_id))

    def _stand(self, messages: Sequence[Message]) -> bool:
        told = {(note.start, note.end, note.sha256) for note in self.briefs if note.sha256}
        return all(text_sha256(dump_lines(messages[start:end])) == sha256 for start, end, sha256 in told)

    def _refused(self, why: str) -> ChangeSet:
        session = json.dumps(self.row.session_id, ensure_ascii=False)
        hint = (
            f"Ask for the brief again, commit_memory(brief=true, session_id={session}), and answer that one. What has "
            "nothing to do with it goes without session_id."
        )
        reason = f"nothing was handed in: {why}."
        return ChangeSet((), (OperationResult(EXTRACTION, str(self.row.log), Action.REJECTED, reason, hint),))
