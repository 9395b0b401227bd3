"""Differences of two texts, and the merge of two texts that began as one; by lines.

A line ends at a line feed and nowhere else. ``unified`` gives lines that each begin with one of the marks of a unified
diff, so that no stored text can pose as a heading of the diff; ``side_by_side`` gives rows for two columns, with the
words that differ; ``merge3`` gives text, byte for byte, or nothing where both sides touch the same lines. Texts with
thousands of differing lines are compared more coarsely, never wrongly. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import ClassVar, Literal

from memory_core.core.frozen import frozen
from memory_core.core.text.word_table import compiled

CONTEXT_LINES = 3
#: More differing lines than this are one block: the comparison takes the square of them.
_COMPARED_LINES = 3_000
#: More pairs of equal lines or words than this, and those that are everywhere are no beginning of a match: the
#: comparison takes the pairs times the matches, a minute for three thousand short lines.
_COMPARED_PAIRS = 20_000
_COMMON_PAIRS = 400
#: What would begin a line of its own on some screen, or move its cursor, is shown as a picture or a code instead.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_PICTURES = 0x2400
_LINE_CHARS = 100_000
_NO_NEWLINE = "\\ no line feed at the end"
#: A word, blanks, or one sign; each Chinese character is a word.
_WORD = r"(?s)[^\W\u3400-\u9fff]+|\s+|."
#: Lines of more words than this are marked as a whole.
_COMPARED_WORDS = 600
#: In a change of more lines than this no words are compared.
_PAIRED_LINES = 500
_PAIRED_CHARS = 20_000
#: Lines that have less in common than this are one that went and one that came.
_ALIKE = 0.35


@frozen
class Edit:
    """Lines ``start`` to ``end`` (not included) of a text are replaced by ``lines``, which keep their ends."""

    start: int
    end: int
    lines: tuple[str, ...]


@frozen
class Side:
    """One line of one of two texts.

    Attributes:
        line: Its number, from 1.
        text: As a screen can show it; see ``visible``.
        parts: The same in pieces, each with whether it differs from the other side; empty where there is no such line.
    """

    JSON: ClassVar = "line text parts?"

    line: int
    text: str
    parts: tuple[tuple[str, bool], ...] = ()


@frozen
class Row:
    """One row of two texts side by side.

    Attributes:
        kind: ``same`` and ``changed`` have both sides, ``removed`` the left one, ``added`` the right one, ``skipped``
            none.
        left: Of the older text.
        right: Of the newer text.
        count: Equal lines that a ``skipped`` row stands for.
    """

    JSON: ClassVar = "kind left? right? count?"

    kind: Literal["same", "changed", "added", "removed", "skipped"]
    left: Side | None = None
    right: Side | None = None
    count: int = 0

    @property
    def chars(self) -> int:
        """How many characters both sides show."""
        return sum(len(side.text) for side in (self.left, self.right) if side is not None)


def split_lines(text: str) -> list[str]:
    """The lines of a text with their line feeds; the last may have none."""
    lines = text.split("\n")
    whole = [f"{line}\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole


def edits(before: Sequence[str], after: Sequence[str]) -> list[Edit]:
    """What makes ``after`` of ``before``, in order; no two of them touch."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if not old and not new:
        return []
    if not old or not new or len(old) + len(new) > _COMPARED_LINES:
        return [Edit(head, head + len(old), tuple(new))]
    matcher = SequenceMatcher(_common(old, new), old, new, autojunk=False)
    return [
        Edit(head + i1, head + i2, tuple(new[j1:j2])) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    ]


def unified(before: str, after: str, context: int = CONTEXT_LINES) -> tuple[str, ...]:
    """The hunks of a unified diff, without file names; empty for equal texts.

    Every line begins with ``@@``, a space, ``-``, ``+`` or a backslash. Characters that no screen shows as they are
    appear as pictures or codes.

    Args:
        before: The older text.
        after: The newer text.
        context: Unchanged lines around a change.
    """
    old, new = split_lines(before), split_lines(after)
    shown: list[str] = []
    shift = 0
    for group, first, last in _hunks(edits(old, new), context, len(old)):
        grown = sum(len(edit.lines) - (edit.end - edit.start) for edit in group)
        size = last - first
        shown.append(f"@@ -{_span(first, size)} +{_span(first + shift, size + grown)} @@")
        at = first
        for edit in group:
            shown += _marked(" ", old[at : edit.start])
            shown += _marked("-", old[edit.start : edit.end])
            shown += _marked("+", edit.lines)
            at = edit.end
        shown += _marked(" ", old[at:last])
        shift += grown
    return tuple(shown)


def side_by_side(
    before: str, after: str, context: int = CONTEXT_LINES, most: int | None = None, most_chars: int | None = None
) -> tuple[Row, ...]:
    """Two texts in two columns, row by row; empty for equal texts.

    Args:
        before: The older text, on the left.
        after: The newer text, on the right.
        context: Unchanged lines around a change; the others become ``skipped`` rows.
        most: Rows at most, and one more that counts the lines of all others; None is all.
        most_chars: Characters of all rows but the first at most, in the same way.
    """
    old, new = split_lines(before), split_lines(after)
    if before != after and (most == 0 or most_chars == 0):  # nothing of it is compared
        return (Row("skipped", count=max(len(old), len(new))),)
    shown: list[Row] = []
    chars = 0
    for row in _rows(old, new, context):
        chars += row.chars
        if len(shown) == most or (shown and most_chars is not None and chars > most_chars):
            break
        shown.append(row)
    else:
        return tuple(shown)
    if shown and shown[-1].kind == "skipped":
        shown.pop()
    left = next((row.left.line for row in reversed(shown) if row.left), 0)
    right = next((row.right.line for row in reversed(shown) if row.right), 0)
    return (*shown, Row("skipped", count=max(len(old) - left, len(new) - right)))


def _rows(old: Sequence[str], new: Sequence[str], context: int) -> Iterator[Row]:
    at = shift = 0
    found = edits(old, new)
    for group, first, last in _hunks(found, context, len(old)):
        if first > at:
            yield Row("skipped", count=first - at)
        at = first
        for edit in group:
            yield from _same(old, at, edit.start, shift)
            yield from _changed(old[edit.start : edit.end], edit.lines, edit.start, edit.start + shift)
            shift += len(edit.lines) - (edit.end - edit.start)
            at = edit.end
        yield from _same(old, at, last, shift)
        at = last
    if found and at < len(old):
        yield Row("skipped", count=len(old) - at)


def merge3(base: str, ours: str, theirs: str) -> str | None:
    """The text with the changes of both sides; None where both changed the same lines, differently.

    Args:
        base: What both began with.
        ours: One side.
        theirs: The other side.
    """
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    lines = split_lines(base)
    mine, other = edits(lines, split_lines(ours)), edits(lines, split_lines(theirs))
    pieces: list[str] = []
    at, inserted_at = 0, -1
    for edit in sorted({*mine, *other}, key=lambda edit: (edit.start, edit.end)):
        if edit.start < at or edit.end == inserted_at:
            return None
        pieces += [*lines[at : edit.start], *edit.lines]
        at = edit.end
        inserted_at = edit.end if edit.start == edit.end else -1
    pieces += lines[at:]
    # A last line without its end may have got lines behind it.
    return "".join(piece if piece.endswith("\n") else f"{piece}\n" for piece in pieces[:-1]) + "".join(pieces[-1:])


def visible(text: str) -> str:
    """One line of text as a screen can show it: nothing in it moves a cursor, ends the line or turns its direction.

    Of a line that is too long for any screen its beginning, and how much follows.
    """
    if (left := len(text) - _LINE_CHARS) > 0:
        return f"{visible(text[:_LINE_CHARS])} … {left:,} more characters"
    return _UNSEEN.sub(lambda found: _picture(ord(found[0])), text)


def _common(old: Sequence[str], new: Sequence[str]) -> Callable[[str], bool] | None:
    """Which lines are too frequent to begin a match; None where all may."""
    before, after = Counter(old), Counter(new)
    pairs = {line: count * after[line] for line, count in before.items() if line in after}
    if sum(pairs.values()) <= _COMPARED_PAIRS:
        return None
    return lambda line: pairs.get(line, 0) > _COMMON_PAIRS


def _same(lines: Sequence[str], start: int, end: int, shift: int) -> Iterator[Row]:
    for at in range(start, end):
        text = visible(lines[at].removesuffix("\n"))
        yield Row("same", Side(at + 1, text), Side(at + 1 + shift, text))


def _changed(old: Sequence[str], new: Sequence[str], left: int, right: int) -> Iterator[Row]:
    """The rows of replaced lines, paired from the first; what has nothing to do with each other is not paired."""
    paired = len(old) + len(new) <= _PAIRED_LINES and sum(map(len, old)) + sum(map(len, new)) <= _PAIRED_CHARS
    for at, (gone, come) in enumerate(zip_longest(old, new)):
        before = None if gone is None else Side(left + at + 1, _shown(gone, new))
        after = None if come is None else Side(right + at + 1, _shown(come, old))
        if before is not None and after is not None and (paired or len(old) == len(new) == 1):
            parts = _differing(before.text, after.text)
            if parts is not None:
                yield Row("changed", Side(before.line, before.text, parts[0]), Side(after.line, after.text, parts[1]))
                continue
        if before is not None:
            yield Row("removed", left=before)
        if after is not None:
            yield Row("added", right=after)


def _shown(line: str, others: Sequence[str]) -> str:
    """A line as it is shown; one that differs by its line feed alone says so."""
    text = visible(line.removesuffix("\n"))
    return text if line.endswith("\n") or f"{line}\n" not in others else f"{text} {_NO_NEWLINE}"


def _differing(before: str, after: str) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[str, bool], ...]] | None:
    """Both lines in pieces; None where they have too little in common."""
    old, new = compiled(_WORD).findall(before), compiled(_WORD).findall(after)
    if len(old) + len(new) > _COMPARED_WORDS:
        return ((before, True),), ((after, True),)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return None
    left: list[tuple[str, bool]] = []
    right: list[tuple[str, bool]] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        left += [("".join(old[i1:i2]), tag != "equal")] if i2 > i1 else []
        right += [("".join(new[j1:j2]), tag != "equal")] if j2 > j1 else []
    return tuple(left), tuple(right)


def _picture(code: int) -> str:
    return chr(_PICTURES + code) if code < 0x20 else f"<U+{code:04X}>"


def _hunks(found: Sequence[Edit], context: int, size: int) -> Iterator[tuple[list[Edit], int, int]]:
    """Edits near each other, with the first and the last line (not included) of what is shown around them."""
    groups: list[list[Edit]] = []
    for edit in found:
        if groups and edit.start - groups[-1][-1].end <= 2 * context:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    for group in groups:
        yield group, max(0, group[0].start - context), min(size, group[-1].end + context)


def _span(first: int, size: int) -> str:
    """A range of lines as unified diffs write it: counted from 1, an empty one by the line before it."""
    return f"{first + 1 if size else first},{size}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + visible(line.removesuffix("\n"))
        if not line.endswith("\n"):
            yield _NO_NEWLINE
