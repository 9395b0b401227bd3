"""What a plan is told beside the operations: types, spaces, time and limits, and so where it may write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory_core.errors import InvalidUri
from memory_core.model.project import Belonging
from memory_core.model.schema import MemoryType
from memory_core.model.uri import MemoryUri, Scope
from memory_core.registry import MemoryTypeRegistry


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
