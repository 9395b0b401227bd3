"""Text that was written by others, set apart from our own words, and cut to a number of tokens.

A fence is always longer than any run of backticks inside it, so that nothing stored can end its block early;
what is in a block is exactly the stored text, so that a model can quote it in a patch. Pure.
"""

from __future__ import annotations

import re

from memory_core.scoring.tokens import count_tokens

_BACKTICKS = re.compile(r"`+")
_FENCE_CHARS = 3
#: White space costs no token, but a prompt is not to be filled with it.
_CHARS_PER_TOKEN = 16
_SPARE_CHARS = 200


def fenced(text: str) -> str:
    """``text`` in a Markdown code fence that nothing inside it can close; no line of it is changed."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(_FENCE_CHARS, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def one_line(text: str) -> str:
    """``text`` without line breaks or runs of blanks."""
    return " ".join(text.split())


def fits(text: str, tokens: int) -> bool:
    """Whether ``text`` costs at most ``tokens``, and is not mostly white space beyond it."""
    return len(text) <= tokens * _CHARS_PER_TOKEN + _SPARE_CHARS and count_tokens(text) <= tokens


def cut_end(text: str, tokens: int) -> str:
    """The beginning of ``text`` that fits, ended with ``…`` where something was cut."""
    if fits(text, tokens):
        return text
    return text[: _prefix(text, tokens - 1)].rstrip() + "…" if tokens > 0 else ""


def cut_middle(text: str, tokens: int) -> str:
    """``text`` with its middle replaced by a mark that says how much is gone; both ends stay.

    A mark alone is the least that is left.
    """
    if fits(text, tokens):
        return text
    room = max(0, tokens - count_tokens(_mark(len(text))))
    head = text[: _prefix(text, room - room // 3)].rstrip()
    reverse = text[::-1]
    tail = text[len(text) - _prefix(reverse, room // 3) :].lstrip() if room >= _FENCE_CHARS else ""
    return f"{head} {_mark(len(text) - len(head) - len(tail))} {tail}".strip()


def _mark(gone: int) -> str:
    return f"[… {gone} characters left out …]"


def _prefix(text: str, tokens: int) -> int:
    """Length of the longest beginning that fits, found by halving."""
    low, high = 0, min(len(text), max(0, tokens) * _CHARS_PER_TOKEN + _SPARE_CHARS)
    if tokens <= 0:
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text[:middle], tokens):
            low = middle
        else:
            high = middle - 1
    return low
