"""Short-term to mid-term: which pages of a session overflow, which segment each joins, and what the segments say then.

The last pages of a session stay as they are. Older ones, in order, join the segment that they fit best, or begin one
where none fits; pages that go on with what the page before them said are linked, and each chain of links says in every
segment it passes through what it is about. Keywords and summaries are taken from the words that were said. Pure: what a
text means comes in as a function, what was stored as values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from memory_core.index.keywords import comparable, cosine, joined, keywords, terms
from memory_core.model.changes import text_sha256
from memory_core.model.conversation import Message, parse_lines, search_text, transcript_line
from memory_core.model.exchange import exchanges, opener_of, speaker_of
from memory_core.model.forgetting import is_forgotten
from memory_core.model.language import spoken
from memory_core.model.record import first_words, summary_line
from memory_core.model.segment import EXTRACT, PERSON, Segment, SegmentPage
from memory_core.scoring.heat import segment_similarity
from memory_core.update import condensing

PAGE_KEYWORDS, SEGMENT_KEYWORDS = 8, 12
_CHAIN_KEYWORDS, _TITLE_KEYWORDS = 5, 3
SUMMARY_CHARS, _SUMMARY_SENTENCES, _SENTENCE_CHARS = 480, 4, 240
_COMPARED_CHARS = 1_500
_DIGEST_CHARS = 16
_REMEMBERED_PAGES = 1_024

#: How alike two texts are, in [-1, 1]; for what has no vectors, ``by_terms``.
Likeness = Callable[[str, str], float]


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
        return self.text[:_COMPARED_CHARS]


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

    def spans(self, since: int = 0) -> list[tuple[int, int]]:
        """First and last line of each page from a line on, which should begin one."""
        numbered = self._numbered(since, len(self._lines))
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


def by_terms(one: str, other: str) -> float:
    """How alike two texts are by their words alone."""
    return cosine(one, other)


@dataclass(frozen=True, slots=True)
class Rules:
    """How pages are sorted.

    Attributes:
        capacity: Pages that stay as they are, the last ones.
        threshold: Similarity from which a page joins a segment, or goes on with the page before.
        keyword_weight: Weight of the overlap of keywords in it.
        likeness: Of two texts.
    """

    capacity: int = 10
    threshold: float = 0.6
    keyword_weight: float = 1.0
    likeness: Likeness = by_terms


@dataclass(slots=True)
class _Topic:
    """A segment that is being added to."""

    name: str | None
    segment: Segment
    touched: bool = False
    compared: str = ""

    def __post_init__(self) -> None:
        self.compared = compared_text(self.segment)

    def takes(self, page: SessionPage) -> bool:
        return bool(self.segment.pages) and (self.segment.project, self.segment.private) == (page.project, page.private)


@dataclass(slots=True)
class Sorting:
    """The segments of one session while pages join them.

    Args:
        log: What was said.
        segments: By name, as they are stored.
        rules: How pages are sorted.
        session_id: Of the session.
        now: ISO 8601 in UTC.
    """

    log: SessionLog
    segments: Mapping[str, Segment]
    rules: Rules
    session_id: str
    now: str
    _topics: list[_Topic] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._topics = [_Topic(name, segment) for name, segment in self.segments.items()]

    def settle(self) -> None:
        """Bring stored segments up to the log: pages whose messages changed or are gone, and what was said of them."""
        for topic in self._topics:
            pages = [found for page in topic.segment.pages if (found := self._current(page)) is not None]
            if pages != list(topic.segment.pages):
                topic.segment = self._told(replace(topic.segment, pages=tuple(pages)), changed=True)
                topic.touched = True

    def add(self, page: SessionPage, before: SessionPage | None) -> None:
        """Sort one page in.

        Args:
            page: The next page that overflows.
            before: The page before it in the conversation, if there is one.
        """
        link = None if before is None or not self._goes_on(before, page) else self._stored(before.first)
        chain = page.first if link is None else link[1].chain
        added = SegmentPage(
            first=page.first,
            last=page.last,
            keywords=page.keywords,
            digest=page.digest,
            date=page.date,
            chain=chain,
            previous=None if link is None else link[1].first,
        )
        if link is not None:
            self._replace(link[0], replace(link[1], next=page.first))
        topic = self._best(page) or self._begun(page)
        segment = replace(
            topic.segment,
            pages=tuple(sorted((*topic.segment.pages, added), key=lambda each: each.first)),
            interactions=topic.segment.interactions + 1,
        )
        topic.segment, topic.touched = self._told(segment, changed=False), True
        topic.compared = compared_text(topic.segment)
        self._keep_in_step(chain)

    def result(self) -> list[tuple[str | None, Segment | None]]:
        """Segments that changed, with the name they are stored under or None for a new one; None is one left empty."""
        return [
            (topic.name, replace(topic.segment, updated_at=self.now) if topic.segment.pages else None)
            for topic in self._topics
            if topic.touched
        ]

    def _best(self, page: SessionPage) -> _Topic | None:
        """The segment that the page fits best, if well enough; of several as good ones the oldest."""
        own = comparable(page.keywords)
        best, most = None, self.rules.threshold
        for topic in self._topics:
            if not topic.takes(page):
                continue
            fits = self._similarity(page.compared, own, topic.compared, topic.segment.keywords)
            if fits >= most and (best is None or fits > most):
                best, most = topic, fits
        return best

    def _begun(self, page: SessionPage) -> _Topic:
        """A segment of its own."""
        title = " ".join(page.keywords[:_TITLE_KEYWORDS]) or first_words(page.text) or f"#{page.first}"
        segment = Segment(
            title=title,
            session_id=self.session_id,
            created_at=self.now,
            updated_at=self.now,
            project=page.project,
            private=page.private,
        )
        self._topics.append(_Topic(None, segment))
        return self._topics[-1]

    def _goes_on(self, before: SessionPage, page: SessionPage) -> bool:
        """Whether a page is about what the page before it was."""
        if (before.project, before.private) != (page.project, page.private):
            return False
        own = comparable(page.keywords)
        return self._similarity(page.compared, own, before.compared, before.keywords) >= self.rules.threshold

    def _similarity(self, text: str, words: frozenset[str], other: str, others: tuple[str, ...]) -> float:
        if not text.strip() or not other.strip():
            return 0.0
        likeness = max(-1.0, min(1.0, self.rules.likeness(text, other)))
        return segment_similarity(likeness, words, comparable(others), self.rules.keyword_weight)

    def _stored(self, first: int) -> tuple[_Topic, SegmentPage] | None:
        """A page in its segment, by its first line."""
        found = ((topic, page) for topic in self._topics for page in topic.segment.pages if page.first == first)
        return next(found, None)

    def _replace(self, topic: _Topic, page: SegmentPage) -> None:
        pages = tuple(page if each.first == page.first else each for each in topic.segment.pages)
        topic.segment, topic.touched = replace(topic.segment, pages=pages), True

    def _current(self, page: SegmentPage) -> SegmentPage | None:
        """A stored page as its messages are now; None where they are gone."""
        known = self.log.page(page.first, page.last)
        if known is None:
            return None
        if known.digest == page.digest:
            return page
        return replace(page, keywords=known.keywords, digest=known.digest, date=known.date)

    def _told(self, segment: Segment, *, changed: bool) -> Segment:
        """The segment with the keywords and the summary of its pages; what a model or a person wrote stays.

        Args:
            segment: With its pages.
            changed: Whether messages changed that a summary may quote: then a model's goes, too.
        """
        segment = replace(segment, keywords=joined([page.keywords for page in segment.pages], SEGMENT_KEYWORDS))
        if segment.summary_by == EXTRACT or (changed and segment.summary_by != PERSON):
            known = [self.log.page(page.first, page.last) for page in segment.pages]
            texts = [page.text for page in known if page is not None]
            return segment.summed_up(extract(texts, segment.keywords), EXTRACT)
        return segment

    def _keep_in_step(self, chain: int) -> None:
        """Say what a chain is about in every segment that it passes through."""
        within = [topic for topic in self._topics if any(page.chain == chain for page in topic.segment.pages)]
        pages = sorted(
            (page for topic in within for page in topic.segment.pages if page.chain == chain),
            key=lambda each: each.first,
        )
        if len(pages) < 2:
            return
        words = ", ".join(joined([page.keywords for page in pages], _CHAIN_KEYWORDS))
        told = f"{words} (#{pages[0].first}–{pages[-1].last})"
        for topic in within:
            if topic.segment.chains.get(chain) != told:
                topic.segment = replace(topic.segment, chains={**topic.segment.chains, chain: told})
                topic.touched = True


def compared_text(segment: Segment) -> str:
    """What a segment is compared by."""
    return "\n".join(part for part in (" ".join(segment.keywords), segment.summary) if part)[:_COMPARED_CHARS]


def overflowing(log: SessionLog, segments: Sequence[Segment], capacity: int) -> list[SessionPage]:
    """The pages that no longer stay as they are and belong to no segment yet, in order.

    Args:
        log: What was said.
        segments: Of the session, archived ones included.
        capacity: Pages that stay.
    """
    covered = max((segment.end for segment in segments), default=0)
    spans = log.spans(covered)
    found = (log.page(*span) for span in spans[: max(0, len(spans) - capacity)])
    return [page for page in found if page is not None]


def page_before(log: SessionLog, segments: Sequence[Segment], page: SessionPage) -> SessionPage | None:
    """The page of a segment that was said last before a page."""
    stored = (each for segment in segments for each in segment.pages if each.last < page.first)
    before = max(stored, key=lambda each: each.first, default=None)
    return None if before is None else log.page(before.first, before.last)


@lru_cache(maxsize=_REMEMBERED_PAGES)
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(condensing.sentences(text))


def extract(texts: Sequence[str], words: Sequence[str]) -> str:
    """The sentences that hold most of the keywords, word for word, in the order in which they were said."""
    told = [
        summary_line(sentence, _SENTENCE_CHARS)
        for sentence in dict.fromkeys(sentence for text in texts for sentence in _sentences(text))
    ]
    weight = {
        term: 1.0 / (1 + at) ** 0.5 for at, word in reversed(list(enumerate(words))) for term in comparable((word,))
    }
    held = [frozenset(terms(sentence)) & weight.keys() for sentence in told]
    chosen: list[int] = []
    said: set[str] = set()
    left = SUMMARY_CHARS
    while len(chosen) < _SUMMARY_SENTENCES:
        worth = [
            (sum(weight[term] for term in held[at] - said), -at)
            for at, sentence in enumerate(told)
            if at not in chosen and len(sentence) <= left
        ]
        best = max(worth, default=(0.0, 0))
        if best[0] <= 0.0:
            break
        chosen.append(-best[1])
        said |= held[-best[1]]
        left -= len(told[-best[1]])
    if not chosen and told:
        chosen = [0]
    return condensing.joined([told[at] for at in sorted(chosen)])
