"""What a soak measures is what a client waited."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.soak_actors import Actor, Scene
from bench.soak_clients import Roster, Server, ServerGone
from bench.soak_journal import Journal


class Clock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Killed:
    """A server that works for a second on each request, and is killed during the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._clock.now += 1.0
        if self._clock.now < 2.0:
            raise ServerGone
        return {"tool": tool, **arguments}

    def close(self) -> None:
        """Nothing runs."""


def test_a_request_counts_from_its_first_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def connect(_roster: Roster, _role: str, _home: Path, _options: Sequence[str]) -> Server:
        return Killed(clock)

    journal = Journal(tmp_path / "journal.jsonl")
    actor = Actor(Scene(tmp_path, 7, journal, Roster(tmp_path), ()), "writer", 0, connect)
    with monkeypatch.context() as patched:
        patched.setattr(time, "perf_counter", clock)
        answer = actor.ask("read", {"uri": "x"})
    journal.close()
    assert answer == ({"tool": "read", "uri": "x"}, 2_000.0)
