"""Hosts that share a server: real processes and the SDK's client; nothing that was started stays behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import Implementation

from server.local.channel import announced
from server.local.shared_server import stop_shared
from tests.server.conftest import Connect, Era
from tests.waiting import lives, soon

#: A server that nobody found any more ends soon by itself.
SHARED = ("--shared", "--set", "sharing.idle_minutes=0.3")


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


@pytest.fixture(scope="module")
def host(connect: Connect) -> Connect:
    """``with host(home, era, cwd=…, name=…) as caller``: a client of ``serve --shared``, as hosts start it."""

    def connected(home: Path, era: Era = "auto", *options: str, cwd: Path | None = None, name: str = "host") -> Any:
        who = Implementation(name=name, version="1")
        return connect(home, era, *SHARED, *options, cwd=cwd or home.parent, client_info=who)

    return connected


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with kept_clean(tmp_path / "home") as home:
        yield home
