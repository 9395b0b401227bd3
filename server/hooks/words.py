"""Recall by words alone, for a prompt that cannot wait until the whole program is loaded.

Reads the catalog as the last process left it: no model, no ledger, nothing of what was changed by hand since. It gives
the memories that hold the prompt's words, by the same terms, statistics and floor as a search, and leaves out turns of
conversations. What it gave a session is noted beside the store and not given to it again. Never writes to a database.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from heapq import nlargest
from pathlib import Path
from typing import Any, NamedTuple

from memory_core.core.index import search_rows
from memory_core.core.index.filter import Condition, every, in_use, private_elsewhere
from memory_core.core.index.tokenizer import query_terms
from memory_core.core.search.context_formats import Blocks, Piece, pack
from memory_core.core.search.fusion import Candidate, fuse, is_relevant
from memory_core.core.text.language import is_small_talk
from server.hooks.event import HookEvent
from server.hooks.output import TEXT_LIMIT_CHARS
from server.hooks.transcript import last_said
from server.private_file import make_private, write_json

_INDEX = "index.sqlite3"
_CANDIDATES = 40
_GIVEN_LIMIT = 5
_BEST_FEW = 10
#: As in a search: what scores less than this share of the best is noise beside it.
_TAIL_SHARE = 0.35
_QUERY_CHARS = 2_000
#: Of a memory at most.
_TEXT_CHARS = 2_000
_BUSY_SECONDS = 0.05
_CONSTRAINTS = frozenset({"preferences", "patterns"})
_GIVEN = ("hooks", "given")
_KEPT_SECONDS = 7 * 86_400.0


class _Found(NamedTuple):
    """A memory that holds words of the prompt."""

    uri: str
    memory_type: str
    text: str
    score: float
    date: str | None


def recall(state: Path, values: Mapping[str, Any], event: HookEvent) -> str:
    """Memories for a prompt, as blocks; empty for none.

    Args:
        state: The folder of machine files; its catalog may be missing.
        values: The settings by their dotted names; see ``wishes``.
        event: Of the user's prompt.

    Raises:
        sqlite3.Error: If the catalog cannot be read, or is of another version.
        OSError: If the disk refuses.
    """
    if values["retrieve.intent_check"] and is_small_talk(event.prompt):
        return ""
    questions = _questions(event, int(values["retrieve.query_messages"]))
    path = state / _INDEX
    if not questions or not path.is_file():
        return ""
    # Read-write: SQLite has to be able to recover what a killed writer left. Nothing is written.
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS)
    with contextlib.closing(connection):
        connection.execute("PRAGMA query_only = 1")
        found = _search(connection, questions, values, event.cwd)
    given = _Given(state, None if values["private_mode"] else event.session_id)
    fresh = [each for each in found if each.uri not in given.uris and _stands(state.parent, each.uri)][:_GIVEN_LIMIT]
    parts: dict[str, list[Piece]] = {}
    for each in fresh:
        kind = "constraints" if each.memory_type in _CONSTRAINTS else "memories"
        parts.setdefault(kind, []).append(
            Piece(kind, each.uri, each.text[:_TEXT_CHARS], each.score, each.date, each.memory_type)
        )
    form = Blocks()
    packed = pack(parts, int(values["hooks.user_prompt_tokens"]), form)
    text = form.text(packed.pieces)
    if not text or len(text) > TEXT_LIMIT_CHARS:
        return ""
    given.add(piece.uri for piece in packed.pieces)
    return text


def _questions(event: HookEvent, messages: int) -> list[str]:
    """The last messages together, and the newest alone."""
    said = [text for each in event.messages if (text := _user_text(each))] or last_said(event.transcript, messages)
    newest = event.prompt.strip()
    if newest and (not said or said[-1].strip() != newest):
        said.append(newest)
    if not said:
        return []
    joined = "\n".join(said[-messages:])[-_QUERY_CHARS:]
    return list(dict.fromkeys((said[-1][-_QUERY_CHARS:], joined)))


def _user_text(message: Any) -> str:
    is_user = isinstance(message, Mapping) and message.get("role") == "user"
    content = message.get("content") if is_user else ""
    return content if isinstance(content, str) else ""


def _search(
    connection: sqlite3.Connection, questions: Sequence[str], values: Mapping[str, Any], folder: str
) -> list[_Found]:
    spaces = {f"user/{values['user_space']}", f"agent/{values['agent_space']}"}
    known = dict(connection.execute("SELECT name, id FROM spaces").fetchall())
    scopes = None if known.keys() <= spaces else [f"space{known[name]}" for name in sorted(spaces & known.keys())]
    marks = ",".join("?" * len(spaces))
    counted = connection.execute(f"SELECT count(*) FROM documents WHERE space IN ({marks})", sorted(spaces))
    documents = int(counted.fetchone()[0])
    condition = every(
        [
            in_use(datetime.now(UTC)),
            Condition("d.context_type <> 'resource' AND d.memory_type NOT IN ('message', 'daily_logs')"),
            _seen(connection, values, folder),
        ]
    )
    found: dict[str, _Found] = {}
    for question in questions:
        for each in _answers(connection, question, documents, scopes, condition):
            if each.uri not in found or each.score > found[each.uri].score:
                found[each.uri] = each
    return sorted(found.values(), key=lambda each: (-each.score, each.uri))


def _answers(
    connection: sqlite3.Connection,
    question: str,
    documents: int,
    scopes: Sequence[str] | None,
    condition: Condition | None,
) -> list[_Found]:
    """What holds the words of one question, if anything holds enough of them."""
    hits = search_rows.search(connection, query_terms(question), _CANDIDATES, documents, scopes, condition)
    numbers = list(hits.scores)
    scores = fuse([Candidate(bm25=hits.scores[number]) for number in numbers], hits.question)
    if not is_relevant(nlargest(_BEST_FEW, scores, key=lambda score: score.total), hits.question):
        return []
    best = max(score.total for score in scores)
    kept = {number: score.total for number, score in zip(numbers, scores, strict=True)}
    rows = connection.execute(
        "SELECT id, uri, memory_type, own, updated_at FROM documents WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps([number for number, total in kept.items() if total > _TAIL_SHARE * best]),),
    )
    return [
        _Found(uri, memory_type, own, kept[number], updated_at[:10] if updated_at else None)
        for number, uri, memory_type, own, updated_at in rows.fetchall()
    ]


def _seen(connection: sqlite3.Connection, values: Mapping[str, Any], folder: str) -> Condition | None:
    """What keeps out that is private to other projects than the one at hand."""
    some = connection.execute("SELECT 1 FROM documents WHERE private AND project IS NOT NULL LIMIT 1").fetchone()
    if some is None:
        return None
    elsewhere = private_elsewhere(_project(values, folder))
    return Condition(f"NOT {elsewhere.sql}", elsewhere.parameters)


def _project(values: Mapping[str, Any], folder: str) -> str | None:
    from memory_core.core.memory.project import project_at, project_name

    if str(values["project.name"]).strip():
        return project_name(str(values["project.name"]))
    return project_at(Path(folder)) if folder and values["project.detect"] else None


def _stands(root: Path, uri: str) -> bool:
    """Whether a memory is still where the catalog says."""
    parts = uri.removeprefix("viking://").split("/")
    return ".." not in parts and root.joinpath(*parts).is_file()


class _Given:
    """What a session was given by words alone; nothing is noted of a session without a name."""

    def __init__(self, state: Path, session_id: str | None) -> None:
        name = hashlib.sha256((session_id or "").encode()).hexdigest()[:32]
        self._path = None if session_id is None else state.joinpath(*_GIVEN, f"{name}.json")
        self.uris: set[str] = set()
        if self._path is not None:
            with contextlib.suppress(OSError, ValueError):
                self.uris = {uri for uri in json.loads(self._path.read_bytes()) if isinstance(uri, str)}

    def add(self, uris: Any) -> None:
        """Note what it is given now; a note that cannot be written is none."""
        if self._path is None:
            return
        self.uris.update(uris)
        with contextlib.suppress(OSError):
            make_private(self._path.parent)
            write_json(self._path, sorted(self.uris))


def forget_given(state: Path, session_id: str | None = None) -> None:
    """Let everything be given again: to a session whose context was lost, and to those that are long over."""
    ours = hashlib.sha256((session_id or "").encode()).hexdigest()[:32]
    with contextlib.suppress(OSError):
        for path in state.joinpath(*_GIVEN).iterdir():
            if path.stem == ours or path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink(missing_ok=True)
