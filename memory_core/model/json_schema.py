"""JSON schemas in few tokens, for models that read them as text. Pure."""

from __future__ import annotations

from typing import Any

_NAMED = ("properties", "$defs")


def compact_schema(node: Any, *, descriptions: bool = True) -> Any:
    """A JSON schema without generated titles and without ``null`` branches and defaults that mean 'left out'.

    Args:
        node: The schema, as pydantic writes it.
        descriptions: Whether to keep ``description`` texts.
    """
    if isinstance(node, list):
        return [compact_schema(item, descriptions=descriptions) for item in node]
    if not isinstance(node, dict):
        return node
    slim: dict[str, Any] = {}
    for name, value in node.items():
        if (name == "title" or (name == "description" and not descriptions)) and isinstance(value, str):
            continue
        if (name == "default" and value is None) or (name == "additionalProperties" and value is True):
            continue
        if name in _NAMED:
            slim[name] = {key: compact_schema(item, descriptions=descriptions) for key, item in value.items()}
        else:
            slim[name] = compact_schema(value, descriptions=descriptions)
    branches = slim.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        kept = [branch for branch in branches if branch != {"type": "null"}]
        if len(kept) == 1:
            del slim["anyOf"]
            slim = {**kept[0], **slim}
        else:
            slim["anyOf"] = kept
    return slim
