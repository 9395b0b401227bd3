"""The knowledge graph of the reference MCP memory server: one JSON object a line, entities and relations.

``{"type": "entity", "name", "entityType", "observations": […]}`` and ``{"type": "relation", "from", "to",
"relationType"}``. An entity becomes one memory whose lines are its observations and where its relations lead; each
relation is a link besides. An object ``{entities: […], relations: […]}`` is read too.
"""

from __future__ import annotations

from collections.abc import Iterator

from memory_core.features.imports.items import Format, Item, LeftOut, LinkItem, MemoryItem
from memory_core.features.imports.sources import Entry, Found, Record, Source, elements, lines, may_be_json

_ENDINGS = (".json", ".jsonl", ".ndjson")


def _graphs(source: Source) -> list[Entry]:
    known = [entry for entry in source.entries if source.has_one_file or entry.base.endswith(_ENDINGS)]
    return [entry for entry in known if _is_graph(source.head(entry))]


def _is_graph(head: bytes) -> bool:
    is_named = b'"entityType"' in head or (b'"relationType"' in head and b'"from"' in head)
    return is_named and may_be_json(head)


def _read(source: Source, entry: Entry) -> Iterator[Item]:
    prefix = f"{entry.name}: " if len(source.entries) > 1 else ""
    entities: dict[str, tuple[str, Record]] = {}
    relations: list[tuple[str, Record]] = []
    for found in _records(source, entry):
        kind, name = found.record.text("type"), found.record.text("name")
        if kind == "relation":
            relations.append((found.place, found.record))
        elif kind != "entity" or not name:
            yield found.left_out("it is neither an entity with a name nor a relation")
        elif name in entities:
            yield LeftOut(found.place, "another entity before it has this name")
        else:
            entities[name] = (found.place, found.record)
    led: dict[str, dict[tuple[str, str], None]] = {name: {} for name in entities}
    for place, record in relations:
        name, target, word = (record.text(member) for member in ("from", "to", "relationType"))
        if name not in entities or target not in entities or not word:
            yield LeftOut(place, "it does not join two entities of the file")
        else:
            led[name][target, word] = None
    for name, (place, record) in entities.items():
        yield _entity(entry, place, name, prefix + name, record, list(led[name]))
        for target, word in led[name]:
            ids, former = (
                (f"{before}{name}\x1f{word}\x1f{before}{target}", before + name, before + target)
                for before in ("", prefix)
            )
            yield LinkItem(ids[0], f"{place}, relation {word!r} to {target!r}", ids[1], ids[2], word, former)


def _records(source: Source, entry: Entry) -> Iterator[Found]:
    """A value a line; or the members of one object or array that takes several lines."""
    head = source.head(entry)
    if b'"entities"' not in head and not head.lstrip().startswith(b"["):
        yield from lines(source, entry)
        return
    for found in elements(source, entry):
        if "entities" not in found.record:
            yield found
            continue
        for group, kind in (("entities", "entity"), ("relations", "relation")):
            for index, record in enumerate(found.record.records(group)):
                yield Found(f"{entry.name}: {group}[{index}]", {**record.members, "type": kind})


def _entity(
    entry: Entry, place: str, item_id: str, former_id: str, record: Record, led: list[tuple[str, str]]
) -> MemoryItem:
    name = " ".join(record.text("name").split())
    observed = [text.strip() for text in record.items("observations") if isinstance(text, str)]
    said = [f"- {text}" for text in observed if text] + [f"- {word} → {target}" for target, word in led]
    kind = record.text("entityType").strip()
    return MemoryItem(
        item_id,
        place,
        "entities",
        "\n".join(said) or name,
        name=name,
        fields={"entity_type": kind} if kind else {},
        said_at=entry.modified,
        category=kind[:200] or None,
        former_id=former_id,
    )


FORMAT = Format(
    "mcp-memory",
    'lines such as {"type": "entity", "name": …, "entityType": …, "observations": […]}',
    lambda source: bool(_graphs(source)),
    _graphs,
    _read,
    may_move_originals=True,
    ids_per_file=True,
)
