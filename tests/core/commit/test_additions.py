"""A plain write adds: nothing that stands there goes, and what is new is there once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import TextContent

from memory_core.core.commit.additions import beside, missing, with_added
from memory_core.core.commit.plan import _stands
from memory_core.core.config import LimitsConfig
from memory_core.core.memory.memory import parse_as
from memory_core.core.memory.memory_type import (
    FieldType,
    MemoryField,
    MemoryType,
    MemoryTypeRegistry,
    MergeOp,
    builtin_schema_dir,
)
from memory_core.core.memory.names import key_of, short_hash
from memory_core.core.memory.requests import CommitRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, Status
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.text.analysis import distinct_words
from memory_core.runebook import Runebook, open_memory
from server.rendering import receipt_result
from tests.stores import added, body, edit, handed_in, note, only, replaced, trailer, words_only, write

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
        (
            "## Staging\n\n- port 8080",
            "## Production\n\n- port 8080",
            "## Staging\n\n- port 8080\n\n## Production\n\n- port 8080",
        ),
        ("## Monday\n- gym", "## Tuesday\n- gym\n- coffee", "## Monday\n- gym\n\n## Tuesday\n- gym\n- coffee"),
        (
            "Open.\n\n# Ports\n\n- 8080",
            "# Hosts\n\n## Ports\n\n- 8080\n\n# Ports\n\n- 8080\n- 9090",
            "Open.\n\n# Ports\n\n- 8080\n\n# Hosts\n\n## Ports\n\n- 8080\n\n# Ports\n\n- 9090",
        ),
        ("Monday:\n- gym", "Tuesday:\n- gym\n- coffee", "Monday:\n- gym\n\nTuesday:\n- gym\n- coffee"),
        ("周一：\n1. 健身", "周二：\n1. 健身", "周一：\n1. 健身\n\n周二：\n1. 健身"),
        ("- Monday\n  - gym", "- Tuesday\n  - gym\n- gym", "- Monday\n  - gym\n- Tuesday\n  - gym"),
        ("- Tea\n- Coffee", "No sugar.\n- Tea", "- Tea\n- Coffee\n- No sugar."),
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
    added(memory, "profile", "My name is Lena, a nurse in Graz.")
    receipt = added(memory, "profile", "I am left-handed.")
    assert only(receipt).action is Action.UPDATED
    assert only(receipt).now == body(memory, PROFILE) == "My name is Lena, a nurse in Graz.\nI am left-handed."
    assert only(receipt).went is None
    again = added(memory, "profile", "i am left-handed")
    assert (again.status, only(again).action) == (Status.UNCHANGED, Action.UNCHANGED)


def test_a_second_preference_of_a_topic_joins_the_first_and_a_contradiction_is_told(memory: Runebook) -> None:
    added(memory, "preferences", "Drinks coffee black.", topic="Coffee")
    receipt = added(memory, "preferences", "Drinks coffee with milk now.", topic="coffee")
    assert body(memory, COFFEE) == "Drinks coffee black.\nDrinks coffee with milk now."
    assert "'Drinks coffee black.'; if that no longer holds" in (only(receipt).note or "")


def hand_in(memory: Runebook, content: str, **more: object) -> CommitReceipt:
    data = {"memory_type": "preferences", "fields": {"topic": "Coffee", "content": content}, **more}
    return handed_in(memory, write=[{"memory_data": data}])


@pytest.mark.parametrize(
    ("memory_type", "key", "field", "standing", "more"),
    [
        ("preferences", {"topic": "Coffee"}, "content", "Drinks coffee black. 不加糖。", "Two cups a day."),
        ("preferences", {"topic": "Coffee"}, "content", 'One\r\nTwo “so” "so"\r\nOne', "Three\r\nFour"),
        ("preferences", {"topic": "Coffee"}, "content", "the same\nthe same", "no SEARCH\n- a\n- b"),
        ("preferences", {"topic": "Coffee"}, "content", "One line. " * 3_000 + "你好", "再见\u2028{}"),
        ("preferences", {"topic": "Coffee"}, "content", "## Work\n\n- black", "## Home\n\n- black"),
        ("preferences", {"topic": "Coffee"}, "content", "<!-- MEMORY_FIELDS\n{}\n-->", "MEMORY_FIELDS -->"),
        ("cases", {"case_name": "A → B"}, "solution", "Prune the cache.\nRestart.", "Restart it twice."),
        ("tools", {"tool_name": "grep"}, "guidelines", "## Guidelines\n\n- a", "## Guidelines\n\n- b\n\n### Bad Cases"),
    ],
)
def test_a_handed_in_write_that_would_drop_text_is_refused_with_the_edit_that_keeps_it(
    memory: Runebook, memory_type: str, key: dict[str, str], field: str, standing: str, more: str
) -> None:
    uri = only(handed_in(memory, write=[write(memory_type, **key, **{field: standing})])).uri
    refused = handed_in(memory, write=[write(memory_type, **key, **{field: more})])
    assert only(refused).action is Action.REJECTED
    assert standing[:20].split("\r")[0] in (only(refused).reason or "").replace("\\n", "\n")
    assert only(take_up(memory, _text_of(refused))).action is Action.UPDATED
    stored = parse_as(MemoryUri.parse(uri), memory.read(ReadRequest(uri)).content, memory.registry.get(memory_type))
    assert str(stored.fields[field]).replace("\r", "") == with_added(standing, more).replace("\r", "")


def _text_of(receipt: CommitReceipt) -> str:
    """A receipt as a client's model is shown it."""
    (content,) = receipt_result(receipt).content
    assert isinstance(content, TextContent)
    return content.text


def take_up(memory: Runebook, shown: str) -> CommitReceipt:
    """What comes of the edit that a refusal shows ready-made."""
    edit, _ = json.JSONDecoder().raw_decode(shown, shown.index('{"edit'))
    return memory.commit(CommitRequest(operations=edit))


def test_what_is_too_long_for_an_edit_is_kept_by_a_plain_commit(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black.")
    told = _text_of(hand_in(memory, "Two cups a day. " * 300))
    assert "characters left out" not in told.partition("Next:")[2]
    assert 'commit it without operations, which adds: memory_type \'preferences\', fields {"topic": "Coffee"}' in told
    added(memory, "preferences", "Two cups a day.", topic="Coffee")
    assert body(memory, COFFEE) == "Drinks coffee black.\nTwo cups a day."


def test_one_edit_keeps_the_texts_of_all_fields(memory: Runebook) -> None:
    for number in (1, 2):
        texts = {name: f"{name} number {number} is a sentence." for name in ("best_for", "recommendation")}
        receipt = handed_in(memory, write=[write("tools", tool_name="grep", **texts)])
    told = _text_of(receipt)
    assert told.count('{"edit_operations"') == 1
    now = body(memory, only(take_up(memory, told)).uri)
    assert [f"{name} number {n}" in now for name in ("best_for", "recommendation") for n in (1, 2)] == [True] * 4


def test_a_handed_in_write_that_says_it_all_and_more_is_taken(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black.")
    assert only(hand_in(memory, "Drinks coffee black. Two cups a day.")).action is Action.UPDATED
    assert only(hand_in(memory, "Two cups a day.")).action is Action.UNCHANGED


def test_a_label_that_another_joins_did_not_go(memory: Runebook) -> None:
    for solution in ("make ship", "make release"):
        receipt = added(memory, "cases", case_name="Deploy", content="Deploy by make.", solution=solution)
    assert "make ship, make release" in (only(receipt).now or "")
    assert only(receipt).went is None


def test_what_is_replaced_on_purpose_is_quoted(memory: Runebook) -> None:
    hand_in(memory, "Drinks coffee black. Two cups a day.")
    result = only(replaced(memory, "preferences", "Drinks tea.", topic="Coffee"))
    assert (result.now, result.went) == ("Drinks tea.", "Drinks coffee black. Two cups a day.")
    result = only(handed_in(memory, edit=[edit(COFFEE, content="Drinks water.")]))
    assert (result.now, result.went) == ("Drinks water.", "Drinks tea.")


def test_a_very_long_sentence_is_looked_for_in_a_very_long_text(tmp_path: Path) -> None:
    limits = LimitsConfig(content_bytes=8_000_000, commit_bytes=16_000_000)
    with open_memory(words_only(tmp_path, limits=limits)) as memory:
        sentence = "-" * 250_000 + "ax"
        handed_in(memory, write=[write("preferences", topic="Coffee", content=sentence)])
        longer = "z " + "-" * 900_000 + f"\n\n{sentence}b"
        result = only(handed_in(memory, edit=[edit(COFFEE, content=longer)]))
        assert result.went is not None
        assert result.went.startswith("---")


TALK = st.lists(st.sampled_from(["a", "b", " ", "-", "_", "é", "中", "²", "."]), max_size=12).map("".join)


@given(before=TALK, words=TALK.filter(bool), after=TALK)
def test_a_sentence_stands_where_no_letter_touches_it(before: str, words: str, after: str) -> None:
    text = before + words + after
    places = [at for at in range(len(text)) if text.startswith(words, at)]
    touched = [re.match(r"\w", text[at - 1 : at]) or re.match(r"\w", text[at + len(words) :]) for at in places]
    assert _stands(words, text) == (not all(touched))


def test_what_a_text_said_many_times_is_quoted_once(memory: Runebook) -> None:
    hand_in(memory, "Tea.\n" * 200 + "Two cups a day.")
    result = only(replaced(memory, "preferences", "Drinks water.", topic="Coffee"))
    assert result.went == "Tea. Two cups a day."


def test_tags_join_those_that_are_there(memory: Runebook) -> None:
    hand_in(memory, "Black.", tags=["drinks"])
    hand_in(memory, "Black.", tags=["morning", "drinks"])
    assert trailer(memory, COFFEE)["tags"] == ["drinks", "morning"]


WORDS = st.sampled_from(
    [
        *("I", "live", "in", "Graz", "work", "Berlin", "tea", "not", "milk", "喜欢", "咖啡", "不", "住在", "上海"),
        *("7", "8", "e.g.", "Dr.", "ok?", "-", "#", "*", "🎉"),
    ]
)
LINES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
TEXTS = st.lists(LINES, min_size=1, max_size=4).flatmap(
    lambda lines: st.sampled_from(["\n", "\n\n", ". ", "。", "\n- "]).map(lambda mark: mark.join(lines))
)
#: Spellings of one name, and of another.
NAMES = st.sampled_from(["Coffee", "coffee", "ＣＯＦＦＥＥ", "支付 → 重试", "支付 → 重试 "])
TYPES = MemoryTypeRegistry()
TYPES.load_from_dir(builtin_schema_dir())


def adds_text(declared: MemoryField) -> bool:
    """Whether a field is text that writes add to; sums add up, and what is replaced by its merge operation is apart."""
    return declared.type is FieldType.STRING and declared.merge_op is MergeOp.PATCH


def test_words_of_any_length_are_looked_for_without_a_pattern_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped: list[int] = []
    escape = re.escape

    def count(words: str) -> str:
        escaped.append(len(words))
        return escape(words)

    monkeypatch.setattr(re, "escape", count)
    sentence = "长" * 100_000
    assert _stands(sentence, f"a {sentence}, b")
    assert not _stands(f"b{sentence}", f"ab{sentence}")
    assert not _stands(sentence, "长")
    assert not _stands("tea", "team")
    assert max(escaped) < 100


@pytest.mark.parametrize(
    ("standing", "given"),
    [("`rm -r`", "`rm r`"), ("run --force", "run force"), ("A & B", "A | B"), ("5 mW power", "5 MW power")],
)
def test_marks_that_tell_two_texts_apart_make_the_second_one_new(standing: str, given: str) -> None:
    assert with_added(standing, given).split() == [*standing.split(), *given.split()]
    assert with_added(given, standing).split() == [*given.split(), *standing.split()]


@st.composite
def fields_of(draw: st.DrawFn, memory_type: MemoryType) -> dict[str, Any]:
    """Fields of a type: texts, counts, a state, and a name under the key or under the one that people give it."""
    given: dict[str, Any] = {}
    for declared in memory_type.fields:
        if declared.format == "date":
            given |= draw(st.sampled_from([{}, {declared.name: "2026-01-02"}, {declared.name: "2026-01"}]))
        elif declared.name in memory_type.key_fields:
            given[draw(st.sampled_from([declared.name, declared.name, "name"]))] = draw(NAMES)
        elif adds_text(declared) and draw(st.integers(0, 3)):
            given[declared.name] = draw(TEXTS)
        elif declared.merge_op is MergeOp.SUM:
            given |= draw(st.sampled_from([{}, {declared.name: 2}]))
        elif declared.name == "state":
            given |= draw(st.sampled_from([{}, {"state": "open"}, {"state": "done"}]))
    return given


@pytest.mark.parametrize("memory_type", TYPES.list_all(), ids=lambda memory_type: memory_type.name)
@given(data=st.data())
@settings(max_examples=5)
def test_no_word_of_an_earlier_write_disappears(
    tmp_path_factory: pytest.TempPathFactory, memory_type: MemoryType, data: st.DataObject
) -> None:
    said: dict[str, set[str]] = {}
    steps = st.tuples(st.booleans(), fields_of(memory_type), st.sampled_from([None, None, "acme/shop"]))
    with open_memory(words_only(tmp_path_factory.mktemp("store"))) as memory:
        for explicit, fields, project in data.draw(st.lists(steps, min_size=2, max_size=6)):
            if explicit:
                receipt = memory.commit(CommitRequest(memory_type=memory_type.name, fields=fields, project=project))
            else:
                receipt = handed_in(memory, write=[write(memory_type.name, **fields)], project=project)
            result = only(receipt)
            refused = result.reason or ""
            texts = [fields[each.name] for each in memory_type.fields if adds_text(each) and each.name in fields]
            if result.action is not Action.REJECTED and not refused:
                said.setdefault(result.uri, set()).update(*map(distinct_words, texts))
            for uri, words in said.items():
                stored = parse_as(MemoryUri.parse(uri), memory.read(ReadRequest(uri)).content, memory_type)
                values = [str(stored.fields[each.name]) for each in memory_type.fields if each.name in stored.fields]
                assert words <= distinct_words("\n".join(values))
                assert words <= distinct_words(stored.body) or not memory_type.template_mode


def test_a_very_long_word_and_a_very_long_text_are_added_to_at_once() -> None:
    word = "X" * 100_000
    assert with_added(word, f"{word}y a-b") == f"{word}\n{word}y a-b"
    lines = "\n".join(f"- Fact {number} is {number * 7}." for number in range(3_000))
    assert with_added(lines, "Another one.") == f"{lines}\n- Another one."
    assert beside(lines, "Fact 2999 is 1.") == ("Fact 2999 is 20993.",)


@pytest.mark.parametrize("stands", ["a memory", "a folder"])
def test_a_marked_name_that_is_taken_is_left_alone(memory: Runebook, stands: str) -> None:
    note(memory, "Tea?", "About a question.")
    mark = short_hash(key_of({"title": "Tea:"}, ("title",)))
    place = MemoryUri.parse(f"viking://user/default/memories/notes/Tea-~{mark}.md")
    if stands == "a memory":
        note(memory, place.name.removesuffix(".md"), "The only copy.")
    else:
        handed_in(memory, overview=[{"directory_uri": str(place), "abstract": "A folder."}])
    made = only(note(memory, "Tea:", "Green."))
    assert (made.action, body(memory, made.uri)) == (Action.CREATED, "Green.")
    if stands == "a memory":
        assert body(memory, str(place)) == "The only copy."
