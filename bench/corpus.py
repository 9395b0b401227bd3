"""What a recall benchmark asks of a store: passages, questions, and which passages answer them.

A ``Corpus`` is what one store holds, whatever file it was read from (``bench.corpora``). Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memory_core.core.index.documents import NEIGHBOURS, TURN_PASSAGES
from memory_core.core.index.encoder import PASSAGE_LIMIT_CHARS, passages


@dataclass(frozen=True, slots=True)
class Passage:
    """One thing that can be found: a turn, or a memory.

    Attributes:
        id: Its name within the corpus.
        session: The session it belongs to; a memory is its own.
        own: Its words, the speaker's name before them.
        around: The same with its neighbours, in pieces that a model can take.
    """

    id: str
    session: str
    own: str
    around: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the passages that answer it.

    Attributes:
        text: As it is asked.
        gold: Ids of the passages that answer it; empty where nothing does.
        sessions: The sessions that answer it.
        category: As the data set calls it.
        cluster: What it was drawn with: its conversation or dialogue.
        scored: False for questions that are made to have no answer, which are reported apart.
        now: When it is asked; None is the clock's time.
    """

    text: str
    gold: frozenset[str]
    sessions: frozenset[str]
    category: str
    cluster: str
    scored: bool = True
    now: datetime | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """What one store holds and is asked.

    Attributes:
        name: For the report.
        commits: Arguments of ``commit_memory``, in order, each with the ids of what it stores.
        passages: All that can be found.
        questions: In order.
        skipped: Questions of the file that have no evidence and are not asked.
    """

    name: str
    commits: tuple[tuple[Mapping[str, Any], tuple[str, ...]], ...]
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    skipped: int = 0


def turns(session: str, messages: Sequence[Mapping[str, Any]]) -> list[Passage]:
    """The passages of one session.

    Args:
        session: Its id.
        messages: Arguments of ``commit_memory``: ``id`` and ``content``, and ``name`` where it is known.
    """
    lines = [f"{item['name']}: {item['content']}" if item.get("name") else item["content"] for item in messages]
    return [Passage(item["id"], session, lines[at], _around(lines, at)) for at, item in enumerate(messages)]


def conversation(
    name: str,
    sessions: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
    questions: Sequence[Question],
    skipped: int = 0,
) -> Corpus:
    """A corpus of sessions, each committed as a conversation."""
    return Corpus(
        name,
        tuple(
            ({"messages": list(messages), "session_id": session}, tuple(item["id"] for item in messages))
            for session, messages in sessions
        ),
        tuple(passage for session, messages in sessions for passage in turns(session, messages)),
        tuple(questions),
        skipped,
    )


def pool(corpora: Sequence[Corpus]) -> Corpus:
    """All conversations in one corpus; ids and sessions carry the conversation's name."""
    commits, found, questions = [], [], []
    for corpus in corpora:

        def named(identifier: str, name: str = corpus.name) -> str:
            return f"{name}_{identifier}"

        for arguments, ids in corpus.commits:
            renamed = {"session_id": named(arguments["session_id"])} if "session_id" in arguments else {}
            commits.append(({**arguments, **renamed}, tuple(named(item) for item in ids)))
        found += [replace(item, id=named(item.id), session=named(item.session)) for item in corpus.passages]
        questions += [
            replace(item, gold=frozenset(map(named, item.gold)), sessions=frozenset(map(named, item.sessions)))
            for item in corpus.questions
        ]
    skipped = sum(corpus.skipped for corpus in corpora)
    return Corpus("pooled", tuple(commits), tuple(found), tuple(questions), skipped)


def _around(lines: Sequence[str], at: int) -> tuple[str, ...]:
    """A turn among as many neighbours as fit one piece; a longer turn alone, in pieces."""
    for reach in range(NEIGHBOURS, -1, -1):
        text = "\n".join(lines[max(0, at - reach) : at + reach + 1])
        if len(text) <= PASSAGE_LIMIT_CHARS:
            return (text,)
    return tuple(passages(lines[at])[:TURN_PASSAGES])
