"""What the queue notes of the briefs about one conversation: whose each is, its messages, and what it showed.

A brief has an id, which is told with it and given back with the answer: the answer is judged by that brief, whatever
anybody asked for, stored or handed in meanwhile. Without the id its author decides, who may be several windows of one
client. Pure but for ``change_notes``, which rewrites the notes of a row inside the caller's transaction.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from memory_core.core.frozen import frozen

#: A row keeps so many briefs of each group of authors, and so many in all; the oldest leave first.
GROUP_MOST, ROW_MOST = 4, 32
_ID_LETTERS, ID_CHARS = "bcdfghjkmnpqrstvwxz", 6


class BriefState(StrEnum):
    """What became of a brief."""

    #: Its answer moves the queue.
    OPEN = "open"
    #: Its messages left the queue by another's hand; its own answer may still come.
    LATE = "late"
    #: It was answered; what its author hands in afterwards is still compared with what it showed.
    DONE = "done"
    #: It showed what was erased since: no answer to it is taken.
    VOID = "void"
    #: It is not kept: no answer to it is taken.
    LOST = "lost"


@frozen
class BriefNote:
    """One brief.

    Attributes:
        author: Who asked for it, as ``caller.current_author`` names them.
        start: Its first message.
        end: Behind its last message.
        sha256: Of the lines of its messages as they stood, as in ``Span``; empty where nobody noted it.
        seen: SHA-256 of each memory that it showed, by URI.
        state: What became of it.
        brief_id: Its name in the row; empty where an older program noted it.
    """

    author: str
    start: int
    end: int
    sha256: str = ""
    seen: Mapping[str, str] = field(default_factory=dict)
    state: BriefState = BriefState.OPEN
    brief_id: str = ""

    @property
    def group(self) -> str:
        """Whose it is, whatever the client calls itself: the label of the token, else the author."""
        return self.author.partition(" (")[0]

    @property
    def is_answerable(self) -> bool:
        """Whether an answer to it may be taken."""
        return self.state not in (BriefState.VOID, BriefState.LOST)

    def covers(self, extracted: int) -> bool:
        """Whether its answer moves a queue that stands behind so many messages."""
        return self.state is BriefState.OPEN and self.start <= extracted < self.end


Notes = tuple[BriefNote, ...]

#: Among the notes of a row: authors were there of whom no brief is kept any more.
LOST = BriefNote("", 0, 0, state=BriefState.LOST)


def new_id() -> str:
    """An id for a brief: six consonants, neither a number nor a word, that always cost the same tokens."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(ID_CHARS))


def read_notes(text: str, briefed: int) -> Notes:
    """The notes of a row, the newest last.

    Args:
        text: JSON, as ``dump_notes`` wrote it. Rows of older programs hold what their last brief showed, by URI: that
            is a brief of nobody in particular.
        briefed: Messages that the open briefs of the row cover.
    """
    found = json.loads(text)
    if isinstance(found, list):
        return tuple(
            BriefNote(author, start, end, sha256, seen, BriefState(state), *brief_id)
            for author, start, end, sha256, seen, state, *brief_id in found
        )
    if not found and not briefed:
        return ()
    return (BriefNote("", 0, briefed, seen=found, state=BriefState.OPEN if briefed else BriefState.DONE),)


def dump_notes(notes: Iterable[BriefNote]) -> str:
    """The notes as JSON, one array a brief."""
    rows = [
        [note.author, note.start, note.end, note.sha256, dict(note.seen), note.state.value, note.brief_id]
        for note in notes
    ]
    return json.dumps(rows, ensure_ascii=False)


def noted(notes: Notes, new: BriefNote) -> Notes:
    """With one more brief; ``LOST`` comes first where an author lost the last of theirs to it, or to an earlier one."""
    of_group = [note for note in (*notes, new) if note.group == new.group and note != LOST]
    too_many = of_group[:-GROUP_MOST]
    kept = tuple(note for note in (*notes, new) if note != LOST and note not in too_many)[-ROW_MOST:]
    authors = {note.author for note in kept}
    is_lost = any(note == LOST or note.author not in authors for note in notes)
    return (LOST, *kept) if is_lost else kept


def moved(notes: Notes, extracted: int | None, answered: str | None) -> Notes:
    """After a commit that moved the queue, or answered a brief, or both.

    Args:
        notes: Before.
        extracted: Behind how many messages the queue stands now; None where it did not move.
        answered: The id of the brief that was answered; None is none.
    """
    return tuple(
        replace(note, state=BriefState.DONE)
        if note.brief_id == answered and note.is_answerable
        else replace(note, state=BriefState.LATE)
        if note.state is BriefState.OPEN and extracted is not None and note.end <= extracted
        else note
        for note in notes
    )


def without(notes: Notes, uri: str, erased: Collection[str] | None = None) -> Notes:
    """After a memory was erased for good: no trace of it is left, and who was shown it has to look again.

    Args:
        notes: Before.
        uri: The memory.
        erased: SHA-256 of those of its texts that were erased; None is all.
    """
    return tuple(
        note
        if uri not in note.seen or (erased is not None and note.seen[uri] not in erased)
        else replace(note, seen={name: sha256 for name, sha256 in note.seen.items() if name != uri})
        if note.state is BriefState.DONE
        else replace(note, seen={}, state=BriefState.VOID)
        for note in notes
    )


def briefed_by(notes: Sequence[BriefNote]) -> int:
    """Messages that the open briefs cover; 0 without one."""
    return max((note.end for note in notes if note.state is BriefState.OPEN), default=0)


def change_notes(connection: sqlite3.Connection, log: str, change: Callable[[Notes], Notes]) -> None:
    """Rewrite the notes of a row, if there is one, inside the caller's transaction."""
    row = connection.execute("SELECT briefed, seen FROM extractions WHERE log = ?", (log,)).fetchone()
    if row is None:
        return
    notes = change(before := read_notes(row[1], row[0]))
    if notes != before:
        connection.execute(
            "UPDATE extractions SET briefed = ?, seen = ? WHERE log = ?", (briefed_by(notes), dump_notes(notes), log)
        )
