"""Stores as tests open them, and what they look at: the one result of a commit, a memory's body and its trailer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import CommitReceipt, OperationResult
from memory_core.core.memory.trailer import split
from memory_core.runebook import Runebook

_MEMBERS = {each.name for each in fields(CommitRequest)}


def words_only(home: Path, **settings: Any) -> Config:
    """A store that needs no model to find."""
    return Config(home=home, embedding=EmbeddingConfig(provider="none"), **settings)


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file with its bytes, where pages of directories may be written at the same time."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was renamed or removed since it was listed
            if path.is_file() and not path.name.startswith(".tmp-"):
                yield path, path.read_bytes()


def remember(memory: Runebook, content: str | None, memory_type: str | None = None, **given: Any) -> str:
    """One memory, and its URI; what is no member of a commit is a field of the memory's type."""
    members = {name: given.pop(name) for name in _MEMBERS & given.keys()}
    return only(memory.commit(CommitRequest(content, memory_type, fields=given or None, **members))).uri


def written(memory: Runebook, *data: Mapping[str, Any], **given: Any) -> list[str]:
    """The URIs of memories that one commit writes, each given as the data of its operation."""
    operations = {"write_operations": [{"memory_data": each} for each in data]}
    return [result.uri for result in memory.commit(CommitRequest(operations=operations, **given)).results]


def replaced(memory: Runebook, memory_type: str, content: str, **keys: str) -> CommitReceipt:
    """A memory written whole, whatever stood there."""
    data = {"memory_type": memory_type, "fields": {**keys, "content": content}}
    return memory.commit(CommitRequest(operations={"write_operations": [{"replace": True, "memory_data": data}]}))


def only(receipt: CommitReceipt) -> OperationResult:
    """What became of the one operation."""
    (result,) = receipt.results
    return result


def trailer(memory: Runebook, uri: str) -> dict[str, Any]:
    """The trailer of a memory's file; empty without one."""
    return dict(split(memory.read(ReadRequest(uri)).content).trailer or {})


def body(memory: Runebook, uri: str) -> str:
    """The text of a memory's file above its trailer."""
    return split(memory.read(ReadRequest(uri)).content).body
