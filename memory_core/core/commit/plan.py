"""The plan: from operations and the files as they are to a change set. Pure; reads no clock.

Each operation stands alone: one that is refused leaves a reason and a hint in the receipt and the rest goes
on. Operations on the same file build on each other. Names come from the type's template; the same
normalised key is the same memory; a name made up from a text's first words never overwrites another text. What
the author of the operations did not see is not overwritten (``conflicts``); links join both ends (``links``); the
summaries of every directory that changed follow (``summaries``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memory_core.core.commit.conflicts import check_fields, check_removal, check_summary
from memory_core.core.commit.directory_pages import refresh
from memory_core.core.commit.links import link, link_replacement
from memory_core.core.commit.merge_fields import FieldMerge, edit_fields, write_fields
from memory_core.core.commit.patch import MemoryPatchHandler, is_patch
from memory_core.core.commit.working_copy import (
    Context,
    Draft,
    check_existing,
    check_new,
    check_shared,
    edited,
    first_meta,
    given_meta,
    named,
    numbered,
    privacy,
    said_anew,
    says_more,
)
from memory_core.core.errors import (
    ContentRejected,
    FieldRejected,
    MemoryChanged,
    NotFound,
    PatchRejected,
    RunebookError,
    TooLarge,
)
from memory_core.core.memory import names
from memory_core.core.memory.directory_page import parse_page, with_authored
from memory_core.core.memory.memory import (
    CONTENT,
    MemoryRecord,
    body_digest,
    dump,
    parse,
    read_record,
    record_key,
    write_record,
)
from memory_core.core.memory.memory_type import MemoryType, OperationMode
from memory_core.core.memory.operations import (
    DeleteOp,
    EditOp,
    Link,
    MemoryData,
    MemoryOperations,
    OverviewOp,
    WriteOp,
    check_text,
    shown,
)
from memory_core.core.memory.results import Action, ChangeSet, OperationResult
from memory_core.core.memory.template import render as render_body
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.core.progress import tell
from memory_core.core.store.local import Snapshot

ABSTRACT_LIMIT_CHARS = 1_000
OVERVIEW_LIMIT_CHARS = 16_000
#: Names tried for memories that begin alike; past the first few they carry a hash of their text.
_NAMES_LIMIT = 32
#: Parts of ``viking://user/{space}/memories``.
_MEMORIES_DEPTH = 3
_TOLD_EVERY = 100

#: Merges given values or patches into stored fields.
_Merge = Callable[[MemoryType, Mapping[str, Any], Mapping[str, Any]], FieldMerge]


@dataclass(frozen=True, slots=True)
class _Outcome:
    uri: MemoryUri
    text: str | None
    rejected: Mapping[str, RunebookError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replacement: MemoryUri | None = None


def plan(operations: MemoryOperations, snapshot: Snapshot, context: Context) -> ChangeSet:
    """Decide what each operation does.

    Never raises for a bad operation: it becomes a ``rejected`` result; ``conflict`` marks those that would have
    overwritten what their author did not see.
    """
    planner = _Planner(snapshot, context)
    for write in operations.write_operations:
        subject = write.uri or write.memory_data.memory_type
        planner.attempt("write", subject, partial(planner.write, write), write.memory_data.links)
    for edit in operations.edit_operations:
        planner.attempt("edit", edit.uri, partial(planner.edit, edit), edit.links)
    for deletion in operations.delete_operations:
        planner.attempt("delete", deletion.uri, partial(planner.delete, deletion))
    planner.join()
    for overview in operations.overview_operations:
        for name, text in ((ABSTRACT_NAME, overview.abstract), (OVERVIEW_NAME, overview.overview)):
            if text is not None:
                planner.attempt("overview", overview.directory_uri, partial(planner.overview, overview, name, text))
    return refresh(planner.change_set(), snapshot, context)


class _Planner:
    """Collects outcomes over a draft of the texts that the operations touch."""

    def __init__(self, snapshot: Snapshot, context: Context) -> None:
        self._context = context
        self._draft = Draft(snapshot, context)
        self._results: list[OperationResult] = []
        self._links: list[tuple[int, MemoryUri, Sequence[Link]]] = []
        self._replacements: list[tuple[int, MemoryUri, MemoryUri]] = []

    def attempt(
        self, op: str, subject: str, decide: Callable[[], _Outcome], links: Sequence[Link] | None = None
    ) -> None:
        """Run one operation's decision; a refusal becomes its result. Links wait for ``join``."""
        if self._results and len(self._results) % _TOLD_EVERY == 0:
            tell("deciding what the operations do", len(self._results), unit="operations")
        try:
            outcome = decide()
        except RunebookError as error:
            conflict = isinstance(error, MemoryChanged)
            about = error.uri if isinstance(error, MemoryChanged) else shown(subject)
            self._results.append(
                OperationResult(op, about, Action.REJECTED, shown(error.message), shown(error.hint), conflict=conflict)
            )
            return
        before = self._draft.text(outcome.uri)
        self._draft.put(outcome.uri, outcome.text)
        if outcome.text == before:
            action = Action.REJECTED if outcome.rejected else Action.UNCHANGED
        elif outcome.text is None:
            action = Action.DELETED
        else:
            action = Action.CREATED if before is None else Action.UPDATED
        reasons = [f"field '{name}' kept as it was: {error.message}" for name, error in outcome.rejected.items()]
        hints = list(dict.fromkeys(error.hint for error in outcome.rejected.values()))
        self._results.append(
            OperationResult(
                op,
                str(outcome.uri),
                action,
                " ".join(reasons) or None,
                " ".join(hints) or None,
                "; ".join(outcome.notes) or None,
            )
        )
        if links:
            self._links.append((len(self._results) - 1, outcome.uri, links))
        if outcome.replacement is not None:
            self._replacements.append((len(self._results) - 1, outcome.replacement, outcome.uri))

    def join(self) -> None:
        """Add the links of all operations, now that every memory they may name is there."""
        for index, uri, links in self._links:
            if self._draft.text(uri) is None:
                continue
            linked = link(self._draft, uri, links)
            result = self._results[index]
            if linked.changed and result.action in (Action.UNCHANGED, Action.REJECTED):
                result = replace(result, action=Action.UPDATED)
            elif linked.refused and result.action is Action.UNCHANGED:
                result = replace(result, action=Action.REJECTED)
            lines = [f"link to {shown(target)} left out: {error.message}" for target, error in linked.refused]
            self._results[index] = replace(
                result,
                reason=" ".join(filter(None, (result.reason, *lines))) or None,
                hint=" ".join(dict.fromkeys(filter(None, (result.hint, *(e.hint for _, e in linked.refused))))) or None,
                note=_with_note(result.note, "; ".join(linked.told()) or None),
            )
        for index, replacement, removed in self._replacements:
            result = self._results[index]
            try:
                if self._draft.text(replacement) is not None:
                    link_replacement(self._draft, replacement, removed)
                    self._results[index] = replace(result, note=_with_note(result.note, f"replaced by {replacement}"))
            except RunebookError as error:
                self._results[index] = replace(result, note=_with_note(result.note, f"no link: {error.message}"))

    def change_set(self) -> ChangeSet:
        """All net changes, and the results so far."""
        return ChangeSet(self._draft.changes(), tuple(self._results))

    def write(self, op: WriteOp) -> _Outcome:
        """Create a memory, or replace fields of the one with the same URI or key."""
        check_text(op)
        data = op.memory_data
        memory_type = self._context.registry.get(data.memory_type)
        directory = self._context.directory(memory_type)
        if op.uri is not None:
            uri = self._draft.owned(op.uri)
            if self._draft.text(uri) is not None:
                self._expect_type(uri, memory_type)
                return self._update(uri, memory_type, data.fields, data, write_fields)
            self._draft.expect_never_seen(uri)
        merged = write_fields(memory_type, None, data.fields)
        fields, made_up = named(memory_type, merged.values)
        if not made_up and memory_type.operation_mode is OperationMode.UPSERT:
            found = self._draft.locate(directory, memory_type, fields)
            if found is not None:
                updated = self._update(found, memory_type, data.fields, data, write_fields)
                name = names.render(memory_type.filename_template, fields)
                if names.fold(name) == names.fold(found.name) or updated.text == self._draft.text(found):
                    return updated
                return replace(updated, notes=(*updated.notes, f"the same name as {found.name}, spelt otherwise"))
        _raise_first(merged)
        if not any(isinstance(value, str) and value.strip() for value in fields.values()):
            raise ContentRejected(
                f"a memory of type '{memory_type.name}' with no text says nothing.",
                hint=f"Give at least one of its fields: {', '.join(f.name for f in memory_type.fields)}.",
            )
        return self._add(op, directory, memory_type, merged, fields)

    def _add(
        self, op: WriteOp, directory: MemoryUri, memory_type: MemoryType, merged: FieldMerge, fields: dict[str, Any]
    ) -> _Outcome:
        """Create a memory beside others of its name, unless one of them says the same."""
        for attempt in range(1, _NAMES_LIMIT):
            tried = numbered(memory_type, fields, attempt)
            found = self._draft.locate(directory, memory_type, tried)
            if found is None:
                created = self._create(directory, memory_type, op.memory_data, tried)
                notes = (*created.notes, *((_ignored(merged),) if merged.ignored else ()))
                if op.uri not in (None, str(created.uri)):
                    notes = (*notes, f"named by the template of its type, not {op.uri}")
                    self._draft.alias(self._context.owned(str(op.uri)), created.uri)
                return replace(created, notes=notes)
            if self._says_the_same(found, memory_type, tried):
                return self._update(found, memory_type, {}, op.memory_data, write_fields)
        raise FieldRejected("too many memories have this name.", hint="Give the memory a name of its own.")

    def edit(self, op: EditOp) -> _Outcome:
        """Patch fields of an existing memory."""
        check_text(op)
        uri = self._draft.owned(op.uri)
        memory_type = self._draft.type_of(uri)
        return self._update(uri, memory_type, op.patches, edited(op, memory_type), edit_fields)

    def delete(self, op: DeleteOp) -> _Outcome:
        """Remove a memory; its text stays in history."""
        check_text(op)
        uri = self._draft.owned(op.uri)
        if self._draft.removed(uri):
            return _Outcome(uri, None, notes=("was removed meanwhile",))
        text = self._draft.existing(uri)
        check_removal(self._draft, uri, self._context.registry.type_at(uri, parse(text).type_name))
        replacement = None
        if op.replacement_uri is not None:
            replacement = self._draft.owned(op.replacement_uri)
            if replacement == uri or self._draft.text(replacement) is None:
                raise NotFound(
                    f"the replacement {op.replacement_uri!r} does not exist.",
                    hint="Write the replacement first (in the same operations is fine), then delete.",
                )
        return _Outcome(uri, None, replacement=replacement)

    def overview(self, op: OverviewOp, name: str, text: str) -> _Outcome:
        """Set or patch a directory's L0, or the authored part of its L1."""
        check_text(op)
        check_shared(self._context.belonging)
        directory = self._context.owned(op.directory_uri)
        for depth in range(_MEMORIES_DEPTH, len(directory.parts) + 1):
            # A folder cannot be made where a file is; the commit would never reach the disk.
            if self._draft.text(MemoryUri(directory.parts[:depth])) is not None:
                raise NotFound(
                    f"{op.directory_uri!r} is a file, not a directory.", hint="Name the directory, as ls prints it."
                )
        uri = directory.child(name)
        stored = self._draft.text(uri) or ""
        if is_patch(text):
            text = self._patched(uri, parse_page(stored).authored if name == OVERVIEW_NAME else stored, text)
        else:
            text = parse_page(text).authored if name == OVERVIEW_NAME else text
            check_summary(self._draft, uri, text)
        limit = ABSTRACT_LIMIT_CHARS if name == ABSTRACT_NAME else OVERVIEW_LIMIT_CHARS
        if len(text) > limit:
            raise TooLarge(f"{name} would have {len(text)} characters; the limit is {limit}.", hint="Shorten it.")
        return _Outcome(uri, with_authored(stored, text) if name == OVERVIEW_NAME else text.rstrip("\n") + "\n")

    def _patched(self, uri: MemoryUri, current: str, patch: str) -> str:
        try:
            return MemoryPatchHandler().apply_content_patch(current, patch)
        except PatchRejected as error:
            if self._draft.moved(uri):
                raise MemoryChanged(
                    f"{str(uri)!r} changed since it was read: {error.message}", hint=error.hint, uri=str(uri)
                ) from error
            raise

    def _create(
        self, directory: MemoryUri, memory_type: MemoryType, data: MemoryData, fields: dict[str, Any]
    ) -> _Outcome:
        note = check_new(self._context.belonging, memory_type)
        uri = self._draft.free_name(directory, memory_type, fields)
        self._draft.expect_never_seen(uri)
        meta = first_meta(memory_type, data, self._context)
        created = self._render(uri, memory_type, MemoryRecord(fields, meta), data, {})
        return created if note is None else replace(created, notes=(*created.notes, note))

    def _update(
        self, uri: MemoryUri, memory_type: MemoryType, given: Mapping[str, Any], data: MemoryData, merge: _Merge
    ) -> _Outcome:
        """Merge ``given`` into the memory's fields, and what else ``data`` says into its metadata."""
        text = self._draft.existing(uri)
        file = parse(text)
        if file.damage is not None:
            raise FieldRejected(f"{str(uri)!r}: {file.damage}.", hint="Mend or remove the file's trailer by hand.")
        record = read_record(memory_type, file, uri.name.removesuffix(".md"))
        belonging = self._context.belonging
        check_existing(belonging, memory_type, uri, record.meta, replaces=merge is write_fields)
        merged = merge(memory_type, record.fields, given)
        check_fields(self._draft, uri, memory_type, given, merged)
        meta = {**record.meta, **given_meta(data), **privacy(belonging, memory_type, record.meta)}
        same_fields = all(record.fields.get(name) == value for name, value in merged.values.items())
        if same_fields and all(record.meta.get(name) == value for name, value in meta.items()):
            return _Outcome(uri, text, merged.rejected, (_ignored(merged),) if merged.ignored else ())
        if not same_fields and data.abstract is None:
            meta.pop("abstract", None)
        if not same_fields and data.overview is None:
            meta.pop("overview", None)
        if not same_fields or says_more(record.meta, meta):
            meta |= said_anew(record.meta, data, self._context)
        changed = replace(record, fields={**record.fields, **merged.values}, meta=meta)
        outcome = self._render(uri, memory_type, changed, data, merged.rejected)
        return replace(outcome, notes=(*outcome.notes, _ignored(merged))) if merged.ignored else outcome

    def _render(
        self,
        uri: MemoryUri,
        memory_type: MemoryType,
        record: MemoryRecord,
        data: MemoryData,
        rejected: Mapping[str, RunebookError],
    ) -> _Outcome:
        meta = {**record.meta, **given_meta(data)}
        notes: tuple[str, ...] = ()
        if not memory_type.template_mode:
            body = str(record.fields.get(CONTENT) or "")
        elif record.hand_edited:
            body = record.body
            notes = ("the body was edited by hand and stays; only the fields were updated",)
        else:
            body = render_body(memory_type, record.fields)
            meta["rendered_sha256"] = body_digest(body)
        text = dump(write_record(memory_type, replace(record, body=body, meta=meta)))
        size = len(text.encode("utf-8"))
        if size > self._context.content_bytes:
            raise TooLarge(
                f"the memory would be {size:,} bytes; the limit is {self._context.content_bytes:,}.",
                hint="Split it into several memories, each about one thing.",
            )
        self._draft.identify(uri, memory_type.name, record_key(memory_type, record))
        return _Outcome(uri, text, rejected, notes)

    def _says_the_same(self, uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> bool:
        """Whether the memory found under these keys also holds all the rest."""
        stored = read_record(memory_type, parse(self._draft.existing(uri)), uri.name.removesuffix(".md")).fields
        keys = memory_type.key_fields
        return all(stored.get(name) == value for name, value in fields.items() if name not in keys)

    def _expect_type(self, uri: MemoryUri, memory_type: MemoryType) -> None:
        found = self._draft.type_of(uri)
        if found.name != memory_type.name:
            raise FieldRejected(
                f"{str(uri)!r} is of type '{found.name}', not '{memory_type.name}'.",
                hint=f"Write it as '{found.name}', or leave the uri out to create a new memory.",
            )


def _with_note(note: str | None, more: str | None) -> str | None:
    return "; ".join(filter(None, (note, more))) or None


def _ignored(merged: FieldMerge) -> str:
    return f"ignored fields the type does not take: {', '.join(merged.ignored)}"


def _raise_first(merged: FieldMerge) -> None:
    for error in merged.rejected.values():
        raise error
