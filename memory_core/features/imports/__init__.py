"""Memories and conversations of other programs.

A format is a module of this package and a line here: its name, as ``--from`` takes it, and where its ``Format`` is.
The surest signs stand first, for a source is of the first format that recognises it; Markdown is what is left.
"""

from __future__ import annotations

from collections.abc import Mapping

FORMATS: Mapping[str, tuple[str, str]] = {
    "claude-code": ("claude_code", "FORMAT"),
    "chatgpt": ("chatgpt", "FORMAT"),
    "claude": ("claude", "FORMAT"),
    "mcp-memory": ("mcp_memory", "FORMAT"),
    "vibeworker-v2": ("vibeworker", "V2"),
    "memoryos": ("memoryos", "FORMAT"),
    "vibeworker-v1": ("vibeworker", "V1"),
    "markdown": ("markdown", "FORMAT"),
}
