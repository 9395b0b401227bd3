"""A command asks a running server of the same settings, and else does the same by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_core.core.config import load
from memory_core.runebook import Runebook, open_memory
from server.local.channel_requests import Listener, listen
from server.local.shared_server import place_of
from server.protocol.session import ServedStore
from tests.server.command_line import Run

NOTE = "viking://user/default/memories/notes/Tea 茶.md"


@pytest.fixture
def served(home: Path) -> Iterator[Runebook]:
    """The store as a server of the same settings holds it."""
    assert home
    place = place_of(None, None, ())
    with open_memory(load()) as memory:
        end = listen(ServedStore(lambda: memory), place.state, kind="stdio", settings=place.settings)
        try:
            yield memory
        finally:
            end()


def told(outcome: tuple[int, str, str]) -> tuple[int, str, str]:
    """An outcome without ids, moments and durations, which differ from run to run."""
    status, out, err = outcome
    changing = r"\d{8}T\d{6}-[0-9a-f]{8}|\d{4}-\d\d-\d\d[T ][\d:.+]*\d|[\d.]+ ms|\"milliseconds\": [\d.]+"
    return status, re.sub(changing, "~", out), err


COMMANDS = (
    ("commit", "Tea 茶", "--pinned", "--field", "title=Tea 茶"),
    ("commit", "x", "--type", "没有"),
    ("find", "tea"),
    ("find", "tea", "--json", "--filter", '{"pinned": true}'),
    ("find", "tea", "--limit", "0"),
    ("read", NOTE),
    ("read", f"{NOTE}x"),
    ("ls", "viking://user/default/memories/notes", "--json"),
    ("tree", "--level-limit", "9"),
    ("retrieve", "tea", "--format", "messages-openai"),
    ("similar", "Tea 茶", "--threshold", "0.1"),
    ("trail",),
    ("hot", "--json"),
    ("expire", NOTE, "2099-01-01"),
    ("pin", NOTE, "--off"),
    ("history", "--json"),
    ("diff", "last"),
    ("archive", "add", NOTE),
    ("archive", "list"),
    ("undo", "last"),
    ("summary", "--write", "Mei drinks tea."),
    ("summary",),
)


def test_a_server_answers_each_command_as_the_process_itself_does(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    alone = [told(run(*command)) for command in COMMANDS]
    monkeypatch.setenv("RUNEBOOK_HOME", str(home.with_name("served")))
    memory = request.getfixturevalue("served")
    monkeypatch.setattr("memory_core.runebook.open_memory", lambda *_: pytest.fail("opened beside a server"))
    for command, before in zip(COMMANDS, alone, strict=True):
        assert told(run(*command)) == before, command
    commit = json.loads(run("history", "--limit", "1", "--json")[1])["commits"][0]
    assert commit["author"] == "command line"
    assert memory.config.root == home.with_name("served")


@pytest.mark.parametrize("options", [("--set", "user_space=work"), ("--set", "search.rank=relevance")])
def test_a_server_of_other_settings_is_not_asked(run: Run, served: Runebook, options: tuple[str, ...]) -> None:
    assert run("commit", "Tea 茶", *options)[0] == 0
    shown = run("ls", "viking://user", "--json", *options)[1]
    assert ("work" in shown) is ("user_space=work" in options)
    assert served.config.user_space == "default"


def test_the_folder_that_the_command_runs_in_is_the_project_of_the_server_too(
    run: Run, served: Runebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "payments"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    run("commit", "Webhooks come twice.", "--type", "cases", "--field", "case_name=Webhook", "--project", ".")
    (hit,) = json.loads(run("find", "webhooks", "--json", "--project", ".")[1])["memories"]
    assert hit["project"].endswith("payments")
    monkeypatch.chdir(tmp_path)
    assert json.loads(run("find", "webhooks", "--json")[1])["total"] == 1
    assert served.access.leaves_traces


@pytest.mark.usefixtures("home")
def test_a_server_that_ends_over_a_request_is_done_without_where_doing_it_twice_does_no_harm(run: Run) -> None:
    run("commit", "Tea 茶")
    place = place_of(None, None, ())
    listeners: list[Listener] = []

    def ends(_request: object) -> dict[str, object]:
        listeners[-1].close()
        return {}

    listeners.append(Listener(place.state, ends, settings=place.settings))
    status, out, _ = run("find", "tea")
    assert (status, "Tea 茶.md" in out) == (0, True)
    listeners.append(Listener(place.state, ends, settings=place.settings))
    status, _, err = run("commit", "Coffee")
    assert (status, "before you run the same again" in err) == (1, True)
    listeners.append(Listener(place.state, ends, settings=place.settings))
    assert run("commit", "Coffee", "--request-id", "one")[0] == 0
    assert run("commit", "Coffee", "--request-id", "one")[0] == 0
    assert len(json.loads(run("history", "--json")[1])["commits"]) == 2
