"""Asking a server on this machine: who knows the key is answered, everybody else learns and holds nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import NotFound, RunebookError
from memory_core.core.process import this_node
from server.local.channel import (
    FOLDER_NAME,
    FRAME_LIMIT_BYTES,
    KEY_BYTES,
    LOOPBACK,
    Announcement,
    Channel,
    ChannelBroken,
    Unanswered,
    announced,
    submit,
)
from server.local.channel_requests import Listener
from server.local.shared_server import place_of
from tests.server.conftest import WORDS_ONLY, RawClient, environment
from tests.waiting import PATIENCE_SECONDS, soon

SHORT_SECONDS = 0.5


class Answers:
    """Says again what it was asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(request)
        return {"ok": True, "heard": request}


def listening(state: Path, answer: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None) -> closing[Listener]:
    return closing(Listener(state, answer or Answers()))


def only_announcement(state: Path) -> Path:
    (path,) = (state / FOLDER_NAME).glob("*.json")
    return path


def rewrite(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changed}), encoding="utf-8")


def connected(listener: Listener) -> socket.socket:
    return listener.announcement.dial(PATIENCE_SECONDS)


def heard(connection: socket.socket) -> bytes:
    """What the other end says before it hangs up."""
    try:
        return connection.recv(4096)
    except ConnectionResetError:  # it did not read all
        return b""


@pytest.fixture(params=["unix", "loopback"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of socket that a server may listen on."""
    if request.param == "loopback":
        monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    elif not hasattr(socket, "AF_UNIX"):
        pytest.skip("no Unix sockets here")
    return str(request.param)


class Stranger:
    """Another process on an announced port: hears what callers say and answers whatever it likes."""

    def __init__(self, answers: bytes = b"") -> None:
        self.listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self.listener.getsockname()[1]
        self.heard = bytearray()
        self.called = threading.Event()
        self._answers = answers
        threading.Thread(target=self._listen, daemon=True).start()

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


def test_a_command_asks_the_running_server_of_its_store_and_settings(tmp_path: Path) -> None:
    home = tmp_path / "家"
    place = place_of(str(home), None, ("maintenance.automatic=off", WORDS_ONLY[1]), environment())
    assert submit(place.state, "ping", {}, SHORT_SECONDS) is None
    with RawClient(home) as server:
        server.call("ls", uri="viking://")
        assert soon(lambda: bool(announced(place.state)))
        answer = submit(place.state, "ping", {}, PATIENCE_SECONDS, settings=place.settings)
        assert answer is not None
        assert (set(answer), answer["pid"]) == ({"pid", "version", "attached"}, announced(place.state)[0].pid)
        assert submit(place.state, "ping", {}, PATIENCE_SECONDS, settings="other settings") is None
        for verb, said, hint in (
            ("make tea 泡茶", "does not know 'make tea 泡茶'", "same version"),
            ("stop", "host", "End"),
        ):
            with pytest.raises(RunebookError, match=said) as refused:
                submit(place.state, verb, {}, PATIENCE_SECONDS)
            assert hint in refused.value.hint
    assert submit(place.state, "ping", {}, SHORT_SECONDS) is None
    assert list((place.state / FOLDER_NAME).iterdir()) == []


def test_a_server_hears_what_was_asked_by_whom_and_where_in_both_languages(tmp_path: Path) -> None:
    with listening(tmp_path):
        answer = submit(tmp_path, "find", {"query": "ferry 渡轮 \ud800"}, PATIENCE_SECONDS, author="shell")
    asked = {"verb": "find", "author": "shell", "cwd": str(Path.cwd()), "query": "ferry 渡轮 \ud800"}
    assert answer == {"heard": asked}


def test_an_error_becomes_an_answer_with_its_hint(tmp_path: Path) -> None:
    def refusing(_request: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotFound("there is no 渡轮.", hint="Look elsewhere.")

    with listening(tmp_path, refusing), pytest.raises(RunebookError) as refused:
        submit(tmp_path, "ping", {}, PATIENCE_SECONDS)
    assert str(refused.value) == "there is no 渡轮. Next: Look elsewhere."


def test_a_request_that_was_sent_is_sent_to_no_other_server_and_its_fate_is_not_guessed(tmp_path: Path) -> None:
    release = threading.Event()
    asked: list[Any] = []

    def slow(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request["verb"])
        release.wait(PATIENCE_SECONDS)
        return {"ok": True}

    with listening(tmp_path, slow), listening(tmp_path, slow):
        with pytest.raises(Unanswered, match="none came in time"):
            submit(tmp_path, "two", {}, SHORT_SECONDS)
        release.set()
    assert asked == ["two"]


def test_a_hanging_server_costs_a_part_of_the_time_and_the_next_one_answers(tmp_path: Path) -> None:
    hanging = Stranger()
    with closing(hanging.listener), listening(tmp_path):
        rewrite(only_announcement(tmp_path), port=hanging.port, socket_name="", since=0.0)
        with listening(tmp_path):
            assert submit(tmp_path, "ping", {}, 4.0) is not None
    assert hanging.heard


def test_many_callers_at_once_are_all_answered_whatever_strangers_hold(tmp_path: Path, kind: str) -> None:
    answers: list[Any] = []

    def call(number: int) -> None:
        answers.append(submit(tmp_path, "ping", {"n": number}, PATIENCE_SECONDS))

    with listening(tmp_path) as listener, ExitStack() as stack:
        assert bool(listener.announcement.socket_name) is (kind == "unix")
        silent = [stack.enter_context(connected(listener)) for _ in range(300)]
        threads = [threading.Thread(target=call, args=(number,)) for number in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert heard(silent[0]) == b""  # the first of so many that said nothing had to go
    assert sorted(answer["heard"]["n"] for answer in answers) == list(range(30))


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
def test_a_socket_lies_in_the_users_own_folder_whatever_its_path_and_goes_with_its_server(tmp_path: Path) -> None:
    state = tmp_path / "家" / ("deep " * 20) / ".state"
    with listening(state) as listener:
        path = state / FOLDER_NAME / listener.announcement.socket_name
        assert path.is_socket() is sys.platform.startswith("linux")  # elsewhere so long a path cannot be bound
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert [file for file in path.parent.iterdir() if file.stat().st_mode & 0o077] == []
        assert submit(state, "ping", {}, PATIENCE_SECONDS) is not None
    assert list((state / FOLDER_NAME).iterdir()) == []


def test_a_big_message_passes_and_one_over_the_limit_ends_that_call_alone(tmp_path: Path) -> None:
    with listening(tmp_path):
        answer = submit(tmp_path, "hook", {"text": "渡" * 1_000_000}, PATIENCE_SECONDS)
        assert answer is not None
        assert len(answer["heard"]["text"]) == 1_000_000
        with pytest.raises(Unanswered, match="too long"):
            submit(tmp_path, "hook", {"text": "x" * FRAME_LIMIT_BYTES}, PATIENCE_SECONDS)
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is not None


def test_a_call_for_which_there_is_no_thread_is_hung_up_on_and_the_next_one_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening(tmp_path) as listener:
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if thread.name == "runebook-request":
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            with connected(listener) as call:
                assert call.recv(1) == b""
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is not None


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_user_can_read_an_announcement(tmp_path: Path) -> None:
    (tmp_path / FOLDER_NAME).mkdir(mode=0o777)
    (tmp_path / FOLDER_NAME).chmod(0o777)
    with listening(tmp_path):
        assert (tmp_path / FOLDER_NAME).stat().st_mode & 0o777 == 0o700
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
    with listening(tmp_path):
        os.chown(only_announcement(tmp_path), 12_345, -1)
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is None
    os.chown(tmp_path / FOLDER_NAME, 12_345, -1)
    with pytest.raises(PermissionError):
        Listener(tmp_path, Answers())


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "0.0.0"},
        {"node": "another machine"},
        {"key": "short"},
        {"socket_name": "", "port": 0},
        {"socket_name": "", "port": "many"},
        {"socket_name": "no such.sock"},
        {"socket_name": "../elsewhere.sock"},
    ],
    ids=str,
)
def test_what_is_not_for_this_program_here_is_not_asked(tmp_path: Path, changed: Mapping[str, Any]) -> None:
    answers = Answers()
    with listening(tmp_path, answers):
        rewrite(only_announcement(tmp_path), **changed)
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is None
    assert answers.asked == []


def test_damaged_announcements_are_passed_over_and_cleared_away(tmp_path: Path) -> None:
    with listening(tmp_path):
        for number, text in enumerate(("", "[]", "{", "{}", "[" * 5_000, "\x00")):
            path = tmp_path / FOLDER_NAME / f"0-damaged-{number}.json"
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is not None
        with listening(tmp_path):
            assert list((tmp_path / FOLDER_NAME).glob("0-damaged-*")) == []


def test_an_announcement_whose_numbers_are_written_as_text_does_not_hide_the_others(tmp_path: Path) -> None:
    with listening(tmp_path) as older:
        rewrite(only_announcement(tmp_path), since="1.0")
        with listening(tmp_path) as younger:
            keys = [older.announcement.key, younger.announcement.key]
            assert [each.key for each in announced(tmp_path)] == keys


def test_announcements_in_a_copy_of_a_store_are_not_the_copys(tmp_path: Path) -> None:
    answers = Answers()
    with listening(tmp_path / "store", answers):
        shutil.copytree(tmp_path / "store", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
        assert list((tmp_path / "copy" / FOLDER_NAME).glob("*.json")) != []
        assert submit(tmp_path / "copy", "hook", {}, PATIENCE_SECONDS) is None
        (tmp_path / "other name").symlink_to(tmp_path / "store")
        assert submit(tmp_path / "other name", "ping", {}, PATIENCE_SECONDS) is not None
    assert [asked["verb"] for asked in answers.asked] == ["ping"]


def test_announcements_of_other_machines_are_left_alone_until_there_are_too_many(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER_NAME
    folder.mkdir(mode=0o700)
    for number in range(80):
        foreign = Announcement(1, 9, os.urandom(KEY_BYTES).hex(), float(number), "0", f"not {this_node()}", "stdio")
        path = folder / f"1-{number:02}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(foreign._asdict()), encoding="utf-8")
    with listening(tmp_path):
        kept = sorted(path.name for path in folder.glob("1-*.json"))
    assert kept == [f"1-{number:02}.json" for number in range(16, 80)]


def test_a_folder_of_announcements_that_leads_elsewhere_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "project"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "package.json").write_text("{}", encoding="utf-8")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / FOLDER_NAME).symlink_to(elsewhere)
    with pytest.raises(OSError, match="is a link"):
        Listener(tmp_path / "state", Answers())
    assert [path.name for path in elsewhere.iterdir()] == ["package.json"]
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    assert announced(tmp_path / "state") == []


@pytest.mark.parametrize("answers", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10, os.urandom(64)], ids=len)
def test_a_process_that_took_over_the_port_learns_no_key_and_is_not_believed(tmp_path: Path, answers: bytes) -> None:
    stranger = Stranger(answers)
    with closing(stranger.listener), listening(tmp_path):
        path = only_announcement(tmp_path)
        key = bytes.fromhex(json.loads(path.read_text(encoding="utf-8"))["key"])
        rewrite(path, port=stranger.port, socket_name="")
        assert submit(tmp_path, "hook", {"given": "a secret"}, SHORT_SECONDS) is None
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
    answers = Answers()
    with listening(tmp_path, answers) as listener:
        with closing(Channel(connected(listener))) as channel, pytest.raises(ChannelBroken):
            channel.prove_as_caller(os.urandom(KEY_BYTES), time.monotonic() + PATIENCE_SECONDS)
        with connected(listener) as browser:
            browser.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert heard(browser) == b""
    assert answers.asked == []


KILLED = """
import os, signal, sys
from pathlib import Path
from server.local.channel_requests import Listener
listener = Listener(Path(sys.argv[1]), lambda request: {"ok": True})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs SIGKILL")
def test_what_a_killed_server_left_is_passed_over_and_cleared_away_by_the_next(tmp_path: Path, kind: str) -> None:
    without = "" if kind == "unix" else "import socket\nif hasattr(socket, 'AF_UNIX'): del socket.AF_UNIX\n"
    subprocess.run([sys.executable, "-c", without + KILLED, str(tmp_path)], check=False, timeout=PATIENCE_SECONDS)
    left = list((tmp_path / FOLDER_NAME).iterdir())
    assert len(left) == (2 if kind == "unix" else 1)
    assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is None
    with listening(tmp_path):
        assert [path for path in left if path.exists()] == []
        assert submit(tmp_path, "ping", {}, PATIENCE_SECONDS) is not None


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (
            "server.local.channel",
            {"logging", "dataclasses", "subprocess", "typing_extensions", "memory_core.core.config"},
        ),
        ("server.commands.serving, server.local.stdio_bridge, server.local.shared_server", {"filelock"}),
        ("server.cli, server.hosts.hook, server.local.channel", {"memory_core.runebook"}),
    ],
    ids=["who asks", "the bridge", "a hook"],
)
def test_what_a_host_or_a_person_waits_for_imports_nothing_heavy(modules: str, heavy: set[str]) -> None:
    heavy |= {"mcp", "pydantic", "numpy", "anyio", "asyncio", "yaml", "sqlite3", "memory_core.core.store"}
    script = f"import sys; import {modules}; print(sorted({heavy!r} & sys.modules.keys()))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
