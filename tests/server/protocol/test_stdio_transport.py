"""A real server process over real pipes: every line is answered, every ending is clean."""

from __future__ import annotations

import inspect
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST, PARSE_ERROR, CallToolResult, TextContent

from server.protocol.stdio_pipes import LINE_LIMIT_BYTES
from server.protocol.stdio_transport import END_SECONDS, scrub_results

PATIENCE_SECONDS = 60  # never reached by a passing test

PROBE = Path(__file__).with_name("probe_server.py")

Era = Literal["2025-11-25", "2026-07-28"]
ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def launch(folder: Path, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(PROBE), str(folder / "evidence")],
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # prints linger in the buffer, as in real life
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        bufsize=0,
    )


class Pipes:
    """A server process and the raw lines it speaks."""

    def __init__(self, folder: Path, era: Era = "2025-11-25") -> None:
        self.evidence = folder / "evidence"
        self.era = era
        self.process = launch(folder, subprocess.PIPE, subprocess.PIPE)
        self.lines: queue.Queue[bytes] = queue.Queue()
        self.errors: queue.Queue[bytes] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._collect, args=(self.process.stdout, self.lines)),
            threading.Thread(target=self._collect, args=(self.process.stderr, self.errors)),
        ]
        for reader in self._readers:
            reader.start()
        self.last_id = 0

    @staticmethod
    def _collect(pipe: Any, lines: queue.Queue[bytes]) -> None:
        for line in pipe:
            lines.put(line)
        lines.put(b"")

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        rest = memoryview(line + b"\n")
        while rest:
            rest = rest[self.process.stdin.write(rest) or 0 :]

    def next_line(self) -> bytes:
        return self.lines.get(timeout=PATIENCE_SECONDS)

    def exchange(self, line: bytes) -> dict[str, Any]:
        self.write(line)
        answer: dict[str, Any] = json.loads(self.next_line())
        return answer

    def call_line(self, tool: str, **arguments: object) -> bytes:
        self.last_id += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.era == "2026-07-28":
            params["_meta"] = ENVELOPE
        message = {"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call", "params": params}
        return json.dumps(message).encode()

    def call(self, tool: str, **arguments: object) -> str:
        answer = self.exchange(self.call_line(tool, **arguments))
        assert answer["id"] == self.last_id
        text: str = answer["result"]["content"][0]["text"]
        return text

    def open(self) -> Pipes:
        if self.era == "2025-11-25":
            params = {
                "protocolVersion": self.era,
                "capabilities": {"sampling": {}},
                "clientInfo": {"name": "raw", "version": "1"},
            }
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            assert self.exchange(json.dumps(opening).encode())["result"]["protocolVersion"] == self.era
            self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def wait_for_error_line(self, words: bytes) -> None:
        while words not in (line := self.errors.get(timeout=PATIENCE_SECONDS)):
            assert line, "the server ended first"

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ending(self) -> tuple[int, str]:
        """Exit status and what the process did on its way out."""
        status = self.process.wait(PATIENCE_SECONDS)
        return status, self.evidence.read_text(encoding="utf-8") if self.evidence.exists() else ""

    def end(self) -> None:
        self.close_input()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            for reader in self._readers:
                reader.join()
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()


@pytest.fixture(scope="module", params=ERAS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipes]:
    pipes = Pipes(tmp_path_factory.mktemp("session"), request.param)
    try:
        yield pipes.open()
    finally:
        pipes.end()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Pipes]:
    pipes = Pipes(tmp_path)
    try:
        yield pipes
    finally:
        pipes.end()


FAULTY = [
    (b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"\\ud800"}}', "a"),
    (b'{"jsonrpc":"2.0","id":"b","method":"tools/call","params":["echo"]}', "b"),
    (b'{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"n":%s}}' % (b"9" * 5000), "c"),
    (b'{"jsonrpc":"2.0","id":"d","method":"x","params":{"n":%s}}' % (b"[" * 300 + b"]" * 300), "d"),
    (b'{"jsonrpc":"2.0","id":"e","method":"tools/call","params":{"name":"\xff"}}', "e"),
    (b'{"jsonrpc":"2.0","id":2.5,"method":"tools/list"}', None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', None),
    (b"[" * 100_000, None),
    ("不是 JSON".encode(), None),
    (b"3", None),
]


def test_faulty_lines_are_answered_and_the_next_request_served(session: Pipes) -> None:
    for line, request_id in FAULTY:
        answer = session.exchange(line)
        assert (answer["id"], answer["error"]["code"] < 0) == (request_id, True)
        assert session.call("echo", text="还在 here") == "还在 here"


def test_line_over_the_limit_is_refused_with_its_id_and_the_next_request_served(session: Pipes) -> None:
    answer = session.exchange(session.call_line("echo", text="x" * 10_000_000))
    assert (answer["id"], answer["error"]["code"]) == (session.last_id, INVALID_REQUEST)
    assert f"{LINE_LIMIT_BYTES:,}" in answer["error"]["message"]
    assert session.call("echo", text="next") == "next"


def test_long_line_under_the_limit_is_served(session: Pipes) -> None:
    text = "记" * 100_000
    assert session.call("echo", text=text) == text


def test_blank_lines_and_faulty_notifications_are_not_answered_and_a_byte_order_mark_is_accepted(
    session: Pipes,
) -> None:
    session.write(b"")
    session.write(b" \r")
    session.write(b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}')
    answer = session.exchange(b"\xef\xbb\xbf" + session.call_line("echo", text="有 BOM"))
    assert answer["result"]["content"][0]["text"] == "有 BOM"


def test_many_faulty_lines_before_any_answer_is_read_are_all_answered(session: Pipes) -> None:
    count = 2_000
    session.write(b"\n".join([b"?"] * count))
    codes = [json.loads(session.next_line())["error"]["code"] for _ in range(count)]
    assert codes == [PARSE_ERROR] * count


def test_lone_surrogate_in_a_result_leaves_as_replacement_character(session: Pipes) -> None:
    assert session.call("damaged") == "损坏 \ufffd"
    assert session.call("echo", text="alive") == "alive"


def test_nothing_but_protocol_reaches_stdout(session: Pipes) -> None:
    assert session.call("noisy") == "quiet"
    for words in (b"printed by a tool", b"written to descriptor 1", b"child heard ''"):
        session.wait_for_error_line(words)


def test_lone_surrogate_in_a_log_message_leaves_as_replacement_character(fresh: Pipes) -> None:
    notification = fresh.open().exchange(fresh.call_line("damaged_log"))
    assert notification["params"]["data"] == "log \ufffd"
    assert json.loads(fresh.next_line())["result"]["content"][0]["text"] == "logged"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [('"result":{"role":"assistant","content":{"type":"text","text":"好的 ok"},"model":"m"}', "好的 ok"),
     ('"result":{"role":"assistant","content":{"type":"text","text":"\\ud800"},"model":"m"}', "\ufffd"),
     ('"result":[]', "not a valid JSON-RPC response")],
)  # fmt: skip
def test_clients_answer_reaches_the_tool_that_asked(fresh: Pipes, answer: str, outcome: str) -> None:
    question = fresh.open().exchange(fresh.call_line("ask_client"))
    assert question["method"] == "sampling/createMessage"
    reply = fresh.exchange(f'{{"jsonrpc":"2.0","id":{question["id"]},{answer}}}'.encode())
    assert reply["id"] == fresh.last_id
    assert outcome in json.dumps(reply, ensure_ascii=False)


@pytest.mark.parametrize(
    ("tool", "half_line", "answers"),
    [
        (None, b"", []),
        ("slow", b"", ["result"]),
        (None, b'{"jsonrpc":"2.0","id":', ["error"]),
        ("ask_client", b"", ["method"]),
    ],
    ids=["nothing asked", "a tool at work", "half a line", "a tool that waits for the client"],
)
def test_end_of_input_ends_cleanly_once_what_can_be_answered_is(
    fresh: Pipes, tool: str | None, half_line: bytes, answers: list[str]
) -> None:
    fresh.open()
    if tool is not None:
        fresh.write(fresh.call_line(tool))
    assert fresh.process.stdin is not None
    fresh.process.stdin.write(half_line)
    fresh.close_input()
    lines = [json.loads(line) for line in iter(fresh.next_line, b"")]
    assert [member for member, line in zip(answers, lines, strict=False) if member in line] == answers
    assert len(lines) == len(answers) or tool == "ask_client"  # the tool may fail while somebody still reads
    assert fresh.ending() == (0, "closed, returned")


posix_signals = pytest.mark.skipif(os.name == "nt", reason="Windows has no way to send these signals")


@posix_signals
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] if os.name != "nt" else [])
def test_signal_while_idle_leaves_the_lifespan_and_returns(fresh: Pipes, number: signal.Signals) -> None:
    fresh.open().process.send_signal(number)
    assert fresh.ending() == (128 + number, "closed, returned")


@posix_signals
def test_signal_while_a_tool_is_stuck_leaves_the_lifespan_and_exits(fresh: Pipes) -> None:
    fresh.open().write(fresh.call_line("stuck"))
    fresh.wait_for_error_line(b"stuck now")
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.ending() == (128 + signal.SIGTERM, "closed")


@posix_signals
def test_client_that_stops_reading_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with launch(tmp_path, writing, subprocess.DEVNULL) as process:
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write(b"?\n" * 20_000)
        assert os.read(reading, 1) == b"{"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    os.close(reading)
    assert (tmp_path / "evidence").read_text(encoding="utf-8") == "closed, returned"


def test_client_that_closes_its_reading_end_ends_the_server(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with launch(tmp_path, writing, subprocess.DEVNULL) as process:
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write(b"?\n")
        assert process.wait(PATIENCE_SECONDS) == 0
    assert (tmp_path / "evidence").read_text(encoding="utf-8") == "closed, returned"


STUCK_LIFESPAN = """
import contextlib, sys, threading
import anyio
from mcp.server import MCPServer
from server.protocol.stdio_pipes import StandardStreams
from server.protocol.stdio_transport import serve_pipe

@contextlib.asynccontextmanager
async def lifespan(_):
    yield
    print("leaving", file=sys.stderr, flush=True)
    await anyio.to_thread.run_sync(threading.Event().wait)

streams = StandardStreams.divert()
sys.exit(anyio.run(serve_pipe, MCPServer("stuck", lifespan=lifespan), streams.pipe()))
"""
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@posix_signals
@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_lifespan_that_never_ends_does_not_hold_the_process(number: signal.Signals | None) -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK_LIFESPAN], **PIPES) as process:  # type: ignore[call-overload]
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        if number is None:
            process.stdin.close()
        else:
            process.send_signal(number)
        assert process.stderr.readline() == b"leaving\n"
        started = time.monotonic()
        assert process.wait(PATIENCE_SECONDS) == (0 if number is None else 128 + number)
        assert time.monotonic() - started < END_SECONDS + 5
        assert process.stderr.read() == b""


@posix_signals
def test_nobody_who_could_read_the_answers_is_waited_for(tmp_path: Path) -> None:
    """A host that died with a tool still busy; with somebody there the server would wait half a minute."""
    evidence = tmp_path / "evidence"
    with subprocess.Popen([sys.executable, str(PROBE), str(evidence)], **PIPES) as process:  # type: ignore[call-overload]
        params = '{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}'
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":%b}\n' % params.encode())
        process.stdin.write(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"stuck"}}\n')
        process.stdin.flush()
        assert process.stdout.readline()
        while b"stuck now" not in (line := process.stderr.readline()):
            assert line, "the server ended first"
        started = time.monotonic()
        process.stdout.close()
        process.stdin.close()
        assert process.wait(PATIENCE_SECONDS) == 0
        assert time.monotonic() - started < END_SECONDS + 10
    assert evidence.read_text(encoding="utf-8") == "closed"


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"name": "不存在"}, "Unknown prompt: 不存在"),
        ({"name": "recall", "arguments": {}}, "Missing required arguments: {'query'}"),
        ({"name": "x" * 1_000_000}, "Unknown prompt: xxx"),
    ],
)
def test_wrong_prompt_is_the_clients_fault_and_leaves_no_traceback(
    tmp_path: Path, raw_client: Callable[..., Any], params: dict[str, Any], fault: str
) -> None:
    errors = tmp_path / "stderr"
    with raw_client(tmp_path / "home", "--set", "embedding.provider=none", errors=errors) as client:
        error = client.request("prompts/get", **params)["error"]
    assert error["code"] == -32602
    assert error["message"].startswith(fault)
    assert error["message"].endswith("prompts/list names the prompts and their arguments.")
    assert len(error["message"]) < 500
    assert errors.read_text(encoding="utf-8") == ""


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell to close a descriptor")
def test_closed_stdin_is_reported_with_what_to_do(tmp_path: Path) -> None:
    command = f"exec '{sys.executable}' '{PROBE}' '{tmp_path / 'evidence'}' <&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"Start the server from an MCP client" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_sdk_client_of_either_era_is_served(tmp_path: Path, mode: Literal["legacy", "auto"], version: str) -> None:
    evidence = tmp_path / "evidence"
    command = StdioServerParameters(command=sys.executable, args=[str(PROBE), str(evidence)], env=dict(os.environ))

    async def converse() -> tuple[str, str]:
        with (tmp_path / "stderr").open("w", encoding="utf-8", newline="\n") as errors:
            async with Client(stdio_client(command, errlog=errors), mode=mode) as client:
                block = (await client.call_tool("echo", {"text": "记住我"})).content[0]
                assert isinstance(block, TextContent)
                return client.protocol_version, block.text

    assert anyio.run(converse) == (version, "记住我")
    assert evidence.read_text(encoding="utf-8") == "closed, returned"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_middleware_alone_makes_results_and_errors_encodable(mode: Literal["legacy", "auto"]) -> None:
    server = MCPServer("probe", version="1", middleware=[scrub_results])

    @server.tool()
    def damaged(fail: bool) -> CallToolResult:
        if fail:
            raise MCPError(INVALID_REQUEST, "失败 \ud800", {"键": "\udfff"})
        return CallToolResult(content=[TextContent(type="text", text="损坏 \ud800")])

    async def converse() -> tuple[Any, MCPError]:
        async with Client(server, mode=mode) as client:
            result = await client.call_tool("damaged", {"fail": False})
            with pytest.raises(MCPError) as failure:
                await client.call_tool("damaged", {"fail": True})
            return result.content[0], failure.value

    block, error = anyio.run(converse)
    assert block.text == "损坏 \ufffd"
    assert (error.error.message, error.error.data) == ("失败 \ufffd", {"键": "\ufffd"})


def test_sdk_still_has_the_private_and_inner_names_that_the_wire_uses() -> None:
    server = MCPServer("pin", version="1")
    inner = server._lowlevel_server
    assert isinstance(inner, Server)
    assert callable(inner.lifespan)
    assert inner.create_initialization_options().server_name == "pin"
    assert list(inspect.signature(serve_dual_era_loop).parameters)[:3] == [
        "server",
        "read_stream",
        "write_stream",
    ]
    assert {"lifespan_state", "init_options"} <= set(inspect.signature(serve_dual_era_loop).parameters)
