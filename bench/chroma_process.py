"""A real Chroma server on loopback for tests and benchmarks: started, killed, frozen, emptied. Ends with its block."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

_START_SECONDS = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ChromaProcess:
    """``chroma run`` on a free port, with its data below ``folder``.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Begin to serve what is in the folder; returns once it answers."""
        began = time.monotonic()
        command = [
            str(Path(sys.executable).with_name("chroma")),
            *("run", "--path", str(self.data), "--host", "127.0.0.1", "--port", str(self.port)),
        ]
        with (self.folder / "chroma.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
            )
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() - began > _START_SECONDS:
                self.kill()
                raise RuntimeError((self.folder / "chroma.log").read_text(encoding="utf-8", errors="replace")[-2_000:])
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, frozen or not; what it stored stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def wipe(self) -> None:
        """Lose everything it stored; only while it is ended."""
        shutil.rmtree(self.data)

    def freeze(self) -> None:
        """Let it take connections and answer none."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with _DIRECT.open(f"{self.url}/api/v2/heartbeat", timeout=1.0):
                return True
        except OSError:
            return False


def free_port() -> int:
    """A port of loopback on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
