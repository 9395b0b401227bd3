"""Servers of one store as balancers and clients meet them: processes that are probed, told to end, and followed."""

from __future__ import annotations

import json
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path

import pytest

from memory_core.core.errors import NotFound
from memory_core.core.memory.requests import CommitRequest, ListRequest, ReadRequest
from memory_core.core.store.files import LEDGER_NAME
from memory_core.features.upkeep.passes import automatic_maintenance
from server.commands.access_tokens import open_tokens
from tests.contract.conftest import Place
from tests.server.bearers import PATIENCE_SECONDS, send
from tests.server.conftest import HttpServer
from tests.waiting import soon

NOW = datetime(2027, 3, 1, tzinfo=UTC)
BEFORE = datetime(2026, 12, 1, tzinfo=UTC)
JSON = {"content_type": "application/json"}
#: What is said, and a question that shares no word with it.
FACTS = (
    ("He likes oolong in the morning.", "Which tea is drunk early?"),
    ("The violin is in the attic.", "Where did we put the musical instrument?"),
    ("下周搬到杭州。", "要去哪个城市住？"),
    ("Her dentist is called Weber.", "Who looks after teeth?"),
)


class Served:
    """Starts servers of a place, each a process."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place = place
        self._folder = folder
        self._servers: list[HttpServer] = []

    def start(self, *settings: str) -> HttpServer:
        """One more server; its settings as ``name=value``."""
        given = ("embedding.provider=none", *settings, *([f"store.url={self.place.url}"] if self.place.url else []))
        options = [part for each in given for part in ("--set", each)]
        errors = self._folder / f"stderr-{len(self._servers)}"
        self._servers.append(HttpServer(self.place.home, errors, *options))
        return self._servers[-1]

    @contextmanager
    def no_commit_ends(self) -> Iterator[None]:
        """Let every commit wait for the body."""
        if self.place.url:
            import psycopg

            with psycopg.connect(self.place.url) as rows:
                rows.execute("LOCK TABLE runebook_ledger.changes IN SHARE MODE")  # others may read
                yield
        else:
            with closing(sqlite3.connect(self.place.home / ".state" / LEDGER_NAME, isolation_level=None)) as rows:
                rows.execute("BEGIN IMMEDIATE")
                yield

    def close(self) -> None:
        """Stop all servers."""
        for server in self._servers:
            server.stop()


@pytest.fixture
def served(place: Place, tmp_path: Path) -> Iterator[Served]:
    served = Served(place, tmp_path)
    yield served
    served.close()


def probe(server: HttpServer, path: str, **headers: str) -> tuple[int, str]:
    reply = send(server, "GET", path, None, None, **headers)
    return reply.status, reply.body.decode()


def asked(server: HttpServer, text: str) -> HTTPConnection:
    """A commit that was sent, and is not answered yet; the server is at it."""
    body = {"content": text, "memory_type": "notes", "fields": {"title": "gulls"}}
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    connection.request("POST", "/api/memory/entries", json.dumps(body), {"content-type": "application/json"})
    for _ in range(3):  # what came before is read before
        assert probe(server, "/livez") == (200, "alive")
    return connection


def test_a_server_that_is_told_to_end_answers_what_runs_and_sends_the_rest_elsewhere(served: Served) -> None:
    server = served.start("http.drain_seconds=600")
    assert probe(server, "/livez", host="10.1.2.3:8848") == (200, "alive"), "probes know no name"
    assert probe(server, "/readyz", host="10.1.2.3:8848") == (200, "ready")
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)) as stream:
        stream.request("GET", "/sse", headers={"accept": "text/event-stream"})
        assert stream.getresponse().status == 200
        with served.no_commit_ends():
            connection = asked(server, "Seven gulls.")
            server.process.send_signal(signal.SIGTERM)
            assert soon(lambda: probe(server, "/readyz") == (503, "the server ends"))
            assert server.process.poll() is None
        with closing(connection):
            answer = connection.getresponse()
            assert (answer.status, answer.headers["connection"]) == (201, "close")
            assert b"notes/gulls.md" in answer.read()
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_a_server_does_not_wait_for_ever_for_what_runs(served: Served) -> None:
    server = served.start("http.drain_seconds=0.2")
    assert probe(server, "/readyz") == (200, "ready")
    with served.no_commit_ends(), closing(asked(server, "Seven gulls.")):
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_SECONDS) == 0
    assert served.place.open().store.ledger.newest_seq() in (0, 1), "whole or not at all"


def test_what_one_server_acknowledged_another_one_finds_at_once_by_words_and_by_meaning(served: Served) -> None:
    one, other = (served.start("embedding.provider=bundled", "embedding.wait_seconds=60") for _ in range(2))
    assert [probe(server, "/readyz")[0] for server in (one, other)] == [200, 200]
    for number, (text, query) in enumerate(FACTS):
        writer, reader = (one, other) if number % 2 else (other, one)
        written = {"content": text, "memory_type": "notes", "fields": {"title": f"fact {number}"}}
        assert send(writer, "POST", "/api/memory/entries", written, None, **JSON).status == 201
        for question in (text, query):
            asking = {"query": question}
            answer = json.loads(send(reader, "POST", "/api/memory/search", asking, None, **JSON).body)
            assert answer["hits"][0]["uri"].endswith(f"/fact {number}.md"), (question, answer)


_HOLDER = """
import sys
from pathlib import Path
from memory_core.core.config import Config, StoreConfig
from memory_core.runebook import open_memory
memory = open_memory(Config(home=Path(sys.argv[1]), store=StoreConfig(url=sys.argv[2])))
with memory.opened.upkeep_mark().lock().held():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_server_at_a_time_maintains_all_users_and_another_one_takes_over_when_it_dies(place: Place) -> None:
    memory, other = place.open(), place.open()
    users = ("default", "bob")
    offers = [
        memory.view(user).commit(
            CommitRequest("Old offer.", fields={"title": "offer"}, metadata={"expires_at": "2027-01-01"}, now=BEFORE)
        )
        for user in users
    ]
    mine, others = automatic_maintenance(memory), automatic_maintenance(other)
    assert mine is not None
    assert others is not None
    other.view("bob").ls(ListRequest("viking://user/bob"))
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(place.home), place.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            assert not mine.run_if_due(NOW)
        finally:
            holder.kill()
    assert soon(lambda: mine.run_if_due(NOW))
    assert not others.run_if_due(NOW), "it was done"
    for user, offer in zip(users, offers, strict=True):
        with pytest.raises(NotFound):
            other.view(user).read(ReadRequest(offer.results[0].uri))


def test_what_one_server_commits_another_tells_of_at_its_next_look(place: Place) -> None:
    from server.http.change_stream import StreamPosition

    ours, theirs = place.open(), place.open()
    ours.commit(CommitRequest("He likes oolong.", memory_type="notes", fields={"title": "Tea"}))
    position = StreamPosition(theirs, None)
    first = position.news()
    assert first is not None
    assert first["latest"] == ours.store.ledger.history(limit=1)[0].commit_id
    assert position.news() is None
    receipt = ours.commit(CommitRequest("下周搬到杭州。", memory_type="notes", fields={"title": "搬家"}))
    ours.view("bob", "bob").commit(CommitRequest("Bob's.", memory_type="notes", fields={"title": "Bob"}))
    told = position.news()
    assert told is not None
    assert [commit["commit_id"] for commit in told["commits"]] == [receipt.commit_id]
    assert position.news() is None


def test_what_was_committed_is_told_without_a_receipt(place: Place) -> None:
    from server.http.change_stream import StreamPosition

    memory = place.open()
    receipt = memory.commit(CommitRequest("He likes oolong.", memory_type="notes", fields={"title": "Tea"}))
    memory.commit(CommitRequest(alone={"undo": receipt.commit_id}))
    with memory.store.ledger._database.writing() as connection:
        connection.execute("UPDATE commits SET receipt = ?, kind = ?", ("none", "import"))
    told = StreamPosition(memory, receipt.commit_id).news()
    assert told is not None
    assert [len(commit["uris"]) for commit in told["commits"]] == [1]
    assert {"history", "metrics"} <= {entry.name for entry in memory.ls(ListRequest("viking://")).entries}
    assert len(memory.store.ledger.history()) == 2
    assert len(memory.store.ledger.past.undone_by(receipt.commit_id)) == 1


def test_a_token_that_the_database_is_asked_about_keeps_nobody_else_waiting(database: str, tmp_path: Path) -> None:
    import psycopg

    served = Served(Place(tmp_path / "home", database), tmp_path)
    with open_tokens(served.place.config()) as tokens:
        token = tokens.issue("anna", user_space="anna", agent_space="anna")[0]
    server = served.start()
    asking = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    with closing(served), closing(asking), psycopg.connect(database, autocommit=True) as watching:
        with psycopg.connect(database) as rows:
            rows.execute("LOCK TABLE runebook_ledger.tokens IN ACCESS EXCLUSIVE MODE")
            asking.request("GET", "/api/memory/about", headers={"authorization": f"Bearer {token}"})
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'runebook_ledger.tokens'::regclass"
            assert soon(lambda: watching.execute(waits).fetchone() is not None)
            assert probe(server, "/livez") == (200, "alive")
            answered, _, _ = select.select([asking.sock], [], [], 0)
            assert not answered
        assert asking.getresponse().status == 200
