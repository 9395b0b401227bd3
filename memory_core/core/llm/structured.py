"""Ask a model for an answer of one pydantic model, and read what it wrote: format, request, parse.

The request carries a JSON schema in the form that a provider's strict mode takes, or an outline for models that only
read. Strict modes know closed objects only, so a map of free names becomes a list of {name, value}; they also refuse
defaults, bounds and patterns, which are left out and checked when the answer is read. Schemas are as pydantic writes
them, references are inlined, recursive ones are not supported.

What comes back is bent towards the annotations (the compat rules): ``None`` written as a word, lists and objects where
text is wanted, text where numbers, lists or objects are wanted, maps written as pairs, members that belong one level
deeper, enumerations by case and by synonym. A bad item of a list member is dropped alone and reported; lists inside a
map's value (the blocks of one patch) stand or fall together, so that no edit is applied by half. Pydantic has the last
word on every value.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from memory_core.core.errors import AnswerCut, AnswerUnusable, ModelRefused
from memory_core.core.llm.client import Completion, LLMRequest, StopReason, Structure, Turn
from memory_core.core.llm.json_text import decode, find_answer, quoted
from memory_core.core.memory.operations import escaped
from memory_core.core.text.word_table import word_table

M = TypeVar("M", bound=BaseModel)

#: ``openai``: every member required, optional ones nullable. ``anthropic``: optional members may be left out, which
#: its limit on union types (16 a schema, against 24 optional members) asks for.
Dialect = Literal["openai", "anthropic"]

_NULL = {"type": "null"}
_SCALARS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_ANSWER = "Answer with one JSON object and nothing else: no prose, no code fence. Its members, `?` marks optional ones:"
_PAIRS = "Where a map is described above, write a list of pairs instead: "
_SHORT_CHARS = 100

_PATCH_MARKER = "<<<<<<< SEARCH"
_LIMIT_REPORTS = 50
_NAME_CHARS = 80
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[,，]\d{3})+(?:\.\d+)?")
_NOTHING = frozenset({"none", "null"})

# Asking and reading --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parsed(Generic[M]):
    """An answer.

    Attributes:
        value: What the model said, with every part that could be read.
        dropped: A line for each part that could not, with its path and the reason.
    """

    value: M
    dropped: tuple[str, ...]


class JSONAdapter(Generic[M]):
    """Asks for, and reads, answers of one pydantic model.

    Args:
        model: The shape of an answer. Not recursive.
        choices: Values that text members of a name may take, such as the memory types that there are. They guide
            the model; an answer with another value is still read.
        purpose: What the answers are for, as metrics count them.
    """

    def __init__(
        self, model: type[M], choices: Mapping[str, Sequence[str]] | None = None, purpose: str = "extraction"
    ) -> None:
        self.model = model
        self.schema: Mapping[str, Any] = _with_choices(_schema_of(model), choices or {})
        inner = (nested.model_fields for nested in _nested(model).values())
        self._keys = frozenset(model.model_fields).union(*inner)  # by which an answer is recognised
        self._purpose = purpose

    def format(self, system: str, turns: Sequence[Turn], max_tokens: int) -> LLMRequest:
        """A request for one answer.

        Args:
            system: The static part, the same for every conversation. A client that cannot enforce the schema adds
                its outline to this part, which stays the same.
            turns: The dynamic part, ending with a user's turn.
            max_tokens: Most tokens of the answer.
        """
        name = self.model.__name__
        return LLMRequest(system, tuple(turns), self.schema, name, max_tokens, purpose=self._purpose)

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
        text = completion.text
        if completion.stop is StopReason.LENGTH:
            raise AnswerCut(
                f"the answer ended at the token limit after {len(text):,} characters; nothing of it was used.",
                hint="Raise llm.max_tokens, or send a shorter conversation.",
            )
        if completion.stop is StopReason.REFUSAL:
            raise ModelRefused(
                f"the model declined to answer: {quoted(text)!r}." if text.strip() else "the model declined to answer.",
                hint="Read the conversation for what its provider's rules forbid, or set another llm.model.",
            )
        bending = _Bending()
        try:
            value = bending.model(self.model, _sound(find_answer(text, self._keys)), "")
        except _Unfit as error:
            raise AnswerUnusable(
                f"the answer has a wrong shape: {quoted(str(error))}.",
                hint=f"Check that llm.model follows instructions; it wrote: {quoted(text)!r}",
            ) from None
        return Parsed(value, bending.reports())


@functools.cache
def _schema_of(model: type[BaseModel]) -> Mapping[str, Any]:
    """The JSON schema of a model; costs some 30 ms to make, and every opened store asks for it."""
    return model.model_json_schema()


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


def _sound(value: Any) -> Any:
    """The answer with half surrogate pairs written as escapes: no file, ledger or receipt can hold them."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


# The wire forms of a schema ------------------------------------------------------------------------------------------


def strict(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """A schema that the strict mode of ``dialect`` accepts; the same bytes for the same input.

    Raises:
        ValueError: If the schema is recursive.
    """
    return _strict(_inlined(schema), dialect)


def system_text(request: LLMRequest, structure: Structure, *, shown: bool = False) -> str:
    """The static part of a request as a client sends it: the same for every conversation.

    Args:
        request: The request.
        structure: How the client makes the model keep to the schema; ``json_schema`` needs no description of it.
        shown: The schema is enforced but the model never sees it, as in servers that compile it to a grammar.
    """
    if not request.schema:
        return request.system
    plain = _inlined(request.schema)
    if structure != "json_schema":
        return f"{request.system}\n\n{_ANSWER}\n{_outline(plain)}\n"
    maps = sorted(_map_names(plain))
    pairs = _PAIRS + ", ".join(f'`{name}`: [{{"name": …, "value": …}}]' for name in maps) + "." if maps else ""
    if shown:
        return f"{request.system}\n\n{_ANSWER}\n{_outline(_strict(plain, 'anthropic'))}\n{pairs}".rstrip() + "\n"
    return f"{request.system}\n\n{pairs}\n" if pairs else request.system


def _inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every ``$ref`` replaced by what it names; ValueError if it is recursive."""
    definitions: Mapping[str, Any] = schema.get("$defs", {})

    def resolved(node: Any, within: tuple[str, ...]) -> Any:
        if isinstance(node, list):
            return [resolved(item, within) for item in node]
        if not isinstance(node, Mapping):
            return node
        plain = {key: resolved(value, within) for key, value in node.items() if key not in ("$defs", "$ref")}
        if "$ref" not in node:
            return plain
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name in within:
            raise ValueError(f"the schema of {name} is recursive")
        return {**resolved(definitions[name], (*within, name)), **plain}

    whole: dict[str, Any] = resolved(schema, ())
    return whole


def _strict(schema: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    said = _first_paragraph(schema)
    values = _values(schema)
    if values:
        kinds = {"string" if isinstance(value, str) else "number" for value in values}
        return said | ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": values}
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return said | _any_of([_strict(option, dialect) for option in options])
    kind = schema.get("type")
    if kind == "array":
        return said | {"type": "array", "items": _strict(schema.get("items", {}), dialect)}
    if kind == "object" and "properties" in schema:
        return said | _closed(schema["properties"], dialect)
    if kind == "object":
        pair = {"name": {"type": "string"}, "value": _strict(_of_any_name(schema), dialect)}
        return said | {"type": "array", "items": _object(pair, list(pair))}
    return said | ({"type": kind} if kind else _any_of(_SCALARS))


def _closed(properties: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    members = {name: _strict(member, dialect) for name, member in properties.items()}
    optional = [name for name, member in members.items() if _NULL in member.get("anyOf", ())]
    if dialect == "openai":
        return _object(members, list(members))
    for name in optional:
        options = [option for option in members[name].pop("anyOf") if option != _NULL]
        members[name] |= _any_of(options)
    return _object(members, [name for name in members if name not in optional])


def _object(members: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """A union without options that another one covers."""
    kept: list[dict[str, Any]] = []
    for option in options:
        kept += [part for part in option.get("anyOf", [option]) if part not in kept]
    if {"type": "number"} in kept:
        kept = [part for part in kept if part != {"type": "integer"}]
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def _values(schema: Mapping[str, Any]) -> list[Any]:
    """The values of an enumeration."""
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def _of_any_name(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a map holds under each of its names."""
    values = schema.get("additionalProperties")
    return values if isinstance(values, Mapping) else {}


def _first_paragraph(schema: Mapping[str, Any]) -> dict[str, Any]:
    text = str(schema.get("description", "")).split("\n\n")[0]
    return {"description": " ".join(text.split())} if text.strip() else {}


def _outline(schema: Mapping[str, Any], indent: str = "") -> str:
    """A schema without references, as short notation: ``{"uri"?: string, "tags"?: [string]}``."""
    values = _values(schema)
    if values:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in values)
    if "anyOf" in schema:
        kinds = [_outline(option, indent) for option in schema["anyOf"] if option != _NULL]
        return " or ".join(dict.fromkeys("number" if kind == "integer" else kind for kind in kinds))
    if schema.get("type") == "array":
        return f"[{_outline(schema.get('items', {}), indent)}]"
    if schema.get("type") == "object" and schema.get("properties"):
        return _outlined_members(schema, indent)
    if schema.get("type") == "object":
        return f'{{"<name>": {_outline(_of_any_name(schema), indent)}, …}}'
    return str(schema.get("type", "any value"))


def _outlined_members(schema: Mapping[str, Any], indent: str) -> str:
    members: list[str] = []
    notes: list[str] = []
    for name, member in schema["properties"].items():
        said = _first_paragraph(member).get("description", "") if "properties" not in member else ""
        mark = "" if name in schema.get("required", ()) else "?"
        members.append(f'"{name}"{mark}: {_outline(member, f"{indent}  ")}')
        notes.append(f"  // {said}" if said else "")
    short = f"{{{', '.join(members)}}}"
    if "\n" not in short and len(short) <= _SHORT_CHARS and not any(notes):
        return short
    commas = [","] * (len(members) - 1) + [""]
    lines = [f"{indent}  {''.join(parts)}\n" for parts in zip(members, commas, notes, strict=True)]
    return f"{{\n{''.join(lines)}{indent}}}"


def _map_names(schema: Any) -> set[str]:
    """Names of the members that are maps of free names."""
    if isinstance(schema, list):
        return set().union(*map(_map_names, schema))
    if not isinstance(schema, Mapping):
        return set()
    found = set().union(*map(_map_names, schema.values()))
    for name, member in schema.get("properties", {}).items():
        options = member.get("anyOf", [member])
        if any(option.get("type") == "object" and "properties" not in option for option in options):
            found.add(name)
    return found


# The compat rules ----------------------------------------------------------------------------------------------------


class _Unfit(Exception):
    """A value that cannot be bent into its annotation."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)


class _Bending:
    """One answer's way into its model; keeps a line for each part that was left out."""

    def __init__(self) -> None:
        self._dropped: list[str] = []

    def reports(self) -> tuple[str, ...]:
        """What was left out, bounded."""
        lines = list(map(escaped, self._dropped[:_LIMIT_REPORTS]))
        more = len(self._dropped) - len(lines)
        return (*lines, f"… and {more} more") if more else tuple(lines)

    def model(self, model: type[M], raw: Mapping[str, Any], path: str) -> M:
        """The model's value; raises ``_Unfit`` if a member that it cannot do without is missing or wrong."""
        values = {str(key): value for key, value in _hoisted(model, raw).items()}
        for name, info in model.model_fields.items():
            annotation = Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
            if name not in values:
                continue
            if _says_nothing(values[name], annotation):
                if NoneType in _parts(annotation):
                    values[name] = None
                else:
                    del values[name]
                continue
            try:
                values[name] = self.value(annotation, values[name], f"{path}.{name}" if path else name, member=True)
            except _Unfit as error:
                # With a model or a map goes what the answer meant to do.
                essential = any(_is_model(option) or get_origin(option) is dict for option in _options(annotation))
                if info.is_required() or essential:
                    raise
                self._dropped.append(str(error))
                del values[name]
        value: M = _checked(model, values, path)
        return value

    def value(self, annotation: Any, raw: Any, where: str, *, member: bool = False) -> Any:
        """``raw`` as ``annotation`` wants it; lists of a ``member`` of a model are item by item."""
        options = _options(annotation)
        if raw is None and NoneType in _parts(annotation):
            return None
        if len(options) > 1:
            return self._union(options, raw, where)
        kind = _bare(options[0])
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is list:
            return self._list(arguments[0], raw, where, alone=member)
        if origin is dict:
            return self._map(arguments[1], raw, where)
        if origin is Literal:
            return _choice(arguments, raw, where)
        if _is_model(kind):
            return self.model(kind, _object_of(raw, where), where)
        return _scalar(options[0], raw, where)

    def _union(self, options: list[Any], raw: Any, where: str) -> Any:
        """One of several: the option of the same kind, else text where text is allowed."""
        items = raw if isinstance(raw, list) else [raw]
        structured = [option for option in options if get_origin(option) is list or _is_model(option)]
        if structured and any(isinstance(item, dict) for item in items):
            # Never text: a malformed patch, taken as text, would replace the whole field.
            return self.value(structured[0], raw, where)
        if isinstance(raw, list) and raw and all(isinstance(item, str) and _PATCH_MARKER in item for item in raw):
            return "\n".join(raw)
        if isinstance(raw, list | dict) and str in options:
            return _as_text(raw)
        return _checked(Union[tuple(options)], raw, where)  # noqa: UP007

    def _list(self, inner: Any, raw: Any, where: str, *, alone: bool) -> list[Any]:
        if isinstance(raw, str) and raw.strip().startswith(("[", "{")):
            decoded = decode(raw)
            raw = raw if decoded is None or (inner is str and isinstance(decoded, dict)) else decoded
        if not isinstance(raw, list):
            raw = [] if isinstance(raw, str) and not raw.strip() else [raw]
        kept = []
        for index, item in enumerate(raw):
            try:
                kept.append(self.value(inner, item, f"{where}[{index}]"))
            except _Unfit as error:
                if not alone:
                    raise
                self._dropped.append(str(error))
        return kept

    def _map(self, inner: Any, raw: Any, where: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in _pairs(raw, where):
            place = f"{where}.{name[:_NAME_CHARS]}"
            value = self.value(inner, item, place)
            found[name] = value if name not in found else _joined(found[name], value, place)
        return found


def _as_text(value: Any) -> str:
    """A value where text is wanted: an array of plain values as a comma-separated list, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ", ".join(_as_text(item) for item in value if item is not None)
    return json.dumps(value, ensure_ascii=False)


def _scalar(annotation: Any, raw: Any, where: str) -> Any:
    kind = _bare(annotation)
    if kind is str and raw is not None:
        return _checked(annotation, _as_text(raw), where)
    raw = _alone(raw)
    return _checked(annotation, _number(raw) if kind in (int, float) and isinstance(raw, str) else raw, where)


def _alone(raw: Any) -> Any:
    """The item of a list of one; anything else as it is."""
    return raw[0] if isinstance(raw, list) and len(raw) == 1 else raw


def _number(text: str) -> Any:
    """The number that a text writes, with or without thousands separators; the text itself if it is none."""
    plain = text.strip()
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "").replace("，", "")
    try:
        number = float(plain)
    except ValueError:
        return text
    return (int(number) if number.is_integer() else number) if math.isfinite(number) else text


def _checked(annotation: Any, raw: Any, where: str) -> Any:
    """Pydantic's verdict."""
    try:
        return _adapter(annotation).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inner = [str(part) for part in first["loc"]] if _is_model(annotation) else []
        raise _Unfit(".".join(filter(None, (where, *inner))), str(first["msg"])) from None


@functools.lru_cache(maxsize=256)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _choice(allowed: tuple[Any, ...], raw: Any, where: str) -> Any:
    raw = _alone(raw)
    word, synonyms = _as_text(raw).strip().casefold(), word_table(__file__)["synonyms"]
    for choice in allowed:
        name = str(choice).casefold()
        if raw == choice or word == name or word in synonyms.get(name, ()):
            return choice
    raise _Unfit(where, f"{_as_text(raw)[:_NAME_CHARS]!r} is none of {', '.join(map(str, allowed))}")


def _opened(raw: Any) -> Any:
    """What a text says as JSON, where an object is wanted; nothing at all is an empty object."""
    return (decode(raw) if raw.strip() else {}) if isinstance(raw, str) else raw


def _object_of(raw: Any, where: str) -> Mapping[str, Any]:
    """An object; of an array of one, its item; of an empty one, an empty object."""
    raw = _opened(raw)
    if isinstance(raw, list) and len(raw) < 2:
        raw = raw[0] if raw else {}
    if not isinstance(raw, dict):
        raise _Unfit(where, "an object is wanted here")
    return raw


def _pairs(raw: Any, where: str) -> list[tuple[str, Any]]:
    """The entries of a map, written as an object or as a list of {name, value}."""
    raw = _opened(raw)
    if isinstance(raw, dict):
        return [(str(name), value) for name, value in raw.items()]
    if not isinstance(raw, list):
        raise _Unfit(where, "an object is wanted here")
    found: list[tuple[str, Any]] = []
    for index, item in enumerate(raw):
        if isinstance(item, dict) and len(item) == 2 and "value" in item:
            name = next(item[key] for key in item if key != "value")
            found.append((_as_text(name), item["value"]))
        elif isinstance(item, dict) and len(item) == 1:
            found += [(str(name), value) for name, value in item.items()]
        else:
            raise _Unfit(f"{where}[{index}]", "a pair {name, value} is wanted here")
    return found


def _joined(first: Any, second: Any, where: str) -> Any:
    """One value for a name that occurs twice: blocks of a patch follow one another, equal values are one."""
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    if first == second and type(first) is type(second):
        return first
    if isinstance(first, str) and isinstance(second, str) and _PATCH_MARKER in first and _PATCH_MARKER in second:
        return f"{first.rstrip()}\n{second}"
    raise _Unfit(where, "is given twice with different values")


def _hoisted(model: type[BaseModel], raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Members that belong one level deeper, moved there if that level is missing: ``{action_type, uri}``."""
    strange = [key for key in raw if key not in model.model_fields]
    for name, inner in _nested(model).items():
        moved = {key: raw[key] for key in strange if key in inner.model_fields}
        if moved and raw.get(name) is None:
            return {key: value for key, value in raw.items() if key not in moved} | {name: moved}
    return raw


def _nested(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Members whose value is one model, itself or optional."""
    options = {name: _options(info.annotation) for name, info in model.model_fields.items()}
    return {name: kinds[0] for name, kinds in options.items() if len(kinds) == 1 and _is_model(kinds[0])}


def _says_nothing(raw: Any, annotation: Any) -> bool:
    """Whether a member is null, or the word for it where null is allowed or text is no possible value."""
    if raw is None:
        return True
    if not isinstance(raw, str) or raw.strip().casefold() not in _NOTHING:
        return False
    options = _options(annotation)
    takes_words = str in options or get_origin(options[0]) is Literal
    return NoneType in _parts(annotation) or not takes_words


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _parts(annotation: Any) -> list[Any]:
    """The types of a union; a plain type alone."""
    bare = _bare(annotation)
    if get_origin(bare) in (Union, UnionType):
        return [part for option in get_args(bare) for part in _parts(option)]
    return [annotation]


def _options(annotation: Any) -> list[Any]:
    """The types of a union without None; a plain type alone."""
    return [part for part in _parts(annotation) if part is not NoneType] or [NoneType]
