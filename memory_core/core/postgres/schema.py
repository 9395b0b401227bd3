"""The schema of a store in PostgreSQL: made when the database is new, and brought forward by numbered steps.

``schema.sql`` is version 1; ``schema_N.sql`` makes version N of the one before. All steps that are missing are one
transaction under one lock, so that servers that start together do it once, and a step that fails changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from memory_core.core.errors import ConfigInvalid, StorageFailed
from memory_core.core.postgres.faults import said, store_errors
from memory_core.core.store.sqlite import DatabaseNewer

_log = logging.getLogger(__name__)
#: What this program works with; a database of a later version is not touched.
SCHEMA_VERSION = 6
#: What a privileged user becomes in each transaction: row-level security does not bind the privileged.
ROLE = "runebook"
_ROWS = ("runebook_ledger", "runebook_index")


class Ready(NamedTuple):
    """A database that may be used: the id of the store, and whether the user has to become ``ROLE``."""

    store_id: str
    privileged: bool


class State(NamedTuple):
    """How a database stands.

    Attributes:
        version: Of its schema; 0 where there is none.
        wanted: The version that this program works with.
        store_id: Names the store; empty where there is none.
        server: The version of PostgreSQL.
        vectors: The version of pgvector; empty where it is not installed.
        problems: What must be put right before it is used.
    """

    version: int
    wanted: int
    store_id: str
    server: str
    vectors: str
    problems: tuple[str, ...]


def ready(url: str) -> Ready:
    """Make a new database ready, bring an older one forward, and leave a current one as it is.

    Raises:
        StoreBusy: If it cannot be reached.
        DatabaseNewer: If a newer version of this program made it.
        StorageFailed: If it may not be used, or not be made ready.
        ConfigInvalid: If the URL is none.
    """
    with connected(url) as raw:
        privileged, may_make_roles = raw.execute(
            "SELECT rolsuper OR rolbypassrls, rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user"
        ).fetchone() or (False, False)
        with raw.transaction():
            raw.execute("SELECT pg_advisory_xact_lock(hashtextextended('runebook schema', 0))")
            version, store_id = _version(raw)
            if version > SCHEMA_VERSION:
                raise DatabaseNewer(_newer(version), hint="Upgrade Runebook: the store was opened by a newer version.")
            if version < SCHEMA_VERSION:
                _log.info("the database's schema %d becomes %d", version, SCHEMA_VERSION)
                for step in range(version + 1, SCHEMA_VERSION + 1):
                    raw.execute(_script(step))
                if may_make_roles:
                    _grant(raw)
                _, store_id = _version(raw)
        return Ready(store_id, bool(privileged))


def state(url: str) -> State:
    """How a database stands; changes nothing.

    Raises:
        StoreBusy: If it cannot be reached.
        StorageFailed: If it may not be read.
        ConfigInvalid: If the URL is none.
    """
    with connected(url) as raw:
        version, store_id = _version(raw)
        (server,) = raw.execute("SELECT current_setting('server_version')").fetchone() or ("",)
        (vectors,) = raw.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone() or ("",)
        open_ = raw.execute(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
            "n.nspname = ANY(%s) AND c.relkind = 'r' AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY 1",
            (list(_ROWS),),
        ).fetchall()
    problems = [
        f"row-level security is off for {table}; its owner mends that: "
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        for (table,) in open_
    ]
    if version > SCHEMA_VERSION:
        problems.insert(0, _newer(version))
    elif version == 0:
        problems.insert(0, "it is not made ready: runebook db init")
    elif version < SCHEMA_VERSION:
        problems.insert(0, f"its schema version {version} is older than {SCHEMA_VERSION}: runebook db migrate")
    return State(version, SCHEMA_VERSION, store_id, server, vectors, tuple(problems))


def _newer(version: int) -> str:
    return f"the database has schema version {version}; this program knows {SCHEMA_VERSION}."


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection outside of every pool, as the user of the URL; see ``state`` for what it raises."""
    try:
        with store_errors(), psycopg.connect(url, autocommit=True, connect_timeout=10) as raw:
            raw.execute("SET client_min_messages = warning")
            if raw.info.parameter_status("server_encoding") != "UTF8":
                raise StorageFailed(
                    "the database does not store UTF-8.", hint="Make one with CREATE DATABASE … ENCODING 'UTF8'."
                )
            yield raw
    except psycopg.errors.InsufficientPrivilege as error:
        raise StorageFailed(
            f"the database may not be used or made ready: {said(error)}.",
            hint="Let its owner run runebook db migrate once, or let the user of store.url create schemas.",
        ) from error
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise StorageFailed(f"the database: {said(error)}.", hint="Check store.url.") from error
        raise ConfigInvalid(f"setting 'store.url': {error}.", hint="Write postgresql://user@host/name.") from error


def _version(raw: psycopg.Connection[tuple[Any, ...]]) -> tuple[int, str]:
    if raw.execute("SELECT to_regclass('runebook.store')").fetchone() == (None,):
        return 0, ""
    version, store_id = raw.execute("SELECT version, id FROM runebook.store").fetchone() or (0, "")
    return int(version), str(store_id)


def _script(version: int) -> bytes:
    name = "schema.sql" if version == 1 else f"schema_{version}.sql"
    return Path(__file__).with_name(name).read_bytes()


def _grant(raw: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Let the role that row-level security binds use the store."""
    if raw.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone() is None:
        raw.execute(f"CREATE ROLE {ROLE} NOLOGIN")
    rows = ", ".join(_ROWS)
    raw.execute(f"GRANT USAGE ON SCHEMA runebook, {rows} TO {ROLE}")
    raw.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {rows} TO {ROLE}")
    raw.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {rows} TO {ROLE}")
