"""Links between memories, kept in both trailers: ``links: [{uri, relation, strength, at}]``.

A relation is stored with its reverse at the other end: ``similar`` and ``contradicts`` read the same both ways,
``refines``, ``supports`` and ``replaces`` come back as ``refined_by``, ``supported_by`` and ``replaced_by``. A link
says nothing new about a memory's content, so neither ``version`` nor ``updated_at`` moves. Links to memories that are
gone stay as history; entries of another shape stay as they are.

A link that is new, or has another strength now, is evidence: ``confidence`` of what is supported rises, of what is
contradicted or replaced falls (``scoring.evidence``). Of two that contradict each other it is the older that loses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory_core.core.commit.working_copy import Draft, owner
from memory_core.core.errors import FieldRejected, NotFound, RunebookError, TooLarge
from memory_core.core.memory.evidence import Evidence, merged_confidence, unweighed, weighed
from memory_core.core.memory.memory import dump, parse, read_record, record_key, write_record
from memory_core.core.memory.metadata import (
    CONFIDENCE,
    CONTESTING,
    LINKS,
    RELATIONS,
    REVERSE,
    SIMILAR,
    confidence_in,
    relations_in,
)
from memory_core.core.memory.operations import Link
from memory_core.core.memory.uri import MemoryUri

LINKS_LIMIT = 50
#: What a relation says to the memory that holds it.
_EVIDENCE: Mapping[str, Evidence] = {
    "supported_by": "support",
    "contradicts": "contradiction",
    "replaced_by": "contradiction",
}
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Linked:
    """What became of a memory's links: whether its file changed, the ends that were reached, and what was refused.

    ``weighed`` says of each memory whose confidence moved from where to where.
    """

    changed: bool = False
    reached: tuple[str, ...] = ()
    refused: tuple[tuple[str, RunebookError], ...] = ()
    weighed: tuple[str, ...] = ()

    def told(self) -> list[str]:
        """What a receipt says of it beside what was refused."""
        return [*([f"linked with {', '.join(self.reached)}"] if self.reached else []), *self.weighed]


def link(draft: Draft, source: MemoryUri, links: Sequence[Link]) -> Linked:
    """Add links to a memory, and each one's reverse to its other end; one bad link never spoils another.

    Args:
        draft: The plan's texts, both ends included; it is written to.
        source: An existing memory.
        links: As they were given.
    """
    before = draft.text(source)
    reached: list[str] = []
    refused: list[tuple[str, RunebookError]] = []
    trusted: dict[MemoryUri, tuple[float, float]] = {}
    for given in links:
        try:
            target = _expect_target(draft, source, given)
            relation = given.relation.strip().casefold()
            ends = {
                holder: _with_link(draft, holder, other, word, given.strength, convicted=holder == loser)
                for loser in (_loser(draft, source, target, relation),)
                for holder, other, word in ((source, target, relation), (target, source, REVERSE[relation]))
                if _may_name(draft, holder, draft.text(holder), other, draft.text(other))
            }
        except RunebookError as error:
            refused.append((given.uri, error))
            continue
        if any(draft.text(uri) != text for uri, text in ends.items()):
            reached.append(str(target))
        for uri, text in ends.items():
            was, now = _confidence(draft.existing(uri)), _confidence(text)
            if was != now:
                trusted[uri] = trusted.get(uri, (was, was))[0], now
            _put(draft, uri, text)
    weighed_now = tuple(f"confidence of {uri} {was:g} → {now:g}" for uri, (was, now) in trusted.items())
    return Linked(draft.text(source) != before, tuple(dict.fromkeys(reached)), tuple(refused), weighed_now)


def link_replacement(draft: Draft, replacement: MemoryUri, removed: MemoryUri) -> None:
    """Note in a memory that it replaces one that is gone.

    One that was there before takes the other in: its confidence is the mean of both, unless the operations gave it
    one, or it said otherwise than the one that goes.

    Raises:
        RunebookError: If the memory cannot take the link.
    """
    if not _may_name(draft, replacement, draft.text(replacement), removed, draft.before(removed)):
        return
    before, gone = draft.before(replacement), draft.before(removed)
    text = _with_link(draft, replacement, removed, "replaces", 1.0)
    if before is not None and gone is not None and _confidence(text) == _confidence(before):
        known = relations_in(parse(gone).trailer or {})
        if not any(link.uri == str(replacement) and link.relation in CONTESTING for link in known):
            mean = merged_confidence([_confidence(before), _confidence(gone)])
            text = text if mean == _confidence(text) else _trusted(text, mean)
    _put(draft, replacement, text)


def _may_name(draft: Draft, holder: MemoryUri, text: str | None, other: MemoryUri, other_text: str | None) -> bool:
    """Whether a memory's trailer may name another: not a private one, unless it is as private itself."""
    registry = draft.context.registry
    project, private = owner(registry, other, other_text)
    return not private or owner(registry, holder, text) == (project, True)


def _expect_target(draft: Draft, source: MemoryUri, given: Link) -> MemoryUri:
    target = draft.owned(given.uri)
    if given.relation.strip().casefold() not in REVERSE:
        raise FieldRejected(
            f"the relation {given.relation[:64]!r} is unknown.", hint=f"Use one of: {', '.join(RELATIONS)}."
        )
    if target == source:
        raise FieldRejected("a memory does not link to itself.", hint="Name another memory.")
    if draft.text(target) is None:
        raise NotFound(
            f"there is no memory at {str(target)!r} to link to.",
            hint="Use a URI that find or ls prints, or that a write of the same operations creates.",
        )
    return target


def _loser(draft: Draft, source: MemoryUri, target: MemoryUri, relation: str) -> MemoryUri:
    """Of two memories that are linked the one whose confidence the link moves."""
    if relation != "contradicts":
        return source if relation in _EVIDENCE else target
    said = {uri: str((parse(draft.existing(uri)).trailer or {}).get("updated_at", "")) for uri in (source, target)}
    return source if said[source] < said[target] else target


def _confidence(text: str) -> float:
    return confidence_in(parse(text).trailer or {})


def _trusted(text: str, confidence: float) -> str:
    """The memory's text with another confidence."""
    file = parse(text)
    return dump(replace(file, trailer={**(file.trailer or {}), CONFIDENCE: round(confidence, _DIGITS)}))


def _with_link(
    draft: Draft, uri: MemoryUri, other: MemoryUri, relation: str, strength: float, *, convicted: bool = False
) -> str:
    """The memory's text with the link; ``convicted`` says that the link moves this memory's confidence."""
    memory_type = draft.type_of(uri)
    file = parse(draft.existing(uri))
    if file.damage is not None:
        raise FieldRejected(f"{str(uri)!r}: {file.damage}.", hint="Mend or remove the file's trailer by hand.")
    record = read_record(memory_type, file, uri.name.removesuffix(".md"))
    links = _merged(record.meta.get(LINKS), str(other), relation, strength, draft.context.now)
    if links == record.meta.get(LINKS):
        return draft.existing(uri)
    meta = {**record.meta, LINKS: links}
    evidence = _EVIDENCE.get(relation) if convicted else None
    if evidence is not None:
        witness = _confidence(draft.existing(other))
        meta[CONFIDENCE] = round(_moved(record.meta, evidence, str(other), relation, strength, witness), _DIGITS)
    text = dump(write_record(memory_type, replace(record, meta=meta)))
    if len(text.encode("utf-8")) > draft.context.content_bytes:
        raise TooLarge(f"{str(uri)!r} has no room for another link.", hint="Shorten that memory first.")
    return text


def _moved(
    meta: Mapping[str, Any], evidence: Evidence, other: str, relation: str, strength: float, witness: float
) -> float:
    """The confidence with this evidence; what the same link said with another strength is taken back first."""
    confidence = confidence_in(meta)
    for known in relations_in(meta):
        if (known.uri, known.relation) == (other, relation):
            confidence = unweighed(confidence, evidence, known.strength, witness)
    return weighed(confidence, evidence, strength, witness)


def _merged(stored: Any, uri: str, relation: str, strength: float, now: str) -> list[Any]:
    """The links with one more, or with that one's strength renewed; over the limit the oldest alike goes first."""
    links = list(stored) if isinstance(stored, list) else [] if stored is None else [stored]
    entry = {"uri": uri, "relation": relation, "strength": strength, "at": now}
    for index, known in enumerate(links):
        if isinstance(known, dict) and (known.get("uri"), known.get("relation", SIMILAR)) == (uri, relation):
            if known.get("strength") != strength:
                links[index] = {**known, **entry}
            return links
    while len(links) >= LINKS_LIMIT:
        alike = [at for at, known in enumerate(links) if isinstance(known, dict) and known.get("relation") == SIMILAR]
        del links[alike[0] if alike else 0]
    return [*links, entry]


def _put(draft: Draft, uri: MemoryUri, text: str) -> None:
    if text == draft.text(uri):
        return
    memory_type = draft.type_of(uri)
    draft.identify(
        uri, memory_type.name, record_key(memory_type, read_record(memory_type, parse(text), uri.name[: -len(".md")]))
    )
    draft.put(uri, text)
