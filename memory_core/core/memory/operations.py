"""What a model, a client or a person asks to change: operations, each of which stands alone.

Also the model's step in the update loop, and what no operation may hold: NUL, half of a surrogate pair, blank content.
What may be given of the metadata is declared in ``metadata``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, create_model
from pydantic.json_schema import SkipJsonSchema

from memory_core.core.errors import ContentRejected, MemoryChanged, RunebookError
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.metadata import METADATA, Kind
from memory_core.core.memory.results import Action, OperationResult

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Scalar = str | int | float | bool


class LenientModel(BaseModel):
    """Keeps keys it does not know, so that they can be reported."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", defer_build=True)

    def extras(self) -> list[str]:
        """Keys that were given but mean nothing here."""
        return sorted(self.model_extra or {})


class SearchReplace(LenientModel):
    """One SEARCH/REPLACE block in its structured form."""

    search: str
    replace: str
    start_line: int | None = None


Patch = Scalar | list[SearchReplace]


#: Of what a refusal quotes.
_REFUSAL_CHARS = 4_000
#: What a link may say; the other end says the same, or the passive.
LINK_RELATIONS = ("similar", "supports", "contradicts", "refines", "replaces")


class GivenLink(LenientModel):
    """How a memory relates to another: ``similar``, ``supports``, ``contradicts``, ``refines`` or ``replaces``."""

    uri: str
    relation: str = "similar"
    strength: Unit = 0.5


class GivenMetadata(LenientModel):
    """What an operation may say of a memory beside its content; what is left out stays as it is.

    Its members are the keys of ``metadata.METADATA`` that whoever acts may give.
    """

    @property
    def given(self) -> dict[str, Any]:
        """The metadata that was given, by key."""
        known = type(self).model_fields
        names = (field.name for field in METADATA if field.given_by and field.name in known)
        return {name: value for name in names if (value := getattr(self, name)) is not None}


#: The type of a member, by what the metadata holds.
MEMBER_TYPES: Mapping[Kind, Any] = {
    Kind.TEXT: str,
    Kind.TEXTS: list[str],
    Kind.SHARE: Unit,
    Kind.FLAG: bool,
    Kind.TIME: str,
}


def _members(acts: str) -> dict[str, Any]:
    """The members of an operation, for pydantic; those that its schema does not name are skipped there."""
    members: dict[str, Any] = {}
    skipped: Any = SkipJsonSchema
    for field in METADATA:
        if acts in field.given_by:
            optional = MEMBER_TYPES[field.kind] | None
            members[field.name] = (optional if acts in field.shown_in else skipped[optional], None)
    return members


if TYPE_CHECKING:
    _WriteMetadata = GivenMetadata
    _EditMetadata = GivenMetadata
else:
    _WriteMetadata = create_model("WriteMetadata", __base__=GivenMetadata, **_members("write"))
    _EditMetadata = create_model("EditMetadata", __base__=GivenMetadata, **_members("edit"))


class MemoryData(_WriteMetadata):
    """The content of a memory to create, or to add to one."""

    memory_type: str
    fields: dict[str, Scalar | None] = Field(default_factory=dict)
    links: list[GivenLink] | None = None
    _source: dict[str, str] = PrivateAttr(default_factory=dict)
    _said_at: str | None = PrivateAttr(default=None)

    @property
    def source(self) -> Mapping[str, str]:
        """What Runebook itself knows about where a new memory comes from; never part of the JSON."""
        return self._source

    @property
    def said_at(self) -> str | None:
        """When a memory from elsewhere was made, ISO 8601 in UTC; None is now. Never part of the JSON."""
        return self._said_at

    def sourced(self, source: Mapping[str, str], said_at: str | None = None) -> Self:
        """Note its source (kind, tool, error type and the like); returns itself."""
        self._source = dict(source)
        self._said_at = said_at
        return self


class WriteOp(LenientModel):
    """Create a memory, or add to the one with the same key or ``uri``; text of it goes only with ``replace``."""

    uri: str | None = None
    replace: bool = False
    memory_data: MemoryData


class EditOp(_EditMetadata):
    """Patch named fields of an existing memory, or change its metadata, or both."""

    uri: str
    patches: dict[str, Patch] = Field(default_factory=dict)
    links: list[GivenLink] | None = None


class DeleteOp(LenientModel):
    """Remove a memory; ``replacement_uri`` names where its knowledge moved."""

    uri: str
    replacement_uri: str | None = None
    reason: str | None = None


class OverviewOp(LenientModel):
    """Set a directory's one-line abstract (L0) or overview (L1); each may be a SEARCH/REPLACE patch."""

    directory_uri: str
    abstract: str | None = None
    overview: str | None = None


#: The kinds of operations, in the order of a receipt's results.
GROUPS = ("write_operations", "edit_operations", "delete_operations", "overview_operations")


class MemoryOperations(LenientModel):
    """All changes of one commit; each stands alone."""

    #: Of the brief that they answer, as a client's own model was told it. The server's own model is not asked for it.
    brief_id: SkipJsonSchema[str | None] = None
    reasoning: str | None = None
    write_operations: list[WriteOp] = Field(default_factory=list)
    edit_operations: list[EditOp] = Field(default_factory=list)
    delete_operations: list[DeleteOp] = Field(default_factory=list)
    overview_operations: list[OverviewOp] = Field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(getattr(self, group)) for group in GROUPS)


def flatten_extras(operations: MemoryOperations) -> list[str]:
    """Dotted paths of every ignored key, for the receipt."""
    found = operations.extras()
    for group in GROUPS:
        for index, item in enumerate(getattr(operations, group)):
            for path, model in _models(item, f"{group}[{index}]"):
                found += [f"{path}.{key}" for key in model.extras()]
    return found


def _models(model: LenientModel, path: str) -> Iterator[tuple[str, LenientModel]]:
    """A model and those inside it, each with its path."""
    yield path, model
    for name in type(model).model_fields:
        value = getattr(model, name)
        for key, member in value.items() if isinstance(value, Mapping) else [("", value)]:
            at = f"{path}.{name}.{key}" if key else f"{path}.{name}"
            inside = [(f"{at}[{index}]", each) for index, each in enumerate(member)] if isinstance(member, list) else []
            for place, each in [(at, member), *inside]:
                if isinstance(each, LenientModel):
                    yield from _models(each, place)


class MemoryChange(LenientModel):
    """A change that the model has in mind: add, update, delete, or noop with the reason why not."""

    change_type: Literal["add", "update", "delete", "noop"]
    memory_type: str
    uri: str | None = None
    reason: str = ""


class ReadParams(LenientModel):
    """Arguments of a read action; each action uses some of them."""

    uri: str | None = None
    query: str | None = None
    limit: int | None = None
    offset: int | None = None


class ReadAction(LenientModel):
    """Something to look at before deciding. The model has read tools only."""

    action_type: Literal["read", "find", "ls", "tree"]
    params: ReadParams = Field(default_factory=ReadParams)


class ReasoningAction(LenientModel):
    """The model's answer in one step.

    Attributes:
        reasoning: Its thinking in a few sentences; with no change at all, the reason why.
        memory_changes: What it means to change.
        actions: What it needs to read first; empty when it knows enough.
        operations: The final output; ignored while there are actions.
        summary: The conversation in two or three sentences, for the context after compaction.
    """

    reasoning: str = ""
    memory_changes: list[MemoryChange] = Field(default_factory=list)
    actions: list[ReadAction] = Field(default_factory=list)
    operations: MemoryOperations | None = None
    summary: str | None = None


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


def escaped(text: str) -> str:
    """The text with half surrogate pairs written as escapes, so that it can be stored and sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def refusal(op: str, uri: str, error: RunebookError) -> OperationResult:
    """The line of a receipt about an operation that was refused."""
    conflict = isinstance(error, MemoryChanged)
    message, hint = escaped(error.message), escaped(error.hint)
    return OperationResult(op, escaped(uri), Action.REJECTED, message, hint, conflict=conflict).clipped(_REFUSAL_CHARS)


def check_text(op: BaseModel) -> None:
    """Refuse an operation that no text file should hold.

    Raises:
        ContentRejected: For NUL characters or lone surrogates in any key or value, or a blank ``content``.
    """
    for name, text in _texts("", op.model_dump(exclude_none=True)):
        if "\x00" in text:
            raise ContentRejected(f"'{name}' holds a NUL character.", hint="Remove it and send the text again.")
        if escaped(text) != text:
            raise ContentRejected(
                f"'{name}' holds half of a surrogate pair, which is not text.",
                hint="Send the complete character, or leave it out.",
            )
        if name == CONTENT and not text.strip():
            raise ContentRejected("the content is blank.", hint="Say what is to be remembered.")


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every text in a JSON value with the name it goes by; names are texts too."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield f"name of {name or 'a member'}", str(key)
            yield from _texts(str(key), item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(name, item)
