"""A plain write adds: nothing that stands there goes, and what is new is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_core.core.commit.additions import beside, missing, with_added
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.text.analysis import distinct_words
from memory_core.runebook import Runebook, open_memory
from tests.stores import body, only, replaced, trailer, words_only

PROFILE = "viking://user/default/memories/profile.md"
COFFEE = "viking://user/default/memories/preferences/Coffee.md"


@pytest.mark.parametrize(
    ("standing", "said", "both"),
    [
        (
            "My name is Lena, a nurse in Graz.",
            "I am left-handed.",
            "My name is Lena, a nurse in Graz.\nI am left-handed.",
        ),
        ("我叫李雷。", "我对花生过敏。", "我叫李雷。\n我对花生过敏。"),
        ("- Tea\n- Coffee", "No sugar in anything.", "- Tea\n- Coffee\n- No sugar in anything."),
        ("* 茶", "* 茶\n* 咖啡", "* 茶\n* 咖啡"),
        ("Likes tea.", "likes  TEA", "Likes tea."),
        ("Likes tea. Hates milk.", "Hates milk!", "Likes tea. Hates milk."),
        ("Likes tea.", "Likes tea. Hates milk.", "Likes tea. Hates milk."),
        ("Rent is 900 EUR.", "Rent is 950 EUR.", "Rent is 900 EUR.\nRent is 950 EUR."),
        (
            "My landlord is Mr. Jones.",
            "My landlord is Mr. Smith.",
            "My landlord is Mr. Jones.\nMy landlord is Mr. Smith.",
        ),
        ("I do not\nlike tea", "Like tea", "I do not\nlike tea\nLike tea"),
        ("# Food\n\nSoup.", "# Food\n\nBread.", "# Food\n\nSoup.\n\nBread."),
        ("Run it.", "Run it.\n\n```sh\nmake\n```", "Run it.\n\n```sh\nmake\n```"),
        ("🎉", "🎊", "🎉\n🎊"),
        ("port: 8080", "port: 8081", "port: 8080\n\nport: 8081"),
        ("Repo: src/a_b.", "Repo: src/a-b.", "Repo: src/a_b.\nRepo: src/a-b."),
    ],
)
def test_what_is_new_comes_below_and_what_was_said_comes_once(standing: str, said: str, both: str) -> None:
    assert with_added(standing, said) == both
    assert with_added(both, said) == both
    assert missing(standing, both) == ()


def test_labels_stand_side_by_side() -> None:
    assert with_added("person", "colleague", label=True) == "person, colleague"
    assert (
        with_added("A long account of a person.", "colleague", label=True) == "A long account of a person.\n\ncolleague"
    )


def test_what_may_no_longer_hold_is_named() -> None:
    assert beside("I live in Graz. I like tea.", "I live in Berlin.") == ("I live in Graz.",)
    assert beside("I eat meat.", "I do not eat meat.") == ("I eat meat.",)
    assert beside("I live in Graz.", "My sister plays chess.") == ()


def test_a_plain_commit_adds_to_the_profile_and_shows_it(memory: Runebook) -> None:
    memory.commit(CommitRequest("My name is Lena, a nurse in Graz.", memory_type="profile"))
    receipt = memory.commit(CommitRequest("I am left-handed.", memory_type="profile"))
    assert only(receipt).action is Action.UPDATED
    assert only(receipt).now == body(memory, PROFILE) == "My name is Lena, a nurse in Graz.\nI am left-handed."
    assert only(receipt).went is None
    again = memory.commit(CommitRequest("i am left-handed", memory_type="profile"))
    assert (again.status, only(again).action) == (Status.UNCHANGED, Action.UNCHANGED)


def test_a_second_preference_of_a_topic_joins_the_first_and_a_contradiction_is_told(memory: Runebook) -> None:
    memory.commit(CommitRequest("Drinks coffee black.", memory_type="preferences", fields={"topic": "Coffee"}))
    receipt = memory.commit(
        CommitRequest("Drinks coffee with milk now.", memory_type="preferences", fields={"topic": "coffee"})
    )
    assert body(memory, COFFEE) == "Drinks coffee black.\nDrinks coffee with milk now."
    assert "'Drinks coffee black.'; if that no longer holds" in (only(receipt).note or "")


def hand_in(memory: Runebook, content: str, **more: object) -> CommitReceipt:
    data = {"memory_type": "preferences", "fields": {"topic": "Coffee", "content": content}, **more}
    return memory.commit(CommitRequest(operations={"write_operations": [{"memory_data": data}]}))


def test_a_handed_in_write_that_would_drop_text_is_refused_with_the_edit_that_keeps_it(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black. 不加糖。")
    refused = only(hand_in(memory, "Two cups a day."))
    assert refused.action is Action.REJECTED
    assert "Drinks coffee black. 不加糖。" in (refused.reason or "")
    hint = refused.hint or ""
    edit = hint[hint.index("{") : hint.rindex("}") + 1]
    memory.commit(CommitRequest(operations=json.loads(edit)))
    assert body(memory, COFFEE) == "Drinks coffee black. 不加糖。\nTwo cups a day."


def test_a_handed_in_write_that_says_it_all_and_more_is_taken(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black.")
    assert only(hand_in(memory, "Drinks coffee black. Two cups a day.")).action is Action.UPDATED
    assert only(hand_in(memory, "Two cups a day.")).action is Action.UNCHANGED


def test_what_is_replaced_on_purpose_is_quoted(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black. Two cups a day.")
    result = only(replaced(memory, "preferences", "Drinks tea.", topic="Coffee"))
    assert (result.now, result.went) == ("Drinks tea.", "Drinks coffee black. Two cups a day.")
    edit = {"uri": COFFEE, "patches": {"content": "Drinks water."}}
    result = only(memory.commit(CommitRequest(operations={"edit_operations": [edit]})))
    assert (result.now, result.went) == ("Drinks water.", "Drinks tea.")


def test_tags_join_those_that_are_there(memory: Runebook) -> None:
    hand_in(memory, "Black.", tags=["drinks"])
    hand_in(memory, "Black.", tags=["morning", "drinks"])
    assert trailer(memory, COFFEE)["tags"] == ["drinks", "morning"]


WORDS = st.sampled_from(
    [
        "I",
        "live",
        "in",
        "Graz",
        "work",
        "Berlin",
        "tea",
        "not",
        "milk",
        "喜欢",
        "咖啡",
        "不",
        "住在",
        "上海",
        "7",
        "8",
        "e.g.",
        "Dr.",
        "ok?",
        "-",
        "#",
        "*",
        "🎉",
    ]
)
LINES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=4).flatmap(
    lambda lines: st.sampled_from(["\n", "\n\n", ". ", "。", "\n- "]).map(lambda mark: mark.join(lines))
)
STEPS = st.lists(
    st.tuples(
        st.booleans(), st.sampled_from(["profile", "preferences"]), TEXTS.filter(lambda text: bool(text.strip()))
    ),
    min_size=2,
    max_size=6,
)


@given(STEPS)
@settings(max_examples=60)
def test_no_word_of_an_earlier_write_disappears(tmp_path_factory: pytest.TempPathFactory, steps: object) -> None:
    home: Path = tmp_path_factory.mktemp("store")
    said: dict[str, set[str]] = {PROFILE: set(), COFFEE: set()}
    with open_memory(words_only(home)) as memory:
        for explicit, kind, text in steps:  # type: ignore[attr-defined]
            fields = {"content": text} | ({"topic": "Coffee"} if kind == "preferences" else {})
            write = {"memory_data": {"memory_type": kind, "fields": fields}}
            request = (
                CommitRequest(memory_type=kind, fields=fields)
                if explicit
                else CommitRequest(operations={"write_operations": [write]})
            )
            result = only(memory.commit(request))
            uri = PROFILE if kind == "profile" else COFFEE
            if result.action is not Action.REJECTED:
                said[uri] |= distinct_words(text)
            stands = distinct_words(body(memory, uri)) if said[uri] else set()
            assert said[uri] <= stands
