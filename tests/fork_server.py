"""Processes of the program without the seconds that its imports take: forked from one that has imported it.

What a test gets is a process of its own, with its own pipes, environment and exit status, that can be killed like any
other; only Python's start and the imports are not repeated. Tests whose subject is the start itself, the imports or
how the program ends start it as hosts do. Where this is not Linux, every process is started as usual.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tests.forking import PROGRAM, ask
from tests.waiting import PATIENCE_SECONDS

#: What a server and a command have imported by the time they answer.
MODULES = (
    *("server.cli", "server.commands.serving", "server.protocol.app", "server.protocol.stdio_transport"),
    *("server.http.http_server", "memory_core.runebook", "numpy", "openai", "rich.logging", "anyio._backends._asyncio"),
)
_FORKING = Path(__file__).with_name("forking.py")


class Starter:
    """Starts Python anew for each process."""

    def command(self, *arguments: str) -> list[str]:
        """``runebook *arguments``, for a client that starts it itself."""
        return [sys.executable, "-m", "server.cli", *arguments]

    def script_command(self, source: str, *arguments: str) -> list[str]:
        """``python -c source *arguments``, for a client that starts it itself."""
        return [sys.executable, "-c", source, *arguments]

    def program(self, *arguments: str, **options: Any) -> Process:
        """``runebook *arguments``; the options are those of ``Popen``."""
        return subprocess.Popen([sys.executable, "-m", "server.cli", *arguments], **options)

    def script(self, source: str, *arguments: object, **options: Any) -> Process:
        """``python -c source *arguments``; the options are those of ``Popen``."""
        return subprocess.Popen([sys.executable, "-c", source, *map(str, arguments)], **options)

    def call(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """``runebook *arguments`` to its end; ``given`` is its standard input, the options are those of ``Popen``."""
        return _to_the_end(self.program, *arguments, **options)

    def run(self, source: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """``python -c source *arguments`` to its end."""
        return _to_the_end(self.script, source, *arguments, **options)

    def close(self) -> None:
        """Release what was made for starting."""


def _to_the_end(start: Any, *arguments: Any, given: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        sent.write(given)
        sent.seek(0)
        process = start(*arguments, stdin=sent, stdout=out, stderr=errors, **options)
        status = process.wait(PATIENCE_SECONDS)
        for stream in (out, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), errors.read())


class ForkServer(Starter):
    """Has processes forked by one that has imported the program."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="runebook-fork-")
        self._path = str(Path(self._folder) / "socket")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(_FORKING), self._path, *MODULES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def command(self, *arguments: str) -> list[str]:
        """``runebook *arguments``, for a client that starts it itself."""
        return [sys.executable, "-I", "-S", str(_FORKING), self._path, "--", *arguments]

    def script_command(self, source: str, *arguments: str) -> list[str]:
        """``python -c source *arguments``, for a client that starts it itself."""
        return [sys.executable, "-I", "-S", str(_FORKING), self._path, "-c", source, *arguments]

    def program(self, *arguments: str, **options: Any) -> Process:
        """``runebook *arguments``; the options are those of ``Popen``."""
        return Forked(self._path, {"source": PROGRAM, "argv": ["runebook", *arguments]}, **options)

    def script(self, source: str, *arguments: object, **options: Any) -> Process:
        """``python -c source *arguments``; the options are those of ``Popen``."""
        return Forked(self._path, {"source": source, "argv": ["-c", *map(str, arguments)]}, **options)

    def close(self) -> None:
        """End the one that forks; what it forked ends by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


_starters: list[Starter] = []


def starter() -> Starter:
    """The one of this process, made when it is first needed."""
    if not _starters:
        _starters.append(ForkServer() if sys.platform.startswith("linux") else Starter())
        atexit.register(_starters[0].close)
    return _starters[0]


class Forked:
    """A forked process, with what tests use of ``Popen``; its standard streams lead nowhere unless given."""

    def __init__(
        self,
        path: str,
        task: Mapping[str, Any],
        *,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.DEVNULL,
        stderr: int | IO[Any] = subprocess.DEVNULL,
        start_new_session: bool = False,
        **surroundings: Any,
    ) -> None:
        lent: list[int] = []
        self.stdin = _stream(stdin, lent, ours="wb")
        self.stdout = _stream(stdout, lent, ours="rb")
        self.stderr = _stream(stderr, lent, ours="rb")
        self._line = ask(path, {**task, **_plain(surroundings), "session": start_new_session}, lent)
        for descriptor in lent:
            os.close(descriptor)
        self.pid = int(self._line.recv(64))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, once it has ended."""
        if self.returncode is None and self._has_ended(0.0):
            self._take_status()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; TimeoutExpired if it does not end in time."""
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            self._take_status()
        assert self.returncode is not None
        return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        waiting = select.poll()
        waiting.register(self._line, select.POLLIN)
        return bool(waiting.poll(None if timeout is None else timeout * 1000))

    def _take_status(self) -> None:
        self.returncode = int(self._line.recv(64))
        self._line.close()

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Forked


def _plain(surroundings: Mapping[str, Any]) -> dict[str, Any]:
    """``env`` and ``cwd`` as JSON takes them; what is not given is this process's own."""
    return {
        name: dict(value) if name == "env" else str(value) for name, value in surroundings.items() if value is not None
    }


def _stream(wanted: int | IO[Any], lent: list[int], *, ours: str) -> Any:
    """Our end of a pipe, or None; the other end, or a copy of what was given, is lent."""
    if wanted == subprocess.PIPE:
        reading, writing = os.pipe()
        lent.append(reading if ours == "wb" else writing)
        return os.fdopen(writing if ours == "wb" else reading, ours)
    if wanted == subprocess.STDOUT:
        lent.append(os.dup(lent[1]))
    elif wanted == subprocess.DEVNULL:
        lent.append(os.open(os.devnull, os.O_RDWR))
    else:
        lent.append(os.dup(wanted if isinstance(wanted, int) else wanted.fileno()))
    return None
