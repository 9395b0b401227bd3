"""People and clients that log in: a browser without a screen, the Python SDK's client, and the TypeScript SDK's."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from re import DOTALL, findall, search
from typing import Any
from urllib.parse import urljoin

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.conformance.run import CannotRun, node
from tests.waiting import PATIENCE_SECONDS

HERE = Path(__file__).parent
CLIENTS = Path(sys.prefix) / "clients" / "node_modules"
CALLBACK = "http://127.0.0.1:7/callback"
PROVIDER, TYPESCRIPT = CLIENTS / "oidc-provider", CLIENTS / "@modelcontextprotocol/sdk"


def missing(*packages: Path) -> str:
    """Why what needs these packages of npm is skipped; empty where they are there."""
    absent = [package.relative_to(CLIENTS).as_posix() for package in packages if not package.exists()]
    try:
        node()
    except CannotRun as error:
        absent.append(str(error))
    return f"not installed: {', '.join(absent)}; .ci/run installs it" if absent else ""


class Browser:
    """Follows redirects, keeps cookies, fills in forms.

    Args:
        **answers: What is typed into fields, by their names.
    """

    def __init__(self, **answers: str) -> None:
        self._answers = answers
        self.pages: list[httpx2.Response] = []

    def login(self, url: str, until: str = CALLBACK) -> str:
        """Open a URL and do what its pages ask; the address at ``until`` that the browser is sent to at last."""
        with httpx2.Client(timeout=PATIENCE_SECONDS) as client:
            request = client.build_request("GET", url)
            for _ in range(20):
                answer = client.send(request)
                self.pages.append(answer)
                if answer.is_redirect:
                    target = urljoin(str(answer.url), answer.headers["location"])
                    if target.startswith(until):
                        return target
                    request = client.build_request("GET", target)
                else:
                    assert answer.status_code == 200, answer.text
                    request = self._submit(client, answer)
        raise AssertionError("the pages do not end")

    def _submit(self, client: httpx2.Client, page: httpx2.Response) -> httpx2.Request:
        form = search(r"<form[^>]*?action=\"([^\"]*)\"[^>]*>(.*?)</form>", page.text, DOTALL)
        assert form is not None, page.text
        fields = dict(self._field(each) for each in findall(r"<input\b[^>]*>", form[2]))
        action = urljoin(str(page.url), unescape(form[1]))
        origin = f"{page.url.scheme}://{page.url.netloc.decode()}"
        given = {name: value for name, value in fields.items() if name}
        return client.build_request("POST", action, data=given, headers={"origin": origin})

    def _field(self, tag: str) -> tuple[str, str]:
        name = search(r'\bname="([^"]*)"', tag)
        value = search(r'\bvalue="([^"]*)"', tag)
        called = name[1] if name else ""
        return called, self._answers.get(called, unescape(value[1]) if value else "")


class Keychain:
    """What a client keeps between two starts."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def python_client(url: str, browser: Browser, keychain: Keychain, **metadata: Any) -> Any:
    """The Python SDK's client, connected as whoever the browser's answers make it."""
    arrived: list[str] = []

    async def go(where: str) -> None:
        arrived.append(browser.login(where))

    async def come_back() -> AuthorizationCodeResult:
        given = httpx2.URL(arrived[-1]).params
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))

    usual = {"client_name": "Python", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none"}
    provider = OAuthClientProvider(
        url, OAuthClientMetadata.model_validate({**usual, **metadata}), keychain, go, come_back
    )
    async with (
        httpx2.AsyncClient(auth=provider, timeout=PATIENCE_SECONDS) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):

        @asynccontextmanager
        async def transport() -> Any:
            yield streams

        async with Client(transport()) as client:
            yield client


async def see_their_own(url: str, anna: Browser, bob: Browser, space: str) -> None:
    """Two users of the Python SDK: what one keeps, in this space, the other neither finds nor reads."""
    async with python_client(url, anna, Keychain()) as hers, python_client(url, bob, Keychain()) as his:
        kept = await hers.call_tool("commit_memory", {"memory_content": "Anna plays the cello 大提琴"})
        uri = kept.structured_content["results"][0]["uri"]
        assert uri.startswith(f"viking://user/{space}/")
        assert (await hers.call_tool("find", {"query": "cello"})).structured_content["total"] == 1
        assert (await his.call_tool("find", {"query": "cello"})).structured_content["total"] == 0
        assert (await his.call_tool("read", {"uri": uri})).is_error


def stores_and_renews(url: str, browser: Browser) -> None:
    """The TypeScript SDK's client stores a memory, finds it, and renews its token."""
    said = typescript_client(url, browser, "Clara keeps a heron 苍鹭", "heron")
    assert said["total"] == 1
    assert "苍鹭" in said["text"]
    assert said["refreshed"]
    assert set(said["scope"].split()) == {"memory:read", "memory:write"}


def typescript_client(url: str, browser: Browser, memory: str, query: str) -> dict[str, Any]:
    """What the TypeScript SDK's client finds after it logged in and stored a memory."""
    command = [node(), str(HERE / "client.mjs"), str(TYPESCRIPT.resolve()), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            where = process.stdout.readline()
            assert where, process.communicate()[1]
            print(browser.login(where.strip()), memory, query, sep="\n", file=process.stdin, flush=True)
            said, problem = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, problem
    found: dict[str, Any] = json.loads(said)
    return found
