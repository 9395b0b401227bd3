"""Everyday turns: the list is whole, and a turn that destroys or misses something is told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bench.everyday import TURNS, Story, report

KINDS = {
    "remembering",
    "adding",
    "moving",
    "correcting",
    "contradicting",
    "forgetting",
    "asking",
    "small talk",
    "secrets",
    "projects",
    "rules",
    "undo",
}


def commit(text: str) -> dict[str, Any]:
    return {"tool": "commit_memory", "arguments": {"memory_content": text}}


def test_both_languages_have_thirty_turns_of_every_kind() -> None:
    stories = json.loads(TURNS.read_text(encoding="utf-8"))
    assert Counter(len(turns) for turns in stories.values()) == {30: 2}
    assert [{turn["kind"] for turn in turns} for turns in stories.values()] == [KINDS, KINDS]


def test_a_turn_that_destroys_an_earlier_text_fails_and_names_it(tmp_path: Path) -> None:
    find = {"tool": "find", "arguments": {"query": "Where is the spare key?"}, "pick": "cellar", "as": "key"}
    delete = {"tool": "commit_memory", "arguments": {"operations": {"delete_operations": [{"uri": "$key"}]}}}
    turns: list[dict[str, Any]] = [
        {"id": "1", "kind": "remembering", "calls": [commit("The spare key is in the cellar.")], "stands": ["cellar"]},
        {"id": "2", "kind": "correcting", "calls": [find, delete]},
        {"id": "3", "kind": "asking", "calls": [find]},
        {"id": "4", "kind": "forgetting", "calls": [commit("Ladder: garage.")], "lost": ["garage"], "kept": ["ladder"]},
    ]
    with Story(tmp_path) as story:
        played = [story.play(turn) for turn in turns]
    assert [turn.holds for turn in played] == [True, False, False, False]
    assert played[1].destroyed == ("cellar (of 1)",)
    assert played[2].failures == ("no hit holds cellar",)
    assert played[3].failures == ("still stored: garage",)
    assert "1 of 4 turns hold; texts destroyed: 1" in report(played)
