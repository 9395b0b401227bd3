"""Line ends that a copy changed: git on Windows turns line feeds into carriage return and line feed, and back."""

from __future__ import annotations

from memory_core.model.changes import text_sha256


def differ_alone(text: str | None, sha256: str | None) -> bool:
    """Whether a text is the one with this hash but for line feeds that became those of Windows: nobody edited it."""
    if text is None or sha256 is None or "\r\n" not in text:
        return False
    return text_sha256(text.replace("\r\n", "\n")) == sha256
