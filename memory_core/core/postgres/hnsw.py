"""HNSW indexes of pgvector, one for each large space and model: made in the background, by one server at a time.

A search of such a space reads some hundred rows instead of all, and finds nearly all of the nearest. PostgreSQL keeps
the index current. Each is partial, over the rows of one tenant, space and model, so that those of others neither slow
it nor are seen by it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import suppress

import psycopg
from psycopg import sql

from memory_core.core.errors import RunebookError
from memory_core.core.postgres.database import acquire_lock
from memory_core.core.postgres.faults import said
from memory_core.core.postgres.schema import connected

_log = logging.getLogger(__name__)
#: With fewer rows than this, all of a space are scanned: that takes 40 ms at most on the machine of docs/measured.md.
EXACT_BELOW = 20_000
_CANCEL_SECONDS = 0.2


class HnswIndexes:
    """The indexes of one tenant.

    Args:
        url: ``postgresql://…``; its user owns the tables, else no index is made and rows are scanned.
        tenant: A user's space.
    """

    def __init__(self, url: str, tenant: str) -> None:
        self._url = url
        self._tenant = tenant
        self._guard = threading.Lock()
        self._made: set[tuple[str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None

    def has(self, space: str, fingerprint: str) -> bool:
        """Whether searches of this space and model may use an index."""
        return (space, fingerprint) in self._made

    def want(self, space: str, fingerprint: str, width: int) -> None:
        """Make an index of this space and model, or find that of another server; returns at once.

        Args:
            space: Of the rows.
            fingerprint: Of the model.
            width: Numbers of a vector.
        """
        with self._guard:
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and not self._closed and (space, fingerprint) not in self._made | self._refused:
                place = (space, fingerprint, width)
                self._thread = threading.Thread(target=self._make, args=place, name="runebook-hnsw", daemon=True)
                self._thread.start()

    def nearest(self, space: str, fingerprint: str, width: int) -> str:
        """The statement that reads ``(uri, part, content_sha256, distance)`` of the rows nearest to a vector.

        Its parameters are the vector and how many rows, ``CANDIDATES`` at most. All else is written out: PostgreSQL
        uses a partial index only where it can prove the condition.
        """
        return (
            sql.SQL(
                "SELECT uri, part, content_sha256, vector::halfvec({width}) <#> %s AS distance FROM vectors "
                "WHERE {rows} ORDER BY distance LIMIT %s"
            )
            .format(width=sql.Literal(width), rows=self._rows(space, fingerprint, percent="%%"))
            .as_string()
        )

    def close(self) -> None:
        """Give up what is being made; another server, or the next start, makes it."""
        with self._guard:
            self._closed = True
        while self._thread is not None and self._thread.is_alive():
            with self._guard:
                if self._connection is not None:
                    with suppress(psycopg.Error):
                        self._connection.cancel()  # one that comes between two statements ends neither
            self._thread.join(_CANCEL_SECONDS)

    def _make(self, space: str, fingerprint: str, width: int) -> None:
        digest = hashlib.sha256("\n".join((self._tenant, space, fingerprint)).encode()).hexdigest()
        name = f"vectors_near_{digest[:32]}"
        try:
            with connected(self._url) as raw:
                with self._guard:
                    self._connection = raw
                try:
                    made = not self._closed and self._is_made(raw, name, space, fingerprint, width)
                finally:
                    with self._guard:
                        self._connection = None
        except (RunebookError, psycopg.Error) as error:
            if not self._closed:
                # A lack of rights does not pass; what else failed is tried again by the next start, not each minute.
                self._refused.add((space, fingerprint))
                _log.warning(
                    "no HNSW index of %s, all of its rows are scanned: %s", space, said(error.__cause__ or error)
                )
            return
        if made:
            self._made.add((space, fingerprint))

    def _is_made(
        self, raw: psycopg.Connection[tuple[object, ...]], name: str, space: str, fingerprint: str, width: int
    ) -> bool:
        """Whether the index is there, after it was made unless another server is at it."""
        if not acquire_lock(raw, name, wait=False):
            return False
        place = sql.Identifier("runebook_index", name)
        valid = raw.execute(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", (f"runebook_index.{name}",)
        ).fetchone()
        if valid == (True,):
            return True
        if valid is not None:
            raw.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(place))  # its server ended within
        _log.info("making an HNSW index of %s", space)
        raw.execute(
            sql.SQL(
                "CREATE INDEX CONCURRENTLY {} ON runebook_index.vectors USING hnsw "
                "((vector::halfvec({})) halfvec_ip_ops) WHERE {}"
            ).format(sql.Identifier(name), sql.Literal(width), self._rows(space, fingerprint))
        )
        return True

    def _rows(self, space: str, fingerprint: str, *, percent: str = "%") -> sql.Composed:
        values = {"tenant": self._tenant, "space": space, "fingerprint": fingerprint}
        return sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(value.replace("%", percent)))
            for name, value in values.items()
        )
