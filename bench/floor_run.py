"""One run of the floor: its stores are filled once, and each thing is measured once, when a figure asks for it."""

from __future__ import annotations

import statistics
from functools import cached_property
from pathlib import Path

from bench import floor_commands, floor_http, floor_process, floor_stdio, peers
from bench.stores import fill, opened

#: Memories of the store that most figures are about, and messages of the sessions.
SMALL = 1_000
SESSIONS = (20, 400, 5_000)


class Run:
    """What is measured, each thing once, when it is first asked for."""

    def __init__(self, folder: Path, kept: Path, starts: int) -> None:
        self._folder, self._kept, self._starts = folder, kept, starts
        self._bare = peers.bare_server(folder)
        self._filled: dict[int, Path] = {}
        self._served: dict[tuple[int, bool], floor_stdio.Calls] = {}
        self._answers: dict[int, tuple[float, float]] = {}

    @cached_property
    def bare_ms(self) -> float:
        """A trivial call of the bare server, measured three times."""
        return statistics.median(floor_stdio.bare_call(self._bare) for _ in range(3))

    @cached_property
    def bare_write_ms(self) -> float:
        """A write of the bare server, measured three times."""
        return statistics.median(floor_stdio.bare_write(self._bare) for _ in range(3))

    @cached_property
    def disk(self) -> floor_process.Disk:
        """The store of 1,000 notes is filled by this."""
        home = self._folder / str(SMALL)
        disk = floor_process.fill_singly(home, SMALL)
        self._filled[SMALL] = home
        return disk

    def home(self, memories: int) -> Path:
        """A filled store, all vectors in it."""
        if memories == SMALL:
            assert self.disk
            with opened(self._filled[SMALL]):
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
        return None if peer is None else floor_stdio.peer_calls(peer, SMALL)

    @cached_property
    def agentrecall(self) -> floor_stdio.Calls | None:
        """``agentrecall-db`` with 1,000 memories."""
        peer = peers.agentrecall(self._kept)
        return None if peer is None else floor_stdio.peer_calls(peer, SMALL)

    @cached_property
    def explicit(self) -> floor_process.Explicit:
        """An explicit commit in process."""
        return floor_process.explicit(self.home(SMALL))

    @cached_property
    def exchanges(self) -> list[float]:
        """CPU milliseconds of an exchange, by length of the session."""
        return [floor_process.exchange_ms(self._folder, messages) for messages in SESSIONS]

    def repeating_exchange_ms(self) -> float:
        """The same in the longest session, where the answers are a few short ones that recur."""
        return floor_process.exchange_ms(self._folder, SESSIONS[-1], repeats=True)

    @cached_property
    def turn_ms(self) -> tuple[float, float]:
        """Milliseconds a turn of a batch: of the wall, of the processor."""
        return floor_process.turn_ms(self._folder)

    @cached_property
    def starts(self) -> floor_stdio.Starts:
        """Starts of processes."""
        return floor_stdio.starts(self._bare, self.home(SMALL), self._starts)

    def answers(self, memories: int) -> tuple[float, float]:
        """First answers in a large store, see ``floor_stdio.answer_seconds``."""
        if memories not in self._answers:
            self._answers[memories] = floor_stdio.answer_seconds(self.home(memories), max(3, self._starts // 3))
        return self._answers[memories]

    @cached_property
    def alone(self) -> dict[str, float]:
        """Seconds of commands without a server."""
        return floor_commands.command_seconds(self.home(SMALL), self._starts, server=False)

    @cached_property
    def beside(self) -> dict[str, float]:
        """Seconds of commands with a server."""
        return floor_commands.command_seconds(self.home(SMALL), self._starts, server=True)

    @cached_property
    def loads(self) -> tuple[floor_http.Load, floor_http.Load, floor_http.Load]:
        """Finds, commits, and finds right after them, over HTTP."""
        return floor_http.loads(self.home(SMALL))

    @cached_property
    def bare_load(self) -> floor_http.Load:
        """Trivial calls of the bare server over HTTP."""
        return floor_http.bare_load(self._bare)

    @cached_property
    def second_mib(self) -> float:
        """What a second process adds."""
        return floor_stdio.second_process_mib(self.home(SMALL))
