"""What is shown beside a contested memory: the newer memories that contradict or replace it, and how that reads.

Works on texts, for memories that no search ranked; ``ranker`` knows the same of its hits from the catalog. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memory_core.model.availability import is_active
from memory_core.model.hits import Rival
from memory_core.model.memory_file import parse
from memory_core.model.record import summary_line
from memory_core.model.relations import CONTESTING, confidence_in, outdoes, relations_in

_LINE_CHARS = 160
_SHOWN = 2


def rivals_in(meta: Mapping[str, Any], read: Callable[[str], str]) -> tuple[Rival, ...]:
    """The memories in use that say otherwise and were written later, the weightiest first.

    Args:
        meta: The contested memory's trailer.
        read: Gives the text of a memory; empty where it is gone or may not be named.
    """
    found: dict[str, Rival] = {}
    own = str(meta.get("updated_at") or "")
    for relation in relations_in(meta):
        if relation.relation not in CONTESTING or relation.uri in found:
            continue
        file = parse(read(relation.uri))
        other = file.trailer or {}
        said = other.get("updated_at")
        if not isinstance(said, str) or not is_active(other):
            continue
        if not outdoes(relation.relation, said, confidence_in(other), own, confidence_in(meta)):
            continue
        given = other.get("abstract")
        line = summary_line(given if isinstance(given, str) and given.strip() else file.body, _LINE_CHARS)
        found[relation.uri] = Rival(
            relation.uri, relation.relation, relation.strength, confidence_in(other), line, said
        )
    return tuple(sorted(found.values(), key=lambda rival: (-rival.strength * rival.confidence, rival.uri)))


def with_rivals(text: str, rivals: Iterable[Rival]) -> str:
    """A memory's text, and below it what contradicts it, so that nobody reads the one without the other."""
    lines = [
        f"[{rival.verb} a newer memory{f' of {rival.updated_at[:10]}' if rival.updated_at else ''}: "
        f"{summary_line(rival.abstract, _LINE_CHARS)}]"
        for rival in list(rivals)[:_SHOWN]
    ]
    return "\n".join([text, *lines])
