"""Whom a question means among those who speak in conversations: by name, part of a name, near spelling or nickname."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from memory_core.core.index.tokenizer import mentioned
from memory_core.core.text.analysis import english_stop_words
from memory_core.core.text.word_table import word_set, word_table

#: Who speaks where no name is given.
ROLES = frozenset(("user", "assistant", "system", "developer", "tool"))
_NAME = re.compile(r"\b[A-ZÀ-ÖØ-Þ][^\W\d_]{2,}")
#: Shorter names are too much alike.
_SPELLED_CHARS, _SPELLED_ALIKE = 5, 0.8
#: A nickname must have been used so often, and this share of all times for the same person.
_LEAST_USES, _AGREEMENT = 2, 0.8
_MOST_NAMES = 4


def named_speakers(text: str, speakers: Iterable[str], nicknamed: Callable[[str], str | None]) -> set[str]:
    """The speakers that a question names; of a name that could mean several, none.

    Args:
        text: The question.
        speakers: Names, or roles of those who have none; roles are never named.
        nicknamed: Whom others call by a name that is no speaker's; asked of few words.
    """
    names = {name for name in speakers if name not in ROLES}
    found = mentioned(text, names)
    parts = _parts(names)
    for part in mentioned(text, parts):
        if len(parts[part]) == 1:
            found |= parts[part]
    if found == names:
        return found
    known = {part.casefold(): owners for part, owners in parts.items()} | {name.casefold(): {name} for name in names}
    for word in _capitalised(text, known):
        near = difflib.get_close_matches(word.casefold(), known, n=2, cutoff=_SPELLED_ALIKE)
        near = [name for name in near if name[:1] == word[:1].casefold()] if len(word) >= _SPELLED_CHARS else []
        if len(near) == 1 and len(known[near[0]]) == 1:
            found |= known[near[0]]
        elif (speaker := nicknamed(word)) in names and speaker is not None:
            found.add(speaker)
    return found


def people_in(question: str) -> list[str]:
    """Names of people or things in an English question: capitalised words beside the first; not of days or months."""
    first, *_ = question.split(maxsplit=1) or [""]
    if first.casefold() not in word_set(__file__, "asking"):
        return []
    return list(_capitalised(question, ()))


def addressing(name: str, turns: Iterable[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """``(conversation, speaker)`` of those of the turns that address somebody by the name: "Hi Kate", "Thanks, Kate".

    Args:
        name: One word.
        turns: Conversation, speaker and text of turns that hold it.
    """
    address = re.compile(rf"\b(?:{word_table(__file__)['greetings'][0]}),? {re.escape(name)}\b", re.IGNORECASE)
    return [(uri, speaker) for uri, speaker, text in turns if address.search(text)]


def addressed(turns: Sequence[tuple[str, str]], present: Mapping[str, set[str]]) -> str | None:
    """Who is meant by a name.

    Args:
        turns: Of ``addressing``.
        present: Who speaks in each conversation; only where two speak is it clear who was addressed.
    """
    others = (present.get(uri, set()) - {speaker} for uri, speaker in turns)
    meant = Counter(next(iter(several)) for several in others if len(several) == 1)
    if not meant:
        return None
    (name, uses), total = meant.most_common(1)[0], meant.total()
    return name if uses >= _LEAST_USES and uses >= _AGREEMENT * total else None


def _parts(names: Iterable[str]) -> dict[str, set[str]]:
    """First and last names, each with the speakers that bear it."""
    found: dict[str, set[str]] = {}
    for name in names:
        words = name.split()
        for word in words if len(words) > 1 else ():
            if len(word) > 1:
                found.setdefault(word, set()).add(name)
    return found


def _capitalised(text: str, known: Iterable[str]) -> list[str]:
    """Capitalised words that may be names and are not known."""
    left_out = {*known, *english_stop_words(), *word_set(__file__, "no_name"), *word_set(__file__, "asking")}
    words = dict.fromkeys(found[0] for found in _NAME.finditer(text))
    return [word for word in words if word.casefold() not in left_out][:_MOST_NAMES]
