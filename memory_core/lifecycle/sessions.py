"""Stored conversations as extraction takes them: part by part, each of one project, with what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory_core.errors import NotFound, RunebookError
from memory_core.index.following import numbered
from memory_core.lifecycle.tiers.stored import analysed_lines
from memory_core.model.changes import text_sha256
from memory_core.model.conversation import Message, dump_lines, parse_lines
from memory_core.model.exchange import exchanges
from memory_core.model.language import language_of
from memory_core.model.project import Belonging, ProjectScope
from memory_core.model.uri import MemoryUri
from memory_core.react.conversation import Conversation, split
from memory_core.storage.store import Store
from memory_core.storage.tables.extractions import Extraction
from memory_core.update.corrections import find_corrections, hints
from memory_core.update.project_choice import ProjectChoice
from memory_core.update.updater import Span

#: Messages before the first waiting one that the model sees for context.
_EARLIER_MESSAGES = 6


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of one session that one run of the loop takes, all of one project."""

    span: Span
    conversation: Conversation
    belonging: Belonging


class SessionReader:
    """Reads the conversations of one store.

    Args:
        store: Holds the logs.
        choice: The rules of projects.
        language: Language of memories; ``auto`` follows the user's messages.
    """

    def __init__(self, store: Store, choice: ProjectChoice, language: str) -> None:
        self._store = store
        self._choice = choice
        self._language = language

    def messages(self, log: MemoryUri) -> tuple[Message, ...]:
        """The stored messages of a session; empty if there are none."""
        return tuple(parse_lines(self._store.text(log) or "")[0])

    def project_of(self, log: MemoryUri) -> str | None:
        """The project that a session's last message belongs to."""
        try:
            messages = self.messages(log)
        except RunebookError:
            return None
        return messages[-1].project if messages else None

    def is_seen(self, log: MemoryUri, project: str | None) -> bool:
        """Whether nothing of a conversation is private to another project; what cannot be read is nobody's secret."""
        try:
            messages = self.messages(log)
        except RunebookError:
            return True
        return all(ProjectScope(project).sees(message.project, private=message.private) for message in messages)

    def belonging(self, messages: Sequence[Message]) -> Belonging:
        """Whose the memories of some messages are; where any of them is private, all of them are."""
        private = next((message for message in messages if message.private), None)
        last = private or (messages[-1] if messages else None)
        return self._choice.of_session(None if last is None else last.project, private=private is not None)

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
        windows = split(_alike(messages[start:stop]), budget_tokens) if start < stop else [(0, 0)]
        last = start + windows[0][1]
        end = next((at for at in range(last, row.stored) if at not in done), row.stored)
        span = Span(row.log, row.extracted, end, text_sha256(dump_lines(messages[row.extracted : end])))
        return Part(span, self.conversation(messages, start, last, row.log), self.belonging(messages[start:last]))

    def analysed(self, log: MemoryUri) -> frozenset[int]:
        """Places of the messages that promotions made memories of."""
        lines = analysed_lines(self._store, log)
        if not lines:
            return frozenset()
        return frozenset(at for at, line in enumerate(self.lines(log)) if line in lines)

    def lines(self, log: MemoryUri) -> list[int]:
        """The line of each stored message, in order; damaged lines have none."""
        return [line for line, _ in numbered((self._store.text(log) or "").removeprefix("\ufeff"))]

    def waiting_exchanges(self, row: Extraction) -> int:
        """Exchanges of a session that hold messages to extract."""
        done = self.analysed(row.log)
        waiting = frozenset(at for at in range(row.extracted, row.stored) if at not in done)
        return sum(not waiting.isdisjoint(range(*span)) for span in exchanges(self.messages(row.log)))

    def fitting(self, pages: Sequence[Sequence[Message]], budget_tokens: int) -> int:
        """How many of these pages, from the first, one prompt can hold; 0 where the first alone is too long."""
        windows = split([message for page in pages for message in page], budget_tokens)
        room, count = (windows[0][1] if windows else 0), 0
        for page in pages:
            room -= len(page)
            if room < 0:
                break
            count += 1
        return count

    def conversation(self, messages: Sequence[Message], start: int, end: int, log: MemoryUri) -> Conversation:
        """Messages ``start`` to ``end`` (not included) with a few before them that the same project sees."""
        return self.excerpt(messages, range(start, end), log)

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
            language=language_of(messages) if self._language == "auto" else self._language,
            hints=hints(find_corrections(taken)),
        )


def _alike(messages: Sequence[Message]) -> Sequence[Message]:
    """The first messages, as far as they belong to one project and are as private."""
    place = [(message.project, message.private) for message in messages]
    return messages[: next((at for at, found in enumerate(place) if found != place[0]), len(place))]
