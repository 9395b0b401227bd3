"""Nothing acknowledged is ever lost: processes that write, read and edit one store while others of them are killed.

Writers over stdio and HTTP and from the command line, a conversation, readers, and a person who edits files by hand
share one store. Servers, and the vector servers that they run, are killed and paused at random; the disposable index
is damaged. What was acknowledged is kept in a journal outside the store. At the end everything in it is proved
(``soak_proof``).

    python -m bench.soak --minutes 30 --seed 7 [--home DIR] [--writers 3 --readers 2]

Prints one line of figures. Exits with 1 on any violation, and keeps the store, the journal and what the servers said.
Linux only: pauses, and vector servers are found through /proc.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.soak_actors import SHARED_END, Actor, CommandWriter, HttpWriter, Reader, Scene, Talker, Writer
from bench.soak_clients import HttpServer, Roster, StdioServer
from bench.soak_journal import Journal
from bench.soak_person import Harm, Person
from bench.soak_proof import figures, prove
from memory_core.core.config import load
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory

#: Chroma takes over early, so that its server is part of every soak.
OPTIONS = ("--set", "index.exact_below=100")
_REPORT_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak; 0 when nothing was violated."""
    asked = _parser().parse_args(arguments)
    place = Path(asked.home) if asked.home else Path(tempfile.mkdtemp(prefix="runebook-soak-"))
    home = place / "home"
    home.mkdir(mode=0o700, parents=True)
    journal = Journal(place / "journal.jsonl")
    scene = Scene(home, asked.seed, journal, Roster(place), OPTIONS)
    _begin(home)
    started = time.monotonic()
    _run(scene, asked)
    minutes = (time.monotonic() - started) / 60
    journal.close()
    bad, looked = prove(home, journal.path, OPTIONS)
    bad += scene.roster.ended
    bad += [f"{times} times: {refusal}" for refusal, times in scene.refusals.items() if "unexpectedly" in refusal]
    for line in bad[: asked.shown]:
        print(f"VIOLATION: {line[:1000]}")
    for refusal, times in scene.refusals.most_common(20):
        print(f"refused {times} times and sent again: {refusal}")
    print(f"looked at: {dict(looked)}")
    print(_summary(asked.seed, minutes, scene, journal.path, len(bad)))
    if bad:
        print(f"evidence: {place}")
        return 1
    if not asked.home:
        shutil.rmtree(place)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Soak one store, then prove that nothing was lost.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--home", help="a new folder for store, journal and evidence (default: a temporary one)")
    parser.add_argument("--writers", type=int, default=3, help="stdio servers that write (default 3)")
    parser.add_argument("--readers", type=int, default=2, help="stdio servers that read (default 2)")
    parser.add_argument("--kills-per-minute", type=float, default=60.0)
    parser.add_argument("--damage-seconds", type=float, default=30.0, help="between damages to the index; 0 is never")
    parser.add_argument("--shown", type=int, default=50, help="violations printed at most")
    return parser


def _begin(home: Path) -> None:
    """Make what all writers share, before anything is killed."""
    with open_memory(load(flags={"home": str(home), "embedding.provider": "none"})) as memory:
        memory.commit(CommitRequest(SHARED_END, memory_type="facts", fields={"topic": "shared list"}))


def _run(scene: Scene, asked: argparse.Namespace) -> None:
    actors: list[Actor] = [Writer(scene, f"writer-{n}", n, StdioServer) for n in range(asked.writers)]
    actors += [Reader(scene, f"reader-{n}", 20 + n, StdioServer) for n in range(asked.readers)]
    actors += [
        HttpWriter(scene, "http", 10, HttpServer),
        CommandWriter(scene, "command", 11, StdioServer),
        Talker(scene, "talker", 12, StdioServer),
    ]
    harm = Harm(scene, asked.kills_per_minute, asked.damage_seconds)
    threads = [*(actor.thread for actor in actors), Person(scene).thread, *harm.threads]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60 * asked.minutes
    try:
        while (left := until - time.monotonic()) > 0:
            threading.Event().wait(min(left, _REPORT_SECONDS))
            print(f"{max(0.0, left):.0f} s left: {dict(scene.counts)}", flush=True)
    finally:
        scene.over.set()
        for thread in threads:
            thread.join()


def _summary(seed: int, minutes: float, scene: Scene, journal: Path, violations: int) -> str:
    counts, times = scene.counts, figures(journal)
    latency = " ".join(f"{name} {value:.0f} ms" for name, value in times.items())
    return (
        f"soak seed {seed}: {minutes:.1f} minutes, {counts['kills'] + counts['kills of vector servers']} kills "
        f"({counts['kills of vector servers']} of vector servers), {counts['pauses']} pauses, "
        f"{counts['damages to the index']} damages to the index, {counts['commits']} commits, "
        f"{counts['hand edits']} hand edits, {counts['reads']} reads, {counts['requests sent again']} requests sent "
        f"again, {counts['undone']} undone; commit {latency}; {violations} violations"
    )


if __name__ == "__main__":
    sys.exit(main())
