"""Clients of both SDKs log in with Runebook's own authorization server, over real HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.conformance.run import SUITE, node
from tests.login.people import TYPESCRIPT, Browser, Keychain, missing, python_client, see_their_own, stores_and_renews
from tests.server.bearers import issue
from tests.server.conftest import WORDS_ONLY, HttpServer, free_port

CONFORMANCE = Path(sys.prefix) / "conformance" / SUITE


class Inn:
    """A server, and the tokens of its users."""

    def __init__(self, home: Path) -> None:
        self.tokens = {name: issue(home, name) for name in ("anna", "bob", "clara")}
        self.server = HttpServer(home, home.with_name("stderr"), *WORDS_ONLY, "--set", "http.oauth.issuer=own")
        self.url = f"{self.server.origin}/mcp"

    def who(self, name: str) -> Browser:
        return Browser(token=self.tokens[name])


@pytest.fixture(scope="module")
def inn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inn]:
    made = Inn(tmp_path_factory.mktemp("inn") / "home")
    try:
        yield made
    finally:
        made.server.stop()


def test_two_users_of_the_python_sdk_log_in_and_see_their_own(inn: Inn) -> None:
    anyio.run(see_their_own, inn.url, inn.who("anna"), inn.who("bob"), "anna")


def test_a_client_that_kept_its_login_needs_no_browser_again(inn: Inn) -> None:
    keychain = Keychain()

    async def run(browser: Browser) -> None:
        async with python_client(inn.url, browser, keychain) as client:
            assert not (await client.call_tool("ls", {"uri": "viking://"})).is_error

    anyio.run(run, inn.who("anna"))
    nobody = Browser()
    anyio.run(run, nobody)
    assert nobody.pages == []


def test_a_client_that_lacks_a_scope_logs_in_for_it(inn: Inn) -> None:
    keychain, browser = Keychain(), inn.who("bob")

    async def run() -> None:
        async with python_client(inn.url, browser, keychain):
            assert keychain.tokens is not None
            before = len(browser.pages)
            narrow = await _narrowed(inn, keychain)
            keychain.tokens = keychain.tokens.model_copy(update={"access_token": narrow})
        async with python_client(inn.url, browser, keychain) as client:
            stored = await client.call_tool("commit_memory", {"memory_content": "Bob bakes rye bread"})
            assert not stored.is_error
        assert keychain.tokens is not None
        assert set((keychain.tokens.scope or "").split()) == {"memory:read", "memory:write"}
        assert len(browser.pages) > before

    anyio.run(run)


async def _narrowed(inn: Inn, keychain: Keychain) -> str:
    """An access token of the same login that only reads."""
    assert keychain.tokens is not None
    assert keychain.client is not None
    given = {
        "grant_type": "refresh_token",
        "refresh_token": keychain.tokens.refresh_token,
        "client_id": keychain.client.client_id,
        "scope": "memory:read",
    }
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{inn.server.origin}/token", data=given)
    return str(answer.json()["access_token"])


@pytest.mark.skipif(not CONFORMANCE.exists(), reason=f"not installed: {CONFORMANCE}; .ci/run installs it")
def test_the_protocols_own_checks_of_authorization_servers_pass(inn: Inn) -> None:
    port = free_port()
    callback = f"http://127.0.0.1:{port}/callback"
    known = httpx2.post(f"{inn.server.origin}/register", json={"redirect_uris": [callback]}).json()["client_id"]
    command = [node(), str(CONFORMANCE), "authorization", "--url", inn.server.origin, "--port", str(port)]
    command += ["--client-id", known, "--resource", inn.url]
    said = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        back = ""
        for line in process.stdout:
            said += line
            if line.startswith(f"{inn.server.origin}/authorize?"):
                back = inn.who("anna").login(line.strip(), until=callback)
            if back and line.startswith("Callback server started"):
                assert httpx2.get(back).status_code == 200
    assert process.returncode == 0, said
    assert "Total: 3 passed, 0 failed" in said


@pytest.mark.skipif(bool(missing(TYPESCRIPT)), reason=missing(TYPESCRIPT))
def test_the_typescript_sdk_logs_in_and_renews_its_token(inn: Inn) -> None:
    stores_and_renews(inn.url, inn.who("clara"))
