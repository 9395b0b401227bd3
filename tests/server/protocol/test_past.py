"""The past through the tools and on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.command_line import Run, facts
from tests.server.conftest import Caller, Connect, text_of
from tests.stores import files_below

NOTES = "viking://user/default/memories/notes"


@pytest.fixture
def caller(connect: Connect, tmp_path: Path) -> Iterator[Caller]:
    with connect(tmp_path / "home") as caller:
        yield caller


def note(caller: Caller, title: str, content: str) -> dict[str, Any]:
    return caller.facts("commit_memory", memory_content=content, memory_type="notes", fields={"title": title})


def test_a_client_sees_and_takes_back_what_it_did(caller: Caller) -> None:
    note(caller, "猫", "猫喜欢鱼。")
    second = note(caller, "猫", "猫喜欢虾。")
    listing = caller.text("read", uri="viking://history")
    assert second["commit_id"] in listing
    assert "unknown" not in listing
    assert "+猫喜欢虾。" in caller.text("read", uri=f"viking://history/{second['commit_id']}")
    assert "viking://history" in caller.text("ls", uri="viking://")
    preview = caller.facts("commit_memory", undo="last", dry_run=True)
    assert preview["status"] == "dry_run"
    undone = caller.facts("commit_memory", undo="last")
    assert undone["status"] == "committed"
    assert "猫喜欢鱼" in caller.text("read", uri=f"{NOTES}/猫.md")
    again = caller.call("commit_memory", undo=second["commit_id"])
    assert again.is_error
    assert undone["commit_id"] in text_of(again)


def test_the_resource_of_history_is_its_page(caller: Caller) -> None:
    note(caller, "a", "Alpha.")
    for uri in ("viking://history", "viking://history/user/default/memories/notes/a.md"):
        assert "created" in caller.resource(uri).text


def test_a_client_forgets_by_search_after_a_preview(caller: Caller) -> None:
    note(caller, "tax", "The tax adviser is Ms Blum.")
    preview = caller.facts("commit_memory", forget={"query": "tax adviser"})
    assert preview["status"] == "dry_run"
    assert [(item["uri"], item["action"]) for item in preview["results"]] == [(f"{NOTES}/tax.md", "deleted")]
    assert "confirm=1" in preview["notes"][0]
    done = caller.facts("commit_memory", forget={"query": "tax adviser", "confirm": 1})
    assert done["status"] == "committed"
    assert caller.facts("find", query="tax adviser")["total"] == 0


def test_a_preview_says_in_its_first_words_that_nothing_was_changed(caller: Caller) -> None:
    note(caller, "猫", "猫喜欢鱼。")
    previews: tuple[dict[str, Any], ...] = (
        {"undo": "last", "dry_run": True}, {"forget": {"query": "猫"}}, {"memory_content": "狗", "dry_run": True},
    )  # fmt: skip
    for arguments in previews:
        assert caller.text("commit_memory", **arguments).startswith("dry_run: nothing was changed")


def test_what_was_forgotten_of_a_conversation_leaves_no_empty_lines_in_context(caller: Caller) -> None:
    talk = [{"role": "user", "content": "My sister Mei lives in Chengdu."}, {"role": "assistant", "content": "好的。"}]
    caller.facts("commit_memory", messages=talk, session_id="one")
    lines = [f"viking://session/default/one/messages.jsonl#{line}" for line in (0, 1)]
    assert "Chengdu" in caller.text("retrieve", query="tea", session_id="two")
    forget = {"uris": lines, "include_conversations": True, "confirm": 2}
    assert caller.facts("commit_memory", forget=forget)["status"] == "committed"
    told = caller.text("retrieve", query="tea", session_id="three")
    assert "messages.jsonl#" not in told
    assert "user:" not in told


def test_what_cannot_be_taken_back_is_refused_with_the_next_step(caller: Caller) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"undo": "last", "forget": {"query": "x"}},
        {"undo": "last", "memory_content": "and this"},
        {"forget": {"query": "x", "everything": True}},
        {"forget": {}},
        {"undo": "nothing"},
    )
    for arguments in wrong:
        answer = caller.call("commit_memory", **arguments)
        assert answer.is_error, arguments
        assert "Next:" in text_of(answer)


def commit(run: Run, title: str, content: str) -> str:
    receipt = facts(run("commit", content, "--type", "notes", "--field", f"title={title}", "--json"))
    return str(receipt["commit_id"])


def test_history_diff_and_undo_on_the_command_line(run: Run) -> None:
    first, second = commit(run, "a", "一"), commit(run, "a", "二")
    commits = facts(run("history", f"{NOTES}/a.md", "--json"))["commits"]
    assert [item["commit_id"] for item in commits] == [second, first]
    assert commits[0]["author"] == "command line"
    assert first in run("history", "--limit", "1", "--before", second)[1]
    assert "+二" in run("diff", second)[1]
    assert "+二" in run("diff", f"{NOTES}/a.md", "--from", first, "--to", second)[1]
    assert "\x1b[" not in run("diff", second)[1]
    assert "updated" in run("undo", "last")[1]
    assert run("read", f"{NOTES}/a.md")[1].startswith("一")
    status, _, err = run("undo", second)
    assert status == 1
    assert "already undone" in err


def test_what_is_stored_does_nothing_to_a_terminal(run: Run) -> None:
    identifier = commit(run, "x", "red \x1b[31malert\u202e")
    out = run("diff", identifier)[1] + run("history")[1]
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_forget_shows_first_and_deletes_with_yes(run: Run) -> None:
    commit(run, "tax", "The tax adviser is Ms Blum.")
    shown = run("forget", "tax adviser")[1]
    assert "--yes" in shown
    assert "confirm" not in shown
    assert run("read", f"{NOTES}/tax.md")[0] == 0
    assert run("forget", "tax adviser", "--yes")[0] == 0
    assert run("read", f"{NOTES}/tax.md")[0] == 1


def test_purge_wants_the_name_or_yes(run: Run, tmp_path: Path) -> None:
    commit(run, "vault", "the swordfish opens the vault")
    status, _, err = run("purge", f"{NOTES}/vault.md")
    assert status == 1
    assert "nothing was erased" in err
    assert run("read", f"{NOTES}/vault.md")[0] == 0
    assert run("purge", f"{NOTES}/vault.md", "--yes")[0] == 0
    assert [path for path, text in files_below(tmp_path / "home") if b"swordfish" in text] == []


def test_forget_takes_a_query_or_uris_and_says_so(run: Run) -> None:
    for arguments in (("forget",), ("forget", "tea", "--uri", f"{NOTES}/a.md")):
        status, _, said = run(*arguments)
        assert status == 1
        assert "--uri" in said


def test_history_of_a_renamed_file_goes_back_before_the_rename(run: Run, tmp_path: Path) -> None:
    run("commit", "The tax adviser is Ms Blum, and her office is in Kanda.", "--field", "title=tax")
    run("commit", "Something else.", "--field", "title=else")
    home = tmp_path / "home"
    notes = home / "user/default/memories/notes"
    (notes / "tax.md").rename(notes / "税务.md")
    status, shown, _ = run("history", f"{NOTES}/税务.md")
    assert status == 0
    assert len(shown.splitlines()) == 2
    assert "created notes/tax.md" in shown.splitlines()[-1]
    newest = shown.split()[0]
    assert len(run("history", f"{NOTES}/税务.md", "--before", newest)[1].splitlines()) == 1
    assert len(run("history", f"{NOTES}/税务.md", "--limit", "1")[1].splitlines()) == 1
    assert len(run("history", NOTES)[1].splitlines()) == 3


def test_a_line_of_history_says_once_by_whom_and_what_moved_where(run: Run, tmp_path: Path) -> None:
    commit(run, "税务", "The tax adviser is Ms Blum, and her office is in Kanda.")
    notes = tmp_path / "home/user/default/memories/notes"
    (notes / "税务.md").rename(notes / "tax.md")
    moved = run("history", "--limit", "1")[1]
    assert "by hand: moved notes/税务.md to notes/tax.md" in moved
    assert "deleted" not in moved
    assert "by by" not in run("read", "viking://history/user/default/memories/notes/tax.md")[1]
    run("forget", "tax adviser", "--yes")
    assert "command line: forgot notes/tax.md" in run("history", "--limit", "1")[1]


@pytest.mark.parametrize("tool", ["ls", "tree"])
def test_listing_history_says_that_it_is_read(caller: Caller, tool: str) -> None:
    answer = caller.call(tool, uri="viking://history")
    assert answer.is_error
    assert 'read("viking://history")' in text_of(answer)
