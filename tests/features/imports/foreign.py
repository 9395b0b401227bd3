"""Files in the formats of other programs, and importing them, for the tests of imports."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from memory_core.features.imports.import_run import ImportReport, ImportRequest, import_memories
from memory_core.runebook import Runebook

_EXAMPLES = Path(__file__).parents[2] / "fixtures" / "foreign"


def brought(memory: Runebook, path: Path, named: str | None = None, **wishes: Any) -> ImportReport:
    """Import a path as the command does."""
    return import_memories(memory, ImportRequest(path, named, **wishes))


def write(path: Path, content: Any) -> Path:
    """A file with this text, or this value as JSON, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def write_lines(path: Path, records: list[Any]) -> Path:
    """A file with one JSON value a line; a text is a line as it is."""
    said = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    return write(path, "\n".join(said) + "\n")


def _copied(name: str, folder: Path) -> Path:
    """An example of a format, as another program left it."""
    return Path(shutil.copytree(_EXAMPLES / name, folder, copy_function=shutil.copyfile, dirs_exist_ok=True))


vibeworker_v1 = partial(_copied, "vibeworker_v1")
vibeworker_v2 = partial(_copied, "vibeworker_v2")
memoryos = partial(_copied, "memoryos")
claude_code = partial(_copied, "claude_code")
claude = partial(_copied, "claude")
chatgpt = partial(_copied, "chatgpt")


def mcp_memory(path: Path) -> Path:
    """A knowledge graph as one file."""
    return _copied("mcp_memory", path.parent) / "memory.jsonl"
