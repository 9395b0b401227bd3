"""Maintenance of several users: what one said or an agent learnt with them goes to nobody else, and nobody is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from memory_core.core.llm.client import Completion, LLMRequest, ScriptedLLM
from memory_core.core.memory.requests import CommitRequest, FindRequest
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.core.store.usage import Recall
from memory_core.core.store.users import SeenUsers, UserSpaces
from memory_core.features.rolling_summary import SUMMARY, SummaryRequest
from memory_core.features.upkeep import rolling_pass
from memory_core.features.upkeep.archive import ARCHIVE_LIST, ArchiveListRequest
from memory_core.features.upkeep.passes import MAINTAIN, MaintainRequest, automatic_maintenance
from memory_core.runebook import Runebook, open_memory
from tests.contract.conftest import Place
from tests.features.upkeep.maintained import NOW, kept

OWNER, BOB = "otter", "badger"


def issued(memory: Runebook, label: str, user: str, agent: str, *shared: str, days_ago: float = 0) -> None:
    """A token that was issued so long ago."""
    spaces = [SharedSpace(name) for name in shared]
    now = NOW - timedelta(days=days_ago)
    memory.opened.tokens().issue(label, user_space=user, agent_space=agent, shared=spaces, now=now)


def serve(memory: Runebook) -> None:
    """What a server does with the store that it opens."""
    memory.note_user()
    memory.opened.background.finish()


def learnt(view: Runebook, word: str, **more: Any) -> str:
    """A case that the agent learnt, and that is used."""
    fields = {"case_name": f"The {word}"}
    uri = kept(view, f"Problem: the {word} is ill. Solution: rest.", 1, "cases", fields=fields, **more)
    view.store.usage.recalled(Recall(NOW, "q", "find", ((uri, 0.9),), 1.0))
    view.store.usage.flush()
    return uri


def told(view: Runebook, word: str) -> None:
    """What a user likes, and a log whose lessons become memories of the agent."""
    kept(view, f"Likes the {word}.", 1, "preferences", fields={"topic": f"the {word}"})
    fields = {"kind": "reflection", "tool": "vaultctl", "error": "wrong_passphrase"}
    entry = f"vaultctl fails with error 17 where the {word} is typed twice"
    view.commit(CommitRequest(entry, memory_type="daily_logs", fields=fields, now=NOW - timedelta(days=40)))


def automatically(memory: Runebook, days: float = 0) -> None:
    """Maintain as a running server does."""
    automatic = automatic_maintenance(memory)
    assert automatic is not None
    assert automatic.run_if_due(NOW + timedelta(days=days))


def page(view: Runebook) -> str:
    found = view.run(SUMMARY, SummaryRequest())
    return "" if found is None else found.text


def texts(view: Runebook) -> Iterator[tuple[str, str]]:
    """Every file of a store that a view's user shares with others, or of the user alone in a database."""
    connection = view.store.ledger.database.connection()
    for uri, text in connection.execute("SELECT uri, after FROM changes WHERE after IS NOT NULL").fetchall():
        yield str(uri), str(text)


def found(view: Runebook, query: str) -> set[str]:
    return {hit.uri for hit in view.find(FindRequest(query, now=NOW)).hits}


def expect_apart(*views: Runebook) -> None:
    """No file of one of these users, and of their agents, says a word of the other."""
    for view in views:
        for uri, text in texts(view):
            place = uri.removeprefix("viking://").removeprefix("archive/").split("/")[1]
            assert place in {"default", "bob"}, uri
            assert (BOB if place == "default" else OWNER) not in f"{uri} {text}", uri


def test_what_is_maintained_of_one_user_holds_nothing_of_another(place: Place) -> None:
    memory = place.open()
    issued(memory, "bob", "bob", "bob")
    bob = memory.view("bob", "bob")
    for view, word in ((memory, OWNER), (bob, BOB)):
        told(view, word)
        learnt(view, word)
    automatically(memory)
    expect_apart(memory, bob)
    for view, word, space in ((memory, OWNER, "default"), (bob, BOB, "bob")):
        assert {f"The {word}" in page(view), f"Likes the {word}" in page(view)} == {True}
        lessons = [uri for uri in found(view, "vaultctl error 17 typed twice") if f"agent/{space}/" in uri]
        assert lessons, word
        assert len(lessons) == 1
    automatically(memory, days=2)
    expect_apart(memory, bob)


def test_ended_conversations_become_memories_of_their_own_user_and_agent(place: Place) -> None:
    prompts: list[str] = []

    def answer(request: LLMRequest) -> Completion:
        asked = "\n".join(turn.text for turn in request.turns)
        if "## Item" in asked:
            count = asked.count("## Item")
            items = [{"number": number, "text": "In short."} for number in range(1, count + 1)]
            return Completion(json.dumps({"summaries": items}))
        prompts.append(f"{request.system}\n{asked}")
        word = BOB if f"My {BOB}" in asked else OWNER
        fields = {"case_name": f"My {word}", "content": f"Problem: my {word} is ill. Solution: it rests."}
        write = {"memory_data": {"memory_type": "cases", "fields": fields}}
        return Completion(json.dumps({"reasoning": "r", "write_operations": [write]}))

    llm = ScriptedLLM([answer] * 20)
    with open_memory(place.config(maintenance={"automatic": "full"}), llm=llm) as memory:
        issued(memory, "bob", "bob", "bob")
        bob = memory.view("bob", "bob")
        for view, word in ((memory, OWNER), (bob, BOB)):
            learnt(view, word)
            told(view, word)
            messages = [
                {"role": "user", "content": f"My {word} is ill. What is the solution?"},
                {"role": "assistant", "content": "Let it rest."},
            ]
            view.recorder.record(messages, session_id="talk", now=NOW - timedelta(days=2))
        automatically(memory)
        assert sorted(BOB in prompt for prompt in prompts) == [False, True]
        assert sorted(OWNER in prompt for prompt in prompts) == [False, True]
        assert {"viking://agent/bob" in prompt for prompt in prompts if BOB in prompt} == {True}
        assert not any("viking://agent/default" in prompt for prompt in prompts if BOB in prompt)
        expect_apart(memory, bob)
        assert any("agent/bob/memories/cases" in uri for uri in found(bob, f"my {BOB} rests"))


def test_each_agent_space_of_a_user_is_maintained_and_one_of_them_learns(place: Place) -> None:
    memory = place.open()
    issued(memory, "desk", "bob", "desk", days_ago=9)
    issued(memory, "a phone", "bob", "phone", days_ago=2)
    phone, desk = memory.view("bob", "phone"), memory.view("bob", "desk")
    gone = [
        kept(view, "Over.", 30, "cases", fields={"case_name": "x"}, expires_at="2027-01-01") for view in (phone, desk)
    ]
    learnt(phone, "phoenix")
    told(desk, BOB)
    for day in (0, 2, 4):
        automatically(memory, days=day)
        assert dict(memory.opened.users())["bob"] == ("desk", "phone")
    assert {entry.original for view in (phone, desk) for entry in view.run(ARCHIVE_LIST, ArchiveListRequest())} >= {
        *gone
    }
    assert "badger" in page(desk)
    assert "phoenix" not in page(desk)
    assert [uri.split("/")[3] for uri, text in texts(desk) if "error 17" in text and "/agent/" in uri] == ["desk"]


def test_a_dry_run_over_several_agent_spaces_names_each_file_once(place: Place) -> None:
    memory = place.open()
    issued(memory, "phone", "default", "phone")
    uris = [
        kept(memory, "Over.", 30, expires_at="2027-01-01"),
        kept(memory.view("default", "phone"), "O.", 30, "cases", fields={"case_name": "x"}, expires_at="2027-01-01"),
    ]
    (done,) = memory.run(MAINTAIN, MaintainRequest(only=["expiry"], dry_run=True, now=NOW))
    assert sorted(result.uri for receipt in done.receipts for result in receipt.results) == sorted(uris)


def test_users_are_those_of_settings_tokens_providers_and_folders_each_with_their_agents(place: Place) -> None:
    memory = place.open(agent_space="main")
    tokens = memory.opened.tokens()
    issued(memory, "z", "anna", "first", "team", days_ago=9)
    issued(memory, "a", "anna", "second", days_ago=2)
    issued(memory, "gone", "anna", "third", days_ago=30)
    tokens.revoke("gone")
    issued(memory, "phone", "default", "phone")
    serve(memory)
    users = SeenUsers(tokens.database)
    users.note("ida-x", "ida-x")
    kept(memory.view("nobody"), "Known to nobody.")
    expected = {
        "default": ("main", "phone"),
        "anna": ("first", "second"),
        "team": ("team",),
        "ida-x": ("ida-x",),
        "nobody": ("nobody",),
    }
    assert memory.opened.users()[0] == UserSpaces("default", ("main", "phone"))
    assert dict(memory.opened.users()) == expected


def test_whoever_maintains_knows_under_which_settings_another_client_opened_the_store(place: Place) -> None:
    ours = place.open()
    theirs = place.open(user_space="work")
    gone = kept(theirs, "Over.", 30, "cases", fields={"case_name": "x"}, expires_at="2027-01-01")
    told(theirs, BOB)
    serve(theirs)
    for memory in (ours, theirs):
        assert dict(memory.opened.users())["work"] == ("default",)
    automatically(ours)
    assert [entry.original for entry in theirs.run(ARCHIVE_LIST, ArchiveListRequest())] == [gone]
    assert any("viking://agent/default/" in uri for uri in found(theirs, "vaultctl error 17 typed twice"))


def test_a_client_that_keeps_nothing_is_not_noted(place: Place) -> None:
    memory = place.open()
    serve(place.open(user_space="work", private_mode=True))
    assert "work" not in dict(memory.opened.users())


def test_clients_with_different_agents_agree_which_of_them_learns(place: Place) -> None:
    first = place.open(agent_space="zebra")
    serve(first)
    rows = SeenUsers(first.opened.tokens().database).rows()
    assert [(row.user_space, row.agent_space, row.by_settings) for row in rows] == [("default", "zebra", True)]
    users = SeenUsers(first.opened.tokens().database)
    users.note("default", "ant", by_settings=True, now=NOW + timedelta(seconds=1))
    second = place.open(agent_space="ant")
    serve(second)
    users.note("default", "zebra", by_settings=True, now=NOW + timedelta(days=2))
    for memory in (first, second):
        assert dict(memory.opened.users())["default"] == ("zebra", "ant")
    users.note("default", "ant", by_settings=True, now=NOW + timedelta(days=12))  # the other one was given up
    for memory in (first, second):
        assert dict(memory.opened.users())["default"] == ("ant", "zebra")
    users.note("default", "ant", by_settings=True, now=NOW + timedelta(days=99))
    assert [row.agent_space for row in users.rows()] == ["ant"]


def test_an_owner_who_maintains_another_user_leaves_the_own_agent_alone(place: Place) -> None:
    memory = place.open()
    issued(memory, "bob", "bob", "bob")
    told(memory.view("bob"), BOB)
    learnt(memory, OWNER)
    memory.opened.background.finish()
    owner = place.open(user_space="bob")  # runebook maintain --set user_space=bob
    learnt(memory.view("bob", "bob"), BOB)
    list(owner.run(MAINTAIN, MaintainRequest(now=NOW)))
    expect_apart(memory, memory.view("bob", "bob"))
    assert any("viking://agent/bob/" in uri for uri in found(memory.view("bob"), "vaultctl error 17 typed twice"))
    owner.opened.background.finish()
    assert dict(memory.opened.users())["bob"] == ("bob",)
    memory.opened.tokens().revoke("bob")
    assert dict(memory.opened.users()).get("bob", ("bob",)) == ("bob",)


def test_another_users_view_has_the_agent_space_of_that_name(place: Place) -> None:
    memory = place.open(agent_space="main")
    assert memory.view("bob").spaces == ("user/bob", "agent/bob", "session/bob")
    assert memory.view("bob", "x").view().spaces == ("user/bob", "agent/x", "session/bob")
    assert memory.view(agent_space="x").spaces == ("user/default", "agent/x", "session/default")
    assert memory.view("default").spaces == ("user/default", "agent/main", "session/default")


@pytest.mark.parametrize("by_model", [False, True])
def test_a_page_of_an_earlier_program_is_made_anew_without_lines_of_others(place: Place, *, by_model: bool) -> None:
    text = f"They know the {OWNER} and the {BOB}."
    llm = ScriptedLLM([json.dumps({"summaries": [{"number": 1, "text": text}]})])
    with open_memory(place.config(), llm=llm) as memory:
        issued(memory, "bob", "bob", "bob")
        wrong = memory.view("bob", "default")
        told(wrong, BOB)
        learnt(wrong, OWNER)
        made, improved = rolling_pass.FEATURE.passes
        list(made.run(wrong, NOW, dry_run=False))
        if by_model:
            list(improved.run(wrong, NOW, dry_run=False))
        assert OWNER in page(wrong)
        automatically(memory)
        assert OWNER not in page(wrong)
        assert f"Likes the {BOB}" in page(wrong)
