"""Packing: which pieces go into a context, so that its text keeps within a token budget.

Each part has a share of the budget; what a part leaves over goes on to the next, and in the end to whatever was left
out. Whole pieces are dropped before anything is cut: only a part that would be empty gets the beginning of its best
piece (of a log, the end). Knows nothing of formats but what they cost, and ranks nothing: pieces come best first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

#: A text of more characters for each token that it may cost is too long, and is not counted to know it.
_MOST_CHARS_PER_TOKEN = 16
#: Less than this of a piece says nothing.
_LEAST_CUT_TOKENS = 24
#: A cut moves back so many characters, to the end of a word.
_WORD_CHARS = 24


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that may go into a context.

    Attributes:
        kind: The part it belongs to; see ``PARTS``.
        uri: Where it is kept.
        text: All that it says; of a directory its line.
        score: Of the search that found it.
        date: ``YYYY-MM-DD``, as far as known.
        memory_type: Of a memory.
        contested_by: Newer memories that say otherwise.
        cut: Whether only a part of the text is left.
        within: Addresses and texts of what the text holds and need not be given beside it.
    """

    kind: str
    uri: str
    text: str
    score: float | None = None
    date: str | None = None
    memory_type: str = ""
    contested_by: tuple[str, ...] = ()
    cut: bool = False
    within: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """How a part is packed.

    Attributes:
        share: Of the whole budget.
        newest_last: Whether it reads like a diary: shown from old to new, and cut at the front.
        may_cut: Whether the beginning of a piece is of use.
    """

    share: float
    newest_last: bool = False
    may_cut: bool = True


#: In the order in which they are packed; the shares add up to 1.
PARTS: Mapping[str, Part] = {
    "profile": Part(0.15),
    "summary": Part(0.05),
    "skill": Part(0.12),
    "constraints": Part(0.14),
    "memories": Part(0.20),
    "tools": Part(0.07),
    "session": Part(0.13),
    "log": Part(0.05, newest_last=True),
    "recent": Part(0.05, newest_last=True),
    "directory": Part(0.04, may_cut=False),
}
#: In the order in which they are read.
READING_ORDER = (
    *("profile", "summary", "directory", "constraints", "memories"),
    *("tools", "skill", "session", "recent", "log"),
)


class Costs(Protocol):
    """What a format makes a piece cost, in tokens."""

    def item_tokens(self, piece: Piece) -> int:
        """Of the piece alone."""
        ...

    def frames(self, piece: Piece) -> Iterable[str]:
        """Names of what stands around the piece, shared with others: tags, headings, calls."""
        ...

    def frame_tokens(self, name: str) -> int:
        """Of what stands around."""
        ...


@dataclass(frozen=True, slots=True)
class Packing:
    """What goes in, in reading order, and the URIs of what does not, best first within each part."""

    pieces: tuple[Piece, ...]
    left_out: tuple[str, ...]


def pack(candidates: Mapping[str, Sequence[Piece]], budget_tokens: int, costs: Costs) -> Packing:
    """Choose pieces whose text costs at most the budget.

    Args:
        candidates: Pieces of each part, best first; no URI twice.
        budget_tokens: Of the whole text.
        costs: Of the format.
    """
    packer = _Packer(budget_tokens, costs)
    reserved: dict[str, int] = {}
    carried = 0
    for kind, part in PARTS.items():
        pieces = candidates.get(kind, ())
        own = int(budget_tokens * part.share)
        # Lines of the directory wait for what came short: a small budget is for the profile, then for them.
        allowance = own if reserved and not part.may_cut else own + carried
        used = packer.take(pieces, min(allowance, packer.left - sum(reserved.values())))
        if pieces and not used and part.may_cut:
            reserved[kind], carried = allowance, 0
        else:
            carried = allowance - used
    for kind in list(reserved):
        share = reserved.pop(kind)
        if not packer.take(candidates[kind], packer.left - sum(reserved.values()), most=1):
            packer.take_cut(candidates[kind][0], min(share, packer.left), PARTS[kind].newest_last)
    for kind in PARTS:
        packer.take(candidates.get(kind, ()), packer.left)
    return packer.packing(candidates)


class _Packer:
    """The pieces taken so far and what they cost."""

    def __init__(self, budget_tokens: int, costs: Costs) -> None:
        self.left = budget_tokens
        self._costs = costs
        self._item_tokens: dict[str, int] = {}
        self._open: set[str] = set()
        self._taken: dict[str, Piece] = {}

    def take(self, pieces: Iterable[Piece], allowance: int, most: int | None = None) -> int:
        """Take the whole pieces that fit, the first ones first; returns what they cost together."""
        used = 0
        taken = 0
        for piece in pieces:
            if taken == most:
                break
            if piece.uri in self._taken or len(piece.text) > allowance * _MOST_CHARS_PER_TOKEN:
                continue
            cost = self._cost(piece)
            if used + cost <= allowance:
                self._add(piece, cost)
                used += cost
                taken += 1
        return used

    def take_cut(self, piece: Piece, allowance: int, keep_end: bool) -> None:
        """Take as much of a piece as the allowance holds, if that is enough to say something."""
        text = _part(piece.text, min(len(piece.text), allowance * _MOST_CHARS_PER_TOKEN), keep_end)
        frames = self._frame_tokens(piece)
        if frames + self._costs.item_tokens(_cut(piece, "", keep_end)) + _LEAST_CUT_TOKENS > allowance:
            return
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            fits = frames + self._costs.item_tokens(_cut(piece, _part(text, middle, keep_end), keep_end)) <= allowance
            low, high = (middle, high) if fits else (low, middle - 1)
        shown = _cut(piece, _at_word(_part(text, low, keep_end), keep_end), keep_end)
        self._add(shown, frames + self._costs.item_tokens(shown))

    def packing(self, candidates: Mapping[str, Sequence[Piece]]) -> Packing:
        """What was taken and what was not."""
        shown: list[Piece] = []
        for kind in READING_ORDER:
            taken = [self._taken[piece.uri] for piece in candidates.get(kind, ()) if piece.uri in self._taken]
            shown += taken[::-1] if PARTS[kind].newest_last else taken
        left_out = (piece.uri for kind in PARTS for piece in candidates.get(kind, ()) if piece.uri not in self._taken)
        return Packing(tuple(shown), tuple(left_out))

    def _add(self, piece: Piece, cost: int) -> None:
        self._taken[piece.uri] = piece
        self._open |= set(self._costs.frames(piece))
        self.left -= cost

    def _cost(self, piece: Piece) -> int:
        if piece.uri not in self._item_tokens:
            self._item_tokens[piece.uri] = self._costs.item_tokens(piece)
        return self._item_tokens[piece.uri] + self._frame_tokens(piece)

    def _frame_tokens(self, piece: Piece) -> int:
        return sum(self._costs.frame_tokens(name) for name in self._costs.frames(piece) if name not in self._open)


def _part(text: str, chars: int, keep_end: bool) -> str:
    return text[len(text) - chars :] if keep_end else text[:chars]


def _at_word(text: str, keep_end: bool) -> str:
    """The text without the piece of a word at which it was cut, where words have spaces."""
    if keep_end:
        start = next((at for at, mark in enumerate(text[:_WORD_CHARS]) if mark.isspace()), 0)
        return text[start:].lstrip()
    tail = text[-_WORD_CHARS:]
    end = next((at for at in range(len(tail) - 1, -1, -1) if tail[at].isspace()), None)
    return text.rstrip() if end is None else text[: len(text) - len(tail) + end].rstrip()


def _cut(piece: Piece, text: str, keep_end: bool) -> Piece:
    mark = f"[…cut; read {piece.uri}]"
    return replace(piece, text=f"{mark} {text}" if keep_end else f"{text} {mark}", cut=True)
