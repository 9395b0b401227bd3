"""Endings of the real program: signals, closed and full pipes, a dead parent; at rest and at work.

Each ends within the time hosts give, without a traceback, with the documented status, with every acknowledged commit in
the store, no lock held and no process left behind. At rest and while its model loads the program is started as a host
does, for one of the signals; else it is forked (``tests.fork_server``).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.store.locks import store_lock
from server.protocol.stdio_transport import END_SECONDS
from tests.fork_server import Starter, starter
from tests.server.conftest import RawClient, environment
from tests.waiting import PATIENCE_SECONDS, lives, soon

if os.name == "nt":
    pytest.skip("Windows has neither these signals nor /proc", allow_module_level=True)

#: ``END_SECONDS`` is what the server allows itself; the rest is for a loaded machine to take a process down.
LIMIT_SECONDS = END_SECONDS + 20
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Program(RawClient):
    """``runebook serve`` in a process group of its own."""

    def __init__(self, home: Path, *options: str, starter: Starter) -> None:
        self.home = home
        self.errors = home.with_name(f"{home.name}.stderr")
        with self.errors.open("ab") as log:
            self.process = starter.program(
                *("serve", "--home", str(home), *options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(),
                start_new_session=True,
            )
        self._last_id = 0

    def ask_tool(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), self.errors.read_text(encoding="utf-8")
        message: dict[str, Any] = json.loads(line)
        return message

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self.ask_tool(tool, **arguments)
        facts: dict[str, Any] = self.answer()["result"]["structuredContent"]
        return facts

    def commit(self, content: str) -> str:
        """Store ``content``; the URI that was acknowledged."""
        receipt = self.call("commit_memory", memory_content=content, fields={"title": content[:40]})
        assert receipt["status"] == "committed", receipt
        uri: str = receipt["results"][0]["uri"]
        return uri

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close_output(self) -> None:
        assert self.process.stdout is not None
        self.process.stdout.close()

    def family(self) -> set[int]:
        """Living processes of its group: the server, and whatever it started."""
        found = set()
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, group = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(group) == self.process.pid and state != "Z":
                found.add(int(stat.parent.name))
        return found

    def ended(self) -> int:
        """The exit status, once it and all it started are gone in time and without noise."""
        started = time.monotonic()
        status = self.process.wait(PATIENCE_SECONDS)
        assert time.monotonic() - started < LIMIT_SECONDS
        assert soon(lambda: not self.family()), "a process stayed behind"
        said = self.errors.read_text(encoding="utf-8")
        assert "Traceback" not in said, said
        return status

    def end(self, number: signal.Signals | None) -> None:
        """Send a signal, or without a number end its input; it ends with the status of that."""
        if number is None:
            self.close_input()
        else:
            self.process.send_signal(number)
        expected = {None: 0, signal.SIGKILL: -signal.SIGKILL}
        assert self.ended() == expected.get(number, 128 + (number or 0))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs on one store, forked unless ``anew``; all end with the test."""
    running: list[Program] = []

    def begin(*options: str, anew: bool = False) -> Program:
        options = ("--set", "project.detect=false", *options)
        if not any("embedding.provider" in option for option in options):
            options = ("--set", "embedding.provider=none", *options)
        way = Starter() if anew else starter()
        program = Program(tmp_path / "home", *options, starter=way)
        running.append(program)
        return program

    yield begin
    for program in running:
        program.kill()


def assert_kept(start: Callable[..., Program], kept: dict[str, str]) -> None:
    """Another server opens the store at once and finds every acknowledged commit, whole."""
    later = start().open()
    for uri, content in kept.items():
        assert later.call("read", uri=uri)["content"].startswith(content)
    assert later.commit("One more 再来一条")
    later.end(None)
    with closing(sqlite3.connect(later.home / ".state" / "ledger.sqlite3")) as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# At rest


@pytest.mark.parametrize("number", [*SIGNALS, None])
def test_signal_at_rest_and_the_end_of_input_end_with_their_own_status(
    start: Callable[..., Program], number: signal.Signals | None
) -> None:
    program = start(anew=number in (signal.SIGTERM, None)).open()
    kept = {program.commit("Tea, not coffee 喝茶"): "Tea, not coffee 喝茶"}
    program.end(number)
    assert_kept(start, kept)


def test_signals_that_were_ignored_at_the_start_stay_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    command = f"trap '' HUP; exec '{sys.executable}' -m server.cli serve --home '{tmp_path / 'home'}'"
    request = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n'
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(["/bin/sh", "-c", command], **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(request % 1)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGHUP)
        process.stdin.write(request % 2)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 2
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr.read() == b""


def is_pending(pid: int, sent: signal.Signals) -> bool:
    """Whether a signal to a process waits to be handled; False where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text(encoding="ascii", errors="replace").splitlines() if status.exists() else []
    waiting = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
    return any(mask >> (sent - 1) & 1 for mask in waiting)


def test_second_signal_ends_at_once_with_its_status(start: Callable[..., Program]) -> None:
    program = start(anew=True).open()
    with store_lock(program.home / ".state").held():  # so that the first signal has something to wait for
        program.ask_tool("commit_memory", memory_content="waits")
        program.ask("ping")
        assert program.answer()["result"] == {}
        program.process.send_signal(signal.SIGINT)
        assert soon(lambda: not is_pending(program.process.pid, signal.SIGINT))  # else the system may turn them round
        program.process.send_signal(signal.SIGTERM)
        assert program.ended() == 128 + signal.SIGTERM


def test_client_that_closed_its_reading_end_ends_the_server(start: Callable[..., Program]) -> None:
    program = start().open()
    program.close_output()
    program.ask_tool("tree")
    assert program.ended() == 0


def test_server_ends_when_the_host_was_killed(tmp_path: Path) -> None:
    """The host's death closes both pipes; nobody sends a signal."""
    home = tmp_path / "home"
    host = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'server.cli', 'serve', '--home', sys.argv[1]],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        'child.stdin.write(b\'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n\'); child.stdin.flush()\n'
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", host, str(home)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    assert soon(lambda: not lives(server)), "the server outlived its host"


# A client that never reads


def fill_pipe(program: Program, requests: int) -> None:
    """Ask for far more than a pipe holds, and read none of it; return when the server is stuck writing."""
    content = "0123456789 长文本 " * 1500
    uri = program.commit(content)
    for _ in range(requests):
        program.ask_tool("read", uri=uri)
    assert soon(lambda: writing_blocked(program.process.pid)), "the pipe did not fill"


def writing_blocked(pid: int) -> bool:
    """Whether a thread of the process waits for room in a pipe."""
    for channel in Path(f"/proc/{pid}/task").glob("*/syscall"):
        try:
            if channel.read_text(encoding="utf-8").startswith("1 "):  # write(2) on x86-64
                return True
        except OSError:
            continue
    return False


needs_syscall = pytest.mark.skipif(
    os.uname().machine != "x86_64" or not os.access("/proc/self/syscall", os.R_OK), reason="needs /proc/PID/syscall"
)


@needs_syscall
@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_client_that_never_reads_does_not_hold_the_server(
    start: Callable[..., Program], number: signal.Signals | None
) -> None:
    program = start().open()
    kept = {program.commit("Kept 留着"): "Kept 留着"}
    fill_pipe(program, 30)
    program.end(number)
    assert_kept(start, kept)


# At work


def test_signals_while_clients_commit_lose_nothing_that_was_acknowledged(start: Callable[..., Program]) -> None:
    kept: dict[str, str] = {}
    for number in SIGNALS:
        program = start().open()
        asked: dict[int, str] = {}
        for index in range(12):
            content = f"{number.name} fact {index} 事实"
            identifier = program.ask_tool("commit_memory", memory_content=content, fields={"title": content})
            asked[identifier] = content
        answers = [program.answer() for _ in range(3)]
        program.process.send_signal(number)
        assert program.process.stdout is not None
        answers += [json.loads(line) for line in program.process.stdout if line.endswith(b"\n")]
        assert program.ended() == 128 + number
        for answer in answers:
            for result in answer.get("result", {}).get("structuredContent", {}).get("results", []):
                kept[result["uri"]] = asked[answer["id"]]
    assert len(kept) >= 9
    assert_kept(start, kept)


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_ending_while_the_clients_model_is_asked_keeps_the_conversation(
    start: Callable[..., Program], number: signal.Signals | None
) -> None:
    sampling = ("--set", "llm.provider=sampling")
    program = start(*sampling).open(sampling={})
    messages = [{"role": "user", "content": "My sister Lin lives in Chengdu. 我妹妹住在成都。", "id": "m1"}]
    program.ask_tool("commit_memory", messages=messages, session_id="s1")
    assert program.answer()["method"] == "sampling/createMessage"
    program.end(number)
    later = start().open()
    found = later.call("find", query="成都")
    assert any("成都" in hit["abstract"] for hit in found["resources"])


@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_ending_while_the_model_loads_is_quiet(start: Callable[..., Program], number: signal.Signals | None) -> None:
    program = start("--set", "embedding.provider=bundled", anew=True).open()
    kept = {program.commit("Loaded in the background 后台加载"): "Loaded in the background 后台加载"}
    program.end(number)
    assert_kept(start, kept)


SERVED = ("--set", "embedding.provider=bundled", "--set", "index.mode=chroma")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, None])
def test_ending_while_vectors_are_sent_to_a_server_of_its_own_leaves_no_orphan(
    start: Callable[..., Program], number: signal.Signals | None
) -> None:
    program = start(*SERVED, anew=True).open()
    contents = [f"Served fact {index} 送出的事实 {index}" for index in range(600)]  # it takes 500 rows to begin
    writes = [{"memory_data": {"memory_type": "facts", "fields": {"fact": text, "content": text}}} for text in contents]
    receipt = program.call("commit_memory", operations={"write_operations": writes})
    assert receipt["status"] == "committed"
    kept = {result["uri"]: text for result, text in zip(receipt["results"][::50], contents[::50], strict=False)}
    assert soon(lambda: len(program.family()) > 1), "no server was started"
    program.end(number)
    assert_kept(start, kept)


def test_ending_while_vectors_are_computed_keeps_what_was_stored(start: Callable[..., Program]) -> None:
    program = start("--set", "embedding.provider=bundled").open()
    text = " ".join(f"word{number} 词语{number}" for number in range(300))
    writes = [
        {"memory_data": {"memory_type": "notes", "fields": {"title": f"Note {index}", "content": f"{index} {text}"}}}
        for index in range(60)
    ]
    receipt = program.call("commit_memory", operations={"write_operations": writes})
    assert receipt["status"] == "committed"
    program.end(signal.SIGTERM)
    assert_kept(start, {result["uri"]: f"{index} word0" for index, result in enumerate(receipt["results"])})
