"""Two coding sessions of a user who mixes languages, in Anthropic's and in OpenAI's shape: what is learnt of them.

``fixtures/coding_talks.json`` holds the steps of each project: ``[role, text]``, or ``[tool, arguments, answer]``. No
answer has a flag that says whether the call failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.memory.requests import CommitRequest, ListRequest, RetrieveRequest
from memory_core.core.memory.results import ContextPack
from memory_core.runebook import Runebook, open_memory
from tests.stores import body, trailer, words_only

AGENT = "viking://agent/default/memories"
Message = dict[str, Any]
TALKS: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "coding_talks.json").read_text(encoding="utf-8")
)


def anthropic(at: int, tool: str, arguments: Any, answer: str) -> list[Message]:
    call = {"type": "tool_use", "id": f"toolu_{at}", "name": tool, "input": arguments}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{at}", "content": answer}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def openai(at: int, tool: str, arguments: Any, answer: str) -> list[Message]:
    function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": f"call_{at}", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": f"call_{at}", "content": answer}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


def talk(project: str, shape: Callable[..., list[Message]]) -> list[Message]:
    messages: list[Message] = []
    for at, (first, *rest) in enumerate(TALKS[project]):
        messages += [{"role": first, "content": rest[0]}] if len(rest) == 1 else shape(at, first, *rest)
    return messages


@pytest.fixture(params=[anthropic, openai])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runebook]:
    with open_memory(words_only(tmp_path)) as store:
        for project in TALKS:
            store.commit(CommitRequest(messages=talk(project, request.param), session_id=project, here=project))
        yield store


def known(memory: Runebook, kind: str) -> list[str]:
    return [entry.uri for entry in memory.ls(ListRequest(f"{AGENT}/{kind}")).entries if not entry.is_dir]


def pages(pack: ContextPack) -> list[str]:
    return [item.uri for part in pack.parts if part.kind == "session" for item in part.items]


def test_calls_are_counted_exactly(memory: Runebook) -> None:
    counts = {}
    for uri in known(memory, "tools"):
        told = trailer(memory, uri)
        counts[told["tool_name"]] = (told["total_calls"], told["success_count"], told["fail_count"])
    assert counts == {
        "list_dir": (1, 1, 0),
        "read_file": (2, 1, 1),
        "grep": (1, 1, 0),
        "str_replace": (3, 2, 1),
        "bash": (5, 3, 2),
        "exec_command": (4, 2, 2),
        "读取文件": (2, 1, 1),
        "web_search": (2, 1, 1),
    }


def test_nothing_false_is_learnt(memory: Runebook) -> None:
    told = {trailer(memory, uri)["pattern_name"]: body(memory, uri) for uri in known(memory, "patterns")}
    worked = {name: text.partition("success")[0].partition("; ")[2].split("\n")[0] for name, text in told.items()}
    assert worked == {
        "read_file: ENOENT": "",
        "str_replace: string to replace not found": "",
        "bash: command not found": "",
        "exec_command: command not found": 'worked afterwards with command="npm install"',
        "exec_command: npm error missing script": 'worked afterwards with command="npm run build"',
        "读取文件: file not found": "",
        "web_search: timeout": "the same call worked later",
    }
    assert '；之后用 path="src/config.py" 成功' in told["read_file: ENOENT"]
    assert "之后" not in told["bash: command not found"] + told["str_replace: string to replace not found"]


def test_what_failed_is_no_constraint_and_no_rule(memory: Runebook) -> None:
    for project in TALKS:
        pack = memory.retrieve(RetrieveRequest("bash exec_command npm read_file 命令", project=project))
        kinds = {
            part.kind for part in pack.parts for item in part.items if "/patterns/" in item.uri and item.uri[-1] != "/"
        }
        assert kinds == {"tools"}
    assert {trailer(memory, uri)["pattern_type"] for uri in known(memory, "patterns")} == {"tool_error"}


def test_a_failure_that_comes_again_is_counted_in_the_same_memory(memory: Runebook) -> None:
    again = openai(0, "bash", {"command": "psql -l"}, "bash: psql: command not found")
    memory.commit(
        CommitRequest(messages=[{"role": "user", "content": "还在吗？"}, *again], session_id="later", here="ledger-api")
    )
    text = body(memory, f"{AGENT}/patterns/bash- command not found.md")
    assert text.startswith("bash 已因 command not found 失败 2 次。\n\n<!-- occurrences: 2 -->\n- ")
    assert text.count("occurrences") == 2


@pytest.mark.parametrize(
    ("project", "question", "newer", "older"),
    [
        ("ledger-api", "which database do we use?", "改用 SQLite", "先这样定"),
        ("ledger-api", "database 用什么", "改用 SQLite", "先这样定"),
        ("harbour-ui", "which package manager?", "那就 npm 吧", "用 pnpm。"),
    ],
)
def test_decisions_of_a_conversation_are_shown_as_they_followed_each_other(
    memory: Runebook, project: str, question: str, newer: str, older: str
) -> None:
    text = memory.retrieve(RetrieveRequest(question, project=project)).text
    assert 0 < text.index(older) < text.index(newer)


def test_decisions_told_in_a_project_are_found_in_it_the_newer_one_first(tmp_path: Path) -> None:
    choices = [
        ("Database choice", "ledger-api keeps its data in PostgreSQL, which the reports need.", "2026-03-01"),
        ("SQLite instead", "The database of ledger-api is SQLite from now on: 客户装不了 PostgreSQL。", "2026-05-01"),
    ]
    with open_memory(words_only(tmp_path)) as memory:
        for name, text, day in choices:
            fields = {"event_name": name, "event_time": day}
            memory.commit(CommitRequest(text, memory_type="events", fields=fields, here="ledger-api"))
        memory.commit(CommitRequest("The dentist's database was lost.", memory_type="events"))
        for project, expected in (("ledger-api", ["2026-05-01", "2026-03-01"]), ("other", [])):
            pack = memory.retrieve(RetrieveRequest("ledger-api database", project=project))
            found = [item.uri for part in pack.parts if part.kind == "memories" for item in part.items]
            assert [uri.rpartition("/")[2][:10] for uri in found] == expected
        everywhere = memory.retrieve(RetrieveRequest("ledger-api database", here="other")).text
        assert "SQLite" in everywhere
