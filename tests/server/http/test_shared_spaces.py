"""Shared spaces over HTTP: a token says which ones it opens, and every door keeps to that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.errors import InvalidInput
from memory_core.core.store.issued_tokens import SharedSpace
from tests.server.bearers import issue, ledger_of, revoke, send
from tests.server.conftest import text_of

if TYPE_CHECKING:
    from tests.server.command_line import Run
    from tests.server.conftest import Caller, Connect, StartHttp

TEAM, READS = [SharedSpace("team")], [SharedSpace("team", read_only=True)]


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    given = {"anna": TEAM, "bob": READS, "carl": []}
    return {name: issue(home, name, shared=shared) for name, shared in given.items()}


def refusal(caller: Caller, tool: str, **arguments: Any) -> str:
    answer = caller.call(tool, **arguments)
    assert answer.is_error
    return text_of(answer)


def test_a_team_shares_memories_through_the_tools(
    tmp_path: Path, tokens: dict[str, str], start_http: StartHttp, connect: Connect
) -> None:
    server = start_http()
    address = f"{server.origin}/mcp"
    with connect(address, token=tokens["anna"]) as anna:
        fields = {"title": "fish"}
        kept = anna.facts("commit_memory", memory_content="The swordfish sleeps.", fields=fields, space="team")
        assert kept["space"] == "team"
        assert kept["author"].startswith("anna")
        uri = kept["results"][0]["uri"]
    with connect(address, token=tokens["bob"]) as bob:
        (hit,) = bob.facts("find", query="swordfish")["memories"]
        assert (hit["uri"], hit["space"]) == (uri, "team")
        assert hit["author"].startswith("anna")
        assert bob.facts("read", uri=uri)["author"].startswith("anna")
        assert "may only read" in refusal(bob, "commit_memory", memory_content="A lie.", space="team")
        assert "may only read" in refusal(bob, "commit_memory", operations={"delete_operations": [{"uri": uri}]})
        assert "may only read" in refusal(bob, "commit_memory", undo=kept["commit_id"], space="team")
    with connect(address, token=tokens["carl"]) as carl:
        assert carl.facts("find", query="swordfish")["total"] == 0
        assert "no space" in refusal(carl, "commit_memory", memory_content="A lie.", space="team")
        assert "no space" in refusal(carl, "commit_memory", memory_content="A lie.", space="nobody")
        refusal(carl, "read", uri=uri)
    revoke(tmp_path / "home", "bob")
    again = issue(tmp_path / "home", "bob")  # no longer of the team
    assert send(server, "GET", f"/api/memory/entries/{uri.removeprefix('viking://')}", token=again).status == 404


def test_a_token_keeps_its_shared_spaces_and_no_twin_of_one(tmp_path: Path, tokens: dict[str, str]) -> None:
    with ledger_of(tmp_path / "home") as ledger:
        row = ledger.tokens.verify(tokens["bob"])
        assert row is not None
        assert list(row.shared) == READS
        assert row.spaces == ("bob", "bob", "team")
        for options in ({"user_space": "TEAM"}, {"shared": [SharedSpace("Team")]}, {"shared": [SharedSpace("ANNA")]}):
            with pytest.raises(InvalidInput):
                ledger.tokens.issue("dora", **({"user_space": "dora", "agent_space": "dora"} | options))


def test_the_command_line_says_which_shared_spaces_a_token_opens(run: Run) -> None:
    status, said, _ = run("token", "add", "anna", "--user-space", "anna", "--shared", "team", "--shared", "ops:read")
    assert status == 0
    assert "shared team, ops:read" in said
    assert "shared team, ops:read" in run("token", "list")[1]
    status, _, error = run("token", "add", "bob", "--shared", "../x")
    assert status != 0
    assert "NAME:read" in error
