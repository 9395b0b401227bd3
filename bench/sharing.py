"""What several hosts cost on one machine: a server of each one's own, against one that they share.

    python -m bench.sharing [--hosts 3] [--memories 200] [--repeat 15]

Measures memory (Linux; PSS, which counts a page that processes share once) of 1 to ``--hosts`` hosts, the cold start
from spawn to the answer of ``initialize`` (with a shared server running already, which is what every host but the first
one meets), and the time of ``find``. Each host asks once before memory is read, so that the model is loaded everywhere
it will be. Nothing is left running.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.stdio_client import StdioClient, proportional_mib, resident_mib
from server.local.channel import announced
from server.local.shared_server import stop_shared


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hosts", type=int, default=3, help="default 3")
    parser.add_argument("--memories", type=int, default=200, help="default 200")
    parser.add_argument("--repeat", type=int, default=15, help="cold starts and searches of each kind; default 15")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _stopped(Path(folder)):
        home = Path(folder)
        _fill(home, asked.memories)
        memory = {name: _memory(home, asked.hosts, shared) for name, shared in (("own", False), ("shared", True))}
        starts, finds = _times(home, asked.repeat)
    report: dict[str, Any] = {
        "pss_mib": memory,
        "cold_start_ms": starts,
        "cold_start_ratio": round(starts["shared"] / starts["own"], 3),
        "find_p50_ms": finds,
        "find_p50_ratio": round(finds["shared"] / finds["own"], 3),
    }
    print(json.dumps(report, indent=2))


def _command(home: Path, *, shared: bool) -> list[str]:
    options = ["--home", str(home), "--set", "maintenance.automatic=off"]
    return [sys.executable, "-m", "server.cli", "serve", *options, *(["--shared"] if shared else [])]


@contextmanager
def _stopped(home: Path) -> Iterator[None]:
    try:
        yield
    finally:
        running = [each.pid for each in announced(home / ".state") if each.kind == "local"]
        stop_shared(home / ".state")
        for pid in running:
            while resident_mib(pid):
                time.sleep(0.05)


def _fill(home: Path, memories: int) -> None:
    with StdioClient(_command(home, shared=False)) as client:
        for number in range(memories):
            client.call(
                "commit_memory",
                {"memory_content": f"Ferry {number} leaves pier {number % 7} at nine. 第{number}号渡轮九点开船。"},
            )


def _memory(home: Path, hosts: int, shared: bool) -> list[dict[str, float]]:
    """MiB (PSS) of all processes together, with 1, 2, … hosts."""
    measured = []
    with ExitStack() as stack:
        clients: list[StdioClient] = []
        for count in range(1, hosts + 1):
            clients.append(stack.enter_context(StdioClient(_command(home, shared=shared))))
            clients[-1].call("find", {"query": "when does the ferry leave 渡轮"})
            own = [client.proportional_mib() for client in clients]
            servers = [proportional_mib(each.pid) for each in announced(home / ".state") if each.kind == "local"]
            measured.append(
                {
                    "hosts": count,
                    "all": round(sum(own) + (sum(servers) if shared else 0.0), 1),
                    "largest_host": round(max(own), 1),
                }
            )
    return measured


def _times(home: Path, repeat: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median milliseconds of a cold start and of ``find``; the kinds take turns, so that both meet the same load."""
    starts: dict[str, list[float]] = {"own": [], "shared": []}
    finds: dict[str, list[float]] = {"own": [], "shared": []}
    kinds = (("own", False), ("shared", True))
    for _ in range(repeat):
        for name, shared in kinds:
            with StdioClient(_command(home, shared=shared)) as client:
                starts[name].append(client.cold_start_seconds)
    with ExitStack() as stack:
        clients = {name: stack.enter_context(StdioClient(_command(home, shared=shared))) for name, shared in kinds}
        for number in range(repeat * 10):
            for name, client in clients.items():
                began = time.perf_counter()
                client.call("find", {"query": f"ferry number {number} 几点开"})
                finds[name].append(time.perf_counter() - began)
    return tuple(  # type: ignore[return-value]
        {name: round(statistics.median(values) * 1000, 2) for name, values in taken.items()}
        for taken in (starts, finds)
    )


if __name__ == "__main__":
    main()
