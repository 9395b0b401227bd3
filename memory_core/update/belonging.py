"""Which memories a commit may change, given the project it belongs to.

Nothing of another project by its key, and nothing that others see by a private commit. Pure; only ever refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory_core.errors import ContentRejected, FieldRejected
from memory_core.model.memory_file import parse
from memory_core.model.project import Belonging, is_private, stored_project
from memory_core.model.project_mode import ProjectMode
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri
from memory_core.registry import MemoryTypeRegistry

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
