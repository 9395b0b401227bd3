"""What the end of a serving does not wait for, and wrong prompts, over real pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.terminal import END_SECONDS

PATIENCE_SECONDS = 60  # never reached by a passing test
PROBE = Path(__file__).with_name("probe_server.py")
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
STUCK_LIFESPAN = """
import contextlib, sys, threading
import anyio
from mcp.server import MCPServer
from server.protocol.stdio_transport import serve_stdio

@contextlib.asynccontextmanager
async def lifespan(_):
    yield
    print("leaving", file=sys.stderr, flush=True)
    await anyio.to_thread.run_sync(threading.Event().wait)

sys.exit(anyio.run(serve_stdio, MCPServer("stuck", lifespan=lifespan)))
"""
posix_only = pytest.mark.skipif(os.name == "nt", reason="Windows cannot send these signals, nor look at the pipe")


@posix_only
@pytest.mark.parametrize("number", [signal.SIGTERM, None])
def test_lifespan_that_never_ends_does_not_hold_the_process(number: signal.Signals | None) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", STUCK_LIFESPAN], **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(PING)
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


@posix_only
def test_nobody_who_could_read_the_answers_is_waited_for(tmp_path: Path) -> None:
    """A host that died with a tool still busy; with somebody there the server would wait half a minute."""
    evidence = tmp_path / "evidence"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(PROBE), str(evidence)], **pipes) as process:  # type: ignore[call-overload]
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
