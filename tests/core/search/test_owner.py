"""The owner: known by name, one person in questions, asked about in other words than those of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import Config
from memory_core.core.memory.requests import CommitRequest, FindRequest, RetrieveRequest
from memory_core.core.search.owner import owner_names, read_question
from memory_core.runebook import Runebook, open_memory
from tests.stores import remember, words_only


@pytest.mark.parametrize(
    ("profile", "names"),
    [
        ("My name is Mira Holm. I live in Bergen.", ("Mira Holm", "Mira")),
        ("I'm Dev Raman, a teacher.", ("Dev Raman", "Dev")),
        ("The user's name is Ana de la Cruz; goes by Ani.", ("Ani", "Ana de la Cruz", "Ana")),
        ("My name is Ruth Bell.\nMy name is Ruth Okoye now.", ("Ruth Okoye", "Ruth", "Ruth Bell")),
        ("I'm happy here. I am from Berlin. I'm Vegetarian.", ()),
        ("我叫沈一鸣，在厦门工作。", ("沈一鸣", "一鸣")),
        ("姓名：李雷", ("李雷",)),
        ("我是高原，做室内设计。", ("高原",)),
        ("我是一名老师，住在北京。", ()),
        ("我是老师，住在北京。", ()),
    ],
)
def test_a_profile_names_its_owner(profile: str, names: tuple[str, ...]) -> None:
    assert owner_names(profile) == names


def test_the_owner_by_name_is_the_user_and_me() -> None:
    by_name, mine = (
        read_question(text, ("Mira Holm", "Mira")) for text in ("Where does Mira live?", "Where do I live?")
    )
    assert [told[:-1] for told in by_name.topics] == [told[:-1] for told in mine.topics]  # the last is as it was asked
    assert "where does the user live?" in map(str.casefold, by_name.ways)
    assert by_name.names == ("Mira",)


def test_a_name_is_replaced_where_it_stands_for_itself() -> None:
    read = read_question("What does Li like?", ("Li",))
    assert read.ways[1].casefold() == "what does the user like?"
    assert "like" in read.rest


@pytest.mark.parametrize(
    "text",
    ["Where does Ivo live?", "Can you tell me where she lives?", "我表姐是做什么工作的？", "I wrote this down. " * 20],
)
def test_a_question_about_others_and_a_message_are_left_as_they_are(text: str) -> None:
    read = read_question(text, ("Mira",))
    assert (read.rest, read.topics) == (text, ())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("who am I?", True),
        ("Hey, do you know who I am?", True),
        ("What do you know about me so far?", True),
        ("Tell me everything you have stored about me, please.", True),
        ("Who is Mira?", True),
        ("你知道我是谁吗？", True),
        ("你对我了解多少", True),
        ("你记住了哪些关于我的事情？", True),
        ("介绍一下我", True),
        ("Who am I meeting tomorrow?", False),
        ("What do you know about my wife?", False),
        ("Who is the user's boss?", False),
        ("Tell me about Ivo.", False),
        ("What did I say about me and Ivo moving?", False),
        ("我是谁的徒弟？", False),
        ("我的资料放在哪里？", False),
        ("你知道我喜欢什么吗？", False),
    ],
)
def test_a_question_about_the_whole_person_is_known(text: str, whole: bool) -> None:
    assert read_question(text, ("Mira Holm", "Mira")).whole is whole


@pytest.mark.parametrize(
    "asked", ["who am I?", "what do you know about me?", "我是谁", "你了解我什么？", "Who is Mira?"]
)
def test_who_somebody_is_the_profile_says_first(tmp_path: Path, asked: str) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        remember(memory, "My name is Mira Holm, a nurse.", "profile")
        remember(memory, "“Who am I” is a film, 《我是谁》, what do you know about me?", "notes")
        hits = memory.find(FindRequest(asked)).hits
        assert hits[0].uri == memory.retriever.profile_uri
        assert [hit.uri for hit in hits].count(memory.retriever.profile_uri) == 1
        elsewhere = memory.find(FindRequest(asked, filter={"memory_type": "notes"})).hits
        assert memory.retriever.profile_uri not in {hit.uri for hit in elsewhere}
        assert len(memory.find(FindRequest(asked, limit=1)).hits) == 1


FACTS = (
    "Rents a flat in Tampere.",
    "Married to Piotr.",
    "任职于海岳建筑。",
    "确诊甲减，要定期复查。",
    "Reachable at +48 600 100 200 by phone.",
    "Two sons: Olek and Jan.",
)
ASKED = (
    ("Where do I live now?", 0),
    ("我现在住在哪里？", 0),
    ("who is my husband?", 1),
    ("我爱人叫什么？", 1),
    ("what's my job?", 2),
    ("我在哪上班？", 2),
    ("do I have any medical conditions?", 3),
    ("怎么联系我？", 4),
    ("我孩子叫什么名字？", 5),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path_factory.mktemp("owner"))) as opened:
        remember(opened, "My name is Mira Holm.", "profile")
        for fact in (*FACTS, "Tries to live more healthily.", "The home page loads slowly.", "工作日志写在本子上。"):
            remember(opened, fact, "facts")
        yield opened


@pytest.mark.parametrize(("asked", "fact"), ASKED)
def test_what_people_ask_of_themselves_is_found_in_other_words(store: Runebook, asked: str, fact: int) -> None:
    assert FACTS[fact] in [hit.abstract for hit in store.find(FindRequest(asked)).hits[:2]]


def test_one_word_in_common_is_no_full_match_where_meaning_denies_it(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        remember(memory, "Tries to live more healthily and to sleep early.", "facts")
        remember(memory, "Ivo moved to a house in Odense.", "facts")
        asked = memory.find(FindRequest("where does he live?"))
        assert all(hit.why["lexical"] < 1.0 for hit in asked.hits if "healthily" in hit.abstract)
        key_word = memory.find(FindRequest("Odense"))
        assert [hit.why["lexical"] for hit in key_word.hits] == [1.0]


def test_a_title_that_is_put_as_the_question_is_found(memory: Runebook) -> None:
    remember(memory, "Hauptstrasse 5, third floor.", "notes", title="Where we live")
    assert memory.find(FindRequest("where we live")).total == 1


def test_names_of_the_settings_are_shown_and_are_the_user(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, owner_names=("Mira Holm",))) as memory:
        remember(memory, "I rent a flat in Tampere.", "facts")
        assert "Mira Holm" in memory.retrieve(RetrieveRequest("a poem", session_id="s")).text
        assert memory.find(FindRequest("Where does Mira Holm live?")).hits
        brief = (
            memory.commit(CommitRequest(messages=[{"role": "user", "content": "hi"}], session_id="t", brief=True)).brief
            or ""
        )
        assert "The owner of this memory is Mira Holm" in brief
        remember(memory, "My name is Mira Holm.", "profile")
        assert memory.retrieve(RetrieveRequest("a poem", session_id="u")).text.count("Mira Holm") == 1
