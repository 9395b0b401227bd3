"""JSON as people keep it: with comments and trailing commas, edited in place.

Owns reading such a text with the place of every value, and the smallest edits of it: a member set or taken out, an
item added to a list or taken out. Whatever an edit is not about stays byte for byte: comments, order, indentation,
line ends, a byte order mark. Every edit is read back and must mean exactly what was asked. Pure; opens no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memory_core.core.errors import InvalidInput

_DEPTH = 100
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENTED = re.compile(r"\n([ \t]+)[^\s]")
#: The next step where an edit is refused.
BY_HAND = "Put the lines in by hand; runebook install --print shows them."
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands: ``text[start:end]``. ``children`` are members or items in the order of the text."""

    value: Any
    start: int
    end: int
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """A member or an item: from its key, or its value where it has none."""

    key: str | None
    start: int
    node: Node


def read(text: str) -> Any:
    """What the text means; an empty one, or one of comments alone, is an empty object.

    Raises:
        InvalidInput: If it is not JSON with comments.
    """
    try:
        return json.loads(text, parse_constant=_no_constant)  # most are plain JSON, and some are megabytes
    except (ValueError, RecursionError):
        return _document(text).value


def set_member(text: str, path: Path, value: Any) -> str:
    """The text with ``value`` at ``path``; objects on the way are made where they are missing.

    Raises:
        InvalidInput: If the text is not JSON with comments, or something on the way is no object.
    """
    document = _document(text)
    if document.end == document.start:  # nothing but blanks and comments
        return f"{text}{_rendered(nested(path, value), '', text)}{newline_of(text)}"
    node, depth = document, 0
    holder: Node | None = None
    while depth < len(path):
        if not isinstance(node.value, dict):
            raise InvalidInput(f"{'.'.join(path[:depth]) or 'the file'} is no JSON object.", hint=BY_HAND)
        child = _child(node, path[depth])
        if child is None:
            break
        node, holder, depth = child.node, node, depth + 1
    if depth < len(path):
        rest = nested(path[depth + 1 :], value)
        key = json.dumps(path[depth], ensure_ascii=False)
        changed = _appended(text, node, lambda indent: f"{key}: {_rendered(rest, indent, text, node_of=node)}")
        return _checked(changed, replaced(document.value, path, value))
    if _same(node.value, value):
        return text
    shown = _rendered(value, _line_indent(text, node.start), text, node_of=holder)
    return _checked(f"{text[: node.start]}{shown}{text[node.end :]}", replaced(document.value, path, value))


def append_item(text: str, path: Path, item: Any) -> str:
    """The text with ``item`` at the end of the list at ``path``, which is made where it is missing.

    Raises:
        InvalidInput: If the text is not JSON with comments, or there is something else at ``path``.
    """
    document = _document(text)
    node = _at(document, path)
    if node is None:
        return set_member(text, path, [item])
    if not isinstance(node.value, list):
        raise InvalidInput(f"{'.'.join(path)} is no list.", hint=BY_HAND)
    changed = _appended(text, node, lambda indent: _rendered(item, indent, text, node_of=node))
    return _checked(changed, replaced(document.value, path, [*node.value, item]))


def remove_member(text: str, path: Path) -> str:
    """The text without the member at ``path``; unchanged where there is none.

    Raises:
        InvalidInput: If the text is not JSON with comments.
    """
    document = _document(text)
    holder = _at(document, path[:-1])
    child = None if holder is None or not isinstance(holder.value, dict) else _child(holder, path[-1])
    if holder is None or child is None:
        return text
    rest = {key: value for key, value in holder.value.items() if key != path[-1]}
    return _checked(_cut(text, holder, child), replaced(document.value, path[:-1], rest))


def remove_items(text: str, path: Path, unwanted: Callable[[Any], bool]) -> str:
    """The text without the items of the list at ``path`` that are unwanted.

    Raises:
        InvalidInput: If the text is not JSON with comments.
    """
    while True:
        document = _document(text)
        holder = _at(document, path)
        if holder is None or not isinstance(holder.value, list):
            return text
        child = next((child for child in holder.children if unwanted(child.node.value)), None)
        if child is None:
            return text
        rest = [other.node.value for other in holder.children if other is not child]
        text = _checked(_cut(text, holder, child), replaced(document.value, path, rest))


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _document(text: str) -> Node:
    start = _skip(text, 0)
    if start == len(text):
        return Node({}, start, start)
    node = _value(text, start, 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise _unreadable(text, end)
    return node


def _value(text: str, start: int, depth: int) -> Node:
    if depth > _DEPTH:
        raise _unreadable(text, start)
    opening = text[start : start + 1]
    if opening in ("{", "["):
        return _container(text, start, depth)
    if opening == '"':
        value, end = _string(text, start)
        return Node(value, start, end)
    match = _SCALAR.match(text, start)
    if match is None:
        raise _unreadable(text, start)
    return Node(json.loads(match[0]), start, match.end())


def _container(text: str, start: int, depth: int) -> Node:
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    children: list[Child] = []
    place = _skip(text, start + 1)
    while text[place : place + 1] != closing:
        key, first = None, place
        if is_object:
            key, place = _string(text, place)
            place = _expected(text, _skip(text, place), ":")
        node = _value(text, place, depth + 1)
        children.append(Child(key, first, node))
        place = _skip(text, node.end)
        if text[place : place + 1] != closing:
            place = _expected(text, place, ",")
    value: Any = (
        {child.key: child.node.value for child in children} if is_object else [child.node.value for child in children]
    )
    return Node(value, start, place + 1, tuple(children))


def _expected(text: str, place: int, mark: str) -> int:
    if text[place : place + 1] != mark:
        raise _unreadable(text, place)
    return _skip(text, place + 1)


def _string(text: str, start: int) -> tuple[str, int]:
    if text[start : start + 1] != '"':
        raise _unreadable(text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _unreadable(text, error.pos) from error
    return str(value), end


def _skip(text: str, place: int) -> int:
    match = _BLANK.match(text, place)
    return place if match is None else match.end()


def _unreadable(text: str, place: int) -> InvalidInput:
    line = text.count("\n", 0, place) + 1
    return InvalidInput(f"line {line} is not JSON.", hint=BY_HAND)


def _child(node: Node, key: str) -> Child | None:
    """The member of that key; of several the last one, which is the one that counts."""
    return next((child for child in reversed(node.children) if child.key == key), None)


def _at(node: Node, path: Path) -> Node | None:
    for key in path:
        child = _child(node, key) if isinstance(node.value, dict) else None
        if child is None:
            return None
        node = child.node
    return node


def nested(path: Path, value: Any) -> Any:
    """``value`` below new objects, one a key of the path."""
    for key in reversed(path):
        value = {key: value}
    return value


def replaced(document: Any, path: Path, value: Any) -> Any:
    """The document with ``value`` at ``path``; it and what leads there are copies."""
    if not path:
        return value
    return {**document, path[0]: replaced(document.get(path[0], {}), path[1:], value)}


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _checked(text: str, expected: Any) -> str:
    if not _same(read(text), expected):  # a text so odd (one key twice, say) that the edit would mean something else
        raise InvalidInput("the file is written in a way that cannot be edited safely.", hint=BY_HAND)
    return text


def _rendered(value: Any, indent: str, text: str, *, node_of: Node | None = None) -> str:
    """``value`` as JSON whose further lines begin with ``indent``; on one line in a container that is on one."""
    if node_of is not None and _is_inline(text, node_of):
        return json.dumps(value, ensure_ascii=False)
    shown = json.dumps(value, ensure_ascii=False, indent=_unit(text))
    return shown.replace("\n", f"{newline_of(text)}{indent}")


def _is_inline(text: str, node: Node) -> bool:
    return bool(node.children) and "\n" not in text[node.start : node.end]


def newline_of(text: str) -> str:
    """The line end that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    match = _INDENTED.search(text)
    return "  " if match is None else match[1]


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_line(text: str, place: int) -> bool:
    return not text[text.rfind("\n", 0, place) + 1 : place].strip(" \t")


def _comma_after(text: str, place: int) -> int | None:
    """Where the comma stands that follows ``place``, if one does."""
    place = _skip(text, place)
    return place if text[place : place + 1] == "," else None


def _appended(text: str, node: Node, shown: Callable[[str], str]) -> str:
    """The text with one more child at the end of a container."""
    closing = node.end - 1
    if not node.children:
        indent = _line_indent(text, node.start)
        child_indent = indent + _unit(text)
        tail = _content_end(text, node.start + 1, closing)
        rest = text[tail:closing]
        rest = rest if "\n" in rest else f"{newline_of(text)}{indent}"
        return f"{text[:tail]}{newline_of(text)}{child_indent}{shown(child_indent)}{rest}{text[closing:]}"
    last = node.children[-1].node.end
    comma = _comma_after(text, last)
    if _is_inline(text, node):
        if comma is not None:
            return f"{text[: comma + 1]} {shown('')},{text[comma + 1 :]}"
        return f"{text[:last]}, {shown('')}{text[last:]}"
    first = node.children[0].start
    child_indent = _line_indent(text, first) if _own_line(text, first) else _line_indent(text, node.start) + _unit(text)
    tail = _content_end(text, last, closing)
    rest = text[tail:closing]
    rest = rest if "\n" in rest else f"{newline_of(text)}{_line_indent(text, node.start)}"
    between = text[last:tail] if comma is not None else f",{text[last:tail]}"
    end = "," if comma is not None else ""
    return f"{text[:last]}{between}{newline_of(text)}{child_indent}{shown(child_indent)}{end}{rest}{text[closing:]}"


def _content_end(text: str, start: int, closing: int) -> int:
    """The end of what stands before the closing bracket, comments included."""
    return start + len(text[start:closing].rstrip(" \t\r\n"))


def _cut(text: str, holder: Node, child: Child) -> str:
    """The text without a child of a container, its comma, and the line that it leaves empty."""
    index = _index(holder.children, child)
    end = child.node.end
    start = child.start
    while text[start - 1] in " \t\r\n":
        start -= 1
    comma = _comma_after(text, end)
    if comma is not None:
        if index == 0 and not _own_line(text, child.start):
            start = child.start  # on one line: the next child takes its place
            after = comma + 1
            while text[after] in " \t":
                after += 1
            return f"{text[:start]}{text[after:]}"
        return f"{text[:start]}{text[end:comma]}{text[comma + 1 :]}"
    if index > 0:
        before = _comma_after(text, holder.children[index - 1].node.end)
        if before is not None:
            return f"{text[:before]}{text[before + 1 : start]}{text[end:]}"
    rest = text[end : holder.end - 1]
    if text[start - 1] in "{[" and not rest.strip(" \t\r\n"):
        return f"{text[:start]}{text[holder.end - 1 :]}"
    return f"{text[:start]}{rest}{text[holder.end - 1 :]}"


def _index(children: Sequence[Child], child: Child) -> int:
    return next(index for index, other in enumerate(children) if other is child)
