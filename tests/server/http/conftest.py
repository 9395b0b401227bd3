"""The API over a real store: the whole ASGI app as it is served, with tokens, without a socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.testclient import TestClient

from memory_core.core.config import Config, HttpConfig, load
from memory_core.core.settings_file import SettingsFile, followed
from memory_core.core.store.issued_tokens import IssuedTokens
from memory_core.runebook import open_memory
from server.http.http_server import build_app
from server.protocol.app import build_server
from server.protocol.session import ServedStore
from tests.server.bearers import ledger_of

OWNER_KEY = "the-owners-key"
#: None of it needs meaning, or a pass of maintenance in the middle.
SETTINGS: Mapping[str, Any] = {
    "embedding": {"provider": "none"},
    "maintenance": {"automatic": "off"},
    "watch": "off",
}


class Page:
    """What a page, or a program, asks of the API; as the owner or with a token."""

    def __init__(self, client: TestClient, token: str | None) -> None:
        self.client = client
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None, etag: str | None = None, **headers: str) -> httpx2.Response:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if etag is not None:
            sent["if-match"] = etag
        url = path if path.startswith("/api/") else f"/api/memory{path}"
        return self.client.request(method, url, json=body, headers=sent)

    def facts(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.ask(method, path, body, **options)
        assert answer.status_code < 300, (answer.status_code, answer.text)
        return answer.json()

    def keep(self, content: str, memory_type: str = "notes", **more: Any) -> str:
        """Store a memory; its path."""
        receipt = self.facts("POST", "/entries", {"content": content, "memory_type": memory_type, **more})
        return path_of(receipt["results"][0]["uri"])

    def entry(self, path: str) -> Any:
        return self.facts("GET", f"/entries/{path}")


def path_of(uri: str) -> str:
    return "/".join(quote(part, safe="") for part in uri.removeprefix("viking://").split("/"))


class Desk:
    """A served store with its owner and three bearers: anna, bob, and one of anna's who only reads."""

    def __init__(self, client: TestClient, store: ServedStore, tokens: Mapping[str, str]) -> None:
        self.client = client
        self.store = store
        self.owner = Page(client, OWNER_KEY)
        self.anna = Page(client, tokens["anna"])
        self.bob = Page(client, tokens["bob"])
        self.reader = Page(client, tokens["reader"])


@contextmanager
def client_of(
    store: ServedStore, tokens: IssuedTokens, limits: HttpConfig, address: str = "http://127.0.0.1", **options: Any
) -> Iterator[TestClient]:
    """A client of the whole app; ``options`` are those of ``build_app``."""
    app = build_app(build_server(store), "127.0.0.1", tokens, limits, store=store, **options)
    with TestClient(app, base_url=address, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def desk_at(
    home: Path, root: Path | None = None, settings: Mapping[str, str | bool | int] | None = None
) -> Iterator[Desk]:
    """A desk.

    Args:
        home: Of the tokens, and of the memories unless ``root`` says otherwise.
        root: Of the memories.
        settings: Dotted names to values, of those that an open store can follow; beside ``SETTINGS``.
    """
    flags = {"home": str(root or home), "search.cached_queries": "8", **(settings or {})}
    config = followed(Config(home=root or home, **SETTINGS), load(environment={}, flags=flags))
    store = ServedStore(lambda: open_memory(config), settings=lambda: SettingsFile(environment={}, flags=flags))
    with ledger_of(home) as ledger:
        table = ledger.tokens
        tokens = {
            "anna": table.issue("anna", user_space="anna", agent_space="anna")[0],
            "bob": table.issue("bob", user_space="bob", agent_space="bob")[0],
            "reader": table.issue("reader", user_space="anna", agent_space="anna", read_only=True)[0],
        }
        limits = HttpConfig(requests_per_minute=0, allowed_origins=("https://chat.example.com",))
        with client_of(store, table, limits, owner_key=OWNER_KEY) as client:
            yield Desk(client, store, tokens)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_at(tmp_path_factory.mktemp("desk")) as made:
        yield made


@pytest.fixture
def own_desk(tmp_path: Path) -> Iterator[Desk]:
    """The test's own, over the store in ``tmp_path / "home"``."""
    with desk_at(tmp_path / "home") as made:
        yield made
