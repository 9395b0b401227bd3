"""A memory: fields, body, metadata and links of one file, parsed once and carried as itself.

``parse`` reads a text, ``dump`` writes it; ``dump(parse(uri, text, types)) == text`` for every text that ``dump``
wrote. Simple mode: the body *is* the field ``content``, which follows the texts beside it (``template``); content that
was stored below a body corrected by hand, when the type had a template, is read as its last paragraphs. Template mode:
the body is rendered from the fields, and a body that no longer is what was rendered is a hand edit, which stays. Keys
that nobody declared stay too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from memory_core.core.frozen import frozen
from memory_core.core.memory.field_values import plain
from memory_core.core.memory.memory_type import CONTENT, FieldValue, MemoryType, MemoryTypeRegistry
from memory_core.core.memory.metadata import RESERVED_KEYS, SHOWN_FIELDS, Metadata
from memory_core.core.memory.names import key_of, stem_keys
from memory_core.core.memory.project import project_key, stored_project, told_project
from memory_core.core.memory.results import FileProblem
from memory_core.core.memory.shown_texts import (
    apart,
    gone_from,
    is_of,
    note_of,
    shows,
    with_content,
    with_corrections,
)
from memory_core.core.memory.template import behind, composed, followed, render, says, text_names
from memory_core.core.memory.trailer import Parts, body_digest, join, split
from memory_core.core.memory.uri import MemoryUri, Scope

_RENDERED = "rendered_sha256"
_NAME_CHARS = 60


@frozen
class Memory:
    """One memory.

    Attributes:
        uri: Where it is.
        type: None for a file that belongs to no type.
        fields: Declared fields that are set; in simple mode ``content`` is the body.
        metadata: System keys, without ``memory_type``.
        unknown: Keys of the trailer that are neither; kept as they are.
        body: The Markdown above the trailer.
        text: The whole file.
        hand_edited: In template mode, whether a person changed the rendered body.
        has_trailer: False for a file that was written by hand and that no commit touched.
        damage: Why the trailer could not be read; the whole text is the body then. None where all is well.
    """

    uri: MemoryUri
    type: MemoryType | None
    fields: Mapping[str, FieldValue]
    metadata: Metadata = field(default_factory=Metadata)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    text: str = ""
    hand_edited: bool = False
    has_trailer: bool = True
    damage: str | None = None

    @property
    def type_name(self) -> str:
        """The name of its type; empty for none."""
        return "" if self.type is None else self.type.name

    @property
    def project(self) -> str | None:
        """The project it belongs to, or None."""
        return stored_project(self.type, self.metadata)

    @property
    def told_in(self) -> str | None:
        """The project that it belongs to, or that was worked in when it was told; None for none."""
        return told_project(self.type, self.metadata)

    @property
    def is_private(self) -> bool:
        """Whether it is for its project only; without a project there is nobody to keep it for."""
        return self.metadata.get("private") is True and self.project is not None

    @property
    def key(self) -> str:
        """The normalised key that makes two memories one; memories of two projects are never the same."""
        return "" if self.type is None else project_key(self.project, key_of(self.fields, self.type.key_fields))

    @property
    def salience(self) -> float:
        """How important it is, in [0, 1]; by its type where it does not say."""
        return self.metadata.share("salience", 0.5 if self.type is None else self.type.salience)

    @property
    def shown(self) -> Mapping[str, Any]:
        """Of the texts that the body showed when a program wrote it last, by name, a digest, and one of its label."""
        return _shown_in(self.metadata)

    @property
    def line(self) -> str:
        """What it says of itself: its abstract, else a segment's summary, else its body."""
        said = (self.metadata.text(name) for name in ("abstract", "summary"))
        return next((line for line in said if line is not None and line.strip()), self.body)

    def changed(
        self,
        *,
        uri: MemoryUri | None = None,
        fields: Mapping[str, FieldValue] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """Another version of it, dumped: with these fields in all, and these metadata keys besides.

        Args:
            uri: Where it goes; default where it is.
            fields: All its fields.
            metadata: Keys that change; None takes one out.
        """
        memory = replace(self, uri=uri or self.uri, metadata=self.metadata.changed(metadata or {}), has_trailer=True)
        if fields is not None or SHOWN_FIELDS in memory.metadata:  # what a person changed since is noted anew
            memory = _with_fields(memory, memory.fields if fields is None else fields)
        return replace(memory, text=dump(memory))


def parse(uri: MemoryUri, text: str, types: MemoryTypeRegistry | None) -> Memory:
    """The memory in a text; never fails.

    Args:
        uri: Where the text stands; its name stands for a key that the trailer does not hold.
        text: The file.
        types: Tells the type; None reads a file of no type.

    A rendered body without a digest of itself comes from an older program: what it shows counts as stored.
    """
    parts = split(text)
    return _read(uri, text, parts, None if types is None else types.type_at(uri, parts.type_name))


def parse_as(uri: MemoryUri, text: str, memory_type: MemoryType) -> Memory:
    """The memory in a text that is known to be of a type; see ``parse``."""
    return _read(uri, text, split(text), memory_type)


def put_together(
    uri: MemoryUri, body: str, trailer: Mapping[str, Any], memory_type: MemoryType, *, edited: bool
) -> str:
    """The text of a memory whose body and fields come from different versions.

    A field that the body does not show was not taken out by anybody.

    Args:
        uri: Where it stands.
        body: In template mode it is rendered anew, unless a person edited it.
        trailer: All that stands beside it.
        memory_type: Its type.
        edited: Whether a person edited the body, in template mode.
    """
    unseen = {name: value for name, value in trailer.items() if name != SHOWN_FIELDS}
    memory = parse_as(uri, join(body, unseen), memory_type)
    metadata = memory.metadata.changed({SHOWN_FIELDS: trailer.get(SHOWN_FIELDS)})
    return dump(_with_body(replace(memory, metadata=metadata, hand_edited=edited), memory.fields, body))


def _read(uri: MemoryUri, text: str, parts: Parts, memory_type: MemoryType | None) -> Memory:
    trailer = dict(parts.trailer or {})
    made = partial(
        Memory, uri, memory_type, body=parts.body, text=text, has_trailer=parts.trailer is not None, damage=parts.damage
    )
    if memory_type is None:
        return made({CONTENT: parts.body}, Metadata(trailer))
    trailer.pop("memory_type", None)
    declared = {name.name for name in memory_type.fields}
    fields = {name: value for name, value in trailer.items() if name in declared and value is not None}
    metadata = {name: value for name, value in trailer.items() if name in RESERVED_KEYS}
    digest = metadata.get(_RENDERED)
    shown = behind(memory_type, fields, parts.body) if memory_type.template_mode and digest is None else None
    fields = dict(shown or fields)
    if memory_type.key_fields and not any(str(fields.get(key, "")).strip() for key in memory_type.key_fields):
        fields |= stem_keys(memory_type, uri.name.removesuffix(".md"))
    known, names = _shown_in(metadata), text_names(memory_type)
    once_shown = {name for name in names & known.keys() & fields.keys() if is_of(known[name], fields[name])}
    is_changed = bool(memory_type.template_mode or once_shown) and digest != body_digest(parts.body)
    edited = memory_type.template_mode and shown is None and bool(parts.body.strip()) and is_changed
    unknown = {name: value for name, value in trailer.items() if name not in declared and name not in metadata}
    body = parts.body
    corrected = names & known.keys() - once_shown  # in the trailer, by a person
    if corrected and (is_changed or not memory_type.template_mode):
        body, fields = with_corrections(memory_type, body, fields, {name: known[name] for name in corrected})
    named = names & (known.keys() | fields.keys())
    is_behind = memory_type.template_mode and not is_changed and SHOWN_FIELDS in metadata and once_shown < named
    if is_changed:  # a person edited the body: it says what is so, and no field that it was made of, or showed
        texts = {name: plain(fields[name]) for name in once_shown}
        gone = texts if memory_type.template_mode else gone_from(body, texts, known)
        fields = {name: value for name, value in fields.items() if name not in gone}
    if not memory_type.template_mode:
        content = trailer.get(CONTENT)
        if content is not None and not shows(body, str(content)):
            if isinstance(metadata.get(SHOWN_FIELDS), Mapping) and CONTENT not in known:
                body = with_content(body, str(content))
            else:  # a person corrected it in the body, or wrote both
                unknown[CONTENT] = content
        fields = {**fields, CONTENT: body}
    read = made(fields, Metadata(metadata), unknown, hand_edited=edited)
    if is_behind:  # a person changed a field in the trailer
        return _with_body(read, fields, body)
    return read if body is parts.body else replace(read, body=body)


def new_memory(
    uri: MemoryUri, memory_type: MemoryType, fields: Mapping[str, FieldValue], metadata: Mapping[str, Any]
) -> Memory:
    """A memory that was not there before, dumped."""
    return Memory(uri, memory_type, {}, Metadata(metadata)).changed(fields=fields)


def dump(memory: Memory) -> str:
    """The text of a memory; the trailer lists fields, then metadata, then what nobody declared."""
    if memory.type is None:
        return join(memory.body, dict(memory.metadata) if memory.has_trailer else None)
    in_body = () if memory.type.template_mode else (CONTENT,)
    trailer: dict[str, Any] = {
        declared.name: memory.fields[declared.name]
        for declared in memory.type.fields
        if declared.name in memory.fields and declared.name not in in_body and declared.avg is None
    }
    trailer["memory_type"] = memory.type.name
    trailer |= {name: memory.metadata[name] for name in RESERVED_KEYS if name in memory.metadata}
    trailer |= {name: value for name, value in memory.unknown.items() if name not in trailer}
    return join(memory.body, trailer)


def _with_fields(memory: Memory, fields: Mapping[str, FieldValue]) -> Memory:
    """The memory with other fields, and the body that follows from them; a rendered body edited by hand stays."""
    if memory.type is None:
        return replace(memory, fields=fields, body=str(fields.get(CONTENT) or ""))
    if not memory.type.template_mode:
        fields = followed(memory.type, memory.fields, fields)
    return _with_body(memory, fields, memory.body if memory.type.template_mode else str(fields.get(CONTENT) or ""))


def _with_body(memory: Memory, fields: Mapping[str, FieldValue], body: str) -> Memory:
    """The memory with these fields and this body, or the one that is rendered, and a note of what it shows of them."""
    assert memory.type is not None
    metadata: dict[str, Any] = {}
    in_template = memory.type.template_mode
    made = render(memory.type, fields) if in_template else body
    body = body if memory.hand_edited else made
    if not memory.hand_edited or SHOWN_FIELDS in memory.metadata:  # else an older program's: what it showed is unknown
        fields = apart(memory.type, fields, body) if memory.hand_edited else fields
        shown = _shown(memory, fields, body)
        if CONTENT in memory.unknown:  # nor is it read as a part of the body from now on
            shown[CONTENT] = ""
        metadata[SHOWN_FIELDS] = shown if shown or in_template else None
    metadata[_RENDERED] = body_digest(made) if in_template or metadata[SHOWN_FIELDS] else None
    return replace(memory, fields=fields, body=body, metadata=memory.metadata.changed(metadata))


def _shown_in(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """See ``Memory.shown``; a person may have left anything there."""
    known = metadata.get(SHOWN_FIELDS)
    return known if isinstance(known, Mapping) else {}


def _shown(memory: Memory, fields: Mapping[str, FieldValue], body: str) -> dict[str, str]:
    """The texts that the body shows: it is made of them, or shows them as before or in words enough to mean them.

    Beside a rendered body that a person edited is only what it does not show.
    """
    assert memory.type is not None
    if memory.hand_edited:
        return {}
    is_made = memory.type.template_mode or body.strip() == composed(memory.type, fields).strip()
    shown: dict[str, str] = {}
    names = text_names(memory.type)
    for name in (declared.name for declared in memory.type.fields if declared.name in names):
        text = plain(fields.get(name, "")).strip()
        is_known = is_made or (name in memory.shown and fields.get(name) == memory.fields.get(name))
        if text and shows(body, text) and (is_known or says(body, text)):
            shown[name] = note_of(body, text, in_template=memory.type.template_mode)
    return shown


def identify(types: MemoryTypeRegistry, uri: MemoryUri, text: str) -> tuple[str, str]:
    """Memory type and normalised key of a file that appeared on disk; empty for files of no type."""
    if not _is_memory(uri):
        return "", ""
    memory = parse(uri, text, types)
    return memory.type_name, memory.key


def _is_memory(uri: MemoryUri) -> bool:
    return uri.scope is not Scope.SESSION and uri.name.endswith(".md") and not uri.name.startswith(".")


def file_problems(types: MemoryTypeRegistry, uri: MemoryUri, text: str) -> tuple[FileProblem, ...]:
    """The problems of one file, none for most.

    Args:
        types: The memory types that are known.
        uri: Where the file is.
        text: All of it.
    """
    found: list[FileProblem] = []
    if "\x00" in text:
        found.append(FileProblem(str(uri), "it holds NUL characters", "Save it as plain UTF-8 text."))
    if not _is_memory(uri):
        return tuple(found)
    file = split(text)
    if file.damage is not None:
        hint = "Mend the block at the end of the file, or remove it; until then all of the file is its text."
        # without a parser's words, which may quote the file
        found.append(FileProblem(str(uri), file.damage.partition(": ")[0], hint))
    named = file.type_name if uri.parts[2:3] == ("memories",) else None
    if named is not None and types.type_at(MemoryUri(), named) is None:
        shown = "".join(character for character in named if character.isprintable())[:_NAME_CHARS]
        hint = "Correct memory_type, or add a YAML file for that type to one of schema_dirs; see runebook types."
        found.append(FileProblem(str(uri), f"its memory_type {shown!r} is not known", hint))
    return tuple(found)
