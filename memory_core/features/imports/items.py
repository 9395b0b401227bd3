"""What a reader of a foreign format yields: memories, log entries, conversations, and what it had to leave.

Values only. What can come in carries an id that its source gives to the same thing whenever it is read, and the place
where it stands, for people. Nothing here decides what becomes of an item.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from memory_core.core.frozen import frozen

if TYPE_CHECKING:
    from memory_core.features.imports.sources import Entry, Source


#: Claude Code's own commands, their output and its reminders.
CLAUDE_CODE_MARKUP = re.compile(
    r"\s*<(?:command-(?:name|message|args)|local-command-\w+|bash-(?:input|stdout|stderr)|system-)"
)


Scalar = str | int | float | bool
#: Suffix of a source file that was imported.
MIGRATED = ".migrated"
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?")


@frozen
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
        former_id: The id by which versions before 0.2 knew it, where that differs.
        file_id: The file that it stands in, where ids mean something only within one; see ``with_file_id``.
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
    former_id: str | None = None
    file_id: str = ""

    def with_file_id(self, file_id: str) -> MemoryItem:
        """The same with an id that no item of another file has; with an empty one, the item with its former id."""
        if not file_id:
            return self if self.former_id is None else replace(self, item_id=self.former_id)
        return replace(self, item_id=digest_of([file_id, self.item_id]), file_id=file_id)

    @property
    def digest(self) -> str:
        """Names what it says, not how often it was used."""
        return digest_of([self.memory_type, self.name, self.content, dict(self.fields)])


@frozen
class LogItem:
    """One entry of a day's log; ``moment`` has the local UTC offset."""

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


@frozen
class SummaryItem:
    """The rolling summary that a source keeps of its user."""

    item_id: str
    place: str
    text: str

    @property
    def digest(self) -> str:
        """Names what it says."""
        return digest_of(self.text)


@frozen
class LinkItem:
    """That one memory is related to another of the same import.

    ``word`` is what the relation says there, ``former`` the three ids as versions before 0.2 knew them.
    """

    item_id: str
    place: str
    source_id: str
    target_id: str
    word: str
    former: tuple[str, str, str] | None = None

    def with_file_id(self, file_id: str) -> LinkItem:
        """The same between the items of one file; see ``MemoryItem.with_file_id``."""
        ids = (self.item_id, self.source_id, self.target_id)
        own = tuple(digest_of([file_id, each]) for each in ids) if file_id else self.former or ids
        return replace(self, item_id=own[0], source_id=own[1], target_id=own[2])

    @property
    def digest(self) -> str:
        """The same for every link: a link has no content."""
        return digest_of("")


@frozen
class ConversationItem:
    """One conversation.

    Attributes:
        item_id: Its id in the source.
        place: Where it stands in the source.
        session_id: The session it becomes.
        messages: In the shapes that ``core.memory.message_shapes`` reads, in order; each has an ``id``.
        folder: The folder in which it began, if it began in one.
        folders: The folders in which messages were said, by their ids, where they name one.
        hosts_id: What the host that it was held in calls it, and that host's hooks; None for what no hook stores.
    """

    item_id: str
    place: str
    session_id: str
    messages: tuple[Mapping[str, Any], ...]
    folder: str | None = None
    folders: Mapping[str, str] = field(default_factory=dict)
    hosts_id: str | None = None


@frozen
class LeftOut:
    """What could not be imported, where it stands and why; shown, never used."""

    place: str
    reason: str


@frozen
class Skipped:
    """What is not imported on purpose, counted by what it is."""

    what: str
    count: int = 1


BatchItem: TypeAlias = MemoryItem | LogItem | SummaryItem | LinkItem
Item: TypeAlias = BatchItem | ConversationItem | LeftOut | Skipped


@frozen
class Format:
    """One foreign format.

    Attributes:
        name: As ``--from`` takes it.
        description: What it is known by, for a person whose file was not recognised.
        recognises: Whether a source is of this format, by its content.
        files: The files of a source that it reads; ``read`` is given a source with only these.
        read: The items of one of them, in its order. Raises InvalidInput or StorageFailed for one that is damaged.
        may_move_originals: Whether a source file may be renamed to end in ``MIGRATED`` once its items are imported.
        moves_originals: Whether it is, unless the caller says otherwise.
        ids_per_file: Whether an item's id means something only within its file; see ``known_files``.
    """

    name: str
    description: str
    recognises: Callable[[Source], bool]
    files: Callable[[Source], list[Entry]]
    read: Callable[[Source, Entry], Iterator[Item]]
    may_move_originals: bool = False
    moves_originals: bool = False
    ids_per_file: bool = False


def digest_of(value: Any) -> str:
    """Sixteen hexadecimal digits that name a JSON value."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def session_name(program: str, name: str) -> str:
    """The session that a conversation of another program becomes: its own name where that can be a folder's."""
    return f"{program}-{name if _NAME.fullmatch(name) else digest_of(name)}"


def system_messages(kind: str, text: str) -> list[dict[str, Any]]:
    """A conversation's title or summary as the messages that it begins with; none for blank text."""
    return [{"role": "system", "content": text, "id": f"{kind}-{digest_of(text)}"}] if text.strip() else []
