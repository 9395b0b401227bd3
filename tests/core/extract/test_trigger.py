"""When conversations are extracted: few calls for many exchanges, every message once, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory_core.core.config import ExtractionConfig
from memory_core.core.llm.client import Scripted, ScriptedLLM
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook
from tests.stores import scripted

NOW = datetime(2026, 5, 2, 10, 0, tzinfo=UTC)
NOTHING = json.dumps({"reasoning": "nothing", "operations": {}})


@contextmanager
def opened(home: Path, answers: Sequence[Scripted] | None, **extraction: Any) -> Iterator[tuple[Runebook, ScriptedLLM]]:
    with scripted(home, answers, extraction=ExtractionConfig(**extraction)) as opened_store:
        yield opened_store


def say(memory: Runebook, number: int, session: str = "s1", minutes: float = 0.0) -> CommitReceipt:
    exchange = [
        {"role": "user", "content": f"Question {number} 关于花园?"},
        {"role": "assistant", "content": f"Answer {number}."},
    ]
    return memory.commit(CommitRequest(messages=exchange, session_id=session, now=NOW + timedelta(minutes=minutes)))


def told(receipt: CommitReceipt) -> str:
    return " ".join(result.note or "" for result in receipt.results if result.op == "extraction")


def test_forty_exchanges_one_by_one_cost_at_most_eight_calls_and_each_message_is_extracted_once(
    tmp_path: Path, read: list[str]
) -> None:
    with opened(tmp_path, [NOTHING] * 40) as (memory, llm):
        for number in range(40):
            say(memory, number, minutes=number)
        list(memory.extract_waiting())
        assert len(llm.requests) <= 8
        assert memory.extractor.waiting() == []
    said = [text for number in range(40) for text in (f"Question {number} 关于花园?", f"Answer {number}.")]
    assert read == said


def test_the_first_commit_is_extracted_at_once_and_later_ones_say_what_they_wait_for(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING] * 2, every_exchanges=3) as (memory, llm):
        assert say(memory, 0).status is Status.COMMITTED
        waiting = say(memory, 1)
        assert waiting.status is Status.QUEUED
        assert "3 exchanges (1 wait)" in told(waiting)
        assert "idle for 30 minutes" in told(waiting)
        say(memory, 2)
        assert len(llm.requests) == 1
        assert say(memory, 3).status is Status.COMMITTED
        assert len(llm.requests) == 2


def test_an_idle_session_is_taken_up_by_a_later_commit_of_another(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING] * 4) as (memory, llm):
        say(memory, 0)
        say(memory, 1)
        say(memory, 0, "s2", minutes=29)
        assert [row.log.parent.name for row in memory.extractor.waiting()] == ["s1"]
        say(memory, 0, "s3", minutes=31)
        assert memory.extractor.waiting() == []
        assert len(llm.requests) == 4


def test_maintenance_extracts_sessions_that_never_compact_after_an_idle_time(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING] * 2, trigger="session_end", idle_minutes=10) as (memory, llm):
        assert say(memory, 0).status is Status.QUEUED
        for later, requests in ((9, 0), (11, 1)):
            (done,) = memory.run(MAINTAIN, MaintainRequest(only=["sessions"], now=NOW + timedelta(minutes=later)))
            assert done.failure is None
            assert len(llm.requests) == requests
        assert memory.extractor.waiting() == []


def test_a_log_that_cannot_be_read_does_not_end_what_maintenance_extracts(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING], trigger="session_end", idle_minutes=10) as (memory, llm):
        say(memory, 0)
        say(memory, 0, "s2")
        (tmp_path / "session/default/s1/messages.jsonl").write_bytes(b"\xff\xfe not text")
        list(memory.run(MAINTAIN, MaintainRequest(only=["sessions"], now=NOW + timedelta(minutes=11))))
        assert [row.log.parent.name for row in memory.extractor.waiting()] == ["s1"]
        assert len(llm.requests) == 1


def test_a_dry_run_says_what_maintenance_would_extract(tmp_path: Path) -> None:
    with opened(tmp_path, [], trigger="session_end") as (memory, _):
        say(memory, 0)
        (done,) = memory.run(MAINTAIN, MaintainRequest(only=["sessions"], now=NOW + timedelta(hours=1), dry_run=True))
        assert [result.note for receipt in done.receipts for result in receipt.results] == [
            "2 messages would be extracted"
        ]


def test_with_heat_only_promotion_or_a_request_extracts(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING], trigger="heat") as (memory, llm):
        waiting = say(memory, 0)
        assert "their topic is used often" in told(waiting)
        say(memory, 0, "s2", minutes=600)
        list(memory.run(MAINTAIN, MaintainRequest(now=NOW + timedelta(days=1))))
        assert llm.requests == []
        list(memory.extract_waiting("s1"))
        assert len(llm.requests) == 1


def test_without_a_model_a_brief_is_offered_first_and_then_once_ten_exchanges_wait(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        receipts = [say(memory, number) for number in range(25)]
        offers = [any("brief=true" in (result.hint or "") for result in receipt.results) for receipt in receipts]
        assert [number for number, offered in enumerate(offers) if offered] == [0, *range(9, 25)]
        assert all(receipt.brief is None for receipt in receipts)
        rows = memory.extractor.waiting()
        assert [row.waiting for row in rows] == [50]
        waiting = say(memory, 25)
        assert [result.action for result in waiting.results if result.op == "extraction"] == [Action.QUEUED]
