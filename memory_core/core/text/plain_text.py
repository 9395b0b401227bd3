"""A Markdown text as it is read, without its marks."""

from __future__ import annotations

import re

from memory_core.core.memory.names import summary_line

_FENCE = re.compile(r"\s*(?:```|~~~)")
_QUOTED = re.compile(r"\s*(?:>\s?)+")
_HEADING = re.compile(r"\s*#{1,6}\s+")
_ITEM = re.compile(r"\s*[-*+]\s+(?:\[[ xX]\]\s+)?")
_CODE = re.compile(r"`+([^`]+)`+")
_LINK = re.compile(r"!?\[([^\]]{1,300})\]\([^()\s]+\)")
#: Marks around words; a lone one is a sign of its own, as in ``2 ** 3``.
_AROUND = re.compile(r"(\*\*|~~|(?<!\w)__)(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)")
_RULES = ("---", "***", "___", "===")
#: For a line, so many times its length is read: marks and white space are left out of it.
_READ_TIMES = 20


def plain_text(text: str) -> str:
    """The text line by line without the marks of Markdown; a line that was set apart by one begins with "·".

    Numbers stay, and a dash inside a sentence: both are words of it. So does all that stands in code.
    """
    lines: list[str] = []
    in_code = after_item = apart = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        elif in_code:
            lines.append(line)
        elif not line.strip():
            apart = apart or after_item
        elif line.strip(" \t|:-*_=") or not any(rule in line for rule in _RULES):
            said = _QUOTED.sub("", line, count=1) if _QUOTED.match(line) else line
            mark = _HEADING.match(said) or _ITEM.match(said)
            said = said[mark.end() :] if mark else said
            cells = said.strip().startswith("|")
            said = " · ".join(cell.strip() for cell in said.split("|") if cell.strip()) if cells else said
            separated = (apart or cells or mark is not None) and bool(lines)
            lines.append(f"{'· ' if separated else ''}{_without_marks(said).strip()}")
            after_item = mark is not None or cells
            apart = mark is not None and mark.re is _HEADING
    return "\n".join(lines)


def plain_line(text: str, limit_chars: int) -> str:
    """How the beginning of a text reads on one line of at most ``limit_chars`` characters; see ``plain_text``."""
    return summary_line(plain_text(text[: _READ_TIMES * limit_chars]), limit_chars)


def _without_marks(line: str) -> str:
    """A line without the marks inside it."""
    pieces = _CODE.split(line)
    pieces[::2] = [_AROUND.sub(r"\2", _LINK.sub(r"\1", piece)) for piece in pieces[::2]]
    return "".join(pieces)
