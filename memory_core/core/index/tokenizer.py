"""Questions for FTS5: how a question becomes a MATCH expression, from the same words that ``text.analysis`` stores.

Promises: pure, never raises on any ``str`` (operators, quotes, NUL and lone surrogates included), and every operand
it returns is valid MATCH syntax.

Does not: open a database, understand grammar, or weigh documents (``bm25`` and ``search.fusion`` do).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache

from memory_core.core.frozen import frozen
from memory_core.core.text.analysis import (
    CHINESE_FUNCTION_CHARS,
    CHINESE_PARTICLES,
    CJK,
    english_stop_words,
    fold,
    folded_words,
    pairs,
    runs,
    stored_tokens,
)
from memory_core.core.text.word_table import compiled

_TERM_LIMIT = 64
_EXACT_LIMIT = 8
#: Of a longer phrase so many words are asked for, and of all phrases of a question, those at its end: each word costs a
#: search all places where it stands.
_PHRASE_WORDS, _PHRASES_WORDS = 16, 128
#: A longer query is read from its end: in joined messages the last one is the question.
_READ_CHARS = 8_000

#: Over a shape (see ``_shape``): words joined without a space are one identifier.
_WORD = re.compile(r"w[wm]*")
_CHUNK = re.compile(r"w[wm]*(?:[._/\\@:+'’-]{1,3}w[wm]*)*")
_CLITIC = re.compile(r"['’](s|re|ve|ll|d|m|t)$")
#: ``1st``, ``5pm``, ``30s``: numbers as words, not identifiers.
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|am|pm|s|k|m|h|x|km|kg|cm|mm|min|gb|mb)")
_JOINT = re.compile(r"[._\\@:]|/.*/")
_IDENTIFIER_CHARS, _NUMBER_DIGITS = 4, 4
_YEAR = re.compile(r"(?:1[6-9]|20|21)\d\d")
#: A mark that opens again ends the search for the one that closes, or many that never close would take quadratic time.
_QUOTED = re.compile('"([^"]+)"|“([^“”]+)”|「([^「」]+)」|『([^『』]+)』|《([^《》]+)》')
#: ``5月``, ``3章``: neither part says much alone.
_COUNTED = f"(?<![0-9])([0-9]+)([{CJK}])"

_CJK_CHAR = f"[{CJK}]"

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

#: They ask what was or was said, and say nothing about it.
_SPOKEN = ("say", "tell", "talk", "talked", "discuss", "discussed", "mention", "mentioned", "讨论", "提到")
_HAPPENED = frozenset(
    ("happen", "happened", "happening", "occurred", "event", "events", "发生", "事情", "事", *_SPOKEN)
)
_PHRASE_WEIGHT = 1_000.0
_PAIR_WEIGHT = 6.0  # as much as an English word of six letters
_DIGIT_WEIGHT = 4.0
#: Words whose operands are kept: those of new texts and of questions are mostly the same.
_KEPT_WORDS, _KEPT_CHARS = 2_048, 256


@frozen
class _Term:
    """One operand: folded ``text``, whether it is mere grammar, and how specific it looks."""

    text: str
    weight: float
    filler: bool = False
    prefix: bool = False

    @property
    def operand(self) -> str:
        return f'"{self.text}"*' if self.prefix else f'"{self.text}"'


def date_words(day: date) -> str:
    """A date as English and Chinese questions name it, to be indexed with what was said or happened then.

    ``2023-05-08 May 2023年5月8日``: found by the month, the ISO form and ``5月8日``.
    """
    month = _MONTHS[day.month - 1]
    return f"{day.isoformat()} {month} {day.year}年{day.month}月{day.day}日"


def query_terms(text: str, limit: int = _TERM_LIMIT, *, fillers: bool = True) -> tuple[str, ...]:
    """The operands of the MATCH expression for ``text``, each valid alone.

    A quoted phrase or an identifier (``ERR_CONN_RESET_42``, ``foo.bar()``, ``v1.2.3``, an e-mail) gives the phrase
    and, beside it, its words. Words and pairs that only carry grammar are left out unless nothing else
    remains.

    Args:
        text: The question, or messages joined with the newest last.
        limit: Most operands returned; the most specific are kept, later before earlier ones.
        fillers: Whether grammar is asked for where nothing else remains.

    Returns:
        Distinct quoted operands in order of appearance; empty if ``text`` holds no letter or digit.
    """
    folded = folded_words(text[-_READ_CHARS:])
    found: dict[str, _Term] = {}
    for term in (*_quoted_terms(folded), *_plain_terms(folded)):
        found.setdefault(term.operand, term)
    in_phrases = 0
    for operand in [operand for operand in reversed(found) if " " in operand]:
        in_phrases += operand.count(" ") + 1
        if in_phrases > _PHRASES_WORDS:
            del found[operand]
    terms = [term for term in found.values() if not term.filler] or (list(found.values()) if fillers else [])
    if len(terms) > limit:
        ranked = sorted(range(len(terms)), key=lambda at: (-terms[at].weight, -at))
        terms = [terms[at] for at in sorted(ranked[:limit])]
    return tuple(term.operand for term in terms)


def exact_terms(text: str, limit: int = _EXACT_LIMIT) -> tuple[str, ...]:
    """The operands of ``text`` that a document holds or does not hold, whatever else it says.

    Quoted words and phrases, and identifiers: words joined by dots, underscores, colons and the like, or of
    letters and digits. Hyphens and apostrophes join ordinary words too and do not count.

    Args:
        text: As for ``query_terms``.
        limit: Most operands returned, later before earlier ones.
    """
    folded = folded_words(text[-_READ_CHARS:])
    found = [term.operand for term in _quoted_terms(folded, least=1)]
    for run, is_cjk in runs(folded):
        if not is_cjk:
            found += [_phrase(_words(chunk), 0.0).operand for chunk in _identifiers(run)]
    return tuple(dict.fromkeys(found))[-limit:]


def says_something(text: str) -> bool:
    """Whether a question holds more than grammar and "what happened", "what did we talk about"."""
    return any(not term.filler and term.text not in _HAPPENED for term in _plain_terms(folded_words(text)))


def phrase_operand(words: str) -> str:
    """The operand for words that stand together in a document as they are given: ``live in``, 搬家, 妈."""
    tokens: list[str] = []
    last_run = ""
    for run, is_cjk in runs(folded_words(words)):
        tokens += (stored_tokens(run)[:-1] or [run]) if is_cjk else _words(run)
        last_run = run if is_cjk else ""
    return _phrase(tokens, 0.0, prefix=len(last_run) == 1).operand


def is_sentence(text: str) -> bool:
    """Whether a question holds grammar, too, and is not just key words."""
    return any(term.filler for term in _plain_terms(folded_words(text)))


def word_share(operand: str) -> float:
    """How much of a word an operand of ``query_terms`` is: a pair of Chinese characters half, all else whole."""
    return 0.5 if compiled(_CJK_CHAR).search(operand) else 1.0


def mentioned(text: str, names: Iterable[str]) -> set[str]:
    """Those of the names that the end of ``text`` (``_READ_CHARS``) mentions.

    As a whole word, or anywhere for names in CJK; a blank name is never mentioned.
    """
    within = fold(text[-_READ_CHARS:])
    return {name for name in names if _is_named(within, fold(name).strip())}


def name_pattern(name: str) -> str:
    """Matches a name as a whole word; at an end in CJK, anywhere."""
    before = "" if compiled(_CJK_CHAR).match(name) else rf"(?<![^\W{CJK}])"
    after = "" if compiled(_CJK_CHAR).match(name[-1]) else rf"(?![^\W{CJK}])"
    return before + re.escape(name) + after


def _is_named(within: str, wanted: str) -> bool:
    return bool(wanted) and wanted in within and re.search(name_pattern(wanted), within) is not None


class _Shapes(dict[int, str]):
    """Of each character so far: letters and digits as ``w``, combining marks as ``m``, all else as it is."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        shape = self[code] = {"L": "w", "N": "w", "M": "m"}.get(unicodedata.category(char)[0], char)
        return shape


_SHAPES = _Shapes()


def _shape(text: str) -> str:
    """The shapes of a text's characters; same length, so that a match in the shape is a slice of the text."""
    return text.translate(_SHAPES)


def _words(text: str) -> list[str]:
    return [text[match.start() : match.end()] for match in _WORD.finditer(_shape(text))]


def _identifiers(run: str) -> Iterator[str]:
    for chunk in _CHUNK.finditer(_shape(run)):
        text = run[chunk.start() : chunk.end()]
        letters, digits = any(char.isalpha() for char in text), any(char.isdigit() for char in text)
        if text.isdecimal() and len(text) >= _NUMBER_DIGITS and not _YEAR.fullmatch(text):
            yield text
        if (letters and digits and not _ORDINAL.fullmatch(text)) or (
            len(text) >= _IDENTIFIER_CHARS and len(_words(text)) > 1 and _JOINT.search(text)
        ):
            yield text


def _phrase(tokens: Sequence[str], weight: float, *, prefix: bool = False) -> _Term:
    return _Term(" ".join(tokens[:_PHRASE_WORDS]), weight, prefix=prefix and len(tokens) <= _PHRASE_WORDS)


def _quoted_terms(folded: str, least: int = 2) -> Iterator[_Term]:
    """Quoted phrases of at least so many tokens."""
    for match in _QUOTED.finditer(folded):
        content = match[match.lastindex or 0]
        tokens: list[str] = []
        last_run = ""
        for run, is_cjk in runs(content):
            words = stored_tokens(run) if is_cjk else _words(run)
            if words:
                tokens.extend(words)
                last_run = run if is_cjk else ""
        # A document's run may go on: then its last character here does not stand alone there.
        prefix = len(last_run) == 1
        if len(last_run) > 1:
            tokens.pop()
        if len(tokens) >= least:
            yield _phrase(tokens, _PHRASE_WEIGHT + len(content), prefix=prefix)


def _plain_terms(folded: str) -> Iterator[_Term]:
    before = ""
    for run, is_cjk in runs(folded):
        if is_cjk:
            yield from _cjk_terms(run, counts=before[-1:].isdecimal())
        else:
            for chunk in _CHUNK.finditer(_shape(run)):
                word = run[chunk.start() : chunk.end()]
                yield from _word_terms(word) if len(word) <= _KEPT_CHARS else _terms_of(word)
        before = run
    for number, unit in compiled(_COUNTED).findall(folded):
        yield _Term(f"{number} {unit}", _PAIR_WEIGHT + _DIGIT_WEIGHT, prefix=True)


def _cjk_terms(run: str, counts: bool) -> Iterator[_Term]:
    if len(run) == 1:
        yield _Term(run, 1.0, filler=counts or run in CHINESE_FUNCTION_CHARS, prefix=True)
    for pair in pairs(run):
        filler = CHINESE_FUNCTION_CHARS.issuperset(pair) or not CHINESE_PARTICLES.isdisjoint(pair)
        yield _Term(pair, _PAIR_WEIGHT, filler=filler)


@lru_cache(_KEPT_WORDS)
def _word_terms(chunk: str) -> tuple[_Term, ...]:
    return tuple(_terms_of(chunk))


def _terms_of(chunk: str) -> Iterator[_Term]:
    clitic = _CLITIC.search(chunk)
    stem = chunk[: clitic.start()] if clitic else chunk
    words = _words(stem)
    if clitic and clitic[1] == "t" and len(words) == 1:
        yield _Term(words[0], 0.0, filler=True)  # don't, wasn't
        return
    if len(words) > 1:
        yield _phrase(words, _PHRASE_WEIGHT + len(stem))
        words = [word for word in words if len(word) > 1]
    for word in words:
        weight = len(word) + (_DIGIT_WEIGHT if any(char.isdigit() for char in word) else 0.0)
        yield _Term(word, weight, filler=word in english_stop_words())
