"""Mentions: where something is said, in sentences, names and tags of memories, entries of logs, messages.

A search finds the mentions of what was asked, and in them the sentences that say it. What these sentences name (an
address, a number, most of their words) is then looked for once more, so that each mention of the same is found,
however it was asked. Reads, and changes nothing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.errors import EmbeddingFailed, RunebookError
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import CONTENT, MergeOp
from memory_core.core.memory.message import parse_lines, search_text
from memory_core.core.memory.metadata import Metadata
from memory_core.core.memory.names import first_words, fold, is_time_field
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.trailer import body_digest, join, split
from memory_core.core.memory.uri import MemoryUri, Scope, profile_of
from memory_core.core.search.owner import OwnersQuestion, read_question
from memory_core.core.text.analysis import distinct_words, index_tokens, word_count
from memory_core.core.text.heads import Line, says_nothing, unmarked
from memory_core.core.text.language import sentence_spans, sentences
from memory_core.core.text.normalization import simplified
from memory_core.core.text.word_table import word_pattern
from memory_core.features.review import parse_proposal
from memory_core.features.upkeep.log_summary import summary_month, without_heads, without_texts

if TYPE_CHECKING:
    from memory_core.core.memory.project import ProjectScope
    from memory_core.core.memory.requests import FindRequest
    from memory_core.core.memory.results import Hit
    from memory_core.runebook import Runebook

_pattern = partial(word_pattern, __file__)
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|y|ies)$")
#: Where a sentence was, at the begin of a line and inside it.
_FIRST_GAP = re.compile(r"^([ \t]*(?:(?:[-*+•]|\d+[.)])[ \t]+)?)\x00[ \t]*")
_GAP = re.compile(r"(?<![ \t])[ \t]*+\x00(?=[ \t]|$)|\x00")
_HEADING = re.compile(r"#{1,6}[ \t]+")
_LIST_MARK = re.compile(r"(?:[-*+•]|\d+[.)])[ \t]+")
_TOKEN = re.compile(r"\w+")
_PLACE = re.compile(r"(?P<file>.+\.(?:jsonl|md))#(?P<line>\d{1,9})")
#: A sentence is meant if it comes so near to what was asked as this share of the nearest one.
_NEAR_SHARE = 0.7
#: The only sentence of a mention is meant sooner: the search gave it whole.
_WHOLE_SHARE = 0.3
#: What a name or a tag says counts so much as the nearest for others, whose sentences say it without the name.
_NAMED_SHARE = 0.9
#: What no search gave must come so near by itself: the nearest of unrelated sentences is not meant.
_LEAST_UNSEARCHED = 0.3
#: So many of the words asked for must be in what is archived.
_LEAST_ARCHIVED = 0.6
#: A sentence that holds so many of another one's words says the same.
_SAME_SHARE = 0.6
_LEAST_WORDS = 3
#: A field beside the content that holds fewer words is a label.
_SAYING_WORDS = 2
#: Of the sentences that say it, and of what they name, so many nearest ones count.
_NAMED_MOST = 40
#: So many of these are looked for by a search of their own, what is named first.
_SEARCHES_MOST = 8
#: So many hits of each of these searches are read.
_HITS_MOST = 50
#: Of a sentence so many first characters are searched for, compared in meaning, and looked through for names.
_BEGINNING_CHARS = 1_000
#: So many sentences are compared in meaning, those of the best mentions first, and the others by words alone.
_MEANT_MOST = 4_000
#: So many characters of them, which takes a few seconds.
_MEANT_CHARS = 200_000
#: So many characters of mentions are looked at together.
_TOGETHER_CHARS = 500_000
#: Mentions of so many characters are enough for one request; the next one finds what is beyond.
_FOUND_CHARS = 4_000_000


@dataclass(frozen=True, slots=True)
class Mention:
    """A memory, an entry of a log or a message that says it.

    Attributes:
        uri: The file.
        line: Of an entry or a message; None for a memory.
        text: All that it says.
        sentences: Those that say it.
        names: What a memory is called, field by field; without the dates of its name.
        tags: Its tags.
        labels: What of the text describes the memory and says nothing by itself, such as the state of a task.
        name_goes: Whether its name says it.
        gone_tags: The tags that say it.
        seen_sha256: Of the file, or of the line of a message, as it was read: another text is not what was meant.
        score: Of the search.
        refused: Why it cannot be changed, if it cannot.
    """

    uri: MemoryUri
    line: int | None
    text: str = ""
    sentences: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    name_goes: bool = False
    gone_tags: tuple[str, ...] = ()
    seen_sha256: str = ""
    score: float | None = None
    refused: str | None = None

    @classmethod
    def at(cls, address: str) -> Mention:
        """The file of a URI, or the entry or message of one with a line."""
        place = _PLACE.fullmatch(address)
        file, line = (place["file"], int(place["line"])) if place else (address, None)
        return cls(MemoryUri.parse(file), line)

    @property
    def address(self) -> str:
        """The URI with the line."""
        return str(self.uri) if self.line is None else f"{self.uri}#{self.line}"

    @property
    def is_part(self) -> bool:
        """Whether not all of it goes."""
        return bool(self.sentences or self.name_goes or self.gone_tags)

    @property
    def name(self) -> str:
        """What it is called, in one line; empty for what has no name of its own."""
        return " ".join(self.names)

    @property
    def left(self) -> list[str]:
        """The sentences that stay."""
        passed_over = {*self.sentences, *(self.labels if self.name_goes else ())}
        return [each for each in worded(self.text) if each not in passed_over]


def find_mentions(
    memory: Runebook, wanted: FindRequest, scope: ProjectScope, *, conversations: bool
) -> tuple[list[Mention], bool]:
    """Every mention of what is asked, the best first, and whether these are all: of very long ones only the first.

    Args:
        memory: The store.
        wanted: What is asked, and where.
        scope: The project from which it is looked.
        conversations: Whether messages count.
    """
    search = _Search(memory, scope, conversations=conversations)
    asked = _pattern("request").sub("", wanted.query).strip() or wanted.query
    mentions = search.about(replace(wanted, query=asked))
    everywhere = not wanted.target_uri and not wanted.filter
    if everywhere:
        mentions = search.with_profile(mentions)

    def unsearched() -> Iterator[Mention]:  # read anew each time: it may be more than memory holds
        for archived in (False, True) if everywhere else ():
            yield from search.unsearched(archived=archived)

    near = _Nearest(_Closeness(memory, asked))
    near.look_at(chain(mentions, unsearched()))
    again = search.again(wanted, asked, near.named(), near.names(), unsearched)
    found = list(_first(_FOUND_CHARS, chain(near.mentions(), again)))
    is_all = near.is_all and sum(len(each.text) for each in found) < _FOUND_CHARS
    return [_proposal_whole(each) if each.uri.is_proposal else each for each in _joined(found)], is_all


def texts_of(memory: Memory) -> dict[str, str]:
    """The fields of a memory that hold sentences; of a file without a type its body.

    The head of a day in a month's summary is none: it says of which day the lines below it are.
    A rendered body that a person edited has the empty name: it may say what no field does.
    """
    if memory.type is None:
        is_month = summary_month(memory.uri) is not None
        return {CONTENT: without_heads(memory.body) if is_month else memory.body}
    edited = {"": memory.body} if memory.hand_edited else {}
    values = {field.name: memory.fields.get(field.name) for field in memory.type.fields}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str) and value.strip() and name not in memory.type.key_fields
    } | edited


def names_of(memory: Memory) -> dict[str, str]:
    """The fields that name a memory, dates left out; of a file without a type its file name, under no field's name.

    A name without letters, such as the day of a log, says nothing.
    """
    if memory.type is None:
        names = {"": memory.uri.name.removesuffix(".md")}
    else:
        keys = [name for name in memory.type.key_fields if not is_time_field(name)]
        names = {name: str(memory.fields.get(name) or "") for name in keys}
    return {name: value for name, value in names.items() if any(map(str.isalpha, value))}


def _labels_of(memory: Memory) -> tuple[str, ...]:
    """Texts that are none by themselves: of fields that are replaced whole, or of a word beside the content."""
    if memory.type is None or memory.type.template_mode:
        return ()
    patched = {field.name for field in memory.type.fields if field.merge_op is MergeOp.PATCH}
    texts = {name: text for name, text in texts_of(memory).items() if name != CONTENT}
    return tuple(text for name, text in texts.items() if name not in patched or word_count(text) < _SAYING_WORDS)


def worded(text: str) -> list[str]:
    """The sentences of a text that hold words, beside their marks."""
    return [sentence for sentence in sentences(text) if _pattern("words").search(unmarked(sentence))]


def without(text: str, gone: Iterable[str]) -> str:
    """A text without these of its sentences; a list item or line that they leave empty goes, too.

    Of one that leads what stands below it its marks and ``…`` stay: that would belong to another.
    """
    going = {sentence[_said_from(sentence, 0) :] for sentence in gone}
    pieces, kept_to = [], 0
    for start, end in sentence_spans(text):
        start = _said_from(text, start)
        if text[start:end] in going:
            pieces += [text[kept_to:start], "\x00"]
            kept_to = end
    if not pieces:
        return text
    lines = ("".join(pieces) + text[kept_to:]).split("\n")
    kept = "\n".join(_GAP.sub("", _FIRST_GAP.sub(r"\1", line)) for line in _with_heads(text.split("\n"), lines))
    return re.sub(r"\n{3,}", "\n\n", kept).strip("\n")


def _with_heads(before: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines that stay of a text, with ``…`` where what goes led what stays below.

    Args:
        before: The lines.
        lines: The same with a zero character for each sentence that goes.
    """
    said = [line.rstrip() for line in before]
    closing = said.index("---", 1) if said[0] == "---" and said.count("---") > 1 else 0  # of properties above a text

    def line_at(at: int) -> Line:
        return Line.of(said[at], said[at + 1] if at + 1 < len(said) and at + 1 != closing else "")

    kept: list[str] = []
    below, is_apart = -1, False
    for at in range(len(lines) - 1, -1, -1):
        if says_nothing(said[at]):
            kept.append(before[at])
            is_apart = is_apart or "|" not in said[at]
            continue
        left = lines[at]
        if "\x00" in left:
            line = line_at(at)
            is_whole = _pattern("words").search(unmarked(left)) is None
            ends = is_whole or (line.introduces and left.rstrip().endswith("\x00"))
            if ends and below >= 0 and line.leads(line_at(below), is_apart=is_apart):
                left = (line.elided() if is_whole else f"{left.rstrip()[:-1]}…") + before[at][len(said[at]) :]
            elif is_whole:
                if line.is_underlined:
                    kept.pop()
                continue
        kept.append(left)
        below, is_apart = at, False
    return kept[::-1]


def _said_from(text: str, start: int) -> int:
    """Where a sentence that starts there begins without the mark of a list item or a heading."""
    mark = _LIST_MARK.match(text, start) or _HEADING.match(text, start)
    return start if mark is None else mark.end()


def _stands_in(words: str, text: str) -> bool:
    """Whether words stand for themselves in a text: "tea" is not in "team"."""
    at = text.find(words) if words else -1
    while at >= 0:
        end = at + len(words)
        if not (_is_word(text[at - 1 : at]) or _is_word(text[end : end + 1])):
            return True
        at = text.find(words, at + 1)
    return False


def _is_word(character: str) -> bool:
    return character.isascii() and character.isalnum()


def text_without(uri: MemoryUri, text: str, gone: Sequence[str], tags: Sequence[str] = ()) -> str | None:
    """What stays of a file that is no memory in use, also of its tags: a page, a summary, something archived."""
    if uri.is_summary:
        prose = without(text, gone)
        return f"{prose}\n" if prose.strip() else None
    parts = split(text)
    left = partial(without, gone=gone)
    trailer = None if parts.trailer is None else dict(value_without(parts.trailer, gone))
    if summary_month(uri) is None:
        body, stays = left(parts.body), True
    else:
        overview = (parts.trailer or {}).get("overview")
        body, stays = without_texts(parts.body, overview if isinstance(overview, str) else "", left)
    if trailer is not None and not stays:
        del trailer["overview"]
        trailer.pop("overview_of", None)  # the next maintenance makes it anew, unless the page is a person's
    if trailer is not None and body != parts.body:
        trailer.pop("abstract", None)  # made of the body, in other words or cut short
        if str(trailer.get("overview", "")).strip() not in body:
            del trailer["overview"]
    if trailer is not None and tags:
        trailer["tags"] = [tag for tag in Metadata(trailer).tags if tag not in tags]
    if trailer is not None and trailer.get("rendered_sha256") == body_digest(parts.body):
        trailer["rendered_sha256"] = body_digest(body)
    return join(body, trailer) if body.strip() else None


def value_without(value: Any, gone: Sequence[str]) -> Any:
    """A value of a trailer, and what is in it, without these sentences."""
    if isinstance(value, Mapping):
        return {name: value_without(each, gone) for name, each in value.items()}
    if isinstance(value, list):
        return [value_without(each, gone) for each in value]
    return without(value, gone) if isinstance(value, str) else value


def files_of(memory: Runebook, *, archived: bool, sessions: bool) -> Iterator[MemoryUri]:
    """The files of the spaces that may be seen, or those of them that are in the archive.

    Args:
        memory: The store.
        archived: Which of both.
        sessions: Those of conversations, too.
    """
    shelf = (Scope.ARCHIVE.value,) if archived else ()
    for space in memory.spaces:
        root = MemoryUri((*shelf, *space.split("/")))
        if (sessions or not space.startswith(Scope.SESSION.value)) and memory.store.files.is_dir(root):
            yield from (entry.uri for entry in memory.store.files.walk(root))


class _Search:
    """Searches, and reads what is at a place."""

    def __init__(self, memory: Runebook, scope: ProjectScope, *, conversations: bool) -> None:
        self._memory = memory
        self._scope = scope
        self._conversations = conversations

    def about(self, wanted: FindRequest) -> list[Mention]:
        """The mentions that a search finds."""
        mentions: dict[str, Mention] = {}
        for hit in self._memory.retriever.find(wanted, self._scope).hits:
            for address in (hit.uri, *hit.also):
                if (mention := self._at(address, hit)) is not None:
                    mentions.setdefault(address, mention)
        return list(mentions.values())

    def with_profile(self, mentions: list[Mention]) -> list[Mention]:
        """With the profile, whose one sentence a search may have passed over."""
        space = self._memory.config.user_space
        profile = self._at(profile_of(space), None)
        known = profile is None or any(each.uri == profile.uri for each in mentions)
        return mentions if profile is None or known else [*mentions, profile]

    def unsearched(self, *, archived: bool) -> Iterator[Mention]:
        """What no search gives: what somebody wrote on pages, summaries; or what is archived."""
        store, features = self._memory.store, self._memory.features
        here = self._memory.browser.seen_from(self._scope.current)
        for uri in files_of(self._memory, archived=archived, sessions=archived):
            kind = features.kind_of(uri)
            searched = (kind is None or kind.has_entries) and not uri.is_proposal
            if not uri.name.endswith(".md") or (not archived and searched and not uri.is_summary):
                continue
            try:
                text = store.look(uri)[0]
            except RunebookError:  # what cannot be read cannot be changed; doctor names it
                continue
            if text is None or here.is_elsewhere(uri, text):
                continue
            if uri.is_proposal and not uri.is_summary:
                yield from self._proposed(uri, text)
            elif kind is not None and kind.has_entries:
                starts = [each.part for each in kind.documents(MemoryUri(uri.parts[1:]), text)]
                entries = kind.entries(text, starts).items()
                yield from (Mention(uri, at, entry, seen_sha256=text_sha256(entry)) for at, entry in entries)
            else:
                mention = Mention(uri, None, split(text).body, seen_sha256=text_sha256(text))
                is_memory = kind is None and not uri.is_summary
                yield _read(mention, parse(uri, text, self._memory.registry)) if is_memory else mention

    def _proposed(self, uri: MemoryUri, text: str) -> Iterator[Mention]:
        """What waits for its owner's review, if that may be seen."""
        try:
            proposal = parse_proposal(uri, text)
        except RunebookError:  # a file of another kind
            return
        if self._scope.finds(proposal.assignment.project, private=proposal.private):
            yield Mention(uri, None, proposal.said, names=(proposal.name,), seen_sha256=text_sha256(text))

    def again(
        self,
        wanted: FindRequest,
        asked: str,
        named: Sequence[str],
        names: Sequence[str],
        unsearched: Callable[[], Iterable[Mention]],
    ) -> Iterator[Mention]:
        """Further mentions: what says the same as sentences that were found, or names what they name.

        Args:
            wanted: Where is searched.
            asked: What is asked. Of a sentence only the clauses that come near to it count for what it names.
            named: The sentences.
            names: Names of memories that were found; what they name exactly is looked for, too.
            unsearched: Gives mentions that are looked through beside those that searches give.
        """
        clauses = [
            clause for sentence in (*named, *names) for clause in _pattern("clause").split(sentence) if clause.strip()
        ]
        scores = _Closeness(self._memory, asked).of(clauses)
        best = max(scores.values(), default=0.0)
        near = (clause for clause, score in scores.items() if score >= _NEAR_SHARE * best)
        needles = list(dict.fromkeys(name for clause in near for name in _exact_references(clause)))[:_NAMED_MOST]
        wholes = [whole for sentence in named if (whole := _words_of(sentence)) is not None]
        queries = [*(f'"{needle}"' for needle in needles), *(each[:_BEGINNING_CHARS] for each in named)]
        given = (self.about(replace(wanted, query=query, limit=_HITS_MOST)) for query in queries[:_SEARCHES_MOST])
        known: set[tuple[MemoryUri, int | None]] = set()
        for mention in chain(chain.from_iterable(given), unsearched() if needles or wholes else ()):
            if (mention.uri, mention.line) in known:
                continue
            known.add((mention.uri, mention.line))
            telling = tuple(each for each in sentences(mention.text) if _sentence_tells(each, needles, wholes))
            name_goes = bool(mention.names) and _sentence_tells(mention.name, needles, wholes)
            if telling or name_goes:
                yield _with(replace(mention, name_goes=name_goes), telling)

    def _at(self, address: str, hit: Hit | None) -> Mention | None:
        """What is said at an address; None where it does not count."""
        mention = Mention.at(address)
        uri, line = mention.uri, mention.line
        try:
            text = self._memory.store.text(uri)
        except RunebookError:
            return None
        if text is None or (hit is None and not text.strip()):
            return None
        kind = self._memory.features.kind_of(uri)
        lines = text.split("\n")
        seen = text
        if line is None:
            if kind is not None or uri.is_summary:
                return None
            mention = _read(mention, parse(uri, text, self._memory.registry))
            said = mention.text
        elif kind is not None and kind.has_entries:
            said = seen = kind.entries(text, [line])[line]
        else:
            messages = parse_lines(lines[line])[0] if kind is None and self._conversations and line < len(lines) else []
            if not messages:
                return None
            said, seen = search_text(messages[0]), lines[line]
        score = None if hit is None else hit.score
        return replace(mention, text=said, seen_sha256=text_sha256(seen), score=score)


def _read(mention: Mention, memory: Memory) -> Mention:
    """The mention of a memory with all that it says, and what it is called."""
    said, names = "\n".join(texts_of(memory).values()), tuple(names_of(memory).values())
    return replace(mention, text=said, names=names, tags=memory.metadata.tags, labels=_labels_of(memory))


def _exact_references(text: str) -> list[str]:
    """What a text names exactly: addresses, numbers, codes, mail and web addresses; a date or a time names nothing."""
    found = (match.group().strip() for match in _pattern("names").finditer(text[:_BEGINNING_CHARS]))
    return [name for name in found if not _pattern("moment").fullmatch(name)]


#: The words of a sentence, and those of them that are no date and no time.
_Words = tuple[frozenset[str], frozenset[str]]


def _words_of(sentence: str) -> _Words | None:
    """The words by which the same is found elsewhere; None where they are too few, or say only when."""
    words, plain = distinct_words(sentence), distinct_words(_pattern("moment").sub(" ", sentence))
    return (words, plain) if len(words) >= _LEAST_WORDS and plain else None


def name_tells(name: str, said: Sequence[str]) -> bool:
    """Whether a memory's name says what these sentences say: it was made of one, or names what they name."""
    made = any(fold(first_words(sentence)) == fold(name) for sentence in said)
    return made or _sentence_tells(name, [needle for sentence in said for needle in _exact_references(sentence)], ())


def _sentence_tells(sentence: str, needles: Sequence[str], wholes: Sequence[_Words]) -> bool:
    folded = simplified(sentence).casefold()
    if any(_stands_in(simplified(needle).casefold(), folded) for needle in needles):
        return True
    words = distinct_words(sentence)
    return any(all(len(words & part) >= _SAME_SHARE * len(part) for part in whole) for whole in wholes)


class _Nearest:
    """The mentions with the sentences that say what was asked, and of these the nearest, which are looked for again.

    Args:
        closeness: To what was asked. What is archived may be very much: it is compared by words alone.
    """

    def __init__(self, closeness: _Closeness) -> None:
        self.is_all = True
        self._closeness = closeness
        self._best = 0.0
        #: Of each mention that may count, how near its sentences must come, and those that may.
        self._near: list[tuple[Mention, _Bar, dict[str, float]]] = []

    def look_at(self, mentions: Iterable[Mention]) -> None:
        """Look at mentions, some at a time, until they are more than one request takes."""
        left_chars = _FOUND_CHARS
        for some in _together(mentions):
            units = [self._read(each, sentences(each.text)) for each in some]
            put_away = [own for each, _, own in units if each.uri.scope is Scope.ARCHIVE]
            here = [own for each, _, own in units if each.uri.scope is not Scope.ARCHIVE]
            scores = self._closeness.in_words(list(chain.from_iterable(put_away)))
            scores |= self._closeness.of(list(chain.from_iterable(here)))
            bars = [self._bar(each, len(own), introduced.values()) for each, introduced, own in units]
            found = chain(scores.values(), (_NAMED_SHARE * bar.own for bar in bars))
            self._best = max(self._best, max(found, default=0.0))
            for (each, introduced, own), bar in zip(units, bars, strict=True):
                least = bar.least(self._best)
                read = {sentence: max(scores[sentence], introduced.get(sentence, 0.0)) for sentence in own}
                near = {sentence: score for sentence, score in read.items() if score >= least > 0}
                if near or each.is_part:
                    self._near.append((each, bar, near))
                    left_chars -= len(each.text)
            if left_chars <= 0:
                self.is_all = False
                return

    def mentions(self) -> Iterator[Mention]:
        """Those that say it.

        A memory that is named by what is asked, and says it in no sentence, is about nothing else: all of it says it.
        """
        for each, bar, near in self._near:
            telling = tuple(sentence for sentence, score in near.items() if score >= bar.least(self._best))
            if each.name_goes and not telling and self._closeness.asks(each.name):
                yield replace(each, name_goes=False, gone_tags=())
                continue
            found = _with(each, telling)
            is_whole = (telling or each.name_goes) and not found.is_part
            if not is_whole:
                found = replace(found, gone_tags=(*found.gone_tags, *self._closeness.telling_tags(found)))
            if is_whole or found.is_part:
                yield found

    def named(self) -> list[str]:
        """The sentences that come nearest."""
        least = _NEAR_SHARE * self._best
        near: dict[str, float] = {}
        for _, bar, own in self._near:
            if max(own.values(), default=0.0) >= bar.least(self._best):
                near |= own
        nearest = sorted(near, key=lambda sentence: -near[sentence])[:_NAMED_MOST]
        return [sentence for sentence in nearest if near[sentence] >= least > 0]

    def names(self) -> list[str]:
        """The names that say it."""
        return [each.name for each, _, _ in self._near if each.name_goes][:_NAMED_MOST]

    def _read(self, mention: Mention, own: list[str]) -> tuple[Mention, dict[str, float], list[str]]:
        """The mention with whether its name and its tags say it, how near sentences come behind the name, and all.

        Behind the name come those that say more of it than the name, which then only introduces them.
        """
        if mention.tags:
            tags = tuple(tag for tag in mention.tags if self._closeness.of_name(tag) >= _NEAR_SHARE)
            mention = replace(mention, gone_tags=tags)
            mention = replace(mention, gone_tags=(*tags, *self._closeness.telling_tags(mention)))
        score = self._closeness.of_name(mention.name)
        led = own if 0.0 < score < 1.0 else []
        behind = {sentence: self._closeness.of_name(f"{mention.name} {sentence}") for sentence in led}
        introduced = {sentence: nearer for sentence, nearer in behind.items() if nearer > score}
        return replace(mention, name_goes=score >= _NEAR_SHARE and not introduced), introduced, own

    def _bar(self, mention: Mention, count: int, introduced: Iterable[float]) -> _Bar:
        """How near a sentence must come, of a mention that has so many."""
        is_whole = count == 1 and mention.score is not None and not mention.is_part
        named = [mention.name] if mention.name_goes else []
        named += ["\n".join([mention.name, mention.text, *mention.tags])] if mention.gone_tags else []
        own = max(chain(introduced, map(self._closeness.of_name, named)), default=0.0)
        unsearched = _LEAST_ARCHIVED if mention.uri.scope is Scope.ARCHIVE else _LEAST_UNSEARCHED
        return _Bar(_WHOLE_SHARE if is_whole else _NEAR_SHARE, own, 0.0 if mention.score is not None else unsearched)


class _Bar(NamedTuple):
    """How near a sentence of a mention must come: a share of the nearest, its own name among them, and so much."""

    share: float
    own: float
    at_least: float

    def least(self, best: float) -> float:
        """Given the nearest sentence of all."""
        return max(self.share * max(best, self.own), self.at_least)


def _together(mentions: Iterable[Mention]) -> Iterator[list[Mention]]:
    """The mentions in their order, some at a time."""
    some: list[Mention] = []
    size_chars = 0
    for each in mentions:
        some.append(each)
        size_chars += len(each.text)
        if size_chars >= _TOGETHER_CHARS:
            yield some
            some, size_chars = [], 0
    if some:
        yield some


def _proposal_whole(mention: Mention) -> Mention:
    """A proposal goes whole, whatever of it says it."""
    said = f"waits for review: {mention.name}: {mention.text}"
    return replace(mention, text=said, sentences=(), name_goes=False)


def _first(chars: int, mentions: Iterable[Mention]) -> Iterator[Mention]:
    """The mentions until they hold so many characters."""
    for each in mentions:
        yield each
        chars -= len(each.text)
        if chars <= 0:
            return


def _with(mention: Mention, telling: tuple[str, ...]) -> Mention:
    """The mention with these sentences, and its name where that says them, too; a message and an entry go whole.

    A memory goes whole where nothing else is left to say.
    """
    name_goes = mention.name_goes or any(name_tells(name, telling) for name in mention.names)
    part = replace(mention, sentences=tuple(dict.fromkeys(telling)), name_goes=name_goes)
    is_whole = mention.line is not None or ((telling or name_goes) and not part.left)
    return replace(mention, sentences=(), name_goes=False, gone_tags=()) if is_whole else part


def _joined(mentions: Iterable[Mention]) -> list[Mention]:
    """Each mention once, with all the sentences that were found in it."""
    joined: dict[tuple[MemoryUri, int | None], Mention] = {}
    for each in mentions:
        known = joined.get((each.uri, each.line))
        if known is None:
            joined[each.uri, each.line] = each
        elif known.is_part and not each.is_part:
            joined[each.uri, each.line] = replace(each, score=known.score)
        elif known.is_part:
            both = {*known.sentences, *each.sentences}
            telling = tuple(sentence for sentence in sentences(each.text) if sentence in both)
            goes = known.name_goes or each.name_goes
            whole = _with(replace(each, name_goes=goes, gone_tags=known.gone_tags), telling)
            joined[each.uri, each.line] = replace(whole, score=known.score)
    return list(joined.values())


class _Closeness:
    """How near sentences come to what was asked, in [0, 1].

    What people ask of their owner (an address, a job) counts as a word that stands wherever it is told of.
    """

    def __init__(self, memory: Runebook, asked: str) -> None:
        self._question = read_question(asked, memory.retriever.owner_names())
        self._wanted = _stems_of(self._question.rest)
        self._asked = frozenset(_stems(asked))
        self._whole = simplified(asked).casefold()
        embedder = memory.indexer.embedder
        self._embedder = embedder if embedder is not None and embedder.ready() else None
        self._left, self._left_chars = _MEANT_MOST, _MEANT_CHARS

    def in_words(self, said: Sequence[str]) -> dict[str, float]:
        """By their words."""
        return {
            each: 1.0
            if _stands_in(self._whole, simplified(each).casefold())
            else _share(each, self._wanted, self._question)
            for each in said
        }

    def of_name(self, name: str) -> float:
        """How near a name comes: by its words, for in meaning the name of anybody who is asked about is near."""
        return self.in_words([name])[name] if name else 0.0

    def asks(self, name: str) -> bool:
        """Whether a name or a tag stands in the question, and says nothing beside it."""
        words = _stems_of(name)
        return bool(words) and words <= self._asked

    def telling_tags(self, mention: Mention) -> tuple[str, ...]:
        """The tags that say it with what is left of the memory, which without them does not."""
        tags = [tag for tag in mention.tags if tag not in mention.gone_tags and self.asks(tag)]
        if not tags:
            return ()
        kept = "\n".join([*(() if mention.name_goes else mention.names), *mention.left])
        least = self.of_name(kept)
        tags = [tag for tag in tags if self.of_name(f"{kept}\n{tag}") > least]
        is_near = least < _NEAR_SHARE <= self.of_name("\n".join([kept, *tags]))
        return tuple(tags) if is_near else ()

    def of(self, said: Sequence[str]) -> dict[str, float]:
        """In words; or in meaning, where a model is there, until so much was compared that it takes seconds."""
        near = self.in_words(said)
        meant = list(near)[: self._left]
        sizes = list(accumulate(min(len(each), _BEGINNING_CHARS) for each in meant))
        meant = meant[: bisect_right(sizes, self._left_chars)]
        if self._embedder is None or not meant:
            return near
        self._left -= len(meant)
        self._left_chars -= sizes[len(meant) - 1]
        try:
            vectors = self._embedder.embed([simplified(each[:_BEGINNING_CHARS]) for each in meant])
            ways = self._embedder.embed([simplified(way) for way in self._question.ways], query=True)
        except EmbeddingFailed:
            return near
        zero = self._embedder.scale.zero
        for each, cosine in zip(meant, (vectors @ ways.T).max(axis=1), strict=True):
            near[each] = max(near[each], (float(cosine) - zero) / (1.0 - zero))
        return near


def _share(sentence: str, wanted: frozenset[str], question: OwnersQuestion) -> float:
    """The share of the words and topics asked for that a sentence tells of."""
    words = _stems(sentence)
    line = f" {' '.join(words)} "
    told = sum(any(_holds(line, operand) for operand in topic) for topic in question.topics)
    parts = len(wanted) + len(question.topics)
    return (len(wanted & set(words)) + told) / parts if parts else 0.0


def _holds(line: str, operand: str) -> bool:
    """Whether stems between blanks hold the phrase of an FTS5 operand; one that ends in ``*`` begins a word."""
    phrase = " ".join(map(_stem, _TOKEN.findall(operand)))
    return f" {phrase}" in line if operand.endswith("*") else f" {phrase} " in line


def _stems(text: str) -> list[str]:
    """The words of a text in order, without the endings that English forms have."""
    return [_stem(word) for word in _TOKEN.findall(index_tokens(text))]


def _stems_of(text: str) -> frozenset[str]:
    """The words of a text that tell, likewise."""
    return frozenset(_stem(word) for word in distinct_words(text) if len(word) > 1 or word.isascii())


def _stem(word: str) -> str:
    return _ENDING.sub("", word)
