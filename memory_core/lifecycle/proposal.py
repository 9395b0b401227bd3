"""What a migration should make of one file: decided from its text and name alone.

Owns the line between files that are as they should be, files that can be brought to the present format without
doubt, and files that need a person. Pure; free names, links and commits are ``migrate``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from memory_core.lifecycle.older_format import Naming, is_random_name, is_rendering, name_of, understand
from memory_core.model import filename
from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.record import CONTENT, MemoryRecord, write_record
from memory_core.model.schema import MemoryType

_BURIED = re.compile(r"^[ \t]*<!--[ \t]*MEMORY_FIELDS", re.MULTILINE)
_FORM = re.compile(r"[\s_-]+")
_COLLISION = re.compile(r"~[0-9a-f]{8}$")


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a file should become, its new name aside.

    Attributes:
        memory_type: Its type.
        record: The memory in the present format.
        naming: The key to name it by; None where the name stays.
        why: What is done, as a phrase.
    """

    memory_type: MemoryType
    record: MemoryRecord
    naming: Naming | None
    why: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a file is left alone, and what a person can do about it."""

    reason: str
    hint: str


def propose(memory_type: MemoryType, stem: str, text: str, modified_at: str | None = None) -> Proposal | Refusal | None:
    """Decide what becomes of one file, from its text and name alone.

    Args:
        memory_type: The type that the store takes the file for.
        stem: Its name without ``.md``.
        text: Its whole text.
        modified_at: When it was last written, ISO 8601; kept as ``updated_at`` where the file has no time.

    Returns:
        None if it is as it should be.
    """
    file = parse(text)
    refusal = _refusal(memory_type, file)
    if refusal is not None:
        return refusal
    random = bool(memory_type.key_fields) and is_random_name(stem)
    if file.trailer is None and not random and not is_rendering(memory_type, file.body):
        return None
    reading = understand(memory_type, file, stem)
    record = reading.record
    naming = name_of(memory_type, reading, stem) if memory_type.key_fields else None
    if random and naming is not None and naming.given and _alike(stem, _stem(memory_type, naming.keys)):
        random = False  # a key may look like an identifier
    if random and naming is None:
        return Refusal("nothing in it makes a name", "Give the file a heading, or rename it by hand.")
    if naming is not None:
        made = {key: value for key, value in naming.keys.items() if str(record.fields.get(key, "")).strip() != value}
        record = replace(record, fields={**record.fields, **made})
    converted = dump(write_record(memory_type, record)) != text
    if not random and not converted:
        return None
    if not (record.meta.get("updated_at") or record.meta.get("created_at")) and modified_at is not None:
        record = replace(record, meta={**record.meta, "updated_at": modified_at})
    renames = random or (naming is not None and naming.given and not _alike(stem, _stem(memory_type, record.fields)))
    remarks = [*([f"named by {naming.why}"] if renames and naming else ["trailer of another format"]), *reading.remarks]
    return Proposal(memory_type, record, naming if renames else None, "; ".join(remarks))


def _refusal(memory_type: MemoryType, file: MemoryFile) -> Refusal | None:
    """Why nobody but a person should change the file, or None."""
    if file.damage is not None:
        return Refusal(file.damage, "Mend or remove the trailer by hand.")
    if file.trailer is None:
        if any(_opens_trailer(file.body, match.end()) for match in _BURIED.finditer(file.body)):
            return Refusal("it has a MEMORY_FIELDS comment that is not its end", "Move the comment to the end.")
        return None
    content = file.trailer.get(CONTENT)
    twofold = not memory_type.template_mode and isinstance(content, str) and content.strip() and file.body.strip()
    if twofold and isinstance(content, str) and content.split() != file.body.split():
        return Refusal("its text and the content in its trailer differ", "Keep one of the two.")
    return None


def _opens_trailer(text: str, at: int) -> bool:
    """Whether a JSON object begins here; prose about trailers has none."""
    brace = text.find("{", at)
    if brace < 0 or text[at:brace].strip():
        return False
    try:
        return isinstance(json.JSONDecoder().raw_decode(text, brace)[0], dict)
    except (ValueError, RecursionError):
        return False


def _stem(memory_type: MemoryType, fields: Mapping[str, Any]) -> str:
    return filename.render(memory_type.filename_template, fields).removesuffix(".md")


def _alike(stem: str, wanted: str) -> bool:
    """Whether two names differ in form only: case, spacing, underscores, the mark of a collision."""
    first, second = (_FORM.sub(" ", filename.fold(_COLLISION.sub("", name))).strip() for name in (stem, wanted))
    return first == second
