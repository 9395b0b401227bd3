"""The files of a store as the ledger keeps them: without the lists of pages, which are made anew at any time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from memory_core.core.memory.directory_page import own_words
from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from memory_core.core.store.atomic import TEMPORARY_PREFIX

SCOPES = ("user", "agent", "session", "archive")


def kept_files(home: Path, scopes: Iterable[str] = SCOPES) -> dict[str, bytes]:
    """The bytes of every file below these folders by its path; of a page what somebody wrote, if anything."""
    found: dict[str, bytes] = {}
    for scope in scopes:
        for path in sorted((home / scope).rglob("*")):
            if path.name.startswith(TEMPORARY_PREFIX):  # a page that is being written
                continue
            content = path.read_bytes() if path.is_file() else None
            if path.name in (ABSTRACT_NAME, OVERVIEW_NAME) and content is not None:
                words = own_words(path.name, content.decode())
                content = None if words is None else words.encode()
            if content is not None:
                found[path.relative_to(home).as_posix()] = content
    return found
