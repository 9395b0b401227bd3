"""Clients of both SDKs log in with npm's ``oidc-provider`` as the issuer, from the first refusal to their memories."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from server.http.login import space_of
from tests.conformance.run import node
from tests.login.people import HERE, PROVIDER, TYPESCRIPT, Browser, Keychain, missing, python_client, typescript_client
from tests.server.bearers import OPENING, send
from tests.server.conftest import WORDS_ONLY, HttpServer, free_port

pytestmark = pytest.mark.skipif(bool(missing(PROVIDER)), reason=missing(PROVIDER))


@contextmanager
def issuing(port: int, resource: str) -> Iterator[str]:
    """The provider, with a key of its own; its URL."""
    command = [node(), str(HERE / "issuer.mjs"), str(PROVIDER), str(port), resource]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() == "ready":
                    break
            else:
                raise AssertionError(f"the provider ended with {process.wait()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, ports: tuple[int, int]) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("oidc")
    issuer = f"http.oauth.issuer=http://127.0.0.1:{ports[0]}"
    options = (*WORDS_ONLY, "--set", issuer, "--set", "http.oauth.keys_seconds=0", "--set", "http.oauth.client_id=page")
    server = HttpServer(folder / "home", folder / "stderr", *options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def issuer(server: HttpServer, ports: tuple[int, int]) -> Iterator[str]:
    with issuing(ports[0], f"{server.origin}/mcp") as url:
        yield url


def who(name: str) -> Browser:
    return Browser(login=name, password="whatever")


def test_two_users_of_the_python_sdk_log_in_and_see_their_own(server: HttpServer, issuer: str) -> None:
    async def run() -> None:
        async with (
            python_client(f"{server.origin}/mcp", who("anna"), Keychain()) as anna,
            python_client(f"{server.origin}/mcp", who("bob"), Keychain()) as bob,
        ):
            kept = await anna.call_tool("commit_memory", {"memory_content": "Anna plays the cello 大提琴"})
            uri = kept.structured_content["results"][0]["uri"]
            assert uri.startswith(f"viking://user/{space_of(issuer, 'anna')}/")
            assert (await anna.call_tool("find", {"query": "cello"})).structured_content["total"] == 1
            assert (await bob.call_tool("find", {"query": "cello"})).structured_content["total"] == 0
            assert (await bob.call_tool("read", {"uri": uri})).is_error

    anyio.run(run)


def test_a_client_goes_on_after_the_issuer_changed_its_key(server: HttpServer, ports: tuple[int, int]) -> None:
    resource = f"{server.origin}/mcp"

    async def run(keychain: Keychain) -> None:
        async with python_client(resource, who("anna"), keychain) as anna:
            assert not (await anna.call_tool("ls", {"uri": "viking://"})).is_error

    old, new = Keychain(), Keychain()
    with issuing(ports[0], resource):
        anyio.run(run, old)
    with issuing(ports[0], resource):
        anyio.run(run, new)
        assert old.tokens is not None
        assert new.tokens is not None
        path = "/api/memory/about"
        assert send(server, "GET", path, None, new.tokens.access_token).status == 200
        assert send(server, "GET", path, None, old.tokens.access_token).status == 401


def test_people_sign_in_on_the_page_and_out_again(server: HttpServer, issuer: str) -> None:
    landed = who("anna").login(f"{server.origin}/login", until=f"{server.origin}/#key=")
    key = landed.partition("#key=")[2]
    about = send(server, "GET", "/api/memory/about", None, key)
    assert (about.status, json.loads(about.body)["user_space"]) == (200, space_of(issuer, "anna"))
    assert send(server, "POST", "/mcp", OPENING, key).status == 401
    assert send(server, "POST", "/login/end", None, key).status == 204
    assert send(server, "GET", "/api/memory/about", None, key).status == 401


@pytest.mark.skipif(bool(missing(TYPESCRIPT)), reason=missing(TYPESCRIPT))
def test_the_typescript_sdk_logs_in_and_renews_its_token(server: HttpServer, issuer: str) -> None:
    assert issuer
    said = typescript_client(f"{server.origin}/mcp", who("clara"), "Clara keeps a heron 苍鹭", "heron")
    assert said["total"] == 1
    assert "苍鹭" in said["text"]
    assert said["refreshed"]
    assert set(said["scope"].split()) == {"memory:read", "memory:write"}
