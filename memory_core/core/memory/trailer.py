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
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
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
    # ``join`` indents, which json does by recursion.
    layer: list[Any] = [trailer]
    for _ in range(_DEPTH_LIMIT):
        layer = [item for value in layer for item in _items(value)]
        if not layer:
            return True
    return False


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


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
    members, wanted = given if isinstance(given, Mapping) else {}, _members(cast("Any", kind))
    read = {name: _read(members[name], hint) for name, (hint, _) in wanted.items() if name in members}
    sound = {name: value for name, value in read.items() if value is not _WRONG}
    missing = any(required and name not in sound for name, (_, required) in wanted.items())
    return None if missing else kind(**sound)


@cache
def _members(kind: Any) -> dict[str, tuple[Any, bool]]:
    """What each member of a dataclass takes, and whether it must be given."""
    hints = get_type_hints(kind)
    return {
        each.name: (hints[each.name], each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    }


def _read(value: Any, hint: Any) -> Any:
    """The value as an annotation wants it, or ``_WRONG``; wrong items of a list or map are left out."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return next((read for option in inner if (read := _read(value, option)) is not _WRONG), _WRONG)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(read for item in value if (read := _read(item, inner[0])) is not _WRONG)
    if origin is Mapping and isinstance(value, Mapping):
        pairs = ((_key(name, inner[0]), _read(item, inner[1])) for name, item in value.items())
        return {name: item for name, item in pairs if name is not _WRONG and item is not _WRONG}
    if is_dataclass(hint):
        nested: Any = read_members(cast("Any", hint), value)
        return _WRONG if nested is None else nested
    if origin is not None or (isinstance(value, bool) and hint is not bool and hint is not Any):
        return _WRONG
    if hint is float and isinstance(value, int):
        return float(value)
    return value if hint is Any or isinstance(value, hint) else _WRONG


def _key(name: object, hint: Any) -> Any:
    """The name of a member, which JSON writes as text, as an annotation wants it."""
    text = str(name)
    if hint is not int:
        return text
    return int(text) if text.isdecimal() and len(text) <= _DIGITS_LIMIT else _WRONG
