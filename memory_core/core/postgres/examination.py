"""One tenant's rows as an examination looks at them, and what the database says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_core.core.index.catalog import words_of
from memory_core.core.postgres import schema
from memory_core.core.postgres.catalog import PostgresCatalog
from memory_core.core.postgres.database import PostgresServer
from memory_core.core.postgres.store import PostgresFiles, PostgresLedger

if TYPE_CHECKING:
    from memory_core.core.index.documents import Document
    from memory_core.core.postgres.words import PostgresWords


class HeldLock(NamedTuple):
    """A lock that a server holds: its name, the process of the database, and for how many seconds."""

    name: str
    process: int
    seconds: float


class Parts(NamedTuple):
    """The parts of one tenant."""

    ledger: PostgresLedger
    catalog: PostgresCatalog
    files: PostgresFiles


class ExaminedDatabase:
    """What an examination asks of a database; nothing of it shows another tenant.

    Args:
        url: ``postgresql://…``.
        tenant: A user's space.
        parts: None where the schema is not the one that this program works with.
        state: How the database stands.
    """

    def __init__(self, url: str, tenant: str, parts: Parts | None, state: schema.State) -> None:
        self._url = url
        self._tenant = tenant
        self.parts = parts
        self.state = state

    @contextmanager
    def reading(self) -> Iterator[tuple[Any, Any]]:
        """Connections to both halves, each of one moment, which the files are read through, too."""
        if self.parts is None:
            yield None, None
            return
        with self.parts.ledger.half.reading() as ledger, self.parts.catalog.half.reading() as catalog:
            yield ledger, catalog

    def held_longer(self, names: Sequence[str], seconds: float) -> list[HeldLock]:
        """Which of these locks of the tenant are held, unchanged, for longer than that."""
        asked = {f"{self._tenant}/{name}": name for name in names}
        with schema.connected(self._url) as raw:
            found = raw.execute(
                "SELECT name, a.pid, extract(epoch FROM now() - a.state_change)::float8 FROM unnest(%s::text[]) name "
                "JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
                "AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended(name, 1) "
                "JOIN pg_database d ON d.oid = l.database AND d.datname = current_database() "
                "JOIN pg_stat_activity a ON a.pid = l.pid "
                "WHERE a.state_change < now() - make_interval(secs => %s) ORDER BY 1",
                (list(asked), seconds),
            ).fetchall()
        return [HeldLock(asked[name], int(process), float(held)) for name, process, held in found]

    def has_words(self, connection: Any, uri: str, documents: Sequence[Document]) -> bool:
        """Whether the words of a file's documents are those that its text has."""
        words: PostgresWords = self._parts().catalog.postgres_words
        numbers: Mapping[int, int] = dict(
            connection.execute("SELECT part, id FROM documents WHERE uri = ?", (uri,)).fetchall()
        )
        return all(
            document.part in numbers and words.holds(numbers[document.part], *words_of(document))
            for document in documents
        )

    def unsound(self, connection: Any) -> list[int]:
        """Numbers of rows whose vector is none: of a size unlike its model's others, or not of length 1."""
        return [
            int(seq)
            for (seq,) in connection.native(
                "SELECT v.seq FROM vectors v JOIN (SELECT fingerprint, mode() WITHIN GROUP "
                "(ORDER BY vector_dims(vector) DESC) AS size FROM vectors GROUP BY fingerprint) m USING (fingerprint) "
                "WHERE vector_dims(v.vector) <> m.size OR abs(l2_norm(v.vector) - 1) > %s ORDER BY v.seq",
                (_LENGTH_TOLERANCE,),
            )
        ]

    def _parts(self) -> Parts:
        assert self.parts is not None, "asked for only where there is a tenant"
        return self.parts


#: How far a length may be from 1: numbers are of half precision.
_LENGTH_TOLERANCE = 0.01


@contextmanager
def examined_database(url: str, tenant: str, state_folder: Path) -> Iterator[ExaminedDatabase]:
    """Open a database to be looked at, or mended; its schema stays as it is.

    Args:
        url: ``postgresql://…``.
        tenant: A user's space.
        state_folder: A folder of this machine; see ``PostgresFiles``.

    Raises:
        StoreBusy: If it cannot be reached.
        StorageFailed: If it may not be read.
        ConfigInvalid: If the URL is none.
    """
    state = schema.state(url)
    with ExitStack() as opened:
        parts = None
        if state.version == state.wanted:
            server = opened.enter_context(closing(PostgresServer(url)))
            ledger, catalog = PostgresLedger(server, tenant), PostgresCatalog(server, tenant)
            parts = Parts(ledger, catalog, PostgresFiles(ledger, catalog.half, state_folder))
        yield ExaminedDatabase(url, tenant, parts, state)
