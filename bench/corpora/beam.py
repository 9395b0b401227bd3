"""BEAM's format: long chats with an assistant, and questions of several abilities with the ids of the messages needed.

Abilities whose gold is no set of messages that state the answer (abstention, order of events, instructions,
preferences, summaries) are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.corpus import Corpus, Question, conversation

ABILITIES = (
    "contradiction_resolution",
    "information_extraction",
    "knowledge_update",
    "multi_session_reasoning",
    "temporal_reasoning",
)
#: What the data set writes after a message: its place in the plan.
_PLACE = re.compile(r"\s*->->.*$", re.DOTALL)


def read(path: Path) -> list[Corpus]:
    """One corpus a chat."""
    chats: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [corpus(f"chat{name}", chat) for name, chat in chats.items()]


def corpus(name: str, chat: Mapping[str, Any]) -> Corpus:
    """One chat: a session for each batch, dated by the batch."""
    held = [(f"batch_{batch['batch_number']}", list(_messages(batch))) for batch in chat["chat"]]
    session_of = {message["id"]: session for session, messages in held for message in messages}
    questions = []
    for ability in ABILITIES:
        for item in chat["questions"][ability]:
            gold = frozenset(_ids(item["source_chat_ids"])) & session_of.keys()
            if gold:
                homes = frozenset(session_of[message] for message in gold)
                questions.append(Question(item["question"], gold, homes, ability, name))
    asked = sum(len(chat["questions"][ability]) for ability in ABILITIES)
    return conversation(name, held, questions, asked - len(questions))


def _messages(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    day = batch["time_anchor"]
    for turn in (turn for group in batch["turns"] for turn in group):
        day = turn.get("time_anchor") or day
        yield {
            "role": turn["role"],
            "content": _PLACE.sub("", turn["content"]) or "[empty]",
            "time": datetime.strptime(day, "%B-%d-%Y").replace(tzinfo=UTC).isoformat(),
            "id": str(turn["id"]),
        }


def _ids(given: Any) -> Iterator[str]:
    """The ids in lists, or in lists by name."""
    if isinstance(given, Mapping):
        for several in given.values():
            yield from _ids(several)
    elif isinstance(given, list):
        for one in given:
            yield from _ids(one)
    else:
        yield str(given)
