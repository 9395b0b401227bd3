"""The store of one tenant in PostgreSQL: the transactions of ``store.local``, with rows where that one has files.

A commit is one database transaction under the tenant's lock: planned on what the rows say, recorded, acknowledged when
it is committed. There is no disk to bring anything to, so nobody edits a file by hand and nothing is left to deliver.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from memory_core.core.background import Background
from memory_core.core.errors import NeedsFolder, RunebookError
from memory_core.core.memory.directory_page import is_generated, with_own_words
from memory_core.core.memory.names import fold
from memory_core.core.memory.results import CommitReceipt, FileChange, FileProblem, as_json, text_sha256
from memory_core.core.memory.uri import ABSTRACT_NAME, MemoryUri, Scope
from memory_core.core.postgres.database import PostgresDatabase, PostgresLock, PostgresServer
from memory_core.core.store.delivery import Delivered, Step
from memory_core.core.store.files import Entry, FileStat, FileStore, Looks, Seen, no_directory
from memory_core.core.store.ledger import Ledger, Overtaken, stored_text
from memory_core.core.store.local import Foreseen, Store
from memory_core.core.store.usage import UsageLog

if TYPE_CHECKING:
    from memory_core.core.store.delivery import Delivery
    from memory_core.core.store.hand_edits import Adoption
    from memory_core.core.store.locks import StoreLock
    from memory_core.core.store.sqlite import Database

_log = logging.getLogger(__name__)
_NS_PER_MS = 1_000_000


class PostgresLedger(Ledger):
    """The ledger of one tenant."""

    def __init__(self, server: PostgresServer, tenant: str) -> None:
        self._id = f"{server.store_id}/{tenant}"
        self.half = PostgresDatabase(server, "ledger", tenant)
        self._use(cast("Database", self.half))

    @property
    def ledger_id(self) -> str:
        """Names this ledger for its whole life."""
        return self._id

    def newest_seq(self) -> int:
        """The last commit's number; 0 when there is none."""
        known = self.half.connection().newest
        return super().newest_seq() if known is None else known

    def _append(self, connection: Any, values: Sequence[Any], follows: int | None) -> int:
        """Add the row of a commit, which is whole with its transaction; see ``Ledger.record``."""
        newest = self.newest_seq()  # the tenant is held: nobody else adds one
        if follows not in (None, newest):
            raise Overtaken
        connection.execute(
            "INSERT INTO commits (commit_id, request_id, at, kind, receipt, settled, author, undoes, seq) "
            "VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?)",
            (*values[:5], *values[6:], newest + 1),
        )
        connection.newest = newest + 1
        return newest + 1


class PostgresFiles(FileStore):
    """The texts of one tenant, by URI, as a reader of files asks for them; pages of directories are the index's.

    Args:
        ledger: Holds the texts.
        pages: The half of the database that holds pages.
        state: A folder of this machine for what is no memory: lock files and working folders of programs.
    """

    def __init__(self, ledger: PostgresLedger, pages: PostgresDatabase, state: Path) -> None:
        self.root = state.parent
        self.state = state
        self.unusable = {}
        self._ledger = ledger
        self._pages = pages

    def look(self, uri: MemoryUri, *, strict: bool = False) -> tuple[str | None, Seen]:  # noqa: ARG002
        """The text at a URI, a page with its list, and its hash."""
        text = stored_text(cast("Any", self._ledger.half.connection()), str(uri), named=True)
        if uri.is_summary:
            row = self._pages.connection().execute("SELECT text FROM pages WHERE uri = ?", (str(uri),)).fetchone()
            text = _page(uri.name, None if row is None else str(row[0]), text)
        return text, Seen(None if text is None else text_sha256(text))

    def looks_in(self, directory: MemoryUri) -> dict[str, Looks]:
        """Last commit, size and time of the texts of a directory, by name."""
        rows = self._ledger.half.connection().execute(
            "SELECT uri, seq, size_bytes, mtime_ns FROM files WHERE directory = ?", (str(directory),)
        )
        return {uri.rpartition("/")[2]: (seq, size or 0, mtime or 0) for uri, seq, size, mtime in rows}

    def path_for(self, uri: MemoryUri) -> Path:
        """There are no paths."""
        raise NeedsFolder(f"the path of {uri}")

    def stat(self, uri: MemoryUri) -> FileStat | None:
        """Size of the text and time of its last commit; None for none."""
        for half, table in ((self._ledger.half, "files"), (self._pages, "pages")):
            if table == "files" or uri.is_summary:
                found = half.connection().execute(f"SELECT {_SIZES[table]} FROM {table} WHERE uri = ?", (str(uri),))
                if (row := found.fetchone()) is not None:
                    return _stat(*row)
        return None

    def is_dir(self, uri: MemoryUri) -> bool:
        """Whether something is below; the root always is there."""
        if not uri.parts:
            return True
        found = self._ledger.half.connection().execute(
            "SELECT 1 FROM files WHERE directory = ? OR (directory > ? AND directory < ?) LIMIT 1",
            (str(uri), f"{uri}/", f"{uri}0"),  # "0" is the character after "/"
        )
        return found.fetchone() is not None

    def entries(self, directory: MemoryUri) -> list[Entry]:
        """The entries of a directory by name.

        Raises:
            NotFound: If nothing is there.
        """
        found: dict[str, Entry] = {}
        prefix = str(directory) if directory.parts else "viking:/"
        connection = self._ledger.half.connection()
        below = connection.execute(
            "SELECT directory, max(mtime_ns) FROM files WHERE directory > ? AND directory < ? GROUP BY directory",
            (f"{prefix}/", f"{prefix}0"),
        )
        for place, newest in below:
            child = directory.child(str(place)[len(prefix) + 1 :].partition("/")[0])
            known = found.get(child.name)
            stat = _stat(0, max(newest or 0, 0 if known is None else known.stat.mtime_ns))
            found[child.name] = Entry(child, True, stat)
        for half, table in ((self._pages, "pages"), (self._ledger.half, "files")):
            listed = half.connection().execute(
                f"SELECT uri, {_SIZES[table]} FROM {table} WHERE directory = ?", (str(directory),)
            )
            for uri, *sizes in listed:
                entry = Entry(MemoryUri.parse(uri), False, _stat(*sizes))
                found[entry.uri.name] = entry
        if directory.parts and not found:
            raise no_directory(directory)
        return [found[name] for name in sorted(found) if directory.parts or name in {scope.value for scope in Scope}]

    def contents(self) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
        """Every text: its path, and what opens it."""
        for entry in self.walk():
            text = self.look(entry.uri)[0] or ""
            yield "/".join(entry.uri.parts), partial(BytesIO, text.encode())

    def write(
        self,
        uri: MemoryUri,
        text: str | None,
        seen: Seen,  # noqa: ARG002 - who made the page last is right
        written: Callable[[], None] = lambda: None,
    ) -> FileStat | None:
        """Keep a page of a directory as it was made; None drops it. Memories are written by commits alone."""
        written()
        with self._pages.transaction() as connection:
            if text is None:
                connection.execute("DELETE FROM pages WHERE uri = ?", (str(uri),))
                return None
            now = _now_ns()
            connection.execute(
                "INSERT INTO pages VALUES (?, ?, ?, ?) ON CONFLICT (uri) DO UPDATE SET text = excluded.text, "
                "mtime_ns = excluded.mtime_ns",
                (str(uri), str(uri.parent), text, now),
            )
        return FileStat(len(text.encode()), now)

    def sync(self, *uris: MemoryUri) -> None:
        """A transaction that ended is on disk."""


def _page(name: str, made: str | None, words: str | None) -> str | None:
    """A directory's page: what somebody wrote, above the list as it was made last."""
    if name == ABSTRACT_NAME:
        return made if words is None and made is not None and is_generated(made) else words
    return None if made is None and words is None else with_own_words(name, made, words)


#: Size in bytes and time, of a row of a table.
_SIZES = {"files": "size_bytes, mtime_ns", "pages": "octet_length(text), mtime_ns"}


def _now_ns() -> int:
    return int(datetime.now(UTC).timestamp() * 1_000) * _NS_PER_MS


def _stat(size_bytes: int | None, mtime_ns: int | None) -> FileStat:
    return FileStat(int(size_bytes or 0), int(mtime_ns or 0))


class PostgresStore(Store):
    """The store of one tenant.

    Args:
        server: The database.
        tenant: A user's space.
        pages: The half of the database that holds pages.
        state: See ``PostgresFiles``.
        background: Does what requests leave behind.
        step: Observes the steps of a commit.
    """

    def __init__(
        self,
        server: PostgresServer,
        tenant: str,
        pages: PostgresDatabase,
        state: Path,
        background: Background,
        step: Step,
    ) -> None:
        self._private = None
        self._server = server
        self._tenant = tenant
        self._step = step
        self._background = background
        self.ledger = ledger = PostgresLedger(server, tenant)
        self._half = ledger.half
        self.files = PostgresFiles(ledger, pages, state)
        self._lock = cast("StoreLock", _Writing(self._half))
        self._receipts: list[CommitReceipt] = []
        self._receipts_guard = threading.Lock()
        self.usage = UsageLog(self.ledger.usage_table, self.ledger.model_calls, self._leave)
        self._delivery = cast("Delivery", _Recorded(ledger, self._finish))
        self.adoption = cast("Adoption", _NoHandEdits())
        self.make_pages = lambda _uri: None

    def close(self) -> None:
        """Write what was left for later."""
        self.settle()

    def settle(self) -> None:
        """Write down what was used, and the final form of receipts."""
        self.usage.flush()
        with self._receipts_guard:
            receipts, self._receipts = self._receipts, []
        if receipts:
            try:
                self.ledger.attach([as_json(receipt) for receipt in receipts])
            except RunebookError as error:
                _log.warning("%d receipts keep their first form: %s", len(receipts), error.message)

    def text(self, uri: MemoryUri) -> str | None:
        """The text at a URI, or None."""
        if uri.is_summary:
            self.make_pages(uri)
        return self.files.look(uri)[0]

    def look(self, uri: MemoryUri) -> tuple[str | None, Seen]:
        """What the ledger keeps of a text, and its hash."""
        text = stored_text(cast("Any", self._half.connection()), str(uri), named=True)
        return text, Seen(None if text is None else text_sha256(text))

    def foresee(self, uri: MemoryUri, memory_type: str, key: str) -> Foreseen:
        """What a plan asks of a memory, in one question."""
        directory = str(uri.parent)
        asked = self._half.connection().native(
            "SELECT EXISTS (SELECT FROM files WHERE uri = %s), (SELECT uri FROM files WHERE directory = %s "
            "AND memory_type = %s AND key = %s LIMIT 1), EXISTS (SELECT FROM files WHERE directory = %s "
            "AND name_fold = %s)",
            (str(uri), directory, memory_type, key, directory, fold(uri.name)),
        )
        is_there, holder, is_taken = asked.fetchone() or (True, None, True)
        return Foreseen(bool(is_there), None if holder is None else MemoryUri.parse(holder), bool(is_taken))

    def name_taken(self, directory: MemoryUri, name: str) -> bool:
        """Whether the name, or a twin of it, is in use in this directory."""
        return self.ledger.name_taken(directory, name)

    def lock(self, name: str, timeout_seconds: float = 0.0) -> PostgresLock:
        """A lock by its name: one server at a time does something for this tenant."""
        return PostgresLock(self._server, f"{self._tenant}/{name}", timeout_seconds)

    def expect_folder(self, doing: str) -> None:
        """Refuse what works on files."""
        raise NeedsFolder(doing)

    @property
    def kept_of_erased(self) -> str:
        """Where what was erased may still be."""
        return (
            "backups, exports, replicas and the database's write-ahead log are not touched; its next VACUUM frees space"
        )

    def watch(self) -> None:
        """There are no files that somebody could change."""

    def adopt(self, spaces: Sequence[str] = ()) -> int:  # noqa: ARG002
        """There is nothing to take in."""
        return 0

    def problems(self) -> list[FileProblem]:
        """No file is written by hand."""
        return []

    def vanished(self) -> list[MemoryUri]:
        """Nothing vanishes that no commit removed."""
        return []

    def not_utf8(self) -> list[MemoryUri]:
        """Texts are all that there is."""
        return []

    def bring_back_vanished(self) -> list[MemoryUri]:
        """Nothing vanishes that no commit removed."""
        return []

    def forget_vanished(self) -> list[MemoryUri]:
        """Nothing vanishes that no commit removed."""
        return []

    def _is_still(self, change: FileChange, view: Any) -> bool:  # noqa: ARG002
        return True  # the plan was made in the transaction that records it

    def _edited_by_hand(self, changes: Iterable[FileChange]) -> list[FileChange]:  # noqa: ARG002
        return []

    def _finish(self, receipt: CommitReceipt) -> None:
        with self._receipts_guard:
            self._receipts.append(receipt)
        self._leave()

    def _leave(self) -> None:
        self._background.later(self.settle)


class _Writing:
    """The lock of a tenant's writer: a transaction."""

    def __init__(self, half: PostgresDatabase) -> None:
        self._half = half

    @contextmanager
    def held(self, _timeout_seconds: float | None = None) -> Iterator[None]:
        with self._half.writing():
            yield

    def give_way(self) -> None:
        """Do nothing: the database keeps writers and readers apart."""


class _Recorded:
    """What stands where files are delivered: a commit is whole once it is recorded."""

    undelivered: Collection[MemoryUri] = frozenset()

    def __init__(self, ledger: PostgresLedger, finish: Callable[[CommitReceipt], None]) -> None:
        self._ledger = ledger
        self.finish = finish

    def recover(self) -> int:
        """The number of the last commit."""
        return self._ledger.newest_seq()

    def deliver(self, _seq: int, changes: Sequence[FileChange], _seen: Mapping[MemoryUri, Seen]) -> Delivered:
        """Note size and time of each text, in the transaction that records it."""
        now = _now_ns()
        sizes = {str(change.uri): len(change.after.encode()) for change in changes if change.after is not None}
        self._ledger.half.connection().native(
            "UPDATE files SET size_bytes = bytes, mtime_ns = %s "
            "FROM unnest(%s::text[], %s::bigint[]) AS t (place, bytes) WHERE uri = place",
            (now, list(sizes), list(sizes.values())),
        )
        return Delivered()


class _NoHandEdits:
    """What stands where changes by hand are taken in: there are none."""

    on_adopted: Callable[[], None]

    def __init__(self) -> None:
        self.times = self

    def writing(self, _directories: Collection[MemoryUri]) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, *_changes: Any) -> None:
        return None

    def take_in_recent(self, _seconds: float) -> bool:
        return True

    def renew(self, _uris: Iterable[str]) -> bool:
        return False
