"""The plan: from operations and the files as they are to a change set. Pure; reads no clock.

Each operation stands alone: one that is refused leaves a reason and a hint in the receipt and the rest goes
on. Operations on the same file build on each other. Names come from the type's template; the same
normalised key is the same memory; a name made up from a text's first words never overwrites another text. What
the author of the operations did not see is not overwritten (``conflicts``); links join both ends (``links``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import Any

from memory_core.core.commit.conflicts import check_fields, check_removal, check_summary
from memory_core.core.commit.links import link, link_replacement
from memory_core.core.commit.merge_fields import FieldMerge, TextStands, write_fields
from memory_core.core.commit.patch import apply_patch, is_patch
from memory_core.core.commit.working_copy import (
    MERGE_WORK,
    OPERATION_WORK,
    PART_WORK,
    PlanContext,
    WorkingCopy,
    WriteMode,
    expect_sound,
)
from memory_core.core.errors import (
    ContentRejected,
    FieldRejected,
    MemoryChanged,
    NotFound,
    PatchRejected,
    RunebookError,
    StoreBusy,
    TooLarge,
)
from memory_core.core.frozen import frozen
from memory_core.core.memory import names
from memory_core.core.memory.directory_page import parse_page
from memory_core.core.memory.memory import Memory, new_memory
from memory_core.core.memory.memory_type import CONTENT, MemoryType, OperationMode
from memory_core.core.memory.message import LINE_ESCAPES
from memory_core.core.memory.metadata import CONFIDENCE, EXPIRES_AT, FIELDS, RECORDED_AT, expires_after
from memory_core.core.memory.operations import (
    DeleteOp,
    EditOp,
    GivenLink,
    MemoryData,
    MemoryOperations,
    OverviewOp,
    WriteOp,
    check_text,
    escaped,
    refusal,
)
from memory_core.core.memory.results import Action, ChangeSet, OperationResult, clipped
from memory_core.core.memory.template import unshown
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME, MemoryUri
from memory_core.core.progress import tell
from memory_core.core.store.local import Snapshot

_WRITTEN_ABSTRACT_CHARS, _WRITTEN_OVERVIEW_CHARS = 1_000, 16_000
#: Sentences that a text may no longer say and that are looked for in the whole of it.
_LACKING = 50
_NOW_CHARS, _WENT_CHARS, _STANDING_CHARS, _LINK_CHARS = 400, 300, 1_200, 200
#: Of an edit that a refusal shows, and of the last words of the text by which it finds its place.
_EDIT_CHARS, _SEARCH_CHARS = 700, 160
#: Names tried for memories that begin alike; past the first few they carry a hash of their text.
_NAMES_LIMIT = 32
#: Parts of ``viking://user/{space}/memories``.
_MEMORIES_DEPTH = 3
_TOLD_EVERY = 100
_EXPLICIT, _IMPORTED = "user_explicit", "import"


@frozen
class _Decision:
    """What an operation decided: the memory, or the text of a summary, as it is to be; None removes the file."""

    uri: MemoryUri
    after: Memory | str | None
    rejected: Mapping[str, RunebookError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    replacement: MemoryUri | None = None


def plan(operations: MemoryOperations, snapshot: Snapshot, context: PlanContext) -> ChangeSet:
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
    return planner.change_set()


class _Planner:
    """Collects decisions over a working copy of the texts that the operations touch."""

    def __init__(self, snapshot: Snapshot, context: PlanContext) -> None:
        self._context = context
        self._copy = WorkingCopy(snapshot, context)
        self._results: list[OperationResult] = []
        self._links: list[tuple[int, MemoryUri, Sequence[GivenLink]]] = []
        self._replacements: list[tuple[int, MemoryUri, MemoryUri]] = []

    def attempt(
        self, op: str, subject: str, decide: Callable[[], _Decision], links: Sequence[GivenLink] | None = None
    ) -> None:
        """Run one operation's decision; a refusal becomes its result. Links wait for ``join``."""
        if self._results and len(self._results) % _TOLD_EVERY == 0:
            tell("deciding what the operations do", len(self._results), unit="operations")
        try:
            self._copy.work(OPERATION_WORK)
            decision = decide()
        except StoreBusy:  # no operation is at fault; the same request may succeed in a moment
            raise
        except RunebookError as error:
            about = error.uri if isinstance(error, MemoryChanged) else subject
            self._results.append(refusal(op, about, error))
            return
        before = self._copy.text(decision.uri)
        now, went = self._quoted(decision) if self._context.quotes else (None, None)
        if isinstance(decision.after, Memory):
            self._copy.store(decision.after)
        else:
            self._copy.put(decision.uri, decision.after)
        after = self._copy.text(decision.uri)
        if after == before:
            action = Action.REJECTED if decision.rejected else Action.UNCHANGED
        elif after is None:
            action = Action.DELETED
        else:
            action = Action.CREATED if before is None else Action.UPDATED
        reasons = [f"field '{name}' kept as it was: {error.message}" for name, error in decision.rejected.items()]
        hints = list(dict.fromkeys(error.hint for error in decision.rejected.values()))
        self._results.append(
            OperationResult(
                op,
                str(decision.uri),
                action,
                " ".join(reasons) or None,
                " ".join(hints) or None,
                "; ".join(decision.notes) or None,
                now=now,
                went=went,
                project=decision.after.project if isinstance(decision.after, Memory) else None,
            )
        )
        if links:
            self._links.append((len(self._results) - 1, decision.uri, links))
        if decision.replacement is not None:
            self._replacements.append((len(self._results) - 1, decision.replacement, decision.uri))

    def _quoted(self, decision: _Decision) -> tuple[str | None, str | None]:
        """Of a memory whose text changes: how it begins now, and what it no longer says."""
        after = decision.after
        before = self._copy.memory(decision.uri) if isinstance(after, Memory) else None
        if before is None or not isinstance(after, Memory) or before.body == after.body:
            return None, None
        from memory_core.core.commit.additions import missing

        now = _texts(after)
        lacking = islice(dict.fromkeys(missing(_texts(before), now)), _LACKING)
        went = " ".join(sentence for sentence in lacking if not _stands(sentence, now))
        return clipped(after.body.strip(), _NOW_CHARS), clipped(went, _WENT_CHARS) or None

    def join(self) -> None:
        """Add the links of all operations, now that every memory they may name is there."""
        for index, uri, links in self._links:
            if self._copy.text(uri) is None:
                continue
            linked = link(self._copy, uri, links)
            result = self._results[index]
            if linked.changed and result.action in (Action.UNCHANGED, Action.REJECTED):
                result = replace(result, action=Action.UPDATED)
            elif linked.refused and result.action is Action.UNCHANGED:
                result = replace(result, action=Action.REJECTED)
            refused = ((clipped(escaped(target), _LINK_CHARS), error.message) for target, error in linked.refused)
            lines = [f"link to {target} left out: {message}" for target, message in refused]
            self._results[index] = replace(
                result,
                reason=" ".join(filter(None, (result.reason, *lines))) or None,
                hint=" ".join(dict.fromkeys(filter(None, (result.hint, *(e.hint for _, e in linked.refused))))) or None,
                note=_with_note(result.note, "; ".join(linked.told()) or None),
            )
        for index, replacement, removed in self._replacements:
            result = self._results[index]
            try:
                if self._copy.text(replacement) is not None:
                    link_replacement(self._copy, replacement, removed)
                    self._results[index] = replace(result, note=_with_note(result.note, f"replaced by {replacement}"))
            except RunebookError as error:
                self._results[index] = replace(result, note=_with_note(result.note, f"no link: {error.message}"))

    def change_set(self) -> ChangeSet:
        """All net changes, and the results so far."""
        return ChangeSet(self._copy.changes(), tuple(self._results))

    def write(self, op: WriteOp) -> _Decision:
        """Create a memory, or add to the one with the same URI or key."""
        check_text(op)
        memory_type = self._context.registry.get(op.memory_data.memory_type)
        data = op.memory_data.model_copy(update={"fields": names.with_keys(memory_type, op.memory_data.fields)})
        op = op.model_copy(update={"memory_data": data})
        directory = self._context.directory(memory_type)
        if op.uri is not None:
            uri = self._copy.owned(op.uri)
            if self._copy.text(uri) is not None:
                return self._write_over(self._expect_type(uri, memory_type), memory_type, op)
            self._copy.expect_never_seen(uri)
        merged = write_fields(memory_type, None, data.fields, self._context.write_mode)
        for name in merged.rejected.keys() & set(memory_type.key_fields):  # else it would be taken for another one
            raise merged.rejected[name]
        fields, made_up = names.named(memory_type, merged.values)
        if not made_up and memory_type.operation_mode is OperationMode.UPSERT:
            found = self._copy.locate(directory, memory_type, fields)
            if found is not None:
                return self._write_over(self._copy.existing(found), memory_type, op, fields)
        for error in merged.rejected.values():
            raise error
        if not any(isinstance(value, str) and value.strip() for value in fields.values()):
            raise ContentRejected(
                f"a memory of type '{memory_type.name}' with no text says nothing.",
                hint=f"Give at least one of its fields: {', '.join(f.name for f in memory_type.fields)}.",
            )
        return self._add(op, directory, memory_type, merged, fields)

    def _write_over(
        self, memory: Memory, memory_type: MemoryType, op: WriteOp, fields: Mapping[str, Any] | None = None
    ) -> _Decision:
        """Update the memory that a write names by its URI, or by the key in ``fields``."""
        mode = WriteMode.REPLACE if op.replace else self._context.write_mode
        updated = self._update(memory, memory_type, op.memory_data.fields, op.memory_data, mode)
        if fields is None:
            return updated
        name = names.render(memory_type.filename_template, fields)
        if names.fold(name) == names.fold(memory.uri.name) or updated.after == memory:
            return updated
        return replace(updated, notes=(*updated.notes, f"the same name as {memory.uri.name}, spelt otherwise"))

    def _add(
        self, op: WriteOp, directory: MemoryUri, memory_type: MemoryType, merged: FieldMerge, fields: dict[str, Any]
    ) -> _Decision:
        """Create a memory beside others of its name, unless one of them says the same."""
        for attempt in range(1, _NAMES_LIMIT):
            tried = names.numbered(memory_type, fields, attempt)
            found = self._copy.locate(directory, memory_type, tried)
            if found is None:
                created = self._create(directory, memory_type, op.memory_data, tried)
                notes = (*created.notes, *((_ignored(merged),) if merged.ignored else ()))
                if op.uri not in (None, str(created.uri)):
                    notes = (*notes, f"named by the template of its type, not {op.uri}")
                    self._copy.alias(self._context.owned(str(op.uri)), created.uri)
                return replace(created, notes=notes)
            memory = self._copy.existing(found)
            beside_keys = tried.keys() - set(memory_type.key_fields)
            if all(memory.fields.get(name) == tried[name] for name in beside_keys):
                return self._update(memory, memory_type, {}, op.memory_data, WriteMode.ADD)
        raise FieldRejected("too many memories have this name.", hint="Give the memory a name of its own.")

    def edit(self, op: EditOp) -> _Decision:
        """Patch fields of an existing memory."""
        check_text(op)
        memory, memory_type = self._copy.typed(self._copy.owned(op.uri))
        data = MemoryData(memory_type=memory_type.name, **op.given)
        return self._update(memory, memory_type, op.patches, data, None)

    def delete(self, op: DeleteOp) -> _Decision:
        """Remove a memory; its text stays in history."""
        check_text(op)
        uri = self._copy.owned(op.uri)
        if self._copy.removed(uri):
            return _Decision(uri, None, notes=("was removed meanwhile",))
        self._copy.existing(uri)
        check_removal(self._copy, uri)
        replacement = None
        if op.replacement_uri is not None:
            replacement = self._copy.owned(op.replacement_uri)
            if replacement == uri or self._copy.text(replacement) is None:
                raise NotFound(
                    f"the replacement {op.replacement_uri!r} does not exist.",
                    hint="Write the replacement first (in the same operations is fine), then delete.",
                )
        return _Decision(uri, None, replacement=replacement)

    def overview(self, op: OverviewOp, name: str, text: str) -> _Decision:
        """Set or patch a directory's abstract, or the authored part of its overview."""
        check_text(op)
        self._context.assignment.check_shared()
        directory = self._context.owned(op.directory_uri)
        for depth in range(_MEMORIES_DEPTH, len(directory.parts) + 1):
            # A folder cannot be made where a file is; the commit would never reach the disk.
            self._copy.work(PART_WORK * depth)
            if self._copy.text(MemoryUri(directory.parts[:depth])) is not None:
                raise NotFound(
                    f"{op.directory_uri!r} is a file, not a directory.", hint="Name the directory, as ls prints it."
                )
        uri = directory.child(name)
        self._copy.work_on(uri)
        stored = self._copy.text(uri) or ""
        if is_patch(text):
            self._copy.work(MERGE_WORK * len(stored))
            text = self._patched(uri, stored, text)
        else:
            text = parse_page(text).authored if name == OVERVIEW_NAME else text
            check_summary(self._copy, uri, text)
        limit = _WRITTEN_ABSTRACT_CHARS if name == ABSTRACT_NAME else _WRITTEN_OVERVIEW_CHARS
        if len(text) > limit:
            raise TooLarge(f"{name} would have {len(text)} characters; the limit is {limit}.", hint="Shorten it.")
        return _Decision(uri, text.rstrip("\r\n" if name == OVERVIEW_NAME else "\n") + "\n")

    def _patched(self, uri: MemoryUri, current: str, patch: str) -> str:
        try:
            return apply_patch(current, patch)
        except PatchRejected as error:
            if self._copy.changed_since_seen(uri):
                raise MemoryChanged(
                    f"{str(uri)!r} changed since it was read: {error.message}", hint=error.hint, uri=str(uri)
                ) from error
            raise

    def _create(
        self, directory: MemoryUri, memory_type: MemoryType, data: MemoryData, fields: dict[str, Any]
    ) -> _Decision:
        note = self._context.assignment.check_new(memory_type)
        uri = self._copy.free_name(directory, memory_type, fields)
        self._copy.expect_never_seen(uri)
        metadata = {**_first_metadata(memory_type, data, self._context), **_given_metadata(data)}
        memory = self._fitting(new_memory(uri, memory_type, fields, metadata))
        return _Decision(uri, memory, notes=() if note is None else (note,))

    def _update(
        self,
        memory: Memory,
        memory_type: MemoryType,
        given: Mapping[str, Any],
        data: MemoryData,
        mode: WriteMode | None,
    ) -> _Decision:
        """Merge ``given`` into the memory's fields, and what else ``data`` says into its metadata.

        ``mode`` is that of a write; None is an edit, whose values are patches.
        """
        expect_sound(memory)
        self._copy.work(MERGE_WORK * len(memory.text))
        assignment, project = self._context.assignment, memory.project
        assignment.check_existing(memory_type, str(memory.uri), project, replaces=mode is not None)
        merged = write_fields(memory_type, memory.fields, given, mode or WriteMode.REPLACE)
        adds = mode in (WriteMode.ADD, WriteMode.REFUSE)
        check_fields(self._copy, memory.uri, memory_type, given, merged, adds=adds)
        merged = _explained(memory, memory_type, merged)
        metadata: dict[str, Any] = {**_given_metadata(data), **assignment.privacy(project)}
        if adds and isinstance(metadata.get("tags"), list):
            metadata["tags"] = FIELDS["tags"].stored([*dict.fromkeys((*memory.metadata.tags, *metadata["tags"]))])
        same_fields = all(memory.fields.get(name) == value for name, value in merged.values.items())
        notes = (_ignored(merged),) if merged.ignored else ()
        if same_fields and all(memory.metadata.get(name) == value for name, value in metadata.items()):
            return _Decision(memory.uri, memory, merged.rejected, notes)
        if not same_fields:
            metadata = {"abstract": None, "overview": None, **metadata}
        if not same_fields or _says_more(memory, metadata):
            metadata |= _said_anew(memory, data, self._context)
        changed = memory.changed(fields={**memory.fields, **merged.values}, metadata=metadata)
        notes = (*_about_body(memory, memory_type, changed, merged.values), *notes)
        if mode is WriteMode.ADD and self._context.quotes and not memory.hand_edited:
            notes = (*notes, *_doubts(memory, merged, given))
        return _Decision(memory.uri, self._fitting(changed), merged.rejected, notes)

    def _fitting(self, memory: Memory) -> Memory:
        """The memory, if it is not too large.

        Raises:
            TooLarge: If it is.
        """
        size = len(memory.text.encode("utf-8"))
        if size > self._context.content_bytes:
            raise TooLarge(
                f"the memory would be {size:,} bytes; the limit is {self._context.content_bytes:,}.",
                hint="Split it into several memories, each about one thing.",
            )
        return memory

    def _expect_type(self, uri: MemoryUri, memory_type: MemoryType) -> Memory:
        memory, found = self._copy.typed(uri)
        if found.name != memory_type.name:
            raise FieldRejected(
                f"{str(uri)!r} is of type '{found.name}', not '{memory_type.name}'.",
                hint=f"Write it as '{found.name}', or leave the uri out to create a new memory.",
            )
        return memory


def _about_body(memory: Memory, memory_type: MemoryType, changed: Memory, given: Mapping[str, Any]) -> Iterator[str]:
    """What to say of a body that does not follow its fields by itself."""
    if memory.hand_edited:
        missing = unshown(memory_type, changed.body, memory.fields, changed.fields)
        shown = f"; it does not show: {', '.join(missing)}" if missing else ""
        yield f"the body was edited by hand and stays; only the fields were updated{shown}"
    elif given.get(CONTENT) == memory.fields.get(CONTENT) and changed.body.startswith(f"{memory.body}\n\n"):
        yield "the body was written on its own and stays; what changed was added below it: edit content, too"


def _explained(memory: Memory, memory_type: MemoryType, merged: FieldMerge) -> FieldMerge:
    """The merge with refusals that show the present text, and one edit that adds to all of it."""
    standing = {name: error for name, error in merged.rejected.items() if isinstance(error, TextStands)}
    if not standing:
        return merged
    patches = {name: _added_by_patch(error) for name, error in standing.items()}
    asked = {"edit_operations": [{"uri": str(memory.uri), "patches": patches}]}
    edit = json.dumps(asked, ensure_ascii=False).translate(LINE_ESCAPES)  # a receipt is shown line by line
    keep = f"send {edit}"
    if len(edit) > _EDIT_CHARS:
        keys = {name: memory.fields[name] for name in memory_type.key_fields if name in memory.fields}
        given = f"fields {json.dumps(keys, ensure_ascii=False)} and your {', '.join(standing)}"
        keep = f"commit it without operations, which adds: memory_type {memory_type.name!r}, {given}"
    hint = f"To keep both, {keep}. To replace it, edit it with a plain text, or send the write with replace: true."
    told = {
        name: FieldRejected(
            f"it holds text that this write would drop: {clipped(error.standing, _STANDING_CHARS)!r}.", hint=hint
        )
        for name, error in standing.items()
    }
    return replace(merged, rejected={**merged.rejected, **told})


def _added_by_patch(error: TextStands) -> str | list[dict[str, str]]:
    """The patch that turns the standing text into both: what is added below it, or behind its last words.

    Of these as few are given as are there once.
    """
    if error.both.startswith(f"{error.standing}\n"):
        return [{"search": "", "replace": error.both[len(error.standing) + 1 :]}]
    standing = error.standing.rstrip()
    if not error.both.startswith(standing):
        return error.both
    last = standing.rpartition("\n")[2][-_SEARCH_CHARS:]
    ends = (last, standing[-_SEARCH_CHARS:], standing[-_EDIT_CHARS:], standing)
    search = next(end for end in ends if standing.find(end) == len(standing) - len(end))
    return [{"search": search, "replace": search + error.both[len(standing) :]}]


def _texts(memory: Memory) -> str:
    """All that a memory says."""
    if memory.type is None or memory.hand_edited:
        return memory.body
    return "\n\n".join(value for value in memory.fields.values() if isinstance(value, str))


#: Longer words are looked for without a pattern, which Python would keep; at so many places at most.
_PATTERN_CHARS, _PLACES = 1_000, 100


def _stands(words: str, text: str) -> bool:
    """Whether these words stand in a text, if within another sentence: a label beside others."""
    if words not in text:
        return False
    if len(words) <= _PATTERN_CHARS:
        # The words come first and what stands before them is looked at last: so the text is read once.
        return re.search(rf"(?s){re.escape(words)}(?!\w)(?<!\w.{{{len(words)}}})", text) is not None
    at = -1
    for _ in range(_PLACES):
        at = text.find(words, at + 1)
        around = text[max(0, at - 1) : at] + text[at + len(words) : at + len(words) + 1]
        if at < 0 or not re.search(r"\w", around):
            return at >= 0
    return True


def _doubts(memory: Memory, merged: FieldMerge, given: Mapping[str, Any]) -> Iterator[str]:
    """What stands in a memory that was added to and may no longer hold."""
    from memory_core.core.commit.additions import beside

    for name, value in given.items():
        old = memory.fields.get(name)
        if isinstance(value, str) and isinstance(old, str) and merged.values.get(name) not in (old, value):
            for sentence in beside(old, value):
                yield f"it also says {sentence!r}; if that no longer holds, take it out by an edit"


def _first_metadata(memory_type: MemoryType, data: MemoryData, context: PlanContext) -> dict[str, Any]:
    """The metadata that a new memory begins with, before what was given counts."""
    metadata: dict[str, Any] = {
        "version": 1,
        "created_at": data.said_at or context.said_at or context.now,
        "updated_at": data.said_at or context.said_at or context.now,
        "salience": memory_type.salience,
        CONFIDENCE: 1.0,
        "source": _source(memory_type, data, context) or None,
        **context.assignment.meta(memory_type),
    }
    if memory_type.expires_after_days is not None:
        metadata[EXPIRES_AT] = expires_after(context.now, memory_type.expires_after_days)
    return metadata


def _source(memory_type: MemoryType, data: MemoryData, context: PlanContext) -> dict[str, Any]:
    """Where a new memory comes from, in which project it was told, and when it was recorded where that was later."""
    told_in = context.assignment.told_in(memory_type)
    recorded = context.now if context.said_at is not None and context.said_at[:10] < context.now[:10] else None
    around = {"project": told_in, RECORDED_AT: recorded}
    return {**context.source, **data.source, **{name: value for name, value in around.items() if value is not None}}


def _given_metadata(data: MemoryData) -> dict[str, Any]:
    """What was given, by trailer key; None takes the key out."""
    return {name: FIELDS[name].stored(value) for name, value in data.given.items()}


def _says_more(memory: Memory, metadata: Mapping[str, Any]) -> bool:
    """Whether metadata changed in more than what an edit may say of a memory beside its content."""
    return any(
        value != memory.metadata.get(name) for name, value in metadata.items() if "edit" not in FIELDS[name].given_by
    )


def _said_anew(memory: Memory, data: MemoryData, context: PlanContext) -> dict[str, Any]:
    """Version and time of a memory whose content changed, and that somebody now vouches for one learnt by itself.

    One that was imported stays imported: nobody has to vouch for what a person brought in.
    """
    said = data.said_at or context.now
    if data.said_at is None and context.said_at is not None:  # what was said long ago is no newer than what is known
        said = max(context.said_at, memory.metadata.text("updated_at") or "")
    changed: dict[str, Any] = {"version": memory.metadata.next_version, "updated_at": said}
    source = memory.metadata.source
    if source and context.source.get("kind") == _EXPLICIT and source.get("kind") not in (_EXPLICIT, _IMPORTED):
        changed["source"] = {**source, "kind": _EXPLICIT}
    return changed


def _with_note(note: str | None, more: str | None) -> str | None:
    return "; ".join(filter(None, (note, more))) or None


def _ignored(merged: FieldMerge) -> str:
    return f"ignored fields the type does not take: {', '.join(merged.ignored)}"
