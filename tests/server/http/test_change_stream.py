"""What was committed reaches who follows it: as one answer, as a stream, within its bounds, and nobody else."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import CommitRequest
from memory_core.core.store.history_rows import PastTable
from memory_core.core.store.issued_tokens import SharedSpace
from memory_core.core.store.ledger import Ledger
from memory_core.runebook import open_memory
from server.http import change_stream
from server.http.change_stream import STREAMS_EACH
from tests.server.bearers import PATIENCE_SECONDS, issue, revoke, send
from tests.stores import words_only
from tests.waiting import soon

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.conftest import HttpServer, StartHttp
    from tests.server.http.conftest import Desk


_PATH = "/api/memory/changes"


@contextmanager
def following(server: HttpServer, token: str | None = None, last: str | None = None, query: str = "") -> Iterator[Any]:
    """A stream: the answer to the request, whose body goes on."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    headers = {"accept": "text/event-stream"} | ({} if token is None else {"authorization": f"Bearer {token}"})
    try:
        connection.request("GET", _PATH + query, headers=headers | ({} if last is None else {"last-event-id": last}))
        yield connection.getresponse()
    finally:
        connection.close()


def event(stream: Any) -> dict[str, Any]:
    """The next event's facts."""
    while not (line := stream.readline()).startswith(b"data: "):
        assert line, "the stream ended"
    facts: dict[str, Any] = json.loads(line[6:])
    return facts


def keep(home: Path, title: str, space: str | None = None) -> None:
    """A note, written by this process and not by the server."""
    with open_memory(words_only(home)) as memory:
        view = memory if space is None else memory.view(space, space)
        view.commit(CommitRequest(f"About {title}.", memory_type="notes", fields={"title": title}))


def test_an_answer_names_what_was_committed_since(own_desk: Desk) -> None:
    owner, anna = own_desk.owner, own_desk.anna
    assert owner.facts("GET", "/changes") == {"latest": None, "commits": [], "more": False, "review": 0}
    owner.keep("Green tea.", fields={"title": "Tea"})
    seen = owner.facts("GET", "/changes")["latest"]
    path = owner.keep("早上喝绿茶。", fields={"title": "茶"})
    found = owner.facts("GET", f"/changes?since={seen}")
    (commit,) = found["commits"]
    assert found["latest"] == commit["commit_id"] != seen
    assert owner.facts("GET", f"/entries/{path}")["uri"] in commit["uris"]
    for number in range(21):
        owner.keep(f"Note {number}.", fields={"title": f"Note {number}"})
        if number == 18:  # twenty with the one above
            found = owner.facts("GET", f"/changes?since={seen}")
            assert (len(found["commits"]), found["more"]) == (20, False)
    assert owner.facts("GET", f"/changes?since={seen}")["more"]
    assert anna.facts("GET", f"/changes?since={seen}")["commits"] == []
    head = owner.ask("HEAD", "/changes", accept="text/event-stream")
    assert (head.status_code, head.headers["content-type"]) == (200, "application/json")


def test_what_is_newest_is_told_without_its_receipt_and_its_files(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_desk.owner.keep("Green tea.", fields={"title": "Tea"})
    latest = own_desk.owner.facts("GET", "/changes")["latest"]
    monkeypatch.setattr(PastTable, "files", lambda *_args: pytest.fail("files of a commit that nobody asked for"))
    monkeypatch.setattr(Ledger, "steps_of", lambda *_args: pytest.fail("all changes of a commit"))
    with own_desk.store.memory().store.ledger._database.writing() as connection:
        connection.execute("UPDATE commits SET receipt = 'none', kind = 'import'")
    assert own_desk.owner.facts("GET", "/about")["latest"] == latest
    assert own_desk.owner.facts("GET", "/changes")["latest"] == latest
    assert own_desk.owner.facts("GET", f"/changes?since={latest}")["commits"] == []


def test_what_a_busy_store_did_not_tell_the_next_look_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(words_only(tmp_path)) as memory:
        memory.commit(CommitRequest("Green tea.", memory_type="notes", fields={"title": "Tea"}))
        position = change_stream.StreamPosition(memory, None)

        def busy(_memory: Any) -> Any:
            raise StoreBusy("it is busy.", hint="Again.")

        with monkeypatch.context() as patched:
            patched.setattr(change_stream, "past_of", busy)
            with pytest.raises(StoreBusy):
                position.news()
        assert position.news() is not None
        assert position.news() is None


def test_a_stream_tells_of_other_processes_and_goes_on_where_it_was(tmp_path: Path, start_http: StartHttp) -> None:
    home = tmp_path / "home"
    server = start_http()
    keep(home, "Before")
    with following(server) as stream:
        assert stream.getheader("content-type").startswith("text/event-stream")
        first = event(stream)
        assert first["commits"] == []
        keep(home, "While it runs")
        second = event(stream)
        assert ["While it runs" in "".join(each["uris"]) for each in second["commits"]] == [True]
    keep(home, "While nobody listened")
    with following(server, last=second["latest"]) as stream:
        third = event(stream)
        assert ["While nobody listened" in "".join(each["uris"]) for each in third["commits"]] == [True]


def test_a_stream_tells_a_bearer_nothing_of_others_and_ends_with_the_token(
    tmp_path: Path, start_http: StartHttp
) -> None:
    home = tmp_path / "home"
    anna = issue(home, "anna")
    server = start_http()
    with following(server, anna) as stream:
        assert event(stream)["latest"] is None
        keep(home, "Bob's", "bob")
        keep(home, "Anna's", "anna")
        facts = event(stream)
        assert "Bob" not in json.dumps(facts)
        with open_memory(words_only(home)) as memory:
            told = memory.store.ledger.history(limit=1)[0].commit_id
        assert facts["latest"] == told
        revoke(home, "anna")
        assert stream.read().count(b"data:") == 0


def test_a_stream_of_a_shared_space_goes_on_and_tells_of_that_space_alone(
    tmp_path: Path, start_http: StartHttp
) -> None:
    home = tmp_path / "home"
    anna = issue(home, "anna", shared=[SharedSpace("team", read_only=True)])
    server = start_http()
    keep(home, "Before", "team")
    with following(server, anna, query="?space=team") as stream:
        assert event(stream)["latest"]
        keep(home, "Anna's", "anna")
        keep(home, "The team's", "team")
        assert [uri.split("/")[3] for each in event(stream)["commits"] for uri in each["uris"]] == ["team"]
    carl = issue(home, "carl")
    with following(server, carl, query="?space=team") as stream:
        assert stream.status == 404


def test_so_many_streams_of_one_client_and_no_more(tmp_path: Path, start_http: StartHttp) -> None:
    anna, bob = (issue(tmp_path / "home", name) for name in ("anna", "bob"))
    server = start_http()
    with ExitStack() as open_streams:
        for _ in range(STREAMS_EACH):
            event(open_streams.enter_context(following(server, anna)))
        with following(server, anna) as one_more:
            assert (one_more.status, one_more.getheader("retry-after")) == (429, "30")
        # They are no requests that run: anna goes on asking, and bob has streams of his own.
        assert send(server, "GET", "/api/memory/about", None, anna).status == 200
        with following(server, bob) as others:
            assert others.status == 200
            event(others)

    def again() -> bool:
        with following(server, anna) as stream:
            return bool(stream.status == 200)

    assert soon(again)


def test_a_stream_ends_after_its_time(own_desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("STREAM_SECONDS", 0.2), ("POLL_SECONDS", 0.01), ("HEARTBEAT_SECONDS", 0.05)):
        monkeypatch.setattr(change_stream, name, seconds)
    answer = own_desk.owner.ask("GET", "/changes", accept="text/event-stream")
    assert answer.status_code == 200
    assert answer.text.count("data: ") == 1
    assert ": \n\n" in answer.text
