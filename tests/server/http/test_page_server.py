"""The page and the API as processes serve them: ``runebook ui`` with its key, and an open server on loopback."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from tests.fork_server import starter
from tests.server.bearers import OPENING, Reply, issue, send
from tests.server.conftest import PATIENCE_SECONDS, environment
from tests.waiting import soon

if TYPE_CHECKING:
    from tests.server.conftest import HttpServer


OPTIONS = ("--set", "embedding.provider=none", "--set", "maintenance.automatic=off")


class PageServer:
    """A ``runebook ui`` process that opens no browser."""

    def __init__(self, home: Path | None, browser: str = "", cwd: Path | None = None, **surroundings: str) -> None:
        opening = () if browser else ("--no-open",)
        store = () if home is None else ("--home", str(home))
        self.process = starter().program(
            *("ui", *opening, "--port", "0", *store, *OPTIONS),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment() | surroundings | ({"BROWSER": browser} if browser else {}),
        )
        assert self.process.stdout is not None
        address = self.process.stdout.readline().decode().split()[-1]
        origin, _, key = address.partition("/#key=")
        self.key: str = key
        self.port = urlsplit(origin).port

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Reply:
        return send(SimpleNamespace(port=self.port), method, path, body, token)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.stop() in (0, 128 + signal.SIGTERM, -signal.SIGTERM)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


def browser_in(folder: Path) -> tuple[str, Path]:
    """A browser for ``BROWSER``, and the file in which it writes what it is to open."""
    program, seen = folder / "browser", folder / "seen"
    program.write_text(f'#!/bin/sh\necho "$*" > {seen}.part\nmv {seen}.part {seen}\n', encoding="utf-8")
    program.chmod(0o700)
    return f"{program} %s", seen


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_key_is_in_no_command_line(tmp_path: Path) -> None:
    browser, seen = browser_in(tmp_path)
    with PageServer(tmp_path / "home", browser) as served:
        assert soon(seen.exists)
        given = seen.read_text(encoding="utf-8").strip()
        assert served.key not in given
        leading = Path(url2pathname(urlsplit(given).path))
        assert stat.S_IMODE(leading.stat().st_mode) == 0o600
        assert f"url=http://127.0.0.1:{served.port}/#key={served.key}" in leading.read_text(encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="the browser is a shell script")
def test_what_leads_the_browser_lies_in_the_account_s_own_store_wherever_the_command_is_run(tmp_path: Path) -> None:
    account, elsewhere = tmp_path / "家", tmp_path / "elsewhere"
    account.mkdir()
    elsewhere.mkdir()
    browser, seen = browser_in(tmp_path)
    with PageServer(None, browser, elsewhere, HOME=str(account)):
        assert soon(seen.exists)
        given = Path(url2pathname(urlsplit(seen.read_text(encoding="utf-8").strip()).path))
        assert given == account / ".runebook" / ".state" / "page.html"
        assert given.is_file()
    assert list(elsewhere.iterdir()) == []


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    with PageServer(tmp_path_factory.mktemp("ui") / "home") as served:
        yield served


def test_key_of_the_process_opens_the_store_and_nothing_else_does(page: PageServer) -> None:
    assert page.ask("GET", "/").status == 200
    for token in (None, "", page.key[:-1], "wrong"):
        for path in ("/api/memory/about", "/metrics", "/mcp"):
            assert page.ask("GET", path, token=token).status == 401
    about = json.loads(page.ask("GET", "/api/memory/about", token=page.key).body)
    assert (about["owner"], about["writable"]) == (True, True)
    assert page.ask("POST", "/mcp", OPENING, page.key).status == 200


def test_what_the_page_keeps_is_in_the_store_after_the_end(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with PageServer(home) as first:
        kept = first.ask("POST", "/api/memory/entries", {"content": "茶 Tea for the page."}, first.key)
        assert kept.status == 201
    with PageServer(home) as second:
        assert second.key != first.key
        assert second.ask("GET", "/api/memory/entries", token=first.key).status == 401
        listed = json.loads(second.ask("GET", "/api/memory/entries", token=second.key).body)
        assert [entry["abstract"] for entry in listed["entries"]] == ["茶 Tea for the page."]


def test_token_opens_the_page_server_too_and_sees_its_own(tmp_path: Path) -> None:
    token = issue(tmp_path / "home", "anna")
    with PageServer(tmp_path / "home") as served:
        about = json.loads(served.ask("GET", "/api/memory/about", token=token).body)
        assert (about["owner"], about["user_space"], about["label"]) == (False, "anna", "anna")


def test_open_server_on_loopback_serves_the_api_and_refuses_other_sites(http_server: HttpServer) -> None:
    assert send(http_server, "GET", "/").status == 200
    assert json.loads(send(http_server, "GET", "/api/memory/about").body)["owner"] is True
    for site in ("cross-site", "same-site"):
        forged = send(http_server, "POST", "/api/memory/entries", {"content": "Forged."}, sec_fetch_site=site)
        assert forged.status == 403
    assert send(http_server, "POST", "/api/memory/entries", b"content=x", content_type="text/plain").status == 415
    kept = send(http_server, "POST", "/api/memory/entries", {"content": "From the page."}, sec_fetch_site="same-origin")
    assert kept.status == 201


def test_methods_that_nothing_takes_are_refused(http_server: HttpServer) -> None:
    refused = send(http_server, "BREW", "/api/memory/about")
    assert (refused.status, refused.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH, POST, PUT")
    assert send(http_server, "PUT", "/api/memory/about", {}).status == 405
    assert send(http_server, "HEAD", "/api/memory/about").status == 200
