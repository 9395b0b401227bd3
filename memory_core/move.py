"""A user's store from a folder to a database, or back: texts, history, receipts, queue, counts and tokens.

A move copies: the source stays as it is. Ledgers have the same tables on both sides, so rows are copied as they are,
and the index is made anew. Nothing is half there: in a database all but the tokens is one transaction, and a folder
gets its name when it is complete, so a move that was killed is started again. Before the commit, or before the rename,
all texts are read back and compared by hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from memory_core.core.config import Config, StoreConfig
from memory_core.core.conversation_notes import copy_notes
from memory_core.core.errors import InvalidInput, StorageFailed
from memory_core.core.memory.results import text_sha256
from memory_core.core.memory.uri import MemoryUri, Scope
from memory_core.core.progress import tell
from memory_core.core.store import atomic
from memory_core.core.store.files import LEDGER_NAME, STATE_NAME, FileStat, FileStore, Seen
from memory_core.core.store.issued_tokens import COLUMNS, IssuedTokens
from memory_core.core.store.ledger import Ledger, stored_text
from memory_core.core.store.logins import TABLES
from memory_core.core.store.sqlite import SET_META
from memory_core.features.export_file import remove_whole, sync_folder
from memory_core.runebook import Runebook, open_memory

_SCHEMES = ("postgresql://", "postgres://")
_PARTIAL = ".moving"
_COMMITS_AT_ONCE = 500
#: Files that a refusal names.
_NAMED = 20
#: Triggers fill ``directories``, ``_copy_tokens`` copies ``tokens``, and users log in again.
_SKIPPED_TABLES = frozenset({"directories", "tokens", *TABLES})
_SKIPPED_COLUMNS = {"commits": {"settled"}, "trail": {"id"}}
_BATCHED_TABLES = frozenset({"commits", "changes", "progress"})


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that is complete and verified.

    Attributes:
        to: Where it went.
        files: Texts that are there.
        commits: Of the history.
        tokens: Tokens that came along.
        tokens_left: Tokens of other users, and those whose label another one has there.
    """

    JSON: ClassVar = "to files commits tokens tokens_left"

    to: str
    files: int
    commits: int
    tokens: int
    tokens_left: int


def move(config: Config, to: str) -> Moved:
    """Copy the store of the user of ``config`` to an empty place of the other kind.

    Args:
        config: Settings of the source.
        to: ``postgresql://…``, or a folder.

    Raises:
        InvalidInput: If the source is of the same kind, holds several users or texts that a database cannot keep,
            files that are not UTF-8, or the target is not empty.
        StorageFailed: If something is different there; nothing of it counts.
        StoreBusy: If somebody wrote to the source for too long, or a database does not answer.
    """
    if to.startswith(_SCHEMES) == bool(config.store.url):
        raise InvalidInput(
            "a store is moved from a folder to a database, or from a database to a folder.",
            hint="Write --to postgresql://…, or set store.url and write --to FOLDER.",
        )
    with open_memory(config) as source:
        source.opened.adopted.wait()
        source.store.adopt()
        source.store.usage.flush()
        _expect_one_user(source)
        return _to_folder(source, Path(to).expanduser().resolve()) if config.store.url else _to_database(source, to)


def _to_database(source: Runebook, url: str) -> Moved:
    config = source.config.model_copy(update={"store": StoreConfig(url=url)})
    with open_memory(config) as target, source.store.exclusive():
        _expect_utf8(source)
        ledger = target.store.ledger
        _expect_empty(ledger.database.connection(), url)
        tokens = _copy_tokens(source, target.opened.tokens())  # first: those of a move that was killed are there
        with ledger.database.writing() as target_rows, source.store.ledger.database.reading() as source_rows:
            _expect_empty(target_rows, url)
            commits = _copy(source_rows, target_rows, _tables(source.store.ledger))
            (files,) = target_rows.execute("SELECT count(*) FROM files").fetchone()
    return Moved(_shown(url), files, commits, *tokens)


def _to_folder(source: Runebook, target: Path) -> Moved:
    if not target.name:
        raise InvalidInput(f"{str(target)!r} is no name of a folder.", hint="Name a folder below it.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInput(f"{target.name!r} is not empty.", hint="Name a folder that is empty, or not there yet.")
    partial = target.with_name(f"{target.name}{_PARTIAL}")
    if partial.exists():
        if not (partial / STATE_NAME / LEDGER_NAME).is_file():
            raise InvalidInput(f"{partial.name!r} is there, and no unfinished move.", hint="Take it away.")
        remove_whole(partial)
    atomic.make_folder(partial)
    files = FileStore(partial)
    ledger = Ledger(files.state / LEDGER_NAME)
    try:
        with source.store.ledger.database.writing() as source_rows:
            with ledger.database.writing() as target_rows:
                commits = _copy(source_rows, target_rows, _tables(ledger))
            tokens = _copy_tokens(source, ledger.tokens)
            stats: dict[MemoryUri, FileStat | None] = {}
            for uri, text in _texts(ledger.database.connection()):
                stats[uri] = files.write(uri, text, Seen(None))
                if text_sha256(files.path_for(uri).read_bytes().decode()) != text_sha256(text):
                    raise _different(str(uri))
            files.sync(*stats)
            ledger.settle((), stats)
        copy_notes(source.store.files.state, files.state, with_read=True)
    finally:
        ledger.close()
    if target.exists():
        target.rmdir()
    partial.rename(target)
    sync_folder(target.parent)
    return Moved(str(target), len(stats), commits, *tokens)


def _expect_one_user(source: Runebook) -> None:
    """A database keeps users apart; where users share an agent space, nobody knows whose its memories are."""
    own = source.config.user_space
    others: set[str] = set()
    agents: set[str] = set()
    for (uri,) in source.store.ledger.database.connection().execute("SELECT DISTINCT uri FROM changes"):
        parts = MemoryUri.parse(uri).parts
        parts = parts[1:] if parts[0] == Scope.ARCHIVE.value else parts
        if len(parts) > 1 and parts[0] in {Scope.USER.value, Scope.SESSION.value} and parts[1] != own:
            others.add(parts[1])
        elif len(parts) > 1 and parts[0] == Scope.AGENT.value and parts[1] != source.config.agent_space:
            agents.add(parts[1])
    tokens = source.opened.tokens().rows(revoked=True)
    others |= {token.user_space for token in tokens if token.user_space != own and token.agent_space in agents}
    if others:
        raise InvalidInput(
            f"the folder holds memories of others than {own!r}: {', '.join(sorted(others))}.",
            hint="Move folders of one user: export each user with runebook export, and import them.",
        )


def _expect_utf8(source: Runebook) -> None:
    """A database keeps texts: of a file that is not UTF-8 it would have what could be read of it."""
    found = list(map(str, source.store.not_utf8()))
    if found:
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        raise InvalidInput(
            f"a database cannot keep files that are not UTF-8: {', '.join(found[:_NAMED])}{more}.",
            hint="Save them as UTF-8, or move them out of the folder; "
            "if they are gone, confirm it with runebook restore --forget-missing. Then move again.",
        )


def _shown(url: str) -> str:
    """A database's address without its password and options."""
    return re.sub(":[^@/]*@", "@", url, count=1).partition("?")[0]


def _expect_empty(there: Any, url: str) -> None:
    for table in ("commits", "extractions"):
        if there.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None:
            raise InvalidInput(
                f"{_shown(url)} holds memories of this user already.",
                hint="Name another database, or another user_space.",
            )


def _tables(ledger: Ledger) -> Mapping[str, tuple[str, ...]]:
    """The tables of a folder's ledger in the order of their making, and the columns that are copied."""
    connection = ledger.database.connection()
    named = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    found: dict[str, tuple[str, ...]] = {}
    for (table,) in named.fetchall():
        if table not in _SKIPPED_TABLES:
            columns = (str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})"))
            found[table] = tuple(name for name in columns if name not in _SKIPPED_COLUMNS.get(table, ()))
    return found


def _copy(here: Any, there: Any, tables: Mapping[str, tuple[str, ...]]) -> int:
    """Copy all rows and compare them; the number of commits."""
    for table, columns in tables.items():
        marks = ", ".join("?" for _ in columns)
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})" if table != "meta" else SET_META
        for rows in _rows(here, table, columns):
            for row in rows:
                if any(isinstance(value, str) and "\0" in value for value in row):
                    raise InvalidInput(
                        f"a row of {table} holds the character NUL, which a database cannot keep: {row[:3]!r}.",
                        hint="Rewrite or purge that memory.",
                    )
            there.executemany(statement, rows)
        if _digest(here, table, columns) != _digest(there, table, columns):
            raise _different(table)
    there.execute("UPDATE commits SET settled = 1")
    (commits,) = there.execute("SELECT count(*) FROM commits").fetchone()
    for number, (uri, sha256) in enumerate(there.execute("SELECT uri, sha256 FROM files").fetchall(), 1):
        tell("comparing", number, unit="files")
        if text_sha256(stored_text(there, uri) or "") != sha256:
            raise _different(uri)
    return int(commits)


def _rows(connection: Any, table: str, columns: tuple[str, ...]) -> Iterator[list[tuple[Any, ...]]]:
    asked = f"SELECT {', '.join(columns)} FROM {table}"
    if table == "meta":
        yield connection.execute(f"{asked} WHERE name <> 'ledger_id'").fetchall()
    elif table not in _BATCHED_TABLES:
        yield connection.execute(f"{asked} ORDER BY id" if table == "trail" else asked).fetchall()
    else:
        (newest,) = connection.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()
        for first in range(0, newest, _COMMITS_AT_ONCE):
            tell(f"copying and comparing {table}", first, newest, unit="commits")
            limits = (first, first + _COMMITS_AT_ONCE)
            yield connection.execute(f"{asked} WHERE seq > ? AND seq <= ?", limits).fetchall()


def _digest(connection: Any, table: str, columns: tuple[str, ...]) -> int:
    """A sum over all rows, whatever their order."""
    total = 0
    for rows in _rows(connection, table, columns):
        for row in rows:
            total += int.from_bytes(hashlib.sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest(), "big")
    return total


def _texts(connection: Any) -> Iterator[tuple[MemoryUri, str]]:
    for (uri,) in connection.execute("SELECT uri FROM files ORDER BY uri").fetchall():
        yield MemoryUri.parse(uri), stored_text(connection, uri) or ""


def _copy_tokens(source: Runebook, table: IssuedTokens) -> tuple[int, int]:
    """Add the user's tokens without their shared spaces, whose names may be others' there.

    Those whose label is taken are left. One that is there from a move that was killed holds no longer than here.
    """
    shared = COLUMNS.index("shared")
    tokens = source.opened.tokens()
    own = [(*row[:shared], "", *row[shared + 1 :]) for row in tokens.dump(source.config.user_space)]
    added, left = table.take_in(own)
    table.follow(own, alone=False)
    return added, left + len(tokens.rows(revoked=True)) - len(own)


def _different(what: str) -> StorageFailed:
    return StorageFailed(
        f"{what} is different in the place that it was moved to.", hint="Nothing was moved; report it."
    )
