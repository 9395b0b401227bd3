"""What ``forget`` and ``purge`` ask a person at a terminal, and that what is done is what was confirmed."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from server.cli import main
from tests.server.command_line import Run, facts

NOTES = "viking://user/default/memories/notes"


class Terminal:
    """A terminal at which a person answers each question after a look at what is shown."""

    def __init__(self, answer: Callable[[], str]) -> None:
        self._answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return f"{self._answer()}\n"


def test_the_commit_that_was_confirmed_is_purged_and_no_newer_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = facts(run("commit", "The door code is 4711.", "--json"))["commit_id"]

    def confirmed() -> str:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO())
            assert main(["commit", "Roses need water."]) == 0
        return str(first)

    monkeypatch.setattr(sys, "stdin", Terminal(confirmed))
    assert main(["purge", "--commit", "last"]) == 0
    assert "The door code is 4711" in capsys.readouterr().err
    listed = run("ls", NOTES)[1]
    assert ("Roses" in listed, "4711" in listed) == (True, False)


def test_forgetting_prints_one_json_document_and_asks_nobody_for_a_script_at_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("commit", "The door code is 4711.")
    monkeypatch.setattr(sys, "stdin", Terminal(lambda: "1"))
    assert main(["forget", "door code", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert "run the same with --yes" in shown["notes"][0]
    assert "4711" in run("ls", NOTES)[1]
