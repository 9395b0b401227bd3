"""Who works with a store, and with which agents."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_core.core.store.issued_tokens import IssuedToken
from memory_core.core.store.ledger import Ledger
from memory_core.core.store.users import SeenUser, SeenUsers, users_of

NOW = datetime(2027, 1, 28, 9, 0, tzinfo=UTC)


def at(days_ago: float) -> str:
    return (NOW - timedelta(days=days_ago)).isoformat(timespec="seconds")


def token(user: str, agent: str, days_ago: float = 1) -> IssuedToken:
    return IssuedToken(f"{user}-{agent}", f"{user} {agent}", user, agent, False, at(days_ago))


def seen(user: str, agent: str, days_ago: float = 1, *, by_settings: bool = True) -> SeenUser:
    return SeenUser(user, agent, by_settings, at(days_ago), at(0))


def agents_of(
    user: str,
    tokens: tuple[IssuedToken, ...] = (),
    noted: tuple[SeenUser, ...] = (),
    own: tuple[str, str] = ("default", "default"),
) -> tuple[str, ...]:
    return dict(users_of((own,), tokens, noted, ("work", "bob"), NOW))[user]


def test_the_settings_come_before_tokens_and_older_tokens_before_newer_ones() -> None:
    tokens = (token("default", "phone", 9), token("bob", "new", 1), token("bob", "old", 3))
    assert agents_of("default", tokens) == ("default", "phone")
    assert agents_of("bob", tokens) == ("old", "new")
    assert agents_of("work", tokens) == ("work",)


def test_a_process_with_other_settings_says_the_same_of_each_user() -> None:
    noted = (seen("default", "default", 9), seen("work", "default", 5), seen("ida", "ida", 2, by_settings=False))
    tokens = (token("bob", "bob"),)
    for own in (("default", "default"), ("work", "default")):
        assert agents_of("work", tokens, noted, own) == ("default",)
        assert agents_of("default", tokens, noted, own) == ("default",)
        assert agents_of("ida", tokens, noted, own) == ("ida",)


@pytest.mark.parametrize("by_token", [True, False])
def test_who_looks_after_a_user_brings_no_agent_space_of_another_along(*, by_token: bool) -> None:
    tokens = (token("bob", "bob"),) if by_token else ()
    noted = (seen("default", "default", 9), *(() if by_token else (seen("bob", "bob", by_settings=False),)))
    assert agents_of("bob", tokens, noted, ("bob", "default")) == ("bob",)
    assert agents_of("bob", tokens, noted, ("bob", "helper")) == ("bob",)
    assert agents_of("bob", tokens, (*noted, seen("bob", "helper", 2)), ("bob", "helper")) == ("helper", "bob")
    later = (*noted, seen("bob", "default", 2))
    assert agents_of("bob", tokens, later, ("default", "default")) == ("bob",)
    assert agents_of("otto", (), (seen("otto", "default", 9), *later), ("otto", "default")) == ("default",)
    assert agents_of("bob", (*tokens, token("bob", "default", 0)), noted, ("bob", "default"))[0] == "default"


def test_users_whom_an_older_ledger_noted_are_known_with_an_agent_of_their_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    Ledger(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # as version 9 left it
        connection.execute("DROP TABLE seen_users")
        connection.execute("CREATE TABLE login_users (user_space TEXT PRIMARY KEY, seen_at TEXT NOT NULL)")
        connection.execute("INSERT INTO login_users VALUES ('ida', ?)", (at(1),))
        connection.execute("PRAGMA user_version = 9")
    with closing(Ledger(path)) as ledger:
        assert SeenUsers(ledger.database).rows() == [SeenUser("ida", "ida", False, at(1), at(1))]
