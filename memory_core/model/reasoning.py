"""One step of the update loop as the model answers it: what should change, what to read first, operations.

An edge like ``operations``: shapes are lenient, meaning is checked where it is used. A step with operations and
no actions ends the loop.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from memory_core.model.operations import LenientModel, MemoryOperations


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
