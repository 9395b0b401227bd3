"""Words and patterns as data: the table beside a module, and patterns that are compiled when they are first needed.

The table of ``language.py`` is ``language.json`` in the same folder. A table holds words and patterns of both
languages; the module that it belongs to says what they mean. Pure but for reading the table once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from memory_core.core.frozen import frozen

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
def word_set(module: str, name: str) -> frozenset[str]:
    """The words of that name in the table beside a module: its lines, parted by white space."""
    return words(word_table(module)[name])


@cache
def word_pattern(module: str, name: str) -> re.Pattern[str]:
    """The pattern of that name in the table beside a module, compiled at the first call.

    Its lines are alternatives; ``<NAME>`` in them stands for the list ``name`` of the table, or for an entry of its
    ``parts``.
    """
    return compiled(_expanded(word_table(module)[name], _parts(module)))


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern, compiled at the first call: compiling all of them would take a tenth of a second at the start."""
    return re.compile(pattern, flags)


def words(lines: Iterable[str]) -> frozenset[str]:
    """The words of lines, parted by white space."""
    return frozenset(word for line in lines for word in line.split())


@frozen
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
    flags: int

    def cued(self, text: str) -> bool:
        """Whether ``text`` holds one of the cues, in the case in which they are written."""
        return any(cue in text for cue in self.cues)

    @property
    def compiled(self) -> re.Pattern[str]:
        """The pattern, compiled at the first use."""
        return compiled(self.pattern, self.flags)


@cache
def cued_patterns(module: str, name: str, flags: int = 0) -> tuple[CuedPattern, ...]:
    """The list of patterns of that name in the table beside a module, in its order.

    Each has a ``name``, a ``pattern`` as for ``word_pattern``, and ``cues`` parted by spaces; one without cues is
    tried on every text.
    """
    return tuple(
        CuedPattern(
            entry["name"],
            tuple(entry.get("cues", "").split()) or ("",),
            _expanded(entry["pattern"], _parts(module)),
            flags,
        )
        for entry in word_table(module)[name]
    )


@cache
def _parts(module: str) -> Mapping[str, str]:
    """What ``<NAME>`` stands for in the patterns of a table."""
    table = word_table(module)
    lists = {name.upper(): lines for name, lines in table.items() if isinstance(lines, list)}
    return {name: _joined(lines) for name, lines in {**lists, **table.get("parts", {})}.items()}


def _joined(lines: str | list[Any]) -> str:
    return lines if isinstance(lines, str) else "|".join(line for line in lines if isinstance(line, str))


def _expanded(lines: str | list[Any], parts: Mapping[str, str]) -> str:
    pattern = _joined(lines)
    while _PART.search(pattern):
        pattern = _PART.sub(lambda found: parts[found[1]], pattern)
    return pattern
