"""JSON as people keep it, with comments and trailing commas, edited in place.

Owns reading such a text and two edits of it: a value is put at a path, and what stands at a path is taken out. Whatever
an edit is not about stays byte for byte: comments, order, indentation, line ends, a byte order mark. Every edit is
read back and must mean exactly what was asked. Pure; opens no file. For TOML a library does this; those for JSON read
comments, but write the whole text anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from memory_core.core.errors import InvalidInput
from server.foreign_json import value_at

#: The next step where an edit is refused.
BY_HAND = "Put the lines in by hand; runebook install --print shows them."
#: Keys of objects and indexes of lists, from the outside in.
Path = tuple[str | int, ...]

_DECODER = json.JSONDecoder()
_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf'{_STRING}|(?<=["\w\]}}])[ \t\r\n]*,(?=[ \t\r\n]*[\]}}])', re.DOTALL)
_NO_LINE_END = re.compile(r"[^\r\n]")
_INDENTED = re.compile(r"\n([ \t]+)[^\s]")
_BLANKS = " \t\r\n"


class _Node(NamedTuple):
    """A value in a text: ``text[start:end]``. Its key, where it has one, begins at ``begin``."""

    key: str | int
    begin: int
    start: int
    end: int


class _Document:
    """A text and what it means.

    Attributes:
        text: As it is.
        bare: As long, with blanks for comments.
        plain: As long, with blanks for trailing commas too: JSON.
        value: What it means; an empty object where there is nothing but comments.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.bare = _COMMENT.sub(_blanked, f" {text[1:]}" if text.startswith("\ufeff") else text)
        self.plain = _TRAILING_COMMA.sub(_blanked, self.bare)
        self.is_blank = not self.plain.strip(_BLANKS)
        try:
            self.value = {} if self.is_blank else json.loads(self.plain, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", 0)) + 1
            raise InvalidInput(f"line {line} is not JSON.", hint=BY_HAND) from error

    @property
    def root(self) -> _Node:
        """The whole value."""
        start = _skip(self.plain, 0)
        return _Node("", start, start, len(self.plain.rstrip(_BLANKS)))

    def children(self, node: _Node) -> Iterator[_Node]:
        """The members of an object or the items of a list."""
        text = self.plain
        place, index = _skip(text, node.start + 1), 0
        while place < node.end - 1:
            key: str | int = index
            begin = place
            if text[node.start] == "{":
                key, place = _DECODER.raw_decode(text, place)
                place = _skip(text, _skip(text, place) + 1)
            _, end = _DECODER.raw_decode(text, place)
            yield _Node(key, begin, place, end)
            place = _skip(text, end)
            place = _skip(text, place + 1) if text[place] == "," else place
            index += 1

    def holds(self, node: _Node, key: str | int) -> bool:
        """Whether a node is of the kind that has such keys: a list has indexes."""
        return self.text[node.start] == ("[" if isinstance(key, int) else "{")

    def child(self, node: _Node, key: str | int) -> _Node | None:
        """The child of that key; of several the last one, which is the one that counts."""
        children = list(self.children(node)) if self.holds(node, key) else []
        return next((child for child in reversed(children) if child.key == key), None)

    def comma_after(self, place: int) -> int | None:
        """Where the comma stands that follows ``place``, if one does."""
        place = _skip(self.bare, place)
        return place if self.bare[place] == "," else None

    def is_inline(self, node: _Node) -> bool:
        """Whether a container that is not empty stands on one line."""
        return "\n" not in self.text[node.start : node.end] and any(self.children(node))


def read(text: str) -> Any:
    """What the text means; an empty one, or one of comments alone, is an empty object.

    Raises:
        InvalidInput: If it is not JSON with comments.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)  # most are plain JSON, and some are megabytes
    except (ValueError, RecursionError):
        return _Document(text).value


def put(text: str, path: Path, value: Any) -> str:
    """The text with ``value`` at ``path``; what is missing on the way is made.

    Args:
        text: JSON with comments.
        path: An index is that of an item, or the one after the last.
        value: Any JSON.

    Raises:
        InvalidInput: If the text is not JSON with comments, or something on the way is of another kind.
    """
    document = _Document(text)
    if document.is_blank:
        return f"{text}{_rendered(replaced(None, path, value), text, '')}{newline_of(text)}"
    expected = replaced(document.value, path, value)
    holder = node = document.root
    for depth, key in enumerate(path):
        if not document.holds(node, key):
            where = ".".join(map(str, path[:depth])) or "the file"
            raise InvalidInput(f"{where} is no {'list' if isinstance(key, int) else 'JSON object'}.", hint=BY_HAND)
        child = document.child(node, key)
        if child is None:
            return _checked(_appended(document, node, key, replaced(None, path[depth + 1 :], value)), expected)
        holder, node = node, child
    if _same(value_at(document.value, path), value):
        return text
    indent = None if document.is_inline(holder) else _line_indent(text, node.start)
    return _checked(f"{text[: node.start]}{_rendered(value, text, indent)}{text[node.end :]}", expected)


def append(text: str, path: Path, item: Any) -> str:
    """The text with ``item`` at the end of the list at ``path``, which is made where it is missing.

    Raises:
        InvalidInput: As ``put``.
    """
    listed = value_at(read(text), path)
    return put(text, (*path, len(listed) if isinstance(listed, list) else 0), item)


def remove(text: str, path: Path) -> str:
    """The text without what stands at ``path``; unchanged where nothing does.

    Raises:
        InvalidInput: If the text is not JSON with comments, or is written so that this cannot be done safely.
    """
    document = _Document(text)
    holder = node = document.root
    for key in path:
        child = None if document.is_blank else document.child(node, key)
        if child is None:
            return text
        holder, node = node, child
    return _checked(_cut(document, holder, node), without(document.value, path))


def replaced(value: Any, path: Sequence[str | int], part: Any) -> Any:
    """The value with ``part`` at ``path``; it and what leads there are copies, made where they are missing."""
    if not path:
        return part
    key, rest = path[0], path[1:]
    inner = replaced(value_at(value, (key,)), rest, part)
    if isinstance(key, int):
        items = value if isinstance(value, list) else []
        return [*items[:key], inner, *items[key + 1 :]]
    return {**(value if isinstance(value, dict) else {}), key: inner}


def without(value: Any, path: Sequence[str | int]) -> Any:
    """The value without what stands at ``path``, where something does; it and what leads there are copies."""
    key, holder = path[-1], value_at(value, path[:-1])
    if isinstance(key, int):
        rest: Any = [*holder[:key], *holder[key + 1 :]]
    else:
        rest = {name: member for name, member in holder.items() if name != key}
    return replaced(value, path[:-1], rest)


def newline_of(text: str) -> str:
    """The line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def _blanked(match: re.Match[str]) -> str:
    """Blanks as long as the match, which keeps its line ends; a string stays."""
    return match[0] if match[0].startswith('"') else _NO_LINE_END.sub(" ", match[0])


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _skip(text: str, place: int) -> int:
    """The next place that is not blank."""
    while place < len(text) and text[place] in _BLANKS:
        place += 1
    return place


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _checked(text: str, expected: Any) -> str:
    if not _same(read(text), expected):  # a text so odd (one key twice, say) that the edit would mean something else
        raise InvalidInput("the file is written in a way that cannot be edited safely.", hint=BY_HAND)
    return text


def _rendered(value: Any, text: str, indent: str | None) -> str:
    """A value as the text would write it: further lines begin with ``indent``; None writes it on one line."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    shown = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return shown.replace("\n", f"{newline_of(text)}{indent}")


def _unit(text: str) -> str:
    """What one level is indented by."""
    match = _INDENTED.search(text)
    return "  " if match is None else match[1]


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _begins_line(text: str, place: int) -> bool:
    return not text[text.rfind("\n", 0, place) + 1 : place].strip(" \t")


def _appended(document: _Document, holder: _Node, key: str | int, value: Any) -> str:
    """The text with one more child at the end of a container, in the style of those that are there."""
    text, closing = document.text, holder.end - 1
    label = "" if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}: "
    children = list(document.children(holder))
    last = children[-1].end if children else holder.start + 1
    comma = document.comma_after(last) if children else None
    if document.is_inline(holder):
        shown = f"{label}{_rendered(value, text, None)}"
        if comma is None:
            return f"{text[:last]}, {shown}{text[last:]}"
        return f"{text[: comma + 1]} {shown},{text[comma + 1 :]}"
    outer = _line_indent(text, holder.start)
    lines = [child.begin for child in children[:1] if _begins_line(text, child.begin)]
    indent = _line_indent(text, lines[0]) if lines else f"{outer}{_unit(text)}"
    tail = len(text[:closing].rstrip(_BLANKS))  # behind comments
    end = text[tail:closing] if "\n" in text[tail:closing] else f"{newline_of(text)}{outer}"
    before = f"{text[:last]}{',' if children and comma is None else ''}{text[last:tail]}{newline_of(text)}{indent}"
    return f"{before}{label}{_rendered(value, text, indent)}{'' if comma is None else ','}{end}{text[closing:]}"


def _cut(document: _Document, holder: _Node, child: _Node) -> str:
    """The text without a child of a container, its comma, and the line that it leaves empty."""
    text, closing = document.text, holder.end - 1
    siblings = list(document.children(holder))
    index = siblings.index(child)
    start = len(text[: child.begin].rstrip(_BLANKS))
    comma = document.comma_after(child.end)
    if comma is not None and index == 0 and not _begins_line(text, child.begin):
        after = comma + 1 + len(text[comma + 1 :]) - len(text[comma + 1 :].lstrip(" \t"))
        return f"{text[: child.begin]}{text[after:]}"  # on one line: the next child takes its place
    if comma is not None:
        return f"{text[:start]}{text[child.end : comma]}{text[comma + 1 :]}"
    before = document.comma_after(siblings[index - 1].end) if index > 0 else None
    if before is not None:
        return f"{text[:before]}{text[before + 1 : start]}{text[child.end :]}"
    if start == holder.start + 1 and not text[child.end : closing].strip(_BLANKS):
        return f"{text[:start]}{text[closing:]}"
    return f"{text[:start]}{text[child.end :]}"
