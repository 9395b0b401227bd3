r"""The trailer: the JSON object at the end of a file, in an HTML comment that begins with ``MEMORY_FIELDS``.

``split`` and ``join`` are inverse on every text that ``join`` wrote, byte for byte::

    body\n\n<!-- MEMORY_FIELDS\n{ …JSON… }\n-->\n

``<`` and ``>`` inside the JSON are written ``\u003c`` ``\u003e``, so nothing stored can end the comment early or
pose as a second trailer. A text without a trailer is a hand-written file and stays as it is.

Older programs wrote the trailer on one line, or its fields in a nested object ``fields``; both are read, the latter
as if its members stood beside the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
#: A value of another kind than the one that is wanted.
_WRONG: Any = object()
_DIGITS_LIMIT = 18

_OPEN = "<!-- MEMORY_FIELDS\n"

#: As an editor (carriage returns) or an older program (one line) may have left it.
_OPENING = re.compile(r"^<!--[ \t]*MEMORY_FIELDS(?:[ \t]*\r?\n|[ \t]*(?=\{))", re.MULTILINE)

_NESTED = "fields"

_CLOSE = "\n-->"

_DEPTH_LIMIT = 100

_GAP = "\n\n"


class Parts(NamedTuple):
    """A text, taken apart.

    Attributes:
        body: The Markdown above the trailer, exactly as stored.
        trailer: The trailer's JSON object in file order, or None when there is none.
        damage: Why a trailer that is there could not be read, or None. The whole text is then the body.
    """

    body: str
    trailer: Mapping[str, Any] | None = None
    damage: str | None = None

    @property
    def type_name(self) -> str | None:
        """The memory type that the trailer names, or None."""
        named = (self.trailer or {}).get("memory_type")
        return named if isinstance(named, str) else None


def split(text: str) -> Parts:
    """Take a text apart; never fails: what is not a sound trailer belongs to the body."""
    openings = list(_OPENING.finditer(text))
    if not openings:
        return Parts(text)
    opening = openings[-1]
    block = text[opening.end() :].rstrip()
    if not block.endswith(_CLOSE.strip()):
        return Parts(text, damage=_buried(block))
    try:
        trailer = json.loads(block.removesuffix(_CLOSE.strip()))
    except (ValueError, RecursionError) as error:
        return Parts(text, damage=f"the MEMORY_FIELDS trailer is not valid JSON: {error}")
    if not isinstance(trailer, dict):
        return Parts(text, damage="the MEMORY_FIELDS trailer is not a JSON object")
    if not _can_be_dumped(trailer):
        return Parts(
            text, damage="the MEMORY_FIELDS trailer holds what no file can: half a character, NaN, deep nesting"
        )
    trailer = _flat(trailer)
    body = text[: opening.start()]
    for gap in (_GAP, "\r\n\r\n", "\r\n", "\n"):
        if body.endswith(gap):
            return Parts(body.removesuffix(gap), trailer)
    return Parts(body, trailer)


def _flat(trailer: dict[str, Any]) -> dict[str, Any]:
    """The trailer with the members of a nested ``fields`` beside the others; what clashes stays nested."""
    while isinstance(nested := trailer.get(_NESTED), dict):
        rest = {name: value for name, value in trailer.items() if name != _NESTED}
        clashing = {name: value for name, value in nested.items() if name in rest and rest[name] != value}
        trailer = {name: value for name, value in nested.items() if name not in rest} | rest
        if clashing:
            return trailer | {_NESTED: clashing}
    return trailer


def _buried(block: str) -> str | None:
    """Damage, when a real trailer is followed by text that somebody added at the end of the file."""
    head, closed, _ = block.partition(_CLOSE)
    try:
        trailer = json.loads(head) if closed else None
    except (ValueError, RecursionError):
        return None  # an example of a trailer, not one
    if isinstance(trailer, dict) and "memory_type" in trailer:
        return "there is text below the MEMORY_FIELDS trailer, which must come last"
    return None


def _can_be_dumped(trailer: Mapping[str, Any]) -> bool:
    try:
        json.dumps(trailer, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError):
        return False
    return not is_deeper(trailer, _DEPTH_LIMIT)  # ``join`` indents, which json does by recursion


def is_deeper(value: Any, levels: int) -> bool:
    """Whether a JSON value is nested in more than so many levels."""
    layer = [value]
    for _ in range(levels):
        maps = [child for node in layer if isinstance(node, dict) for child in node.values()]
        layer = maps + [child for node in layer if isinstance(node, list) for child in node]
        if not layer:
            return False
    return True


def join(body: str, trailer: Mapping[str, Any] | None) -> str:
    """The text with this trailer; without one, the body unchanged."""
    if trailer is None:
        return body
    block = json.dumps(trailer, ensure_ascii=False, indent=2, allow_nan=False)
    block = block.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{body}{_GAP}{_OPEN}{block}{_CLOSE}\n"


def body_digest(body: str) -> str:
    """Sixteen hexadecimal digits that tell whether a rendered body was touched."""
    return hashlib.sha256(body.encode("utf-8")).hexdigest()[:16]


def read_members(kind: type[T], given: object) -> T | None:
    """A value of a dataclass from JSON that a hand edit may have changed.

    Args:
        kind: The dataclass, of texts, numbers, further dataclasses, and tuples and maps of these.
        given: Its members by name; further ones are passed over, and one of a wrong kind counts as missing.

    Returns:
        None where a member that has no default is missing.
    """
    if isinstance(given, kind):
        return given
    members, sound = given if isinstance(given, Mapping) else {}, {}
    for name, read, required in _members(cast("Any", kind)):
        value = read(members[name]) if name in members else _WRONG
        if value is not _WRONG:
            sound[name] = value
        elif required:
            return None
    return kind(**sound)


@cache
def _members(kind: Any) -> list[tuple[str, Callable[[Any], Any], bool]]:
    """The members of a dataclass: name, what reads a value of it, and whether it must be given."""
    hints = get_type_hints(kind)
    needed = {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(kind)}
    return [(name, _reader(hints[name]), required) for name, required in needed.items()]


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What gives a value as an annotation wants it, or ``_WRONG``; wrong items of a list or map are left out."""
    origin, readers = get_origin(hint), [_reader(each) for each in get_args(hint) if each is not Ellipsis]
    if origin is UnionType:
        return lambda value: next((found for read in readers if (found := read(value)) is not _WRONG), _WRONG)
    if origin is tuple:
        return lambda value: tuple(_sound(map(readers[0], value))) if isinstance(value, list | tuple) else _WRONG
    if origin is Mapping:
        key = _line_number if get_args(hint)[0] is int else str

        def read_map(value: Any) -> Any:
            pairs = ((key(name), readers[1](item)) for name, item in value.items())
            return {name: item for name, item in pairs if name is not _WRONG and item is not _WRONG}

        return lambda value: read_map(value) if isinstance(value, Mapping) else _WRONG
    if is_dataclass(hint):
        return lambda value: _WRONG if (found := read_members(cast("Any", hint), value)) is None else found
    if hint is Any:
        return lambda value: value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: next((each for each in hint if each.value == value), _WRONG)
    kinds = (int, float) if hint is float else hint
    others = () if hint is bool else bool  # a kind of number in Python alone
    return lambda value: value if isinstance(value, kinds) and not isinstance(value, others) else _WRONG


def _sound(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if value is not _WRONG)


def _line_number(name: object) -> Any:
    """The number that the name of a member writes."""
    text = str(name)
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_LIMIT else _WRONG
