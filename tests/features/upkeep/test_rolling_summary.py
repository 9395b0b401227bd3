"""The rolling summary: made of what is stored, or written; given to each new session, never in a search's way."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from memory_core.core.errors import ModelUnavailable
from memory_core.core.llm.client import Completion, LLMRequest, ScriptedLLM, TokenUsage
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest, RetrieveRequest
from memory_core.core.memory.results import Action, Status, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.store.usage import Recall
from memory_core.features.forgetting import FORGET, ForgetRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.rolling_summary import (
    SUMMARY,
    SUMMARY_CLEAR,
    Line,
    RollingSummary,
    SummaryClearRequest,
    SummaryRequest,
    without,
)
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.features.upkeep.archive import ARCHIVE, RESTORE, ArchiveRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest
from memory_core.runebook import Runebook, open_memory
from server.cli import main
from tests.features.upkeep.maintained import NOW, USER, away, kept, maintained, text
from tests.stores import words_only

PAGE = "viking://user/default/rolling_summary.md"
TASTE = f"{USER}/preferences/口味.md"


def filled(memory: Runebook) -> None:
    kept(memory, "Nurse turned data analyst in Leeds. 住在利兹。", 1, "profile")
    kept(memory, "不喜欢香菜。", 1, "preferences", fields={"topic": "口味"})
    memory.commit(
        CommitRequest("Moved the shop to the new cluster.", memory_type="daily_logs", now=NOW - timedelta(days=40))
    )


def page(memory: Runebook) -> str:
    found = memory.run(SUMMARY, SummaryRequest())
    return "" if found is None else found.text


def parts(memory: Runebook, session: str) -> dict[str, str]:
    pack = memory.retrieve(RetrieveRequest("What is next?", session_id=session, now=NOW))
    return {part.kind: part.text for part in pack.parts}


def test_page_is_made_of_profile_preferences_used_memories_and_logs(memory: Runebook) -> None:
    filled(memory)
    hot = kept(memory, "The alarm code is 4711 报警密码", 1, "facts")
    memory.store.usage.recalled(Recall(NOW, "q", "find", ((hot, 0.9),), 1.0))
    memory.store.usage.flush()
    maintained(memory, "logs")
    (receipt,) = maintained(memory, "rolling_summary")
    assert [result.uri for result in receipt.results] == [PAGE]
    for said in (
        "Nurse turned data analyst",
        "住在利兹。",
        "- 口味: 不喜欢香菜。",
        "4711",
        "2026-12-19: 09:00 Moved the shop",
    ):
        assert said in page(memory)
    assert len(page(memory)) < 2_500
    assert maintained(memory, "rolling_summary") == []


def test_page_follows_what_it_is_made_of_and_goes_with_it(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": TASTE}]}, now=NOW))
    maintained(memory, "rolling_summary")
    assert "香菜" not in page(memory)
    assert "Nurse" in page(memory)
    memory.commit(CommitRequest(operations={"delete_operations": [{"uri": f"{USER}/profile.md"}]}, now=NOW))
    (receipt,) = maintained(memory, "rolling_summary")
    assert receipt.results[0].action is Action.DELETED
    assert memory.run(SUMMARY, SummaryRequest()) is None


def test_what_is_of_one_project_is_not_on_a_page_that_all_see(memory: Runebook) -> None:
    filled(memory)
    kept(memory, "Acme wants tabs 用制表符", 1, "preferences", project="acme", private=True)
    kept(memory, "Beta wants spaces 用空格", 1, "preferences", project="beta")
    maintained(memory, "rolling_summary")
    assert "Acme" not in page(memory)
    assert "Beta" not in page(memory)


def test_entry_of_a_project_in_a_shared_log_is_not_on_the_page(memory: Runebook) -> None:
    when = NOW - timedelta(days=40)
    memory.commit(CommitRequest("Swam in the lake 在湖里游泳", memory_type="daily_logs", now=when))
    memory.commit(
        CommitRequest("Kafka with 12 partitions 十二个分区", memory_type="daily_logs", project="acme", now=when)
    )
    maintained(memory, "logs", "rolling_summary")
    summary = memory.read(ReadRequest("viking://user/default/logs/summaries/2026-12.md")).content
    assert "  - Project acme\n    - 09:00 Kafka with 12 partitions 十二个分区" in summary
    assert "Swam in the lake" in page(memory)
    assert "Kafka" not in page(memory)
    assert "acme" not in page(memory)


def test_summary_of_logs_that_was_put_to_rest_by_hand_is_not_on_the_page(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "logs", "rolling_summary")
    assert "Moved the shop" in page(memory)
    path = memory.store.files.root / "user/default/logs/summaries/2026-12.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"rendered_sha256"', '"active": false, "rendered_sha256"'), encoding="utf-8")
    maintained(memory, "rolling_summary")
    assert "Moved the shop" not in page(memory)
    assert "Nurse" in page(memory)


@pytest.mark.parametrize(
    "ending", ["forgotten", "archived", "deleted", "corrected", "at rest", "expired", "a project's"]
)
def test_line_that_holds_no_more_is_not_given_to_the_next_session(memory: Runebook, ending: str) -> None:
    filled(memory)
    uri = kept(memory, "Never book overnight flights 不坐夜班飞机", 1, "preferences", fields={"topic": "Travel"})
    maintained(memory, "rolling_summary")
    assert "overnight" in parts(memory, "before")["summary"]
    path = memory.store.files.path_for(MemoryUri.parse(uri))
    text = path.read_text(encoding="utf-8")
    if ending == "forgotten":
        receipt = memory.run(FORGET, ForgetRequest(uris=[uri], confirm=1, now=NOW))
        assert (PAGE, Action.UPDATED) in {(result.uri, result.action) for result in receipt.results}
    elif ending == "archived":
        memory.run(ARCHIVE, ArchiveRequest([uri], now=NOW))
    elif ending == "deleted":
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": uri}]}, now=NOW))
    elif ending == "corrected":
        path.write_text(text.replace("overnight flights 不坐夜班飞机", "trains"), encoding="utf-8", newline="\n")
    else:
        said = {
            "at rest": '"active": false',
            "expired": '"expires_at": "2027-01-02"',
            "a project's": '"project": "acme"',
        }
        edited = text.replace('"memory_type"', f'{said[ending]}, "memory_type"')
        path.write_text(edited, encoding="utf-8", newline="\n")
    given = parts(memory, "after")["summary"]
    assert "夜班飞机" not in given
    assert "overnight" not in given
    assert "不喜欢香菜" in given
    stored = path.parents[2] / "rolling_summary.md"
    assert ("overnight" in stored.read_text(encoding="utf-8")) == (ending not in ("forgotten", "archived"))
    maintained(memory, "rolling_summary")
    assert "overnight" not in stored.read_text(encoding="utf-8")


def test_a_line_whose_address_somebody_broke_is_left_out_of_the_context(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    file = memory.store.files.root / "user" / "default" / "rolling_summary.md"
    text = file.read_text(encoding="utf-8")
    assert TASTE in text
    file.write_text(text.replace(TASTE, "viking://user/../../etc"), encoding="utf-8", newline="\n")
    assert "Nurse turned data analyst" in parts(memory, "one")["summary"]
    assert "香菜" not in parts(memory, "two").get("summary", "")


def test_undone_forgetting_brings_the_line_back(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    before = page(memory)
    receipt = memory.run(FORGET, ForgetRequest(uris=[TASTE], confirm=1, now=NOW))
    assert "香菜" not in page(memory)
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert page(memory) == before


def test_archived_and_restored_memory_is_on_the_page_again(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    memory.run(ARCHIVE, ArchiveRequest([TASTE], now=NOW))
    memory.run(RESTORE, ArchiveRequest([away(TASTE)], now=NOW))
    maintained(memory, "rolling_summary")
    assert "香菜" in page(memory)


def test_page_of_which_every_memory_is_purged_goes_too(memory: Runebook) -> None:
    uri = kept(memory, "Only this 只有这个", 1, "preferences")
    maintained(memory, "rolling_summary")
    memory.run(PURGE, PurgeRequest(uri))
    assert memory.run(SUMMARY, SummaryRequest()) is None


def test_forgetting_says_that_an_authored_page_may_still_name_it(memory: Runebook) -> None:
    uri = kept(memory, "The safe opens with Zanzibar 暗号", 1, "facts")
    memory.commit(CommitRequest("Zanzibar is the word 暗号", memory_type="rolling_summary", now=NOW))
    receipt = memory.run(FORGET, ForgetRequest(uris=[uri], confirm=1, now=NOW))
    assert any(PAGE in note and "may still name it" in note for note in receipt.notes)
    assert page(memory) == "Zanzibar is the word 暗号"


def test_condensed_preferences_stay_on_the_page_line_by_line(memory: Runebook) -> None:
    told = {
        "Language": "Answer in German unless the question is in French.",
        "Units": "Use metric units everywhere, feet in brackets for altitude only.",
        "Emojis": "Never use emojis in any document or message.",
        "称呼": "邮件里称我吴博士，私下叫我小伟。",
        "Meetings": "No meetings before 10:00, and none at all on Fridays.",
    }
    for topic, said in told.items():
        kept(memory, said, 100, "preferences", fields={"topic": topic})
    maintained(memory, "compression")
    folder = memory.store.files.path_for(MemoryUri.parse("viking://user/default/memories/preferences"))
    assert len([path for path in folder.glob("*.md") if not path.name.startswith(".")]) < len(told)
    maintained(memory, "rolling_summary")
    assert [topic for topic, said in told.items() if topic not in page(memory) or said not in page(memory)] == []


def test_session_begins_with_the_page_and_gets_it_once(memory: Runebook) -> None:
    filled(memory)
    assert "summary" not in parts(memory, "s0")
    maintained(memory, "rolling_summary")
    assert "香菜" in parts(memory, "s1")["summary"]
    assert "summary" not in parts(memory, "s1")
    small = memory.retrieve(RetrieveRequest("next?", session_id="s2", token_budget=200, now=NOW))
    assert small.tokens <= 200


def test_page_is_read_but_neither_searched_nor_counted_as_a_memory(memory: Runebook) -> None:
    filled(memory)
    hits = [hit.uri for hit in memory.find(FindRequest("香菜", now=NOW)).hits]
    maintained(memory, "rolling_summary")
    assert "香菜" in memory.read(ReadRequest(PAGE)).content
    assert [hit.uri for hit in memory.find(FindRequest("香菜", now=NOW)).hits] == hits
    assert PAGE not in json.dumps(as_json(memory.find(FindRequest("rolling summary", now=NOW))))


@pytest.mark.parametrize("name", ["rolling_summary", "Rolling Summary", "滚动摘要"])
def test_written_page_replaces_the_whole_and_is_not_written_over(memory: Runebook, name: str) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    receipt = memory.commit(CommitRequest("We build a boat. 我们在造船。", memory_type=name, now=NOW))
    assert [(result.uri, result.action) for result in receipt.results] == [(PAGE, Action.UPDATED)]
    assert page(memory) == "We build a boat. 我们在造船。"
    assert maintained(memory, "rolling_summary", "overviews") == []
    again = memory.commit(CommitRequest("We build a boat. 我们在造船。", memory_type=name, now=NOW))
    assert again.status is Status.UNCHANGED
    memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
    assert "香菜" in page(memory)


def test_page_written_among_other_operations_keeps_its_place_in_the_receipt(memory: Runebook) -> None:
    writes = [
        {"memory_data": {"memory_type": "daily_logs", "fields": {"content": "Launched 下水"}}},
        {"memory_data": {"memory_type": "rolling_summary", "fields": {"content": "  "}}},
        {"memory_data": {"memory_type": "notes", "fields": {"content": "Oak for the mast 橡木"}}},
        {"memory_data": {"memory_type": "rolling_summary", "fields": {"content": "A boat 一条船"}}},
    ]
    receipt = memory.commit(CommitRequest(operations={"write_operations": writes}, now=NOW))
    names = [(result.uri.rpartition("/")[2], result.action) for result in receipt.results]
    assert [name for name, _ in names[1:]] == ["rolling_summary.md", "Oak for the mast 橡木.md", "rolling_summary.md"]
    assert [action for _, action in names] == [Action.CREATED, Action.REJECTED, Action.CREATED, Action.CREATED]
    assert page(memory) == "A boat 一条船"
    private = memory.commit(
        CommitRequest("Acme only 仅限", memory_type="rolling_summary", project="acme", private=True)
    )
    assert private.status is Status.REJECTED


def test_page_that_a_person_edited_or_wrote_is_theirs(memory: Runebook) -> None:
    filled(memory)
    maintained(memory, "rolling_summary")
    path = memory.store.files.path_for(MemoryUri.parse(PAGE))
    path.write_text(path.read_text(encoding="utf-8").replace("香菜", "芹菜"), encoding="utf-8", newline="\n")
    kept(memory, "Tea, no sugar 不加糖", 1, "preferences")
    assert maintained(memory, "rolling_summary") == []
    path.write_text("Mine alone 我自己的\n", encoding="utf-8", newline="\n")
    assert maintained(memory, "rolling_summary") == []
    assert page(memory) == "Mine alone 我自己的"
    assert memory.run(SUMMARY_CLEAR, SummaryClearRequest(now=NOW)).status is Status.COMMITTED
    assert memory.run(SUMMARY_CLEAR, SummaryClearRequest(now=NOW)).status is Status.UNCHANGED
    maintained(memory, "rolling_summary")
    assert "Tea" in page(memory)


def test_one_call_gives_the_page_and_each_complete_month_the_models_words(tmp_path: Path) -> None:
    def answer(request: LLMRequest) -> Completion:
        assert request.turns[0].text.count("## Item") == 2
        items = [
            {"number": 1, "text": "The shop moved to the new cluster."},
            {"number": 2, "text": "A nurse turned analyst who dislikes coriander. 不吃香菜。"},
        ]
        text = json.dumps({"summaries": items}, ensure_ascii=False)
        return Completion(text, usage=TokenUsage(50, 20, 0, 1))

    llm = ScriptedLLM([answer])
    with open_memory(words_only(tmp_path), llm=llm) as memory:
        filled(memory)
        maintained(memory, "logs", "rolling_summary", days=5)
        assert llm.requests == []
        (receipt,) = maintained(memory, "overviews", days=5)
        assert (receipt.usage or {})["model_requests"] == 1
        assert page(memory).startswith("A nurse turned analyst")
        body = memory.read(ReadRequest("viking://user/default/logs/summaries/2026-12.md")).content
        assert "The shop moved to the new cluster." in body
        assert "Moved the shop to the new cluster." in body
        assert maintained(memory, "logs", "rolling_summary", "overviews", days=5) == []
        assert len(llm.requests) == 1
        assert "coriander" in parts(memory, "s1")["summary"]
        memory.commit(CommitRequest(operations={"delete_operations": [{"uri": TASTE}]}, now=NOW))
        given = parts(memory, "s2")["summary"]
        told = [word in given for word in ("Nurse turned data analyst", "Moved the shop", "coriander", "香菜")]
        assert told == [True, True, False, False]


@pytest.mark.parametrize("says", ["Wants zebra pills at dawn.", "Wants zebra pills at dawn. Wants tea 喝茶 at night."])
@pytest.mark.parametrize("words", ["At dawn they take zebra pills.", "Every morning begins with a capsule."])
def test_what_is_forgotten_goes_from_a_page_in_a_models_words(tmp_path: Path, says: str, words: str) -> None:
    items = {"summaries": [{"number": 1, "text": f"A nurse in Leeds. {words}"}]}
    llm = ScriptedLLM([Completion(json.dumps(items), usage=TokenUsage(50, 20, 0, 1))])
    with open_memory(words_only(tmp_path), llm=llm) as memory:
        kept(memory, "Nurse in Leeds. 住在利兹。", 1, "profile")
        kept(memory, says, 1, "preferences", fields={"topic": "Day"})
        maintained(memory, "rolling_summary", "overviews")
        assert words in page(memory)
        before = text(memory, PAGE)
        shown = memory.run(FORGET, ForgetRequest("zebra pills", now=NOW))
        receipt = memory.run(FORGET, ForgetRequest("zebra pills", confirm=len(shown.results), now=NOW))
        assert "zebra" not in text(memory, PAGE)
        assert words not in text(memory, PAGE)
        assert "Nurse in Leeds. 住在利兹。" in page(memory)
        memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
        assert text(memory, PAGE) == before


def test_what_is_forgotten_of_a_day_goes_from_a_models_overview_of_the_month(tmp_path: Path) -> None:
    def answer(request: LLMRequest) -> Completion:
        told = "They began with an antidepressant. It helps." if "sertraline" in request.turns[0].text else "Shipped."
        items = [{"number": number, "text": told} for number in (1, 2)]
        return Completion(json.dumps({"summaries": items}), usage=TokenUsage(50, 20, 0, 1))

    month, when = "viking://user/default/logs/summaries/2026-10.md", NOW - timedelta(days=100)
    with open_memory(words_only(tmp_path), llm=ScriptedLLM([answer] * 3)) as memory:
        for said in ("Took sertraline 50 mg 舍曲林.", "Deployed build 7."):
            memory.commit(CommitRequest(said, memory_type="daily_logs", now=when))
        maintained(memory, "logs", "rolling_summary", "overviews")
        before = text(memory, month)
        assert before.count("antidepressant") == 3  # the page, its overview, its abstract
        shown = memory.run(FORGET, ForgetRequest("sertraline", now=NOW))
        receipt = memory.run(FORGET, ForgetRequest("sertraline", confirm=len(shown.results), now=NOW))
        for word in ("antidepressant", "It helps", "sertraline", "overview_of"):
            assert word not in text(memory, month)
        assert "Deployed build 7." in text(memory, month)
        memory.run(UNDO, UndoRequest(receipt.commit_id, now=NOW))
        assert text(memory, month) == before
        memory.run(FORGET, ForgetRequest("sertraline", confirm=len(shown.results), now=NOW))
        maintained(memory, "logs", "rolling_summary", "overviews", days=30)
        assert "\n\nShipped.\n\n- [2026-10-" in text(memory, month)


def test_a_line_that_is_empty_leaves_the_blank_lines_of_the_page() -> None:
    lines = tuple(Line(text, f"viking://user/default/{text}", "d") for text in ("", "- two", "- three"))
    left = without(
        RollingSummary("# A\n\n- two\n\n# B\n\n- three", False, "s", None, lines), lambda line: "t" in line.text
    )
    assert left.text == "# A\n\n- two\n\n# B\n\n- three"
    assert [line.text for line in left.lines] == ["- two", "- three"]


def test_a_page_of_which_no_line_is_left_goes_with_what_is_forgotten(tmp_path: Path) -> None:
    items = {"summaries": [{"number": 1, "text": "A nurse. At dawn they take zebra pills."}]}
    llm = ScriptedLLM([Completion(json.dumps(items), usage=TokenUsage(50, 20, 0, 1))])
    with open_memory(words_only(tmp_path), llm=llm) as memory:
        kept(memory, "Nurse 护士. Wants zebra pills at dawn.", 1, "profile")
        maintained(memory, "rolling_summary", "overviews")
        shown = memory.run(FORGET, ForgetRequest("zebra pills", now=NOW))
        receipt = memory.run(FORGET, ForgetRequest("zebra pills", confirm=len(shown.results), now=NOW))
        (told,) = (result for result in receipt.results if result.uri == PAGE)
        assert (told.action, page(memory)) == (Action.DELETED, "")
        assert str(told.note).endswith("; lost the lines of what is gone")
        maintained(memory, "rolling_summary")
        assert page(memory).endswith("Nurse 护士.")


def test_model_that_fails_is_named_by_maintenance_though_nothing_changes(tmp_path: Path) -> None:
    down = ScriptedLLM([ModelUnavailable("the endpoint is down.", hint="Start it.")])
    with open_memory(words_only(tmp_path), llm=down) as memory:
        memory.commit(CommitRequest("Lin, lives in Chengdu 住在成都", memory_type="profile", now=NOW))
        for done in memory.run(MAINTAIN, MaintainRequest(now=NOW, only=["rolling_summary", "overviews"])):
            told = [note for receipt in done.receipts for note in receipt.notes]
        assert any("the endpoint is down" in note and "Start it" in note for note in told)


def test_answer_that_came_too_late_has_a_receipt_with_what_it_cost(tmp_path: Path) -> None:
    def answer(_request: LLMRequest) -> Completion:
        memory.commit(CommitRequest("A nurse who paints.", memory_type="profile", now=NOW))
        maintained(memory, "rolling_summary")
        text = json.dumps({"summaries": [{"number": 1, "text": "A nurse."}]})
        return Completion(text, usage=TokenUsage(50, 20, 0, 1))

    with open_memory(words_only(tmp_path), llm=ScriptedLLM([answer])) as memory:
        kept(memory, "Nurse. 护士。", 1, "profile")
        maintained(memory, "rolling_summary")
        (receipt,) = maintained(memory, "overviews")
        assert (receipt.status, (receipt.usage or {})["model_requests"]) == (Status.UNCHANGED, 1)
        assert "A nurse who paints." in page(memory)


def test_files_that_are_not_utf_8_keep_nothing_else_off_the_page(memory: Runebook) -> None:
    filled(memory)
    broken = kept(memory, "x", 1, "preferences", fields={"topic": "broken"})
    maintained(memory, "logs")
    for uri in (broken, "viking://user/default/logs/summaries/2026-12.md"):
        memory.store.files.path_for(MemoryUri.parse(uri)).write_bytes(b"caf\xe9\n")
    maintained(memory, "rolling_summary")
    assert "香菜" in page(memory)


def test_dry_run_writes_nothing(memory: Runebook) -> None:
    filled(memory)
    newest = memory.store.ledger.newest_seq()
    assert len(maintained(memory, "rolling_summary", "overviews", dry_run=True)) == 1
    assert memory.store.ledger.newest_seq() == newest
    assert memory.run(SUMMARY, SummaryRequest()) is None


def test_command_shows_writes_and_clears_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNEBOOK_HOME", str(tmp_path))
    monkeypatch.setenv("RUNEBOOK_EMBEDDING_PROVIDER", "none")
    assert main(["summary"]) == 0
    assert "no summary yet" in capsys.readouterr().out
    (tmp_path / "page.txt").write_text("From a file 来自文件", encoding="utf-8")
    assert main(["summary", "--write", "A boat 一条船"]) == 0
    assert main(["summary", "--file", str(tmp_path / "page.txt")]) == 0
    capsys.readouterr()
    assert main(["summary"]) == 0
    assert capsys.readouterr().out.strip() == "From a file 来自文件"
    assert main(["summary", "--clear"]) == 0
    with pytest.raises(SystemExit):
        main(["summary", "--write", "x", "--clear"])
