"""Servers as clients meet them: processes, pipes and sockets, the SDK's own client and a raw one.

The processes are forked (``tests.fork_server``); ``test_exits`` and others start the program as hosts do.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, TextContent, TextResourceContents

from server.cli import main
from tests.fork_server import starter
from tests.server.command_line import Outcome, Run
from tests.waiting import PATIENCE_SECONDS as PATIENCE_SECONDS

WORDS_ONLY = ("--set", "embedding.provider=none")

Era = Literal["legacy", "auto"]
ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
HTTP_ROUTES = [("mcp", "legacy"), ("mcp", "auto"), ("sse", "legacy"), ("sse", "auto")]


class Caller:
    """A connected SDK client, used from ordinary code and from many threads."""

    def __init__(self, portal: BlockingPortal, client: Client, errors: Path | None = None) -> None:
        self.portal = portal
        self.client = client
        self.errors = errors

    def call(self, tool: str, /, **arguments: Any) -> CallToolResult:
        answer = self.portal.call(self.client.call_tool, tool, arguments, PATIENCE_SECONDS)
        assert isinstance(answer, CallToolResult)
        return answer

    def text(self, tool: str, **arguments: Any) -> str:
        return text_of(self.call(tool, **arguments))

    def facts(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = self.call(tool, **arguments)
        assert not answer.is_error, text_of(answer)
        facts: dict[str, Any] | None = answer.structured_content
        assert facts is not None
        return facts

    def resource(self, uri: str) -> TextResourceContents:
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        assert isinstance(content, TextResourceContents)
        return content

    def stderr(self) -> str:
        """What the server has written to stderr so far."""
        return self.errors.read_text(encoding="utf-8") if self.errors is not None else ""


def text_of(answer: CallToolResult) -> str:
    (block,) = answer.content
    assert isinstance(block, TextContent)
    return block.text


def serving(home: Path, *options: str) -> list[str]:
    """Without a model unless ``options`` name one, and without maintenance in the middle of a test."""
    return ["serve", "--home", str(home), "--set", "maintenance.automatic=off", *WORDS_ONLY, *options]


def command(home: Path, *options: str) -> list[str]:
    """For a client that starts the server itself."""
    return starter().command(*serving(home, *options))


def environment() -> dict[str, str]:
    """This process's environment without settings of Runebook's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}


class RawClient:
    """Newline-delimited JSON-RPC over a server's pipes, without any SDK."""

    def __init__(self, home: Path, *options: str, errors: Path | None = None) -> None:
        with ExitStack() as stack:
            target: Any = subprocess.DEVNULL
            if errors is not None:
                target = stack.enter_context(errors.open("ab"))
            self.process = starter().program(
                *serving(home, *options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=target,
                env=environment(),
            )
        self._last_id = 0

    def __enter__(self) -> Self:
        return self.open()

    def open(self, **capabilities: Any) -> Self:
        """Say who one is."""
        about = {"capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}}
        self.request("initialize", protocolVersion="2025-11-25", **about)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self.process.stdout:
            try:
                self.process.stdin.close()
                self.process.wait(PATIENCE_SECONDS)
            except BrokenPipeError:
                pass
            finally:
                self.process.kill()
                self.process.wait()

    def write(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next line.

        Raises:
            EOFError: If the server has ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._last_id += 1
        self.write({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return self._last_id

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        asked = self.ask(method, **params)
        answer = self.answer()
        assert answer["id"] == asked
        return answer

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.request("tools/call", name=tool, arguments=arguments)["result"]
        return result

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_until_served(port: int, process: Any, errors: Path) -> None:
    """Until the process accepts connections at the port; it writes to ``errors`` why it does not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            why = errors.read_text(encoding="utf-8")
            assert process.poll() is None, why
            assert time.monotonic() < deadline, why
            time.sleep(0.02)


class HttpServer:
    """A ``runebook serve --transport http`` process; both transports at ``origin``."""

    def __init__(self, home: Path, errors: Path, *options: str) -> None:
        self.errors = errors
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        with errors.open("wb") as target:
            self.process = starter().program(
                *serving(home, "--transport", "http", "--port", str(self.port), *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=target,
                env=environment(),
            )
        wait_until_served(self.port, self.process, errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()


StartHttp = Callable[..., HttpServer]
Connect = Callable[..., AbstractContextManager[Caller]]


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@asynccontextmanager
async def streamable(address: str, headers: dict[str, str]) -> Any:
    async with (
        create_mcp_http_client(headers=headers) as http_client,
        streamable_http_client(address, http_client=http_client) as streams,
    ):
        yield streams


@pytest.fixture(scope="session")
def connect(portal: BlockingPortal) -> Connect:
    """``with connect(target, era) as caller``: target is a home, an ``/mcp`` URL or an ``/sse`` URL."""

    @contextmanager
    def connected(
        target: Path | str,
        era: Era = "auto",
        *options: str,
        cwd: Path | None = None,
        errors: Path | None = None,
        token: str | None = None,
        **offered: Any,
    ) -> Iterator[Caller]:
        """``options`` and ``cwd`` are the server's, ``token`` and ``offered`` the client's."""
        with ExitStack() as stack:
            if isinstance(target, Path):
                program, *arguments = command(target, *options)
                parameters = StdioServerParameters(command=program, args=arguments, env=environment(), cwd=cwd)
                errors = errors or target.with_name(f"{target.name}.stderr")
                errors.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(errors.open("a", encoding="utf-8", newline="\n"))
                server: Any = stdio_client(parameters, errlog=log)
            else:
                headers = {"authorization": f"Bearer {token}"} if token else {}
                server = (sse_client if target.endswith("/sse") else streamable)(target, headers)
            client = stack.enter_context(portal.wrap_async_context_manager(Client(server, mode=era, **offered)))
            yield Caller(portal, client, errors)

    return connected


@pytest.fixture(scope="session")
def raw_client() -> type[RawClient]:
    return RawClient


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("http")
    with HttpServer(folder / "home", folder / "stderr") as server:
        yield server


@pytest.fixture
def start_http(tmp_path: Path) -> Iterator[StartHttp]:
    """Starts servers that end with the test; with these options, over the store in ``tmp_path / "home"``."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(HttpServer(tmp_path / "home", tmp_path / "stderr", *options))


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an account in which nothing is set up, on Linux."""
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "RUNEBOOK_HOME", "RUNEBOOK_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "家"))
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "家").mkdir()
    return tmp_path / "家"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folder of every command that runs in this process, without a model."""
    for name in [name for name in os.environ if name.startswith("RUNEBOOK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RUNEBOOK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNEBOOK_EMBEDDING_PROVIDER", "none")
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs a command in this process, over the store in ``home``."""
    assert home

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            status = main(arguments)
        except SystemExit as ending:
            status = int(str(ending.code))
        out, err = capsys.readouterr()
        return status, out, err

    yield run
    gc.enable()  # a command switches it off
