"""The knowledge graph of the reference MCP memory server: one JSON object a line, entities and relations.

``{"type": "entity", "name", "entityType", "observations": […]}`` and ``{"type": "relation", "from", "to",
"relationType"}``. An entity becomes one memory whose lines are its observations and where its relations lead; each
relation is a link besides. An object ``{entities: […], relations: […]}`` is read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memory_core.features.imports.items import Format, Item, LeftOut, MemoryItem, Relation
from memory_core.features.imports.sources import Entry, Found, Source, elements, lines, mapping_of, records_of, text_of

_ENDINGS = (".json", ".jsonl", ".ndjson")


def _recognises(source: Source) -> bool:
    return any(_is_graph(source.head(entry)) for entry in _originals(source)[:50])


def _originals(source: Source) -> list[Entry]:
    single = len(source.entries) == 1 and not source.is_folder
    return [entry for entry in source.entries if single or entry.base.endswith(_ENDINGS)]


def _is_graph(head: bytes) -> bool:
    return b'"entityType"' in head or (b'"relationType"' in head and b'"from"' in head)


def _read(source: Source) -> Iterator[Item]:
    graphs = [entry for entry in _originals(source) if _is_graph(source.head(entry))]
    for entry in graphs:
        prefix = f"{entry.name}: " if len(graphs) > 1 else ""
        entities: dict[str, tuple[str, Mapping[str, Any]]] = {}
        relations: list[tuple[str, Mapping[str, Any]]] = []
        for found in _records(source, entry):
            record = mapping_of(found.value)
            if found.problem is not None:
                yield LeftOut(found.place, found.problem)
            elif record.get("type") == "relation":
                relations.append((found.place, record))
            elif record.get("type") != "entity" or not text_of(record, "name"):
                yield LeftOut(found.place, "it is neither an entity with a name nor a relation")
            elif text_of(record, "name") in entities:
                yield LeftOut(found.place, "another entity before it has this name")
            else:
                entities[text_of(record, "name")] = (found.place, record)
        leading: dict[str, list[Relation]] = {}
        for place, record in relations:
            source_name, target, word = (text_of(record, name) for name in ("from", "to", "relationType"))
            if source_name not in entities or target not in entities or not word:
                yield LeftOut(place, "it does not join two entities of the file")
            elif Relation(target, word) not in leading.setdefault(source_name, []):
                leading[source_name].append(Relation(target, word))
        for name, (place, record) in entities.items():
            yield _entity(entry, place, prefix, record, tuple(leading.get(name, ())))


def _records(source: Source, entry: Entry) -> Iterator[Found]:
    """A value a line; or the members of one object or array that takes several lines."""
    if b'"entities"' not in source.head(entry) and not source.head(entry).lstrip().startswith(b"["):
        yield from lines(source, entry)
        return
    for found in elements(source, entry):
        graph = mapping_of(found.value)
        if found.problem is not None or "entities" not in graph:
            yield found
            continue
        for group, kind in (("entities", "entity"), ("relations", "relation")):
            for index, record in enumerate(records_of(graph.get(group))):
                yield Found(f"{entry.name}: {group}[{index}]", {**mapping_of(record), "type": kind})


def _entity(
    entry: Entry, place: str, prefix: str, record: Mapping[str, Any], relations: tuple[Relation, ...]
) -> MemoryItem:
    name = text_of(record, "name")
    observed = [text.strip() for text in records_of(record.get("observations")) if isinstance(text, str)]
    said = [f"- {text}" for text in observed if text] + [f"- {found.word} → {found.target}" for found in relations]
    kind = text_of(record, "entityType").strip()
    return MemoryItem(
        prefix + name,
        place,
        "entities",
        "\n".join(said) or name,
        name=" ".join(name.split()),
        fields={"entity_type": kind} if kind else {},
        said_at=entry.modified,
        category=kind[:200] or None,
        relations=tuple(Relation(prefix + found.target, found.word) for found in relations),
    )


FORMAT = Format(
    "mcp-memory",
    'lines such as {"type": "entity", "name": …, "entityType": …, "observations": […]}',
    _recognises,
    _read,
    _originals,
)
