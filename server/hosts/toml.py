"""TOML edited in place by ``tomlkit``: comments, order and layout of the user's file stay.

Owns reading such a text and the same two edits as ``jsonc``, for a table and for a value of one. Every edit is read
back by the standard parser and must mean exactly what was asked. Pure; opens no file. ``tomlkit`` is imported by the
first edit.
"""

from __future__ import annotations

import re
import tomllib
from itertools import takewhile
from typing import Any

from memory_core.core.errors import InvalidInput
from server.foreign_json import value_at
from server.hosts.jsonc import BY_HAND, Path, newline_of, replaced, without

_LONE_NEWLINE = re.compile(r"(?<!\r)\n")
#: Blank lines and comments at the end of a stretch of lines.
_TRAILING = re.compile(r"^(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:[ \t]*#[^\n]*)?\Z", re.MULTILINE)
_BLANK_LINE = re.compile(r"(?<=\n)\r?\n\Z")


def read(text: str) -> Any:
    """What the text means.

    Raises:
        InvalidInput: If it is not TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"it is not TOML: {error}.", hint=BY_HAND) from error


def put(text: str, path: Path, value: Any) -> str:
    """The text with ``value`` at ``path``: a new table comes to the end, a value takes the place of the one there.

    Raises:
        InvalidInput: If the text is not TOML, or is written so that this cannot be done safely.
    """
    document = read(text)
    if value_at(document, path) == value:
        return text
    expected = replaced(document, path, value)
    if isinstance(value, dict):
        text = remove(text, path)
        separator = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        shown = f"{separator}{rendered(path, value)}"
        return _checked(f"{text}{shown.replace(chr(10), newline_of(text))}", expected)
    parsed = _parsed(text)
    table = value_at(parsed, path[:-1])
    table[path[-1]] = value
    return _checked(_dumped(parsed, text), expected)


def remove(text: str, path: Path) -> str:
    """The text without what stands at ``path``; unchanged where nothing does.

    What stands between it and the next table stays, comments too; a blank line before it leaves with it.

    Raises:
        InvalidInput: As ``put``.
    """
    document = read(text)
    if value_at(document, path) is None:
        return text
    parsed = _parsed(text)
    del value_at(parsed, path[:-1])[path[-1]]
    rest = _dumped(parsed, text)
    same = takewhile(lambda lines: lines[0] == lines[1], zip(_lines(text), _lines(rest), strict=False))
    start = sum(len(line) for line, _ in same)
    end = len(text) - len(rest) + start
    if text[end:] == rest[start:]:  # it stood in one place
        trailing = _TRAILING.search(text, start, end)
        kept = "" if trailing is None else trailing[0]
        rest = f"{_BLANK_LINE.sub('', text[:start])}{kept}{text[end:]}"
    return _checked(rest, without(document, path))


def rendered(path: Path, value: Any) -> str:
    """A table, and what is below it, as TOML."""
    import tomlkit

    return tomlkit.dumps(replaced(None, path, value))


def _parsed(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text.removeprefix("\ufeff"))
    except TOMLKitError as error:
        raise _unsafe() from error


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _dumped(parsed: Any, former: str) -> str:
    """The text, with the byte order mark and the line ends of the former one."""
    text = parsed.as_string()
    if _LONE_NEWLINE.search(former) is None and "\r\n" in former:
        text = _LONE_NEWLINE.sub("\r\n", text)
    return f"\ufeff{text}" if former.startswith("\ufeff") else str(text)


def _checked(text: str, expected: Any) -> str:
    try:
        meant = read(text)
    except InvalidInput as error:
        raise _unsafe() from error
    if _without_empty(meant) != _without_empty(expected):
        raise _unsafe()
    return text


def _without_empty(value: Any) -> Any:
    """The value without empty tables: TOML need not write them down."""
    if not isinstance(value, dict):
        return value
    members = {key: _without_empty(member) for key, member in value.items()}
    return {key: member for key, member in members.items() if member != {}}


def _unsafe() -> InvalidInput:
    return InvalidInput("the file is written in a way that cannot be edited safely.", hint=BY_HAND)
