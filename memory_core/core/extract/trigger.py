"""When a conversation that waits is extracted: as it is recorded, after its end, or only once it is hot or asked for.

A model that is asked about every exchange costs more than it finds, and a brief with each of them is noise. So with
``extraction.trigger = commit`` the first commit of a session is extracted at once, later ones wait for each other; and
what waits of a session that has been idle is taken up by whatever comes by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memory_core.core.config import ExtractionConfig
from memory_core.core.memory.metadata import read_moment, utc_text
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.session_rows import NEVER, Extraction, ExtractionQueue

#: The first failures may be tried again at once; then each waits twice as long as the one before.
_PATIENCE = 2
_RETRY_LIMIT = timedelta(hours=6)
_PATIENT = timedelta(days=1)
#: By these words a note of a context is known as the one about conversations that wait.
WAITING = "to become memories"


def retry_at(failures: int, now: datetime) -> str | None:
    """Before when a session that failed so often in a row is not tried again, ISO 8601 in UTC; None is at once."""
    beyond = failures - _PATIENCE
    if beyond <= 0:
        return None
    wait = min(timedelta(minutes=2.0 ** min(beyond - 1, 10)), _RETRY_LIMIT)
    return utc_text(now + wait)


def waiting_line(rows: Sequence[Extraction], provider: str, now: datetime) -> str | None:
    """What a client is told of conversations that wait, in one line; None where they will be taken up anyway.

    Args:
        rows: Of a user, without the session at hand.
        provider: As in ``llm.provider``.
        now: Aware.
    """
    left = [row for row in rows if row.retry_at != NEVER]
    if provider == "sampling":  # a client with a model of its own takes them; one that comes each day would have
        left = [row for row in left if (since := read_moment(row.since)) is not None and now - since > _PATIENT]
    elif provider != "none":
        left = [row for row in left if row.attempts]
    if not left:
        return None
    many = "1 conversation waits" if len(left) == 1 else f"{len(left)} conversations wait"
    reason = next((f" ({row.reason})" for row in left if provider != "none" and row.reason), "")
    more = "; runebook doctor says more" if reason else ""
    taken = "take one with commit_memory(brief=true) or the prompt extract_memories, then hand in its operations"
    return f"{many} {WAITING}{reason}: {taken}{more}."


@dataclass(frozen=True, slots=True)
class ExtractionTrigger:
    """Decides which sessions are extracted unasked.

    Attributes:
        config: The settings.
        queue: Knows when a session last grew.
        exchanges: Counts the exchanges of a session that wait.
    """

    config: ExtractionConfig
    queue: ExtractionQueue
    exchanges: Callable[[Extraction], int]

    def takes_own(self, row: Extraction, now: datetime, *, first: bool) -> bool:
        """Whether a session is extracted with the commit that has just made it grow.

        Args:
            row: Where it stands.
            now: Aware.
            first: Whether that commit began the session.
        """
        if self.config.trigger != "commit":
            return False
        return first or self._is_enough(row) or self._failed(row, now)

    def takes_other(self, row: Extraction, now: datetime) -> bool:
        """Whether a session that waits is extracted with a commit of another, or by maintenance."""
        if self.config.trigger == "heat":
            return False
        if self.config.trigger == "commit" and (self._is_enough(row) or self._failed(row, now)):
            return True
        return self.is_idle(row.log, now)

    def is_idle(self, log: MemoryUri, now: datetime) -> bool:
        """Whether a session has had no message for so long that it counts as ended.

        One that grew in the future, under a clock that was wrong, has ended, too: nobody can tell when it grew.
        """
        grown = read_moment(self.queue.grown_at([log]).get(log))
        return grown is not None and abs(now - grown) >= timedelta(minutes=self.config.idle_minutes)

    def why(self, row: Extraction) -> str:
        """What a session that is not extracted yet waits for."""
        idle = f"when the session has been idle for {self.config.idle_minutes:g} minutes"
        asked = "on request (runebook extract)"
        if self.config.trigger == "heat":
            return f"they become memories when their topic is used often, or {asked}"
        if self.config.trigger == "session_end":
            return f"they become memories {idle}, or {asked}"
        exchanges = f"with {self.config.every_exchanges} exchanges ({self.exchanges(row)} wait)"
        return f"they become memories {exchanges}, {idle}, or {asked}"

    def _is_enough(self, row: Extraction) -> bool:
        """Whether so many exchanges wait that one request is worth it; there are never more of them than messages."""
        every = self.config.every_exchanges
        unseen = replace(row, extracted=max(row.extracted, row.briefed))  # a brief was about the others
        return every == 0 or (unseen.waiting >= every and self.exchanges(unseen) >= every)

    def _failed(self, row: Extraction, now: datetime) -> bool:
        """Whether it was tried before, and may be tried again."""
        due = row.retry_at is None or datetime.fromisoformat(row.retry_at) <= now
        return row.attempts > 0 and due
