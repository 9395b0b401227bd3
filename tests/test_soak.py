"""The soak in its short form; ``python -m bench.soak --minutes 30`` is the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import soak
from bench.soak_journal import Committed, Edited, Journal, entries
from bench.soak_proof import prove
from memory_core.core.config import load
from memory_core.core.memory.requests import CommitRequest
from memory_core.runebook import open_memory

OPTIONS = ("--set", "embedding.provider=none")
FACT = "viking://user/default/memories/facts/猫.md"
NOTE = "viking://user/default/memories/notes/by hand.md"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds and pauses processes as Linux does")


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_while_processes_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--minutes", "0.4", "--seed", "7", "--kills-per-minute", "60", "--damage-seconds", "8"]
    code = soak.main([*options, "--home", str(tmp_path / "soak")])
    said = capsys.readouterr().out
    assert code == 0, said
    assert " 0 violations" in said


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A small store and its journal, both right."""
    home = tmp_path / "home"
    journal = Journal(tmp_path / "journal.jsonl")
    with open_memory(load(flags={"home": str(home), "embedding.provider": "none"})) as memory:
        body = "Shelf 1 of hall 2 holds zqbbbbbb lamps."
        receipt = memory.commit(CommitRequest(body, memory_type="facts", fields={"topic": "猫"}, request_id="soak-1"))
        journal.write(Committed(receipt.commit_id, "soak-1", FACT, body))
    note = home / "user" / "default" / "memories" / "notes" / "by hand.md"
    note.parent.mkdir()
    note.write_text("第3号架子上放着琥珀蜻蜓琉璃牌灯泡。\n", encoding="utf-8")
    journal.write(Edited(NOTE, "第3号架子上放着琥珀蜻蜓琉璃牌灯泡。\n", "created"))
    journal.close()
    return tmp_path


def violations(place: Path) -> list[str]:
    found, _ = prove(place / "home", place / "journal.jsonl", OPTIONS)
    return [line for line in found if "request" not in line and not line.startswith("doctor")]


def test_a_store_that_holds_what_the_journal_says_passes(place: Path) -> None:
    assert violations(place) == []


def test_a_lost_memory_a_lost_hand_edit_and_a_commit_that_history_does_not_know_are_violations(place: Path) -> None:
    path = place / "home" / "user" / "default" / "memories" / "facts" / "猫.md"
    path.write_text(path.read_text(encoding="utf-8").replace("lamps", "ropes"), encoding="utf-8")
    (place / "home" / "user" / "default" / "memories" / "notes" / "by hand.md").unlink()
    journal = Journal(place / "journal.jsonl")
    unknown = FACT.replace("猫", "狗")
    journal.write(Committed("20260101T000000-00000000", "soak-2", unknown, "Shelf 2 of hall 2 holds zqcccccc ropes."))
    journal.close()
    found = violations(place)
    assert any("instead of" in line and "lamps" in line and FACT in line for line in found)
    assert any("edited by hand" in line for line in found)
    assert any("20260101T000000-00000000" in line for line in found)
    assert any("zqcccccc" in line and unknown in line for line in found)


def test_a_torn_last_line_of_the_journal_is_left_out(place: Path) -> None:
    path = place / "journal.jsonl"
    path.write_bytes(path.read_bytes() + '{"kind": "Committed", "commit_id": "猫'.encode()[:-1])
    assert len(list(entries(path))) == 2
