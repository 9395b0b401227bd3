"""Which language a conversation is in, the prose in it that tells, and which messages are small talk.

A language is decided from what the users themselves write, never from a locale. Owned here: what of a text is a
person's own prose (not code, addresses, quotations, logs), how it falls into sentences, and the language of it: by
script, and in Latin script by the small words that every sentence needs. A Chinese sentence full of English terms is
Chinese.

Small talk is a message made of nothing but greetings, thanks, acknowledgements, goodbyes, laughter and emoji. One
word beyond them, a name, a number, a request ("ok do it", 继续) or an answer ("yes", 可以) and it is not: a recall that
was not needed costs little, one that is missing costs the answer. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from memory_core.core.text.normalization import simplified
from memory_core.core.text.word_table import word_table, words

if TYPE_CHECKING:
    from memory_core.core.memory.message import Message

UNDECIDED = "the language the user writes in"
CHINESE = "Chinese"

#: Of a long text only both ends count: what is in the middle is mostly pasted.
_END_CHARS = 400
_READ_LIMIT_CHARS = 20_000
#: A message counts more the longer it is, up to this.
_WEIGHT_LIMIT = 5
#: An English function word outweighs so many characters of another script: terms and quotations stand without them.
_HAN_PER_WORD = 3
_LETTERS_PER_WORD = 5
#: Less kana than this among Chinese characters is decoration, such as 優の良品.
_KANA_SHARE = 0.2
_SMALL_TALK_CHARS = 160

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_ELEMENT = re.compile(
    r"<([A-Za-z][\w:-]{0,60})\b[^<>]{0,500}>.{0,2000}?</\1>|<!--.{0,2000}?-->|</?[A-Za-z][^<>\n]{0,500}>", re.DOTALL
)
_INLINE = re.compile(r"(`{1,3})[^`\n]+\1")
_ADDRESS = re.compile(
    r"(?a:\b[a-z][a-z0-9+.-]{1,20}://\S+|\bwww\.\S+|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64})", re.IGNORECASE
)
_PATH = re.compile(
    r"(?a:(?<![\w/])(?:[A-Za-z]:)?[\w.~-]{0,64}(?:[\\/][\w.@~+-]{1,255}){2,}[\\/]?"
    r"|(?<![\w-])[\w-]{1,64}\.[a-z]{1,5}\b(?![.。]?\s*$))"
)
_QUOTED = re.compile(
    r"“[^”]{2,1000}”|「[^」]{2,1000}」|『[^』]{2,1000}』|《[^》]{1,200}》|(?<![\w\"])\"[^\"\n]{2,1000}\"(?![\w\"])"
)
_LOG_LINE = re.compile(
    r"^(?:[ \t]*>"
    r"|(?: {4}|\t)[ \t]*(?![-*+•\d \t])\S"
    r"|[ \t]*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
    r"|[ \t]*\[?\d\d:\d\d:\d\d"
    r"|[ \t]*(?:\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|FATAL|TRACE)\]?\b)"
    r"|[ \t]*(?:Traceback \(|File \"|at [\w$.<>]+ ?\(|Caused by: |(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception)\b:?)"
    r"|[ \t]*(?:[$#%] |>>> |\.\.\. |[-+]{3} |@@ |diff --git|\|)"
    r"|[ \t]*[{}\[\]();,]+[ \t]*$"
    r"|\[(?:image|file|audio|video)\][ \t]*$).*$",
    re.MULTILINE,
)
_SENTENCE = re.compile(r"[^\n]*?(?:[。！？!?…]+[”」』\"')）]*|\.{1,6}[\"')]{0,3}(?=\s|$)|(?=\n)|$)", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def spoken(text: str) -> str:
    """The text without fenced code, markup and lines of logs; both ends of a very long one."""
    if len(text) > _READ_LIMIT_CHARS:
        text = f"{text[: _READ_LIMIT_CHARS // 2]}\n\n{text[-_READ_LIMIT_CHARS // 2 :]}"
    for pattern in (_FENCE, _ELEMENT, _LOG_LINE):
        text = pattern.sub("\n", text)
    return text


def prose(text: str) -> str:
    """What a person says in their own words: ``spoken`` without code, addresses, paths and quotations in it."""
    text = spoken(text)
    for pattern in (_INLINE, _ADDRESS, _PATH, _QUOTED):
        text = pattern.sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, each with its mark; a line break ends one, too."""
    return [found for match in _SENTENCE.finditer(text) if (found := match.group().strip())]


def language_of(messages: Sequence[Message]) -> str:
    """The language of the users' messages, in English.

    Returns:
        For example ``English``, ``Chinese (Simplified)``, ``Chinese`` where both ways of writing are possible, or
        ``UNDECIDED``. Where the users' messages do not tell, all messages but prompts and tools' answers decide.
    """
    said = [message for message in messages if message.role not in ("system", "developer", "tool", "function")]
    users = [message.text for message in said if message.role == "user"]
    for texts in (users, [message.text for message in said]):
        counts = LanguageCounts()
        for text in texts:
            counts.add(text)
        if counts.language is not None:
            return counts.language
    return UNDECIDED


@dataclass(slots=True)
class LanguageCounts:
    """What texts say of their language; it grows with each text and needs none again.

    Attributes:
        votes: For each language, how much was written in it; the first text's language first.
        simplified: Characters that only simplified Chinese has.
        traditional: Characters that only traditional Chinese has.
    """

    votes: Counter[str] = field(default_factory=Counter)
    simplified: int = 0
    traditional: int = 0

    def add(self, text: str) -> None:
        """Count one more text."""
        flat = " ".join(prose(text).split())
        if len(flat) > 2 * _END_CHARS:
            flat = f"{flat[:_END_CHARS]} {flat[-_END_CHARS:]}"
        chars = Counter(() if flat.isascii() else flat)
        self.simplified += sum(count for char, count in chars.items() if char in _only_in("simplified"))
        self.traditional += sum(count for char, count in chars.items() if char in _only_in("traditional"))
        language = _language(flat, chars)
        if language is not None:
            self.votes[language] += min(_WEIGHT_LIMIT, 1 + len(flat) // 40)

    @property
    def language(self) -> str | None:
        """The language of most of it, Chinese with its way of writing where the characters tell; None if none does."""
        language = self.votes.most_common(1)[0][0] if self.votes else None
        if language == CHINESE and self.simplified > 4 * self.traditional:
            return f"{CHINESE} (Simplified)"
        if language == CHINESE and self.traditional > 4 * self.simplified:
            return f"{CHINESE} (Traditional)"
        return language


def is_small_talk(text: str) -> bool:
    """Whether ``text`` says nothing but hello, thanks, fine or goodbye; blank text does not even say that."""
    if len(text) > _SMALL_TALK_CHARS or not text.strip():
        return False
    read = simplified(unicodedata.normalize("NFKC", text)).casefold().replace("’", "'").replace("'", "")
    if any(character.isnumeric() and not "\u3400" <= character <= "\u9fff" for character in read):
        return False
    tokens = _phrases().token.findall(read)
    asks = "?" in read
    if not tokens:
        return not asks
    if "and" in (tokens[0], tokens[-1]):
        return False
    return _made_of_phrases(tokens, asks=asks)


@cache
def _only_in(writing: str) -> frozenset[str]:
    """The frequent characters that only one way of writing Chinese has: ``simplified`` or ``traditional``."""
    return frozenset("".join(word_table(__file__)[writing]))


@lru_cache(maxsize=8_192)
def _script(char: str) -> str | None:
    """The script of a character; None for Latin, for marks, and for scripts that tell nothing."""
    for script, spans in word_table(__file__)["scripts"].items():
        for span in spans.split():
            first, last = span.split("-")
            if int(first, 16) <= ord(char) <= int(last, 16):
                return str(script)
    return None


@cache
def _function_words() -> Mapping[str, frozenset[str]]:
    return {name: words(lines) for name, lines in word_table(__file__)["function_words"].items()}


def _language(text: str, chars: Mapping[str, int]) -> str | None:
    """The language of one text, whose characters are counted, or None if it does not tell."""
    said = [word.casefold().replace("’", "'") for word in _WORD.findall(text)]
    english = sum(word in _function_words()["English"] for word in said)
    counts: Counter[str] = Counter()
    for char, count in chars.items():
        if (script := _script(char)) is not None:
            counts[script] += count
    han, kana = counts.pop("han", 0), counts.pop("kana", 0)
    letters, most = max(((count, name) for name, count in counts.items()), default=(0, ""))
    if max(han + kana, letters) == 0:
        return _latin(said)
    if han + kana >= letters:
        if han + kana < _HAN_PER_WORD * english:
            return "English"
        return "Japanese" if kana > _KANA_SHARE * (han + kana) else CHINESE
    if letters < _LETTERS_PER_WORD * english:
        return "English"
    alphabets = word_table(__file__)["alphabets"].get(most, ())
    return next((name for name, marks in alphabets if not marks or set(marks) & set(text.casefold())), most)


def _latin(said: Sequence[str]) -> str | None:
    """The language most of whose small words appear; None for too few, or for two alike."""
    counts = Counter({name: sum(word in known for word in said) for name, known in _function_words().items()})
    (best, count), (_, second) = counts.most_common(2)
    return best if count > second and count * 8 >= len(said) else None


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases of small talk as their tokens joined by spaces; ``asking`` are those that are questions."""

    token: re.Pattern[str]
    drawn_out: re.Pattern[str]
    known: frozenset[str]
    asking: frozenset[str]
    longest: int


@cache
def _phrases() -> _Phrases:
    table = word_table(__file__)["small_talk"]
    token = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+")

    def split(lines: Iterable[str]) -> list[str]:
        return [phrase for line in lines for phrase in line.split("|")]

    asking = split(table["questions"])
    known = [*split(table["phrases"]), *asking]
    for pair in table["with_tails"]:
        known += [f"{head} {tail}" for head in split(pair["heads"]) for tail in split(pair["tails"])]
    asking, known = ([" ".join(token.findall(phrase)) for phrase in phrases] for phrases in (asking, known))
    longest = max(phrase.count(" ") for phrase in known) + 1
    return _Phrases(token, re.compile("|".join(table["drawn_out"])), frozenset(known), frozenset(asking), longest)


def _made_of_phrases(tokens: Sequence[str], *, asks: bool) -> bool:
    """Whether the tokens fall into known phrases; ``asks``: one of them a question, which a question mark needs."""
    phrases = _phrases()
    #: For each place, whether a sequence of phrases ends there without, or with, a question among them.
    reached: list[set[bool]] = [{False}, *(set() for _ in tokens)]
    for start, token in enumerate(tokens):
        for asked in reached[start]:
            if token == "and" or phrases.drawn_out.fullmatch(token):
                reached[start + 1].add(asked)
            for end in range(start + 1, min(start + phrases.longest, len(tokens)) + 1):
                phrase = " ".join(tokens[start:end])
                if phrase in phrases.known:
                    reached[end].add(asked or phrase in phrases.asking)
    return True in reached[-1] or (not asks and False in reached[-1])
