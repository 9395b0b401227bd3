"""What questions find, sorted for a context: knowledge and conversation turns, in as few searches as possible.

One search over everything tells mostly all: only where it is full, so that turns may have crowded out memories or the
other way round, the group that came short is searched alone. The last messages together tell what the talk is about,
the newest alone what it has come to, which is not always the same: they take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Protocol

from memory_core.model.hits import FindResult, Hit

_FIND_LIMIT = 100
_KNOWLEDGE: Mapping[str, Any] = {"memory_type": {"ne": "message"}}
_TOOLS: Mapping[str, Any] = {"memory_type": "tools"}
_PROCEDURAL: Mapping[str, Any] = {"memory_type": {"in": ["patterns", "cases", "skills"]}}
_TOOL_NAMES_CHARS = 8_000
_NOTHING = "nothing relevant to the question is stored"


class Find(Protocol):
    """Searches: the best ``limit`` hits that meet the filter."""

    def __call__(self, query: str, *, limit: int, filter: Mapping[str, Any] | None) -> FindResult:
        """See ``Retriever.find``."""
        ...


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, best first: memories, logs, tools and skills; and turns of conversations."""

    question: str
    knowledge: tuple[Hit, ...]
    turns: tuple[Hit, ...]
    notes: tuple[str, ...]


def recall(find: Find, questions: Sequence[str], knowledge: int, turns: int, own_session: str | None) -> Found:
    """Search for each of the questions.

    Args:
        find: Searches.
        questions: At least one: the widest first, which is the one that ``Found`` names if it finds anything.
        knowledge: Hits other than turns, at most.
        turns: Turns, at most.
        own_session: Session whose turns are left out.
    """
    each = [_searched(find, question, knowledge, turns, own_session) for question in questions]
    found = [one for one in each if one.knowledge or one.turns]
    if not found:
        notes = dict.fromkeys(note for one in each for note in one.notes)
        return replace(each[-1], notes=(*notes, _NOTHING))
    return Found(
        found[0].question,
        _in_turns([one.knowledge for one in reversed(found)])[:knowledge],
        _in_turns([one.turns for one in reversed(found)])[:turns],
        tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _searched(find: Find, question: str, knowledge: int, turns: int, own_session: str | None) -> Found:
    """What one question finds."""
    found = find(question, limit=_FIND_LIMIT, filter=None)
    known, said = _split(found.hits, own_session)
    notes = list(found.notes if found.total else found.notes[:-1])  # the last one says that nothing was found
    if found.total >= _FIND_LIMIT and len(known) < knowledge:
        more = find(question, limit=min(knowledge, _FIND_LIMIT), filter=_KNOWLEDGE)
        known, notes = more.hits, notes + [note for note in more.notes if more.total]
    if found.total >= _FIND_LIMIT and len(said) < turns:
        more = find(question, limit=min(turns, _FIND_LIMIT), filter=_turns_but(own_session))
        said, notes = more.hits, notes + [note for note in more.notes if more.total]
    return Found(question, known[:knowledge], said[:turns], tuple(notes))


def _in_turns(lists: Sequence[Sequence[Hit]]) -> tuple[Hit, ...]:
    """The first of each list, then the second; each hit once, its better score, and none that another stands for."""
    score: dict[str, float] = {}
    for hit in (hit for hits in lists for hit in hits):
        score[hit.uri] = max(hit.score, score.get(hit.uri, 0.0))
    kept: list[Hit] = []
    stood_for: set[str] = set()
    for hit in (hit for row in zip_longest(*lists) for hit in row if hit is not None):
        if stood_for.isdisjoint((hit.uri, *hit.also)):
            kept.append(replace(hit, score=score[hit.uri]))
            stood_for.update((hit.uri, *hit.also))
    return tuple(kept)


def procedural(find: Find, question: str, limit: int) -> tuple[Hit, ...]:
    """What was learned about doing such things: patterns, cases and skills."""
    return find(question, limit=limit, filter=_PROCEDURAL).hits


def tools(find: Find, names: Sequence[str]) -> tuple[Hit, ...]:
    """Memories of tools that may be meant by these names."""
    query = " ".join(names)[:_TOOL_NAMES_CHARS]
    return find(query, limit=min(_FIND_LIMIT, 2 * len(names) + 2), filter=_TOOLS).hits


def _split(hits: Sequence[Hit], own_session: str | None) -> tuple[tuple[Hit, ...], tuple[Hit, ...]]:
    """Hits other than turns, and the turns of other sessions: of those that say the same, one of another."""
    turns: list[Hit] = []
    for hit in hits:
        places = (hit.uri, *hit.also) if hit.memory_type == "message" else ()
        uri = next((uri for uri in places if own_session is None or uri.split("/")[4] != own_session), None)
        if uri is not None:
            turns.append(replace(hit, uri=uri))
    return tuple(hit for hit in hits if hit.memory_type != "message"), tuple(turns)


def _turns_but(session: str | None) -> Mapping[str, Any]:
    only = {"memory_type": "message"}
    return only if session is None else {**only, "session_id": {"ne": session}}
