"""The client as the model, over stdio: what it needs stands in the brief, and afterwards nothing waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.client_driven import Brief, derive, play
from bench.stdio_client import StdioClient
from tests.fork_server import starter

SAID = (
    ("Ines", "On Monday I finally signed the lease for the pottery studio next to the old tram depot in Porto."),
    ("Ruben", "That is wonderful news, congratulations!"),
    ("Ines", "My cousin Tiago will build the shelves, and the kiln arrives from Limoges in the second week of April."),
    ("Ruben", "I have started to learn the accordion with a teacher from Braga because my grandfather played it too."),
)


def conversation(repeats: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "name": who, "content": f"{said} ({number})", "time": f"2026-03-{number + 1:02}T10:00:00Z"}
        for number in range(repeats)
        for who, said in SAID
    ]


def server(home: Path, *options: str) -> StdioClient:
    return StdioClient(starter().command("serve", "--home", str(home), *options))


def test_a_client_that_knows_only_the_brief_turns_conversations_into_memories_that_are_found(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        result = play(client, [("spring", conversation(2)), ("small talk", [{"role": "user", "content": "hello"}])])
    assert (result.sessions, result.waiting) == (2, 0)
    assert result.memories == result.found == 6


def test_a_long_conversation_is_handed_in_by_several_briefs_that_show_every_message(tmp_path: Path) -> None:
    with server(tmp_path, "--set", "embedding.provider=none") as client:
        result = play(client, [("long", conversation(28))])
    assert result.hand_ins > 1
    assert (result.waiting, result.memories) == (0, 28 * 3)


def test_the_receipt_of_a_conversation_holds_a_brief_that_can_be_followed(tmp_path: Path) -> None:
    with server(tmp_path) as client:
        receipt = client.call("commit_memory", {"messages": conversation(1), "session_id": "s1", "brief": True})
        brief = Brief.parse(receipt["brief"])
        assert (brief.session_id, brief.messages) == ("s1", ())
        assert brief.types["events"] == {"event_name": "immutable", "event_time": "immutable", "content": "patch"}
        known = Brief(brief.types, "s1", tuple(("2026-03-01", who, said) for who, said in SAID))
        handed = client.call("commit_memory", {"operations": derive(known), "session_id": "s1"})
        assert [line["action"] for line in handed["results"]] == ["created"] * 3


def test_what_a_memory_says_is_looked_for_where_another_operation_made_none(tmp_path: Path) -> None:
    first, _, second, third = conversation(1)
    with server(tmp_path, "--set", "embedding.provider=none") as client:
        play(client, [("spring", [first])])
        result = play(client, [("summer", [first, second, third])])
    assert (result.hand_ins, result.memories, result.found) == (1, 2, 2)
