"""The index in PostgreSQL: the catalog's own tables, words by ``words``, and vectors compared in the database.

What is indexed, and what it is asked, is ``index.catalog``'s; here is only what a database does in its own way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pgvector import HalfVector

from memory_core.core.index.catalog import Catalog
from memory_core.core.index.vectors import IndexStatus, Nearest, VectorIndex, VectorRow, changes, count
from memory_core.core.postgres.database import CANDIDATES, PostgresDatabase, PostgresLock, PostgresServer
from memory_core.core.postgres.hnsw import EXACT_BELOW, HnswIndexes
from memory_core.core.postgres.words import PostgresWords

if TYPE_CHECKING:
    from memory_core.core.index.catalog_file import CatalogFile
    from memory_core.core.index.vectors import Vector

#: A vector, and the document that its text is a passage of at present.
_SAME_TEXT = "p.uri = v.uri AND p.part = v.part AND p.content_sha256 = v.content_sha256"
_OF_DOCUMENTS = f"FROM vectors v JOIN passages p ON {_SAME_TEXT} WHERE v.space = ANY(%s) AND v.fingerprint = %s"
#: Rows of some spaces and a model by their distance from a vector, all of them read.
_SCAN = (
    "SELECT uri, part, content_sha256, vector <#> %s AS distance FROM vectors WHERE space = ANY(%s) "
    "AND fingerprint = %s ORDER BY distance LIMIT %s"
)


class PostgresCatalog(Catalog):
    """The catalog of one tenant.

    Args:
        server: The database.
        tenant: A user's space.
    """

    def __init__(self, server: PostgresServer, tenant: str) -> None:
        self.half = PostgresDatabase(server, "index", tenant)
        self._server = server
        self._tenant = tenant
        self.file = cast("CatalogFile", self.half)
        self.words = self.postgres_words = PostgresWords(self.half.connection)

    def lock(self, name: str) -> PostgresLock:
        """A lock of this tenant's index by its name, shared by all servers."""
        return PostgresLock(self._server, f"{self._tenant}/index/{name}", 30.0)

    def state(self, spaces: Sequence[str]) -> Hashable:  # noqa: ARG002 - all are the tenant's
        """What a search rests on: another once anything of the tenant's changed."""
        return self.position(), changes(self.connection())

    def together(self) -> AbstractContextManager[object]:
        """Several reads of one state."""
        return self.half.reading()

    def _meta(self) -> dict[str, str]:
        kept = self.half.connection().kept
        return super()._meta() if kept is None else dict(kept["meta"])

    def _numbers(self) -> dict[str, int]:
        kept = self.half.connection().kept
        return super()._numbers() if kept is None else dict(kept["spaces"])

    def append_vectors(self, connection: Any, rows: Iterable[VectorRow]) -> None:
        """Add vectors; one already there (same passage, text and model) is left as it is."""
        for row in rows:
            connection.native(
                "INSERT INTO vectors (space, uri, part, content_sha256, fingerprint, vector) "
                "VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (row.space, row.uri, row.part, row.content_sha256, row.fingerprint, _half(row.vector)),
            )
        connection.native(
            "INSERT INTO vector_changes AS kept (number) VALUES (1) ON CONFLICT (tenant, id) "
            "DO UPDATE SET number = kept.number + 1"
        )


class PostgresVectors(VectorIndex):
    """Nearest neighbours within the database: rows of small spaces are scanned, a large space has an HNSW index.

    Args:
        indexes: Those of the tenant.
        exact_below: With fewer rows of a space and model than this, all are scanned.
    """

    def __init__(self, indexes: HnswIndexes, exact_below: int = EXACT_BELOW) -> None:
        self.server = None
        self._indexes = indexes
        self._exact_below = exact_below

    def nearest(
        self, connection: Any, spaces: Sequence[str], fingerprint: str, queries: Sequence[Vector], k: int
    ) -> Nearest:
        """The ``k`` rows of all the spaces together that are nearest to each query."""
        found: dict[int, float] = {}
        complete = True
        # Some of what is near may be of texts that changed since: it is joined last, and looked beyond.
        wanted = 2 * k
        indexed = [space for space in spaces if wanted <= CANDIDATES and self._indexes.has(space, fingerprint)]
        scanned = [space for space in spaces if space not in indexed]
        for query in queries:
            sources: list[tuple[str, tuple[Any, ...]]] = [
                (self._indexes.nearest(space, fingerprint, len(query)), ()) for space in indexed
            ]
            if scanned:
                sources.append((_SCAN, (scanned, fingerprint)))
            rows = []
            for nearest, among in sources:
                rows += connection.native(
                    f"SELECT p.document_id, v.distance FROM ({nearest}) v LEFT JOIN passages p ON {_SAME_TEXT}",
                    (_half(query), *among, wanted),
                ).fetchall()
            rows = sorted(rows, key=itemgetter(1))[:wanted]
            live = [row for row in rows if row[0] is not None]
            complete = complete and not indexed and len(rows) < wanted and len(live) < k
            for document, distance in live[:k]:
                found[int(document)] = max(-float(distance), found.get(int(document), -1.0))
        return Nearest(found, complete)

    def cosines(
        self,
        connection: Any,
        spaces: Sequence[str],
        fingerprint: str,
        queries: Sequence[Vector],
        documents: Sequence[int],
    ) -> dict[int, float]:
        """The cosine of the row nearest to any query of each of these documents."""
        found: dict[int, float] = {}
        for query in queries if documents else ():
            rows = connection.native(
                f"SELECT p.document_id, min(v.vector <#> %s) {_OF_DOCUMENTS} AND p.document_id = ANY(%s) "
                "GROUP BY p.document_id",
                (_half(query), list(spaces), fingerprint, list(documents)),
            )
            for document, distance in rows:
                found[int(document)] = max(-float(distance), found.get(int(document), -1.0))
        return found

    def load(self, connection: Any, space: str, fingerprint: str) -> None:
        """Nothing is read ahead."""

    def keep_up(self, connection: Any, space: str, fingerprint: str) -> bool:
        """Have an HNSW index made of a space that has become large; the database writes newer rows to it."""
        if not self._indexes.has(space, fingerprint) and count(connection, space, fingerprint) >= self._exact_below:
            row = connection.execute(
                "SELECT vector_dims(vector) FROM vectors WHERE space = ? AND fingerprint = ? LIMIT 1",
                (space, fingerprint),
            ).fetchone()
            if row is not None:
                self._indexes.want(space, fingerprint, int(row[0]))
        return False

    def compact(self, connection: Any, space: str, fingerprint: str) -> None:
        """Rows that were pruned are kept nowhere."""

    def status(self, connection: Any, space: str, fingerprint: str) -> IndexStatus:
        """How this space and model are searched."""
        rows = count(connection, space, fingerprint)
        if self._indexes.has(space, fingerprint):
            return IndexStatus("hnsw", rows, 0, None)
        return IndexStatus("exact", 0, rows, None)

    def close(self) -> None:
        """Give up an index that is being made."""
        self._indexes.close()


def _half(vector: Vector) -> HalfVector:
    return HalfVector(np.asarray(vector, np.float32))
