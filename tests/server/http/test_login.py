"""Access tokens of an identity provider: what is refused, whose memories one opens, and what a refusal says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import jwt
import pytest
from starlette.testclient import TestClient

from memory_core.core.config import Config, HttpConfig, OAuthConfig, is_space
from memory_core.core.errors import ConfigInvalid, InvalidInput, RunebookError, StoreBusy
from memory_core.core.record import RecordInvalid
from memory_core.core.store.issued_tokens import SharedSpace, spaces_in_use
from memory_core.core.store.logins import Logins
from memory_core.core.store.users import SeenUsers
from memory_core.runebook import open_memory
from server.cli import main
from server.http import authentication, http_server, identity_provider
from server.http.connections import peeked
from server.http.identity_provider import IdentityProvider
from server.http.login import open_login, space_of
from server.http.rate_limits import OpenRequests, RequestRates
from server.protocol.session import ServedStore
from tests.server.bearers import HEADERS, OPENING, issue, ledger_of
from tests.server.http.conftest import SETTINGS, Page, client_of, path_of
from tests.server.http.issuers import BOTH, Issuer, running
from tests.waiting import PATIENCE_SECONDS, in_a_loop

if TYPE_CHECKING:
    from memory_core.core.store.issued_tokens import IssuedTokens

URL = "http://127.0.0.1"
HERE = f"{URL}/mcp"
CALL = {"name": "commit_memory", "arguments": {"memory_content": "Anna plays the cello"}}
COMMIT = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": CALL}


class Office:
    """A server that takes tokens of an issuer, and those of its own."""

    def __init__(self, client: TestClient, issuer: Issuer, own: str) -> None:
        self.client = client
        self.issuer = issuer
        self.own = own

    def page(self, token: str) -> Page:
        return Page(self.client, token)

    def as_(self, user: str, **claims: Any) -> Page:
        return self.page(self.issuer.token(**{"aud": HERE, "sub": user, **claims}))

    def ask(self, token: str | None, path: str = "/api/memory/about") -> httpx2.Response:
        return self.client.get(path, headers={} if token is None else {"authorization": f"Bearer {token}"})

    def opens(self, token: str) -> bool:
        answer = self.ask(token)
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200


@contextmanager
def office_at(home: Path, issuer: Issuer, rate: int = 0, /, **oauth: Any) -> Iterator[Office]:
    config = Config(home=home, **SETTINGS)
    store = ServedStore(lambda: open_memory(config))
    given = {"issuer": issuer.url, "keys_seconds": 0, **oauth}
    with ledger_of(home) as ledger:
        own = ledger.tokens.issue("own", user_space="anna", agent_space="anna")[0]
        limits = HttpConfig(requests_per_minute=rate, oauth=OAuthConfig(**given))
        login = open_login(limits.oauth, URL, ledger.tokens, spaces_in_use(config))
        with client_of(store, ledger.tokens, limits, login=login) as client:
            yield Office(client, issuer, own)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with running() as issuer, office_at(tmp_path_factory.mktemp("office") / "home", issuer) as made:
        yield made


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running() as made:
        yield made


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA"])
def test_a_token_of_the_issuer_opens_its_users_space(office: Office, algorithm: str) -> None:
    office.issuer.rotate(f"key of {algorithm}", algorithm)
    about = office.as_("anna").facts("GET", "/about")
    assert about["user_space"] == space_of(office.issuer.url, "anna")
    assert (about["owner"], about["writable"]) == (False, True)
    assert office.opens(office.own)


@pytest.mark.parametrize("audience", [URL, f"{URL}/", HERE, f"{URL}/sse", ["https://elsewhere.example", HERE]])
def test_a_token_is_for_this_server(office: Office, audience: Any) -> None:
    assert office.opens(office.issuer.token(aud=audience))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://elsewhere.example/mcp"},
        {"aud": f"{HERE}.elsewhere.example"},
        {"aud": []},
        {"aud": None},
        {"aud": HERE, "exp": int(time.time()) - 60},
        {"aud": HERE, "exp": None},
        {"aud": HERE, "exp": "soon"},
        {"aud": HERE, "exp": float("inf")},
        {"aud": HERE, "nbf": int(time.time()) + 86_400},
        {"aud": HERE, "iat": int(time.time()) + 86_400},
        {"aud": HERE, "iss": "https://other.example"},
        {"aud": HERE, "iss": None},
        {"aud": HERE, "sub": None},
        {"aud": HERE, "sub": ""},
        {"aud": HERE, "sub": "a" * 2_000},
        {"aud": HERE, "sub": ["anna"]},
        {"aud": HERE, "sub": "anna\ud83d"},
    ],
)
def test_what_does_not_hold_is_refused(office: Office, claims: Mapping[str, Any]) -> None:
    assert not office.opens(office.issuer.token(**claims))
    assert office.opens(office.issuer.token(aud=HERE))  # nothing else was wrong


def test_only_signatures_by_the_issuers_own_keys_count(office: Office) -> None:
    office.issuer.rotate("signing")
    good = office.issuer.token(aud=HERE)
    assert office.opens(good)
    head, claims, signature = good.split(".")

    def encoded(found: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(found).encode()).decode().rstrip("=")

    other = encoded({**office.issuer.claims(aud=HERE), "sub": "bob"})
    none = encoded({"alg": "none", "typ": "JWT", "kid": "signing"})
    mixed = encoded({"alg": "HS256", "typ": "JWT", "kid": "signing"})
    public = jwt.PyJWK(office.issuer.published[0]).key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    forged = []
    for form in (PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1):
        secret = public.public_bytes(Encoding.PEM, form)
        made = hmac.new(secret, f"{mixed}.{claims}".encode(), hashlib.sha256).digest()
        forged.append(f"{mixed}.{claims}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}")
    with running() as stranger:  # signs with the same name of a key, and says to be the issuer
        stranger.rotate("signing")
        forged.append(stranger.token(aud=HERE, iss=office.issuer.url))
    deep = base64.urlsafe_b64encode(b"[" * 9_000).decode()
    forged += [f"{deep}.{claims}.x", f"{head}.{deep}.x"]
    bound = {"alg": "RS256", "kid": "signing", "crit": ["exp"]}
    forged += [
        *(f"{head}.{other}.{signature}", f"{none}.{claims}.", f"{none}.{claims}.{signature}", f"{mixed}.{claims}."),
        *(f"{head}.{claims}.", f"{head}.{claims}", f"{encoded(bound)}.{claims}.{signature}", good[:-6], "..", "a.b.c"),
    ]
    assert not [token for token in forged if office.opens(token)]


@in_a_loop
async def test_what_costs_work_to_read_is_refused_before_that(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    token = issuer.token(aud=HERE)
    more: Mapping[str, Any] = {"x": [[]] * 3_000}
    with running() as stranger:  # knows the name of the key, and has none
        stranger.rotate("first")
        _, key = stranger._signing["first"]
        hostile = [
            jwt.encode(issuer.claims(aud=HERE), key, "RS256", {"kid": "first", **more}),
            *(stranger.token(aud=HERE, iss=issuer.url, **more), stranger.token(aud=HERE, **more)),
        ]
    read: list[tuple[str, int]] = []
    provider = IdentityProvider(issuer.url, [HERE])
    decode = jwt.decode

    def noted(text: str, *given: Any, **options: Any) -> Any:
        read.append((text, threading.get_ident()))
        return decode(text, *given, **options)

    monkeypatch.setattr(jwt, "decode", noted)
    monkeypatch.setattr(jwt, "get_unverified_header", lambda text: read.append((text, threading.get_ident())))
    for each in [*hostile, token, token]:
        claims = await provider.claims(each)
        assert (claims is not None) is provider.remembers(each) is (each == token)
    assert [text for text, _ in read] == [hostile[1], token]  # of the others it can be seen; and none twice
    assert threading.get_ident() not in {thread for _, thread in read}


@in_a_loop
async def test_a_token_that_was_remembered_expires(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = IdentityProvider(issuer.url, [HERE])
    token = issuer.token(aud=HERE)
    assert await provider.claims(token) is not None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 660)
    assert provider.remembers(token)
    assert await provider.claims(token) is None
    assert not provider.remembers(token)


@in_a_loop
async def test_no_more_tokens_are_remembered_than_said(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "_REMEMBERED", 2)
    provider = IdentityProvider(issuer.url, [HERE])
    tokens = [issuer.token(aud=HERE, sub=name) for name in ("anna", "bob", "carl")]
    for token in (*tokens[:2], tokens[0], tokens[2]):
        assert await provider.claims(token) is not None
    assert [provider.remembers(token) for token in tokens] == [True, False, True]


def test_strangers_at_an_address_cost_those_who_are_known_there_nothing(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_REFUSAL_SECONDS", 0.0)
    with running() as stranger, office_at(tmp_path / "home", issuer, 1) as office:
        stranger.rotate("first")
        known, late = (issuer.token(aud=HERE, sub=name) for name in ("anna", "bob"))
        wrong = stranger.token(aud=HERE, iss=issuer.url)
        assert office.opens(known)
        looked: list[str] = []
        claims = IdentityProvider.claims

        async def noted(provider: IdentityProvider, token: str) -> Mapping[str, Any] | None:
            looked.append(token)
            return await claims(provider, token)

        monkeypatch.setattr(IdentityProvider, "claims", noted)
        assert [office.ask(wrong).status_code for _ in range(3)] == [401, 429, 429]
        assert looked == [wrong]
        assert office.ask(late).status_code == 429  # nobody knows yet that it is none of the stranger's
        assert looked == [wrong]
        assert office.ask(office.own).status_code == 200
        assert office.ask(known).status_code == 429  # its own rate is used up, which says that it was looked at
        assert looked == [wrong, known]


def test_a_shared_secret_among_the_keys_signs_nothing(office: Office) -> None:
    office.issuer.rotate("before")
    secret = base64.urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
    office.issuer.published.append({"kty": "oct", "kid": "shared", "k": secret, "alg": "HS256"})
    token = jwt.encode(office.issuer.claims(aud=HERE), b"s" * 32, "HS256", {"kid": "shared"})
    assert not office.opens(token)
    assert office.opens(office.issuer.token(aud=HERE))


def test_a_token_that_names_another_curve_than_its_key_is_refused(office: Office) -> None:
    office.issuer.rotate("curve", "ES256")
    head, claims, signature = office.issuer.token(aud=HERE).split(".")
    other = base64.urlsafe_b64encode(json.dumps({"alg": "ES384", "kid": "curve"}).encode()).decode().rstrip("=")
    assert office.opens(f"{head}.{claims}.{signature}")
    assert not office.opens(f"{other}.{claims}.{signature}")


def test_a_rotated_key_is_refused_and_its_successor_taken(office: Office) -> None:
    office.issuer.rotate("old")
    old = office.issuer.token(aud=HERE)
    assert office.opens(old)
    office.issuer.rotate("new")
    assert office.opens(office.issuer.token(aud=HERE))
    assert not office.opens(old)


@in_a_loop
async def test_unknown_keys_are_asked_for_no_more_often_than_said(issuer: Issuer) -> None:
    clock = [1_000.0]
    provider = IdentityProvider(issuer.url, [HERE], keys_seconds=30.0, clock=lambda: clock[0])
    assert await provider.claims(issuer.token(aud=HERE)) is not None
    assert issuer.asked.count("/jwks") == 1
    issuer.rotate("next")
    for _ in range(20):
        assert await provider.claims(issuer.token(aud=HERE)) is None
    assert issuer.asked.count("/jwks") == 1
    clock[0] += 31
    assert await provider.claims(issuer.token(aud=HERE)) is not None
    assert issuer.asked.count("/jwks") == 2
    for _ in range(20):
        assert await provider.claims(issuer.token(aud=HERE)) is not None
    assert issuer.asked.count("/jwks") == 2


def test_known_keys_serve_while_the_issuer_is_away_and_unknown_ones_wait(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer) as office:
        known = issuer.token(aud=HERE)
        assert office.opens(known)
        issuer.rotate("unknown")
        issuer.status = 500
        assert office.opens(known)
        answer = office.ask(issuer.token(aud=HERE))
        assert (answer.status_code, int(answer.headers["retry-after"])) == (503, 5)
        assert "www-authenticate" not in answer.headers
        issuer.status = 200
        assert office.opens(issuer.token(aud=HERE))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("status", 502),
        ("names_itself", "https://other.example"),
        *(("names_keys", address) for address in ("https://[x", "http://keys.example/jwks", "")),
    ],
)
def test_an_issuer_that_cannot_be_asked_is_no_refusal(
    tmp_path: Path, issuer: Issuer, attribute: str, value: Any
) -> None:
    setattr(issuer, attribute, value)
    with office_at(tmp_path / "home", issuer) as office:
        assert office.ask(issuer.token(aud=HERE)).status_code == 503
        assert office.ask("not a token").status_code == 401
        assert office.ask(jwt.encode({"iss": "https://other.example"}, "s" * 32)).status_code == 401
        assert office.opens(office.own)
        assert issuer.asked.count("/jwks") == 0


@in_a_loop
async def test_a_proxy_that_cannot_be_used_is_no_refusal(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "odd://proxy.example")
    monkeypatch.setattr(issuer, "url", "https://issuer.example")
    with pytest.raises(RunebookError):
        await IdentityProvider(issuer.url, [HERE]).claims(issuer.token(aud=HERE))


@in_a_loop
async def test_keys_are_kept_for_a_day_while_nobody_answers(issuer: Issuer) -> None:
    clock = [0.0]
    provider = IdentityProvider(issuer.url, [HERE], clock=lambda: clock[0])
    token = issuer.token(aud=HERE)
    assert await provider.claims(token) is not None
    issuer.status = 500
    clock[0] += 80_000
    assert await provider.claims(token) is not None
    clock[0] += 10_000
    with pytest.raises(RunebookError):
        await provider.claims(token)


@in_a_loop
async def test_an_issuer_that_is_away_is_not_asked_by_everybody_who_wants_to_sign_in(issuer: Issuer) -> None:
    clock = [0.0]
    provider = IdentityProvider(issuer.url, [HERE], keys_seconds=30.0, clock=lambda: clock[0])
    issuer.names_itself = "https://other.example"
    for _ in range(5):
        with pytest.raises(RunebookError):
            await provider.authorization_url({})
    assert len(issuer.asked) == len(set(issuer.asked))
    issuer.names_itself = issuer.url
    clock[0] += 31
    with pytest.raises(RunebookError, match="no https address"):  # it answers now, and has no such page
        await provider.authorization_url({})


@in_a_loop
async def test_why_the_issuer_gives_no_token_for_a_code_is_in_the_log(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    provider = IdentityProvider(issuer.url, [HERE], keys_seconds=0)
    assert await provider.exchanged({"client_id": "page", "code": "1"}, "a wrong secret") is None
    assert "invalid_client" in caplog.text


def test_nobody_signs_in_while_the_issuer_is_away_and_each_is_told_when_to_try_again(
    tmp_path: Path, issuer: Issuer
) -> None:
    issuer.status = 500
    with office_at(tmp_path / "home", issuer, client_id="page") as office:
        answer = office.client.get("/login")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


@in_a_loop
async def test_whoever_has_a_token_of_a_known_key_does_not_wait_for_an_issuer_that_hangs(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    provider = IdentityProvider(issuer.url, [HERE], clock=lambda: clock[0], patience_seconds=0)
    known = issuer.token(aud=HERE)
    assert await provider.claims(known) is not None
    answers, asked = anyio.Event(), provider._fetched

    async def fetched(*given: Any, **more: Any) -> Any:
        await answers.wait()
        return await asked(*given, **more)

    monkeypatch.setattr(provider, "_fetched", fetched)
    issuer.rotate("successor")
    clock[0] += 700
    with anyio.fail_after(PATIENCE_SECONDS):
        for _ in range(3):
            assert await provider.claims(known) is not None
        async with anyio.create_task_group() as group:
            group.start_soon(provider.claims, issuer.token(aud=HERE))  # of a key that nobody knows: it waits
            await anyio.wait_all_tasks_blocked()
            assert await provider.claims(known) is not None
            answers.set()
        assert await provider.claims(known) is None
        assert await provider.claims(issuer.token(aud=HERE)) is not None
    assert issuer.asked.count("/jwks") == 2  # all of them with one question


@in_a_loop
async def test_a_key_that_the_issuer_withdrew_is_refused_ten_minutes_later(issuer: Issuer) -> None:
    clock = [0.0]
    provider = IdentityProvider(issuer.url, [HERE], clock=lambda: clock[0], patience_seconds=PATIENCE_SECONDS)
    token = issuer.token(aud=HERE)
    assert await provider.claims(token) is not None
    issuer.rotate("successor")
    clock[0] += 599
    assert await provider.claims(token) is not None
    clock[0] += 2
    assert await provider.claims(token) is None


def test_two_users_never_see_each_other(office: Office) -> None:
    anna, bob = office.as_("anna"), office.as_("bob")
    cello = anna.keep("Anna plays the cello 大提琴")
    assert anna.facts("POST", "/search", {"query": "cello"})["total"] == 1
    assert bob.facts("POST", "/search", {"query": "cello"})["total"] == 0
    assert bob.ask("GET", f"/entries/{cello}").status_code == 404
    assert office.page(office.own).ask("GET", f"/entries/{cello}").status_code == 404


@pytest.mark.parametrize(
    "hostile",
    [
        *(
            "anna",
            "default",
            "_tokens",
            "../anna",
            "user/anna",
            "ANNA",
            "anna\n",
            "anna ",
            "ａｎｎａ",
            "安娜",
            "%61nna",
        ),
        *("x" * 900, "con", "-", "…", "anna\u0000"),
    ],
)
def test_no_claim_leads_into_the_space_of_somebody_else(office: Office, hostile: str) -> None:
    space = office.as_(hostile).facts("GET", "/about")["user_space"]
    assert is_space(space)
    assert space not in {"anna", "default", "_tokens", *(space_of(office.issuer.url, each) for each in ("Anna", "bob"))}
    assert (space == space_of(office.issuer.url, "anna")) == (hostile == "anna")


def test_a_claim_that_looks_like_the_space_of_another_is_none(office: Office) -> None:
    taken = office.as_("anna").facts("GET", "/about")["user_space"]
    assert office.as_(taken).facts("GET", "/about")["user_space"] != taken


def test_each_route_answers_of_somebody_else_as_of_nothing(office: Office) -> None:
    anna, bob = office.as_("anna"), office.as_("bob")
    hers = anna.keep("quokka")
    commit = anna.facts("GET", "/changes")["latest"]
    space = hers.split("/")[1]
    named = [
        (hers, commit),
        (hers.replace("quokka", "absent"), "0" * len(commit)),
        (hers.replace(space, space_of(office.issuer.url, "nobody")), "0" * len(commit)),
    ]
    described = bob.ask("GET", "/api/openapi.json").json()["paths"]
    met = 0
    for route, methods in described.items():
        for method in sorted({"get", "put", "post", "patch", "delete"} & set(methods)):
            answers = []
            for path, commit_id in named:
                url = re.sub(r"\{[^}]*\}", path, route.replace("{commit_id}", commit_id))
                uri = f"viking://{path}"
                said = {**dict.fromkeys(("uri", "target_uri", "directory"), uri), "since": commit_id, "path": path}
                body = None if method in ("get", "delete") else {**said, "uris": [uri], "session_id": path}
                answer = office.client.request(
                    method, url, params=said, json=body, headers={**bob.headers, "if-match": '"x"'}
                )
                text = answer.text
                for own in (commit_id, path, path.rpartition("/")[2], path.split("/")[1]):
                    text = text.replace(own, "…")
                answers.append((answer.status_code, re.sub(r'[0-9]{4}-[0-9]{2}-[0-9]{2}T[^"]*', "then", text)))
            assert answers[0] == answers[1] == answers[2], (method, route)
            met += answers[0][0] == 404
    assert met >= 5, met
    assert "quokka" in str(anna.entry(hers))


def test_a_session_of_the_own_server_is_none_at_a_provider(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer) as office, ledger_of(tmp_path / "home") as ledger:
        logins, (row,) = Logins(ledger.tokens.database), ledger.tokens.rows()
        logins.register("desk", {})
        code = logins.grant("desk", row, {})
        session = logins.begin_session({"scopes": BOTH.split()}, timedelta(hours=1), code)
        assert session is not None
        assert not office.opens(session)


def test_a_session_holds_for_its_issuer_and_for_spaces_that_are_still_given(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer, **GROUPS) as office, ledger_of(tmp_path / "home") as ledger:
        space = space_of(issuer.url, "bob")
        label = f"bob·{space.rpartition('-')[2][:8]}"
        bob = {"id": "x", "label": label, "user_space": space, "agent_space": space, "read_only": False}
        begun: list[str | None] = [
            Logins(ledger.tokens.database).begin_session({**bob, **more}, timedelta(hours=1))
            for more in (
                {"shared": ["team:read", "ops:read", "gone"], "issuer": issuer.url},
                {"shared": ["team"], "issuer": "https://before.example"},
                {"shared": ["team"]},
                {"shared": [], "issuer": issuer.url, "user_space": "named-before"},
            )
        ]
        held, *others = map(str, begun)
        (shared,) = office.page(held).facts("GET", "/about")["spaces"][1:]
        assert shared == {"space": "team", "writable": False}
        assert not any(map(office.opens, others))


def test_the_owner_may_name_a_users_space(tmp_path: Path, issuer: Issuer) -> None:
    given = {"user_claim": "email", "user_spaces": ["anna@example.com=anna"]}
    with office_at(tmp_path / "home", issuer, **given) as office:
        verified = office.as_("x", email="anna@example.com", email_verified=True)
        assert verified.facts("GET", "/about")["user_space"] == "anna"
        assert not office.opens(issuer.token(aud=HERE, email="anna@example.com"))
        assert not office.opens(issuer.token(aud=HERE, email="anna@example.com", email_verified="true"))


def test_a_session_in_a_space_that_the_owner_named_holds_while_it_is_named(tmp_path: Path, issuer: Issuer) -> None:
    own = space_of(issuer.url, "anna")
    held = {
        "id": "x",
        "label": f"anna·{own.rpartition('-')[2][:8]}",
        "user_space": "annas",
        "agent_space": "annas",
        "read_only": False,
        "shared": [],
        "issuer": issuer.url,
    }
    for named, opens in (("anna=annas", True), ("anna=others", False), ("bob=annas", False)):
        home = tmp_path / named
        with office_at(home, issuer, user_spaces=[named]) as office, ledger_of(home) as ledger:
            assert office.opens(str(Logins(ledger.tokens.database).begin_session(held, timedelta(hours=1)))) is opens


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"user_spaces": ["x=Anna"]}, "on some disks is the same folder"),
        ({"user_spaces": ["x=Carl", "y=carl"]}, "on some disks is the same folder"),
        ({"groups_claim": "groups", "group_spaces": ("crew=ANNA",)}, "ANNA"),
        ({"user_spaces": ["x=Default"]}, "there is a space 'default'"),
        ({"groups_claim": "groups", "group_spaces": ("crew=archivists:read",)}, "there is a space 'Archivists'"),
    ],
)
def test_a_space_that_is_anothers_but_for_its_spelling_is_refused(
    tmp_path: Path, issuer: Issuer, settings: Any, why: str
) -> None:
    (tmp_path / "home" / "user" / "Archivists").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=why), office_at(tmp_path / "home", issuer, **settings):
        pass


def test_a_server_and_token_add_know_the_same_spaces(
    tmp_path: Path, issuer: Issuer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of folders, of the settings, of their logins."""
    monkeypatch.setattr(http_server._Server, "run", lambda *_args, **_options: None)
    home, named = tmp_path / "home", f"--set=http.oauth.issuer={issuer.url}"
    (home / "user" / "Archivists").mkdir(parents=True)
    for space in ("Default", "archivists"):
        spaces = f"--set=http.oauth.user_spaces=x={space}"
        assert main(["serve", "--transport=http", "--port=0", f"--home={home}", named, spaces]) != 0
        assert main(["token", "add", "x", f"--user-space={space}", f"--home={home}"]) != 0
        assert capsys.readouterr().err.count("on some disks is the same folder") == 2
    spaces = "--set=http.oauth.user_spaces=x=Carl"
    assert main(["token", "add", "x", "--user-space=carl", f"--home={home}", named, spaces]) != 0
    assert "there is a space 'Carl'" in capsys.readouterr().err


def author_of(issuer: Issuer, claim: str) -> str:
    return f"{claim}·{space_of(issuer.url, claim)[-26:-18]}"


GROUPS = {"groups_claim": "groups", "group_spaces": ("crew=team", "guests=team:read", "ops=ops")}


def test_groups_of_a_claim_open_shared_spaces_as_long_as_they_are_named(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer, **GROUPS) as office:
        note = {"content": "The swordfish sleeps.", "memory_type": "notes"}
        receipt = office.as_("anna", groups=["crew"]).facts("POST", "/entries?space=team", note)
        assert (receipt["space"], receipt["author"]) == ("team", author_of(issuer, "anna"))
        place = path_of(receipt["results"][0]["uri"])
        rights: list[tuple[Any, bool]] = [(["guests"], False), (["guests", "crew"], True), ("crew", True)]
        for groups, writable in rights:
            bob = office.as_("bob", groups=groups)
            assert bob.facts("GET", "/about")["spaces"][1:] == [{"space": "team", "writable": writable}]
            (hit,) = bob.facts("POST", "/search", {"query": "swordfish"})["hits"]
            assert (hit["space"], hit["author"], hit["passage"]) == ("team", receipt["author"], note["content"])
            assert note["content"] in json.dumps(bob.entry(place))
        reader = office.as_("bob", groups=["guests"])
        assert reader.ask("POST", "/entries?space=team", note).status_code == 403
        assert reader.ask("DELETE", f"/entries/{place}", etag="*").status_code == 403
        unnamed: list[Any] = [[], ["Crew"], ["team"], ["ops"], [7, None], {"crew": 1}, "crew guests"]
        for groups in unnamed:
            carl = office.as_("carl", groups=groups)
            assert carl.facts("POST", "/search", {"query": "swordfish"})["hits"] == []
            assert carl.ask("GET", f"/entries/{place}").status_code == 404
            assert carl.ask("GET", "/entries?space=team").status_code == 404
        own = {"space": space_of(issuer.url, "carl"), "writable": True}
        assert office.as_("carl").facts("GET", "/about")["spaces"] == [own]


@pytest.mark.parametrize("other", ["a token", "a longer claim"])
def test_the_last_commit_of_somebody_is_nobody_elses(tmp_path: Path, issuer: Issuer, other: str) -> None:
    name, note = "d" * 64, {"content": "The swordfish sleeps.", "memory_type": "notes"}
    with office_at(tmp_path / "home", issuer, **GROUPS) as office:
        if other == "a token":
            first = office.page(issue(tmp_path / "home", name, user_space="x", shared=[SharedSpace("team")]))
        else:
            first = office.as_(f"{name}ora", groups=["crew"])
        first.facts("POST", "/entries?space=team", note)
        dora = office.as_(name, groups=["crew"])
        assert dora.ask("POST", "/commits/last/undo?space=team", {}).status_code == 404
        own = dora.facts("POST", "/entries?space=team", {**note, "content": "The cat does not."})
        assert own["author"] == author_of(issuer, name)
        assert dora.facts("POST", "/commits/last/undo?space=team", {})["status"] == "committed"


@pytest.mark.parametrize("wrong", ["crew", "crew=", "=team", "crew=../x", "crew=team:write"])
def test_a_group_needs_a_space_that_can_be_one(wrong: str) -> None:
    with pytest.raises(RecordInvalid, match="group_spaces"):
        OAuthConfig(groups_claim="groups", group_spaces=(wrong,))


def test_users_of_the_issuer_are_noted_for_whoever_maintains_them(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer) as office:
        office.as_("anna").facts("GET", "/about")
        assert not office.opens("x")
        with ledger_of(tmp_path / "home") as ledger:
            seen = SeenUsers(ledger.tokens.database).rows()
            own = space_of(issuer.url, "anna")
            assert [(each.user_space, each.agent_space) for each in seen if not each.by_settings] == [(own, own)]


def test_scopes_say_who_may_read_and_who_may_write(office: Office) -> None:
    reader = office.as_("carl", scope="memory:read")
    assert reader.facts("GET", "/about")["writable"] is False
    refused = reader.ask("POST", "/entries", {"content": "Carl rows"})
    assert refused.status_code == 403
    for scope in ("", "openid", "memory:write", "memory:reader", "memory:read,memory:write"):
        answer = office.ask(office.issuer.token(aud=HERE, scope=scope))
        assert answer.status_code == 403, scope
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert f'scope="{BOTH}"' in answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    assert office.opens(office.issuer.token(aud=HERE, scope=None, scp=["memory:read"]))


def test_a_tool_call_that_lacks_the_scope_says_which_one(office: Office) -> None:
    def call(body: Any, scope: str) -> httpx2.Response:
        token = office.issuer.token(aud=HERE, sub="dora", scope=scope)
        return office.client.post("/mcp", json=body, headers={**HEADERS, "authorization": f"Bearer {token}"})

    for body in (COMMIT, [COMMIT]):
        refused = call(body, "memory:read")
        assert refused.status_code == 403
        said = refused.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in said
        assert f'scope="{BOTH}"' in said
        assert f'resource_metadata="{URL}/.well-known/oauth-protected-resource/mcp"' in said
    assert call(OPENING, "memory:read").status_code == 200
    assert call(COMMIT, BOTH).status_code != 403


@in_a_loop
async def test_of_a_long_call_no_more_is_held_than_shows_that_it_is_long() -> None:
    taken: list[int] = []

    async def receive() -> dict[str, Any]:
        taken.append(len(taken))
        return {"type": "http.request", "body": bytes([taken[-1]]) * 1_000, "more_body": len(taken) < 20}

    async def body(again: Any) -> bytes:
        parts: list[dict[str, Any]] = []
        while not parts or parts[-1]["more_body"]:
            parts.append(await again())
        return b"".join(part["body"] for part in parts)

    whole = b"".join(bytes([number]) * 1_000 for number in range(20))
    found, again = await peeked(receive, 2_500)
    assert (found, len(taken)) == (None, 3)
    assert await body(again) == whole
    taken.clear()
    found, again = await peeked(receive, 20_000)
    assert found == whole
    assert await body(again) == whole


def test_a_long_call_that_lacks_the_scope_is_answered_by_the_tool(office: Office) -> None:
    token = office.issuer.token(aud=HERE, sub="dora", scope="memory:read")
    headers = {**HEADERS, "authorization": f"Bearer {token}"}
    session = office.client.post("/mcp", json=OPENING, headers=headers).headers["mcp-session-id"]
    messages = [{"role": "user", "content": "Anna plays the cello. " * 400} for _ in range(60)]
    long = {**COMMIT, "params": {"name": "commit_memory", "arguments": {"messages": messages}}}
    answer = office.client.post("/mcp", json=long, headers={**headers, "mcp-session-id": session})
    assert answer.status_code == 200
    assert "may only read: nothing was stored" in answer.text


def test_a_refusal_leads_to_the_issuer(office: Office) -> None:
    for path in ("/mcp", "/sse", "/api/memory/about"):
        place = "" if path.startswith("/api") else path
        said = office.ask(None, path).headers["www-authenticate"]
        assert f'scope="{BOTH}"' in said
        assert "error" not in said
        assert 'error="invalid_token"' in office.ask("wrong", path).headers["www-authenticate"]
        found = re.search('resource_metadata="([^"]+)"', said)
        assert found is not None
        metadata = office.client.get(found[1])
        assert metadata.status_code == 200
        assert metadata.json() == {
            "resource": f"{URL}{place}",
            "authorization_servers": [office.issuer.url],
            "scopes_supported": BOTH.split(),
            "bearer_methods_supported": ["header"],
            "resource_name": "Runebook",
        }
    assert office.client.get(f"{URL}/.well-known/oauth-protected-resource").status_code == 200


def test_a_token_is_needed_though_none_was_issued(tmp_path: Path, issuer: Issuer) -> None:
    with office_at(tmp_path / "home", issuer) as office:
        with ledger_of(tmp_path / "home") as ledger:
            ledger.tokens.revoke("own")
        assert office.ask(None).status_code == 401
        assert not office.opens(office.own)


def test_a_store_that_does_not_answer_leaves_the_others_running() -> None:
    """A look-up that waits keeps nobody waiting who needs none."""
    gate, order = threading.Event(), []

    class Gone:
        database = SimpleNamespace(is_remote=True)

        def verify(self, _token: str) -> None:
            gate.wait(PATIENCE_SECONDS)
            raise StoreBusy("the database is gone.", hint="Ask again.")

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        order.append("answered")
        gate.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def run() -> None:
        bounds: Any = {"rates": RequestRates(0), "open_requests": OpenRequests(9)}
        tokens = cast("IssuedTokens", Gone())
        door = authentication.TokenCheck(app, tokens, required=True, owner_key="owner", **bounds)

        async def ask(token: str) -> None:
            shown = (b"authorization", f"Bearer {token}".encode())
            await door({"type": "http", "method": "GET", "path": "/", "headers": [shown]}, nothing, silent)

        async def waiting() -> None:
            with pytest.raises(StoreBusy):
                await ask("waits")
            order.append("refused")

        async with anyio.create_task_group() as group:
            group.start_soon(waiting)
            await anyio.lowlevel.checkpoint()
            await ask("owner")
        door.close()

    async def silent(_message: Any) -> None:
        pass

    async def nothing() -> Any:
        raise AssertionError("there is no body")

    anyio.run(run)
    assert order == ["answered", "refused"]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigInvalid, match="a package that is not installed: jwt") as refusal:
        IdentityProvider("https://login.example.com", [])
    assert refusal.value.hint == "Install it: pip install 'pyjwt[crypto]'."


def test_without_an_issuer_nothing_of_it_is_imported() -> None:
    script = (
        "import sys; from server.cli import main; import server.commands.serving, server.http.http_server as http\n"
        "from server.protocol.app import build_server; from server.protocol.session import ServedStore\n"
        "http.build_app(build_server(ServedStore(lambda: None)), '127.0.0.1')\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'jwt' or name == 'server.http.login'])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
