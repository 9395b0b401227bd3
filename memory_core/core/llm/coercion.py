"""Bend what a model wrote towards the annotations of a pydantic model, item by item.

Owns the compat rules: ``None`` written as a word, lists and objects where text is wanted, text where numbers, lists
or objects are wanted, maps written as pairs, members that belong one level deeper, enumerations by case and by
synonym. A bad item of a list member is dropped alone and reported; lists inside a map's value (the blocks of one
patch) stand or fall together, so that no edit is applied by half. Pydantic has the last word on every value.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from memory_core.core.llm.json_text import decode

M = TypeVar("M", bound=BaseModel)

PATCH_MARKER = "<<<<<<< SEARCH"
_LIMIT_REPORTS = 50
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[,，]\d{3})+(?:\.\d+)?")
_NOTHING = frozenset({"none", "null"})
#: Other words for the members of enumerations, where the enumeration itself does not have them.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "add": ("write", "create", "insert", "new", "added", "新增", "添加", "增加", "创建"),
    "update": ("edit", "modify", "change", "patch", "updated", "更新", "修改", "编辑"),
    "delete": ("remove", "deleted", "forget", "删除", "移除"),
    "noop": ("none", "skip", "no_op", "no-op", "ignore", "keep", "nothing", "unchanged", "跳过", "忽略", "无", "不变"),
    "read": ("open", "view", "cat", "get", "读取", "阅读", "查看"),
    "find": ("search", "query", "查找", "搜索"),
    "ls": ("list", "dir", "列出", "列表"),
    "tree": ("树", "目录树"),
}


class Unfit(Exception):
    """A value that cannot be bent into its annotation."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)


def known_keys(model: type[BaseModel]) -> frozenset[str]:
    """Members by which an answer is recognised: the model's own and those of the models directly in it."""
    inner = [nested.model_fields for nested in _nested(model).values()]
    return frozenset(model.model_fields).union(*inner)


def build(model: type[M], raw: Mapping[str, Any]) -> tuple[M, list[str]]:
    """The model's value, and a line for each item that was left out.

    Raises:
        Unfit: If a member that the model cannot do without is missing or wrong.
    """
    dropped: list[str] = []
    value = _Builder(dropped).model(model, raw, "")
    dropped = [line.encode("utf-8", "backslashreplace").decode("utf-8") for line in dropped]
    if len(dropped) > _LIMIT_REPORTS:
        dropped = [*dropped[:_LIMIT_REPORTS], f"… and {len(dropped) - _LIMIT_REPORTS} more"]
    return value, dropped


class _Builder:
    def __init__(self, dropped: list[str]) -> None:
        self._dropped = dropped

    def model(self, model: type[M], raw: Mapping[str, Any], path: str) -> M:
        values = {str(key): value for key, value in _hoisted(model, raw).items()}
        for name, info in model.model_fields.items():
            if name not in values:
                continue
            where = f"{path}.{name}" if path else name
            if _says_nothing(values[name], info.annotation):
                if _is_optional(info.annotation):
                    values[name] = None
                else:
                    del values[name]
                continue
            try:
                values[name] = self.value(info.annotation, values[name], where, member=True)
            except Unfit as error:
                if info.is_required() or _is_essential(info.annotation):
                    raise
                self._dropped.append(str(error))
                del values[name]
        return self._validated(model, values, path)

    def _validated(self, model: type[M], values: dict[str, Any], path: str) -> M:
        """Pydantic's verdict, without the optional members that it refuses."""
        while True:
            try:
                return model.model_validate(values)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                name = str(first["loc"][0]) if first["loc"] else ""
                where = ".".join(part for part in (path, *map(str, first["loc"])) if part)
                info = model.model_fields.get(name)
                if info is None or info.is_required() or name not in values:
                    raise Unfit(where, str(first["msg"])) from None
                self._dropped.append(f"{where}: {first['msg']}")
                del values[name]

    def value(self, annotation: Any, raw: Any, where: str, *, member: bool = False) -> Any:
        """``raw`` as ``annotation`` wants it; lists of a ``member`` of a model are item by item."""
        annotation = _bare(annotation)
        options = _options(annotation)
        if raw is None and _is_optional(annotation):
            return None
        if len(options) > 1:
            return self._union(options, raw, where)
        kind = options[0]
        origin = get_origin(kind)
        if origin is list:
            return self._list(_argument(kind, 0), raw, where, alone=member)
        if origin is dict:
            return self._map(_argument(kind, 1), raw, where)
        if origin is Literal:
            return _literal(get_args(kind), raw, where)
        if _is_model(kind):
            return self.model(kind, _object(raw, where), where)
        return _scalar(kind, raw, where)

    def _union(self, options: list[Any], raw: Any, where: str) -> Any:
        """One of several: the option of the same kind, else text where text is allowed."""
        lists = [option for option in options if get_origin(option) is list]
        models = [option for option in options if _is_model(option)]
        if _holds_objects(raw) and (lists or models):
            # Never text: a malformed patch, taken as text, would replace the whole field.
            return self.value((lists or models)[0], raw, where)
        if isinstance(raw, list) and raw and all(isinstance(item, str) and PATCH_MARKER in item for item in raw):
            return "\n".join(raw)
        if isinstance(raw, list | dict) and str in options:
            return as_text(raw)
        if isinstance(raw, str) and str not in options:
            for option in options:
                try:
                    return self.value(option, raw, where)
                except Unfit:
                    continue
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
            except Unfit as error:
                if not alone:
                    raise
                self._dropped.append(str(error))
        return kept

    def _map(self, inner: Any, raw: Any, where: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in _pairs(raw, where):
            value = self.value(inner, item, f"{where}.{name[:80]}")
            found[name] = value if name not in found else _joined(found[name], value, f"{where}.{name[:80]}")
        return found


def as_text(value: Any) -> str:
    """A value where text is wanted: an array of plain values as a comma-separated list, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ", ".join(as_text(item) for item in value if item is not None)
    return json.dumps(value, ensure_ascii=False)


def _scalar(kind: Any, raw: Any, where: str) -> Any:
    if kind is str:
        if raw is None:
            raise Unfit(where, "text is missing")
        return as_text(raw)
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    if kind in (int, float) and isinstance(raw, str):
        raw = _number(raw)
    return _checked(kind, raw, where)


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


def _checked(kind: Any, raw: Any, where: str) -> Any:
    try:
        return _adapter(kind).validate_python(raw)
    except ValidationError as error:
        raise Unfit(where, str(error.errors(include_url=False)[0]["msg"])) from None


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _literal(allowed: tuple[Any, ...], raw: Any, where: str) -> Any:
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    if raw in allowed:
        return raw
    word = as_text(raw).strip().casefold()
    for choice in allowed:
        name = str(choice).casefold()
        if word == name or word in SYNONYMS.get(name, ()):
            return choice
    raise Unfit(where, f"{as_text(raw)[:80]!r} is none of {', '.join(map(str, allowed))}")


def _object(raw: Any, where: str) -> Mapping[str, Any]:
    """An object; of an array of one, its item; of JSON text, what it says; nothing at all is an empty one."""
    if isinstance(raw, str):
        raw = decode(raw) if raw.strip() else {}
    if isinstance(raw, list) and len(raw) < 2:
        raw = raw[0] if raw else {}
    if not isinstance(raw, dict):
        raise Unfit(where, "an object is wanted here")
    return raw


def _pairs(raw: Any, where: str) -> list[tuple[str, Any]]:
    """The entries of a map, written as an object or as a list of {name, value}."""
    if isinstance(raw, str):
        raw = decode(raw) if raw.strip() else {}
    if isinstance(raw, dict):
        return [(str(name), value) for name, value in raw.items()]
    if not isinstance(raw, list):
        raise Unfit(where, "an object is wanted here")
    found: list[tuple[str, Any]] = []
    for index, item in enumerate(raw):
        if isinstance(item, dict) and len(item) == 2 and "value" in item:
            name = next(item[key] for key in item if key != "value")
            found.append((as_text(name), item["value"]))
        elif isinstance(item, dict) and len(item) == 1:
            found += [(str(name), value) for name, value in item.items()]
        else:
            raise Unfit(f"{where}[{index}]", "a pair {name, value} is wanted here")
    return found


def _joined(first: Any, second: Any, where: str) -> Any:
    """One value for a name that occurs twice: blocks of a patch follow one another, equal values are one."""
    if isinstance(first, list) and isinstance(second, list):
        return first + second
    if first == second and type(first) is type(second):
        return first
    if isinstance(first, str) and isinstance(second, str) and PATCH_MARKER in first and PATCH_MARKER in second:
        return f"{first.rstrip()}\n{second}"
    raise Unfit(where, "is given twice with different values")


def _hoisted(model: type[BaseModel], raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Members that belong one level deeper, moved there if that level is missing: ``{action_type, uri}``."""
    strange = [key for key in raw if key not in model.model_fields]
    for name, inner in _nested(model).items():
        moved = [key for key in strange if key in inner.model_fields]
        if moved and raw.get(name) is None:
            return {key: value for key, value in raw.items() if key not in moved} | {
                name: {key: raw[key] for key in moved}
            }
    return raw


def _nested(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Members whose value is one model, itself or optional."""
    found = {}
    for name, info in model.model_fields.items():
        options = _options(info.annotation)
        if len(options) == 1 and _is_model(options[0]):
            found[name] = options[0]
    return found


def _is_essential(annotation: Any) -> bool:
    """Whether losing the member, even an optional one, loses what the model meant to do."""
    return any(_is_model(option) or get_origin(option) is dict for option in _options(annotation))


def _says_nothing(raw: Any, annotation: Any) -> bool:
    """Whether a member is null, or the word for it where null is allowed or text is no possible value."""
    if raw is None:
        return True
    if not isinstance(raw, str) or raw.strip().casefold() not in _NOTHING:
        return False
    options = _options(annotation)
    free = str in options or Any in options or get_origin(options[0]) is Literal
    return _is_optional(annotation) or not free


def _is_optional(annotation: Any) -> bool:
    return types.NoneType in _parts(annotation)


def _holds_objects(raw: Any) -> bool:
    return isinstance(raw, dict) or (isinstance(raw, list) and any(isinstance(item, dict) for item in raw))


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _parts(annotation: Any) -> list[Any]:
    annotation = _bare(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for option in get_args(annotation) for part in _parts(option)]
    return [annotation]


def _options(annotation: Any) -> list[Any]:
    """The types of a union without None; a plain type alone."""
    return [part for part in _parts(annotation) if part is not types.NoneType] or [types.NoneType]


def _argument(kind: Any, index: int) -> Any:
    arguments = get_args(kind)
    return arguments[index] if index < len(arguments) else Any
