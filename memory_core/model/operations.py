"""MemoryOperations: what a model, or a person's client, asks to be changed.

This is an edge: shapes are lenient (extra keys are ignored and reported by ``extras``), meaning is checked
by the planner, one operation at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Scalar = str | int | float | bool


class LenientModel(BaseModel):
    """Keeps keys it does not know, so that they can be reported."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    def extras(self) -> list[str]:
        """Keys that were given but mean nothing here."""
        return sorted(self.model_extra or {})


class SearchReplace(LenientModel):
    """One SEARCH/REPLACE block in its structured form."""

    search: str
    replace: str
    start_line: int | None = None


Patch = Scalar | list[SearchReplace]


#: What a link may say; the other end says the same, or the passive.
LINK_RELATIONS = ("similar", "supports", "contradicts", "refines", "replaces")


class Link(LenientModel):
    """How a memory relates to another: ``similar``, ``supports``, ``contradicts``, ``refines`` or ``replaces``."""

    uri: str
    relation: str = "similar"
    strength: Unit = 0.5


class Standing(LenientModel):
    """What may be said of a memory beside its content; a member that is left out stays as it is.

    ``pinned`` keeps it from ever being condensed or archived by itself; ``expires_at`` is an ISO date or time, empty
    for never; ``active: false`` puts it to rest: kept and readable, but neither found nor recalled. A person or a
    client says so; the schema that a model's answer is held to leaves most of it out, for providers bound how much is
    optional.
    """

    salience: Annotated[Unit | None, SkipJsonSchema()] = None
    confidence: Annotated[Unit | None, SkipJsonSchema()] = None
    tags: Annotated[list[str] | None, SkipJsonSchema()] = None
    pinned: Annotated[bool | None, SkipJsonSchema()] = None
    expires_at: Annotated[str | None, SkipJsonSchema()] = None
    active: Annotated[bool | None, SkipJsonSchema()] = None


class MemoryData(Standing):
    """The content of a memory to create or replace."""

    memory_type: str
    fields: dict[str, Scalar | None] = Field(default_factory=dict)
    abstract: str | None = None
    overview: str | None = None
    salience: Unit | None = None
    confidence: Unit | None = None
    expires_at: str | None = None
    tags: list[str] | None = None
    category: str | None = None
    links: list[Link] | None = None
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
        """The same with a source: kind, tool, error type and the like."""
        self._source = dict(source)
        self._said_at = said_at
        return self


class WriteOp(LenientModel):
    """Create a memory, or replace the given fields of the one with the same key or ``uri``."""

    uri: str | None = None
    memory_data: MemoryData


class EditOp(Standing):
    """Patch named fields of an existing memory, or change its standing, or both."""

    uri: str
    patches: dict[str, Patch] = Field(default_factory=dict)
    links: list[Link] | None = None


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


class MemoryOperations(LenientModel):
    """All changes of one commit; each stands alone."""

    reasoning: str | None = None
    write_operations: list[WriteOp] = Field(default_factory=list)
    edit_operations: list[EditOp] = Field(default_factory=list)
    delete_operations: list[DeleteOp] = Field(default_factory=list)
    overview_operations: list[OverviewOp] = Field(default_factory=list)

    def __len__(self) -> int:
        return (
            len(self.write_operations)
            + len(self.edit_operations)
            + len(self.delete_operations)
            + len(self.overview_operations)
        )


def flatten_extras(operations: MemoryOperations) -> list[str]:
    """Dotted paths of every ignored key, for the receipt."""
    found = operations.extras()
    groups: dict[str, list[Any]] = {
        "write_operations": list(operations.write_operations),
        "edit_operations": list(operations.edit_operations),
        "delete_operations": list(operations.delete_operations),
        "overview_operations": list(operations.overview_operations),
    }
    for group, items in groups.items():
        for index, item in enumerate(items):
            found += [f"{group}[{index}].{key}" for key in item.extras()]
            if isinstance(item, WriteOp):
                found += [f"{group}[{index}].memory_data.{key}" for key in item.memory_data.extras()]
    return found
