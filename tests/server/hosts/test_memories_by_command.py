"""Memories by themselves: hosts' events in, a program of the machine asked, memories out; and what else it may do."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.caller import ASIDE
from memory_core.core.config import load
from memory_core.core.memory.requests import FindRequest, ReadRequest, RetrieveRequest
from memory_core.runebook import Runebook, open_memory
from server.hosts import hook_notes
from tests.fork_server import starter
from tests.server.conftest import environment
from tests.server.hosts.host_events import claude, said, write
from tests.waiting import lives, soon

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script with a first line")
_KEPT = {"bicycle": "garage", "violin": "attic", "kayak": "boathouse"}


class Place:
    """A fresh account: a home, a folder of programs, and hooks as a host runs them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.programs, self.folder = folder / "家", folder / "bin", folder
        self.programs.mkdir(parents=True)
        self.environment = environment() | {
            "RUNEBOOK_HOME": str(self.home),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "CLAUDECODE": "1",
        }
        self.set()

    def set(self, conduct: str | None = "answer", **llm: Any) -> None:
        """What the stand-in does (None: there is none), and further settings of the model."""
        program = self.programs / "claude"
        script = Path(__file__).with_name("stand_in_host.py").read_text(encoding="utf-8")
        if conduct is None:
            program.unlink(missing_ok=True)
        else:
            program.write_text(f"#!{sys.executable}\n{script}", encoding="utf-8")
            program.chmod(0o700)
            (self.programs / "conduct.json").write_text(json.dumps(conduct), encoding="utf-8")
        self.home.mkdir(exist_ok=True)
        settings = {"llm": {"provider": "command", "command": "claude-code", **llm}, "embedding": {"provider": "none"}}
        (self.home / "config.json").write_text(json.dumps(settings), encoding="utf-8")

    def hook(self, event: str, given: dict[str, Any], *options: str) -> str:
        """What a host gets back."""
        words = ("hook", event, "--set", "hooks.patience_seconds=60", *options)
        done = starter().call(*words, given=json.dumps(given).encode(), env=self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    def ends(self, *things: str) -> None:
        """A session each, about where a thing is kept, has ended."""
        for thing in things:
            words = f"I keep my {thing} in the {_KEPT[thing]}, so that it stays dry all winter."
            records = [said(1, "user", words), said(2, "assistant", "Good to know.")]
            path = write(self.folder / f"{thing}.jsonl", [{**record, "sessionId": thing} for record in records])
            given = claude("SessionEnd", path, reason="prompt_input_exit") | {"session_id": thing}
            assert self.hook("session-end", given) == ""

    def starts(self, session: str = "the-next") -> str:
        """What a new session is told."""
        return self.hook("session-start", claude("SessionStart", source="startup") | {"session_id": session})

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.programs.glob("call-*.json"))]

    @contextmanager
    def opened(self) -> Iterator[Runebook]:
        with open_memory(load(environment={"RUNEBOOK_HOME": str(self.home)})) as memory:
            yield memory

    def waiting(self) -> dict[str, tuple[int, str | None]]:
        """Failures and reasons of the sessions that wait."""
        with self.opened() as memory:
            return {row.session_id: (row.attempts, row.reason) for row in memory.extractor.waiting()}

    def extracts(self) -> bool:
        """A person asks for it; False while another process is at it."""
        return starter().call("extract", env=self.environment).returncode == 0

    def examined(self) -> tuple[int, list[str]]:
        """What the doctor says."""
        done = starter().call("doctor", env=self.environment)
        return done.returncode, done.stdout.decode().splitlines()

    def is_quiet(self) -> bool:
        """Whether nothing is left to be taken up, so that no process of ours is at work for what ended."""
        return not hook_notes.waiting(self.home / ".state")

    def remembers(self, *things: str) -> bool:
        with self.opened() as memory:
            texts = [hit.uri for thing in things for hit in memory.find(FindRequest(f"{thing} kept where")).memories]
            return all(any(thing in uri for uri in texts) for thing in things)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for call in made.calls():
        for pid in call["pids"]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_three_conversations_end_and_their_memories_are_there_without_a_key(place: Place) -> None:
    place.ends(*_KEPT)
    assert soon(lambda: place.is_quiet() and place.remembers(*_KEPT))
    calls = place.calls()
    assert len(calls) == 3
    for call in calls:
        argv = call["argv"]
        schema = json.loads(argv.pop(argv.index("--json-schema") + 1))
        assert schema["type"] == "object"
        assert argv[:7] == ["-p", "--output-format", "json", "--model", "haiku", "--effort", "low"]
        assert argv[argv.index("--tools") + 1] == ""
        assert {"--safe-mode", "--strict-mcp-config", "--no-session-persistence"} <= set(argv)
        assert call["files"] == []
        assert call["environment"][ASIDE] == "1"
        assert "CLAUDECODE" not in call["environment"]
        assert "I keep my" in call["prompt"]
    with place.opened() as memory:
        sessions = {entry.uri.rstrip("/").rpartition("/")[2] for entry in _sessions(memory)}
        assert sessions == set(_KEPT)
        history = memory.read(ReadRequest("viking://history")).content
        assert history.count("facts/") >= 3
        assert not memory.extractor.waiting()


def _sessions(memory: Runebook) -> Any:
    from memory_core.core.memory.requests import ListRequest

    return memory.ls(ListRequest("viking://session/default")).entries


def test_what_was_killed_is_taken_up_again_and_nothing_is_made_twice(place: Place) -> None:
    place.set("wait")
    place.ends("violin")
    assert soon(lambda: len(place.calls()) == 1)
    os.kill(place.calls()[0]["parent"], signal.SIGKILL)
    assert place.waiting() == {"violin": (0, None)}
    (place.programs / "go").touch()
    place.starts()
    place.starts("another")
    assert soon(lambda: place.is_quiet() and place.remembers("violin"))
    with place.opened() as memory:
        assert len(memory.find(FindRequest("violin attic")).memories) == 1
    assert len(place.calls()) == 2


@pytest.mark.parametrize(
    ("conduct", "llm", "reason"),
    [
        (None, {}, "was not found"),
        ("fail", {}, "Please run /login"),
        ("nonsense", {}, "no JSON object"),
        ("hang", {"deadline_seconds": 2}, "no answer within 2 s"),
        ("answer", {"calls_per_day": 1}, "used up"),
    ],
)
def test_whatever_the_program_does_the_conversation_waits_and_that_is_said_once(
    place: Place, conduct: str | None, llm: dict[str, Any], reason: str
) -> None:
    if reason == "used up":
        place.set("fail", **llm)
        place.ends("kayak")
        assert soon(place.is_quiet)
    place.set(conduct, **llm)
    place.ends("bicycle")
    assert soon(place.is_quiet)
    waits = place.waiting()["bicycle"]
    assert waits[0] == 1
    assert reason in str(waits[1])
    for call in place.calls():
        assert soon(lambda call=call: not any(lives(pid) for pid in call["pids"]))  # type: ignore[misc]
    assert "wait to become memories" in place.starts().replace("waits", "wait")
    assert "to become memories" not in place.starts("after")
    place.set("answer", calls_per_day=0)
    assert soon(lambda: place.extracts() and place.remembers("bicycle"))


def test_without_any_model_the_first_context_of_a_day_says_how_to_take_one(place: Place) -> None:
    place.set("answer", provider="none")
    place.ends("bicycle", "violin")
    assert soon(place.is_quiet)
    assert not place.calls()
    with place.opened() as memory:
        told = memory.retrieve(RetrieveRequest("hello there, where is my bicycle?", session_id="new")).notes
        assert [note for note in told if "2 conversations wait" in note and "commit_memory(brief=true)" in note]
        told = memory.retrieve(RetrieveRequest("where is my violin?", session_id="newer")).notes
        assert not [note for note in told if "conversations wait" in note]


def test_a_prompt_tells_of_them_where_no_session_start_did(place: Place) -> None:
    place.set("answer", provider="none")
    place.ends("kayak")
    assert soon(place.is_quiet)
    given = claude("UserPromptSubmit", prompt="Where is my kayak kept in winter?") | {"session_id": "new"}
    slow = ("--set", "hooks.deadline_ms=60000")
    told = place.hook("user-prompt", given, *slow)
    assert "1 conversation waits to become memories" in told
    assert "to become memories" not in place.hook("user-prompt", given | {"session_id": "newer"}, *slow)


def test_the_doctor_tries_it_and_says_why_conversations_wait(place: Place) -> None:
    place.set("fail")
    place.ends("bicycle")
    assert soon(place.is_quiet)
    status, told = place.examined()
    assert status == 1
    assert [line for line in told if "memories: claude-code: " in line and "Please run /login" in line]
    assert [line for line in told if "bicycle/messages.jsonl" in line and "Please run /login" in line]
    place.set("answer")
    assert [line for line in place.examined()[1] if line.startswith("warning   memories: claude-code: the answer")]


def test_a_host_that_does_not_say_when_a_session_ends_is_followed_after_its_answers(place: Place) -> None:
    said_so_far: list[dict[str, Any]] = []
    for number, thing in enumerate(("violin", "kayak")):
        words = f"I keep my {thing} in the {_KEPT[thing]}, so that it stays dry all winter."
        said_so_far += [said(2 * number, "user", words), said(2 * number + 1, "assistant", "Good to know.")]
        path = write(place.folder / "t.jsonl", said_so_far)
        place.hook("stop", claude("Stop", path), "--set", "hooks.stop=true")
        assert soon(lambda: place.is_quiet() and place.remembers("violin"))
    assert len(place.calls()) == 1
    assert not place.remembers("kayak")  # it waits for more, or until nothing was said for long
    idle = ("--set", "extraction.idle_minutes=0.0001")
    place.hook("session-start", claude("SessionStart", source="startup") | {"session_id": "later"}, *idle)
    assert soon(lambda: place.remembers("kayak"))
    assert len(place.calls()) == 2


def test_private_mode_asks_nobody(place: Place) -> None:
    place.environment["RUNEBOOK_PRIVATE_MODE"] = "true"
    place.ends("bicycle")
    place.starts()
    assert place.is_quiet()
    assert not place.calls()
    assert not (place.home / "session").exists()
