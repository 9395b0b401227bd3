"""The rolling summary: one page about the user and what goes on, given to each new session.

It is ``viking://user/{space}/rolling_summary.md``: made of the memories during maintenance, unless a person or a model
wrote it; what was written, or edited by hand, is never written over by what is made. It says nothing that is not
stored elsewhere, so it is not searched. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memory_core.model.memory_file import MemoryFile, dump, parse
from memory_core.model.record import body_digest
from memory_core.model.uri import MemoryUri, Scope

NAME = "rolling_summary"
_FILE = f"{NAME}.md"


@dataclass(frozen=True, slots=True)
class RollingSummary:
    """What the page says.

    Attributes:
        text: Its Markdown.
        authored: Whether a person or a model wrote it, or edited it by hand.
        sources: Digest of what it was made of; empty where it was written.
        created_at: When there first was one, ISO 8601; None if nobody wrote it down.
    """

    text: str
    authored: bool
    sources: str = ""
    created_at: str | None = None


def rolling_summary_uri(user_space: str) -> MemoryUri:
    """Where a user's rolling summary is."""
    return MemoryUri((Scope.USER.value, user_space, _FILE))


def is_rolling_summary(uri: MemoryUri) -> bool:
    """Whether this is a rolling summary."""
    return uri.scope is Scope.USER and len(uri.parts) == 3 and uri.name == _FILE


def read_rolling_summary(text: str | None) -> RollingSummary | None:
    """The summary in a file; None for no file, or one that says nothing."""
    file = parse(text or "")
    if not file.body.strip():
        return None
    trailer = file.trailer or {}
    sources, created = trailer.get("sources_sha256"), trailer.get("created_at")
    made = isinstance(sources, str) and trailer.get("rendered_sha256") == body_digest(file.body)
    return RollingSummary(
        file.body.strip(),
        trailer.get("authored") is True or not made,
        sources if made and isinstance(sources, str) else "",
        created if isinstance(created, str) else None,
    )


def dump_rolling_summary(summary: RollingSummary, now: str, source: Mapping[str, Any]) -> str:
    """The file of a summary.

    Args:
        summary: What it says.
        now: Time of the commit, ISO 8601.
        source: Who wrote it.
    """
    trailer: dict[str, Any] = {"created_at": summary.created_at or now, "updated_at": now, "source": dict(source)}
    if summary.authored:
        trailer["authored"] = True
    else:
        trailer |= {"sources_sha256": summary.sources, "rendered_sha256": body_digest(summary.text)}
    return dump(MemoryFile(summary.text, trailer))
