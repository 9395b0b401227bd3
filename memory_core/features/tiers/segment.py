"""A segment: what a session said about one topic, as a Markdown file that people can read and edit.

``viking://session/{space}/{session_id}/segments/{title}.md``. The body is a heading, a summary and a line for each
exchange, which names the messages it spans and the exchanges before and after it. The trailer holds what programs
need; its key for exchanges is ``pages``. The messages themselves stay in ``messages.jsonl``: a segment only points at
them.

``parse_segment`` and ``dump_segment`` are inverse on every file that was written here. A summary or heading that a
person changed, and lines that a person added below the exchanges, stay; the lines of the exchanges are written anew.
Numbers beyond reason (a slip of the hand) are cut or passed over, and of a damaged file ``readable_exchanges`` reads
what is left. Pure.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memory_core.core.caches import remembered
from memory_core.core.commit.forgotten import is_forgotten
from memory_core.core.config import TiersConfig
from memory_core.core.feature import Feature, RecordKind
from memory_core.core.index.documents import MESSAGES_NAME
from memory_core.core.memory.exchange import Speaker, exchange_spans, opener_of, speaker_of
from memory_core.core.memory.message import Message, parse_lines, search_text, transcript_line
from memory_core.core.memory.names import render, summary_line
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import join, read_members, split
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.search.fusion import jaccard
from memory_core.core.text.language import without_machine_text

if TYPE_CHECKING:
    from memory_core.core.search.context_sources import PieceReader


def heat(visits: int, interactions: int, hours: float, tiers: TiersConfig) -> float:
    """Heat of a segment: alpha * visits + beta * interactions + gamma * exp(-hours / tau).

    3 visits, 5 interactions and 24 hours are 8.368 with all weights 1 and tau 24.

    Args:
        visits: Retrievals from the segment since it was last cooled, >= 0.
        interactions: Exchanges that joined it since then, >= 0.
        hours: Since the last visit, else since it began; less than 0 (clocks differ) counts as 0.
        tiers: The settings ``heat_alpha``, ``heat_beta``, ``heat_gamma`` and ``heat_tau_hours``.
    """
    recency = math.exp(-max(0.0, hours) / tiers.heat_tau_hours)
    return tiers.heat_alpha * visits + tiers.heat_beta * interactions + tiers.heat_gamma * recency


def segment_similarity(
    cosine: float, keywords: frozenset[str], others: frozenset[str], keyword_weight: float = 1.0
) -> float:
    """Cosine + keyword_weight * Jaccard(keywords).

    Cosine 0.5 with one of three keywords shared is 0.8333; below 0.6 an exchange begins a segment of its own.

    Args:
        cosine: Of the two texts, in [-1, 1].
        keywords: Of the exchange.
        others: Of the segment.
        keyword_weight: >= 0.
    """
    return cosine + keyword_weight * jaccard(keywords, others)


MEMORY_TYPE = "segment"
_DIRECTORY = "segments"
EXTRACT, MODEL, PERSON = "extract", "model", "person"
_HEADINGS = ("## Pages", "## 对话")
_NAME_MARK = re.compile(r"~[0-9a-f]{8}\.md$")
_HAN = re.compile("[\u4e00-\u9fff]")
_EXCHANGE_LINE = re.compile(r"^- `messages\.jsonl#(\d{1,10})(?:[–-](\d{1,10}))?`", re.MULTILINE)
#: An exchange in the trailer: an object that holds no other.
_EXCHANGE_OBJECT = re.compile(r"\{[^{}]*\}")
#: What no conversation reaches: a number beyond it is a slip.
_LINE_LIMIT, _EXCHANGE_LINES_LIMIT, _COUNT_LIMIT = 1_000_000_000, 100_000, 1_000_000_000
#: Segments are read far more often than they change.
_REMEMBERED_SEGMENTS, _REMEMBERED_BYTES = 2_048, 32 << 20
_COUNTS = ("summarised", "interactions", "visits_counted")
#: Keys of a segment's trailer, in their order there: members of the same name, and ``pages``, its exchanges.
_EXCHANGES_KEY = "pages"
_KEYS = (
    *("title", "summary", "summary_by", "summarised", "keywords", _EXCHANGES_KEY, "chains", "interactions"),
    *("visits_counted", "last_visit_at", "created_at", "updated_at", "project", "private"),
)
_OWN = frozenset((*_KEYS, "memory_type", "source"))


@dataclass(frozen=True, slots=True)
class SegmentExchange:
    """One exchange of a segment.

    Attributes:
        first: Line of its first message in ``messages.jsonl``, from 0; names the exchange within its session.
        last: Line of its last message.
        keywords: Of what was said, the best first.
        digest: Of its lines as they were when it was read.
        date: ``YYYY-MM-DD`` of its first dated message.
        chain: First line of the first exchange of its chain; exchanges of a chain follow each other on one topic.
        previous: First line of the exchange before it in its chain; None where it begins one.
        next: First line of the exchange after it in its chain.
        analysed: Whether a promotion made memories of it. What ordinary extraction took, the queue knows.
    """

    first: int
    last: int
    keywords: tuple[str, ...] = ()
    digest: str = ""
    date: str | None = None
    chain: int = 0
    previous: int | None = None
    next: int | None = None
    analysed: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """What one session said about one topic.

    Attributes:
        title: Heading, and at first the file's name.
        session_id: Of the session.
        summary: Of all its exchanges.
        summary_by: ``extract`` (sentences of its own), ``model`` or ``person``.
        summarised: Exchanges that the summary is of; a model's may lag behind.
        keywords: Of all its exchanges.
        exchanges: In the order of the conversation.
        chains: What each chain that passes through here is about, by the chain's name.
        interactions: Exchanges that joined since the segment was last cooled.
        visits_counted: Of all its visits, those that were cooled away.
        last_visit_at: Last visit as it was known when the file was written, ISO 8601.
        created_at: ISO 8601 in UTC; likewise ``updated_at``.
        project: Of its messages; segments never mix projects.
        private: Whether they are private to it.
        notes: Lines that a person added below the exchanges.
        more: Other keys of the trailer.
    """

    title: str
    session_id: str
    summary: str = ""
    summary_by: str = EXTRACT
    summarised: int = 0
    keywords: tuple[str, ...] = ()
    exchanges: tuple[SegmentExchange, ...] = ()
    chains: Mapping[int, str] = field(default_factory=dict)
    interactions: int = 0
    visits_counted: int = 0
    last_visit_at: str | None = None
    created_at: str = ""
    updated_at: str = ""
    project: str | None = None
    private: bool = False
    notes: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The line after its last exchange."""
        return max((exchange.last + 1 for exchange in self.exchanges), default=0)

    def holds(self, line: int) -> bool:
        """Whether a message of this line belongs to one of its exchanges."""
        return any(exchange.first <= line <= exchange.last for exchange in self.exchanges)

    def lines(self) -> list[int]:
        """The lines of all its exchanges."""
        return [line for exchange in self.exchanges for line in range(exchange.first, exchange.last + 1)]

    def summed_up(self, summary: str, by: str) -> Segment:
        """With another summary of all its exchanges."""
        return replace(self, summary=" ".join(summary.split()), summary_by=by, summarised=len(self.exchanges))


def segments_of(log: MemoryUri) -> MemoryUri:
    """Directory of the segments of a session, by the URI of its log."""
    return log.parent.child(_DIRECTORY)


def is_segment(uri: MemoryUri) -> bool:
    """Whether a file is a segment, archived or not."""
    parts = uri.parts[1:] if uri.scope is Scope.ARCHIVE else uri.parts
    place = len(parts) == 5 and parts[0] == Scope.SESSION.value and parts[3] == _DIRECTORY
    return place and parts[4].endswith(".md") and not uri.is_summary


def log_of(uri: MemoryUri) -> MemoryUri:
    """The log that a segment points at, wherever the segment is."""
    parts = uri.parts[1:] if uri.scope is Scope.ARCHIVE else uri.parts
    return MemoryUri((*parts[:3], MESSAGES_NAME))


def file_name(title: str) -> str:
    """The name of a new segment's file."""
    return render("{title}.md", {"title": title})


def is_named_by(name: str, title: str) -> bool:
    """Whether a file has the name of this title, or that with a mark; see ``WorkingCopy.free_beside``."""
    return _NAME_MARK.sub(".md", name) == file_name(title)


@remembered(_REMEMBERED_SEGMENTS, _REMEMBERED_BYTES)
def parse_segment(text: str) -> Segment | None:
    """Read a segment; None where the file is none, or its trailer cannot be read."""
    file = split(text)
    if file.trailer is None or file.damage is not None or file.type_name != MEMORY_TYPE:
        return None
    meta = file.trailer
    source, listed = meta.get("source"), meta.get(_EXCHANGES_KEY)
    exchanges = [
        exchange for each in (listed if isinstance(listed, list) else []) if (exchange := _exchange(each)) is not None
    ]
    given = {name: meta.get(name) for name in _KEYS if name != _EXCHANGES_KEY}
    given |= {
        "title": meta.get("title") or "",
        "session_id": (source.get("session_id") if isinstance(source, dict) else None) or "",
        "exchanges": sorted(exchanges, key=lambda exchange: exchange.first),
        "more": {name: value for name, value in meta.items() if name not in _OWN},
    }
    found = read_members(Segment, given)
    if found is None:  # a title that is no text
        return None
    counts = {name: max(0, min(getattr(found, name), _COUNT_LIMIT)) for name in _COUNTS}
    stored = replace(found, chains={at: told for at, told in found.chains.items() if at <= _LINE_LIMIT}, **counts)
    return _as_edited(stored, file.body)


def readable_exchanges(text: str) -> tuple[SegmentExchange, ...]:
    """The exchanges of a segment, of a damaged one as far as they can be read; none where the file is no segment."""
    segment = parse_segment(text)
    if segment is not None:
        return segment.exchanges
    found = {
        exchange.first: exchange
        for match in _EXCHANGE_OBJECT.finditer(text)
        if (exchange := _exchange(_loaded(match[0]))) is not None
    }
    for match in _EXCHANGE_LINE.finditer(text):
        exchange = _exchange({"first": int(match[1]), "last": int(match[2] or match[1])})
        if exchange is not None:
            found.setdefault(exchange.first, exchange)
    return tuple(found[first] for first in sorted(found))


def spans_of(exchanges: Iterable[SegmentExchange]) -> tuple[tuple[int, int], ...]:
    """The lines that exchanges cover together, as ``(first, end)``, ``end`` not included, in order and apart."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted((exchange.first, exchange.last) for exchange in exchanges):
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last + 1))
        else:
            spans.append((first, last + 1))
    return tuple(spans)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def dump_segment(segment: Segment) -> str:
    """The file of a segment."""
    members = {name: getattr(segment, name) for name in _KEYS if name != _EXCHANGES_KEY}
    members |= {
        "keywords": list(segment.keywords),
        _EXCHANGES_KEY: [_stored(exchange) for exchange in segment.exchanges],
        "chains": {str(chain): told for chain, told in sorted(segment.chains.items())},
        "source": {"kind": "auto_reflection", "session_id": segment.session_id},
        "private": True if segment.private and segment.project is not None else None,
    }
    ordered = {name: members[name] for name in (*_KEYS[:-2], "source", *_KEYS[-2:])}
    trailer = {"memory_type": MEMORY_TYPE, **{name: value for name, value in ordered.items() if value is not None}}
    heading = _HEADINGS[1 if _HAN.search(f"{segment.title} {segment.summary}") else 0]
    exchanges = [_shown(exchange) for exchange in segment.exchanges]
    below = ["", *segment.notes] if segment.notes else []
    body = "\n".join([f"# {segment.title}", "", segment.summary, "", heading, "", *exchanges, *below])
    return join(body, trailer | dict(segment.more))


def _stored(exchange: SegmentExchange) -> dict[str, Any]:
    """JSON form without empty members."""
    members = {each.name: getattr(exchange, each.name) for each in fields(exchange)}
    members |= {"keywords": list(exchange.keywords), "analysed": exchange.analysed or None}
    return {name: value for name, value in members.items() if value is not None}


def _shown(exchange: SegmentExchange) -> str:
    """The line of an exchange: ``- `messages.jsonl#4–5` (2026-05-02): temple, kyoto; before #0, after #8``."""
    span = str(exchange.first) if exchange.first == exchange.last else f"{exchange.first}–{exchange.last}"
    dated = "" if exchange.date is None else f" ({exchange.date})"
    links = [
        f"{name} #{line}"
        for name, line in (("before", exchange.previous), ("after", exchange.next))
        if line is not None
    ]
    told = "; ".join(part for part in (", ".join(exchange.keywords), ", ".join(links)) if part)
    return f"- `messages.jsonl#{span}`{dated}" + (f": {told}" if told else "")


def _as_edited(stored: Segment, body: str) -> Segment:
    """The segment with what a person made of its body."""
    lines = body.replace("\r\n", "\n").split("\n")
    at = next((at for at in reversed(range(len(lines))) if lines[at].strip() in _HEADINGS), len(lines))
    head, below = "\n".join(lines[:at]).strip(), lines[at + 1 :]
    title = stored.title
    if head.startswith("# "):
        heading, _, head = head.partition("\n")
        title, head = heading[2:].strip() or title, head.strip()
    notes = "\n".join(line for line in below if not _EXCHANGE_LINE.match(line)).strip()
    edited = replace(stored, title=title, notes=tuple(notes.split("\n")) if notes else ())
    if head == stored.summary.strip():
        return edited
    return replace(edited, summary=head, summary_by=PERSON, summarised=len(stored.exchanges))


def _exchange(stored: object) -> SegmentExchange | None:
    """An exchange as a trailer has it; None where its lines cannot be right."""
    if not isinstance(stored, Mapping):
        return None
    exchange = read_members(SegmentExchange, {"chain": stored.get("first"), **stored})
    if exchange is None or not 0 <= exchange.first <= exchange.last < min(
        exchange.first + _EXCHANGE_LINES_LIMIT, _LINE_LIMIT
    ):
        return None
    chain = exchange.first if _line(exchange.chain) is None else exchange.chain
    return replace(exchange, chain=chain, previous=_line(exchange.previous), next=_line(exchange.next))


def _line(line: int | None) -> int | None:
    return line if line is not None and 0 <= line < _LINE_LIMIT else None


_EXCHANGE_KEYWORDS = 8
#: Of a text that is compared with others.
COMPARED_CHARS = 1_500
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class LoggedExchange:
    """An exchange as a session's log holds it.

    Attributes:
        first: Line of its first message; ``last`` of its last one.
        compared: How what was said begins, by which it is compared.
        turns: What was said by message, prompts left out, each with the name of who said it; empty where none is known.
        digest: Of its messages.
        date: ``YYYY-MM-DD`` of the first dated one.
        project: That its messages belong to; where any is private, the project of that one.
        private: Whether any of them is private to it.
        keywords: Of the text, the best first.
    """

    first: int
    last: int
    compared: str
    digest: str
    date: str | None = None
    project: str | None = None
    private: bool = False
    keywords: tuple[str, ...] = ()
    turns: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """What was said, prompts left out."""
        return "\n".join(words for _, words in self.turns)


_PIECE_BYTES = 1 << 20


class SessionLog:
    """The log of a session, read as exchanges; only what is asked for is read.

    Args:
        text: Its JSON lines; damaged ones are passed over.
    """

    def __init__(self, text: str) -> None:
        #: In UTF-8: one character beyond the Basic Multilingual Plane makes each one of a text take four bytes.
        self._content = text.encode("utf-8", "surrogatepass")
        #: Where each line starts, and where one behind the last would.
        self._starts = array("q", [len(BOM_UTF8) if self._content.startswith(BOM_UTF8) else 0])
        while (end := self._content.find(b"\n", self._starts[-1])) >= 0:
            self._starts.append(end + 1)
        self._starts.append(len(self._content) + 1)
        self._exchanges: dict[tuple[int, int], LoggedExchange | None] = {}

    @property
    def line_ends(self) -> int:
        """How many lines end."""
        return self._count - 1

    def begins(self, text: str) -> bool:
        """Whether a text begins with all of this one."""
        at = 0
        decoder = getincrementaldecoder("utf-8")("surrogatepass")
        for start in range(0, len(self._content), _PIECE_BYTES):
            piece = decoder.decode(self._content[start : start + _PIECE_BYTES])
            if not text.startswith(piece, at):
                return False
            at += len(piece)
        return True

    def lines(self) -> list[int]:
        """The line of each message that can be read, in order."""
        return [line for line, _ in self._numbered(0, self._count)]

    def spans(self, since: int = 0, until: int | None = None) -> list[tuple[int, int]]:
        """First and last line of each exchange from a line on, which should begin one, up to another, not included."""
        lines: list[int] = []

        def messages() -> Iterator[Message]:
            for line, message in self._numbered(since, self._count if until is None else min(until, self._count)):
                lines.append(line)
                yield message

        return [(lines[first], lines[end - 1]) for first, end in exchange_spans(messages(), self._opener)]

    def exchange(self, first: int, last: int) -> LoggedExchange | None:
        """The exchange of these lines; None where there is nothing of it, or nothing in words."""
        if (first, last) not in self._exchanges:
            messages = self._messages(first, last)
            exchange = _session_exchange(first, last, messages) if messages else None
            self._exchanges[first, last] = exchange if exchange is not None and exchange.turns else None
        return self._exchanges[first, last]

    def digest(self, first: int, last: int) -> str:
        """Of the messages of these lines, as an exchange of them has it; their words are not looked into."""
        return _digest(self._messages(first, last))

    @property
    def _count(self) -> int:
        """How many lines there are."""
        return len(self._starts) - 1

    @cached_property
    def _opener(self) -> Speaker:
        return opener_of(speaker_of(message) for _, message in self._numbered(0, self._count))

    def _numbered(self, start: int, end: int) -> Iterator[tuple[int, Message]]:
        return ((line, message) for line in range(start, end) if (message := self._message(line)) is not None)

    def _messages(self, first: int, last: int) -> list[Message]:
        """Those of these lines; none where the log ends before."""
        return [message for _, message in self._numbered(first, last + 1)] if last < self._count else []

    def _message(self, line: int) -> Message | None:
        content = self._content[self._starts[line] : self._starts[line + 1] - 1]
        return next(iter(parse_lines(content.decode("utf-8", "surrogatepass"))[0]), None)


def _digest(messages: Iterable[Message]) -> str:
    return text_sha256("\n".join(transcript_line(message, None) for message in messages))[:_DIGEST_CHARS]


def _session_exchange(first: int, last: int, messages: Sequence[Message]) -> LoggedExchange:
    from memory_core.core.text.extractive_summary import keywords  # whoever only tells what a file is needs none

    shown = [message for message in messages if speaker_of(message) is not None and not is_forgotten(message)]
    turns = tuple(
        (message.name or "", text) for message in shown if (text := without_machine_text(search_text(message)).strip())
    )
    text = "\n".join(words for _, words in turns)
    private = next((message for message in messages if message.private), None)
    dates = (message.time.date().isoformat() for message in messages if message.time is not None)
    return LoggedExchange(
        first=first,
        last=last,
        compared=text[:COMPARED_CHARS],
        digest=_digest(messages),
        date=next(dates, None),
        project=(private or messages[-1]).project,
        private=private is not None,
        keywords=keywords(text, _EXCHANGE_KEYWORDS),
        turns=turns,
    )


#: Segments of one conversation that a context reads.
_SEGMENTS = 10_000
_OVERVIEW_CHARS = 160


class Segments(RecordKind):
    """Segments; they are not searched, and show no more than their session."""

    name = MEMORY_TYPE

    def holds(self, uri: MemoryUri) -> bool:
        """Whether this is a segment."""
        return is_segment(uri)

    def privacy_source(self, uri: MemoryUri) -> MemoryUri:
        """The log that it points at."""
        return log_of(uri)

    def resting_lines(self, uri: MemoryUri, text: str) -> tuple[MemoryUri, Sequence[tuple[int, int]]]:
        """The lines of its exchanges; those of a damaged one as far as they can be read."""
        return log_of(uri), [(exchange.first, exchange.last) for exchange in readable_exchanges(text)]


def turn_groups(reader: PieceReader) -> Callable[[str, int], tuple[str, str] | None]:
    """The segment that holds a turn, and what it is about in a line.

    Sentences that were only taken from its exchanges say nothing of what it is about.
    """
    read: dict[str, list[tuple[str, Segment]]] = {}

    def group_of(log: str, line: int) -> tuple[str, str] | None:
        if log not in read:
            directory = segments_of(MemoryUri.parse(log))
            uris = [f"{directory}/{name}" for name in reader.ledger.directories.newest(directory, _SEGMENTS)]
            parsed = ((uri, parse_segment(reader.text(uri))) for uri in uris)
            read[log] = [(uri, segment) for uri, segment in parsed if segment is not None]
        for uri, segment in read[log]:
            if segment.holds(line):
                return uri, "" if segment.summary_by == EXTRACT else summary_line(segment.summary, _OVERVIEW_CHARS)
        return None

    return group_of


FEATURE = Feature(record_kinds=(Segments(),), turn_groups=turn_groups)
