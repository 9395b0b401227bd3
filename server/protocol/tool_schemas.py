"""JSON schemas of the tools' arguments, as every provider's function calling takes them.

Gemini, OpenAI and Anthropic each know a subset of JSON Schema: no references, one type a property, objects with named
properties. What a schema names is what a model may send under constrained decoding; a server that reads more than that
(a number for ``priority``, a provider's message blocks, fields of an owner's type) is no contradiction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from memory_core.core.memory.metadata import METADATA, Kind
from memory_core.core.memory.operations import MemoryOperations, compact_schema
from memory_core.core.text.word_table import word_table

_KINDS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.TEXT: {"type": "string"},
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
    Kind.SHARE: {"type": "number"},
    Kind.FLAG: {"type": "boolean"},
    Kind.TIME: {"type": "string"},
}
_SAID_TWICE = frozenset({"description", "default", "minimum", "maximum"})


def tool_schema(tool: str, model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments: inline, typed, without defaults, which descriptions give where they matter."""
    schema: dict[str, Any] = _inline(compact_schema(model.model_json_schema(by_alias=True)))
    declared = {**word_table(__file__), "fields": _fields("key_fields", "other_fields")}
    for name, member in schema["properties"].items():
        member.pop("default", None)
        if name == "operations":
            member |= _operations()
        elif (known := declared.get(f"{tool}.{name}", declared.get(name))) is not None:
            told = {"description": member["description"]} if "description" in member else {}
            schema["properties"][name] = {**known, **told}
    return schema


def _operations() -> dict[str, Any]:
    """Operations, with all that may be said of a memory; they are read item by item, so that a bad one stands alone."""
    schema: dict[str, Any] = _inline(compact_schema(MemoryOperations.model_json_schema()), _SAID_TWICE)
    schema["properties"]["brief_id"] = {"type": "string", "description": "Of the brief that this answers, as it says."}
    write, edit = (schema["properties"][f"{act}_operations"]["items"]["properties"] for act in ("write", "edit"))
    data = write["memory_data"]["properties"]
    for act, members in (("write", data), ("edit", edit)):
        members |= {field.name: dict(_KINDS[field.kind]) for field in METADATA if act in field.given_by}
    blocks = edit["patches"]["additionalProperties"]["anyOf"][-1]
    text = {"type": "string"}
    data["fields"] = _fields("key_fields", "other_fields", "learnt_fields")
    edit["patches"] = _fields("other_fields")
    edit["patches"]["properties"]["content"] = {"anyOf": [text, blocks]}
    return schema


def _fields(*lists: str) -> dict[str, Any]:
    """Fields of the built-in types by name; those of an owner's own type are taken, too."""
    names = [name for each in lists for name in word_table(__file__)[each]]
    return {"type": "object", "properties": {name: {"type": "string"} for name in ("content", *names)}}


def _inline(schema: dict[str, Any], left_out: frozenset[str] = frozenset()) -> Any:
    """The schema with each definition in the place of its reference, and without keywords that are to be left out."""
    definitions = schema.pop("$defs", {})

    def inlined(node: Any, *, named: bool = False) -> Any:
        if isinstance(node, list):
            return [inlined(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            more = {name: value for name, value in node.items() if name != "$ref"}
            return inlined({**definitions[node["$ref"].rpartition("/")[2]], **more})
        kept = node if named else {name: value for name, value in node.items() if name not in left_out}
        return {name: inlined(value, named=name == "properties" and not named) for name, value in kept.items()}

    return inlined(schema)
