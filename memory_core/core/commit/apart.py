"""Writes that name a type but are no memories: entries of the day's log, and the rolling summary.

They are taken out of the operations before the plan and put back into its change set in their places. Pure.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import ContentRejected, RunebookError, TooLarge
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.operations import MemoryOperations, WriteOp, check_text, shown
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.store.local import Snapshot
from memory_core.features import daily_logs
from memory_core.features.log_entries import MEMORY_TYPE as DAILY_LOGS
from memory_core.features.rolling_summary import (
    NAME,
    RollingSummary,
    dump_rolling_summary,
    read_rolling_summary,
    rolling_summary_uri,
)

_SUMMARY_NAMES = frozenset({"rolling summary", "rollingsummary", "滚动摘要", "滚动总结"})


@dataclass(frozen=True, slots=True)
class Apart:
    """The writes by their places: to the log among all that are no summary, to the summary among all."""

    logged: Mapping[int, WriteOp]
    summaries: Mapping[int, WriteOp]


def stands_apart(name: str | None) -> str | None:
    """What a memory type or category of this name stands for, if it is no memory; else None."""
    if daily_logs.is_log_name(name):
        return DAILY_LOGS
    return NAME if _is_summary_name(name) else None


def split(operations: MemoryOperations) -> tuple[Apart, MemoryOperations]:
    """The writes that are no memories, and the operations without them."""
    writes = operations.write_operations
    summaries = {place: write for place, write in enumerate(writes) if _is_summary_name(write.memory_data.memory_type)}
    if summaries:
        rest = [write for place, write in enumerate(writes) if place not in summaries]
        operations = operations.model_copy(update={"write_operations": rest})
    logged, operations = daily_logs.split(operations)
    return Apart(logged, summaries), operations


def placed(decided: ChangeSet, apart: Apart, snapshot: Snapshot, context: PlanContext, moment: datetime) -> ChangeSet:
    """The change set with the log's entries, and the rolling summary replaced by the last one that was written."""
    decided = daily_logs.appended(decided, apart.logged, snapshot, context, moment)
    if not apart.summaries:
        return decided
    uri = rolling_summary_uri(context.user_space)
    before = text = snapshot.text(uri)
    results = list(decided.results)
    for place, write in apart.summaries.items():
        try:
            written = _written(write, text, context)
        except RunebookError as error:
            refused = OperationResult("write", str(uri), Action.REJECTED, shown(error.message), shown(error.hint))
            results.insert(place, refused)
            continue
        action = Action.CREATED if text is None else Action.UNCHANGED if written == text else Action.UPDATED
        text = written
        results.insert(place, OperationResult("write", str(uri), action))
    changes = decided.changes if text == before else (*decided.changes, FileChange(uri, before, text))
    return replace(decided, changes=changes, results=tuple(results))


def _written(write: WriteOp, before: str | None, context: PlanContext) -> str:
    """The file with what was written; the same file where it says so already."""
    check_text(write)
    content = write.memory_data.fields.get(CONTENT)
    if not isinstance(content, str) or not content.strip():
        raise ContentRejected(
            "a rolling summary without text says nothing.",
            hint="Give content; runebook summary --clear lets it be made anew.",
        )
    if context.belonging.confined:
        raise ContentRejected(
            "the rolling summary is seen in every project, and this commit is private to one.",
            hint="Leave private out, or keep it as a note.",
        )
    stored = read_rolling_summary(before)
    said = content.strip()
    if before is not None and stored is not None and stored.authored and stored.text == said:
        return before
    summary = RollingSummary(said, True, created_at=None if stored is None else stored.created_at)
    text = dump_rolling_summary(summary, context.now, context.source)
    if len(text.encode("utf-8")) > context.content_bytes:
        raise TooLarge(f"the summary has more than {context.content_bytes:,} bytes.", hint="Shorten it.")
    return text


def _is_summary_name(name: str | None) -> bool:
    if name is None:
        return False
    folded = unicodedata.normalize("NFKC", name).casefold().replace("_", " ").replace("-", " ")
    return " ".join(folded.split()) in _SUMMARY_NAMES
