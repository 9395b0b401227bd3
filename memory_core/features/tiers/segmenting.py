"""Short-term to mid-term: which exchanges of a session overflow, which segment each joins, and what segments say then.

The last exchanges of a session stay as they are. Older ones, in order, join the segment that they fit best, or begin
one where none fits; exchanges that go on with what the exchange before them said are linked, and each chain of links
says in every segment it passes through what it is about. Keywords and summaries are taken from the words that were
said. Pure: what a text means comes in as a function, what was stored as values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from memory_core.core.caches import remembered
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

_SEGMENT_KEYWORDS = 12
_CHAIN_KEYWORDS, _TITLE_KEYWORDS, _TITLE_CHARS = 5, 3, 24
SUMMARY_CHARS, _SUMMARY_SENTENCES, _SENTENCE_CHARS = 480, 4, 240
#: Segments, the newest, that an exchange may join; older ones only where its chain passes through them.
COMPARED = 100
_SUMMED_EXCHANGES = 20
#: Exchanges of one segment, and lines from one end of a chain to the other: each one that joins has all of them read
#: and written anew. What goes on beyond them begins another.
MOST_EXCHANGES, MOST_CHAIN_LINES = 500, 1_000
_REMEMBERED_EXCHANGES = 1_024

#: How alike two texts are, in [-1, 1]; by their words alone, ``cosine``.
Likeness = Callable[[str, str], float]


@dataclass(frozen=True, slots=True)
class SortingRules:
    """How exchanges are sorted.

    Attributes:
        threshold: Similarity from which an exchange joins a segment, or goes on with the exchange before.
        keyword_weight: Weight of the overlap of keywords in it.
        likeness: Of two texts.
    """

    threshold: float = 0.6
    keyword_weight: float = 1.0
    likeness: Likeness = cosine


@dataclass(slots=True)
class _OpenSegment:
    """A segment that is being added to.

    Attributes:
        uri: Where it is stored; None for a new one.
        segment: As it is by now.
        order: In which place it began among the segments.
        touched: Whether it changed.
    """

    uri: str | None
    segment: Segment
    order: int
    touched: bool = False
    _compared: str | None = None

    @property
    def compared(self) -> str:
        if self._compared is None:
            parts = (" ".join(self.segment.keywords), self.segment.summary)
            self._compared = "\n".join(part for part in parts if part)[:COMPARED_CHARS]
        return self._compared

    def takes(self, exchange: LoggedExchange) -> bool:
        """Whether an exchange may join: one that is left empty, is full or archived takes none."""
        if not 0 < len(self.segment.exchanges) < MOST_EXCHANGES:
            return False
        if (self.uri or "").startswith(f"viking://{Scope.ARCHIVE.value}/"):
            return False
        return (self.segment.project, self.segment.private) == (exchange.project, exchange.private)

    def becomes(self, segment: Segment) -> None:
        if segment != self.segment:
            self.segment, self.touched, self._compared = segment, True, None


@dataclass(slots=True)
class Sorting:
    """The segments of one session while exchanges join them.

    Args:
        log: What was said.
        segments: By URI, as they are stored, in the order in which they began.
        rules: How exchanges are sorted.
        session_id: Of the session.
        now: ISO 8601 in UTC.
        analysed: Lines that promotions made memories of, whose segment is gone: their exchanges are marked.
    """

    log: SessionLog
    segments: Mapping[str, Segment]
    rules: SortingRules
    session_id: str
    now: str
    analysed: frozenset[int] = frozenset()
    _open: list[_OpenSegment] = field(default_factory=list)
    #: By order, the one that an exchange joined last at the end.
    _newest: dict[int, _OpenSegment] = field(default_factory=dict)
    #: Chain of each exchange, by its first line; and the segments that a chain passes through, by order.
    _chain_of: dict[int, int] = field(default_factory=dict)
    _chains: dict[int, dict[int, _OpenSegment]] = field(default_factory=dict)
    #: Chains whose exchanges changed.
    _to_link: set[int] = field(default_factory=set)
    #: First lines of exchanges that mending took out.
    _gone: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._open = [_OpenSegment(uri, segment, order) for order, (uri, segment) in enumerate(self.segments.items())]
        for opened in sorted(self._open, key=lambda each: each.segment.end):
            self._newest[opened.order] = opened
            for exchange in opened.segment.exchanges:
                self._note(opened, exchange)

    def mend(self) -> None:
        """Bring stored segments up to the log, where messages of exchanges changed or are gone."""
        for opened in self._open:
            exchanges = tuple(
                found for exchange in opened.segment.exchanges if (found := self._current(exchange)) is not None
            )
            if exchanges != opened.segment.exchanges:
                self._gone |= {exchange.first for exchange in opened.segment.exchanges} - {
                    exchange.first for exchange in exchanges
                }
                self._to_link |= {exchange.chain for exchange in opened.segment.exchanges}
                segment = self._titled(replace(opened.segment, exchanges=exchanges), opened.uri or "")
                opened.becomes(self._summarised(segment, changed=True))

    def add(self, exchange: LoggedExchange, before: LoggedExchange | None) -> None:
        """Sort one exchange in.

        Args:
            exchange: An exchange that overflows.
            before: The exchange before it in the conversation, if there is one.
        """
        previous = None
        begun = None if before is None else self._chain_of.get(before.first)
        if before is not None and begun is not None and exchange.last - begun < MOST_CHAIN_LINES:
            previous = before.first if self._goes_on(before, exchange) else None
        added = SegmentExchange(
            first=exchange.first,
            last=exchange.last,
            keywords=exchange.keywords,
            digest=exchange.digest,
            date=exchange.date,
            chain=exchange.first if previous is None else self._chain_of[previous],
            previous=previous,
            analysed=bool(self.analysed) and self.analysed.issuperset(range(exchange.first, exchange.last + 1)),
        )
        opened = self._best(exchange, added.chain) or self._begun(exchange)
        segment = replace(
            opened.segment,
            exchanges=tuple(sorted((*opened.segment.exchanges, added), key=lambda each: each.first)),
            interactions=opened.segment.interactions + (0 if added.analysed else 1),
        )
        opened.becomes(self._summarised(segment, changed=False))
        self._newest[opened.order] = self._newest.pop(opened.order, opened)
        self._note(opened, added)
        self._to_link.add(added.chain)

    def result(self) -> list[tuple[str | None, Segment | None]]:
        """The segments that changed: pairs of URI (None: a new segment) and segment (None: nothing of it is left)."""
        for chain in self._to_link:
            self._link(chain)
        return [
            (opened.uri, replace(opened.segment, updated_at=self.now) if opened.segment.exchanges else None)
            for opened in self._open
            if opened.touched
        ]

    def _best(self, exchange: LoggedExchange, chain: int) -> _OpenSegment | None:
        """The segment that the exchange fits best, if well enough; of several as good ones the oldest.

        Compared are the newest ones, and those that the exchange's chain passes through.
        """
        candidates = {
            opened.order: opened
            for opened in islice(
                (opened for opened in reversed(self._newest.values()) if opened.takes(exchange)), COMPARED
            )
        }
        candidates |= self._chains.get(chain, {})
        own = comparable(exchange.keywords)
        best, most = None, self.rules.threshold
        for _, opened in sorted(candidates.items()):
            if not opened.takes(exchange):
                continue
            fits = self._similarity(exchange.compared, own, opened.compared, opened.segment.keywords)
            if fits >= most and (best is None or fits > most):
                best, most = opened, fits
        return best

    def _begun(self, exchange: LoggedExchange) -> _OpenSegment:
        """A segment of its own."""
        segment = Segment(
            title=_title(exchange),
            session_id=self.session_id,
            created_at=self.now,
            updated_at=self.now,
            project=exchange.project,
            private=exchange.private,
        )
        self._open.append(_OpenSegment(None, segment, len(self._open)))
        return self._open[-1]

    def _goes_on(self, before: LoggedExchange, exchange: LoggedExchange) -> bool:
        """Whether an exchange is about what the exchange before it was."""
        if (before.project, before.private) != (exchange.project, exchange.private):
            return False
        own = comparable(exchange.keywords)
        return self._similarity(exchange.compared, own, before.compared, before.keywords) >= self.rules.threshold

    def _similarity(self, text: str, words: frozenset[str], other: str, others: tuple[str, ...]) -> float:
        if not text.strip() or not other.strip():
            return 0.0
        likeness = max(-1.0, min(1.0, self.rules.likeness(text, other)))
        return segment_similarity(likeness, words, comparable(others), self.rules.keyword_weight)

    def _note(self, opened: _OpenSegment, exchange: SegmentExchange) -> None:
        self._chain_of[exchange.first] = exchange.chain
        self._chains.setdefault(exchange.chain, {})[opened.order] = opened

    def _current(self, exchange: SegmentExchange) -> SegmentExchange | None:
        """A stored exchange as its messages are now; None where they are gone."""
        if self.log.digest(exchange.first, exchange.last) == exchange.digest:
            return exchange
        known = self.log.exchange(exchange.first, exchange.last)
        if known is None:
            return None
        return replace(exchange, keywords=known.keywords, digest=known.digest, date=known.date)

    def _titled(self, segment: Segment, uri: str) -> Segment:
        """The segment with a title that one of its exchanges gives; one unlike the file's name is a person's."""
        exchanges = (self.log.exchange(exchange.first, exchange.last) for exchange in segment.exchanges)
        titles = [_title(exchange) for exchange in exchanges if exchange is not None]
        if not titles or segment.title in titles or not is_named_by(uri.rpartition("/")[2], segment.title):
            return segment
        return replace(segment, title=titles[0])

    def _summarised(self, segment: Segment, *, changed: bool) -> Segment:
        """The segment with the keywords and the summary of its exchanges; what a model or a person wrote stays.

        Args:
            segment: With its exchanges.
            changed: Whether messages changed that a summary may quote: then a model's goes, too.
        """
        segment = replace(
            segment, keywords=common_keywords([exchange.keywords for exchange in segment.exchanges], _SEGMENT_KEYWORDS)
        )
        if segment.summary_by == EXTRACT or (changed and segment.summary_by != PERSON):
            # A long segment's summary goes on from what it was: reading all of it for each exchange takes too long.
            goes_on = not changed and len(segment.exchanges) > _SUMMED_EXCHANGES and bool(segment.summary)
            exchanges = segment.exchanges[-_SUMMED_EXCHANGES:] if goes_on else segment.exchanges
            known = [self.log.exchange(exchange.first, exchange.last) for exchange in exchanges]
            turns = [("", segment.summary)] if goes_on else []
            turns += [turn for exchange in known if exchange is not None for turn in exchange.turns]
            return segment.summed_up(extract(turns, segment.keywords), EXTRACT)
        return segment

    def _link(self, chain: int) -> None:
        """Link the exchanges of a chain both ways, and say what it is about in every segment that it passes through."""
        within = self._chains[chain].values()
        exchanges = sorted(
            (exchange for opened in within for exchange in opened.segment.exchanges if exchange.chain == chain),
            key=lambda each: each.first,
        )
        links = {exchange.first: self._unlinked(exchange) for exchange in exchanges}
        for before, exchange in pairwise(exchanges):
            links[before.first] = replace(links[before.first], next=exchange.first)
            links[exchange.first] = replace(links[exchange.first], previous=before.first)
        words = ", ".join(common_keywords([exchange.keywords for exchange in exchanges], _CHAIN_KEYWORDS))
        about = {chain: f"{words} (#{exchanges[0].first}–{exchanges[-1].last})"} if len(exchanges) > 1 else {}
        for opened in within:
            own = tuple(links.get(exchange.first, exchange) for exchange in opened.segment.exchanges)
            others = {at: told for at, told in opened.segment.chains.items() if at != chain}
            passes = any(exchange.chain == chain for exchange in own)
            opened.becomes(replace(opened.segment, exchanges=own, chains=others | about if passes else others))

    def _unlinked(self, exchange: SegmentExchange) -> SegmentExchange:
        """The exchange without links to exchanges that are gone."""
        return replace(
            exchange,
            previous=None if exchange.previous in self._gone else exchange.previous,
            next=None if exchange.next in self._gone else exchange.next,
        )


def overflowing(log: SessionLog, covered: Sequence[tuple[int, int]], capacity: int) -> Iterator[LoggedExchange]:
    """The exchanges that no longer stay as they are and belong to no segment yet, in order, read as they are asked for.

    Exchanges between those of segments, which an undo or a deletion opened again, no longer stay, however many.

    Args:
        log: What was said.
        covered: Lines of the session's segments, archived and damaged ones included; see ``spans_of``.
        capacity: Exchanges at the end that stay.
    """
    ends = [0, *(end for _, end in covered)]
    opened = [
        span for end, (first, _) in zip(ends, covered, strict=False) if end < first for span in log.spans(end, first)
    ]
    tail = log.spans(ends[-1])
    found = (log.exchange(*span) for span in [*opened, *tail[: max(0, len(tail) - capacity)]])
    return (exchange for exchange in found if exchange is not None)


def exchanges_before(
    log: SessionLog, stored: Iterable[SegmentExchange], exchanges: Sequence[LoggedExchange]
) -> list[LoggedExchange | None]:
    """The exchange that was said right before each of some exchanges: of a segment, or another one of them."""
    spans = sorted(
        {(exchange.first, exchange.last) for exchange in stored}
        | {(exchange.first, exchange.last) for exchange in exchanges}
    )
    before = (spans[at - 1] if (at := bisect_left(spans, (exchange.first, 0))) else None for exchange in exchanges)
    return [None if span is None else log.exchange(*span) for span in before]


@remembered(_REMEMBERED_EXCHANGES, 16 << 20)
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


def _title(exchange: LoggedExchange) -> str:
    """A heading: keywords, or where not all of them are ASCII, how the exchange begins."""
    words = exchange.keywords[:_TITLE_KEYWORDS]
    begins = first_words(exchange.compared, _TITLE_CHARS)
    chosen = begins if not all(word.isascii() for word in words) else " ".join(words)
    return chosen or begins or f"#{exchange.first}"
