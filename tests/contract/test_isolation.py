"""The database keeps users apart by itself: a transaction sees the rows of the user it names, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from memory_core.core.config import EmbeddingConfig
from memory_core.core.errors import NotFound
from memory_core.core.memory.requests import (
    CommitRequest,
    FindRequest,
    ListRequest,
    ReadRequest,
    RetrieveRequest,
    TreeRequest,
)
from memory_core.core.store.logins import Lifetimes, Logins
from memory_core.core.store.users import SeenUsers
from memory_core.features.history import HISTORY, HistoryRequest
from memory_core.features.purge import PURGE, PurgeRequest
from memory_core.features.undo import UNDO, UndoRequest
from memory_core.runebook import Runebook
from tests.contract.conftest import Place

psycopg = pytest.importorskip("psycopg")
SECRET = "The swordfish opens the vault."


def played(memory: Runebook) -> None:
    """A bit of everything that a user does."""
    note = memory.commit(CommitRequest(SECRET, memory_type="notes", fields={"title": "vault"}, request_id="r"))
    memory.commit(CommitRequest("My tea is green.", memory_type="preferences", fields={"topic": "tea"}))
    memory.commit(CommitRequest(messages=[{"role": "user", "content": SECRET}], session_id="s1", brief=True))
    memory.commit(CommitRequest(operations={"write_operations": []}, session_id="s1"))
    memory.find(FindRequest("swordfish", filter={"memory_type": {"in": ["notes", "message"]}}))
    memory.retrieve(RetrieveRequest("who opens the vault yesterday?", session_id="s1"))
    memory.read(ReadRequest("viking://user/" + memory.config.user_space + "/memories/notes/.overview.md"))
    memory.tree(TreeRequest("viking://", level_limit=9))
    memory.run(HISTORY, HistoryRequest())
    memory.store.ledger.past.authors([f"viking://user/{memory.config.user_space}/memories/notes/vault.md"])
    memory.run(UNDO, UndoRequest(note.commit_id))
    memory.commit(CommitRequest(SECRET, memory_type="notes", fields={"title": "vault"}))
    memory.store.usage.flush()
    memory.store.ledger.holdings.commits([f"viking://user/{memory.config.user_space}"])


def logged_in(memory: Runebook) -> None:
    """A bit of everything that the authorization server keeps."""
    tokens = memory.opened.tokens()
    logins = Logins(tokens.database)
    logins.register("desk", {"client_name": SECRET})
    code = logins.grant("desk", tokens.issue("anna", user_space="anna", agent_space="anna")[1], {})
    given = logins.exchange("code", code, Lifetimes(timedelta(hours=1), timedelta(days=1)), {})
    assert given is not None
    session = logins.begin_session({}, timedelta(hours=1)) or ""
    users = SeenUsers(tokens.database)
    users.note("anna", "anna")
    assert logins.client("desk") is not None
    assert "anna" in {each.user_space for each in users.rows()}
    logins.end("session", session)
    logins.clean()
    logins.held("code", code)


def test_a_user_sees_nothing_of_another(rows: Place) -> None:
    bundled = EmbeddingConfig(wait_seconds=60.0)
    alice = rows.open(user_space="alice", embedding=bundled)
    played(alice)
    alice.indexer.embed_all()
    for bob in (alice.view("bob"), rows.open(user_space="bob", embedding=bundled)):
        assert bob.find(FindRequest("swordfish vault")).memories == ()
        assert bob.retrieve(RetrieveRequest("who opens the vault?", session_id="s1")).text == ""
        assert bob.tree(TreeRequest("viking://", level_limit=9)).entries == ()
        assert list(bob.run(HISTORY, HistoryRequest())) == []
        assert bob.store.ledger.newest_seq() == 0
        assert bob.indexer.catalog.count() == 0
        with pytest.raises(NotFound):
            bob.read(ReadRequest("viking://user/alice/memories/notes/vault.md"))
        with pytest.raises(NotFound):
            bob.ls(ListRequest("viking://user/alice"))
        with pytest.raises(NotFound):
            bob.run(PURGE, PurgeRequest("viking://user/alice/memories/notes/vault.md"))
    assert alice.find(FindRequest("swordfish vault")).memories


def test_no_statement_of_the_program_sees_or_writes_a_row_where_no_user_is_named(
    rows: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory_core.core.postgres.database import PostgresDatabase, Transaction, configured

    asked: dict[str, Sequence[Any]] = {}
    for owner, name in ((Transaction, "native"), (PostgresDatabase, "single")):
        monkeypatch.setattr(owner, name, _noting(getattr(owner, name), asked))
    memory = rows.open(embedding=EmbeddingConfig(wait_seconds=60.0))
    played(memory)
    logged_in(memory)
    memory.indexer.embed_all()
    memory.find(FindRequest("who opens the vault?"))
    memory.run(PURGE, PurgeRequest("viking://user/default/memories/notes/vault.md"))
    assert len(asked) > 100
    with psycopg.connect(rows.url, autocommit=True) as raw:
        configured(raw)
        raw.execute("SET ROLE runebook")
        raw.execute("SELECT set_config('runebook.tenant', 'default', true)")  # of a transaction that ended
        for half in ("ledger", "index"):
            raw.execute(f"SET search_path = runebook_{half}, runebook, public")
            for statement, parameters in list(asked.items()):  # the background goes on asking
                _expect_nothing(raw, statement, parameters)


def _noting(method: Any, asked: dict[str, Sequence[Any]]) -> Any:
    """The method, which notes each statement with its first parameters."""

    def noted(self: Any, statement: str, parameters: Sequence[Any] = (), **named: Any) -> Any:
        asked.setdefault(statement, parameters)
        return method(self, statement, parameters, **named)

    return noted


def _expect_nothing(raw: Any, statement: str, parameters: Sequence[Any]) -> None:
    try:
        cursor = raw.execute(statement, parameters)
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return  # of the other half
    except (psycopg.errors.NotNullViolation, psycopg.errors.InsufficientPrivilege):
        assert statement.startswith("INSERT"), statement
        return
    if cursor.description is None:
        assert cursor.rowcount == 0, statement
        return
    for row in cursor.fetchall():
        assert all(not value for value in row), (statement, row)


def test_an_owner_who_is_not_privileged_is_bound_too(rows: Place) -> None:
    """Row-level security is forced on the owner of the tables; a role of its own is for the privileged."""
    with psycopg.connect(rows.url, autocommit=True) as admin:
        name = admin.execute("SELECT current_database()").fetchone()[0]
        role = f"owner_{name}"
        admin.execute("CREATE EXTENSION vector")
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"GRANT CREATE ON DATABASE {name} TO {role}")
    separator = "&" if "?" in rows.url else "?"
    try:
        place = Place(rows.home, f"{rows.url}{separator}user={role}".replace("user=postgres&", ""))
        memory = place.open(user_space="alice")
        played(memory)
        assert memory.view("bob").find(FindRequest("swordfish vault")).memories == ()
        with psycopg.connect(place.url) as raw:
            assert raw.execute("SELECT count(*) FROM runebook_ledger.changes").fetchone() == (0,)
        place.close()
    finally:
        with psycopg.connect(rows.url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {role} CASCADE")
            admin.execute(f"DROP ROLE {role}")
