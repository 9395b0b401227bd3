"""Conversations of other programs on their way into the store: what is new of each, in parts that a commit can take.

Used by imports and by hooks. A part is one commit under a name made of what it says, so that a repeated import finds it
done; one that its owner edited or deleted stays as it was left, until the source goes on with that part; one that was
undone comes again. Asks no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from memory_core.core.commit.append import as_before
from memory_core.core.commit.forgotten import FORGOTTEN, digest, is_forgotten
from memory_core.core.errors import InvalidUri, RunebookError, StorageFailed, StoreBusy, TooLarge
from memory_core.core.memory.message import Message, dump_lines, parse_lines
from memory_core.core.memory.message_shapes import parse_messages
from memory_core.core.memory.project import ProjectAssignment
from memory_core.core.memory.results import Action
from memory_core.core.store.local import REPEATED
from memory_core.features.imports.items import ConversationItem, LeftOut, digest_of

if TYPE_CHECKING:
    from memory_core.runebook import Runebook

_SHARE = 2  # of a commit's limit that messages may take; what they teach needs room too
_GENERATIONS = 100


@dataclass(slots=True)
class Recorded:
    """What became of one conversation; ``messages`` were stored, ``passed_over`` are private and not here."""

    session_id: str
    action: Action = Action.UNCHANGED
    messages: int = 0
    passed_over: list[Mapping[str, Any]] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class ConversationRecorder:
    """Records conversations into one store.

    Args:
        memory: The store.
        scope: Format and spaces, which an id means the same in.
    """

    def __init__(self, memory: Runebook, scope: tuple[str, ...]) -> None:
        self._memory = memory
        self._scope = scope
        self._part_bytes = memory.config.limits.commit_bytes // _SHARE
        self._part_messages = memory.config.limits.commit_messages

    def record(
        self,
        item: ConversationItem,
        assignment: ProjectAssignment,
        now: datetime,
        is_private: Callable[[Mapping[str, Any]], bool] | None = None,
        *,
        dry_run: bool = False,
    ) -> Recorded:
        """Record what is new of a conversation; a message that cannot be taken is left out alone.

        Args:
            item: The conversation.
            assignment: Its project.
            now: When it is recorded.
            is_private: Whether private mode keeps a message out; None keeps out none.
            dry_run: Whether to write nothing.

        Raises:
            StoreBusy: If another writer held the store too long. What came before is stored.
            StorageFailed: If the disk refuses. What came before is stored.
        """
        done = Recorded(self._session(item.session_id))
        judged = [(each, is_private is not None and is_private(each)) for each in item.messages]
        if private := [each for each, passed_over in judged if passed_over]:
            done.passed_over = self._absent(private, self._stored(self._sessions(done.session_id)))
            item = replace(item, messages=tuple(each for each, passed_over in judged if not passed_over))
        for part in self._parts(item, done):
            try:
                self._record(part, item, assignment, now, done, dry_run=dry_run)
            except (StoreBusy, StorageFailed):
                raise
            except RunebookError as error:
                done.left_out.append(LeftOut(f"{item.place}, from message {part[0].get('id')}", error.message))
        return done

    def _session(self, imported: str) -> str:
        """The session of a conversation; where a hook keeps it under the program's own name of it, that one."""
        own = imported.removeprefix(f"{self._scope[0]}-")
        files, log = self._memory.store.files, self._memory.commits.session_uri
        try:
            kept = own != imported and files.is_dir(log(own).parent) and not files.is_dir(log(imported).parent)
        except InvalidUri:  # nothing can be kept under such a name
            return imported
        return own if kept else imported

    def _parts(self, item: ConversationItem, done: Recorded) -> Iterator[list[Mapping[str, Any]]]:
        part: list[Mapping[str, Any]] = []
        size = 0
        for index, message in enumerate(item.messages):
            try:
                parsed = parse_messages([message])
            except RunebookError as error:
                reason = error.message.replace("messages[0]", "it")
                done.left_out.append(LeftOut(f"{item.place}, message {message.get('id') or index}", reason))
                continue
            message_bytes = len(dump_lines(parsed).encode("utf-8"))
            if part and (size + message_bytes > self._part_bytes or len(part) == self._part_messages):
                yield part
                part, size = [], 0
            part += [message] if parsed else []
            size += message_bytes
        if part:
            yield part

    def _record(
        self,
        part: Sequence[Mapping[str, Any]],
        item: ConversationItem,
        assignment: ProjectAssignment,
        now: datetime,
        done: Recorded,
        *,
        dry_run: bool,
    ) -> None:
        request_id = self._request(item, part)
        if request_id is None:
            return
        sessions = self._sessions(done.session_id)
        stored = self._stored(sessions)
        ids = self._ids(stored)
        fresh = self._not_forgotten([message for message in part if message.get("id") not in ids], stored)
        if not fresh:
            return
        record = partial(self._memory.recorder.record, request_id=request_id, dry_run=dry_run, now=now)
        try:
            receipt = record(fresh, session_id=sessions[-1], assignment=assignment)
        except TooLarge:  # the session is full
            following = f"{done.session_id}~{len(sessions) + 1}"
            receipt = record(fresh, session_id=following, assignment=as_before(stored, assignment))
        taken = next((result.action for result in receipt.results if result.op == "messages"), Action.UNCHANGED)
        if REPEATED in receipt.notes or taken is Action.UNCHANGED:
            return
        done.action = taken if done.action is Action.UNCHANGED else done.action
        done.messages += (receipt.usage or {}).get("messages_new", len(fresh))
        done.commits += [receipt.commit_id] if receipt.commit_id else []
        done.notes += [f"{item.place}: {note}" for note in receipt.notes]

    def _sessions(self, session_id: str) -> list[str]:
        """The sessions that a conversation fills: one, and of a very long one those in which it goes on."""
        sessions, files = [session_id], self._memory.store.files
        while (
            files.stat(self._memory.commits.session_uri(following := f"{session_id}~{len(sessions) + 1}")) is not None
        ):
            sessions.append(following)
        return sessions

    def _not_forgotten(self, part: Sequence[Mapping[str, Any]], stored: Sequence[Message]) -> list[Mapping[str, Any]]:
        """What is not sent again of what was forgotten, in whichever session of the conversation."""
        marks = {message.extra[FORGOTTEN] for message in stored if is_forgotten(message)}
        clean = self._memory.commits.cleaner.messages
        return [each for each in part if not marks or marks.isdisjoint(map(digest, clean(parse_messages([each]))[0]))]

    def _stored(self, sessions: Sequence[str]) -> list[Message]:
        texts = (self._memory.store.text(self._memory.commits.session_uri(session)) for session in sessions)
        return [message for text in texts for message in parse_lines(text or "")[0]]

    def _absent(self, messages: Sequence[Mapping[str, Any]], stored: Sequence[Message]) -> list[Mapping[str, Any]]:
        """What is not stored of some messages, by id, or, of those that have none, by what they say."""
        ids, clean = self._ids(stored), self._memory.commits.cleaner.messages
        said = set() if all(each.get("id") for each in messages) else set(map(digest, stored))

        def is_stored(message: Mapping[str, Any]) -> bool:
            if message.get("id"):
                return str(message["id"]) in ids
            try:
                return said.issuperset(map(digest, clean(parse_messages([message]))[0]))
            except RunebookError:  # it is none that can be stored
                return False

        return [each for each in messages if not is_stored(each)]

    @staticmethod
    def _ids(stored: Sequence[Message]) -> set[str]:
        return {message.message_id for message in stored if message.message_id is not None}

    def _request(self, item: ConversationItem, part: Sequence[Mapping[str, Any]]) -> str | None:
        """What this part is called as a request; None where it is in the store, or was and its owner let it go."""
        ledger = self._memory.store.ledger
        said = digest_of([[message.get("id"), str(message.get("content"))] for message in part])
        for generation in range(1, _GENERATIONS):
            place = digest_of([*self._scope, item.item_id])
            name = self._memory.request_key(f"import/{place}/{said}/{generation}")
            if name is None or (first := ledger.receipt_for(name)) is None:
                return name
            if not ledger.past.undone_by(str(first["commit_id"])):
                return None
        return None
