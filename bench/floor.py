"""What Runebook adds to the floor: a bare two-tool server of the same SDK, measured in the same run.

Cold start (spawn to initialize result), an explicit commit and a find over stdio with 1,000 memories, and
resident memory with the model loaded and with Chroma open. Medians; the two servers alternate.

    python -m bench.floor
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.stdio_client import StdioClient

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
_PEOPLE = ("Lin", "Mei", "Anders", "Priya", "Tomás", "陈磊", "王芳", "Sofia", "Kofi", "Yuki")
_THINGS = (
    "the billing service",
    "a red bicycle",
    "the Kyoto trip",
    "登录页面",
    "the night train",
    "咖啡机",
    "a violin",
)
_DEEDS = ("prefers", "postponed", "is responsible for", "sold", "喜欢", "fixed a bug in", "asked twice about")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=15, help="cold starts of each server")
    parser.add_argument("--memories", type=int, default=1_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runebook-floor-") as folder:
        root = Path(folder)
        bare = root / "bare.py"
        bare.write_text(_BARE, encoding="utf-8")
        bare_command = [sys.executable, str(bare)]
        ours = [sys.executable, "-m", "server.cli", "serve", "--home", str(root / "home")]
        cold_starts(bare_command, ours, arguments.starts)
        with StdioClient(bare_command) as client:
            call = _milliseconds(lambda _index: client.call("add", {"a": 1, "b": 2}), 200)
            print(f"bare trivial call          p50 {call[0]:6.2f} ms   p95 {call[1]:6.2f} ms")
        working(ours, arguments.memories)
        with StdioClient([*ours, "--set", "index.mode=chroma"]) as client:
            client.call("find", {"query": "who fixed the login page"})
            _settle(client)
            for index in range(20):
                client.call("find", {"query": sentence(index)})
            print(f"resident, Chroma open      {client.resident_mib():6.0f} MiB (goal 400)")


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
        _settle(client)
        commit = _milliseconds(
            lambda index: client.call("commit_memory", {"memory_content": sentence(memories + index)}), 200
        )
        find = _milliseconds(lambda index: client.call("find", {"query": sentence(10_000 + index)[:60]}), 200)
        print(f"commit at {memories} memories    p50 {commit[0]:6.2f} ms   p95 {commit[1]:6.2f} ms (goal p50 5)")
        print(f"find at {memories} memories      p50 {find[0]:6.2f} ms   p95 {find[1]:6.2f} ms (goal p50 20)")
        print(f"resident, model loaded     {client.resident_mib():6.0f} MiB (goal 260)")


def sentence(index: int) -> str:
    """A distinct made-up memory, English or Chinese."""
    chance = random.Random(index)
    who, what, deed = chance.choice(_PEOPLE), chance.choice(_THINGS), chance.choice(_DEEDS)
    return f"{who} {deed} {what}; ticket {index}, room {chance.randrange(900)}, since {chance.randrange(1990, 2026)}."


def _settle(client: StdioClient) -> None:
    """Wait until background work has caught up."""
    for _ in range(60):
        if "notes" not in client.call("find", {"query": "ticket"}):
            break
        time.sleep(0.5)
    time.sleep(2)


def _milliseconds(action: Callable[[int], object], count: int) -> tuple[float, float]:
    """p50 and p95 of ``count`` runs."""
    times = []
    for index in range(count):
        started = time.perf_counter()
        action(index)
        times.append((time.perf_counter() - started) * 1e3)
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)]


if __name__ == "__main__":
    main()
