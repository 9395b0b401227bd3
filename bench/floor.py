"""What Runebook adds to the floor: a bare two-tool server of the same SDK, measured in the same run.

Cold start (spawn to initialize result), an explicit commit and a find over stdio with 1,000 memories, resident memory
with the model loaded and with Chroma open, and commands and a prompt's hook in processes of their own, without and with
a running server. Medians; the two servers alternate. ``python -m bench.hooks`` measures the other hooks.

    python -m bench.floor
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from bench.stdio_client import StdioClient
from bench.stores import serve
from bench.synthetic import told
from bench.timing import latency, settle

_BARE = """
from mcp.server import MCPServer
server = MCPServer("bare", version="1")
@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
@server.tool()
def echo(text: str) -> str:
    "Return the text."
    return text
server.run()
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=15, help="cold starts of each server")
    parser.add_argument("--memories", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runebook-floor-") as folder:
        root = Path(folder)
        bare_command, ours = bare_server(root), serve(root / "home")
        cold_starts(bare_command, ours, arguments.starts)
        with StdioClient(bare_command) as client:
            call = latency(lambda _index: client.call("add", {"a": 1, "b": 2}), 200)
            print(f"bare trivial call          p50 {call[0]:6.2f} ms   p95 {call[1]:6.2f} ms")
        working(ours, arguments.memories)
        commands(root / "home", arguments.starts)
        with StdioClient([*ours, "--set", "index.mode=chroma"]) as client:
            client.call("find", {"query": "who fixed the login page"})
            settle(client)
            for index in range(20):
                client.call("find", {"query": sentence(index)})
            print(f"resident, Chroma open      {client.resident_mib():6.0f} MiB (goal 400)")


def bare_server(folder: Path) -> list[str]:
    """The command of a two-tool server of the same SDK, whose script is put into a folder."""
    script = folder / "bare.py"
    script.write_text(_BARE, encoding="utf-8")
    return [sys.executable, str(script)]


def cold_starts(bare: list[str], ours: list[str], count: int) -> None:
    """Alternate the two servers; print medians and their ratio."""
    times: dict[str, list[float]] = {"bare": [], "runebook": []}
    for _ in range(count):
        for name, command in (("bare", bare), ("runebook", ours)):
            with StdioClient(command) as client:
                times[name].append(client.cold_start_seconds)
    bare_median, our_median = (statistics.median(times[name]) for name in ("bare", "runebook"))
    ratios = sorted(ours / bare for bare, ours in zip(times["bare"], times["runebook"], strict=True))
    print(f"cold start, bare           p50 {bare_median * 1e3:6.0f} ms")
    print(f"cold start, runebook       p50 {our_median * 1e3:6.0f} ms")
    paired = statistics.median(ratios)
    print(f"ratio of medians           {our_median / bare_median:6.2f}× (goal 1.1), paired {paired:.2f}×")


def working(command: list[str], memories: int) -> None:
    """Fill a store, then time commits and finds; print what is reached."""
    with StdioClient(command) as client:
        client.call("find", {"query": "is the model loaded"})
        for index in range(memories):
            client.call("commit_memory", {"memory_content": sentence(index)})
        settle(client)
        commit = latency(
            lambda index: client.call("commit_memory", {"memory_content": sentence(memories + index)}), 200
        )
        find = latency(lambda index: client.call("find", {"query": sentence(10_000 + index)[:60]}), 200)
        print(f"commit at {memories} memories    p50 {commit[0]:6.2f} ms   p95 {commit[1]:6.2f} ms (goal p50 5)")
        print(f"find at {memories} memories      p50 {find[0]:6.2f} ms   p95 {find[1]:6.2f} ms (goal p50 20)")
        print(f"resident, model loaded     {client.resident_mib():6.0f} MiB (goal 260)")


def commands(home: Path, runs: int) -> None:
    """Run each command, then again beside a server; print seconds of the processor and of the wall."""
    every = [
        ("ls", ["viking://user/default/memories"]),
        ("read", ["viking://user/default/memories/.overview.md"]),
        ("commit", ["The staging cluster lives in Frankfurt."]),
        ("find", ["who fixed the login page"]),
        ("hook", ["user-prompt"]),
    ]
    for beside in ("no server", "a server"):
        with StdioClient(serve(home)) if beside == "a server" else nullcontext() as client:
            if client is not None:
                client.call("find", {"query": "is the model loaded"})
                settle(client)
            for name, words in every:
                figures = [command([name, *words, "--home", str(home)], number) for number in range(runs)]
                used, waited = (statistics.median(each) for each in zip(*figures, strict=True))
                print(f"{name:8} {beside:12}      p50 {used:6.2f} s CPU   {waited:6.2f} s")


def command(words: list[str], number: int) -> tuple[float, float]:
    """Seconds of the processor, and of the wall, that a command takes; a hook is of a session of its own."""
    event = {"session_id": f"floor-{number}-{time.time_ns()}", "prompt": told(number).question}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNEBOOK_")}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "server.cli", *words],
        input=json.dumps(event).encode(),
        stdout=subprocess.DEVNULL,
        env=environment,
        check=True,
    )
    waited, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, waited


def sentence(index: int) -> str:
    """A distinct made-up memory, English or Chinese."""
    return told(index).text


if __name__ == "__main__":
    main()
