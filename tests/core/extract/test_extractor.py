"""From conversations to memories with a scripted model: what is committed, what waits, nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from memory_core.core.config import ExtractionConfig
from memory_core.core.errors import InvalidInput, ModelFailed, ModelUnavailable, NotFound
from memory_core.core.extract.loop import MemoryReActOrchestrator
from memory_core.core.extract.prompts import Conversation, Outcome
from memory_core.core.extract.store_view import StoreView
from memory_core.core.llm.client import Completion, LLMRequest, Scripted, ScriptedLLM, StopReason, TokenUsage, drive
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Action, CommitReceipt, OperationResult, Status, as_json
from memory_core.core.memory.uri import MemoryUri
from memory_core.core.progress import listening
from memory_core.runebook import Runebook, open_memory
from tests.stores import added, answer, edit, handed_in, trailer, words_only, write
from tests.stores import scripted as opened

USER = "viking://user/default/memories"
AGENT = "viking://agent/default/memories"
TEA = f"{USER}/preferences/Tea.md"
DOWN = ModelUnavailable("the model is overloaded.", hint="Wait.")
ENGLISH = [
    {"role": "user", "content": "I moved to Osaka last week.", "time": "2026-05-02T10:00:00Z"},
    {"role": "assistant", "content": "Noted.", "time": "2026-05-02T10:01:00Z"},
    {"role": "user", "content": "And I only drink green tea now.", "time": "2026-05-02T10:02:00Z"},
]
CHINESE = [
    {"role": "user", "content": "我上周搬到了成都，现在负责支付系统。", "time": "2026-05-02T10:00:00Z"},
    {"role": "assistant", "content": "好的，记住了。", "time": "2026-05-02T10:01:00Z"},
]
CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "Search for tea houses."},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "web_search", "input": {"query": "tea"}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "three houses", "status": "completed"}],
    },
]


NOTHING = answer(reasoning="nothing")
TEA_ANSWER = answer(write("preferences", topic="Tea", content="Drinks only green tea."))


def created(receipt: CommitReceipt) -> set[str]:
    return {result.uri for result in receipt.results if result.action is Action.CREATED and result.op != "messages"}


def extraction(receipt: CommitReceipt) -> OperationResult | None:
    return next((result for result in receipt.results if result.op == "extraction"), None)


def waiting(memory: Runebook) -> dict[str, int]:
    return {row.log.parent.name: row.waiting for row in memory.extractor.waiting()}


def prompt(request: LLMRequest) -> str:
    return "\n".join(turn.text for turn in request.turns)


def test_an_english_conversation_becomes_memories_with_one_request(tmp_path: Path) -> None:
    moved = write("events", event_name="Moved to Osaka", event_time="2026-04-25", content="The user moved to Osaka.")
    with opened(tmp_path, [answer(moved, write("preferences", topic="Tea", content="Only green tea."))]) as (
        memory,
        llm,
    ):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert receipt.status is Status.COMMITTED
        assert created(receipt) == {TEA, f"{USER}/events/2026-04-25_Moved to Osaka.md"}
        assert len(llm.requests) == 1
        assert waiting(memory) == {}
        assert "I only drink green tea now." in prompt(llm.requests[0])
        assert "English" in prompt(llm.requests[0])
        source = trailer(memory, TEA)["source"]
        assert source.pop("recorded_at")
        assert source == {"kind": "auto_reflection", "session_id": "s1"}


def test_the_language_can_be_set(tmp_path: Path) -> None:
    with opened(tmp_path, [TEA_ANSWER], extraction=ExtractionConfig(language="Deutsch")) as (memory, llm):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert "Deutsch" in prompt(llm.requests[0])


def test_the_receipt_counts_the_tokens_of_all_requests(tmp_path: Path) -> None:
    usage = TokenUsage(prompt=900, completion=50, cached=800, requests=1)
    look = json.dumps({"actions": [{"action_type": "ls", "params": {"uri": USER}}]})
    answers = [Completion(look, usage=usage), Completion(TEA_ANSWER, usage=usage)]
    with opened(tmp_path, answers) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert receipt.usage == {
            "messages": 3,
            "messages_new": 3,
            "prompt_tokens": 1800,
            "completion_tokens": 100,
            "cached_tokens": 1600,
            "model_requests": 2,
        }


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([DOWN], "overloaded"),
        (["I would rather not say."] * 2, "JSON"),
        ([Completion(TEA_ANSWER[:-20], StopReason.LENGTH)] * 2, "token limit"),
        ([Completion("", StopReason.REFUSAL)], "declined"),
        ([answer(write("no_such_type", content="x"))] * 2, "none of the model's operations could be applied"),
    ],
)
def test_a_model_that_fails_leaves_the_conversation_waiting_with_the_reason(
    tmp_path: Path, answers: list[Scripted], why: str
) -> None:
    with opened(tmp_path, answers) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert receipt.status in (Status.QUEUED, Status.PARTIAL)
        line = extraction(receipt)
        assert line is not None
        assert (line.action, why in (line.note or "")) == (Action.QUEUED, True)
        assert len(memory.read(ReadRequest("viking://session/default/s1/messages.jsonl")).content.splitlines()) == 3
        (row,) = memory.extractor.waiting()
        assert (row.waiting, row.attempts, why in (row.reason or "")) == (3, 1, True)
        assert memory.find(FindRequest("green tea", filter={"memory_type": "preferences"})).total == 0


def test_the_next_commit_takes_up_what_waits_exactly_once(tmp_path: Path) -> None:
    chinese = answer(write("facts", content="用户住在成都。"))
    with opened(tmp_path, [DOWN, chinese, TEA_ANSWER]) as (memory, llm):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        receipt = memory.commit(CommitRequest(messages=CHINESE, session_id="s2"))
        assert receipt.status is Status.COMMITTED
        assert TEA in created(receipt)
        assert waiting(memory) == {}
        assert list(memory.extract_waiting()) == []
        assert len(llm.requests) == 3


def test_waiting_conversations_are_extracted_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path, [DOWN]) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
    with opened(tmp_path, [TEA_ANSWER]) as (memory, _):
        (receipt,) = memory.extract_waiting()
        assert created(receipt) == {TEA}
        assert waiting(memory) == {}


def test_a_loop_that_is_abandoned_leaves_the_conversation_to_the_next_one(tmp_path: Path) -> None:
    with opened(tmp_path, [TEA_ANSWER]) as (memory, llm):
        recorded = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", extract=False))
        steps = memory.extraction(recorded)
        next(steps)
        steps.close()
        assert waiting(memory) == {"s1": 3}
        assert created(drive(memory.extraction(recorded), llm, 5.0)) == {TEA}


def test_a_conversation_is_not_extracted_by_two_at_once(tmp_path: Path) -> None:
    with opened(tmp_path, [TEA_ANSWER]) as (memory, llm), opened(tmp_path, [TEA_ANSWER]) as (other, unused):
        recorded = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", extract=False))
        steps = memory.extraction(recorded)
        next(steps)
        for each in (memory, other):
            (meanwhile,) = each.extract_waiting()
            assert meanwhile.status is Status.QUEUED
        assert unused.requests == []
        with pytest.raises(StopIteration) as finished:
            steps.send(Completion(TEA_ANSWER))
        assert created(finished.value.value) == {TEA}
        assert waiting(other) == {}
        assert llm.requests == []


def test_nothing_worth_remembering_is_a_result_with_its_reason(tmp_path: Path) -> None:
    nothing = json.dumps({"reasoning": "only small talk", "operations": {}})
    with opened(tmp_path, [nothing]) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        line = extraction(receipt)
        assert line is not None
        assert (line.action, line.note) == (Action.UNCHANGED, "nothing to remember: only small talk")
        assert receipt.status is Status.COMMITTED
        assert waiting(memory) == {}


def test_new_messages_of_a_session_are_extracted_with_the_earlier_ones_as_background(tmp_path: Path) -> None:
    later = {"role": "user", "content": "My sister Lin visits in June.", "time": "2026-05-03T10:00:00Z"}
    visit = answer(write("facts", content="The user's sister Lin visits in June 2026."))
    with opened(tmp_path, [TEA_ANSWER, visit], extraction=ExtractionConfig(every_exchanges=0)) as (memory, llm):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        memory.commit(CommitRequest(messages=[*ENGLISH, later], session_id="s1"))
        second = prompt(llm.requests[1])
        assert second.index("only drink green tea") < second.index("My sister Lin visits")
        assert "[1] [2026-05-03" in second


def test_a_long_conversation_is_taken_in_parts_and_every_message_is_seen_once(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "content": f"Fact number {number}: " + "the garden has another tree. " * 40}
        for number in range(40)
    ]
    with opened(tmp_path, [NOTHING] * 40) as (memory, llm):
        memory.commit(CommitRequest(messages=talk, session_id="s1"))
        assert waiting(memory) == {}
        assert len(llm.requests) > 1
        shown = [prompt(request).partition("# The conversation")[2] for request in llm.requests]
        for number in range(40):
            assert sum(f"user: Fact number {number}:" in text for text in shown) >= 1


def meddle(memory: Runebook) -> None:
    """Another client edits the memory."""
    patch = "<<<<<<< SEARCH\nDrinks\n=======\nSince 2026 drinks\n>>>>>>> REPLACE"
    receipt = handed_in(memory, edit=[edit(TEA, content=patch)])
    assert receipt.status is Status.COMMITTED


def tea_edit(content: str) -> str:
    return answer(edit_operations=[edit(TEA, content=content)])


TO_BLACK = tea_edit("<<<<<<< SEARCH\ngreen tea\n=======\nblack tea\n>>>>>>> REPLACE")
TALK_OF_TEA = [{"role": "user", "content": "It is black tea that I drink, no longer green tea."}]


def test_a_memory_changed_while_the_model_thinks_is_shown_to_it_anew(tmp_path: Path) -> None:
    def thinking(_request: LLMRequest) -> str:
        meddle(memory)
        return tea_edit("Drinks only black tea.")

    with opened(tmp_path, [thinking, TO_BLACK]) as (memory, llm):
        added(memory, "preferences", topic="Tea", content="Drinks green tea.")
        receipt = memory.commit(CommitRequest(messages=TALK_OF_TEA, session_id="s1"))
        assert receipt.status is Status.COMMITTED
        assert "Since 2026 drinks green tea." in llm.requests[1].turns[-1].text
        assert memory.read(ReadRequest(TEA)).content.startswith("Since 2026 drinks black tea.")
        assert len(llm.requests) == 2


class Interrupted(MemoryReActOrchestrator):
    """The loop, with another client's commit between its end and ours."""

    interruptions: ClassVar[list[Callable[[], None]]] = []

    def extract(self, conversation: Conversation, view: StoreView) -> Generator[LLMRequest, Completion, Outcome]:
        outcome = yield from super().extract(conversation, view)
        for interrupt in self.interruptions:
            interrupt()
        self.interruptions.clear()
        return outcome


@contextmanager
def interrupted(home: Path, answers: Sequence[Scripted]) -> Iterator[tuple[Runebook, ScriptedLLM]]:
    with opened(home, answers) as (memory, llm):
        added(memory, "preferences", topic="Tea", content="Drinks green tea.")
        loop = memory.extractor.orchestrator
        loop.__class__ = Interrupted
        Interrupted.interruptions[:] = [lambda: meddle(memory)]
        yield memory, llm


def test_a_patch_is_applied_to_what_another_client_made_of_the_memory_meanwhile(tmp_path: Path) -> None:
    with interrupted(tmp_path, [TO_BLACK]) as (memory, llm):
        receipt = memory.commit(CommitRequest(messages=TALK_OF_TEA, session_id="s1"))
        assert memory.read(ReadRequest(TEA)).content.startswith("Since 2026 drinks black tea.")
        assert (receipt.status, len(llm.requests), waiting(memory)) == (Status.COMMITTED, 1, {})


def test_a_replacement_that_does_not_fit_what_another_client_made_of_the_memory_is_asked_for_again(
    tmp_path: Path,
) -> None:
    with interrupted(tmp_path, [tea_edit("Drinks only black tea."), TO_BLACK]) as (memory, llm):
        receipt = memory.commit(CommitRequest(messages=TALK_OF_TEA, session_id="s1"))
        assert memory.read(ReadRequest(TEA)).content.startswith("Since 2026 drinks black tea.")
        assert [result.action for result in receipt.results if result.uri == TEA] == [Action.REJECTED, Action.UPDATED]
        assert (len(llm.requests), waiting(memory)) == (2, {})


def test_what_cannot_be_asked_for_again_leaves_the_conversation_waiting_and_the_other_clients_text(
    tmp_path: Path,
) -> None:
    with interrupted(tmp_path, [tea_edit("Drinks only black tea."), DOWN]) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=TALK_OF_TEA, session_id="s1"))
        assert memory.read(ReadRequest(TEA)).content.startswith("Since 2026 drinks green tea.")
        assert receipt.status is Status.PARTIAL
        assert waiting(memory) == {"s1": 1}


def test_tool_calls_are_counted_once_whatever_the_model_claims(tmp_path: Path) -> None:
    claims = answer(
        write("tools", tool_name="web_search", total_calls=50, success_count=50, best_for="Finding places.")
    )
    with opened(tmp_path, [claims, claims]) as (memory, _):
        memory.commit(CommitRequest(messages=CALLS, session_id="s1"))
        memory.commit(CommitRequest(messages=CALLS, session_id="s1"))
        memory.commit(CommitRequest(messages=CALLS, session_id="other"))
        counted = trailer(memory, f"{AGENT}/tools/web_search.md")
        assert (counted["total_calls"], counted["success_count"], counted["fail_count"]) == (1, 1, 0)


def test_a_session_can_be_extracted_again(tmp_path: Path) -> None:
    again = answer(write("facts", content="The user lives in Osaka."))
    with opened(tmp_path, [TEA_ANSWER, again]) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        (receipt,) = memory.extract_waiting("s1")
        assert len(created(receipt)) == 1
        with pytest.raises(NotFound):
            list(memory.extract_waiting("never"))


def test_one_user_never_extracts_the_conversation_of_another(tmp_path: Path) -> None:
    with opened(tmp_path, [DOWN], user_space="mei") as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
    with opened(tmp_path, [TEA_ANSWER] * 3, user_space="tom") as (memory, llm):
        assert list(memory.extract_waiting()) == []
        nothing = memory.commit(CommitRequest(messages=CHINESE, session_id="s2"))
        assert len(llm.requests) == 1
        assert not any("mei" in result.uri for result in nothing.results)
        assert "Osaka" not in memory.extractor.brief()


def test_a_model_that_is_down_is_not_asked_about_every_conversation(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        for number in range(5):
            memory.commit(CommitRequest(messages=ENGLISH, session_id=f"s{number}", extract=False))
    with opened(tmp_path, [DOWN] * 5) as (memory, llm):
        assert [receipt.status for receipt in memory.extract_waiting()] == [Status.QUEUED] * 2
        assert len(llm.requests) == 2


def test_the_summary_of_an_older_conversation_is_not_that_of_the_present_one(tmp_path: Path) -> None:
    older = json.dumps({"reasoning": "nothing", "operations": {}, "summary": "Moved to Osaka."})
    with opened(tmp_path, [DOWN, NOTHING, older]) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        kept = memory.commit(CommitRequest(messages=CHINESE, session_id="s2")).working_memory
        assert kept is not None
        assert "Osaka" not in kept["summary"]


def test_without_a_model_extracting_says_how_to_get_one(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _), pytest.raises(ModelFailed, match=r"llm\.provider"):
        list(memory.extract_waiting())


def test_a_repeated_request_gets_the_whole_receipt_and_asks_no_model(tmp_path: Path) -> None:
    with opened(tmp_path, [TEA_ANSWER]) as (memory, llm):
        first = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", request_id="r1"))
    with opened(tmp_path, [TEA_ANSWER]) as (memory, unused):
        again = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", request_id="r1"))
        assert [as_json(result) for result in again.results] == [as_json(result) for result in first.results]
        assert unused.requests == []
    assert len(llm.requests) == 1


def test_a_repeated_request_says_once_what_the_conversation_waits_for(tmp_path: Path) -> None:
    request = CommitRequest(messages=ENGLISH, session_id="s1", request_id="r1")
    receipts: list[CommitReceipt] = []
    for _ in range(3):
        with opened(tmp_path, [], extraction=ExtractionConfig(trigger="session_end")) as (memory, _llm):
            receipts.append(memory.commit(request))
    notes = [extraction(receipt).note for receipt in receipts]  # type: ignore[union-attr]  # it would fail
    assert notes[0] is not None
    assert "they become memories" in notes[0]
    assert notes == [notes[0]] * 3


def test_what_a_failed_model_did_not_answer_is_not_told_as_applied(tmp_path: Path) -> None:
    told: list[str] = []
    with opened(tmp_path, [DOWN]) as (memory, _), listening(lambda stage: told.append(stage.what)):
        assert memory.commit(CommitRequest(messages=ENGLISH, session_id="s1")).status is not Status.UNCHANGED
    assert not [what for what in told if "was applied" in what]


# The client's own model


def test_a_brief_about_what_waits_is_taken_alone(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        offered = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert (offered.status, offered.brief) == (Status.QUEUED, None)
        for session_id in ("s1", None):
            receipt = memory.commit(CommitRequest(brief=True, session_id=session_id))
            assert (receipt.status, receipt.results) == (Status.UNCHANGED, ())
            assert 'session_id="s1"' in (receipt.brief or "")
            assert ENGLISH[0]["content"] in (receipt.brief or "")
        memory.commit(CommitRequest(operations={"reasoning": "small talk"}, session_id="s1"))
        assert waiting(memory) == {}
        with pytest.raises(NotFound, match="nothing of the conversation 's1' waits"):
            memory.commit(CommitRequest(brief=True, session_id="s1"))
        with pytest.raises(InvalidInput, match="brief goes with messages"):
            memory.commit(CommitRequest("Tea.", brief=True))


def test_a_brief_that_was_asked_for_comes_also_where_the_model_cannot_be_used(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path, llm={"provider": "openai", "model": " "})) as memory:
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        assert any("the model cannot be used" in note for note in receipt.notes)
        assert 'session_id="s1"' in (receipt.brief or "")


def test_a_brief_that_comes_with_the_messages_is_closed_by_operations_with_its_session(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        assert receipt.status is Status.QUEUED
        assert 'session_id="s1"' in (receipt.brief or "")
        assert waiting(memory) == {"s1": 3}
        tea = write("preferences", topic="Tea", content="Only green tea.")
        assert created(handed_in(memory, write=[tea], session_id="s1")) == {TEA}
        assert waiting(memory) == {}


def test_a_reason_alone_closes_a_brief_and_is_in_the_receipt(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        receipt = memory.commit(CommitRequest(operations={"reasoning": "只是闲聊"}, session_id="s1"))
        assert (receipt.status, receipt.results[0].note) == (Status.UNCHANGED, "nothing to remember: 只是闲聊")
        assert waiting(memory) == {}


def test_a_reason_is_told_without_the_secret_that_it_holds(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        receipt = memory.commit(CommitRequest(operations={"reasoning": f"only {secret}"}, session_id="s1"))
        assert str(receipt.results[0].note).startswith("nothing to remember: only ")
        assert secret not in str(receipt)


def test_messages_that_came_after_the_brief_still_wait(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH[:2], session_id="s1", brief=True))
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", extract=False))
        memory.commit(CommitRequest(operations={"reasoning": "nothing"}, session_id="s1"))
        assert waiting(memory) == {"s1": 1}


def test_operations_that_are_all_refused_leave_the_brief_open(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        receipt = handed_in(memory, write=[write("no_such", content="x")], session_id="s1")
        assert receipt.status is Status.REJECTED
        assert waiting(memory) == {"s1": 3}


def test_a_client_may_change_what_it_read_by_itself_but_not_replace_what_changed_since_the_brief(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, None) as (memory, _):
        for topic in ("Tea", "Cake"):
            added(memory, "preferences", topic=topic, content=f"Likes {topic}.")
        memory.commit(
            CommitRequest(messages=[*ENGLISH, {"role": "user", "content": "Tea"}], session_id="s1", brief=True)
        )
        added(memory, "preferences", topic="Tea", content="Likes Tea. It is from Uji.")
        whole = [write("preferences", topic="Tea", content="Only green tea.")]
        receipt = handed_in(memory, write=whole, session_id="s1")
        assert [result.conflict for result in receipt.results] == [True]
        assert "Uji" in memory.read(ReadRequest(TEA)).content
        assert waiting(memory) == {"s1": 4}
        assert handed_in(memory, write=whole, session_id="s1").status is Status.REJECTED
        patch = "<<<<<<< SEARCH\nLikes Tea\n=======\nLikes only green tea\n>>>>>>> REPLACE"
        assert handed_in(memory, edit=[edit(TEA, content=patch)], session_id="s1").status is Status.COMMITTED
        assert memory.read(ReadRequest(TEA)).content.startswith("Likes only green tea. It is from Uji.")
        assert waiting(memory) == {}


def test_a_late_answer_to_a_brief_does_not_replace_what_was_changed_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        added(memory, "preferences", topic="Tea", content="Likes Tea.")
        memory.commit(CommitRequest(messages=TALK_OF_TEA, session_id="s1", brief=True))
    with opened(tmp_path, [tea_edit("Likes black tea.")]) as (memory, _):
        list(memory.extract_waiting())
        late = handed_in(memory, write=[write("preferences", topic="Tea", content="?")], session_id="s1")
        assert [result.conflict for result in late.results] == [True]
        assert memory.read(ReadRequest(TEA)).content.startswith("Likes black tea.")


def test_counts_in_an_answer_to_a_brief_are_left_out(tmp_path: Path) -> None:
    claims = write("tools", tool_name="web_search", total_calls=50, success_count=50, best_for="Finding places.")
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=CALLS, session_id="s1", brief=True))
        receipt = handed_in(memory, write=[claims], session_id="s1")
        counted = trailer(memory, f"{AGENT}/tools/web_search.md")
        assert (counted["total_calls"], counted["best_for"]) == (1, "Finding places.")
        assert any("counts by itself" in note for note in receipt.notes)


def test_a_reason_that_is_sent_again_is_answered(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1", brief=True))
        for _attempt in range(2):
            receipt = memory.commit(CommitRequest(operations={"reasoning": "nothing"}, session_id="s1", request_id="r"))
            assert receipt.status is Status.UNCHANGED


def test_a_session_whose_name_has_odd_spaces_can_be_answered(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        brief = memory.commit(CommitRequest(messages=ENGLISH, session_id="a  b\u3000c", brief=True)).brief or ""
        named = json.loads(brief.partition("session_id=")[2].partition(")")[0])
        memory.commit(CommitRequest(operations={"reasoning": "nothing"}, session_id=named))
        assert waiting(memory) == {}


# Logs that people change


LOG = "session/default/s1/messages.jsonl"


def test_messages_after_a_removed_session_folder_are_extracted(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING, TEA_ANSWER]) as (memory, llm):
        memory.commit(CommitRequest(messages=CHINESE, session_id="s1"))
        (tmp_path / LOG).unlink()
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert "only drink green tea" in prompt(llm.requests[1])
        assert waiting(memory) == {}


def test_a_log_that_is_away_keeps_its_place_in_the_queue(tmp_path: Path) -> None:
    with opened(tmp_path, [DOWN, TEA_ANSWER]) as (memory, llm):
        memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        (tmp_path / LOG).rename(tmp_path / "away")
        (receipt,) = memory.extract_waiting()
        assert receipt.status is Status.QUEUED
        (tmp_path / "away").rename(tmp_path / LOG)
        (receipt,) = memory.extract_waiting()
        assert created(receipt) == {TEA}
        assert len(llm.requests) == 2


def test_a_log_that_was_replaced_while_the_model_thought_is_not_taken_for_done(tmp_path: Path) -> None:
    def thinking(_request: LLMRequest) -> str:
        (tmp_path / LOG).write_text('{"role": "user", "content": "other words"}\n' * 3, encoding="utf-8")
        return TEA_ANSWER

    with opened(tmp_path, [thinking]) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        assert created(receipt) == set()
        assert waiting(memory) == {"s1": 3}


def test_logs_that_cannot_be_read_keep_no_other_conversation_waiting(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        for session_id in ("s1", "s2", "s3"):
            talk = CHINESE if session_id == "s3" else ENGLISH
            memory.commit(CommitRequest(messages=talk, session_id=session_id, extract=False))
    for session_id in ("s1", "s2"):
        (tmp_path / LOG.replace("s1", session_id)).write_bytes(b"\xff\xfe not text")
    with opened(tmp_path, [TEA_ANSWER]) as (memory, _):
        *broken, whole = memory.extract_waiting()
        assert ([each.status for each in broken], created(whole)) == ([Status.QUEUED] * 2, {TEA})
        assert "现在负责支付系统" not in memory.extractor.brief()


def test_more_than_a_hundred_conversations_are_extracted_by_one_request(tmp_path: Path) -> None:
    with opened(tmp_path, [NOTHING] * 101) as (memory, _):
        for number in range(101):
            memory.commit(CommitRequest(messages=ENGLISH[:1], session_id=f"s{number}", extract=False))
        assert len(list(memory.extract_waiting())) == 101
        assert waiting(memory) == {}


def test_calls_are_counted_once_also_when_their_session_was_removed(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=CALLS, session_id="s1"))
        (tmp_path / LOG).unlink()
        memory.commit(CommitRequest(messages=CALLS, session_id="s1"))
        counted = trailer(memory, f"{AGENT}/tools/web_search.md")
        assert counted["total_calls"] == 1


# Answers that are no text


def test_half_a_surrogate_pair_in_an_answer_becomes_text_and_everything_is_settled(tmp_path: Path) -> None:
    odd = json.dumps(
        {
            "reasoning": "half \ud800",
            "memory_changes": [{"change_type": "noop", "memory_type": "fa\ud800", "reason": "known \udfff"}],
            "operations": {
                "write_operations": [write("facts", content="odd \ud800 text"), write("f\ud800", content="x")]
            },
            "summary": "sum \ud800",
        }
    )
    with opened(tmp_path, [odd, odd, odd]) as (memory, _):
        receipt = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1"))
        json.dumps(as_json(receipt), ensure_ascii=False).encode("utf-8")
        assert memory.commit(CommitRequest("after")).status is Status.COMMITTED
    with opened(tmp_path, None) as (memory, _):
        assert memory.store.ledger.unsettled() == []
        assert memory.find(FindRequest("after")).total == 1


def test_the_tokens_of_answers_that_failed_are_counted(tmp_path: Path) -> None:
    cut = Completion("{", StopReason.LENGTH, TokenUsage(prompt=900, completion=50, requests=1))
    with opened(tmp_path, [cut, cut]) as (memory, _):
        usage = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1")).usage or {}
        assert (usage["prompt_tokens"], usage["model_requests"]) == (1800, 2)


def test_a_memory_that_is_written_and_deleted_at_once_is_no_change(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        operations = {
            "write_operations": [write("preferences", topic="Tea", content="x")],
            "delete_operations": [{"uri": TEA}],
        }
        receipt = memory.commit(CommitRequest(operations=operations))
        assert receipt.status is Status.UNCHANGED
        assert not (tmp_path / "user/default/memories/preferences/Tea.md").exists()


def test_the_brief_of_a_stored_conversation_shows_it(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        memory.commit(CommitRequest(messages=CHINESE, session_id="s1", extract=False))
        assert "现在负责支付系统" in memory.extractor.brief("s1")
        assert "现在负责支付系统" in memory.extractor.brief()
        memory.commit(CommitRequest(operations={"reasoning": "nothing"}, session_id="s1"))
        assert "支付系统" not in memory.extractor.brief()
        with pytest.raises(NotFound):
            memory.extractor.brief("s1")


# What must stay in a compressed context


def test_a_conversation_without_a_model_returns_open_tasks_and_an_extract(tmp_path: Path) -> None:
    with opened(tmp_path, None) as (memory, _):
        for title, state, due in (("给客户发报价单", "open", "2026-06-30"), ("Renew the certificate", "done", "")):
            fields = {"title": title, "state": state, "due_date": due, "content": title}
            added(memory, "tasks", **fields)
        talk = [*ENGLISH, {"role": "assistant", "content": "Left to do:\n- [x] unpack\n- [ ] buy a kettle"}]
        kept = memory.commit(CommitRequest(messages=talk, session_id="s1")).working_memory
        assert kept is not None
        assert [task.partition(" (")[0] for task in kept["open_tasks"]] == ["给客户发报价单", "buy a kettle"]
        assert "I moved to Osaka last week." in kept["summary"]


def test_the_models_summary_is_handed_back(tmp_path: Path) -> None:
    said = json.dumps({"reasoning": "nothing", "operations": {}, "summary": "搬到大阪，只喝绿茶。"}, ensure_ascii=False)
    with opened(tmp_path, [said]) as (memory, _):
        kept = memory.commit(CommitRequest(messages=ENGLISH, session_id="s1")).working_memory
        assert kept is not None
        assert kept["summary"] == "搬到大阪，只喝绿茶。"


def test_an_answer_by_name_does_not_replace_what_a_renamed_memory_says_by_now(tmp_path: Path) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        gate = added(memory, "notes", "The code of the gate is 1111.", title="gate").results[0].uri
        talk = [{"role": "user", "content": "About the gate: it opens at eight."}]
        brief = memory.commit(CommitRequest(messages=talk, session_id="s1", brief=True)).brief or ""
        assert "1111" in brief
        path = memory.store.files.path_for(MemoryUri.parse(gate))
        path.rename(path.with_name("door.md"))
        memory.store.adopt()
        door = gate.replace("gate.md", "door.md")
        handed_in(memory, edit=[{"uri": door, "patches": {"content": "The code is 2222. Bring the blue key."}}])
        old = write("notes", title="gate", content="The gate opens at eight. The code is 1111.")
        receipt = handed_in(memory, write=[{"replace": True, **old}], session_id="s1")
        assert [result.conflict for result in receipt.results] == [True]
        assert "blue key" in memory.read(ReadRequest(door)).content
