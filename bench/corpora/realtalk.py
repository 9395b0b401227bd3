"""REALTALK's format: chats of two real people over weeks, and questions with the ids of the turns that answer them.

Like LoCoMo's, but that each turn has a time of its own, and that an empty text stands for a picture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.corpora.locomo import evidence
from bench.corpus import Corpus, Question, conversation

_SESSION = re.compile(r"session_(\d+)")
_CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 common sense"}


def read(path: Path) -> list[Corpus]:
    """One corpus a chat; questions without evidence are left out and counted."""
    chats: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return [corpus(name, chat) for name, chat in chats.items()]


def corpus(name: str, chat: Mapping[str, Any]) -> Corpus:
    """One chat; evidence that no turn has is left out."""
    held = list(sessions(chat))
    session_of = {message["id"]: session for session, messages in held for message in messages}
    questions = []
    for item in chat["qa"]:
        gold = frozenset(evidence(item.get("evidence") or ())) & session_of.keys()
        if gold:
            homes = frozenset(session_of[turn] for turn in gold)
            questions.append(Question(item["question"], gold, homes, _CATEGORIES[int(item["category"])], name))
    return conversation(name, held, questions, len(chat["qa"]) - len(questions))


def sessions(chat: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each session's id and messages, in order."""
    for number in sorted(int(found[1]) for key in chat if (found := _SESSION.fullmatch(key))):
        yield f"session_{number}", [_message(turn) for turn in chat[f"session_{number}"]]


def _message(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "role": "user",
        "name": turn["speaker"],
        "content": turn["clean_text"] or "[image]",
        "time": datetime.strptime(turn["date_time"], "%d.%m.%Y, %H:%M:%S").replace(tzinfo=UTC).isoformat(),
        "id": next(evidence([turn["dia_id"]])),
    }
