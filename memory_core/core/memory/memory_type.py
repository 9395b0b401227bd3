"""Memory types by name: YAML files in, ``MemoryType`` values out.

Owns the reading of ``schemas/*.yaml`` (one type a file), the rules of where a type may live, and the names
that other systems give to the same categories. Promises that a broken file is reported with its line and
never keeps another one from loading. Does not render, merge or store anything.

YAML is read as events and typed by the model, not by YAML's own guesses: ``2026-03-17`` and ``no`` stay text
where text is declared, tags cannot build objects, and deep nesting is refused before it can exhaust a stack
(libyaml's composer would crash the process).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from memory_core.core.errors import InvalidUri, NotFound, SchemaInvalid
from memory_core.core.frozen import frozen
from memory_core.core.memory.metadata import RESERVED_KEYS
from memory_core.core.memory.results import as_json
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.record import Fault, Record, RecordInvalid, Shaped, Within
from memory_core.core.text.unicode_form import unicode_form
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

#: A text field's ``format``: a date, stored as YYYY-MM-DD, YYYY-MM, YYYY, or two days with ``..`` between them.
DATE_FORMAT = "date"
#: A number's ``format``: one numeric placeholder, such as ``{:.1f}`` or ``{:,d}``, in literal text.
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


class Average(Record):
    """A derived mean: ``scale * fields[sum] / fields[count]``; never stored."""

    sum: str
    count: str
    scale: float = 1.0


class MemoryField(Record):
    """One declared field of a memory type."""

    name: Annotated[str, Shaped(r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
    type: FieldType = FieldType.STRING
    description: str = ""
    merge_op: MergeOp = MergeOp.PATCH
    avg: Average | None = None
    format: str | None = None

    def problem(self) -> tuple[str, str] | None:
        """A format that fits no number, a reserved name, or a merge operation that does not fit the type."""
        if self.format is not None and (wrong := self._format_problem(self.format)) is not None:
            return "format", wrong
        numeric = self.type in (FieldType.INT64, FieldType.FLOAT32)
        if self.name in RESERVED_KEYS:
            return "", f"field name '{self.name}' is reserved for metadata; choose another"
        if (self.merge_op is MergeOp.AVG) != (self.avg is not None):
            return "", f"field '{self.name}': merge_op avg and an avg block {{sum, count}} go together"
        if self.merge_op in (MergeOp.SUM, MergeOp.AVG) and not numeric:
            return "", f"field '{self.name}': merge_op {self.merge_op} needs type int64 or float32"
        return None

    def _format_problem(self, value: str) -> str | None:
        if value == DATE_FORMAT:
            return None if self.type is FieldType.STRING else f"format date needs type string, not {self.type}"
        match = FORMAT.fullmatch(value)
        if match is None:
            return (
                f"format {value!r} must hold exactly one of {{:.1f}} (0 to 9 decimals), {{:d}}, "
                "each also with a comma for thousands, and may have text around it"
            )
        if self.type in (FieldType.STRING, FieldType.BOOL):
            return f"a format needs type int64 or float32, not {self.type}"
        if self.type is FieldType.FLOAT32 and match["kind"] == "d":
            return f"format {value!r} is for int64; a float32 needs decimals, such as {{:.0f}}"
        return None


class MemoryType(Record):
    """One kind of memory, as its YAML declares it.

    ``directory`` and ``filename_template`` decide where a memory lives; the fields named by
    ``filename_template`` are its *key*. Without ``content_template`` the type is in *simple mode*: the
    file's body is the ``content`` field. With it, in *template mode*: the body is rendered.
    """

    name: Annotated[str, Shaped(r"^[a-z][a-z0-9_]*\Z", 64)]
    description: str
    directory: Annotated[str, Shaped(r"^viking://")]
    filename_template: Annotated[str, Shaped(r"\.md\Z")]
    content_template: str | None = None
    fields: tuple[MemoryField, ...]
    enabled: bool = True
    operation_mode: OperationMode = OperationMode.UPSERT
    project: ProjectMode = ProjectMode.NAMED
    salience: Annotated[float, Within(0, 1)] = 0.5
    expires_after_days: Annotated[float, Within(above=0, most=36_500)] | None = None
    half_life_days: Annotated[float, Within(above=0)] | None = None
    overview_template: str | None = None

    def problem(self) -> tuple[str, str] | None:
        """A field that is named and not declared, or declared twice."""
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            return "", f"type '{self.name}' declares a field twice"
        templates = {"filename_template": self.filename_template, "content_template": self.content_template}
        for which, template in templates.items():
            if unknown := [key for key in PLACEHOLDER.findall(template or "") if key not in names]:
                return "", f"{which} names unknown fields: {', '.join(unknown)}"
        if self.content_template is None and CONTENT not in names:
            return "", "a type without content_template needs a field named 'content'"
        for declared in self.fields:
            operands = () if declared.avg is None else (declared.avg.sum, declared.avg.count)
            if strange := [operand for operand in operands if operand not in names]:
                return "", f"field '{declared.name}': avg refers to unknown field '{strange[0]}'"
        return None

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
    folded = unicode_form("NFKC", name).casefold()
    category = " ".join(re.split(r"[\s_-]+", folded)).strip()
    known = word_table(__file__)["categories"]
    return next((memory_type for memory_type, categories in known.items() if category in categories), None)


class MemoryTypeRegistry:
    """The memory types of one store.

    Args:
        folders: Loaded when a type is first asked for: the built-in one first and the user's after it, since a later
            type replaces an earlier one of its name.
    """

    def __init__(self, *folders: Path) -> None:
        self._unread = folders
        self._guard = threading.RLock()
        self._loaded: dict[str, MemoryType] = {}
        self._places: dict[tuple[str, ...], list[MemoryType]] = {}
        self._problems: dict[Path, list[SchemaInvalid]] = {}

    @property
    def _types(self) -> dict[str, MemoryType]:
        if self._unread:
            with self._guard:
                for folder in self._unread:
                    self.load_from_dir(folder)
                self._unread = ()
        return self._loaded

    @property
    def problems(self) -> tuple[SchemaInvalid, ...]:
        """What could not be loaded, folder by folder; loading a folder again replaces its part."""
        _ = self._types
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
        found = self.find(name)
        if found is None:
            state = "enabled" if name in self._types else "known"
            raise NotFound(f"no memory type '{name[:64]}' is {state}.", hint=self._suggestion(name))
        return found

    def find(self, name: str) -> MemoryType | None:
        """The enabled type of that name, or None."""
        found = self._types.get(name)
        return found if found is not None and found.enabled else None

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
        entries = [each for each in entries if not each.name.startswith(".") and each.suffix.lower() in _SUFFIXES]
        if (compiled := _compiled(path, entries)) is not None:
            for known in compiled:
                self._add(known)
            return problems
        declared: dict[str, Path] = {}
        for entry in entries:
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
        self._loaded[memory_type.name] = memory_type
        self._places = {}
        for known in self._loaded.values():
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


def compiled_types(path: Path) -> str:
    """The text of ``types.json`` for a folder of sound files: their types, and the digest of what they were read from.

    Importing a YAML parser and reading the built-in types takes longer than a commit.
    """
    types = MemoryTypeRegistry(path).list_all()
    facts = {"sha256": _digest(sorted(path.glob("*.yaml"))), "types": as_json(types)}
    return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"


def _compiled(path: Path, files: Sequence[Path]) -> tuple[MemoryType, ...] | None:
    """The types of a folder as they were compiled; None where they were not, or a file changed since then."""
    try:
        digest, types = _read_types((path / "types.json").read_bytes())
        return types if digest == _digest(files) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(2)
def _read_types(compiled: bytes) -> tuple[str, tuple[MemoryType, ...]]:
    """The digest and the types of a ``types.json``; stores that one process opens share them."""
    facts = json.loads(compiled)
    return facts["sha256"], tuple(MemoryType.model_validate(each) for each in facts["types"])


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)).hexdigest()


@frozen
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


@lru_cache(maxsize=32)  # each store that a process opens has the built-in types
def _parse(path: Path, text: str) -> _Document:
    import yaml  # kept off the server's cold start
    from yaml.reader import Reader

    control = Reader.NON_PRINTABLE.search(text)
    if control is not None:
        line = text.count("\n", 0, control.start()) + 1
        raise _broken(path, line, f"holds the control character {control.group()!r}")
    try:
        events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _EventReader(path, yaml, events).document()
    except yaml.MarkedYAMLError as error:
        line = next((m.line + 1 for m in (error.problem_mark, error.context_mark) if m is not None), 1)
        parts = [part for part in (error.context, error.problem) if part]
        raise _broken(path, line, f"not valid YAML: {', '.join(parts)}") from error


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
    except RecordInvalid as error:
        return None, [_fault_of(document, fault) for fault in error.faults[:10]]
    faults = [
        _broken(document.path, document.line_of((key,)), f"{key}: {problem}")
        for key, problem in _misplacements(memory_type)
    ]
    return (None if faults else memory_type), faults


def _fault_of(document: _Document, fault: Fault) -> SchemaInvalid:
    """Say a fault in the file's own terms."""
    location = fault.location
    key = str(location[-1]) if location else ""
    if fault.kind in ("missing", "extra_forbidden"):
        allowed = ", ".join(_record_at(location).names())
        problem = f"the key '{key}' is {'missing' if fault.kind == 'missing' else 'unknown'}"
        return _broken(document.path, document.line_of(location), problem, f"Keys allowed here: {allowed}.")
    message = fault.message
    if fault.kind == "value_error":
        return _broken(document.path, document.line_of(location or _cause(document, message)), message)
    shown = f" (it is {fault.given[:40]!r})" if isinstance(fault.given, str) else ""
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


def _record_at(location: _Location) -> type[Record]:
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
