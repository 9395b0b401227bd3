"""Tokens for FTS5: the same words, in any script, at index time and at query time.

Owns: what text is stored in the FTS table (``tokenize = 'porter unicode61 remove_diacritics 2'``) and how a
question becomes a MATCH expression.

SQLite's tokenizers cannot cut scripts written without spaces, so runs of Han, kana and hangul are stored as
overlapping character pairs (``支付系统`` -> ``支付 付系 系统 统``). The last character of a run stands alone
once more: with it every single character begins some token, so a one-character query is a prefix query.
Traditional characters become simplified ones, so that either finds the other. All other scripts are folded (NFKC,
casefold) and left to FTS5, which stems English.

Promises: pure, never raises on any ``str`` (operators, quotes, NUL and lone surrogates included), and every operand
it returns is valid MATCH syntax.

Does not: open a database, understand grammar, or weigh documents (``bm25`` and ``scoring.fusion`` do).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from memory_core.core.text.normalization import simplified

_TABLE = """
become: became
begin: began begun
bend: bent
bite: bit bitten
blow: blew blown
break: broke broken
breed: bred
bring: brought
build: built
burn: burnt
buy: bought
catch: caught
child: children
choose: chose chosen
come: came
creep: crept
deal: dealt
dig: dug
draw: drew drawn
dream: dreamt
drink: drank drunk
drive: drove driven
eat: ate eaten
fall: fallen
feed: fed
feel: felt
fight: fought
flee: fled
fly: flew flown
foot: feet
forbid: forbade forbidden
forget: forgot forgotten
forgive: forgave forgiven
freeze: froze frozen
give: gave given
goose: geese
grow: grew grown
half: halves
hang: hung
hear: heard
hide: hid hidden
hold: held
keep: kept
knife: knives
know: knew known
lay: laid
lead: led
learn: learnt
lend: lent
lose: lost
man: men
mean: meant
meet: met
mouse: mice
overcome: overcame
pay: paid
person: people
ride: rode ridden
ring: rang rung
run: ran
seek: sought
sell: sold
send: sent
shake: shook shaken
shelf: shelves
shine: shone
shoot: shot
show: shown
shrink: shrank shrunk
sing: sang sung
sink: sank sunk
sit: sat
sleep: slept
slide: slid
speak: spoke spoken
spend: spent
spill: spilt
spin: spun
stand: stood
steal: stole stolen
stick: stuck
sting: stung
strike: struck
swear: swore sworn
sweep: swept
swim: swam swum
swing: swung
take: took taken
teach: taught
tear: tore torn
think: thought
throw: threw thrown
tooth: teeth
understand: understood
wake: woke woken
wear: wore worn
weep: wept
wife: wives
win: won
withdraw: withdrew withdrawn
wolf: wolves
woman: women
write: wrote written
"""
_BASES = {
    form: base for base, _, forms in (line.partition(": ") for line in _TABLE.split("\n")) for form in forms.split()
}
_FORM = re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(_BASES, key=len, reverse=True))})(?![^\W_])")


def regular(folded: str) -> str:
    """``folded`` (lower case) with irregular forms replaced by the words they are forms of."""
    return _FORM.sub(lambda found: _BASES[found[0]], folded)


TERM_LIMIT = 64
EXACT_LIMIT = 8
#: A longer query is read from its end: in joined messages the last one is the question.
QUERY_LIMIT_CHARS = 8_000

_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u318f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
_RUNS = re.compile(f"(?P<cjk>[{_CJK}]+)|[^{_CJK}]+")
#: SQLite stores UTF-8 and ends a text at NUL; private-use characters are tokens to FTS5 and kept for fillers.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\ue000-\uf8ff]")
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
_COUNTED = re.compile(f"(?<![0-9])([0-9]+)([{_CJK}])")

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_ENGLISH = """
a about after all also am an and any are as at be been before being both but by can could did do does doing done
each for from get gets getting go goes going got had has have having he her here hers him his how i if in into is it
its just let like me mine more most much my no nor not of off on one or other our ours out own please really same
she should so some such tell than that the their theirs them then there these they this those to too up us very was
we were what when where which while who whom whose why will with would you your yours
"""
#: Words that ask rather than describe: left out of questions.
ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
#: A pair that holds one of these is left out of questions: particles, pronouns, question words.
CHINESE_PARTICLES = frozenset("的了吗呢啊呀嘛我你他她它您们这那么什怎")
#: So is a pair of two of these. Alone they are parts of too many content words (会议, 地址, 和平).
CHINESE_FUNCTION_CHARS = CHINESE_PARTICLES | frozenset(
    "吧哦嗯哈是不没有在和与或也都就还又很太真被把给让跟对向从到着过地得个些哪谁几为会能可以要想说"
)

#: They ask what was or was said, and say nothing about it.
_SPOKEN = ("say", "tell", "talk", "talked", "discuss", "discussed", "mention", "mentioned", "讨论", "提到")
_HAPPENED = frozenset(
    ("happen", "happened", "happening", "occurred", "event", "events", "发生", "事情", "事", *_SPOKEN)
)
_PHRASE_WEIGHT = 1_000.0
_PAIR_WEIGHT = 6.0  # as much as an English word of six letters
_DIGIT_WEIGHT = 4.0
_INDEXED_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Term:
    """One operand: folded ``text``, whether it is mere grammar, and how specific it looks."""

    text: str
    weight: float
    filler: bool = False
    prefix: bool = False

    @property
    def operand(self) -> str:
        return f'"{self.text}"*' if self.prefix else f'"{self.text}"'


def fold(text: str) -> str:
    """One form for all spellings: NFKC (full width, half-width kana), case, simplified Chinese; storable in SQLite."""
    folded = unicodedata.normalize("NFKC", _UNSTORABLE.sub(" ", text)).casefold()
    return simplified(unicodedata.normalize("NFKC", folded))


def _spelled(text: str) -> str:
    """``text`` as it is indexed and asked for: folded, and irregular forms as the word they belong to."""
    return regular(fold(text))


def index_tokens(text: str) -> str:
    """What the FTS table stores for ``text``.

    Args:
        text: Anything, Markdown included.

    Returns:
        The folded text with every CJK run replaced by its character pairs and its last character, set off by
        spaces. Blank if ``text`` holds nothing to find.
    """
    return _CJK_RUN.sub(lambda run: f" {' '.join(_stored(run[0]))} ", _spelled(text))


def distinct_words(text: str) -> frozenset[str]:
    """The words and character pairs of a text, without English stop words: what near-duplicates share."""
    return frozenset(_INDEXED_WORD.findall(index_tokens(text))) - ENGLISH_STOP_WORDS


def date_words(day: date) -> str:
    """A date as English and Chinese questions name it, to be indexed with what was said or happened then.

    ``2023-05-08 May 2023年5月8日``: found by the month, the ISO form and ``5月8日``.
    """
    month = _MONTHS[day.month - 1]
    return f"{day.isoformat()} {month} {day.year}年{day.month}月{day.day}日"


def query_terms(text: str, limit: int = TERM_LIMIT) -> tuple[str, ...]:
    """The operands of the MATCH expression for ``text``, each valid alone.

    A quoted phrase or an identifier (``ERR_CONN_RESET_42``, ``foo.bar()``, ``v1.2.3``, an e-mail) gives the phrase
    and, beside it, its words. Words and pairs that only carry grammar are left out unless nothing else
    remains.

    Args:
        text: The question, or messages joined with the newest last.
        limit: Most operands returned; the most specific are kept, later before earlier ones.

    Returns:
        Distinct quoted operands in order of appearance; empty if ``text`` holds no letter or digit.
    """
    folded = _spelled(text[-QUERY_LIMIT_CHARS:])
    found: dict[str, _Term] = {}
    for term in (*_quoted_terms(folded), *_plain_terms(folded)):
        found.setdefault(term.operand, term)
    terms = [term for term in found.values() if not term.filler] or list(found.values())
    if len(terms) > limit:
        ranked = sorted(range(len(terms)), key=lambda at: (-terms[at].weight, -at))
        terms = [terms[at] for at in sorted(ranked[: max(limit, 0)])]
    return tuple(term.operand for term in terms)


def exact_terms(text: str, limit: int = EXACT_LIMIT) -> tuple[str, ...]:
    """The operands of ``text`` that a document holds or does not hold, whatever else it says.

    Quoted words and phrases, and identifiers: words joined by dots, underscores, colons and the like, or of
    letters and digits. Hyphens and apostrophes join ordinary words too and do not count.

    Args:
        text: As for ``query_terms``.
        limit: Most operands returned, later before earlier ones.
    """
    folded = _spelled(text[-QUERY_LIMIT_CHARS:])
    found = [term.operand for term in _quoted_terms(folded, least=1)]
    for run in _RUNS.finditer(folded):
        if run["cjk"] is None:
            found += [f'"{" ".join(_words(chunk))}"' for chunk in _identifiers(run[0])]
    return tuple(dict.fromkeys(found))[-limit:]


def says_something(text: str) -> bool:
    """Whether a question holds more than grammar and "what happened", "what did we talk about"."""
    return any(not term.filler and term.text not in _HAPPENED for term in _plain_terms(_spelled(text)))


def word_share(operand: str) -> float:
    """How much of a word an operand of ``query_terms`` is: a pair of Chinese characters half, all else whole."""
    return 0.5 if _CJK_RUN.search(operand) else 1.0


def mentioned(text: str, names: Iterable[str]) -> set[str]:
    """Those of the names that the end of ``text`` (``QUERY_LIMIT_CHARS``) mentions.

    As a whole word, or anywhere for names in CJK; a blank name is never mentioned.
    """
    within = fold(text[-QUERY_LIMIT_CHARS:])
    return {name for name in names if _names(within, fold(name).strip())}


def _names(within: str, wanted: str) -> bool:
    if wanted not in within or not wanted:
        return False
    before = "" if _CJK_RUN.match(wanted) else rf"(?<![^\W{_CJK}])"
    after = "" if _CJK_RUN.match(wanted[-1]) else rf"(?![^\W{_CJK}])"
    return re.search(before + re.escape(wanted) + after, within) is not None


def _stored(run: str) -> Iterator[str]:
    """The tokens of a CJK run: its pairs, then its last character."""
    yield from _pairs(run)
    yield run[-1]


def _pairs(run: str) -> Iterator[str]:
    return (left + right for left, right in pairwise(run))


def _shape(text: str) -> str:
    """``text`` with letters and digits as ``w``, combining marks as ``m``, all else as it is.

    Same length, so that a match in the shape is a slice of the text.
    """
    shapes = {"L": "w", "N": "w", "M": "m"}
    return "".join(shapes.get(unicodedata.category(char)[0], char) for char in text)


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


def _quoted_terms(folded: str, least: int = 2) -> Iterator[_Term]:
    """Quoted phrases of at least so many tokens."""
    for match in _QUOTED.finditer(folded):
        content = match[match.lastindex or 0]
        tokens: list[str] = []
        last_run = ""
        for run in _RUNS.finditer(content):
            words = list(_stored(run[0])) if run["cjk"] is not None else _words(run[0])
            if words:
                tokens.extend(words)
                last_run = run[0] if run["cjk"] is not None else ""
        # A document's run may go on: then its last character here does not stand alone there.
        prefix = len(last_run) == 1
        if len(last_run) > 1:
            tokens.pop()
        if len(tokens) >= least:
            yield _Term(" ".join(tokens), _PHRASE_WEIGHT + len(content), prefix=prefix)


def _plain_terms(folded: str) -> Iterator[_Term]:
    for run in _RUNS.finditer(folded):
        if run["cjk"] is not None:
            yield from _cjk_terms(run[0], counts=folded[: run.start()][-1:].isdecimal())
        else:
            for chunk in _CHUNK.finditer(_shape(run[0])):
                yield from _word_terms(run[0][chunk.start() : chunk.end()])
    for number, unit in _COUNTED.findall(folded):
        yield _Term(f"{number} {unit}", _PAIR_WEIGHT + _DIGIT_WEIGHT, prefix=True)


def _cjk_terms(run: str, counts: bool) -> Iterator[_Term]:
    if len(run) == 1:
        yield _Term(run, 1.0, filler=counts or run in CHINESE_FUNCTION_CHARS, prefix=True)
    for pair in _pairs(run):
        filler = CHINESE_FUNCTION_CHARS.issuperset(pair) or not CHINESE_PARTICLES.isdisjoint(pair)
        yield _Term(pair, _PAIR_WEIGHT, filler=filler)


def _word_terms(chunk: str) -> Iterator[_Term]:
    clitic = _CLITIC.search(chunk)
    stem = chunk[: clitic.start()] if clitic else chunk
    words = _words(stem)
    if clitic and clitic[1] == "t" and len(words) == 1:
        yield _Term(words[0], 0.0, filler=True)  # don't, wasn't
        return
    if len(words) > 1:
        yield _Term(" ".join(words), _PHRASE_WEIGHT + len(stem))
        words = [word for word in words if len(word) > 1]
    for word in words:
        weight = len(word) + (_DIGIT_WEIGHT if any(char.isdigit() for char in word) else 0.0)
        yield _Term(word, weight, filler=word in ENGLISH_STOP_WORDS)
