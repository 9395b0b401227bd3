"""What a host waits for its hooks: each event from start to end of its process, with a running server and without.

Beside it the baseline, ``python -c pass``, measured in the same run. A prompt is asked in a new session each time, so
that it is answered and nothing was given before; how many got an answer stands beside the times.

    python -m bench.hooks
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bench.recall import percentile
from bench.stdio_client import StdioClient, environment
from bench.stores import fill, serve
from bench.synthetic import told
from bench.timing import settle

#: People think between prompts; a server that is asked again at once still works on the one before.
_PAUSE_SECONDS = 0.5
_EVENTS = ("user-prompt", "session-start", "post-read", "pre-compact", "session-end")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, nargs="+", default=[1_000, 10_000], help="sizes of the store")
    parser.add_argument("--runs", type=int, default=20, help="of each event")
    arguments = parser.parse_args()
    for memories in arguments.memories:
        with tempfile.TemporaryDirectory(prefix="runebook-hooks-") as folder:
            home = Path(folder) / "home"
            fill(home, memories)
            for served in (False, True):
                with _server(home) if served else nullcontext():
                    print(f"{memories:,} memories, {'a server runs' if served else 'no server'}")
                    _measure(Path(folder), home, arguments.runs, memories)


@contextmanager
def _server(home: Path) -> Iterator[None]:
    with StdioClient([*serve(home), "--set", "maintenance.automatic=off"]) as client:
        client.call("find", {"query": "ticket"})
        settle(client)
        yield


def _measure(folder: Path, home: Path, runs: int, memories: int) -> None:
    baseline = [_timed([sys.executable, "-c", "pass"], b"")[0] for _ in range(runs)]
    _print("baseline: python -c pass", baseline, "")
    for event in _EVENTS:
        times: list[float] = []
        answered = 0
        for run in range(runs):
            time.sleep(_PAUSE_SECONDS)
            given = _event(folder, event, f"{event}-{run}-{time.time_ns()}", run * 37 % memories)
            command = [sys.executable, "-m", "server.cli", "hook", event, "--home", str(home)]
            milliseconds, output = _timed(command, json.dumps(given).encode())
            times.append(milliseconds)
            answered += bool(output)
        _print(event, times, f"   {answered} of {runs} answered" if event == "user-prompt" else "")


def _event(folder: Path, event: str, session: str, number: int) -> Mapping[str, Any]:
    """A host's event; at those that store, with a transcript of 40 messages."""
    transcript = folder / f"{session}.jsonl"
    if event in ("pre-compact", "session-end"):
        lines = (
            {
                "type": ("user", "assistant")[turn % 2],
                "message": {"role": ("user", "assistant")[turn % 2], "content": told(number + turn).text},
                "uuid": f"{session}-{turn}",
                "parentUuid": None,
                "sessionId": session,
                "timestamp": f"2026-11-21T10:{turn:02}:00Z",
            }
            for turn in range(40)
        )
        transcript.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8", newline="\n")
    return {
        "session_id": session,
        "transcript_path": str(transcript),
        "cwd": str(folder),
        "hook_event_name": {"user-prompt": "UserPromptSubmit", "post-read": "PostToolUse"}.get(event, event),
        "prompt": told(number).question,
        "source": "startup",
        "tool_name": "Read",
        "tool_input": {"file_path": "/home/u/skills/release/SKILL.md"},
    }


def _timed(command: list[str], stdin: bytes) -> tuple[float, bytes]:
    """Milliseconds from start to end, and what was written."""
    started = time.perf_counter()
    done = subprocess.run(
        command, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(), check=False
    )
    return 1e3 * (time.perf_counter() - started), done.stdout


def _print(name: str, times: list[float], beside: str) -> None:
    print(
        f"  {name:24} p50 {percentile(times, 0.5):7.0f} ms   p95 {percentile(times, 0.95):7.0f} ms{beside}", flush=True
    )


if __name__ == "__main__":
    main()
