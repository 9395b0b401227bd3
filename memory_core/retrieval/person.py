"""The same question in the other person: "where do I live" and "where do the user live".

Memories speak of "the user" (用户), people ask about "me" (我), and agents ask either way about turns that say "I". A
model places the two apart, so a short question is looked up both ways and the nearer counts. Words are replaced,
no grammar is mended: the model does not mind. Pure.
"""

from __future__ import annotations

import re

#: Longer texts are messages rather than questions. A Chinese character says as much as three letters.
_LIMIT_LETTERS = 120
_CHINESE = re.compile("[\u3400-\u9fff]")
_ZH_FIRST = re.compile("我们|咱们|我")
_EN_FIRST = re.compile(r"\b(?:I|me|we|us)\b")
_EN_FIRST_OWN = re.compile(r"\b(?:my|mine|our|ours)\b", re.IGNORECASE)
_EN_THIRD = re.compile(r"\b(?:the )?user\b", re.IGNORECASE)
_EN_THIRD_OWN = re.compile(r"\b(?:the )?user['’]s\b", re.IGNORECASE)


def other_person(question: str) -> str | None:
    """``question`` about the user if it is asked in the first person, in the first if it is about the user.

    Returns:
        None for long texts, and where neither person is named.
    """
    if len(question) + 2 * len(_CHINESE.findall(question)) > _LIMIT_LETTERS:
        return None
    third = _to_third(question)
    changed = third if third != question else _to_first(question)
    return changed if changed != question else None


def _to_third(question: str) -> str:
    if _CHINESE.search(question):
        return _ZH_FIRST.sub("用户", question)
    return _EN_FIRST_OWN.sub("the user's", _EN_FIRST.sub("the user", question))


def _to_first(question: str) -> str:
    if "用户" in question:
        return question.replace("用户", "我")
    return _EN_THIRD.sub("I", _EN_THIRD_OWN.sub("my", question))
