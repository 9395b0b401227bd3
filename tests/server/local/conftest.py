"""Hosts that share a server: real processes and the SDK's client; nothing that was started stays behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import Implementation

from server.local.channel import announced
from server.local.shared_server import stop_shared
from tests.server.conftest import WORDS_ONLY, Caller, Era, command, environment
from tests.waiting import soon

#: A server that nobody found any more ends soon by itself.
SHARED = ("--shared", *WORDS_ONLY, "--set", "sharing.idle_minutes=0.3")


def lives(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return os.path.isdir("/proc/self") is False  # noqa: PTH112 - without /proc it is believed to run


def ends_soon(pid: int) -> bool:
    """Whether a process ends while one waits."""
    return soon(lambda: not lives(pid))


def servers(home: Path) -> list[int]:
    """The background servers of a store that run."""
    return [server.pid for server in announced(home / ".state") if server.kind == "local" and lives(server.pid)]


def kill_server(home: Path) -> None:
    """Kill the one background server of a store, and wait until its host has begun to go on at another one."""
    (pid,) = servers(home)
    os.kill(pid, signal.SIGKILL)
    assert soon(lambda: servers(home) not in ([], [pid]))


@contextmanager
def kept_clean(home: Path) -> Iterator[Path]:
    """A home whose background servers end with the body."""
    try:
        yield home
    finally:
        running = servers(home)
        stop_shared(home / ".state")
        for pid in running:
            if not ends_soon(pid):
                os.kill(pid, signal.SIGKILL)


class Host:
    """Starts programs as a host does: in a folder of its own, under its own name."""

    def __init__(self, portal: BlockingPortal, log: Path) -> None:
        self._portal = portal
        self._log = log

    @contextmanager
    def connected(self, home: Path, cwd: Path, era: Era, *options: str, name: str = "host") -> Iterator[Caller]:
        """The SDK's client over ``serve --shared``."""
        cwd.mkdir(parents=True, exist_ok=True)
        program, *arguments = command(home, *SHARED, *options)
        parameters = StdioServerParameters(command=program, args=arguments, env=environment(), cwd=cwd)
        with ExitStack() as stack:
            errors = stack.enter_context(self._log.open("a", encoding="utf-8", newline="\n"))
            client = Client(
                stdio_client(parameters, errlog=errors), mode=era, client_info=Implementation(name=name, version="1")
            )
            yield Caller(self._portal, stack.enter_context(self._portal.wrap_async_context_manager(client)), self._log)


@pytest.fixture(scope="module")
def host(portal: BlockingPortal, tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(portal, tmp_path_factory.mktemp("hosts") / "stderr")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with kept_clean(tmp_path / "home") as home:
        yield home
