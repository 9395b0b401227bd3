"""Background work waits while requests come in, yet not for ever, and never overlooks one."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from memory_core.core.background import Background, await_quiet


class Busy(threading.Event):
    """Is set again as soon as it is cleared, like a stream of requests, for some rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def clear(self) -> None:
        super().clear()
        if self.rounds > 0:
            self.rounds -= 1
            self.set()


def test_it_waits_until_nothing_more_is_asked() -> None:
    wake = Busy(rounds=5)
    await_quiet(wake, threading.Event(), pause_seconds=0.001, limit_seconds=60.0)
    assert wake.rounds == 0
    assert not wake.is_set()


def test_it_does_not_wait_for_ever() -> None:
    wake = Busy(rounds=1_000_000)
    await_quiet(wake, threading.Event(), pause_seconds=0.001, limit_seconds=0.01)
    assert wake.rounds > 0


def test_closing_ends_the_wait_at_once() -> None:
    closing = threading.Event()
    closing.set()
    wake = Busy(rounds=1_000_000)
    await_quiet(wake, closing, pause_seconds=60.0, limit_seconds=600.0)
    assert wake.rounds > 999_000


def test_what_is_left_to_the_background_is_done_before_the_end() -> None:
    done: list[str] = []
    background = Background()
    background.later(lambda: done.append("first"))
    background.later(lambda: done.append("second"))
    background.close()
    assert done == ["first", "second"]


def test_a_job_that_waits_already_is_done_once() -> None:
    done: list[str] = []
    job = partial(done.append, "job")
    background = Background()
    try:
        background.later(job)
        background.later(job)
        background.finish()
        assert done == ["job"]
        background.later(job)
        background.finish()
        assert done == ["job", "job"]
    finally:
        background.close()


def test_a_job_that_fails_is_logged_and_keeps_none_behind_it_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    background = Background()
    background.later(lambda: [][0])
    background.later(lambda: done.append("second"))
    background.close()
    assert done == ["second"]
    assert "background work failed" in caplog.text
    assert "IndexError" in caplog.text


def test_the_background_works_unasked() -> None:
    done = threading.Event()
    background = Background()
    try:
        background.later(done.set)
        assert done.wait(60)
    finally:
        background.close()
