"""The line between processes of one machine: who knows the key is answered, everybody else learns and holds nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import Access
from memory_core.core.config import load
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.memory.requests import CommitRequest
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import open_memory
from server.hooks import pending
from server.local.channel import (
    FRAME_LIMIT_BYTES,
    KEY_BYTES,
    PROTOCOL,
    Announcement,
    Channel,
    ChannelBroken,
    Line,
    announced,
    ask,
    this_node,
)
from server.local.channel_requests import LineAnswers, open_line
from server.protocol.session import ServedStore

PATIENCE_SECONDS = 30.0
SHORT_SECONDS = 0.5


def echo(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"ok": True, "heard": request}


@contextmanager
def line_on(state: Path, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]] = echo) -> Iterator[Line]:
    line = Line(state, answer)
    try:
        yield line
    finally:
        line.close()


def only_announcement(state: Path) -> Path:
    (path,) = (state / "lines").glob("*.json")
    return path


def rewritten(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changed}), encoding="utf-8")


def connected(line: Line) -> socket.socket:
    return socket.create_connection((line.announcement.host, line.announcement.port), timeout=PATIENCE_SECONDS)


class Stranger:
    """Another process on an announced port: hears what callers say and answers whatever it likes."""

    def __init__(self, answers: bytes = b"") -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard = bytearray()
        self.called = threading.Event()
        self._answers = answers
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def _listen(self) -> None:
        try:
            while True:
                connection, _ = self.listener.accept()
                self.called.set()
                with connection:
                    if self._answers:
                        connection.sendall(self._answers)
                    while heard := connection.recv(4096):
                        self.heard += heard
        except OSError:
            return


def test_a_server_is_asked_in_both_languages(tmp_path: Path) -> None:
    with line_on(tmp_path):
        answer = ask(tmp_path, {"verb": "ping", "text": "ferry 渡轮 \ud800"}, PATIENCE_SECONDS)
    assert answer == {"ok": True, "heard": {"verb": "ping", "text": "ferry 渡轮 \ud800"}}


def test_nobody_answers_where_no_server_runs_or_has_run(tmp_path: Path) -> None:
    assert ask(tmp_path, {"verb": "ping"}, SHORT_SECONDS) is None
    with line_on(tmp_path):
        pass
    assert ask(tmp_path, {"verb": "ping"}, SHORT_SECONDS) is None
    assert list((tmp_path / "lines").iterdir()) == []


def test_an_error_becomes_an_answer_with_its_hint(tmp_path: Path) -> None:
    def refusing(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotFound("there is no 渡轮.", hint="Look elsewhere.")

    with line_on(tmp_path, refusing):
        answer = ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS)
    assert answer == {"ok": False, "error": "there is no 渡轮.", "hint": "Look elsewhere."}


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_user_can_read_an_announcement(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir(mode=0o777)
    (tmp_path / "lines").chmod(0o777)
    with line_on(tmp_path):
        assert (tmp_path / "lines").stat().st_mode & 0o777 == 0o700
        path = only_announcement(tmp_path)
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)  # somebody could have read, or written it
        assert announced(tmp_path) == []
        path.chmod(0o600)
        moved = path.rename(tmp_path / "elsewhere")
        path.symlink_to(moved)
        assert announced(tmp_path) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
def test_what_another_user_announced_is_not_believed(tmp_path: Path) -> None:
    with line_on(tmp_path):
        os.chown(only_announcement(tmp_path), 12_345, -1)
        assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is None
    os.chown(tmp_path / "lines", 12_345, -1)
    with pytest.raises(PermissionError):
        Line(tmp_path, echo)


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "0.0.0"},
        {"protocol": PROTOCOL + 1},
        {"node": "another machine"},
        {"host": "192.0.2.1"},
        {"key": "short"},
        {"port": 0},
        {"port": "many"},
    ],
    ids=str,
)
def test_what_is_not_for_this_program_here_is_not_asked(tmp_path: Path, changed: Mapping[str, Any]) -> None:
    asked: list[Any] = []

    def noting(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return echo(request)

    with line_on(tmp_path, noting):
        rewritten(only_announcement(tmp_path), **changed)
        assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is None
    assert asked == []


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", "[" * 5_000, "\x00"], ids=repr)
def test_a_damaged_announcement_is_passed_over_and_cleared_away(tmp_path: Path, text: str) -> None:
    with line_on(tmp_path):
        path = tmp_path / "lines" / "0-damaged.json"
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
        answer = ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS)
        assert answer is not None
        assert answer["ok"]
        with line_on(tmp_path):
            assert not path.exists()


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10, os.urandom(64)], ids=len)
def test_a_process_that_took_over_the_port_learns_no_key_and_is_not_believed(tmp_path: Path, answers: bytes) -> None:
    stranger = Stranger(answers)
    with closing(stranger.listener), line_on(tmp_path):
        path = only_announcement(tmp_path)
        key = bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["key"])
        rewritten(path, port=stranger.port)
        assert ask(tmp_path, {"verb": "hook", "given": "a secret"}, SHORT_SECONDS) is None
    assert stranger.called.wait(PATIENCE_SECONDS)
    assert b"secret" not in stranger.heard
    assert key not in stranger.heard
    assert key.hex().encode() not in stranger.heard


def test_a_stranger_cannot_have_one_caller_answer_for_him_to_another() -> None:
    key = os.urandom(KEY_BYTES)
    callers = [socket.socketpair() for _ in range(2)]
    outcomes: list[BaseException] = []

    def call(end: socket.socket) -> None:
        try:
            Channel(end).prove_as_caller(key, time.monotonic() + SHORT_SECONDS)
        except ChannelBroken as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call, args=(ours,)) for ours, _ in callers]
    for thread in threads:
        thread.start()
    greetings = [theirs.recv(4096) for _, theirs in callers]
    for (_, theirs), other in zip(callers, reversed(greetings), strict=True):
        theirs.sendall(other[-32:] + other[-32:])  # what the other one said, for a number and for a proof
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    for pair in callers:
        for end in pair:
            end.close()
    assert len(outcomes) == 2


def test_who_does_not_know_the_key_is_not_answered(tmp_path: Path) -> None:
    asked: list[Any] = []

    def noting(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return {"ok": True}

    with line_on(tmp_path, noting) as line:
        with closing(Channel(connected(line))) as channel, pytest.raises(ChannelBroken):
            channel.prove_as_caller(os.urandom(KEY_BYTES), time.monotonic() + PATIENCE_SECONDS)
        with connected(line) as browser:
            browser.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert browser.recv(4096) == b""
    assert asked == []


def test_strangers_who_say_nothing_keep_nobody_waiting(tmp_path: Path) -> None:
    with line_on(tmp_path) as line:
        silent = [connected(line) for _ in range(20)]
        answer = ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS)
        assert answer is not None
        for each in silent:
            each.close()


def test_many_callers_at_once_are_all_answered(tmp_path: Path) -> None:
    with line_on(tmp_path):
        answers: list[Any] = []
        threads = [
            threading.Thread(
                target=lambda number=number: answers.append(ask(tmp_path, {"verb": "ping", "n": number}, 30.0))
            )
            for number in range(30)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
    assert sorted(answer["heard"]["n"] for answer in answers) == list(range(30))


def test_a_big_message_passes_and_one_over_the_limit_ends_that_call_alone(tmp_path: Path) -> None:
    with line_on(tmp_path):
        big = {"verb": "hook", "text": "渡" * 1_000_000}
        answer = ask(tmp_path, big, PATIENCE_SECONDS)
        assert answer is not None
        assert answer["heard"] == big
        assert ask(tmp_path, {"verb": "hook", "text": "x" * FRAME_LIMIT_BYTES}, PATIENCE_SECONDS) is None
        assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is not None


def test_a_hanging_server_costs_a_part_of_the_time_and_the_next_one_answers(tmp_path: Path) -> None:
    hanging = Stranger()
    with closing(hanging.listener), line_on(tmp_path):
        rewritten(only_announcement(tmp_path), port=hanging.port, since=0.0)
        with line_on(tmp_path):
            answer = ask(tmp_path, {"verb": "ping"}, 4.0)
    assert hanging.heard
    assert answer is not None


def test_a_request_that_was_sent_is_not_sent_again_to_another_server(tmp_path: Path) -> None:
    release = threading.Event()
    asked: list[Any] = []

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        release.wait(PATIENCE_SECONDS)
        return {"ok": True}

    with line_on(tmp_path, slow), line_on(tmp_path, slow):
        assert ask(tmp_path, {"verb": "hook"}, SHORT_SECONDS) is None
        release.set()
    assert len(asked) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from server.local.channel import Line
line = Line(Path(sys.argv[1]), lambda request: {"ok": True})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")
def test_what_a_killed_server_left_is_passed_over_and_cleared_away_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=PATIENCE_SECONDS)
    left = only_announcement(tmp_path)
    assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is None
    with line_on(tmp_path):
        assert not left.exists()
        assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is not None


FORKED = """
import os, sys, time
from pathlib import Path
from server.local.channel import Line, ask
state = Path(sys.argv[1])
line = Line(state, lambda request: {"ok": True})
if (child := os.fork()) == 0:
    try:
        line._listener.getsockname()
    except OSError:
        line.close()
        os._exit(0)
    os._exit(1)
_, status = os.waitpid(child, 0)
assert status == 0
assert ask(state, {"verb": "ping"}, 30.0) == {"ok": True}
line.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_lets_go_of_the_line_and_its_parent_keeps_it(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_without_a_folder_to_announce_in_there_is_no_line_and_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("not a folder", encoding="utf-8")
    close = open_line(ServedStore(lambda: pytest.fail("opened")), tmp_path / "state", kind="stdio")
    close()
    (warning,) = caplog.records
    assert "cannot ask this server" in warning.message


def test_an_unknown_verb_and_a_stop_of_a_hosts_own_server_are_refused(tmp_path: Path) -> None:
    answers = LineAnswers(ServedStore(lambda: pytest.fail("opened")))
    with line_on(tmp_path, answers):
        for verb, said in (("make tea 泡茶", "does not know"), ("stop", "ends with its host"), ("hook", "host gave")):
            answer = ask(tmp_path, {"verb": verb}, PATIENCE_SECONDS)
            assert answer is not None
            assert not answer["ok"]
            assert said in answer["error"]


def test_announcements_of_other_machines_are_left_alone_until_there_are_too_many(tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    folder.mkdir(mode=0o700)
    for number in range(80):
        foreign = Announcement(
            1, "127.0.0.1", 9, os.urandom(KEY_BYTES).hex(), float(number), "0", f"not {this_node()}", "stdio"
        )
        path = folder / f"1-{number:02}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(foreign._asdict()), encoding="utf-8")
    with line_on(tmp_path):
        kept = sorted(path.name for path in folder.glob("1-*.json"))
    assert kept == [f"1-{number:02}.json" for number in range(16, 80)]


def test_the_asking_side_imports_nothing_heavy() -> None:
    script = (
        "import sys; import server.local.channel; "
        "heavy = {'mcp', 'pydantic', 'numpy', 'logging', 'dataclasses', 'asyncio', 'subprocess', 'sqlite3'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.xfail(strict=True, reason="the pipe's modules still import the protocol")
def test_the_bridge_imports_nothing_heavy() -> None:
    script = (
        "import sys; import server.commands.serving, server.local.stdio_bridge, server.local.shared_server; "
        "heavy = {'mcp', 'pydantic', 'numpy', 'anyio', 'asyncio', 'yaml', 'sqlite3'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_what_hooks_left_while_no_server_ran_is_stored_by_the_next_one(tmp_path: Path) -> None:
    config = load(environment={}, flags={"home": str(tmp_path), "embedding.provider": "none"})
    state = tmp_path / ".state"
    said = [{"role": "user", "content": "The ferry leaves at nine. 渡轮九点开。"}]
    pending.leave(state, "session-end", "generic", {"session_id": "s1", "messages": said, "cwd": str(tmp_path)})
    store = ServedStore(lambda: open_memory(config))
    store.acquire()
    close = open_line(store, state, kind="stdio")
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while pending.waiting(state):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        given = {"session_id": "s2", "messages": said, "cwd": str(tmp_path)}
        request = {"verb": "hook", "event": "session-end", "given": given, "host": "generic"}
        answer = ask(state, request, PATIENCE_SECONDS)
        assert answer is not None
        assert (answer["ok"], answer["stored"]) == (True, 1)
    finally:
        close()
        store.release()
    stored = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("messages.jsonl")]
    assert len(stored) == 2
    assert all("渡轮九点开" in text for text in stored)


@pytest.mark.parametrize(
    ("wishes", "space", "kept"), [({"user_space": "work"}, "work", 1), ({}, "default", 1)], ids=str
)
def test_a_hook_is_answered_as_its_own_settings_say(
    tmp_path: Path, wishes: Mapping[str, Any], space: str, kept: int
) -> None:
    config = load(environment={}, flags={"home": str(tmp_path), "embedding.provider": "none"})
    with open_memory(config) as memory:
        store = ServedStore(lambda: memory)
        given = {"session_id": "s1", "messages": [{"role": "user", "content": "渡轮九点开。"}], "cwd": str(tmp_path)}
        request = {"verb": "hook", "event": "session-end", "given": given, "host": "generic", "wishes": wishes}
        assert LineAnswers(store)(request)["stored"] == kept
    assert [path.parts[-3] for path in tmp_path.rglob("messages.jsonl")] == [space]


def test_a_hook_whose_host_keeps_nothing_leaves_no_trace_at_a_server_that_does(tmp_path: Path) -> None:
    config = load(environment={}, flags={"home": str(tmp_path), "embedding.provider": "none"})
    with open_memory(config) as memory:
        memory.commit(CommitRequest("The ferry leaves at nine. 渡轮九点开。"))
        request = {"verb": "hook", "event": "user-prompt", "given": {"prompt": "When does the ferry leave, nine?"}}
        answers = LineAnswers(ServedStore(lambda: memory))
        assert "ferry" in answers({**request, "wishes": {"private_mode": True}})["text"]
        assert memory.run(TRAIL, TrailRequest()) == []
        assert "ferry" in answers(request)["text"]
        assert memory.run(TRAIL, TrailRequest()) != []
        private = LineAnswers(ServedStore(lambda: memory.view(access=Access.PRIVATE)))
        with pytest.raises(InvalidInput, match="private mode"):
            private({**request, "wishes": {"private_mode": False}})


def test_announcements_in_a_copy_of_a_store_are_not_the_copys(tmp_path: Path) -> None:
    asked: list[Any] = []

    def noting(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return echo(request)

    with line_on(tmp_path / "store", noting):
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
        assert list((tmp_path / "copy" / "lines").glob("*.json")) != []
        assert ask(tmp_path / "copy", {"verb": "hook"}, PATIENCE_SECONDS) is None
        (tmp_path / "other name").symlink_to(tmp_path / "store")
        assert ask(tmp_path / "other name", {"verb": "ping"}, PATIENCE_SECONDS) is not None
    assert [request["verb"] for request in asked] == ["ping"]


def test_a_folder_of_announcements_that_leads_elsewhere_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "project"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "package.json").write_text("{}", encoding="utf-8")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lines").symlink_to(elsewhere)
    with pytest.raises(OSError, match="is a link"):
        Line(tmp_path / "state", echo)
    assert [path.name for path in elsewhere.iterdir()] == ["package.json"]
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    assert announced(tmp_path / "state") == []


def test_a_call_for_which_there_is_no_thread_is_hung_up_on_and_the_next_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with line_on(tmp_path) as line:
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if thread.name == "runebook-line-call":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with connected(line) as call:
                assert call.recv(1) == b""
        assert ask(tmp_path, {"verb": "ping"}, PATIENCE_SECONDS) is not None
