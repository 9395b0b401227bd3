"""What Runebook costs, beside a bare two-tool server of the same SDK and two other memory servers, in one run.

Each line is one figure, its goal, and whether it is met. Times are medians; CPU time is that of the calling thread.
The goals were set where the bare server's trivial call took 1.15 ms. Where it takes longer, goals for times and rates
give way by the same ratio: the goal as set comes first, what it is here behind it. The other servers are fetched with
npm and pip; where they cannot be had, their lines say so.

    python -m bench.floor [--scale] [--keep FOLDER] [--only WORDS] [--markdown]

``--scale`` adds stores of 10,000 and 100,000 memories, which take minutes to fill. ``--keep`` leaves these and the
installed servers in a folder and uses those that are there. ``--only`` measures the lines that hold these words.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.floor_run import SESSIONS, SMALL, Run
from bench.floor_stdio import Calls

_SCALE = (10_000, 100_000)
#: Milliseconds of the bare server's trivial call where the goals were set.
_BARE_MS = 1.15
_TIMES = ("ms", "s", "/s")
_NOT_HERE = "not to be had here"


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit that a figure keeps; ``least`` where more is better."""

    limit: float
    least: bool = False

    def here(self, ratio: float) -> Goal:
        """The same goal on a machine that takes ``ratio`` times as long; on a faster one it stays."""
        slower = max(1.0, ratio)
        return Goal(self.limit / slower if self.least else self.limit * slower, self.least)

    def met(self, value: float) -> bool:
        """Whether the figure keeps it."""
        return value >= self.limit if self.least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.limit:,.4g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line; the function gives None where what it measures cannot be had."""

    name: str
    unit: str
    goal: Goal | None
    measure: Callable[[Run], float | None]


def _written(calls: Calls | None) -> float | None:
    return None if calls is None else calls.commit


def _searched(calls: Calls | None) -> float | None:
    return None if calls is None else calls.find


def _by(calls: Calls | None, ours: float) -> float | None:
    return None if calls is None else ours / calls.commit


FIGURES = (
    Figure("bare server: trivial call over stdio", "ms", None, lambda run: run.bare_ms),
    Figure("bare server: synced write over stdio", "ms", None, lambda run: run.bare_write_ms),
    Figure("commit over stdio at 1,000", "ms", None, lambda run: run.served(1_000).commit),
    Figure("commit at 1,000 by bare call", "×", Goal(3), lambda run: run.served(1_000).commit / run.bare_ms),
    Figure("commit at 1,000 by bare synced write", "×", None, lambda run: run.served(1_000).commit / run.bare_write_ms),
    Figure("server-memory: write at 1,000", "ms", None, lambda run: _written(run.server_memory)),
    Figure(
        "commit by server-memory's write", "×", Goal(1), lambda run: _by(run.server_memory, run.served(1_000).commit)
    ),
    Figure("agentrecall-db: write at 1,000", "ms", None, lambda run: _written(run.agentrecall)),
    Figure("commit by agentrecall-db's write", "×", None, lambda run: _by(run.agentrecall, run.served(1_000).commit)),
    Figure("commit in process, by words, CPU", "ms", Goal(2), lambda run: run.explicit.cpu_ms),
    Figure("commit in process, SQL statements", "", Goal(15), lambda run: run.explicit.statements),
    *(
        Figure(
            f"exchange into a session of {messages:,}, CPU",
            "ms",
            Goal(5),
            lambda run, at=at: run.exchanges[at],  # type: ignore[misc]
        )
        for at, messages in enumerate(SESSIONS)
    ),
    Figure("exchange, slowest by fastest", "×", Goal(1.3), lambda run: max(run.exchanges) / min(run.exchanges)),
    Figure(
        f"exchange into {SESSIONS[-1]:,} with recurring answers, CPU",
        "ms",
        Goal(5),
        lambda run: run.repeating_exchange_ms(),
    ),
    Figure("batches by words, a turn", "ms", Goal(1), lambda run: run.turn_ms[0]),
    Figure("batches by words, a turn, CPU", "ms", None, lambda run: run.turn_ms[1]),
    Figure("find by meaning at 1,000", "ms", Goal(8), lambda run: run.served(1_000).find),
    Figure("find by words at 1,000", "ms", Goal(4), lambda run: run.served(1_000, meaning=False).find),
    Figure("server-memory: search at 1,000", "ms", None, lambda run: _searched(run.server_memory)),
    Figure("agentrecall-db: search at 1,000", "ms", None, lambda run: _searched(run.agentrecall)),
    Figure("bare server: spawn to initialize", "s", None, lambda run: run.starts.bare),
    Figure("spawn to initialize", "s", None, lambda run: run.starts.runebook),
    Figure("spawn to initialize by bare", "×", Goal(1.1), lambda run: run.starts.ratio),
    Figure("initialize to first answer by meaning", "s", Goal(0.4), lambda run: run.starts.by_meaning),
    Figure("initialize to first answer by words", "s", Goal(0.15), lambda run: run.starts.by_words),
    *(
        Figure(
            f"`runebook {name}`, no server",
            "s",
            Goal(0.9 if name == "find" else 0.5),
            lambda run, name=name: run.alone[name],  # type: ignore[misc]
        )
        for name in ("find", "commit", "read", "ls")
    ),
    *(
        Figure(
            f"`runebook {name}`, a server runs",
            "s",
            Goal(0.3),
            lambda run, name=name: run.beside[name],  # type: ignore[misc]
        )
        for name in ("find", "commit", "read", "ls")
    ),
    Figure("bare server: HTTP, 16 clients, trivial calls", "/s", None, lambda run: run.bare_load.rate),
    Figure("bare server: HTTP, 16 clients, trivial calls, p99", "ms", None, lambda run: run.bare_load.p99_ms),
    Figure("HTTP, 16 clients: commits", "/s", Goal(150, least=True), lambda run: run.loads[1].rate),
    Figure("HTTP, 16 clients: commits, p99", "ms", Goal(300), lambda run: run.loads[1].p99_ms),
    Figure(
        "HTTP: commits of the slowest client by the mean",
        "",
        Goal(0.5, least=True),
        lambda run: run.loads[1].least_share,
    ),
    Figure("HTTP, 16 clients: finds", "/s", Goal(120, least=True), lambda run: run.loads[0].rate),
    Figure("HTTP, 16 clients: finds, p99", "ms", Goal(300), lambda run: run.loads[0].p99_ms),
    Figure(
        "HTTP: finds of the slowest client by the mean", "", Goal(0.5, least=True), lambda run: run.loads[0].least_share
    ),
    Figure("HTTP, 16 clients: finds right after those commits", "/s", None, lambda run: run.loads[2].rate),
    Figure("HTTP, 16 clients: finds right after those commits, p99", "ms", None, lambda run: run.loads[2].p99_ms),
    Figure("resident with the model", "MiB", Goal(200), lambda run: run.served(1_000).resident_mib),
    Figure("a second process adds (PSS)", "MiB", Goal(110), lambda run: run.second_mib),
    Figure(
        "disk of a one-line memory, without its vector",
        "bytes",
        Goal(4_096),
        lambda run: run.disk.ledger + run.disk.index + run.disk.files,
    ),
    Figure("of it the ledger", "bytes", None, lambda run: run.disk.ledger),
    Figure("of it the index", "bytes", None, lambda run: run.disk.index),
    Figure("of it the files", "bytes", None, lambda run: run.disk.files),
)

SCALE = tuple(
    figure
    for memories, find_ms in zip(_SCALE, (12, 30), strict=True)
    for figure in (
        Figure(
            f"commit over stdio at {memories:,}",
            "ms",
            None,
            lambda run, memories=memories: run.served(memories).commit,  # type: ignore[misc]
        ),
        Figure(
            f"commit at {memories:,} by at 1,000",
            "×",
            Goal(1.3),
            lambda run, memories=memories: run.served(memories).commit / run.served(SMALL).commit,  # type: ignore[misc]
        ),
        Figure(
            f"find by meaning at {memories:,}",
            "ms",
            Goal(find_ms),
            lambda run, memories=memories: run.served(memories).find,  # type: ignore[misc]
        ),
        Figure(
            f"find by words at {memories:,}",
            "ms",
            None,
            lambda run, memories=memories: run.served(memories, meaning=False).find,  # type: ignore[misc]
        ),
        Figure(
            f"initialize to first answer by meaning at {memories:,}",
            "s",
            Goal(0.6),
            lambda run, memories=memories: run.answers(memories)[0],  # type: ignore[misc]
        ),
        Figure(
            f"… and every file looked at, at {memories:,}",
            "s",
            None,
            lambda run, memories=memories: run.answers(memories)[1],  # type: ignore[misc]
        ),
    )
)


def main() -> None:
    """Measure and print, line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=9, help="starts of each server and of each command; default 9")
    parser.add_argument("--scale", action="store_true", help="also 10,000 and 100,000 memories")
    parser.add_argument("--keep", type=Path, help="folder of large stores and other servers, kept and used again")
    parser.add_argument("--only", default="", help="measure only lines that hold these words")
    parser.add_argument("--markdown", action="store_true", help="print the lines as a Markdown table")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f} at the start\n")
    if asked.markdown:
        print("| | figure | goal | |\n|---|---|---|---|", flush=True)
    with _folders(asked.keep) as (folder, kept):
        run = Run(folder, kept, asked.starts)
        for figure in (*FIGURES, *(SCALE if asked.scale else ())):
            if asked.only in figure.name:
                ratio = run.bare_ms / _BARE_MS if figure.goal and figure.unit in _TIMES else 1.0
                print(line(figure, figure.measure(run), ratio, markdown=asked.markdown), flush=True)


def line(figure: Figure, value: float | None, ratio: float, *, markdown: bool) -> str:
    """A figure as text or as a row of a table; ``ratio`` is how much longer this machine takes, see ``Goal.here``."""
    said = _NOT_HERE if value is None else f"{value:,.3g} {figure.unit}".strip()
    if value is not None and value >= 1_000:
        said = f"{value:,.0f} {figure.unit}"
    goal = verdict = ""
    if figure.goal is not None:
        here = figure.goal.here(ratio if figure.unit in _TIMES else 1.0)
        goal = f"{figure.goal} {figure.unit}".strip() + (f", here {here.limit:.3g}" if here != figure.goal else "")
        verdict = "" if value is None else "met" if here.met(value) else "**missed**"
    if markdown:
        return f"| {figure.name} | {said} | {goal} | {verdict} |"
    return f"{figure.name:52} {said:>18}   {goal:24} {verdict.strip('*')}".rstrip()


@contextmanager
def _folders(keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder of this run, and the one that is kept, which is the same where none is."""
    with tempfile.TemporaryDirectory(prefix="runebook-floor-") as name:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        yield Path(name), keep or Path(name)


if __name__ == "__main__":
    main()
