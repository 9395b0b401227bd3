"""Links between memories, kept in both trailers: ``links: [{uri, relation, strength, at}]``.

A relation is stored with its reverse at the other end: ``similar`` and ``contradicts`` read the same both ways,
``refines``, ``supports`` and ``replaces`` come back as ``refined_by``, ``supported_by`` and ``replaced_by``. A link
says nothing new about a memory's content, so neither ``version`` nor ``updated_at`` moves. Links to memories that are
gone stay as history; entries of another shape stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory_core.errors import FieldRejected, NotFound, RunebookError, TooLarge
from memory_core.model.memory_file import dump, parse
from memory_core.model.operations import Link
from memory_core.model.record import read_record, record_key, write_record
from memory_core.model.uri import MemoryUri
from memory_core.update.belonging import owner
from memory_core.update.draft import Draft

LINKS_LIMIT = 50
_LINKS = "links"
_SIMILAR = "similar"
_REVERSE = {
    _SIMILAR: _SIMILAR,
    "contradicts": "contradicts",
    "supports": "supported_by",
    "refines": "refined_by",
    "replaces": "replaced_by",
    "supported_by": "supports",
    "refined_by": "refines",
    "replaced_by": "replaces",
}
RELATIONS = tuple(_REVERSE)


@dataclass(frozen=True, slots=True)
class Linked:
    """What became of a memory's links: whether its file changed, the ends that were reached, and what was refused."""

    changed: bool = False
    reached: tuple[str, ...] = ()
    refused: tuple[tuple[str, RunebookError], ...] = ()


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
    for given in links:
        try:
            target = _expect_target(draft, source, given)
            relation = given.relation.strip().casefold()
            ends = {
                holder: _with_link(draft, holder, other, word, given.strength)
                for holder, other, word in ((source, target, relation), (target, source, _REVERSE[relation]))
                if _may_name(draft, holder, draft.text(holder), other, draft.text(other))
            }
        except RunebookError as error:
            refused.append((given.uri, error))
            continue
        if any(draft.text(uri) != text for uri, text in ends.items()):
            reached.append(str(target))
        for uri, text in ends.items():
            _put(draft, uri, text)
    return Linked(draft.text(source) != before, tuple(dict.fromkeys(reached)), tuple(refused))


def link_replacement(draft: Draft, replacement: MemoryUri, removed: MemoryUri) -> None:
    """Note in a memory that it replaces one that is gone.

    Raises:
        RunebookError: If the memory cannot take the link.
    """
    if _may_name(draft, replacement, draft.text(replacement), removed, draft.before(removed)):
        _put(draft, replacement, _with_link(draft, replacement, removed, "replaces", 1.0))


def _may_name(draft: Draft, holder: MemoryUri, text: str | None, other: MemoryUri, other_text: str | None) -> bool:
    """Whether a memory's trailer may name another: not a private one, unless it is as private itself."""
    registry = draft.context.registry
    project, private = owner(registry, other, other_text)
    return not private or owner(registry, holder, text) == (project, True)


def _expect_target(draft: Draft, source: MemoryUri, given: Link) -> MemoryUri:
    target = draft.owned(given.uri)
    if given.relation.strip().casefold() not in _REVERSE:
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


def _with_link(draft: Draft, uri: MemoryUri, other: MemoryUri, relation: str, strength: float) -> str:
    """The memory's text with the link."""
    memory_type = draft.type_of(uri)
    file = parse(draft.existing(uri))
    if file.damage is not None:
        raise FieldRejected(f"{str(uri)!r}: {file.damage}.", hint="Mend or remove the file's trailer by hand.")
    record = read_record(memory_type, file, uri.name.removesuffix(".md"))
    links = _merged(record.meta.get(_LINKS), str(other), relation, strength, draft.context.now)
    if links == record.meta.get(_LINKS):
        return draft.existing(uri)
    text = dump(write_record(memory_type, replace(record, meta={**record.meta, _LINKS: links})))
    if len(text.encode("utf-8")) > draft.context.content_bytes:
        raise TooLarge(f"{str(uri)!r} has no room for another link.", hint="Shorten that memory first.")
    return text


def _merged(stored: Any, uri: str, relation: str, strength: float, now: str) -> list[Any]:
    """The links with one more, or with that one's strength renewed; over the limit the oldest alike goes first."""
    links = list(stored) if isinstance(stored, list) else [] if stored is None else [stored]
    entry = {"uri": uri, "relation": relation, "strength": strength, "at": now}
    for index, known in enumerate(links):
        if isinstance(known, dict) and (known.get("uri"), known.get("relation", _SIMILAR)) == (uri, relation):
            if known.get("strength") != strength:
                links[index] = {**known, **entry}
            return links
    while len(links) >= LINKS_LIMIT:
        alike = [at for at, known in enumerate(links) if isinstance(known, dict) and known.get("relation") == _SIMILAR]
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
