"""Relations between memories as a trailer keeps them: ``links: [{uri, relation, strength, at}]``. Pure.

Reads what a trailer says, however a person may have edited it; entries of another shape are no relations. Writing
them, and what they do to confidence, is ``update.links``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LINKS, CONFIDENCE = "links", "confidence"
SIMILAR = "similar"
#: Each relation and how it reads from the other end.
REVERSE: Mapping[str, str] = {
    SIMILAR: SIMILAR,
    "contradicts": "contradicts",
    "supports": "supported_by",
    "refines": "refined_by",
    "replaces": "replaced_by",
    "supported_by": "supports",
    "refined_by": "refines",
    "replaced_by": "replaces",
}
RELATIONS = tuple(REVERSE)
#: Relations of a memory to one that says otherwise.
CONTESTING = frozenset({"contradicts", "replaced_by"})
USUAL_STRENGTH = 0.5


@dataclass(frozen=True, slots=True)
class Relation:
    """How a memory relates to another.

    Attributes:
        uri: The other memory.
        relation: One of ``RELATIONS``.
        strength: In [0, 1].
        at: Since when, ISO 8601; None if not known.
    """

    uri: str
    relation: str
    strength: float
    at: str | None = None


def relations_in(meta: Mapping[str, Any]) -> Iterator[Relation]:
    """The relations that a trailer states."""
    stored = meta.get(LINKS)
    for link in stored if isinstance(stored, list) else ():
        if not isinstance(link, Mapping) or not isinstance(link.get("uri"), str):
            continue
        relation, at = link.get("relation", SIMILAR), link.get("at")
        if isinstance(relation, str) and relation in REVERSE:
            strength = unit(link.get("strength"), USUAL_STRENGTH)
            yield Relation(link["uri"], relation, strength, at if isinstance(at, str) else None)


def confidence_in(meta: Mapping[str, Any]) -> float:
    """How far a memory is trusted, in [0, 1]; 1.0 where its trailer does not say."""
    return unit(meta.get(CONFIDENCE), 1.0)


def outdoes(relation: str, said: str, confidence: float, own_said: str, own_confidence: float) -> bool:
    """Whether a memory that contests another one stands above it.

    What replaces does so by what it is; of two that contradict each other the later one, and of two of the same second
    the one that evidence left more of.

    Args:
        relation: Of the contested memory to the other: one of ``CONTESTING``.
        said: When the other was last changed, ISO 8601 in UTC.
        confidence: Of the other, in [0, 1].
        own_said: When the contested one was last changed.
        own_confidence: Of the contested one.
    """
    if relation == "replaced_by":
        return True
    return said > own_said or (said == own_said and confidence > own_confidence)


def unit(value: Any, default: float) -> float:
    """A number in [0, 1]; anything else is the default."""
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
    return float(value) if sound else default
