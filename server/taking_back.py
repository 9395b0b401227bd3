"""``commit_memory(undo=…)`` and ``commit_memory(forget=…)``: what a conversation may take back by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory_core.errors import InvalidInput

if TYPE_CHECKING:
    from memory_core.memory import Memory
    from memory_core.model.changes import CommitReceipt

#: Arguments that may stand beside ``undo`` and ``forget``.
_BESIDE = frozenset({"request_id", "dry_run", "project"})


def stands_alone(name: str, beside: Mapping[str, Any]) -> None:
    """Refuse to leave out in silence what a call gives beside something that is a call of its own.

    Raises:
        InvalidInput: If anything is given that this would leave out.
    """
    other = [given for given, value in beside.items() if given not in _BESIDE and value is not None]
    if other:
        raise InvalidInput(
            f"{name} stands alone, not beside {', '.join(other)}: nothing was done.",
            hint=f"Send {name} in a call of its own, then the rest.",
        )


def take_back(
    memory: Memory, undo: str | None, forget: Mapping[str, Any] | None, beside: Mapping[str, Any], here: str | None
) -> CommitReceipt:
    """Undo a commit, or forget what a search finds.

    Args:
        memory: The store, as the caller sees it.
        undo: A commit's id; "last" is the newest by the same client.
        forget: See ``model.forgetting.ForgetRequest``.
        beside: The other arguments of the call.
        here: The project that the caller works in.

    Raises:
        InvalidInput: If both are given, or something else that is to be stored.
    """
    from memory_core.storage.author import current_author

    name, other = ("undo", {"forget": forget}) if undo is not None else ("forget", {})
    stands_alone(name, {**other, **beside})
    request_id, dry_run = beside["request_id"], bool(beside["dry_run"])
    if undo is not None:
        return memory.undo(undo, author=current_author(), request_id=request_id, dry_run=dry_run)
    return memory.forget(forget or {}, request_id=request_id, dry_run=dry_run, project=beside["project"], here=here)
