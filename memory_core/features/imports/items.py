"""What a reader of a foreign format yields: memories, log entries, conversations, and what it had to leave.

Values only. Every item carries an id that its source gives to the same thing whenever it is read, and the place where
it stands, for people. Nothing here decides what becomes of an item.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from memory_core.features.imports.sources import Entry, Source


#: Claude Code's own commands, their output and its reminders.
MACHINE = re.compile(r"\s*<(?:command-(?:name|message|args)|local-command-\w+|bash-(?:input|stdout|stderr)|system-)")
#: What Codex tells its model about the machine and the folder.
CODEX_MACHINE = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions|turn_aborted|skill)|# AGENTS\.md)"
)


Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Relation:
    """That a memory is related to another of the same import.

    Attributes:
        target: The ``item_id`` of the other one.
        word: What the relation says there.
    """

    target: str
    word: str


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One memory.

    Attributes:
        item_id: Its id in the source.
        place: Where it stands in the source.
        memory_type: The type it is to have here.
        content: Its text.
        name: Its name, title or topic; None makes one of its first words.
        fields: Further fields of the type.
        said_at: When it was made, if known.
        salience: 0 to 1; likewise ``confidence``. None leaves it to the type.
        confidence: See ``salience``.
        category: What the source calls its kind.
        tags: Labels.
        active: Whether it holds.
        source: What else is known of where it comes from.
        accesses: How often it was used there; ``accessed_at`` is the last time.
        accessed_at: See ``accesses``.
        relations: What it is related to.
    """

    item_id: str
    place: str
    memory_type: str
    content: str
    name: str | None = None
    fields: Mapping[str, Scalar] = field(default_factory=dict)
    said_at: datetime | None = None
    salience: float | None = None
    confidence: float | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    active: bool = True
    source: Mapping[str, str] = field(default_factory=dict)
    accesses: int = 0
    accessed_at: datetime | None = None
    relations: tuple[Relation, ...] = ()

    @property
    def digest(self) -> str:
        """Names what it says, not how often it was used."""
        return digest_of([self.memory_type, self.name, self.content, dict(self.fields)])


@dataclass(frozen=True, slots=True)
class LogItem:
    """One entry of a day's log; ``moment`` has the offset of the clock on the wall."""

    item_id: str
    place: str
    moment: datetime
    text: str
    kind: str = "event"
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names what it says."""
        return digest_of([self.moment.isoformat(), self.text])


@dataclass(frozen=True, slots=True)
class SummaryItem:
    """The rolling summary that a source keeps of its user."""

    item_id: str
    place: str
    text: str

    @property
    def digest(self) -> str:
        """Names what it says."""
        return digest_of(self.text)


@dataclass(frozen=True, slots=True)
class ConversationItem:
    """One conversation.

    Attributes:
        item_id: Its id in the source.
        place: Where it stands in the source.
        session_id: The session it becomes.
        messages: In the shapes that ``model.message_shapes`` reads, in order; each has an ``id``.
        folder: The folder it was held in, if it was held in one.
    """

    item_id: str
    place: str
    session_id: str
    messages: tuple[Mapping[str, Any], ...]
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What could not be taken, where it stands and why; shown, never used."""

    place: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"place": self.place, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Passed:
    """What is not meant to come along, counted by what it is."""

    what: str
    count: int = 1


Stored: TypeAlias = MemoryItem | LogItem | SummaryItem
Item: TypeAlias = Stored | ConversationItem | LeftOut | Passed


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format.

    Attributes:
        name: As ``--from`` takes it.
        sign: What it is known by, for a person whose file was not recognised.
        recognises: Whether a source is of this format, by its content.
        read: Its items, in the order of the source.
        originals: Files that may be renamed once their items are in; None where they stay what they are.
        moves: Whether they are renamed unless the caller says otherwise.
    """

    name: str
    sign: str
    recognises: Callable[[Source], bool]
    read: Callable[[Source], Iterator[Item]]
    originals: Callable[[Source], list[Entry]] | None = None
    moves: bool = False


def digest_of(value: Any) -> str:
    """Sixteen hexadecimal digits that name a JSON value."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
