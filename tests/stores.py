"""Stores as tests open them, and what they look at: the one result of a commit, a memory's body and its trailer."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from memory_core.core.config import Config, EmbeddingConfig
from memory_core.core.errors import StoreBusy
from memory_core.core.llm.client import Scripted, ScriptedLLM
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import CommitReceipt, OperationResult
from memory_core.core.memory.trailer import split
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.local import Store
from memory_core.runebook import Runebook, open_memory

_MEMBERS = {each.name for each in fields(CommitRequest)}


def words_only(home: Path, **settings: Any) -> Config:
    """A store that needs no model to find."""
    return Config(home=home, embedding=EmbeddingConfig(provider="none"), **settings)


@contextlib.contextmanager
def scripted(
    home: Path,
    answers: Sequence[Scripted] | None = None,
    step: Callable[[str], None] = lambda _name: None,
    **settings: Any,
) -> Iterator[tuple[Runebook, ScriptedLLM]]:
    """A store that needs no model to find, with one that gives these answers; without answers there is none."""
    llm = ScriptedLLM(answers or ())
    with open_memory(words_only(home, **settings), llm=None if answers is None else llm, step=step) as memory:
        yield memory, llm


def own_type(folder: Path, name: str, lines: str) -> Path:
    """A folder with one type of a user's own: lines of YAML below its name, description and directory."""
    folder.mkdir()
    begin = f"name: {name}\ndescription: D.\ndirectory: viking://user/{{user_space}}/memories/{name}\n"
    (folder / f"{name}.yaml").write_text(begin + lines, encoding="utf-8")
    return folder


def files_below(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file with its bytes, where pages of directories may be written at the same time."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was renamed or removed since it was listed
            if path.is_file() and not path.name.startswith(".tmp-"):
                yield path, path.read_bytes()


def holding(root: Path, *words: str) -> list[str]:
    """Files below the folder that hold one of the words, plain or as JSON escapes it, or are named by it."""
    forms = [form for word in words for form in (word.encode(), word.encode("unicode_escape"))]
    return [
        path.name
        for path, text in files_below(root)
        if any(word in path.name for word in words) or any(form in text for form in forms)
    ]


def log_of(session_id: str = "s1") -> MemoryUri:
    """The log of a session."""
    return MemoryUri.parse(f"viking://session/default/{session_id}/messages.jsonl")


def added(memory: Runebook, memory_type: str, content: str | None = None, /, **fields: Any) -> CommitReceipt:
    """One memory by a plain commit, which adds to what stands there."""
    return memory.commit(CommitRequest(content, memory_type=memory_type, fields=fields or None))


def write(memory_type: str, uri: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """The operation that writes a memory, under this address if one is named."""
    data = {"memory_type": memory_type, "fields": fields}
    return {"memory_data": data} if uri is None else {"uri": uri, "memory_data": data}


def answer(*writes: dict[str, Any], reasoning: str = "worth keeping", **operations: Any) -> str:
    """What a model answers that proposes these writes, and other operations by their kind."""
    proposed = {"write_operations": list(writes), **operations}
    return json.dumps({"reasoning": reasoning, "operations": proposed}, ensure_ascii=False)


def edit(uri: str, /, **patches: Any) -> dict[str, Any]:
    """The operation that changes fields of a memory."""
    return {"uri": uri, "patches": patches}


def handed_in(memory: Runebook, **given: Any) -> CommitReceipt:
    """Operations by what they do (``write``, ``edit``, ``delete``, ``overview``); the rest belongs to the request."""
    kinds = [kind for kind in ("write", "edit", "delete", "overview") if kind in given]
    operations = {f"{kind}_operations": given.pop(kind) for kind in kinds}
    return memory.commit(CommitRequest(operations=operations, **given))


def remember(memory: Runebook, content: str | None, memory_type: str | None = None, **given: Any) -> str:
    """One memory, and its URI; what is no member of a commit is a field of the memory's type."""
    members = {name: given.pop(name) for name in _MEMBERS & given.keys()}
    return only(memory.commit(CommitRequest(content, memory_type, fields=given or None, **members))).uri


def written(memory: Runebook, *data: Mapping[str, Any], **given: Any) -> list[str]:
    """The URIs of memories that one commit writes, each given as the data of its operation."""
    receipt = handed_in(memory, write=[{"memory_data": each} for each in data], **given)
    return [result.uri for result in receipt.results]


def replaced(memory: Runebook, memory_type: str, content: str, **keys: str) -> CommitReceipt:
    """A memory written whole, whatever stood there."""
    return handed_in(memory, write=[{"replace": True, **write(memory_type, content=content, **keys)}])


def note(memory: Runebook, title: str, content: str, **more: Any) -> CommitReceipt:
    """A note of that title is stored."""
    return memory.commit(CommitRequest(content, memory_type="notes", fields={"title": title}, **more))


def fact(memory: Runebook, topic: str, content: str, **more: Any) -> str:
    """A fact on that topic is stored; its URI."""
    return remember(memory, content, "facts", topic=topic, **more)


def entity(memory: Runebook, name: str, content: str) -> CommitReceipt:
    """An entity of that name is stored."""
    return added(memory, "entities", content, entity_name=name)


def edited(memory: Runebook, uri: str, changes: Mapping[str, Any], **more: Any) -> CommitReceipt:
    """One memory is edited: its patches, its links, or what its trailer says."""
    return handed_in(memory, edit=[{"uri": uri, **changes}], **more)


def said(memory: Runebook, *words: str, session_id: str = "s1", **more: Any) -> CommitReceipt:
    """What a user says in a conversation is stored."""
    messages = [{"role": "user", "content": each} for each in words]
    return memory.commit(CommitRequest(messages=messages, session_id=session_id, **more))


def only(receipt: CommitReceipt) -> OperationResult:
    """What became of the one operation."""
    (result,) = receipt.results
    return result


def by_hand(home: Path, place: str, text: str) -> Path:
    """A file that a person wrote, at a place below a store's folder."""
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def busy(_store: Store, *_given: Any, **_more: Any) -> CommitReceipt:
    """``Store.commit`` while another writer holds the store."""
    raise StoreBusy("another writer holds it.", hint="Try again.")


def edited_by_hand(memory: Runebook, uri: str, old: str, new: str) -> Path:
    """The file of a memory, in which a person exchanged some words."""
    path = memory.store.files.path_for(MemoryUri.parse(uri))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8", newline="")
    return path


def trailer(memory: Runebook, uri: str) -> dict[str, Any]:
    """The trailer of a memory's file; empty without one."""
    return dict(split(memory.read(ReadRequest(uri)).content).trailer or {})


def body(memory: Runebook, uri: str) -> str:
    """The text of a memory's file above its trailer."""
    return split(memory.read(ReadRequest(uri)).content).body
