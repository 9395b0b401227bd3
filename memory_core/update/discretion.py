"""Discretion: what the owner's setting makes of secrets in whatever a commit would store.

Owns the rule for each shape that comes in: operations, messages of a conversation, names, files of an export,
questions that go into the trail. Applied at the edge of the updater and the recorder, before anything is planned,
compared, logged, put into the ledger or shown to a model; so a message that is sent again is compared in the form in
which it was stored.

``refuse`` rejects the operation that holds a secret, alone. A message of a conversation is not refused but redacted
then too: a conversation with a hole in it is another conversation, and its calls could not be counted. So is a file
of an export, most of which is no secret. Names that
must stay exact (of a session, a request, a project) cannot be redacted and are refused. SEARCH text of a patch is
left alone: it is not stored, and a secret can only be taken out of a file by quoting it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from memory_core.errors import ContentRejected
from memory_core.model.changes import Action, OperationResult
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.message import Message, dump_lines, parse_lines
from memory_core.model.operations import EditOp, MemoryData, MemoryOperations, OverviewOp, WriteOp
from memory_core.model.secrets import Discreet, Mode, Place, Secret

_HINT = "Leave the secret out, or let the owner change the settings secrets or secrets_allowed."
_IDENTIFIER_HINT = "Use another name: one that is no key, token or password."
_SEARCH = re.compile(r"^<<<<<<< SEARCH[ \t]*\r?$.*?^=======[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_NOTES_LIMIT = 20

Op = TypeVar("Op", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Cleared:
    """Operations that may be planned, what was refused of them, and what a receipt says about it."""

    operations: MemoryOperations
    refused: tuple[OperationResult, ...] = ()
    notes: tuple[str, ...] = ()


class Discretion:
    """Applies one setting.

    Args:
        mode: What becomes of a secret.
        allowed: Strings that are none; see ``Discreet``.
    """

    def __init__(self, mode: Mode, allowed: Iterable[str] = ()) -> None:
        self._mode = mode
        self._discreet = Discreet(allowed)

    def text(self, text: str) -> str:
        """A text of ours that may quote a secret, such as a reason or a question; with marks unless all is stored."""
        return text if self._mode in ("off", "warn") else self._discreet.text(text)[0]

    def result(self, result: OperationResult) -> OperationResult:
        """A line of a receipt, which may quote what was sent; receipts are kept."""
        reason, hint, note = (
            None if text is None else self.text(text) for text in (result.reason, result.hint, result.note)
        )
        return replace(result, reason=reason, hint=hint, note=note)

    def check_names(self, **names: str | None) -> None:
        """Refuse names that must stay exact and hold a secret.

        Raises:
            ContentRejected: If one does.
        """
        for name, value in names.items():
            self._check_name(name, value)

    def _check_name(self, name: str, value: str | None) -> None:
        if value is None or self._mode in ("off", "warn"):
            return
        kind = self._discreet.in_name(value)
        if kind is not None:
            raise ContentRejected(f"{name} holds what looks like a secret ({kind}).", hint=_IDENTIFIER_HINT)

    def messages(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """Messages as they are stored, and notes for the receipt."""
        if self._mode == "off":
            return tuple(messages), ()
        places: list[Place] = []
        kept = [self._message(message, f"messages[{index}]", places) for index, message in enumerate(messages)]
        return tuple(messages if self._mode == "warn" else kept), self._notes(places)

    def _message(self, message: Message, where: str, places: list[Place]) -> Message:
        def clean(value: Any, name: str) -> Any:
            return self._discreet.value(value, f"{where}.{name}", places)

        calls = tuple(
            replace(
                call,
                call_id=clean(call.call_id, "tool_calls.id"),
                name=clean(call.name, "tool_calls.name"),
                arguments=clean(call.arguments, f"tool_calls[{index}].arguments"),
                skill_name=clean(call.skill_name, "tool_calls.skill_name"),
            )
            for index, call in enumerate(message.tool_calls)
        )
        results = tuple(
            replace(
                result,
                call_id=clean(result.call_id, "tool_results.id"),
                name=clean(result.name, "tool_results.name"),
                text=clean(result.text, f"tool_results[{index}].content"),
                status=clean(result.status, "tool_results.status"),
            )
            for index, result in enumerate(message.tool_results)
        )
        return replace(
            message,
            role=clean(message.role, "role"),
            text=clean(message.text, "content"),
            name=clean(message.name, "name"),
            message_id=clean(message.message_id, "id"),
            tool_calls=calls,
            tool_results=results,
            extra=clean(dict(message.extra), "extra"),
        )

    def file(self, text: str, where: str, *, log: bool) -> tuple[str, tuple[str, ...]]:
        """A file that comes from elsewhere, as it is stored, and notes; ``log`` is one with a message a line."""
        if self._mode == "off":
            return text, ()
        places: list[Place] = []
        if log:
            clean = "".join(self._line(line, where, places) for line in text.splitlines(keepends=True))
        else:
            clean = self._memory(text, where, places)
        notes = self._notes([Place(place.kind, where) for place in places])
        return (text if self._mode == "warn" or not places else clean), notes

    def _line(self, line: str, where: str, places: list[Place]) -> str:
        messages, damage = parse_lines(line)
        if damage:
            return str(self._discreet.value(line, where, places))
        found = len(places)
        clean = [self._message(message, where, places) for message in messages]
        return dump_lines(clean) if len(places) > found else line

    def _memory(self, text: str, where: str, places: list[Place]) -> str:
        file = parse(text)
        body = self._discreet.value(file.body, where, places)
        trailer = None if file.trailer is None else self._discreet.value(dict(file.trailer), where, places)
        return dump(MemoryFile(body, trailer))

    def keeps(self, value: Any) -> bool:
        """Whether a JSON value may be stored as it is."""
        places: list[Place] = []
        if self._mode not in ("off", "warn"):
            self._discreet.value(value, places=places)
        return not places

    def operations(self, operations: MemoryOperations) -> Cleared:
        """Operations as they may be planned."""
        if self._mode == "off":
            return Cleared(operations)
        places: list[Place] = []
        refused: list[OperationResult] = []
        kept: dict[str, Any] = {
            name: self._each(getattr(operations, name), name, places, refused)
            for name in ("write_operations", "edit_operations", "delete_operations", "overview_operations")
        }
        kept["reasoning"] = self._discreet.value(operations.reasoning, "reasoning", places)
        changed = operations if self._mode == "warn" else operations.model_copy(update=kept)
        return Cleared(changed, tuple(refused), self._notes(places))

    def _each(
        self, operations: Sequence[Op], group: str, places: list[Place], refused: list[OperationResult]
    ) -> list[Op]:
        kept: list[Op] = []
        for index, operation in enumerate(operations):
            found: list[Place] = []
            clean = self._operation(operation, f"{group}[{index}]", found)
            if found and self._mode == "refuse":
                kinds = ", ".join(dict.fromkeys(f"{place.kind} in {place.where}" for place in found[:_NOTES_LIMIT]))
                op = group.partition("_")[0]
                refused.append(OperationResult(op, "", Action.REJECTED, f"it holds a secret: {kinds}.", _HINT))
            else:
                places += found
                kept.append(clean if found else operation)
        return kept

    def _operation(self, operation: Op, where: str, places: list[Place]) -> Op:
        """The operation without secrets. URIs stay: they name what is there already."""
        if isinstance(operation, WriteOp):
            memory_data = self._model(operation.memory_data, f"{where}.memory_data", places, skip=("links",))
            extra = self._discreet.value(dict(operation.model_extra or {}), where, places)
            return operation.model_copy(update={"memory_data": memory_data, **extra})
        if isinstance(operation, EditOp):
            patches = {
                name: self._patch(patch, f"{where}.patches.{name}", places, name)
                for name, patch in operation.patches.items()
            }
            return operation.model_copy(update={"patches": patches})
        if isinstance(operation, OverviewOp):
            given = {name: getattr(operation, name) for name in ("abstract", "overview")}
            patches = {name: self._patch(text, f"{where}.{name}", places, name) for name, text in given.items()}
            return operation.model_copy(update=patches)
        return self._model(operation, where, places, skip=("uri", "replacement_uri"))

    def _model(self, model: Op, where: str, places: list[Place], skip: tuple[str, ...]) -> Op:
        members = {name: value for name, value in model if name not in skip}
        clean = self._discreet.value(members, where, places)
        copied = model.model_copy(update=clean)
        if isinstance(copied, MemoryData) and isinstance(model, MemoryData):
            copied.sourced(model.source, model.said_at)
        return copied

    def _patch(self, patch: Any, where: str, places: list[Place], name: str) -> Any:
        if isinstance(patch, list):
            return [
                block.model_copy(
                    update={"replace": self._replaced(block.replace, block.search, f"{where}[{index}]", places)}
                )
                for index, block in enumerate(patch)
            ]
        if not isinstance(patch, str) or "<<<<<<< SEARCH" not in patch:
            return self._discreet.value(patch, where, places, name)
        searches = [(match.start(), match.end()) for match in _SEARCH.finditer(patch)]
        quoted = "\n".join(patch[start:end] for start, end in searches)

        def stands(secret: Secret) -> bool:
            inside = any(start <= secret.start < end for start, end in searches)
            return inside or patch[secret.start : secret.end] in quoted

        clean, kinds = self._discreet.text(patch, stands)
        places += [Place(kind, where) for kind in kinds]
        return clean

    def _replaced(self, text: str, search: str, where: str, places: list[Place]) -> str:
        """Text that takes the place of another; a secret that stood there already is not new."""
        clean, kinds = self._discreet.text(text, lambda secret: text[secret.start : secret.end] in search)
        places += [Place(kind, where) for kind in kinds]
        return clean

    def _notes(self, places: Sequence[Place]) -> tuple[str, ...]:
        """A line for each place."""
        told = "stored as it came, though it looks like a secret" if self._mode == "warn" else "not stored, redacted"
        lines = list(dict.fromkeys(f"{told}: {place.kind} in {place.where}" for place in places))
        more = len(lines) - _NOTES_LIMIT
        return (*lines[:_NOTES_LIMIT], *((f"and {more} more places with secrets",) if more > 0 else ()))
