"""``runebook chat`` as a person meets it: a real terminal, pipes, Ctrl-C, and a stand-in of the provider's API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.errors import StoreBusy
from memory_core.core.memory.message import parse_lines
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.memory.uri import MemoryUri
from memory_core.features.undo import UNDO
from memory_core.runebook import Runebook, open_memory
from tests.core.llm.stand_ins import Scripted, StandIn, failure, fall_silent, openai_completion
from tests.server.command_line import Outcome, Run
from tests.server.conftest import environment
from tests.server.terminal import Terminal, needs_terminal
from tests.stores import words_only
from tests.waiting import soon

TEA = "viking://user/default/memories/facts/茶.md"


Talk = Callable[..., Outcome]


def options(home: Path, api: StandIn | None) -> list[str]:
    model = () if api is None else ("llm.provider=openai", "llm.model=m", f"llm.base_url={api.url}/v1")
    settings = ("embedding.provider=none", "extractor=none", *model)
    return ["chat", "--home", str(home), *(part for setting in settings for part in ("--set", setting))]


@pytest.fixture
def talk(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Run the command in this process, with a pipe as its input."""
    for name in [name for name in os.environ if name.startswith(("RUNEBOOK_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    return lambda api, *arguments, stdin="": run(*options(tmp_path, api), *arguments, stdin=stdin.encode())


def said(home: Path, session_id: str) -> list[tuple[str, str]]:
    with open_memory(words_only(home)) as memory:
        log = MemoryUri.parse(f"viking://session/default/{session_id}/messages.jsonl")
        return [(message.role, message.text) for message in parse_lines(memory.store.text(log) or "")[0]]


def remember_tea(home: Path) -> None:
    with open_memory(words_only(home)) as memory:
        memory.commit(
            CommitRequest("她每天早上喝绿茶。 Green tea each morning.", memory_type="facts", fields={"topic": "茶"})
        )


@contextmanager
def terminal(home: Path, replies: Sequence[Scripted]) -> Iterator[tuple[Terminal, StandIn]]:
    env = environment() | {"TERM": "dumb", "LC_ALL": "C.UTF-8"}
    with StandIn(replies) as api, Terminal(*options(home, api), "--session", "s1", env=env) as opened:
        opened.until("you> ")
        yield opened, api


def test_once_prints_the_answer_alone_or_everything_as_json(tmp_path: Path, talk: Talk) -> None:
    remember_tea(tmp_path)
    with StandIn([openai_completion("绿茶\x1b[2J。"), openai_completion("Green tea.")]) as api:
        outcome = talk(api, "--once", "我早上喝绿茶吗?", "--system", "用中文回答。", "--meta", "city=大阪")
        assert outcome == (0, "绿茶\\x1b[2J。\n", "")
        _, told, _ = talk(api, "--once", "-", "--json", "--session", "s1", stdin="green tea in the morning?")
        facts = json.loads(told)
        system, asked = api.requests[0].body["messages"]
    assert facts["answer"] == "Green tea."
    assert TEA in [item["uri"] for item in facts["recalled"]]
    assert facts["receipt"]["status"] == "committed"
    assert "用中文回答。" in system["content"]
    assert '"city": "大阪"' in asked["content"]
    assert said(tmp_path, "s1") == [("user", "green tea in the morning?"), ("assistant", "Green tea.")]


def test_without_a_model_or_with_wrong_options_the_next_step_is_named(talk: Talk) -> None:
    status, out, err = talk(None, "--once", "hi")
    assert (status, out) == (1, "")
    assert "there is no language model" in err
    assert "Next: Set llm.provider" in err
    assert "--json goes with --once" in talk(None, "--json")[1]
    assert "Write --meta NAME=VALUE" in talk(None, "--once", "hi", "--meta", "city")[2]


def test_a_pipe_is_answered_line_by_line_and_a_failure_does_not_end_it(tmp_path: Path, talk: Talk) -> None:
    lines = "你好,我是小林\n\nand now?\n /etc is a folder?\n/quit\nnever said\n"
    with StandIn([openai_completion("你好。"), failure(400, "no"), openai_completion("Yes.")]) as api:
        status, out, err = talk(api, "--session", "s1", stdin=lines)
    assert (status, out) == (0, "你好。\nYes.\n")
    assert "answered 400: no" in err
    assert "What you said is stored." in err
    words = [text for role, text in said(tmp_path, "s1") if role == "user"]
    assert words == ["你好,我是小林", "and now?", "/etc is a folder?"]


@needs_terminal
def test_a_conversation_in_a_terminal_recalls_remembers_forgets_and_takes_back(tmp_path: Path) -> None:
    remember_tea(tmp_path)
    with terminal(tmp_path, [openai_completion("你喝绿茶。"), openai_completion("好。")]) as (talk, api):
        assert "Nothing was asked yet" in talk.ask("/memories")
        assert "你喝绿茶。" in talk.ask("我早上喝咖啡\x7f\x7f绿茶吗?")  # edited as it is typed
        assert api.requests[0].body["messages"][-1]["content"].endswith("\n我早上喝绿茶吗?")
        assert TEA in talk.ask("/memories")
        assert "committed" in talk.ask("/remember 他喜欢大阪的拉面。")
        assert "/forget QUERY" in talk.ask("/help")
        assert "is no command" in talk.ask("/nonsense")
        talk.type("/forget 拉面\n")
        assert "拉面" in talk.until("type how many that is (1): ")
        assert "Nothing was deleted" in talk.ask("no")
        talk.type("/forget 拉面\n")
        talk.until("(1): ")
        assert "deleted" in talk.ask("1")
        assert "created" in talk.ask("/undo")  # the forgotten memory is back
        assert "deleted" in talk.ask("/undo")  # and now it was never remembered
        assert "keeps" not in talk.ask("/private on")
        assert "好。" in talk.ask("secret plan 秘密")
        assert "private mode" in talk.ask("/remember 秘密")
        assert "is remembered" in talk.ask("/private off")
        talk.ask("/undo")
        assert "Nothing is left" in talk.ask("/undo")
        talk.type("\x04")
        talk.until("runebook chat --session s1")
        assert talk.status() == 0
        assert len(api.requests) == 2
    assert said(tmp_path, "s1") == []


@needs_terminal
def test_ctrl_c_cancels_an_answer_and_at_the_prompt_ends_cleanly(tmp_path: Path) -> None:
    with terminal(tmp_path, [fall_silent(), openai_completion("Here I am. 我在。")]) as (talk, api):
        talk.type("are you there? 在吗?\n")
        assert soon(lambda: bool(api.requests))
        os.kill(talk.process.pid, signal.SIGINT)
        assert "Cancelled. What you said is stored." in talk.until("you> ")
        assert "我在。" in talk.ask("hello again")
        while not talk.shows("Go on with", seconds=1.0):  # one that comes before input() waits is heard at the next key
            talk.type("\x03")
        assert talk.status() == 0
    assert [words for role, words in said(tmp_path, "s1") if role == "user"] == ["are you there? 在吗?", "hello again"]


def test_undo_takes_back_for_the_model_what_it_takes_back_in_the_store(tmp_path: Path, talk: Talk) -> None:
    answers = [openai_completion("One."), openai_completion("Two."), openai_completion("Three.")]
    with StandIn(answers) as api:
        lines = "first 一\n/private on\nsecret\n/undo\n/private off\n/undo\nthird\n"
        _, out, err = talk(api, "--session", "s1", stdin=lines)
    assert "private mode is on" in err
    assert "Nothing is left" not in out
    seen = [message["content"] for message in api.requests[-1].body["messages"]]
    assert "Two." in seen
    assert "One." not in seen
    assert [text for _, text in said(tmp_path, "s1")] == ["third", "Three."]


def test_undo_of_a_turn_without_an_answer_leaves_the_one_before_to_the_model(tmp_path: Path, talk: Talk) -> None:
    with StandIn([openai_completion("One."), failure(400, "no"), openai_completion("Three.")]) as api:
        talk(api, "--session", "s1", stdin="first 一\nsecond\n/undo\nthird\n")
    assert "One." in [message["content"] for message in api.requests[-1].body["messages"]]
    assert [text for _, text in said(tmp_path, "s1")] == ["first 一", "One.", "third", "Three."]


def test_an_undo_that_found_the_store_busy_is_made_again(
    tmp_path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, busy = Runebook.run, ["busy"]

    def once_busy(memory: Runebook, command: Any, request: Any) -> Any:
        if command is UNDO and busy:
            raise StoreBusy(busy.pop(), hint="Send the same request again.")
        return run(memory, command, request)

    monkeypatch.setattr(Runebook, "run", once_busy)
    with StandIn([openai_completion("One."), openai_completion("Two.")]) as api:
        talk(api, "--session", "s1", stdin="first 一\nsecond\n/undo\n/undo\n")
    assert not busy
    assert [text for _, text in said(tmp_path, "s1")] == ["first 一", "One."]
