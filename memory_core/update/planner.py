"""The plan: from operations and the files as they are to a change set. Pure; reads no clock.

Each operation stands alone: one that is refused leaves a reason and a hint in the receipt and the rest goes
on. Operations on the same file build on each other. Names come from the type's template; the same
normalised key is the same memory; a name made up from a text's first words never overwrites another text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from memory_core.errors import ContentRejected, FieldRejected, NotFound, RunebookError, TooLarge
from memory_core.merge.fields import FieldMerge, edit_fields, write_fields
from memory_core.merge.patch import MemoryPatchHandler, is_patch
from memory_core.merge.template import render as render_body
from memory_core.model import filename
from memory_core.model.changes import Action, ChangeSet, FileChange, OperationResult
from memory_core.model.memory_file import dump, parse
from memory_core.model.operations import DeleteOp, EditOp, MemoryData, MemoryOperations, OverviewOp, WriteOp
from memory_core.model.record import (
    CONTENT,
    MemoryRecord,
    body_digest,
    next_version,
    read_record,
    record_key,
    write_record,
)
from memory_core.model.schema import MemoryType, OperationMode
from memory_core.model.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context
from memory_core.update.naming import named, numbered
from memory_core.update.soundness import check_text, shown

ABSTRACT_LIMIT_CHARS = 1_000
OVERVIEW_LIMIT_CHARS = 16_000
#: Names tried for memories that begin alike; past the first few they carry a hash of their text.
_NAMES_LIMIT = 32
#: Parts of ``viking://user/{space}/memories``.
_MEMORIES_DEPTH = 3


@dataclass(frozen=True, slots=True)
class _Outcome:
    uri: MemoryUri
    text: str | None
    rejected: Mapping[str, RunebookError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def plan(operations: MemoryOperations, snapshot: Snapshot, context: Context) -> ChangeSet:
    """Decide what each operation does.

    Never raises for a bad operation: it becomes a ``rejected`` result.
    """
    planner = _Planner(snapshot, context)
    for write in operations.write_operations:
        planner.attempt("write", write.uri or write.memory_data.memory_type, partial(planner.write, write))
    for edit in operations.edit_operations:
        planner.attempt("edit", edit.uri, partial(planner.edit, edit))
    for deletion in operations.delete_operations:
        planner.attempt("delete", deletion.uri, partial(planner.delete, deletion))
    for overview in operations.overview_operations:
        for name, text in ((ABSTRACT_NAME, overview.abstract), (OVERVIEW_NAME, overview.overview)):
            if text is not None:
                planner.attempt("overview", overview.directory_uri, partial(planner.overview, overview, name, text))
    return planner.change_set()


class _Planner:
    """Collects outcomes over a working copy of the texts that the operations touch."""

    def __init__(self, snapshot: Snapshot, context: Context) -> None:
        self._snapshot = snapshot
        self._context = context
        self._before: dict[MemoryUri, str | None] = {}
        self._after: dict[MemoryUri, str | None] = {}
        self._keys: dict[MemoryUri, tuple[str, str]] = {}
        self._results: list[OperationResult] = []

    def attempt(self, op: str, subject: str, decide: Callable[[], _Outcome]) -> None:
        """Run one operation's decision; a refusal becomes its result."""
        try:
            outcome = decide()
        except RunebookError as error:
            self._results.append(OperationResult(op, shown(subject), Action.REJECTED, shown(error.message), error.hint))
            return
        before = self._text(outcome.uri)
        self._after[outcome.uri] = outcome.text
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

    def change_set(self) -> ChangeSet:
        """All net changes; a file that ends as it began is none."""
        changes = []
        for uri, after in self._after.items():
            before = self._before[uri]
            if after != before:
                memory_type, key = self._keys.get(uri, ("", ""))
                changes.append(FileChange(uri, before, after, memory_type, key))
        return ChangeSet(tuple(changes), tuple(self._results))

    def write(self, op: WriteOp) -> _Outcome:
        """Create a memory, or replace fields of the one with the same URI or key."""
        check_text(op)
        data = op.memory_data
        memory_type = self._context.registry.get(data.memory_type)
        directory = self._context.directory(memory_type)
        if op.uri is not None:
            uri = self._context.owned(op.uri)
            text = self._text(uri)
            if text is not None:
                self._expect_type(uri, text, memory_type)
                return self._update(uri, memory_type, data, write_fields)
        merged = write_fields(memory_type, None, data.fields)
        fields, made_up = named(memory_type, merged.values)
        if not made_up and memory_type.operation_mode is OperationMode.UPSERT:
            found = self._locate(directory, memory_type, fields)
            if found is not None:
                return self._update(found, memory_type, data, write_fields)
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
            found = self._locate(directory, memory_type, tried)
            if found is None:
                created = self._create(directory, memory_type, op.memory_data, tried)
                notes = (_ignored(merged),) if merged.ignored else ()
                if op.uri not in (None, str(created.uri)):
                    notes = (*notes, f"named by the template of its type, not {op.uri}")
                return replace(created, notes=notes)
            if self._says_the_same(found, memory_type, tried):
                return self._update(found, memory_type, op.memory_data.model_copy(update={"fields": {}}), write_fields)
        raise FieldRejected("too many memories have this name.", hint="Give the memory a name of its own.")

    def edit(self, op: EditOp) -> _Outcome:
        """Patch fields of an existing memory."""
        check_text(op)
        uri = self._context.owned(op.uri)
        memory_type = self._type_of(uri, self._existing(uri))
        data = MemoryData(memory_type=memory_type.name, fields={})
        return self._update(
            uri, memory_type, data, lambda kind, current, _given: edit_fields(kind, current, op.patches)
        )

    def delete(self, op: DeleteOp) -> _Outcome:
        """Remove a memory; its text stays in history."""
        check_text(op)
        uri = self._context.owned(op.uri)
        self._existing(uri)
        if op.replacement_uri is not None:
            replacement = self._context.owned(op.replacement_uri)
            if replacement == uri or self._text(replacement) is None:
                raise NotFound(
                    f"the replacement {op.replacement_uri!r} does not exist.",
                    hint="Write the replacement first (in the same operations is fine), then delete.",
                )
        return _Outcome(uri, None)

    def overview(self, op: OverviewOp, name: str, text: str) -> _Outcome:
        """Set or patch a directory's L0 or L1."""
        check_text(op)
        directory = self._context.owned(op.directory_uri)
        for depth in range(_MEMORIES_DEPTH, len(directory.parts) + 1):
            # A folder cannot be made where a file is; the commit would never reach the disk.
            if self._text(MemoryUri(directory.parts[:depth])) is not None:
                raise NotFound(
                    f"{op.directory_uri!r} is a file, not a directory.", hint="Name the directory, as ls prints it."
                )
        uri = directory.child(name)
        current = self._text(uri)
        if is_patch(text):
            text = MemoryPatchHandler().apply_content_patch(current or "", text)
        limit = ABSTRACT_LIMIT_CHARS if name == ABSTRACT_NAME else OVERVIEW_LIMIT_CHARS
        if len(text) > limit:
            raise TooLarge(f"{name} would have {len(text)} characters; the limit is {limit}.", hint="Shorten it.")
        return _Outcome(uri, text.rstrip("\n") + "\n")

    def _create(
        self, directory: MemoryUri, memory_type: MemoryType, data: MemoryData, fields: dict[str, Any]
    ) -> _Outcome:
        key = filename.key_of(fields, memory_type.key_fields)
        name = filename.render(memory_type.filename_template, fields)
        if self._taken(directory, name) and not self._vanished(directory.child(name), memory_type, key):
            stem, dot, extension = name.rpartition(".")
            name = filename.fit(stem, dot + extension, "~" + filename.short_hash(key))
        uri = directory.child(name)
        now = self._context.now
        meta = {
            "version": 1,
            "created_at": now,
            "salience": memory_type.salience,
            "confidence": 1.0,
            "source": dict(self._context.source) or None,
            "project": self._context.project,
        }
        record = MemoryRecord(fields, meta)
        return self._render(uri, memory_type, record, data, {})

    def _update(
        self,
        uri: MemoryUri,
        memory_type: MemoryType,
        data: MemoryData,
        merge: Callable[[MemoryType, Mapping[str, Any], Mapping[str, Any]], FieldMerge],
    ) -> _Outcome:
        text = self._existing(uri)
        file = parse(text)
        if file.damage is not None:
            raise FieldRejected(f"{str(uri)!r}: {file.damage}.", hint="Mend or remove the file's trailer by hand.")
        record = read_record(memory_type, file, uri.name.removesuffix(".md"))
        merged = merge(memory_type, record.fields, data.fields)
        meta = {**record.meta, **_given_meta(data)}
        same_fields = all(record.fields.get(name) == value for name, value in merged.values.items())
        if same_fields and all(record.meta.get(name) == value for name, value in meta.items()):
            return _Outcome(uri, text, merged.rejected, (_ignored(merged),) if merged.ignored else ())
        if not same_fields and data.abstract is None:
            meta.pop("abstract", None)
        if not same_fields and data.overview is None:
            meta.pop("overview", None)
        meta["version"] = next_version(record.meta.get("version"))
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
        meta = {**record.meta, **_given_meta(data), "updated_at": self._context.now}
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
        self._keys[uri] = (memory_type.name, record_key(memory_type, record))
        return _Outcome(uri, text, rejected, notes)

    def _text(self, uri: MemoryUri) -> str | None:
        if uri in self._after:
            return self._after[uri]
        if uri not in self._before:
            self._before[uri] = self._snapshot.text(uri)
        return self._before[uri]

    def _existing(self, uri: MemoryUri) -> str:
        text = self._text(uri)
        if text is None:
            raise NotFound(
                f"there is no memory at {str(uri)!r}.",
                hint="Look it up with find, or list its directory with ls.",
            )
        return text

    def _locate(self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> MemoryUri | None:
        """The file that holds this key: in this plan, by the ledger, or hand-written under the same name."""
        key = filename.key_of(fields, memory_type.key_fields)
        for uri, (name, known) in self._keys.items():
            if (name, known, uri.parent) == (memory_type.name, key, directory) and self._text(uri) is not None:
                return uri
        found = self._snapshot.locate(directory, memory_type.name, key)
        if found is not None and self._text(found) is not None:
            return found
        candidate = directory.child(filename.render(memory_type.filename_template, fields))
        text = self._text(candidate)
        if text is None:
            return None
        file = parse(text)
        if file.trailer is None:
            return candidate
        record = read_record(memory_type, file, candidate.name.removesuffix(".md"))
        return candidate if record_key(memory_type, record) == key else None

    def _taken(self, directory: MemoryUri, name: str) -> bool:
        planned = {uri.name for uri, text in self._after.items() if uri.parent == directory and text is not None}
        twins = {filename.fold(other) for other in planned}
        return filename.fold(name) in twins or self._snapshot.name_taken(directory, name)

    def _vanished(self, uri: MemoryUri, memory_type: MemoryType, key: str) -> bool:
        """Whether a person removed the file that the name table still knows under this very key."""
        known = self._snapshot.locate(uri.parent, memory_type.name, key)
        return known == uri and self._text(uri) is None

    def _says_the_same(self, uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> bool:
        """Whether the memory found under these keys also holds all the rest."""
        stored = read_record(memory_type, parse(self._existing(uri)), uri.name.removesuffix(".md")).fields
        keys = memory_type.key_fields
        return all(stored.get(name) == value for name, value in fields.items() if name not in keys)

    def _expect_type(self, uri: MemoryUri, text: str, memory_type: MemoryType) -> None:
        found = self._type_of(uri, text)
        if found.name != memory_type.name:
            raise FieldRejected(
                f"{str(uri)!r} is of type '{found.name}', not '{memory_type.name}'.",
                hint=f"Write it as '{found.name}', or leave the uri out to create a new memory.",
            )

    def _type_of(self, uri: MemoryUri, text: str) -> MemoryType:
        found = self._context.registry.type_at(uri, parse(text).type_name)
        if found is None or not uri.name.endswith(".md"):
            raise NotFound(
                f"{str(uri)!r} belongs to no known memory type.",
                hint="Edit the file by hand, or add a YAML type for its directory.",
            )
        return found


def _given_meta(data: MemoryData) -> dict[str, Any]:
    given = {
        "abstract": data.abstract,
        "overview": data.overview,
        "salience": data.salience,
        "confidence": data.confidence,
        "category": data.category,
        "tags": data.tags,
    }
    return {name: value for name, value in given.items() if value is not None}


def _ignored(merged: FieldMerge) -> str:
    return f"ignored fields the type does not take: {', '.join(merged.ignored)}"


def _raise_first(merged: FieldMerge) -> None:
    for error in merged.rejected.values():
        raise error
