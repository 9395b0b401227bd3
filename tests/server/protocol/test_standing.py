"""From inside a conversation: pinning, ending, putting to rest and relating memories, over MCP, in two languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp.types import TextContent

from tests.fork_server import starter
from tests.server.conftest import WORDS_ONLY, environment

if TYPE_CHECKING:
    from tests.server.conftest import Caller, Connect


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, connect: Connect) -> Iterator[Caller]:
    with connect(tmp_path_factory.mktemp("standing") / "home", "legacy") as caller:
        yield caller


def store(server: Caller, topic: str, content: str, **more: Any) -> str:
    arguments = {"memory_content": content, "memory_type": "facts", "fields": {"topic": topic}, **more}
    return str(server.facts("commit_memory", **arguments)["results"][0]["uri"])


def edit(server: Caller, uri: str, **said: Any) -> dict[str, Any]:
    return server.facts("commit_memory", operations={"edit_operations": [{"uri": uri, **said}]})


def refused(server: Caller, uri: str, **said: Any) -> dict[str, Any]:
    answer = server.call("commit_memory", operations={"edit_operations": [{"uri": uri, **said}]})
    assert answer.is_error
    assert answer.structured_content is not None
    (result,) = answer.structured_content["results"]
    return dict(result)


def found(server: Caller, query: str, **more: Any) -> list[dict[str, Any]]:
    return list(server.facts("find", query=query, **more)["memories"])


@pytest.mark.parametrize(
    ("topic", "content", "query"),
    [("Alarm", "The alarm code is 4711.", "alarm code"), ("门禁", "门禁密码由物业保管。", "门禁由谁保管")],
)
def test_a_memory_is_pinned_ended_put_to_rest_and_woken_by_an_edit(
    server: Caller, topic: str, content: str, query: str
) -> None:
    uri = store(server, topic, content)
    assert edit(server, uri, pinned=True)["results"][0]["action"] == "updated"
    assert [hit["uri"] for hit in found(server, query, filter={"pinned": True})] == [uri]

    edit(server, uri, pinned=False, expires_at="2001-01-01")
    assert found(server, query) == []
    assert [hit["uri"] for hit in found(server, query, filter={"expires_at": {"lt": "2020-01-01"}})] == [uri]

    edit(server, uri, expires_at="")
    assert [hit["uri"] for hit in found(server, query)] == [uri]
    undoable = edit(server, uri, active=False)
    assert found(server, query) == []
    assert [hit["uri"] for hit in found(server, query, filter={"active": False})] == [uri]
    assert content in server.facts("read", uri=uri)["content"]
    server.facts("commit_memory", undo=undoable["commit_id"])
    assert [hit["uri"] for hit in found(server, query)] == [uri]


@pytest.mark.parametrize(("topic", "content"), [("Coat", "The coat is grey."), ("外套", "外套是灰色的。")])
def test_an_expiry_that_is_no_date_is_refused_with_the_way_to_write_one(
    server: Caller, topic: str, content: str
) -> None:
    uri = store(server, topic, content)
    result = refused(server, uri, expires_at="下周 next week")
    assert "no date" in result["reason"]
    assert "ISO date" in result["hint"]
    assert [hit["uri"] for hit in found(server, content)] == [uri]


def test_a_member_of_the_wrong_kind_is_named(server: Caller) -> None:
    uri = store(server, "Lamp", "The lamp is on the desk.")
    assert "confidence" in refused(server, uri, confidence=7)["reason"]


def test_a_contradiction_is_shown_in_find_read_and_retrieve(server: Caller) -> None:
    older = store(server, "Standup", "The standup takes place at nine in the morning.")
    newer = store(server, "Ritual", "Since June everybody meets at ten instead. 六月起改为十点开会。")
    # The newer one is newer to the second.
    edited = edit(server, newer, links=[{"uri": older, "relation": "contradicts", "strength": 0.8}])
    assert f"confidence of {older} 1 → 0.6" in edited["results"][0]["note"]
    page = server.call("read", uri=older)
    assert page.structured_content is not None
    assert page.structured_content["links"][0]["uri"] == newer
    first, second = page.content
    assert isinstance(first, TextContent)
    assert isinstance(second, TextContent)
    assert first.text == page.structured_content["content"]
    assert second.text.startswith("This memory\n- contradicts viking://")
    assert "六月起改为十点开会" in second.text
    (hit,) = found(server, "standup nine morning")
    assert hit["confidence"] == 0.6


def test_a_proposal_is_seen_in_a_conversation_and_decided_on_the_command_line(tmp_path: Path, connect: Connect) -> None:
    home = tmp_path / "home"
    said = [{"role": "user", "content": "我只喝绿茶。"}]
    write = {"memory_data": {"memory_type": "preferences", "fields": {"topic": "茶", "content": "只喝绿茶。"}}}
    review = "viking://user/default/review"
    with connect(home, "legacy", "--set", "review=automatic") as caller:
        assert "brief" in caller.facts("commit_memory", messages=said, session_id="s1", brief=True)
        receipt = caller.facts("commit_memory", operations={"write_operations": [write]}, session_id="s1")
        (result,) = receipt["results"]
        assert (receipt["status"], result["action"]) == ("queued", "queued")
        assert "waits for review" in result["note"]
        assert [entry["uri"] for entry in caller.facts("ls", uri=review)["entries"]] == [result["uri"]]
        assert "只喝绿茶。" in caller.facts("read", uri=result["uri"])["content"]
        assert caller.facts("find", query="绿茶")["memories"] == []

        def review_command(*arguments: str) -> tuple[int, str]:
            done = starter().call("review", *arguments, "--home", str(home), *WORDS_ONLY, env=environment())
            return done.returncode, done.stdout.decode()

        (waiting,) = json.loads(review_command("--json")[1])["waiting"]
        assert waiting["texts"] == {"content": "只喝绿茶。"}
        assert "只喝绿茶。" in review_command("show", waiting["id"][:4])[1]
        assert review_command("edit", waiting["id"], "--text", "只喝绿茶和白茶。")[0] == 0
        status, accepted = review_command("accept", waiting["id"])
        assert (status, "accepted, as edited" in accepted) == (0, True)
        assert review_command("accept", waiting["id"])[0] == 1
        assert "Nothing waits" in review_command("list")[1]
        (hit,) = caller.facts("find", query="绿茶")["memories"]
        assert hit["abstract"] == "只喝绿茶和白茶。"
