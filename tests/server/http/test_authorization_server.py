"""The own authorization server: who is let in, what is refused, and what ends when something comes twice."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from starlette.testclient import TestClient

from memory_core.core.config import Config, HttpConfig, OAuthConfig
from memory_core.core.store.issued_tokens import IssuedTokens
from memory_core.runebook import open_memory
from server.http.authentication import address_of
from server.http.authorization_server import OwnLogin
from server.http.login import open_login
from server.http.page_login import challenge_of
from server.protocol.session import ServedStore
from tests.server.bearers import ledger_of
from tests.server.http.conftest import SETTINGS, Page, client_of
from tests.server.http.issuers import BOTH

URL = "http://127.0.0.1"
BACK = "http://127.0.0.1:33418/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


class House:
    """A server that issues access tokens itself, its users' own tokens, and a browser at its door."""

    def __init__(self, client: TestClient, tokens: IssuedTokens, login: OwnLogin) -> None:
        self.client = client
        self.way_in = login
        self.tokens = tokens

    @cached_property
    def anna(self) -> str:
        return self.tokens.issue("anna", user_space="anna", agent_space="anna")[0]

    @cached_property
    def bob(self) -> str:
        return self.tokens.issue("bob", user_space="bob", agent_space="bob")[0]

    @cached_property
    def reader(self) -> str:
        return self.tokens.issue("reader", user_space="anna", agent_space="anna", read_only=True)[0]

    def register(self, **metadata: Any) -> httpx2.Response:
        given = {"client_name": "Desk", "redirect_uris": [BACK], **metadata}
        return self.client.post("/register", json=given)

    def known(self, **metadata: Any) -> str:
        answer = self.register(**metadata)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["client_id"])

    def authorize(self, client: str, **asked: Any) -> httpx2.Response:
        usual = {
            "client_id": client,
            "response_type": "code",
            "redirect_uri": BACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "of the client",
            "resource": f"{URL}/mcp",
        }
        given = {name: value for name, value in {**usual, **asked}.items() if value is not None}
        return self.client.get("/authorize", params=given, follow_redirects=False)

    def page(self, client: str, **asked: Any) -> httpx2.Response:
        """The consent page."""
        answer = self.authorize(client, **asked)
        assert answer.status_code == 302, answer.text
        assert answer.headers["location"].startswith(f"{URL}/consent?"), answer.headers["location"]
        return self.client.get(answer.headers["location"])

    def answer(self, page: httpx2.Response, token: str, headers: Any = None, **more: str) -> httpx2.Response:
        return self.client.post(
            "/consent", data={**fields(page), "token": token, **more}, follow_redirects=False, headers=headers or {}
        )

    def code(self, client: str, token: str, **asked: Any) -> str:
        answer = self.answer(self.page(client, **asked), token)
        assert answer.status_code == 303, answer.text
        return query(answer)["code"]

    def exchange(self, client: str, code: str, **more: Any) -> httpx2.Response:
        given = {"grant_type": "authorization_code", "code": code, "client_id": client, "code_verifier": VERIFIER}
        wanted = {**given, "redirect_uri": BACK, **more}
        return self.client.post("/token", data={name: value for name, value in wanted.items() if value is not None})

    def refresh(self, client: str, token: str, **more: str) -> httpx2.Response:
        given = {"grant_type": "refresh_token", "refresh_token": token, "client_id": client}
        return self.client.post("/token", data={**given, **more})

    def login(self, client: str, token: str, **asked: Any) -> dict[str, Any]:
        answer = self.exchange(client, self.code(client, token, **asked))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def opens(self, access_token: str) -> bool:
        return Page(self.client, access_token).ask("GET", "/about").status_code == 200


def fields(page: httpx2.Response) -> dict[str, str]:
    """The hidden fields of a page's first form."""
    form = page.text.partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {unescape(name): unescape(value) for name, value in found}


def query(answer: httpx2.Response) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


@contextmanager
def house_at(home: Path, **oauth: Any) -> Iterator[House]:
    config = Config(home=home, **SETTINGS)
    with ledger_of(home) as ledger, house_of(config, ledger.tokens, **oauth) as house:
        yield house


@contextmanager
def house_of(config: Config, tokens: IssuedTokens, reached: str = URL, **oauth: Any) -> Iterator[House]:
    store = ServedStore(lambda: open_memory(config))
    rate = oauth.pop("requests_per_minute", 0)
    limits = HttpConfig(requests_per_minute=rate, oauth=OAuthConfig(issuer="own", **oauth))
    login = open_login(limits.oauth, reached, tokens)
    with client_of(store, tokens, limits, reached, login=login) as client:
        assert isinstance(login, OwnLogin)
        yield House(client, tokens, login)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house_at(tmp_path_factory.mktemp("house") / "home") as made:
        yield made


def test_metadata_lead_a_client_from_the_refusal_to_the_endpoints(house: House) -> None:
    said = house.client.get("/mcp").headers["www-authenticate"]
    place = re.search('resource_metadata="([^"]+)"', said)
    assert place is not None
    resource = house.client.get(place[1]).json()
    assert resource["authorization_servers"] == [URL]
    found = house.client.get(f"{URL}/.well-known/oauth-authorization-server").json()
    assert found["issuer"] == URL
    assert found["code_challenge_methods_supported"] == ["S256"]
    assert found["token_endpoint_auth_methods_supported"] == ["none"]
    assert found["client_id_metadata_document_supported"] is True
    assert [found[f"{name}_endpoint"] for name in ("authorization", "token", "registration", "revocation")] == [
        f"{URL}/{name}" for name in ("authorize", "token", "register", "revoke")
    ]


def test_a_user_logs_in_and_each_sees_their_own(house: House) -> None:
    client = house.known()
    anna, bob = (house.login(client, token) for token in (house.anna, house.bob))
    assert (anna["token_type"], anna["expires_in"], anna["scope"]) == ("Bearer", 3_600, BOTH)
    about = Page(house.client, anna["access_token"]).facts("GET", "/about")
    assert (about["user_space"], about["label"], about["owner"], about["writable"]) == ("anna", "anna", False, True)
    cello = Page(house.client, anna["access_token"]).keep("Anna plays the cello 大提琴")
    assert Page(house.client, house.anna).ask("GET", f"/entries/{cello}").status_code == 200
    assert Page(house.client, bob["access_token"]).ask("GET", f"/entries/{cello}").status_code == 404


def test_a_code_comes_back_with_the_clients_state_and_the_issuer(house: House) -> None:
    answer = house.answer(house.page(house.known()), house.anna)
    assert answer.headers["location"].startswith(f"{BACK}?")
    assert {**query(answer), "code": "…"} == {"code": "…", "state": "of the client", "iss": URL}
    refused = house.answer(house.page(house.known()), "", answer="refuse")
    assert query(refused) == {"error": "access_denied", "state": "of the client", "iss": URL}


@pytest.mark.parametrize(
    "asked",
    [
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": f"{BACK}/more"},
        {"redirect_uri": f"{BACK}?more=1"},
        {"redirect_uri": "http://127.0.0.1:33418/Callback"},
        {"redirect_uri": "http://localhost:33418/callback"},
        {"redirect_uri": "https://127.0.0.1:33418/callback"},
        {"redirect_uri": "http://127.0.0.1.evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:80@evil.example/callback"},
        {"redirect_uri": "javascript:alert(1)"},
        {"client_id": "unknown"},
        {"client_id": ""},
    ],
)
def test_a_foreign_redirect_or_client_is_told_to_nobody_else(house: House, asked: Any) -> None:
    client = house.known()
    answer = house.authorize(client, **asked)
    assert answer.status_code == 400
    assert "location" not in answer.headers
    given = {"client_id": client, "redirect_uri": BACK, "code_challenge": CHALLENGE, "scope": BOTH, **asked}
    assert house.client.get("/consent", params=given).status_code == 400
    once = fields(house.page(client))["once"]
    sent = house.client.post("/consent", data={**given, "once": once, "token": house.anna}, follow_redirects=False)
    assert (sent.status_code, "location" in sent.headers) == (400, False)


def test_on_loopback_the_port_is_the_clients_choice(house: House) -> None:
    client, other = house.known(), BACK.replace("33418", "40000")
    code = house.code(client, house.anna, redirect_uri=other)
    assert house.exchange(client, code, redirect_uri=other).status_code == 200
    far = house.known(redirect_uris=["https://app.example:8443/callback"])
    assert house.authorize(far, redirect_uri="https://app.example:9443/callback").status_code == 400
    assert house.page(far, redirect_uri="https://app.example:8443/callback").status_code == 200


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"scope": "memory:read admin"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
    ],
)
def test_what_a_client_asks_wrongly_it_is_told(house: House, asked: Any, error: str) -> None:
    answer = house.authorize(house.known(), **asked)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith(BACK)
    assert (query(answer)["error"], query(answer)["state"]) == (error, "of the client")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"code_verifier": "w" * 64}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"code_verifier": CHALLENGE}, "invalid_grant"),
        ({"redirect_uri": "https://evil.example/callback"}, "invalid_request"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"code": "rc_made-up"}, "invalid_grant"),
        ({"grant_type": "password"}, "invalid_request"),
    ],
)
def test_a_code_is_worth_nothing_without_what_belongs_to_it(house: House, more: Any, error: str) -> None:
    client = house.known()
    code = house.code(client, house.anna)
    answer = house.exchange(client, **{"code": code, **more})
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert house.exchange(client, code).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "site", ["https://site.example/back", "cursor://app/back", "ms-word:ofe,u,https://x.example/x"]
)
def test_an_error_leads_to_no_site_or_app_that_nobody_let_in(house: House, site: str, method: str) -> None:
    client = house.known(redirect_uris=[site])
    wrong = {"client_id": client, "redirect_uri": site, "response_type": "token", "code_challenge": CHALLENGE}

    def ask() -> httpx2.Response:
        given: Any = {"params": wrong} if method == "GET" else {"data": wrong}
        return house.client.request(method, "/authorize", follow_redirects=False, **given)

    assert ask().status_code == 400
    assert "location" not in ask().headers
    assert house.answer(house.page(client, redirect_uri=site), house.anna).status_code == 303
    assert ask().headers["location"].startswith(f"{site}?error=unsupported_response_type")


@pytest.mark.parametrize("path", ["/token", "/revoke", "/authorize", "/consent"])
def test_only_plain_forms_are_read(house: House, path: str) -> None:
    halved = {"client_id": "\\ud800", "grant_type": "refresh_token", "refresh_token": "\\ud800", "token": "\\ud800"}
    body = "".join(
        f'--X\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in halved.items()
    )
    kind = "multipart/form-data; boundary=X; charset=unicode_escape"
    answer = house.client.post(path, content=f"{body}--X--\r\n", headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "application/x-www-form-urlencoded" in answer.text


@pytest.mark.parametrize("path", ["/token", "/revoke", "/authorize", "/consent"])
def test_a_form_of_too_many_fields_is_refused(house: House, path: str) -> None:
    answer = house.client.post(path, data={f"field{number}": "" for number in range(1_001)})
    assert answer.status_code == 400
    assert "1000" in answer.text


def test_a_code_of_one_client_is_none_of_another(house: House) -> None:
    client, other = house.known(), house.known()
    code = house.code(client, house.anna)
    assert house.exchange(other, code).json()["error"] == "invalid_grant"
    assert house.exchange("unknown", code).status_code == 401


def test_a_replayed_code_ends_what_it_gave(house: House) -> None:
    client = house.known()
    code = house.code(client, house.anna)
    given = house.exchange(client, code).json()
    assert house.opens(given["access_token"])
    assert house.exchange(client, code).json()["error"] == "invalid_grant"
    assert not house.opens(given["access_token"])
    assert house.refresh(client, given["refresh_token"]).json()["error"] == "invalid_grant"


def test_a_refresh_token_is_exchanged_once_and_its_reuse_ends_the_login(house: House) -> None:
    client = house.known()
    first = house.login(client, house.anna)
    second = house.refresh(client, first["refresh_token"]).json()
    assert second["refresh_token"] != first["refresh_token"]
    assert house.opens(second["access_token"])
    assert house.refresh(house.known(), second["refresh_token"]).json()["error"] == "invalid_grant"
    assert house.refresh(client, first["refresh_token"]).json()["error"] == "invalid_grant"
    assert not house.opens(second["access_token"])
    assert house.refresh(client, second["refresh_token"]).status_code == 400


def test_scopes_are_what_was_asked_for_and_never_more(house: House) -> None:
    client = house.known(scope="memory:read")
    reading = house.login(client, house.anna, scope="memory:read")
    assert reading["scope"] == "memory:read"
    page = Page(house.client, reading["access_token"])
    assert page.facts("GET", "/about")["writable"] is False
    refused = page.ask("POST", "/entries", {"content": "Anna rows"})
    assert (refused.status_code, 'error="insufficient_scope"' in refused.headers["www-authenticate"]) == (403, True)
    assert house.refresh(client, reading["refresh_token"], scope=BOTH).json()["error"] == "invalid_scope"
    both = house.login(client, house.anna, scope=BOTH)  # the same client, for more
    less = house.refresh(client, both["refresh_token"], scope="memory:read").json()
    assert less["scope"] == "memory:read"
    assert house.refresh(client, less["refresh_token"]).json()["scope"] == BOTH


def test_a_token_that_only_reads_grants_no_more(house: House) -> None:
    given = house.login(house.known(), house.reader)
    assert given["scope"] == "memory:read"
    page = Page(house.client, given["access_token"])
    assert page.facts("GET", "/about")["writable"] is False
    assert "www-authenticate" not in page.ask("POST", "/entries", {"content": "x"}).headers


def test_revoking_a_token_ends_the_login(house: House) -> None:
    client = house.known()
    for name in ("access_token", "refresh_token"):
        given = house.login(client, house.anna)
        stranger = house.client.post("/revoke", data={"token": given[name], "client_id": house.known()})
        assert (stranger.status_code, house.opens(given["access_token"])) == (200, True)
        assert house.client.post("/revoke", data={"token": given[name], "client_id": client}).status_code == 200
        assert not house.opens(given["access_token"])
        assert house.refresh(client, given["refresh_token"]).status_code == 400
    assert house.client.post("/revoke", data={"token": "x", "client_id": client}).status_code == 200
    assert house.client.post("/revoke", data={"token": "x"}).status_code == 401
    assert house.client.post("/revoke", data={"client_id": client}).status_code == 400


def test_only_what_a_secret_is_opens_the_door(house: House) -> None:
    client = house.known()
    code = house.code(client, house.anna)
    assert not house.opens(code)
    given = house.exchange(client, code).json()
    assert not house.opens(given["refresh_token"])
    assert not house.opens(given["access_token"][:-1])
    assert house.opens(given["access_token"])
    assert house.opens(house.anna)  # tokens work as ever
    assert house.answer(house.page(client), given["access_token"]).status_code == 403


def test_clients_are_given_no_secret_whatever_they_ask_for(house: House) -> None:
    answer = house.register(token_endpoint_auth_method="client_secret_basic", jwks={"keys": ["x" * 500]})
    assert (answer.status_code, answer.json()["token_endpoint_auth_method"]) == (201, "none")
    assert "client_secret" not in answer.json()
    assert house.login(answer.json()["client_id"], house.anna)["scope"] == BOTH


@pytest.mark.parametrize(
    "redirect_uris",
    [
        *([], [f"{BACK}#fragment"], ["http://app.example/callback"], ["http://10.0.0.1/callback"]),
        *(["javascript:alert(1)"], ["data:text/html,x"], ["feed:javascript:alert(1)"], ["https://user@app.example/"]),
        *([BACK, "http://127.0.0.1:80@evil.example/"], [f"{BACK}/{n}" for n in range(21)]),
    ],
)
def test_addresses_that_codes_are_not_safe_at_are_not_registered(house: House, redirect_uris: list[str]) -> None:
    assert house.register(redirect_uris=redirect_uris).status_code == 400


def test_apps_and_sites_are_registered(house: House) -> None:
    for good in ("cursor://anysphere.cursor-retrieval/oauth/user/callback", "https://app.example/cb", "http://[::1]/x"):
        client = house.known(redirect_uris=[good])
        page = house.page(client, redirect_uri=good)
        target = f"{urlsplit(good).scheme}:"
        assert f"form-action 'self' {target}" in page.headers["content-security-policy"]
        assert house.answer(page, house.anna).headers["location"].startswith(good)


def test_too_much_is_not_registered(house: House) -> None:
    assert house.register(client_name="x" * 70_000).status_code == 413
    long = [f"https://app.example/{'x' * 1_000}{number}" for number in range(10)]
    assert house.register(redirect_uris=long).json()["error"] == "invalid_client_metadata"


def test_the_page_is_shown_in_no_frame_and_runs_nothing(house: House) -> None:
    name = '<script>alert(1)</script>"\u202e\n老板'
    page = house.page(house.known(client_name=name), state='"><script>x</script>')
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert "no-store" in page.headers["cache-control"]
    assert "<script" not in page.text
    assert "\u202e" not in page.text
    assert "127.0.0.1:33418" in page.text
    style = re.search("<style>(.*?)</style>", page.text, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
    assert fields(page)["state"] == '"><script>x</script>'


def test_the_page_speaks_chinese_to_who_prefers_it(house: House) -> None:
    page = house.page(house.known())
    assert "wants to use your memories" in page.text
    chinese = house.client.get(str(page.url), headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.8"})
    assert "想使用你的记忆" in chinese.text
    assert '<html lang="zh">' in chinese.text


def test_a_form_of_another_site_is_not_taken(house: House) -> None:
    page = house.page(house.known())
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    foreign = ({"origin": "http://127.0.0.1:8"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"})
    for headers in foreign:
        assert house.answer(page, house.anna, headers).status_code == 403
    for once in ("", "x", "x" * 32, "茶" * 32):
        assert house.answer(page, house.anna, once=once).status_code == 403
    good = {"origin": URL, "sec-fetch-site": "same-origin"}
    assert house.answer(page, house.anna, good).status_code == 303
    assert house.answer(page, house.anna, {"cookie": ""}).status_code == 403


def test_wrong_tokens_give_no_code_and_are_soon_not_looked_at(tmp_path: Path) -> None:
    with house_at(tmp_path / "home") as house:  # of its own: tokens of its users are not looked at for a while
        page = house.page(house.known())
        wrong = f"{house.bob[:-3]}xxx"
        for text in ("", "x", "令牌", "rb_", "x" * 5_000):
            assert house.answer(page, text).status_code == 403
        assert [house.answer(page, wrong).status_code for _ in range(10)] == [403] * 10
        answers = (house.answer(page, wrong) for _ in range(100))  # some come free while a slow machine asks
        late = next(answer for answer in answers if answer.status_code == 429)
        assert int(late.headers["retry-after"]) >= 1
        assert any(house.answer(page, house.bob).status_code == 429 for _ in range(100))  # or guessing would go on
        assert house.answer(page, house.anna).status_code == 303


def test_endpoints_are_asked_so_often_and_no_more(tmp_path: Path) -> None:
    with house_at(tmp_path / "home", requests_per_minute=5) as house:
        assert [house.register().status_code for _ in range(5)] == [201] * 5
        assert any(house.register().status_code == 429 for _ in range(100))  # some come free on a slow machine
        assert house.client.get("/api/memory/about").status_code == 429
        assert house.opens(house.anna)


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_who_has_a_network_of_addresses_is_counted_once(host: str, counted: str) -> None:
    assert address_of({"type": "http", "client": (host, 1)}) == f"address {counted}"


def test_behind_a_proxy_the_public_address_is_what_counts(tmp_path: Path) -> None:
    public = "https://memory.example.com"
    with ledger_of(tmp_path / "home") as ledger:
        config = Config(home=tmp_path / "home", **SETTINGS)
        with house_of(config, ledger.tokens, public, url=public) as house:
            found = house.client.get("/.well-known/oauth-authorization-server").json()
            assert (found["issuer"], found["token_endpoint"]) == (public, f"{public}/token")
            client = house.known()
            location = house.authorize(client, resource=f"{public}/mcp").headers["location"]
            page = house.client.get(location)
            cookie = page.headers["set-cookie"]
            assert cookie.startswith("__Host-runebook-consent=")
            assert "Secure" in cookie
            begun = house.client.get("/login", follow_redirects=False).headers["set-cookie"]
            assert begun.startswith("__Host-runebook-login=")
            assert {"Path=/", "Secure", "HttpOnly"} <= set(begun.split("; "))
            assert house.opens(key_of(sign_in(house, house.anna)))
            own = {"origin": public, "sec-fetch-site": "same-origin"}
            code = query(house.answer(page, house.anna, own))["code"]
            assert house.opens(house.exchange(client, code).json()["access_token"])
            assert house.answer(page, house.anna, {"origin": "https://evil.example"}).status_code == 403
            assert house.client.get("/consent", headers={"host": "evil.example"}).status_code == 421


def test_registration_may_be_closed(tmp_path: Path) -> None:
    with house_at(tmp_path / "home", registration=False, client_documents=False) as house:
        assert house.register().status_code == 401
        found = house.client.get("/.well-known/oauth-authorization-server").json()
        assert "registration_endpoint" not in found
        assert found["client_id_metadata_document_supported"] is False
        assert house.authorize("https://app.example/client.json").status_code == 400


# Signing in on the page


def sign_in(house: House, token: str) -> httpx2.Response:
    """The answer to the browser that came back with a code."""
    begun = house.client.get("/login", follow_redirects=False)
    assert begun.status_code == 303
    consent = house.client.get(begun.headers["location"], follow_redirects=False)
    page = house.client.get(consent.headers["location"])
    back = house.answer(page, token).headers["location"]
    assert back.startswith(f"{house.way_in.url}/login/callback?")
    return house.client.get(back, follow_redirects=False)


def key_of(answer: httpx2.Response) -> str:
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/#key=rs_")
    return str(answer.headers["location"].removeprefix("/#key="))


def test_the_page_is_given_a_key_that_opens_the_api_and_nothing_else(house: House) -> None:
    key = key_of(sign_in(house, house.anna))
    about = Page(house.client, key).facts("GET", "/about")
    assert (about["user_space"], about["label"], about["owner"], about["writable"]) == ("anna", "anna", False, True)
    for path in ("/mcp", "/sse", "/metrics"):
        assert house.client.get(path, headers={"authorization": f"Bearer {key}"}).status_code == 401
    reader = Page(house.client, key_of(sign_in(house, house.reader)))
    assert reader.facts("GET", "/about")["writable"] is False


def test_signing_out_ends_the_session_and_no_other(house: House) -> None:
    first, second = (key_of(sign_in(house, house.anna)) for _ in range(2))
    for text in (first, "rs_made-up", "", house.anna):
        assert house.client.post("/login/end", headers={"authorization": f"Bearer {text}"}).status_code == 204
    assert [house.opens(each) for each in (first, second, house.anna)] == [False, True, True]


def test_nobody_is_signed_in_with_a_code_that_they_did_not_ask_for(house: House) -> None:
    begun = house.client.get("/login", follow_redirects=False)
    consent = house.client.get(begun.headers["location"], follow_redirects=False)
    back = house.answer(house.client.get(consent.headers["location"]), house.anna).headers["location"]
    given = query(httpx2.Response(303, headers={"location": back}))
    cookie = house.client.cookies.get("runebook-login", path="/login")
    assert cookie is not None

    def refused(cookie: str, **other: str) -> bool:
        house.client.cookies.clear()
        params = {name: value for name, value in {**given, **other}.items() if value}
        answer = house.client.get(
            "/login/callback", params=params, headers={"cookie": f"runebook-login={cookie}"}, follow_redirects=False
        )
        return answer.status_code == 403 and "key=" not in answer.headers.get("location", "")

    mine = house.known()
    stolen = house.code(mine, house.anna, code_challenge=challenge_of(cookie.partition(".")[2]))
    assert refused("")  # another browser
    assert refused(f"{'x' * 32}.{cookie.partition('.')[2]}")
    assert refused(cookie, state="x" * 32)
    assert refused(cookie, state="")
    assert refused(cookie, iss="https://evil.example")
    assert refused(cookie, code=stolen)  # of another client
    assert refused(cookie, code="")
    assert refused(cookie, error="access_denied", code="")
    assert refused(f"{cookie.partition('.')[0]}.{'y' * 64}")  # a verifier of another challenge
    back = f"{house.way_in.url}/login/callback"
    tokens = house.exchange("page", given["code"], redirect_uri=back, code_verifier=cookie.partition(".")[2])
    assert tokens.json()["error"] == "invalid_grant"  # a session is not a client's grant
    assert not refused(cookie)
    assert refused(cookie)  # it came before


def test_the_page_offers_to_sign_in_where_that_is_possible(house: House) -> None:
    answer = house.client.get("/api/memory/about")
    assert answer.headers["link"] == '</login>; rel="login"'
    assert "link" not in house.client.get("/mcp").headers
