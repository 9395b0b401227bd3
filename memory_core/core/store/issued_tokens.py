"""Bearer tokens of the HTTP server, in the ledger: who may come in, into which spaces, to do what.

A token is ``rb_<id>_<secret>``: the id finds the row, the secret is 256 random bits. Only a SHA-256 digest of the
secret is stored. A slow password hash would add nothing: it makes guessing words dear, and 2**256 equally likely
secrets cannot be guessed at any price; a fast one lets every request be checked against the table, so that a
revocation holds from the next request on, in every process.

Promises: a token is shown once, by ``issue``; unknown, wrong, revoked and expired ones get the same answer after
the same work. Does not: know HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from memory_core.core.config import Config, is_space
from memory_core.core.errors import InvalidInput, NotFound
from memory_core.core.frozen import frozen
from memory_core.core.store.sqlite import Table, stamp

#: What ``token_row`` reads.
COLUMNS = (
    *("id", "label", "user_space", "agent_space", "read_only"),
    *("created_at", "expires_at", "last_used_at", "revoked_at", "shared"),
)
_COLUMNS = ", ".join(COLUMNS)
_STORED = f"{_COLUMNS}, digest"
_MARKS = ", ".join("?" for _ in _STORED.split(","))
_ID_BYTES = 6
_SECRET_BYTES = 32
_SHAPE = re.compile(r"rb_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_LABEL = re.compile(r"[^\x00-\x1f\x7f-\x9f\s](?:[^\x00-\x1f\x7f-\x9f]{0,62}[^\x00-\x1f\x7f-\x9f\s])?")
_USE_NOTED_EVERY = timedelta(minutes=1)
_NO_DIGEST = bytes(32)
_LONGEST_DAYS = 36_500
_ONLY_READ = ":read"


@frozen
class SharedSpace:
    """A space of several users, as one of them may use it; written ``team``, or ``team:read`` for who may only read.

    Attributes:
        name: Of the user space, and of the agent space beside it.
        read_only: Whether the user may not write there.
    """

    name: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.name}{_ONLY_READ}" if self.read_only else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """A shared space as it is written.

        Raises:
            InvalidInput: If its name cannot be that of a space.
        """
        name = text.removesuffix(_ONLY_READ)
        if not is_space(name):
            raise InvalidInput(f"{text!r} cannot be a shared space.", hint="Write its name, or NAME:read to only read.")
        return cls(name, name != text)


@frozen
class IssuedToken:
    """One token, without its secret. Times are ISO 8601 in UTC.

    Attributes:
        id: Twelve hexadecimal digits, part of the token.
        label: What its owner calls it; unique among those that are not revoked.
        user_space: Whose memories it opens.
        agent_space: Which agent's memories it opens.
        read_only: Whether it may not write.
        created_at: When it was issued.
        expires_at: From when on it is refused; None is never.
        last_used_at: When it was last accepted, to the minute; None is never.
        revoked_at: From when on it is refused; None for one that holds.
        shared: Spaces that it opens beside its own.
    """

    id: str
    label: str
    user_space: str
    agent_space: str
    read_only: bool
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None
    shared: tuple[SharedSpace, ...] = ()

    @property
    def spaces(self) -> tuple[str, ...]:
        """All spaces that it opens."""
        return (self.user_space, self.agent_space, *(space.name for space in self.shared))

    def is_live(self, now: datetime) -> bool:
        """Whether it is accepted at ``now``."""
        return self.revoked_at is None and (self.expires_at is None or stamp(now) < self.expires_at)


class IssuedTokens(Table):
    """Issues, finds and revokes tokens."""

    def issue(
        self,
        label: str,
        *,
        user_space: str,
        agent_space: str,
        read_only: bool = False,
        expires_days: float | None = None,
        shared: Sequence[SharedSpace] = (),
        spaces: Iterable[str] = (),
        now: datetime | None = None,
    ) -> tuple[str, IssuedToken]:
        """Make a token; its text is returned here and never again.

        Args:
            label: 1 to 64 printable characters, not that of another live token.
            user_space: A space name.
            agent_space: A space name.
            read_only: Refuse it every write.
            expires_days: Days that it holds, > 0; None is until revoked.
            shared: Spaces that it opens beside its own.
            spaces: See ``spaces_in_use``.
            now: The time of issue, aware; None is the clock's.

        Raises:
            InvalidInput: If an argument is out of range, the label is taken, or a space has the name of another one but
                for upper and lower case: on some disks both would be one folder.
        """
        at = now or datetime.now(UTC)
        _validate(label, user_space, agent_space, expires_days)
        row = IssuedToken(
            secrets.token_hex(_ID_BYTES),
            label,
            user_space,
            agent_space,
            read_only,
            stamp(at),
            expires_at=None if expires_days is None else stamp(at + timedelta(days=expires_days)),
            shared=tuple({space.name: space for space in shared}.values()),
        )
        known = [*spaces, *row.spaces]
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        with self._database.writing() as connection:
            if connection.execute("SELECT 1 FROM tokens WHERE label = ? AND revoked_at IS NULL", (label,)).fetchone():
                raise InvalidInput(
                    f"a token called {label!r} exists.",
                    hint=f"Choose another label, or revoke that one first: runebook token revoke {label!r}.",
                )
            for issued in connection.execute(f"SELECT {_COLUMNS} FROM tokens"):
                known += token_row(issued).spaces
            refuse_twins(row.spaces, known)
            connection.execute(
                "INSERT INTO tokens "
                "(id, label, digest, user_space, agent_space, read_only, created_at, expires_at, shared) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(row.id, label, _digest(secret), user_space, agent_space, int(read_only)),
                    *(row.created_at, row.expires_at, ",".join(map(str, row.shared))),
                ),
            )
        return f"rb_{row.id}_{secret}", row

    def verify(self, token: str, now: datetime | None = None) -> IssuedToken | None:
        """The row of a token that holds; None for any other text, whatever is wrong with it."""
        at = now or datetime.now(UTC)
        shape = _SHAPE.fullmatch(token)
        # A malformed token takes the same path, so that neither the answer nor its time tells the cases apart.
        token_id, secret = shape.groups() if shape else ("", "")
        found = self._row(f"SELECT digest, {_COLUMNS} FROM tokens WHERE id = ?", token_id)
        matches = hmac.compare_digest(_digest(secret), _NO_DIGEST if found is None else bytes(found[0]))
        row = None if found is None else token_row(found[1:])
        return row if matches and row is not None and row.is_live(at) else None

    def note_use(self, row: IssuedToken, now: datetime | None = None) -> None:
        """Note that a token was used, at most once a minute and without waiting for the disk."""
        at = now or datetime.now(UTC)
        if row.last_used_at is not None and stamp(at - _USE_NOTED_EVERY) < row.last_used_at:
            return
        with self._database.writing(synced=False) as connection:
            connection.execute("UPDATE tokens SET last_used_at = ? WHERE id = ?", (stamp(at), row.id))

    def any_live(self, now: datetime | None = None) -> bool:
        """Whether at least one token is accepted."""
        asked = "SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1"
        return self._row(asked, stamp(now or datetime.now(UTC))) is not None

    def any_unrevoked(self) -> bool:
        """Whether there is a token that was not revoked; one that expired counts, and opens nothing."""
        return self._row("SELECT 1 FROM tokens WHERE revoked_at IS NULL LIMIT 1") is not None

    def rows(self, *, revoked: bool = False) -> list[IssuedToken]:
        """The tokens by label, expired ones included; with ``revoked`` also those."""
        where = "" if revoked else "WHERE revoked_at IS NULL"
        return [
            token_row(row) for row in self._rows(f"SELECT {_COLUMNS} FROM tokens {where} ORDER BY label, created_at")
        ]

    def dump(self, user_space: str = "") -> list[tuple[object, ...]]:
        """The rows with their digests, of a user or of all, for ``take_in``."""
        where, values = ("WHERE user_space = ?", (user_space,)) if user_space else ("", ())
        return [tuple(row) for row in self._rows(f"SELECT {_STORED} FROM tokens {where}", *values)]

    def take_in(self, rows: Iterable[tuple[object, ...]]) -> tuple[int, int]:
        """Add rows of another table; one that is here, or whose label is taken, is left out.

        Returns:
            How many were added or were here, and how many were left out.
        """
        added = left = 0
        with self._database.writing() as connection:
            for row in rows:
                connection.execute(f"INSERT OR IGNORE INTO tokens ({_STORED}) VALUES ({_MARKS})", row)
                if connection.execute("SELECT 1 FROM tokens WHERE id = ?", row[:1]).fetchone() is None:
                    left += 1
                else:
                    added += 1
        return added, left

    def follow(self, rows: Iterable[tuple[object, ...]], *, alone: bool) -> None:
        """Let the table be no older than another one of the same store: what was revoked there is revoked here.

        Args:
            rows: Of the other table, as ``dump`` gives them.
            alone: Hold these and no others.
        """
        revoked_at, token_id = COLUMNS.index("revoked_at"), COLUMNS.index("id")
        with self._database.writing() as connection:
            if alone:
                connection.execute("DELETE FROM tokens")
            for row in rows:
                if alone:
                    connection.execute(f"INSERT INTO tokens ({_STORED}) VALUES ({_MARKS})", row)
                elif row[revoked_at] is not None:
                    connection.execute(
                        "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                        (row[revoked_at], row[token_id]),
                    )

    def revoke(self, label_or_id: str, now: datetime | None = None) -> IssuedToken:
        """Refuse a token from now on.

        Raises:
            NotFound: If no token that is not revoked has this label or id.
        """
        with self._database.writing() as connection:
            found = connection.execute(
                f"SELECT {_COLUMNS} FROM tokens WHERE revoked_at IS NULL AND (label = ? OR id = ?) "
                "ORDER BY label = ? DESC LIMIT 1",
                (label_or_id, label_or_id, label_or_id),
            ).fetchone()
            if found is None:
                raise NotFound(
                    f"no live token has the label or id {label_or_id!r}.", hint="See them with runebook token list."
                )
            at = stamp(now or datetime.now(UTC))
            connection.execute("UPDATE tokens SET revoked_at = ? WHERE id = ?", (at, found[0]))
        return replace(token_row(found), revoked_at=at)


def issue(
    table: IssuedTokens,
    config: Config,
    label: str,
    *,
    user_space: str | None = None,
    agent_space: str | None = None,
    read_only: bool = False,
    expires_days: float | None = None,
    shared: Sequence[SharedSpace] = (),
) -> tuple[str, IssuedToken]:
    """Make a token for a store; see ``IssuedTokens.issue``.

    Args:
        table: Its tokens.
        config: Its settings.
        label: See there.
        user_space: Default the store's own.
        agent_space: Default the store's own, and for another user the one of that user's name: what an agent learns
            with one user is not shown to another, unless the owner says so.
        read_only: See there.
        expires_days: See there.
        shared: See there.
    """
    user_space = user_space or config.user_space
    usual = config.agent_space if user_space == config.user_space else user_space
    return table.issue(
        label,
        user_space=user_space,
        agent_space=agent_space or usual,
        read_only=read_only,
        expires_days=expires_days,
        shared=shared,
        spaces=spaces_in_use(config),
    )


def _validate(label: str, user_space: str, agent_space: str, expires_days: float | None) -> None:
    if not _LABEL.fullmatch(label):
        raise InvalidInput(
            f"{label!r} cannot be a label.", hint="Use 1 to 64 printable characters, without spaces at either end."
        )
    for space in (user_space, agent_space):
        if not is_space(space):
            raise InvalidInput(
                f"{space!r} cannot be a space.",
                hint="Use letters, digits, '-' and '_', at most 64, no '-' or '_' first, and no device such as NUL.",
            )
    if expires_days is not None and not 0 < expires_days <= _LONGEST_DAYS:
        raise InvalidInput(
            f"a token cannot hold for {expires_days} days.", hint=f"Name more than 0 and at most {_LONGEST_DAYS} days."
        )


def spaces_in_use(config: Config) -> Iterator[str]:
    """The names of a store's spaces, but for those of tokens: of its settings, of their logins, of its folders."""
    yield from (config.user_space, config.agent_space)
    for pair in (*config.http.oauth.user_spaces, *config.http.oauth.group_spaces):
        yield SharedSpace.parse(pair.rpartition("=")[2]).name
    for scope in ("user", "agent", "session"):
        yield from (folder.name for folder in config.root.glob(f"{scope}/*/"))


def refuse_twins(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the name of a space that differs from another one in upper and lower case alone.

    Args:
        wanted: Names that somebody chose.
        known: Names that are in use, those among them.

    Raises:
        InvalidInput: If there is such a one.
    """
    spelled: dict[str, set[str]] = {}
    for space in known:
        spelled.setdefault(space.casefold(), set()).add(space)
    for space in wanted:
        for twin in spelled[space.casefold()] - {space}:
            raise InvalidInput(
                f"there is a space {twin!r}, which on some disks is the same folder as {space!r}.",
                hint=f"Write {twin!r} if you mean that one, or choose another name.",
            )


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def token_row(row: Sequence[Any]) -> IssuedToken:
    """A token from its ``COLUMNS``."""
    values = dict(zip(COLUMNS, row, strict=True))
    shared = tuple(SharedSpace.parse(text) for text in values["shared"].split(",") if text)
    return IssuedToken(**{**values, "read_only": bool(values["read_only"]), "shared": shared})
