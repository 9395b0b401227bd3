"""The working copy of a plan: every text as the operations so far leave it, over a snapshot of the store.

Knows which file holds which key or name, and which URI a memory got that was asked for under another. Decides
nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory_core.errors import MemoryChanged, NotFound
from memory_core.model import filename
from memory_core.model.changes import FileChange, text_sha256
from memory_core.model.memory_file import parse
from memory_core.model.project import project_key, stored_project
from memory_core.model.record import read_record, record_key
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.storage.store import Snapshot
from memory_core.update.bounds import Context


class Draft:
    """Texts before and after, by URI."""

    def __init__(self, snapshot: Snapshot, context: Context) -> None:
        self.snapshot = snapshot
        self.context = context
        self._before: dict[MemoryUri, str | None] = {}
        self._after: dict[MemoryUri, str | None] = {}
        self._keys: dict[MemoryUri, tuple[str, str]] = {}
        self._aliases: dict[MemoryUri, MemoryUri] = {}
        self._by_key: dict[tuple[MemoryUri, str, str], MemoryUri] = {}
        self._came_from: dict[MemoryUri, MemoryUri] = {}
        self._by_name: dict[tuple[MemoryUri, str], set[MemoryUri]] = {}

    def owned(self, text: str) -> MemoryUri:
        """The file that an operation names, if it may touch it; see ``Context.owned``.

        A memory that this plan creates also goes by the URI under which it was asked for.

        Raises:
            InvalidUri: If it may not.
        """
        uri = self.context.owned(text)
        return self._aliases.get(uri, uri)

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

    def existing(self, uri: MemoryUri) -> str:
        """The text of a file that must be there.

        Raises:
            NotFound: If it is not.
            MemoryChanged: If it was there when the author of the operations looked.
        """
        text = self.text(uri)
        if text is None:
            self.expect_never_seen(uri)
            raise NotFound(
                f"there is no memory at {str(uri)!r}.",
                hint="Look it up with find, or list its directory with ls.",
            )
        return text

    def seen_sha256(self, uri: MemoryUri) -> str | None:
        """Hash of the text as the author of the operations saw it; None if not seen."""
        return (self.context.expected or {}).get(str(uri))

    def moved(self, uri: MemoryUri) -> bool:
        """Whether the author of the operations saw another text than the one before this plan, or none."""
        seen, before = self.seen_sha256(uri), self.before(uri)
        if self.context.expected is None or (seen is None and self.context.reads_elsewhere):
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
        """Set the text; None removes the file."""
        self.before(uri)
        self._after[uri] = text
        self._by_name.setdefault((uri.parent, filename.fold(uri.name)), set()).add(uri)

    def move(self, source: MemoryUri, target: MemoryUri, text: str) -> None:
        """Move a file; its history, its counts and what the ledger knows of it go along."""
        file = parse(text)
        memory_type = self.context.registry.type_at(source, file.type_name)
        self.put(source, None)
        self.put(target, text)
        self._came_from[target] = self._came_from.pop(source, source)
        if memory_type is not None:
            record = read_record(memory_type, file, source.name.removesuffix(".md"))
            self.identify(target, memory_type.name, record_key(memory_type, record))

    def is_taken(self, uri: MemoryUri) -> bool:
        """Whether a file, or a twin of its name, is there."""
        return self._taken(uri.parent, uri.name)

    def identify(self, uri: MemoryUri, memory_type: str, key: str) -> None:
        """Note which memory a file holds."""
        self._keys[uri] = (memory_type, key)
        self._by_key[uri.parent, memory_type, key] = uri

    def changes(self) -> tuple[FileChange, ...]:
        """All net changes; a file that ends as it began is none."""
        return tuple(
            FileChange(
                uri, self._before[uri], after, *self._keys.get(uri, ("", "")), moved_from=self._came_from.get(uri)
            )
            for uri, after in self._after.items()
            if after != self._before[uri]
        )

    def locate(self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> MemoryUri | None:
        """The file that holds this key: in this plan, by the ledger, or hand-written under the same name.

        Of the project at hand first, then of none; never of another project.
        """
        for project in self.context.belonging.sought(memory_type):
            found = self._held(directory, memory_type, fields, project)
            if found is not None:
                return found
        return None

    def _held(
        self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any], project: str | None
    ) -> MemoryUri | None:
        key = project_key(project, filename.key_of(fields, memory_type.key_fields))
        planned = self._by_key.get((directory, memory_type.name, key))
        if planned is not None and self._keys[planned] == (memory_type.name, key) and self.text(planned) is not None:
            return planned
        # Of two older files with one key the one that is spelt alike comes first.
        candidate = directory.child(filename.render(memory_type.filename_template, fields))
        if self._holds(candidate, memory_type, key, bare=project is None):
            return candidate
        found = self.snapshot.locate(directory, memory_type.name, key)
        text = None if found is None else self.text(found)
        # A hand edit that the ledger has not seen yet may have given the file to another project.
        if text is None or stored_project(memory_type, parse(text).trailer or {}) != project:
            return None
        return found

    def free_name(self, directory: MemoryUri, memory_type: MemoryType, fields: Mapping[str, Any]) -> MemoryUri:
        """Where a new memory goes: the name that its type gives it, marked where another file has it."""
        project = self.context.belonging.of_type(memory_type)
        key = project_key(project, filename.key_of(fields, memory_type.key_fields))
        name = filename.render(memory_type.filename_template, fields)
        if self._taken(directory, name) and not self._vanished(directory.child(name), memory_type, key):
            stem, dot, extension = name.rpartition(".")
            name = filename.fit(stem, dot + extension, "~" + filename.short_hash(key))
        return directory.child(name)

    def type_of(self, uri: MemoryUri) -> MemoryType:
        """The type of an existing memory.

        Raises:
            NotFound: If there is no such file, or it belongs to no type.
        """
        found = self.context.registry.type_at(uri, parse(self.existing(uri)).type_name)
        if found is None or not uri.name.endswith(".md"):
            raise NotFound(
                f"{str(uri)!r} belongs to no known memory type.",
                hint="Edit the file by hand, or add a YAML type for its directory.",
            )
        return found

    def _holds(self, uri: MemoryUri, memory_type: MemoryType, key: str, *, bare: bool) -> bool:
        """Whether the file holds this key; ``bare``: or has no trailer, but the name that the key gives."""
        text = self.text(uri)
        if text is None:
            return False
        file = parse(text)
        record = read_record(memory_type, file, uri.name.removesuffix(".md"))
        if file.trailer is None:
            return bare
        return record_key(memory_type, record) == key

    def _taken(self, directory: MemoryUri, name: str) -> bool:
        planned = self._by_name.get((directory, filename.fold(name)), ())
        if any(self._after[uri] is not None for uri in planned):
            return True
        return self.snapshot.name_taken(directory, name)

    def _vanished(self, uri: MemoryUri, memory_type: MemoryType, key: str) -> bool:
        """Whether a person removed the file that the name table still knows under this very key."""
        known = self.snapshot.locate(uri.parent, memory_type.name, key)
        return known == uri and self.text(uri) is None
