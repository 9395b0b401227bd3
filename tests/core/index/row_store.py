"""Rows of vectors in a store's ``.state`` folder, as the tests of every index write and search them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from memory_core.core.index import embedding_queue, vectors
from memory_core.core.index.catalog_file import CatalogFile
from memory_core.core.index.vector_scan import Vector
from memory_core.core.index.vectors import VectorIndex, VectorRow

SPACE = "user/张三"
MODEL = "model-a"
DIM = 32


def unit(seed: int) -> Vector:
    drawn = np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn), np.float32)


def uri_of(number: int, space: str = SPACE) -> str:
    return f"viking://{space}/memories/支付系统 {number}.md"


def row(number: int, space: str = SPACE, fingerprint: str = MODEL) -> VectorRow:
    return VectorRow(space, uri_of(number, space), 0, f"{number:064x}", fingerprint, unit(number))


class RowStore:
    """A ``.state`` folder as one process sees it. The document of row *n* has the number n + 1."""

    def __init__(self, state: Path, index: VectorIndex) -> None:
        self.state = state
        self.catalog = CatalogFile(state / "index.sqlite3")
        self.index = index
        self.scan = VectorIndex(state)

    @property
    def connection(self) -> sqlite3.Connection:
        return self.catalog.connection()

    def add(self, *numbers: int, space: str = SPACE) -> None:
        """Texts with their vectors."""
        with self.catalog.writing() as connection:
            for number in numbers:
                uri, sha256 = uri_of(number, space), f"{number:064x}"
                embedding_queue.put(connection, number + 1, space, uri, 0, str(number), sha256)
            vectors.append(connection, [row(number, space) for number in numbers])

    def remove(self, *numbers: int) -> None:
        """Texts, whose vectors stay."""
        with self.catalog.writing() as connection:
            for number in numbers:
                embedding_queue.remove(connection, uri_of(number))

    def prune(self) -> None:
        """Vectors whose texts are gone."""
        with self.catalog.writing() as connection:
            vectors.prune(connection, vectors.dead(connection, SPACE, MODEL))
        self.index.compact(self.connection, SPACE, MODEL)

    def keep_up(self) -> None:
        while self.index.keep_up(self.connection, SPACE, MODEL):
            continue

    def near(self, seed: int, k: int = 10, space: str = SPACE) -> list[int]:
        """Documents near a vector, best first."""
        return self._best(self.index, seed, k, space)

    def exact(self, seed: int, k: int = 10) -> list[int]:
        """The same by a scan."""
        return self._best(self.scan, seed, k, SPACE)

    def _best(self, index: VectorIndex, seed: int, k: int, space: str) -> list[int]:
        found = index.nearest(self.connection, [space], MODEL, [unit(seed)], k).cosines
        return sorted(found, key=lambda document: -found[document])[:k]

    def backend(self) -> str:
        return self.index.status(self.connection, SPACE, MODEL).backend

    def close(self) -> None:
        self.index.close()
        self.catalog.close()
