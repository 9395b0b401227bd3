"""Context packs: which parts they have and when, what is given once a session, and what a caller is told."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import RetrieveConfig
from memory_core.core.errors import InvalidInput
from memory_core.core.memory.message import Message
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import ContextPack, FindResult, merge_results
from memory_core.core.search.context_sources import recall, source_lines
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import Runebook, open_memory
from tests.stores import by_hand, remember, words_only, written
from tests.waiting import at_once

USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"

SESSIONS = "viking://session/default"
NOW = datetime(2026, 3, 5, 9, 0, tzinfo=UTC)


def opened(home: Path, **settings: Any) -> Runebook:
    return open_memory(words_only(home, retrieve=RetrieveConfig(**settings)))


@pytest.fixture
def filled(memory: Runebook) -> Runebook:
    remember(memory, "A nurse from Leeds. 护士。", "profile")
    remember(memory, "Zebras 斑马 live in the annex.", "facts", topic="Annex")
    remember(memory, "Photographs zebras in colour only.", "preferences", topic="Photos")
    remember(memory, None, "tools", tool_name="zebra_cam", best_for="zebra photos")
    memory.commit(
        CommitRequest(messages=[user("I fed the zebra", name="Ann"), assistant("Well done.")], session_id="s1")
    )
    return memory


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def kinds(pack: ContextPack) -> list[str]:
    return [part.kind for part in pack.parts]


def uris(pack: ContextPack, kind: str | None = None) -> list[str]:
    return [item.uri for part in pack.parts if kind in (None, part.kind) for item in part.items]


def text_of(pack: ContextPack, kind: str) -> str:
    return "".join(part.text for part in pack.parts if part.kind == kind)


def in_part(pack: ContextPack) -> list[str]:
    """What was shown in part, and may come again for another part of it."""
    return [item.uri for part in pack.parts for item in part.items if item.cut]


# Parts


def test_each_part_holds_what_belongs_there(filled: Runebook) -> None:
    pack = filled.retrieve(RetrieveRequest("zebra 斑马"))
    assert kinds(pack) == ["profile", "directory", "constraints", "memories", "tools", "session"]
    assert "护士" in text_of(pack, "profile")
    assert f"{USER}/facts/ (1): Annex" in text_of(pack, "directory")
    assert "viking://session/default/ (1 conversations)" in text_of(pack, "directory")
    assert uris(pack, "constraints") == [f"{USER}/preferences/Photos.md"]
    assert "斑马" in text_of(pack, "memories")
    assert "zebra photos" in text_of(pack, "tools")
    assert "Ann: I fed the zebra" in text_of(pack, "session")
    assert "MEMORY_FIELDS" not in pack.text
    scores = {item.uri: item.score for part in pack.parts for item in part.items}
    assert (
        scores[f"{USER}/facts/Annex.md"]
        == filled.find(FindRequest("zebra 斑马", filter={"memory_type": "facts"})).hits[0].score
    )
    assert scores[f"{USER}/profile.md"] is None


def test_that_nothing_was_found_is_said_once_and_takes_no_other_note_with_it() -> None:
    nothing = "nothing relevant is stored; try other words, or look around with tree"
    spaces = [FindResult((), (), (), (nothing,)), FindResult((), (), (), ("searched by words only", nothing))]
    found = recall(lambda *_: merge_results(spaces, 9), ["zebra"], 5, 5, None)
    assert found.notes == ("searched by words only", "nothing relevant to the question is stored")


def test_the_profile_comes_once_even_when_it_is_also_found(filled: Runebook) -> None:
    assert filled.retrieve(RetrieveRequest("nurse Leeds 护士")).text.count("A nurse from Leeds") == 1


@pytest.mark.parametrize(
    ("memory_type", "given", "kind"),
    [
        ("preferences", {}, "constraints"),
        ("patterns", {}, "constraints"),
        ("facts", {}, "memories"),
        ("cases", {}, "memories"),
        ("facts", {"priority": "critical"}, "constraints"),
        ("facts", {"priority": 0.9}, "constraints"),
        ("facts", {"priority": "high"}, "memories"),
        ("facts", {"metadata": {"pinned": True}}, "constraints"),
    ],
)
def test_rules_and_what_matters_most_are_constraints(
    memory: Runebook, memory_type: str, given: dict[str, Any], kind: str
) -> None:
    memory.commit(CommitRequest("Never feed zebras 不要喂斑马.", memory_type=memory_type, **given))
    pack = memory.retrieve(RetrieveRequest("zebras 斑马"))
    assert [part.kind for part in pack.parts if part.kind != "directory"] == [kind]


def rules(memory: Runebook) -> None:
    given: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Never use bullet points.", {"memory_type": "preferences"}),
        ("回答先说结论。", {"memory_type": "preferences", "fields": {"topic": "回答"}}),
        ("Always answer in metric units.", {}),
        ("The gas meter is read on Mondays.", {"memory_type": "facts", "priority": "critical"}),
    )
    for text, more in given:
        memory.commit(CommitRequest(text, **more))
    remember(memory, "Likes jazz and 老电影.", "preferences")


STANDING = ("bullet points", "先说结论", "metric units", "gas meter")


@pytest.mark.parametrize("asked", ["write a short poem about rain", "你好", "法国的首都是哪里？", "hello!"])
def test_rules_come_in_the_first_call_of_a_session_whatever_is_asked(memory: Runebook, asked: str) -> None:
    rules(memory)
    first = memory.retrieve(RetrieveRequest(messages=[user(asked)], session_id="s1"))
    assert [words for words in STANDING if words not in text_of(first, "constraints")] == []
    again = memory.retrieve(RetrieveRequest(messages=[user(asked)], session_id="s1"))
    assert "constraints" not in kinds(again)
    remember(memory, "Do not use emojis.", "preferences")
    later = memory.retrieve(RetrieveRequest(messages=[user(asked)], session_id="s1"))
    assert text_of(later, "constraints").count("<item") == text_of(later, "constraints").count("emojis.\n") == 1
    fresh = memory.retrieve(RetrieveRequest(messages=[user(asked)], session_id="s1", fresh=True))
    assert [words for words in STANDING if words not in text_of(fresh, "constraints")] == []


def test_rules_have_room_beside_whatever_the_question_finds_and_the_newest_come_first(memory: Runebook) -> None:
    rules(memory)
    for number in range(20):
        taste = f"Likes tea number {number}, with a long account of where it grows. " * 5
        remember(memory, taste, "preferences", topic=f"Tea {number}")
    pack = memory.retrieve(RetrieveRequest("which tea do I like?", token_budget=1_200))
    constraints = text_of(pack, "constraints")
    places = [constraints.index(words) for words in STANDING]
    assert places == sorted(places, reverse=True)
    assert "tea number" not in constraints[: max(places)]


def test_rules_of_another_project_and_lessons_of_failed_tools_are_no_rules(memory: Runebook) -> None:
    remember(memory, "Always run make check.", "patterns", project="shop")
    call = {"id": "c1", "type": "function", "function": {"name": "fetch", "arguments": "{}"}}
    for number in (1, 2):
        call = {**call, "id": f"c{number}"}
        failed = {"role": "tool", "tool_call_id": f"c{number}", "content": "TimeoutError: no answer", "is_error": True}
        said = [user(f"fetch {number}"), assistant("", tool_calls=[call]), failed, assistant("It timed out.")]
        memory.commit(CommitRequest(messages=said, session_id=f"t{number}"))
    assert memory.find(FindRequest("fetch TimeoutError", filter={"memory_type": "patterns"})).hits
    assert "constraints" not in kinds(memory.retrieve(RetrieveRequest("write a poem")))
    assert "make check" in memory.retrieve(RetrieveRequest("write a poem", here="shop")).text
    near = memory.retrieve(RetrieveRequest("should I run make check?", here="lab"))
    assert "make check" in text_of(near, "memories")
    assert "constraints" not in kinds(near)
    asked = memory.retrieve(RetrieveRequest("why did fetch fail with TimeoutError?"))
    assert "TimeoutError" in text_of(asked, "tools")
    assert "constraints" not in kinds(asked)


def test_a_rule_of_the_person_told_in_one_project_holds_in_every_other(memory: Runebook) -> None:
    remember(memory, "Never use bullet points.", "preferences", here="acme/shop")
    remember(memory, "Likes 老电影.", "preferences", topic="Films", here="acme/shop")
    for here in ("acme/shop", "acme/lab", None):
        pack = memory.retrieve(RetrieveRequest("write a poem", session_id=f"s{len(here or '')}", here=here))
        assert "bullet points" in text_of(pack, "constraints")
        assert "老电影" in pack.text


def test_what_is_pinned_or_critical_is_not_pushed_out_by_newer_rules(memory: Runebook) -> None:
    remember(memory, "The gas meter is read on Mondays.", "facts", priority="critical")
    rules = ({"topic": f"Rule {n}", "content": f"Always say {n}."} for n in range(40))
    written(memory, *({"memory_type": "preferences", "fields": fields} for fields in rules))
    pack = memory.retrieve(RetrieveRequest("write a poem", token_budget=6_000))
    assert "gas meter" in text_of(pack, "constraints")


def test_a_memory_that_newer_ones_contest_says_so(memory: Runebook, tmp_path: Path) -> None:
    remember(memory, "The zebra eats hay.", "facts", topic="Old", now=datetime(2025, 1, 1, tzinfo=UTC))
    remember(memory, "The zebra eats grass.", "facts", topic="New", now=datetime(2026, 1, 1, tzinfo=UTC))
    file = tmp_path / "user/default/memories/facts/Old.md"
    link = f'"links": [{{"relation": "contradicts", "uri": "{USER}/facts/New.md"}}],\n  "memory_type"'
    file.write_text(file.read_text(encoding="utf-8").replace('"memory_type"', link), encoding="utf-8", newline="\n")
    memory.store.adopt()
    pack = memory.retrieve(RetrieveRequest("zebra eats"))
    assert f'contested_by="{USER}/facts/New.md"' in pack.text


def test_tools_at_hand_bring_their_memories_by_exact_name_or_by_a_longer_one(memory: Runebook) -> None:
    for name in ("search_issues", "write_file", "查询数据库"):
        remember(memory, None, "tools", tool_name=name, best_for=f"advice for {name}")
    assert uris(memory.retrieve(RetrieveRequest(tool="search_issues")), "tools") == [f"{AGENT}/tools/search_issues.md"]
    assert uris(memory.retrieve(RetrieveRequest(tool="Search_Issues")), "tools") == [f"{AGENT}/tools/search_issues.md"]
    assert uris(memory.retrieve(RetrieveRequest(tool=["查询数据库", "write_file"])), "tools") == [
        f"{AGENT}/tools/查询数据库.md",
        f"{AGENT}/tools/write_file.md",
    ]
    assert uris(memory.retrieve(RetrieveRequest(tool="mcp__github__search_issues")), "tools") == [
        f"{AGENT}/tools/search_issues.md"
    ]
    assert uris(memory.retrieve(RetrieveRequest(tool="read_file")), "tools") == []


def test_what_only_the_fields_say_is_given_too(memory: Runebook) -> None:
    remember(memory, "换护照 Renew the passport.", "tasks", title="Passport", state="open")
    case = {"case_name": "Pump", "problem": "It stopped.", "solution": "Oil 上油"}
    memory.commit(CommitRequest("Oil 上油\nWorked for a year.", memory_type="cases", fields=case))
    remember(memory, "Flew 飞 to Osaka.", "events", event_name="Flight", event_time="2026-05")
    assert (
        "Renew the passport.\nstate: open\n" in memory.retrieve(RetrieveRequest("passport 护照", session_id="a")).text
    )
    remember(memory, None, "tasks", title="Passport", state="done")
    assert (
        "Renew the passport.\nstate: done\n" in memory.retrieve(RetrieveRequest("passport 护照", session_id="a")).text
    )
    assert (
        "Oil 上油\nWorked for a year.\nproblem: It stopped.\n</item>" in memory.retrieve(RetrieveRequest("pump")).text
    )
    assert 'date="2026-05"' in memory.retrieve(RetrieveRequest("Osaka")).text


@pytest.mark.parametrize("name", ["release notes", "Release_Notes", "release-notes"])
def test_a_skill_is_known_by_its_name_however_its_words_are_joined(memory: Runebook, name: str) -> None:
    remember(memory, None, "skills", skill_name="release-notes", best_for="发布")
    pack = memory.retrieve(RetrieveRequest(skill=name))
    assert uris(pack, "skill") == [f"{AGENT}/skills/release-notes.md"]
    assert pack.notes == ()


def test_the_memory_of_a_named_skill_comes_whatever_the_question(memory: Runebook) -> None:
    remember(memory, None, "skills", skill_name="数据清洗", best_for="问卷")
    remember(memory, None, "skills", skill_name="Draft contract", best_for="leases")
    pack = memory.retrieve(RetrieveRequest(skill="unknown"))  # first: what was used stands in for a question
    assert "skill" not in kinds(pack)
    assert any("unknown" in note for note in pack.notes)
    assert uris(memory.retrieve(RetrieveRequest(skill="數據清洗")), "skill") == [f"{AGENT}/skills/数据清洗.md"]
    pack = memory.retrieve(RetrieveRequest("unrelated words", skill="draft  CONTRACT"))
    assert uris(pack, "skill") == [f"{AGENT}/skills/Draft contract.md"]
    assert "leases" in text_of(pack, "skill")


def test_what_was_used_most_stands_in_for_a_question(memory: Runebook) -> None:
    for topic in ("Tea", "茶"):
        remember(memory, f"About {topic}", "facts", topic=topic)
    memory.find(FindRequest("茶"))
    memory.store.usage.flush()
    assert uris(memory.retrieve(RetrieveRequest()), "memories") == [f"{USER}/facts/茶.md"]
    assert uris(memory.retrieve(RetrieveRequest("  ")), "memories") == [f"{USER}/facts/茶.md"]


def test_logs_of_today_and_yesterday_come_oldest_first(memory: Runebook, tmp_path: Path) -> None:
    for day, text in (("2026-03-05", "今天修好了泵"), ("2026-03-04", "Ordered the pump"), ("2026-03-03", "Too old")):
        by_hand(tmp_path, f"user/default/logs/{day}.md", f"{text}\n")
    pack = memory.retrieve(RetrieveRequest(now=NOW))
    assert uris(pack, "log") == [f"viking://user/default/logs/{day}.md" for day in ("2026-03-04", "2026-03-05")]
    assert text_of(pack, "log").index("Ordered") < text_of(pack, "log").index("今天")
    assert "log" not in kinds(memory.retrieve(RetrieveRequest("anything", now=NOW)))


def test_an_entry_of_the_log_is_given_once_and_without_its_comment(memory: Runebook) -> None:
    for text in ("Ordered the pump 水泵.", "Lunch with Ann."):
        remember(memory, text, "daily_logs", tool="shop", now=NOW)
    log = f"viking://user/default/logs/{NOW.date()}.md"
    asked = [user("what about the pump 水泵?")]
    assert uris(memory.retrieve(RetrieveRequest(messages=asked, session_id="a", now=NOW)), "log") == [log]
    assert uris(memory.retrieve(RetrieveRequest(messages=asked, session_id="a", now=NOW)), "log") == []
    alone = memory.retrieve(RetrieveRequest("水泵 pump", now=NOW))
    assert uris(alone, "log") == [f"{log}#2"]
    assert "[shop] Ordered the pump 水泵." in text_of(alone, "log")
    assert "&lt;!--" not in alone.text


def test_an_entry_that_is_private_to_another_project_is_in_no_log(memory: Runebook) -> None:
    for text, private in (("Ordered the pump 水泵.", True), ("The pump 水泵 came.", False)):
        remember(memory, text, "daily_logs", project="acme/one", private=private, now=NOW)
    here = memory.retrieve(RetrieveRequest(now=NOW, here="acme/one"))
    there = memory.retrieve(RetrieveRequest(now=NOW, here="acme/two"))
    assert "Ordered" in here.text
    assert "The pump 水泵 came." in there.text
    assert "Ordered" not in there.text
    assert "Ordered" not in memory.retrieve(RetrieveRequest("pump 水泵", now=NOW, here="acme/two")).text


def test_a_log_that_is_too_long_keeps_its_end(memory: Runebook, tmp_path: Path) -> None:
    lines = "\n".join(f"- {number} 点 measured the pump again" for number in range(600))
    by_hand(tmp_path, "user/default/logs/2026-03-05.md", f"{lines}\n- 最后 the pump runs\n")
    pack = memory.retrieve(RetrieveRequest(now=NOW, token_budget=600))
    assert "最后 the pump runs" in text_of(pack, "log")
    assert "- 0 点" not in pack.text
    assert [item.cut for part in pack.parts if part.kind == "log" for item in part.items] == [True]


# Conversations


def talk(topic: str, turns: int = 1) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for number in range(turns):
        said += [user(f"{topic} question {number}"), assistant(f"{topic} answer {number} 回答")]
    return said


def test_a_turn_comes_with_its_exchange_and_no_more(memory: Runebook) -> None:
    memory.commit(
        CommitRequest(
            messages=[*talk("morning"), user("给斑马喂什么？"), assistant("干草。"), *talk("noon"), *talk("evening")],
            session_id="s1",
        )
    )
    pack = memory.retrieve(RetrieveRequest("干草", format="text"))
    assert f"{SESSIONS}/s1:\n- #2 user: 给斑马喂什么？\n- #3 assistant: 干草。" in text_of(pack, "session")
    assert "morning" not in pack.text
    assert "evening" not in pack.text


def test_a_talk_between_people_is_read_in_turns_with_questions_and_answers(memory: Runebook) -> None:
    said = [("Ann", "I saw a zebra"), ("Ben", "Where?"), ("Ann", "At the lake 湖边"), ("Ben", "Lucky you")]
    memory.commit(CommitRequest(messages=[user(text, name=name) for name, text in said], session_id="s1"))
    shown = text_of(memory.retrieve(RetrieveRequest("湖边 lake")), "session")
    assert "\n#1 Ben: Where?\n#2 Ann: At the lake 湖边\n#3 Ben: Lucky you\n" in shown
    assert "saw a zebra" not in shown


@pytest.mark.parametrize(("greeting", "shown"), [("Take care!", False), ("晚安", False), ("Take the red one", True)])
def test_a_turn_beside_another_that_only_greets_is_left_out(memory: Runebook, greeting: str, shown: bool) -> None:
    said = [user("The zebra 斑马 sleeps in the annex."), assistant(greeting)]
    memory.commit(CommitRequest(messages=said, session_id="s1"))
    assert (greeting in memory.retrieve(RetrieveRequest("zebra 斑马")).text) is shown


def test_turns_stand_in_order_of_time_below_their_conversation_and_can_be_read_there(memory: Runebook) -> None:
    for name, day in (("late", 9), ("early", 2)):
        said = [user(f"The zebra 斑马 {name} {n}", time=f"2026-03-0{day}T10:0{n}:00+00:00") for n in range(3)]
        memory.commit(CommitRequest(messages=said, session_id=name))
    text = text_of(memory.retrieve(RetrieveRequest("which zebra 斑马 late 2")), "session")
    lines = [f"#{n} user: The zebra 斑马 {{}} {n}" for n in range(3)]
    early, late = (f"{SESSIONS}/{name} 2026-03-0{day}" for name, day in (("early", 2), ("late", 9)))
    told = "\n".join([early, *lines]).format(*["early"] * 3) + "\n" + "\n".join([late, *lines]).format(*["late"] * 3)
    assert told in text
    assert "斑马 late 2" in memory.read(ReadRequest(f"{SESSIONS}/late#2")).content


def test_a_long_message_gives_what_bears_on_the_question_and_all_where_there_is_room(memory: Runebook) -> None:
    filler = "Something else entirely was told here. 另外的事情。 " * 30
    said = [user(f"{filler}The zebra 斑马 sleeps in the annex. {filler}") for _ in range(2)]
    memory.commit(CommitRequest(messages=said[:1], session_id="s1"))
    small = memory.retrieve(RetrieveRequest("where does the zebra sleep? 斑马", token_budget=300))
    assert "… " in small.text.partition("The zebra 斑马 sleeps in the annex. ")[0]
    assert "…\n" in small.text.partition("The zebra 斑马 sleeps in the annex. ")[2]
    assert [item.cut for part in small.parts if part.kind == "session" for item in part.items] == [True]
    large = memory.retrieve(RetrieveRequest("where does the zebra sleep? 斑马", token_budget=4_000))
    assert " ".join(said[0]["content"].split()) in large.text
    assert [item.cut for part in large.parts if part.kind == "session" for item in part.items] == [False]


def test_a_context_uses_its_budget_while_anything_is_relevant(memory: Runebook) -> None:
    for number in range(12):
        said = [user(f"The zebra 斑马 number {number} {n} ate hay by the old wooden gate again.") for n in range(8)]
        memory.commit(CommitRequest(messages=said, session_id=f"s{number}"))
    for budget in (600, 1_000, 2_000):
        pack = memory.retrieve(RetrieveRequest("zebra hay 斑马", token_budget=budget))
        assert 0.9 * budget < pack.tokens <= budget


def test_a_turn_that_a_memory_was_made_of_comes_after_what_it_does_not_say(memory: Runebook) -> None:
    said = [user("The zebra 斑马 sleeps in the annex at night."), user("My zebra 斑马 is called Zoe and bites people.")]
    for n, message in enumerate(said):
        memory.commit(CommitRequest(messages=[message], session_id=f"s{n}", extract=False))
    remember(memory, "The zebra 斑马 sleeps in the annex at night.", "facts", session_id="s0", extract=False)
    asked = "which annex does the zebra 斑马 sleep in at night?"
    everything = memory.retrieve(RetrieveRequest(asked))
    assert "sleeps in the annex" in text_of(everything, "memories")
    found = {item.uri: item for part in everything.parts for item in part.items if part.kind == "session"}
    assert len(found) == 2
    budget = next(
        size for size in range(200, 600) if "bites" in memory.retrieve(RetrieveRequest(asked, token_budget=size)).text
    )
    small = memory.retrieve(RetrieveRequest(asked, token_budget=budget))
    assert uris(small, "session") == [f"{SESSIONS}/s1/messages.jsonl#0"]


def test_turns_come_from_the_best_sessions_and_only_so_many_where_that_is_set(tmp_path: Path) -> None:
    with opened(tmp_path, top_sessions=2, retrieval_queue_capacity=3) as memory:
        for number in range(4):
            memory.commit(CommitRequest(messages=talk(f"zebra {number}", 4), session_id=f"s{number}"))
        pack = memory.retrieve(RetrieveRequest("zebra question"))
        found = [item for part in pack.parts if part.kind == "session" for item in part.items]
        assert len([item for item in found if item.score is not None]) == 3
        assert len({item.uri.split("/")[4] for item in found}) <= 2


@pytest.mark.parametrize("name", ["segment_similarity_threshold", "page_similarity_threshold"])
def test_pages_below_a_threshold_stay_away(tmp_path: Path, name: str) -> None:
    with opened(tmp_path, **{name: 1.0}) as memory:
        memory.commit(CommitRequest(messages=talk("zebra"), session_id="s1"))
        assert "session" not in kinds(memory.retrieve(RetrieveRequest("which zebra eats what")))


def test_memories_below_the_threshold_stay_away_and_no_more_come_than_set(tmp_path: Path) -> None:
    with opened(tmp_path, top_k_knowledge=2) as memory:
        for number in range(5):
            remember(memory, f"zebra {number} 斑马", "facts")
        assert len(uris(memory.retrieve(RetrieveRequest("zebra")), "memories")) == 2
    with opened(tmp_path, knowledge_threshold=1.0) as memory:
        assert "memories" not in kinds(memory.retrieve(RetrieveRequest("which zebra eats what")))


def test_a_session_never_recalls_its_own_turns_unless_it_lost_them(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=talk("zebra"), session_id="mine"))
    memory.commit(CommitRequest(messages=talk("zebra"), session_id="other"))
    memory.commit(CommitRequest(messages=talk("own zebra 斑马"), session_id="mine"))
    assert uris(memory.retrieve(RetrieveRequest("zebra 斑马", session_id="mine")), "session") == [
        f"{SESSIONS}/other/messages.jsonl#{line}" for line in (0, 1)
    ]
    again = uris(memory.retrieve(RetrieveRequest("zebra 斑马", session_id="mine", fresh=True)), "session")
    assert f"{SESSIONS}/mine/messages.jsonl#0" in again


def test_a_new_session_learns_where_the_last_one_ended(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=talk("older", 1), session_id="s1"))
    memory.commit(CommitRequest(messages=talk("斑马", 3), session_id="s2"))
    memory.commit(CommitRequest(messages=talk("own", 1), session_id="s3"))
    pack = memory.retrieve(RetrieveRequest("what about the 湖边", session_id="s3"))
    assert uris(pack, "recent") == [f"{SESSIONS}/s2/messages.jsonl#{line}" for line in (2, 3, 4, 5)]
    assert text_of(pack, "recent").index("斑马 answer 1") < text_of(pack, "recent").index("斑马 answer 2")
    assert "recent" not in kinds(memory.retrieve(RetrieveRequest("and the lake", session_id="s3")))


def test_no_recent_pages_are_given_where_the_setting_says_none(tmp_path: Path) -> None:
    with opened(tmp_path, recent_pages=0) as memory:
        memory.commit(CommitRequest(messages=talk("zebra"), session_id="s1"))
        assert "recent" not in kinds(memory.retrieve(RetrieveRequest(session_id="new")))


# Sessions


def test_profile_and_directory_come_once_a_session(filled: Runebook) -> None:
    assert kinds(filled.retrieve(RetrieveRequest("zebra", session_id="a")))[:2] == ["profile", "directory"]
    second = filled.retrieve(RetrieveRequest("zebra", session_id="a"))
    assert second.parts == ()
    assert any("given in this session before" in note for note in second.notes)
    assert not any("before" in note for note in filled.retrieve(RetrieveRequest("quagga", session_id="a")).notes)
    assert kinds(filled.retrieve(RetrieveRequest("zebra", session_id="b")))[:2] == ["profile", "directory"]


def test_what_changed_since_is_given_again_and_nothing_else(filled: Runebook) -> None:
    filled.retrieve(RetrieveRequest("zebra", session_id="a"))
    remember(filled, "Zebras 斑马 moved to the barn.", "facts", topic="Annex")
    pack = filled.retrieve(RetrieveRequest("zebra", session_id="a"))
    assert uris(pack) == [f"{USER}/facts/Annex.md"]
    assert "barn" in pack.text


def test_a_session_that_lost_its_context_is_given_everything_again(filled: Runebook) -> None:
    first = filled.retrieve(RetrieveRequest("zebra", session_id="a"))
    filled.retrieve(RetrieveRequest("zebra", session_id="b"))
    assert filled.retrieve(RetrieveRequest("zebra", session_id="a", fresh=True)).text == first.text
    assert filled.retrieve(RetrieveRequest("zebra", session_id="b")).parts == ()


def test_what_a_session_was_given_is_known_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        remember(memory, "斑马 zebra", "facts")
        assert "memories" in kinds(memory.retrieve(RetrieveRequest("zebra", session_id="a")))
    with opened(tmp_path) as memory:
        assert memory.retrieve(RetrieveRequest("zebra", session_id="a")).parts == ()


def test_what_did_not_fit_is_given_the_next_time(memory: Runebook) -> None:
    for number in range(6):
        remember(memory, f"zebra {number} " + "and more 更多 " * 30, "facts", topic=f"T{number}")
    first = memory.retrieve(RetrieveRequest("zebra", session_id="a", token_budget=500))
    left_out = [uri for uri in first.left_out if "/facts/T" in uri]
    assert left_out
    second = memory.retrieve(RetrieveRequest("zebra", session_id="a", token_budget=4_000))
    assert sorted(uris(second, "memories")) == sorted([*left_out, *in_part(first)])


def test_without_a_session_everything_comes_each_time(filled: Runebook) -> None:
    assert filled.retrieve(RetrieveRequest("zebra")).text == filled.retrieve(RetrieveRequest("zebra")).text


def test_a_pack_that_cannot_be_delivered_is_packed_again_and_noted_once(memory: Runebook) -> None:
    for number in range(6):
        remember(memory, f"zebra {number} " + "and more 更多 " * 30, "facts")
    budgets: list[int] = []

    def fit(pack: ContextPack, budget: int) -> int | None:
        budgets.append(budget)
        return 500 if pack.tokens > 500 else None

    pack = memory.retrieve(RetrieveRequest("zebra", session_id="a"), fit=fit)
    assert budgets == [4_000, 500]
    assert pack.tokens <= 500
    assert any("500 tokens, not 4000" in note for note in pack.notes)
    rest = memory.retrieve(RetrieveRequest("zebra", session_id="a"))
    assert len(uris(pack, "memories")) - len(in_part(pack)) + len(uris(rest, "memories")) == 6


def test_two_calls_of_one_session_at_once_both_answer(filled: Runebook) -> None:
    at_once(lambda _: filled.retrieve(RetrieveRequest("zebra", session_id="a")), *range(4))
    assert filled.retrieve(RetrieveRequest("zebra", session_id="a")).parts == ()


# Implicit recall and the query


def lessons(memory: Runebook) -> None:
    for number in range(6):
        remember(memory, f"zebra fact {number} 斑马", "facts", topic=f"F{number}")
    remember(memory, "For zebras check the fence first 斑马.", "patterns")
    remember(memory, "A zebra escaped 斑马; closed the gate.", "cases")
    remember(memory, None, "skills", skill_name="zebra_care", best_for="zebra 斑马")


@pytest.mark.parametrize("words", ["zebra", "斑马"])
def test_the_first_message_recalls_three_and_what_was_learned(memory: Runebook, words: str) -> None:
    lessons(memory)
    first = memory.retrieve(RetrieveRequest(messages=[user(words)], session_id="a"))
    found = [*uris(first, "memories"), *uris(first, "constraints"), *uris(first, "skill")]
    facts = [uri for uri in found if "/facts/" in uri]
    assert 0 < len(facts) <= 3
    assert {uri.split("/")[5] for uri in found} >= {"patterns", "cases", "skills"}
    second = memory.retrieve(RetrieveRequest(messages=[user(words)], session_id="a"))
    assert len(facts) + len(uris(second, "memories")) == 6


def test_implicit_recall_follows_its_settings(tmp_path: Path) -> None:
    with opened(tmp_path, implicit_recall_top_k=1) as memory:
        lessons(memory)
        first = memory.retrieve(RetrieveRequest(messages=[user("zebra")], session_id="a"))
        assert len([uri for uri in uris(first, "memories") if "/facts/" in uri]) <= 1
        assert (
            len(
                [
                    uri
                    for uri in uris(memory.retrieve(RetrieveRequest("zebra", session_id="b")), "memories")
                    if "/facts/" in uri
                ]
            )
            == 6
        )
    with opened(tmp_path, implicit_recall=False) as memory:
        first = memory.retrieve(RetrieveRequest(messages=[user("zebra")], session_id="c"))
        assert len([uri for uri in uris(first, "memories") if "/facts/" in uri]) == 6


def test_the_last_five_user_messages_are_the_query_and_long_ones_are_no_error(filled: Runebook) -> None:
    # First of all: what was retrieved becomes hot as soon as its use is written, and is then given unasked.
    assert "memories" not in kinds(filled.retrieve(RetrieveRequest(messages=[assistant("zebra")], session_id="a")))
    said = [user("zebra"), user("and then?"), user("what is it"), user("how so"), user("why?"), user("okay")]
    assert "memories" not in kinds(filled.retrieve(RetrieveRequest(messages=said)))
    assert "memories" in kinds(filled.retrieve(RetrieveRequest(messages=said[:5])))
    long = [user("word " * 10_000 + "zebra"), assistant("ok")]
    assert "memories" in kinds(filled.retrieve(RetrieveRequest(messages=long)))


def test_the_newest_message_is_asked_alone_where_all_together_find_nothing(memory: Runebook) -> None:
    remember(memory, "斑马 zebra", "facts")
    said = [*(user(f"unrelated{number} chatter{number} 闲聊{number}") for number in range(4)), user("zebra")]
    assert "memories" in kinds(memory.retrieve(RetrieveRequest(messages=said)))


@pytest.mark.parametrize("asked", ["where is the zebra?", "斑马在哪里？"])
def test_what_the_newest_message_asks_is_found_whatever_was_talked_about_before(memory: Runebook, asked: str) -> None:
    remember(memory, "The zebra lives in the annex. 斑马住在副楼。", "facts", topic="Zebra")
    memory.commit(CommitRequest(messages=[user("The zebra 斑马 is called Zoe."), assistant("Noted.")], session_id="s1"))
    about = (
        "billing export fails at night",
        "backfill tenant rows in batches",
        "legacy rows warn",
        "review the export",
    )
    for number, text in enumerate(about):
        remember(memory, f"Rule {number}: {text}, says the team.", "facts", topic=text)
        memory.commit(CommitRequest(messages=[user(f"so {text}"), assistant("ok")], session_id=f"old{number}"))
    said = [*(user(f"{text} and so on with tenant {number}") for number, text in enumerate(about)), user(asked)]
    pack = memory.retrieve(RetrieveRequest(messages=said))
    assert f"{USER}/facts/Zebra.md" in uris(pack, "memories")
    assert f"{SESSIONS}/s1/messages.jsonl#0" in uris(pack, "session")
    assert len(uris(pack)) == len(set(uris(pack)))
    simulated = memory.retrieve(RetrieveRequest(messages=said, format="messages-anthropic")).messages
    assert simulated is not None
    assert simulated[0]["content"][-1]["input"] == {"query": asked}


def test_memories_are_found_beside_hundreds_of_turns_and_turns_beside_hundreds_of_memories(memory: Runebook) -> None:
    memory.commit(CommitRequest(messages=talk("zebra", 120), session_id="s1"))
    remember(memory, "A zebra 斑马 is ours, so much we know.", "facts", topic="One")
    assert uris(memory.retrieve(RetrieveRequest("zebra")), "memories") == [f"{USER}/facts/One.md"]
    assert uris(memory.retrieve(RetrieveRequest("zebra")), "session")


def test_how_many_messages_are_the_query_is_a_setting(tmp_path: Path) -> None:
    with opened(tmp_path, query_messages=1) as memory:
        remember(memory, "斑马 zebra", "facts")
        assert "memories" not in kinds(memory.retrieve(RetrieveRequest(messages=[user("zebra"), user("filler")])))


def test_the_trail_names_what_the_agent_was_given(filled: Runebook) -> None:
    pack = filled.retrieve(RetrieveRequest("zebra", session_id="a"))
    (row,) = filled.run(TRAIL, TrailRequest())
    assert (row.kind, row.query, row.session_id) == ("retrieve", "zebra", "a")
    given = {item.uri for part in pack.parts if part.kind != "directory" for item in part.items}
    assert {uri for uri, _ in row.hits} == given


# Small talk


@pytest.mark.parametrize("words", ["hi", "好的谢谢"])
def test_small_talk_recalls_nothing_but_a_new_session_is_still_greeted(filled: Runebook, words: str) -> None:
    said = [user("the zebra 斑马"), assistant("yes"), user(words)]
    pack = filled.retrieve(RetrieveRequest(messages=said, session_id="a"))
    assert kinds(pack) == ["profile", "directory"]
    assert any("small talk" in note for note in pack.notes)
    assert filled.retrieve(RetrieveRequest(words, session_id="a")).parts == ()
    pack = filled.retrieve(RetrieveRequest(messages=[user("zebra 斑马")], session_id="a"))
    assert {"memories", "constraints"} <= set(kinds(pack))


def test_tools_and_skills_at_hand_come_even_with_small_talk(filled: Runebook) -> None:
    assert "tools" in kinds(filled.retrieve(RetrieveRequest("hi", tool="zebra_cam")))


def test_the_check_for_small_talk_can_be_switched_off(tmp_path: Path) -> None:
    with opened(tmp_path, intent_check=False) as memory:
        remember(memory, "hi means hello", "facts")
        assert "memories" in kinds(memory.retrieve(RetrieveRequest("hi")))


# Projects


def test_what_is_private_to_another_project_is_never_given(memory: Runebook) -> None:
    def commit(**given: Any) -> None:
        memory.commit(CommitRequest(project="acme/secret", private=True, **given))

    commit(memory_content="zebra plans 斑马", memory_type="facts", fields={"topic": "Plan"})
    commit(memory_type="skills", fields={"skill_name": "zebra_care", "best_for": "hidden"})
    commit(memory_type="tools", fields={"tool_name": "zebra_cam", "best_for": "hidden"})
    commit(messages=talk("zebra secret"), session_id="s1")
    asked: dict[str, Any] = {"skill": "zebra_care", "tool": "zebra_cam", "now": NOW}
    for query in ("zebra 斑马", None):
        pack = memory.retrieve(RetrieveRequest(query, here="acme/other", session_id=f"x{query}", **asked))
        assert [part.kind for part in pack.parts if part.kind != "directory"] == []
        pack = memory.retrieve(RetrieveRequest(query, here="acme/secret", session_id=f"y{query}", **asked))
        assert {"skill", "tools"} <= set(kinds(pack))
        assert "zebra secret" in pack.text


# Arguments


@pytest.mark.parametrize(
    "arguments",
    [
        {"token_budget": 199},
        {"token_budget": 10_001},
        {"format": "html"},
        {"query": "x\x00"},
        {"session_id": "a/b"},
        {"session_id": "../x"},
        {"session_id": ""},
        {"tool": " "},
        {"tool": ["a", ""]},
        {"tool": [f"t{number}" for number in range(101)]},
        {"skill": "x" * 201},
    ],
)
def test_an_argument_out_of_range_is_refused(memory: Runebook, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        memory.retrieve(RetrieveRequest(**{"query": "x"} | arguments))
    assert caught.value.hint


def test_the_budget_of_the_settings_is_the_default(tmp_path: Path) -> None:
    with opened(tmp_path, token_budget=300) as memory:
        for number in range(20):
            remember(memory, f"zebra {number} " + "and more " * 20, "facts")
        assert 0 < memory.retrieve(RetrieveRequest("zebra")).tokens <= 300


def test_what_holds_in_another_project_alone_is_not_told(memory: Runebook) -> None:
    remember(memory, "Never push the lab branch.", "facts", priority="critical", project="acme/lab", private=True)
    question = [user("What is next?")]
    assert not uris(memory.retrieve(RetrieveRequest(messages=question, session_id="a", now=NOW)), "constraints")
    lab = memory.retrieve(RetrieveRequest(messages=question, session_id="b", project="acme/lab", now=NOW))
    assert len(uris(lab, "constraints")) == 1


def test_a_memory_that_is_a_list_stands_below_its_address(memory: Runebook) -> None:
    memory.commit(CommitRequest("- 牛奶 milk\n- bread", fields={"title": "shopping"}))
    text = memory.retrieve(RetrieveRequest("milk bread", format="text")).text
    assert "- - " not in text
    assert "/shopping.md, " in text
    assert ":\n  - 牛奶 milk\n  - bread\n" in f"{text}\n"


@pytest.mark.parametrize("quotes", [False, True])
def test_the_words_of_a_conversation_are_read_message_by_message(quotes: bool) -> None:
    def peak(count: int) -> int:
        texts = (" ".join(f"word{0 if quotes else at}x{word}" for word in range(2_000)) for at in range(count))
        messages = [(at, Message(role="user", text=text)) for at, text in enumerate(texts)]
        said = messages[0][1].text if quotes else "It was word0x7."
        tracemalloc.start()
        try:
            assert source_lines(said, messages)[0][0] == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # imports modules
    assert peak(40) < 3 * peak(2)
