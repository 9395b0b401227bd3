"""Which format a source is of: told by its content, unless the caller says it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from memory_core.errors import InvalidInput
from memory_core.lifecycle.imports import (
    chatgpt,
    claude,
    claude_code,
    markdown,
    mcp_memory,
    memoryos,
    vibeworker_v1,
    vibeworker_v2,
)
from memory_core.lifecycle.imports.items import Format
from memory_core.lifecycle.imports.sources import Source
from memory_core.lifecycle.transfer.forms import FORMAT as OWN_FORMAT
from memory_core.lifecycle.transfer.forms import MANIFEST_NAME

#: The surest signs first; Markdown is what is left.
FORMATS: tuple[Format, ...] = (
    claude_code.FORMAT,
    chatgpt.FORMAT,
    claude.FORMAT,
    mcp_memory.FORMAT,
    vibeworker_v2.FORMAT,
    memoryos.FORMAT,
    vibeworker_v1.FORMAT,
    markdown.FORMAT,
)


_LINE_BYTES = 1024**2


def is_export(path: Path) -> bool:
    """Whether a file is an export of Runebook, sound or not; those are brought in by ``lifecycle.transfer``."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            line = stream.readline(_LINE_BYTES)
        if line.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return MANIFEST_NAME in archive.namelist()
        first = json.loads(line)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile):
        return False
    return isinstance(first, dict) and first.get("format") == OWN_FORMAT


def detect(source: Source, named: str | None = None) -> Format:
    """The format of a source.

    Args:
        source: What is to be imported.
        named: Its format's name, if the caller knows it; its content is not asked then.

    Raises:
        InvalidInput: If it is of no known format; the hint says what was looked for.
    """
    for known in FORMATS:
        if known.name == named or (named is None and known.recognises(source)):
            return known
    looked = "; ".join(f"{known.name}: {known.sign}" for known in FORMATS)
    if named is not None:
        names = ", ".join(known.name for known in FORMATS)
        raise InvalidInput(f"there is no format {named[:64]!r}.", hint=f"Use one of: {names}.")
    raise InvalidInput(
        f"{source.label!r} is of no format that is known.",
        hint=f"Looked for an export of runebook (.zip or .jsonl with a manifest); {looked}. Or name it with --from.",
    )
