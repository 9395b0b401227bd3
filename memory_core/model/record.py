"""A memory as its type sees it: declared fields, metadata, and what nobody declared.

Maps between a parsed file and the fields that merging works on. Simple mode: the body *is* ``content``.
Template mode: the body is rendered, and a body that no longer is what was rendered is a hand edit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory_core.model.filename import key_of
from memory_core.model.memory_file import MemoryFile
from memory_core.model.moment import read_moment
from memory_core.model.project import project_key, stored_project
from memory_core.model.rendered import behind, stem_keys
from memory_core.model.schema import RESERVED_KEYS, FieldValue, MemoryType

CONTENT = "content"
_FIRST_WORDS = 12


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory.

    Attributes:
        fields: Declared fields that are set; in simple mode ``content`` is the body.
        meta: Reserved keys (``salience``, ``created_at``, …), without ``memory_type``.
        unknown: Trailer keys that are neither; kept as they are.
        body: The Markdown body as stored.
        hand_edited: In template mode, whether a person changed the rendered body.
    """

    fields: Mapping[str, FieldValue]
    meta: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    hand_edited: bool = False


def body_digest(body: str) -> str:
    """Sixteen hexadecimal digits that tell whether a rendered body was touched."""
    return hashlib.sha256(body.encode("utf-8")).hexdigest()[:16]


def read_record(memory_type: MemoryType, file: MemoryFile, stem: str) -> MemoryRecord:
    """The record in a parsed file.

    Args:
        memory_type: The type the file belongs to.
        file: The parsed file; without a trailer it is hand-written.
        stem: The file name without ``.md``; names a memory whose trailer holds no key.

    A rendered body without ``rendered_sha256`` comes from an older program: what it shows counts as stored.
    """
    trailer = dict(file.trailer or {})
    trailer.pop("memory_type", None)
    declared = {name.name for name in memory_type.fields}
    fields = {name: value for name, value in trailer.items() if name in declared and value is not None}
    meta = {name: value for name, value in trailer.items() if name in RESERVED_KEYS}
    unknown = {name: value for name, value in trailer.items() if name not in declared and name not in meta}
    rendered = meta.get("rendered_sha256")
    known = behind(memory_type, fields, file.body) if memory_type.template_mode and rendered is None else None
    fields = known or fields
    if memory_type.key_fields and not any(str(fields.get(key, "")).strip() for key in memory_type.key_fields):
        fields |= stem_keys(memory_type, stem)
    if memory_type.template_mode:
        edited = known is None and bool(file.body.strip()) and rendered != body_digest(file.body)
        return MemoryRecord(fields, meta, unknown, file.body, edited)
    return MemoryRecord({**fields, CONTENT: file.body}, meta, unknown, file.body)


def write_record(memory_type: MemoryType, record: MemoryRecord) -> MemoryFile:
    """The file that holds the record; the trailer lists fields, then metadata, then unknown keys."""
    in_body = () if memory_type.template_mode else (CONTENT,)
    trailer: dict[str, Any] = {
        declared.name: record.fields[declared.name]
        for declared in memory_type.fields
        if declared.name in record.fields and declared.name not in in_body and declared.avg is None
    }
    trailer["memory_type"] = memory_type.name
    trailer |= {name: record.meta[name] for name in RESERVED_KEYS if record.meta.get(name) is not None}
    trailer |= {name: value for name, value in record.unknown.items() if name not in trailer}
    return MemoryFile(record.body, trailer)


def record_key(memory_type: MemoryType, record: MemoryRecord) -> str:
    """The normalised key that makes two records the same memory; memories of two projects are never the same."""
    project = stored_project(memory_type, record.meta)
    return project_key(project, key_of(record.fields, memory_type.key_fields))


def next_version(stored: Any) -> int:
    """One more than the stored version; a hand edit may have left anything there."""
    sound = isinstance(stored, int) and not isinstance(stored, bool) and stored > 0
    return stored + 1 if sound else 1


def changed_at(meta: Mapping[str, Any]) -> datetime | None:
    """When a memory was last changed, aware; None where its trailer does not say."""
    return read_moment(meta.get("updated_at") or meta.get("created_at"))


def line_of(file: MemoryFile) -> str:
    """What a file says of itself: its abstract, a segment's summary, else its body."""
    trailer = file.trailer or {}
    said = (trailer.get(name) for name in ("abstract", "summary"))
    return next((line for line in said if isinstance(line, str) and line.strip()), file.body)


def first_words(text: str, limit_chars: int = 60) -> str:
    """A name for a text that has none: its first words, or first characters where there are no spaces."""
    line = next((line.strip(" #*->`\t") for line in text.splitlines() if line.strip(" #*->`\t")), "")
    words = " ".join(line.split()[:_FIRST_WORDS])
    for mark in ("。", "！", "？", ". ", "! ", "? "):
        words = words.split(mark, 1)[0]
    if len(words) > limit_chars:
        cut = words[:limit_chars]
        words = cut.rsplit(" ", 1)[0] if " " in cut else cut
    return words.rstrip(" .,;:，。；：、")


def summary_line(text: str, limit_chars: int) -> str:
    """The first sentence or so of a text on one line, at most ``limit_chars`` characters."""
    flat = " ".join(text.split())
    if len(flat) <= limit_chars:
        return flat
    cut = flat[: limit_chars - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[limit_chars // 2 :] else cut) + "…"
