"""Links between memories, kept in both trailers: ``links: [{uri, relation, strength, at}]``.

A relation is stored with its reverse at the other end: ``similar`` and ``contradicts`` read the same both ways,
``refines``, ``supports`` and ``replaces`` come back as ``refined_by``, ``supported_by`` and ``replaced_by``. A link
says nothing new about a memory's content, so neither ``version`` nor ``updated_at`` moves. Links to memories that are
gone stay as history; entries of another shape stay as they are.

A link that is new, or has another strength now, is evidence: ``confidence`` of what is supported rises, of what is
contradicted or replaced falls (``memory.evidence``). Of two that contradict each other the older one loses; its link
is marked ``lost``, so that it is also the one that a changed or removed link mends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memory_core.core.commit.working_copy import ABSENT_WORK, WorkingCopy
from memory_core.core.errors import FieldRejected, InvalidUri, NotFound, RunebookError, TooLarge
from memory_core.core.frozen import frozen
from memory_core.core.memory.evidence import Evidence, merged_confidence, unweighed, weighed
from memory_core.core.memory.memory import Memory
from memory_core.core.memory.metadata import CONFIDENCE, CONTESTING, LINKS, RELATIONS, REVERSE, SIMILAR, Metadata
from memory_core.core.memory.operations import GivenLink
from memory_core.core.memory.uri import SCHEME, MemoryUri

LINKS_LIMIT = 50
#: What a relation says to the memory that holds it.
_EVIDENCE: Mapping[str, Evidence] = {
    "supported_by": "support",
    "contradicts": "contradiction",
    "replaced_by": "contradiction",
}
#: Contradicts the memory at either end.
_MUTUAL = "contradicts"
_DIGITS = 4


@frozen
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


def link(copy: WorkingCopy, source: MemoryUri, links: Sequence[GivenLink]) -> Linked:
    """Add links to a memory, and each one's reverse to its other end; one bad link never spoils another.

    Args:
        copy: The plan's files, both ends included; it is written to.
        source: An existing memory.
        links: As they were given.
    """
    before = copy.text(source)
    reached: list[str] = []
    refused: list[tuple[str, RunebookError]] = []
    trusted: dict[MemoryUri, tuple[float, float]] = {}
    for given in links:
        try:
            target = _expect_target(copy, source, given)
            relation = given.relation.strip().casefold()
            loser = _loser(copy, source, target, relation)
            ends = [
                (holder, _with_link(copy, holder, other, word, given.strength, convicted=holder == loser))
                for holder, other, word in ((source, target, relation), (target, source, REVERSE[relation]))
                if _may_name(copy.memory(holder), copy.memory(other))
            ]
        except RunebookError as error:
            refused.append((given.uri, error))
            continue
        for uri, linked in ends:
            was, now = copy.existing(uri).metadata.confidence, linked.metadata.confidence
            if was != now:
                trusted[uri] = trusted.get(uri, (was, was))[0], now
            if linked.text != copy.text(uri):
                reached.append(str(target))
                copy.store(linked)
    weighed_now = tuple(f"confidence of {uri} {was:g} → {now:g}" for uri, (was, now) in trusted.items())
    return Linked(copy.text(source) != before, tuple(dict.fromkeys(reached)), tuple(refused), weighed_now)


def unlink(copy: WorkingCopy, source: MemoryUri, target: MemoryUri, relation: str) -> bool:
    """Remove a relation from both ends, and take back what it said about confidence; whether there was one.

    Args:
        copy: The plan's files; it is written to.
        source: An existing memory, whose relation it is.
        target: The other end, which may be gone.
        relation: One of ``RELATIONS``.

    Raises:
        FieldRejected: If a trailer is damaged.
    """
    there = copy.memory(target) is not None
    loser = _loser(copy, source, target, relation) if there else None
    ends = [(source, target, relation), *([(target, source, REVERSE[relation])] if there else [])]
    removed = [_without_link(copy, *end, convicted=end[0] == loser) for end in ends]
    for memory in filter(None, removed):
        copy.store(memory)
    return any(removed)


def _without_link(
    copy: WorkingCopy, uri: MemoryUri, other: MemoryUri, relation: str, *, convicted: bool
) -> Memory | None:
    """The memory without the link; None where it has none."""
    memory = copy.changeable(uri)
    gone = [known for known in memory.metadata.links if (known.uri, known.relation) == (str(other), relation)]
    if not gone:
        return None
    stored = memory.metadata.get(LINKS)
    kept = [
        each
        for each in (stored if isinstance(stored, list) else [stored])
        if not (isinstance(each, dict) and (each.get("uri"), each.get("relation", SIMILAR)) == (str(other), relation))
    ]
    changes: dict[str, Any] = {LINKS: kept or None}
    evidence = _EVIDENCE.get(relation) if convicted else None
    if evidence is not None:
        witness = copy.existing(other).metadata.confidence
        back = unweighed(memory.metadata.confidence, evidence, gone[0].strength, witness)
        changes[CONFIDENCE] = round(back, _DIGITS)
    return memory.changed(metadata=changes)


def link_replacement(copy: WorkingCopy, replacement: MemoryUri, removed: MemoryUri) -> None:
    """Note in a memory that it replaces one that is gone.

    One that was there before takes the other in: its confidence is the mean of both, unless the operations gave it
    one, or it said otherwise than the one that goes.

    Raises:
        RunebookError: If the memory cannot take the link.
    """
    before, gone = copy.memory_before(replacement), copy.memory_before(removed)
    if not _may_name(copy.memory(replacement), gone):
        return
    linked = _with_link(copy, replacement, removed, "replaces", 1.0)
    if before is not None and gone is not None and linked.metadata.confidence == before.metadata.confidence:
        contested = any(link.uri == str(replacement) and link.relation in CONTESTING for link in gone.metadata.links)
        mean = merged_confidence([before.metadata.confidence, gone.metadata.confidence])
        if not contested and mean != linked.metadata.confidence:
            linked = linked.changed(metadata={CONFIDENCE: round(mean, _DIGITS)})
    if linked.text != copy.text(replacement):
        copy.store(linked)


def _may_name(holder: Memory | None, other: Memory | None) -> bool:
    """Whether a memory's trailer may name another: not a private one, unless it is as private itself."""
    if other is None or not other.is_private:
        return True
    return holder is not None and holder.is_private and holder.project == other.project


def _expect_target(copy: WorkingCopy, source: MemoryUri, given: GivenLink) -> MemoryUri:
    target = copy.owned(given.uri)
    if given.relation.strip().casefold() not in REVERSE:
        raise FieldRejected(
            f"the relation {given.relation[:64]!r} is unknown.", hint=f"Use one of: {', '.join(RELATIONS)}."
        )
    if target == source:
        raise FieldRejected("a memory does not link to itself.", hint="Name another memory.")
    if copy.text(target) is None:
        copy.work(ABSENT_WORK)
        raise NotFound(
            f"there is no memory at {str(target)!r} to link to.",
            hint="Use a URI that find or ls prints, or that a write of the same operations creates.",
        )
    return target


def _loser(copy: WorkingCopy, source: MemoryUri, target: MemoryUri, relation: str) -> MemoryUri:
    """Of two memories that are linked the one whose confidence the link moves."""
    if relation != _MUTUAL:
        return source if relation in _EVIDENCE else target
    for holder, other in ((source, target), (target, source)):
        if _has_lost(copy.existing(holder), other):
            return holder
    said = {uri: str(copy.existing(uri).metadata.get("updated_at", "")) for uri in (source, target)}
    return source if said[source] < said[target] else target


def _has_lost(memory: Memory, other: MemoryUri) -> bool:
    """Whether a contradiction by another memory was weighed against this one."""
    stored = memory.metadata.get(LINKS)
    wanted = (str(other), _MUTUAL, True)
    return any(
        isinstance(each, dict) and (each.get("uri"), each.get("relation"), each.get("lost")) == wanted
        for each in (stored if isinstance(stored, list) else [stored])
    )


def _with_link(
    copy: WorkingCopy, uri: MemoryUri, other: MemoryUri, relation: str, strength: float, *, convicted: bool = False
) -> Memory:
    """The memory with the link; ``convicted`` says that the link moves this memory's confidence."""
    memory = copy.changeable(uri)
    entry = {"uri": str(other), "relation": relation, "strength": strength, "at": _since(copy, memory, other)}
    if convicted and relation == _MUTUAL:
        entry["lost"] = True
    links = _merged(memory.metadata.get(LINKS), entry)
    if links == memory.metadata.get(LINKS):
        return memory
    changes: dict[str, Any] = {LINKS: links}
    evidence = _EVIDENCE.get(relation) if convicted else None
    if evidence is not None:
        witness = copy.existing(other).metadata.confidence
        now = _confidence_after(memory.metadata, evidence, str(other), relation, strength, witness)
        changes[CONFIDENCE] = round(now, _DIGITS)
    linked = memory.changed(metadata=changes)
    if len(linked.text.encode("utf-8")) > copy.context.content_bytes:
        raise TooLarge(f"{str(uri)!r} has no room for another link.", hint="Shorten that memory first.")
    return linked


def _since(copy: WorkingCopy, memory: Memory, other: MemoryUri) -> str:
    """Since when a link holds: now, or since the later of two memories that were said before they came here."""
    context = copy.context
    told = (each for each in (memory, copy.memory(other) or copy.memory_before(other)) if each is not None)
    return context.now if context.said_at is None else max(each.metadata.text("updated_at") or "" for each in told)


def _confidence_after(
    metadata: Metadata, evidence: Evidence, other: str, relation: str, strength: float, witness: float
) -> float:
    """The confidence with this evidence; what the same link said with another strength is taken back first."""
    confidence = metadata.confidence
    for known in metadata.links:
        if (known.uri, known.relation) == (other, relation):
            confidence = unweighed(confidence, evidence, known.strength, witness)
    return weighed(confidence, evidence, strength, witness)


def _merged(stored: Any, entry: Mapping[str, Any]) -> list[Any]:
    """The links with one more, or with that one's strength renewed; over the limit the oldest alike goes first."""
    links = list(stored) if isinstance(stored, list) else [] if stored is None else [stored]
    ends = (entry["uri"], entry["relation"])
    for index, known in enumerate(links):
        if isinstance(known, dict) and (known.get("uri"), known.get("relation", SIMILAR)) == ends:
            if known.get("strength") != entry["strength"]:
                links[index] = {**known, **entry}
            return links
    while len(links) >= LINKS_LIMIT:
        alike = [at for at, known in enumerate(links) if isinstance(known, dict) and known.get("relation") == SIMILAR]
        del links[alike[0] if alike else 0]
    return [*links, dict(entry)]


#: Members of a trailer that hold links; and those that name memories, beside them what something was condensed into
#: and what entries of logs became.
_KEYS = ("links", "backlinks")
_NAMING = (*_KEYS, "archived", "promoted")


def linked_uris(trailer: Mapping[str, Any]) -> frozenset[str]:
    """The memories that a trailer links to, as their URIs are printed."""
    return _uris_in(trailer, _KEYS)


def named_uris(trailer: Mapping[str, Any]) -> frozenset[str]:
    """The memories that a trailer links to, or names otherwise."""
    return _uris_in(trailer, _NAMING)


def retargeted(trailer: Mapping[str, Any], old: MemoryUri, new: MemoryUri) -> dict[str, Any]:
    """The trailer with each link to ``old``, however spelt, leading to ``new``; what names it otherwise likewise."""
    return {key: _replaced(value, str(old), str(new)) if key in _NAMING else value for key, value in trailer.items()}


def without_links(trailer: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """The trailer without the links that lead to these memories, however spelt."""
    left = dict(trailer)
    for key in _KEYS:
        links = trailer.get(key)
        if isinstance(links, list) and links:
            left[key] = [each for each in links if _uris_in({key: each}, (key,)).isdisjoint(gone)]
            if not left[key]:
                del left[key]
    return left


def _uris_in(trailer: Mapping[str, Any], keys: Sequence[str]) -> frozenset[str]:
    texts = (text for key in keys for text in _strings(trailer.get(key)))
    return frozenset(uri for text in texts if (uri := _printed(text)) is not None)


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(item, old, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    return new if isinstance(value, str) and _printed(value) == old else value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _printed(text: str) -> str | None:
    """The URI that a text is, or None."""
    if not text.startswith(SCHEME):
        return None
    try:
        return str(MemoryUri.parse(text))
    except InvalidUri:
        return None
