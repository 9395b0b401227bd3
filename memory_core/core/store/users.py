"""Whose memories a store holds: each user with the spaces of the agents that work with them.

Tokens say which spaces they open. Who opens a store by settings, or is known to an identity provider, is noted here,
for one process of a store maintains it for all. Promises: the processes of a store agree on the first agent space of a
user, with which is done what is done once for a user, and it stays while what it follows from does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from memory_core.core.frozen import frozen
from memory_core.core.store.issued_tokens import IssuedToken
from memory_core.core.store.sqlite import Database, Table, stamp

_IDLE_LIFE = timedelta(days=90)
_SEEN_EVERY = timedelta(days=1)
#: Of settings that name different agents for a user, those count as given up that were not used for so long.
_GIVEN_UP = timedelta(days=7)


class UserSpaces(NamedTuple):
    """A user, or a space that several users share.

    Attributes:
        user: The user space.
        agents: Agent spaces, one at least. What is done once for a user is done with the first.
    """

    user: str
    agents: tuple[str, ...]


@frozen
class SeenUser:
    """A user and an agent who were here within the last 90 days. Times are ISO 8601 in UTC.

    Attributes:
        user_space: Whose memories.
        agent_space: Which agent's.
        by_settings: Whether settings name both; else an identity provider knows the user.
        since: When they were here first.
        seen_at: When they were here last, to the day.
    """

    user_space: str
    agent_space: str
    by_settings: bool
    since: str
    seen_at: str


class SeenUsers(Table):
    """Who was here without a token of the store.

    Args:
        database: Of the ledger that holds the tokens.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._seen: dict[tuple[str, str, bool], datetime] = {}

    def seen_today(
        self, user_space: str, agent_space: str, *, by_settings: bool = False, now: datetime | None = None
    ) -> bool:
        """Whether both were noted here within a day; asks nobody."""
        at, noted = now or datetime.now(UTC), self._seen.get((user_space, agent_space, by_settings))
        return noted is not None and at - noted < _SEEN_EVERY

    def note(
        self, user_space: str, agent_space: str, *, by_settings: bool = False, now: datetime | None = None
    ) -> None:
        """Note that both were here, without waiting for the disk; once a day is enough for all processes.

        Raises:
            StoreBusy: If others wrote for too long.
            StorageFailed: If the disk refuses.
        """
        at = now or datetime.now(UTC)
        known = "SELECT 1 FROM seen_users WHERE user_space = ? AND agent_space = ? AND by_settings >= ? AND seen_at > ?"
        if self._row(known, user_space, agent_space, int(by_settings), stamp(at - _SEEN_EVERY)) is None:
            with self._database.writing(synced=False) as connection:
                connection.execute("DELETE FROM seen_users WHERE seen_at <= ?", (stamp(at - _IDLE_LIFE),))
                connection.execute(
                    "INSERT INTO seen_users AS kept (user_space, agent_space, by_settings, since, seen_at) "
                    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (user_space, agent_space) DO UPDATE SET "
                    "seen_at = excluded.seen_at, by_settings = "
                    "CASE WHEN excluded.by_settings = 1 THEN 1 ELSE kept.by_settings END",
                    (user_space, agent_space, int(by_settings), stamp(at), stamp(at)),
                )
        self._seen[user_space, agent_space, by_settings] = at

    def rows(self) -> list[SeenUser]:
        """Who was here, the first who came first."""
        found = self._rows(
            "SELECT user_space, agent_space, by_settings, since, seen_at FROM seen_users "
            "ORDER BY since, user_space, agent_space"
        )
        return [SeenUser(user, agent, bool(settings), since, seen) for user, agent, settings, since, seen in found]


def users_of(
    own: Sequence[tuple[str, str]],
    tokens: Iterable[IssuedToken],
    seen: Iterable[SeenUser],
    others: Iterable[str],
    now: datetime | None = None,
) -> list[UserSpaces]:
    """The users of a store, that of the settings first.

    The first agent space of a user is that of the settings, else that of the oldest token, else that of an identity
    provider. Whoever is in none of these works with an agent space of their own name. An agent space that only settings
    name for a user who has tokens counts where a server was seen with them, and no other settings named it before for
    somebody else: whoever looks after a user by a command does not bring an own agent along.

    Args:
        own: User and agent spaces that settings name here, whether or not they were noted.
        tokens: Those that hold.
        seen: Who was noted.
        others: Further user spaces.
        now: The time, aware; None is the clock's.
    """
    at = stamp(now or datetime.now(UTC))
    noted = {(each.user_space, each.agent_space): each for each in seen}
    by_settings = sorted((each for each in noted.values() if each.by_settings), key=lambda each: each.since)
    here = [
        SeenUser(*pair, by_settings=True, since=at, seen_at=at)
        for pair in own
        if pair not in noted or not noted[pair].by_settings
    ]
    granted: dict[str, dict[str, None]] = {}
    for token in sorted(tokens, key=lambda each: (each.created_at, each.id)):
        for user, agent in (token.user_space, token.agent_space), *((space.name,) * 2 for space in token.shared):
            granted.setdefault(user, {})[agent] = None
    for each in noted.values():
        if not each.by_settings:
            granted.setdefault(each.user_space, {})[each.agent_space] = None
    first = {each.agent_space: each.user_space for each in reversed(by_settings)}
    users = (each.user_space for each in by_settings)
    names = dict.fromkeys((*(user for user, _ in own), *granted, *users, *others))

    def agents(user: str) -> tuple[str, ...]:
        given = granted.get(user, {})
        named = _settled([each for each in (*by_settings, *here) if each.user_space == user])
        theirs = [each for each in named if not given or each in {user, *given} or first.get(each) == user]
        return tuple(dict.fromkeys((*theirs, *given))) or (user,)

    return [UserSpaces(user, agents(user)) for user in names]


def _settled(seen: Sequence[SeenUser]) -> list[str]:
    """Agent spaces that settings name for one user: the oldest in use first, then those that were given up."""
    newest = max((datetime.fromisoformat(each.seen_at) for each in seen), default=None)

    def rank(each: SeenUser) -> tuple[bool, str, str]:
        assert newest is not None
        return newest - datetime.fromisoformat(each.seen_at) > _GIVEN_UP, each.since, each.agent_space

    return [each.agent_space for each in sorted(seen, key=rank)]
