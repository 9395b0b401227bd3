"""LongMemEval's format: a question each with its own history of dated chat sessions.

Fields: ``question_id`` (``…_abs``: nothing in the history answers it), ``question_type``, ``question``,
``question_date``, ``haystack_dates``, ``haystack_session_ids``, ``haystack_sessions`` (lists of ``{role, content,
has_answer?}``) and ``answer_session_ids``. Gold turns are those marked ``has_answer``, of either role.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.corpus import Corpus, Question, conversation

_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})(?:\D+(\d{1,2}):(\d{2}))?")
_ABSTENTION = "_abs"


def read(path: Path, limit: int | None = None) -> Iterator[Corpus]:
    """One corpus a question, the first ``limit`` of the file."""
    for item in json.loads(path.read_text(encoding="utf-8"))[:limit]:
        yield corpus(item)


def corpus(item: Mapping[str, Any]) -> Corpus:
    """The history of one question; sessions are numbered, since a history may hold one id twice.

    A question that should be answered and has no marked turn is skipped.
    """
    held: list[tuple[str, list[dict[str, Any]]]] = []
    gold: set[str] = set()
    homes: set[str] = set()
    wanted = set(item["answer_session_ids"])
    told = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
    for number, (session_id, day, turns) in enumerate(told, 1):
        name = f"session_{number}"
        said = _date(day).isoformat()
        messages = [
            {"role": turn["role"], "content": turn["content"], "time": said, "id": f"{name}:{at}"}
            for at, turn in enumerate(turns)
            if turn["content"].strip()
        ]
        gold |= {f"{name}:{at}" for at, turn in enumerate(turns) if turn.get("has_answer") and turn["content"].strip()}
        if session_id in wanted:
            homes.add(name)
        if messages:
            held.append((name, messages))
    abstains = item["question_id"].endswith(_ABSTENTION)
    questions = []
    if gold or abstains:
        questions.append(
            Question(
                item["question"],
                frozenset() if abstains else frozenset(gold),
                frozenset() if abstains else frozenset(homes),
                "abstention" if abstains else item["question_type"],
                item["question_id"],
                scored=not abstains,
                now=_date(item["question_date"]),
            )
        )
    return conversation(item["question_id"], held, questions, 1 - len(questions))


def _date(text: str) -> datetime:
    """``2023/05/20 (Sat) 02:21`` in UTC; midnight where no time is given."""
    found = _DATE.search(text)
    if found is None:
        raise SystemExit(f"{text!r} is no date of LongMemEval's")
    year, month, day, hour, minute = (int(part or 0) for part in found.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC)
