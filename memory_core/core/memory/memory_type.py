"""Memory types by name: YAML files in, ``MemoryType`` values out.

Owns the reading of ``schemas/*.yaml`` (one type a file), the rules of where a type may live, and the names
that other systems give to the same categories. Promises that a broken file is reported with its line and
never keeps another one from loading. Does not render, merge or store anything.

YAML is read as events and typed by the model, not by YAML's own guesses: ``2026-03-17`` and ``no`` stay text
where text is declared, tags cannot build objects, and deep nesting is refused before it can exhaust a stack
(libyaml's composer would crash the process).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from memory_core.core.errors import InvalidUri, NotFound, SchemaInvalid
from memory_core.core.memory.metadata import RESERVED_KEYS
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.text.word_table import word_table


class ProjectMode(StrEnum):
    """Whether a memory of a type belongs to the project at hand by itself, when it is told to, or never."""

    AUTO = "auto"
    NAMED = "named"
    NEVER = "never"


#: The field whose value is the body in simple mode.
CONTENT = "content"

#: A field's value once it has been coerced to its declared type.
FieldValue = str | int | float | bool

PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

#: A field's ``format``: one numeric placeholder, such as ``{:.1f}`` or ``{:,d}``, in literal text.
FORMAT = re.compile(r"[^{}\x00-\x1f\x7f]*\{:,?(?P<kind>\.[0-9]f|d)\}[^{}\x00-\x1f\x7f]*")


class FieldType(StrEnum):
    """Scalar types a field may have."""

    STRING = "string"
    INT64 = "int64"
    FLOAT32 = "float32"
    BOOL = "bool"


class MergeOp(StrEnum):
    """How a new value meets the stored one (DESIGN 4)."""

    PATCH = "patch"
    SUM = "sum"
    AVG = "avg"
    IMMUTABLE = "immutable"
    REPLACE = "replace"


class OperationMode(StrEnum):
    """Whether a second write with the same key updates (``upsert``) or adds (``add_only``)."""

    UPSERT = "upsert"
    ADD_ONLY = "add_only"


class Average(BaseModel):
    """A derived mean: ``scale * fields[sum] / fields[count]``; never stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sum: str
    count: str
    scale: float = 1.0


class MemoryField(BaseModel):
    """One declared field of a memory type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    type: FieldType = FieldType.STRING
    description: str = ""
    merge_op: MergeOp = MergeOp.PATCH
    avg: Average | None = None
    format: str | None = None

    @field_validator("format")
    @classmethod
    def _format_is_numeric(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        match = FORMAT.fullmatch(value)
        if match is None:
            raise ValueError(
                f"format {value!r} must hold exactly one of {{:.1f}} (0 to 9 decimals), {{:d}}, "
                "each also with a comma for thousands, and may have text around it"
            )
        declared = info.data.get("type")
        if declared in (FieldType.STRING, FieldType.BOOL):
            raise ValueError(f"a format needs type int64 or float32, not {declared}")
        if declared is FieldType.FLOAT32 and match["kind"] == "d":
            raise ValueError(f"format {value!r} is for int64; a float32 needs decimals, such as {{:.0f}}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name in RESERVED_KEYS:
            raise ValueError(f"field name '{self.name}' is reserved for metadata; choose another")
        if (self.merge_op is MergeOp.AVG) != (self.avg is not None):
            raise ValueError(f"field '{self.name}': merge_op avg and an avg block {{sum, count}} go together")
        numeric = self.type in (FieldType.INT64, FieldType.FLOAT32)
        if self.merge_op in (MergeOp.SUM, MergeOp.AVG) and not numeric:
            raise ValueError(f"field '{self.name}': merge_op {self.merge_op} needs type int64 or float32")
        return self


class MemoryType(BaseModel):
    """One kind of memory, as its YAML declares it.

    ``directory`` and ``filename_template`` decide where a memory lives; the fields named by
    ``filename_template`` are its *key*. Without ``content_template`` the type is in *simple mode*: the
    file's body is the ``content`` field. With it, in *template mode*: the body is rendered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
    description: str
    directory: Annotated[str, Field(pattern=r"^viking://")]
    filename_template: Annotated[str, Field(pattern=r"\.md$")]
    content_template: str | None = None
    fields: tuple[MemoryField, ...]
    enabled: bool = True
    operation_mode: OperationMode = OperationMode.UPSERT
    project: ProjectMode = ProjectMode.NAMED
    salience: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    expires_after_days: Annotated[float, Field(gt=0.0, le=36_500.0)] | None = None
    half_life_days: Annotated[float, Field(gt=0.0)] | None = None
    overview_template: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"type '{self.name}' declares a field twice")
        unknown = [key for key in PLACEHOLDER.findall(self.filename_template) if key not in names]
        if unknown:
            raise ValueError(f"filename_template names unknown fields: {', '.join(unknown)}")
        if self.content_template is None:
            if "content" not in names:
                raise ValueError("a type without content_template needs a field named 'content'")
        else:
            unknown = [key for key in PLACEHOLDER.findall(self.content_template) if key not in names]
            if unknown:
                raise ValueError(f"content_template names unknown fields: {', '.join(unknown)}")
        for declared in self.fields:
            if declared.avg is not None:
                for operand in (declared.avg.sum, declared.avg.count):
                    if operand not in names:
                        raise ValueError(f"field '{declared.name}': avg refers to unknown field '{operand}'")
        return self

    @cached_property
    def key_fields(self) -> tuple[str, ...]:
        """Names of the fields that form the file name, in template order, each once."""
        return tuple(dict.fromkeys(PLACEHOLDER.findall(self.filename_template)))

    @property
    def template_mode(self) -> bool:
        """Whether the body is rendered from the fields."""
        return self.content_template is not None

    def field(self, name: str) -> MemoryField | None:
        """The declared field of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)


SIZE_LIMIT_BYTES = 256 * 1024
_DEPTH_LIMIT = 16
_SUFFIXES = frozenset({".yaml", ".yml"})
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_UNSAFE_IN_NAME = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DIRECTORY = re.compile(r"viking://(?:user/\{user_space\}|agent/\{agent_space\})/memories(?:/[^{}]*)?")
_MEND = "Correct that line; until then the file is left out."

_Location: TypeAlias = tuple[str | int, ...]


def builtin_schema_dir() -> Path:
    """The folder of the types that ship with Runebook: inside the installed package, else the checkout's."""
    package = Path(__file__).parents[2]
    packaged = package / "schemas"
    return packaged if packaged.is_dir() else package.parent / "schemas"


def resolve_category(name: str) -> str | None:
    """The memory type that a category of another system corresponds to.

    Args:
        name: For example ``procedural``, ``User Knowledge``, ``user_knowledge`` or ``偏好``; case, width,
            underscores and hyphens do not matter. A built-in type's own name resolves to itself.

    Returns:
        The type's name, or None where no type corresponds.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    category = " ".join(re.split(r"[\s_-]+", folded)).strip()
    known = word_table(__file__)["categories"]
    return next((memory_type for memory_type, categories in known.items() if category in categories), None)


class MemoryTypeRegistry:
    """The memory types of one store.

    Load the built-in folder first and the user's after it: a later type replaces an earlier one of its name.
    """

    def __init__(self) -> None:
        self._types: dict[str, MemoryType] = {}
        self._places: dict[tuple[str, ...], list[MemoryType]] = {}
        self._problems: dict[Path, list[SchemaInvalid]] = {}

    @property
    def problems(self) -> tuple[SchemaInvalid, ...]:
        """What could not be loaded, folder by folder; loading a folder again replaces its part."""
        return tuple(problem for problems in self._problems.values() for problem in problems)

    def register(self, memory_type: MemoryType) -> None:
        """Add a type, or replace the one of its name.

        Raises:
            SchemaInvalid: If its directory or file name template could leave the place of memories.
        """
        for key, problem in _misplacements(memory_type):
            raise SchemaInvalid(f"type '{memory_type.name}', {key}: {problem}.", hint=f"Correct {key}.")
        self._add(memory_type)

    def get(self, name: str) -> MemoryType:
        """The enabled type of that name.

        Raises:
            NotFound: If there is none; the hint lists the known names and the closest of them.
        """
        found = self._types.get(name)
        if found is None or not found.enabled:
            state = "known" if found is None else "enabled"
            raise NotFound(f"no memory type '{name[:64]}' is {state}.", hint=self._suggestion(name))
        return found

    def type_at(self, uri: MemoryUri, named: str | None = None) -> MemoryType | None:
        """The type of the memory file at ``uri``, disabled ones included: their files stay readable.

        Args:
            uri: A file, archived or not; its user or agent space does not matter.
            named: The ``memory_type`` of its trailer, which decides where it is known.

        Returns:
            Else the type of the closest directory around it. A type without key owns one file name only.
            None where nothing fits, and for hidden files.
        """
        if named in self._types:
            return self._types[named]
        parts = uri.parts[1:] if uri.scope is Scope.ARCHIVE else uri.parts
        if not parts or parts[-1].startswith("."):
            return None
        place, rest = (parts[0], *parts[2:-1]), parts[-1]
        for depth in range(len(place), 0, -1):
            for memory_type in self._places.get(place[:depth], ()):
                if memory_type.key_fields or (depth == len(place) and rest == memory_type.filename_template):
                    return memory_type
        return None

    def list_all(self) -> list[MemoryType]:
        """Every enabled type, sorted by name."""
        return [self._types[name] for name in sorted(self._types) if self._types[name].enabled]

    def load_from_dir(self, path: Path) -> list[SchemaInvalid]:
        """Register the type of every ``*.yaml`` and ``*.yml`` file in ``path``, hidden files aside.

        Args:
            path: The folder; subfolders are not entered.

        Returns:
            One problem per fault, each with file and line; files without fault are registered all the same.
        """
        problems: list[SchemaInvalid] = []
        self._problems[path] = problems
        try:
            entries = sorted(path.iterdir())
        except OSError as error:
            hint = "Create the folder, or take it out of the setting schema_dirs."
            problems.append(SchemaInvalid(f"{path} cannot be listed: {error.strerror}.", hint=hint))
            return problems
        declared: dict[str, Path] = {}
        for entry in entries:
            if entry.name.startswith(".") or entry.suffix.lower() not in _SUFFIXES:
                continue
            try:
                document = _parse(entry, _read(entry))
            except SchemaInvalid as unreadable:
                problems.append(unreadable)
                continue
            memory_type, faults = _validate(document)
            problems += faults
            if memory_type is None:
                continue
            first = declared.setdefault(memory_type.name, entry)
            if first is not entry:
                problem = f"type '{memory_type.name}' is already declared by {first.name} in this folder"
                problems.append(_broken(entry, document.line_of(("name",)), problem, "Rename or remove one."))
                continue
            self._add(memory_type)
        return problems

    def _add(self, memory_type: MemoryType) -> None:
        self._types[memory_type.name] = memory_type
        self._places = {}
        for known in self._types.values():
            scope, _, *below = MemoryUri.parse(PLACEHOLDER.sub("x", known.directory)).parts
            self._places.setdefault((scope, *below), []).append(known)

    def _suggestion(self, name: str) -> str:
        import difflib  # only a mistake needs it

        known = [memory_type.name for memory_type in self.list_all()]
        if not known:
            return "No memory types are loaded; check the schema folders."
        category = resolve_category(name)
        close = [category] if category in known else difflib.get_close_matches(name.casefold(), known, n=1)
        return (f"Did you mean '{close[0]}'? " if close else "") + f"Known types: {', '.join(known)}."


@dataclass(frozen=True, slots=True)
class _Document:
    """One file's values (str, None, dict, list) and the 1-based line on which each location begins."""

    path: Path
    value: Any
    lines: dict[_Location, int]

    def line_of(self, location: _Location) -> int:
        """The line of the location, or of the closest one around it."""
        while location not in self.lines and location:
            location = location[:-1]
        return self.lines.get(location, 1)


def _broken(path: Path, line: int, problem: str, hint: str = _MEND) -> SchemaInvalid:
    return SchemaInvalid(f"{path}:{line}: {problem}.", hint=hint)


def _read(path: Path) -> str:
    """The file's text; a pipe, device or dangling link is refused before it could block."""
    try:
        if not path.is_file():
            raise _broken(path, 1, "not a file, or a link that leads nowhere", "Remove or replace it.")
        with path.open("rb") as stream:
            raw = stream.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        raise _broken(path, 1, f"cannot be read: {error.strerror}", "Mend its permissions.") from error
    if len(raw) > SIZE_LIMIT_BYTES:
        raise _broken(path, 1, f"larger than {SIZE_LIMIT_BYTES // 1024} KiB", "Shorten it: one type a file.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _broken(path, line, "not UTF-8 text", "Save the file as UTF-8.") from error


def _parse(path: Path, text: str) -> _Document:
    import yaml  # kept off the server's cold start
    from yaml.reader import Reader

    control = Reader.NON_PRINTABLE.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        raise _broken(path, line, f"holds the control character {control.group()!r}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _document(path, text, loader)
    except yaml.MarkedYAMLError as error:
        line = next((m.line + 1 for m in (error.problem_mark, error.context_mark) if m is not None), 1)
        parts = [part for part in (error.context, error.problem) if part]
        raise _broken(path, line, f"not valid YAML: {', '.join(parts)}") from error


@lru_cache(maxsize=32)  # each store that a process opens has the built-in types
def _document(path: Path, text: str, loader: type[Any]) -> _Document:
    import yaml

    return _EventReader(path, yaml, yaml.parse(text, Loader=loader)).document()


@dataclass(slots=True)
class _EventReader:
    """Builds plain values from YAML events, noting lines; see the module's docstring for why not ``load``."""

    path: Path
    yaml: Any
    events: Iterator[Any]
    lines: dict[_Location, int] = field(default_factory=dict)
    anchors: dict[str, Any] = field(default_factory=dict)

    def document(self) -> _Document:
        """Read the one document that the file may hold."""
        value: Any = None
        documents = 0
        for event in self.events:
            if isinstance(event, self.yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._fault(event, "a file holds one memory type, and this is a second document")
                value = self._value(next(self.events), ())
        if not isinstance(value, dict):
            problem = "the file is empty" if value is None else "a memory type is a mapping: name, …"
            raise _broken(self.path, self.lines.get((), 1), problem)
        return _Document(self.path, value, self.lines)

    def _value(self, event: Any, location: _Location) -> Any:
        self.lines.setdefault(location, event.start_mark.line + 1)
        if isinstance(event, self.yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self._fault(event, f"the alias *{event.anchor} has no anchor before it")
            return self.anchors[event.anchor]
        if event.tag is not None:
            raise self._fault(event, f"the tag {event.tag} is not allowed")
        if len(location) > _DEPTH_LIMIT:
            raise self._fault(event, f"nested deeper than {_DEPTH_LIMIT} levels")
        value: Any
        if isinstance(event, self.yaml.ScalarEvent):
            value = None if not event.style and event.value in _NULLS else event.value
        elif isinstance(event, self.yaml.SequenceStartEvent):
            value = self._sequence(location)
        else:
            value = self._mapping(location)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def _sequence(self, location: _Location) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
            items.append(self._value(event, (*location, len(items))))
        return items

    def _mapping(self, location: _Location) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, self.yaml.ScalarEvent):
                raise self._fault(event, "a key must be plain text")
            key = event.value
            if key in entries:
                raise self._fault(event, f"the key '{key}' appears twice")
            self.lines[*location, key] = line
            entries[key] = self._value(next(self.events), (*location, key))
        return entries

    def _fault(self, event: Any, problem: str) -> SchemaInvalid:
        return _broken(self.path, event.start_mark.line + 1, problem)


def _validate(document: _Document) -> tuple[MemoryType | None, list[SchemaInvalid]]:
    try:
        memory_type = MemoryType.model_validate(document.value)
    except ValidationError as error:
        return None, [_fault_of(document, dict(fault)) for fault in error.errors(include_url=False)[:10]]
    faults = [
        _broken(document.path, document.line_of((key,)), f"{key}: {problem}")
        for key, problem in _misplacements(memory_type)
    ]
    return (None if faults else memory_type), faults


def _fault_of(document: _Document, fault: dict[str, Any]) -> SchemaInvalid:
    """Say a pydantic error in the file's own terms."""
    location: _Location = fault["loc"]
    key = str(location[-1]) if location else ""
    if fault["type"] in ("missing", "extra_forbidden"):
        allowed = ", ".join(_model_at(location).model_fields)
        problem = f"the key '{key}' is {'missing' if fault['type'] == 'missing' else 'unknown'}"
        return _broken(document.path, document.line_of(location), problem, f"Keys allowed here: {allowed}.")
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "value_error":
        return _broken(document.path, document.line_of(location or _cause(document, message)), message)
    shown = f" (it is {fault['input'][:40]!r})" if isinstance(fault["input"], str) else ""
    return _broken(document.path, document.line_of(location), f"{_dotted(location)}: {message}{shown}")


def _cause(document: _Document, message: str) -> _Location:
    """Where to look for a fault that concerns the type as a whole: the template or field it names."""
    for key in ("filename_template", "content_template"):
        if message.startswith(key):
            return (key,)
    fields = document.value.get("fields")
    for index, declared in enumerate(fields if isinstance(fields, list) else ()):
        if isinstance(declared, dict) and message.startswith(f"field '{declared.get('name')}'"):
            return ("fields", index)
    return ("fields",)


def _model_at(location: _Location) -> type[BaseModel]:
    if len(location) > 3:
        return Average
    return MemoryField if len(location) > 1 else MemoryType


def _dotted(location: _Location) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "the file"


def _misplacements(memory_type: MemoryType) -> Iterator[tuple[str, str]]:
    """(key, problem) wherever a type's memories could land outside the place of memories."""
    if _DIRECTORY.fullmatch(memory_type.directory) is None:
        begin = "viking://user/{user_space}/memories or viking://agent/{agent_space}/memories"
        yield "directory", f"it must begin with {begin} and use no other placeholder"
    else:
        try:
            MemoryUri.parse(PLACEHOLDER.sub("x", memory_type.directory))
        except InvalidUri as error:
            yield "directory", error.message.rstrip(".")
    literal = PLACEHOLDER.sub("", memory_type.filename_template)
    if "{" in literal or "}" in literal:
        yield "filename_template", "a placeholder is {field} and nothing else"
    elif _UNSAFE_IN_NAME.search(literal):
        yield "filename_template", 'it holds one of <>:"/\\|?*, which no portable file name has'
    for name in memory_type.key_fields:
        declared = memory_type.field(name)
        if declared is not None and declared.merge_op in (MergeOp.AVG, MergeOp.SUM):
            yield "filename_template", f"the field '{name}' changes with every commit and cannot name a file"
