"""An import of a host's transcripts passes over what private mode kept out of its hooks, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_core.core.conversation_notes import note_setting, talk_of
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.results import Action
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.private_times import note_private
from memory_core.features.imports.import_run import ImportReport
from memory_core.runebook import Runebook
from tests.contract.conftest import Place
from tests.features.imports import foreign
from tests.features.imports.foreign import brought, write_lines

_SKIPPED = "messages of a time in which private mode was on"
_SINCE = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def record(number: int, session: str = "s", folder: str = "/work/billing", **more: Any) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}",
        "sessionId": session,
        "cwd": folder,
        "timestamp": f"2023-11-14T22:{number:02}:00Z",
        "message": {"role": "user", "content": f"word {number}"},
        **more,
    }


def private(memory: Runebook, folder: str, since: float = _SINCE, seconds: float = 120.0) -> None:
    """A time, years ago, of which nothing is kept."""
    state = memory.store.files.state
    note_private(state, folder, 1, private=True, now=since)
    note_private(state, folder, 1, private=False, now=since + seconds)


def contents(memory: Runebook, session: str) -> list[str]:
    log = memory.store.text(MemoryUri.parse(f"viking://session/default/{session}/messages.jsonl"))
    return [message.text for message in parse_lines(log or "")[0]]


def told(report: ImportReport) -> str:
    return "\n".join(report.lines())


def test_what_was_said_in_a_private_time_and_folder_is_passed_over_years_later(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    private(memory, "/work")
    here = write_lines(tmp_path / "t" / "s.jsonl", [record(number) for number in (12, 13, 14, 15, 16)])
    write_lines(tmp_path / "t" / "r.jsonl", [record(number, "r", "/home/else") for number in (14, 15)])
    for dry_run in (True, False, False):
        report = brought(memory, tmp_path / "t", dry_run=dry_run)
        assert report.skipped[_SKIPPED] == 1 + 1  # 22:14 and 22:15
        assert f"skipped: 2 {_SKIPPED}" in told(report)
    assert contents(memory, "claude-code-s") == ["word 12", "word 13", "word 16"]
    assert contents(memory, "claude-code-r") == ["word 14", "word 15"]
    assert "the rest is here already" in told(brought(memory, here))
    write_lines(here, [record(number) for number in (12, 13, 14, 15, 16, 17)])
    assert brought(memory, here).sorted_counts["messages"] == {Action.CREATED: 1}


def test_a_title_is_of_the_time_of_its_conversation(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    private(memory, "/work")
    for session, numbers in (("a", (10, 11)), ("b", (14, 50)), ("c", (50, 51))):
        title = {"type": "ai-title", "aiTitle": f"Title of {session}", "sessionId": session}
        write_lines(tmp_path / "t" / f"{session}.jsonl", [title, *(record(number, session) for number in numbers)])
    assert brought(memory, tmp_path / "t").skipped[_SKIPPED] == 2
    assert contents(memory, "claude-code-a") == ["Title of a", "word 10", "word 11"]
    assert contents(memory, "claude-code-b") == ["word 50"]
    assert contents(memory, "claude-code-c") == ["Title of c", "word 50", "word 51"]


@pytest.mark.parametrize("user", ["default", "anna"])
def test_what_hooks_passed_over_of_a_conversation_stays_out_of_its_subagents_and_other_spaces(
    place: Place, tmp_path: Path, user: str
) -> None:
    memory = place.open()
    note_setting(memory.store.files.state, talk_of("s", "", "default"), private=True, stores=True)
    records = [record(10), record(11, isSidechain=True, agentId="a1"), record(12, timestamp="2999-01-01T00:00:00Z")]
    write_lines(tmp_path / "t" / "s.jsonl", records)
    write_lines(tmp_path / "t" / "agent-a2.jsonl", [record(13, isSidechain=True, agentId="a2")])
    report = brought(memory.view(user), tmp_path / "t")
    assert report.skipped[_SKIPPED] == 3
    assert report.sorted_counts["messages"] == {Action.CREATED: 1}


def test_a_private_time_that_lasts_is_passed_over_and_comes_in_once_it_is_over(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    state = memory.store.files.state
    path = write_lines(tmp_path / "s.jsonl", [record(number) for number in (13, 14, 15)])
    note_private(state, "/work/billing", 1, private=True, now=_SINCE)
    assert brought(memory, path).skipped[_SKIPPED] == 2
    note_private(state, "/work/billing", 1, private=False, now=_SINCE + 60.0)
    assert brought(memory, path).skipped[_SKIPPED] == 1
    assert contents(memory, "claude-code-s") == ["word 13", "word 15"]


def test_exports_of_web_accounts_have_no_folder_and_come_in(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    private(memory, "", 0.0, 4e9)
    report = brought(memory, foreign.claude(tmp_path / "claude"))
    assert _SKIPPED not in report.skipped
    assert report.sorted_counts["messages"][Action.CREATED] > 0


def test_a_transcript_that_names_no_folder_may_be_of_any(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    private(memory, "/work")
    path = write_lines(tmp_path / "s.jsonl", [record(number, folder="") for number in (13, 14)])
    assert brought(memory, path).skipped[_SKIPPED] == 1


def test_a_note_that_is_none_costs_nothing(place: Place, tmp_path: Path) -> None:
    memory = place.open()
    private(memory, "/work")
    folder = memory.store.files.state / "hooks" / "private"
    for name, text in {"0-0-0": "{broken", "1-1-1": "[]", "2-2-2": '{"until": null}'}.items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    path = write_lines(tmp_path / "s.jsonl", [record(number) for number in (13, 14)])
    assert brought(memory, path).skipped[_SKIPPED] == 1
