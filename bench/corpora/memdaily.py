"""MemDaily (MemSim): short Chinese notes of one person, questions on them, and others' notes in between.

A trajectory is a handful of messages and one question or more. On their own they would all be found, so messages of
trajectories about another kind of thing stand between them in the order of their times. The mixture is read twice: as a
chat with a session a day, and as memories that somebody stored one by one.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from bench.corpus import Corpus, Passage, Question, conversation

#: Messages of others in each store.
_OTHERS = 200
#: Stands in the file where a question could not be made.
_NO_QUESTION = "[ERRORQ]"
_TIME = re.compile(r"(\d+)年(\d+)月(\d+)日\D*(\d+):(\d+)")


class _Line(NamedTuple):
    time: datetime
    id: str
    text: str


def read(path: Path, each: int | None = None) -> list[tuple[Corpus, Corpus]]:
    """Two corpora a trajectory: its chat, and its memories.

    Args:
        path: Trajectories by scenario.
        each: Trajectories of each scenario at most; None takes all.
    """
    scenarios: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for scenario, trajectories in scenarios.items():
        for at, trajectory in enumerate(trajectories[:each]):
            name = f"{scenario} {at}"
            others = [several for other, several in scenarios.items() if _kind(other) != _kind(scenario)]
            found.append(corpora(name, scenario, trajectory, others))
    return found


def corpora(
    name: str, scenario: str, trajectory: Mapping[str, Any], others: Sequence[Sequence[Mapping[str, Any]]]
) -> tuple[Corpus, Corpus]:
    """One trajectory among others, as a chat and as memories."""
    drawn = random.Random(name)
    pool = [(at, number) for at, several in enumerate(others) for number in range(len(several))]
    drawn.shuffle(pool)
    lines = _lines(trajectory, "own")
    own = len(lines)
    told = {line.text for line in lines}
    for at, number in pool:
        for line in _lines(others[at][number], f"other{at}_{number}"):
            if line.text not in told and len(lines) < own + _OTHERS:
                told.add(line.text)
                lines.append(line)
    lines.sort()
    days = [(str(day), list(several)) for day, several in groupby(lines, key=lambda line: line.time.date())]
    day_of = {line.id: day for day, several in days for line in several}
    questions = [
        Question(
            item["question"],
            gold := frozenset(f"own_{number}" for number in item["target_step_id"]),
            frozenset(day_of[each] for each in gold),
            scenario,
            name,
            now=_moment(item["time"]),
        )
        for item in trajectory["question_list"]
        if item["question"] != _NO_QUESTION
    ]
    left_out = len(trajectory["question_list"]) - len(questions)
    chat = conversation(
        f"{name} chat", [(day, [_message(line) for line in several]) for day, several in days], questions, left_out
    )
    memories = Corpus(
        f"{name} memories",
        tuple(({"memory_content": line.text}, (line.id,)) for line in lines),
        tuple(Passage(line.id, line.id, line.text, (line.text,)) for line in lines),
        tuple(
            Question(item.text, item.gold, item.gold, item.category, item.cluster, now=item.now) for item in questions
        ),
        left_out,
    )
    return chat, memories


def _kind(scenario: str) -> str:
    """What its notes are about: ``items`` or ``roles``."""
    return scenario.rsplit("_", 1)[-1]


def _lines(trajectory: Mapping[str, Any], prefix: str) -> list[_Line]:
    return [
        _Line(_moment(item["time"]), f"{prefix}_{item['mid']}", item["message"]) for item in trajectory["message_list"]
    ]


def _message(line: _Line) -> dict[str, Any]:
    return {"role": "user", "content": line.text, "time": line.time.isoformat(), "id": line.id}


def _moment(told: str) -> datetime:
    found = _TIME.search(told)
    if found is None:
        raise ValueError(f"no time in {told!r}")
    year, month, day, hour, minute = (int(part) for part in found.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC)
