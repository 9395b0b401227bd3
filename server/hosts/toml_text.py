"""One table of a TOML file, edited in place.

Owns setting and taking out a table such as ``[mcp_servers.runebook]``. Whatever stands elsewhere stays byte for byte.
Lines are only proposals here: each edit is read back by the standard parser and must mean exactly what was asked, else
the file is refused. Pure; opens no file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from memory_core.core.errors import InvalidInput
from server.hosts.jsonc import BY_HAND, Path, newline_of, replaced

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*\[")


def read(text: str) -> dict[str, Any]:
    """What the text means.

    Raises:
        InvalidInput: If it is not TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"it is not TOML: {error}.", hint=BY_HAND) from error


def table_at(text: str, path: Path) -> dict[str, Any] | None:
    """The table at ``path``; None where there is none.

    Raises:
        InvalidInput: If the text is not TOML.
    """
    found: Any = read(text)
    for key in path:
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found if isinstance(found, dict) else None


def set_table(text: str, path: Path, values: Mapping[str, Any]) -> str:
    """The text with those values in the table at ``path``; others that it has stay.

    Raises:
        InvalidInput: If the text is not TOML, or the table is written in a way that cannot be edited safely.
    """
    document = read(text)
    present = table_at(text, path)
    _must_be_tables(document, path)
    if present is None:
        separator = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
        shown = f"{separator}{shown_table(path, values)}"
        return _checked(text + shown.replace("\n", newline_of(text)), replaced(document, path, dict(values)))
    if all(present.get(key) == value for key, value in values.items()):
        return text
    expected = replaced(document, path, {**present, **values})
    for start, end in _runs(text, path):
        for changed in (_lines_changed(text[start:end], values), shown_table(path, {**present, **values})):
            candidate = f"{text[:start]}{changed.replace(chr(10), newline_of(text))}{text[end:]}"
            if _means(candidate, expected):
                return candidate
    raise InvalidInput(f"[{'.'.join(path)}] is written in a way that cannot be edited safely.", hint=BY_HAND)


def remove_table(text: str, path: Path) -> str:
    """The text without the table at ``path`` and what is below it; unchanged where there is none.

    Raises:
        InvalidInput: If the text is not TOML, or the table is written in a way that cannot be edited safely.
    """
    if table_at(text, path) is None:
        return text
    document = read(text)
    holder = table_at(text, path[:-1]) or {}
    rest = {key: value for key, value in holder.items() if key != path[-1]}
    for start, end in _runs(text, path):
        candidate = f"{_without_blank_line(text[:start])}{text[end:]}"
        if _means(candidate, replaced(document, path[:-1], rest)) or (
            not rest and _means(candidate, _without(document, path[:-1]))
        ):
            return candidate
    raise InvalidInput(f"[{'.'.join(path)}] is written in a way that cannot be edited safely.", hint=BY_HAND)


def shown_table(path: Path, values: Mapping[str, Any]) -> str:
    """A table as TOML."""
    lines = "".join(f"{_key(key)} = {_value(value)}\n" for key, value in values.items())
    return f"[{'.'.join(_key(key) for key in path)}]\n{lines}"


def _lines_changed(table: str, values: Mapping[str, Any]) -> str:
    table = table.replace("\r\n", "\n")
    for key, value in values.items():
        line = f"{_key(key)} = {_value(value)}"
        present = re.search(rf"(?m)^{re.escape(key)}[ \t]*=.*$", table)
        if present is None:
            table = table.replace("\n", f"\n{line}\n", 1)
        else:
            table = f"{table[: present.start()]}{line}{table[present.end() :]}"
    return table


def _runs(text: str, path: Path) -> Iterator[tuple[int, int]]:
    """Stretches of lines that may be the table: from its header, or its one line, to each header that follows."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    headers = [start for start in starts[:-1] if _HEADER.match(text, start)]
    for start, end in pairwise(starts):
        if path[-1] not in text[start:end]:
            continue
        if start in headers:
            yield from ((start, _body_end(text, start, later)) for later in (*headers, len(text)) if later > start)
        else:
            yield start, end


def _body_end(text: str, start: int, end: int) -> int:
    """Where a table ends: blank lines and comments before the next header are not its own."""
    lines = text[start:end].splitlines(keepends=True)
    while lines and lines[-1].lstrip()[:1] in ("", "#"):
        end -= len(lines.pop())
    return end


def _without_blank_line(text: str) -> str:
    for ending in ("\r\n\r\n", "\n\n"):
        if text.endswith(ending):
            return text[: -len(ending) // 2]
    return text


def _must_be_tables(document: Any, path: Path) -> None:
    for depth, key in enumerate(path, 1):
        document = document.get(key, {})
        if not isinstance(document, dict):
            raise InvalidInput(f"{'.'.join(path[:depth])} is no table.", hint=BY_HAND)


def _means(text: str, expected: Mapping[str, Any]) -> bool:
    try:
        return read(text) == expected
    except InvalidInput:
        return False


def _checked(text: str, expected: Mapping[str, Any]) -> str:
    if not _means(text, expected):
        raise InvalidInput("the file is written in a way that cannot be edited safely.", hint=BY_HAND)
    return text


def _without(document: Any, path: Path) -> Any:
    rest = {key: value for key, value in document.items() if key != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _without(document[path[0]], path[1:])}


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())} }}" if value else "{}"
    raise InvalidInput(f"{type(value).__name__} cannot be written anew.", hint=BY_HAND)
