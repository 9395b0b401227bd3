"""What a balancer is told of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_core.core.config import Config, HttpConfig
from memory_core.runebook import open_memory
from server.http import health
from server.protocol.session import ServedStore
from tests.server.bearers import ledger_of
from tests.server.http.conftest import SETTINGS, client_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_server_whose_store_breaks_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_store: ServedStore) -> bool:
        raise RuntimeError

    monkeypatch.setattr(health, "_FRESH_SECONDS", -1.0)  # each probe asks
    config = Config(home=tmp_path, **SETTINGS)
    store = ServedStore(lambda: open_memory(config))
    with ledger_of(tmp_path) as ledger, client_of(store, ledger.tokens, HttpConfig()) as client:
        assert client.get(health.READY).status_code == 200
        with monkeypatch.context() as patched:
            patched.setattr(health, "_answers", broken)
            assert client.get(health.READY).status_code == 503
        assert client.get(health.READY).status_code == 200
