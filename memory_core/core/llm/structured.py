"""The wire forms of a schema: what providers' strict modes accept, and an outline for models that only read.

Strict modes know closed objects only, so a map of free names becomes a list of {name, value}; ``coercion`` reads
both. They also refuse defaults, bounds and patterns, which are left out here and checked when the answer is read.
Input is a JSON schema as pydantic writes it; references are inlined, recursive schemas are not supported.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from memory_core.core.errors import AnswerCut, AnswerUnusable, ModelRefused
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, Structure, Turn
from memory_core.core.llm.coercion import Unfit, build, known_keys
from memory_core.core.llm.json_text import find_answer, quoted

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """An answer.

    Attributes:
        value: What the model said, with every part that could be read.
        dropped: A line for each part that could not, with its path and the reason.
    """

    value: M
    dropped: tuple[str, ...]


@functools.cache
def _schema_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a model; costs some 30 ms to make, and every opened store asks for it."""
    return model.model_json_schema()


class JSONAdapter(Generic[M]):
    """Asks for, and reads, answers of one pydantic model.

    Args:
        model: The shape of an answer. Not recursive.
        name: A short name of the schema, letters, digits and ``_``; default the model's.
        choices: Values that text members of a name may take, such as the memory types that there are. They guide
            the model; an answer with another value is still read.
        purpose: What the answers are for, as metrics count them.
    """

    def __init__(
        self,
        model: type[M],
        name: str | None = None,
        choices: Mapping[str, Sequence[str]] | None = None,
        purpose: str = "extraction",
    ) -> None:
        self.model = model
        self.name = name or model.__name__
        self.schema: Mapping[str, Any] = _with_choices(_schema_of(model), choices or {})
        self._keys = known_keys(model)
        self._purpose = purpose

    def format(self, system: str, turns: Sequence[Turn], max_tokens: int) -> LLMRequest:
        """A request for one answer.

        Args:
            system: The static part, the same for every conversation. A client that cannot enforce the schema adds
                its outline to this part, which stays the same.
            turns: The dynamic part, ending with a user's turn.
            max_tokens: Most tokens of the answer.
        """
        return LLMRequest(system, tuple(turns), self.schema, self.name, max_tokens, purpose=self._purpose)

    def parse(self, answer: Completion | str) -> Parsed[M]:
        """Read an answer.

        Args:
            answer: A completion, or the text of one that ended by itself.

        Raises:
            AnswerCut: If the answer ended at the token limit, whether or not the provider says so.
            ModelRefused: If the model declined.
            AnswerUnusable: If there is no JSON object of this shape in it.
        """
        completion = Completion(answer) if isinstance(answer, str) else answer
        return parse(completion.text, self.model, completion.stop, self._keys)


def parse(
    text: str, model: type[M], stop: StopReason = StopReason.COMPLETE, keys: frozenset[str] | None = None
) -> Parsed[M]:
    """Read the text of an answer; see ``JSONAdapter.parse``. ``keys`` are ``known_keys(model)``, where known."""
    if stop is StopReason.LENGTH:
        raise AnswerCut(
            f"the answer ended at the token limit after {len(text):,} characters; nothing of it was used.",
            hint="Raise llm.max_tokens, or send a shorter conversation.",
        )
    if stop is StopReason.REFUSAL:
        raise ModelRefused(
            f"the model declined to answer: {quoted(text)!r}." if text.strip() else "the model declined to answer.",
            hint="Read the conversation for what its provider's rules forbid, or set another llm.model.",
        )
    found = _sound(find_answer(text, known_keys(model) if keys is None else keys))
    try:
        value, dropped = build(model, found)
    except Unfit as error:
        raise AnswerUnusable(
            f"the answer has a wrong shape: {quoted(str(error))}.",
            hint=f"Check that llm.model follows instructions; it wrote: {quoted(text)!r}",
        ) from None
    return Parsed(value, tuple(dropped))


def _sound(value: Any) -> Any:
    """The answer with half surrogate pairs written as escapes: no file, ledger or receipt can hold them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def _with_choices(node: Any, choices: Mapping[str, Sequence[str]]) -> Any:
    """The schema with the text members of these names limited to these values."""
    if isinstance(node, list):
        return [_with_choices(item, choices) for item in node]
    if not isinstance(node, Mapping):
        return node
    narrowed = {key: _with_choices(value, choices) for key, value in node.items()}
    for name, values in choices.items():
        member = narrowed.get("properties", {}).get(name)
        if values and isinstance(member, dict) and member.get("type") == "string":
            narrowed["properties"] = {**narrowed["properties"], name: {**member, "enum": list(values)}}
    return narrowed


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
