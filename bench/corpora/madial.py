"""MADial-Bench's Chinese files: memories, and dialogues in which an assistant should recall some of them.

A memory becomes an event with its date, as somebody would commit it: the text as content, the date as ``event_time``.
The file holds some memories twice, word for word and day for day; they are one memory, and wanted as one.
A question is the user's last three lines before a ``test-turn``; ``relevant-id`` names the memories wanted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.corpus import Corpus, Passage, Question

_LINE = re.compile(r'<([^>]+)>:\s*"?(.*?)"?\s*', re.DOTALL)
_ASSISTANT = "Assistant"
_QUERY_LINES = 3


def read(memories: Path, dialogues: Path) -> Corpus:
    """All memories and the questions of all dialogues; a dialogue is a cluster."""
    every = {key: value for line in _lines(memories) for key, value in line.items()}
    first: dict[tuple[str, str], str] = {}
    same = {key: first.setdefault((memory["time"], memory["event"]), key) for key, memory in every.items()}
    told = {key: every[key] for key in first.values()}
    questions = [question for dialogue in _lines(dialogues) for question in _questions(dialogue, same)]
    asked = sum(len(dialogue["test-turn"]) for dialogue in _lines(dialogues))
    return Corpus(
        "madial",
        tuple((_commit(memory), (key,)) for key, memory in told.items()),
        tuple(Passage(key, key, memory["event"], (memory["event"],)) for key, memory in told.items()),
        tuple(questions),
        asked - len(questions),
    )


def query(dialogue: Sequence[str], test_turn: int) -> str:
    """The user's last lines before a turn, oldest first."""
    lines = (found for line in dialogue[:test_turn] if (found := _LINE.fullmatch(line.strip())) is not None)
    said = [found[2] for found in lines if found[1] != _ASSISTANT]
    return "\n".join(said[-_QUERY_LINES:])


def _questions(dialogue: Mapping[str, Any], same: Mapping[str, str]) -> list[Question]:
    gold = frozenset(same[str(number)] for number in dialogue["relevant-id"] if str(number) in same)
    asked = [query(dialogue["dialogue"], turn) for turn in dialogue["test-turn"]]
    return [Question(text, gold, gold, "memories", str(dialogue["id"])) for text in asked if text and gold]


def _commit(memory: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "memory_content": memory["event"],
        "memory_type": "events",
        "fields": {"event_time": memory["time"]},
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
