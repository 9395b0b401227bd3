"""Operations decided: the plan of memories, and beside it the writes for files that are no memories.

Such a write names a kind of records in the place of a memory type. It is taken out before the plan, and its result is
put back in its place. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from memory_core.core.commit.plan import plan
from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import RunebookError
from memory_core.core.feature import Features, RecordKind
from memory_core.core.memory.operations import MemoryOperations, WriteOp, refusal
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.store.local import Snapshot


def decide(
    operations: MemoryOperations, snapshot: Snapshot, context: PlanContext, moment: datetime, features: Features
) -> ChangeSet:
    """What operations change; a result for each, in their order.

    Args:
        operations: As a model or a person gave them.
        snapshot: The store as it is.
        context: Of the commit.
        moment: Its time, with the offset that decides the day.
        features: Their kinds of records take writes.
    """
    apart: dict[RecordKind, dict[int, WriteOp]] = {}
    memories: list[WriteOp] = []
    for place, write in enumerate(operations.write_operations):
        kind = features.kind_for(write.memory_data.memory_type)
        if kind is None:
            memories.append(write)
        else:
            apart.setdefault(kind, {})[place] = write
    if not apart:
        return plan(operations, snapshot, context)
    decided = plan(operations.model_copy(update={"write_operations": memories}), snapshot, context)
    changes: list[FileChange] = list(decided.changes)
    found: dict[int, OperationResult] = {}
    for kind, writes in apart.items():
        uri = kind.target(context, moment)
        before = snapshot.text(uri)
        pieces = [] if before is None else [before]
        size = len(before or "")
        for place, write in writes.items():
            last = pieces[-1] if pieces else None
            try:
                piece, note = kind.with_write(last, write, context, moment)
                size_after = len(piece) + (size if kind.is_appended else 0)
                kind.check_size(uri, size_after)
            except RunebookError as error:
                found[place] = refusal("write", str(uri), error)
                continue
            size = size_after
            same = piece == last and not kind.is_appended
            action = Action.CREATED if last is None else Action.UNCHANGED if same else Action.UPDATED
            found[place] = OperationResult("write", str(uri), action, note=note or None)
            pieces = pieces if kind.is_appended else []
            pieces.append(piece)
        after = "".join(pieces) if pieces else None
        if after != before:
            changes.append(FileChange(uri, before, after, appended=kind.is_appended))
    rest = iter(decided.results)
    results = [found[place] if place in found else next(rest) for place in range(len(operations.write_operations))]
    return replace(decided, changes=tuple(changes), results=(*results, *rest))
