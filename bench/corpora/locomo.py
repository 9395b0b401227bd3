"""LoCoMo's format: two people's sessions over months, and questions with the ids of the turns that answer them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.corpus import Corpus, Question, conversation

_EVIDENCE = re.compile(r"D\W*(\d+)\W+(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_CATEGORIES = {1: "1 multi-hop", 2: "2 temporal", 3: "3 open-domain", 4: "4 single-hop", 5: "5 adversarial"}
_ADVERSARIAL = 5


def read(path: Path) -> list[Corpus]:
    """One corpus a conversation; questions without evidence are left out and counted."""
    return [corpus(at, sample) for at, sample in enumerate(json.loads(path.read_text(encoding="utf-8")), 1)]


def corpus(number: int, sample: Mapping[str, Any]) -> Corpus:
    """One conversation, with ids of turns made whole and evidence that no turn has left out."""
    held = list(sessions(sample["conversation"]))
    session_of = {message["id"]: session for session, messages in held for message in messages}
    name = f"conversation{number}"
    questions = []
    for item in sample["qa"]:
        gold = frozenset(evidence(item.get("evidence") or ())) & session_of.keys()
        if gold:
            category = int(item["category"])
            homes = frozenset(session_of[turn] for turn in gold)
            questions.append(
                Question(item["question"], gold, homes, _CATEGORIES[category], name, category != _ADVERSARIAL)
            )
    return conversation(name, held, questions, len(sample["qa"]) - len(questions))


def sessions(told: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each session's id and messages, in order, dated by the session's own date."""
    for number in sorted(int(found[1]) for key in told if (found := _SESSION.fullmatch(key))):
        started = datetime.strptime(told[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        yield f"session_{number}", [_message(turn, started) for turn in told[f"session_{number}"]]


def evidence(texts: list[str] | tuple[str, ...]) -> Iterator[str]:
    """Turn ids in their usual form: ``D8:6; D9:17`` names two, ``D:11:26`` is D11:26, ``D30:05`` is D30:5."""
    for text in texts:
        for session, turn in _EVIDENCE.findall(text):
            yield f"D{int(session)}:{int(turn)}"


def _message(turn: Mapping[str, Any], started: datetime) -> dict[str, Any]:
    caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return {
        "role": "user",
        "name": turn["speaker"],
        "content": turn["text"] + caption or "[image]",
        "time": started.isoformat(),
        "id": next(evidence([turn["dia_id"]])),
    }
