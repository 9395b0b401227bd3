"""The wire forms of a schema: what providers' strict modes accept, and an outline for models that only read.

Strict modes know closed objects only, so a map of free names becomes a list of {name, value}; ``coercion`` reads
both. They also refuse defaults, bounds and patterns, which are left out here and checked when the answer is read.
Input is a JSON schema as pydantic writes it; references are inlined, recursive schemas are not supported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from memory_core.llm.client import LLMRequest, Structure

#: ``openai``: every member required, optional ones nullable. ``anthropic``: optional members may be left out, which
#: its limit on union types (16 a schema, against 24 optional members) asks for.
Dialect = Literal["openai", "anthropic"]

_NULL = {"type": "null"}
_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_ANSWER = "Answer with one JSON object and nothing else: no prose, no code fence. Its members, `?` marks optional ones:"
_PAIRS = "Where a map is described above, write a list of pairs instead: "


def strict(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """A schema that the strict mode of ``dialect`` accepts; the same bytes for the same input.

    Raises:
        ValueError: If the schema is recursive.
    """
    return _strict(inlined(schema), dialect)


def system_text(request: LLMRequest, structure: Structure, *, shown: bool = False) -> str:
    """The static part of a request as a client sends it: the same for every conversation.

    Args:
        request: The request.
        structure: How the client makes the model keep to the schema; ``json_schema`` needs no description of it.
        shown: The schema is enforced but the model never sees it, as in servers that compile it to a grammar.
    """
    if not request.schema:
        return request.system
    plain = inlined(request.schema)
    if structure != "json_schema":
        return f"{request.system}\n\n{_ANSWER}\n{outline(plain)}\n"
    maps = sorted(_map_names(plain))
    pairs = _PAIRS + ", ".join(f'`{name}`: [{{"name": …, "value": …}}]' for name in maps) + "." if maps else ""
    if shown:
        return f"{request.system}\n\n{_ANSWER}\n{outline(_strict(plain, 'anthropic'))}\n{pairs}".rstrip() + "\n"
    return f"{request.system}\n\n{pairs}\n" if pairs else request.system


def outline(schema: Mapping[str, Any], indent: str = "") -> str:
    """A schema without references, as short notation: ``{"uri"?: string, "tags"?: [string]}``."""
    if "enum" in schema or "const" in schema:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        kinds = [outline(option, indent) for option in schema["anyOf"] if option != _NULL]
        return " or ".join(dict.fromkeys("number" if kind == "integer" else kind for kind in kinds))
    if schema.get("type") == "array":
        return f"[{outline(schema.get('items', {}), indent)}]"
    if schema.get("type") == "object" and schema.get("properties"):
        return _outlined_members(schema, indent)
    if schema.get("type") == "object":
        return f'{{"<name>": {outline(_values(schema), indent)}, …}}'
    return str(schema.get("type", "any value"))


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every ``$ref`` replaced by what it names.

    Raises:
        ValueError: If the schema is recursive.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})

    def resolved(node: Any, within: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [resolved(item, within) for item in node]
        if not isinstance(node, Mapping):
            return node
        if "$ref" in node:
            name = str(node["$ref"]).removeprefix("#/$defs/")
            if name in within:
                raise ValueError(f"the schema of {name} is recursive")
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return {**resolved(definitions[name], (*within, name)), **beside}
        return {key: resolved(value, within) for key, value in node.items() if key != "$defs"}

    plain: dict[str, Any] = resolved(schema, ())
    return plain


def _strict(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    said = _first_paragraph(schema)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        kinds = {"string" if isinstance(value, str) else "number" for value in values}
        return said | ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": list(values)}
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return said | _any_of([_strict(option, dialect) for option in options])
    kind = schema.get("type")
    if kind == "array":
        return said | {"type": "array", "items": _strict(schema.get("items", {}), dialect)}
    if kind == "object" and "properties" in schema:
        return said | _closed(schema, dialect)
    if kind == "object":
        pair = {"name": {"type": "string"}, "value": _strict(_values(schema), dialect)}
        return said | {"type": "array", "items": _object(pair, list(pair))}
    return said | ({"type": kind} if kind else _any_of(_SCALARS))


def _closed(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    members: dict[str, Any] = {}
    required: list[str] = []
    for name, member in schema["properties"].items():
        known = _strict(member, dialect)
        nullable = _NULL in known.get("anyOf", ())
        if dialect == "anthropic" and nullable:
            rest = {key: value for key, value in known.items() if key != "anyOf"}
            known = rest | _any_of([option for option in known["anyOf"] if option != _NULL])
        else:
            required.append(name)
        members[name] = known
    return _object(members, required)


def _object(members: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """A union without options that another one covers."""
    kept: list[dict[str, Any]] = []
    for option in options:
        for part in option.get("anyOf", [option]):
            if part not in kept:
                kept.append(part)
    if {"type": "number"} in kept:
        kept = [part for part in kept if part != {"type": "integer"}]
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def _values(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    values = schema.get("additionalProperties")
    return values if isinstance(values, Mapping) else {}


def _first_paragraph(schema: Mapping[str, Any]) -> dict[str, Any]:
    text = str(schema.get("description", "")).split("\n\n")[0]
    return {"description": " ".join(text.split())} if text.strip() else {}


def _outlined_members(schema: Mapping[str, Any], indent: str) -> str:
    deeper = f"{indent}  "
    required = schema.get("required", ())
    lines = []
    for name, member in schema["properties"].items():
        said = _first_paragraph(member).get("description", "") if "properties" not in member else ""
        note = f"  // {said}" if said else ""
        mark = "" if name in required else "?"
        lines.append((f'{deeper}"{name}"{mark}: {outline(member, deeper)}', note))
    texts = [f"{text}{',' if at < len(lines) - 1 else ''}{note}" for at, (text, note) in enumerate(lines)]
    short = "{" + ", ".join(text.strip() for text, _ in lines) + "}"
    if "\n" not in short and len(short) <= 100 and not any(note for _, note in lines):
        return short
    return "{\n" + "\n".join(texts) + f"\n{indent}}}"


def _map_names(schema: Any) -> set[str]:
    """Names of the members that are maps of free names."""
    found: set[str] = set()
    if isinstance(schema, list):
        return found.union(*(_map_names(item) for item in schema))
    if not isinstance(schema, Mapping):
        return found
    for name, member in schema.get("properties", {}).items():
        options = member.get("anyOf", [member])
        if any(option.get("type") == "object" and "properties" not in option for option in options):
            found.add(name)
    return found.union(*(_map_names(value) for value in schema.values()))
