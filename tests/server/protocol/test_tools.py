"""The six tools over real pipes: sizes, schemas, bad input, annotations, prompts and the resource template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, TextContent

from memory_core.core.memory.uri import ABSTRACT_NAME, OVERVIEW_NAME
from memory_core.runebook import open_memory
from server.foreign_json import MOST_VALUES
from tests.server.conftest import text_of
from tests.stores import files_below, words_only
from tests.waiting import PATIENCE_SECONDS, soon

if TYPE_CHECKING:
    from tests.server.conftest import Caller, Connect, RawClient


RESULT_LIMIT_CHARS = 40_000
NOTES = "viking://user/default/memories/notes"
ENTITY = "viking://user/default/memories/entities/支付 系统.md"
TOOLS = ["commit_memory", "find", "read", "ls", "tree", "retrieve"]


def size_of(answer: CallToolResult) -> int:
    """Characters of both forms."""
    text = sum(len(block.text) for block in answer.content if isinstance(block, TextContent))
    facts = answer.structured_content
    return text + (0 if facts is None else len(json.dumps(facts, ensure_ascii=False)))


def snapshot(home: Path) -> dict[str, tuple[bytes, int]]:
    """Every file outside ``.state`` with its bytes and time, but views of directories, which follow by themselves."""
    return {
        str(path.relative_to(home)): (text, path.stat().st_mtime_ns)
        for path, text in files_below(home)
        if ".state" not in path.parts and path.name not in (ABSTRACT_NAME, OVERVIEW_NAME)
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools") / "home"


@pytest.fixture(scope="module")
def server(home: Path, connect: Connect) -> Iterator[Caller]:
    """A store with a little in it."""
    entity = {"memory_type": "entities", "fields": {"entity_name": "支付 系统"}}
    said = {"role": "user", "name": "Mei", "content": "We fly to Osaka in May."}
    with connect(home, "legacy") as caller:
        caller.facts("commit_memory", memory_content="The user's sister Lin lives in Chengdu.", memory_type="profile")
        caller.facts("commit_memory", memory_content="支付系统每天凌晨三点对账。", **entity)
        caller.facts("commit_memory", memory_content="one\ntwo\nthree", fields={"title": "Lines"})
        caller.facts("commit_memory", messages=[said], session_id="s1")
        yield caller


# Descriptions


@pytest.fixture(scope="module")
def listed(server: Caller) -> list[dict[str, Any]]:
    tools = server.portal.call(server.client.list_tools).tools
    return [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]


def test_there_are_six_tools_with_short_names(listed: list[dict[str, Any]], server: Caller) -> None:
    assert [tool["name"] for tool in listed] == TOOLS
    assert server.client.server_info is not None
    assert max(len(f"{server.client.server_info.name}{tool['name']}") for tool in listed) <= 40


def test_tools_list_is_at_most_3500_tokens(listed: list[dict[str, Any]]) -> None:
    assert len(json.dumps(listed, ensure_ascii=False)) / 4 <= 3_500
    assert max(len(tool["description"].encode()) for tool in listed) <= 2_000


def test_operations_are_fully_typed(listed: list[dict[str, Any]]) -> None:
    schema = listed[0]["inputSchema"]
    validator = jsonschema.Draft202012Validator(schema)
    patch = [{"search": "a", "replace": "b", "start_line": 1}]
    good = {
        "reasoning": "因为",
        "write_operations": [{"memory_data": {"memory_type": "facts", "fields": {"content": "x", "n": 1}}}],
        "edit_operations": [{"uri": "viking://user/default/memories/profile.md", "patches": {"content": patch}}],
        "delete_operations": [{"uri": "viking://user/default/memories/profile.md", "reason": "old"}],
        "overview_operations": [{"directory_uri": "viking://user/default/memories", "abstract": "x"}],
    }
    validator.validate({"operations": good})
    faulty: list[dict[str, Any]] = [
        {"write_operations": [{"memory_data": {"fields": {}}}]},
        {"write_operations": {}},
        {"edit_operations": [{"uri": "u", "patches": {"content": [{"search": "a"}]}}]},
        {"delete_operations": [{}]},
    ]
    for broken in faulty:
        assert not validator.is_valid({"operations": broken}), broken


def test_server_says_who_it_is_and_how_memory_is_used(server: Caller) -> None:
    client = server.client
    assert client.server_info is not None
    assert client.server_info.name == "runebook"
    assert client.server_info.version[0].isdigit()
    instructions = client.instructions or ""
    assert 200 < len(instructions.encode()) <= 2_000
    for word in ("retrieve", "find", "commit_memory", "记住", "pinned", "expires_at", "active", "review"):
        assert word in instructions


# What the tools do


def test_reading_tools_change_no_file(server: Caller, home: Path) -> None:
    before = snapshot(home)
    assert len(before) >= 4
    server.facts("find", query="Where does Lin live?", rank="weighted")
    server.facts("find", query="对账", target_uri="viking://user/default/memories")
    server.facts("read", uri=f"{NOTES}/Lines.md", offset=1, limit=1)
    server.facts("ls", uri="viking://user/default/memories", show_all_hidden=True)
    server.facts("tree", level_limit=16, output="original")
    server.facts("retrieve", query="支付系统")
    server.facts("retrieve", messages=[{"role": "user", "content": "Osaka"}], format="text")
    server.facts("commit_memory", memory_content="Only a trial.", dry_run=True)
    assert snapshot(home) == before


def test_memory_that_is_itself_json_is_stored_as_it_is(server: Caller) -> None:
    for content in ('{"port": 8080}', '["tabs", "spaces"]', "null", "true", "12"):
        receipt = server.facts("commit_memory", memory_content=content, fields={"title": f"Json {content[:3]}"})
        assert server.facts("read", uri=receipt["results"][0]["uri"])["content"].startswith(content + "\n")
    server.facts("retrieve", query='{"port": 8080}')


def test_objects_sent_as_json_text_are_understood(server: Caller) -> None:
    write = {"memory_data": {"memory_type": "facts", "fields": {"content": "Sent as text."}}}
    receipt = server.facts("commit_memory", operations=json.dumps({"write_operations": [write]}))
    assert receipt["results"][0]["action"] == "created"
    assert server.facts("find", query="sent as text", filter='{"memory_type": "facts"}')["total"] == 1
    beside = server.facts("commit_memory", memory_content="Beside nothing.", operations="{}", fields="{}")
    assert beside["results"][0]["action"] == "created"


def test_one_malformed_operation_is_rejected_alone(server: Caller) -> None:
    uri = server.facts("commit_memory", memory_content="alpha beta", fields={"title": "Patched"})["results"][0]["uri"]
    fact = {"memory_data": {"memory_type": "facts", "fields": {"content": "Kept beside broken ones."}}}
    unknown = {"memory_data": {"memory_type": "没有", "fields": {"content": "x"}}}
    operations = {
        "write_operations": [fact, {"nothing": 1}, 7, unknown],
        "edit_operations": [
            {"uri": uri, "patches": {"content": "<<<<<<< SEARCH\nno such text\n=======\nx\n>>>>>>> REPLACE"}},
            {"uri": uri, "patches": {"content": "<<<<<<< SEARCH\nalpha\n======="}},
            {"uri": "viking://user/default/memories/../../x.md", "patches": {"content": "x"}},
        ],
        "delete_operations": [{"uri": f"{NOTES}/absent.md"}],
    }
    answer = server.call("commit_memory", operations=operations)
    receipt = answer.structured_content
    assert receipt is not None
    assert not answer.is_error
    assert receipt["status"] == "partial"
    actions = [result["action"] for result in receipt["results"]]
    assert sorted(actions) == ["created"] + 7 * ["rejected"]
    assert all(result["reason"] and result["hint"] for result in receipt["results"] if result["action"] == "rejected")
    assert server.facts("read", uri=uri)["content"].startswith("alpha beta\n")
    assert text_of(answer).count("Next: ") == 7


def test_commit_whose_every_operation_is_refused_is_an_error(server: Caller, home: Path) -> None:
    before = snapshot(home)
    answer = server.call("commit_memory", operations={"delete_operations": [{"uri": f"{NOTES}/absent.md"}]})
    assert answer.is_error
    assert answer.structured_content is not None
    assert answer.structured_content["status"] == "rejected"
    assert "Next: " in text_of(answer)
    assert snapshot(home) == before


def test_unchanged_commit_is_no_error_and_says_so(server: Caller) -> None:
    server.facts("commit_memory", memory_content="Said twice.", fields={"title": "Twice"})
    again = server.facts("commit_memory", memory_content="Said twice.", fields={"title": "Twice"})
    assert again["status"] == "unchanged"


# Sizes


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, connect: Connect) -> Iterator[Caller]:
    """A store of 1,200 files written by hand, and some that are long or awkward."""
    home = tmp_path_factory.mktemp("large") / "home"
    notes = home / "user/default/memories/notes"
    notes.mkdir(parents=True)
    for index in range(1_200):
        text = f"The fox number {index} jumps over 懒狗。" * (6 if index % 20 else 100)
        (notes / f"Subject {index} 关于狐狸.md").write_text(text, encoding="utf-8", newline="\n")
    for name, text in LONG.items():
        (notes / f"{name}.md").write_text(text, encoding="utf-8", newline="\n")
    with open_memory(words_only(home)) as memory:
        assert memory.opened.adopted.wait(PATIENCE_SECONDS)  # no test is about who is first: the reader or the call
        memory.indexer.follow()
    with connect(home) as caller:
        yield caller


LONG = {
    "two hundred kilobytes": "".join(f'line {index} 行 "quoted" {"y" * (index % 90)}\n' for index in range(2_900)),
    "escapes": '"\\\n' * 30_000,
    "newlines": "\n" * 60_000 + "end",
    "controls": ("\x01" * 1_000 + "\n") * 30,
    "blank ends": "\n\n第一行\n\n\n",
}


@pytest.mark.parametrize("name", LONG)
def test_pages_of_a_read_make_the_whole_file_again(large: Caller, name: str) -> None:
    pages: list[str] = []
    offset: int | None = 0
    while offset is not None:
        answer = large.call("read", uri=f"{NOTES}/{name}.md", offset=offset)
        assert size_of(answer) < RESULT_LIMIT_CHARS
        assert answer.structured_content is not None
        pages.append(answer.structured_content["content"])
        assert text_of(answer).startswith(pages[-1])
        offset = answer.structured_content.get("next_offset")
        assert offset is None or f"go on with offset {offset}" in text_of(answer)
    assert "\n".join(pages) == LONG[name]


@pytest.mark.parametrize("filler", ["z", "行", '"'])
def test_one_endless_line_is_cut_and_the_whole_is_named(large: Caller, filler: str) -> None:
    uri = large.facts("commit_memory", memory_content=filler * (200_000 // len(filler.encode())))["results"][0]["uri"]
    answer = large.call("read", uri=uri)
    assert 10_000 < size_of(answer) < RESULT_LIMIT_CHARS
    assert f"the resource {uri} holds it whole" in text_of(answer)
    assert large.resource(uri).text.startswith(filler * (200_000 // len(filler.encode())) + "\n")


def test_hundred_hits_fit_and_what_was_cut_is_named(large: Caller) -> None:
    answer = large.call("find", query="fox 狐狸", limit=100)
    facts = answer.structured_content
    assert facts is not None
    assert size_of(answer) < RESULT_LIMIT_CHARS
    shown = len(facts["memories"])
    assert 30 < shown < 100
    assert facts["total"] == shown
    assert f"left out {100 - shown} hits" in facts["notes"][-1]
    assert facts["notes"][-1] in text_of(answer)
    assert [hit["uri"] for hit in facts["memories"]] == [
        line.split(" [")[0].strip() for line in text_of(answer).splitlines() if line.startswith("   viking://")
    ]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ls", {"uri": NOTES}),
        ("ls", {"uri": NOTES, "output": "original", "node_limit": 10_000}),
        ("ls", {"uri": NOTES, "abs_limit": 2_000, "node_limit": 10_000}),
        ("tree", {"level_limit": 16, "node_limit": 10_000}),
        ("tree", {"level_limit": 2}),
    ],
)
def test_a_thousand_entries_fit_and_the_rest_is_counted(large: Caller, tool: str, arguments: dict[str, Any]) -> None:
    answer = large.call(tool, **arguments)
    facts = answer.structured_content
    assert facts is not None
    assert size_of(answer) < RESULT_LIMIT_CHARS
    shown = [entry["uri"] for entry in facts["entries"]]
    assert shown == [line.split("  ")[0] for line in text_of(answer).splitlines() if line.startswith("viking://")]
    if arguments.get("level_limit") != 2:
        assert facts["left_out"] + len(shown) >= 1_200
        assert f"… and {facts['left_out']} more" in text_of(answer)
        assert "find with target_uri" in facts["notes"][0]


@pytest.mark.parametrize("form", ["blocks", "text"])
def test_largest_context_pack_fits(large: Caller, form: str) -> None:
    answer = large.call("retrieve", query="fox 狐狸", token_budget=10_000, format=form)
    facts = answer.structured_content
    assert facts is not None
    assert 10_000 < size_of(answer) < RESULT_LIMIT_CHARS
    if form == "text":
        assert text_of(answer).startswith(facts["text"])
    assert facts["tokens"] <= 10_000
    assert len(facts["left_out"]) <= facts["left_out_count"]


def stored_facts(caller: Caller) -> int:
    answer = caller.call("tree", uri="viking://user/default/memories/facts", node_limit=10_000)
    listed = answer.structured_content or {"entries": [], "left_out": 0}  # none: there are no facts yet
    return len(listed["entries"]) + int(listed["left_out"])


def test_receipt_of_500_operations_fits_and_shows_what_was_refused(large: Caller) -> None:
    writes = [
        {"memory_data": {"memory_type": "facts", "fields": {"content": f"Fact {index}: 第 {index} 件事"}}}
        for index in range(490)
    ]
    edits = [{"uri": f"{NOTES}/absent {index}.md", "patches": {"content": "x"}} for index in range(10)]
    before = stored_facts(large)
    answer = large.call("commit_memory", operations={"write_operations": writes, "edit_operations": edits})
    facts = answer.structured_content
    assert facts is not None
    assert size_of(answer) < RESULT_LIMIT_CHARS
    assert facts["status"] == "partial"
    assert sum(result["action"] == "rejected" for result in facts["results"]) == 10
    assert "490 created, 10 rejected" in facts["notes"][-1]
    assert facts["notes"][-1] in text_of(answer)
    assert len(facts["results"]) > 100
    assert stored_facts(large) == before + 490


def test_bulk_that_the_caller_sent_is_not_echoed(large: Caller) -> None:
    bulk = "长 long " * 20_000
    refused = [
        large.call("read", uri=bulk),
        large.call("find", query="x", filter={bulk: 1}),
        large.call("find", query=bulk),
        large.call("find", query="x", **{bulk: 1}),
        large.call("commit_memory", memory_content="x", memory_type=bulk),
        large.call("commit_memory", memory_content="x", priority=bulk),
        large.call("commit_memory", operations={"delete_operations": [{"uri": bulk}]}),
        large.call("commit_memory", messages=[{"role": "user", "content": "x"}], session_id=bulk),
    ]
    for answer in refused:
        assert answer.is_error
        assert size_of(answer) < 6_000
        assert "Next: " in text_of(answer)
    partly = large.call(
        "commit_memory",
        operations={
            "edit_operations": [{"uri": bulk, "patches": {"content": "x"}}],
            "write_operations": [{"memory_data": {"memory_type": "facts", "fields": {"content": "Short."}, bulk: 1}}],
            bulk: 1,
        },
    )
    assert partly.structured_content is not None
    assert {result["action"] for result in partly.structured_content["results"]} == {"created", "rejected"}
    assert size_of(partly) < 12_000


# Bad input

UNSAFE_URIS = [
    "viking://user/default/../../../etc/passwd",
    "viking://user/default/memories/%2e%2e/%2e%2e/x.md",
    "viking://user/default/memories/..%2f..%2fx.md",
    "viking://user\\default\\memories",
    "viking://user/default/memories/a\x00b.md",
    "viking:///etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "C:\\Windows\\win.ini",
    "viking://user/default/.state/ledger.sqlite3",
    "viking://.state/ledger.sqlite3",
    "viking://user/default/memories/．．/x.md",
    "viking://user/other/memories/profile.md",
    "viking://agent/other/memories/x.md",
    "viking://elsewhere/x.md",
    " ",
    "资料",
    "viking://user/" + "x" * 1_000_000,
]


def uri_arguments(uri: str) -> list[tuple[str, dict[str, Any]]]:
    """Every argument of every tool that takes a URI."""
    data = {"memory_type": "notes", "fields": {"content": "x", "title": "Lines"}}
    own = f"{NOTES}/Lines.md"
    return [
        ("read", {"uri": uri}),
        ("ls", {"uri": uri}),
        ("tree", {"uri": uri}),
        ("find", {"query": "x", "target_uri": uri}),
        ("commit_memory", {"operations": {"write_operations": [{"uri": uri, "memory_data": data}]}}),
        ("commit_memory", {"operations": {"edit_operations": [{"uri": uri, "patches": {"content": "x"}}]}}),
        ("commit_memory", {"operations": {"delete_operations": [{"uri": uri}]}}),
        ("commit_memory", {"operations": {"delete_operations": [{"uri": own, "replacement_uri": uri}]}}),
        ("commit_memory", {"operations": {"overview_operations": [{"directory_uri": uri, "abstract": "x"}]}}),
    ]


@pytest.mark.parametrize("uri", UNSAFE_URIS, ids=lambda uri: ascii(uri[:40]))
def test_unsafe_uri_is_refused_in_every_argument(server: Caller, home: Path, uri: str) -> None:
    before = snapshot(home)
    for tool, arguments in uri_arguments(uri):
        answer = server.call(tool, **arguments)
        assert answer.is_error, (tool, arguments)
        assert "Next: " in text_of(answer)
        assert "Traceback" not in text_of(answer)
    assert snapshot(home) == before


@pytest.mark.parametrize("session_id", ["../x", "a/b", "..", ".hidden", "a\x00", "a\\b", " ", "con", "x" * 300])
def test_unsafe_session_id_is_refused(server: Caller, home: Path, session_id: str) -> None:
    before = snapshot(home)
    answer = server.call("commit_memory", messages=[{"role": "user", "content": "hi"}], session_id=session_id)
    assert answer.is_error
    assert "Next: " in text_of(answer)
    assert snapshot(home) == before


def each_of(name: str, *values: Any, **beside: Any) -> list[dict[str, Any]]:
    """Arguments with each of the values by this name."""
    return [{**beside, name: value} for value in values]


LINES = f"{NOTES}/Lines.md"
BAD_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "commit_memory": [
        {},
        *each_of("memory_content", "", " \n\t　", "a\x00b", "记" * 400_000, 5, ["a"], {"a": 1}),
        *each_of("memory_type", "nonesuch", "tools", memory_content="x"),
        *each_of("priority", "urgent", 2, memory_content="x"),
        *each_of("fields", {"title": ["a"]}, "no", memory_content="x"),
        *each_of("messages", [{"role": "user", "content": "y"}], memory_content="x"),
        *each_of("surprise", 1, memory_content="x"),
        *each_of("dry_run", "perhaps", memory_content="x"),
        *each_of(
            "messages",
            [],
            [{}],
            ["hello"],
            "hello",
            [{"role": "user", "content": "ok"}, {"role": "user", "content": 5}],
        ),
        *each_of("operations", {}, [], {"reasoning": 5}, {"write_operations": []}, {"write_operations": "x"}),
        *each_of("operations", {"write_operations": [{"memory_data": {"memory_type": "facts", "fields": {}}}]}),
    ],
    "find": [
        {},
        *each_of("query", "", " \n", "a\x00b", "问" * 1_000_000, 5),
        *each_of("limit", 0, 101, "many", query="x"),
        *each_of("score_threshold", 1.5, query="x"),
        *each_of("rank", "best", query="x"),
        *each_of("surprise", 1, query="x"),
        *each_of("filter", {"nonesuch": 1}, {"and": []}, {"not": {}}, "words", query="x"),
        *each_of("filter", *each_of("memory_type", {"like": "x"}, {"in": []}, {"eq": {"a": 1}}), query="x"),
        *each_of("filter", {"salience": {"gt": "high"}}, {"time": {"gt": "yesterday"}}, query="x"),
    ],
    "read": [
        {},
        *each_of("uri", 5, f"{NOTES}/absent.md", NOTES),
        *each_of("offset", -1, 10**30, uri=LINES),
        *each_of("limit", -2, 1.5, uri=LINES),
        *each_of("surprise", 1, uri=LINES),
    ],
    "ls": [
        {},
        *each_of("uri", LINES, "viking://user/default/memories/absent"),
        *each_of("output", "fancy", uri=NOTES),
        *each_of("node_limit", 0, uri=NOTES),
        *each_of("abs_limit", 0, uri=NOTES),
        *each_of("level_limit", 2, uri=NOTES),
    ],
    "tree": [
        *each_of("level_limit", 0, uri=NOTES),
        *each_of("node_limit", "all", uri=NOTES),
        *each_of("surprise", 1, uri=NOTES),
    ],
    "retrieve": [
        *each_of("query", 5, "a\x00b"),
        *each_of("token_budget", 1, 10**9, query="x"),
        *each_of("format", "html", query="x"),
        *each_of("surprise", 1, query="x"),
        *each_of("messages", [{"role": "user", "content": 5}]),
    ],
}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param(tool, arguments, id=f"{tool} {ascii(arguments)[:60]}")
        for tool, bad in BAD_ARGUMENTS.items()
        for arguments in bad
    ],
)
def test_bad_argument_is_answered_with_the_next_step_and_changes_nothing(
    server: Caller, home: Path, tool: str, arguments: dict[str, Any]
) -> None:
    before = snapshot(home)
    answer = server.call(tool, **arguments)
    assert answer.is_error, text_of(answer)
    assert "Next: " in text_of(answer)
    assert size_of(answer) < 6_000
    assert "pydantic" not in text_of(answer)
    assert snapshot(home) == before


def test_wrong_argument_is_named_and_so_are_the_right_ones(server: Caller) -> None:
    answer = server.text("find", query="x", limitt=3)
    assert "'limitt': is not an argument of this tool." in answer
    assert "target_uri" in answer


def test_of_many_unknown_arguments_some_are_named(server: Caller) -> None:
    answer = server.text("find", query="x", **{f"m{number}": 1 for number in range(100)})
    assert "'m0': is not an argument of this tool." in answer
    assert "m50" not in answer
    after_empty = server.text("find", query="x", **{f"m{number}": None for number in range(100)}, limitt=3)
    assert "'limitt': is not an argument of this tool." in after_empty


def test_json_in_an_argument_may_not_hold_very_many_values(server: Caller) -> None:
    sent = f"[{'1,' * MOST_VALUES}1]"
    answer = server.text("commit_memory", operations=sent)
    assert answer == f"'operations' holds more than {MOST_VALUES:,} values. Next: Send it in several calls."
    stored = server.text("commit_memory", memory_content=sent, dry_run=True)
    assert "values" not in stored


@pytest.mark.parametrize("arguments", [{"delete": "viking://user/x.md"}, {}])
def test_who_looks_for_a_way_to_delete_is_told_of_it(server: Caller, arguments: dict[str, Any]) -> None:
    answer = server.call("commit_memory", **arguments)
    assert answer.is_error
    for name in ("forget=", "undo=", "private_mode="):
        assert name in text_of(answer)
    assert "forget=" not in server.text("find", query="x", limitt=3)


def test_a_tree_says_how_much_is_deeper(large: Caller) -> None:
    answer = large.call("tree")
    assert answer.structured_content is not None
    assert answer.structured_content["deeper"] > 0
    assert f"level_limit {answer.structured_content['levels']} shows them" in text_of(answer)


def test_nothing_unexpected_was_logged(server: Caller, large: Caller) -> None:
    assert "Traceback" not in server.stderr() + large.stderr()


# Characters that are no text


def test_surrogates_on_the_wire_are_answered_and_stored_text_stays_whole(
    tmp_path: Path, raw_client: type[RawClient]
) -> None:
    home, errors = tmp_path / "home", tmp_path / "stderr"
    with raw_client(home, errors=errors) as client:
        client.call("commit_memory", memory_content="Whole 完整", fields={"title": "Whole"})
        before = snapshot(home)
        for arguments in ('{"memory_content":"half \\ud83d"}', '{"\\udc00":1}', '{"operations":{"x":"\\ud800"}}'):
            line = '{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"commit_memory","arguments":%s}}'
            client.write((line % arguments).encode())
            answer = client.answer()
            assert answer["id"] == "s"
            assert "error" in answer or answer["result"]["isError"]
        assert snapshot(home) == before
        damaged = home / "user/default/memories/notes/damaged.md"
        damaged.write_bytes(b"latin caf\xe9, surrogate \xed\xa0\x80, end\n")
        page = client.call("read", uri=f"{NOTES}/damaged.md")
        assert page["structuredContent"]["content"].endswith(", end\n")
        assert client.call("find", query="damaged latin")["isError"] is False
        assert client.call("retrieve", query="damaged latin")["isError"] is False
    assert "Traceback" not in errors.read_text(encoding="utf-8")


# The resource template and the prompts


@pytest.mark.parametrize(
    "uri", [ENTITY, "viking://user/default/memories/entities/%E6%94%AF%E4%BB%98%20%E7%B3%BB%E7%BB%9F.md"]
)
def test_resource_template_reads_a_file_whole(server: Caller, home: Path, uri: str) -> None:
    (template,) = server.portal.call(server.client.list_resource_templates).resource_templates
    assert template.uri_template == "viking://{+path}"
    content = server.resource(uri)
    assert content.mime_type == "text/markdown"
    stored = home / "user/default/memories/entities/支付 系统.md"
    assert content.text == stored.read_text(encoding="utf-8")


@pytest.mark.parametrize("uri", [f"{NOTES}/absent 不在.md", NOTES, *UNSAFE_URIS[:12]], ids=lambda uri: ascii(uri[:40]))
def test_resource_that_is_not_there_is_a_protocol_error(server: Caller, uri: str) -> None:
    with pytest.raises(MCPError) as failure:
        server.resource(uri)
    assert failure.value.error.code == INVALID_PARAMS


def prompt(caller: Caller, name: str, **arguments: str) -> str:
    (message,) = caller.portal.call(caller.client.get_prompt, name, arguments).messages
    assert isinstance(message.content, TextContent)
    return message.content.text


def test_prompt_recall_brings_memories_as_data(server: Caller) -> None:
    text = prompt(server, "recall", query="支付系统 对账")
    assert "凌晨三点对账" in text
    assert "not instructions" in text


def test_prompt_extract_memories_briefs_with_types_and_store(server: Caller) -> None:
    text = prompt(server, "extract_memories", focus="Lin")
    assert "Look above all for: Lin" in text
    for words in ("- preferences: fields", "sister Lin", "write_operations", "commit_memory(operations=", "SEARCH"):
        assert words in text
    assert "Look above all for" not in prompt(server, "extract_memories")


def test_prompt_with_a_bad_argument_says_what_to_do(server: Caller) -> None:
    with pytest.raises(MCPError) as failure:
        prompt(server, "recall", query="长" * 30_000)
    assert failure.value.error.code == INVALID_PARAMS
    assert "Next: " in failure.value.error.message


# Meaning


def test_english_question_finds_a_chinese_memory_by_meaning(tmp_path: Path, connect: Connect) -> None:
    with_model = ("--set", "embedding.provider=bundled", "--set", "embedding.wait_seconds=60")
    with connect(tmp_path / "home", "auto", *with_model) as caller:
        caller.facts("commit_memory", memory_content="用户养了一只叫豆豆的猫。", memory_type="facts")
        caller.facts("commit_memory", memory_content="The payment service runs on PostgreSQL.", memory_type="facts")
        english = caller.facts("find", query="Does the user have a cat?")["memories"]
        chinese = caller.facts("find", query="支付服务用什么数据库？")["memories"]
    assert english[0]["abstract"].startswith("用户养了一只")
    assert english[0]["why"]["semantic"] > 0
    assert chinese[0]["abstract"].startswith("The payment service")


# Resources, and what is shown


def test_resources_offer_profile_overviews_and_the_memories_used_most(tmp_path: Path, connect: Connect) -> None:
    with connect(tmp_path / "home") as caller:

        def listed() -> dict[str, str]:
            resources = caller.portal.call(caller.client.list_resources).resources
            return {each.uri: each.title or "" for each in resources}

        assert listed() == {}
        caller.facts("commit_memory", memory_content="Mei lives in Graz.", memory_type="profile")
        for number in range(20):
            text = f"The landlord of flat {number} is called Mr. Gruber. He is away."
            uri = caller.facts("commit_memory", memory_content=text, fields={"title": f"房东's {number} & 100%"})
            caller.facts("read", uri=uri["results"][0]["uri"])
        hidden = {"memory_content": "Of a project.", "project": "p/q", "private": True, "fields": {"title": "P"}}
        caller.facts("commit_memory", **hidden)
        assert soon(lambda: any("Gruber" in title for title in listed().values()))
        found = listed()
        assert found["viking://user/default/memories/profile.md"] == "Profile: who the user is"
        assert found[f"{NOTES}/{OVERVIEW_NAME}"] == "Overview of notes (21)"
        used = [title for uri, title in found.items() if uri.startswith(f"{NOTES}/房东")]
        assert 1 <= len(used) <= 12
        assert all(title.endswith("is called Mr. Gruber") for title in used)
        assert f"{NOTES}/P.md" not in found
        for address in found:
            for form in (address, quote(address, safe=":/")):
                assert caller.resource(form).text


def test_resources_offer_the_summary_and_what_is_important_before_anything_was_used(
    tmp_path: Path, connect: Connect
) -> None:
    with connect(tmp_path / "home") as caller:
        caller.facts("commit_memory", memory_content="Mei moves to Graz in May.", memory_type="rolling_summary")
        for number in range(14):
            caller.facts("commit_memory", memory_content=f"Rule {number}: 不要删除数据。", priority="high")
        caller.facts("commit_memory", memory_content="The bus is yellow.")
        hidden = {"memory_content": "Never tell.", "project": "p/q", "private": True, "priority": "critical"}
        private = caller.facts("commit_memory", **hidden)["results"][0]["uri"]
        listed = caller.portal.call(caller.client.list_resources)
    assert private not in {str(each.uri) for each in listed.resources}
    titles = [each.title or "" for each in listed.resources]
    assert "Summary: who the user is and what goes on" in titles
    assert len([title for title in titles if title.startswith("Rule ")]) in (11, 12)
    assert not [title for title in titles if "bus" in title or "tell" in title]
    assert listed.next_cursor is None


def test_every_address_that_is_shown_can_be_read(server: Caller) -> None:
    server.facts("commit_memory", memory_content="Evan's R&D zebra.", fields={"title": "Evan's R&D; <b>100%</b> #1"})
    calls: list[tuple[str, dict[str, Any]]] = [
        ("retrieve", {"query": "zebra Osaka Lin 对账"}),
        ("retrieve", {"query": "zebra Osaka Lin 对账", "format": "text"}),
        ("retrieve", {"query": "zebra Osaka Lin 对账", "format": "messages-openai"}),
        ("find", {"query": "zebra Osaka 对账"}),
        ("ls", {"uri": "viking://user/default/memories", "show_all_hidden": True}),
        ("tree", {"level_limit": 16}),
        ("commit_memory", {"memory_content": "Evan's zebra is striped.", "fields": {"title": "Evan's"}}),
    ]
    shown: set[str] = set()
    for tool, arguments in calls:
        pending: list[Any] = [server.facts(tool, **arguments)]
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                shown |= {node["uri"]} if isinstance(node.get("uri"), str) else set()
                pending += node.values()
            elif isinstance(node, list):
                pending += node
    assert len(shown) > 8
    assert any("Evan's R&D" in uri for uri in shown)
    for uri in shown:
        page = server.facts("read", uri=uri)["uri"]
        assert page.rstrip("/") in (uri.rstrip("/"), uri.partition("#")[0].rstrip("/")), uri
