"""What a database does that a folder does not: be away, lose connections, be of another version, be somebody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig, StoreConfig, load
from memory_core.core.errors import ConfigInvalid, NeedsFolder, StorageFailed, StoreBusy, TooLarge
from memory_core.core.memory.requests import CommitRequest, FindRequest, ReadRequest
from memory_core.core.memory.results import Status
from memory_core.core.store.logins import TABLES
from memory_core.features.backup import back_up
from memory_core.runebook import open_memory
from server.cli import main
from server.commands.access_tokens import open_tokens
from tests.contract.conftest import Place
from tests.waiting import at_once

psycopg = pytest.importorskip("psycopg")
from memory_core.core.postgres import schema  # noqa: E402 - what it imports may be missing

NOTE = CommitRequest("Seven gulls.", memory_type="notes", fields={"title": "gulls"}, request_id="r-1")
URI = "viking://user/default/memories/notes/gulls.md"


class mentioning(str):  # noqa: N801 - reads as a word
    """Equals every text that holds all of these."""

    def __new__(cls, *words: str) -> mentioning:
        made = super().__new__(cls, " … ".join(words))
        made.words = words
        return made

    words: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and all(word in other for word in self.words)

    __hash__ = str.__hash__


def test_connections_that_were_cut_are_replaced_and_no_acknowledged_commit_is_lost(rows: Place) -> None:
    memory = rows.open()
    assert memory.commit(NOTE).status is Status.COMMITTED
    with psycopg.connect(rows.url, autocommit=True) as admin:
        cut = admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'runebook%'"
        ).fetchall()
    assert cut
    assert memory.read(ReadRequest(URI)).content.startswith("Seven gulls.")
    assert memory.find(FindRequest("gulls")).memories
    assert memory.commit(NOTE).notes == ("repeated request_id",)


def test_a_transaction_that_is_cut_stores_nothing_says_busy_and_may_be_sent_again(rows: Place) -> None:
    memory = rows.open()

    def cut(step: str) -> None:
        if step == "acknowledged":
            with psycopg.connect(rows.url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
                )

    memory.store._step = cut
    with pytest.raises(StoreBusy):
        memory.commit(NOTE)
    memory.store._step = lambda _step: None
    assert memory.store.ledger.newest_seq() == 0
    receipt = memory.commit(NOTE)
    assert (receipt.status, receipt.notes) == (Status.COMMITTED, ())


def test_a_writer_waits_for_the_other_one_and_readers_wait_for_nobody(rows: Place) -> None:
    one, other = rows.open(), rows.open()
    done = threading.Event()

    def write() -> None:
        other.commit(NOTE)
        done.set()

    with one.store.exclusive():
        writer = threading.Thread(target=write)
        writer.start()
        assert other.find(FindRequest("gulls")).memories == ()
        bob = other.view("bob")
        assert bob.commit(CommitRequest("Bob waits for nobody.")).status is Status.COMMITTED
        assert not done.is_set()
    writer.join(30)
    assert one.read(ReadRequest(URI)).content.startswith("Seven gulls.")


def test_writers_who_wait_hold_no_connection(rows: Place) -> None:
    memory = rows.open()
    with memory.store.exclusive():
        writers = [threading.Thread(target=lambda: memory.commit(CommitRequest("Waits."))) for _ in range(20)]
        for writer in writers:
            writer.start()
        time.sleep(1.0)  # they wait by now; if not, this proves less
        assert memory.view("bob").commit(CommitRequest("Bob waits for nobody.")).status is Status.COMMITTED
        assert memory.view("bob").find(FindRequest("nobody")).memories != ()
    for writer in writers:
        writer.join(60)


def test_whoever_cannot_wait_for_another_writer_of_the_index_is_told_so(rows: Place) -> None:
    memory = rows.open()
    catalog = memory.indexer.catalog
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with catalog.writing():
            held.set()
            done.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    try:
        held.wait(60)
        with pytest.raises(StoreBusy), catalog.writing(wait_seconds=0.05):
            pass
    finally:
        done.set()
        other.join()
    with catalog.writing(wait_seconds=0.05):
        pass


def test_a_database_of_a_newer_version_is_refused_and_left_alone(rows: Place) -> None:
    rows.open().close()
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute("UPDATE runebook.store SET version = version + 1")
    with pytest.raises(
        StorageFailed, match=f"schema version {schema.SCHEMA_VERSION + 1}; this program knows {schema.SCHEMA_VERSION}"
    ) as refused:
        rows.open()
    assert "Upgrade" in str(refused.value.hint)


def test_a_database_of_an_older_version_is_brought_forward_and_found_in_again(rows: Place) -> None:
    memory = rows.open()
    assert memory.commit(NOTE).status is Status.COMMITTED
    memory.indexer.follow(None)
    rows.close()
    with psycopg.connect(rows.url, autocommit=True) as admin:  # as version 1 left it
        admin.execute("DROP TABLE runebook.versions; ALTER TABLE runebook_index.documents DROP COLUMN substance")
        admin.execute(f"DROP TABLE {', '.join(f'runebook_ledger.{table}' for table in TABLES)}")
        admin.execute("ALTER TABLE runebook_ledger.tokens DROP COLUMN shared")
        admin.execute("DROP TABLE runebook_ledger.rates, runebook_index.word_totals")
        admin.execute("DROP FUNCTION runebook_index.count_words CASCADE")
        admin.execute("UPDATE runebook.store SET version = 1")
    assert f"older than {schema.SCHEMA_VERSION}: runebook db migrate" in schema.state(rows.url).problems[0]
    again = rows.open()
    assert (schema.state(rows.url).version, schema.state(rows.url).problems) == (schema.SCHEMA_VERSION, ())
    assert [hit.uri for hit in again.find(FindRequest("gulls")).memories] == [URI]
    assert again.commit(NOTE).notes == ("repeated request_id",)


def test_users_of_an_identity_provider_are_known_after_an_older_version_noted_them(rows: Place) -> None:
    rows.open()
    rows.close()
    with psycopg.connect(rows.url, autocommit=True) as admin:  # as version 5 left it
        admin.execute("DELETE FROM runebook_ledger.seen_users; DELETE FROM runebook.versions WHERE version = 6")
        admin.execute("ALTER TABLE runebook_ledger.seen_users RENAME TO login_users")
        admin.execute("ALTER TABLE runebook_ledger.login_users DROP CONSTRAINT seen_users_pkey")
        for column in ("agent_space", "by_settings", "since"):
            admin.execute(f"ALTER TABLE runebook_ledger.login_users DROP COLUMN {column}")
        admin.execute("ALTER TABLE runebook_ledger.login_users ADD PRIMARY KEY (tenant, user_space)")
        admin.execute(
            "INSERT INTO runebook_ledger.login_users (user_space, seen_at, tenant) VALUES "
            "('ida', '2026-11-01T00:00:00+00:00', '_tokens'), ('jo', '2026-11-02T00:00:00+00:00', '_tokens')"
        )
        admin.execute("UPDATE runebook.store SET version = 5")
    again = rows.open()
    assert schema.state(rows.url).problems == ()
    users = dict(again.opened.users())
    assert (users["ida"], users["jo"]) == (("ida",), ("jo",))


def test_a_step_of_the_schema_that_fails_changes_nothing(rows: Place) -> None:
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute(Path(schema.__file__).with_name("schema.sql").read_bytes())
        admin.execute("CREATE TABLE runebook.versions (taken integer)")
    with pytest.raises(StorageFailed, match="versions"):
        rows.open()
    assert schema.state(rows.url).version == 1
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute("DROP TABLE runebook.versions")
    assert rows.open().commit(NOTE).status is Status.COMMITTED


def test_the_command_makes_a_database_ready_brings_it_forward_and_checks_it(
    rows: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def db(action: str) -> tuple[int, str]:
        status = main(["db", action, "--set", f"store.url={rows.url}"])
        told = capsys.readouterr()
        return status, told.out + told.err

    assert db("check") == (1, mentioning("not made ready", "runebook db init"))
    assert db("migrate") == (1, mentioning("holds no store", "runebook db init"))
    assert db("init") == (0, mentioning("is made ready", f"schema version {schema.SCHEMA_VERSION}", "PostgreSQL 1"))
    assert db("init") == (0, mentioning("is ready"))
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute("ALTER TABLE runebook_ledger.commits NO FORCE ROW LEVEL SECURITY")
    assert db("check") == (1, mentioning("row-level security is off for runebook_ledger.commits"))
    with psycopg.connect(rows.url, autocommit=True) as admin:
        admin.execute("ALTER TABLE runebook_ledger.commits FORCE ROW LEVEL SECURITY")
        admin.execute("UPDATE runebook.store SET version = version + 1")
    assert db("check") == (1, mentioning(f"this program knows {schema.SCHEMA_VERSION}"))
    assert db("migrate") == (1, mentioning("Upgrade"))


def test_servers_that_start_at_once_make_a_new_database_ready_once(rows: Place) -> None:
    at_once(lambda _: rows.open(), *range(4))
    with psycopg.connect(rows.url) as raw:
        assert raw.execute("SELECT count(*) FROM runebook.store").fetchone() == (1,)


def test_a_database_that_cannot_be_reached_says_so_and_what_to_do(tmp_path: Path) -> None:
    config = Config(home=tmp_path, store=StoreConfig(url=f"postgresql:///x?host={tmp_path}&connect_timeout=2"))
    with pytest.raises(StoreBusy, match="does not answer") as refused:
        open_memory(config)
    assert "store.url" in str(refused.value.hint)


@pytest.mark.parametrize("url", ["mysql://localhost/x", "localhost:5432"])
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"store\.url"):
        load(flags={"store.url": url}, environment={})


def test_a_folder_imports_nothing_of_it(tmp_path: Path) -> None:
    script = (
        "import sys, json; from pathlib import Path; from memory_core.core.config import Config, EmbeddingConfig\n"
        "from memory_core.core.memory.requests import CommitRequest, FindRequest\n"
        "from memory_core.runebook import open_memory\n"
        "with open_memory(Config(home=Path(sys.argv[1]), embedding=EmbeddingConfig(provider='none'))) as memory:\n"
        "    memory.commit(CommitRequest('Seven gulls.')); memory.find(FindRequest('gulls'))\n"
        "print(json.dumps([name for name in sys.modules if 'psycopg' in name or 'postgres' in name]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
    )
    assert json.loads(ran.stdout) == []


def test_words_alone_are_a_setting_here_too(rows: Place) -> None:
    memory = rows.open(embedding=EmbeddingConfig(provider="none"))
    memory.commit(NOTE)
    assert memory.find(FindRequest("gulls")).memories[0].uri == URI


def test_a_token_that_one_machine_issues_opens_every_server(rows: Place) -> None:
    with open_tokens(rows.config()) as here, open_tokens(rows.config()) as there:
        token, row = here.issue("laptop", user_space="anna", agent_space="anna", spaces=("default",))
        found = there.verify(token)
        assert found is not None
        assert (found.id, found.user_space) == (row.id, "anna")
        there.revoke("laptop")
        assert here.verify(token) is None


def test_a_backup_works_on_a_folder_and_says_so(rows: Place, tmp_path: Path) -> None:
    memory = rows.open()
    memory.commit(NOTE)
    with pytest.raises(NeedsFolder, match="folder of files"):
        back_up(memory.store, tmp_path / "backups")
    assert memory.find(FindRequest("gulls")).memories
    assert not rows.home.exists()


def test_a_database_that_stores_no_utf8_is_refused(rows: Place) -> None:
    with psycopg.connect(rows.url, autocommit=True) as admin:
        name = admin.execute("SELECT current_database() || '_latin'").fetchone()[0]
        admin.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(StorageFailed, match="UTF-8"):
                Place(rows.home, rows.url.replace(name.removesuffix("_latin"), name)).open()
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_one_server_serves_many_users_without_a_thread_for_each(rows: Place) -> None:
    memory = rows.open()
    before = threading.active_count()
    for number in range(30):
        view = memory.view(f"user{number}")
        view.commit(CommitRequest(f"User {number} keeps gulls."))
        assert [hit.abstract for hit in view.find(FindRequest("gulls")).memories] == [f"User {number} keeps gulls."]
    assert threading.active_count() <= before + 15  # of the connections, and of what any store runs beside
    memory.opened.background.finish()
    assert memory.view("user3").indexer.progress().total == 1


def test_a_note_is_committed_in_ten_messages_to_the_database(rows: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from memory_core.core.postgres.database import PostgresDatabase, PostgresServer, Transaction

    memory = rows.open()
    memory.commit(CommitRequest("Six gulls on the pier.", memory_type="notes", fields={"title": "pier"}))
    memory.indexer.follow(None)
    memory.opened.background.close()  # what it does meanwhile is no part of the commit
    sent: list[str] = []
    for owner, name in ((Transaction, "send"), (PostgresDatabase, "single"), (PostgresServer, "setting")):
        monkeypatch.setattr(owner, name, _counting(getattr(owner, name), name, sent))
    receipt = memory.commit(CommitRequest("Six gulls on the pier today.", memory_type="notes", fields={"title": "on"}))
    assert [each.uri for each in receipt.similar] == ["viking://user/default/memories/notes/pier.md"]
    # A statement alone names the tenant in its own message; a transaction does so when it begins.
    messages = sent.count("setting") + sent.count("send")
    assert messages <= 10, sent


def test_a_name_that_is_too_long_for_the_database_is_refused_and_the_next_commit_stored(rows: Place) -> None:
    memory = rows.open()
    name = "".join(chr(0x4E00 + number * 7_919 % 20_000) for number in range(1_000))  # nothing to compress
    with pytest.raises(TooLarge, match="shorter name"):
        memory.commit(CommitRequest("x", memory_type="notes", fields={"title": name}))
    assert memory.commit(NOTE).status is Status.COMMITTED


def test_what_a_failed_change_leaves_is_not_acknowledged(rows: Place) -> None:
    database = rows.open().store.ledger.database
    spoilt = "INSERT INTO meta VALUES ('lost', NULL)"

    def write(*, hidden: bool) -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO meta VALUES ('kept', '1')")
            changed = connection.execute(spoilt)
            if hidden:
                with suppress(psycopg.errors.NotNullViolation):
                    assert changed.rowcount

    with pytest.raises(psycopg.errors.NotNullViolation):
        write(hidden=False)
    with pytest.raises(StoreBusy, match="took the transaction back"):
        write(hidden=True)
    assert database.connection().execute("SELECT name FROM meta WHERE name = 'kept'").fetchall() == []


def _counting(method: Any, name: str, sent: list[str]) -> Any:
    def counted(*arguments: Any, **named: Any) -> Any:
        sent.append(name)
        return method(*arguments, **named)

    return counted
