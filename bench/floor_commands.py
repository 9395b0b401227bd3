"""How long a command line takes, from the start of its process to its end, with a running server and without."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from bench.stdio_client import StdioClient, environment
from bench.stores import serve
from bench.timing import settle

_COMMANDS = {
    "find": ["who fixed the login page"],
    "read": ["viking://user/default/memories/.overview.md"],
    "ls": ["viking://user/default/memories"],
}


def command_seconds(home: Path, runs: int, *, server: bool) -> dict[str, float]:
    """Median seconds by command."""
    times: dict[str, list[float]] = {name: [] for name in (*_COMMANDS, "commit")}
    with StdioClient(serve(home)) if server else nullcontext() as client:
        if client is not None:
            client.call("find", {"query": "is the model loaded"})
            settle(client)
        for run in range(runs):
            said = (
                f"The staging cluster {time.time_ns()} {run} lives in Frankfurt."  # a text that is known stores nothing
            )
            for name, words in {**_COMMANDS, "commit": [said]}.items():
                started = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "server.cli", name, *words, "--home", str(home)],
                    stdout=subprocess.DEVNULL,
                    env=environment(),
                    check=True,
                )
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(seconds) for name, seconds in times.items()}
