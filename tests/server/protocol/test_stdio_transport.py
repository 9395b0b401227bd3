"""A server of misbehaving tools over real pipes: every line is answered, every ending is clean.

How the real program ends, by signals and by its client, is in ``tests/server/test_exits.py``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolResult,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    TextContent,
)

from server.protocol.stdio_pipes import LINE_LIMIT_BYTES
from server.protocol.stdio_transport import END_SECONDS, _Owed, scrub_results, serve_attached
from tests.fork_server import starter
from tests.server.conftest import RawClient
from tests.server.protocol.test_json_frames import request as framed
from tests.waiting import PATIENCE_SECONDS, in_a_loop

PROBE_PATH = Path(__file__).with_name("probe_server.py")
PROBE = PROBE_PATH.read_text(encoding="utf-8")
Era = Literal["2025-11-25", "2026-07-28"]
ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
STUCK_LIFESPAN = """
import contextlib, sys, threading
import anyio
from mcp.server import MCPServer
from server.protocol.stdio_pipes import standard_pipes
from server.protocol.stdio_transport import serve_pipe

@contextlib.asynccontextmanager
async def lifespan(_):
    yield
    print("leaving", file=sys.stderr, flush=True)
    await anyio.to_thread.run_sync(threading.Event().wait)

sys.exit(anyio.run(serve_pipe, MCPServer("stuck", lifespan=lifespan), standard_pipes()))
"""
posix_only = pytest.mark.skipif(os.name == "nt", reason="Windows cannot send these signals, nor look at the pipe")


class Pipes:
    """A server process and the raw lines it speaks."""

    def __init__(self, source: str, *arguments: object, evidence: Path | None = None, era: Era = "2025-11-25") -> None:
        self.evidence = evidence
        self.era = era
        self.last_id = 0
        self.process = starter().script(
            source,
            *arguments,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # prints linger in the buffer, as in real life
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def write(self, line: bytes, end: bytes = b"\n") -> None:
        self.stdin.write(line + end)
        self.stdin.flush()

    def exchange(self, line: bytes) -> dict[str, Any]:
        self.write(line)
        answer: dict[str, Any] = json.loads(self.stdout.readline())
        return answer

    def call_line(self, tool: str, **arguments: object) -> bytes:
        self.last_id += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.era == "2026-07-28":
            params["_meta"] = ENVELOPE
        return json.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call", "params": params}).encode()

    def call(self, tool: str, **arguments: object) -> str:
        answer = self.exchange(self.call_line(tool, **arguments))
        assert answer["id"] == self.last_id
        text: str = answer["result"]["content"][0]["text"]
        return text

    def open(self) -> Pipes:
        if self.era == "2025-11-25":
            info = {"name": "raw", "version": "1"}
            params = {"protocolVersion": self.era, "capabilities": {"sampling": {}}, "clientInfo": info}
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            assert self.exchange(json.dumps(opening).encode())["result"]["protocolVersion"] == self.era
            self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def wait_for_error_line(self, words: bytes) -> None:
        while words not in (line := self.stderr.readline()):
            assert line, "the server ended first"

    def ending(self) -> tuple[int, str]:
        """Exit status and what the process did on its way out."""
        status = self.process.wait(PATIENCE_SECONDS)
        return status, self.evidence.read_text(encoding="utf-8") if self.evidence is not None else ""


@contextmanager
def running(pipes: Pipes) -> Iterator[Pipes]:
    with pipes.stdin, pipes.stdout, pipes.stderr:
        try:
            yield pipes
        finally:
            pipes.stdin.close()
            try:
                pipes.process.wait(PATIENCE_SECONDS)
            finally:
                pipes.process.kill()
                pipes.process.wait()


@pytest.fixture(scope="module", params=ERAS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipes]:
    with running(Pipes(PROBE, tmp_path_factory.mktemp("session") / "evidence", era=request.param)) as pipes:
        yield pipes.open()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Pipes]:
    evidence = tmp_path / "evidence"
    with running(Pipes(PROBE, evidence, evidence=evidence)) as pipes:
        yield pipes.open()


@pytest.mark.parametrize(
    ("line", "request_id", "code", "words"),
    [
        (framed('{"arguments":{"text":"a\\ud800b"}}'), 7, INVALID_PARAMS, "params.arguments.text"),
        (framed('{"\\udfff":1}'), 7, INVALID_PARAMS, "surrogate"),
        (framed(request_id='"支\\ud800"'), None, INVALID_REQUEST, "id must be"),
        (framed("[1]"), 7, INVALID_PARAMS, "params must be a JSON object"),
        (framed('"text"', '"seven"'), "seven", INVALID_PARAMS, "params must be a JSON object"),
        (framed(request_id="1.5"), None, INVALID_REQUEST, "id must be"),
        (framed(request_id="null"), None, INVALID_REQUEST, "id must be"),
        (framed(request_id="true"), None, INVALID_REQUEST, "id must be"),
        (framed('{"n":' + "9" * 5000 + "}"), 7, INVALID_PARAMS, "4300 digits"),
        (framed('{"n":' + "[" * 250 + "]" * 250 + "}"), 7, INVALID_PARAMS, "nested"),
        (framed('{"n":' + "[" * 9000 + "]" * 9000 + "}"), 7, INVALID_REQUEST, "nested"),
        (framed('{"text":"\t"}'), 7, PARSE_ERROR, "control character"),
        (framed().replace(b"2.0", b"1.0"), 7, INVALID_REQUEST, "jsonrpc"),
        (framed().replace(b'"tools/call"', b"3"), 7, INVALID_REQUEST, "method"),
        (b'{"jsonrpc":"2.0","id":7}', 7, INVALID_REQUEST, "method"),
        (framed("[]")[:-1] + b',"result":{}}', 7, INVALID_PARAMS, "params must be a JSON object"),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"ping","error":{"code":1,"message":""}}',
            7,
            INVALID_REQUEST,
            "no result",
        ),
        (b'{"jsonrpc":"2.0","id":7,"method":"\xd6\xa7\xb8\xb6"}', 7, PARSE_ERROR, "UTF-8"),
        (framed().decode().encode("utf-16"), None, PARSE_ERROR, "not JSON"),
        (b'{"jsonrpc":"2.0","id":7,', None, PARSE_ERROR, "not JSON"),
        (b"[" + framed() + b"]", None, INVALID_REQUEST, "own line"),
        (b"[]", None, INVALID_REQUEST, "own line"),
        (b"[" * 100_000, None, INVALID_REQUEST, "nested"),
        (b'"hello"', None, INVALID_REQUEST, "JSON object"),
    ],
)
def test_a_faulty_line_is_answered_with_its_id_and_the_next_request_served(
    session: Pipes, line: bytes, request_id: RequestId | None, code: int, words: str
) -> None:
    answer = session.exchange(line)
    assert (answer["id"], answer["error"]["code"], words in answer["error"]["message"]) == (request_id, code, True)
    assert session.call("echo", text="还在 here") == "还在 here"


def test_line_over_the_limit_is_refused_with_its_id_and_one_below_served(session: Pipes) -> None:
    answer = session.exchange(session.call_line("echo", text="x" * 10_000_000))
    assert (answer["id"], answer["error"]["code"]) == (session.last_id, INVALID_REQUEST)
    assert f"{LINE_LIMIT_BYTES:,}" in answer["error"]["message"]
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
    codes = [json.loads(session.stdout.readline())["error"]["code"] for _ in range(count)]
    assert codes == [PARSE_ERROR] * count


def test_nothing_but_protocol_reaches_stdout(session: Pipes) -> None:
    assert session.call("noisy") == "quiet"
    for words in (b"printed by a tool", b"written to descriptor 1", b"child heard ''"):
        session.wait_for_error_line(words)


def test_lone_surrogates_of_a_tool_leave_as_replacement_characters(fresh: Pipes) -> None:
    assert fresh.call("damaged") == "损坏 \ufffd"
    assert fresh.exchange(fresh.call_line("damaged_log"))["params"]["data"] == "log \ufffd"
    assert json.loads(fresh.stdout.readline())["result"]["content"][0]["text"] == "logged"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [('"result":{"role":"assistant","content":{"type":"text","text":"好的 ok"},"model":"m"}', "好的 ok"),
     ('"result":{"role":"assistant","content":{"type":"text","text":"\\ud800"},"model":"m"}', "\ufffd"),
     ('"result":[]', "not a valid JSON-RPC response")],
)  # fmt: skip
def test_clients_answer_reaches_the_tool_that_asked(fresh: Pipes, answer: str, outcome: str) -> None:
    question = fresh.exchange(fresh.call_line("ask_client"))
    assert question["method"] == "sampling/createMessage"
    reply = fresh.exchange(f'{{"jsonrpc":"2.0","id":{question["id"]},{answer}}}'.encode())
    assert reply["id"] == fresh.last_id
    assert outcome in json.dumps(reply, ensure_ascii=False)


@pytest.mark.parametrize(
    ("tool", "rest", "answer"),
    [("slow", b"", "result"), ("echo", b'{"jsonrpc":"2.0","id":', "error"), ("ask_client", b"", "method")],
    ids=["a tool at work", "half a line", "a tool that waits for the client"],
)
def test_end_of_input_ends_cleanly_once_what_can_be_answered_is(
    fresh: Pipes, tool: str, rest: bytes, answer: str
) -> None:
    fresh.write(fresh.call_line(tool, text="x"))
    fresh.write(rest, end=b"")
    fresh.stdin.close()
    assert any(answer in json.loads(line) for line in fresh.stdout)
    assert fresh.ending() == (0, "closed, returned")


def test_end_of_input_waits_for_tools_at_work_although_a_question_was_never_answered(fresh: Pipes) -> None:
    asked = [fresh.exchange(fresh.call_line("ask_in_vain")), *(json.loads(fresh.stdout.readline()) for _ in range(2))]
    assert [each.get("method") for each in asked] == ["sampling/createMessage", "notifications/cancelled", None]
    calls = [fresh.call_line("slow") for _ in range(60)]  # more than run at once
    fresh.write(b"\n".join(calls))
    fresh.stdin.close()
    assert [json.loads(line)["result"]["content"][0]["text"] for line in fresh.stdout] == ["finished"] * len(calls)
    assert fresh.ending() == (0, "closed, returned")


@in_a_loop
async def test_nothing_is_kept_of_a_request_that_was_answered() -> None:
    owed = _Owed()
    for number in range(100):
        owed.received(JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))
        owed.sent(JSONRPCResponse(jsonrpc="2.0", id=number, result={}))
    assert len(owed._by_us) == 0


@posix_only
def test_signal_while_a_tool_is_stuck_leaves_the_lifespan_and_exits(fresh: Pipes) -> None:
    fresh.write(fresh.call_line("stuck"))
    fresh.wait_for_error_line(b"stuck now")
    fresh.process.send_signal(signal.SIGTERM)
    assert fresh.ending() == (128 + signal.SIGTERM, "closed")


@posix_only
def test_nobody_who_could_read_the_answers_is_waited_for(fresh: Pipes) -> None:
    """A host that died with a tool still busy; with somebody there the server would wait half a minute."""
    fresh.write(fresh.call_line("stuck"))
    fresh.wait_for_error_line(b"stuck now")
    started = time.monotonic()
    fresh.stdout.close()
    fresh.stdin.close()
    assert fresh.ending() == (0, "closed")
    assert time.monotonic() - started < END_SECONDS + 10


@posix_only
@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_lifespan_that_never_ends_does_not_hold_the_process(number: signal.Signals | None) -> None:
    with running(Pipes(STUCK_LIFESPAN)) as pipes:
        pipes.open()
        if number is None:
            pipes.stdin.close()
        else:
            pipes.process.send_signal(number)
        assert pipes.stderr.readline() == b"leaving\n"
        started = time.monotonic()
        assert pipes.ending()[0] == (0 if number is None else 128 + number)
        assert time.monotonic() - started < END_SECONDS + 20
        assert pipes.stderr.read() == b""


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
    command = f"exec '{sys.executable}' '{PROBE_PATH}' '{tmp_path / 'evidence'}' <&-"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"Start the server from an MCP client" in done.stderr
    assert done.stdout == b""


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


class Silent:
    """A client that says nothing and stays."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def lines(self) -> Iterator[bytes]:
        self.closed.wait(PATIENCE_SECONDS)
        return iter(())

    def write(self, data: bytes) -> bool:  # noqa: ARG002 - the protocol has it
        return True

    def reader_left(self) -> bool:
        return False

    def close(self) -> None:
        self.closed.set()


def test_a_client_is_let_go_where_the_lifespan_fails() -> None:
    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        raise OSError("the disk is gone")
        yield

    pipe = Silent()
    with pytest.raises(OSError, match="the disk is gone"):
        anyio.run(serve_attached, MCPServer("broken", lifespan=lifespan), pipe)
    assert pipe.closed.is_set()


@pytest.mark.parametrize(
    ("line", "answered"),
    [(json.dumps({"jsonrpc": "2.0", "id": "n", "method": "tools/list"}).encode(), "n"), (b"?" * 54, None)],
    ids=["requests", "faulty lines"],
)
def test_a_client_that_does_not_read_gets_no_more_begun_and_then_all_its_answers(
    tmp_path: Path, line: bytes, answered: str | None
) -> None:
    with RawClient(tmp_path / "home", "--set", "embedding.provider=none") as client:
        assert client.process.stdin is not None
        pipe = client.process.stdin.fileno()
        os.set_blocking(pipe, False)
        sent = refused = 0
        while refused < 20 and sent < 25_000:
            try:
                os.write(pipe, line + b"\n")
                sent, refused = sent + 1, 0
            except BlockingIOError:  # the server reads no more, or has not yet
                refused += 1
                select.select([], [pipe], [], 0.05)
        os.set_blocking(pipe, True)
        assert sent < 5_000, "the pipe itself holds a thousand of them"
        assert [client.answer()["id"] for _ in range(sent)] == [answered] * sent
