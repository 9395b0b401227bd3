"""Progress of commands: a bar on a terminal, lines in a log, nothing for quick work, never on stdout."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path

import pytest

from memory_core.core.progress import Stage, listening, tell, waited
from server.commands import progress_bars
from server.commands.progress_bars import Bar, LogLines, Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_log_gets_a_line_every_five_seconds_with_rate_and_time_left() -> None:
    log, clock = io.StringIO(), Clock()
    lines = LogLines(log, clock)
    for second in range(13):
        clock.now = 100.0 + second
        lines.show(Stage("importing", second * 10, 200, "files"))
    assert log.getvalue().splitlines() == [
        "importing: 50 of 200 files (10.0/s, about 15 s left)",
        "importing: 100 of 200 files (10.0/s, about 10 s left)",
    ]


def test_log_hears_of_a_wait_in_which_nothing_moves() -> None:
    log, clock = io.StringIO(), Clock()
    lines = LogLines(log, clock)
    lines.show(Stage("等待另一个写入者"))
    lines.tick()
    assert log.getvalue() == ""
    clock.now += 5
    lines.tick()
    assert log.getvalue() == "等待另一个写入者\n"


def test_quick_work_leaves_no_trace_on_a_terminal() -> None:
    terminal, clock = io.StringIO(), Clock()
    bar = Bar(terminal, clock)
    for done in range(100):
        bar.show(Stage("exporting", done, 100, "files"))
    bar.close()
    assert terminal.getvalue() == ""


def test_a_terminal_shows_a_bar_with_counts_and_is_clean_in_the_end() -> None:
    terminal, clock = io.StringIO(), Clock()
    bar = Bar(terminal, clock)
    clock.now += 1
    bar.show(Stage("exporting", 30, 120, "files"))
    bar.tick()
    drawn = terminal.getvalue().split("\r")[-1]
    assert drawn.startswith("exporting:  25% |")
    assert "30 of 120 files [00:00" in drawn
    bar.show(Stage("等待模型"))
    bar.tick()
    assert "等待模型 [00:00]" in terminal.getvalue().split("\r")[-1]
    bar.close()
    assert terminal.getvalue().split("\r")[-2].strip() == ""
    assert "\n" not in terminal.getvalue()


def test_a_wide_chinese_line_stays_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal, clock = io.StringIO(), Clock()
    bar = Bar(terminal, clock)
    clock.now += 1
    bar.show(Stage("正在为很长很长的中文内容计算向量，请稍候，马上就好，真的马上就好"))
    drawn = terminal.getvalue().split("\r")[-1]
    assert 30 <= sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in drawn) <= 40
    bar.close()


def test_what_the_library_tells_reaches_whoever_listens_and_only_then() -> None:
    heard: list[str] = []
    tell("before")
    with listening(lambda stage: heard.append(str(stage))):
        tell("copying", 3, 1200, unit="files")
        with listening(lambda stage: heard.append(f"inner {stage}")):
            tell("deeper")
    tell("after")
    assert heard == ["copying: 3 of 1,200 files", "inner deeper"]


def test_a_wait_is_told_only_when_it_is_not_over_at_once() -> None:
    heard: list[str] = []
    asked: list[float] = []

    def slow(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) > 1

    with listening(lambda stage: heard.append(stage.what)):
        assert waited(lambda _seconds: True, 10, "quick")
        assert waited(slow, 10, "slow 慢")
    assert heard == ["slow 慢"]
    assert sum(asked) == 10


@pytest.mark.parametrize("shown_at_once", [Bar, LogLines])
def test_work_goes_on_when_nobody_reads_what_is_shown_of_it(
    monkeypatch: pytest.MonkeyPatch, shown_at_once: type[Bar] | type[LogLines]
) -> None:
    monkeypatch.setattr(progress_bars, "_LOG_SECONDS", 0.0)
    monkeypatch.setattr(progress_bars, "_PATIENCE_SECONDS", 0.0)
    reading, writing = os.pipe()
    os.close(reading)
    gone = os.fdopen(writing, "w", encoding="utf-8")
    progress = Progress()
    progress._shown = shown_at_once(gone)
    with progress:
        for done in range(3):
            tell("importing", done, 3, unit="files")
    with suppress(BrokenPipeError):
        gone.close()


def test_a_command_without_stderr_works() -> None:
    script = (
        "from server.commands.progress_bars import Progress\n"
        "from memory_core.core.progress import tell\n"
        "with Progress():\n"
        "    tell('importing', 1, 2)\n"
        "print('{}')\n"
    )
    command = ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, script]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], check=False)
    assert (done.returncode, done.stdout) == (0, b"{}\n")


def test_a_command_draws_on_its_terminal_and_takes_it_away() -> None:
    script = (
        "import time\n"
        "from server.commands.progress_bars import Progress\n"
        "from memory_core.core.progress import tell\n"
        "with Progress():\n"
        "    tell('waiting for another writer 等待', None)\n"
        "    time.sleep(1.6)\n"
        "print('{}')\n"
    )
    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=follower,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        check=True,
    )
    os.set_blocking(leader, False)
    drawn = os.read(leader, 100_000).decode()
    os.close(follower)
    os.close(leader)
    assert done.stdout == b"{}\n"
    assert "waiting for another writer 等待 [00:" in drawn  # drawn while nothing moved
    assert drawn.split("\r")[-2].strip() == ""
