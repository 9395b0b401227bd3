"""Additions to the log of the day: which writes are meant for it, and what they become.

Owned here: the log's names among memory types, and the checks of an entry. The file's form is ``model.daily_log``; an
entry like the one before it is still an entry. Pure; the moment, with the offset of the clock on the wall, is given.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from memory_core.core.commit.working_copy import PlanContext
from memory_core.core.errors import ContentRejected, InvalidInput, RunebookError, TooLarge
from memory_core.core.memory.memory_type import CONTENT
from memory_core.core.memory.metadata import ACTIVE, EXPIRES_AT, PINNED
from memory_core.core.memory.operations import MemoryOperations, WriteOp, check_text, shown
from memory_core.core.memory.results import Action, ChangeSet, FileChange, OperationResult
from memory_core.core.store.local import Snapshot
from memory_core.features.log_entries import DEFAULT_SALIENCE, KINDS, LogEntry, log_uri, new_entry, with_entry

_NAMES = frozenset({"daily logs", "daily log", "dailylog", "dailylogs", "日志", "每日日志", "当日日志"})
_FIELDS = ("kind", "tool", "error")
_LABEL_CHARS = 200


def is_log_name(name: str | None) -> bool:
    """Whether a memory type or category of this name is the day's log; case, width, ``_`` and ``-`` do not matter."""
    if name is None:
        return False
    folded = unicodedata.normalize("NFKC", name).casefold().replace("_", " ").replace("-", " ")
    return " ".join(folded.split()) in _NAMES


def split(operations: MemoryOperations) -> tuple[dict[int, WriteOp], MemoryOperations]:
    """The writes to the log by their place among all writes, and the operations without them."""
    logged = {
        place: write
        for place, write in enumerate(operations.write_operations)
        if is_log_name(write.memory_data.memory_type)
    }
    rest = [write for place, write in enumerate(operations.write_operations) if place not in logged]
    return logged, operations.model_copy(update={"write_operations": rest}) if logged else operations


def appended(
    decided: ChangeSet, logged: Mapping[int, WriteOp], snapshot: Snapshot, context: PlanContext, moment: datetime
) -> ChangeSet:
    """The change set with the entries at the end of the day's log; one that is refused leaves the others be."""
    if not logged:
        return decided
    uri = log_uri(context.user_space, moment.date())
    before = text = snapshot.text(uri)
    results = list(decided.results)
    for place, write in logged.items():
        try:
            entry, notes = _entry(write, context, moment)
        except RunebookError as error:
            results.insert(
                place, OperationResult("write", str(uri), Action.REJECTED, shown(error.message), shown(error.hint))
            )
            continue
        action = Action.CREATED if text is None else Action.UPDATED
        text = with_entry(text, moment.date(), entry)
        results.insert(place, OperationResult("write", str(uri), action, note="; ".join(notes) or None))
    changes: Sequence[FileChange] = decided.changes
    if text != before:
        changes = (*changes, FileChange(uri, before, text, appended=True))
    return replace(decided, changes=tuple(changes), results=tuple(results))


def _entry(write: WriteOp, context: PlanContext, moment: datetime) -> tuple[LogEntry, list[str]]:
    check_text(write)
    data = write.memory_data
    fields = dict(data.fields)
    content = fields.pop(CONTENT, None)
    if not isinstance(content, str) or not content.strip():
        raise ContentRejected("an entry of the daily log without content says nothing.", hint="Give content.")
    size = len(content.encode("utf-8", "surrogatepass"))
    if size > context.content_bytes:
        raise TooLarge(
            f"the entry has {size:,} bytes; the limit is {context.content_bytes:,}.", hint="Log what matters of it."
        )
    facts: dict[str, Any] = {name: fields.pop(name) for name in _FIELDS if fields.get(name) not in (None, "")}
    kind = facts.pop("kind", KINDS[0])
    if kind not in KINDS:
        raise InvalidInput(f"kind {shown(str(kind))!r} is unknown.", hint=f"Use one of: {', '.join(KINDS)}.")
    belonging = context.belonging
    private = belonging.by_default if belonging.private is None else belonging.private
    labels = {name: _label(name, value) for name, value in facts.items() if name == "tool"}
    if "error" in facts:
        labels["error"] = " ".join(str(facts["error"]).split())
    category = data.given.get("category")
    entry = new_entry(
        content,
        moment,
        kind=kind,
        salience=data.given.get("salience", DEFAULT_SALIENCE),
        category=None if category is None or is_log_name(category) else _label("category", category),
        project=belonging.project,
        private=private and belonging.project is not None,
        session_id=context.source.get("session_id"),
        **labels,
    )
    notes = [f"ignored fields the log does not take: {', '.join(fields)}"] if fields else []
    if data.given.get(PINNED) or data.given.get(EXPIRES_AT) or ACTIVE in data.given:
        notes.append("entries of the log are not pinned, and do not expire or rest")
    if write.uri is not None and write.uri != str(log_uri(context.user_space, moment.date())):
        notes.append("entries go to the log of the day, whatever uri is named")
    return entry, notes


def _label(name: str, value: Any) -> str:
    label = " ".join(str(value).split())
    if len(label) > _LABEL_CHARS:
        raise InvalidInput(f"{name} has {len(label)} characters.", hint=f"A label has at most {_LABEL_CHARS}.")
    return label
