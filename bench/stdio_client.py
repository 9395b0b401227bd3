"""A raw JSON-RPC client over a child's pipes: measures the server, not an SDK."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

#: What a client sends first.
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}
_END_SECONDS = 30.0


def environment() -> dict[str, str]:
    """This process's environment without settings of Runebook's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}


def resident_mib(process: int) -> float:
    """Resident memory in MiB (Linux); 0 where the process has ended."""
    return _mib(process, "status", "VmRSS:")


def proportional_mib(process: int) -> float:
    """Memory in MiB, of shared pages the process's share (PSS, Linux); 0 where the process has ended."""
    return _mib(process, "smaps_rollup", "Pss:")


def _mib(process: int, file: str, field: str) -> float:
    try:
        lines = Path(f"/proc/{process}/{file}").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


class StdioClient:
    """A child process that speaks MCP; ``cold_start_seconds`` is from spawn to the initialize result.

    ``started`` is the moment of the spawn on ``time.perf_counter``. ``added`` joins this process's environment without
    Runebook's settings; ``folder`` is where the child runs, None: where this process does.
    """

    def __init__(
        self, command: Sequence[str], added: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment(), **(added or {})},
            cwd=folder,
        )
        self._next_id = 0
        self.request("initialize", INITIALIZE)
        self.cold_start_seconds = time.perf_counter() - self.started
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its result; an error ends the program."""
        answer = self.ask(method, params)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer, a result or an error."""
        self._next_id += 1
        self._send({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit(f"the server ended during {method}")
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._next_id:
                return answer

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool; its structured content."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise SystemExit(f"{tool}: {result['content'][0]['text']}")
        facts: dict[str, Any] = result.get("structuredContent", {})
        return facts

    def resident_mib(self) -> float:
        """Resident memory of the child, see the function."""
        return resident_mib(self._process.pid)

    def proportional_mib(self) -> float:
        """Memory of the child, of shared pages its share, see the function."""
        return proportional_mib(self._process.pid)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message, ensure_ascii=False).encode("utf-8") + b"\n")
        self._process.stdin.flush()
