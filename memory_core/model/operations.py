"""MemoryOperations: what a model, or a person's client, asks to be changed.

This is an edge: shapes are lenient (extra keys are ignored and reported by ``extras``), meaning is checked
by the planner, one operation at a time.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

Unit = Annotated[float, Field(ge=0.0, le=1.0)]
Scalar = str | int | float | bool


class _Lenient(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    def extras(self) -> list[str]:
        """Keys that were given but mean nothing here."""
        return sorted(self.model_extra or {})


class SearchReplace(_Lenient):
    """One SEARCH/REPLACE block in its structured form."""

    search: str
    replace: str
    start_line: int | None = None


Patch = Scalar | list[SearchReplace]


class MemoryData(_Lenient):
    """The content of a memory to create or replace."""

    memory_type: str
    fields: dict[str, Scalar | None] = Field(default_factory=dict)
    abstract: str | None = None
    overview: str | None = None
    salience: Unit | None = None
    confidence: Unit | None = None
    category: str | None = None
    tags: list[str] | None = None


class WriteOp(_Lenient):
    """Create a memory, or replace the given fields of the one with the same key or ``uri``."""

    uri: str | None = None
    memory_data: MemoryData


class EditOp(_Lenient):
    """Patch named fields of an existing memory."""

    uri: str
    patches: dict[str, Patch]


class DeleteOp(_Lenient):
    """Remove a memory; ``replacement_uri`` names where its knowledge moved."""

    uri: str
    replacement_uri: str | None = None
    reason: str | None = None


class OverviewOp(_Lenient):
    """Set a directory's one-line abstract (L0) or overview (L1); each may be a SEARCH/REPLACE patch."""

    directory_uri: str
    abstract: str | None = None
    overview: str | None = None


class MemoryOperations(_Lenient):
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
