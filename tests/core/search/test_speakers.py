"""Whom a question means: names, parts of names, near spellings, nicknames; and names that nobody knows."""

from __future__ import annotations

import pytest

from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.search.speakers import addressed, addressing, named_speakers, people_in
from memory_core.runebook import Runebook
from tests.stores import remember


def nobody(_name: str) -> None:
    return None


@pytest.mark.parametrize(
    ("question", "meant"),
    [
        ("what does Fahim Khan play", {"Fahim Khan"}),
        ("what does Fahim play", {"Fahim Khan"}),
        ("Where did Elisa go?", {"elise"}),
        ("what do Fahim and Elise share", {"Fahim Khan", "elise"}),
        ("where does Ann live", set()),  # Ann Lee or Ann Wu
        ("where does Ann Wu live", {"Ann Wu"}),
        ("what did the user say to the assistant", set()),
        ("Where did Elsewhere go?", set()),
        ("李小明喜欢什么", {"李小明"}),
    ],
)
def test_a_speaker_is_meant_where_only_one_fits(question: str, meant: set[str]) -> None:
    speakers = {"Fahim Khan", "elise", "Ann Lee", "Ann Wu", "user", "assistant", "李小明"}
    assert named_speakers(question, speakers, nobody) == meant


def test_a_nickname_is_learnt_from_how_others_address_somebody() -> None:
    turns = [("s1", "Elise", "Elise: Hi Kate, how are you?"), ("s2", "Elise", "Elise: Thanks, Kate!")]
    turns.append(("s2", "Emi", "Emi: I told Kate Bush's story."))
    present = {"s1": {"Emi", "Elise"}, "s2": {"Emi", "Elise"}}
    assert addressed(addressing("Kate", turns), present) == "Emi"
    assert addressed(addressing("Kate", turns[1:]), present) is None  # once is no habit
    assert addressed(addressing("Kate", turns), {"s1": {"Emi", "Elise", "Tom"}, "s2": {"Elise"}}) is None


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("Where did Kevin meet Paola?", ["Kevin", "Paola"]),
        ("What did I do in May?", []),
        ("Kevin's hobbies", []),
        ("Wann war Anna in Wien?", []),
        ("what is the capital", []),
    ],
)
def test_names_are_read_in_english_questions_only(question: str, named: list[str]) -> None:
    assert people_in(question) == named


def told(memory: Runebook, session: str, *turns: tuple[str, str]) -> None:
    messages = [{"role": "user", "name": name, "content": text} for name, text in turns]
    memory.commit(CommitRequest(messages=messages, session_id=session, extract=False))


def test_who_is_meant_by_a_nickname_comes_first(memory: Runebook) -> None:
    told(memory, "s1", ("Elise", "Hi Kate!"), ("Emi", "I teach yoga in the evening."), ("Elise", "I love yoga."))
    told(memory, "s2", ("Elise", "Thanks Kate, yoga it is."))
    told(memory, "s2", ("Emi", "See you at yoga then, in the old hall."))
    hits = memory.find(FindRequest("What does Kate think of yoga?")).hits
    assert [hit.why.get("speaker") for hit in hits[:2]] == [1.0, 1.0]
    assert all("Emi:" in hit.abstract for hit in hits[:2])


def test_a_question_about_people_of_whom_nobody_spoke_finds_nothing(memory: Runebook) -> None:
    told(memory, "s1", ("Emi", "I bought a red bicycle on Monday."), ("Elise", "Which shop sells them?"))
    assert memory.find(FindRequest("What did Kevin buy?")).hits == ()
    assert memory.find(FindRequest("What did Emi buy?")).hits
    assert memory.find(FindRequest("What did I buy?")).hits


def test_what_i_said_comes_before_what_the_assistant_answered(memory: Runebook) -> None:
    talk = [
        {"role": "user", "content": "The sprint deadline of my project is 28 March."},
        {"role": "assistant", "content": "A sprint deadline of a project is best put in the calendar."},
    ]
    memory.commit(CommitRequest(messages=talk, session_id="s1", extract=False))
    mine = memory.find(FindRequest("when is the sprint deadline of my project")).hits
    assert [hit.why.get("speaker", 0.0) for hit in mine] == [1.0, 0.0]
    yours = memory.find(FindRequest("where did you tell me to put the sprint deadline of my project")).hits
    assert not any(hit.why.get("speaker") for hit in yours)


def test_the_best_candidate_leads_to_what_shares_its_rare_words(memory: Runebook) -> None:
    notes = ["我表姐特别爱好摄影。", "我上司的邮箱是 wang@example.com。", "我表姐的邮箱是 lisi@example.com。"]
    notes += [f"我的同事第{number}天去爬山。" for number in range(20)]
    for note in notes:
        remember(memory, note)
    hits = memory.find(FindRequest("那个爱好摄影的人，他的邮箱是多少")).hits
    assert {hit.abstract for hit in hits[:2]} == {notes[0], notes[2]}
    both = memory.find(FindRequest("邮箱是多少")).hits
    assert sorted(hit.abstract for hit in both) == sorted(notes[1:3])


def test_a_question_of_the_past_is_answered_by_what_was_so(memory: Runebook) -> None:
    remember(memory, "We deploy the shop with Jenkins.", "facts", topic="old")
    change = "We no longer deploy the shop with Jenkins; we moved to GitLab."
    remember(memory, change, "facts", topic="new")

    def best(question: str) -> str:
        return memory.find(FindRequest(question)).hits[0].uri.rpartition("/")[2]

    assert best("what do we deploy the shop with") == "new.md"
    assert best("what did we use to deploy the shop with before") == "old.md"
    assert best("we previously deployed the shop with") == "old.md"
