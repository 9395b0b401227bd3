"""Find the JSON answer in what a model wrote.

Owns the reading of fences, prose around the answer, thinking before it, tool-call envelopes, JSON within a JSON
string, and the repair of small faults (quotes, commas, comments). Promises that an answer which ends before its
brackets close is refused whole, whatever the provider said about it, and that neither depth nor size crashes.
Does not know what the answer means: the caller says which keys belong to it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator
from typing import Any, Self, SupportsIndex

from memory_core.core.errors import AnswerCut, AnswerUnusable
from memory_core.core.memory.trailer import is_deeper

LIMIT_CHARS = 1_000_000
_REPAIR_LIMIT_CHARS = 300_000
#: How often one repair may look at a character: a second. Each stray quote looks for its partner up to the end.
_REPAIR_READS = 3_000_000
_LIMIT_DEPTH = 48
_LIMIT_DIGITS = 300
_ENVELOPES = 8
_CANDIDATES = 100
_QUOTED_CHARS = 200

_THINKING = re.compile(r"\s*<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"</(?:think|thinking|reasoning)>", re.IGNORECASE)
#: Where JSON may begin: an object, an array, or a text that holds JSON.
_START = re.compile(r"""\{(?=\s*(?:["'“}/]|[A-Za-z_]\w*\s*:))|\[(?=\s*[\[{"'“\]/])|\A\s*"(?=(?:\\n|[\s\\"])*[{\[])""")
_TOKENS = re.compile(r"""\\.|["'{}\[\]]""", re.DOTALL)
#: What may follow the quote that ends a string; any other quote belongs to the text.
_AFTER_STRING = re.compile(
    r"""\s*(?:[}\]:]|\Z|//|/\*|```|,\s*(?:["'{\[\]}]|-?\d|[tTfFnN][a-z]{3}|//|/\*|[A-Za-z_]\w*\s*:|\Z)"""
    r"""|["'][^"'\n]{1,80}["']\s*:)"""
)
_STRING_FOLLOWS = re.compile(r"""[\s}\]]*+,?\s*+["']""")
_MEMBER = re.compile(r"""["']([A-Za-z_]\w*)["']\s*:""")
_GOES_ON = re.compile(r"""\s*["',:]""")
_QUOTE = re.compile(r"[\"']")
_OPENER = {"}": "{", "]": "["}


def quoted(text: str) -> str:
    """The beginning of a text, on one line, for a message."""
    line = " ".join(text.encode("utf-8", "backslashreplace").decode("utf-8").split())
    return line if len(line) <= _QUOTED_CHARS else f"{line[:_QUOTED_CHARS]}…"


def find_answer(text: str, keys: Collection[str]) -> dict[str, Any]:
    """The object in the first JSON of ``text`` that holds any of ``keys``: of nested ones, the one with most of them.

    Args:
        text: What the model wrote.
        keys: Names of members by which an answer is recognised.

    Raises:
        AnswerCut: If the answer ends before its brackets close.
        AnswerUnusable: If there is none, or it is too damaged, too deep or too long to be read safely.
    """
    if len(text) > LIMIT_CHARS:
        raise _unusable(f"the answer has {len(text):,} characters", text)
    found = _search(_without_thoughts(text), frozenset(keys), _ENVELOPES)
    if found is None:
        raise _unusable("the answer holds no JSON object of the shape that was asked for", text)
    return found


def decode(text: str) -> Any:
    """JSON that a member holds as text, or None if the text is no sound JSON; see ``_DECODER`` for numbers."""
    try:
        value, end = _DECODER.raw_decode(text.strip())
    except (ValueError, RecursionError):
        return None
    return None if text.strip()[end:] or is_deeper(value, _LIMIT_DEPTH) else value


def _without_thoughts(text: str) -> str:
    """The text after the model's thinking, where it is marked as such."""
    while _THINKING.match(text):
        thought = _THOUGHT.search(text)
        if thought is None:
            raise _cut("the answer ended inside its thinking")
        text = text[thought.end() :]
    thought = _THOUGHT.search(text)
    if thought is None:
        return text
    # Some chat templates swallow the opening mark; but within the answer itself the mark is data.
    rest = text[thought.end() :]
    start = _START.search(text, 0, thought.start())
    try:
        end = _end(text, start.end() - 1) if start else 0
    except AnswerUnusable:  # a damaged draft
        end = None
    if end is None:  # a draft that never closes, or an answer that is cut
        return rest if rest.lstrip().startswith(("{", "[", "`")) else text
    return rest if end <= thought.start() else text


def _search(text: str, keys: frozenset[str], depth: int) -> dict[str, Any] | None:
    position = 0
    for _ in range(_CANDIDATES):
        start = _START.search(text, position)
        decoded = _decoded(text, start.end() - 1, keys) if start else None
        if decoded is None:
            return None
        value, position = decoded
        found = _unwrapped(value, keys, depth)
        if found is not None:
            # Members of the answer after its end: a brace or quote too many closed it early.
            more = _MEMBER.finditer(text, position) if _STRING_FOLLOWS.match(text, position) else ()
            if any(member[1] in keys for member in more):
                raise _unusable("the answer's JSON closes before its last members", text)
            return found
    return None


def _finite(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


#: Line breaks within strings pass, NaN becomes null, a number that no float holds becomes text.
_DECODER = json.JSONDecoder(
    strict=False,
    parse_constant=lambda _: None,
    parse_int=lambda digits: int(digits) if len(digits) <= _LIMIT_DIGITS else digits,
    parse_float=_finite,
)


def _decoded(text: str, start: int, keys: frozenset[str]) -> tuple[Any, int] | None:
    """The JSON at ``start``, mended where it is damaged, and where it ends; None if that is no answer."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise _unusable("the answer is nested too deeply", text[start:]) from None
    except ValueError:
        stop = _end(text, start)
        if stop is None:
            if any(key in text[start:] for key in keys):
                raise _cut("the answer's JSON ends before its brackets close") from None
            return None
        if _GOES_ON.match(text, stop):
            raise _unusable("the answer's JSON is damaged", text[start:]) from None
        value, end = _repaired(text[start:stop]), stop
    if is_deeper(value, _LIMIT_DEPTH):
        raise _unusable("the answer is nested too deeply", text[start:])
    return value, end


def _repaired(segment: str) -> Any:
    import json_repair  # few answers need it

    if len(segment) > _REPAIR_LIMIT_CHARS:
        raise _unusable("the answer's JSON is damaged and too long to be repaired", segment)
    try:
        return json_repair.loads(_CountedText(segment, iter(range(_REPAIR_READS))), skip_json_loads=True)
    except (ValueError, RecursionError):
        raise _unusable("the answer's JSON is damaged", segment) from None


class _CountedText(str):
    """A text that is refused as damaged once ``reads`` of its characters were looked at, changed or not."""

    __slots__ = ("_reads",)
    _reads: Iterator[int]

    def __new__(cls, text: str, reads: Iterator[int]) -> Self:
        counted = super().__new__(cls, text)
        counted._reads = reads
        return counted

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if next(self._reads, None) is None:
            raise _unusable("the answer's JSON is damaged in too many places", self)
        part = super().__getitem__(key)
        # The repair puts missing marks behind a beginning of the text, and goes on with that.
        return type(self)(part, self._reads) if isinstance(key, slice) and key.start is None else part

    def __add__(self, rest: str) -> Self:
        return type(self)(super().__add__(rest), self._reads)


def _end(text: str, start: int) -> int | None:
    """Where the bracket at ``start`` closes, strings skipped; None if it never does.

    A quote ends a string only where the text goes on as JSON would. Where that guess is wrong, the brackets do not
    close: this errs towards refusing an answer, not towards half of one.

    Raises:
        AnswerUnusable: If the brackets do not match, so that a repair would have to guess what belongs where.
    """
    if text[start] not in "{[":
        return None
    first = _QUOTE.search(text, start)
    quote = '"' if first is None else first[0]
    inside = False
    stack: list[str] = []
    for token in _TOKENS.finditer(text, start):
        mark = token[0]
        if inside:
            inside = not (mark == quote and _AFTER_STRING.match(text, token.end()))
        elif mark == quote:
            inside = True
        elif mark in "{[":
            stack.append(mark)
            if len(stack) > 2 * _LIMIT_DEPTH:
                raise _unusable("the answer is nested too deeply", text[start:])
        elif mark in _OPENER:
            if stack.pop() != _OPENER[mark]:
                raise _unusable("the brackets of the answer's JSON do not match", text[start:])
            if not stack:
                return token.end()
    return None


def _unwrapped(value: Any, keys: frozenset[str], depth: int) -> dict[str, Any] | None:
    """The object with most of ``keys``, outermost first: of an array, an envelope, or JSON within a string."""
    if depth == 0:
        return None
    if isinstance(value, str):
        text = value.strip()
        return _search(text, keys, depth - 1) if text.startswith(("{", "[", '"', "```")) else None
    if isinstance(value, list):
        return next((found for item in value if (found := _unwrapped(item, keys, depth - 1)) is not None), None)
    if not isinstance(value, dict) or _is_schema(value):
        return None
    best = value if keys & value.keys() else None
    for key, child in value.items():
        if key in keys:
            continue
        found = _unwrapped(child, keys, depth - 1)
        if found is not None and (best is None or len(keys & found.keys()) > len(keys & best.keys())):
            best = found
    return best


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether a model repeated the schema instead of answering."""
    return isinstance(value.get("properties"), dict) and ("type" in value or "$defs" in value or "required" in value)


def _cut(what: str) -> AnswerCut:
    return AnswerCut(f"{what}; nothing of it was used.", hint="Raise llm.max_tokens, or send a shorter conversation.")


def _unusable(what: str, text: str) -> AnswerUnusable:
    return AnswerUnusable(
        f"{what}.", hint=f"Check that llm.model can answer in JSON and follows instructions; it wrote: {quoted(text)!r}"
    )
