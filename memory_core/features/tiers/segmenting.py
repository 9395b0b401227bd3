"""Short-term to mid-term: which pages of a session overflow, which segment each joins, and what the segments say then.

The last pages of a session stay as they are. Older ones, in order, join the segment that they fit best, or begin one
where none fits; pages that go on with what the page before them said are linked, and each chain of links says in every
segment it passes through what it is about. Keywords and summaries are taken from the words that were said. Pure: what a
text means comes in as a function, what was stored as values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, pairwise

from memory_core.core.memory.names import first_words, summary_line
from memory_core.core.memory.uri import Scope
from memory_core.core.text import extractive_summary
from memory_core.core.text.extractive_summary import common_keywords, comparable, cosine, terms
from memory_core.features.tiers.segment import (
    COMPARED_CHARS,
    EXTRACT,
    PERSON,
    LoggedExchange,
    Segment,
    SegmentExchange,
    SessionLog,
    is_named_by,
    segment_similarity,
)

SEGMENT_KEYWORDS = 12
_CHAIN_KEYWORDS, _TITLE_KEYWORDS, _TITLE_CHARS = 5, 3, 24
SUMMARY_CHARS, _SUMMARY_SENTENCES, _SENTENCE_CHARS = 480, 4, 240
#: Segments, the newest, that a page may join; older ones only where its chain passes through them.
COMPARED = 100
_SUMMED_PAGES = 20
_REMEMBERED_PAGES = 1_024

#: How alike two texts are, in [-1, 1]; by their words alone, ``cosine``.
Likeness = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How pages are sorted.

    Attributes:
        threshold: Similarity from which a page joins a segment, or goes on with the page before.
        keyword_weight: Weight of the overlap of keywords in it.
        likeness: Of two texts.
    """

    threshold: float = 0.6
    keyword_weight: float = 1.0
    likeness: Likeness = cosine


@dataclass(slots=True)
class _Topic:
    """A segment that is being added to; its place is that in the order in which segments began."""

    name: str | None
    segment: Segment
    place: int
    touched: bool = False
    _compared: str | None = None

    @property
    def compared(self) -> str:
        if self._compared is None:
            parts = (" ".join(self.segment.keywords), self.segment.summary)
            self._compared = "\n".join(part for part in parts if part)[:COMPARED_CHARS]
        return self._compared

    def takes(self, page: LoggedExchange) -> bool:
        """Whether a page may join: one that is left empty, or archived, takes none."""
        if not self.segment.pages or (self.name or "").startswith(f"viking://{Scope.ARCHIVE.value}/"):
            return False
        return (self.segment.project, self.segment.private) == (page.project, page.private)

    def becomes(self, segment: Segment) -> None:
        if segment != self.segment:
            self.segment, self.touched, self._compared = segment, True, None


@dataclass(slots=True)
class Sorting:
    """The segments of one session while pages join them.

    Args:
        log: What was said.
        segments: By name, as they are stored, in the order in which they began.
        rules: How pages are sorted.
        session_id: Of the session.
        now: ISO 8601 in UTC.
        analysed: Lines that promotions made memories of, whose segment is gone: their pages are marked.
    """

    log: SessionLog
    segments: Mapping[str, Segment]
    rules: Thresholds
    session_id: str
    now: str
    analysed: frozenset[int] = frozenset()
    _topics: list[_Topic] = field(default_factory=list)
    #: By place, the one that a page joined last at the end.
    _newest: dict[int, _Topic] = field(default_factory=dict)
    #: Chain of each page, by its first line; and the segments that a chain passes through, by place.
    _chain_of: dict[int, int] = field(default_factory=dict)
    _chains: dict[int, dict[int, _Topic]] = field(default_factory=dict)
    _grown: set[int] = field(default_factory=set)
    #: First lines of pages that mending took out.
    _gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._topics = [_Topic(name, segment, at) for at, (name, segment) in enumerate(self.segments.items())]
        for topic in sorted(self._topics, key=lambda each: each.segment.end):
            self._newest[topic.place] = topic
            for page in topic.segment.pages:
                self._note(topic, page)

    def mend(self) -> None:
        """Bring stored segments up to the log: pages whose messages changed or are gone, and what was said of them."""
        for topic in self._topics:
            pages = tuple(found for page in topic.segment.pages if (found := self._current(page)) is not None)
            if pages != topic.segment.pages:
                self._gone |= {page.first for page in topic.segment.pages} - {page.first for page in pages}
                self._grown |= {page.chain for page in topic.segment.pages}
                segment = self._titled(replace(topic.segment, pages=pages), topic.name or "")
                topic.becomes(self._summarised(segment, changed=True))

    def add(self, page: LoggedExchange, before: LoggedExchange | None) -> None:
        """Sort one page in.

        Args:
            page: A page that overflows.
            before: The page before it in the conversation, if there is one.
        """
        previous = None
        if before is not None and before.first in self._chain_of and self._goes_on(before, page):
            previous = before.first
        added = SegmentExchange(
            first=page.first,
            last=page.last,
            keywords=page.keywords,
            digest=page.digest,
            date=page.date,
            chain=page.first if previous is None else self._chain_of[previous],
            previous=previous,
            analysed=bool(self.analysed) and self.analysed.issuperset(range(page.first, page.last + 1)),
        )
        topic = self._best(page, added.chain) or self._begun(page)
        segment = replace(
            topic.segment,
            pages=tuple(sorted((*topic.segment.pages, added), key=lambda each: each.first)),
            interactions=topic.segment.interactions + (0 if added.analysed else 1),
        )
        topic.becomes(self._summarised(segment, changed=False))
        self._newest[topic.place] = self._newest.pop(topic.place, topic)
        self._note(topic, added)
        self._grown.add(added.chain)

    def result(self) -> list[tuple[str | None, Segment | None]]:
        """Segments that changed, with the name they are stored under or None for a new one; None is one left empty."""
        for chain in self._grown:
            self._link(chain)
        return [
            (topic.name, replace(topic.segment, updated_at=self.now) if topic.segment.pages else None)
            for topic in self._topics
            if topic.touched
        ]

    def _best(self, page: LoggedExchange, chain: int) -> _Topic | None:
        """The segment that the page fits best, if well enough; of several as good ones the oldest.

        Compared are the newest ones, and those that the page's chain passes through.
        """
        candidates = {
            topic.place: topic
            for topic in islice((topic for topic in reversed(self._newest.values()) if topic.takes(page)), COMPARED)
        }
        candidates |= self._chains.get(chain, {})
        own = comparable(page.keywords)
        best, most = None, self.rules.threshold
        for _, topic in sorted(candidates.items()):
            if not topic.takes(page):
                continue
            fits = self._similarity(page.compared, own, topic.compared, topic.segment.keywords)
            if fits >= most and (best is None or fits > most):
                best, most = topic, fits
        return best

    def _begun(self, page: LoggedExchange) -> _Topic:
        """A segment of its own."""
        segment = Segment(
            title=_title(page),
            session_id=self.session_id,
            created_at=self.now,
            updated_at=self.now,
            project=page.project,
            private=page.private,
        )
        self._topics.append(_Topic(None, segment, len(self._topics)))
        return self._topics[-1]

    def _goes_on(self, before: LoggedExchange, page: LoggedExchange) -> bool:
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

    def _note(self, topic: _Topic, page: SegmentExchange) -> None:
        self._chain_of[page.first] = page.chain
        self._chains.setdefault(page.chain, {})[topic.place] = topic

    def _current(self, page: SegmentExchange) -> SegmentExchange | None:
        """A stored page as its messages are now; None where they are gone."""
        known = self.log.page(page.first, page.last)
        if known is None:
            return None
        if known.digest == page.digest:
            return page
        return replace(page, keywords=known.keywords, digest=known.digest, date=known.date)

    def _titled(self, segment: Segment, uri: str) -> Segment:
        """The segment with a title that one of its pages gives; one unlike the file's name is a person's."""
        pages = (self.log.page(page.first, page.last) for page in segment.pages)
        titles = [_title(page) for page in pages if page is not None]
        if not titles or segment.title in titles or not is_named_by(uri.rpartition("/")[2], segment.title):
            return segment
        return replace(segment, title=titles[0])

    def _summarised(self, segment: Segment, *, changed: bool) -> Segment:
        """The segment with the keywords and the summary of its pages; what a model or a person wrote stays.

        Args:
            segment: With its pages.
            changed: Whether messages changed that a summary may quote: then a model's goes, too.
        """
        segment = replace(
            segment, keywords=common_keywords([page.keywords for page in segment.pages], SEGMENT_KEYWORDS)
        )
        if segment.summary_by == EXTRACT or (changed and segment.summary_by != PERSON):
            # A long segment's summary goes on from what it was: reading all of it for each page takes too long.
            goes_on = not changed and len(segment.pages) > _SUMMED_PAGES and bool(segment.summary)
            pages = segment.pages[-_SUMMED_PAGES:] if goes_on else segment.pages
            known = [self.log.page(page.first, page.last) for page in pages]
            turns = [("", segment.summary)] if goes_on else []
            turns += [turn for page in known if page is not None for turn in page.turns]
            return segment.summed_up(extract(turns, segment.keywords), EXTRACT)
        return segment

    def _link(self, chain: int) -> None:
        """Link the pages of a chain both ways, and say what it is about in every segment that it passes through."""
        within = self._chains[chain].values()
        pages = sorted(
            (page for topic in within for page in topic.segment.pages if page.chain == chain),
            key=lambda each: each.first,
        )
        links = {page.first: self._unlinked(page) for page in pages}
        for before, page in pairwise(pages):
            links[before.first] = replace(links[before.first], next=page.first)
            links[page.first] = replace(links[page.first], previous=before.first)
        words = ", ".join(common_keywords([page.keywords for page in pages], _CHAIN_KEYWORDS))
        about = {chain: f"{words} (#{pages[0].first}–{pages[-1].last})"} if len(pages) > 1 else {}
        for topic in within:
            own = tuple(links.get(page.first, page) for page in topic.segment.pages)
            others = {at: told for at, told in topic.segment.chains.items() if at != chain}
            passes = any(page.chain == chain for page in own)
            topic.becomes(replace(topic.segment, pages=own, chains=others | about if passes else others))

    def _unlinked(self, page: SegmentExchange) -> SegmentExchange:
        """The page without links to pages that are gone."""
        return replace(
            page,
            previous=None if page.previous in self._gone else page.previous,
            next=None if page.next in self._gone else page.next,
        )


def overflowing(log: SessionLog, covered: Sequence[tuple[int, int]], capacity: int) -> list[LoggedExchange]:
    """The pages that no longer stay as they are and belong to no segment yet, in order.

    Pages between those of segments, which an undo or a deletion opened again, no longer stay, however many there are.

    Args:
        log: What was said.
        covered: Lines of the session's segments, archived and damaged ones included; see ``spans_of``.
        capacity: Pages at the end that stay.
    """
    ends = [0, *(end for _, end in covered)]
    opened = [
        span for end, (first, _) in zip(ends, covered, strict=False) if end < first for span in log.spans(end, first)
    ]
    tail = log.spans(ends[-1])
    found = (log.page(*span) for span in [*opened, *tail[: max(0, len(tail) - capacity)]])
    return [page for page in found if page is not None]


def exchanges_before(
    log: SessionLog, stored: Iterable[SegmentExchange], pages: Sequence[LoggedExchange]
) -> list[LoggedExchange | None]:
    """The page that was said right before each of some pages: of a segment, or another one of them."""
    spans = sorted({(page.first, page.last) for page in stored} | {(page.first, page.last) for page in pages})
    before = (spans[at - 1] if (at := bisect_left(spans, (page.first, 0))) else None for page in pages)
    return [None if span is None else log.page(*span) for span in before]


@lru_cache(maxsize=_REMEMBERED_PAGES)
def _sentences(text: str) -> tuple[str, ...]:
    return tuple(extractive_summary.sentences(text))


def extract(turns: Iterable[tuple[str, str]], words: Sequence[str]) -> str:
    """The sentences that hold most of the keywords, word for word, in the order in which they were said.

    Args:
        turns: Who said what; each sentence is given with the name where one is known.
        words: The keywords.
    """
    speakers: dict[str, str] = {}
    for speaker, text in turns:
        for sentence in _sentences(text):
            speakers.setdefault(summary_line(sentence, _SENTENCE_CHARS), speaker)
    sentences = list(speakers)
    weight = {
        term: 1.0 / (1 + at) ** 0.5 for at, word in reversed(list(enumerate(words))) for term in comparable((word,))
    }
    held = [frozenset(terms(sentence)) & weight.keys() for sentence in sentences]
    chosen: list[int] = []
    covered: set[str] = set()
    left = SUMMARY_CHARS
    while len(chosen) < _SUMMARY_SENTENCES:
        worth = [
            (sum(weight[term] for term in held[at] - covered), -at)
            for at, sentence in enumerate(sentences)
            if at not in chosen and len(sentence) <= left
        ]
        best = max(worth, default=(0.0, 0))
        if best[0] <= 0.0:
            break
        chosen.append(-best[1])
        covered |= held[-best[1]]
        left -= len(sentences[-best[1]])
    kept = [sentences[at] for at in sorted(chosen)] or sentences[:1]
    named = ((speakers[sentence], sentence) for sentence in kept)
    return extractive_summary.joined([f"{speaker}: {text}" if speaker else text for speaker, text in named])


def _title(page: LoggedExchange) -> str:
    """A heading: keywords, or how it begins where they are runs of characters that nobody parted into words."""
    words = page.keywords[:_TITLE_KEYWORDS]
    begins = first_words(page.text, _TITLE_CHARS)
    chosen = begins if not all(word.isascii() for word in words) else " ".join(words)
    return chosen or begins or f"#{page.first}"
