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


class StdioClient:
    """A child process that speaks MCP; ``cold_start_seconds`` is from spawn to the initialize result.

    ``started`` is the moment of the spawn on ``time.perf_counter``. ``environment`` is added to this process's own;
    ``folder`` is where it runs, None: where this one does.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
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
        self._process.wait(30)
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
        """Resident memory of the child, in MiB (Linux)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def proportional_mib(self) -> float:
        """Memory of the child in MiB, of shared pages its share (PSS, Linux)."""
        rollup = Path(f"/proc/{self._process.pid}/smaps_rollup").read_text(encoding="utf-8")
        line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
        return int(line.split()[1]) / 1024

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message, ensure_ascii=False).encode("utf-8") + b"\n")
        self._process.stdin.flush()
