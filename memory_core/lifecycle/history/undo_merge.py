"""One file taken back to what it was before a commit, keeping what happened to it since.

Works on three texts: before the commit (``old``), as it left it (``given``), and now. Where nothing happened since,
the old text comes back byte for byte. Else a memory is taken apart into its body and trailer fields, and each is
judged alone: what still has the commit's value goes back, sums lose the commit's share, texts that changed elsewhere
are merged by lines. Whatever cannot be told apart is refused, never guessed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory_core.merge.template import render
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.record import body_digest, next_version, read_record
from memory_core.model.relations import CONFIDENCE, LINKS, confidence_in
from memory_core.model.schema import MemoryType, MergeOp
from memory_core.model.text_diff import merge3
from memory_core.scoring.evidence import taken_back

_ABSENT: Any = object()
_DIGITS = 4
#: What moves with every change of a memory and decides nothing.
_INCIDENTAL = frozenset({"version", "updated_at", "rendered_sha256"})
#: Other memories' commits write these here: a new memory with other links is still the memory that was created.
_WRITTEN_BY_OTHERS = frozenset({LINKS, CONFIDENCE})
#: Made of the rest: a later one stays.
_DERIVED = frozenset({"abstract", "overview"})


@dataclass(frozen=True, slots=True)
class Reverted:
    """What a file becomes; ``exact`` where it is the old text itself, None where the file goes."""

    text: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a file cannot be taken back: a sentence's end, such as ``its body changed in the same lines``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Versions:
    """A file before a commit, as the commit left it, and now; None is no file."""

    old: str | None
    given: str | None
    now: str | None


def revert(
    versions: Versions, *, appended: bool = False, memory_type: MemoryType | None = None, stem: str = "", at: str = ""
) -> Reverted | Refused:
    """What a file becomes when a commit's change of it is taken back.

    Args:
        versions: The three texts.
        appended: Whether the commit only added to the end of a log.
        memory_type: Of a memory; None for any other text.
        stem: The file's name without ``.md``.
        at: Time of the undo, ISO 8601 in UTC; written into a memory that is merged.
    """
    old, given, now = versions.old, versions.given, versions.now
    if now == given:
        return Reverted(old, exact=True)
    if now == old:
        return Reverted(now, exact=False)
    if appended:
        return _without_tail(old, given or "", now)
    if now is None:
        return Refused("the file was removed")
    if given is None:
        return Refused("another text stands there")
    if old is None:
        return Reverted(None, exact=False) if _is_untouched(given, now) else Refused("it was edited")
    return _merged(parse(old), parse(given), parse(now), memory_type, stem, at) or _by_lines(old, given, now)


def _without_tail(old: str | None, given: str, now: str | None) -> Reverted | Refused:
    tail = given[len(old or "") :]
    if now is None or not now.endswith(tail):
        return Refused("the log went on, or its end was changed")
    rest = now.removesuffix(tail)
    return Reverted(rest if rest or old is not None else None, exact=False)


def _is_untouched(given: str, now: str) -> bool:
    """Whether a created memory only got what no author writes: links from others, a time."""
    one, other = parse(given), parse(now)
    said, says = one.trailer or {}, other.trailer or {}
    # Evidence comes with a link; a confidence that moved alone is what somebody said.
    ignored = _INCIDENTAL | (_WRITTEN_BY_OTHERS if said.get(LINKS) != says.get(LINKS) else frozenset())
    return one.body == other.body and _without(said, ignored) == _without(says, ignored)


def _without(trailer: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in trailer.items() if name not in names}


def _by_lines(old: str, given: str, now: str) -> Reverted | Refused:
    merged = merge3(given, now, old)
    return Refused("the same lines changed") if merged is None else Reverted(merged, exact=False)


def _merged(
    old: MemoryFile, given: MemoryFile, now: MemoryFile, memory_type: MemoryType | None, stem: str, at: str
) -> Reverted | Refused | None:
    """The memory with its fields judged one by one; None where it is no memory all along, but plain text."""
    if old.trailer is None or given.trailer is None or now.trailer is None:
        return None
    trailer: dict[str, Any] = {}
    for name in dict.fromkeys((*now.trailer, *old.trailer)):
        value = _field(
            name,
            old.trailer.get(name, _ABSENT),
            given.trailer.get(name, _ABSENT),
            now.trailer.get(name, _ABSENT),
            memory_type,
        )
        if isinstance(value, Refused):
            return value
        if value is not _ABSENT:
            trailer[name] = value
    trailer |= {"version": next_version(now.trailer.get("version"))} if "version" in now.trailer else {}
    trailer |= {"updated_at": at} if at and "updated_at" in now.trailer else {}
    if memory_type is not None and memory_type.template_mode:
        record = read_record(memory_type, MemoryFile(now.body, trailer), stem)
        if not record.hand_edited:
            body = render(memory_type, record.fields)
            return Reverted(dump(MemoryFile(body, {**trailer, "rendered_sha256": body_digest(body)})), exact=False)
    merged = merge3(given.body, now.body, old.body)
    if merged is None:
        return Refused("its body changed in the same lines")
    return Reverted(dump(MemoryFile(merged, trailer)), exact=False)


def _field(name: str, old: Any, given: Any, now: Any, memory_type: MemoryType | None) -> Any:
    """One trailer field; ``Refused`` where both changed it."""
    if _same(old, given) or _same(now, old) or name in _INCIDENTAL:
        return now
    if _same(now, given):
        return old
    if name == CONFIDENCE:
        stated = (confidence_in({} if value is _ABSENT else {name: value}) for value in (old, given, now))
        return round(taken_back(*stated), _DIGITS)
    declared = None if memory_type is None else memory_type.field(name)
    if declared is not None and declared.merge_op is MergeOp.SUM:
        share = _number(given), _number(old), _number(now)
        if None not in share:
            added, before, total = (number or 0 for number in share)
            return total - (added - before)
    if isinstance(now, str) and isinstance(given, str) and isinstance(old, str):
        merged = merge3(given, now, old)
        if merged is not None:
            return merged
    if all(value is _ABSENT or isinstance(value, list) for value in (old, given, now)):
        return _list(*([] if value is _ABSENT else value for value in (old, given, now)))
    return now if name in _DERIVED else Refused(f"its field {name!r} changed")


def _list(old: list[Any], given: list[Any], now: list[Any]) -> Any:
    """A list without what the commit put in, with what it took out."""
    kept = [item for item in now if item in old or item not in given]
    back = [item for item in old if item not in given and item not in kept]
    return [*kept, *back] or _ABSENT


def _number(value: Any) -> float | int | None:
    """A number; nothing counts as zero."""
    if value is _ABSENT:
        return 0
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _same(one: Any, other: Any) -> bool:
    return one is other or (one is not _ABSENT and other is not _ABSENT and one == other)
