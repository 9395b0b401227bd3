"""What Runebook costs, beside a bare two-tool server of the same SDK and two other memory servers, in one run.

Each line is one figure, its goal, and whether it is met. Times are medians; CPU time is that of the calling thread.
Milliseconds differ between machines: where a goal is in milliseconds, the same goal also stands as a multiple of the
bare server's trivial call, which took 1.15 ms where the goals were set. The other servers are fetched with npm and
pip; where they cannot be had, their lines say so.

    python -m bench.floor [--scale] [--keep FOLDER] [--only WORDS] [--markdown]

``--scale`` adds stores of 10,000 and 100,000 memories, which take minutes to fill. ``--keep`` leaves these and the
installed servers in a folder and uses those that are there. ``--only`` measures the lines that hold these words.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench import floor_commands, floor_http, floor_process, floor_stdio, peers
from bench.stores import fill, opened

_SMALL, _SCALE = 1_000, (10_000, 100_000)
_SESSIONS = (20, 400, 5_000)
#: Milliseconds of the bare server's trivial call where the goals were set.
_BARE_MS = 1.15
_NOT_HERE = "not to be had here"


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit that a figure keeps; ``least`` where more is better."""

    limit: float
    least: bool = False

    def met(self, value: float) -> bool:
        """Whether the figure keeps it."""
        return value >= self.limit if self.least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.limit:,.4g}"


class Run:
    """What is measured, each thing once, when it is first asked for."""

    def __init__(self, folder: Path, kept: Path, starts: int) -> None:
        self._folder, self._kept, self._starts = folder, kept, starts
        self._bare = peers.bare_server(folder)
        self._filled: dict[int, Path] = {}
        self._served: dict[tuple[int, bool], floor_stdio.Calls] = {}

    @cached_property
    def bare_ms(self) -> float:
        """A trivial call of the bare server, measured three times."""
        return statistics.median(floor_stdio.bare_call(self._bare) for _ in range(3))

    @cached_property
    def disk(self) -> floor_process.Disk:
        """The store of 1,000 notes is filled by this."""
        home = self._folder / str(_SMALL)
        disk = floor_process.fill_singly(home, _SMALL)
        self._filled[_SMALL] = home
        return disk

    def home(self, memories: int) -> Path:
        """A filled store, all vectors in it."""
        if memories == _SMALL:
            assert self.disk
            with opened(self._filled[_SMALL]):
                pass
        elif memories not in self._filled:
            home, done = self._kept / str(memories), self._kept / f"{memories}.filled"
            if not done.exists():
                fill(home, memories)
                done.touch()
            self._filled[memories] = home
        return self._filled[memories]

    def served(self, memories: int, *, meaning: bool = True) -> floor_stdio.Calls:
        """Runebook over stdio on a filled store."""
        if (memories, meaning) not in self._served:
            options = () if meaning else floor_stdio.WORDS_ONLY
            self._served[memories, meaning] = floor_stdio.served(self.home(memories), memories, options)
        return self._served[memories, meaning]

    @cached_property
    def server_memory(self) -> floor_stdio.Calls | None:
        """``server-memory`` with 1,000 memories."""
        peer = peers.server_memory(self._kept)
        return None if peer is None else floor_stdio.peer_calls(peer, _SMALL)

    @cached_property
    def agentrecall(self) -> floor_stdio.Calls | None:
        """``agentrecall-db`` with 1,000 memories."""
        peer = peers.agentrecall(self._kept)
        return None if peer is None else floor_stdio.peer_calls(peer, _SMALL)

    @cached_property
    def explicit(self) -> floor_process.Explicit:
        """An explicit commit in process."""
        return floor_process.explicit(self.home(_SMALL))

    @cached_property
    def exchanges(self) -> list[float]:
        """CPU milliseconds of an exchange, by length of the session."""
        return [floor_process.exchange_ms(self._folder, messages) for messages in _SESSIONS]

    @cached_property
    def turn_ms(self) -> tuple[float, float]:
        """Milliseconds a turn of a batch: of the wall, of the processor."""
        return floor_process.turn_ms(self._folder)

    @cached_property
    def starts(self) -> floor_stdio.Starts:
        """Starts of processes."""
        return floor_stdio.starts(self._bare, self.home(_SMALL), self._starts)

    def large_answer_seconds(self, memories: int) -> float:
        """From the initialize result to the first answer, in a large store."""
        return floor_stdio.answer_seconds(self.home(memories), max(3, self._starts // 3))

    @cached_property
    def alone(self) -> dict[str, float]:
        """Seconds of commands without a server."""
        return floor_commands.command_seconds(self.home(_SMALL), self._starts, server=False)

    @cached_property
    def beside(self) -> dict[str, float]:
        """Seconds of commands with a server."""
        return floor_commands.command_seconds(self.home(_SMALL), self._starts, server=True)

    @cached_property
    def loads(self) -> tuple[floor_http.Load, floor_http.Load]:
        """Commits and finds over HTTP."""
        return floor_http.loads(self.home(_SMALL))

    @cached_property
    def second_mib(self) -> float:
        """What a second process adds."""
        return floor_stdio.second_process_mib(self.home(_SMALL))


@dataclass(frozen=True, slots=True)
class Figure:
    """One line; the function gives None where what it measures cannot be had."""

    name: str
    unit: str
    goal: Goal | None
    measure: Callable[[Run], float | None]


def _written(calls: floor_stdio.Calls | None) -> float | None:
    return None if calls is None else calls.commit


def _searched(calls: floor_stdio.Calls | None) -> float | None:
    return None if calls is None else calls.find


def _by(calls: floor_stdio.Calls | None, ours: float) -> float | None:
    return None if calls is None else ours / calls.commit


FIGURES = (
    Figure("bare server: trivial call over stdio", "ms", None, lambda run: run.bare_ms),
    Figure("commit over stdio at 1,000", "ms", None, lambda run: run.served(1_000).commit),
    Figure("commit at 1,000 by bare call", "×", Goal(3), lambda run: run.served(1_000).commit / run.bare_ms),
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
        for at, messages in enumerate(_SESSIONS)
    ),
    Figure("exchange, slowest by fastest", "×", Goal(1.3), lambda run: max(run.exchanges) / min(run.exchanges)),
    Figure("batches by words, a turn", "ms", Goal(1), lambda run: run.turn_ms[0]),
    Figure("batches by words, a turn, CPU", "ms", None, lambda run: run.turn_ms[1]),
    Figure("find by meaning at 1,000", "ms", Goal(8), lambda run: run.served(1_000).find),
    Figure("the same by bare call", "×", Goal(8 / _BARE_MS), lambda run: run.served(1_000).find / run.bare_ms),
    Figure("find by words at 1,000", "ms", Goal(4), lambda run: run.served(1_000, meaning=False).find),
    Figure(
        "the same by bare call, by words",
        "×",
        Goal(4 / _BARE_MS),
        lambda run: run.served(1_000, meaning=False).find / run.bare_ms,
    ),
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
    Figure("HTTP, 16 clients: commits", "/s", Goal(150, least=True), lambda run: run.loads[0].rate),
    Figure("HTTP, 16 clients: commits, p99", "ms", Goal(300), lambda run: run.loads[0].p99_ms),
    Figure(
        "HTTP: commits of the slowest client by the mean",
        "",
        Goal(0.5, least=True),
        lambda run: run.loads[0].least_share,
    ),
    Figure("HTTP, 16 clients: finds", "/s", Goal(120, least=True), lambda run: run.loads[1].rate),
    Figure("HTTP, 16 clients: finds, p99", "ms", Goal(300), lambda run: run.loads[1].p99_ms),
    Figure(
        "HTTP: finds of the slowest client by the mean", "", Goal(0.5, least=True), lambda run: run.loads[1].least_share
    ),
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
            lambda run, memories=memories: run.served(memories).commit / run.served(_SMALL).commit,  # type: ignore[misc]
        ),
        Figure(
            f"find by meaning at {memories:,}",
            "ms",
            Goal(find_ms),
            lambda run, memories=memories: run.served(memories).find,  # type: ignore[misc]
        ),
        Figure(
            f"find by meaning at {memories:,} by bare call",
            "×",
            Goal(find_ms / _BARE_MS),
            lambda run, memories=memories: run.served(memories).find / run.bare_ms,  # type: ignore[misc]
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
            lambda run, memories=memories: run.large_answer_seconds(memories),  # type: ignore[misc]
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
                print(line(figure, figure.measure(run), markdown=asked.markdown), flush=True)


def line(figure: Figure, value: float | None, *, markdown: bool) -> str:
    """A figure as text or as a row of a table."""
    said = _NOT_HERE if value is None else f"{value:,.3g} {figure.unit}".strip()
    if value is not None and value >= 1_000:
        said = f"{value:,.0f} {figure.unit}"
    goal = "" if figure.goal is None else f"{figure.goal} {figure.unit}".strip()
    verdict = "" if figure.goal is None or value is None else "met" if figure.goal.met(value) else "**missed**"
    if markdown:
        return f"| {figure.name} | {said} | {goal} | {verdict} |"
    return f"{figure.name:52} {said:>18}   {goal:14} {verdict.strip('*')}".rstrip()


@contextmanager
def _folders(keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder of this run, and the one that is kept, which is the same where none is."""
    with tempfile.TemporaryDirectory(prefix="runebook-floor-") as name:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        yield Path(name), keep or Path(name)


if __name__ == "__main__":
    main()
