"""The working copy of a plan: every file as the operations so far leave it, over a snapshot of the store.

Knows which file holds which key or name, and which URI a memory got that was asked for under another. A memory is
parsed once, when it is first looked at. Decides nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from memory_core.core.errors import FieldRejected, InvalidUri, MemoryChanged, NotFound, TooLarge
from memory_core.core.frozen import frozen
from memory_core.core.memory import names
from memory_core.core.memory.memory import Memory, parse
from memory_core.core.memory.memory_type import MemoryType, MemoryTypeRegistry
from memory_core.core.memory.project import ProjectAssignment, project_key
from memory_core.core.memory.results import FileChange, text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import NeedsTurn, Snapshot

#: What a commit may cost, and what an operation costs: of itself, for each character it reads and for each it merges.
_WORK_MOST = 6_291_456
#: What costs more is planned in its user's turn.
_WORK_SMALL = 1_048_576
OPERATION_WORK, _READ_WORK, MERGE_WORK = 8_192, 2, 8
#: What it costs to move a file, to look for one that is not there, and of a look for each part of a directory's path.
MOVE_WORK, ABSENT_WORK, PART_WORK = 6_144, 1_024, 8


class WriteMode(StrEnum):
    """What a write does where text stands that it does not say: add to it, be refused, or replace it."""

    ADD = "add"
    REFUSE = "refuse"
    REPLACE = "replace"


@frozen
class PlanContext:
    """What a plan needs beyond the operations.

    Attributes:
        user_space: Space that ``{user_space}`` in a type's directory means; likewise ``agent_space``.
        now: Time of the commit, ISO 8601 in UTC.
        said_at: When what the operations tell was said, ISO 8601 in UTC, where the conversation tells; else it is now.
        source: Written into new memories: kind and, where known, session.
        assignment: The project of the memories, and whether they are private to it.
        content_bytes: Largest file a plan may produce.
        seen: SHA-256 of each file's text as the author of the operations saw it, by URI; None is no check.
        reads_elsewhere: Whether the author may have read files that ``seen`` does not name.
        write_mode: What a write does to text that stands there, unless the write says `replace`.
        quotes: Whether results show what became of a memory's text.
    """

    registry: MemoryTypeRegistry
    user_space: str
    agent_space: str
    now: str
    said_at: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    assignment: ProjectAssignment = field(default_factory=ProjectAssignment)
    content_bytes: int = 262_144
    seen: Mapping[str, str] | None = None
    reads_elsewhere: bool = False
    write_mode: WriteMode = WriteMode.ADD
    quotes: bool = False

    def directory(self, memory_type: MemoryType) -> MemoryUri:
        """The directory of a type's memories."""
        return MemoryUri.parse(self.directory_text(memory_type))

    def directory_text(self, memory_type: MemoryType) -> str:
        """The directory of a type's memories as text, not validated; cheap enough to compare all types."""
        text = memory_type.directory.replace("{user_space}", self.user_space)
        return text.replace("{agent_space}", self.agent_space)

    def owned(self, text: str) -> MemoryUri:
        """The URI, if operations may touch it: memories of this user or agent, nothing else.

        Raises:
            InvalidUri: If not; whether such a file exists makes no difference.
        """
        uri = MemoryUri.parse(text)
        spaces = ((Scope.USER, self.user_space), (Scope.AGENT, self.agent_space))
        if uri.parts[:3] not in [(*space, "memories") for space in spaces]:
            raise InvalidUri(
                f"operations may not touch {text!r}.",
                hint="Name a URI under viking://user/…/memories or viking://agent/…/memories, as ls prints it.",
            )
        return uri


class WorkingCopy:
    """Files before and after a plan, by URI."""

    def __init__(self, snapshot: Snapshot, context: PlanContext) -> None:
        self.snapshot = snapshot
        self.context = context
        self._before: dict[MemoryUri, str | None] = {}
        self._work = 0
        self._after: dict[MemoryUri, str | None] = {}
        self._memories: dict[tuple[MemoryUri, str], Memory] = {}
        self._aliases: dict[MemoryUri, MemoryUri] = {}
        self._by_key: dict[tuple[MemoryUri, str, str], MemoryUri] = {}
        self._by_name: dict[tuple[MemoryUri, str], set[MemoryUri]] = {}
        self._moved_from: dict[MemoryUri, MemoryUri] = {}

    def owned(self, text: str) -> MemoryUri:
        """The file that an operation names, if it may touch it; see ``PlanContext.owned``.

        A memory that this plan creates also goes by the URI under which it was asked for.

        Raises:
            InvalidUri: If it may not.
            TooLarge: As ``work``.
        """
        self.work(0)  # where the commit may do no more, not even the name is read
        uri = self.context.owned(text)
        uri = self._aliases.get(uri, uri)
        self.work_on(uri)
        return uri

    def work_on(self, uri: MemoryUri) -> None:
        """Count a file that is to be changed; raises as ``work``, and then the file is not even read."""
        self.work(0)
        self.work(_READ_WORK * len(self.text(uri) or ""))

    def work(self, amount: int) -> None:
        """Count work that other writers wait for: what an operation costs, and the characters that it reads or merges.

        Raises:
            TooLarge: If it is as much already as they should wait for, about a second.
            NeedsTurn: If it is more than is planned without its user's turn.
        """
        if self._work > _WORK_MOST:
            raise TooLarge("the commit changes as much as one may already.", hint="Change the rest in another commit.")
        self._work += amount
        if self._work > _WORK_SMALL and not self.snapshot.may_be_long:
            raise NeedsTurn

    def alias(self, asked: MemoryUri, given: MemoryUri) -> None:
        """Note that the memory asked for under one URI was created under another."""
        self._aliases[asked] = given

    def before(self, uri: MemoryUri) -> str | None:
        """The text before this plan, or None."""
        if uri not in self._before:
            self._before[uri] = self.snapshot.text(uri)
        return self._before[uri]

    def text(self, uri: MemoryUri) -> str | None:
        """The text as the operations so far leave it, or None."""
        return self._after[uri] if uri in self._after else self.before(uri)

    def memory(self, uri: MemoryUri) -> Memory | None:
        """The memory as the operations so far leave it, or None."""
        return self._parsed(uri, self.text(uri))

    def memory_before(self, uri: MemoryUri) -> Memory | None:
        """The memory before this plan, or None."""
        return self._parsed(uri, self.before(uri))

    def existing(self, uri: MemoryUri) -> Memory:
        """A memory that must be there.

        Raises:
            NotFound: If it is not.
            MemoryChanged: If it was there when the author of the operations looked.
        """
        memory = self.memory(uri)
        if memory is None:
            self.expect_never_seen(uri)
            raise NotFound(
                f"there is no memory at {str(uri)!r}.", hint="Look it up with find, or list its directory with ls."
            )
        return memory

    def typed(self, uri: MemoryUri) -> tuple[Memory, MemoryType]:
        """A memory that must be there and belong to a type, and the type.

        Raises:
            NotFound: If there is no such file, or it belongs to no type.
            MemoryChanged: As ``existing``.
        """
        memory = self.existing(uri)
        if memory.type is None or not uri.name.endswith(".md"):
            raise NotFound(
                f"{str(uri)!r} belongs to no known memory type.",
                hint="Edit the file by hand, or add a YAML type for its directory.",
            )
        return memory, memory.type

    def changeable(self, uri: MemoryUri) -> Memory:
        """A memory as by ``typed`` whose trailer can be written anew; raises as that, too.

        Raises:
            FieldRejected: If its trailer is damaged.
        """
        self.work_on(uri)
        memory, _ = self.typed(uri)
        expect_sound(memory)
        return memory

    def seen_sha256(self, uri: MemoryUri) -> str | None:
        """Hash of the text as the author of the operations saw it; None if not seen."""
        return (self.context.seen or {}).get(str(uri))

    def seen_text(self, uri: MemoryUri) -> str | None:
        """The text as the author of the operations saw it; None if not seen, or no commit knows it."""
        seen = self.seen_sha256(uri)
        return None if seen is None else self.snapshot.ledger.text_with(uri, seen)

    def memory_seen(self, uri: MemoryUri) -> Memory | None:
        """The memory as the author of the operations saw it; see ``seen_text``."""
        return self._parsed(uri, self.seen_text(uri))

    def changed_since_seen(self, uri: MemoryUri) -> bool:
        """Whether the author of the operations saw another text than the one before this plan, or none."""
        seen, before = self.seen_sha256(uri), self.before(uri)
        if self.context.seen is None or (seen is None and self.context.reads_elsewhere):
            return False
        return seen != (None if before is None else text_sha256(before))

    def removed(self, uri: MemoryUri) -> bool:
        """Whether the author of the operations saw a file that is gone."""
        return self.seen_sha256(uri) is not None and self.before(uri) is None

    def expect_never_seen(self, uri: MemoryUri) -> None:
        """Refuse to bring back what somebody removed meanwhile.

        Raises:
            MemoryChanged: If the author of the operations saw the file and it is gone.
        """
        if self.removed(uri):
            raise MemoryChanged(
                f"{str(uri)!r} was removed since it was read.",
                hint="Look again with find or ls; write it anew if it should be there after all.",
                uri=str(uri),
            )

    def put(self, uri: MemoryUri, text: str | None) -> None:
        """Set the text of a file that is no memory; None removes any file."""
        self.before(uri)
        self._after[uri] = text
        self._by_name.setdefault((uri.parent, names.fold(uri.name)), set()).add(uri)

    def store(self, memory: Memory) -> None:
        """Set a memory; from now on it holds its key."""
        self.put(memory.uri, memory.text)
        self._memories[memory.uri, memory.text] = memory
        self._by_key[memory.uri.parent, memory.type_name, memory.key] = memory.uri

    def move(self, source: MemoryUri, memory: Memory) -> None:
        """Move a file to where a memory goes; its history, its counts and what the ledger knows of it go along."""
        self.put(source, None)
        self.store(memory)
        self._moved_from[memory.uri] = self._moved_from.pop(source, source)

    def is_taken(self, uri: MemoryUri) -> bool:
        """Whether a file, or a twin of its name, is there."""
        planned = self._by_name.get((uri.parent, names.fold(uri.name)), ())
        if any(self._after[name] is not None for name in planned):
            return True
        return self.snapshot.name_taken(uri.parent, uri.name)

    def changes(self) -> tuple[FileChange, ...]:
        """All net changes; a file that ends as it began is none."""
        return tuple(self._change(uri, after) for uri, after in self._after.items() if after != self._before[uri])

    def locate(self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> MemoryUri | None:
        """The file that holds this key: in this plan, by the ledger, or hand-written under the same name.

        Of the project at hand first, then of none; never of another project.
        """
        for project in self.context.assignment.sought(memory_type):
            found = self._holder(directory, memory_type, fields, project)
            if found is not None:
                return found
        return None

    def holder(self, memory: Memory) -> MemoryUri | None:
        """Another file of its directory and type that holds a memory's key."""
        directory, key = memory.uri.parent, memory.key
        found = self._by_key.get((directory, memory.type_name, key))
        if found is None or found == memory.uri:
            found = self.snapshot.locate(directory, memory.type_name, key)
        held = None if found is None or found == memory.uri else self.memory(found)
        return None if held is None or held.key != key else held.uri

    def free_name(self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> MemoryUri:
        """Where a new memory goes: the name that its type gives it, marked where another file has it."""
        project = self.context.assignment.of_type(memory_type)
        key = project_key(project, names.key_of(fields, memory_type.key_fields))
        name = names.render(memory_type.filename_template, fields)

        def is_taken(uri: MemoryUri) -> bool:
            return self.is_taken(uri) and not self._vanished(uri, memory_type, key)

        return self.free_beside(directory.child(name), key, is_taken)

    def free_beside(self, uri: MemoryUri, seed: str, is_taken: Callable[[MemoryUri], bool] | None = None) -> MemoryUri:
        """The URI, or one beside it, marked by ``seed``, that no file has."""
        tried, number = uri, 0
        while (is_taken or self.is_taken)(tried):
            mark = names.short_hash(f"{seed} {number}" if number else seed)
            stem, dot, extension = uri.name.rpartition(".")
            tried = uri.parent.child(names.fit(stem, dot + extension, f"~{mark}"))
            number += 1
        return tried

    def _parsed(self, uri: MemoryUri, text: str | None) -> Memory | None:
        if text is None:
            return None
        found = self._memories.get((uri, text))
        if found is None:
            found = self._memories[uri, text] = parse(uri, text, self.context.registry)
        return found

    def _change(self, uri: MemoryUri, after: str | None) -> FileChange:
        memory = self._parsed(uri, after) if _is_memory(uri) else None
        name, key = ("", "") if memory is None else (memory.type_name, memory.key)
        return FileChange(uri, self._before[uri], after, name, key, moved_from=self._moved_from.get(uri))

    def _holder(
        self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any], project: str | None
    ) -> MemoryUri | None:
        key = project_key(project, names.key_of(fields, memory_type.key_fields))
        planned = self._by_key.get((directory, memory_type.name, key))
        if planned is not None and (memory := self.memory(planned)) is not None and memory.key == key:
            return planned
        # Of two older files with one key the one that is spelt alike comes first.
        candidate = directory.child(names.render(memory_type.filename_template, fields))
        self.snapshot.foresee(candidate, memory_type.name, key)
        if self._holds(candidate, key, bare=project is None):
            return candidate
        found = self.snapshot.locate(directory, memory_type.name, key)
        memory = None if found is None else self.memory(found)
        # A hand edit that the ledger has not seen yet may have given the file to another project.
        return found if memory is not None and memory.project == project else None

    def _holds(self, uri: MemoryUri, key: str, *, bare: bool) -> bool:
        """Whether the file holds this key; ``bare``: or has no trailer, but the name that the key gives."""
        memory = self.memory(uri)
        if memory is None:
            return False
        return memory.key == key if memory.has_trailer else bare

    def _vanished(self, uri: MemoryUri, memory_type: MemoryType, key: str) -> bool:
        """Whether a person removed the file that the name table still knows under this very key."""
        known = self.snapshot.locate(uri.parent, memory_type.name, key)
        return known == uri and self.text(uri) is None


def expect_sound(memory: Memory) -> None:
    """Refuse to change a memory whose trailer cannot be read.

    Raises:
        FieldRejected: If so.
    """
    if memory.damage is not None:
        raise FieldRejected(f"{str(memory.uri)!r}: {memory.damage}.", hint="Mend or remove the file's trailer by hand.")


def _is_memory(uri: MemoryUri) -> bool:
    return uri.scope is not Scope.SESSION and uri.name.endswith(".md") and not uri.is_summary
