r"""The memory file: a Markdown body and, last of all, the ``MEMORY_FIELDS`` trailer.

``parse`` and ``dump`` are inverse on every file ``dump`` wrote, byte for byte::

    body\n\n<!-- MEMORY_FIELDS\n{ …JSON… }\n-->\n

``<`` and ``>`` inside the JSON are written ``\u003c`` ``\u003e``, so nothing stored can end the comment
early or pose as a second trailer. A file without a trailer is a hand-written memory and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_OPEN = "<!-- MEMORY_FIELDS\n"
_CLOSE = "\n-->"
_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A parsed file.

    Attributes:
        body: The Markdown above the trailer, exactly as stored.
        trailer: The trailer's JSON object in file order, or None when the file has none.
        damage: Why a trailer that is present could not be read, or None. The whole text is then the body.
    """

    body: str
    trailer: Mapping[str, Any] | None = None
    damage: str | None = None


def parse(text: str) -> MemoryFile:
    """Split a file's text; never fails: what is not a sound trailer belongs to the body."""
    start = text.rfind(_OPEN)
    if start < 0 or (start > 0 and text[start - 1] != "\n"):
        return MemoryFile(text)
    block = text[start + len(_OPEN) :].rstrip()
    if not block.endswith(_CLOSE.strip()):
        return MemoryFile(text)
    try:
        trailer = json.loads(block.removesuffix(_CLOSE.strip()))
    except (json.JSONDecodeError, RecursionError) as error:
        return MemoryFile(text, damage=f"the MEMORY_FIELDS trailer is not valid JSON: {error}")
    if not isinstance(trailer, dict):
        return MemoryFile(text, damage="the MEMORY_FIELDS trailer is not a JSON object")
    body = text[:start]
    return MemoryFile(body.removesuffix(_GAP) if body.endswith(_GAP) else body.removesuffix("\n"), trailer)


def dump(file: MemoryFile) -> str:
    """Write the file's text; a file without a trailer is its body unchanged."""
    if file.trailer is None:
        return file.body
    block = json.dumps(file.trailer, ensure_ascii=False, indent=2, allow_nan=False)
    # json.dumps leaves lone surrogates as they are with ensure_ascii=False; no file could hold them.
    block = block.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{file.body}{_GAP}{_OPEN}{block}{_CLOSE}\n"
