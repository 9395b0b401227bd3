"""A stored memory as the model sees it: its URI and the fields it may edit, in blocks that it cannot leave.

Simple mode shows the body as the field ``content``; template mode shows the text fields, not the rendering. Only a
memory that was shown whole counts as seen. Reads through the callable it is given; never writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memory_core.errors import InvalidUri, RunebookError
from memory_core.model.changes import text_sha256
from memory_core.model.memory_file import parse
from memory_core.model.record import MemoryRecord, read_record
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.react.fencing import cut_end, fenced, fits
from memory_core.react.guide import writable_fields
from memory_core.registry import MemoryTypeRegistry
from memory_core.scoring.tokens import count_tokens

#: The text of a file that the user may see, or None; never that of another space.
Text = Callable[[str], str | None]

_INLINE_CHARS = 200
_CUT = "(its beginning only: too long to be shown whole, so do not change it)"
#: Less of a text than this is not worth showing.
_LEAST_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Shown:
    """One text in a prompt; ``sha256`` identifies the file's text, None where it is not shown whole."""

    uri: str
    text: str
    sha256: str | None


class MemoryView:
    """Shows files.

    Args:
        text: Reads a file.
        registry: Tells which type a file belongs to.
    """

    def __init__(self, text: Text, registry: MemoryTypeRegistry) -> None:
        self._text = text
        self.registry = registry

    def text(self, uri: str) -> str | None:
        """The file's text; None if it is absent, out of sight or unreadable."""
        try:
            return self._text(uri)
        except RunebookError:
            return None

    def type_of(self, uri: str) -> MemoryType | None:
        """The memory type of a file or of a place for one."""
        parsed = canonical(uri)
        if parsed is None:
            return None
        return self.registry.type_at(MemoryUri.parse(parsed), parse(self.text(parsed) or "").type_name)

    def show(self, uri: str, budget_tokens: int) -> Shown | None:
        """The memory with heading and fields, cut where the budget ends; None if there is no such file."""
        name = canonical(uri)
        text = None if name is None else self.text(name)
        if name is None or text is None:
            return None
        memory_type = self.registry.type_at(MemoryUri.parse(name), parse(text).type_name)
        heading, body = f"### {name}", fenced(text)
        if memory_type is not None:
            record = read_record(memory_type, parse(text), MemoryUri.parse(name).name.removesuffix(".md"))
            heading, body = _heading(name, memory_type, record), _fields(memory_type, record)
        whole = f"{heading}\n{body}"
        if fits(whole, budget_tokens):
            return Shown(name, whole, text_sha256(text))
        told = parse(text).body or text
        frame = count_tokens(f"{heading} {_CUT}") + count_tokens(fenced(told)) - count_tokens(told)
        if budget_tokens - frame < _LEAST_TOKENS:
            return Shown(name, f"### {name} (no room to show it)", None)
        return Shown(name, f"{heading} {_CUT}\n{fenced(cut_end(told, budget_tokens - frame))}", None)


def canonical(uri: str | None) -> str | None:
    """The URI in the form that the store uses, or None if it is none."""
    try:
        return None if uri is None else str(MemoryUri.parse(uri))
    except InvalidUri:
        return None


def _heading(uri: str, memory_type: MemoryType, record: MemoryRecord) -> str:
    updated = record.meta.get("updated_at")
    day = f", updated {updated[:10]}" if isinstance(updated, str) and updated[:10].replace("-", "").isdigit() else ""
    return f"### {uri} ({memory_type.name}{day})"


def _fields(memory_type: MemoryType, record: MemoryRecord) -> str:
    lines = []
    for field in writable_fields(memory_type):
        value = record.fields.get(field.name)
        if value is None or value == "":
            continue
        text = str(value)
        inline = len(text) <= _INLINE_CHARS and len(text.splitlines()) == 1 and text == text.strip()
        lines.append(f"- {field.name}: {text}" if inline else f"- {field.name}:\n{fenced(text)}")
    if record.hand_edited:
        lines.append(f"- (body, written by hand, stays as it is):\n{fenced(record.body)}")
    return "\n".join(lines) or "(empty)"
