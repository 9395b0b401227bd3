"""Heads: which lines of a Markdown text introduce what stands below them; told by marks, indentation and how lines end.

A heading has the rank of its level. After it come titles (a bold line), sections ("一、…", "★ …"), introductions (they
end with a colon), lines that do not end as a sentence does, and sentences. A line leads what follows it in a later
rank, and whatever is set in below it, such as a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TITLE, _SECTION, _INTRODUCTION, _LINE, _SENTENCE = range(7, 12)
#: What goes before the text of a line: quote marks and blanks; the mark of an item, a definition or a row; a heading's.
_LEAD = re.compile(
    r"(?P<edge>[\ufeff> \t]*+)"
    r"(?P<mark>(?:[-*+•·・▪◦–—]|\d{1,9}[.)])(?:[ \t]+(?:\[[ xX]\][ \t]+)?|$)"
    r"|\d{1,2}、[ \t]*|[（(]\d{1,2}[)）][ \t]*|:[ \t]+|\|[| \t]*+)?"
    r"(?:(?P<heading>#{1,6})(?:[ \t]+|$)(?:\d{1,9}[.)](?:[ \t]+|$))?)?"
)
_TAG = re.compile(r"</?((?P<heading>h[1-6])|b|strong|dt|dd|li|p|summary|t[dhr])\b[^<>]*>", re.IGNORECASE)
_TITLED = re.compile(
    r"(\*\*|__|\*|_)(?=\S)(?:(?!\1).)+\1[:：]?|【[^】]+】[:：]?|<(b|strong|dt|summary)\b[^<>]*>[^<]*</\2>[:：]?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"[（(]?[一二三四五六七八九十百]{1,4}[)）、.．]|第[一二三四五六七八九十百\d]{1,4}[章节回部篇课]|[★☆■□◆◇●○▶►]"
)
_BLOCK = re.compile(r"```|~~~|<(?:ul|ol|dl|dd|li|p|pre|table|blockquote|div)\b", re.IGNORECASE)
_CELL_END = re.compile(r"(?<!\\)\|")
#: What may stand behind the mark that ends a sentence.
_CLOSERS = " \t*_~`|\"'”’»)]}）」』】》"
_ENDS = (".", "!", "?", "。", "！", "？", "…")
_INTRODUCES = (":", "：", "—", "–")
_SAYS_NOTHING = frozenset("-=_*|:+> \t")


@dataclass(frozen=True, slots=True)
class Line:
    """A line with what its marks say.

    Attributes:
        lead: The marks before its text.
        text: What stands behind them.
        mark: That of a list item, a definition or a table's row; empty for other lines.
        quotes: The quote marks before it.
        depth: How far it is indented, in characters; an empty cell at the begin of a row counts as one.
        rank: The level of a heading, or after it that of a title, a section, an introduction, a line or a sentence.
        is_header: Whether it is the first row of a table.
        is_underlined: Whether the next line is a part of it, as below a heading or the first row of a table.
    """

    lead: str
    text: str
    mark: str
    quotes: int
    depth: int
    rank: int
    is_header: bool
    is_underlined: bool

    @classmethod
    def of(cls, line: str, following: str) -> Line:
        """A line, without blanks at its end, and the one that follows it in the text."""
        found = _LEAD.match(line)
        assert found is not None  # it matches an empty text
        edge, mark, text = found["edge"].lstrip("\ufeff"), found["mark"] or "", line[found.end() :]
        drawn = set(following) - set("> \t")
        is_header = "|" in line and {"-", "|"} <= drawn <= {"-", "|", ":"}
        is_plain = bool(text) and not mark and not found["heading"]
        is_underlined = is_header or (is_plain and drawn in ({"="}, {"-"}))
        tag = _TAG.match(text)
        if found["heading"]:
            rank = len(found["heading"])
        elif is_underlined and not is_header:
            rank = 1 if drawn == {"="} else 2
        else:
            rank = int(tag["heading"][1]) if tag and tag["heading"] else _rank(text)
        depth = len(edge.expandtabs(4)) + mark.count("|")
        return cls(found.group(), text, mark, edge.count(">"), depth, rank, is_header, is_underlined)

    @property
    def introduces(self) -> bool:
        """Whether it does not end as a sentence does."""
        return self.rank < _SENTENCE

    def leads(self, below: Line, *, is_apart: bool) -> bool:
        """Whether what stands below belongs to this line, and without it to another.

        Args:
            below: The next line that says something.
            is_apart: Whether a blank line is between them.
        """
        if below.quotes < self.quotes:
            return False
        if min(self.rank, below.rank) < _TITLE:
            return self.rank < below.rank
        if self.is_header:
            return not is_apart
        if below.depth != self.depth and (self.mark or below.depth > self.depth or below.depth < self.depth - 1):
            return below.depth > self.depth
        if self.mark and below.mark:
            return self.rank < min(below.rank, _LINE)
        if self.mark:  # the line goes on with an item that has no end
            return not is_apart and self.introduces and below.rank >= _LINE
        if below.mark or _BLOCK.match(below.text) or (below.rank == _SECTION != self.rank):
            return True
        if is_apart:
            return self.rank <= _SECTION < below.rank
        return self.rank < below.rank or (self.rank == _LINE and below.text[:1].islower())

    def elided(self) -> str:
        """The line with its marks, and ``…`` for what it says."""
        if self.is_header or self.mark.startswith("|"):
            cells = _CELL_END.split(self.mark + self.text)
            return self.lead.removesuffix(self.mark) + "|".join(" … " if cell.strip() else cell for cell in cells)
        tag = _TAG.match(self.text)
        opening, closing = (f"<{tag[1]}>", f"</{tag[1]}>") if tag else ("", "")
        return f"{self.lead}{opening}…{closing if closing in self.text else ''}"


def says_nothing(line: str) -> bool:
    """Whether a line is blank, or only drawn: a rule, what underlines a heading or parts a table's rows."""
    return _SAYS_NOTHING.issuperset(line)


def unmarked(line: str) -> str:
    """A line, or a sentence that begins one, without its marks and tags."""
    return _TAG.sub("", _LEAD.sub("", line, count=1))


def _rank(text: str) -> int:
    """The rank of a line that is no heading; ``…`` was a title or more."""
    end = _TAG.sub("", text).rstrip(_CLOSERS)
    if end != "…" and end.endswith(_ENDS):
        return _SENTENCE
    if end == "…" or _TITLED.fullmatch(text.rstrip("| \t")):
        return _TITLE
    if _NUMBERED.match(text):
        return _SECTION
    return _INTRODUCTION if end.endswith(_INTRODUCES) else _LINE
