"""What of a file is searched: documents, their lexical views and the passages that are embedded.

A memory is one document: its words are name, body and every other text field. A session is one document
a message: found by its own words, a short one less by those that it answers, and by the meaning of the turn and of
neighbours like it. Pure; the catalog stores what is built here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

from memory_core.core.feature import Features
from memory_core.core.frozen import frozen
from memory_core.core.index.encoder import passages, turn_passage, unmarked
from memory_core.core.index.tokenizer import date_words
from memory_core.core.memory.evidence import support_of
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryTypeRegistry
from memory_core.core.memory.message import Message, search_text, transcript_line
from memory_core.core.memory.metadata import CATEGORY, CATEGORY_CHARS, CONTESTING
from memory_core.core.memory.results import clipped
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.analysis import word_count
from memory_core.core.text.directives import is_directive
from memory_core.core.text.language import sentences
from memory_core.core.text.normalization import signature, simplified
from memory_core.core.text.plain_text import plain_line
from memory_core.core.text.time_expressions import time_spans

ABSTRACT_LIMIT_CHARS = 256
#: Of a name, in lists and before each passage; the first passages hold it whole.
_NAME_CHARS = 500
#: Turns on each side whose text is embedded with a message.
NEIGHBOURS = 2
#: Pieces of one long turn that are embedded; what lies beyond is found by words only.
TURN_PASSAGES = 8
#: Of each turn before, so much of its end counts with a message: long answers would be stored three times.
PREVIOUS_CHARS = 600
#: A turn of so many words is no mere answer: it is found by its own words.
_ANSWER_WORDS = 60
#: Words of a turn from which it says as much as any.
_TELLING_WORDS = 40
#: Of a message so much is read for times; a longer stretch of days names no day.
_TIMED_CHARS, _MEANT_DAYS = 2_000, 6
MESSAGES_NAME = "messages.jsonl"
#: The field that says when something happened.
EVENT_TIME = "event_time"
#: From this salience on a memory holds for everything.
STANDING_SALIENCE = 0.9
#: Types whose memories may be rules about the assistant, and whether what sounds like a wish is one.
_MAY_DIRECT = {"preferences": True, "patterns": True, "notes": False, "facts": False, "assistant_knowledge": False}
_ASKS = ("?", "？")
_DATE = re.compile(r"(?:19|20|21)\d{2}(?:-\d{2}(?:-\d{2})?)?(?!\d)")


@frozen
class Document:
    """One searchable unit.

    ``part`` is the message's line in a session file, 0 for a memory. ``heading`` is searched with ``own`` but not
    shown. ``passages`` are what is embedded, in order; times are ISO 8601 strings. ``happened`` is the date of a turn
    or an event, or as much of it as is known. What is not ``active``, or past ``expires_at``, is neither found nor
    recalled unless it is asked for. What is ``always_on`` holds whatever is asked. ``project`` is the one that it
    belongs to, or was told in; what is ``general`` belongs to none. ``contested_by`` gives the memories that contradict
    or replace this one: URI, relation and strength; ``support`` is what others lend it, and ``substance`` how much it
    tells, in [0, 1]. Documents with the same ``signature`` say the same thing.
    """

    uri: MemoryUri
    part: int
    context_type: str
    memory_type: str
    name: str
    abstract: str
    own: str
    previous: str
    heading: str
    passages: tuple[str, ...]
    created_at: str | None = None
    updated_at: str | None = None
    happened: str | None = None
    salience: float = 0.5
    confidence: float = 1.0
    active: bool = True
    pinned: bool = False
    always_on: bool = False
    expires_at: datetime | None = None
    tags: tuple[str, ...] = ()
    category: str | None = None
    project: str | None = None
    private: bool = False
    general: bool = True
    contested_by: tuple[tuple[str, str, float], ...] = ()
    support: float = 0.0
    substance: float = 1.0
    signature: str = ""
    role: str | None = None
    speaker: str | None = None
    session_id: str | None = None


def is_session_log(uri: MemoryUri) -> bool:
    """Whether the file is a session's message log."""
    return uri.scope is Scope.SESSION and uri.name == MESSAGES_NAME


def is_searchable(uri: MemoryUri, features: Features) -> bool:
    """Whether the file is indexed at all: not summaries, the archive, proposals, or a kind that has no documents."""
    if uri.is_summary or uri.scope is Scope.ARCHIVE or uri.is_proposal:
        return False
    kind = features.kind_of(uri)
    return kind.is_searched if kind is not None else is_session_log(uri) or uri.name.endswith(".md")


def documents_of(uri: MemoryUri, text: str, types: MemoryTypeRegistry | None, features: Features) -> Sequence[Document]:
    """The documents of a file that is no conversation.

    Args:
        uri: A searchable file.
        text: What it says.
        types: Tell its memory type.
        features: Their kinds of records have documents of their own.
    """
    kind = features.kind_of(uri)
    return [memory_document(parse(uri, text, types))] if kind is None else kind.documents(uri, text)


def own_text(memory: Memory) -> str:
    """The words by which a memory is found."""
    return _own_text(memory, _name_of(memory), _other_texts(memory))


def _own_text(memory: Memory, name: str, extra: Sequence[str]) -> str:
    named = [] if memory.body.startswith(name) else [name]
    return "\n".join([*named, memory.body, *extra, *memory.metadata.tags])


def _name_of(memory: Memory) -> str:
    keys = () if memory.type is None else memory.type.key_fields
    named = " ".join(str(memory.fields[key]) for key in keys if memory.fields.get(key))
    return named or memory.uri.name.removesuffix(".md")


def _other_texts(memory: Memory) -> list[str]:
    """Texts of a memory's fields that its body does not show."""
    keys = () if memory.type is None else memory.type.key_fields
    return [
        str(value)
        for field, value in memory.fields.items()
        if isinstance(value, str) and field not in keys and value not in memory.body
    ]


def memory_document(memory: Memory) -> Document:
    """The document of a memory, or of a Markdown file that belongs to no type."""
    uri, metadata = memory.uri, memory.metadata
    name, extra = _name_of(memory), _other_texts(memory)
    body = "\n".join([memory.body, *extra]).strip()
    # The type's name is left out: to the model it is noise beside what the memory says.
    pieces = passages(simplified(body if body.startswith(name) else f"{name}\n{body}"))
    shown = clipped(name, _NAME_CHARS)
    if len(pieces) > 1:
        heading = unmarked(simplified(shown))
        pieces = [pieces[0], *(f"{heading}\n{piece}" for piece in pieces[1:])]
    happened = _happened(memory.fields.get(EVENT_TIME))
    links = metadata.links
    return Document(
        uri=uri,
        part=0,
        context_type=_context_type(uri, memory.type_name),
        memory_type=memory.type_name,
        name=shown,
        abstract=abstract_of(memory, shown),
        own=_own_text(memory, name, extra),
        previous="",
        heading=_date_heading(happened),
        passages=tuple(pieces),
        created_at=metadata.text("created_at"),
        updated_at=metadata.text("updated_at"),
        happened=happened,
        salience=memory.salience,
        confidence=metadata.confidence,
        active=metadata.is_active,
        pinned=metadata.is_pinned,
        always_on=holds_always(memory),
        expires_at=None if metadata.is_pinned else metadata.expires_at,
        tags=metadata.tags,
        category=clipped(metadata.text(CATEGORY) or "", CATEGORY_CHARS) or None,
        project=memory.told_in,
        private=memory.is_private,
        general=memory.project is None,
        contested_by=tuple((link.uri, link.relation, link.strength) for link in links if link.relation in CONTESTING),
        support=support_of(link.strength for link in links if link.relation == "supported_by"),
        signature=signature(memory.body),
    )


def holds_always(memory: Memory) -> bool:
    """Whether a memory holds whatever is asked: pinned, critical, or about how the assistant answers and works.

    What a tool once failed with is no rule, however much it sounds like one.
    """
    if memory.metadata.is_pinned:
        return True
    if memory.metadata.is_tool_failure:
        return False
    if memory.metadata.share("salience", 0.0) >= STANDING_SALIENCE:
        return True
    if memory.type_name not in _MAY_DIRECT:
        return False
    if memory.fields.get("pattern_type") == "rule":
        return True
    return is_directive(f"{_name_of(memory)}\n{memory.body}", plain=_MAY_DIRECT[memory.type_name])


def abstract_of(memory: Memory, name: str, limit_chars: int = ABSTRACT_LIMIT_CHARS) -> str:
    """One line about a memory: the stored abstract, else how its body begins, else the name."""
    given = memory.metadata.text("abstract")
    said = given if given is not None and given.strip() else memory.body
    return plain_line(said, limit_chars) or name


class Turn(NamedTuple):
    """An indexed turn: its line in the file, its words with the speaker's name before them, and who speaks."""

    part: int
    own: str
    speaker: str


@frozen
class SessionGrowth:
    """What new messages add to the index: their documents, and new passages of the turns just before."""

    documents: tuple[Document, ...]
    revised: Mapping[int, tuple[str, ...]]


def session_growth(uri: MemoryUri, earlier: Sequence[Turn], messages: Sequence[tuple[int, Message]]) -> SessionGrowth:
    """Index a session's new messages.

    Args:
        uri: The session's message log.
        earlier: The last ``2 * NEIGHBOURS`` indexed turns, oldest first.
        messages: The new messages with their line numbers.
    """
    said = [Turn(part, _turn(message), message.name or message.role) for part, message in messages]
    turns = [*earlier, *(turn for turn in said if turn.own.strip())]
    position = {turn.part: index for index, turn in enumerate(turns)}
    documents: list[Document] = []
    for part, message in messages:
        if part in position:
            documents.append(_message_document(uri, message, part, turns, position[part]))
    revised = {part: _passages(turns, position[part]) for part, _, _ in earlier[-NEIGHBOURS:]} if documents else {}
    return SessionGrowth(tuple(documents), revised)


def _message_document(uri: MemoryUri, message: Message, part: int, turns: Sequence[Turn], at: int) -> Document:
    time = message.time.isoformat() if message.time is not None else None
    return Document(
        uri=uri,
        part=part,
        context_type="resource",
        memory_type="message",
        name=uri.parent.name,
        abstract=transcript_line(message, ABSTRACT_LIMIT_CHARS),
        own=turns[at].own,
        previous="\n".join(turn.own[-PREVIOUS_CHARS:] for turn in _answered(turns, at)),
        heading=_told_dates(message),
        passages=_passages(turns, at),
        created_at=time,
        updated_at=time,
        happened=message.time.date().isoformat() if message.time is not None else None,
        substance=_substance(message),
        signature=signature(turns[at].own),
        role=message.role,
        speaker=turns[at].speaker,
        session_id=uri.parent.name,
        project=message.project,
        private=message.private,
    )


def _told_dates(message: Message) -> str:
    """When a message was sent, and the days that it means by "yesterday" or 下周三, in the words of questions."""
    if message.time is None:
        return ""
    told = time_spans(search_text(message)[:_TIMED_CHARS], message.time)
    meant = [span.start for span in told if span.relative and (span.end - span.start).days <= _MEANT_DAYS]
    return " ".join(map(date_words, dict.fromkeys([message.time.date(), *meant])))


def _answered(turns: Sequence[Turn], at: int) -> list[Turn]:
    """The turns before a short one that it may answer, oldest first: those after which somebody else spoke."""
    if word_count(turns[at].own) >= _ANSWER_WORDS:
        return []
    before = range(max(0, at - NEIGHBOURS), at)
    return [turns[one] for one in before if any(turn.speaker != turns[one].speaker for turn in turns[one : at + 1])]


def _passages(turns: Sequence[Turn], at: int) -> tuple[str, ...]:
    """The turn beside its neighbours; a turn that is too long for one passage, in pieces."""
    pieces = passages(simplified(turns[at].own))
    if len(pieces) != 1:
        return tuple(pieces[:TURN_PASSAGES])
    near, farther = (
        [simplified(turns[at + step].own) for step in (-reach, reach) if 0 <= at + step < len(turns)]
        for reach in range(1, NEIGHBOURS + 1)
    )
    return (turn_passage(pieces[0], near, farther),)


def _substance(message: Message) -> float:
    """How much a turn tells, in [0, 1]: by its words; what one person asks another tells nothing.

    What is said to an assistant is mostly asked, and tells what it is about.
    """
    said = search_text(message)
    if message.name:
        said = " ".join(sentence for sentence in sentences(said) if not sentence.rstrip().endswith(_ASKS))
    return math.log1p(min(_TELLING_WORDS, word_count(said))) / math.log1p(_TELLING_WORDS)


def _turn(message: Message) -> str:
    said = search_text(message)
    return f"{message.name}: {said}" if message.name and said else said


def _context_type(uri: MemoryUri, memory_type: str) -> str:
    if memory_type in ("tools", "skills"):
        return "skill"
    if uri.scope is Scope.SESSION or "logs" in uri.parts[2:3]:
        return "resource"
    return "memory"


def _happened(value: Any) -> str | None:
    """The date at the start of an event's time, to the day, month or year; None if there is none."""
    found = _DATE.match(value) if isinstance(value, str) else None
    return None if found is None else found[0]


def _date_heading(happened: str | None) -> str:
    try:
        return date_words(date.fromisoformat(happened or ""))
    except ValueError:
        return ""
