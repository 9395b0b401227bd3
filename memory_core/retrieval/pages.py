"""Pages of a conversation: what one person asked and what was answered, as one piece.

Where one begins is said in ``model.exchange``; shown are the turns that may be shown, a few on each side of the turn
that was looked for. Pure: lines of a log in, pages out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory_core.model.conversation import Message, parse_lines, transcript_line
from memory_core.model.exchange import Speaker, begins, opener_of, speaker_of

#: Turns of one page, at most, on each side of the turn that was looked for.
_REACH_TURNS = 6
_FOUND_CHARS = 2_000
_OTHER_CHARS = 400


@dataclass(frozen=True, slots=True)
class Page:
    """One exchange.

    Attributes:
        first: Line of its first message, from 0.
        text: Its turns, one a line; long ones are cut, those that were not looked for sooner.
        date: Of its first dated message, ``YYYY-MM-DD``.
    """

    first: int
    text: str
    date: str | None


class ConversationLog:
    """The lines of one session's log, read as pages.

    Args:
        lines: JSON lines; damaged ones are passed over.
        visible: Whether a message may be shown.
    """

    def __init__(self, lines: Sequence[str], visible: Callable[[Message], bool]) -> None:
        self._lines = lines
        self._visible = visible
        self._messages: dict[int, Message | None] = {}
        self._opener = opener_of(map(self._speaker, range(len(lines))))

    def page_of(self, line: int) -> Page | None:
        """The page that holds a message; None where there is no such message, or none to show."""
        if not 0 <= line < len(self._lines) or self._message(line) is None:
            return None
        first, last = line, line
        while first > 0 and line - first < _REACH_TURNS and not self._begins(first):
            first -= 1
        while last + 1 < len(self._lines) and last - line < _REACH_TURNS and not self._begins(last + 1):
            last += 1
        return self._page(first, last, line)

    def last_pages(self, count: int) -> list[Page]:
        """The last pages, newest first."""
        pages: list[Page] = []
        end = len(self._lines) - 1
        while end >= 0 and len(pages) < count:
            first = end
            while first > 0 and end - first < _REACH_TURNS and not self._begins(first):
                first -= 1
            page = self._page(first, end, None)
            if page is not None:
                pages.append(page)
            end = first - 1
        return pages

    def _page(self, first: int, last: int, found: int | None) -> Page | None:
        shown = [(at, message) for at in range(first, last + 1) if (message := self._message(at)) is not None]
        if not shown:
            return None
        lines = [transcript_line(message, _FOUND_CHARS if at == found else _OTHER_CHARS) for at, message in shown]
        dates = (message.time.date().isoformat() for _, message in shown if message.time is not None)
        return Page(shown[0][0], "\n".join(lines), next(dates, None))

    def _begins(self, at: int) -> bool:
        """Whether the opener speaks after somebody else."""
        return begins(self._speaker, at, self._opener)

    def _speaker(self, at: int) -> Speaker:
        return speaker_of(self._message(at))

    def _message(self, at: int) -> Message | None:
        """The message of a line; None for a damaged one, a prompt, or one that may not be shown."""
        if at not in self._messages:
            messages, _ = parse_lines(self._lines[at])
            shown = [each for each in messages if speaker_of(each) is not None and self._visible(each)]
            self._messages[at] = shown[0] if shown else None
        return self._messages[at]
