"""Whether memories of a type belong to projects."""

from __future__ import annotations

from enum import StrEnum


class ProjectMode(StrEnum):
    """Whether a memory of a type belongs to the project at hand by itself, when it is told to, or never."""

    AUTO = "auto"
    NAMED = "named"
    NEVER = "never"
