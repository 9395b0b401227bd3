"""What a compressed context keeps: open tasks, soonest due first, and a summary, within a budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_core.core.extract.working_memory import Task, WorkingMemory, working_memory
from memory_core.core.memory.message import Message, ToolCall
from memory_core.core.text.tokens import count_tokens

CERTIFICATE: Task = ("viking://t/1", "Renew the certificate", "open", "2026-06-30")
OFFER: Task = ("viking://t/2", "给客户发报价单", "in_progress", "2026-05-20")
SOMEDAY: Task = ("viking://t/3", "Tidy up", "open", None)
DONE: Task = ("viking://t/4", "Ship it", "done", "2026-01-01")


def user(text: str) -> Message:
    return Message("user", text)


def agent(text: str = "", **todos: Any) -> Message:
    return Message("assistant", text, tool_calls=(ToolCall("1", "TodoWrite", todos),) if todos else ())


def item(content: str, status: str) -> dict[str, str]:
    return {"content": content, "status": status}


def test_open_tasks_of_the_store_come_soonest_due_first() -> None:
    kept = working_memory([], [SOMEDAY, DONE, CERTIFICATE, OFFER], None)
    assert kept.open_tasks == (
        "给客户发报价单 (in progress, due 2026-05-20, viking://t/2)",
        "Renew the certificate (due 2026-06-30, viking://t/1)",
        "Tidy up (viking://t/3)",
    )


def test_tasks_said_in_either_language_are_kept() -> None:
    talk = [
        user("TODO: bump the version\n- [ ] tell the team\n* [ ] 写 `README`"),
        agent("待办：通知客户\nto-do: tag it"),
    ]
    assert set(working_memory(talk, [], None).open_tasks) == {
        "bump the version", "tell the team", "写 `README`", "通知客户", "tag it",
    }  # fmt: skip


def test_what_was_ticked_off_or_is_done_in_the_store_is_not_open() -> None:
    talk = [user("- [ ] tell the team\n- [ ] ship it"), agent("- [x] Tell the team.")]
    assert working_memory(talk, [DONE], None).open_tasks == ()


def test_the_last_list_of_a_tool_is_what_counts() -> None:
    talk = [
        agent(todos=[item("old", "pending")]),
        agent(todos=[item("读代码", "completed"), item("写测试", "in_progress"), item("Docs", "pending")]),
        user("- [ ] 读代码\n- [ ] docs"),
    ]
    assert working_memory(talk, [], None).open_tasks == ("写测试", "Docs")


@pytest.mark.parametrize("todos", ["text", None, [1, "x", {"content": 3}, {}], {"a": 1}])
def test_a_malformed_list_is_passed_over(todos: Any) -> None:
    assert working_memory([agent(todos=todos)], [], None) == WorkingMemory()


def test_a_task_named_twice_is_kept_once_and_todos_in_code_are_none() -> None:
    talk = [user("TODO: renew the  CERTIFICATE\n```py\n# TODO: refactor\n- [ ] x\n```")]
    assert len(working_memory(talk, [CERTIFICATE], None).open_tasks) == 1


def test_without_a_model_the_summary_is_a_labelled_extract_of_whole_sentences() -> None:
    talk = [
        user("Migrate `parser.py` to the new API. Keep Python 3.11 working. Thanks."),
        agent("Let's go with the adapter. I read the code first."),
        user("Good, now the docs."),
        agent("The docs are written."),
    ]
    assert working_memory(talk, [], None).summary.splitlines() == [
        "Extract of the conversation, word for word:",
        "First request: Migrate `parser.py` to the new API. Keep Python 3.11 working.",
        "Decided: Let's go with the adapter.",
        "Last request: Good, now the docs.",
        "Last answer: The docs are written.",
    ]


def test_the_extract_is_in_the_language_of_the_conversation() -> None:
    talk = [user("帮我把支付系统迁移到新接口。要保留日志。"), agent("决定用适配器方案。先改代码。"), user("继续")]
    assert working_memory(talk, [OFFER], None).text().splitlines() == [
        "- [ ] 给客户发报价单 (进行中, 截止 2026-05-20, viking://t/2)",
        "对话原文摘录：",
        "最初的请求：帮我把支付系统迁移到新接口。要保留日志。",
        "已决定：决定用适配器方案。",
        "最近的请求：继续",
        "最近的回复：决定用适配器方案。先改代码。",
    ]


def test_of_a_long_conversation_its_beginning_and_its_end_tell() -> None:
    middle = [
        user(f"TODO: water plant {number}") if number % 2 else agent("Let's go with tea.") for number in range(3_000)
    ]
    talk = [
        user("Move the house to Porto."),
        *middle,
        agent("Decided: we go with the blue van."),
        user("Good, now pack."),
    ]
    kept = working_memory(talk, [], None, token_budget=10_000)
    assert "First request: Move the house to Porto." in kept.summary
    assert "Last request: Good, now pack." in kept.summary
    assert "blue van" in kept.summary
    assert [f"water plant {number}" in kept.open_tasks for number in (51, 1_501, 2_501)] == [True, False, True]


def test_the_models_summary_is_taken_as_it_is_or_up_to_a_whole_sentence() -> None:
    assert working_memory([user("hi there")], [], " We met. 很好。 ").summary == "We met. 很好。"
    kept = working_memory([], [], "One is here. Two is here. Three is here.", token_budget=10)
    assert kept.summary == "One is here. Two is here. …"


def test_many_tasks_leave_room_for_the_summary() -> None:
    tasks: list[Task] = [(f"viking://t/{n}", f"Task number {n}", "open", f"2026-05-{n + 1:02}") for n in range(30)]
    kept = working_memory([user("Plan the week of the team.")], tasks, None, token_budget=200)
    assert kept.open_tasks[0].startswith("Task number 0 ")
    assert 3 < len(kept.open_tasks) < 20
    assert "Plan the week of the team." in kept.summary


def test_nothing_to_keep_is_nothing_at_all() -> None:
    kept = working_memory([], [DONE], None)
    assert (kept.as_dict(), kept.text()) == ({}, "")


TEXTS = st.text(st.sampled_from("ab 好的。.!\n-[]x:TODO"), max_size=80) | st.text(max_size=60)


@given(
    st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), TEXTS), max_size=6),
    st.lists(st.tuples(st.just("viking://t"), TEXTS, st.sampled_from(["open", "done"]), st.none()), max_size=4),
    st.none() | TEXTS,
    st.integers(0, 120),
)
def test_the_budget_is_kept(talk: list[Message], tasks: list[Task], summary: str | None, budget: int) -> None:
    kept = working_memory(talk, tasks, summary, budget)
    assert count_tokens(kept.text()) <= budget
    assert kept.as_dict() in ({}, {"open_tasks": list(kept.open_tasks), "summary": kept.summary})


def test_of_several_people_none_gets_the_words_of_another() -> None:
    said = [
        Message("user", "We decided to sell the boat.", name="Sam"),
        Message("user", "I keep my boat.", name="Evan"),
    ]
    told = working_memory(said, (), None).summary
    assert "Sam: We decided to sell the boat." in told
    assert "Evan: I keep my boat." in told
