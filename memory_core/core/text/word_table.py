"""Words and patterns as data: the table beside a module, and patterns that are compiled when they are first needed.

The table of ``language.py`` is ``language.json`` in the same folder. A table holds words and patterns of both
languages; the module that it belongs to says what they mean. Pure but for reading the table once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PART = re.compile("<([A-Z_]+)>")


@cache
def word_table(module: str) -> Mapping[str, Any]:
    """The table beside a module, read at the first call.

    Args:
        module: The module's ``__file__``.
    """
    table: Mapping[str, Any] = json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8"))
    return table


@cache
def word_parts(module: str) -> Mapping[str, str]:
    """The ``parts`` of the table beside a module, by which its patterns are written: lines are alternatives."""
    parts = word_table(module).get("parts", {})
    return {name: part if isinstance(part, str) else "|".join(part) for name, part in parts.items()}


@cache
def word_pattern(module: str, name: str) -> re.Pattern[str]:
    """The pattern of that name in the table beside a module, compiled at the first call; lines are alternatives."""
    return compiled(expanded("|".join(word_table(module)[name]), word_parts(module)))


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern, compiled at the first call: compiling all of them would take a tenth of a second at the start."""
    return re.compile(pattern, flags)


def words(lines: Iterable[str]) -> frozenset[str]:
    """The words of lines, parted by white space."""
    return frozenset(word for line in lines for word in line.split())


def expanded(pattern: str, parts: Mapping[str, str]) -> str:
    """A pattern with each ``<NAME>`` in it replaced by the part of that name, which may hold further ones."""
    while _PART.search(pattern):
        pattern = _PART.sub(lambda found: parts[found[1]], pattern)
    return pattern


@dataclass(frozen=True, slots=True)
class CuedPattern:
    """A pattern for texts that hold one of its cues: on all others it is neither tried nor compiled.

    Attributes:
        name: What a match means.
        cues: Parts of a text, one of which stands in all that the pattern matches.
        pattern: A regular expression.
        flags: Of ``re.compile``.
    """

    name: str
    cues: tuple[str, ...]
    pattern: str
    flags: int = 0

    def cued(self, text: str) -> bool:
        """Whether ``text`` holds one of the cues, in the case in which they are written."""
        return any(cue in text for cue in self.cues)

    @property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, compiled at the first use."""
        return compiled(self.pattern, self.flags)


def cued_patterns(
    entries: Iterable[Mapping[str, Any]], parts: Mapping[str, str], flags: int = 0
) -> tuple[CuedPattern, ...]:
    """The patterns of a list in a table, in its order.

    Args:
        entries: Each with ``name``, ``cues`` parted by spaces, and ``pattern``, a text or lines that are alternatives.
        parts: What ``<NAME>`` stands for.
        flags: Of all patterns.
    """
    found = []
    for entry in entries:
        pattern = entry["pattern"] if isinstance(entry["pattern"], str) else "|".join(entry["pattern"])
        found.append(CuedPattern(entry["name"], tuple(entry["cues"].split()), expanded(pattern, parts), flags))
    return tuple(found)
