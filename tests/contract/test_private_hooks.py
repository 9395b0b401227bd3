"""What private mode kept out of a conversation that tells no time stays out: of later hooks, and of imports."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_core.core import conversation_notes
from memory_core.core.conversation_notes import last_read, note_passed_over, note_read, note_setting, talk_of
from memory_core.core.errors import StoreBusy
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.private_times import PrivateTimes, note_private
from memory_core.core.store.locks import StoreLock
from memory_core.runebook import Runebook
from server.hosts import hook_answers, hook_notes
from server.hosts.hook_answers import HookAnswer, answer, take_in
from tests.contract.conftest import Place
from tests.features.imports.foreign import brought, write_lines

_DAY = 86_400.0
_PASSED_OVER = "messages of a time in which private mode was on"
_TALK = talk_of("s", "", "default")
#: Long enough that how far a transcript was read is remembered.
_LONG = "It says that the new rate holds from January on, and that nothing is to be paid before the letter comes. " * 3


class Told:
    """A conversation of a host that tells no times, and its storing hooks.

    Args:
        memory: The store.
        folder: Where the transcript lies; None where the host hands the messages in.
    """

    def __init__(self, memory: Runebook, folder: Path | None) -> None:
        self.memory, self.state = memory, memory.store.files.state
        self._path = None if folder is None else folder / "t.jsonl"
        self._messages: list[dict[str, Any]] = []

    def hook(self, *texts: str, event: str = "pre-compact") -> HookAnswer:
        """Say these, and have a hook store the conversation."""
        self._messages += [{"role": "user", "content": text} for text in texts]
        given: dict[str, Any] = {"session_id": "s", "cwd": "/work/billing"}
        if self._path is None:
            given["messages"] = self._messages
        else:
            given["transcript_path"] = str(write_lines(self._path, self._messages))
        return answer(self.memory, event, given, "generic" if self._path is None else "cursor", resident=False)

    def private(self, began: float, seconds: float = 60.0) -> None:
        """A time, in seconds since 1970, of which nothing is kept."""
        note_private(self.state, "/work", 1, private=True, now=began)
        note_private(self.state, "/work", 1, private=False, now=began + seconds)

    @property
    def stored(self) -> list[str]:
        return contents(self.memory, "s")


def contents(memory: Runebook, session: str) -> list[str]:
    log = memory.store.text(MemoryUri.parse(f"viking://session/default/{session}/messages.jsonl"))
    return [message.text for message in parse_lines(log or "")[0]]


@pytest.fixture(params=["transcript", "messages"])
def told(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Told:
    return Told(place.open(), tmp_path if request.param == "transcript" else None)


@pytest.mark.parametrize("days", [0, 3])
def test_what_a_hook_passed_over_is_passed_over_by_later_ones_and_what_is_new_is_stored(told: Told, days: int) -> None:
    since = time.time() - days * _DAY - 600
    note_read(told.state, _TALK, since - 60)
    told.private(since)
    assert told.hook(_LONG, "The codeword is Wolkenbruch.").stored == 0
    for text in ("Back to the letter.", "It is paid."):
        assert told.hook(text, event="session-end").stored == 1
    assert told.stored == ["Back to the letter.", "It is paid."]


def test_what_was_said_while_private_mode_was_set_is_passed_over_by_the_second_hook(told: Told) -> None:
    note_setting(told.state, _TALK, private=True, stores=True)
    assert told.hook(_LONG, "The codeword is Wolkenbruch.").stored == 0
    told.hook("Back to the letter.")
    note_setting(told.state, _TALK, private=True, stores=True)  # again, which keeps what is known of the first time
    note = json.loads((told.state / "hooks" / "passed-over" / f"{_TALK}.json").read_text("utf-8"))
    assert len(note["messages"]) == 2
    assert all(len(each) == 16 for each in note["messages"])
    assert "Wolkenbruch" not in str(note)
    assert told.stored == ["Back to the letter."]


def test_what_is_stored_before_a_private_time_is_neither_counted_nor_kept_out(told: Told) -> None:
    note_read(told.state, _TALK, time.time() - 3 * _DAY)
    assert told.hook(_LONG, "Go on.").stored == 2
    told.private(time.time() - 2 * _DAY)
    note_read(told.state, _TALK, time.time() - 3 * _DAY)
    assert told.hook("The codeword is Wolkenbruch.").notes == ("1 are of a time in which private mode was on",)
    assert told.hook("Done.", "Go on.").stored == 2
    assert told.stored == [_LONG, "Go on.", "Done.", "Go on."]


def test_a_private_time_before_the_conversation_began_drops_nothing(told: Told) -> None:
    told.private(time.time() - 5 * 3_600)
    note_read(told.state, _TALK, time.time() - 3_600)
    assert told.hook(_LONG, "The teapot is blue.") == HookAnswer(stored=2)


def test_a_conversation_that_nobody_saw_begin_is_at_most_a_day_old(told: Told) -> None:
    told.private(time.time() - 2 * _DAY)
    assert told.hook(_LONG).stored == 1

    assert time.time() - _DAY < (last_read(told.state, _TALK).at or 0.0) <= time.time()


@pytest.mark.parametrize("gone", [True, False])
def test_what_a_hook_could_not_read_was_not_said_after_it(place: Place, tmp_path: Path, gone: bool) -> None:
    told = Told(place.open(), tmp_path)
    note_read(told.state, _TALK, time.time() - 3_600)
    told.private(time.time() - 1_800)
    path = tmp_path / "t.jsonl"
    path.write_text('{"role": "user", "content": "The codew', encoding="utf-8")
    given = {"session_id": "s", "cwd": "/work/billing", "transcript_path": str(path)}
    if gone:
        path.unlink()
    hook_notes.leave(told.state, "session-end", "cursor", given)
    assert take_in(told.memory) == 1
    assert told.hook("The codeword is Wolkenbruch.").stored == 0


def _title(text: str) -> dict[str, Any]:
    return {"type": "ai-title", "aiTitle": text, "sessionId": "s"}


def _record(number: int, moment: float, text: str, **more: Any) -> dict[str, Any]:
    said_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
    return {
        "type": "user",
        "uuid": f"u{number}",
        "parentUuid": None,
        "sessionId": "s",
        "cwd": "/work/billing",
        "timestamp": said_at,
        "message": {"role": "user", "content": text},
        **more,
    }


@pytest.fixture
def claude(tmp_path: Path) -> Callable[[Runebook, list[dict[str, Any]]], HookAnswer]:
    """Have a hook of Claude Code store a transcript of these records."""

    def hook(memory: Runebook, records: list[dict[str, Any]], cwd: str = "/work/billing", rest: str = "") -> HookAnswer:
        path = write_lines(tmp_path / "t" / "s.jsonl", records)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(rest)
        given = {"session_id": "s", "transcript_path": str(path), "cwd": cwd}
        return answer(memory, "pre-compact", given, "claude-code", resident=False)

    return hook


def test_a_title_that_a_hook_passed_over_is_passed_over_by_hooks_and_imports(
    place: Place, tmp_path: Path, claude: Callable[..., HookAnswer]
) -> None:
    memory, now = place.open(), time.time()
    told = Told(memory, None)
    note_read(told.state, _TALK, now - 3 * _DAY)
    told.private(now - 2 * _DAY)
    records = [_title("A plan to leave Acme"), _record(1, now - 600, _LONG)]
    claude(memory, records)
    records.append(_record(2, now - 500, "word 2"))
    claude(memory, records)
    report = brought(memory, tmp_path / "t")
    assert report.skipped[_PASSED_OVER] == 1
    assert contents(memory, "s") == [_LONG, "word 2"]


def test_a_title_is_as_old_as_the_messages_of_a_conversation_that_nobody_saw_begin(
    place: Place, claude: Callable[..., HookAnswer]
) -> None:
    memory, now = place.open(), time.time()
    Told(memory, None).private(now - 3 * _DAY)
    claude(memory, [_title("A plan to leave Acme"), _record(1, now - 4 * _DAY, "word 1")])
    assert contents(memory, "s") == ["word 1"]


def test_what_was_said_in_a_folder_that_the_host_left_since_is_passed_over(
    place: Place, tmp_path: Path, claude: Callable[..., HookAnswer]
) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    claude(memory, _said_in(now, "/work/billing", "/home/plans", "/work/billing"))
    assert contents(memory, "s") == ["word 0", "word 2"]
    assert brought(memory, tmp_path / "t").skipped[_PASSED_OVER] == 1


@pytest.mark.parametrize("since", ["/home/plans", "/home"])
def test_a_folder_in_which_a_shell_was_once_makes_nothing_else_private(
    place: Place, tmp_path: Path, claude: Callable[..., HookAnswer], since: str
) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    records = _said_in(now, "/work/billing", "/work/billing", since)
    claude(memory, records, since)
    assert contents(memory, "s") == ["word 0", "word 1", "word 2"]
    write_lines(tmp_path / "r" / "r.jsonl", [{**record, "sessionId": "r"} for record in records])
    assert brought(memory, tmp_path / "r").skipped[_PASSED_OVER] == 0
    assert contents(memory, "claude-code-r") == ["word 0", "word 1", "word 2"]


def test_a_title_was_said_in_any_folder_of_its_conversation(place: Place, claude: Callable[..., HookAnswer]) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    claude(memory, [*_said_in(now, "/work/billing", "/home/plans", "/work/billing"), _title("A plan to leave Acme")])
    assert contents(memory, "s") == ["word 0", "word 2"]


@pytest.mark.parametrize("rest", ["", '{"type": "us'])
def test_what_is_said_after_a_shell_left_is_private_where_the_conversation_began(
    place: Place, claude: Callable[..., HookAnswer], monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.setattr(hook_answers, "_OVERLAP_BYTES", 1)
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    records = [
        _record(8, now - 900, _LONG, cwd="/home/plans"),
        *_said_in(now, "/work/billing", "/work/billing", "/work/billing"),
    ]
    claude(memory, records[:2], rest=rest)
    claude(memory, records[:3])
    claude(memory, records)
    assert contents(memory, "s") == [_LONG, "word 0", "word 2"]


def test_what_a_subagent_says_elsewhere_is_private_where_its_conversation_began(place: Place, tmp_path: Path) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    write_lines(tmp_path / "t" / "s.jsonl", _said_in(now, "/home/plans", "/home/plans", "/work/billing"))
    aside = {"isSidechain": True, "agentId": "a1"}
    told = [{**record, **aside} for record in _said_in(now, "/work/billing", "/work/billing", "/work/billing")]
    write_lines(tmp_path / "t" / "s" / "subagents" / "agent-a1.jsonl", told)
    assert brought(memory, tmp_path / "t").skipped[_PASSED_OVER] == 2
    assert contents(memory, "claude-code-agent-a1") == ["word 0", "word 2"]


def test_an_import_knows_from_a_hook_where_a_conversation_began(place: Place, tmp_path: Path) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    note_read(memory.store.files.state, _TALK, now - 900, "/home/plans")
    write_lines(tmp_path / "t" / "agent-a1.jsonl", _said_in(now, "/work/billing", "/work/billing", "/work/billing"))
    assert brought(memory, tmp_path / "t").skipped[_PASSED_OVER] == 1


@pytest.mark.parametrize("roots", [["/work/billing", "/home/plans"], ["/home/plans", "/work/billing"]])
def test_private_mode_counts_in_each_folder_of_a_workspace(place: Place, tmp_path: Path, roots: list[str]) -> None:
    memory, now = place.open(), time.time()
    _private_plans(memory, now)
    path = write_lines(tmp_path / "t.jsonl", [{"role": "user", "content": "The codeword is Wolkenbruch."}])
    given = {"conversation_id": "s", "workspace_roots": roots, "transcript_path": str(path)}
    assert answer(memory, "session-end", given, "cursor", resident=False).stored == 0
    other = {**given, "conversation_id": "r", "workspace_roots": ["/work/billing", "/work/letters"]}
    assert answer(memory, "session-end", other, "cursor", resident=False).stored == 1


def test_a_chat_file_that_is_half_written_was_not_read(place: Place, tmp_path: Path) -> None:
    memory, now = place.open(), time.time()
    state, path = memory.store.files.state, tmp_path / "chat.json"
    note_read(state, _TALK, now - 900)
    _private_plans(memory, now)
    chat = json.dumps({"messages": [{"role": "user", "content": "The codeword is Wolkenbruch."}]})
    given = {"session_id": "s", "cwd": "/home/plans", "transcript_path": str(path)}
    for text in (chat[:40], chat):
        path.write_text(text, encoding="utf-8")
        assert answer(memory, "pre-compact", given, "gemini-cli", resident=False).stored == 0
    assert (last_read(state, _TALK).at or 0.0) >= now


def test_a_conversation_began_where_it_was_noted_first(tmp_path: Path) -> None:
    note_read(tmp_path, _TALK, None, "/home/plans")
    assert last_read(tmp_path, _TALK) == (None, "/home/plans")
    note_read(tmp_path, _TALK, 5.0, "/work/billing")
    assert last_read(tmp_path, _TALK) == (5.0, "/home/plans")
    (tmp_path / "hooks" / "read" / f"{_TALK}.json").write_text('{"at": 7.0}', encoding="utf-8")  # of a version before
    assert last_read(tmp_path, _TALK) == (7.0, "")


def _private_plans(memory: Runebook, now: float) -> None:
    """A client in another folder that was in private mode for a while, in seconds since 1970."""
    state = memory.store.files.state
    note_private(state, "/home/plans", 1, private=True, now=now - 700)
    note_private(state, "/home/plans", 1, private=False, now=now - 550)


def _said_in(now: float, before: str, meanwhile: str, since: str) -> list[dict[str, Any]]:
    """Words 0, 1 and 2: before that while, in it, and since, each in its folder."""
    said = ((now - 800, before), (now - 600, meanwhile), (now - 500, since))
    return [_record(number, at, f"word {number}", cwd=folder) for number, (at, folder) in enumerate(said)]


def test_the_summary_of_another_conversation_is_no_title_of_this_one(
    place: Place, tmp_path: Path, claude: Callable[..., HookAnswer]
) -> None:
    memory = place.open()
    records = [
        {"type": "summary", "summary": "A plan to leave Acme", "leafUuid": "u99"},
        {"type": "summary", "summary": "The tax letter", "leafUuid": "u1"},
        _record(1, time.time() - 600, "word 1"),
    ]
    claude(memory, records)
    assert contents(memory, "s") == ["The tax letter", "word 1"]
    other = [{**record, "sessionId": "r"} for record in records]
    report = brought(memory, write_lines(tmp_path / "r" / "r.jsonl", other))
    assert contents(memory, "claude-code-r") == ["The tax letter", "word 1"]
    assert report.skipped["titles of other conversations"] == 1


def test_of_too_many_messages_that_were_passed_over_the_oldest_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_notes, "_MESSAGE_LIMIT", 3)
    messages = [{"role": "user", "content": f"word {number}"} for number in range(5)]
    for message in messages[:2]:
        note_passed_over(tmp_path, _TALK, [message])
    note_passed_over(tmp_path, _TALK, [*messages[2:4], messages[0]])
    covered = [number for number, each in enumerate(messages) if PrivateTimes(tmp_path, ["/w"], _TALK).cover(each)]
    assert covered == [0, 2, 3]


def test_a_note_of_before_keeps_its_time_when_messages_come_to_it(tmp_path: Path) -> None:
    note_setting(tmp_path, _TALK, private=True, stores=True)
    path = tmp_path / "hooks" / "passed-over" / f"{_TALK}.json"
    path.write_text('{"until": 4000000000.0}', encoding="utf-8")
    secret = {"role": "user", "content": "The codeword is Wolkenbruch."}
    assert PrivateTimes(tmp_path, ["/w"], _TALK).cover(secret)
    note_passed_over(tmp_path, _TALK, [secret, {"role": 7}])
    assert PrivateTimes(tmp_path, ["/w"], _TALK).cover(secret, earliest=5e9)
    assert not PrivateTimes(tmp_path, ["/w"], _TALK).cover({"role": 7}, earliest=5e9)
    assert PrivateTimes(tmp_path, ["/w"], _TALK).is_on


def test_two_hooks_of_one_conversation_do_not_overwrite_what_the_other_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_notes, "_LOCK_SECONDS", 0.0)
    note_setting(tmp_path, _TALK, private=True, stores=True)
    lock = StoreLock(tmp_path / "hooks" / "passed-over" / "passed-over.lock")
    with lock.held(), pytest.raises(StoreBusy):
        note_passed_over(tmp_path, _TALK, [{"role": "user", "content": "The codeword is Wolkenbruch."}])
