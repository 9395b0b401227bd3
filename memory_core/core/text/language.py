"""Languages of conversations, a person's own prose in them, small talk, and questions put in another person.

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
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from memory_core.core.caches import remembered
from memory_core.core.text.normalization import simplified
from memory_core.core.text.unicode_form import unicode_form
from memory_core.core.text.word_table import compiled, word_pattern, word_set, word_table, words

UNDECIDED = "the language the user writes in"
CHINESE = "Chinese"

#: Of a long text only both ends count: what is in the middle is mostly pasted.
_END_CHARS = 400
_READ_LIMIT_CHARS = 20_000
#: Between the tags of an element of markup; what is longer is a page.
_ELEMENT_CHARS = 2_000
#: A message counts more the longer it is, up to this.
_WEIGHT_LIMIT = 5
#: An English function word outweighs so many characters of another script: terms and quotations stand without them.
_HAN_PER_WORD = 3
_LETTERS_PER_WORD = 5
#: Less kana than this among Chinese characters is decoration, such as 優の良品.
_KANA_SHARE = 0.2
_SMALL_TALK_CHARS = 160
_QUESTION_LETTERS = 120
#: A Chinese character says as much as three letters, two more than its length.
_MORE_LETTERS_PER_HAN = 2
#: No phrase of small talk has more words, or Chinese characters.
_PHRASE_TOKENS = 8

_SENTENCE = re.compile(r"[^\n]*?(?:[。！？!?…]+[”」』\"')）]*|\.{1,6}[\"')]{0,3}(?=\s|$)|(?=\n)|$)", re.DOTALL)
#: Marks between the phrases of a sentence; what else a cut text does not end with.
_CLAUSE_MARKS = (", ", "; ", ": ", " - ", " – ", " — ", "，", "；", "：", "。", "！", "？", ". ", "! ", "? ")
_TRAILING = " .,;:-–—，。；：、（(…"
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def without_machine_text(text: str) -> str:
    """The text without fenced code, markup and lines of logs; both ends of a very long one."""
    if len(text) > _READ_LIMIT_CHARS:
        text = f"{text[: _READ_LIMIT_CHARS // 2]}\n\n{text[-_READ_LIMIT_CHARS // 2 :]}"
    text = _without_elements(word_pattern(__file__, "fence").sub("\n", text))
    for name in ("tag", "log_line"):
        text = word_pattern(__file__, name).sub("\n", text)
    return text


def _without_elements(text: str) -> str:
    """The text without comments of markup, and elements whose end is near; other tags stay."""
    if "<" not in text:
        return text
    ends: dict[str | None, list[tuple[int, int]]] = {}
    for end in word_pattern(__file__, "element_end").finditer(text):
        ends.setdefault(end[1], []).append(end.span())
    pieces: list[str] = []
    at = 0
    for start in word_pattern(__file__, "element_start").finditer(text):
        own = ends.get(start[1], [])
        next_end = bisect_left(own, (start.end(), 0))
        if start.start() >= at and next_end < len(own) and own[next_end][0] - start.end() <= _ELEMENT_CHARS:
            pieces.append(text[at : start.start()])
            at = own[next_end][1]
    return "\n".join([*pieces, text[at:]])


def prose(text: str) -> str:
    """What a person says in their own words: no text of a machine, no code, addresses, paths and quotations."""
    text = without_machine_text(text)
    for name in ("inline_code", "address", "path", "quoted"):
        text = word_pattern(__file__, name).sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """The sentences of a text in order, each with its mark; a line break ends one, an abbreviation's point does not."""
    return [text[start:end] for start, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Where the sentences of a text begin and end, without the space around them."""
    found: list[tuple[int, int]] = []
    before, read_to = "", 0
    for match in _SENTENCE.finditer(text):
        piece = match.group().strip()
        if not piece:
            continue
        start = match.end() - len(match.group().lstrip())
        if found and "\n" not in text[read_to : match.start() + 1] and _goes_on(before, piece):
            start = found.pop()[0]
        found.append((start, match.end() - len(match.group()) + len(match.group().rstrip())))
        before, read_to = piece, match.end()
    return found


def _goes_on(before: str, piece: str) -> bool:
    """Whether the point at the end of a piece of a sentence is that of an abbreviation."""
    if not before.endswith("."):
        return False
    names = ["abbreviation"]
    if piece[0].isdigit():
        names.append("abbreviation_before_number")
    if piece[0].islower() or piece[0].isdigit():
        names.append("abbreviation_amid")
    return any(word_pattern(__file__, name).search(before) for name in names)


def phrase(text: str, limit_chars: int) -> str:
    """The text on one line; of a longer one the beginning, to the end of a phrase, and an ellipsis.

    Args:
        text: On any number of lines.
        limit_chars: At most so many characters, with the ellipsis.
    """
    flat = " ".join(text.split())
    if len(flat) <= limit_chars:
        return flat
    room = flat[: limit_chars - 1]
    clause = max(map(room.rfind, _CLAUSE_MARKS))
    if clause >= limit_chars // 2:
        return f"{room[:clause].rstrip(_TRAILING)}…"
    if flat[limit_chars - 1] != " " and " " in room[limit_chars // 2 :]:
        room = room.rsplit(" ", 1)[0]
    while (cut := room.rpartition(" "))[0] and cut[2].casefold() in word_set(__file__, "dangling"):
        room = cut[0]
    return f"{room.rstrip(_TRAILING)}…"


def in_language(texts: Mapping[str, Any], language: str) -> Any:
    """Of texts in Chinese (``zh``) and English (``en``) those for a conversation whose language is ``language``."""
    return texts["zh" if language.startswith(CHINESE) else "en"]


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
        language, weight, simplified_chars, traditional_chars = _told(text)
        self.simplified += simplified_chars
        self.traditional += traditional_chars
        if language is not None:
            self.votes[language] += weight

    def copy(self) -> LanguageCounts:
        """The same counts, to be gone on with."""
        return LanguageCounts(self.votes.copy(), self.simplified, self.traditional)

    @property
    def language(self) -> str | None:
        """The language of most of it, Chinese with its way of writing where the characters tell; None if none does."""
        language = self.votes.most_common(1)[0][0] if self.votes else None
        if language == CHINESE and self.simplified > 4 * self.traditional:
            return f"{CHINESE} (Simplified)"
        if language == CHINESE and self.traditional > 4 * self.simplified:
            return f"{CHINESE} (Traditional)"
        return language


@remembered(256, 4 << 20)
def _told(text: str) -> tuple[str | None, int, int, int]:
    """What a text says of its language: which, its weight, and characters of either way of writing Chinese."""
    flat = " ".join(prose(text).split())
    if len(flat) > 2 * _END_CHARS:
        flat = f"{flat[:_END_CHARS]} {flat[-_END_CHARS:]}"
    chars = Counter(() if flat.isascii() else flat)
    simplified_chars, traditional_chars = (
        sum(count for char, count in chars.items() if char in _only_in(writing))
        for writing in ("simplified", "traditional")
    )
    return _language(flat, chars), min(_WEIGHT_LIMIT, 1 + len(flat) // 40), simplified_chars, traditional_chars


def is_small_talk(text: str) -> bool:
    """Whether ``text`` says nothing but hello, thanks, fine or goodbye; blank text does not even say that."""
    if len(text) > _SMALL_TALK_CHARS or not text.strip():
        return False
    read = simplified(unicode_form("NFKC", text)).casefold().replace("’", "'").replace("'", "")
    if any(character.isnumeric() and not "\u3400" <= character <= "\u9fff" for character in read):
        return False
    tokens = word_pattern(__file__, "small_talk_token").findall(read)
    asks = "?" in read
    if not tokens:
        return not asks
    if "and" in (tokens[0], tokens[-1]):
        return False
    return _made_of_phrases(tokens, asks=asks)


def is_brief(text: str) -> bool:
    """Whether a text is as short as a question; longer ones are messages."""
    return len(text) + _MORE_LETTERS_PER_HAN * _han(text) <= _QUESTION_LETTERS


def _han(text: str) -> int:
    return sum("\u3400" <= char <= "\u9fff" for char in text)


def other_person(question: str) -> str | None:
    """``question`` about the user if it is asked in the first person, in the first if it is about the user.

    Returns:
        None for long texts, which are messages rather than questions, and where neither person is named.
    """
    if not is_brief(question):
        return None
    to_third = "chinese_to_third" if _han(question) else "english_to_third"
    for change in (to_third, "chinese_to_first", "english_to_first"):
        changed = question
        for pattern, words_of_other in word_table(__file__)["other_person"][change]:
            changed = compiled(pattern).sub(words_of_other, changed)
        if changed != question:
            return changed
    return None


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


@cache
def _phrases() -> Mapping[str, bool]:
    """The phrases of small talk, their tokens joined by spaces, each with whether it asks."""
    table = word_table(__file__)["small_talk"]

    def split(lines: Iterable[str]) -> list[str]:
        return [phrase for line in lines for phrase in line.split("|")]

    said = split(table["phrases"])
    for pair in table["with_tails"]:
        said += [f"{head} {tail}" for head in split(pair["heads"]) for tail in split(pair["tails"])]
    asks = dict.fromkeys(said, False) | dict.fromkeys(split(table["questions"]), True)
    token = word_pattern(__file__, "small_talk_token")
    return {" ".join(token.findall(phrase)): asking for phrase, asking in asks.items()}


def _made_of_phrases(tokens: Sequence[str], *, asks: bool) -> bool:
    """Whether the tokens fall into known phrases; ``asks``: one of them a question, which a question mark needs."""
    phrases, drawn_out = _phrases(), word_pattern(__file__, "drawn_out")
    #: For each place, whether a sequence of phrases ends there without, or with, a question among them.
    reached: list[set[bool]] = [{False}, *(set() for _ in tokens)]
    for start, token in enumerate(tokens):
        for asked in reached[start]:
            if token == "and" or drawn_out.fullmatch(token):
                reached[start + 1].add(asked)
            for end in range(start + 1, min(start + _PHRASE_TOKENS, len(tokens)) + 1):
                asking = phrases.get(" ".join(tokens[start:end]))
                if asking is not None:
                    reached[end].add(asked or asking)
    return True in reached[-1] or (not asks and False in reached[-1])
