"""What the authorization server keeps, on a folder and on PostgreSQL: secrets that hold once, and end together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_core.core.config import MaintenanceConfig
from memory_core.core.store.issued_tokens import IssuedToken, IssuedTokens
from memory_core.core.store.logins import TABLES, Lifetimes, Logins
from server.commands.access_tokens import open_tokens
from tests.contract.conftest import Place
from tests.server.http.conftest import Page
from tests.server.http.test_authorization_server import house_of, key_of, sign_in
from tests.waiting import at_once

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
LIVES = Lifetimes(timedelta(hours=1), timedelta(days=30))
SCOPES = {"scopes": ["memory:read"]}


class Shop:
    """The tables of one server of a store."""

    def __init__(self, tokens: IssuedTokens) -> None:
        self.tokens = tokens
        self.logins = Logins(tokens.database)

    def rows(self, table: str) -> int:
        row = self.tokens.database.connection().execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(row[0])

    def held(self, kind: Any, text: str, at: datetime = NOW) -> bool:
        return self.logins.held(kind, text, at) is not None


@pytest.fixture
def shop(place: Place) -> Shop:
    return Shop(place.open().opened.tokens())


@pytest.fixture
def anna(shop: Shop) -> IssuedToken:
    return shop.tokens.issue("anna", user_space="anna", agent_space="anna", expires_days=60, now=NOW)[1]


def granted(shop: Shop, token: IssuedToken, client: str = "desk") -> tuple[str, str, str]:
    """A code and the two tokens that it was exchanged for."""
    shop.logins.register(client, {"client_name": "桌子"}, NOW)
    code = shop.logins.grant(client, token, SCOPES, NOW)
    given = shop.logins.exchange("code", code, LIVES, SCOPES, NOW)
    assert given is not None
    return code, *given


def test_a_code_gives_tokens_that_stand_for_who_granted_it(shop: Shop, anna: IssuedToken, place: Place) -> None:
    _, access, refresh = granted(shop, anna)
    other = Shop(place.open().opened.tokens())  # another server of the same store
    for kind, text in (("access", access), ("refresh", refresh)):
        found = other.logins.held(kind, text, NOW)  # type: ignore[arg-type]
        assert found is not None
        assert (found.client, found.token and found.token.label, found.details) == ("desk", "anna", SCOPES)
    assert other.logins.client("desk") == {"client_name": "桌子"}
    assert other.logins.client("chair") is None


def test_a_secret_is_only_what_it_is(shop: Shop, anna: IssuedToken) -> None:
    code, access, refresh = granted(shop, anna)
    texts = {"access": access, "refresh": refresh}
    for kind in ("code", "access", "refresh", "session"):
        for name, text in texts.items():
            assert shop.held(kind, text) == (kind == name)
        for wrong in ("", "x", access[:-1], f"{access}x", access.upper(), "ra_", "令牌", "\udc80"):
            assert not shop.held(kind, wrong)
    assert shop.logins.exchange("refresh", access, LIVES, SCOPES, NOW) is None
    assert shop.logins.exchange("code", refresh, LIVES, SCOPES, NOW) is None
    assert shop.held("access", access)
    assert code.startswith("rc_")


def test_no_secret_is_stored_as_it_is(shop: Shop, anna: IssuedToken) -> None:
    secrets = granted(shop, anna)
    session = shop.logins.begin_session({}, timedelta(hours=8), now=NOW)
    stored = []
    for table in TABLES:
        stored += shop.tokens.database.connection().execute(f"SELECT * FROM {table}").fetchall()
    told = repr([tuple(row) for row in stored])
    assert "desk" in told
    assert not [each for each in (*secrets, session) if each is None or each[3:] in told]


def test_a_code_that_is_shown_again_ends_all_that_it_gave(shop: Shop, anna: IssuedToken) -> None:
    code, access, refresh = granted(shop, anna)
    _, others_access, _ = granted(shop, anna, "chair")
    assert shop.logins.exchange("code", code, LIVES, SCOPES, NOW) is None
    assert (shop.held("access", access), shop.held("refresh", refresh)) == (False, False)
    assert shop.held("access", others_access)


def test_looking_at_a_code_that_was_taken_ends_its_grant_too(shop: Shop, anna: IssuedToken) -> None:
    code, access, _ = granted(shop, anna)
    assert not shop.held("code", code)
    assert not shop.held("access", access)


def test_a_refresh_token_counts_once_and_its_second_use_ends_the_grant(shop: Shop, anna: IssuedToken) -> None:
    _, first_access, first = granted(shop, anna)
    renewed = shop.logins.exchange("refresh", first, LIVES, SCOPES, NOW)
    assert renewed is not None
    second_access, second = renewed
    assert shop.held("access", first_access)
    assert shop.held("access", second_access)
    assert shop.logins.exchange("refresh", first, LIVES, SCOPES, NOW + timedelta(days=20)) is None
    later = NOW + timedelta(minutes=1)
    assert not [each for each in (first_access, second_access) if shop.held("access", each, later)]
    assert shop.logins.exchange("refresh", second, LIVES, SCOPES, later) is None


def test_of_many_exchanges_at_once_one_counts(shop: Shop, anna: IssuedToken, place: Place) -> None:
    shop.logins.register("desk", {}, NOW)
    code = shop.logins.grant("desk", anna, SCOPES, NOW)
    servers = [Shop(place.open().opened.tokens()) for _ in range(4)]
    given = at_once(lambda server: server.logins.exchange("code", code, LIVES, SCOPES, NOW), *servers)
    assert len([each for each in given if each is not None]) == 1


@pytest.mark.parametrize(("kind", "days"), [("access", 1 / 24), ("refresh", 30.0), ("code", 5 / 1440)])
def test_each_secret_holds_until_it_expires(shop: Shop, anna: IssuedToken, kind: Any, days: float) -> None:
    _, access, refresh = granted(shop, anna)
    fresh = shop.logins.grant("desk", anna, SCOPES, NOW)
    text = {"access": access, "refresh": refresh, "code": fresh}[kind]
    assert shop.held(kind, text, NOW + timedelta(days=days, seconds=-1))
    assert not shop.held(kind, text, NOW + timedelta(days=days))


def test_all_ends_with_the_token_by_which_it_was_granted(shop: Shop, anna: IssuedToken) -> None:
    _, access, refresh = granted(shop, anna)
    late = shop.tokens.issue("late", user_space="late", agent_space="late", expires_days=0.01, now=NOW)[1]
    _, brief, _ = granted(shop, late, "chair")
    assert not shop.held("access", brief, NOW + timedelta(minutes=20))
    shop.tokens.revoke("anna", NOW)
    assert not shop.held("access", access)
    assert shop.logins.exchange("refresh", refresh, LIVES, SCOPES, NOW) is None


def test_revoking_a_grant_ends_it_and_no_other(shop: Shop, anna: IssuedToken) -> None:
    _, access, refresh = granted(shop, anna)
    _, other, _ = granted(shop, anna, "chair")
    found = shop.logins.held("access", access, NOW)
    assert found is not None
    shop.logins.revoke(found.grant)
    assert [shop.held("access", access), shop.held("refresh", refresh), shop.held("access", other)] == [
        False,
        False,
        True,
    ]


def test_a_session_is_of_the_user_of_its_code_or_of_whom_it_names(shop: Shop, anna: IssuedToken) -> None:
    shop.logins.register("page", {}, NOW)
    code = shop.logins.grant("page", anna, SCOPES, NOW)
    own = shop.logins.begin_session(SCOPES, timedelta(hours=8), code, NOW)
    named = shop.logins.begin_session({"user_space": "bob"}, timedelta(hours=8), now=NOW)
    assert own is not None
    assert named is not None
    assert shop.logins.begin_session(SCOPES, timedelta(hours=8), "rc_made-up", NOW) is None
    found = shop.logins.held("session", named, NOW)
    assert found is not None
    assert (found.token, found.details) == (None, {"user_space": "bob"})
    assert shop.held("session", own, NOW + timedelta(hours=7))
    shop.logins.end("session", named)
    assert not shop.held("session", named)
    shop.tokens.revoke("anna", NOW)
    assert not shop.held("session", own)


def test_what_expired_and_what_nobody_uses_is_forgotten(shop: Shop, anna: IssuedToken) -> None:
    granted(shop, anna)
    shop.logins.register("never let in", {}, NOW)
    shop.logins.begin_session({}, timedelta(hours=8), now=NOW)

    def left(after: timedelta) -> list[int]:
        shop.logins.clean(NOW + after)
        return [shop.rows(table) for table in TABLES if table != "seen_users"]

    assert left(timedelta()) == [2, 1, 4]
    assert left(timedelta(hours=2)) == [2, 1, 2]  # the refresh token, and the session
    assert left(timedelta(days=2)) == [1, 1, 1]
    assert left(timedelta(days=31)) == [1, 0, 0]
    assert left(timedelta(days=91)) == [0, 0, 0]


def test_what_is_cleaned_goes_with_what_is_written(shop: Shop, anna: IssuedToken) -> None:
    granted(shop, anna)
    shop.logins.register("chair", {}, NOW + timedelta(days=40))
    assert (shop.rows("login_grants"), shop.rows("login_secrets")) == (0, 0)


def test_clients_that_nobody_lets_in_cannot_fill_the_store(
    shop: Shop, anna: IssuedToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.store.logins._UNUSED_CLIENTS", 5)
    granted(shop, anna)
    for number in range(12):
        shop.logins.register(f"client {number:02}", {}, NOW + timedelta(seconds=number))
    assert shop.rows("login_clients") == 6
    assert shop.logins.client("client 11") == {}
    assert shop.logins.client("client 06") is None
    assert shop.logins.client("desk") is not None


def test_a_client_that_refreshes_without_end_does_not_fill_the_store(
    shop: Shop, anna: IssuedToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_core.core.store.logins._SECRETS_EACH", 3)
    _, _, other = granted(shop, anna, "chair")
    _, access, refresh = granted(shop, anna)
    used = []
    for number in range(8):
        used.append(refresh)
        given = shop.logins.exchange("refresh", refresh, LIVES, SCOPES, NOW + timedelta(seconds=number))
        assert given is not None
        access, refresh = given
    assert shop.rows("login_secrets") == 2 + 3 + 3 + 2  # two codes; of this grant three each, of the other one each
    assert shop.held("access", access)
    assert shop.held("refresh", other)
    assert not shop.held("refresh", used[0])
    assert shop.held("access", access)  # what is that old is forgotten, and ends nothing
    assert not shop.held("refresh", used[-1])
    assert not shop.held("access", access)


def test_a_login_that_began_at_one_server_goes_on_at_another(place: Place) -> None:
    config = place.config(maintenance=MaintenanceConfig(automatic="off"), watch="off")
    with (
        open_tokens(config) as first,
        open_tokens(config) as second,
        house_of(config, first) as here,
        house_of(config, second) as there,
    ):
        client = here.known()
        anna = there.exchange(client, here.code(client, here.anna)).json()
        there.__dict__["bob"] = here.bob
        bob = here.exchange(client, there.code(client, there.bob)).json()
        cello = Page(here.client, anna["access_token"]).keep("Anna plays the cello 大提琴")
        asked = [(each, Page(house.client, each["access_token"])) for house in (here, there) for each in (anna, bob)]
        statuses = [page.ask("GET", f"/entries/{cello}").status_code for _, page in asked]
        assert statuses == [200, 404, 200, 404]
        renewed = there.refresh(client, anna["refresh_token"]).json()
        assert here.opens(renewed["access_token"])
        assert here.refresh(client, anna["refresh_token"]).status_code == 400
        assert not there.opens(renewed["access_token"])
        key = key_of(sign_in(here, here.bob))
        assert there.opens(key)
        second.revoke("bob")
        assert not here.opens(key)
