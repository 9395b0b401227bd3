"""What the authorization server keeps: clients, what users granted them, and digests of the secrets they were given.

A user grants a client something by showing a token of ``issued_tokens``; the grant holds as long as that token. Its
secrets are texts of 256 random bits: a code, which is exchanged once; access tokens; refresh tokens, each of which is
exchanged for the next; sessions of the page. Only a SHA-256 digest of each is stored (``issued_tokens`` says why).

Promises: whoever shows a code or a refresh token a second time ends the grant, with all that it gave: one of the two
stole it. Exchanges are transactions, so of two at once one counts. What expired goes with the next that is written, and
with it grants that hold nothing and clients that nobody uses; of each grant the newest thousand of a kind are kept.
Does not: know HTTP, or what a scope means.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from memory_core.core.frozen import frozen
from memory_core.core.store.issued_tokens import COLUMNS, IssuedToken, token_row
from memory_core.core.store.sqlite import Database, Table, stamp

#: The tables, and who was seen, which stay where they are when a store moves: clients log in again.
TABLES = ("login_clients", "login_grants", "login_secrets", "seen_users")

Kind = Literal["code", "access", "refresh", "session"]
_PREFIXES: Mapping[Kind, str] = {"code": "rc_", "access": "ra_", "refresh": "rr_", "session": "rs_"}
_SECRET_BYTES = 32
_CODE_LIFE = timedelta(minutes=5)
#: A client that never got a code is forgotten so soon, one that did once it is so long out of use.
_UNUSED_LIFE = timedelta(days=1)
_IDLE_LIFE = timedelta(days=90)
_UNUSED_CLIENTS = 1_000
_CLEANED_EVERY = timedelta(minutes=10)
#: Of each kind, of one grant: more than a client needs that refreshes hourly for a month.
_SECRETS_EACH = 1_000


@frozen
class Held:
    """A secret that holds, and what it stands for.

    Attributes:
        kind: What it may be used for.
        grant: The grant that it belongs to; empty for a session of somebody whom an identity provider knows.
        client: Whom the grant was given; empty likewise.
        token: By which the user proved who they are; None likewise.
        details: What was kept with it.
        expires_at: From when on it holds no longer.
    """

    kind: Kind
    grant: str
    client: str
    token: IssuedToken | None
    details: Mapping[str, Any]
    expires_at: datetime


@frozen
class Lifetimes:
    """How long access and refresh tokens hold."""

    access: timedelta
    refresh: timedelta


class Logins(Table):
    """Clients, grants and secrets of one authorization server, which all servers of a store are together.

    Args:
        database: A ledger's.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._cleaned_at = datetime.min.replace(tzinfo=UTC)

    def register(self, client: str, metadata: Mapping[str, Any], now: datetime | None = None) -> None:
        """Keep what a client says of itself, or keep it anew.

        Of clients that nobody let in so far only the newest are kept, so that nobody can fill the store with them.
        """
        at = now or datetime.now(UTC)
        with self._database.writing() as connection:
            self._clean(connection, at)
            connection.execute(
                "DELETE FROM login_clients WHERE used_at IS NULL AND id NOT IN (SELECT id FROM login_clients "
                "WHERE used_at IS NULL ORDER BY created_at DESC, id LIMIT ?)",
                (_UNUSED_CLIENTS - 1,),
            )
            connection.execute(
                "INSERT INTO login_clients (id, metadata, created_at) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET metadata = excluded.metadata",
                (client, json.dumps(metadata), stamp(at)),
            )

    def client(self, client: str) -> Mapping[str, Any] | None:
        """What a client said of itself; None for one that is not known."""
        found = self._value("SELECT metadata FROM login_clients WHERE id = ?", client)
        return None if found is None else dict(json.loads(found))

    def is_let_in(self, client: str) -> bool:
        """Whether somebody let a client in before."""
        return self._row("SELECT 1 FROM login_clients WHERE id = ? AND used_at IS NOT NULL", client) is not None

    def grant(self, client: str, token: IssuedToken, details: Mapping[str, Any], now: datetime | None = None) -> str:
        """Note that the owner of a token lets a client in.

        Args:
            client: A client that is known.
            token: By which the user proved who they are.
            details: What is kept with the code, and with all that it is exchanged for.
            now: The time, aware; None is the clock's.

        Returns:
            The code, which holds for five minutes.
        """
        at = now or datetime.now(UTC)
        grant = secrets.token_hex(16)
        with self._database.writing() as connection:
            self._clean(connection, at)
            connection.execute(
                "INSERT INTO login_grants (id, client, token, created_at) VALUES (?, ?, ?, ?)",
                (grant, client, token.id, stamp(at)),
            )
            connection.execute("UPDATE login_clients SET used_at = ? WHERE id = ?", (stamp(at), client))
            return _add(connection, "code", grant, details, at + _CODE_LIFE)

    def held(self, kind: Kind, text: str, now: datetime | None = None) -> Held | None:
        """What a secret stands for; None for one that does not hold, for whatever reason.

        One that was exchanged before ends its grant: see the module.
        """
        at = now or datetime.now(UTC)
        found, spent = _found(self._database.connection(), kind, text, at)
        if found is not None and spent:
            self.revoke(found.grant)
            return None
        return found

    def exchange(
        self, kind: Kind, text: str, lives: Lifetimes, details: Mapping[str, Any], now: datetime | None = None
    ) -> tuple[str, str] | None:
        """Take a code, or a refresh token, for the next access and refresh token.

        Args:
            kind: ``code`` or ``refresh``.
            text: The secret.
            lives: How long the new ones hold.
            details: What is kept with the access token; the refresh token keeps what the secret had.
            now: The time, aware; None is the clock's.

        Returns:
            Access token and refresh token; None if the secret does not hold. Its grant ends if it was taken before.
        """
        at = now or datetime.now(UTC)
        with self._database.writing() as connection:
            found = self._spent(connection, kind, text, at)
            if found is None:
                return None
            access = _add(connection, "access", found.grant, details, at + lives.access)
            refresh = _add(connection, "refresh", found.grant, found.details, at + lives.refresh)
            _drop_oldest(connection, found.grant)
            return access, refresh

    def begin_session(
        self, details: Mapping[str, Any], life: timedelta, code: str = "", now: datetime | None = None
    ) -> str | None:
        """A session of the page: of the user of a code, which is taken for it, or of the one whom the details name.

        Returns:
            Its secret; None if the code does not hold.
        """
        at = now or datetime.now(UTC)
        with self._database.writing() as connection:
            grant = ""
            if code:
                found = self._spent(connection, "code", code, at)
                if found is None:
                    return None
                grant = found.grant
            else:
                self._clean(connection, at)
            return _add(connection, "session", grant, details, at + life)

    def revoke(self, grant: str) -> None:
        """End a grant, and all that it gave."""
        with self._database.writing() as connection:
            _end(connection, grant)

    def end(self, kind: Kind, text: str) -> None:
        """End one secret."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM login_secrets WHERE digest = ? AND kind = ?", (_digest(text), kind))

    def clean(self, now: datetime | None = None) -> None:
        """Forget what expired, and what nobody uses."""
        with self._database.writing() as connection:
            self._cleaned_at = datetime.min.replace(tzinfo=UTC)
            self._clean(connection, now or datetime.now(UTC))

    def _spent(self, connection: Any, kind: Kind, text: str, at: datetime) -> Held | None:
        """What a secret stood for that is used now; None if it does not hold, or did so once already."""
        self._clean(connection, at)
        found, spent = _found(connection, kind, text, at)
        if found is not None and spent:
            _end(connection, found.grant)
            return None
        if found is not None:
            connection.execute("UPDATE login_secrets SET spent_at = ? WHERE digest = ?", (stamp(at), _digest(text)))
            connection.execute("UPDATE login_clients SET used_at = ? WHERE id = ?", (stamp(at), found.client))
        return found

    def _clean(self, connection: Any, at: datetime) -> None:
        if at - self._cleaned_at < _CLEANED_EVERY:
            return
        self._cleaned_at = at
        dead = "SELECT id FROM tokens WHERE revoked_at IS NOT NULL OR expires_at <= ?"
        for statement, bound in (
            ("DELETE FROM login_secrets WHERE expires_at <= ?", at),
            (f"DELETE FROM login_secrets WHERE grant_id IN (SELECT id FROM login_grants WHERE token IN ({dead}))", at),
            ("DELETE FROM login_clients WHERE used_at IS NULL AND created_at <= ?", at - _UNUSED_LIFE),
        ):
            connection.execute(statement, (stamp(bound),))
        connection.execute("DELETE FROM login_grants WHERE id NOT IN (SELECT grant_id FROM login_secrets)")
        connection.execute(
            "DELETE FROM login_clients WHERE used_at <= ? AND id NOT IN (SELECT client FROM login_grants)",
            (stamp(at - _IDLE_LIFE),),
        )


def _found(connection: Any, kind: Kind, text: str, at: datetime) -> tuple[Held | None, bool]:
    """What a secret stands for, and whether it was exchanged before."""
    if not text.startswith(_PREFIXES[kind]):
        return None, False
    tokens = ", ".join(f"t.{name}" for name in COLUMNS)
    row = connection.execute(
        f"SELECT s.grant_id, s.details, s.expires_at, s.spent_at, g.client, {tokens} FROM login_secrets s "
        "LEFT JOIN login_grants g ON g.id = s.grant_id LEFT JOIN tokens t ON t.id = g.token "
        "WHERE s.digest = ? AND s.kind = ? AND s.expires_at > ?",
        (_digest(text), kind, stamp(at)),
    ).fetchone()
    if row is None:
        return None, False
    grant, details, expires_at, spent_at, client, *columns = row
    token = None if columns[0] is None else token_row(columns)
    if grant and (token is None or not token.is_live(at)):
        return None, False
    ends = datetime.fromisoformat(expires_at)
    return Held(kind, grant, client or "", token, dict(json.loads(details)), ends), spent_at is not None


def _add(connection: Any, kind: Kind, grant: str, details: Mapping[str, Any], expires_at: datetime) -> str:
    text = _PREFIXES[kind] + secrets.token_urlsafe(_SECRET_BYTES)
    connection.execute(
        "INSERT INTO login_secrets (digest, kind, grant_id, details, expires_at) VALUES (?, ?, ?, ?, ?)",
        (_digest(text), kind, grant, json.dumps(details), stamp(expires_at)),
    )
    return text


def _drop_oldest(connection: Any, grant: str) -> None:
    """Keep no more of a grant than it needs: a client that refreshes without end would fill the store."""
    for kind in ("access", "refresh"):
        connection.execute(
            "DELETE FROM login_secrets WHERE grant_id = ? AND kind = ? AND digest NOT IN (SELECT digest FROM "
            "login_secrets WHERE grant_id = ? AND kind = ? ORDER BY spent_at IS NOT NULL, expires_at DESC LIMIT ?)",
            (grant, kind, grant, kind, _SECRETS_EACH),
        )


def _end(connection: Any, grant: str) -> None:
    if grant:
        connection.execute("DELETE FROM login_secrets WHERE grant_id = ?", (grant,))
        connection.execute("DELETE FROM login_grants WHERE id = ?", (grant,))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
