"""The log of a session as pages: what each exchange says, to whom it belongs, and what it is compared by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory_core.index.words.keywords import keywords
from memory_core.model.changes import text_sha256
from memory_core.model.conversation import Message, parse_lines, search_text, transcript_line
from memory_core.model.exchange import exchanges, opener_of, speaker_of
from memory_core.model.forgetting import is_forgotten
from memory_core.model.language import spoken

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
