"""Imported conversations on their way to the recorder: sound messages, in parts that a commit can hold.

The recorder does the rest, as for every conversation: messages verbatim, counted, queued for extraction. Each part is
a request of its own, so one that came in before changes nothing, whatever its owner did to it since; one that was
taken back comes in again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from memory_core.errors import InvalidUri, RunebookError
from memory_core.lifecycle.imports.items import ConversationItem, LeftOut, digest_of
from memory_core.model.changes import Action
from memory_core.model.conversation import dump_lines, parse_lines, parse_messages
from memory_core.model.project import Belonging
from memory_core.storage.store import REPEATED, Store
from memory_core.update.recorder import MessageRecorder
from memory_core.update.updater import MemoryUpdater

_SHARE = 2  # of a commit's limit that messages may take; what they teach needs room too


@dataclass(slots=True)
class Recorded:
    """What became of one conversation."""

    session_id: str
    action: Action = Action.UNCHANGED
    messages: int = 0
    commits: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ConversationDesk:
    """Hands conversations to a store's recorder.

    Args:
        store: The store.
        recorder: Records them.
        updater: Names sessions.
        scope: Format and spaces, which an id means the same in.
        part_bytes: Most of a conversation that one commit brings.
    """

    def __init__(
        self,
        store: Store,
        recorder: MessageRecorder,
        updater: MemoryUpdater,
        scope: tuple[str, ...],
        part_bytes: int,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._updater = updater
        self._scope = scope
        self._part_bytes = part_bytes // _SHARE

    def record(self, item: ConversationItem, belonging: Belonging, now: datetime, *, dry_run: bool) -> Recorded:
        """Record what is new of a conversation; a message that cannot be taken is left out alone."""
        item = replace(item, session_id=self._session(item.session_id))
        done = Recorded(item.session_id)
        sound = list(self._sound(item, done))
        for part in self._parts(sound):
            try:
                self._record(part, item, belonging, now, done, dry_run=dry_run)
            except RunebookError as error:
                done.left_out.append(LeftOut(f"{item.place}, from message {part[0].get('id')}", error.message))
        return done

    def _session(self, imported: str) -> str:
        """The session of a conversation; where a hook keeps it under the program's own name of it, that one."""
        own = imported.removeprefix(f"{self._scope[0]}-")
        files, log = self._store.files, self._updater.session_uri
        try:
            kept = own != imported and files.is_dir(log(own).parent) and not files.is_dir(log(imported).parent)
        except InvalidUri:  # nothing can be kept under such a name
            return imported
        return own if kept else imported

    def _record(
        self,
        part: Sequence[Mapping[str, Any]],
        item: ConversationItem,
        belonging: Belonging,
        now: datetime,
        done: Recorded,
        *,
        dry_run: bool,
    ) -> None:
        request_id = self._request(item, part)
        if request_id is None:
            return
        log = self._updater.session_uri(item.session_id)
        stored, _ = parse_lines(self._store.text(log) or "")
        ids = {message.message_id for message in stored if message.message_id is not None}
        fresh = [message for message in part if message.get("id") not in ids]
        if not fresh:
            return
        receipt = self._recorder.record(
            fresh,
            session_id=item.session_id,
            request_id=request_id,
            dry_run=dry_run,
            now=now,
            belonging=belonging,
        )
        taken = next((result.action for result in receipt.results if result.op == "messages"), Action.UNCHANGED)
        if REPEATED in receipt.notes or taken is Action.UNCHANGED:
            return
        done.action = Action.CREATED if taken is Action.CREATED else max(done.action, Action.UPDATED, key=_RANK.index)
        done.messages += (receipt.usage or {}).get("messages_new", len(fresh))
        done.commits += [receipt.commit_id] if receipt.commit_id else []
        done.notes += [f"{item.place}: {note}" for note in receipt.notes]

    def _request(self, item: ConversationItem, part: Sequence[Mapping[str, Any]]) -> str | None:
        """What this part is called as a request; None where it is in the store, or was and its owner let it go."""
        said = digest_of([[message.get("id"), str(message.get("content"))] for message in part])
        for generation in range(1, 100):
            name = f"import/{digest_of([*self._scope, item.item_id])}/{said}/{generation}"
            first = self._store.ledger.receipt_for(name)
            if first is None:
                return name
            if not self._store.ledger.past.undone_by(str(first["commit_id"])):
                return None
        return None

    def _sound(self, item: ConversationItem, done: Recorded) -> Iterator[Mapping[str, Any]]:
        for index, message in enumerate(item.messages):
            try:
                if parse_messages([message]):
                    yield message
            except RunebookError as error:
                reason = error.message.replace("messages[0]", "it")
                done.left_out.append(LeftOut(f"{item.place}, message {message.get('id') or index}", reason))

    def _parts(self, messages: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
        part: list[Mapping[str, Any]] = []
        size = 0
        for message in messages:
            bytes_of = len(dump_lines(parse_messages([message])).encode("utf-8"))
            if part and size + bytes_of > self._part_bytes:
                yield part
                part, size = [], 0
            part.append(message)
            size += bytes_of
        if part:
            yield part


_RANK = [Action.UNCHANGED, Action.UPDATED, Action.CREATED]
