"""Private mode: what is said while it is on leaves nothing behind, and what was kept before can still be found."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from memory_core.core.caller import Access
from memory_core.core.config import Config
from memory_core.core.errors import AccessDenied
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.features.migrate import MIGRATE, MigrateRequest
from memory_core.features.recall_trail import TRAIL, TrailRequest
from memory_core.runebook import open_memory
from tests.server.conftest import ERAS, Caller, Connect, Era, HttpServer, text_of
from tests.stores import files_below
from tests.waiting import PATIENCE_SECONDS

BEFORE = "The user's cat is called Mochi."
SECRET = "zanzibar 密谋"


def kept(home: Path) -> list[str]:
    """Everything in the ledger, as SQL."""
    with closing(sqlite3.connect(home / ".state" / "ledger.sqlite3", timeout=60)) as ledger:
        return sorted(ledger.iterdump())


def settled(home: Path) -> list[str]:
    """The ledger once background work has come to rest: the commits are on disk, the search before is in the trail."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    found: list[str] = []
    while time.monotonic() < deadline:
        time.sleep(0.5)
        with closing(sqlite3.connect(home / ".state" / "ledger.sqlite3", timeout=60)) as ledger:
            written = ledger.execute("SELECT (SELECT min(settled) FROM commits) AND EXISTS (SELECT 1 FROM trail)")
            at_rest = written.fetchone() == (1,)
        again = kept(home)
        if at_rest and again == found:
            return again
        found = again
    raise AssertionError("the ledger did not come to rest")


def read_uri(caller: Caller) -> str:
    (hit, *_) = caller.facts("find", query="cat")["memories"]
    uri: str = hit["uri"]
    return uri


@ERAS
def test_nothing_is_written_while_private_mode_is_on(connect: Connect, tmp_path: Path, era: Era) -> None:
    home = tmp_path / "home"
    with connect(home, era) as caller:
        caller.facts("commit_memory", memory_content=BEFORE)
        uri = read_uri(caller)
        switched = caller.facts("commit_memory", private_mode=True)
        assert "private mode is on" in switched["notes"][0]
        before = settled(home)
        caller.facts("find", query=f"cat {SECRET}")
        caller.facts("retrieve", query=f"cat {SECRET}", session_id="hush")
        assert "Mochi" in caller.facts("read", uri=uri)["content"]
        caller.call("commit_memory", messages=[{"role": "user", "content": SECRET}], session_id="hush")
        refused = caller.call("commit_memory", memory_content=SECRET, request_id="one")
        assert refused.is_error
        assert "private mode is on: nothing was stored" in text_of(refused)
        assert settled(home) == before
        assert caller.facts("commit_memory", private_mode=False)["status"] == "unchanged"
        # The refused request was not remembered either: the same id is free.
        again = caller.facts("commit_memory", memory_content="Tea, not coffee.", request_id="one")
        assert again["status"] == "committed"
    assert not [path for path, text in files_below(home) if b"zanzibar" in text]


def test_what_stands_beside_the_switch_is_refused_not_dropped(connect: Connect, tmp_path: Path) -> None:
    with connect(tmp_path / "home") as caller:
        refused = caller.call("commit_memory", private_mode=True, memory_content=BEFORE)
        assert refused.is_error
        assert "memory_content" in text_of(refused)
        assert caller.facts("commit_memory", memory_content=BEFORE)["status"] == "committed"


def test_private_mode_of_one_http_session_is_not_that_of_another(connect: Connect, http_server: HttpServer) -> None:
    with connect(f"{http_server.origin}/mcp", "legacy") as one, connect(f"{http_server.origin}/mcp", "legacy") as two:
        one.facts("commit_memory", private_mode=True)
        assert one.call("commit_memory", memory_content="Kept from one.").is_error
        assert two.facts("commit_memory", memory_content="Told by the other.")["status"] == "committed"


def test_private_mode_is_refused_where_nothing_tells_clients_apart(connect: Connect, http_server: HttpServer) -> None:
    with connect(f"{http_server.origin}/mcp") as caller:
        answer = caller.call("commit_memory", private_mode=True)
        assert answer.is_error
        assert "has no sessions" in text_of(answer)
        assert caller.facts("commit_memory", memory_content="Still open.")["status"] == "committed"


def test_the_setting_keeps_a_whole_process_from_writing(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path, private_mode=True)) as memory:
        with pytest.raises(AccessDenied, match="private mode"):
            memory.commit(CommitRequest(SECRET))
        with pytest.raises(AccessDenied):
            memory.run(MIGRATE, MigrateRequest())
        assert memory.store.ledger.newest_seq() == 0


def test_a_view_that_only_reads_says_so_and_counts_nothing(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        uri = memory.commit(CommitRequest(BEFORE)).changed_uris[0]
        reader = memory.view(access=Access.READ_ONLY)
        with pytest.raises(AccessDenied, match="may only read"):
            reader.commit(CommitRequest("Dogs."))
        assert reader.find(FindRequest("cat")).hits
        reader.read(ReadRequest(uri))
        memory.store.usage.flush()
        assert memory.run(TRAIL, TrailRequest()) == []
        assert memory.store.ledger.usage_table.usage([uri]) == {}


def test_views_of_other_spaces_do_not_see_each_other(tmp_path: Path) -> None:
    with open_memory(Config(home=tmp_path)) as memory:
        lin = memory.view("lin", "lin")
        lin.commit(CommitRequest("林的猫叫麻薯。"))
        memory.commit(CommitRequest(BEFORE))
        assert [hit.abstract for hit in lin.find(FindRequest("猫 cat")).hits] == ["林的猫叫麻薯。"]
        assert [hit.abstract for hit in memory.find(FindRequest("猫 cat")).hits] == [BEFORE]
        lin.close()  # a view closes nothing
        assert memory.find(FindRequest("cat")).hits
