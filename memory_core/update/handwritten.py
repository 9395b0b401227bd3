"""What a text written by hand lacks to be a memory in full. Pure; judges, and changes nothing."""

from __future__ import annotations

from memory_core.model.memory_file import parse
from memory_core.model.problems import FileProblem
from memory_core.model.uri import MemoryUri, Scope
from memory_core.registry import MemoryTypeRegistry

_NAME_CHARS = 60


def examine(registry: MemoryTypeRegistry, uri: MemoryUri, text: str) -> tuple[FileProblem, ...]:
    """The problems of one file, none for most.

    Args:
        registry: The memory types that are known.
        uri: Where the file is.
        text: All of it.
    """
    found: list[FileProblem] = []
    if "\x00" in text:
        found.append(FileProblem(str(uri), "it holds NUL characters", "Save it as plain UTF-8 text."))
    if uri.scope is Scope.SESSION or not uri.name.endswith(".md") or uri.name.startswith("."):
        return tuple(found)
    file = parse(text)
    if file.damage is not None:
        hint = "Mend the block at the end of the file, or remove it; until then all of the file is its text."
        found.append(FileProblem(str(uri), _plain(file.damage), hint))
    named = file.type_name if uri.parts[2:3] == ("memories",) else None
    if named is not None and registry.type_at(MemoryUri(), named) is None:
        shown = "".join(character for character in named if character.isprintable())[:_NAME_CHARS]
        hint = "Correct memory_type, or add a YAML file for that type to one of schema_dirs; see runebook types."
        found.append(FileProblem(str(uri), f"its memory_type {shown!r} is not known", hint))
    return tuple(found)


def _plain(damage: str) -> str:
    """The damage without a parser's words, which may quote the file."""
    return damage.partition(": ")[0]
