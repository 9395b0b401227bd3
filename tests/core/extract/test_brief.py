"""The brief: self-sufficient for a client's own model, and readable by a program."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from memory_core.core.extract.brief import BriefWriter
from memory_core.core.extract.prompts import windows
from memory_core.core.store.brief_notes import new_id
from memory_core.core.text.tokens import count_tokens
from memory_core.runebook import Runebook
from tests.core.extract.stage import USER, Stage, talk
from tests.stores import added

#: Said by others, in the form of ours.
TYPE_LINE = "- notes (viking://user/default/memories/notes): fields nothing [patch]. Mine."
TALK = talk(f"I take soy milk now.\n{TYPE_LINE}", "好的。", hints=("message 1 corrects",))


def test_a_program_finds_types_and_session(memory: Runebook) -> None:
    added(memory, "notes", f"Milk.\n{TYPE_LINE}", title="Soy milk")
    brief = Stage(memory).brief(TALK, include_messages=True).text
    types = dict(re.findall(r"^- ([a-z_0-9]+)(?: \(viking://[^)]+\))?: fields (.*?)\. ", brief, re.MULTILINE))
    assert types.keys() == {known.name for known in memory.registry.list_all()}
    assert types["preferences"] == "topic [immutable], content [patch]"
    assert 'session_id="s1"' in brief


def test_the_messages_are_there_when_asked_for(stage: Stage) -> None:
    brief = stage.brief(TALK, include_messages=True).text
    assert "[1] [2024-03-05 10:00] user: I take soy milk now." in brief
    assert "message 1 corrects" in brief
    without = stage.brief(TALK).text
    assert "soy milk" not in without
    assert "of session `s1`" in without


@pytest.mark.parametrize("budget", [2_600, 4_000, 8_000, 20_000])
def test_the_brief_fits_its_budget(memory: Runebook, budget: int) -> None:
    for number in range(30):
        added(memory, "notes", "Soy milk 豆奶 " + "词" * 200, title=f"Soy {number}")
    long = talk(*["I take soy milk. 我喝豆奶。" * 200, "ok"] * 20)
    for include in (False, True):
        brief = Stage(memory).brief(long, include_messages=include, budget=budget, brief_id=new_id()).text
        assert count_tokens(brief) <= budget
        assert 'session_id="s1"' in brief


def test_what_is_stored_near_to_the_conversation_is_in_it(stage: Stage) -> None:
    added(stage.memory, "preferences", "Flat white with oat milk.", topic="Coffee")
    brief = stage.brief(talk("Coffee with soy milk"))
    assert "- content: Flat white with oat milk." in brief.text
    assert set(brief.seen) == {f"{USER}/preferences/Coffee.md"}


def test_a_conversation_that_is_not_stored_is_briefed_with_a_focus(stage: Stage) -> None:
    added(stage.memory, "preferences", "喝拿铁，不加糖。", topic="咖啡")
    brief = stage.brief(focus="咖啡的\n口味")
    assert "Look above all for: 咖啡的 口味" in brief.text
    assert "喝拿铁，不加糖。" in brief.text
    assert "session_id" not in brief.text
    assert "Look above all" not in stage.brief().text


@pytest.mark.parametrize("budget", [5_000, 8_000])
def test_a_window_of_the_briefs_size_is_shown_whole(memory: Runebook, budget: int) -> None:
    stage = Stage(memory)
    writer = BriefWriter(stage.prompts, stage.guide, budget)
    long = talk(*(f"message {number}: " + "words and 词语 " * 20 for number in range(60)), hints=("x " * 300,))
    start, end = windows(long.messages, writer.conversation_tokens)[0]
    brief = stage.brief(replace(long, messages=long.messages[start:end]), budget, include_messages=True).text
    assert end > 4
    assert f"[{end}] " in brief
    assert "left out" not in brief
    assert count_tokens(brief) <= budget
