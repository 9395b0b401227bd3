"""The owner of a store in questions: one person under many names, asked about in many words.

"I", "my", "the user" and the owner's own name are one person. What people ask of themselves most (where they live,
their work, family, health …) is asked in words that the answer seldom has, so a table of such topics, in both
languages, says how each is asked, in which words it is told, and what it means. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from memory_core.core.caches import remembered
from memory_core.core.frozen import frozen
from memory_core.core.index.tokenizer import mentioned, name_pattern, phrase_operand
from memory_core.core.text.analysis import CJK
from memory_core.core.text.language import is_brief, other_person, sentences
from memory_core.core.text.normalization import simplified
from memory_core.core.text.word_table import compiled, word_pattern, word_table

if TYPE_CHECKING:
    from memory_core.core.config import Config

#: Of a profile that somebody filled with a life, the beginning names its owner.
_PROFILE_CHARS = 4_000
_MOST_NAMES = 8
#: A name of three Chinese characters is a family name and the given name that people call.
_FULL_NAME_CHARS = 3
#: What is shorter is an exclamation.
_SENTENCE_CHARS = 4


@frozen
class Topic:
    """Something that people ask of themselves.

    Attributes:
        name: One word.
        asks: A pattern: how a question about it reads.
        operands: FTS5 operands: the words in which it is told.
        meanings: What it means, to be embedded.
        of_person: Whether what else is asked ("my wife's job") is asked of somebody else.
    """

    name: str
    asks: str
    operands: tuple[str, ...]
    meanings: tuple[str, ...]
    of_person: bool


@frozen
class OwnersQuestion:
    """A question, read for what it asks about the owner.

    Attributes:
        text: As it was asked.
        names: The owner's names that it mentions.
        rest: What it says beside the topics and these names.
        topics: For each topic the FTS5 operands that tell of it.
        ways: Ways to put it, as it was asked first; each may be nearer to how a memory puts it.
        whole: Whether it asks who the owner is, or what is known of them: the profile answers that.
        of_user: Whether it is asked in the first person and not about what the assistant said.
    """

    text: str
    names: tuple[str, ...] = ()
    rest: str = ""
    topics: tuple[tuple[str, ...], ...] = ()
    ways: tuple[str, ...] = ()
    whole: bool = False
    of_user: bool = False


@remembered(64, 4 << 20)
def owner_names(profile: str) -> tuple[str, ...]:
    """The names that a profile gives its owner, the newest first; of a full name also the part that friends use."""
    found: dict[str, None] = {}
    for line in re.split(r"[\n]|(?<=[.!?。！？])\s*", profile[:_PROFILE_CHARS]):
        for pattern in word_table(__file__)["names"]:
            for match in compiled(_expanded(pattern), re.IGNORECASE).finditer(line):
                name = match[1].strip(" .,'’-")
                if name and not word_pattern(__file__, "no_name").match(name):
                    found.pop(name, None)
                    found[name] = None
    return tuple(dict.fromkeys(name for full in reversed(found) for name in _forms_of_name(full)))[:_MOST_NAMES]


def names_of(config: Config, profile: str) -> tuple[str, ...]:
    """The owner's names: those of the settings, then those that the profile gives."""
    return tuple(dict.fromkeys((*config.owner_names, *owner_names(profile))))


def read_question(text: str, names: Sequence[str]) -> OwnersQuestion:
    """What a question asks about the owner; of a long text, or one about others, only as it was asked.

    Args:
        text: The question.
        names: The owner's; see ``names_of``.
    """
    of_user = _is_first_person(text) and word_pattern(__file__, "assistant").search(text) is None
    if not is_brief(text):
        return OwnersQuestion(text, rest=text, ways=(text, *_asked_at_last(text)), of_user=of_user)
    given = simplified(text)
    named = tuple(sorted(mentioned(given, names), key=len, reverse=True))
    neutral = _without(given, named, "用户" if compiled(f"[{CJK}]").search(given) else "the user")
    put = [given, *([neutral] if named else []), *(way for way in [other_person(neutral)] if way is not None)]
    whole = word_pattern(__file__, "whole").search(neutral) is not None
    rest, topics = _without(given, named, " "), []
    as_asked: dict[str, str] = {}
    if (named or _is_first_person(given)) and not word_pattern(__file__, "others").search(given):
        for topic in _topics():
            asks = compiled(topic.asks, re.IGNORECASE)
            if (asked := asks.search(rest)) is not None:
                rest = asks.sub(" ", rest)
                topics.append(topic)
                as_asked[topic.name] = phrase_operand(asked[0])  # a title may be put as the question is
    of_person = [topic for topic in topics if topic.of_person]
    if of_person:
        topics = [topic for topic in topics if topic.name != "name"]
    meanings = [meaning for topic in of_person or topics for meaning in topic.meanings]
    operands = tuple((*topic.operands, as_asked[topic.name]) for topic in topics)
    return OwnersQuestion(
        text, named, rest, operands, tuple(dict.fromkeys([*put, *_asked_at_last(given), *meanings])), whole, of_user
    )


def _asked_at_last(text: str) -> list[str]:
    """The last sentence, where more is said before; and what it says that it is about ("As for …, which …")."""
    said = [sentence for sentence in sentences(text) if len(sentence) >= _SENTENCE_CHARS]
    about = word_pattern(__file__, "about").match(said[-1] if said else text)
    return [
        *([] if about is None else [next(each for each in about.groups() if each)]),
        *(said[-1:] if len(said) > 1 else []),
    ]


def _is_first_person(text: str) -> bool:
    return word_pattern(__file__, "owner").search(word_pattern(__file__, "asides").sub(" ", text)) is not None


def _forms_of_name(full: str) -> Iterator[str]:
    yield full
    if compiled(f"[{CJK}]").match(full):
        if len(full) == _FULL_NAME_CHARS:
            yield full[1:]
    elif " " in full:
        yield full.split()[0]


def _without(text: str, names: Sequence[str], instead: str) -> str:
    for name in names:
        text = compiled(name_pattern(name), re.IGNORECASE).sub(instead, text)
    return text


@cache
def _topics() -> tuple[Topic, ...]:
    return tuple(
        Topic(
            entry["name"],
            entry["asks"],
            tuple(dict.fromkeys(phrase_operand(words) for words in entry["said"].split("|"))),
            tuple(entry["meaning"]),
            entry.get("of_person", False),
        )
        for entry in word_table(__file__)["topics"]
    )


@cache
def _expanded(pattern: str) -> str:
    parts = word_table(__file__)["parts"]
    return compiled("<([A-Z_]+)>").sub(lambda found: parts[found[1]], pattern)
