"""What operations say about a memory beside its content, as its trailer keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory_core.core.errors import ContentRejected, FieldRejected, InvalidUri, MemoryChanged, NotFound
from memory_core.core.memory import names
from memory_core.core.memory.memory import CONTENT, first_words, next_version, parse, read_record, record_key
from memory_core.core.memory.memory_type import FieldType, MemoryType, MemoryTypeRegistry, MergeOp, ProjectMode
from memory_core.core.memory.metadata import ACTIVE, EXPIRES_AT, PINNED, expires_after, expiry_text
from memory_core.core.memory.names import short_hash
from memory_core.core.memory.operations import EditOp, MemoryData, Standing
from memory_core.core.memory.project import Belonging, is_private, project_key, stored_project
from memory_core.core.memory.results import FileChange, text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.store.local import Snapshot


@dataclass(frozen=True, slots=True)
class Context:
    """What a plan needs beyond the operations.

    Attributes:
        user_space: Space that ``{user_space}`` in a type's directory means; likewise ``agent_space``.
        now: Time of the commit, ISO 8601 in UTC.
        source: Written into new memories: kind and, where known, session.
        belonging: The project of the memories, and whether they are private to it.
        content_bytes: Largest file a plan may produce.
        expected: SHA-256 of each file's text as the author of the operations saw it, by URI; None is no check.
        reads_elsewhere: Whether the author may have read files that ``expected`` does not name.
    """

    registry: MemoryTypeRegistry
    user_space: str
    agent_space: str
    now: str
    source: Mapping[str, Any] = field(default_factory=dict)
    belonging: Belonging = field(default_factory=Belonging)
    content_bytes: int = 262_144
    expected: Mapping[str, str] | None = None
    reads_elsewhere: bool = False

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
        own = {
            (Scope.USER.value, self.user_space, "memories"),
            (Scope.AGENT.value, self.agent_space, "memories"),
        }
        if uri.parts[:3] not in own:
            raise InvalidUri(
                f"operations may not touch {text!r}.",
                hint="Name a URI under viking://user/…/memories or viking://agent/…/memories, as ls prints it.",
            )
        return uri


_CONFINED_HINT = "Write it as a memory of its own, or leave private out."


def check_new(belonging: Belonging, memory_type: MemoryType) -> str | None:
    """Refuse a private memory of a type that belongs to no project.

    Returns:
        A note where the type keeps a memory out of the project that was named.

    Raises:
        ContentRejected: If it would be seen everywhere.
    """
    if memory_type.project is not ProjectMode.NEVER or belonging.project is None or not belonging.named:
        return None
    if belonging.confined:
        raise ContentRejected(
            f"memories of type '{memory_type.name}' are seen in every project, and this commit is private to one.",
            hint="Use another type, or leave private out.",
        )
    return f"memories of type '{memory_type.name}' belong to no project"


def check_existing(
    belonging: Belonging, memory_type: MemoryType, uri: MemoryUri, meta: Mapping[str, Any], *, replaces: bool
) -> None:
    """Refuse to change a memory that is not this project's to change.

    Args:
        belonging: Of the commit.
        memory_type: The memory's type.
        uri: The memory.
        meta: Its trailer.
        replaces: Whether its fields are written anew; an edit of a memory that was looked up may be of any project.

    Raises:
        FieldRejected: If it belongs to another project.
        ContentRejected: If the commit is private, and others see the memory.
    """
    project = stored_project(memory_type, meta)
    decided = belonging.project is not None or belonging.named
    if replaces and decided and project not in belonging.sought(memory_type):
        raise FieldRejected(
            f"{str(uri)!r} is not a memory of this project.",
            hint="Leave the uri out to write one for this project, or change that one by an edit operation.",
        )
    if belonging.confined and project != belonging.project:
        raise ContentRejected(
            f"{str(uri)!r} is seen outside of the project that this commit is private to.", hint=_CONFINED_HINT
        )


def check_shared(belonging: Belonging) -> None:
    """Refuse the summary of a directory from a private commit: it is shown in every project.

    Raises:
        ContentRejected: If the commit is private.
    """
    if belonging.confined:
        raise ContentRejected(
            "the summary of a directory is shown in every project, and this commit is private to one.",
            hint="Leave the overview operation out.",
        )


def privacy(belonging: Belonging, memory_type: MemoryType, meta: Mapping[str, Any]) -> dict[str, Any]:
    """What a commit says about the privacy of a memory of its own project that is there already."""
    if belonging.private is None or stored_project(memory_type, meta) != belonging.project or not belonging.project:
        return {}
    return {"private": True if belonging.private else None}


def owner(registry: MemoryTypeRegistry, uri: MemoryUri, text: str | None) -> tuple[str | None, bool]:
    """The project of a stored memory, and whether it is private to it."""
    file = parse(text or "")
    meta = file.trailer or {}
    memory_type = registry.type_at(uri, file.type_name)
    return stored_project(memory_type, meta), is_private(memory_type, meta)


#: Memories that begin alike are numbered so far; then a hash of the text names them.
_NUMBERED = 9


def named(memory_type: MemoryType, values: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fields with content and name filled in, and whether the name was made up.

    A key without a letter, such as a date, does not name a memory by itself: two events of one day are two.

    Raises:
        FieldRejected: If there is nothing to make a name of.
    """
    fields = dict(values)
    if CONTENT not in fields and not memory_type.template_mode:
        fields[CONTENT] = "\n\n".join(_told(memory_type, fields))
    keys = memory_type.key_fields
    missing = [key for key in keys if not str(fields.get(key, "")).strip()]
    if not missing or any(char.isalpha() for key in keys for char in str(fields.get(key, ""))):
        return fields, False
    name = first_words(str(fields.get(CONTENT, "")))
    if not name:
        raise FieldRejected(
            f"a memory of type '{memory_type.name}' needs a name.", hint=f"Give the field '{missing[-1]}'."
        )
    fields[missing[-1]] = name
    return fields, True


def numbered(memory_type: MemoryType, fields: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """The fields under the ``attempt``-th name to try, from 1: ``name``, ``name (2)``, …, ``name ~1a2b3c4d``."""
    if attempt == 1 or not memory_type.key_fields:
        return dict(fields)
    key = memory_type.key_fields[-1]
    text = str(fields.get(CONTENT, ""))
    mark = f"({attempt})" if attempt <= _NUMBERED else f"~{short_hash(f'{attempt - _NUMBERED}:{text}')}"
    return {**fields, key: f"{fields.get(key, '')} {mark}".strip()}


def _told(memory_type: MemoryType, fields: Mapping[str, Any]) -> list[str]:
    """The texts of a memory that was given no content."""
    return [
        str(fields[declared.name])
        for declared in memory_type.fields
        if declared.merge_op is MergeOp.PATCH
        and declared.type is FieldType.STRING
        and declared.name not in memory_type.key_fields
        and str(fields.get(declared.name, "")).strip()
    ]


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
        self._by_name.setdefault((uri.parent, names.fold(uri.name)), set()).add(uri)

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
        key = project_key(project, names.key_of(fields, memory_type.key_fields))
        planned = self._by_key.get((directory, memory_type.name, key))
        if planned is not None and self._keys[planned] == (memory_type.name, key) and self.text(planned) is not None:
            return planned
        # Of two older files with one key the one that is spelt alike comes first.
        candidate = directory.child(names.render(memory_type.filename_template, fields))
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
        key = project_key(project, names.key_of(fields, memory_type.key_fields))
        name = names.render(memory_type.filename_template, fields)
        if self._taken(directory, name) and not self._vanished(directory.child(name), memory_type, key):
            stem, dot, extension = name.rpartition(".")
            name = names.fit(stem, dot + extension, "~" + names.short_hash(key))
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
        planned = self._by_name.get((directory, names.fold(name)), ())
        if any(self._after[uri] is not None for uri in planned):
            return True
        return self.snapshot.name_taken(directory, name)

    def _vanished(self, uri: MemoryUri, memory_type: MemoryType, key: str) -> bool:
        """Whether a person removed the file that the name table still knows under this very key."""
        known = self.snapshot.locate(uri.parent, memory_type.name, key)
        return known == uri and self.text(uri) is None


_EXPLICIT = "user_explicit"


def first_meta(memory_type: MemoryType, data: MemoryData, context: Context) -> dict[str, Any]:
    """The metadata that a new memory begins with, before what was given counts."""
    meta: dict[str, Any] = {
        "version": 1,
        "created_at": data.said_at or context.now,
        "updated_at": data.said_at or context.now,
        "salience": memory_type.salience,
        "confidence": 1.0,
        "source": {**context.source, **data.source} or None,
        **context.belonging.meta(memory_type),
    }
    if memory_type.expires_after_days is not None:
        meta[EXPIRES_AT] = expires_after(context.now, memory_type.expires_after_days)
    return meta


def given_meta(data: MemoryData) -> Mapping[str, Any]:
    """What was given, by trailer key; None takes the key out, for what is the rule is not written down.

    Raises:
        InvalidInput: If an expiry is no date.
    """
    given = {
        "abstract": data.abstract,
        "overview": data.overview,
        "salience": data.salience,
        "confidence": data.confidence,
        "category": data.category,
        "tags": data.tags,
    }
    said: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if data.pinned is not None:
        said[PINNED] = True if data.pinned else None
    if data.active is not None:
        said[ACTIVE] = None if data.active else False
    if data.expires_at is not None:
        said[EXPIRES_AT] = expiry_text(data.expires_at) or None
    return said


def says_more(before: Mapping[str, Any], meta: Mapping[str, Any]) -> bool:
    """Whether metadata changed in more than a memory's standing."""
    return any(meta.get(name) != before.get(name) for name in (*before, *meta) if name not in Standing.model_fields)


def said_anew(before: Mapping[str, Any], data: MemoryData, context: Context) -> dict[str, Any]:
    """Version and time of a memory whose content changed, and who vouches for it now."""
    return {
        **vouched(before, context),
        "version": next_version(before.get("version")),
        "updated_at": data.said_at or context.now,
    }


def vouched(meta: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
    """What an explicit change makes of a memory that was learnt automatically: from now on somebody vouches for it."""
    source = meta.get("source")
    if context.source.get("kind") != _EXPLICIT or not isinstance(source, Mapping) or source.get("kind") == _EXPLICIT:
        return {}
    return {"source": {**source, "kind": _EXPLICIT}}


def edited(edit: EditOp, memory_type: MemoryType) -> MemoryData:
    """The metadata of an edit, whose fields are patches and travel apart."""
    return MemoryData(memory_type=memory_type.name, **{name: getattr(edit, name) for name in Standing.model_fields})
