"""Judging proposed operations before they are committed: which touch files unread, and which are refused.

Operations are handled as a flat list in the order of a receipt's results: writes, edits, deletions, overviews. Pure
but for the view of files it is given; decides nothing for the model, and never writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memory_core.core.commit.patch import only_adds
from memory_core.core.extract.prompts import canonical, counted_fields
from memory_core.core.extract.store_view import StoreView
from memory_core.core.memory import names
from memory_core.core.memory.directory_page import own_words, recorded
from memory_core.core.memory.memory_type import CONTENT, MemoryType, MergeOp
from memory_core.core.memory.operations import (
    GROUPS,
    DeleteOp,
    EditOp,
    GivenLink,
    MemoryOperations,
    OverviewOp,
    WriteOp,
)
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.core.text.analysis import fold

Operation: TypeAlias = WriteOp | EditOp | DeleteOp | OverviewOp

_LINKS = 3
_ENTITY, _PROFILE = "entities", "profile"
_CHANGING = frozenset({Action.UPDATED, Action.DELETED, Action.REJECTED})
_SHOWN_CHARS = 1_200


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a dry run says of one operation.

    Attributes:
        operation: The operation.
        unread: Existing files it would change that the model has not seen whole, by URI.
        results: Its lines of the receipt.
    """

    operation: Operation
    unread: tuple[str, ...]
    results: tuple[OperationResult, ...]

    @property
    def refused(self) -> tuple[OperationResult, ...]:
        """The results that carry a refusal, of the whole operation or of one of its fields."""
        return tuple(result for result in self.results if result.reason is not None)

    @property
    def creates(self) -> bool:
        """Whether it makes a new memory."""
        return any(result.action is Action.CREATED for result in self.results)

    @property
    def sound(self) -> bool:
        """Whether it can be committed as it is."""
        return not self.unread and not self.refused


def listed(operations: MemoryOperations) -> list[Operation]:
    """All operations in the order of a receipt's results."""
    return [item for group in GROUPS for item in getattr(operations, group)]


def assembled(items: Sequence[Operation], reasoning: str | None = None) -> MemoryOperations:
    """The inverse of ``listed``."""
    return MemoryOperations(
        reasoning=reasoning,
        write_operations=[item for item in items if isinstance(item, WriteOp)],
        edit_operations=[item for item in items if isinstance(item, EditOp)],
        delete_operations=[item for item in items if isinstance(item, DeleteOp)],
        overview_operations=[item for item in items if isinstance(item, OverviewOp)],
    )


def _results_of(items: Sequence[Operation], receipt: CommitReceipt) -> list[tuple[OperationResult, ...]]:
    """The results of each operation: an overview has one for each text it gives, all others one."""
    found: list[tuple[OperationResult, ...]] = []
    at = 0
    for item in items:
        count = (item.abstract is not None) + (item.overview is not None) if isinstance(item, OverviewOp) else 1
        found.append(receipt.results[at : at + count])
        at += count
    return found


def judge(
    operations: MemoryOperations, receipt: CommitReceipt, seen: Mapping[str, str], view: StoreView
) -> list[Verdict]:
    """One verdict for each operation.

    Args:
        operations: What is proposed.
        receipt: The dry run's, made as if every file had been seen.
        seen: SHA-256 of each file that the model has seen whole, by URI; of a page, of its own words.
        view: Reads the files as they are.
    """
    items = listed(operations)
    verdicts = []
    for item, results in zip(items, _results_of(items, receipt), strict=True):
        touched = [uri for result in results for uri in _touched(item, result, view)]
        unread = [uri for uri in touched if seen.get(uri) != _present(uri, view)]
        verdicts.append(Verdict(item, tuple(dict.fromkeys(unread)), results))
    return verdicts


def _present(uri: str, view: StoreView) -> str:
    """SHA-256 of what the ledger keeps of a file's present text."""
    return text_sha256(recorded(MemoryUri.parse(uri), view.text(uri)) or "")


def without_counts(operations: MemoryOperations, view: StoreView) -> tuple[MemoryOperations, list[str]]:
    """The operations without fields that the system counts, and a note for each operation that lost any.

    An operation that held nothing else is left out.
    """
    kept: list[Operation] = []
    notes: list[str] = []
    for item in listed(operations):
        cleaned, lost = _cleaned(item, view)
        if lost:
            notes.append(f"{subject(item)}: {', '.join(lost)} left out, the system counts by itself")
        if cleaned is not None:
            kept.append(cleaned)
    return assembled(kept, operations.reasoning), notes


def for_owner(operations: MemoryOperations, view: StoreView) -> tuple[MemoryOperations, list[str]]:
    """The operations with what describes the store's owner as an entity put into the profile, and a note for each."""
    entity = view.registry.find(_ENTITY)
    if entity is None or not entity.key_fields or view.registry.find(_PROFILE) is None:
        return operations, []
    owners = {fold(name) for name in view.owner_names()}
    writes: list[WriteOp] = []
    notes: list[str] = []
    for write in operations.write_operations:
        data = write.memory_data
        name = names.with_keys(entity, data.fields).get(entity.key_fields[-1])
        if data.memory_type == _ENTITY and data.fields.get(CONTENT) and fold(str(name)) in owners:
            told = {CONTENT: data.fields[CONTENT]}
            data = data.model_copy(update={"memory_type": _PROFILE, "fields": told, "links": None})
            writes.append(write.model_copy(update={"uri": None, "replace": False, "memory_data": data}))
            notes.append(f"{name} is the owner of this memory: taken for the profile, not for an entity")
        else:
            writes.append(write)
    return operations.model_copy(update={"write_operations": writes}), notes


def new_text(write: WriteOp) -> str:
    """The words of a proposed memory, to look for its neighbours."""
    return "\n".join(str(value) for value in write.memory_data.fields.values() if isinstance(value, str) and value)


def linked(write: WriteOp, neighbours: Sequence[tuple[str, float]]) -> WriteOp:
    """The write with a link ``similar`` to each of its nearest neighbours that it does not link to already."""
    given = list(write.memory_data.links or [])
    known = {canonical(link.uri) for link in given}
    added = [
        GivenLink(uri=uri, relation="similar", strength=min(1.0, max(0.0, round(score, 3))))
        for uri, score in neighbours
        if canonical(uri) not in known
    ]
    if not added:
        return write
    data = write.memory_data.model_copy(update={"links": [*given, *added[:_LINKS]]})
    return write.model_copy(update={"memory_data": data})


def subject(item: Operation) -> str:
    """What an operation is about, in a few words."""
    if isinstance(item, WriteOp):
        data = item.memory_data
        name = next((str(value) for value in data.fields.values() if value), "")
        return f"write {item.uri or data.memory_type}" + ("" if item.uri or not name else f" {name[:60]!r}")
    if isinstance(item, OverviewOp):
        return f"overview {item.directory_uri}"
    return f"{'edit' if isinstance(item, EditOp) else 'delete'} {item.uri}"


def problem_text(verdict: Verdict) -> str:
    """What is wrong with an operation, for the model: the operation, the reasons and what to do."""
    reasons = [
        f"- refused: {result.reason}" + (f" Hint: {result.hint}" if result.hint else "") for result in verdict.refused
    ]
    reasons += [f"- {uri} was not read whole; its text is below." for uri in verdict.unread]
    shown = json.dumps(verdict.operation.model_dump(exclude_none=True, exclude_defaults=True), ensure_ascii=False)
    cut = shown if len(shown) <= _SHOWN_CHARS else shown[:_SHOWN_CHARS] + "…"
    return "\n".join([f"{subject(verdict.operation)}:", cut, *reasons])


def targets(verdict: Verdict) -> list[str]:
    """URIs of the files that an operation is about, existing or not."""
    item = verdict.operation
    named = [result.uri for result in verdict.results]
    if isinstance(item, OverviewOp):
        named += [f"{canonical(item.directory_uri)}/{name}" for name in (ABSTRACT_NAME, OVERVIEW_NAME)]
    elif item.uri is not None:
        named.append(item.uri)
    found = [uri for uri in (canonical(name) for name in named) if uri is not None]
    return list(dict.fromkeys((*verdict.unread, *found)))


def _touched(item: Operation, result: OperationResult, view: StoreView) -> list[str]:
    """Existing files that this result changes, or would have."""
    if result.action not in _CHANGING:
        return []
    named = [result.uri]
    if not isinstance(item, OverviewOp) and item.uri is not None:
        named.append(item.uri)
    uris = dict.fromkeys(uri for uri in (canonical(name) for name in named) if uri is not None)
    existing = [uri for uri in uris if view.text(uri) is not None]
    if isinstance(item, OverviewOp):
        # What nobody wrote on a page is renewed by the system.
        return [uri for uri in existing if own_words(uri.rpartition("/")[2], view.text(uri)) is not None]
    return [] if existing and _only_adds(item, view.type_of(existing[0])) else existing


def _only_adds(item: Operation, memory_type: MemoryType | None) -> bool:
    """Whether an operation only adds: to sums, links, or below a text, which needs no knowledge of what is there."""
    if memory_type is None or not isinstance(item, WriteOp | EditOp):
        return False
    names: Mapping[str, object] = item.patches if isinstance(item, EditOp) else item.memory_data.fields
    if isinstance(item, EditOp) and not names:
        return True  # links are added, too
    given = {name: memory_type.field(name) for name in names if name not in memory_type.key_fields}
    return bool(given) and all(
        field is not None and (field.merge_op is MergeOp.SUM or only_adds(names[name])) for name, field in given.items()
    )


def _cleaned(item: Operation, view: StoreView) -> tuple[Operation | None, list[str]]:
    """The operation without what the system counts, None where nothing is left of it; and the names that it lost."""
    given: Mapping[str, object]
    if isinstance(item, WriteOp):
        given, data = item.memory_data.fields, item.memory_data
        kind = view.registry.find(data.memory_type)
    elif isinstance(item, EditOp):
        given, kind = item.patches, view.type_of(item.uri)
    else:
        return item, []
    lost = [name for name in given if kind is not None and name in counted_fields(kind)]
    if kind is None or not lost:
        return item, []
    kept = {name: value for name, value in given.items() if name not in lost}
    if isinstance(item, EditOp):
        return (item.model_copy(update={"patches": kept}) if kept or item.links else None), lost
    if not any(name not in kind.key_fields and value not in (None, "") for name, value in kept.items()):
        return None, lost
    return item.model_copy(update={"memory_data": data.model_copy(update={"fields": kept})}), lost
