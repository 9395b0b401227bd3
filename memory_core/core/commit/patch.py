r"""SEARCH/REPLACE patches on the text of one field.

Owns the patch forms and where a block fits. Every block is located in the *original* text, then all are
applied together; text outside the located spans comes back byte for byte. A patch that does not fit, or
could fit in two ways, is rejected whole and never guessed at. Knows nothing of fields or files.

Line numbers count from 1. Only ``\n`` and ``\r\n`` end a line.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import islice, pairwise

from memory_core.core.errors import PatchRejected
from memory_core.core.frozen import frozen
from memory_core.core.memory.operations import SearchReplace

_OPEN = "<<<<<<< SEARCH"
_DIVIDER = "======="
_CLOSE = ">>>>>>> REPLACE"
_RULE = "-------"
_START_LINE = re.compile(r":start_line:[ \t]*([0-9]{1,9})[ \t]*")
_LIST_FORM = "or give the patch as a list of {search, replace}, whose texts may hold any line."

_READINGS_LIMIT = 20
_OCCURRENCES_LIMIT = 1_000
_TOLERANT_LIMIT_CHARS = 2_000
#: What the blocks of a patch may cost: so much for each character of the text, and beside it.
_WORK_A_CHARACTER, _WORK_LEAST = 80, 100_000
#: What each place costs where SEARCH stands, beside the characters of SEARCH.
_OCCURRENCE_WORK = 100
#: Characters that cost 1 when a SEARCH is looked for.
_SPEED = 10
#: Lines of a SEARCH that are looked for within the lines of the text, for a hint.
_PARTS_LIMIT = 100
_HINT_LIMIT_CHARS = 600
_EXCERPT_LIMIT_CHARS = 120

_BLANK = r"[ \t\u00a0\u2000-\u200a\u202f\u3000]"
_RUN = re.compile(rf"{_BLANK}*\r?\n|{_BLANK}+")
_TWINS = (
    '"“”„‟〝〞＂「」『』｢｣«»',
    "'‘’‚‛＇",
    ".．。｡",
    "、､",
    *(mark + chr(ord(mark) + 0xFEE0) for mark in string.punctuation if mark not in "\"'."),
)
_FIRST_TWIN = str.maketrans({mark: twins[0] for twins in _TWINS for mark in twins})


@frozen
class _Reading:
    """One way to understand a block; ``drops_lines``: it replaces whole lines by no line at all."""

    search: str
    replace: str
    start_line: int | None = None
    drops_lines: bool = False


@frozen
class _Edit:
    start: int
    end: int
    text: str


class _Source:
    """The original text with its lines; ``eol`` is its line ending, None where both kinds are mixed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer("\n", text) if match.end() < len(text))]
        crlf = text.count("\r\n")
        mixed = 0 < crlf < text.count("\n")
        self.eol = None if mixed else "\r\n" if crlf else "\n"
        self._work = 0

    def count_work(self, amount: int) -> None:
        """Count what locating the blocks costs, in characters that are read: other writers wait for it.

        Raises:
            PatchRejected: If it is too much.
        """
        self._work += amount
        if self._work > _WORK_A_CHARACTER * len(self.text) + _WORK_LEAST:
            raise PatchRejected(
                "The patch has too many blocks, or too many that fit nearly or in many places.",
                hint="Copy each SEARCH exactly, or give the blocks in several commits.",
            )

    @cached_property
    def loose(self) -> _Loose:
        """The text as a SEARCH sees it that need fit only nearly."""
        return _Loose(self.text)

    def adapt(self, text: str) -> str:
        """``text`` with this source's line endings."""
        return text if self.eol is None else re.sub("\r?\n", self.eol, text)

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def line(self, number: int) -> str:
        return self.text[self.starts[number - 1] :].partition("\n")[0].rstrip("\r")

    def occurrences(self, text: str, search: str, limit: int) -> list[int]:
        """Offsets where ``search`` starts in a form of the text, overlapping ones too: each is a place to edit."""
        found: list[int] = []
        offset = text.find(search)
        while offset >= 0 and len(found) < limit:
            found.append(offset)
            offset = text.find(search, offset + 1)
        self.count_work(len(text) // _SPEED + (_OCCURRENCE_WORK + len(search) // _SPEED) * len(found))
        return found


class _Loose:
    r"""A text with one form for each run of blanks, line ending, quotation mark and width.

    Attributes:
        text: A run of blanks is one blank, a line ending with the blanks before it ``\n``, a mark its first twin.
    """

    def __init__(self, original: str) -> None:
        self._original = original
        #: Ends of the runs, in ``text`` and in the original.
        self._ends, self._original_ends = [0], [0]
        pieces: list[str] = []
        for run in _RUN.finditer(original):
            between = original[self._original_ends[-1] : run.start()]
            pieces += [between, "\n" if run[0].endswith("\n") else " "]
            self._ends.append(self._ends[-1] + len(between) + 1)
            self._original_ends.append(run.end())
        self.text = "".join([*pieces, original[self._original_ends[-1] :]]).translate(_FIRST_TWIN)

    def offset(self, at: int) -> int:
        """Where in the original the character at ``at`` starts, with its whole run."""
        run = bisect_right(self._ends, at) - 1
        return self._original_ends[run] + at - self._ends[run]

    def line_end(self, at: int) -> int:
        """Where in the original the line ending at ``at`` starts, without the blanks before it."""
        end = self.offset(at + 1)
        return end - (2 if self._original[end - 2 : end] == "\r\n" else 1)


def apply_patch(original: str, patch: str | Sequence[SearchReplace]) -> str:
    """The text after ``patch``.

    Args:
        original: The field's present text.
        patch: SEARCH/REPLACE text of one or more blocks, the same as a list, or text without
            marker lines, which replaces the whole field.

    Raises:
        PatchRejected: If the patch is malformed, or any block is missing, ambiguous, overlaps another,
            or would delete by a near match. Nothing is applied then.
    """
    if isinstance(patch, str):
        if not is_patch(patch):
            return patch
        blocks = _parse(patch)
    else:
        blocks = [(_Reading(block.search, block.replace, block.start_line),) for block in patch]
    source = _Source(original)
    edits: list[_Edit] = []
    for number, readings in enumerate(blocks, start=1):
        try:
            edits.append(_locate(source, readings))
        except PatchRejected as error:
            if len(blocks) == 1:
                raise
            raise PatchRejected(
                f"Block {number} of {len(blocks)}: {error.message} No block was applied.", hint=error.hint
            ) from error
    return _apply(source, edits)


def only_adds(patch: object) -> bool:
    """Whether a patch takes nothing away wherever it is applied: every SEARCH of it is empty."""
    if isinstance(patch, str) and is_patch(patch):
        try:
            return not any(reading.search for readings in _parse(patch) for reading in readings)
        except PatchRejected:
            return False
    return isinstance(patch, list) and all(isinstance(block, SearchReplace) and not block.search for block in patch)


def is_patch(text: str) -> bool:
    """Whether ``text`` holds a marker line of a SEARCH/REPLACE block, be the patch sound or malformed.

    A lone ``=======`` is no sign of a patch: it underlines Markdown headings.
    """
    return any(_mark(line) in (_OPEN, _CLOSE) for line in text.split("\n"))


def looked_for(patch: str) -> str:
    """The lines that a patch looks for: those of every SEARCH that is closed, be the patch sound or malformed."""
    closed: list[str] = []
    search: list[str] | None = None
    for line in patch.split("\n"):
        mark = _mark(line)
        if search is None:
            search = [] if mark == _OPEN else None
        elif mark == _DIVIDER:
            closed += search
            search = None
        else:
            search.append(line)
    return "\n".join(closed)


def opens_as_patch(text: str) -> bool:
    """Whether the first line that says anything is a marker: a patch, not prose that quotes one."""
    marks = (_mark(line) for line in text.split("\n"))
    return next((mark for mark in marks if not _is_padding(mark)), "") in (_OPEN, _CLOSE)


def _mark(line: str) -> str:
    return line.rstrip(" \t\r")


def _is_padding(mark: str) -> bool:
    # Models like to wrap a patch in a code fence.
    return not mark.strip() or mark.startswith(("```", "~~~"))


def _parse(patch: str) -> list[tuple[_Reading, ...]]:
    """The blocks of a patch, each with every way it can be read."""
    lines = patch.split("\n")
    blocks: list[tuple[_Reading, ...]] = []
    opened: int | None = None
    for index, line in enumerate(lines):
        mark = _mark(line)
        if mark == _OPEN:
            if opened is not None:
                raise _malformed(f"line {index + 1} opens a block inside the one that line {opened + 1} opened")
            opened = index
        elif mark == _CLOSE:
            if opened is None:
                raise _malformed(f"line {index + 1} closes a block that no '{_OPEN}' opened")
            blocks.append(_readings(lines[opened + 1 : index]))
            opened = None
        elif opened is None and not _is_padding(mark):
            raise _malformed(f"line {index + 1} stands outside the blocks: {_cut(mark)!r}")
    if opened is not None:
        raise _malformed(f"the block that line {opened + 1} opens has no '{_CLOSE}'")
    return blocks


def _readings(lines: list[str]) -> tuple[_Reading, ...]:
    start_line: int | None = None
    bodies = [lines]
    first = _mark(lines[0]) if lines else ""
    if first.startswith(":start_line:"):
        match = _START_LINE.fullmatch(first)
        if match is None:
            raise _malformed(f"{_cut(first)!r} is not ':start_line:' and a line number")
        start_line = int(match[1])
        has_rule = len(lines) > 1 and _mark(lines[1]) == _RULE
        bodies = [lines[2:] if has_rule else lines[1:]]
    elif first == _RULE:
        # Either the optional rule of the format or a line of the text: the original decides.
        bodies.append(lines[1:])
    dividers = [(body, at) for body in bodies for at, line in enumerate(body) if _mark(line) == _DIVIDER]
    if not dividers:
        raise _malformed(f"a block has no '{_DIVIDER}' line")
    if len(dividers) > _READINGS_LIMIT:
        raise _malformed(f"a block has more than {_READINGS_LIMIT} lines that could divide it")
    return tuple(
        _Reading(_text(body[:at]), _text(body[at + 1 :]), start_line, drops_lines=at + 1 == len(body))
        for body, at in dividers
    )


def _text(lines: list[str]) -> str:
    return "\n".join(lines).removesuffix("\r")


def _malformed(reason: str) -> PatchRejected:
    return PatchRejected(
        f"The SEARCH/REPLACE patch is malformed: {reason}.",
        hint=f"Each block is '{_OPEN}', old lines, '{_DIVIDER}', new lines, '{_CLOSE}', each marker alone on "
        f"its line and nothing between blocks; {_LIST_FORM}",
    )


def _locate(source: _Source, readings: tuple[_Reading, ...]) -> _Edit:
    for find in (_exact, _tolerant):
        found = [edit for reading in readings if (edit := find(source, reading)) is not None]
        if len(found) > 1:
            raise PatchRejected(
                f"A block holds several '{_DIVIDER}' or '{_RULE}' lines and fits in more than one way.",
                hint=f"Make SEARCH shorter so that it holds no such line, {_LIST_FORM}",
            )
        if found:
            return found[0]
    search = readings[0].search
    if not source.text:
        raise PatchRejected(
            "The field is empty, so SEARCH matches nothing.", hint="Give the whole text as a plain string."
        )
    numbers, target = _closest_lines(source, search)
    shown = _excerpt(source, numbers, target)
    raise PatchRejected(
        f"The SEARCH text {_cut(search)!r} is not in the field.",
        hint=f"Copy SEARCH exactly from the text; the closest lines are\n{shown}"
        if numbers
        else "Read the memory again and copy SEARCH exactly, or give the whole field as a plain string.",
    )


def _exact(source: _Source, reading: _Reading) -> _Edit | None:
    if not reading.search:
        return _insertion(source, reading)
    search = source.adapt(reading.search)
    starts = source.occurrences(source.text, search, _OCCURRENCES_LIMIT + 1)
    if not starts:
        return None
    start = starts[0] if len(starts) == 1 else _nearest(source, starts, reading)
    end = start + len(search)
    if reading.drops_lines and (start == 0 or source.text[start - 1] == "\n"):
        # "No line" in place of whole lines must not leave an empty one.
        newline = re.compile("\r?\n").match(source.text, end)
        end = newline.end() if newline else end
    return _Edit(start, end, source.adapt(reading.replace))


def _nearest(source: _Source, starts: list[int], reading: _Reading) -> int:
    if reading.start_line is not None and len(starts) <= _OCCURRENCES_LIMIT:
        distances = [abs(source.line_at(start) - reading.start_line) for start in starts]
        least = min(distances)
        if distances.count(least) == 1:
            return starts[distances.index(least)]
    raise _ambiguous(source, starts, reading.search)


def _insertion(source: _Source, reading: _Reading) -> _Edit:
    text = source.adapt(reading.replace)
    eol = source.eol or "\n"
    last = len(source.starts)
    if not reading.replace:
        raise PatchRejected("A block has neither SEARCH nor REPLACE text.", hint="Leave the block out.")
    if not source.text:
        return _Edit(0, 0, text)
    line = last + 1 if reading.start_line is None else reading.start_line
    if not 1 <= line <= last + 1:
        raise PatchRejected(
            f"An empty SEARCH adds before a line, and the text has no line {line}.",
            hint=f"Set start_line from 1 to {last + 1}, or leave it out to add below the text, which ends with\n"
            f"{_excerpt(source, [last], '')}",
        )
    ended = text if text.endswith("\n") else text + eol
    if line <= last:
        at = source.starts[line - 1]
        return _Edit(at, at, ended)
    at = len(source.text)
    return _Edit(at, at, ended if source.text.endswith("\n") else eol + text)


def _tolerant(source: _Source, reading: _Reading) -> _Edit | None:
    """The one place that differs from SEARCH in blanks, line endings, quotes or punctuation width only."""
    search, replace = _without_common_margins(reading.search, reading.replace)
    if not search.strip() or len(search) > _TOLERANT_LIMIT_CHARS:
        return None
    spans = _loose_spans(source, _Loose(search).text)
    if not spans:
        return None
    if len(spans) > 1:
        raise _ambiguous(source, [start for start, _ in spans], search, near=True)
    start, end = spans[0]
    if not replace.strip():
        number = source.line_at(start)
        raise PatchRejected(
            f"SEARCH {_cut(reading.search)!r} only resembles the text; a deletion needs an exact match.",
            hint=f"Copy SEARCH exactly; the text there is\n{_excerpt(source, [number], search)}",
        )
    return _Edit(start, end, source.adapt(replace))


def _without_common_margins(search: str, replace: str) -> tuple[str, str]:
    """Both texts less the white space they share at either end, so that the original keeps its own."""
    margin = search[: len(search) - len(search.lstrip())]
    if margin == replace[: len(replace) - len(replace.lstrip())]:
        search, replace = search[len(margin) :], replace[len(margin) :]
    margin = search[len(search.rstrip()) :]
    if margin == replace[len(replace.rstrip()) :]:
        search, replace = search.removesuffix(margin), replace.removesuffix(margin)
    return search, replace


def _loose_spans(source: _Source, search: str) -> list[tuple[int, int]]:
    """Spans of the original that a loose ``search`` fits, in order; a blank at its end fits the end of a line, too."""
    loose = source.loose
    forms = [(search, loose.text)]
    if search[-1] == " ":
        forms.append((f"{search[:-1]}\n", f"{loose.text}\n"))
    spans: list[tuple[int, int]] = []
    for form, text in forms:
        for at in source.occurrences(text, form, _OCCURRENCES_LIMIT):
            start = loose.line_end(at) if form[0] == "\n" else loose.offset(at)
            last = at + len(form) - 1
            spans.append((start, loose.offset(last + 1) if form == search else loose.line_end(last)))
    return sorted(spans)[:_OCCURRENCES_LIMIT]


def _apply(source: _Source, edits: list[_Edit]) -> str:
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    for before, after in pairwise(ordered):
        if after.start < before.end:
            number = source.line_at(after.start)
            raise PatchRejected(
                f"Two blocks change the same text, at line {number}. No block was applied.",
                hint=f"Join them into one block; the text there is\n{_excerpt(source, [number], '')}",
            )
    pieces: list[str] = []
    at = 0
    for edit in ordered:
        pieces += [source.text[at : edit.start], edit.text]
        at = edit.end
    return "".join(pieces) + source.text[at:]


def _ambiguous(source: _Source, starts: list[int], search: str, *, near: bool = False) -> PatchRejected:
    numbers = list(dict.fromkeys(source.line_at(start) for start in starts))
    places = f"more than {_OCCURRENCES_LIMIT:,}" if len(starts) > _OCCURRENCES_LIMIT else str(len(starts))
    verb, remedy = ("resembles", "") if near else ("matches", ", or set start_line to the line that is meant")
    return PatchRejected(
        f"The SEARCH text {_cut(search)!r} {verb} {places} places.",
        hint=f"Copy more of the surrounding text exactly{remedy}. It {verb} at\n"
        f"{_excerpt(source, numbers[:3], search)}",
    )


def _closest_lines(source: _Source, search: str) -> tuple[list[int], str]:
    """Numbers of up to three lines that share most character pairs with the line of SEARCH that is missing."""
    lines = source.text.split("\n")
    whole = {line.strip() for line in lines}
    wanted = dict.fromkeys(line.strip() for line in search.split("\n") if line.strip())
    parts = islice((line for line in wanted if line not in whole), _PARTS_LIMIT)
    target = next((line for line in parts if line not in source.text), next(iter(wanted), ""))
    pairs = _character_pairs(target)
    scores = [(-len(pairs & _character_pairs(line)), len(line), number) for number, line in enumerate(lines, start=1)]
    return sorted(number for score, _, number in sorted(scores)[:3] if score < 0), target


def _character_pairs(text: str) -> set[str]:
    folded = text.casefold()
    return {folded[at : at + 2] for at in range(len(folded) - 1)} or {folded} - {""}


def _excerpt(source: _Source, numbers: list[int], target: str) -> str:
    """Numbered lines, long ones cut around what they share with ``target``; fits a hint."""
    shown: list[str] = []
    for number in numbers:
        line = source.line(number)
        if len(line) > _EXCERPT_LIMIT_CHARS:
            shared = (line.find(word) for word in target[:200].split() if len(word) > 3)
            start = max(0, next((at for at in shared if at >= 0), 0) - _EXCERPT_LIMIT_CHARS // 3)
            cut = line[start : start + _EXCERPT_LIMIT_CHARS]
            line = ("…" if start else "") + cut + ("…" if start + len(cut) < len(line) else "")
        shown.append(f"{number}: {line}")
    return "\n".join(shown)[:_HINT_LIMIT_CHARS]


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
