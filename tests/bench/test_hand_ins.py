"""Recorded hand-ins: played in order until one is missing, and what they leave in the store is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.hand_ins import Stored, about_owner, answered, memories, out_of_form, play, report, twice
from bench.stdio_client import StdioClient
from tests.fork_server import starter

ENTITIES = "viking://user/default/memories/entities"


def told(number: int, *said: str) -> tuple[str, list[dict[str, Any]]]:
    names = ("Mira", "Tomas")
    return f"session_{number}", [
        {"role": "user", "name": names[at % 2], "content": text, "time": f"2026-03-{number:02}T10:00:00Z"}
        for at, text in enumerate(said)
    ]


HELD = [
    told(1, "I moved to Porto to restore azulejo tiles.", "Great! I keep bees on my roof there."),
    told(2, "How are the bees?", "Well: forty jars of honey this spring, and I sing in a choir now."),
]


def server(home: Path) -> StdioClient:
    command = starter().command("serve", "--home", str(home), "--set", "embedding.provider=none")
    return StdioClient(command, {"RUNEBOOK_OWNER_NAMES": "Mira"})


def record(answers: Path, name: str, **operations: Any) -> None:
    (answers / f"{name}.json").write_text(json.dumps({"reasoning": "r", **operations}), encoding="utf-8")


def entity(name: str, content: str) -> dict[str, Any]:
    return {"memory_data": {"memory_type": "entities", "fields": {"entity_name": name, "content": content}}}


def test_answers_are_played_until_one_is_missing_and_a_refusal_is_answered(tmp_path: Path) -> None:
    answers, home = tmp_path / "answers", tmp_path / "home"
    answers.mkdir()
    with server(tmp_path / "first") as client:
        waiting = play(client, HELD, answers).waiting
    assert waiting == answers / "session-01-1.txt"
    assert "Mira: I moved to Porto" in waiting.read_text(encoding="utf-8")
    record(answers, "session-01-1", write_operations=[entity("Tomas", "Keeps bees on his roof in Porto.")])
    record(answers, "session-02-1", write_operations=[entity("Tomas", "Sings in a choir.")])
    with server(tmp_path / "second") as client:
        refusal = play(client, HELD, answers).waiting
    assert refusal == answers / "session-02-2.txt"
    assert "Keeps bees" in refusal.read_text(encoding="utf-8")
    record(answers, "session-02-2")
    with server(home) as client:
        played = play(client, HELD, answers)
        sample = {
            "qa": [{"question": "Where are the bees?", "category": 4, "evidence": ["D1:2"], "answer": "the roof"}]
        }
        assert answered(client, sample, {"D1:2": HELD[0][1][1]["content"]}) == (1, 1, 1, 1)
        assert answered(client, sample, {"D1:1": "x"}) == (0, 0, 0, 0)
    assert played.waiting is None
    assert [one.name for one in played.hand_ins] == ["session-01-1", "session-02-1", "session-02-2"]
    refused = played.hand_ins[1]
    assert (refused.needed, refused.unnamed, refused.ready) == ((f"{ENTITIES}/Tomas.md",), (), (True,))
    stored = memories(home)
    assert [(one.uri, one.body) for one in stored] == [(f"{ENTITIES}/Tomas.md", "Keeps bees on his roof in Porto.")]
    said = report(played, stored, "Mira")
    assert "memories that an answer needed: 1, of them shown or named 1" in said
    assert "edits that refusals gave: 1, of them go through as they stand 1" in said


def test_what_is_wrong_in_a_store_is_told() -> None:
    stored = [
        Stored(f"{ENTITIES}/Tomas.md", "Keeps bees on his roof.", {"entity_name": "Tomas"}),
        Stored(f"{ENTITIES}/TOMAS Reis.md", "Sings in a choir.", {"entity_name": "TOMAS Reis"}),
        Stored(f"{ENTITIES}/mira.md", "Restores azulejo tiles.", {"entity_name": "mira"}),
        Stored("events/honey.md", "Forty jars of honey.", {"event_time": "this spring"}),
        Stored("events/fair.md", "The fair.", {"event_time": "2026-03-02..2026-03-08"}),
        Stored("facts/bees.md", "In Porto Tomas keeps bees on his own roof.", {"topic": "bees"}),
    ]
    assert [line.rpartition(": ")[2] for line in twice(stored)] == ["one name", "one text"]
    assert list(about_owner(stored, "Mira")) == [f"{ENTITIES}/mira.md"]
    assert list(out_of_form(stored)) == ["events/honey.md: event_time 'this spring'"]
